"""What the report says, section by section, each made from figures and from nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fallback_eval.document import (
    Document,
    Section,
    Table,
    mean_of,
    number,
    p_value,
    percent,
    signed,
    with_interval,
)
from fallback_eval.retrieval import plots
from fallback_eval.retrieval.abstention import operating_curve
from fallback_eval.retrieval.agreement import Agreement
from fallback_eval.retrieval.analysis import (
    CEILING,
    CURVE_FIGURES,
    FIGURES,
    PRIMARY,
    Analysis,
    Finding,
    K,
    routed,
)
from fallback_eval.retrieval.goals import goals
from fallback_eval.retrieval.golden import GoldenSet, Split
from fallback_eval.retrieval.results import DEFAULT, DEPTH, CutUnits, Results
from fallback_eval.statistics import Interval

#: Floors of the operating curve that a table shows.
_FLOORS = 12


@dataclass(frozen=True)
class Side:
    """A run with its figures."""

    results: Results
    analysis: Analysis


@dataclass(frozen=True)
class Subject:
    """All that a report is about. ``reserved`` is there once the final table was made."""

    golden: GoldenSet
    dev: Side
    agreement: Agreement | None = None
    reserved: Side | None = None


def report(subject: Subject) -> Document:
    """The page."""
    return Document(
        "Retrieval of solved examples, evaluated",
        tuple(_intro(subject)),
        (
            _goals(subject),
            _variants(subject.dev),
            _curve(subject.dev),
            _abstention(subject),
            _latency(subject.dev),
            _units(subject.dev.results.run.units),
            _labels(subject),
            _reserved(subject),
            _notes(subject),
        ),
    )


def _intro(subject: Subject) -> Iterator[str]:
    run = subject.dev.results.run
    yield (
        f"{_count(subject.golden, 'dev')} on the dev split, and "
        f"{_count(subject.golden, 'reserved')} on the reserved one. The corpus has "
        f"{len(run.corpus)} examples (digest {run.corpus_sha256[:12]}). What shares an advisory, a "
        "fix commit, a repository or a package with any query is not in it."
    )
    parts = "; ".join(f"{name} {value}" for name, value in run.parts.items())
    yield f"Parts: {parts or 'none named'}. Made from the raw results in raw/; nothing is typed in."


def _count(golden: GoldenSet, split: Split) -> str:
    queries = golden.of(split)
    nothing = sum(query.nothing_here for query in queries)
    return f"{len(queries)} queries ({nothing} whose right answer is nothing)"


def _goals(subject: Subject) -> Section:
    head = ("goal", "wanted", "measured", "verdict")
    text, tables = [], []
    for title, side in (("Dev split.", subject.dev), ("Reserved split.", subject.reserved)):
        if side is not None:
            text.append(title if side is subject.dev else f"{title} (second table)")
            rows = [
                (one.name, one.wanted, one.measured, one.verdict) for one in goals(side.analysis)
            ]
            tables.append(Table(head, rows))
    return Section("Goals", text, tables)


def _variants(side: Side) -> Section:
    text = [
        (
            f"Each variant switches one component of `{DEFAULT}`. Means over the answerable queries "
            "with 95 % percentile bootstrap intervals (10,000 resamples of the queries); the difference "
            f"is to `{DEFAULT}` on {PRIMARY}, p by a paired randomisation test, Holm-adjusted over "
            f"all {len(side.analysis.comparisons)} comparisons. A difference whose interval includes 0, "
            "or whose adjusted p is not below 0.05, cannot be distinguished from chance."
        )
    ]
    shown = [name for name in FIGURES if not name.startswith(("judged", "condensed"))]
    heads = [f"{name} [95 %]" if name == PRIMARY else name for name in shown]
    head = ("component", "variant", *heads, "difference", "adjusted p", "finding", "ms")
    rows = [
        (variant.component, variant.name, *_figures(side, variant.name, shown))
        for variant in side.results.run.variants
    ]
    tables = [Table(head, rows)]
    summaries = [(one.name, one.summary) for one in side.results.run.variants]
    tables.append(Table(("variant", "what it is"), summaries))
    if skipped := side.results.run.not_run:
        not_run = [(one.component, one.name, one.reason) for one in skipped]
        tables.append(Table(("component", "not run", "because"), not_run))
    return Section("Variants", text, tables, plots.QUALITY)


def _figures(side: Side, variant: str, shown: Sequence[str]) -> Iterator[str]:
    summary = side.analysis.summaries[variant]
    for name in shown:
        found = summary.figures[name]
        yield with_interval(found) if name == PRIMARY else number(mean_of(found))
    compared = side.analysis.comparisons.get(variant)
    if compared is None:
        yield from ("-", "-", "-")
    else:
        yield from (signed(compared.difference), p_value(compared.adjusted), compared.finding.value)
    yield f"{summary.timing.median:.1f}" if summary.timing else "-"


def _curve(side: Side) -> Section:
    text = (
        f"k = {K} is what a prompt shows; the curve says what more or fewer places would give.",
    )
    curves = side.analysis.curves.get(DEFAULT, {})
    head = ("k", *CURVE_FIGURES)
    rows = [
        (str(place + 1), *(number(curves[name][place]) for name in CURVE_FIGURES))
        for place in range(DEPTH)
        if curves
    ]
    return Section("Quality against k", text, (Table(head, rows),), plots.CURVE)


def _abstention(subject: Subject) -> Section:
    text = (
        (
            "Rightly missed: of the queries that nothing here answers. Wrongly missed: of the answerable "
            "ones. AUROC: the chance that an answerable query has a higher routing score than one that "
            "nothing answers (0.5 is a coin). Free: the share of nothing-here queries that a floor just "
            "below the lowest answerable query would refuse."
        ),
    )
    head = ("variant", "rightly missed", "wrongly missed", "AUROC", "free")
    rows = []
    for name, summary in subject.dev.analysis.summaries.items():
        one = summary.abstention
        shares = (percent(one.rightly), percent(one.wrongly), number(one.auroc), percent(one.free))
        rows.append((name, *shares))
    tables = [Table(head, rows)]
    if (answers := subject.dev.results.answers.get(DEFAULT)) is not None:
        curve = operating_curve(routed(answers, subject.golden))
        chosen = curve[:: max(1, len(curve) // _FLOORS)]
        cells = [(f"{one.floor:.4g}", percent(one.rightly), percent(one.wrongly)) for one in chosen]
        tables.append(Table(("routing floor of `default`", "rightly", "wrongly"), cells))
    return Section("Knowing when there is nothing", text, tables, plots.ABSTENTION)


def _latency(side: Side) -> Section:
    text = (
        (
            "Milliseconds a query in a warm process, the median of each query's repeats (one above a "
            "second is asked once); noise is the "
            "median spread among the repeats, as a share of their median. Figures of one machine."
        ),
    )
    rows = [
        (name, f"{one.timing.median:.1f}", f"{one.timing.p95:.1f}", percent(one.timing.noise))
        for name, one in side.analysis.summaries.items()
        if one.timing
    ]
    head = ("variant", "median ms", "95th percentile ms", "noise")
    return Section("Latency", text, (Table(head, rows),), plots.LATENCY)


def _units(units: Sequence[CutUnits]) -> Section:
    text = (
        (
            "How many structural units of the whole corpus (tables, lists with their lead-in, rules with "
            "their exceptions, functions …) each splitter cuts through: those that fit into a chunk "
            "+ those that are larger than one, of all. The units are ours: that ours cuts none that "
            "fits is by construction, and how often a fixed size does is the figure."
        ),
    )
    kinds = sorted({kind for one in units for kind in one.kinds})
    rows = [(one.splitter, *(_cut(one.kinds.get(kind)) for kind in kinds)) for one in units]
    tables = (Table(("splitter", *kinds), rows),) if units else ()
    return Section(
        "Units that splitting cuts", text if units else ("Not counted in this run.",), tables
    )


def _cut(counts: tuple[int, int, int] | None) -> str:
    if counts is None:
        return "-"
    cut, every, too_large = counts
    return f"{cut - too_large} + {too_large} of {every}"


def _labels(subject: Subject) -> Section:
    grades = [one.grade for one in subject.golden.judgements]
    found = ", ".join(f"{grades.count(grade)} of grade {grade}" for grade in (2, 1, 0))
    text = [f"{len(grades)} judgements: {found}."]
    one = subject.agreement
    if one is None:
        text.append("No second reader has graded a part: agreement is unknown.")
    else:
        text.append(
            f"A second reader graded {one.pairs} of the pairs: the same grade in {percent(one.share)}, "
            f"weighted kappa (quadratic) {number(one.kappa)}."
        )
    return Section("Labels", text)


def _reserved(subject: Subject) -> Section:
    title = "Reserved split"
    if subject.reserved is None:
        return Section(
            title, ("No results are kept; reserved-looks.md has a line for every look.",)
        )
    shown = list(FIGURES)
    head = ("variant", "split", *shown, "difference", "adjusted p", "finding", "ms")
    rows = [
        (name, side.results.run.split, *_figures(side, name, shown))
        for name in subject.reserved.analysis.summaries
        for side in (subject.dev, subject.reserved)
        if name in side.analysis.summaries
    ]
    text = (
        (
            "Looked at only for this table; reserved-looks.md has a line for every look. The adjusted p "
            "of a side is over that side's comparisons. A drop from dev to reserved is what tuning on "
            "dev has flattered."
        ),
    )
    return Section(title, text, (Table(head, rows),))


def _notes(subject: Subject) -> Section:
    return Section("What these figures don't say", tuple(_honest(subject)))


def _honest(subject: Subject) -> Iterator[str]:
    analysis = subject.dev.analysis
    saturated = [
        name for name, one in analysis.comparisons.items() if one.finding is Finding.SATURATED
    ]
    undecided = [
        name for name, one in analysis.comparisons.items() if one.finding is Finding.UNDECIDED
    ]
    if saturated:
        yield f"Saturated (both at {CEILING} or above, so neither is better): {', '.join(saturated)}."
    if undecided:
        yield f"Cannot be distinguished from `{DEFAULT}` on these queries: {', '.join(undecided)}."
    if (default := analysis.summaries.get(DEFAULT)) is not None:
        yield _unjudged(default.figures)
    nothing = sum(query.nothing_here for query in subject.golden.of("dev"))
    yield (
        f"Abstention on dev rests on {nothing} queries: one query more or less is "
        f"{percent(1 / nothing if nothing else None)}."
    )
    yield from subject.dev.results.run.notes


def _unjudged(figures: Mapping[str, Interval | None]) -> str:
    judged, condensed, plain = (
        mean_of(figures[name]) for name in (f"judged@{K}", f"condensed {PRIMARY}", PRIMARY)
    )
    return (
        f"Of the first {K} of `{DEFAULT}`, {percent(judged)} were judged; the others count as grade 0. "
        f"With them left out {PRIMARY} is {number(condensed)} instead of {number(plain)}."
    )
