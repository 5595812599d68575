"""A real run: the whole product over vulnerable mini-projects, every transcript kept.

Each project becomes a repository of its own, and its fix goes as ``fallback-tier fix`` would have it:
one first attempt, at most three retries from a fresh context, the ecosystem's gates, the proof last.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fallback_audit.events import GateJudged, ModelAnswered, ModelCalled, PatchProposed
from fallback_audit.ports import EvidenceStore, StoredEvent
from fallback_audit.vocabulary import EscalationReason, Provenance
from fallback_eval.fixes.projects import MiniProject
from fallback_eval.fixes.runs import FixFolder, FixRun, events_of, facts_of, pack
from fallback_eval.retrieval.results import EvaluationError
from fallback_tier.errors import ConfigurationError
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import fix_parts
from fallback_tier.fix_result import Escalated, FixResult
from fallback_tier.gates.builtin.proof import ProofGate, check_proof
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest, NonceSource
from fallback_tier.prompt.redact import redact_secrets
from fallback_tier.wiring import Configuration, Services, open_services
from fallback_tier.wiring.models import build_author

#: Told what is being done, how many are done, and of how many.
Progress = Callable[[str, int, int], None]

#: Ends of a fix that say something of this machine, and nothing of the model.
_OUTAGES = frozenset({EscalationReason.MODEL_UNAVAILABLE, EscalationReason.GATE_INFRASTRUCTURE})


@dataclass(frozen=True)
class FixOptions:
    """``seed`` decides the fences' nonces, and names the run; ``setup``: what serves the model."""

    seed: int = 1
    setup: str = ""
    #: Run also what there is a row of.
    rerun: bool = False


def run_fixes(
    projects: Sequence[MiniProject],
    folder: FixFolder,
    configuration: Configuration,
    options: FixOptions,
    progress: Progress,
    *,
    author_of: Callable[[MiniProject], LanguageModel] | None = None,
) -> None:
    """Every project that has no row yet; each is kept as soon as it ends.

    ``author_of`` stands in for the configured model (tests). Raises ConfigurationError without a model,
    EvaluationError where model or gates could not be reached (that is no result: run it again), and
    SandboxError, ProofError, ToolError.
    """
    done = set() if options.rerun else {run.key for run in folder.runs()}
    wanted = [project for project in projects if (project.name, options.seed) not in done]
    with ExitStack() as stack:
        choose = author_of or _always(stack.enter_context(closing(_configured(configuration))))
        for number, project in enumerate(wanted):
            progress(project.name, number, len(wanted))
            folder.add(*_run(project, configuration, options, choose(project)))
        progress("done", len(wanted), len(wanted))


class Listening:
    """Implements LanguageModel over another one, and remembers what it was asked."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.requests: dict[str, ModelRequest] = {}

    @property
    def model(self) -> str:
        """As the other's."""
        return self._model.model

    @property
    def provenance(self) -> Provenance:
        """As the other's."""
        return self._model.provenance

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """Pass on. Two requests with one key differ in their nonces only."""
        self.requests[request.key(self.model)] = request
        return (yield from self._model.ask(request))

    def close(self) -> None:
        """The other one is its owner's to close."""


def nonces_of(project: str, seed: int) -> NonceSource:
    """The fences' nonces of one run: a transcript can be made again, prompts and all."""
    count = 0

    def nonce() -> str:
        nonlocal count
        count += 1
        return hashlib.sha256(f"{project} {seed} {count}".encode()).hexdigest()[:32]

    return nonce


def _always(model: LanguageModel) -> Callable[[MiniProject], LanguageModel]:
    return lambda _project: model


def _configured(configuration: Configuration) -> LanguageModel:
    model = build_author(configuration)
    if model is None:
        raise ConfigurationError(
            "No model is configured to run the projects with.",
            next_step="Name one with --model (and --base-url); --check and --again run nothing.",
            kind="no_model",
        )
    return model


def _run(
    project: MiniProject, configuration: Configuration, options: FixOptions, author: LanguageModel
) -> tuple[FixRun, bytes]:
    listening = Listening(author)
    with TemporaryDirectory(prefix="fallback-tier-fixes-", ignore_cleanup_errors=True) as name:
        root = Path(name).resolve()
        own = configuration.model_copy(update={"state_dir": root / "state"})
        nonces = nonces_of(project.name, options.seed)
        with open_services(own, nonces=nonces, author=listening) as services:
            result = _fix(project, services, root / project.name)
            events = tuple(services.audit.events(result.fix_id))
            reported = _transcript(events, services.evidence, listening.requests)
    if isinstance(result, Escalated) and result.reason in _OUTAGES:
        raise EvaluationError(
            f"{project.name} could not be run to its end: {result.question}",
            next_step="Repair this and run it again: what is done already is not done twice.",
        )
    reported = _without(str(root), {"project": project.name, "seed": options.seed, **reported})
    transcript = pack(reported)
    run = FixRun(
        project=project.name,
        weakness=project.weakness,
        cwe=project.cwe,
        ecosystem=project.advisory.ecosystems[0],
        seed=options.seed,
        date=datetime.now(UTC).date().isoformat(),
        model=listening.model,
        provenance=listening.provenance,
        setup=options.setup,
        answer_form=configuration.settings.answer_form,
        tool_version=version("fallback-tier"),
        facts=facts_of(events_of(reported)),
        transcript_sha256=hashlib.sha256(transcript).hexdigest(),
    )
    return run, transcript


def _fix(project: MiniProject, services: Services, place: Path) -> FixResult:
    """The product's own way, with the proof as one more gate."""
    project.commit_to(place, services.clients)
    inputs = services.inputs(project.advisory, place)
    parts = fix_parts(services, inputs.advisory, lambda _event: None, repo=inputs.repo_ctx)
    gate = ProofGate(project.proof, services.plugin_for(inputs.advisory))
    check_proof(
        gate,
        inputs.advisory,
        inputs.repo_ctx,
        clients=services.clients,
        sandbox=parts.sandbox,
        workspace=parts.workspace,
    )
    parts = replace(parts, gates=(*parts.gates, gate))
    return run_fix(parts, inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)


def _transcript(
    events: Sequence[StoredEvent], evidence: EvidenceStore, requests: Mapping[str, ModelRequest]
) -> dict[str, object]:
    """Events, and prompts, answers, patches and logs in the order in which they came.

    A text stands there once, redacted; excerpts in events are redacted when they are recorded.
    """
    texts: dict[str, str] = {}
    steps = [step for stored in events for step in _steps(stored, evidence, requests, texts)]
    return {
        "events": [
            {"kind": stored.kind, **stored.payload.model_dump(mode="json", exclude_defaults=True)}
            for stored in events
        ],
        "steps": steps,
        "texts": {name: redact_secrets(text)[0] for name, text in texts.items()},
    }


def _steps(
    stored: StoredEvent,
    evidence: EvidenceStore,
    requests: Mapping[str, ModelRequest],
    texts: dict[str, str],
) -> Iterator[dict[str, object]]:
    def keep(text: str) -> str:
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        texts[digest] = text
        return digest

    def kept(digest: str) -> str:
        return keep(evidence.get(digest).decode("utf-8", "replace"))

    match stored.payload:
        case ModelCalled(attempt=attempt, request_key=str(key)) if key in requests:
            turns = [(turn.role, keep(turn.content)) for turn in requests[key].messages]
            system = keep(requests[key].system)
            yield {"attempt": attempt, "prompt": {"system": system, "messages": turns}}
        case ModelAnswered(attempt=attempt, answer_evidence=str(digest)):
            yield {"attempt": attempt, "answer": kept(digest)}
        case PatchProposed(attempt=attempt, patch_sha256=digest):
            yield {"attempt": attempt, "patch": kept(digest)}
        case GateJudged(attempt=attempt, gate=gate, evidence_sha256=str(digest)):
            yield {"attempt": attempt, "gate": gate, "log": kept(digest)}
        case _:
            return


def _without(place: str, reported: Any) -> Any:
    """The same, without where this machine keeps its temporary files."""
    match reported:
        case str():
            return reported.replace(place, "...")
        case dict():
            return {key: _without(place, value) for key, value in reported.items()}
        case list() | tuple():
            return [_without(place, value) for value in reported]
        case _:
            return reported
