"""What a plugin's run raises is guarded; what the caller's progress callback raises is not the plugin's."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.entry_points import Mounted
from fallback_tier.errors import PluginError, ToolFailedError
from fallback_tier.gate_ports import GateContext, TargetRun
from fallback_tier.installed_plugins import _guarded_plugin
from tests.fakes.ecosystem import FakeEcosystem
from tests.unit.shared.gates.test_flaky import context


class GoneError(Exception):
    """Who watches has gone away."""


class Running(FakeEcosystem):
    def __init__(self, act: Callable[[GateContext], None]) -> None:
        super().__init__()
        self._act = act

    def run(self, context: GateContext, *_: Any, **__: Any) -> TargetRun:
        self._act(context)
        return TargetRun(None)


class Loaded(Mounted):
    def load(self) -> Any:
        return lambda clients: clients  # a test's plugin


def reporting(context: GateContext) -> None:
    context.report("installing the base commit")


def out_of_order(_: GateContext) -> None:
    raise LookupError("no such package")


def unreached(_: GateContext) -> None:
    raise ToolFailedError("no registry answers", next_step="Try again.")


@pytest.mark.parametrize(
    ("act", "raised"),
    [(out_of_order, PluginError), (unreached, ToolFailedError), (reporting, GoneError)],
)
def test_a_run_is_guarded(
    tmp_path: Path, act: Callable[[GateContext], None], raised: type[Exception]
) -> None:
    def watch(_: str) -> None:
        raise GoneError

    owner = Loaded(EntryPoint("PyPI", "a:b", "fallback_tier.ecosystems"))
    plugin: Any = Running(act)
    with pytest.raises(raised):
        _guarded_plugin(owner, plugin).run(
            replace(context(tmp_path), report=watch), context(tmp_path).repo, ["true"]
        )
