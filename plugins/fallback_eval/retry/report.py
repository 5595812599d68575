"""Figures, page and plot of the comparison of retry policies, from its rows alone.

A *pair* is a task and seed whose first attempt failed, continued by two policies. Tests are over tasks:
seeds of one task are not independent (docs/evaluation/retry/plan.md).

Differences between policies are shown only of a run that has ended: the plan allows no look before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from fallback_audit.vocabulary import FailureKind
from fallback_eval.document import Document, Section, Table, number, p_value, percent, signed
from fallback_eval.retry.policies import COMPARED, EXPLORED, FIRST_ATTEMPTS, Policy
from fallback_eval.retry.power import sign_test, smallest_difference
from fallback_eval.retry.run import Attempt, Row
from fallback_eval.statistics import Interval, bootstrap, holm

#: The product's policy against each of the others, in the plan's order.
PRIMARY: Final = tuple((COMPARED[0], other) for other in COMPARED[1:])

#: What a policy's case gives: 1 or 0.
Endpoint = Callable[[Row], float]

#: Rows of one task and seed, by policy.
Triple = Mapping[Policy, Row]


def is_fixed(row: Row) -> float:
    """Return 1 if an attempt passed its gates."""
    return float(row.fixed_at is not None)


def is_stricter(row: Row) -> float:
    """Return 1 if an attempt passed its gates and the hidden checks."""
    return float(row.fixed_at is not None and row.stricter is True)


def is_first(row: Row) -> float:
    """Return 1 if the first attempt passed its gates."""
    return float(row.is_first_try)


def is_stricter_first(row: Row) -> float:
    """Return 1 if the first attempt passed its gates and the hidden checks."""
    return float(row.is_first_try and row.stricter is True)


@dataclass(frozen=True)
class FirstTries:
    """First attempts: how many there are, pass their gates, pass the hidden checks too."""

    attempts: int
    passed: int
    stricter: int

    @property
    def rate(self) -> float | None:
        """Return the share that passes, None of no attempts."""
        return self.passed / self.attempts if self.attempts else None


@dataclass(frozen=True)
class Comparison:
    """Two policies over their pairs. ``difference``: of the first's rate and the second's, with an interval
    over tasks; ``p_value``: exact, over tasks; ``adjusted``: Holm's, None outside the primary ones."""

    first: Policy
    second: Policy
    pairs: int
    tasks: int
    both: int
    first_alone: int
    second_alone: int
    difference: Interval | None
    p_value: float
    adjusted: float | None = None

    @property
    def discordance(self) -> float | None:
        """Return the share of pairs that one policy alone fixes, None of no pairs."""
        return (self.first_alone + self.second_alone) / self.pairs if self.pairs else None


@dataclass(frozen=True)
class Cost:
    """What a policy used over all triples, first attempts counted in."""

    policy: Policy
    cases: int
    fixed: int
    stricter: int
    input_tokens: int
    output_tokens: int
    seconds: float

    @property
    def tokens_per_fix(self) -> float | None:
        """Return tokens read and written per stricter fix, None without one."""
        return (self.input_tokens + self.output_tokens) / self.stricter if self.stricter else None

    @property
    def seconds_per_fix(self) -> float | None:
        """Return the server's seconds per stricter fix, None without one."""
        return self.seconds / self.stricter if self.stricter else None


@dataclass(frozen=True)
class Repeats:
    """Retries of a policy: edits equal to an earlier attempt's, failures equal to an earlier one's."""

    policy: Policy
    retries: int
    same_edits: int
    failed: int
    same_failure: int

    @property
    def same_edits_share(self) -> float | None:
        """Return the share of retries with edits equal to an earlier attempt's; None if there are none."""
        return self.same_edits / self.retries if self.retries else None


@dataclass(frozen=True)
class Split:
    """Fix rates of the policies over pairs of one kind of first failure or one language."""

    name: str
    pairs: int
    fixed: Mapping[Policy, int]


def triples(rows: Iterable[Row], seeds: Sequence[int]) -> tuple[Triple, ...]:
    """Return the tasks and seeds for which every compared policy has a row, by name."""
    found: dict[tuple[str, int], dict[Policy, Row]] = defaultdict(dict)
    for row in rows:
        if row.seed in seeds and row.policy in COMPARED:
            found[row.task, row.seed][row.policy] = row
    return tuple(found[key] for key in sorted(found) if len(found[key]) == len(COMPARED))


def explored(rows: Iterable[Row], policy: Policy, seeds: Sequence[int]) -> tuple[Triple, ...]:
    """Return the product's row and this policy's, for each task and seed that has both, by name."""
    compared = (COMPARED[0], policy)
    found: dict[tuple[str, int], dict[Policy, Row]] = defaultdict(dict)
    for row in rows:
        if row.seed in seeds and row.policy in compared:
            found[row.task, row.seed][row.policy] = row
    return tuple(found[key] for key in sorted(found) if len(found[key]) == len(compared))


def first_tries(rows: Iterable[Row], seeds: Sequence[int]) -> FirstTries:
    """Return what became of first attempts, which the policies share: one of each task and seed."""
    firsts = {(row.task, row.seed): row for row in rows if row.seed in seeds}
    passed = [row for row in firsts.values() if row.is_first_try]
    return FirstTries(len(firsts), len(passed), sum(row.stricter is True for row in passed))


def continued(found: Iterable[Triple]) -> tuple[Triple, ...]:
    """Return those whose first attempt failed: the pairs."""
    return tuple(one for one in found if not one[COMPARED[0]].is_first_try)


def compare(
    pairs: Sequence[Triple], first: Policy, second: Policy, endpoint: Endpoint = is_fixed
) -> Comparison:
    """Return the comparison of two policies over pairs."""
    by_task: dict[str, list[float]] = defaultdict(list)
    both = first_alone = second_alone = 0
    for one in pairs:
        ours, theirs = endpoint(one[first]), endpoint(one[second])
        both += bool(ours and theirs)
        first_alone += ours > theirs
        second_alone += theirs > ours
        by_task[one[first].task].append(ours - theirs)
    means = [fmean(values) for values in by_task.values()]
    wins, losses = sum(mean > 0 for mean in means), sum(mean < 0 for mean in means)
    return Comparison(
        first,
        second,
        len(pairs),
        len(by_task),
        both,
        first_alone,
        second_alone,
        bootstrap(means),
        sign_test(wins, losses),
    )


def primary(pairs: Sequence[Triple]) -> tuple[Comparison, ...]:
    """Return the primary comparisons, with Holm's adjusted p-values."""
    found = [compare(pairs, first, second) for first, second in PRIMARY]
    adjusted = holm({one.second.value: one.p_value for one in found})
    return tuple(_adjusted(one, adjusted[one.second.value]) for one in found)


def _adjusted(one: Comparison, p_value: float) -> Comparison:
    return Comparison(**{**vars(one), "adjusted": p_value})


def at_equal_cost(pairs: Sequence[Triple]) -> tuple[Comparison, ...]:
    """Return the same comparisons with the others cut off at the tokens that the product's policy used in
    that case. The cut favours none: an attempt that begins below the limit and ends above it is lost."""
    return tuple(
        compare([_cut(one, first, second) for one in pairs], first, second)
        for first, second in PRIMARY
    )


def _cut(one: Triple, first: Policy, second: Policy) -> Triple:
    row, limit = one[second], _tokens(one[first])
    if row.fixed_at is not None and _tokens(row) > limit:
        row = row.model_copy(update={"outcome": "cut off", "stricter": None})
    return {first: one[first], second: row}


def _tokens(row: Row) -> int:
    return sum(one.input_tokens + one.output_tokens for one in row.attempts)


def cost(found: Sequence[Triple], policy: Policy) -> Cost:
    """Return what a policy used and reached over triples."""
    rows = [one[policy] for one in found]
    attempts = [attempt for row in rows for attempt in row.attempts]
    return Cost(
        policy,
        len(rows),
        sum(row.fixed_at is not None for row in rows),
        sum(row.stricter is True for row in rows),
        sum(one.input_tokens for one in attempts),
        sum(one.output_tokens for one in attempts),
        round(sum(row.model_seconds for row in rows), 1),
    )


def repeats(pairs: Sequence[Triple], policy: Policy) -> Repeats:
    """Return how often a policy's retries repeat an earlier attempt of their case."""
    retries = same_edits = failed = same_failure = 0
    for one in pairs:
        attempts = one[policy].attempts
        for index, attempt in enumerate(attempts[1:], start=1):
            before = attempts[:index]
            retries += 1
            # An answer that repeats a patch gives no patch: it has a kind of failure in place of edits.
            is_same = attempt.edits is not None and attempt.edits in {
                prior.edits for prior in before
            }
            same_edits += is_same or attempt.failure_kind is FailureKind.REPEATED_PATCH
            if attempt.failure_kind is not None:
                failed += 1
                earlier = {prior.signature for prior in before} - {None}
                same_failure += attempt.signature in earlier
    return Repeats(policy, retries, same_edits, failed, same_failure)


def split(pairs: Iterable[Triple], name: Callable[[Row], str]) -> tuple[Split, ...]:
    """Return fixes by a name of each pair's first row: its first failure, its language."""
    groups: dict[str, list[Triple]] = defaultdict(list)
    for one in pairs:
        groups[name(one[COMPARED[0]])].append(one)
    return tuple(
        Split(
            key,
            len(group),
            {policy: sum(one[policy].fixed_at is not None for one in group) for policy in COMPARED},
        )
        for key, group in sorted(groups.items())
    )


def first_failure(row: Row) -> str:
    """Return the kind of a case's first failure."""
    kind = row.attempts[0].failure_kind if row.attempts else None
    return kind.value if kind else "none"


#: The plots' names.
DIFFERENCES: Final = "differences"
BY_ATTEMPT: Final = "by-attempt"

#: Attempts after the first.
_RETRIES: Final = (2, 3, 4)

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
    return _cases_run(rows, study) >= study.cases


def _cases_run(rows: Sequence[Row], study: Study) -> int:
    return sum(row.seed in study.seeds and row.policy in COMPARED for row in rows)


def page(rows: Sequence[Row], study: Study) -> Document:
    """Return the page."""
    sections = [_pilot(rows, study), _progress(rows, study)]
    found = triples(rows, study.seeds)
    if _is_shown(rows, study):
        pairs = continued(found)
        sections += [
            _main(pairs),
            _by_attempt(pairs),
            _equal_cost(pairs),
            _cost(found),
            _repeats(pairs),
            _splits(pairs, study),
            *_explored(rows, study),
            *_firsts(rows, study),
        ]
    intro = [
        (
            "After a failed attempt, which context lets a model fix more? Design, endpoints and tests are "
            "in `plan.md`, written before the run. All figures follow from `results.jsonl`, and its rows "
            "from the kept answers in `calls.jsonl`, without weights."
        ),
        _verdict(rows, study),
        (
            "It is of one small model (1.5 billion parameters, 4 bit) and programs of one function, whose "
            "advisories say in words what a right fix does. The example that a policy retrieves is always "
            "a decoy: the case that ADR-0011 was made for, and no estimate of how often it occurs. All "
            "policies share first attempts, gates, summaries, caps and the rules that end a fix early."
        ),
    ]
    return Document("Retry policies", intro, sections)


def plots(rows: Sequence[Row], study: Study) -> dict[str, str]:
    """Return name → SVG; none before the run has ended."""
    if not _is_shown(rows, study):
        return {}
    pairs = continued(triples(rows, study.seeds))
    return {
        DIFFERENCES: _forest(primary(pairs), _stricter(pairs)),
        BY_ATTEMPT: _curves(pairs),
    }


def _is_shown(rows: Sequence[Row], study: Study) -> bool:
    return study.has_ended or is_complete(rows, study)


def _verdict(rows: Sequence[Row], study: Study) -> str:
    if not _is_shown(rows, study):
        return "**The main run has not ended. No difference between policies is shown yet.**"
    pairs = continued(triples(rows, study.seeds))
    counts = ", ".join(f"{policy.value} {fixed_by(pairs, policy)[-1]}" for policy in COMPARED)
    words = []
    for one in primary(pairs):
        if one.difference is None or one.adjusted is None:
            words.append(f"no pair compares {one.first} with {one.second}")
        elif one.adjusted < _SIGNIFICANT:
            more = one.first if one.difference.mean > 0 else one.second
            less = one.second if more is one.first else one.first
            words.append(f"{more} fixes more than {less}")
        else:
            words.append(f"{one.first} and {one.second} are not told apart")
    return f"**{'; '.join(words)}.** Of {len(pairs)} failing first attempts are fixed: {counts}."


def _pilot(rows: Sequence[Row], study: Study) -> Section:
    seeds = (study.pilot_seed,)
    tries = first_tries(rows, seeds)
    pairs = continued(triples(rows, seeds))
    found = [compare(pairs, *both) for both in PRIMARY]
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
    done = _cases_run(rows, study)
    tries = first_tries(rows, study.seeds)
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
        [_counts(primary(pairs)), _counts(_stricter(pairs), "stricter: ")],
        DIFFERENCES,
    )


def fixed_by(pairs: Sequence[Triple], policy: Policy) -> tuple[int, ...]:
    """Return how many pairs a policy has fixed by its second, third and fourth attempt."""
    ends = [one[policy].fixed_at for one in pairs]
    return tuple(sum(end is not None and end <= last for end in ends) for last in _RETRIES)


def _by_attempt(pairs: Sequence[Triple]) -> Section:
    head = ["policy", "pairs", *(f"by attempt {last}" for last in _RETRIES)]
    rows = [
        [policy.value, str(len(pairs)), *map(str, fixed_by(pairs, policy))] for policy in COMPARED
    ]
    return Section("Fixed by attempt", ["Pairs fixed so far."], [Table(head, rows)], BY_ATTEMPT)


def _stricter(pairs: Sequence[Triple]) -> tuple[Comparison, ...]:
    return tuple(compare(pairs, *both, is_stricter) for both in PRIMARY)


def _equal_cost(pairs: Sequence[Triple]) -> Section:
    return Section(
        "At equal cost",
        [f"The others are cut off at the tokens that {COMPARED[0]} used in the same case."],
        [_counts(at_equal_cost(pairs))],
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
    for one in (cost(found, policy) for policy in COMPARED):
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
    for one in (repeats(pairs, policy) for policy in COMPARED):
        failures = one.same_failure / one.failed if one.failed else None
        rows.append(
            [
                one.policy.value,
                str(one.retries),
                str(one.same_edits),
                percent(one.same_edits_share),
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
        ("first failure", split(pairs, first_failure)),
        ("language", split(pairs, language)),
    ):
        head = [name, "pairs", *(policy.value for policy in COMPARED)]
        rows = [
            [one.name, str(one.pairs), *(str(one.fixed[policy]) for policy in COMPARED)]
            for one in found
        ]
        tables.append(Table(head, rows))
    return Section("By first failure, by language", ["Pairs fixed. Exploratory: no tests."], tables)


def _explored(rows: Sequence[Row], study: Study) -> list[Section]:
    """The policies that were run after the main comparison; none before one has a row."""
    head = ["policy", "pairs", "fixed", f"{COMPARED[0]} fixed", "difference", "at equal cost"]
    head += ["stricter", "repeats"]
    lines = []
    for policy in EXPLORED:
        pairs = continued(explored(rows, policy, study.seeds))
        if not pairs:
            continue
        one, stricter = (compare(pairs, policy, COMPARED[0], it) for it in (is_fixed, is_stricter))
        cut = [_cut(pair, COMPARED[0], policy) for pair in pairs]
        shares = (percent(repeats(pairs, it).same_edits_share) for it in (policy, COMPARED[0]))
        fixed = (one.both + one.first_alone, one.both + one.second_alone)
        lines.append(
            [
                f"{policy.value}: {policy.meaning}",
                str(one.pairs),
                *map(str, fixed),
                _interval(one.difference),
                _interval(compare(cut, policy, COMPARED[0]).difference),
                _interval(stricter.difference),
                " / ".join(shares),
            ]
        )
    if not lines:
        return []
    text = (
        "Each against the product's policy, after the same first attempts of one seed: difference of fix "
        "rates, the same cut off at the tokens that the product's used in that case, and of stricter ones, "
        "with 95 % bootstrap intervals; share of retries that repeat an earlier patch, its own and the "
        "product's. The product's summary quotes the patch that was tried; a log's end and a failure's "
        "kind do not. Exploratory: no tests."
    )
    return [Section("What of the failure a retry is shown", [text], [Table(head, lines)])]


def _firsts(rows: Sequence[Row], study: Study) -> list[Section]:
    """What first attempts were shown, and the form of their answers; none before one has a row."""
    head = ["policy", "pairs", "passed", "with the decoy", "difference", "stricter"]
    lines = []
    for policy in FIRST_ATTEMPTS:
        found = explored(rows, policy, study.seeds)
        if not found:
            continue
        one, stricter = (
            compare(found, policy, COMPARED[0], it) for it in (is_first, is_stricter_first)
        )
        passed = (one.both + one.first_alone, one.both + one.second_alone)
        first, decoys = (
            [attempt for pair in found for attempt in pair[name].attempts[:1]]
            for name in (policy, COMPARED[0])
        )
        lines.append(
            [
                f"{policy.value}: {policy.meaning}",
                str(one.pairs),
                *map(str, passed),
                _interval(one.difference),
                _interval(stricter.difference),
                f"{_rejected(first)} / {_rejected(decoys)}",
                f"{_written(first)} / {_written(decoys)}",
            ]
        )
    if not lines:
        return []
    hits, cases = retrieved(rows, study.seeds)
    text = (
        "First attempts alone, each against the main run's (the decoy, an answer in blocks) on the same "
        "tasks and seeds: difference of the shares that pass, and that pass the hidden checks too, with "
        "95 % bootstrap intervals over tasks; answers rejected and tokens written, its own and "
        f"with the decoy. The search found an example in {hits} of {cases} cases. "
        "Exploratory: no tests."
    )
    table = Table([*head, "rejected", "tokens written"], lines)
    return [Section("What a first attempt is shown", [text], [table])]


def _rejected(attempts: Sequence[Attempt]) -> int:
    return sum(one.rejected for one in attempts)


def _written(attempts: Sequence[Attempt]) -> int:
    return sum(one.output_tokens for one in attempts)


def retrieved(rows: Iterable[Row], seeds: Sequence[int]) -> tuple[int, int]:
    """Return in how many cases the search of other tasks' fixes found one, and how many there are. Where it
    found none, the model is asked what it is asked without an example."""
    calls: dict[tuple[str, int], dict[Policy, Row]] = defaultdict(dict)
    both = (Policy.FIRST_RETRIEVED, Policy.FIRST_WITHOUT)
    for row in rows:
        if row.seed in seeds and row.policy in both:
            calls[row.task, row.seed][row.policy] = row
    pairs = [one for one in calls.values() if len(one) == len(both)]
    found = sum(one[both[0]].calls != one[both[1]].calls for one in pairs)
    return found, len(pairs)


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


def _curves(pairs: Sequence[Triple]) -> str:
    from fallback_eval.retrieval.plots import new_figure, svg_of

    figure, axes = new_figure(3)
    for policy in COMPARED:
        shares = [count / len(pairs) if pairs else 0.0 for count in fixed_by(pairs, policy)]
        axes.plot((1, *_RETRIES), (0.0, *shares), marker="o", markersize=4, label=policy.value)
    axes.set_xticks((1, *_RETRIES))
    axes.set_xlabel("attempt")
    axes.set_ylabel("share of pairs fixed")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return svg_of(figure)
