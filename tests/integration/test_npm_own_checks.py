"""The lint and type checks of a test script are no tests; what they newly object to is told."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.gates.all_gates import ChecksGate
from fallback_plugins.npm.gates.all_gates import TestsGate as NpmTests
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.outcome import Remediation
from tests.integration import gate_setup
from tests.integration.gate_setup import advisory, clients_in, needs_sandbox, patched
from tests.registry import Registry, Universe, serve

pytestmark = [pytest.mark.sandbox, pytest.mark.registry("npm")]

#: Complains of ``var`` in index.js, as its name says; it says so in the words of a linter.
LINTER = """#!/usr/bin/env node
const text = require('fs').readFileSync('index.js', 'utf8');
if (!text.includes('var ')) process.exit(0);
console.log('index.js:1:1: Unexpected var, use let or const instead.');
process.exit(1);
"""

#: Two programs of one manner: a runner that counts a test, and a linter.
RUNNER = """#!/usr/bin/env node
const ok = require(process.cwd() + '/index.js')(1, 1) === 2;
console.log(`TAP version 13\\n${ok ? 'ok' : 'not ok'} 1 - adds\\n1..1\\n# tests 1\\n# pass ${ok ? 1 : 0}`);
console.log(`# fail ${ok ? 0 : 1}`);
process.exit(ok ? 0 : 1);
"""

SUM = "module.exports = (a, b) => a + b;\n"
WORSE = "var sum = (a, b) => a + b;\nmodule.exports = sum;\n"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe()
    universe.npm("xo", "1.0.0", files={"xo.js": LINTER}, manifest={"bin": {"xo": "xo.js"}})
    universe.npm("tape", "5.0.0", files={"t.js": RUNNER}, manifest={"bin": {"tape": "t.js"}})
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_setup, "CACHE", tmp_path / "cache")


def judge(
    place: Path,
    registry: Registry,
    change: str,
    *,
    before: str = SUM,
    script: str = "xo && tape",
    is_bump: bool = False,
) -> tuple[GateVerdict, GateVerdict]:
    """What the checks say, and then the tests."""
    needs_sandbox()
    manifest = {
        "name": "calc",
        "version": "1.0.0",
        "scripts": {"test": script},
        "devDependencies": {"xo": "^1.0.0", "tape": "^5.0.0"},
    }
    files = {"package.json": json.dumps(manifest), "index.js": before}
    clients = clients_in(os.environ | registry.environ)
    with patched(place, files, {"index.js": change}, about=advisory("calc")) as case:
        context = case.with_(clients=clients).context
        if is_bump:
            context = replaced(context, Remediation(moves=(), evidence_sha256=gate_setup.DIGEST))
        return ChecksGate().judge(context), NpmTests().judge(context)


def replaced(context: gate_setup.GateContext, remediation: Remediation) -> gate_setup.GateContext:
    made = context.application.model_copy(update={"remediation": remediation})
    return gate_setup.replace(context, application=made)


def test_what_a_linter_newly_objects_to_fails_the_checks_and_no_test(
    tmp_path: Path, registry: Registry
) -> None:
    checks, tests = judge(tmp_path, registry, WORSE)
    assert (checks.status, checks.failure_kind) == (GateStatus.FAILED, FailureKind.BUILD_FAILED)
    assert "Unexpected var" in checks.log
    assert tests.status is GateStatus.PASSED


def test_a_bump_is_not_refused_for_a_linter_but_the_person_is_told(
    tmp_path: Path, registry: Registry
) -> None:
    checks, tests = judge(tmp_path, registry, WORSE, is_bump=True)
    assert checks.status is GateStatus.SKIPPED
    assert checks.notes == (checks.detail,)
    assert "xo" in checks.detail
    assert tests.status is GateStatus.PASSED


@pytest.mark.parametrize(
    ("before", "change", "script", "status"),
    [
        (SUM, "module.exports = (b, a) => b + a;\n", "xo && tape", GateStatus.PASSED),
        # What it objected to before tells nothing of the patch.
        (WORSE, WORSE + "// more\n", "xo && tape", GateStatus.SKIPPED),
        (SUM, WORSE, "tape", GateStatus.SKIPPED),
    ],
    ids=["in order", "as before", "no check"],
)
def test_nothing_new_fails_nothing(
    tmp_path: Path, registry: Registry, before: str, change: str, script: str, status: GateStatus
) -> None:
    checks, tests = judge(tmp_path, registry, change, before=before, script=script)
    assert checks.status is status
    assert tests.status is GateStatus.PASSED
