"""Names of workers, each of which is a queue."""

import socket
from pathlib import Path

import pytest

from fallback_tier.engines.temporal.worker import worker_name
from fallback_tier.errors import ConfigurationError, StateFolderError
from tests.kinds import OfKind


def test_a_state_folder_keeps_its_name_and_another_has_another(tmp_path: Path) -> None:
    with worker_name(tmp_path / "one") as first, worker_name(tmp_path / "two") as other:
        assert first != other
        assert first.startswith(socket.gethostname()[:1])
    with worker_name(tmp_path / "one") as again:
        assert again == first


def test_two_workers_of_a_state_folder_have_no_queue_in_common(tmp_path: Path) -> None:
    with worker_name(tmp_path) as first, worker_name(tmp_path, "second") as told:
        assert (told, first == told) == ("second", False)
        for name in ("", "second"):
            with (
                pytest.raises(ConfigurationError, check=OfKind("name_taken")) as refused,
                worker_name(tmp_path, name),
            ):
                pass
            assert "--host" in refused.value.next_step


def test_a_name_is_no_path(tmp_path: Path) -> None:
    with worker_name(tmp_path / "state", "../../host") as told:
        assert told == "../../host"
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


def test_a_lock_with_anything_else_in_it_is_given_a_suffix(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "worker.lock").write_bytes(b"\xff something else")
    with worker_name(tmp_path) as first:
        pass
    with worker_name(tmp_path) as again:
        assert again == first


def test_a_state_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StateFolderError, match="file"),
        worker_name(tmp_path / "file"),
    ):
        pass
