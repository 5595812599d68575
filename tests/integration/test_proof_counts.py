"""A proof by pytest is counted whatever its plugins print."""

from importlib.metadata import files
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_tier.gates.builtin.proof import Proof, ProofGate
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.integration.gate_setup import advisory, patched

pytestmark = pytest.mark.sandbox

FILES = {"app.py": "def answer():\n    return 41\n", "README.md": "x\n"}
RIGHT = "def answer():\n    return 42\n"
EARLY = "import os\ndef answer():\n    os._exit(0)\n"

#: As pytest-pretty does: another end, and no last line of pytest's.
PRETTY = b"""\
import pytest
from _pytest.terminal import TerminalReporter

class Pretty(TerminalReporter):
    def short_test_summary(self): pass
    def summary_stats(self): self.write_line("all is told")

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    pretty = Pretty(config)
    config.pluginmanager.unregister(config.pluginmanager.getplugin("terminalreporter"))
    config.pluginmanager.register(pretty, "terminalreporter")
"""
TEST = b"from app import answer\ndef test_it():\n    assert answer() == 42\n"

#: This suite's own pytest, which the made environment does not have.
PYTEST = {
    f"vendor/{file}": file.read_binary()
    for package in ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
    for file in files(package) or ()
    if file.suffix == ".py" or file.name == "METADATA"
}
RUN = 'PYTHONPATH="$PYTHONPATH:vendor" exec python -m pytest "$@"'


@pytest.mark.parametrize(
    ("options", "app", "status"),
    # Of two that print no summary at all, one runs with the suite.
    a_choice(
        [
            (["-p", "pretty"], RIGHT, GateStatus.PASSED),
            (["-qq"], RIGHT, GateStatus.PASSED),
            (["-p", "pretty"], EARLY, GateStatus.FAILED),
            (["-p", "no:terminal"], EARLY, GateStatus.FAILED),
            (["-p", "no:terminal"], RIGHT, GateStatus.PASSED),
        ],
        step=2,
    ),
)
def test_a_proof_whose_summary_is_another(
    tmp_path: Path, options: list[str], app: str, status: GateStatus
) -> None:
    proof = Proof(
        ("sh", "-c", RUN, "sh", "-p", "no:cacheprovider", *options, "proof/test_it.py"),
        {**PYTEST, "pretty.py": PRETTY, "proof/test_it.py": TEST},
    )
    with patched(tmp_path, FILES, {"app.py": app}, about=advisory()) as found:
        verdict = ProofGate(proof, PyPIEcosystem(SubprocessClients())).judge(found.context)
    assert verdict.status is status, verdict
    if status is GateStatus.FAILED:
        assert verdict.failure_kind is FailureKind.PROOF_FAILED
        assert verdict.detail == "the proof ran 1 test(s) at the base commit, 0 with the patch"
