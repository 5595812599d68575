"""Names of files: every byte comes through git; what no patch can name is shown and left alone."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.errors import RepositoryError
from fallback_tier.gates.trees.isolation import inspect_repository, odd_name, printable, unquoted
from fallback_tier.inspection import look_at
from fallback_tier.repo import Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.repository import git
from tests.kinds import OfKind

CLIENTS = SubprocessClients()

#: Name on the disk → as it is shown, and whether it is odd.
NAMES: dict[bytes, tuple[str, bool]] = {
    b"plain.txt": ("plain.txt", False),
    b"a space.txt": ("a space.txt", False),
    "ünï/café.txt".encode(): ("ünï/café.txt", False),
    "日本語.txt".encode(): ("日本語.txt", False),
    b"caf\xe9.txt": ("caf\\xe9.txt", True),
    b"\xff\xfe/\x80.txt": ("\\xff\\xfe/\\x80.txt", True),
    b"tab\there": ("tab\there", True),
    b"line\nbreak": ("line\nbreak", True),
    b"bell\x07\x1b[31m": ("bell\x07\x1b[31m", True),
    b'quote"d': ('quote"d', True),
    b"back\\slash": ("back\\slash", True),
    b"literal\\xe9": ("literal\\xe9", True),
    "zero\u200bwidth".encode(): ("zero\u200bwidth", True),
}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    for name in NAMES:
        place = root / os.fsdecode(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"left==1.0.0\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "base")
    return root


def test_all_names_are_told_apart(repo: Path) -> None:
    facts = inspect_repository(repo, CLIENTS)
    assert set(facts.tracked_files) == {shown for shown, _ in NAMES.values()}
    assert len(facts.tracked_files) == len(NAMES)
    assert set(facts.odd_names) == {shown for shown, odd in NAMES.values() if odd}
    assert facts.dirty == ()


def test_a_changed_file_is_named_as_it_is(repo: Path) -> None:
    for name in NAMES:
        (repo / os.fsdecode(name)).write_bytes(b"mine\n")
    assert set(inspect_repository(repo, CLIENTS).dirty) == {shown for shown, _ in NAMES.values()}


def test_a_users_own_setting_changes_nothing(repo: Path) -> None:
    before = inspect_repository(repo, CLIENTS).tracked_files
    git(repo, "config", "core.quotePath", "false")
    assert inspect_repository(repo, CLIENTS).tracked_files == before


def test_what_is_oddly_named_is_not_read_and_the_reason_is_the_name(repo: Path) -> None:
    context = look_at(repo, CLIENTS, Settings())
    for shown, odd in NAMES.values():
        if not odd:
            assert context.read_text(shown) == "left==1.0.0\n"
            continue
        with pytest.raises(RepositoryError, check=OfKind("not_utf8_name")) as reported:
            context.read_text(shown)
        assert "No such file" not in reported.value.problem
        assert context.glimpse(shown) == "left==1.0.0\n"  # what is in it can be seen


def test_a_repository_in_a_folder_that_is_no_text(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"r\xe9po")
    root.mkdir()
    git(root, "init", "-q")
    with pytest.raises(RepositoryError, check=OfKind("path_not_utf8"), match=r"r\\xe9po"):
        inspect_repository(root, CLIENTS)


@given(st.binary(min_size=1, max_size=30))
def test_what_is_shown_can_be_recorded(name: bytes) -> None:
    real = name.decode("utf-8", "surrogateescape")
    printable(real).encode()
    odd = odd_name(real)
    if odd is not None:
        odd.problem.encode()
    assert (printable(real) == real) == (real.encode("utf-8", "ignore") == name)


@given(st.binary(min_size=1, max_size=30))
def test_quoting_is_undone(name: bytes) -> None:
    quoted = "".join(f"\\{byte:03o}" for byte in name)
    assert os.fsencode(unquoted(f'"{quoted}"')) == name


@pytest.mark.parametrize(
    ("quoted", "name"),
    [('"\\a\\b\\t\\n\\v\\f\\r\\"\\\\"', '\a\b\t\n\v\f\r"\\'), ("plain", "plain"), ('"a b"', "a b")],
)
def test_letters_are_undone(quoted: str, name: str) -> None:
    assert unquoted(quoted) == name
