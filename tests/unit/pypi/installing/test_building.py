"""What uv has no wheel of is read from its own words."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fallback_plugins.pypi.installing import building
from fallback_plugins.pypi.installing.building import in_words, unbuilt
from fallback_plugins.pypi.manifests.indexes import Indexes


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "Because parsimonious==0.9.0 has no usable wheels and web3==6.0.0 depends\n      on it",
            [("parsimonious", "==0.9.0")],
        ),
        ("Because lru-dict>=1.1.6,<=1.1.8 has no usable wheels", [("lru-dict", ">=1.1.6,<=1.1.8")]),
        ("Because all versions of PyEthash have no usable wheels", [("pyethash", "")]),
        ("all of: numpy==1.10.0 numpy==1.10.3 have no usable wheels", [("numpy", "==1.10.3")]),
        (
            "a>=1 has no usable wheels and b[x]==2 has no usable wheels",
            [("b", "==2"), ("a", ">=1")],
        ),
        ("a==1 has no usable wheels; a==1 has no usable wheels", [("a", "==1")]),
        ("a==x! has no usable wheels", []),
        ("tensorflow==1.0.0 has no wheels with a matching Python ABI tag", []),
        (
            "Because a{os_name != 'nt' and python_full_version < '3.13'}==1 has no usable wheels",
            [("a", "==1")],
        ),
        ("a{os_name != 'x b==2 has no usable wheels'}==1 is there", []),
        (f"{'{' * 300}a==1 has no usable wheels", []),
        ("a===1 has no usable wheels", [("a", "===1")]),
        (f"{'a' * 200}==1 has no usable wheels", [("a" * 200, "==1")]),
        (f"{'a' * 201}==1 has no usable wheels", []),
        (f"a{','.join(['!=1'] * 300)} has no usable wheels", []),
        ("", []),
    ],
)
def test_what_has_no_wheel(message: str, found: list[tuple[str, str]]) -> None:
    assert list(unbuilt(message)) == found


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("a", "1.0"), "a 1.0"),
        (("a", "==1.0"), "a==1.0"),
        (("a", "!=1,<2"), "a!=1,<2"),
        (("a", ""), "a"),
    ],
)
def test_what_was_not_built_is_told_as_it_is_written(asked: tuple[str, str], words: str) -> None:
    assert in_words(asked) == words


def test_no_more_than_so_many_listings_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository decides what uv says, and with it how often: each listing is a run of uv."""
    asked: list[str] = []
    lists_none: Callable[..., None] = lambda _, name, *__: asked.append(name)  # noqa: E731
    monkeypatch.setattr(building, "listed", lists_none)
    context = cast("Any", SimpleNamespace(cache=tmp_path, report=print))
    tried = building.Building(context, Indexes)
    refusals = [f"a{number} has no usable wheels" for number in range(building.MAX_LISTED + 5)]
    for python in ("one", "other"):
        tried.build(Path(python), "", refusals)
    assert len(asked) == building.MAX_LISTED
