"""The local engine: what a lock, a status and a mark of a cancellation say together."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from fallback_tier.errors import StateFolderError
from fallback_tier.files.locks import try_hold
from fallback_tier.fleet.engine_interface import EngineState, Phase
from fallback_tier.fleet.fix_order import FixOrder, FleetSecrets, Place
from fallback_tier.fleet.local.engine import (
    Job,
    LocalEngine,
    read_status,
    reserve_status,
    status_path,
    write_status,
)
from fallback_tier.fleet.local.main import work
from fallback_tier.wiring import RecordSettings
from fallback_tier.workers import processes
from fallback_tier.workers.checkouts import lock_path
from fallback_tier.workers.problem import PASSING, Problem, problem_of
from fallback_tier.workers.tables import RepositorySettings
from tests.waiting import PATIENCE_S, becomes, next_line

ORDER = FixOrder(
    fix_id="fix-0",
    campaign="spring",
    repository="shop",
    source=RepositorySettings(path=Path("/src")),
    base_commit="c" * 40,
    advisory_id="TEST-1",
    advisory={"id": "TEST-1"},
    ecosystem="npm",
)

#: Hears no request to end.
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"

#: Says that it is there, then waits until it is ended.
WAITS = "import sys, time; sys.stdin.read(); print('there', flush=True); time.sleep(600)"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(state_dir=tmp_path, record=RecordSettings(), fix_s=60.0)


@pytest.fixture
def engine(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    """Its workers are small programs."""
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", WAITS))
    one = LocalEngine(place, FleetSecrets(), at_once=2)
    yield one
    one.close()


def phase(engine: LocalEngine, fix_id: str = "fix-0") -> Phase:
    return engine.state(fix_id).phase


def at_work(engine: LocalEngine, place: Place) -> None:
    engine.submit(ORDER)
    becomes(lambda: "there" in place.locks.log("fix-0").read_text(), "the worker is there")


def test_a_fix_is_submitted_once(engine: LocalEngine, place: Place) -> None:
    assert (phase(engine), engine.room) == (Phase.UNKNOWN, 2)
    at_work(engine, place)
    engine.submit(ORDER)
    assert (phase(engine), engine.room) == (Phase.ACTIVE, 1)


def test_a_word_is_told_when_its_worker_has_gone(engine: LocalEngine, place: Place) -> None:
    at_work(engine, place)
    said = EngineState(
        phase=Phase.FAILED, problem=Problem(code="x", problem="It broke.", next_step="Mend it.")
    )
    write_status(place, "fix-0", said)
    assert phase(engine) is Phase.ACTIVE
    engine._workers._children["fix-0"].kill()
    engine._workers._children["fix-0"].wait(PATIENCE_S)
    assert engine.state("fix-0") == said
    assert engine.room == 2
    engine.submit(ORDER)
    assert phase(engine) is Phase.ACTIVE


def test_a_worker_that_was_killed_leaves_its_fix_to_anybody(
    engine: LocalEngine, place: Place
) -> None:
    at_work(engine, place)
    engine._workers._children["fix-0"].kill()
    engine._workers._children["fix-0"].wait(PATIENCE_S)
    told = engine.state("fix-0")
    assert told.phase is Phase.UNKNOWN
    assert told.problem is not None
    assert engine.state("fix-0") == told  # who could not write it down reads it again


def test_what_is_cancelled_ends_and_can_be_submitted_again(
    engine: LocalEngine, place: Place
) -> None:
    at_work(engine, place)
    engine.cancel("fix-0")
    becomes(lambda: phase(engine) is Phase.UNKNOWN, "it has ended")
    engine.submit(ORDER)
    assert phase(engine) is Phase.ACTIVE


def test_a_worker_that_does_not_end_holds_up_no_cancellation(
    engine: LocalEngine, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", f"{DEAF}; {WAITS}"))
    monkeypatch.setattr(processes, "GRACE_S", 0.2)
    at_work(engine, place)

    def is_cancelled() -> bool:
        engine.cancel("fix-0")
        return phase(engine) is Phase.UNKNOWN

    becomes(is_cancelled, "it is cancelled")


def test_a_worker_that_was_too_stuck_to_say_that_it_is_late_is_late(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", "import sys; sys.exit(1)"))
    engine = LocalEngine(place.model_copy(update={"fix_s": 0.0}), FleetSecrets(), at_once=2)
    engine.submit(ORDER)
    becomes(lambda: phase(engine) is not Phase.ACTIVE, "it has gone")
    for _ in range(2):
        problem = engine.state("fix-0").problem
        assert problem is not None
        assert problem.code == "time_limit"


def test_what_is_over_is_not_cancelled(engine: LocalEngine, place: Place) -> None:
    at_work(engine, place)
    engine.close()
    engine.cancel("fix-0")
    assert phase(engine) is Phase.UNKNOWN


def test_workers_of_an_earlier_runner_are_left_and_counted(
    engine: LocalEngine, place: Place
) -> None:
    lock = place.locks.take("fix-0")
    assert lock is not None
    words = [sys.executable, "-u", "-c", "print('there'); import time; time.sleep(600)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, pass_fds=(lock.fileno(),)) as worker:
        next_line(worker)
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), str(worker.pid).encode())
        lock.close()
        engine.submit(ORDER)
        assert (phase(engine), engine.room, engine._workers._children) == (Phase.ACTIVE, 1, {})
        engine.close()
        assert worker.poll() is None
        engine.cancel("fix-0")
        worker.wait(PATIENCE_S)
    assert phase(engine) is Phase.UNKNOWN


def test_a_worker_that_can_not_be_started_is_a_failure(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_COMMAND", ("/nowhere/python",))
    engine.submit(ORDER)
    found = engine.state("fix-0")
    assert found.problem is not None
    assert (found.phase, found.problem.code) == (Phase.FAILED, "worker")


def test_no_worker_is_started_that_could_not_leave_a_word(
    engine: LocalEngine, place: Place
) -> None:
    """It would count as dead, and after some of them the fix as failed. Here the disk is the folder's."""
    status_path(place, "fix-0").mkdir(parents=True)
    with pytest.raises(StateFolderError):
        engine.submit(ORDER)
    assert (engine.room, engine._workers._children) == (2, {})
    status_path(place, "fix-0").rmdir()
    at_work(engine, place)


def test_a_word_takes_no_more_of_the_disk_than_was_kept_for_it(
    engine: LocalEngine, place: Place, tmp_path: Path
) -> None:
    at_work(engine, place)
    kept = tmp_path / "kept"
    kept.hardlink_to(status_path(place, "fix-0"))
    room = kept.stat().st_size
    assert room >= 4_096
    full = StateFolderError("The state folder is full.", next_step="Free some.")
    write_status(place, "fix-0", EngineState(phase=Phase.FAILED, problem=problem_of(full)))
    assert kept.read_bytes() == status_path(place, "fix-0").read_bytes()
    assert (kept.stat().st_size, kept.stat().st_nlink) == (room, 2)
    engine.close()
    assert phase(engine) is Phase.FAILED


def test_a_worker_on_a_full_disk_says_so(place: Place) -> None:
    """Not even who it is can be written down."""
    status_path(place, "fix-0").parent.mkdir(parents=True)
    reserve_status(place, "fix-0")
    with Path("/dev/full").open("wb") as lock:
        work(Job(order=ORDER, place=place, lock=lock.fileno(), secrets=FleetSecrets()))
    said = read_status(place, "fix-0")
    assert said.problem is not None
    assert (said.phase, said.problem.code in PASSING) == (Phase.FAILED, True)


def test_keys_are_in_the_pipe_and_nowhere_else(place: Place) -> None:
    secrets = FleetSecrets(
        api_key=SecretStr("the-key"), database=SecretStr("postgresql://u:the-word@h/d")
    )
    given = place.model_copy(update={"record": RecordSettings(database=secrets.database)})
    job = Job(order=ORDER, place=given, lock=7, secrets=secrets)
    assert "the-key" not in repr(job) + job.model_dump_json()
    read = Job.model_validate_json(job.to_pipe())
    assert read.secrets.api_key == SecretStr("the-key")
    assert read.whole_place().record.database == secrets.database
    assert read.order == ORDER


def test_no_key_is_in_an_error_about_a_job(place: Place) -> None:
    """Its traceback goes to the worker's log."""
    secrets = FleetSecrets(api_key=SecretStr("the-key"))
    job = Job(order=ORDER, place=place, lock=7, secrets=secrets).to_pipe()
    for broken in (
        job[:-3],
        job.replace(b'"secrets"', b'"keys"'),
        job.replace(b'"api_key"', b'"x"'),
    ):
        with pytest.raises(ValidationError) as caught:
            Job.model_validate_json(broken)
        assert "the-key" not in str(caught.value)


def test_a_short_word_after_a_long_one_is_read(place: Place) -> None:
    status_path(place, "fix-0").parent.mkdir(parents=True)
    long = Problem(code="x", problem="y" * 6_000, next_step="")
    write_status(place, "fix-0", EngineState(phase=Phase.FAILED, problem=long))
    write_status(place, "fix-0", EngineState(phase=Phase.ENDED))
    assert read_status(place, "fix-0").phase is Phase.ENDED


def test_checkouts_in_use_outlive_the_engine(engine: LocalEngine, place: Place) -> None:
    """Of another campaign's worker, or of a worker of Temporal's on the same folder."""
    used, unused = (place.home / "checkouts" / name for name in ("shop.js-abc", "till-abc"))
    for folder in (used, unused):
        (folder / "repository").mkdir(parents=True)
    lock_path(place.home, unused.name).touch()
    lock = try_hold(lock_path(place.home, used.name))
    assert lock is not None
    with lock:
        engine.close()
        assert used.exists()
    assert not unused.exists()
    engine.close()
    assert not used.exists()


def test_what_is_kept_of_a_fix_goes_once_its_end_is_listed(
    engine: LocalEngine, place: Place
) -> None:
    (place.home / "workers").mkdir(parents=True)
    reserve_status(place, ORDER.fix_id)
    write_status(place, ORDER.fix_id, EngineState(phase=Phase.ENDED))
    assert engine.state(ORDER.fix_id).phase is Phase.ENDED
    engine.forget(ORDER.fix_id)
    engine.forget(ORDER.fix_id)
    assert not list((place.home / "workers").iterdir())
    assert engine.state(ORDER.fix_id).phase is Phase.UNKNOWN
