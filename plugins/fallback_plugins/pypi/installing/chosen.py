"""The Python that a fix's runs were moved to, because its proof could not start on the first (ADR-0085).

Kept in the cache by fix and base commit, so that every gate and every attempt, also of a resumed fix, runs
on the same one.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fallback_plugins.pypi.installing.pythons import minor_of
from fallback_plugins.shared.gates import gating
from fallback_tier.gate_ports import GateContext

_FOLDER = "pythons"


def of_fix(context: GateContext, suited: Sequence[Path]) -> tuple[Path, ...]:
    """Those of ``suited`` that this fix's runs may be on: the chosen one; all where none was chosen."""
    name = ""
    with suppress(FileNotFoundError):
        name = _place(context).read_text("utf-8")
    return tuple(python for python in suited if python.name == name) or tuple(suited)


def choose(context: GateContext, python: Path | None) -> None:
    """From now on this fix's runs are on this Python; None: on any, ours first."""
    place = _place(context)
    if python is None:
        place.unlink(missing_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(f".{secrets.token_hex(4)}")
    partial.write_text(f"python3.{minor_of(python)}", encoding="utf-8")
    partial.replace(place)


def _place(context: GateContext) -> Path:
    return (
        context.cache / _FOLDER / gating.content_key(context.repo.fix_id, context.repo.base_commit)
    )
