"""``fallback-tier demo`` with less than it needs on the machine: its extra, or node."""

import io
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from rich.console import Console

from fallback_tier.demo import show
from fallback_tier.errors import ConfigurationError
from tests.kinds import OfKind


def test_without_its_extra_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vcr", None)
    kept = tmp_path / "kept"
    with pytest.raises(ConfigurationError, check=OfKind("no_vcrpy")) as caught:
        show.run(Namespace(keep=str(kept)))
    assert "fallback-tier[demo]" in caught.value.next_step
    assert not kept.exists()


@pytest.mark.parametrize(
    ("programs", "scenes"), [((), [show.NPM]), (("node",), [show.NPM]), (("node", "npm"), [])]
)
def test_what_needs_node_is_left_out_without_it(
    programs: tuple[str, ...],
    scenes: list[show.Scene],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in programs:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(show.left_out()) == scenes


@pytest.mark.sandbox
def test_the_other_scenes_are_played_and_the_rest_is_named(tmp_path: Path) -> None:
    """Those that ask no registry; the retry, its record and the tampering among them."""
    shown = io.StringIO()
    demo = show.Demo(tmp_path, Console(file=shown, width=120), without=(show.NPM, show.PYTHON))
    assert demo.run() == 0
    folders = {path.name for path in tmp_path.iterdir() if path.name.startswith("demo-")}
    assert folders == {"demo-replay", "demo-retry"}
    for scene in (show.NPM, show.PYTHON):
        assert f"left out: {scene.title}" in shown.getvalue()
