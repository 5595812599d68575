"""External parts that the tier and the gates need, as protocols. Plugins implement them."""

import hashlib
import json
from collections.abc import Collection, Generator, Sequence
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import CallType, Provenance
from fallback_tier.advisory import Advisory
from fallback_tier.affected import OwnPackage
from fallback_tier.ecosystem_rules import EcosystemRules
from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import Gate, GateContext, TargetRun
from fallback_tier.inventory import Inventory
from fallback_tier.outcome import (
    Move,
    Outline,
    OwnTests,
    RecipeResult,
    RecipeSelection,
    Selected,
)
from fallback_tier.repo import Effort, RepoContext
from fallback_tier.retrieval import Retrieval

# --- Solved examples (RAG) ------------------------------------------------------------------------


class SolvedExampleRetriever(Protocol):
    """Memory of validated past fixes. Never used in a retry (ADR-0011)."""

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        """Query the memory. Never raises for "nothing found"; that is RagMiss.

        ``beyond``: example ids that were already returned; the answer has none of them (self-RAG).
        """
        ...


# --- The model ------------------------------------------------------------------------------------


class Message(Frozen):
    """One turn of a conversation. ``cache``: a later request begins with the same turns up to here."""

    role: Literal["user", "assistant"]
    content: str
    cache: bool = False


class ModelRequest(Frozen):
    """What a model is asked. ``system`` is the stable, cacheable part: byte-identical per ecosystem and
    form of the answer.

    ``answer_schema``: JSON schema (pydantic's) that a server may enforce; the answer is validated by us
    in any case. ``answer_grammar``: of an answer in blocks, which has no schema, a grammar (GBNF)
    for a server that can hold it to one. ``nonces`` are the random parts of the messages.
    """

    call_type: CallType
    system: str
    messages: tuple[Message, ...]
    max_output_tokens: Annotated[int, Field(ge=1)]
    answer_schema: dict[str, Any] | None = None
    answer_grammar: str | None = None
    nonces: tuple[str, ...] = ()
    effort: Effort | None = None

    @property
    def text(self) -> str:
        """Everything that the model is given to read."""
        return self.system + "".join(message.content for message in self.messages)

    def key(self, model: str) -> str:
        """Return the SHA-256 of the request to this model without its nonces: equal requests have equal
        keys."""
        text = json.dumps(
            [model, self.call_type, self.max_output_tokens, self.system]
            + [[message.role, message.content] for message in self.messages]
            + [self.effort] * (self.effort is not None)
        )
        for nonce in self.nonces:
            text = text.replace(nonce, "nonce")
        return hashlib.sha256(text.encode()).hexdigest()


#: Most tokens that one answer may be reported to have used: a thousand times the largest context. A server
#: that reports more, or less than none, counts something else, and no cap could rely on it.
MAX_REPORTED_TOKENS = 10**9

_Tokens = Annotated[int, Field(ge=0, le=MAX_REPORTED_TOKENS)]


class Usage(Frozen):
    """Tokens as the server reported them. Raises ValueError for what can't be."""

    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cache_read_tokens: _Tokens = 0
    cache_write_tokens: _Tokens = 0


class ModelAnswer(Frozen):
    """A model's words. ``mean_logprob`` per token, None where the server gives none (most don't)."""

    text: str
    usage: Usage
    stop_reason: str
    mean_logprob: float | None = None


class LanguageModel(Protocol):
    """One model behind one server. The tier interprets its text (ADR-0021)."""

    @property
    def model(self) -> str:
        """Name of the model, as recorded."""
        ...

    @property
    def provenance(self) -> Provenance:
        """Live, replayed or scripted: recorded with each call."""
        ...

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """Send one request: yield the text as it arrives, return the whole answer.

        Safe to call from several threads. Closing the generator abandons the request. Raises ModelError if
        no answer came.
        """
        ...

    def close(self) -> None:
        """Release connections, or the model's own server. Idempotent."""
        ...


class NonceSource(Protocol):
    """Source of 128-bit fence nonces, injectable so that recorded requests can be replayed."""

    def __call__(self) -> str:
        """Return 32 lower-case hex characters, new at each call."""
        ...


# --- Ecosystems -----------------------------------------------------------------------------------


@runtime_checkable
class OffersCandidates(Protocol):
    """A plugin whose recipe may have another candidate after gates refused one (ADR-0048)."""

    def next_candidate(
        self, refused: Selected, moves: Sequence[Move], advisory: Advisory, repo: RepoContext
    ) -> Selected | None:
        """Return what to select instead of what led to ``moves``: it was tried, and works. None if there is
        no other. Never raises for a client that can't resolve it."""
        ...


@runtime_checkable
class NamesTests(Protocol):
    """A plugin that knows how projects declare their test commands."""

    def test_commands(self, repo: RepoContext, files: Sequence[str]) -> tuple[OwnTests, ...]:
        """Return the commands that a fix of these files would try, project by project, in their order.
        Nothing runs; what can't be read is left out."""
        ...


@runtime_checkable
class ListsPackages(Protocol):
    """A plugin that lists what a repository's install commands install, for ``scan``."""

    def inventory(self, repo: RepoContext) -> Inventory:
        """Return all installed packages: of locks, or resolved by clients. Never raises for a project that
        can't be read or resolved: that is in ``unread``."""
        ...


class EcosystemFactory(Protocol):
    """The object that an entry point of ``fallback_tier.ecosystems`` names. The entry point itself has
    OSV's name of the ecosystem. docs/ecosystem.md shows how to write one."""

    @property
    def rules(self) -> EcosystemRules:
        """The ecosystem's rules, which every command that reads an advisory needs: they import little."""
        ...

    def __call__(self, clients: ClientRunner) -> "EcosystemPlugin":
        """Return the plugin. ``clients`` runs its clients."""
        ...


class GateFactory(Protocol):
    """The object that an entry point of ``fallback_tier.gates`` names: gates for every ecosystem."""

    def __call__(self, plugin: "EcosystemPlugin") -> "Sequence[Gate]":
        """Return them in order; they come after the ecosystem's own. Empty if none concerns it."""
        ...


class EcosystemPlugin(Protocol):
    """The hooks of a fix in one ecosystem: its recipes, its gates, its way to run a command.

    A hook may raise a FallbackError if its docstring names it. Any other exception becomes a PluginError,
    which names the plugin and the hook.
    """

    @property
    def name(self) -> str:
        """OSV's name of the ecosystem, which is the entry point's name, too."""
        ...

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        """Return those of the tracked files that declare or lock dependencies."""
        ...

    def own_packages(self, repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
        """Return those of ``names`` (canonical) that this repository is, or may be, the source of.

        Its manifests are parsed, no client runs. Never raises for a manifest that can't be read.
        """
        ...

    def source_links(self, package: str) -> tuple[str, ...]:
        """Return the registry's links to a package's source and pages; empty if it doesn't answer."""
        ...

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        """Choose the deterministic fix, or say in one sentence why there is none."""
        ...

    def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
        """Return what the files alone show about a fix: nothing is resolved, no client runs. For a bundle
        of any size; never raises for a manifest that can't be read (that is in ``left``)."""
        ...

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        """Run the ladder, in memory: the repository is not written.

        One advisory: wholly cleared, or RecipeError. A bundle: what can be cleared, the rest in ``left``;
        RecipeError if nothing can. Raises RecipeError, RepositoryError, ToolError.
        """
        ...

    def bump(self, package: str, version: str) -> Selected:
        """Return the selection that raises ``package`` to ``version``, for a model's bump."""
        ...

    def override(self, package: str, version: str) -> Selected:
        """Return the selection that forces the transitive ``package`` to ``version`` (scoped override or
        constraint), whatever the cheaper steps could do, for a model's override."""
        ...

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        """Return the manifest keys that a plan may change in ``path`` (dotted); None: not a manifest."""
        ...

    def gates(self) -> Sequence[Gate]:
        """Return this ecosystem's gates, cheapest first."""
        ...

    def run(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],
        timeout_s: float | None = None,
    ) -> TargetRun:
        """Run a command in the root of ``tree`` (patched, or the base commit's), in the sandbox, with what
        the tree's own manifests declare installed and first on the path.

        ``timeout_s``: wall clock of the command alone; None: the context's. Paths in the output are
        relative to the root. Raises SandboxError, ToolError.
        """
        ...

    def runs_on(self, context: GateContext, tree: RepoContext, argv: Sequence[str]) -> str:
        """Return what ``run`` runs ``argv`` on in ``tree``: interpreters, and what is installed, to the
        byte. Equal if both are the same. Raises as ``run`` does."""
        ...

    def run_on_another(
        self, context: GateContext, tree: RepoContext, argv: Sequence[str], number: int
    ) -> bool:
        """Run all further commands of this fix, ``argv`` first, on the ``number``-th interpreter that the
        project may run with (0: as before any was chosen). Return False, and change nothing, if there are
        not so many. Raises as ``run`` does."""
        ...

    def tests_ran(self, output: str) -> int | None:
        """Return how many tests ran, passed or failed, by what the runners print; None if unknown."""
        ...

    def instruction_template(self) -> str:
        """Return the jinja2 text of skills/leaf-llm-instruction.md."""
        ...

    def mentions(self, package: str, path: str, text: str) -> bool:
        """Return whether this source file uses the package (import, require)."""
        ...
