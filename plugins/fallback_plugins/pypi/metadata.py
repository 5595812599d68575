"""A project's own metadata, as an installation would leave it, without running its build.

Programs ask for their own version and plugins (``importlib.metadata``), and their tests with them.
Building the project would run its code outside the sandbox; what stands in ``[project]`` (PEP 621) is
enough to write the record that installers write (core metadata, entry points specification).
"""

import re
from collections.abc import Mapping
from typing import Any

from packaging.utils import canonicalize_name

#: Where a version is computed at build time, something must stand: older than every release.
DYNAMIC_VERSION = "0"

_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_GROUPS = {"scripts": "console_scripts", "gui-scripts": "gui_scripts"}


def own_metadata(project: Mapping[str, Any]) -> dict[str, str]:
    """Files of ``NAME-VERSION.dist-info`` by relative path; none where the project has no name."""
    name, version = project.get("name"), project.get("version", DYNAMIC_VERSION)
    if not isinstance(name, str) or not _PROJECT_NAME.fullmatch(name):
        return {}
    if not isinstance(version, str) or not re.fullmatch(r"[\w.!+-]+", version):
        version = DYNAMIC_VERSION
    folder = f"{canonicalize_name(name).replace('-', '_')}-{version}.dist-info"
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/entry_points.txt": _entry_points(project),
    }


def _entry_points(project: Mapping[str, Any]) -> str:
    groups = {group: project.get(key) for key, group in _GROUPS.items()}
    declared = project.get("entry-points")
    groups |= declared if isinstance(declared, dict) else {}
    lines: list[str] = []
    for group, points in groups.items():
        if isinstance(points, dict) and points:
            lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    return "\n".join(lines)
