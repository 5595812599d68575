"""Test runners of npm are asked for the tests of some files alone, each in its own way. The runners here
print what they are given."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fallback_plugins.npm.gates.testing import laid_out
from tests.fakes.repository import write

TELLING = "console.log(JSON.stringify(process.argv.slice(2)));\n"

#: What mocha's command line does with its library.
MOCHA = """class Mocha {
  options = {file: ['setup.js']};
  files = ['setup.js', 'a.test.js', 'b.test.js'];
  loadFiles() { console.log(JSON.stringify(this.files)); }
  loadFilesAsync() { this.loadFiles(); }
  run() {}
}
module.exports = Mocha;
"""

JASMINE = (
    "exports.boot = () => ({getEnv: () => ({addReporter() {}, run() { console.log('[1]'); }})});\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {f"{name}.test.js": "" for name in "ab"} | {"member/c.test.js": ""}
    for name in ("jest", "vitest"):
        manifest = json.dumps({"name": name, "bin": {name: "cli.js"}})
        files |= {f"node_modules/{name}/package.json": manifest}
        files |= {f"node_modules/{name}/cli.js": TELLING}
    manifest = json.dumps({"name": "mocha", "main": "index.js", "bin": {"mocha": "cli.js"}})
    files |= {"node_modules/mocha/package.json": manifest, "node_modules/mocha/index.js": MOCHA}
    files |= {"node_modules/mocha/cli.js": "new (require('./index.js'))().loadFilesAsync();\n"}
    files |= {"node_modules/jasmine-core/index.js": JASMINE}
    files |= {"spec.js": "require('jasmine-core').boot().getEnv().run();\n"}
    write(tmp_path, files)
    return tmp_path


def environment(project: Path, *chosen: str) -> dict[str, str]:
    hook = laid_out(project / "cache", "attach.cjs")
    return {
        "PATH": os.environ["PATH"],
        "NODE_OPTIONS": f'--require "{hook}"',
        "FALLBACK_TIER_REPORTS": str(project / ".report"),
        "FALLBACK_TIER_FILES": json.dumps(chosen),
    }


def run(
    project: Path, words: Sequence[str], *chosen: str, folder: str = "."
) -> tuple[list[str], list[Mapping[str, object]]]:
    """Return what the runner was given, and the lines of our reports."""
    env = environment(project, *chosen)
    done = subprocess.run(
        ["node", *words], cwd=project / folder, env=env, check=True, capture_output=True, text=True
    )
    texts = [path.read_text() for path in project.glob(".report-*")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return json.loads(done.stdout or "[]"), lines


NOTHING = [{"told": 0, "ran": 0, "failed": 0}]


def test_jest_is_given_paths(project: Path) -> None:
    words, _ = run(project, ["node_modules/jest/cli.js", "--ci"], "a.test.js", "gone.test.js")
    assert words[0] == "--ci"
    assert words[-2:] == ["--runTestsByPath", str(project / "a.test.js")]


def test_vitest_is_given_filters_instead_of_its_own(project: Path) -> None:
    program = "node_modules/vitest/cli.js"
    words, _ = run(project, [program, "run", "unit/", "--project", "web"], "b.test.js")
    assert words[:3] == ["run", "--project", "web"]
    assert "unit/" not in words
    assert str(project / "b.test.js") in words


def test_mocha_loads_the_chosen_files_and_what_prepares_them(project: Path) -> None:
    files, _ = run(project, ["node_modules/mocha/cli.js", "test/"], "b.test.js")
    assert files == [str(project / "setup.js"), str(project / "b.test.js")]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [([], {"a.test.js"}), (["a*.test.js"], {"a.test.js"}), (["member/"], set())],
)
def test_nodes_own_runner_is_given_those_of_its_patterns(
    project: Path, patterns: list[str], names: set[str]
) -> None:
    (project / "a.test.js").write_text("require('node:test').test('one', () => {});\n")
    env = environment(project, "a.test.js")
    subprocess.run(["node", "--test", *patterns], cwd=project, env=env, check=True)
    text = "".join(path.read_text() for path in project.glob(".report-*"))
    found = [json.loads(line) for line in text.splitlines()]
    tests = [str(line["test"]) for line in found if "test" in line]
    assert len(tests) == len(names)
    assert all(name in test for name, test in zip(sorted(names), tests, strict=True))


@pytest.mark.parametrize("runner", ["jest", "vitest", "mocha"])
def test_runner_without_a_chosen_file_runs_nothing(project: Path, runner: str) -> None:
    """One of another member: without a file it would run all."""
    program = f"../node_modules/{runner}/cli.js"
    words, lines = run(project, [program], "a.test.js", folder="member")
    assert words == []
    assert lines == NOTHING


def test_runner_that_can_not_be_asked_runs_nothing(project: Path) -> None:
    words, lines = run(project, ["spec.js"], "a.test.js")
    assert words == []
    assert lines == NOTHING
