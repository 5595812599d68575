"""Did a run end as a careful engineer would have ended it? Shares no code with what it judges.

It sees trees as their own clients install them, manifests' texts, the lines that git counts, and the
words of the tool; versions and ranges are compared by readers of the measures' own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from tests.campaigns.eval_repos.cases import Case, End, Outcome
from tests.campaigns.eval_repos.looking import Copy, Looked, is_installed_package
from tests.campaigns.eval_repos.reported import Reported
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.recipes_bench.safeguards import breaches
from tests.campaigns.recipes_bench.versions import affecting, canonical, order

#: What a fix of a dependency may touch.
_MANIFESTS = (
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "pnpm-workspace.yaml",
    "*requirements*.txt",
    "*constraints*.txt",
    "*.in",
    "pyproject.toml",
    "uv.lock",
    "poetry.lock",
    "Pipfile",
    "Pipfile.lock",
    "setup.py",
    "setup.cfg",
)

_BOUND = re.compile(r"(?P<operator>>=|<=|==|<|>)\s*(?P<version>\S+)")

#: A package that is no longer installed.
GONE = "gone"


class Kind(StrEnum):
    """What is wrong with an end."""

    TRACEBACK = "traceback"
    WRONG_END = "another end than expected"
    WRONG_REASON = "false reason"
    STILL_AFFECTED = "still affected"
    BROKE = "broke what worked"
    DOES_NOT_RESOLVE = "does not resolve"
    WRONG_VERSION = "wrong version"
    TOO_MUCH = "moved more than needed"
    TOO_LARGE = "diff too large"
    BREACH = "did what no fix may"
    TOUCHED = "changed files without a fix"


#: Where one of these goes with "fixed", that is a false one.
_FALSE = frozenset({Kind.STILL_AFFECTED, Kind.BROKE, Kind.DOES_NOT_RESOLVE})


class Problem(Frozen):
    """One thing that is wrong."""

    kind: Kind
    detail: str


@dataclass(frozen=True)
class Change:
    """``before``, ``after``: texts of the files that changed, "" where there is none; ``lines``: added
    and removed."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    lines: int


@dataclass(frozen=True)
class Seen:
    """All that there is to judge."""

    case: Case
    records: Sequence[Mapping[str, Any]]
    told: Reported
    base: Looked
    after: Looked
    change: Change


class Verdict(Frozen):
    """``problems`` empty: ended as a careful engineer would have. ``moved``: names of the packages of which
    other versions are installed than before."""

    problems: tuple[Problem, ...]
    moved: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return not self.problems

    def is_false_fixed(self, reported: Reported) -> bool:
        """Says fixed, and broke what worked, or left what it says is gone."""
        return reported.says_fixed and any(one.kind in _FALSE for one in self.problems)


def judge(seen: Seen) -> Verdict:
    """Held against each of the case's ends; of several the nearest counts."""
    always = [*_whatever_the_end(seen)]
    ends = [[*_held(seen, end)] for end in seen.case.end]
    problems = min(ends, key=_badness)
    moved = sorted({name for name, _ in seen.base.held ^ seen.after.held})
    return Verdict(problems=(*always, *problems), moved=tuple(moved))


def _badness(problems: Sequence[Problem]) -> tuple[bool, int]:
    """Of the right kind with something wrong is nearer than of another kind."""
    return any(one.kind is Kind.WRONG_END for one in problems), len(problems)


def works_as_before(base: Looked, after: Looked) -> Iterator[Problem]:
    """Nothing is asked of what did not install, or did not work, at the base."""
    if base.installs and not after.installs:
        yield Problem(kind=Kind.DOES_NOT_RESOLVE, detail=after.said)
    elif base.works and after.works is False:
        yield Problem(kind=Kind.BROKE, detail=after.said)


def affected(
    records: Iterable[Mapping[str, Any]], ecosystem: str, held: Iterable[Copy]
) -> list[str]:
    """Copies that one of the advisories covers, ``package version``."""
    known = [dict(one) for one in records]
    return sorted(
        f"{name} {version}" for name, version in held if affecting(known, ecosystem, name, version)
    )


def admits(ecosystem: str, spec: str, version: str) -> bool:
    """Is the version in one of the spec's alternatives? Raises ValueError for what is no spec."""
    return any(
        all(_meets(ecosystem, bound, version) for bound in part.split(","))
        for part in spec.split(" or ")
        if part.strip() != GONE
    )


def _meets(ecosystem: str, bound: str, version: str) -> bool:
    match = _BOUND.fullmatch(bound.strip())
    if match is None:
        raise ValueError(f"{bound!r} is no bound: write >=1.2 or ==1.2")
    at, limit = order(ecosystem, version), order(ecosystem, match["version"])
    if at is None or limit is None:
        return version == match["version"]
    found = {">=": at >= limit, "<=": at <= limit, "==": at == limit, "<": at < limit}
    return bool(found.get(match["operator"], at > limit))


def _whatever_the_end(seen: Seen) -> Iterator[Problem]:
    """Nothing of this depends on what was expected."""
    reported, case = seen.told, seen.case
    if reported.traceback:
        yield Problem(kind=Kind.TRACEBACK, detail=reported.words)
    if not reported.says_fixed and reported.outcome != "patched":
        if seen.change.lines:
            yield Problem(kind=Kind.TOUCHED, detail=", ".join(seen.change.before))
        return
    yield from works_as_before(seen.base, seen.after)
    left = affected(seen.records, case.ecosystem, seen.after.held)
    for path, copy in sorted(seen.after.pinned):
        left += [f"{it} in {path}" for it in affected(seen.records, case.ecosystem, [copy])]
    if left and reported.outcome == "fixed":
        yield Problem(kind=Kind.STILL_AFFECTED, detail=", ".join(left))
    kept = [
        path.removesuffix("package.json")
        for path, _ in seen.base.pinned
        if is_installed_package(path)
    ]
    may_change = (*kept, "node_modules/.package-lock.json") if kept else ()
    alien = [
        path
        for path in seen.change.before
        if not _is_manifest(path) and not path.startswith(may_change)
    ]
    alien += [path for path in case.links if path in seen.change.before]
    if alien:
        yield Problem(kind=Kind.BREACH, detail=f"changed {', '.join(alien)}")
    try:
        found = breaches(case.ecosystem, seen.change.before, seen.change.after)
    except ValueError as error:  # of every reader: what can't be read any more is broken
        yield Problem(kind=Kind.BREACH, detail=f"a file can't be read any more: {error}")
    else:
        for one in found:
            yield Problem(kind=Kind.BREACH, detail=f"{one.kind}: {one.detail}")


def _held(seen: Seen, end: End) -> Iterator[Problem]:
    """Against one expected end."""
    reported = seen.told
    wanted = {Outcome.QUESTION: "escalated"}.get(end.outcome, str(end.outcome))
    if reported.outcome != wanted:
        why = (
            f" ({', '.join(reported.reasons)}: {reported.words[:200]})" if reported.reasons else ""
        )
        detail = f"{reported.outcome}{why}, expected {end.outcome}"
        yield Problem(kind=Kind.WRONG_END, detail=detail)
        return
    if end.reasons and not set(reported.reasons) & set(end.reasons):
        message = f"{', '.join(reported.reasons)}, expected {' or '.join(end.reasons)}"
        yield Problem(kind=Kind.WRONG_REASON, detail=message)
    words = reported.words.lower()
    if missing := [word for word in end.words if word.lower() not in words]:
        yield Problem(kind=Kind.WRONG_REASON, detail=f"does not name {', '.join(missing)}")
    if end.outcome in {Outcome.FIXED, Outcome.PARTLY} and seen.after.installs == seen.base.installs:
        yield from _versions(seen, end)
    if end.lines is not None and seen.change.lines > end.lines:
        detail = f"{seen.change.lines} lines, {end.lines} at most"
        yield Problem(kind=Kind.TOO_LARGE, detail=detail)


def _versions(seen: Seen, end: End) -> Iterator[Problem]:
    ecosystem = seen.case.ecosystem
    for name, spec in end.versions.items():
        own = canonical(ecosystem, name)
        copies = sorted(version for held, version in seen.after.held if held == own)
        wrong = [it for it in copies if not admits(ecosystem, spec, it)]
        if wrong or (not copies and GONE not in spec):
            have = ", ".join(wrong) or "none"
            yield Problem(kind=Kind.WRONG_VERSION, detail=f"{name} {have}, expected {spec}")
    named = {canonical(ecosystem, name) for name in end.versions}
    others = {
        name
        for name, _ in seen.base.held ^ seen.after.held
        if name not in named and not any(fnmatchcase(name, one) for one in end.along)
    }
    if others:
        yield Problem(kind=Kind.TOO_MUCH, detail=", ".join(sorted(others)))


def _is_manifest(path: str) -> bool:
    pure = PurePosixPath(path)
    in_folder = pure.parent.name in {"requirements", "constraints"} and pure.suffix == ".txt"
    return in_folder or any(fnmatchcase(pure.name, pattern) for pattern in _MANIFESTS)
