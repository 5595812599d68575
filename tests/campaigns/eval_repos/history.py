"""``expected.jsonl``: every form that the expected ends of a case ever had, by digest, the oldest first.

The first line of a case is committed before its first run. A later one goes with a reason in the case
(``changed``), and the report counts them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fallback_eval.campaign import alternately
from tests.campaigns.eval_repos.cases import ECOSYSTEMS, HERE, SEED, Case
from tests.campaigns.measuring.frozen import Frozen

HISTORY = HERE / "expected.jsonl"


class Stated(Frozen):
    """One form of a case's expected ends."""

    name: str
    expected_sha256: str


def read_history(place: Path = HISTORY) -> tuple[Stated, ...]:
    """All that was stated; nothing without the file."""
    lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    return tuple(Stated.model_validate_json(line) for line in lines)


def state(cases: Iterable[Case], place: Path = HISTORY) -> tuple[Stated, ...]:
    """Add the forms that aren't the last of their case; returns them."""
    history = read_history(place)
    last = {one.name: one.expected_sha256 for one in history}
    new = tuple(
        Stated(name=case.name, expected_sha256=case.expected_sha256)
        for case in cases
        if last.get(case.name) != case.expected_sha256
    )
    place.write_text("".join(f"{one.model_dump_json()}\n" for one in (*history, *new)))
    return new


def faults(cases: Sequence[Case], history: Sequence[Stated]) -> list[str]:
    """What does not fit: a form that was never stated, a change without a reason, a half that isn't due."""
    found = []
    for case in cases:
        forms = [one.expected_sha256 for one in history if one.name == case.name]
        if not forms or forms[-1] != case.expected_sha256:
            found.append(f"{case.name}: what is expected is not stated in {HISTORY.name}")
        if len(forms) - 1 != len(case.changed):
            found.append(f"{case.name}: {len(forms)} forms, and {len(case.changed)} reasons")
    gone = {one.name for one in history} - {case.name for case in cases}
    found += [f"{name}: stated, and no case" for name in sorted(gone)]
    for ecosystem in ECOSYSTEMS:
        members = [it for it in cases if it.ecosystem == ecosystem and it.half is not None]
        due = alternately((case.name for case in members), SEED)
        found += [
            f"{case.name}: is {case.half}, due is {due[case.name]}"
            for case in members
            if case.half is not due[case.name]
        ]
    return found
