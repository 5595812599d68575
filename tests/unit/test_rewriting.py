"""Workers find every test module rewritten."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.rewriting import rewrite_once
from tests.waiting import PATIENCE_S


def test_what_is_kept_is_what_pytest_reads(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    module = tmp_path / "below" / "test_it.py"
    module.parent.mkdir()
    module.write_text("def test_it():\n    one = [1]\n    assert one == [2]\n")
    (tmp_path / "pytest.ini").touch()
    assert rewrite_once(pytestconfig, tmp_path) == 1
    assert rewrite_once(pytestconfig, tmp_path) == 0

    kept = rewrite.get_cache_dir(module) / (module.stem + rewrite.PYC_TAIL)
    before = kept.stat().st_mtime_ns
    environ = {name: it for name, it in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert "assert [1] == [2]" in ran.stdout
    assert kept.stat().st_mtime_ns == before, "pytest has rewritten it once more"
