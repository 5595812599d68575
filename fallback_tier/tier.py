"""The story of one attempt.

A first attempt goes down the chain, and each tier may end it (ADR-0005)::

    1. history   the prior attempts must be in order and distilled
    2. cap       a fourth retry is refused before anything is spent (ADR-0014)
    3. start     the attempt counts from here, however it ends
    4. recipe    a deterministic fix that the plugin has selected: apply it, ask no model
    5. RAG       an example of the same package and the same code: replay it, ask no model
    6. LLM       a plan from a closed union, checked, turned into changes by us
    7. seal      the diff becomes evidence, its digest an event

A retry starts from a fresh context (ADR-0011): in place of 4 and 5 it records that retrieval was
skipped, durably, and the prompt of 6 carries the last failure's summary where the examples stood.

What the caller must do: ask the plugin for its recipe (``planning.ask_recipe``), pass the prior attempts of
this gate transition, prove the patch with gates before believing it (``fallback_tier.gates``), and distil a
failure before asking again.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fallback_audit.events import ConsumerLeft
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_tier.advisory import Advisory
from fallback_tier.attempt import chain, rag
from fallback_tier.attempt.task import (
    AttemptTask,
    Finished,
    Proposal,
    Recorder,
    Refusal,
    TierEvent,
    check_history,
)
from fallback_tier.errors import ConfigurationError
from fallback_tier.outcome import AttemptSummary, NotApplicable, RecipeApplication, RecipeSelection
from fallback_tier.ports import EcosystemPlugin, SolvedExampleRetriever
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import FewShot

if TYPE_CHECKING:
    # A fix by recipe never pays for importing what asks a model.
    from fallback_tier.llm.leaf import LlmLeaf

__all__ = ["FallbackTier", "Finished", "TierEvent"]

RESUME_RULE = "The attempt counts; start the next one with the same prior attempts."


@dataclass(frozen=True)
class TierParts:
    """What the tiers of the chain work with. ``retriever`` None: no memory; ``leaf`` None: no model.

    ``is_resumed``: the fix is on record, so that a missing client raises and refuses nothing;
    ``needs_model``: so does a missing model.
    """

    retriever: SolvedExampleRetriever | None
    leaf: "LlmLeaf | None"
    audit: AuditStore
    evidence: EvidenceStore
    is_resumed: bool = False
    needs_model: bool = False

    def ask_model(
        self,
        task: AttemptTask,
        examples: Sequence[FewShot],
        declined: NotApplicable | None,
        record: Recorder,
    ) -> Generator[TierEvent, None, Proposal]:
        """The LLM tier, if one is configured. Raises Refusal without one, SettingMissingError if a fix on
        record needs one."""
        if self.leaf is None:
            raise chain.no_model(task, declined)
        return (yield from self.leaf.write(task, examples, record))


class FallbackTier:
    """Makes one patch per call, or says why not. Stateless between calls; safe to share."""

    def __init__(
        self,
        *,
        plugins: Mapping[str, EcosystemPlugin],
        retriever: SolvedExampleRetriever | None,
        leaf: "LlmLeaf | None",
        audit: AuditStore,
        evidence: EvidenceStore,
    ) -> None:
        self._plugins = plugins
        #: For an engine that takes the chain's steps by itself (ADR-0088).
        self.parts = TierParts(retriever, leaf, audit, evidence)

    def resumed(self, *, needs_model: bool) -> "FallbackTier":
        """Return the tier for a fix on record, in which what is missing raises SettingMissingError or
        ToolMissingError and refuses no attempt."""
        tier = copy(self)
        tier.parts = replace(self.parts, is_resumed=True, needs_model=needs_model)
        return tier

    def run(
        self,
        advisory: Advisory,
        repo_ctx: RepoContext,
        recipe_selection: RecipeSelection,
        *,
        prior_attempts: Sequence[AttemptSummary] = (),
    ) -> RecipeApplication:
        """One attempt: ``stream`` drained. The same result shape on a first attempt and on a retry.

        Raises AttemptHistoryError for a broken history, ConfigurationError for an ecosystem that no
        plugin serves, AuditStoreError where an event can't be made durable.
        """
        events = self.stream(advisory, repo_ctx, recipe_selection, prior_attempts=prior_attempts)
        with closing(events):
            for event in events:
                if isinstance(event, Finished):
                    return event.application
        raise AssertionError("a stream ends with Finished")

    def stream(
        self,
        advisory: Advisory,
        repo_ctx: RepoContext,
        recipe_selection: RecipeSelection,
        *,
        prior_attempts: Sequence[AttemptSummary] = (),
    ) -> Generator[TierEvent, None, None]:
        """The attempt as it happens; every event is durable before it is yielded.

        The last event is ``Finished``. A consumer that goes away before the outcome leaves
        ConsumerLeft behind. Raises as ``run`` does.
        """
        # 1. History.
        task = self.task(advisory, repo_ctx, recipe_selection, prior_attempts)
        record = Recorder(self.parts.audit, repo_ctx)
        try:
            application = yield from self._attempt(task, record)
        except Refusal as refusal:
            application = yield from chain.refuse(task, refusal, record)
        except (GeneratorExit, KeyboardInterrupt):
            if not record.has_outcome:
                record(ConsumerLeft(attempt=task.number, resume_rule=RESUME_RULE))
            raise
        yield Finished(application=application)

    def task(
        self,
        advisory: Advisory,
        repo_ctx: RepoContext,
        recipe_selection: RecipeSelection,
        prior_attempts: Sequence[AttemptSummary],
    ) -> AttemptTask:
        """Step 1. Raises AttemptHistoryError, ConfigurationError; then nothing is on record."""
        prior = check_history(prior_attempts)
        plugin = self.plugin_for(advisory)
        return AttemptTask(
            advisory,
            repo_ctx,
            recipe_selection,
            prior,
            plugin,
            is_resumed=self.parts.is_resumed,
            needs_model=self.parts.needs_model,
        )

    def _attempt(
        self, task: AttemptTask, record: Recorder
    ) -> Generator[TierEvent, None, RecipeApplication]:
        """Steps 2 to 7. Raises Refusal where a step ends the attempt without a patch."""
        parts = self.parts
        # 2. Cap.
        chain.check_cap(task)
        # 3. Start.
        yield record(chain.started(task))
        proposal: Proposal | None = None
        declined: NotApplicable | None = None
        examples: tuple[FewShot, ...] = ()
        if task.is_retry:
            # Fresh context: neither 4 nor 5; durable before the first model request.
            yield record(chain.rag_skipped(task))
        else:
            # 4. Recipe.
            proposal, declined = yield from chain.apply_recipe(task, record)
            if proposal is None:
                # 5. RAG.
                examples = yield from rag.retrieve(parts.retriever, task, parts.evidence, record)
                proposal = yield from rag.replay(examples, task, record)
        if proposal is None:
            # 6. LLM.
            proposal = yield from parts.ask_model(task, examples, declined, record)
        # 7. Seal.
        return (yield from chain.seal(proposal, task, parts.evidence, record))

    def plugin_for(self, advisory: Advisory) -> EcosystemPlugin:
        """The plugin for the advisory's ecosystem. Raises ConfigurationError where none serves it."""
        for ecosystem in advisory.ecosystems:
            if ecosystem in self._plugins:
                return self._plugins[ecosystem]
        raise ConfigurationError(
            f"Advisory {advisory.id} is about {', '.join(advisory.ecosystems) or 'no ecosystem'}; "
            f"this tier supports {', '.join(sorted(self._plugins)) or 'none'}.",
            next_step="Install a plugin for that ecosystem, or pass an advisory for one of these.",
        )
