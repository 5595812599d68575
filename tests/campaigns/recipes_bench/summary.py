"""Figures from verdicts, and the goals they are held against. Nothing here is typed in by hand."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.campaigns.recipes_bench.cases import Group
from tests.campaigns.recipes_bench.judge import Ending, Verdict

#: What one run has to reach (a rate, a count or a ratio).
EXACT_VERSION_RATE = 0.95
MAX_LINE_RATIO = 1.2


@dataclass(frozen=True)
class Goal:
    """One figure with its limit."""

    name: str
    wanted: str
    measured: str
    met: bool


@dataclass(frozen=True)
class Row:
    """Counts over some cases."""

    label: tuple[str, ...]
    cases: int
    fixed: int
    refused: int
    missed: int
    exact_version: int
    exact_bytes: int
    comparable: int


def row(label: tuple[str, ...], verdicts: Iterable[Verdict]) -> Row:
    """Count."""
    counted = list(verdicts)
    endings = Counter(verdict.ending for verdict in counted)
    return Row(
        label,
        len(counted),
        endings[Ending.FIXED],
        endings[Ending.REFUSED],
        endings[Ending.MISS],
        sum(verdict.exact_version is True for verdict in counted),
        sum(verdict.exact_bytes is True for verdict in counted),
        sum(verdict.exact_version is not None for verdict in counted),
    )


def by_kind(verdicts: Sequence[Verdict]) -> list[Row]:
    """A row for each ecosystem and manifest kind, and one for all."""
    labels = sorted({(one.ecosystem, one.kind) for one in verdicts})
    rows = [
        row(label, (one for one in verdicts if (one.ecosystem, one.kind) == label))
        for label in labels
    ]
    return [*rows, row(("all", ""), verdicts)]


def by_group(verdicts: Sequence[Verdict]) -> list[Row]:
    """A row for each group of cases."""
    return [row((group.value,), _of(verdicts, group)) for group in Group]


def misses(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """Misses by cause, the most frequent cause first."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.ending is Ending.MISS:
            found.setdefault(verdict.cause, []).append(verdict)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def goals(verdicts: Sequence[Verdict]) -> list[Goal]:
    """What the recipes have to reach on the whole set."""
    minimal, locks = _of(verdicts, Group.MINIMAL), _of(verdicts, Group.LOCK_ONLY)
    others = [*_of(verdicts, Group.COMMIT), *_of(verdicts, Group.FIXTURE)]
    reached = sum(one.ending is Ending.FIXED and one.exact_version is True for one in minimal)
    ratios = [one.line_ratio for one in verdicts if _is_measured(one) and one.line_ratio]
    middle = median(ratios) if ratios else None
    return [
        Goal(
            "minimal bumps with a manifest: exactly the expected version",
            f"≥ {EXACT_VERSION_RATE:.0%}",
            f"{reached} of {len(minimal)}{_rate(reached, len(minimal))}",
            bool(minimal) and reached >= EXACT_VERSION_RATE * len(minimal),
        ),
        _none("lock without manifest: neither edited exactly nor rightly refused", _missed(locks)),
        _none("other cases: neither fixed nor rightly refused", _missed(others)),
        _none("downgrades", _breached(verdicts, "downgrade")),
        _none("“fixed” with nothing changed", _breached(verdicts, "nothing changed")),
        _none("registry URLs swapped", _breached(verdicts, "registry URL swapped")),
        _none(
            "comments or formatting lost", _breached(verdicts, "comment lost", "formatting lost")
        ),
        _none(
            "files changed that were not declared",
            _breached(verdicts, "undeclared file", "wrote into the repository"),
        ),
        Goal(
            "diff lines ÷ expected diff lines, median",
            f"≤ {MAX_LINE_RATIO}",
            "nothing to measure" if middle is None else f"{middle:.2f} (over {len(ratios)})",
            middle is not None and middle <= MAX_LINE_RATIO,
        ),
    ]


def _none(name: str, found: list[str]) -> Goal:
    return Goal(name, "0", str(len(found)), not found)


def _of(verdicts: Iterable[Verdict], group: Group) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.group is group]


def _missed(verdicts: Iterable[Verdict]) -> list[str]:
    return [verdict.case for verdict in verdicts if verdict.ending is Ending.MISS]


def _breached(verdicts: Iterable[Verdict], *kinds: str) -> list[str]:
    return [one.case for one in verdicts if any(breach.kind in kinds for breach in one.breaches)]


def _is_measured(verdict: Verdict) -> bool:
    """Lines are compared where something was changed to the expected version or nearly so."""
    return verdict.line_ratio is not None and not verdict.breaches


def _rate(count: int, total: int) -> str:
    return f" ({count / total:.1%})" if total else ""
