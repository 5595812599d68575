"""Verdicts of runs in two trees whose packages differ in more than the patch moves (ADR-0064, ADR-0077)."""

from collections.abc import Collection, Sequence

from fallback_plugins.shared.gates import gating
from fallback_tier.gate_ports import GateVerdict

#: Releases that a verdict's one sentence names.
_RELEASES_NAMED = 3


def beside_sets_made_anew(verdict: GateVerdict) -> GateVerdict:
    """Undecided: what is installed became another while the gate ran, which may have run on either."""
    what = f"{verdict.detail}; and what is installed was made anew meanwhile, and is another"
    return gating.undecided(verdict.gate, what, verdict.log)


def beside_other_releases(verdict: GateVerdict, messages: Sequence[str]) -> GateVerdict:
    """Undecided where releases differ from the base commit's that the patch does not move; ``messages``:
    which (``not_by_patch``)."""
    if not messages:
        return verdict
    return gating.undecided(
        verdict.gate, f"{verdict.detail}; and {in_words(messages)}", verdict.log
    )


def in_words(messages: Sequence[str]) -> str:
    """So that it stands in a sentence; empty where there are none."""
    if not messages:
        return ""
    named = gating.some_of(messages, _RELEASES_NAMED)
    what = "other releases are installed than at the base commit, which the patch does not move"
    return f"{what}: {named}"


def not_by_patch(
    moved: set[str], edges: Collection[tuple[str, str]], by_patch: Collection[str]
) -> list[str]:
    """Packages that moved, but for those that the patch moves, and what moved beside those that ask for it
    or that it asks for. ``edges``: who asks for whom."""
    near: dict[str, set[str]] = {}
    for one, other in edges:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    left, waiting = moved - {*by_patch}, [*by_patch]
    while waiting:
        beside = near.get(waiting.pop(), set()) & left
        left -= beside
        waiting += beside
    return sorted(left)
