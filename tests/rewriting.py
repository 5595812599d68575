"""Test modules are rewritten once, before workers start.

pytest rewrites the assertions of each module and keeps the bytecode. In a clean clone nothing is kept yet,
and every worker rewrote every module, at the same time: 7 CPU s each.
"""

from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_once(config: pytest.Config, folder: Path) -> int:
    """Of the test modules below ``folder``, those that were not kept, as pytest itself keeps them."""
    made = 0
    for module in sorted(folder.rglob("test_*.py")):
        kept = rewrite.get_cache_dir(module) / (module.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(module, kept) is None and rewrite.try_makedirs(kept.parent):
            source, code = rewrite._rewrite_test(module, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)
            made += 1
    return made
