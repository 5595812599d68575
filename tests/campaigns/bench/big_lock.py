"""A repository of 2,000 locked packages and 500 advisories about them, made up the same every time.

Half of the advisories cover what is locked; of those, half are fixed within the asked-for range and half
by a major release. Every package but the direct ones is asked for by one or two before it.
"""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PACKAGES = 2_000
DIRECT = 100
ADVISORIES = 500

_INDEX = "https://index.example"
_SHA512 = "sha512-" + "A" * 86 + "=="
_SHA256 = "sha256:" + "0" * 64


def npm(place: Path) -> str:
    """package.json and package-lock.json, version 3. Gives the lock's name."""
    versions, asks = _graph()
    specs = {name: f"^{version}" for name, version in versions.items()}
    direct = {name: specs[name] for name in list(versions)[:DIRECT]}
    manifest = {"name": "target", "version": "1.0.0", "dependencies": direct}
    packages: dict[str, Any] = {"": manifest}
    for name, version in versions.items():
        packages[f"node_modules/{name}"] = {
            "version": version,
            "resolved": f"{_INDEX}/{name}/-/{name}-{version}.tgz",
            "integrity": _SHA512,
            "license": "MIT",
            "dependencies": {asked: specs[asked] for asked in asks[name]},
            "engines": {"node": ">=12"},
        }
    lock = {"name": "target", "version": "1.0.0", "lockfileVersion": 3, "requires": True}
    (place / "package.json").write_text(json.dumps(manifest, indent=2) + "\n")
    (place / "package-lock.json").write_text(json.dumps({**lock, "packages": packages}, indent=2))
    return "package-lock.json"


def uv(place: Path) -> str:
    """pyproject.toml and uv.lock. Gives the lock's name."""
    versions, asks = _graph()
    direct = list(versions)[:DIRECT]
    requirements = [f"{name}>={versions[name]}" for name in direct]
    metadata = ", ".join(f'{{ name = "{it}", specifier = ">={versions[it]}" }}' for it in direct)
    project = ['name = "target"', 'version = "1.0.0"', 'requires-python = ">=3.11"']
    root = [
        *("[[package]]", *project[:2], 'source = { virtual = "." }', *_named(direct)),
        *("", "[package.metadata]", f"requires-dist = [{metadata}]"),
    ]
    lines = ["version = 1", "revision = 3", project[2], "", *root]
    for name, version in versions.items():
        file = f"{_INDEX}/packages/{name.replace('-', '_')}-{version}"
        lines += ["", "[[package]]", f'name = "{name}"', f'version = "{version}"']
        lines += [f'source = {{ registry = "{_INDEX}/simple" }}', *_named(asks[name])]
        lines += [
            f'sdist = {{ url = "{file}.tar.gz", hash = "{_SHA256}", size = 1 }}',
            "wheels = [",
        ]
        lines += [f'    {{ url = "{file}-py3-none-any.whl", hash = "{_SHA256}", size = 1 }},', "]"]
    manifest = ["[project]", *project, f"dependencies = {requirements}"]
    (place / "pyproject.toml").write_text("\n".join(manifest) + "\n")
    (place / "uv.lock").write_text("\n".join(lines) + "\n")
    return "uv.lock"


def advisories(place: Path, ecosystem: str) -> int:
    """A folder of OSV records. Gives how many packages they make affected."""
    versions, _asks = _graph()
    place.mkdir()
    names = list(versions)[:: PACKAGES // ADVISORIES]
    for number, name in enumerate(names):
        record = _record(number, ecosystem, name, versions[name])
        (place / f"{record['id']}.json").write_text(json.dumps(record))
    return sum(number % 2 == 0 for number in range(len(names)))


def _record(number: int, ecosystem: str, name: str, version: str) -> dict[str, Any]:
    major, minor, patch = map(int, version.split("."))
    in_range = f"{major}.{minor}.{patch + 1}"
    fixed = in_range if number % 4 else f"{major + 1}.0.0"
    below = f"{major}.{minor}.0"
    kind = "SEMVER" if ecosystem == "npm" else "ECOSYSTEM"
    covering = [{"introduced": "0"}, {"fixed": fixed}]
    elsewhere = [{"introduced": "0"}, {"fixed": below if patch else version}]
    old = [f"0.{minor}.{patch}" for minor in range(10) for patch in range(5)]
    return {
        "schema_version": "1.7.0",
        "id": f"BENCH-2026-{number:04}",
        "modified": "2026-01-01T00:00:00Z",
        "aliases": [f"CVE-2026-{number:05}"],
        "summary": "A record for benchmarks.",
        "details": "What is wrong, and how to notice it. " * 40,
        "affected": [
            {
                "package": {"ecosystem": ecosystem, "name": name},
                "ranges": [{"type": kind, "events": elsewhere if number % 2 else covering}],
                # PyPI's records list their versions; GitHub's for npm don't.
                "versions": [] if ecosystem == "npm" else old,
            }
        ],
        "references": [{"type": "WEB", "url": f"{_INDEX}/{part}"} for part in range(5)],
    }


def _graph() -> tuple[Mapping[str, str], Mapping[str, list[str]]]:
    """Versions by name, and who asks for whom: no cycles, everything within reach of the root."""
    chance = random.Random(2_000)
    names = [f"package-{number:04}" for number in range(PACKAGES)]
    versions = {
        name: f"{chance.randint(1, 9)}.{chance.randint(0, 20)}.{chance.randint(0, 9)}"
        for name in names
    }
    asks: dict[str, list[str]] = {name: [] for name in names}
    for number in range(DIRECT, PACKAGES):
        for dependent in {chance.randrange(number), chance.randrange(number)}:
            asks[names[dependent]].append(names[number])
    return versions, asks


def _named(names: list[str]) -> list[str]:
    return (
        ["dependencies = [", *(f'    {{ name = "{name}" }},' for name in names), "]"]
        if names
        else []
    )


KINDS: Mapping[str, Callable[[Path], str]] = {"npm": npm, "PyPI": uv}
