"""Holds what a recipe did against what the case expects. Sees texts and advisories only."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.campaigns.recipes_bench.cases import Case, Group
from tests.campaigns.recipes_bench.inventory import held
from tests.campaigns.recipes_bench.raw import Raw
from tests.campaigns.recipes_bench.reviews import Reviews
from tests.campaigns.recipes_bench.safeguards import (
    Breach,
    breaches,
    changed_lines,
    changed_packages,
    is_covered,
    still_affected,
)
from tests.campaigns.recipes_bench.versions import affecting, canonical

_PROOF_LEVELS = {"resolved_tree", "pins"}

#: (advisory, package, version): one version that an advisory covers, installed.
Finding = tuple[str, str, str]


class Ending(StrEnum):
    """How a case ended, as the judge sees it."""

    FIXED = "fixed"
    REFUSED = "rightly refused"
    MISS = "miss"


@dataclass(frozen=True)
class Verdict:
    """``cause`` groups misses; ``detail`` is what to read.

    ``exact_version``, ``exact_bytes``: as people have it, where they went to the lowest fixed version.
    ``line_ratio``: changed lines ÷ those that people changed. ``others``: packages that changed although
    the result names no move of theirs (what a raised package brings in or drops).
    """

    case: str
    group: Group
    ecosystem: str
    kind: str
    ending: Ending
    cause: str = ""
    detail: str = ""
    steps: tuple[str, ...] = ()
    proof_level: str = ""
    exact_version: bool | None = None
    exact_bytes: bool | None = None
    line_ratio: float | None = None
    others: tuple[str, ...] = ()
    breaches: tuple[Breach, ...] = ()
    seconds: float = 0.0


def judge(case: Case, raw: Raw, reviews: Reviews) -> Verdict:
    """The verdict on one case."""
    if raw.outcome == "fixed":
        try:
            return _Fix(case, raw, reviews).verdict()
        except ValueError as error:  # of every reader: what can't be read any more is broken
            return _verdict(case, raw, Ending.MISS, "a file can't be read any more", str(error))
    ending, cause, detail = _refusal(case, raw, reviews)
    return _verdict(case, raw, ending, cause, detail)


def _refusal(case: Case, raw: Raw, reviews: Reviews) -> tuple[Ending, str, str]:
    if raw.outcome == "crashed":
        return Ending.MISS, f"crashed: {raw.reason}", raw.sentence
    sentences = [(raw.reason, raw.sentence)]
    return _reviewed(case.name, sentences, reviews)


def _reviewed(
    name: str, refusals: Iterable[tuple[str, str]], reviews: Reviews
) -> tuple[Ending, str, str]:
    """Is every one of these (reason, sentence) a refusal that a review calls right?"""
    reported = list(refusals)
    reasons = ", ".join(sorted({reason for reason, _sentence in reported}))
    words = " ".join(sentence for _reason, sentence in reported)
    review = reviews.refusals.get(name)
    if review is None:
        why = reviews.misses.get(name, "no review calls this refusal right")
        return Ending.MISS, f"refused: {reasons}", f"{words} [{why}]"
    if not all(reason in review.accept for reason, _sentence in reported):
        return Ending.MISS, f"refused for another reason: {reasons}", words
    if missing := [word for word in review.names if not _is_named(word, words)]:
        return Ending.MISS, "refused without naming the cause", f"{words} [{', '.join(missing)}]"
    return Ending.REFUSED, reasons, words


def _is_named(name: str, words: str) -> bool:
    """As a word of its own: ``d`` is not in ``advisory``."""
    return re.search(rf"(?<![\w@/-]){re.escape(name)}(?![\w/-])", words) is not None


def _verdict(
    case: Case, raw: Raw, ending: Ending, cause: str = "", detail: str = "", **more: Any
) -> Verdict:
    if case.group in {Group.MINIMAL, Group.LOCK_ONLY}:
        more = {"exact_version": False, "exact_bytes": False, **more}
    return Verdict(
        case.name,
        case.group,
        case.ecosystem,
        case.kind,
        ending,
        cause,
        detail,
        steps=tuple(dict.fromkeys(move["step"] for move in raw.moves)),
        proof_level=raw.proof_level,
        seconds=raw.seconds,
        **more,
    )


class _Fix:
    """A result that calls itself a fix."""

    def __init__(self, case: Case, raw: Raw, reviews: Reviews) -> None:
        self._case, self._raw, self._reviews = case, raw, reviews
        self._after = raw.after(case)

    def verdict(self) -> Verdict:
        case, found = self._case, self._breaches()
        measured = self._measured()
        if found:
            detail = "; ".join(dict.fromkeys(breach.detail for breach in found))
            return self._miss(found[0].kind, detail, breaches=tuple(found), **measured)
        match case.group:
            case Group.MINIMAL | Group.LOCK_ONLY:
                ending, cause, detail = self._minimal()
            case Group.COMMIT:
                ending, cause, detail = self._commit()
            case Group.FIXTURE:
                ending, cause, detail = self._fixture()
        return _verdict(case, self._raw, ending, cause, detail, **measured)

    def _miss(self, cause: str, detail: str, **more: Any) -> Verdict:
        return _verdict(self._case, self._raw, Ending.MISS, cause, detail, **more)

    def _breaches(self) -> list[Breach]:
        raw, case = self._raw, self._case
        found = [Breach("wrote into the repository", line) for line in raw.written]
        same = [path for path, text in raw.changes.items() if case.before.get(path) == text]
        if not raw.changes or same:
            found.append(Breach("nothing changed", ", ".join(same) or "no file"))
        if raw.proof_level not in _PROOF_LEVELS or not raw.moves:
            found.append(Breach("no proof named", raw.proof_level))
        return found + breaches(case.ecosystem, case.before, self._after)

    def _measured(self) -> dict[str, Any]:
        return {"others": tuple(sorted(self._others())), **self._compared()}

    def _compared(self) -> dict[str, Any]:
        case = self._case
        if case.group is Group.FIXTURE or not case.facts["expected_kind"].startswith("exact bytes"):
            return {}
        theirs = changed_lines(case.before, {**case.before, **case.expected})
        ratio = {"line_ratio": round(changed_lines(case.before, self._after) / theirs, 3)}
        if case.group is Group.COMMIT:  # people went elsewhere than to the lowest fixed version
            return ratio
        return {
            **ratio,
            "exact_version": self._is_expected_version(),
            "exact_bytes": all(self._after.get(p) == text for p, text in case.expected.items()),
        }

    def _is_expected_version(self) -> bool:
        package = canonical(self._case.ecosystem, self._case.facts["package"])
        return all(
            _versions(path, self._after, package) == self._wanted(path, package)
            for path in self._case.expected
        )

    def _wanted(self, path: str, package: str) -> list[str]:
        """What people chose; where their commit dropped the package with its dependent, what fixes it."""
        if wanted := _versions(path, self._case.expected, package):
            return wanted
        had = _versions(path, self._case.before, package)
        return [self._case.facts["minimal_fixed"]] if had else []

    def _minimal(self) -> tuple[Ending, str, str]:
        package = canonical(self._case.ecosystem, self._case.facts["package"])
        if not self._is_expected_version():
            ours = [_versions(path, self._after, package) for path in self._case.expected]
            theirs = [self._wanted(path, package) for path in self._case.expected]
            return Ending.MISS, "another version than expected", f"{ours}, expected {theirs}"
        others = self._others()
        if self._case.group is Group.LOCK_ONLY and others:
            return Ending.MISS, "more than the package changed", ", ".join(sorted(others))
        return self._commit()

    def _others(self) -> set[str]:
        """Packages that changed without being named: neither moved nor raised (``name version``)."""
        moves = self._raw.moves
        named = [str(move["package"]) for move in moves]
        named += [text.split()[0] for move in moves for text in move.get("raised", ())]
        known = {canonical(self._case.ecosystem, name) for name in named}
        return changed_packages(self._case.before, self._after) - known

    def _commit(self) -> tuple[Ending, str, str]:
        remaining = still_affected(self._case.ecosystem, self._case.advisories, self._after)
        if self._raw.left:
            return self._partly()
        if remaining:
            return Ending.MISS, "still affected", "; ".join(remaining)
        return Ending.FIXED, "", ""

    def _partly(self) -> tuple[Ending, str, str]:
        left = [(item["reason"], item["sentence"]) for item in self._raw.left]
        return _reviewed(self._case.name, left, self._reviews)

    def _fixture(self) -> tuple[Ending, str, str]:
        before, after = (
            _findings(self._case, installed)
            for installed in (self._raw.installed_before, self._raw.installed_after)
        )
        if introduced := after - before:
            return Ending.MISS, "another affected version introduced", _spelled(introduced)
        if missing := _not_reached(self._case.patches, before - after):
            if self._raw.left and self._case.name in self._reviews.refusals:
                return self._partly()
            return Ending.MISS, "less than the peer fixes", _spelled(missing)
        if self._is_peers_fix() or self._case.name in self._reviews.fixes:
            return Ending.FIXED, "", self._reviews.fixes.get(self._case.name, "")
        return Ending.MISS, "another fix than the peer's, not reviewed", _spelled(self._declared())

    def _is_peers_fix(self) -> bool:
        """Every package ends as one of the peer's patches has it."""
        wanted: dict[str, set[str]] = {}
        for update in (one for patch in self._case.patches for one in _updates(patch)):
            wanted.setdefault(update["name"], set()).add(_plain(update["versionTo"]))
        now = self._declared() | set(self._raw.installed_after or ())
        return all(
            any(name == package and _plain(spec) in specs for package, spec in now)
            for name, specs in wanted.items()
        )

    def _declared(self) -> set[tuple[str, str]]:
        found = (one for path, text in self._after.items() for one in held(path, text))
        return {(one.name, one.spec) for one in found if one.spec}


def _versions(path: str, texts: Mapping[str, str], package: str) -> list[str]:
    """What a file holds of a package. Ranges are left to the lock that says what they resolve to."""
    covered = is_covered(path, texts)
    found = (one for one in held(path, texts.get(path, "")) if one.name == package)
    return sorted(one.spec or one.version for one in found if one.pinned or not covered)


def _findings(case: Case, installed: list[tuple[str, str]] | None) -> set[Finding]:
    return {
        (found, name, version)
        for name, version in installed or ()
        for found in affecting(case.advisories, case.ecosystem, name, version)
    }


def _not_reached(patches: Iterable[Mapping[str, Any]], fixed: set[Finding]) -> set[Finding]:
    """What the peer's patches fix and ours does not. Patches for the same package are alternatives;
    one that brings in another advisory's version is no example to follow."""
    alternatives: dict[frozenset[tuple[str, str]], list[set[Finding]]] = {}
    for patch in patches:
        if not patch.get("introduced"):
            key = frozenset((one["name"], one["versionFrom"]) for one in _updates(patch))
            alternatives.setdefault(key, []).append(_fixed_by(patch))
    missing = (
        min((wanted - fixed for wanted in group), key=len) for group in alternatives.values()
    )
    return {finding for group in missing for finding in group}


def _fixed_by(patch: Mapping[str, Any]) -> set[Finding]:
    return {
        (item["id"], package["name"], package["version"])
        for item in patch.get("fixed", ())
        for package in item["packages"]
    }


def _updates(patch: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(patch.get("packageUpdates", ()))


def _plain(spec: str) -> str:
    return ",".join(sorted(re.sub(r"\s+", "", spec).split(",")))


def _spelled(found: Iterable[tuple[str, ...]]) -> str:
    return "; ".join(" ".join(one) for one in sorted(found))
