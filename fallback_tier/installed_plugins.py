"""The ecosystem plugins and gates that are installed here, and the clients that they run (ADR-0004).

A plugin's own exception becomes a PluginError that names the plugin (ADR-0066).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Concatenate, ParamSpec, TypeVar

from fallback_tier.ecosystem_rules import ECOSYSTEMS_GROUP
from fallback_tier.entry_points import Mounted, guarded, mounted, overlaid
from fallback_tier.errors import PluginError
from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict, TargetRun
from fallback_tier.inventory import Inventory
from fallback_tier.outcome import NotApplicable, Outline, RecipeResult, Selected
from fallback_tier.ports import EcosystemPlugin, ListsPackages, NamesTests, OffersCandidates
from fallback_tier.sandbox.clients import SubprocessClients

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Entry points that each name a GateFactory.
GATES_GROUP = "fallback_tier.gates"


def clients_and_plugins(
    allow_hosts: Sequence[str] = (),
) -> tuple[ClientRunner, Mapping[str, EcosystemPlugin]]:
    """Return the reference clients, which may contact ``allow_hosts``, too, and all installed plugins."""
    clients = SubprocessClients(allow_hosts=allow_hosts)
    return clients, InstalledPlugins(clients)


class InstalledPlugins(Mapping[str, EcosystemPlugin]):
    """Every installed ecosystem plugin, by its OSV name (ADR-0004), loaded when it is first needed.

    A plugin's own exception becomes a PluginError that names the plugin (ADR-0066).
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
    """Return the gates of other distributions for a fix in this ecosystem, by the names of their entry
    points.

    Raises PluginError.
    """
    gates: list[Gate] = []
    for _, owner in sorted(mounted(GATES_GROUP).items()):
        built = owner.call("building its gates", owner.load(), plugin)
        gates += [_GuardedGate(gate, owner) for gate in built]
    return tuple(gates)


#: Return types that core needs: another one would be noticed far from the plugin that returned it.
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
    """Wrap a hook so that an exception of ``context.report`` is raised as it is: it is the observer's, and
    no plugin is blamed."""

    def watched(context: GateContext, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        raised: list[Exception] = []

        def report(sentence: str) -> None:
            try:
                context.report(sentence)
            except Exception as error:
                raised.append(error)
                raise

        try:
            return call(replace(context, report=report), *args, **kwargs)
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
        """The plugin's own name for it."""
        return self._owner.call("name", lambda: self._gate.name)

    def judge(self, context: GateContext) -> GateVerdict:
        """Judge as ``Gate.judge``. Raises PluginError if the gate returns no verdict."""
        hook = f"gate {self.name!r}"
        judge = _blameless(
            lambda gate_context: self._owner.call(hook, self._gate.judge, gate_context)
        )
        verdict: object = judge(context)
        if not isinstance(verdict, GateVerdict):
            raise self._owner.failed(hook, f"it returned {type(verdict).__name__}, no verdict")
        return verdict
