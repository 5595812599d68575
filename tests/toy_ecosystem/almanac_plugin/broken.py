"""The same ecosystem with one hook that raises what no hook may: ``almanac_plugin.broken:in_HOOK``."""

from typing import Any

import almanac_plugin

from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import Gate, GateContext
from fallback_tier.ports import EcosystemPlugin


def fall(*_args: Any, **_named: Any) -> Any:
    raise LookupError("the moon is missing\nand more")


class Broken:
    """Whatever another object has, but for one hook."""

    def __init__(self, whole: object, hook: str) -> None:
        self._whole, self._hook = whole, hook

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._whole, name)
        if name != self._hook:
            return value
        return fall if callable(value) else fall()


class _Factory(almanac_plugin.Factory):
    def __init__(self, hook: str) -> None:
        self._hook = hook

    @property
    def rules(self) -> Any:
        return fall() if self._hook == "rules" else Broken(super().rules, self._hook)

    def __call__(self, clients: ClientRunner) -> Any:
        if self._hook == "building":
            fall()
        if self._hook != "judge":
            return Broken(super().__call__(clients), self._hook)
        whole = super().__call__(clients)
        *gates, tests = whole.gates()
        broken = Broken(whole, "")
        vars(broken)["gates"] = lambda: [*gates, Broken(tests, "judge")]
        return broken


class _NoVerdict:
    name = "silent"

    def judge(self, context: GateContext) -> None:
        return None


def silent_gates(plugin: EcosystemPlugin) -> list[_NoVerdict]:
    return [_NoVerdict()]


class _Reporting:
    name = "telling"

    def judge(self, context: GateContext) -> None:
        context.report("waiting for the tide")


def reporting_gates(plugin: EcosystemPlugin) -> list[_Reporting]:
    return [_Reporting()]


def no_gates(plugin: EcosystemPlugin) -> Any:
    return fall()


def gates_of_one_name(plugin: EcosystemPlugin) -> list[Gate]:
    return [plugin.gates()[0]]


def __getattr__(name: str) -> _Factory:
    kind, _, hook = name.partition("_")
    if kind == "loading":
        fall()
    if kind != "in":
        raise AttributeError(name)
    return _Factory(hook)
