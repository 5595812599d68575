"""What is shipped: the wheel's contents, and the wheel at work in a hostile folder."""

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email import message_from_string
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import osv, repository, run
from tests.e2e.wheel import BIN, ROOT, Installed

PACKAGES = {"fallback_tier", "fallback_plugins", "fallback_audit"}

#: Files that are read at run time, and that a build which knows only Python would leave out.
DATA = {
    "fallback_tier/py.typed",
    "fallback_plugins/py.typed",
    "fallback_audit/py.typed",
    "fallback_plugins/npm/skills/leaf-llm-instruction.md",
    "fallback_plugins/pypi/skills/leaf-llm-instruction.md",
    "fallback_tier/demo/solved-examples.jsonl",
}


@pytest.fixture(scope="module")
def names(installed: Installed) -> set[str]:
    with zipfile.ZipFile(installed.wheel) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def metadata(installed: Installed) -> Iterator[zipfile.Path]:
    with zipfile.ZipFile(installed.wheel) as wheel:
        (place,) = (p for p in zipfile.Path(wheel).iterdir() if p.name.endswith(".dist-info"))
        yield place


def test_three_packages_and_nothing_else(names: set[str]) -> None:
    """Names like ``plugins`` and ``audit`` would overwrite, and uninstall, other people's files."""
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES


def test_every_module_and_every_data_file_is_in_it(names: set[str]) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    sources = {"fallback_tier/": "", "plugins/fallback_plugins/": "plugins/", "audit/": "audit/"}
    expected = {
        path.removeprefix(prefix)
        for path in listed
        for start, prefix in sources.items()
        if path.startswith(start) and (ROOT / path).is_file()
    }
    shipped = {name for name in names if ".dist-info/" not in name}
    assert shipped == expected
    assert shipped >= DATA


def test_no_tests_and_no_leftovers(names: set[str]) -> None:
    demo_tests = "fallback_tier/demo/projects/"  # targets of the demo, which bring their own
    for name in names:
        assert name.startswith(demo_tests) or "/tests/" not in name, name
        assert not name.endswith((".pyc", ".db", ".orig", "__main__.py")), name


def test_the_metadata(metadata: zipfile.Path) -> None:
    facts = message_from_string((metadata / "METADATA").read_text("utf-8"))
    assert facts["Name"] == "fallback-tier"
    assert facts["Requires-Python"] == ">=3.11"
    assert facts["License-Expression"] == "Apache-2.0"
    assert str(facts.get_payload()) == (ROOT / "README.md").read_text()
    points = ConfigParser()
    points.optionxform = str  # type: ignore[assignment,method-assign]
    points.read_string((metadata / "entry_points.txt").read_text())
    assert {section: dict(points[section]) for section in points.sections()} == {
        "console_scripts": {"fallback-tier": "fallback_tier.cli.main:script"},
        "fallback_tier.tiers": {"default": "fallback_tier.mount:build_tier"},
        "fallback_tier.ecosystems": {
            "npm": "fallback_plugins.npm:build_ecosystem",
            "PyPI": "fallback_plugins.pypi:build_ecosystem",
        },
    }


# --- at work ------------------------------------------------------------------------------------


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository whose folders are named like ours, and say so when they are imported."""
    trap = f"open({str(tmp_path / 'caught')!r}, 'a').write(__name__ + '\\n')\n"
    modules = ["plugins", "audit", *sorted(PACKAGES), "argparse", "pydantic", "sitecustomize"]
    files = {f"{name}/__init__.py": trap for name in modules}
    files |= {"fallback_tier/__main__.py": trap, "rich.py": trap}
    files |= {"requirements.txt": "idna==3.6\n", "pyproject.toml": "[tool.black]\n"}
    return repository(tmp_path / "hostile", files)


@pytest.fixture
def caught(tmp_path: Path) -> Path:
    return tmp_path / "caught"


def test_the_trap_works(hostile: Path, caught: Path, installed: Installed) -> None:
    """``python -c`` and ``python -m`` put the folder first: the reason why we offer neither."""
    for command in (["-c", "import fallback_tier"], ["-m", "fallback_tier"]):
        subprocess.run([installed.python, *command], cwd=hostile, capture_output=True)
        assert "fallback_tier" in caught.read_text()
        caught.unlink()


def test_the_console_script_says_its_version(
    hostile: Path, caught: Path, installed: Installed
) -> None:
    ended = run("--version", script=installed.script, cwd=hostile)
    assert (ended.code, ended.out) == (0, "fallback-tier 0.1.0\n")
    assert not caught.exists()


def test_the_console_script_takes_nothing_from_the_target(
    hostile: Path, caught: Path, tmp_path: Path, installed: Installed
) -> None:
    request = {"advisory": json.loads(osv("idna", fixed="3.7")), "repository": "."}
    ended = run(
        *["attempt", "--state-dir", tmp_path / "state"],
        stdin=json.dumps(request),
        script=installed.script,
        cwd=hostile,
    )
    assert ended.code == 0, ended
    assert "+idna==3.7" in ended.json["diff"]
    assert not caught.exists()


@pytest.mark.parametrize("words", [["retrieval", "--check", "--json"], ["fixes"], []])
def test_evaluations_are_in_the_source_tree_alone(
    hostile: Path, caught: Path, installed: Installed, words: list[str]
) -> None:
    ended = run("eval", *words, script=installed.script, cwd=hostile)
    assert ended.code == exit_codes.BAD_INPUT, ended
    reported = ended.json["error"]["next_step"] if "--json" in words else ended.err
    assert "make setup && .venv/bin/fallback-tier eval --help" in reported
    assert not caught.exists()


@pytest.mark.registry("uv")
@pytest.mark.sandbox
def test_a_fix_from_the_wheel(
    hostile: Path, caught: Path, tmp_path: Path, installed: Installed
) -> None:
    """With gates: what runs inside the sandbox may import the target's modules, we may not."""
    advisory = tmp_path / "advisory.json"
    advisory.write_text(osv("idna", fixed="3.7"))
    ended = run(
        *["fix", ".", "--advisory", advisory, "--state-dir", tmp_path / "state", "--json"],
        script=installed.script,
        cwd=hostile,
        env={"PATH": f"{BIN}:{os.environ['PATH']}"},
    )
    assert ended.code == 0, ended
    assert ended.json["delivered"] is True
    assert (hostile / "requirements.txt").read_text() == "idna==3.7\n"
    assert not caught.exists()
