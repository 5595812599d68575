"""The report of a real run: what was fixed, at which attempt, at what cost, and what failed and why."""

from collections import Counter
from collections.abc import Iterator, Sequence

from fallback_audit.vocabulary import CallType
from fallback_eval.document import Document, Section, Table, markdown
from fallback_eval.fixes.runs import AttemptFacts, FixRun
from fallback_tier.repo import AnswerForm

#: Of a failing gate's words, or of a reason, as much as a table's cell can hold.
_CELL_CHARS = 160

#: Projects of the kind that the ecosystems' templates have as their worked example.
HINTED = ("dishserve", "unboxer")


def page(runs: Sequence[FixRun]) -> str:
    """The report as Markdown."""
    return markdown(report(runs)).rstrip() + "\n"


def report(runs: Sequence[FixRun]) -> Document:
    """The report of these runs, in the order of their projects."""
    ordered = sorted(runs, key=lambda run: run.key)
    return Document(
        title="A real run: fixes of vulnerable mini-projects",
        intro=list(_intro(ordered)),
        sections=[
            Section("Outcomes", tables=[_outcomes(ordered)]),
            Section("Trails from failure to proof", list(_trails(ordered))),
            Section("What failed, and why", list(_ceiling(ordered)), [_failures(ordered)]),
            Section("Cost", tables=[_cost(ordered)]),
            Section("How it was made", list(_method(ordered))),
        ],
    )


def _intro(runs: Sequence[FixRun]) -> Iterator[str]:
    if not runs:
        yield "Nothing was run yet."
        return
    fixed = [run for run in runs if run.facts.verified_at is not None]
    at = Counter(run.facts.verified_at for run in fixed)
    message = ", ".join(
        f"{count} at attempt {number}" for number, count in sorted(at.items(), key=str)
    )
    projects = len({run.project for run in runs})
    yield (
        f"{len(fixed)} of {len(runs)} runs over {projects} projects ended in a verified patch"
        + (f" ({message})." if message else ".")
    )
    yield (
        "Verified means that the base commit's tests and a proof that nobody but the gate has seen pass "
        "with the patch; the proof fails at the base commit. A run has one first attempt and at most "
        "three retries, each with a fresh context."
    )


def _outcomes(runs: Sequence[FixRun]) -> Table:
    head = (
        "project",
        "weakness",
        "seed",
        "outcome",
        "attempts",
        "calls",
        "tokens in",
        "tokens out",
    )
    rows = []
    for run in runs:
        facts = run.facts
        read, written = facts.tokens()
        message = f"verified at attempt {facts.verified_at}" if facts.verified_at else facts.outcome
        rows.append(
            (
                run.project,
                f"{run.weakness} ({run.cwe})",
                str(run.seed),
                f"{message}: {facts.reason}" if facts.reason else message,
                str(len(facts.attempts)),
                str(len(facts.calls)),
                f"{read:,}",
                f"{written:,}",
            )
        )
    return Table(head, rows)


def _trails(runs: Sequence[FixRun]) -> Iterator[str]:
    """Fail → retry with fresh context → pass; or that there is none."""
    found = [run for run in runs if run.facts.verified_at is not None and run.facts.verified_at > 1]
    for run in found:
        steps = [f"attempt {one.attempt} {_result(one)}" for one in run.facts.attempts]
        yield f"`{run.project}` (seed {run.seed}): {'; then '.join(steps)}."
    if not found:
        yield (
            "No run failed first and was verified on a retry: what this model did not fix at once, it did "
            "not fix from the failure's summary either."
        )


def _result(attempt: AttemptFacts) -> str:
    if attempt.failure_kind is None and not attempt.why:
        return "passed every gate"
    where = f" at gate {', '.join(attempt.failing_gates)}" if attempt.failing_gates else ""
    kind = attempt.failure_kind.value if attempt.failure_kind else "no patch"
    return f"({attempt.shape.label}) failed{where}: {kind}"


def _ceiling(runs: Sequence[FixRun]) -> Iterator[str]:
    attempts = [one for run in runs for one in run.facts.attempts]
    kinds = Counter(one.failure_kind.value for one in attempts if one.failure_kind)
    if kinds:
        message = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"{sum(kinds.values())} of {len(attempts)} attempts failed: {message}."
    valid, first = (sum(run.facts.first_answers[side] for run in runs) for side in (0, 1))
    share = _share(valid, first)
    yield f"{valid} of {first} attempts began with a first answer that was a valid plan ({share})."
    rejected = sum(len(one.rejected) for one in attempts)
    calls = sum(len(run.facts.calls) for run in runs)
    yield f"{rejected} of {calls} answers were rejected before any gate (invalid, or a repetition)."


def _failures(runs: Sequence[FixRun]) -> Table:
    rows = []
    for run in runs:
        for one in run.facts.attempts:
            if one.failure_kind is None and not one.why and not one.rejected:
                continue
            rows.append(
                (
                    f"{run.project} ({run.seed})",
                    str(one.attempt),
                    _result(one),
                    str(len(one.rejected)),
                    _short(one.why or " ".join(one.rejected)),
                )
            )
    return Table(
        ("project (seed)", "attempt", "result", "answers rejected", "in its own words"), rows
    )


def _cost(runs: Sequence[FixRun]) -> Table:
    rows = []
    for kind in CallType:
        calls = [one for run in runs for one in run.facts.calls if one.call_type is kind]
        if not calls:
            continue
        totals = [run.facts.tokens(kind) for run in runs]
        read, written = (sum(total[side] for total in totals) for side in (0, 1))
        took = sum(one.duration_ms for one in calls)
        rows.append((kind.value, str(len(calls)), f"{read:,}", f"{written:,}", _seconds(took)))
    gates = sum(run.facts.gates_ms for run in runs)
    rows.append(("gates", "-", "-", "-", _seconds(gates)))
    fixed = sum(run.facts.verified_at is not None for run in runs)
    if fixed:
        read, written = (sum(run.facts.tokens()[side] for run in runs) // fixed for side in (0, 1))
        rows.append(("each verified fix, failures included", "-", f"{read:,}", f"{written:,}", "-"))
    return Table(("what", "calls", "tokens in", "tokens out", "wall time"), rows)


def _method(runs: Sequence[FixRun]) -> Iterator[str]:
    for model, provenance, form, setup in dict.fromkeys(
        (run.model, run.provenance.value, run.answer_form, run.setup) for run in runs
    ):
        how = f"{provenance}, asked for {form.value}" if form is not AnswerForm.JSON else provenance
        yield f"Model `{model}` ({how})" + (f": {setup}" if setup else ".")
    dates = sorted({run.date for run in runs})
    if dates:
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        yield f"Made {when}, by fallback-tier {', '.join(sorted({run.tool_version for run in runs}))}."
    if hinted := [name for name in HINTED if any(run.project == name for run in runs)]:
        yield (
            f"The worked example in every prompt refuses names that lead outside a folder, as a fix of "
            f"{' and '.join(f'`{name}`' for name in hinted)} does: read them with that in mind."
        )
    yield (
        "The projects are ours, small, and each has one flaw that its advisory names with the class of "
        "the remedy: they say whether the chain works with a weak model, not how it would do on "
        "repositories of the world. `transcripts/` has every prompt, answer, event, patch and gate log; "
        "the rows of `runs.jsonl` are computed from their events (`fallback-tier eval fixes --check`)."
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _CELL_CHARS else f"{flat[:_CELL_CHARS]}…"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.0f} s"
