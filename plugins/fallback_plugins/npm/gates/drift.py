"""Do the base commit's packages and the patched tree's differ in more than the patch moves?

As for Python projects (``pypi/gates/drift.py``, ADR-0064): where no lock decides, a release that came in
between the two installs is in one of them alone.
"""

import re
from collections.abc import Iterable

from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.installing.modules_layer import Package
from fallback_plugins.npm.manifests.layout import ECOSYSTEM
from fallback_plugins.shared.gates.drifting import not_by_patch
from fallback_tier.gate_ports import GateContext

_NAMES = (re.compile(r"[\w.~-]+"), re.compile(r"@[\w.~-]+/[\w.~-]+"))


def drifted(ours: Installation, base: Installation) -> list[str]:
    """Packages of other releases than at the base commit, and not by the patch.

    By the patch is what its lines name, what the advisory is about, and what differs beside those that ask
    for it or that it asks for. None where the lock decides here, or one tree is not installed. Raises
    OSError.
    """
    here = ours.found()
    if ours.key == base.key or here is None or not here.of_day or base.found() is None:
        return []
    found = [tuple(tree.packages()) for tree in (ours, base)]
    now, then = map(_releases, found)
    moved = {name for name in {*now, *then} if now.get(name) != then.get(name)}
    edges = {(one.name, asked) for some in found for one in some for asked in one.asks}
    return [
        f"{name} ({_in_words(now, name)}, there {_in_words(then, name)})"
        for name in not_by_patch(moved, edges, _named_by_patch(ours.context))
    ]


def _releases(packages: Iterable[Package]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in packages:
        found.setdefault(one.name, set()).add(one.version)
    return found


def _in_words(releases: dict[str, set[str]], name: str) -> str:
    return ", ".join(sorted(releases.get(name, {"none"})))


def _named_by_patch(context: GateContext) -> set[str]:
    changed = [line for line in context.application.diff.splitlines() if line[:1] in {"+", "-"}]
    words = {word for line in changed for one in _NAMES for word in one.findall(line)}
    return words | {*context.advisory.packages(ECOSYSTEM)}
