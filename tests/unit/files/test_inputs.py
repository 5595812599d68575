"""Reading what a person or a program gives ends, and it has one meaning."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_tier.files.inputs import DuplicateKeyError, check_keys, open_named, parse_json


def test_open_named_reads_a_file_and_its_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_named(tmp_path / name) as file:
            assert file.read() == b"content"


def test_open_named_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="it is a named pipe, not a regular file"):
            open_named(tmp_path / name)


def test_open_named_reads_no_socket_device_or_folder(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="it is a socket"):
            open_named(tmp_path / "socket")
    with pytest.raises(OSError, match="it is a device"):
        open_named(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        open_named(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_named(tmp_path / "nothing")


def test_open_named_reads_nothing_from_the_null_device() -> None:
    with open_named(Path(os.devnull)) as file:
        assert file.read() == b""


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_open_named_reads_this_processes_own_descriptors(name: str) -> None:
    program = (
        "import sys; from pathlib import Path; from fallback_tier.files.inputs import open_named\n"
        f"sys.stdout.buffer.write(open_named(Path({name!r})).read())"
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"piped", capture_output=True)
    assert done.stdout == b"piped", done.stderr


@pytest.mark.parametrize(
    "text",
    ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "c": 2, "a": 3}}]', '{"a": 1, "\\u0061": 2}'],
)
def test_a_key_twice_is_refused_by_name(text: str) -> None:
    for read in (parse_json, check_keys):
        with pytest.raises(DuplicateKeyError, match="the key 'a' twice"):
            read(text)


def test_the_same_key_in_two_objects_is_none_twice() -> None:
    assert parse_json('[{"a": 1}, {"a": {"a": 2}}]') == [{"a": 1}, {"a": {"a": 2}}]
    check_keys("not JSON")
    check_keys("[" * 100_000)
