"""A worker's lock: who has it, who is asked to end, and what is left."""

from pathlib import Path

from fallback_tier.workers.processes import WorkerLocks


def test_what_says_nothing_is_removed_with_its_lock(tmp_path: Path) -> None:
    locks = WorkerLocks(tmp_path, tmp_path / "fleet")
    for fix_id, said in (("fix-0", ""), ("fix-1", "a traceback")):
        lock = locks.take(fix_id)
        assert lock is not None
        lock.close()
        locks.log(fix_id).write_text(said)
        locks.tidy(fix_id)
    assert [path.name for path in (tmp_path / "fleet" / "workers").iterdir()] == ["fix-1.log"]


def test_a_lock_that_is_held_stays(tmp_path: Path) -> None:
    locks = WorkerLocks(tmp_path, tmp_path / "fleet")
    lock = locks.take("fix-0")
    assert lock is not None
    with lock:
        locks.tidy("fix-0")
        assert locks.take("fix-0") is None
