"""The made-up repository: what the plan's figures rest on."""

import json
import tomllib
from pathlib import Path

import pytest

from fallback_tier.advisory import bundle, is_affected, load_advisories, lowest_fixed_version
from tests.campaigns.bench.big_lock import ADVISORIES, PACKAGES, advisories, npm, uv


def _npm(place: Path) -> dict[str, str]:
    packages = json.loads((place / npm(place)).read_text())["packages"]
    return {key.removeprefix("node_modules/"): it["version"] for key, it in packages.items() if key}


def _uv(place: Path) -> dict[str, str]:
    packages = tomllib.loads((place / uv(place)).read_text())["package"]
    asked = {it["name"] for package in packages for it in package.get("dependencies", ())}
    assert asked == {package["name"] for package in packages} - {"target"}
    return {it["name"]: it["version"] for it in packages if it["name"] != "target"}


@pytest.mark.parametrize(("ecosystem", "make"), [("npm", _npm), ("PyPI", _uv)])
def test_half_of_the_advisories_are_about_what_is_locked(
    tmp_path: Path, ecosystem: str, make: object
) -> None:
    assert callable(make)
    versions = make(tmp_path)
    assert len(versions) == PACKAGES
    affected = advisories(tmp_path / "advisories", ecosystem)
    loaded = load_advisories([tmp_path / "advisories"])
    assert (len(loaded.advisories), loaded.skipped) == (ADVISORIES, ())
    record = bundle(loaded.advisories)
    found = [name for name, it in versions.items() if is_affected(record, ecosystem, name, it)]
    assert len(found) == affected == ADVISORIES // 2
    assert all(lowest_fixed_version(record, ecosystem, it, versions[it]) for it in found)
