"""The folder of a faithfulness evaluation: write it, and check that it follows from its raw results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fallback_eval.document import (
    Document,
    Section,
    Table,
    html,
    markdown,
    number,
    p_value,
    percent,
    with_interval,
)
from fallback_eval.faithfulness.analysis import (
    CONSTANT,
    LABELS,
    LEXICAL,
    LEXICAL_SHARE,
    Analysis,
    One,
    analyse,
    cohen_kappa,
)
from fallback_eval.faithfulness.golden import FaithfulnessSet, Kind, load_faithfulness
from fallback_eval.faithfulness.results import JudgeRun, RawResults, load_raw
from fallback_eval.retrieval.publish import page_faults
from fallback_eval.statistics import bootstrap, holm, randomisation

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


PLOT: Final = "faithfulness-against-k"

#: The first problems of a judge's answers that a report names.
_NAMED_PROBLEMS: Final = 5


_INTRO = (
    "Made by `fallback-tier eval faithfulness` from `raw/` and the golden set; no hand edits it. A claim "
    "is *supported* if advisory, snippets and examples of its prompt carry all of it. Intervals are 95 % "
    "percentile bootstraps over plans."
)
_ONE_FAMILY = (
    "All readings are by language models of one family: mistakes that they share don't show."
)
_GRADED = (
    "Precision and recall are of *not supported*. A claim whose judge gave no readable answer is not "
    "graded: in the product such a plan counts as not evaluated."
)
_CURVE = (
    "The same plans, judged with the first k of their examples in the context; mean share of claims called "
    "supported (what the product reports as `faithfulness_score`). The labels rise with k because some "
    "claims rest on an example; a judge should rise as they do. Only plans that a judge graded at every k "
    "count."
)
_LIMITS = (
    "The plans were written for this set, with unsupported claims put in on purpose: how often a model's "
    "own plans have such claims is another question. Contexts are small (one or two snippets). A plan's "
    "claims are judged together, as in the product; alone they might be judged otherwise. No part of the "
    "set is held out: whoever changes the judge's prompt after reading this report measures on what was "
    "seen."
)


def report(golden: FaithfulnessSet, raw: RawResults, analysis: Analysis) -> Document:
    """Everything that is published."""
    return Document(
        title="Faithfulness of plans, judged",
        intro=[_INTRO],
        sections=[
            _set(golden),
            _judges(raw),
            _agreement(analysis),
            _by_kind(analysis),
            _whole_plans(analysis),
            _against_k(analysis),
            _problems(analysis),
            _limits(),
        ],
    )


def _set(golden: FaithfulnessSet) -> Section:
    claims = golden.every_claim
    supported = sum(claim.supported for claim in claims)
    pairs = [(golden.label(one.plan, one.claim).supported, one.supported) for one in golden.second]
    same = sum(first == second for first, second in pairs)
    return Section(
        "The golden set",
        [
            f"{len(claims)} claims of {len(golden.plans)} plans: {supported} supported, the others not.",
            f"{len(pairs)} claims were read a second time without their labels: {same} got the same label, "
            f"κ = {number(cohen_kappa(pairs))}. " + _ONE_FAMILY,
        ],
    )


def _judges(raw: RawResults) -> Section:
    rows = [
        [CONSTANT, "says that every claim is supported", "-", "-"],
        [
            LEXICAL,
            f"supported if the context has {percent(LEXICAL_SHARE)} of the claim's content words",
            "-",
            "-",
        ],
    ]
    rows += [
        [name, _what(run), _seconds(raw, name), run.started]
        for name, (run, _) in raw.models.items()
    ]
    text = []
    if not raw.models:
        text.append("No model was run: what follows is about the two judges without one.")
    if missing := [name for name in raw.models if _not_asked(raw, name)]:
        text += [
            f"{name} was not asked {_not_asked(raw, name)} of {len(raw.overlaps)} times: run it again "
            "to go on."
            for name in missing
        ]
    table = Table(["judge", "what it is", "median seconds a plan", "run"], rows)
    return Section("The judges", text, [table])


def _agreement(analysis: Analysis) -> Section:
    rows = []
    for name, one in analysis.figures.items():
        rows.append(
            [
                name,
                f"{one.graded} of {one.claims}",
                with_interval(one.accuracy),
                number(one.precision),
                number(one.recall),
                with_interval(one.kappa_interval) if one.kappa_interval else number(one.kappa),
            ]
        )
    head = ["judge", "graded", "accuracy", "precision", "recall", "Cohen's κ"]
    return Section(
        "Agreement with the labels",
        [
            _GRADED,
            *_comparisons(analysis),
        ],
        [Table(head, rows)],
    )


def _comparisons(analysis: Analysis) -> list[str]:
    """Each model against the two that need none, over the claims that it graded."""
    tests: dict[str, float] = {}
    for name, ones in analysis.judged.items():
        if name in (CONSTANT, LEXICAL):
            continue
        graded = [place for place, one in enumerate(ones) if one.said is not None]
        for peer in (CONSTANT, LEXICAL):
            others = analysis.judged[peer]
            first = [float(ones[place].right) for place in graded]
            second = [float(others[place].right) for place in graded]
            if graded:
                tests[f"{name} against {peer}"] = randomisation(first, second)
    shown = (f"{name}: p {_less(value)}" for name, value in holm(tests).items())
    intro = "Accuracy, paired randomisation test (claims as units), Holm-adjusted: "
    return [intro + "; ".join(shown) + "."] if tests else []


def _by_kind(analysis: Analysis) -> Section:
    rows = [
        [kind, "supported" if label else "not supported", str(_count(analysis, kind, label))]
        + [_right(ones, kind, label) for ones in analysis.judged.values()]
        for kind in Kind
        for label in (True, False)
        if _count(analysis, kind, label)
    ]
    return Section(
        "By kind of claim",
        [
            "Share that each judge got right, of those it graded. What a kind means: golden set, README."
        ],
        [Table(["kind", "label", "claims", *analysis.judged], rows)],
    )


def _count(analysis: Analysis, kind: Kind, label: bool) -> int:
    return sum(one.kind is kind and one.label == label for one in analysis.judged[CONSTANT])


def _right(ones: Sequence[One], kind: Kind, label: bool) -> str:
    graded = [
        one.right
        for one in ones
        if one.kind is kind and one.label == label and one.said is not None
    ]
    return percent(sum(graded) / len(graded) if graded else None)


def _whole_plans(analysis: Analysis) -> Section:
    rows = [
        [
            name,
            f"{one.caught} of {one.faulty}",
            f"{one.sound_sent_back} of {one.sound}",
            str(one.not_evaluated),
        ]
        for name, one in analysis.plans.items()
    ]
    head = ["judge", "faulty plans sent back", "sound plans sent back", "not evaluated"]
    return Section(
        "Whole plans",
        ["The product sends a plan back if one of its claims is not supported."],
        [Table(head, rows)],
    )


def _against_k(analysis: Analysis) -> Section:
    counts = sorted(analysis.curve[LABELS])
    rows = [
        [name, str(len(next(iter(curve.values()), ())))]
        + [with_interval(bootstrap(curve[k])) for k in counts]
        for name, curve in analysis.curve.items()
    ]
    return Section(
        "Faithfulness against k",
        [_CURVE],
        [Table(["judge", "plans", *(f"k = {k}" for k in counts)], rows)],
        plot=PLOT,
    )


def _problems(analysis: Analysis) -> Section:
    text = [
        f"{name}: {len(found)} answers could not be used. " + " · ".join(found[:_NAMED_PROBLEMS])
        for name, found in analysis.problems.items()
        if found
    ]
    return Section("Answers that could not be used", text or ["None."])


def _limits() -> Section:
    return Section(
        "What this can't say",
        [_LIMITS],
    )


def plot(analysis: Analysis) -> str:
    """Faithfulness score against k, a line a judge, as SVG."""
    from fallback_eval.retrieval.plots import legend_below, new_figure, svg_of

    figure, axes = new_figure()
    for place, (name, curve) in enumerate(analysis.curve.items()):
        means = {k: bootstrap(values) for k, values in curve.items()}
        drawn = [(k, mean) for k, mean in means.items() if mean is not None]
        if drawn and name != CONSTANT:
            ks = [k + (place - 1) * 0.04 for k, _ in drawn]
            middle = [mean.mean for _, mean in drawn]
            low = [mean.mean - mean.low for _, mean in drawn]
            high = [mean.high - mean.mean for _, mean in drawn]
            axes.errorbar(ks, middle, yerr=[low, high], marker="o", capsize=3, label=name)
    axes.set_xlabel("k: examples in the context")
    axes.set_ylabel("share of claims called supported")
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    return svg_of(figure)


def _not_asked(raw: RawResults, name: str) -> int:
    return len(raw.overlaps.keys() - raw.models[name][1].keys())


def _what(run: JudgeRun) -> str:
    server = ", ".join(f"{key} {value}" for key, value in run.server.items())
    return f"{run.model} ({run.provenance}); weights: {run.weights}" + (
        f"; {server}" if server else ""
    )


def _seconds(raw: RawResults, name: str) -> str:
    times = sorted(kept.duration_ms for kept in raw.models[name][1].values() if kept.answer)
    return f"{times[len(times) // 2] / 1000:.1f}" if times else "-"


def _less(value: float) -> str:
    shown = p_value(value)
    return shown if shown.startswith("<") else f"= {shown}"
