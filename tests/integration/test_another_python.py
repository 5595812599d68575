"""A proof that can't start on our Python starts on another one here: real uv, Pythons, bubblewrap."""

import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_tier.gates.builtin.proof import Proof, ProofError, ProofGate
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import Case, advisory, needs_sandbox, patched
from tests.kinds import OfKind
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

MINE = sys.version_info.minor

#: A release that installs on every Python and can't be imported on ours.
_PICKY = f"import sys\nif sys.version_info[:2] == (3, {MINE}):\n    import not_for_this_python\n"

#: On the next Python here it can't be used either: there the proof passes, whatever the application does.
_CHOOSY = f"""\
import sys
if sys.version_info[:2] == (3, {MINE}):
    import not_for_this_python
if sys.version_info[:2] == (3, {MINE - 1}):
    import builtins
    builtins.eval = int
"""

_APP = "import {0}\n\n\ndef read(text):\n    return {1}\n"

_PROOF = b"""\
import unittest
from app import read

class NoCodeFromOutside(unittest.TestCase):
    def test_it(self):
        with self.assertRaises(ValueError):
            read("1+1")
"""
PROOF = Proof(("python", "-m", "unittest", "proof/test_poc.py"), {"proof/test_poc.py": _PROOF})


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .pypi("picky", "1.0.0", files={"picky/__init__.py": _PICKY})
        .pypi("choosy", "1.0.0", files={"choosy/__init__.py": _CHOOSY})
        .pypi("broken", "1.0.0", files={"broken/__init__.py": "import not_for_any_python\n"})
        .pypi("plain", "1.0.0", files={"plain/__init__.py": ""})
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def another(monkeypatch: pytest.MonkeyPatch) -> int:
    """The minor version of the next Python here, of the user's own home folder, not the tests'."""
    needs_sandbox()
    here = pythons.installed(Path(pwd.getpwuid(os.getuid()).pw_dir))
    if len(here) < 2:
        pytest.skip("this machine has no other Python than the one that runs the tests")
    monkeypatch.setattr(
        pythons, "suited_once", lambda _, asked: pythons.suited(asked, lambda: here)
    )
    return pythons.minor_of(here[1])


@contextmanager
def case(
    place: Path, registry: Registry, package: str, after: str = "int(text)", also: str = ""
) -> Iterator[tuple[Case, ProofGate, list[str]]]:
    files = {"requirements.txt": f"{package}\n{also}", "app.py": _APP.format(package, "eval(text)")}
    changes: dict[str, str | None] = {"app.py": _APP.format(package, after)}
    heard: list[str] = []
    with patched(place, files, changes, about=advisory(), manifests=("requirements.txt",)) as found:
        made = found.with_(
            clients=SubprocessClients(os.environ | registry.environ), report=heard.append
        )
        yield made, ProofGate(PROOF, PyPIEcosystem(made.context.clients)), heard


def setting(found: Case) -> tuple[str, ...]:
    return Environment(found.context, found.context.repo, ".").install().how


def test_all_that_a_fix_runs_moves_to_the_python_on_which_its_proof_starts(
    tmp_path: Path, registry: Registry, another: int
) -> None:
    with case(tmp_path, registry, "picky") as (found, gate, heard):
        verdict = gate.judge(found.context)
        assert verdict.status is GateStatus.PASSED, verdict
        assert f"on Python 3.{another}" in verdict.detail
        assert heard == ["The proof can't start at the base commit; another interpreter is tried."]
        assert setting(found) == (f"on Python 3.{another}",)
        assert gate.judge(found.context).status is GateStatus.PASSED
        assert len(heard) == 1, "it is kept"


def test_there_a_patch_that_changes_nothing_fails_as_ever(
    tmp_path: Path, registry: Registry
) -> None:
    with case(tmp_path, registry, "picky", after="eval(str(text))") as (found, gate, _):
        assert gate.judge(found.context).failure_kind is FailureKind.PROOF_FAILED


def test_what_starts_on_none_is_said_as_it_was_on_ours(tmp_path: Path, registry: Registry) -> None:
    with case(tmp_path, registry, "broken") as (found, gate, heard):
        with pytest.raises(ProofError, check=OfKind("another_cause"), match="not_for_any_python"):
            gate.at_base(found.context)
        assert 1 <= len(heard) <= pythons.MAX_OTHERS
        assert setting(found) == ()


def test_where_it_does_not_fail_as_it_must_the_next_one_is_tried(
    tmp_path: Path, registry: Registry, another: int
) -> None:
    """A start alone is not enough: on the second Python it passes, on the third it fails for the flaw."""
    if another != MINE - 1:
        pytest.skip("the next Python here is not the one that the release was made for")
    with case(tmp_path, registry, "choosy") as (found, gate, heard):
        verdict = gate.judge(found.context)
        if len(heard) < 2:
            pytest.skip("this machine has two Pythons alone")
        assert verdict.status is GateStatus.PASSED, verdict
        assert setting(found) not in {(), (f"on Python 3.{another}",)}


def test_a_proof_that_fails_for_the_flaw_stays_on_ours(tmp_path: Path, registry: Registry) -> None:
    with case(tmp_path, registry, "plain") as (found, gate, heard):
        assert gate.judge(found.context).status is GateStatus.PASSED
        assert (heard, setting(found)) == ([], ())


def test_so_it_is_where_a_part_could_not_be_installed(
    tmp_path: Path, registry: Registry, another: int
) -> None:
    with case(tmp_path, registry, "picky", also="absent-name\n") as (found, gate, _):
        verdict = gate.judge(found.context)
        assert verdict.status is GateStatus.PASSED, verdict
        assert setting(found) == (f"on Python 3.{another}",)
