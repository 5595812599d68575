"""What a registry lists of one package's archives of source, asked through uv: nothing is built for it."""

import json
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.installing.client import run_uv
from fallback_plugins.pypi.installing.wheel_build import SourceArchive
from fallback_plugins.pypi.manifests.groups import table_of, tables
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.pythons import minor_of
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.errors import RecipeError
from fallback_tier.gate_ports import GateContext


def listed(
    context: GateContext, name: str, spec: str, python: Path, until: str
) -> SourceArchive | None:
    """The archive of the newest release that a specifier and a day admit, for a Python.

    None: the registry lists none. Raises ToolFailedError where it does not answer, ToolMissingError.
    """
    # With what it requires said beforehand nothing is left for a build to tell.
    manifest = (
        '[project]\nname = "fallback-tier-scratch"\nversion = "0"\n'
        f'requires-python = "==3.{minor_of(python)}.*"\n'
        f"dependencies = {json.dumps([name + spec])}\n"
        f"[[tool.uv.dependency-metadata]]\nname = {json.dumps(name)}\nrequires-dist = []\n"
    )
    with scratch_folder("uv") as folder:
        (folder / "pyproject.toml").write_text(manifest, encoding="utf-8")
        # The settings stand in the manifest, which is ours: it has to be read.
        command = ["lock", "--resolution=highest", "--python", str(python)]
        done = run_uv(context, command, folder, until, {"UV_NO_CONFIG": ""})
        gating.check_reachable("uv", done, lambda: (name,))
        try:
            text = (folder / "uv.lock").read_text(encoding="utf-8") if done.ok else ""
            packages = tables(parse_toml("uv.lock", text).get("package"))
        except (OSError, RecipeError):
            return None
    for package in packages:
        found = table_of(package, "sdist")
        if package.get("name") == canonicalize_name(name) and found:
            url, digest = str(found.get("url", "")), str(found.get("hash", ""))
            file = unquote(PurePosixPath(urlsplit(url).path).name)
            registry = str(table_of(package, "source").get("registry", ""))
            return SourceArchive(name, str(package.get("version")), file, digest, url, registry)
    return None
