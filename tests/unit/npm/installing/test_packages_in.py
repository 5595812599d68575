"""What is read of the packages that npm's clients installed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fallback_plugins.npm.gates.drift import drifted
from fallback_plugins.npm.installing.modules_layer import packages_in

ASKS = {"tape": "^5.0.0"}


def installed(entry: Path, **packages: dict[str, Any]) -> Any:
    """A project in which these are installed, without a lock; what the patch moves is ``left``."""
    for name, facts in packages.items():
        manifest = entry / "tree" / "node_modules" / name / "package.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps(facts))
    return SimpleNamespace(
        key=entry.name,
        context=SimpleNamespace(
            application=SimpleNamespace(diff='-"left": "1.0.0"\n+"left": "1.0.1"\n'),
            advisory=SimpleNamespace(packages=lambda _: ("left",)),
        ),
        found=lambda: SimpleNamespace(of_day=True),
        packages=lambda: packages_in(entry),
    )


@pytest.mark.parametrize(
    ("section", "is_the_patchs"),
    [
        ("dependencies", True),
        ("optionalDependencies", True),
        ("peerDependencies", True),
        ("devDependencies", False),
    ],
)
def test_what_a_moved_package_was_developed_with_is_not_moved_by_the_patch(
    tmp_path: Path, section: str, is_the_patchs: bool
) -> None:
    """Packages publish what they are developed with: the test tools of half a registry, and so ours."""
    here, there = (
        installed(
            tmp_path / left,
            left={"version": left, section: ASKS},
            tape={"version": tape},
        )
        for left, tape in (("1.0.1", "5.9.0"), ("1.0.0", "5.8.1"))
    )
    assert drifted(here, there) == ([] if is_the_patchs else ["tape (5.9.0, there 5.8.1)"])
