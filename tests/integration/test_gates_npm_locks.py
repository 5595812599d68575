"""What npm's gates read of yarn's and pnpm's locks if nothing is installed: no tree is proved."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel
from fallback_plugins.npm.gates.all_gates import NotVulnerableGate
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import advisory, needs_sandbox, patched

pytestmark = [pytest.mark.sandbox]


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def nowhere(place: Path) -> SubprocessClients:
    """Clients whose registry answers nothing."""
    settings = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_fetch_retries": "0"}
    return SubprocessClients({"PATH": "/usr/bin:/bin", "HOME": str(place), **settings})


def project(left: str) -> dict[str, str]:
    facts = {"name": "calc", "version": "1.0.0", "dependencies": {"left": left}}
    return {"package.json": json.dumps(facts, indent=2), "calc.js": ""}


YARN = 'left@^1.0.0:\n  version "{0}"\n'
PNPM = """lockfileVersion: '9.0'
importers:
  .:
    dependencies:
      left: {{specifier: ^1.0.0, version: {0}}}
packages:
  left@{0}: {{}}
snapshots:
  left@{0}: {{}}
"""


@pytest.mark.parametrize(("lock", "text"), [("yarn.lock", YARN), ("pnpm-lock.yaml", PNPM)])
@pytest.mark.parametrize("version", ["1.0.0", "1.2.0"])
def test_another_clients_lock_is_read(tmp_path: Path, lock: str, text: str, version: str) -> None:
    files = project("^1.0.0") | {lock: text.format("1.0.0")}
    manifests, about = ("package.json", lock), advisory("left", fixed="1.2.0")
    change = {lock: text.format(version), "calc.js": "1;"}
    with patched(tmp_path, files, change, about=about, manifests=manifests) as case:
        reported = NotVulnerableGate().judge(case.with_(clients=nowhere(tmp_path)).context)
    if version == "1.0.0":
        assert reported.failure_kind is FailureKind.STILL_VULNERABLE
    else:
        assert reported.status is GateStatus.PASSED
        assert reported.detail == (
            f"pins: left 1.2.0; known by its text alone, for it is not installed here: {lock}"
        )
        assert reported.proof_level is ProofLevel.PINS


def test_what_one_project_does_not_tell_hides_no_affected_version_of_another(
    tmp_path: Path,
) -> None:
    files = {f"a/{path}": text for path, text in project("*").items()}
    files |= {f"b/{path}": text for path, text in project("^1.0.0").items()}
    files["b/yarn.lock"] = YARN.format("1.0.0")
    manifests = ("a/package.json", "b/package.json", "b/yarn.lock")
    about = advisory("left", fixed="1.2.0")
    with patched(tmp_path, files, {"b/calc.js": "1;"}, about=about, manifests=manifests) as case:
        verdict = NotVulnerableGate().judge(case.with_(clients=nowhere(tmp_path)).context)
    assert verdict.failure_kind is FailureKind.STILL_VULNERABLE


@pytest.mark.parametrize(("lock", "text"), [("yarn.lock", YARN), ("pnpm-lock.yaml", PNPM)])
def test_another_clients_lock_proves_nothing_of_what_it_does_not_answer(
    tmp_path: Path, lock: str, text: str
) -> None:
    files = project("^1.0.0") | {lock: text.format("1.2.0")}
    manifests, about = ("package.json", lock), advisory("left", fixed="1.2.0")
    change = {"package.json": project("^2.0.0")["package.json"]}
    with patched(tmp_path, files, change, about=about, manifests=manifests) as case:
        reported = NotVulnerableGate().judge(case.with_(clients=nowhere(tmp_path)).context)
    assert reported.status is GateStatus.SKIPPED
    assert "does not answer left ^2.0.0" in reported.detail
