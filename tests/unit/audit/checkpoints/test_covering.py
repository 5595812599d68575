"""``CheckpointedStore`` over the real SQLite store: when checkpoints are made, and when it refuses."""

import os
import shutil
import threading
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_audit.checkpoints.checkpoint import Checkpoint, Span, Written
from fallback_audit.checkpoints.keyring import generate
from fallback_audit.checkpoints.writer import CheckpointedStore, Checkpointer
from fallback_audit.errors import (
    AuditIntegrityError,
    AuditStoreError,
    CheckpointError,
    KeyringError,
)
from fallback_audit.ports import Record
from tests.kinds import OfKind
from tests.unit.audit.checkpoints.trail_folder import (
    END,
    EVENT,
    SCOPE,
    TrailFolder,
    intact,
    sizes,
)


@pytest.fixture
def trail(tmp_path: Path) -> TrailFolder:
    return TrailFolder(tmp_path)


def test_the_end_of_a_fix_is_covered_at_once(trail: TrailFolder) -> None:
    store = trail.store()
    store.append(SCOPE, EVENT)
    assert sizes(trail) == []
    store.append(SCOPE, END)
    assert sizes(trail) == [2]
    store.close()
    assert sizes(trail) == [2]  # there was nothing left to cover
    intact(trail)


def test_every_n_events(trail: TrailFolder) -> None:
    store = trail.store(events=3)
    for _ in range(7):
        store.append(SCOPE, EVENT)
    assert sizes(trail) == [3, 6]
    store.append_all([Record(SCOPE, EVENT)] * 5)
    assert sizes(trail) == [3, 6, 12]
    store.close()
    intact(trail)


def test_close_covers_the_rest_once(trail: TrailFolder) -> None:
    store = trail.store()
    store.append(SCOPE, EVENT)
    store.close()
    store.close()
    assert sizes(trail) == [1]
    trail.store().close()  # who appends nothing signs nothing
    assert sizes(trail) == [1]


def test_after_t_seconds_though_nothing_is_appended(trail: TrailFolder) -> None:
    store = trail.store(seconds=60)
    assert trail.clock.waiting == []
    store.append(SCOPE, EVENT)
    store.append(SCOPE, EVENT)
    assert [timer.seconds for timer in trail.clock.waiting] == [60]
    assert sizes(trail) == []
    trail.clock.run_out()
    assert sizes(trail) == [2]
    assert trail.clock.waiting == []  # nothing is uncovered
    store.append(SCOPE, EVENT)
    assert len(trail.clock.waiting) == 1
    store.append(SCOPE, END)  # the end of the fix covered it
    trail.clock.run_out()
    assert sizes(trail) == [2, 4]
    assert trail.clock.waiting == []
    store.close()
    intact(trail)


def test_one_timer_serves_many_fixes(trail: TrailFolder) -> None:
    store = trail.store(seconds=60)
    for _ in range(3):
        store.append(SCOPE, EVENT)
        store.append(SCOPE, END)
    assert len(trail.clock.waiting) == 1
    store.append(SCOPE, EVENT)
    trail.clock.run_out()  # early for the last one: never late
    assert sizes(trail)[-2:] == [6, 7]
    store.close()
    assert trail.clock.waiting == []


def test_a_timer_that_is_late_does_nothing(trail: TrailFolder) -> None:
    store = trail.store()
    store.append(SCOPE, EVENT)
    (timer,) = trail.clock.waiting
    store.close()
    timer.call()
    assert sizes(trail) == [1]
    assert trail.clock.waiting == []


def test_the_real_timer_leaves_no_thread(trail: TrailFolder) -> None:
    raw = trail.raw()
    covered = threading.Event()

    def timer(seconds: float, call: Callable[[], None]) -> threading.Timer:
        def ring() -> None:
            call()
            covered.set()

        return threading.Timer(0, ring)

    before = set(threading.enumerate())
    store = CheckpointedStore(
        raw,
        trail.checkpointer(raw),
        Written(),
        events=9,
        seconds=60,
        timer=timer,
        notify=trail.said.append,
    )
    store.append(SCOPE, EVENT)
    assert covered.wait(30)
    assert sizes(trail) == [1]
    store.append(SCOPE, EVENT)
    store.close()
    assert sizes(trail)[-1] == 2
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()

    again = trail.store()
    again.append(SCOPE, EVENT)
    again.close()
    intact(trail)


def test_on_demand(trail: TrailFolder) -> None:
    store = trail.store()
    assert store.checkpoint() is None
    store.append(SCOPE, EVENT)
    first = store.checkpoint()
    assert first is not None
    assert first.checkpoint.size == 1
    assert store.checkpoint() == first
    assert trail.clock.waiting == [] or len(trail.clock.waiting) == 1
    store.close()


def test_it_reads_as_the_store_does(trail: TrailFolder) -> None:
    store = trail.store()
    stored = store.append(SCOPE, EVENT)
    assert list(store.events(SCOPE.fix_id)) == [stored]
    assert store.tip() == (1, stored.leaf)
    assert [row.leaf for row in store.headers()] == [stored.leaf]
    store.close()
    with pytest.raises(AuditStoreError):
        store.append(SCOPE, EVENT)


def test_the_first_key_is_made_and_said(trail: TrailFolder) -> None:
    store = trail.store()
    assert not trail.keys.exists()
    store.append(SCOPE, EVENT)
    store.close()
    assert "back it up" in trail.said[0]
    assert trail.keyring.signers()[0].verifier.vkey in trail.said[0]
    assert len(trail.said) == 1


def test_a_lost_key_is_not_replaced(trail: TrailFolder) -> None:
    trail.add(3)
    trail.sign()
    shutil.rmtree(trail.keys)
    store = trail.store()
    with pytest.raises(KeyringError, check=OfKind("checkpoints_without_key")):
        store.append(SCOPE, EVENT)
    assert store.tip()[0] == 3
    store.close()
    assert not trail.keys.exists()


def test_another_key_does_not_go_on(trail: TrailFolder) -> None:
    trail.add(3)
    trail.sign()
    shutil.rmtree(trail.keys)
    generate(trail.keys)
    store = trail.store()
    with pytest.raises(AuditIntegrityError, check=OfKind("no_trusted_key")):
        store.append(SCOPE, EVENT)
    store.close()


def test_a_folder_of_public_keys_signs_nothing(trail: TrailFolder) -> None:
    vkey = generate(trail.place / "other").signers()[0].verifier.vkey
    trail.keys.mkdir(mode=0o700)
    (trail.keys / "some.vkey").write_text(vkey)
    store = trail.store()
    with pytest.raises(KeyringError, check=OfKind("no_signing_key")):
        store.append(SCOPE, EVENT)
    store.close()


def test_a_store_of_before_there_were_checkpoints(trail: TrailFolder) -> None:
    trail.add(10)
    store = trail.store(events=4)
    store.append(SCOPE, EVENT)  # so many uncovered: covered first
    assert sizes(trail) == [10]
    store.close()
    assert sizes(trail) == [10, 11]
    intact(trail)


def test_what_a_crash_left_uncovered_is_covered_later(trail: TrailFolder) -> None:
    trail.add(3)
    trail.sign()
    trail.add(2)
    store = trail.store()
    store.append(SCOPE, END)
    store.close()
    assert sizes(trail) == [3, 6]
    intact(trail)


def full(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def no_room(trail: TrailFolder, patched: pytest.MonkeyPatch) -> None:
    """A full disk under the checkpoints only."""
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        (full if path.is_relative_to(trail.log.folder) else sync)(descriptor)

    patched.setattr(os, "fsync", fsync)


def test_without_room_for_checkpoints_it_goes_on_for_n_events(
    trail: TrailFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = trail.store(events=3)
    store.append(SCOPE, END)
    with monkeypatch.context() as patched:
        no_room(trail, patched)
        store.append(SCOPE, END)  # durable, though its checkpoint could not be made
        store.append(SCOPE, EVENT)
        trail.clock.run_out()
        store.append(SCOPE, EVENT)
        with pytest.raises(
            CheckpointError, check=OfKind("too_many_uncovered"), match=r"^3 "
        ) as caught:
            store.append(SCOPE, EVENT)
        assert "No space left" in caught.value.problem
        assert store.tip()[0] == 4
        assert [message for message in trail.said if "No space" in message] == trail.said[1:]
        assert len(trail.said) == 2  # the key, and one word about the disk
    store.append(SCOPE, EVENT)  # there is room again
    assert sizes(trail) == [1, 4]
    store.close()
    intact(trail)


def test_a_failure_at_close_is_said(trail: TrailFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    store = trail.store()
    store.append(SCOPE, EVENT)
    with monkeypatch.context() as patched:
        no_room(trail, patched)
        store.close()
    assert "no checkpoint could be made" in trail.said[-1]
    assert sizes(trail) == []


def test_a_failed_append_is_the_store_s_own_error(trail: TrailFolder) -> None:
    store = trail.store()
    store.append(SCOPE, END)
    store.store.close()
    with pytest.raises(AuditStoreError):
        store.append(SCOPE, END)
    assert sizes(trail) == [1]


def test_close_releases_the_store_though_it_is_interrupted(
    trail: TrailFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = trail.store()
    store.append(SCOPE, EVENT)
    monkeypatch.setattr(Checkpointer, "checkpoint", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    assert trail.clock.waiting == []
    with pytest.raises(AuditStoreError):
        store.tip()


def test_the_timer_runs_again_after_a_defect(
    trail: TrailFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = trail.store()
    store.append(SCOPE, EVENT)
    with monkeypatch.context() as patched:
        patched.setattr(Checkpointer, "checkpoint", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            trail.clock.run_out()
    trail.clock.run_out()
    assert sizes(trail) == [1]
    store.close()


def _interrupted(_: Checkpointer, _wrote: object = ()) -> None:
    raise KeyboardInterrupt


def test_where_many_write_one_line_says_what_was_found(trail: TrailFolder) -> None:
    """Not a line an event: rather too much is called found."""
    trail.add(4)
    trail.sign()
    trail.add(40)
    raw = trail.raw()
    signed = trail.checkpointer(raw).checkpoint([Span(seq, seq) for seq in range(5, 44, 2)])
    raw.close()
    assert signed is not None
    assert signed.checkpoint.found == (Span(6, 44),)
    assert trail.log.open(44, trail.keyring).checkpoint == signed.checkpoint


@pytest.mark.parametrize("message", ["3 2", "1 9"])
def test_what_is_said_to_be_found_is_covered(message: str) -> None:
    text = f"log\n8\n{b64encode(bytes(32)).decode()}\nfound {message}\n"
    with pytest.raises(AuditIntegrityError, check=OfKind("found_events_not_covered")):
        Checkpoint.parse(text)
