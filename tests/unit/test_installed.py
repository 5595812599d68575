"""What a plugin's run is asked afterwards is guarded as the run itself."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.entry_points import Mounted
from fallback_tier.errors import PluginError, ToolFailedError
from fallback_tier.gate_ports import GateContext, TargetRun
from fallback_tier.installed import _guarded_plugin
from tests.fakes.ecosystem import FakeEcosystem
from tests.unit.shared.gates.test_flaky import context


class GoneError(Exception):
    """Who watches has gone away."""


class Drifting(FakeEcosystem):
    def __init__(self, drifted: Callable[[GateContext], str]) -> None:
        super().__init__()
        self._drifted = drifted

    def run(self, context: GateContext, *_: Any, **__: Any) -> TargetRun:
        return TargetRun(None, drifted=lambda: self._drifted(context))


class Loaded(Mounted):
    def load(self) -> Any:
        return lambda clients: clients  # a test's plugin


def reporting(context: GateContext) -> str:
    context.report("installing the base commit")
    return ""


def out_of_order(_: GateContext) -> str:
    raise LookupError("no such package")


def unreached(_: GateContext) -> str:
    raise ToolFailedError("no registry answers", next_step="Try again.")


@pytest.mark.parametrize(
    ("drifted", "raised"),
    [(out_of_order, PluginError), (unreached, ToolFailedError), (reporting, GoneError)],
)
def test_what_a_run_is_asked_later_is_guarded(
    tmp_path: Path, drifted: Callable[[GateContext], str], raised: type[Exception]
) -> None:
    def watch(_: str) -> None:
        raise GoneError

    owner = Loaded(EntryPoint("PyPI", "a:b", "fallback_tier.ecosystems"))
    plugin: Any = Drifting(drifted)
    ran = _guarded_plugin(owner, plugin).run(
        replace(context(tmp_path), report=watch), context(tmp_path).repo, ["true"]
    )
    with pytest.raises(raised):
        ran.beside_base()


def test_what_drifted_is_told_and_compared_once(tmp_path: Path) -> None:
    ran = TargetRun(None, "not: a", "all of not: a", lambda: "other releases")
    beside = ran.beside_base()
    assert beside.installed == "not: a; other releases"
    assert beside.compared == "all of not: a not: a; other releases"
    assert beside.beside_base() is beside
    assert TargetRun(None).beside_base() == TargetRun(None)
