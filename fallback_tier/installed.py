"""What is installed here, the clients and the ecosystem plugins, and the repository that they look at.

All that a plan needs: no store is opened, and nothing is written.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Concatenate, ParamSpec, TypeVar

from fallback_tier.configured import SettingsFile, of_base, read_base
from fallback_tier.ecosystem_rules import ECOSYSTEMS_GROUP
from fallback_tier.entry_points import Mounted, guarded, mounted, overlaid
from fallback_tier.errors import PluginError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict, TargetRun
from fallback_tier.gates.trees.isolation import (
    RepositoryFacts,
    contained_tags,
    filters_of,
    inspect_repository,
)
from fallback_tier.inventory import Inventory
from fallback_tier.outcome import NotApplicable, Outline, RecipeResult, Selected
from fallback_tier.ports import EcosystemPlugin, ListsPackages, NamesTests, OffersCandidates
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.sandbox.clients import SubprocessClients

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Entry points that each name a GateFactory.
GATES_GROUP = "fallback_tier.gates"

#: Random bytes of an identifier (64 bit).
ID_BYTES = 8

#: Changed files that an error names: enough to recognise one's own work.
MAX_DIRTY_NAMED = 5


def clients_and_plugins(
    allow_hosts: Sequence[str] = (),
) -> tuple[ClientRunner, Mapping[str, EcosystemPlugin]]:
    """The reference clients, which may ask ``allow_hosts`` too, and every installed plugin over them."""
    clients = SubprocessClients(allow_hosts=allow_hosts)
    return clients, InstalledPlugins(clients)


def new_id(kind: str) -> str:
    """An identifier that nobody has used."""
    return f"{kind}-{secrets.token_hex(ID_BYTES)}"


def look_at(repository: Path, clients: ClientRunner, settings: Settings) -> RepoContext:
    """A repository at its clean base commit; no plugin was asked for its manifests yet. What ``settings``
    leave open of its tests is as the base commit's configuration says.

    Raises RepositoryError: not a git repository, dirty, no commit; ConfigurationError.
    """
    return _configured(_clean(inspect_repository(repository, clients), clients), clients, settings)


def look_at_working_tree(
    repository: Path, clients: ClientRunner, settings: Settings
) -> tuple[RepoContext, tuple[str, ...]]:
    """As ``look_at``, with tracked files as they are in the working tree, and the names of those that
    differ from the base commit. For what only looks: a fix starts from a commit. Settings are the commit's
    all the same. Raises as ``look_at``, but for changes."""
    facts = inspect_repository(repository, clients)
    changed = frozenset(facts.dirty)
    on_disk = {shown: odd.real for shown, odd in facts.odd_names.items()}
    there = tuple(
        name
        for name in facts.tracked_files
        if name not in changed or os.path.lexists(facts.root / on_disk.get(name, name))
    )
    facts = facts.model_copy(update={"tracked_files": there})
    return _configured(facts, clients, settings), facts.dirty


def _clean(facts: RepositoryFacts, clients: ClientRunner) -> RepositoryFacts:
    """Return them. Raises RepositoryError: there are uncommitted changes."""
    if named := facts.dirty[:MAX_DIRTY_NAMED]:
        next_step = "Commit or stash them: a fix starts from a commit and is put on top of it."
        if filters := filters_of(named, facts.root, clients):
            name = min(filters)
            next_step += (
                f" If `git status` shows none: their filter {name!r} counts only from your own git "
                f"configuration, not from the repository's (`git lfs install`, or `git config --global "
                f"filter.{name}.clean …`)."
            )
        if facts.hidden:
            next_step += (
                " `git status` shows them after `git update-index --no-assume-unchanged"
                " --no-skip-worktree FILE`."
            )
        raise RepositoryError(
            f"{facts.root} has uncommitted changes: {', '.join(named)}.",
            next_step=next_step,
            kind="dirty",
        )
    return facts


def _configured(facts: RepositoryFacts, clients: ClientRunner, settings: Settings) -> RepoContext:
    repo = as_found(facts, settings)
    if not settings.has_own_file:
        own = of_base(repo, clients)
        repo = repo.model_copy(update={"settings": own.completing(settings)})
    repo.check_paths()
    return repo


def is_tracked(repository: Path, path: str) -> bool:
    """Return whether git tracks this file of a clean checkout. Raises RepositoryError."""
    return path in inspect_repository(repository, SubprocessClients()).tracked_files


def committed_settings(repository: Path) -> SettingsFile | None:
    """Return what the current commit of a repository says of settings, whatever its working tree has; None:
    nothing. Raises RepositoryError, ConfigurationError."""
    clients = SubprocessClients()
    return read_base(as_found(inspect_repository(repository, clients), Settings()), clients)


def tags_of(repo: RepoContext, clients: ClientRunner) -> Callable[[], tuple[str, ...]]:
    """Asks git for the tags that the base commit contains, when it is called."""
    return lambda: contained_tags(repo.root, repo.base_commit, clients)


def as_found(facts: RepositoryFacts, settings: Settings) -> RepoContext:
    """A repository at its base commit, whatever its working tree has on top of it."""
    return RepoContext(
        root=facts.root,
        base_commit=facts.base_commit,
        tracked_files=facts.tracked_files,
        tracked_files_cut=facts.tracked_files_cut,
        odd_names=facts.odd_names,
        laid_out_with_crlf=facts.laid_out_with_crlf,
        manifests=(),
        fix_id=new_id("fix"),
        gate_transition_id=new_id("gate"),
        settings=settings,
    )


class InstalledPlugins(Mapping[str, EcosystemPlugin]):
    """Every installed ecosystem plugin, by its OSV name (ADR-0004), loaded when it is asked for.

    What a plugin raises of its own is a PluginError in its name (ADR-0066).
    """

    def __init__(self, clients: ClientRunner) -> None:
        self._clients = clients
        self._found = mounted(ECOSYSTEMS_GROUP)
        self._loaded: dict[str, EcosystemPlugin] = {}

    def __getitem__(self, ecosystem: str) -> EcosystemPlugin:
        if ecosystem not in self._loaded:
            self._loaded[ecosystem] = _guarded_plugin(self._found[ecosystem], self._clients)
        return self._loaded[ecosystem]

    def __contains__(self, ecosystem: object) -> bool:
        return ecosystem in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def installed_gates(plugin: EcosystemPlugin) -> tuple[Gate, ...]:
    """The gates of other distributions for a fix in this ecosystem, by the names of their entry points.

    Raises PluginError.
    """
    gates: list[Gate] = []
    for _, owner in sorted(mounted(GATES_GROUP).items()):
        built = owner.call("building its gates", owner.load(), plugin)
        gates += [_GuardedGate(gate, owner) for gate in built]
    return tuple(gates)


#: What core goes on with: anything else would be noticed far from the plugin that gave it.
_GIVES: Mapping[str, tuple[type, ...]] = {
    "manifests": (tuple,),
    "own_packages": (tuple,),
    "select": (Selected, NotApplicable),
    "outline": (Outline,),
    "apply": (RecipeResult,),
    "next_candidate": (Selected, NoneType),
    "bump": (Selected,),
    "override": (Selected,),
    "run": (TargetRun,),
    "test_commands": (tuple,),
    "inventory": (Inventory,),
    "instruction_template": (str,),
}


def _guarded_plugin(owner: Mounted, clients: ClientRunner) -> EcosystemPlugin:
    plugin = owner.call("building the plugin", owner.load(), clients)
    offers: list[str] = ["next_candidate"] if isinstance(plugin, OffersCandidates) else []
    offers += ["test_commands"] if isinstance(plugin, NamesTests) else []
    offers += ["inventory"] if isinstance(plugin, ListsPackages) else []
    built: EcosystemPlugin = guarded(plugin, owner, EcosystemPlugin, optional=offers, gives=_GIVES)
    if built.name != owner.name:
        raise owner.failed("name", f"it calls itself {built.name!r}")
    gates, run, runs_on = built.gates, built.run, built.runs_on
    complete: EcosystemPlugin = overlaid(
        built,
        gates=lambda: [_GuardedGate(gate, owner) for gate in gates()],
        run=_blameless(run),
        runs_on=_blameless(runs_on),
    )
    return complete


def _blameless(
    call: Callable[Concatenate[GateContext, _P], _T],
) -> Callable[Concatenate[GateContext, _P], _T]:
    """What ``context.report`` raises is of who watches: it is raised as it is, and no plugin is blamed."""

    def watched(context: GateContext, /, *args: _P.args, **named: _P.kwargs) -> _T:
        raised: list[Exception] = []

        def report(sentence: str) -> None:
            try:
                context.report(sentence)
            except Exception as error:
                raised.append(error)
                raise

        try:
            return call(replace(context, report=report), *args, **named)
        except PluginError as error:
            if raised and error.__cause__ is raised[0]:
                raise raised[0] from None
            raise

    return watched


@dataclass(frozen=True)
class _GuardedGate:
    """A plugin's gate, whose exceptions name the plugin."""

    _gate: Gate
    _owner: Mounted

    @property
    def name(self) -> str:
        """As the plugin calls it."""
        return self._owner.call("name", lambda: self._gate.name)

    def judge(self, context: GateContext) -> GateVerdict:
        """As ``Gate.judge``. Raises PluginError where it gives no verdict."""
        hook = f"gate {self.name!r}"
        judge = _blameless(lambda own: self._owner.call(hook, self._gate.judge, own))
        verdict: object = judge(context)
        if not isinstance(verdict, GateVerdict):
            raise self._owner.failed(hook, f"it returned {type(verdict).__name__}, no verdict")
        return verdict
