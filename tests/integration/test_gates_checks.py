"""Types and builds beside the base commit's: real npm, uv, Python and bubblewrap.

The compiler and the type checker are made up (a registry on loopback has them): each complains of every
line that says BAD, in the words of the real one. What real ones print is in ``tests/fixtures/logs``.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.gates.all_gates import build_gates as npm_gates
from fallback_plugins.pypi.gates import build_gates as pypi_gates
from fallback_tier.gate_ports import Gate, GateVerdict
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import Case, advisory, needs_sandbox, patched
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

TSC = """#!/usr/bin/env node
const fs = require('node:fs');
const path = require('node:path');
const config = process.argv[process.argv.indexOf('-p') + 1];
const folder = path.join(path.dirname(config), 'src');
let bad = 0;
for (const name of fs.readdirSync(folder)) {
  fs.readFileSync(path.join(folder, name), 'utf8').split('\\n').forEach((line, at) => {
    if (!line.includes('BAD')) return;
    bad += 1;
    console.log(`${path.join(folder, name)}(${at + 1},1): error TS2322: ${line}`);
  });
}
process.exit(bad ? 2 : 0);
"""
MYPY = """import pathlib, sys
bad = 0
for path in sorted(pathlib.Path('app').rglob('*.py')):
    for at, line in enumerate(path.read_text().split('\\n'), start=1):
        if 'BAD' in line:
            bad += 1
            print(f'{path}:{at}: error: {line}  [misc]')
sys.exit(1 if bad else 0)
"""
OWN = advisory("app")
NPM = ("package.json",)
OWN_PYTHON = advisory("app", "PyPI")


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .npm("typescript", "5.9.0", files={"tsc.js": TSC}, manifest={"bin": {"tsc": "tsc.js"}})
        .pypi("mypy", "2.0.0", files={"mypy/__main__.py": MYPY, "mypy/__init__.py": ""})
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def at(registry: Registry, case: Case) -> Case:
    return case.with_(clients=SubprocessClients(os.environ | registry.environ))


def only(case: Case, gates: Sequence[Gate], *names: str) -> GateVerdict:
    """The last named gate's verdict; the others come before it."""
    found = {gate.name: gate for gate in gates}
    return [found[name].judge(case.context) for name in names][-1]


# --- TypeScript and builds ------------------------------------------------------------------------


def typed(**facts: object) -> dict[str, str]:
    manifest = {"name": "app", "version": "1.0.0", "devDependencies": {"typescript": "5.9.0"}}
    return {
        "package.json": json.dumps(manifest | facts),
        "tsconfig.json": '{ "include": ["src"] } // all of it\n',
        "src/app.ts": "export const a = 1; // BAD before\n",
    }


def test_only_what_the_compiler_did_not_say_before_fails(
    tmp_path: Path, registry: Registry
) -> None:
    moved = "\n\nexport const a = 1; // BAD before\n"
    change = {"src/app.ts": moved + "export const b = 2; // BAD now\n"}
    with patched(tmp_path, typed(), change, about=OWN, manifests=NPM) as case:
        verdict = only(at(registry, case), npm_gates(), "resolves", "typecheck")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.log == "src/app.ts(4,1): error TS2322: export const b = 2; // BAD now"


def test_the_compiler_has_not_heard_of_a_new_file_before(
    tmp_path: Path, registry: Registry
) -> None:
    """The same line excuses nothing there."""
    change = {"src/names.ts": "export const a = 1; // BAD before\n"}
    with patched(tmp_path, typed(), change, about=OWN, manifests=NPM) as case:
        verdict = only(at(registry, case), npm_gates(), "resolves", "typecheck")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.log.startswith("src/names.ts(1,1): error TS2322")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tsconfig.json": None}, "has no tsconfig.json"),
        ({"package.json": '{"name": "app"}'}, "does not declare typescript"),
    ],
)
def test_where_no_types_can_be_checked_the_reason_is_said(
    tmp_path: Path, changed: dict[str, str | None], reason: str
) -> None:
    files = {path: text for path, text in (typed() | changed).items() if text is not None}
    with patched(tmp_path, files, {"src/app.ts": "export const a = 2;\n"}, about=OWN) as case:
        verdict = only(case, npm_gates(), "typecheck")
    assert verdict.status is GateStatus.SKIPPED
    assert reason in verdict.detail


BUILT = {
    "package.json": json.dumps(
        {
            "name": "app",
            "scripts": {
                "build": "node build.js",
                "test": "node --test test",
            },
        }
    ),
    "build.js": (
        "const { on } = require('./app.js');\n"
        "if (!on) throw new Error('nothing to build');\n"
        "const fs = require('node:fs');\n"
        "fs.mkdirSync('dist', { recursive: true });\n"
        "fs.writeFileSync('dist/app.js', `exports.on = ${JSON.stringify(on)};`);\n"
    ),
    "app.js": "exports.on = 1;\n",
    "test/app.test.js": (
        "const test = require('node:test');\n"
        "test('is on', () => { if (require('../dist/app.js').on !== 1) throw new Error('off'); });\n"
        "test('is there', () => {});\n"
    ),
}


def test_a_build_that_fails_with_the_patch_alone_fails_it(tmp_path: Path) -> None:
    with patched(tmp_path / "1", BUILT, {"app.js": "exports.on = 0;\n"}, about=OWN) as case:
        broken = only(case, npm_gates(), "build")
    files = BUILT | {"app.js": "exports.on = 0;\n"}
    with patched(tmp_path / "2", files, {"app.js": "exports.on = '';\n"}, about=OWN) as case:
        before = only(case, npm_gates(), "build")
    assert broken.failure_kind is FailureKind.BUILD_FAILED
    assert "nothing to build" in broken.log
    assert before.status is GateStatus.SKIPPED
    assert before.detail == ("npm run build fails at the base commit too, so this shows nothing")


def test_the_base_commit_is_built_too_before_its_tests_are_asked(tmp_path: Path) -> None:
    """Without that every test of what is built fails there, which would excuse each one here."""
    with patched(tmp_path, BUILT, {"app.js": "exports.on = 2;\n"}, about=OWN) as case:
        verdict = only(case, npm_gates(), "build", "tests")
    assert verdict.failure_kind is FailureKind.TESTS_FAILED


# --- Python ---------------------------------------------------------------------------------------

TYPED = {
    "pyproject.toml": (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\n'
        '[dependency-groups]\ndev = ["mypy"]\n[tool.mypy]\nstrict = true\n'
    ),
    "app/__init__.py": "a = 1  # BAD before\n",
}


def test_types_are_compared_with_the_base_commit(tmp_path: Path, registry: Registry) -> None:
    change = {"app/__init__.py": "\na = 1  # BAD before\nb = 2  # BAD now\n"}
    with patched(tmp_path, TYPED, change, about=OWN_PYTHON) as case:
        verdict = only(at(registry, case), pypi_gates(), "typecheck")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.log == "app/__init__.py:3: error: b = 2  # BAD now  [misc]"


def test_types_of_a_new_file_are_all_new(tmp_path: Path, registry: Registry) -> None:
    change = {"app/names.py": "a = 1  # BAD before\n"}
    with patched(tmp_path, TYPED, change, about=OWN_PYTHON) as case:
        verdict = only(at(registry, case), pypi_gates(), "typecheck")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.log == "app/names.py:1: error: a = 1  # BAD before  [misc]"


@pytest.mark.parametrize(
    ("pyproject", "reason"),
    [
        ('[project]\nname = "app"\nversion = "1"\n', "configures neither"),
        ('[project]\nname = "app"\nversion = "1"\n[tool.mypy]\n', "not among the project's"),
        ("[tool.poetry]\nname = 'app'\n[tool.mypy]\n", "not among the project's"),
    ],
)
def test_a_checker_that_is_not_both_configured_and_installed_is_skipped(
    tmp_path: Path, pyproject: str, reason: str
) -> None:
    files = TYPED | {"pyproject.toml": pyproject}
    with patched(tmp_path, files, {"app/__init__.py": "b = 2\n"}, about=OWN_PYTHON) as case:
        verdict = only(case, pypi_gates(), "typecheck")
    assert verdict.status is GateStatus.SKIPPED
    assert reason in verdict.detail
