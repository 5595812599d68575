"""What gates keep, for one gate transition alone: those that are run again start from nothing.

What was seen at the base commit before, or what could be installed then, may be what misled them. It is
kept between the processes of that transition, as the shared cache is: a gate finds what one before it
fetched.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

from fallback_audit.ports import Scope
from fallback_tier.files.folders import remove_tree


def cache_of_its_own(cache: Path, scope: Scope) -> Path:
    """The folder below the shared one; gates make it. An identifier is anybody's text: it names no path."""
    name = f"{scope.fix_id}\0{scope.gate_transition_id}".encode("utf-8", "replace")
    return cache / f"again-{hashlib.sha256(name).hexdigest()[:32]}"


def forget_cache(cache: Path, scope: Scope) -> None:
    """The transition has ended, and that is on record: what can't be removed costs space alone."""
    with suppress(OSError):
        remove_tree(cache_of_its_own(cache, scope))
