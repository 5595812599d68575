"""Reading what a person or a program gives ends, and it has one meaning."""

import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fallback_tier.files.inputs import (
    MAX_KEY_PARTS,
    DuplicateKeyError,
    check_keys,
    open_named,
    parse_json,
    parse_toml,
)


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


#: A key of so many parts takes the parser hours.
PARTS = 300_000


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * PARTS) + " = 1",
        "[" + " . ".join(["a"] * PARTS) + "]",
        "x = 1\n[[" + ".".join(['"a b"', "'c'"] * (PARTS // 2)) + "]]",
        "x = { " + "\t.\t".join(["é"] * PARTS) + " = 1 }",
    ],
)
def test_a_key_of_very_many_parts_is_no_toml(text: str) -> None:
    with pytest.raises(ValueError, match=rf"\b{MAX_KEY_PARTS}\b"):
        parse_toml(text)


@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, '"' * 1_000_000, "a." * 90 + " " * 1_000_000, "'" * 999_999]
)
def test_a_long_text_without_such_a_key_is_searched_once(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)


def test_ordinary_keys_are_read() -> None:
    longest = ".".join(["a"] * MAX_KEY_PARTS)
    assert parse_toml(f'version = "1.2.3"\n{longest} = 1')["version"] == "1.2.3"
    with pytest.raises(ValueError, match=rf"\b{MAX_KEY_PARTS}\b"):
        parse_toml(f"a.{longest} = 1")
