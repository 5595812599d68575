"""One case from end to end: its checkout, the perfect answer, the wrong ones, and what came of each."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.campaigns.measuring.tool import SCRIPT, version_of
from tests.campaigns.own_code import independent, results
from tests.campaigns.own_code.author import InTurn, Perfect, plan
from tests.campaigns.own_code.cases import Case, Record
from tests.campaigns.own_code.checkout import Checkout, check_out, proof_arguments, write_advisory
from tests.campaigns.own_code.command import Command, Ran
from tests.campaigns.own_code.ends import End, stopped
from tests.campaigns.own_code.results import Plan, Result, WrongEnd
from tests.campaigns.own_code.shown import Shown, shown, site
from tests.campaigns.own_code.upstream import Fix, fix_of
from tests.campaigns.own_code.wrong import Wrong, wrong_plans
from tests.campaigns.proofs.running import tools

#: Runs with wrong plans, with a proof or without: one a plan, and some to spare.
_MAX_WRONG_RUNS = 6

#: Files that a row names of those that a clone lacks.
_MAX_ABSENT = 20


@dataclass(frozen=True)
class Options:
    """How the cases are measured."""

    label: str = "now"
    script: Path = SCRIPT
    clones: Path | None = None
    skip_wrong: bool = False


@dataclass
class _Measured:
    """A case in work: its tree, and every run of the command so far."""

    case: Case
    record: Record
    checkout: Checkout
    command: Command
    fix: Fix
    folder: Path
    with_proof: list[Ran] = field(default_factory=list)
    plain: list[Ran] = field(default_factory=list)

    def run(self, author: Perfect | InTurn, *, with_proof: bool) -> Ran:
        command = self.command if with_proof else self.command.without_proof()
        ran = command.run(author)
        (self.with_proof if with_proof else self.plain).append(ran)
        return ran


@dataclass(frozen=True)
class _Verdict:
    """What became of a plan in a run; ``code``: the run's, where it ended with this plan."""

    outcome: str
    stopped_by: str = ""
    said: str = ""
    code: int | None = None


def run_case(case: Case, record: Record, options: Options) -> Result:
    """Measure one case. Raises RuntimeError where its repository or its proof can't be had."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="own-code-", ignore_cleanup_errors=True) as folder:
        case_in_work = _begin(case, record, options, Path(folder).resolve())
        perfect, plain = _perfect(case_in_work)
        wrong = () if options.skip_wrong else tuple(_wrong(case_in_work, (perfect, plain)))
        return _result(case_in_work, options, perfect, plain, wrong, time.monotonic() - began)


def _begin(case: Case, record: Record, options: Options, folder: Path) -> _Measured:
    checkout = check_out(case, folder, options.clones)
    proof = proof_arguments(case, checkout, folder)
    advisory = write_advisory(record, folder)
    command = Command(options.script, checkout.root, advisory, folder, proof)
    fix = fix_of(record.diff, checkout)
    return _Measured(case, record, checkout, command, fix, folder)


def _perfect(measured: _Measured) -> tuple[Ran | None, Ran | None]:
    """The true fix, with its proof and without."""
    fix = measured.fix
    if fix.unsayable is not None:
        return None, None
    advisory = measured.record.id
    return (
        measured.run(Perfect(advisory, fix.edits), with_proof=True),
        measured.run(Perfect(advisory, fix.edits), with_proof=False),
    )


def _wrong(measured: _Measured, perfect: tuple[Ran | None, Ran | None]) -> Iterator[WrongEnd]:
    """Every wrong plan, with the proof and without."""
    plans = wrong_plans(measured.fix, measured.checkout)
    for ran, with_proof in zip(perfect, (True, False), strict=True):
        if (
            ran is not None and not ran.prompts
        ):  # it ends before a plan is asked for, whatever the plan
            yield from (_never(one, with_proof, ran.end) for one in plans)
        else:
            yield from _in_turn(measured, plans, with_proof=with_proof)


def _hangs(end: End) -> bool:
    """Does a gate, or the whole command, not end even with the true fix?"""
    return end.code is None or any(one.kind == "gate_timeout" for one in end.failed)


def _in_turn(
    measured: _Measured, plans: Sequence[Wrong], *, with_proof: bool
) -> Iterator[WrongEnd]:
    """Runs until each plan had its verdict: one run takes up to four."""
    left = list(plans)
    for _ in range(_MAX_WRONG_RUNS):
        if not left:
            return
        author = InTurn([plan(measured.record.id, one.edits) for one in left])
        ran = measured.run(author, with_proof=with_proof)
        if not author.at:
            yield from (_never(one, with_proof, ran.end) for one in left)
            return
        for number, verdict in _verdicts(ran.end, author.given).items():
            yield _judged(measured, left[number], verdict, with_proof=with_proof)
        left = left[author.at :]


def _verdicts(end: End, given: Sequence[Sequence[int]]) -> dict[int, _Verdict]:
    """By the number of a plan: of each attempt the last plan was judged, those before were no plans."""
    found: dict[int, _Verdict] = {}
    failed = [one for one in end.failed if one.tier != "recipe"]
    for at, numbers in enumerate(given):
        found |= {number: _Verdict("invalid") for number in numbers[:-1]}
        for number in numbers[-1:]:
            if at < len(failed):
                one = failed[at]
                what = f"{', '.join(one.gates) or 'no gate'} ({one.kind})"
                found[number] = _Verdict("failed", what, one.said)
            else:
                found[number] = _last(end)
    return found


def _last(end: End) -> _Verdict:
    """Of the attempt with which a run ended, which its history does not have."""
    failed = next((gate for gate in end.gates if gate.status == "failed"), None)
    if failed is None:
        return _Verdict(end.outcome, end.reason, end.said, end.code)
    return _Verdict("failed", f"{failed.name} ({failed.kind})", failed.detail, end.code)


def _judged(measured: _Measured, wrong: Wrong, verdict: _Verdict, *, with_proof: bool) -> WrongEnd:
    """Where the run said that the plan fixes it, the proof by other means."""
    passes = None
    if verdict.code == 0 and with_proof:
        place = measured.folder / f"independent-{wrong.kind}"
        passes = independent.passes(measured.case, measured.checkout, wrong.edits, place)
    return WrongEnd(
        kind=wrong.kind,
        with_proof=with_proof,
        outcome=verdict.outcome,
        code=verdict.code,
        stopped_by=verdict.stopped_by,
        said=verdict.said,
        proof_passes=passes,
    )


def _never(wrong: Wrong, with_proof: bool, end: End) -> WrongEnd:
    message = f"{end.outcome} {end.reason}".strip()
    return WrongEnd(
        kind=wrong.kind,
        with_proof=with_proof,
        outcome="never asked",
        stopped_by=message,
        said=end.said,
    )


def _result(
    measured: _Measured,
    options: Options,
    perfect: Ran | None,
    plain: Ran | None,
    wrong: tuple[WrongEnd, ...],
    seconds: float,
) -> Result:
    case = measured.case
    kept = _plan(measured)
    first, retries = _shown(measured)
    first_prompt = next(_first_prompts(measured), None)
    return Result(
        label=options.label,
        name=case.name,
        case_sha256=case.digest,
        ecosystem=case.ecosystem,
        installs_by=case.installs_by,
        half=case.half,
        record=case.record,
        repo=case.repo,
        plan=kept,
        absent=measured.checkout.absent[:_MAX_ABSENT],
        perfect=None if perfect is None else _short(perfect.end),
        plain=None if plain is None else _short(plain.end),
        stopped=results.as_stopped(kept) if perfect is None else stopped(perfect.end),
        tests=results.suite_ran([ran.end for ran in (*measured.with_proof, *measured.plain)]),
        proof=results.proof_ran([ran.end for ran in measured.with_proof]),
        first=first,
        first_bytes=None if first_prompt is None else len(first_prompt.encode()),
        retries=retries,
        wrong=wrong,
        wrong_skipped=options.skip_wrong,
        seconds=round(seconds, 1),
        made=datetime.now(UTC).date().isoformat(),
        tool=version_of(options.script),
        tools={name: message for name, message in tools().items() if name != "fallback-tier"},
    )


def _short(end: End) -> End:
    """As a row keeps it: what was judged before the last attempt is in its figures."""
    return end.model_copy(update={"judged": ()})


def _plan(measured: _Measured) -> Plan:
    fix = measured.fix
    return Plan(
        edits=len(fix.edits),
        bytes=len(plan(measured.record.id, fix.edits).encode()) if fix.edits else 0,
        files=tuple(file.path for file in fix.files),
        left_out=fix.left_out,
        unsayable=fix.unsayable or "",
        exact=fix.exact,
    )


def _first_prompts(measured: _Measured) -> Iterator[str]:
    """Of the runs that asked a model."""
    runs = (*measured.with_proof, *measured.plain)
    yield from (ran.prompts[0] for ran in runs if ran.prompts)


def _shown(measured: _Measured) -> tuple[Shown | None, tuple[Shown, ...]]:
    """What the first prompt of any run shows of the fix's place, and what each retry's does."""
    hunks = site(measured.fix.files)
    runs = [ran.prompts for ran in (*measured.with_proof, *measured.plain) if ran.prompts]
    if not hunks or not runs:
        return None, ()
    return (
        shown(runs[0][0], hunks),
        tuple(shown(prompt, hunks) for prompts in runs for prompt in prompts[1:]),
    )
