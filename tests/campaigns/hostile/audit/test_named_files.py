"""A disk that fails is neither bad input nor damage, whatever was to be read or written."""

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_audit.disk_errors import failure_of
from fallback_tier.cli import exit_codes
from fallback_tier.cli.ending import ended
from fallback_tier.errors import ConfigurationError
from tests.campaigns.hostile.audit.campaign import Ask, Skipped
from tests.campaigns.hostile.audit.named_files import READ, WRITTEN, named_files


def test_a_disk_that_fails_is_said_with_the_file_and_why(tmp_path: Path) -> None:
    try:
        tally = named_files(Ask(1, tmp_path))
    except Skipped as reason:
        pytest.skip(str(reason))
    assert sorted(tally.counts) == sorted(f"{name}: disk" for name in (*READ, *WRITTEN))


@pytest.mark.parametrize("words", [("cache", "list", "--json"), ("audit", "verify", "--json")])
def test_a_full_disk_behind_standard_output_is_exit_code_6(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Python itself would notice at exit, and end with 120."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    program = str(Path(sys.executable).with_name("fallback-tier"))
    command = [program, *words, "--state-dir", str(tmp_path)]
    environment = {"HOME": str(tmp_path), "PATH": os.defpath}
    with full.open("wb") as out:
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode == exit_codes.ENVIRONMENT, done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.stderr.startswith("fallback-tier: "), done.stderr
    assert done.stderr.count("fallback-tier: ") == 1, done.stderr


def test_what_nobody_explained_is_the_systems_where_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert ended(full, as_json=False) == exit_codes.ENVIRONMENT
    assert ended(OSError(errno.EIO, "x", "a.db"), as_json=False) == exit_codes.ENVIRONMENT
    message = capsys.readouterr().err
    assert "No space left on device." in message
    assert "a.db: Input/output error." in message
    assert "defect" not in message


def test_bad_input_stays_bad_input() -> None:
    for number in (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.EROFS, errno.ELOOP):
        assert failure_of(OSError(number, os.strerror(number))) is None
    assert failure_of(ValueError("no file")) is None
    wrong = ConfigurationError("no such file.", next_step="Check the path.")
    assert ended(wrong, as_json=False) == exit_codes.BAD_INPUT
