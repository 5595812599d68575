"""Layout of the project: its top-level entries, and names that no committed file may contain."""

import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: The promise of README and CONTRIBUTING, and what their tools read.
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "audit",
    "docs",
    "fallback_tier",
    "plugins",
    "pyproject.toml",
    "requirements.lock",
    "tests",
}

#: Public package hosts, in parts, so that this file doesn't name them. A client's configuration says
#: where its registry is; a committed file that did would override it.
REGISTRIES = {
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("registry", "npmmirror", "com"),
        ("test", "pypi", "org"),
    )
}


@cache
def committed() -> tuple[str, ...]:
    """Every file that is committed, or would be."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip("this is not a checkout")
    return tuple(path for path in done.stdout.split("\0") if path and (ROOT / path).is_file())


def named_in(data: bytes, names: set[str]) -> set[str]:
    return {name for name in names if name.encode() in data}


def test_the_top_level() -> None:
    assert {path.partition("/")[0] for path in committed()} == TOP_LEVEL
    assert {path for path in committed() if path.startswith((".ci/", "docs/"))} >= {
        ".ci/run",
        "docs/adr/README.md",
        "docs/adr/0011-rag-bypass-on-retry.md",
    }


def test_the_packages_are_where_the_build_looks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["fallback_tier", "plugins/fallback_plugins", "audit/fallback_audit"]
    for package in packages:
        assert (ROOT / package / "__init__.py").is_file()
        assert (ROOT / package / "py.typed").is_file()
        # A folder of the target with this name would be run by `python -m`.
        assert not list((ROOT / package).rglob("__main__.py"))
    assert not (ROOT / "plugins" / "__init__.py").exists()
    assert not (ROOT / "audit" / "__init__.py").exists()


def test_no_committed_file_names_a_registry() -> None:
    for path in committed():
        assert named_in((ROOT / path).read_bytes(), REGISTRIES) == set(), path


def test_a_registry_would_be_found() -> None:
    for host in REGISTRIES:
        assert host in named_in(f'"resolved": "https://{host}/a/-/a-1.tgz"'.encode(), REGISTRIES)


def test_no_committed_file_names_this_checkout() -> None:
    for path in committed():
        assert str(ROOT).encode() not in (ROOT / path).read_bytes(), path


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    pages = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    assert len(pages) >= 15
    for page in pages:
        assert page in index
