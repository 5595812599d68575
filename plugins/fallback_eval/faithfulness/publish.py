"""The folder of a faithfulness evaluation: write it, and check that it follows from its raw results."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fallback_eval.document import html, markdown
from fallback_eval.faithfulness.analysis import Analysis, analyse
from fallback_eval.faithfulness.golden import FaithfulnessSet, load_faithfulness
from fallback_eval.faithfulness.report import PLOT, plot, report
from fallback_eval.faithfulness.results import RawResults, load_raw
from fallback_eval.retrieval.publish import page_faults

REPORT, HTML = "report.md", "report.html"


@dataclass(frozen=True)
class FaithfulnessFolder:
    """Where the evaluation is kept (``path``), and the golden set that judges it (``golden``)."""

    path: Path
    golden: Path

    def publish(self) -> Analysis:
        """Write pages and plot from the raw results. Raises GoldenSetError, EvaluationError."""
        golden, raw, analysis = self._read()
        svg = plot(analysis)
        page = report(golden, raw, analysis)
        (self.path / f"{PLOT}.svg").write_text(svg, encoding="utf-8")
        (self.path / REPORT).write_text(_page(markdown(page)), encoding="utf-8")
        (self.path / HTML).write_text(html(page, {PLOT: svg}), encoding="utf-8")
        return analysis

    def faults(self) -> Iterator[str]:
        """Every way in which the pages don't follow from golden set and raw results.

        The plot is not drawn again (another matplotlib draws otherwise): report.html has to have the one
        that is there. Raises GoldenSetError, EvaluationError where something can't be read.
        """
        golden, raw, analysis = self._read()
        yield from _raw_faults(golden, raw)
        page = report(golden, raw, analysis)
        yield from page_faults(self.path / REPORT, _page(markdown(page)))
        drawn = self.path / f"{PLOT}.svg"
        if not drawn.exists():
            yield f"{drawn.name} is not there: make it again"
            return
        svg = drawn.read_text(encoding="utf-8", errors="replace")
        yield from page_faults(self.path / HTML, html(page, {PLOT: svg}))

    def _read(self) -> tuple[FaithfulnessSet, RawResults, Analysis]:
        golden, raw = load_faithfulness(self.golden), load_raw(self.path)
        return golden, raw, analyse(golden, raw)


def _raw_faults(golden: FaithfulnessSet, raw: RawResults) -> Iterator[str]:
    """The raw results are of these plans, and of one version of their prompts."""
    if {plan for plan, _ in raw.overlaps} != set(golden.plans):
        yield "raw/lexical.jsonl is not of the golden set's plans: run again"
    for name, (_, answers) in raw.models.items():
        for asked, kept in answers.items():
            overlap = raw.overlaps.get(asked)
            if overlap is None or overlap.prompt_sha256 != kept.prompt_sha256:
                yield f"raw/{name} answers another prompt for {asked[0]}, k = {asked[1]}: run again"
                break


def _page(text: str) -> str:
    return text.rstrip("\n") + "\n"
