"""The server of forked commands imports what a command has, and nothing that a fork could not carry."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.e2e import forked

RARE = "fallback_tier.cli.completion"


def test_only_what_may_be_shared_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(sys.modules)
    for name in (
        *("anthropic.made_up", "fallback_tier.made_up"),
        *("fallback_plugins.solved_examples.made_up", "made_up", "numpy.made_up"),
    ):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert forked._to_share(before) == ["anthropic.made_up", "fallback_tier.made_up"]


def test_what_a_command_imported_the_next_ones_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, RARE, raising=False)
    told = tmp_path / "imported"
    forked._learn(told)  # of one that was killed there is no file
    told.write_text(f"fallback_tier.is_not_there\n{RARE}")
    monkeypatch.setattr(forked.gc, "freeze", lambda: None)
    forked._learn(told)
    assert RARE in sys.modules
