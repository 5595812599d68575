"""What a plugin raises is its own; what the machine lacks, and errors of the tree, stay what they are."""

import errno
import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Protocol

import pytest

from fallback_tier import entry_points
from fallback_tier.entry_points import Mounted, guarded, mounted
from fallback_tier.errors import AdvisoryError, FallbackError, PluginError
from tests.kinds import OfKind

OWNER = Mounted(EntryPoint("toy", "toy_plugin:build", "fallback_tier.ecosystems"))


def raising(error: Exception) -> Callable[[], None]:
    def hook() -> None:
        raise error

    return hook


def test_what_it_returns_is_returned() -> None:
    assert OWNER.call("hook", "-".join, ["a", "b"]) == "a-b"


@pytest.mark.parametrize(
    "error",
    [
        AdvisoryError("a", next_step="b"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        PermissionError(errno.EACCES, "no"),
    ],
)
def test_these_are_no_plugins_own(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        OWNER.call("hook", raising(error))
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyError("x"), FileNotFoundError(errno.ENOENT, "x"), RecursionError()],
)
def test_these_are(error: Exception) -> None:
    with pytest.raises(PluginError, check=OfKind("raised"), match=r"'toy' .* hook: ") as caught:
        OWNER.call("hook", raising(error))
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_a_person_who_stops_it_is_obeyed(error: type[BaseException]) -> None:
    def hook() -> None:
        raise error

    with pytest.raises(error):
        OWNER.call("hook", hook)


@pytest.mark.parametrize("code", [None, 0, 7])
def test_a_plugin_may_not_end_a_fix(code: int | None) -> None:
    """``sys.exit(0)`` in a plugin would look like a fix that went well."""

    def leave() -> None:
        sys.exit(code)

    with pytest.raises(PluginError, match="SystemExit"):
        OWNER.call("hook", leave)
    whole = Whole()
    whole.parse = lambda text: sys.exit(code)  # type: ignore[method-assign]
    hooks = guarded(whole, OWNER, Hooks)
    with pytest.raises(PluginError, match="SystemExit"):
        hooks.parse("x")


class Hooks(Protocol):
    @property
    def name(self) -> str: ...

    def parse(self, text: str) -> int: ...


class Whole:
    name = "toy"

    def parse(self, text: str) -> int:
        return int(text)


def test_a_hook_may_say_that_its_input_is_none() -> None:
    plugin = guarded(Whole(), OWNER, Hooks, passes={"parse": ValueError})
    assert (plugin.name, plugin.parse("7")) == ("toy", 7)
    with pytest.raises(ValueError, match="invalid literal") as caught:
        plugin.parse("x")
    assert not isinstance(caught.value, FallbackError)
    with pytest.raises(PluginError, check=OfKind("raised"), match=r"\bparse: TypeError"):
        plugin.parse(None)


def test_a_hook_that_is_missing_is_missed_at_once() -> None:
    with pytest.raises(PluginError, check=OfKind("raised"), match=r"\border: AttributeError"):
        guarded(Whole(), OWNER, Hooks, optional=["order"])


def test_a_hook_gives_what_core_goes_on_with() -> None:
    assert guarded(Whole(), OWNER, Hooks, gives={"parse": (int,)}).parse("7") == 7
    with pytest.raises(PluginError, check=OfKind("bad_return"), match=r"\bparse: .* int\b"):
        guarded(Whole(), OWNER, Hooks, gives={"parse": (str,)}).parse("7")


class Half(Hooks):
    name = "toy"


def test_a_hook_that_is_only_inherited_is_missed_too() -> None:
    """The protocol's own body answers None, to which all versions would be equal."""
    with pytest.raises(PluginError, check=OfKind("hook_missing"), match=r"\bparse: Half "):
        guarded(Half(), OWNER, Hooks)


def test_two_of_one_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Which of them is meant nobody can say; the same one, found twice, is one."""
    group = "fallback_tier.test_group"
    for dist, value in (("one", "a:b"), ("other", "a:b"), ("third", "c:d")):
        facts = tmp_path / f"{dist}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[{group}]\ntoy = {value}\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry_points.mounted.cache_clear()
    with pytest.raises(PluginError, check=OfKind("name_taken")):
        mounted(group)
    (tmp_path / "third-1.0.dist-info" / "entry_points.txt").write_text("")
    assert list(mounted(group)) == ["toy"]
    entry_points.mounted.cache_clear()
