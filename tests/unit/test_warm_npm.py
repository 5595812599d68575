"""npm whose modules are compiled once says and writes what npm does, and takes what was kept."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.choice import a_choice
from tests.registry import Registry, Universe, serve
from tests.warm_npm import real_npm, warm_npm

pytestmark = pytest.mark.skipif(real_npm() is None, reason="npm is not on PATH")

MANIFEST = '{"name": "app", "version": "1.0.0", "dependencies": {"mid": "^1.0.0"}}\n'

#: Commands of the product, one after the other in one folder. These run with the suite.
FEW = (
    ("install", "--package-lock-only", "--ignore-scripts"),
    ("run", "say"),
    ("view", "@acme/no-such-package"),
    ("--version",),
)
#: Two of these fail: what nobody has, and a version that it does not have.
ALL = (
    *FEW[:1],
    ("ci",),
    ("view", "mid@>=0.0.0", "name", "version", "dependencies", "--json"),
    ("pack", "mid@1.0.0"),
    *FEW[1:],
    ("install", "leaf@9.9.9"),
)

Commands = tuple[tuple[str, ...], ...]


def universe() -> Universe:
    found = Universe().npm("leaf", "1.0.0").npm("leaf", "1.1.0")
    return found.npm("mid", "1.0.0", {"leaf": "^1.0.0"}, deprecated="no more")


def said(
    npm: str, registry: Registry, folder: Path, commands: Commands
) -> list[tuple[int, str, str]]:
    """What npm answers, and what the folder has after each command."""
    folder.mkdir()
    script = MANIFEST.replace(' "dep', ' "scripts": {"say": "env | cut -d = -f 1 | sort"}, "dep')
    (folder / "package.json").write_text(script)
    environ = {
        **os.environ,
        **registry.environ,
        "npm_config_cache": str(folder.with_suffix(".npm")),
    }
    environ["NPM_CONFIG_CACHE"] = environ["npm_config_cache"]
    environ["npm_config_@acme:registry"] = f"{registry.url}/acme/"  # a shell would drop the name
    found = []
    for command in commands:
        done = subprocess.run(
            [npm, *command], cwd=folder, env=environ, capture_output=True, text=True, timeout=120
        )
        lock = (folder / "package-lock.json").read_text()
        told = re.sub(r"\S*/_logs/\S+|in \d+m?s", "…", done.stdout + done.stderr)
        told = told.replace(str(folder), "HERE").replace(npm, "NPM")
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        found.append((done.returncode, told, lock + "\n".join(files)))
    return found


@pytest.mark.parametrize("commands", a_choice(((FEW,), (ALL,)), step=2), ids=["few", "all"])
def test_it_says_and_writes_what_npm_does(tmp_path: Path, commands: Commands) -> None:
    own = real_npm()
    assert own is not None
    path = warm_npm(tmp_path / "warm", os.environ["PATH"].partition(os.pathsep)[2])
    warm = shutil.which("npm", path=path)
    assert warm == str(tmp_path / "warm/bin/npm")
    with serve(universe()) as registry:
        as_it_is = said(own, registry, tmp_path / "own", commands)
        first = said(warm, registry, tmp_path / "first", commands)
        second = said(warm, registry, tmp_path / "second", commands)
        kept = tmp_path / "warm/kept"
        written = {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}
        again = said(warm, registry, tmp_path / "again", commands)
    failing = [command for command in commands if command[-1].endswith(("package", "9.9.9"))]
    assert [code for code, *_ in as_it_is] == [int(command in failing) for command in commands]
    of_acme = commands.index(("view", "@acme/no-such-package"))
    assert "/acme/@acme%2fno-such-package" in as_it_is[of_acme][1]
    assert first == as_it_is
    assert second == as_it_is
    assert again == as_it_is
    # Nothing was compiled anew: all of it was there, and V8 took it. The version is read from a file.
    assert {file.name: file.stat().st_mtime_ns for file in kept.iterdir()} == written
    verbs = Counter(name.partition(".")[0] for name in written)
    assert verbs.keys() == {command[0] for command in commands} - {"--version"}
    assert min(verbs.values()) > 1  # the modules, and what V8 made of them


def test_the_tests_run_it() -> None:
    found = shutil.which("npm")
    assert found is not None
    assert found != real_npm()
    assert b"compiled.cjs" in Path(found).read_bytes()


@pytest.mark.parametrize("npm", ["", "#!/bin/sh\n"], ids=["none", "of another kind"])
def test_without_the_usual_npm_all_stays(tmp_path: Path, npm: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("npm", npm), ("node", "#!/bin/sh\n")):
        if text:
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
    assert warm_npm(tmp_path / "warm", str(programs)) == str(programs)
