"""`fix` of a Poetry project, with real jinja2, the real uv and a real sandbox."""

from pathlib import Path

import pytest

from tests.e2e.command import Ended, osv, repository, run
from tests.registry.store import PYPI, Store
from tests.unit.shared.locks_support import poetry_lock

pytestmark = [pytest.mark.sandbox, pytest.mark.registry("uv")]

MANIFEST = """\
[tool.poetry]
name = "pages"
version = "1.0.0"

[tool.poetry.dependencies]
python = "^3.9"
jinja2 = "{}"
iniconfig = "*"
"""


def block(name: str, version: str, asks: str = "") -> str:
    """A locked package as Poetry writes it, with the registry's own hashes."""
    files = [
        f'    {{file = "{file["filename"]}", hash = "sha256:{file["hashes"]["sha256"]}"}},\n'
        for file in Store().page(PYPI, name)["files"]
        if file["filename"].lower().startswith(f"{name}-{version}")
    ]
    return (
        f'[[package]]\nname = "{name}"\nversion = "{version}"\ndescription = ""\noptional = false\n'
        f'python-versions = ">=3.7"\nfiles = [\n{"".join(files)}]\n{asks}'
    )


def lock(iniconfig: str) -> str:
    return poetry_lock(
        block("iniconfig", iniconfig),
        block("jinja2", "3.1.4", '\n[package.dependencies]\nMarkupSafe = ">=2.0"\n'),
        block("markupsafe", "3.0.3"),
    )


#: A pin that nobody has: what is installed in part is no version that users get, so the lock alone tells.
WHOLE, IN_PART = lock("2.0.0"), lock("1.0.99")


def fixed(place: Path, command: str, asked: str, locked: str) -> Ended:
    files = {"pyproject.toml": MANIFEST.format(asked), "poetry.lock": locked}
    repo = repository(place / "repo", files)
    (place / "advisory.json").write_text(osv("jinja2", fixed="3.1.6"))
    about = ["--advisory", place / "advisory.json", "--state-dir", place / "state"]
    return run(command, repo, *about, "--json")


@pytest.mark.parametrize(
    ("locked", "told"),
    [(WHOLE, "resolved tree: jinja2 3.1.6"), (IN_PART, "pins: jinja2 3.1.6")],
    ids=["installed as a whole", "installed in part"],
)
def test_beside_a_lock_a_range_is_no_version(tmp_path: Path, locked: str, told: str) -> None:
    done = fixed(tmp_path, "fix", "^3.1.2", locked)
    verdicts = {one["gate"]: one["detail"] for one in done.json["verdicts"]}
    assert verdicts["not_vulnerable"] == told
    assert verdicts["imports"] == "import of jinja2, iniconfig: in order"
    assert (done.code, done.json["outcome"]) == (0, "verified")
    assert 'version = "3.1.6"' in (tmp_path / "repo" / "poetry.lock").read_text()
    assert (tmp_path / "repo" / "pyproject.toml").read_text() == MANIFEST.format("^3.1.2")


def test_a_lock_that_is_safe_leaves_nothing_to_plan(tmp_path: Path) -> None:
    safe = IN_PART.replace("3.1.4", "3.1.6")
    assert fixed(tmp_path, "plan", "^3.1.2", safe).code == 5
