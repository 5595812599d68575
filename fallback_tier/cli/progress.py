"""A fix as it happens, for people: one line an event, a spinner for the step in hand."""

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.status import Status

from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    BudgetReached,
    ExampleReplayed,
    FixResumed,
    GateJudged,
    GroundingJudged,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    MoreCodeShown,
    PatchProposed,
    PlanRejected,
    RagSkippedOnRetry,
    RecipeCandidateFailed,
    RecipeEvaluated,
    RepeatedPatchRejected,
    RetrievalQueried,
    SandboxDisabled,
    SegmentScored,
    StrategyDegraded,
)
from fallback_audit.vocabulary import GateStatus, PromptShape, Provenance
from fallback_tier.attempt import DraftText, TierEvent
from fallback_tier.cli.remediation import line, safe
from fallback_tier.gates.steps import StepKey

#: The end of a draft that passes by beside the spinner: what fits on a line.
_SHOWN_DRAFT = 60

_GATE_STYLE = {
    GateStatus.PASSED: "[green]passed [/]",
    GateStatus.FAILED: "[red]failed [/]",
    GateStatus.SKIPPED: "[yellow]skipped[/]",
}


class _Display(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


class Shown:
    """Something on the terminal for as long as a ``with`` lasts, however that ends."""

    def __init__(self, display: _Display) -> None:
        self._display = display

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._display.stop()


class FixProgress(Shown):
    """An observer of the gate runner. Use as a context manager: the spinner ends with it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._draft = ""
        self._status = Status("starting", console=console)
        super().__init__(self._status)

    def __call__(self, event: TierEvent | StepKey) -> None:
        """Show one step or event; those that say nothing to a person are passed over."""
        if isinstance(event, StepKey):
            self._status.update(f"attempt {event.attempt}: {safe(event.name)} …")
            return
        if isinstance(event, DraftText):
            # A draft is never printed as if it stood: it passes by, and its verdict stays.
            self._draft = (self._draft + event.text)[-_SHOWN_DRAFT:]
            shown = safe(" ".join(self._draft.split()))
            self._status.update(f"attempt {event.attempt}: the model drafts … {shown}")
            return
        self._draft = ""
        if said := describe(event):
            self._console.print(said, highlight=False)

    def tell_of_proof(self, what: str) -> None:
        """Before a fix has any events, its proof may take its time."""
        self._console.print(f"  proof      {safe(what)}", highlight=False)

    def tell(self, what: str) -> None:
        """What takes its time for a reason that no event has."""
        self._console.print(f"  [dim]note[/]       {safe(what)}", highlight=False)


class OnTerminal:
    """A ``Watch``: on standard error, while it lasts."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet)

    def fixing(self) -> "FixProgress":
        """The attempts and gates of one fix."""
        return FixProgress(self._console)

    def planning(self) -> "PlanProgress":
        """The making of a plan."""
        return PlanProgress(self._console)

    def note(self, what: str, /) -> None:
        """A sentence before or between."""
        line(self._console, safe(what))


class PlanProgress(Shown):
    """What is being planned, and for how long. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        super().__init__(self._progress)
        self._task = self._progress.add_task("planning", total=None)

    def __call__(self, step: str) -> None:
        """Show the step in hand."""
        self._progress.update(self._task, description=safe(step))


def describe(event: TierEvent) -> str | None:
    """One line of markup for an event; None where the line would say nothing new."""
    match event:
        case AttemptStarted(attempt=number, prompt_shape=PromptShape.NONE):
            return f"[bold]attempt {number}[/]: its gates again, no tier asked"
        case AttemptStarted(attempt=number, prompt_shape=shape):
            how = f": {shape.label}" if shape is PromptShape.RETRY else ""
            return f"[bold]attempt {number}[/]{how}"
        case FixResumed(after=after):
            return f"[bold]resumed[/]  after {safe(after)}"
        case SandboxDisabled(reason=reason):
            return f"  [red]no sandbox[/]: {safe(reason)}"
        case RecipeEvaluated(selected=True, recipe=recipe, steps=steps):
            rungs = f": {', '.join(step.label for step in steps)}" if steps else ""
            return f"  recipe     {safe(recipe or '')}{rungs}"
        case RecipeEvaluated(reason=reason):
            return f"  recipe     none: {safe(reason or '')}"
        case RetrievalQueried(verdict=verdict, reason=reason):
            return f"  examples   {verdict}: {safe(reason)}"
        case ExampleReplayed(example_id=example):
            return f"  examples   [cyan]replayed[/] {safe(example)} (same package, same code)"
        case RagSkippedOnRetry(attempt_count=count, last_failure_kind=kind):
            return (
                f"  examples   [cyan]RagSkippedOnRetry[/]: retrieval not touched; {count} prior "
                f"attempt(s), the last ended in {kind}; its summary stands in the prompt instead"
            )
        case ModelCalled(call=call, model=model, provenance=source, prompt_bytes=size):
            mark = "" if source is Provenance.LIVE else f" [magenta]({source})[/]"
            return f"  model      call {call} to {safe(model)}{mark}, prompt {size:,} bytes"
        case ModelAnswered(input_tokens=tokens_in, output_tokens=tokens_out):
            return f"  model      answered: {tokens_in:,} tokens in, {tokens_out:,} out"
        case ModelFailed(reason=reason):
            return f"  model      [red]no answer[/]: {safe(reason)}"
        case PlanRejected(problems=problems):
            return f"  plan       [yellow]invalid[/], asked again: {safe(' '.join(problems))}"
        case MoreCodeShown(files=files, byte_count=size):
            named = safe(", ".join(files))
            return f"  plan       declined for want of code, {size:,} bytes more shown: {named}"
        case RepeatedPatchRejected(repeats_attempt=number):
            return f"  plan       [yellow]repeats attempt {number}[/], asked again"
        case AnswerReused(call=call, call_type=kind):
            return (
                f"  model      {kind} call {call}: answered before the interruption, not paid twice"
            )
        case GroundingJudged(supported=True, faithfulness_score=score):
            return f"  grounding  [green]supported[/] ({score:.0%} of the claims)"
        case GroundingJudged(faithfulness_score=score, unsupported=claims):
            return f"  grounding  [yellow]{score:.0%} of the claims[/]: {safe(claims[0])}"
        case LowConfidenceFlagged(reason=reason):
            return f"  grounding  [yellow]LOW CONFIDENCE[/]: {safe(reason)}"
        case BudgetReached(limit=limit, cap=cap, used=used, wanted=wanted):
            return f"  budget     [yellow]{limit} reached[/]: {used} of {cap} used, {wanted} wanted"
        case SegmentScored(kept=True, candidate=candidate, score=score):
            shown = "unscored" if score is None else f"{score:.2f}"
            return (
                f"  self-rag   step {candidate.step}: kept candidate {candidate.number} ({shown})"
            )
        case StrategyDegraded(reason=reason):
            return f"  self-rag   [yellow]degraded[/]: {safe(reason)}"
        case PatchProposed(taken_from=str(maker), tier=tier, files=files):
            return f"  patch      as made in {safe(maker)}, by the {tier} tier: {safe(', '.join(files))}"
        case PatchProposed(tier=tier, files=files):
            return f"  patch      by the {tier} tier: {safe(', '.join(files))}"
        case GateJudged(gate=gate, status=status, detail=detail):
            first = (detail.splitlines() or [""])[0]
            return f"  gate       {_GATE_STYLE[status]} {safe(gate)}: {safe(first)}"
        case AttemptRefused(sentence=sentence):
            return f"  [yellow]no patch[/]   {safe(sentence)}"
        case RecipeCandidateFailed(failure_kind=kind):
            return f"  candidate failed ({kind}); the recipe has another"
        case AttemptFailed(failure_kind=kind):
            return f"  attempt failed ({kind}); distilled for the next context"
        case _:  # what ends a fix is told by the report
            return None
