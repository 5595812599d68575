"""setup.py and setup.cfg are read once a text, and another text is read anew."""

import sys
from collections.abc import Callable
from inspect import stack

from fallback_plugins.pypi.manifests import metadata
from fallback_plugins.pypi.manifests.metadata import SetupCall, setup_call

#: Frames that are left to who asks.
_LEFT = 60


def test_another_script_is_another_call() -> None:
    texts = [f"from setuptools import setup\nsetup(name={name!r})\n" for name in ("a", "b", "a")]
    assert [setup_call(text).keywords["name"] for text in texts] == ["a", "b", "a"]


def test_what_could_not_be_read_from_deep_down_is_read_from_above() -> None:
    text = "setup(name=" + "+".join(["'a'"] * 120) + ")"
    deep = _from(sys.getrecursionlimit() - len(stack()) - _LEFT, lambda: setup_call(text))
    assert deep == SetupCall(hides_its_name=True, is_whole=False)
    assert setup_call(text).keywords["name"] == "a" * 120


def _from(levels: int, ask: Callable[[], SetupCall]) -> SetupCall:
    return _from(levels - 1, ask) if levels else ask()


def test_another_file_is_read_anew() -> None:
    texts = [f"[metadata]\nname = {name}\n" for name in ("a", "b", "a")]
    read = [dict(metadata.items(metadata.parsed(text), "metadata")) for text in texts]
    assert read == [{"name": "a"}, {"name": "b"}, {"name": "a"}]
    assert metadata.read("[metadata\n") is None
    assert metadata.parsed("[metadata\n").sections() == []
