"""What the tier and the gates need from outside, as protocols. Plugins implement them."""

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
    """Finds validated past fixes. Never touched on a retry (ADR-0011)."""

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        """Ask the memory. Never raises for "nothing found"; that is RagMiss.

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
        """SHA-256 of the request to this model without its nonces: two that ask the same are equal."""
        text = json.dumps(
            [model, self.call_type, self.max_output_tokens, self.system]
            + [[message.role, message.content] for message in self.messages]
            + [self.effort] * (self.effort is not None)
        )
        for nonce in self.nonces:
            text = text.replace(nonce, "nonce")
        return hashlib.sha256(text.encode()).hexdigest()


#: Tokens that one answer may be said to have used: a thousand times the largest context. A server that
#: says more, or less than none, counts something else, and no cap could rely on it.
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
    """Asks one model behind one server. What the words mean is the tier's business (ADR-0021)."""

    @property
    def model(self) -> str:
        """Name of the model, as recorded."""
        ...

    @property
    def provenance(self) -> Provenance:
        """Live, replayed or scripted: recorded with each call."""
        ...

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """One request: yields the text as it arrives, returns the whole answer.

        Safe to call from several threads. Closing the generator abandons the request. Raises
        ModelError where no answer came.
        """
        ...

    def close(self) -> None:
        """Release connections, or a server of its own. Idempotent."""
        ...


class NonceSource(Protocol):
    """128-bit fence nonces, injectable so that recorded requests can be replayed."""

    def __call__(self) -> str:
        """32 lower-case hex characters, fresh at each call."""
        ...


# --- Ecosystems -----------------------------------------------------------------------------------


@runtime_checkable
class OffersCandidates(Protocol):
    """A plugin whose recipe may have another candidate where gates refused one (ADR-0048)."""

    def next_candidate(
        self, refused: Selected, moves: Sequence[Move], advisory: Advisory, repo: RepoContext
    ) -> Selected | None:
        """Return what to select instead of what led to ``moves``: it was tried, and works. None: there is
        no other. Never raises for a client that can't resolve it."""
        ...


@runtime_checkable
class NamesTests(Protocol):
    """A plugin that knows how projects say that they are tested."""

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
    """What an entry point of ``fallback_tier.ecosystems`` names. The entry point itself is called as OSV
    calls the ecosystem. docs/ecosystem.md shows how one is written."""

    @property
    def rules(self) -> EcosystemRules:
        """Asked for without a client, by every command that reads an advisory: imports little."""
        ...

    def __call__(self, clients: ClientRunner) -> "EcosystemPlugin":
        """The plugin, on top of what runs its clients."""
        ...


class GateFactory(Protocol):
    """What an entry point of ``fallback_tier.gates`` names: gates for every fix, whatever its ecosystem."""

    def __call__(self, plugin: "EcosystemPlugin") -> "Sequence[Gate]":
        """Return them in order; they come after the ecosystem's own. Empty if none concerns it."""
        ...


class EcosystemPlugin(Protocol):
    """What a fix does in one ecosystem: its recipes, its gates, its way to run a command.

    Each hook may raise an error of the one tree where its text says so. Any other exception becomes a
    PluginError, which names the plugin and the hook.
    """

    @property
    def name(self) -> str:
        """OSV's name of the ecosystem, as the entry point is called."""
        ...

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        """Those of the tracked files that declare or lock dependencies."""
        ...

    def own_packages(self, repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
        """Those of ``names`` (canonical) that this repository is, or may be, the source of.

        Its manifests are parsed, no client runs. Never raises for a manifest that can't be read.
        """
        ...

    def source_links(self, package: str) -> tuple[str, ...]:
        """Where the registry says that a package's source and pages are; empty where it doesn't answer."""
        ...

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        """Choose the deterministic fix, or say in one sentence why there is none."""
        ...

    def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
        """What the files alone tell about a fix: nothing is resolved, no client runs. For a bundle of
        any size; never raises for a manifest that can't be read (that is in ``left``)."""
        ...

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        """Run the ladder, in memory: the repository is not written.

        One advisory: wholly cleared, or RecipeError. A bundle: what can be cleared, the rest in
        ``left``; RecipeError where nothing can. Raises RecipeError, RepositoryError, ToolError.
        """
        ...

    def bump(self, package: str, version: str) -> Selected:
        """The selection that raises ``package`` to ``version``: what a model's bump becomes."""
        ...

    def override(self, package: str, version: str) -> Selected:
        """The selection that forces the transitive ``package`` to ``version`` (scoped override or
        constraint), whatever the cheaper steps could do: what a model's override becomes."""
        ...

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        """Manifest keys a plan may change in ``path`` (dotted); None: not a manifest."""
        ...

    def gates(self) -> Sequence[Gate]:
        """This ecosystem's gates, cheapest first."""
        ...

    def run(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],
        timeout_s: float | None = None,
    ) -> TargetRun:
        """Run a command in the root of ``tree`` (patched, or the base commit's), in the sandbox, with
        what the tree's own manifests declare installed and first on the path.

        ``timeout_s``: wall clock of the command alone, the context's where None. Paths in the output
        are relative to the root. Raises SandboxError, ToolError.
        """
        ...

    def runs_on(self, context: GateContext, tree: RepoContext, argv: Sequence[str]) -> str:
        """What ``run`` runs ``argv`` on in ``tree``: interpreters, and what is installed, to the byte.
        Equal where both are the same. Raises as ``run`` does."""
        ...

    def run_on_another(
        self, context: GateContext, tree: RepoContext, argv: Sequence[str], number: int
    ) -> bool:
        """From now on all that this fix runs, ``argv`` first, is on the ``number``-th interpreter that the
        project may run with (0: as before any was chosen). False, and nothing is changed, where there are
        not so many. Raises as ``run`` does."""
        ...

    def tests_ran(self, output: str) -> int | None:
        """Tests that ran, passed or failed, by what this ecosystem's runners print; None: not told."""
        ...

    def instruction_template(self) -> str:
        """The jinja2 text of skills/leaf-llm-instruction.md."""
        ...

    def mentions(self, package: str, path: str, text: str) -> bool:
        """Does this source file use the package (import, require)?"""
        ...
