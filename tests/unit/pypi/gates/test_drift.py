"""Which of the packages that differ from the base commit's are the patch's doing."""

from importlib.metadata import PathDistribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fallback_plugins.pypi.gates.drift import drifted


def tree(place: Path, lines: tuple[str, ...], **packages: tuple[str, tuple[str, ...]]) -> Any:
    """An environment in which these are installed; what the patch moves is ``left``."""
    found = {}
    for name, (version, requires) in packages.items():
        folder = place / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        facts = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {r}" for r in requires)]
        (folder / "METADATA").write_text("\n".join(("Metadata-Version: 2.1", *facts, "")))
        found[name] = PathDistribution(folder)
    return SimpleNamespace(
        place=place,
        lines=lines,
        pinned=frozenset(),
        install=lambda: None,
        distributions=lambda: found,
        context=SimpleNamespace(
            application=SimpleNamespace(diff="-left==1.0.0\n+left==1.0.1\n"),
            advisory=SimpleNamespace(packages=lambda _: ("left",)),
        ),
    )


@pytest.mark.parametrize(
    ("requires", "asks", "is_the_patchs"),
    [
        pytest.param(("helper",), (), True, id="always"),
        pytest.param(("helper ; python_version < '3'",), (), True, id="another condition"),
        pytest.param(("helper (>dev)",), (), True, id="before PEP 508"),
        pytest.param(("helper ; extra == 'test'",), (), False, id="of an extra"),
        pytest.param(
            ('helper ; python_version > "3" and extra == "test"',), (), False, id="and more"
        ),
        pytest.param(("helper ; 'test' == extra",), ("left[test]",), False, id="can't be read"),
        pytest.param(
            ("helper ; extra == 'a_test'",), ("left [docs, A-Test] ~=1.0",), True, id="asked for"
        ),
        pytest.param(("helper ; extra == 'test'",), ("left[docs]",), False, id="another extra"),
        pytest.param(
            ("left[test] ; extra == 'all'", "helper ; extra == 'test' or extra == 'docs'"),
            ("left[all]",),
            True,
            id="by another extra",
        ),
        pytest.param(
            ("left[test] ; extra == 'all'", "helper ; extra == 'test'"), (), False, id="by no extra"
        ),
    ],
)
def test_what_a_moved_package_requires_with_an_extra_is_moved_where_that_is_asked_for(
    tmp_path: Path, requires: tuple[str, ...], asks: tuple[str, ...], is_the_patchs: bool
) -> None:
    """Packages publish what they are tested with, and a project is tested with the same."""
    here, there = (
        tree(tmp_path / left, (f"left=={left}", *asks), left=(left, requires), helper=(helper, ()))
        for left, helper in (("1.0.1", "1.1"), ("1.0.0", "1.0"))
    )
    # What the lines ask for is alike in both but for the release, which the patch names.
    assert drifted(here, there) == (() if is_the_patchs else ("helper (1.1, there 1.0)",))


def test_an_extra_that_an_installed_package_asks_for_is_asked_for(tmp_path: Path) -> None:
    requires = ("helper ; extra == 'test'",)
    here, there = (
        tree(
            tmp_path / left,
            (),
            left=(left, requires),
            helper=(helper, ()),
            other=("1.0", ("left[test]",)),
        )
        for left, helper in (("1.0.1", "1.1"), ("1.0.0", "1.0"))
    )
    assert drifted(here, there) == ()
