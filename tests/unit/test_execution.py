"""Clients that stop: after a limit of time, or if a person interrupts them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallback_tier.errors import StoppedError, ToolError
from fallback_tier.execution import (
    CommandResult,
    KnowsHosts,
    StepCount,
    StoppableClients,
    counting_steps,
    steps_so_far,
)


@dataclass(eq=False)
class Clients:
    """Notes the time that each run may take. ``hangs``: a run ends at its limit; ``interrupted``: by a
    person."""

    hangs: bool = False
    interrupted: bool = False
    timeouts: list[float] = field(default_factory=list)

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.timeouts.append(timeout_s)
        if self.interrupted:
            raise KeyboardInterrupt
        exit_code = None if self.hangs else 0
        return CommandResult(argv=(tool, *args), exit_code=exit_code, output="", duration_ms=1)

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{tool}.example" for tool in tools)

    def take_refused(self) -> tuple[str, ...]:
        return ("refused.example",)


def ask(clients: StoppableClients, timeout_s: float = 60.0) -> CommandResult:
    return clients.run("uv", ["lock"], cwd=Path(), timeout_s=timeout_s)


def test_runs_are_as_ever_until_it_begins() -> None:
    inner = Clients(hangs=True)
    clients = StoppableClients(inner)
    assert ask(clients).timed_out
    assert (inner.timeouts, clients.stopped) == ([60.0], None)


def test_a_run_ends_with_the_limit_and_none_follows() -> None:
    inner = Clients(hangs=True)
    clients = StoppableClients(inner)
    clients.begin(30.0)
    with pytest.raises(StoppedError, match="within 30 s") as first:
        ask(clients)
    assert inner.timeouts[0] <= 30.0
    with pytest.raises(StoppedError):
        ask(clients)
    assert len(inner.timeouts) == 1
    assert clients.stopped is not None
    assert (clients.stopped.kind, clients.interrupt) == ("time_limit", None)
    assert not isinstance(first.value, ToolError)  # no client failed


def test_none_begins_after_the_limit() -> None:
    inner = Clients()
    clients = StoppableClients(inner)
    clients.begin(0.001)
    time.sleep(0.01)
    with pytest.raises(StoppedError):
        ask(clients)
    assert inner.timeouts == []


def test_a_run_that_takes_too_long_by_itself_stops_nothing() -> None:
    inner = Clients(hangs=True)
    clients = StoppableClients(inner)
    clients.begin(3600.0)
    assert ask(clients).timed_out
    assert (inner.timeouts, clients.stopped) == ([60.0], None)


def test_an_interruption_is_kept_for_the_caller() -> None:
    clients = StoppableClients(Clients(interrupted=True))
    with pytest.raises(KeyboardInterrupt):  # before it begins, there is nothing to show
        ask(clients)
    clients.begin(30.0)
    with pytest.raises(StoppedError):
        ask(clients)
    assert clients.stopped is not None
    assert clients.stopped.kind == "interrupted"
    assert isinstance(clients.interrupt, KeyboardInterrupt)


def test_hosts_are_the_inner_clients() -> None:
    """Kept resolutions are found by them: a scan's must be those of a fix."""
    clients = StoppableClients(Clients())
    assert isinstance(clients, KnowsHosts)
    assert clients.allowed_hosts(["uv"]) == ("uv.example",)
    assert clients.take_refused() == ("refused.example",)


def test_steps_are_counted_while_a_project_is_resolved() -> None:
    assert steps_so_far() is None
    with counting_steps(lambda: StepCount(1, 3)):
        assert steps_so_far() == (1, 3)
    assert steps_so_far() is None
