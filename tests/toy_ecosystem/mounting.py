"""Mounts the plugin as an installed distribution: its package, and a ``.dist-info`` on the path."""

import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent


def mount(place: Path, ecosystem: str | None = None, gates: str | None = None) -> str:
    """PYTHONPATH for a process in which the plugin is installed in ``place``. The entry points are those of
    pyproject.toml; ``ecosystem`` and ``gates`` name others in their place."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    points: dict[str, dict[str, str]] = project["entry-points"]
    if ecosystem is not None:
        points["fallback_tier.ecosystems"] = {"Almanac": ecosystem}
    if gates is not None:
        points["fallback_tier.gates"] = {"scenario": gates}
    shutil.copytree(HERE / "almanac_plugin", place / "almanac_plugin")
    name, version = project["name"], project["version"]
    facts = place / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "entry_points.txt").write_text("".join(map(_section, points.items())))
    return os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))


def _section(group: tuple[str, Mapping[str, str]]) -> str:
    return f"[{group[0]}]\n" + "".join(f"{name} = {value}\n" for name, value in group[1].items())
