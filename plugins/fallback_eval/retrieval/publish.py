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

from fallback_eval.document import Document, html, markdown
from fallback_eval.retrieval.agreement import Agreement, agreement
from fallback_eval.retrieval.analysis import analyse, routed
from fallback_eval.retrieval.defaults import Claim, Evidence, Settings, faults, table
from fallback_eval.retrieval.goals import BM25, EMBEDDINGS
from fallback_eval.retrieval.golden import (
    QUERIES,
    SECOND_OPINION,
    GoldenSet,
    Split,
    load_golden,
    load_opinions,
)
from fallback_eval.retrieval.results import DEFAULT, RUN, Results, load_results
from fallback_eval.retrieval.sections import Side, Subject, report

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

    def _subject(self, evidence: Evidence) -> Subject:
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
    for number, (one, other) in enumerate(zip(made, wanted.splitlines(), strict=False), start=1):
        if one != other:
            yield f"{path.name}, line {number} is not what the raw results give: {other[:160]!r}"
            return
    if len(made) != len(wanted.splitlines()):
        yield f"{path.name} is not what the raw results give: make it again"
