"""The page of the comparison of retry policies, and its plot, from its rows alone.

Differences between policies are shown only of a run that has ended: the plan allows no look before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fallback_eval.document import Document, Section, Table, number, p_value, percent, signed
from fallback_eval.retry import analysis
from fallback_eval.retry.analysis import Comparison, Triple
from fallback_eval.retry.policies import COMPARED
from fallback_eval.retry.power import smallest_difference
from fallback_eval.retry.run import Row

if TYPE_CHECKING:
    from fallback_eval.statistics import Interval

#: The plot's name.
DIFFERENCES: Final = "differences"

#: Below this adjusted p-value a comparison decides a default.
_SIGNIFICANT: Final = 0.05


@dataclass(frozen=True)
class Study:
    """What the rows are of. ``has_ended``: no more rows will come, and differences may be looked at;
    ``languages``: of each task."""

    pilot_seed: int
    seeds: tuple[int, ...]
    cases: int
    languages: Mapping[str, str]
    has_ended: bool


def is_complete(rows: Sequence[Row], study: Study) -> bool:
    """Return whether every case of the main run has a row."""
    return sum(row.seed in study.seeds for row in rows) >= study.cases


def page(rows: Sequence[Row], study: Study) -> Document:
    """Return the page."""
    sections = [_pilot(rows, study), _progress(rows, study)]
    found = analysis.triples(rows, study.seeds)
    if _is_shown(rows, study):
        pairs = analysis.continued(found)
        sections += [
            _main(pairs),
            _equal_cost(pairs),
            _cost(found),
            _repeats(pairs),
            _splits(pairs, study),
        ]
    intro = [
        (
            "After a failed attempt, which context lets a model fix more? Design, endpoints and tests are "
            "in `plan.md`, written before the run. All figures follow from `results.jsonl`, and its rows "
            "from the kept answers in `calls.jsonl`, without weights."
        ),
        _verdict(rows, study),
    ]
    return Document("Retry policies", intro, sections)


def plots(rows: Sequence[Row], study: Study) -> dict[str, str]:
    """Return name → SVG; none before the run has ended."""
    if not _is_shown(rows, study):
        return {}
    pairs = analysis.continued(analysis.triples(rows, study.seeds))
    return {DIFFERENCES: _forest(analysis.primary(pairs), _stricter(pairs))}


def _is_shown(rows: Sequence[Row], study: Study) -> bool:
    return study.has_ended or is_complete(rows, study)


def _verdict(rows: Sequence[Row], study: Study) -> str:
    if not _is_shown(rows, study):
        return "**The main run has not ended. No difference between policies is shown yet.**"
    pairs = analysis.continued(analysis.triples(rows, study.seeds))
    words = []
    for one in analysis.primary(pairs):
        if one.difference is None or one.adjusted is None:
            words.append(f"no pair compares {one.first} with {one.second}")
        elif one.adjusted < _SIGNIFICANT:
            more = one.first if one.difference.mean > 0 else one.second
            less = one.second if more is one.first else one.first
            words.append(f"{more} fixes more than {less}")
        else:
            words.append(f"{one.first} and {one.second} are not told apart")
    return f"**{'; '.join(words)}.**"


def _pilot(rows: Sequence[Row], study: Study) -> Section:
    seeds = (study.pilot_seed,)
    tries = analysis.first_tries(rows, seeds)
    pairs = analysis.continued(analysis.triples(rows, seeds))
    found = [analysis.compare(pairs, *both) for both in analysis.PRIMARY]
    return Section(
        "Pilot",
        [
            (
                f"{tries.passed} of {tries.attempts} first attempts passed their gates "
                f"({percent(tries.rate)}), {tries.stricter} the hidden checks too. In no test."
            )
        ],
        [_counts(found)],
    )


def _progress(rows: Sequence[Row], study: Study) -> Section:
    done = sum(row.seed in study.seeds for row in rows)
    tries = analysis.first_tries(rows, study.seeds)
    failing = tries.attempts - tries.passed
    shown = [(share, smallest_difference(failing, share)) for share in (0.1, 0.2, 0.3, 0.4)]
    return Section(
        "Main run",
        [
            (
                f"{done} of {study.cases} cases. {tries.passed} of {tries.attempts} first attempts passed "
                f"({percent(tries.rate)}), {tries.stricter} the hidden checks too."
            ),
            f"What {failing} failing first attempts can show with a chance of 0.8, by discordance:",
        ],
        [
            Table(
                ["discordance", "smallest difference"],
                [[number(share), number(least)] for share, least in shown],
            )
        ],
    )


def _main(pairs: Sequence[Triple]) -> Section:
    return Section(
        "Fixed within three retries",
        [
            (
                "Difference of fix rates over pairs, with a 95 % bootstrap interval over tasks; exact test "
                "over tasks, and Holm's correction over the two primary comparisons."
            )
        ],
        [_counts(analysis.primary(pairs)), _counts(_stricter(pairs), "stricter: ")],
        DIFFERENCES,
    )


def _stricter(pairs: Sequence[Triple]) -> tuple[Comparison, ...]:
    return tuple(analysis.compare(pairs, *both, analysis.is_stricter) for both in analysis.PRIMARY)


def _equal_cost(pairs: Sequence[Triple]) -> Section:
    return Section(
        "At equal cost",
        [f"The others are cut off at the tokens that {COMPARED[0]} used in the same case."],
        [_counts(analysis.at_equal_cost(pairs))],
    )


def _counts(found: Sequence[Comparison], before: str = "") -> Table:
    head = ["comparison", "pairs", "tasks", "both", "first alone", "second alone", "discordance"]
    rows = [
        [
            f"{before}{one.first} against {one.second}",
            str(one.pairs),
            str(one.tasks),
            str(one.both),
            str(one.first_alone),
            str(one.second_alone),
            percent(one.discordance),
            _interval(one.difference),
            p_value(one.p_value),
            "-" if one.adjusted is None else p_value(one.adjusted),
        ]
        for one in found
    ]
    return Table([*head, "difference", "p", "p (Holm)"], rows)


def _interval(value: "Interval | None") -> str:
    return "-" if value is None else signed(value)


def _cost(found: Sequence[Triple]) -> Section:
    head = ["policy", "cases", "fixed", "stricter", "tokens read", "written", "server's seconds"]
    rows = []
    for one in (analysis.cost(found, policy) for policy in COMPARED):
        counts = (one.cases, one.fixed, one.stricter, one.input_tokens, one.output_tokens)
        per_fix = (one.tokens_per_fix, one.seconds_per_fix)
        ends = [_whole(one.seconds), *map(_whole, per_fix)]
        rows.append([one.policy.value, *map(str, counts), *ends])
    table = Table([*head, "tokens per stricter fix", "seconds per stricter fix"], rows)
    return Section("Cost", ["First attempts are counted in."], [table])


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _repeats(pairs: Sequence[Triple]) -> Section:
    head = ["policy", "retries", "same edits", "share", "failed", "same failure", "share"]
    rows = []
    for one in (analysis.repeats(pairs, policy) for policy in COMPARED):
        edits = one.same_edits / one.retries if one.retries else None
        failures = one.same_failure / one.failed if one.failed else None
        rows.append(
            [
                one.policy.value,
                str(one.retries),
                str(one.same_edits),
                percent(edits),
                str(one.failed),
                str(one.same_failure),
                percent(failures),
            ]
        )
    return Section("Repetition", ["Of retries alone."], [Table(head, rows)])


def _splits(pairs: Sequence[Triple], study: Study) -> Section:
    def language(row: Row) -> str:
        return study.languages.get(row.task, "unknown")

    tables = []
    for name, found in (
        ("first failure", analysis.split(pairs, analysis.first_failure)),
        ("language", analysis.split(pairs, language)),
    ):
        head = [name, "pairs", *(policy.value for policy in COMPARED)]
        rows = [
            [one.name, str(one.pairs), *(str(one.fixed[policy]) for policy in COMPARED)]
            for one in found
        ]
        tables.append(Table(head, rows))
    return Section("By first failure, by language", ["Pairs fixed. Exploratory: no tests."], tables)


def _forest(found: Sequence[Comparison], stricter: Sequence[Comparison]) -> str:
    # matplotlib is imported where a plot is drawn.
    from fallback_eval.retrieval.plots import new_figure, svg_of

    lines = [(f"{one.first} - {one.second}", one) for one in found]
    lines += [(f"{one.first} - {one.second} (stricter)", one) for one in stricter]
    figure, axes = new_figure(1 + 0.4 * len(lines))
    for place, (_, one) in enumerate(reversed(lines)):
        if one.difference is not None:
            axes.plot([one.difference.low, one.difference.high], [place, place], color="tab:blue")
            axes.plot(one.difference.mean, place, "o", color="tab:blue", markersize=4)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(lines)), [name for name, _ in reversed(lines)], fontsize=7)
    axes.set_xlabel("difference of fix rates, 95 % bootstrap interval over tasks")
    axes.grid(axis="x", alpha=0.3)
    return svg_of(figure)
