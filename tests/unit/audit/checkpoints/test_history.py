"""No checkpoint contradicts an earlier one: rolled back, rewritten, exchanged, removed, rotated, shared."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_audit.canonical import GENESIS
from fallback_audit.checkpoints import keyring
from fallback_audit.checkpoints.checkpoint import Previous
from fallback_audit.checkpoints.keyring import end_overlap, rotate
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.errors import (
    AuditIntegrityError,
    AuditStoreError,
    HistoryError,
    RequestError,
)
from fallback_audit.ports import Record
from fallback_audit.statements import SEGMENT_DOMAIN, SegmentStatement, sign_statement
from tests.kinds import OfKind
from tests.unit.audit.checkpoints.trail_folder import END, EVENT, SCOPE, TrailFolder, intact, sizes
from tests.unit.audit.tamper import behind_the_triggers

ROOT = Path(__file__).parents[4]


@pytest.fixture
def trail(tmp_path: Path) -> TrailFolder:
    return TrailFolder(tmp_path)


def test_a_rolled_back_store_is_refused(trail: TrailFolder) -> None:
    trail.add(3)
    old = trail.copy()
    trail.add(2)
    trail.sign()
    trail.roll_back(old)
    store = trail.store()
    with pytest.raises(HistoryError, check=OfKind("rolled_back"), match=r" 3 .* 5\b"):
        store.append(SCOPE, EVENT)
    assert store.tip()[0] == 3
    store.close()


@pytest.mark.parametrize("size", [5, 6, 9])
def test_another_history_is_refused(trail: TrailFolder, size: int) -> None:
    """As long or longer, each link right: only the signed leaf tells."""
    trail.add(5)
    trail.sign()
    other = TrailFolder(trail.place / "other")
    other.place.mkdir()
    other.add(size, END)
    trail.roll_back(other.db)
    store = trail.store()
    with pytest.raises(HistoryError, check=OfKind("rewritten")) as caught:
        store.append(SCOPE, EVENT)
    assert str(trail.log.folder) in caught.value.problem
    store.close()
    assert sizes(trail) == [5]


def test_a_store_that_is_exchanged_under_a_living_process(trail: TrailFolder) -> None:
    """Noticed at the next checkpoint, and then nothing is appended."""
    trail.add(3)
    store = trail.store()
    store.append(SCOPE, END)
    with behind_the_triggers(trail.db) as db:
        db.execute("DELETE FROM audit_header WHERE seq > 2")
        db.execute("DELETE FROM audit_payload WHERE seq > 2")
    store.append(SCOPE, END)  # it is durable; but the checkpoint is refused
    assert "rolled back" in trail.said[-1]
    with pytest.raises(HistoryError):
        store.append(SCOPE, EVENT)
    assert store.tip()[0] == 3
    store.close()
    assert sizes(trail) == [4]


def test_checkpoints_that_were_removed_are_not_made_again(trail: TrailFolder) -> None:
    """With them gone the history could be written anew, and we would sign it: the keys remember."""
    trail.add(5)
    trail.sign()
    shutil.rmtree(trail.log.folder)
    trail.roll_back(TrailFolder(trail.place).copy())
    store = trail.store()
    with pytest.raises(
        HistoryError, check=OfKind("known_checkpoint_missing"), match=" 5 "
    ) as caught:
        store.append(SCOPE, EVENT)
    with pytest.raises(HistoryError):
        store.checkpoint()
    store.close()
    assert sizes(trail) == []
    # What ends it, if it was on purpose.
    assert "fallback-tier audit begin-again --by NAME --because TEXT" in caught.value.next_step
    trail.forget()
    assert trail.sign() == 5


# --- removed on purpose -------------------------------------------------------------------------


def ended_on_purpose(trail: TrailFolder, announce: Callable[[Previous], None]) -> None:
    store = trail.raw()
    try:
        trail.checkpointer(store).begin_again(announce)
    finally:
        store.close()


def test_who_says_that_it_was_on_purpose_goes_on(trail: TrailFolder) -> None:
    trail.add(5)
    trail.sign()
    lost = trail.log.open(5, trail.keyring).named
    shutil.rmtree(trail.log.folder)
    reported: list[Previous] = []
    ended_on_purpose(trail, reported.append)
    assert reported == [lost]
    trail.add(1)
    assert trail.sign() == 6
    intact(trail)
    # It was forgotten, not the protection: the next one that is gone is missed again.
    shutil.rmtree(trail.log.folder)
    store = trail.store()
    with pytest.raises(HistoryError, check=OfKind("known_checkpoint_missing"), match=" 6 "):
        store.append(SCOPE, EVENT)
    store.close()


def test_what_could_not_be_put_on_record_is_not_forgotten(trail: TrailFolder) -> None:
    trail.add(5)
    trail.sign()
    shutil.rmtree(trail.log.folder)

    def fail(_gone: Previous) -> None:
        raise AuditStoreError("The disk is full.", next_step="Free some space.")

    with pytest.raises(AuditStoreError):
        ended_on_purpose(trail, fail)
    store = trail.store()
    with pytest.raises(HistoryError, check=OfKind("known_checkpoint_missing"), match=" 5 "):
        store.append(SCOPE, EVENT)
    store.close()


def test_nothing_is_ended_where_nothing_is_gone(trail: TrailFolder) -> None:
    reported: list[Previous] = []
    with pytest.raises(RequestError, check=OfKind("nothing_gone")):
        ended_on_purpose(trail, reported.append)
    trail.add(5)
    trail.sign()
    with pytest.raises(RequestError, check=OfKind("nothing_gone")):
        ended_on_purpose(trail, reported.append)
    assert reported == []
    assert trail.sign() == 5


def test_a_store_that_contradicts_what_is_there_is_not_gone_on_with(trail: TrailFolder) -> None:
    """The checkpoint of 8 is gone, that of 5 is there, and the store has 3: no person's word fixes it."""
    trail.add(3)
    old = trail.copy()
    trail.add(2)
    trail.sign()
    trail.add(3)
    trail.sign()
    trail.log.path(8).unlink()
    trail.roll_back(old)
    reported: list[Previous] = []
    with pytest.raises(HistoryError, check=OfKind("rolled_back"), match=" 3 ") as caught:
        ended_on_purpose(trail, reported.append)
    assert reported == []
    assert "begin-again" in caught.value.next_step


def test_a_record_that_is_gone_with_its_key_can_be_ended(trail: TrailFolder) -> None:
    trail.add(5)
    trail.sign()
    shutil.rmtree(trail.log.folder)
    for path in trail.keys.glob("*key"):
        path.unlink()
    ended_on_purpose(trail, lambda _gone: None)
    assert trail.sign() == 5
    intact(trail)


def test_what_is_known_by_two_names_is_forgotten_by_both(
    trail: TrailFolder, tmp_path: Path
) -> None:
    trail.add(5)
    trail.log.folder.parent.mkdir(exist_ok=True)
    (tmp_path / "real").mkdir()
    trail.log.folder.symlink_to(tmp_path / "real")
    trail.sign()
    assert len(list((trail.keys / "known").iterdir())) == 3  # two paths and the history
    for path in (tmp_path / "real").rglob("*.checkpoint"):
        path.unlink()
    ended_on_purpose(trail, lambda _gone: None)
    assert list((trail.keys / "known").iterdir()) == []


def test_everything_put_back_to_an_older_state(trail: TrailFolder) -> None:
    """The database and the checkpoints together: one agrees with the other."""
    trail.add(5)
    trail.sign()
    old = shutil.copytree(trail.log.folder, trail.place / "old")
    copy = trail.copy()
    trail.add(3)
    trail.sign()
    shutil.rmtree(trail.log.folder)
    shutil.copytree(old, trail.log.folder)
    trail.roll_back(copy)
    store = trail.store()
    with pytest.raises(HistoryError, check=OfKind("known_checkpoint_missing"), match=" 8 "):
        store.append(SCOPE, EVENT)
    store.close()


def test_a_record_that_is_gone_with_its_private_key(trail: TrailFolder) -> None:
    trail.add(5)
    trail.sign()
    shutil.rmtree(trail.log.folder)
    for path in trail.keys.glob("*key"):
        path.unlink()
    for name in ("audit.db", "audit.db-wal", "audit.db-shm"):
        (trail.place / name).unlink(missing_ok=True)
    store = trail.store()
    with pytest.raises(HistoryError, check=OfKind("known_checkpoint_missing"), match=" 5 "):
        store.append(SCOPE, EVENT)
    with pytest.raises(HistoryError, check=OfKind("known_checkpoint_missing"), match=" 5 "):
        store.checkpoint()
    store.close()
    assert list(trail.keys.glob("*key")) == []


def test_keys_that_can_not_be_written_to_sign_all_the_same(
    trail: TrailFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail.add(5)

    make = keyring.make_private_directory

    def readonly(path: Path) -> None:
        if path.name == "known":
            raise OSError(30, "Read-only file system", str(path))
        make(path)

    with monkeypatch.context() as patched:
        patched.setattr(keyring, "make_private_directory", readonly)
        assert trail.sign() == 5
    assert not (trail.keys / "known").exists()
    intact(trail)


@pytest.mark.parametrize("altered", [2, 4])
def test_an_altered_header_is_never_signed(trail: TrailFolder, altered: int) -> None:
    """Behind the last checkpoint, or, where everything is hashed again, before it."""
    trail.add(3)
    trail.sign()
    trail.add(3)
    (trail.log.folder / "frontier.json").unlink()
    with behind_the_triggers(trail.db) as db:
        db.execute(
            "UPDATE audit_header SET header = CAST(replace(CAST(header AS TEXT), 'gate-1', 'gate-2')"
            " AS BLOB) WHERE seq = ?",
            (altered,),
        )
    store = trail.raw()
    with pytest.raises(HistoryError, check=OfKind("event_altered"), match=f"Event {altered} "):
        trail.checkpointer(store).checkpoint()
    store.close()
    assert sizes(trail) == [3]


def test_a_false_cache_costs_time_and_nothing_else(trail: TrailFolder) -> None:
    trail.add(5)
    trail.sign()
    cache = trail.log.folder / "frontier.json"
    cache.write_text(cache.read_text().replace('["', '["ff'))
    trail.add(2)
    assert trail.sign() == 7
    intact(trail)
    with_cache = trail.log.path(7).read_bytes()
    trail.log.path(7).unlink()
    trail.forget()
    cache.unlink()
    assert trail.sign() == 7
    assert trail.log.path(7).read_bytes() == with_cache


def test_an_altered_checkpoint_stops_the_writer(trail: TrailFolder) -> None:
    trail.add(3)
    trail.sign()
    path = trail.log.path(3)
    path.write_bytes(path.read_bytes().replace(b"tip ", b"tap "))
    store = trail.store()
    with pytest.raises(AuditIntegrityError, check=OfKind("signature_altered")):
        store.append(SCOPE, EVENT)
    store.close()


def test_behind_a_sealed_segment(trail: TrailFolder) -> None:
    """Its statement stands for the rows that are gone: with a cache, and without."""
    trail.add(5)
    trail.sign()
    store = trail.raw()
    rows = list(store.headers())
    frontier = trail.log.frontier(trail.log.open(5, trail.keyring))
    assert frontier is not None
    reported = SegmentStatement(
        number=1,
        first_seq=1,
        last_seq=5,
        previous_leaf=GENESIS,
        tip=rows[-1].leaf,
        frontier=tuple(digest.hex() for digest in frontier.hashes),
        root=frontier.root().hex(),
        file="1.jsonl",
        sha256=GENESIS,
        sealed_at="2026-01-02T03:04:05Z",
        by="a person",
        reason="retention",
    )
    content = reported.model_dump(mode="json")
    statement = sign_statement(SEGMENT_DOMAIN, content, trail.keyring.signers())
    store.append_all([Record(SCOPE, EVENT)] * 4)
    with behind_the_triggers(trail.db) as db:
        db.execute("DELETE FROM audit_header WHERE seq <= 5")
        db.execute("DELETE FROM audit_payload WHERE seq <= 5")
    sealed = Checkpointer(store, trail.log, trail.keys, segments=lambda: [statement])
    (trail.log.folder / "frontier.json").unlink()
    assert sealed.check() == 5
    signed = sealed.checkpoint()
    assert signed is not None
    for row in [*store.headers(after=5)]:
        frontier.append(row.header)
    assert (signed.checkpoint.size, signed.checkpoint.root) == (9, frontier.root())

    trail.log.path(9).unlink()
    trail.forget()
    with pytest.raises(HistoryError, check=OfKind("rewritten")):
        Checkpointer(store, trail.log, trail.keys, segments=list).check()
    store.close()


def test_a_rotation_is_taken_part_in(trail: TrailFolder) -> None:
    """By a process that lives through it; and the latest checkpoint gets the new key's signature."""
    store = trail.store()
    store.append(SCOPE, END)
    rotation = rotate(trail.keys, lambda _: None)
    again = store.checkpoint()  # nothing was appended: the same text, signed by both
    assert again is not None
    assert set(again.signed_by) == set(rotation)
    store.append(SCOPE, END)
    end_overlap(trail.keys)
    store.append(SCOPE, END)
    store.close()
    signed = [set(trail.log.open(size, trail.keyring).signed_by) for size in (1, 2, 3)]
    assert signed == [set(rotation), set(rotation), {rotation.new}]
    intact(trail)


def test_a_log_that_slept_through_a_rotation(trail: TrailFolder) -> None:
    trail.add(3)
    trail.sign()
    rotation = rotate(trail.keys, lambda _: None)
    end_overlap(trail.keys)
    store = trail.store()
    with pytest.raises(AuditIntegrityError, check=OfKind("signed_by_retired_keys")) as caught:
        store.append(SCOPE, EVENT)
    assert "ID.retired.vkey" in caught.value.next_step
    stem = trail.keys / rotation.old.id.hex()
    Path(f"{stem}.retired.vkey").rename(f"{stem}.vkey")
    assert trail.sign() == 3
    Path(f"{stem}.vkey").rename(f"{stem}.retired.vkey")
    store.append(SCOPE, EVENT)
    store.close()
    intact(trail)


def test_three_processes_share_a_log(trail: TrailFolder) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.unit.audit.checkpoints.trail_folder import *\n"
        "store = TrailFolder(Path(sys.argv[1])).store(events=5)\n"
        "for number in range(40): store.append(SCOPE, END if number % 7 == 0 else EVENT)\n"
        "store.close()\n"
    )
    command = [sys.executable, "-c", program, str(trail.place)]
    running = [
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert trail.log.latest_size() == 120
    assert len(trail.keyring.verifiers()) == 1
    intact(trail)


def test_killed_between_append_and_checkpoint(trail: TrailFolder) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tests.unit.audit.checkpoints.trail_folder import *\n"
        "trail = TrailFolder(Path(sys.argv[1])); store = trail.store(events=4)\n"
        "add = type(trail.log).add\n"
        "def die(log, signed):\n"
        "    if signed.checkpoint.size == 8: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    add(log, signed)\n"
        "type(trail.log).add = die\n"
        "while True: store.append(SCOPE, EVENT)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(trail.place)], cwd=ROOT, check=False, timeout=300
    )
    assert ended.returncode == -9
    assert sizes(trail) == [4]
    store = trail.store(events=4)
    assert store.tip()[0] == 8  # nothing durable is lost
    store.append(SCOPE, EVENT)
    store.close()
    assert sizes(trail) == [4, 8, 9]
    intact(trail)


# --- an older copy of the same log --------------------------------------------------------------


def test_older_copy_behind_a_link_is_missed(trail: TrailFolder, tmp_path: Path) -> None:
    """The folder that the caller names becomes a link to an older copy: the name is remembered."""
    trail.add(3)
    trail.sign()
    shutil.copytree(trail.log.folder, tmp_path / "older")
    trail.add(2)
    trail.sign()
    trail.log.folder.rename(tmp_path / "newer")
    trail.log.folder.symlink_to(tmp_path / "older")
    gone = trail.log.gone(trail.keyring)
    assert gone is not None
    assert gone.size == 5


def test_older_copy_at_another_path_is_not_continued(trail: TrailFolder, tmp_path: Path) -> None:
    trail.add(3)
    trail.sign()
    copy = TrailFolder(tmp_path / "copy")
    copy.place.mkdir()
    shutil.copy(trail.db, copy.db)
    shutil.copytree(trail.log.folder, copy.log.folder)
    copy.keys.symlink_to(trail.keys)
    trail.add(2)
    trail.sign()
    assert copy.log.gone(copy.keyring) is None  # no checkpoint was ever signed for that folder
    store = copy.store()
    with pytest.raises(HistoryError) as caught:
        store.append(SCOPE, EVENT)
    with pytest.raises(HistoryError):
        store.checkpoint()
    assert store.tip()[0] == 3
    store.close()
    assert sizes(copy) == [3]
    assert "audit begin-again" in caught.value.next_step
    # The one that has them goes on, and so does the copy once a person gave them up.
    trail.add(1)
    assert trail.sign() == 6
    reported: list[Previous] = []
    ended_on_purpose(copy, reported.append)
    assert [lost.size for lost in reported] == [6]
    copy.add(1)
    assert copy.sign() == 4
    intact(copy)


def test_copies_that_went_different_ways_are_not_both_continued(
    trail: TrailFolder, tmp_path: Path
) -> None:
    """As long as the other, or longer: its history is not the one that was signed."""
    trail.add(3)
    trail.sign()
    copy = TrailFolder(tmp_path / "copy")
    copy.place.mkdir()
    shutil.copy(trail.db, copy.db)
    shutil.copytree(trail.log.folder, copy.log.folder)
    trail.add(2)
    trail.sign()
    copy.keys.symlink_to(trail.keys)
    copy.add(4)
    store = copy.store()
    with pytest.raises(HistoryError):
        store.append(SCOPE, EVENT)
    store.close()


def test_record_that_was_moved_whole_is_continued(trail: TrailFolder, tmp_path: Path) -> None:
    trail.add(3)
    trail.sign()
    trail.place.joinpath("moved").mkdir()
    moved = TrailFolder(trail.place / "moved")
    for name in ("audit.db", "checkpoints"):
        (trail.place / name).rename(moved.place / name)
    moved.keys.symlink_to(trail.keys)
    moved.add(2)
    assert moved.sign() == 5
    intact(moved)
