"""A fix's process: asked for steps over pipes, ended with whoever asks (ADR-0086)."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fallback_tier.engines.temporal.messages import Request, SessionStep, Standing
from fallback_tier.engines.temporal.session import FixProcess, SessionOverError, start_process
from fallback_tier.workers.processes import guarded
from tests.engines.scenario import EngineScenario
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[4]
COMMAND = (sys.executable, "-m", "tests.engines.fix_process")


def _with_process(
    scenario: EngineScenario, name: str, work: Callable[[FixProcess], Awaitable[None]]
) -> None:
    async def run() -> None:
        log = scenario.root / "log"
        process = await start_process(COMMAND, scenario.order(name), log, ROOT)
        try:
            await work(process)
        finally:
            await process.end()

    asyncio.run(run())


async def _exit_code(process: FixProcess) -> int:
    """Once it has ended by itself."""
    async with asyncio.timeout(PATIENCE_S):
        while (code := process.process.returncode) is None:
            await asyncio.sleep(0.05)
    return code


@pytest.fixture
def scenario(tmp_path: Path) -> EngineScenario:
    return EngineScenario(tmp_path)


def test_a_step_that_does_not_follow_is_not_taken(scenario: EngineScenario) -> None:
    """It was taken before, and whoever asked has not heard."""
    name = scenario.add("short")

    async def work(process: FixProcess) -> None:
        opened = await process.heard()
        assert opened.next == SessionStep(1, "attempt")
        first = await process.ask(Request("step", opened.next))
        assert first.next == SessionStep(1, "isolate")
        recorded = scenario.kinds(name)
        assert await process.ask(Request("step", opened.next)) == first
        assert scenario.kinds(name) == recorded
        assert (await process.ask(Request("deliver"))).delivered is False

    _with_process(scenario, name, work)
    assert scenario.kinds(name)[-1] == "PatchProposed"


def test_it_takes_a_fix_to_its_end_and_delivers_once(scenario: EngineScenario) -> None:
    name = scenario.add("short")

    async def work(process: FixProcess) -> None:
        standing = await process.heard()
        while standing.next is not None:
            standing = await process.ask(Request("step", standing.next))
        assert standing.outcome == "verified"
        for _ in range(2):
            standing = await process.ask(Request("deliver"))
            assert standing == Standing(
                outcome="verified", patch_sha256=standing.patch_sha256, delivered=True
            )

    _with_process(scenario, name, work)
    assert scenario.counted(name)["PatchDelivered"] == 1
    scenario.check()


def test_it_ends_in_good_order_with_whoever_asks(scenario: EngineScenario) -> None:
    """In the midst of a step: the end of its input is the end of the worker, however that died."""
    name = scenario.add("short")
    scenario.hold_model(name)

    async def work(process: FixProcess) -> None:
        standing = await process.heard()
        while standing.next is not None and standing.next.attempt == 1:
            standing = await process.ask(Request("step", standing.next))
        asked = asyncio.create_task(process.ask(Request("step", standing.next)))
        while "ModelCalled" not in scenario.kinds(name):
            await asyncio.sleep(0.05)
        assert process.process.stdin is not None
        process.process.stdin.close()
        with pytest.raises(SessionOverError):
            await asked
        await _exit_code(process)

    _with_process(scenario, name, work)
    assert not list((scenario.state / "worktrees").glob("*"))
    scenario.let_model_answer(name)
    scenario.by_the_loop(name)
    scenario.check()


def test_what_another_process_has_open_is_said_so(scenario: EngineScenario) -> None:
    name = scenario.add("short")

    async def work(process: FixProcess) -> None:
        with pytest.raises(SessionOverError) as over:
            await process.heard()
        assert over.value.problem is not None
        assert over.value.problem.is_held

    with scenario.opened(name):
        _with_process(scenario, name, work)


def test_a_process_that_is_killed_is_over(scenario: EngineScenario) -> None:
    name = scenario.add("short")
    scenario.kill_at(name, 1, 3, before=True, worker=False)

    async def work(process: FixProcess) -> None:
        standing = await process.heard()
        with pytest.raises(SessionOverError) as over:
            await process.ask(Request("step", standing.next))
        assert over.value.problem is None
        with pytest.raises(SessionOverError):
            await process.ask(Request("close"))
        assert await _exit_code(process) == -9
        await process.end()

    _with_process(scenario, name, work)


def test_it_has_no_key_in_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come through its pipe: what a target's commands could read in /proc is not there."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret")
    monkeypatch.setenv("FALLBACK_TIER_AUDIT_STORE", "postgresql://user:secret@host/db")
    told = tmp_path / "environment"
    write = f"import os; open({str(told)!r}, 'w').write(chr(10).join(os.environ))"

    async def run() -> None:
        process = await start_process(
            (sys.executable, "-c", write), b"{}", tmp_path / "log", tmp_path
        )
        assert await _exit_code(process) == 0

    asyncio.run(run())
    names = told.read_text().splitlines()
    assert "PATH" in names
    assert not {"ANTHROPIC_API_KEY", "FALLBACK_TIER_AUDIT_STORE"} & {*names}


def test_what_it_starts_ends_with_it(tmp_path: Path) -> None:
    """However it ends: a guard is its parent, as of every worker (ADR-0080)."""
    told = tmp_path / "pids"
    (tmp_path / "starts_a_client.py").write_text(
        "import os, subprocess, time\n"
        "def main():\n"
        "    client = subprocess.Popen(['sleep', '600'])\n"
        f"    open({str(told)!r}, 'w').write(f'{{os.getpid()}} {{client.pid}}')\n"
        "    time.sleep(600)\n"
    )
    start = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from fallback_tier.workers.guard import main; main()"
    )
    command = (sys.executable, "-c", start, *guarded("starts_a_client", 600.0)[4:])

    async def run() -> None:
        process = await start_process(command, b"{}", tmp_path / "log", tmp_path)
        async with asyncio.timeout(PATIENCE_S):
            while not (told.exists() and told.read_text().count(" ")):
                await asyncio.sleep(0.05)
        worker, client = map(int, told.read_text().split())
        os.kill(worker, signal.SIGKILL)
        await _exit_code(process)
        assert not Path(f"/proc/{client}").exists()

    asyncio.run(run())
