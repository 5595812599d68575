"""What tests do beyond their process, at the base commit and with the patch: real runs (ADR-0065)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import Capability, FailureKind, GateStatus
from fallback_plugins.pypi.gates.testing import TestsGate as PythonTests
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.outcome import Refuse
from tests.integration.gate_setup import advisory, needs_sandbox, patched

pytestmark = pytest.mark.sandbox

OWN = advisory("calc", "PyPI")
SUITE = """import subprocess, sys, unittest
from calc import add

class Sums(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)

    def test_in_a_child(self):
        told = [sys.executable, "-I", "-c", "import sys; sys.path[:0] = ['.']; import calc; calc.late()"]
        subprocess.run(told, env={**ENV, "PYTHONPATH": "/elsewhere"})
"""
HEAD = "import contextlib, os, random, socket, subprocess, tempfile\n\n"
SUITE = SUITE.replace("import subprocess", "import os, subprocess", 1).replace("ENV", "os.environ")


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def code(*lines: str, late: str = "pass") -> str:
    """``add`` does these beside its sum, ``late`` only where a child calls it."""
    body = "".join(f"    with contextlib.suppress(OSError):\n        {line}\n" for line in lines)
    return f"{HEAD}def add(a, b):\n{body}    return a + b\n\ndef late():\n    {late}\n"


def judge(
    place: Path,
    after: str,
    before: str = code(),
    declared: tuple[Capability, ...] = (),
    files: Mapping[str, str] | None = None,
) -> GateVerdict:
    base = {"calc.py": before, "tests/__init__.py": "", "tests/test_calc.py": SUITE}
    with patched(place, base | dict(files or {}), {"calc.py": after}, about=OWN) as case:
        plan = Refuse(rationale="it needs them", citations=(), capabilities=declared, reason="none")
        made = case.context.application.model_copy(update={"plan": plan})
        verdict = PythonTests().judge(case.with_(application=made).context)
        assert not list(case.worktree.tree.layers[0].glob(".fallback-tier-*"))
    return verdict


#: What differs from run to run, though nothing new is done.
AS_EVER = (
    "open(tempfile.mkstemp()[1], 'w').close()",
    "open(tempfile.mkstemp(dir='.')[1], 'w').close()",
    "open(f'run-{os.getpid()}.log', 'w').close()",
    "socket.create_server(('127.0.0.1', 0)).close()",
    "socket.create_connection(('127.0.0.1', random.randrange(2000, 9000)), 1)",
    "subprocess.run(['true', str(random.random())])",
)


def test_what_differs_from_run_to_run_is_nothing_new(tmp_path: Path) -> None:
    verdict = judge(tmp_path, code(*AS_EVER, "a, b = b, a"), code(*AS_EVER))
    assert (verdict.status, verdict.detail) == (GateStatus.PASSED, "2 test(s) pass")


REACHING = (
    "os.system('printf x | tr x y')",
    "socket.create_connection(('192.0.2.1', 80), 1)",
    "socket.gethostbyname('exfiltrate.example')",
    "os.environ.update(LD_PRELOAD='/tmp/x.so')",
    "open('/proc/self/mem', 'r+b')",
)
TOLD = {
    "starts sh", "starts printf", "starts tr", "connects to 192.0.2.1 80", "looks up 192.0.2.1",
    "looks up exfiltrate.example", "steers what runs by LD_PRELOAD", "steers what runs by /proc/self/mem",
}  # fmt: skip


def test_what_is_new_must_have_been_declared(tmp_path: Path) -> None:
    verdict = judge(tmp_path, code(*REACHING))
    assert verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    assert {line[8:] for line in verdict.log.splitlines() if line.startswith("new: it ")} == TOLD
    assert '"capabilities": ["network", "process", "unknown"]' in verdict.log


def test_what_was_declared_is_named_and_passes(tmp_path: Path) -> None:
    verdict = judge(tmp_path, code("os.system('true')"), declared=(Capability.PROCESS,))
    assert verdict.status is GateStatus.PASSED
    message = (
        "new with the patch, seen while its tests ran: it starts sh, starts true; 2 test(s) pass"
    )
    assert verdict.detail == message
    assert "starts true" in verdict.log


def test_a_file_that_is_written_is_named(tmp_path: Path) -> None:
    verdict = judge(tmp_path, code("open('left.txt', 'w').close()"))
    assert verdict.status is GateStatus.PASSED
    assert verdict.detail.endswith(" it writes left.txt; 2 test(s) pass")


def test_a_child_is_seen_that_knows_neither_its_path_nor_its_own_settings(tmp_path: Path) -> None:
    verdict = judge(tmp_path, code(late="os.system('true')"))
    assert verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    assert "starts true" in verdict.detail


#: The report of what was done, and not the one of tests.
FIND = """def found():
    names = (name for name in os.listdir('.') if name.startswith('.fallback-tier-'))
    return [name for name in names if open(name).read(1) not in ('{', '')]

"""


@pytest.mark.parametrize(
    "hide",
    [
        # What is left is the first line and the hook's own: whole, as far as anybody can tell.
        pytest.param("[open(n, 'r+').truncate(40) for n in found()]", id="cut"),
        pytest.param(
            "[(open('x', 'w').write(open(n).read(40)), os.replace('x', n)) for n in found()]",
            id="replaced",
        ),
        pytest.param("[os.remove(n) for n in found()]", id="removed"),
        pytest.param("subprocess.run(['rm', *found()])", id="by a program"),
        pytest.param("[open(n, 'a').write('x\\n') for n in found()]", id="added to"),
    ],
)
def test_the_record_of_it_is_not_lost_unnoticed(tmp_path: Path, hide: str) -> None:
    verdict = judge(tmp_path, FIND + code(hide), declared=(Capability.PROCESS,))
    assert verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    assert "damages the record of what it does" in verdict.detail
