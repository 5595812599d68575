"""The folder of an evaluation: write it, and check that it still follows from code and raw results.

::

    raw/  raw-reserved/   results.py
    defaults.md           every default with the figure that justifies it
    report.md  *.svg      for a repository's pages
    report.html           the same in one file
    reserved-looks.md     when the reserved split was looked at, and by which settings
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fallback_eval.document import (
    Document,
    Section,
    Table,
    html,
    markdown,
    mean_of,
    number,
    p_value,
    percent,
    signed,
    with_interval,
)
from fallback_eval.retrieval import plots
from fallback_eval.retrieval.abstention import operating_curve
from fallback_eval.retrieval.analysis import (
    CEILING,
    CURVE_FIGURES,
    FIGURES,
    PRIMARY,
    Analysis,
    Finding,
    K,
    analyse,
    routed,
)
from fallback_eval.retrieval.defaults import Claim, Evidence, Settings, faults, table
from fallback_eval.retrieval.goals import BM25, EMBEDDINGS, goals
from fallback_eval.retrieval.golden import (
    QUERIES,
    SECOND_OPINION,
    Agreement,
    GoldenSet,
    Split,
    agreement,
    load_golden,
    load_opinions,
)
from fallback_eval.retrieval.results import DEFAULT, DEPTH, RUN, CutUnits, Results, load_results
from fallback_eval.statistics import Interval

RAW, RAW_RESERVED = "raw", "raw-reserved"
DEFAULTS_PAGE, REPORT_PAGE, HTML_PAGE, LOOKS = (
    "defaults.md",
    "report.md",
    "report.html",
    "reserved-looks.md",
)

_LOOKS_HEAD = """# Looks at the reserved split

The reserved queries are for the final table only. Every run over them adds a line, also one whose
figures nobody liked.

| when (UTC) | settings | corpus | variants |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Folder:
    """Where an evaluation is kept (``path``), and the golden set that judges it (``golden``)."""

    path: Path
    golden: Path

    def pages(self, evidence: Evidence) -> dict[str, str]:
        """Both Markdown pages, made anew. Raises GoldenSetError, EvaluationError."""
        return _pages(evidence, report(self._subject(evidence)))

    def publish(self, code: Settings, claims: Sequence[Claim]) -> Evidence:
        """Write pages and plots; what they were made from. Raises GoldenSetError, EvaluationError."""
        from fallback_eval.retrieval.plots import plots

        evidence = self.evidence(code, claims)
        subject = self._subject(evidence)
        missed = {
            name: routed(answers, evidence.golden)
            for name, answers in evidence.results.answers.items()
        }
        drawn = plots(evidence.analysis, missed, (DEFAULT, BM25, EMBEDDINGS))
        reported = report(subject)
        for name, text in _pages(evidence, reported).items():
            (self.path / name).write_text(text, encoding="utf-8")
        for name, svg in drawn.items():
            (self.path / f"{name}.svg").write_text(svg, encoding="utf-8")
        (self.path / HTML_PAGE).write_text(html(reported, drawn), encoding="utf-8")
        return evidence

    def faults(self, code: Settings, claims: Sequence[Claim]) -> Iterator[str]:
        """Every way in which the pages no longer follow from code, golden set and raw results.

        The plots are not drawn again (another matplotlib draws otherwise): report.html has to have those
        that are there. Raises GoldenSetError, EvaluationError where something can't be read.
        """
        evidence = self.evidence(code, claims)
        yield from self._run_faults(RAW, "dev", evidence.results, evidence.golden)
        if (reserved := self._reserved()) is not None:
            yield from self._run_faults(RAW_RESERVED, "reserved", reserved, evidence.golden)
            yield from self._look_faults(reserved, evidence)
        yield from faults(evidence)
        reported = report(self._subject(evidence))
        for name, text in _pages(evidence, reported).items():
            yield from page_faults(self.path / name, text)
        yield from self._html_faults(reported)

    def evidence(self, code: Settings, claims: Sequence[Claim]) -> Evidence:
        """What the defaults' table is made from. Raises GoldenSetError, EvaluationError."""
        golden, results = load_golden(self.golden), load_results(self.path / RAW)
        return Evidence(code, claims, results, analyse(results, golden), golden)

    def note_look(self, results: Results, settings: Mapping[str, object], now: datetime) -> None:
        """Add the line that says that the reserved split was looked at."""
        so_far = self._looks() or _LOOKS_HEAD
        line = f"| {now:%Y-%m-%d %H:%M} | {_look(results, settings)}"
        (self.path / LOOKS).write_text(f"{so_far}{line}\n", encoding="utf-8")

    def _looks(self) -> str:
        path = self.path / LOOKS
        return _text(path) if path.exists() else ""

    def _run_faults(
        self, side: str, split: Split, results: Results, golden: GoldenSet
    ) -> Iterator[str]:
        """What was asked is the split's queries, all of them, of a corpus that doesn't have them."""
        run = results.run
        if run.queries_sha256 != queries_sha256(self.golden):
            yield f"{side}/ was made with other queries than {str(self.golden)!r} has: run again"
        asked = {query.query for query in golden.of(split)}
        answered = {query for answers in results.answers.values() for query in answers}
        if run.split != split or answered != asked:
            yield f"{side}/ has answers to other queries than those of the {split} split: run again"
        held = set(run.corpus)
        if leaked := sorted(held & {query.record for query in golden.queries.values()}):
            yield f"{side}/ was made over a corpus that has the query {leaked[0]!r} itself"
        if lacking := sorted({one.example for one in golden.judgements} - held):
            yield f"{side}/ was made over a corpus without {lacking[0]!r}, which is judged: run again"

    def _look_faults(self, reserved: Results, evidence: Evidence) -> Iterator[str]:
        """The final table is of the code's settings, and its look was noted."""
        for variant in reserved.run.variants:
            if variant.name == DEFAULT and variant.settings != evidence.code:
                yield f"{RAW_RESERVED}/ was made with other defaults than the code has"
        if reserved.run.corpus_sha256 != evidence.results.run.corpus_sha256:
            yield f"{RAW_RESERVED}/ was made over another corpus than {RAW}/"
        if _look(reserved, evidence.code) not in self._looks():
            yield f"{LOOKS} has no line for the look that {RAW_RESERVED}/ was made in"

    def _html_faults(self, page: Document) -> Iterator[str]:
        names = [section.plot for section in page.sections if section.plot]
        drawn = {name: self.path / f"{name}.svg" for name in names}
        if missing := [path.name for path in drawn.values() if not path.exists()]:
            yield f"{missing[0]} is not there: make it again"
            return
        plots = {name: _text(path) for name, path in drawn.items()}
        yield from page_faults(self.path / HTML_PAGE, html(page, plots))

    def _subject(self, evidence: Evidence) -> "Subject":
        reserved = self._reserved()
        return Subject(
            evidence.golden,
            Side(evidence.results, evidence.analysis),
            self._agreement(evidence.golden),
            Side(reserved, analyse(reserved, evidence.golden)) if reserved else None,
        )

    def _reserved(self) -> Results | None:
        folder = self.path / RAW_RESERVED
        return load_results(folder) if (folder / RUN).exists() else None

    def _agreement(self, golden: GoldenSet) -> Agreement | None:
        path = self.golden / SECOND_OPINION
        return agreement(golden.judgements, load_opinions(path)) if path.exists() else None


def queries_sha256(golden: Path) -> str:
    """Digest of the queries' file: judgements may grow without a new run, queries may not."""
    return hashlib.sha256((golden / QUERIES).read_bytes()).hexdigest()


def _look(results: Results, settings: Mapping[str, object]) -> str:
    """A look's line, without its date."""
    digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()[:12]
    names = ", ".join(variant.name for variant in results.run.variants)
    return f"{digest} | {results.run.corpus_sha256[:12]} | {names} |"


def _text(path: Path) -> str:
    """A page as it is; what isn't UTF-8 in it was not written by us, and differs."""
    return path.read_text(encoding="utf-8", errors="replace")


def _pages(evidence: Evidence, reported: Document) -> dict[str, str]:
    return {
        DEFAULTS_PAGE: _page(markdown(table(evidence))),
        REPORT_PAGE: _page(markdown(reported)),
    }


def _page(text: str) -> str:
    return text.rstrip("\n") + "\n"


def page_faults(path: Path, wanted: str) -> Iterator[str]:
    """Names the first line that differs: a whole page in an error helps nobody."""
    made = _text(path).splitlines() if path.exists() else []
    for line_number, (one, other) in enumerate(
        zip(made, wanted.splitlines(), strict=False), start=1
    ):
        if one != other:
            yield f"{path.name}, line {line_number} is not what the raw results give: {other[:160]!r}"
            return
    if len(made) != len(wanted.splitlines()):
        yield f"{path.name} is not what the raw results give: make it again"


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
