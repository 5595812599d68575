"""The proof gate on a real worktree, with real commands in the sandbox."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm import build_ecosystem as npm_ecosystem
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_tier.errors import InputError
from fallback_tier.files.entries import say_nothing
from fallback_tier.gates.builtin.common import common_gates
from fallback_tier.gates.builtin.proof import Proof, ProofError, ProofGate, check_proof
from fallback_tier.gates.failure_summary.distill import distill
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests import hanging
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import commit_all, write
from tests.integration.gate_setup import Case, advisory, applied, patched, repository
from tests.kinds import OfKind

pytestmark = pytest.mark.sandbox

FILES = {"app.py": "def answer():\n    return 41\n", "README.md": "x\n"}
RIGHT = {"app.py": "def answer():\n    return 42\n"}
WRONG = {"app.py": "def answer():\n    return 43\n"}

TEST = b"""\
import unittest
from app import answer

class ProofTest(unittest.TestCase):
    def test_the_answer(self):
        self.assertEqual(answer(), 42)
"""
PROOF = Proof(("python", "-m", "unittest", "proof/test_proof.py"), {"proof/test_proof.py": TEST})


@contextmanager
def case(tmp_path: Path, changes: Mapping[str, str | None]) -> Iterator[Case]:
    with patched(tmp_path, FILES, changes, about=advisory()) as found:
        yield found


def gate(proof: Proof = PROOF) -> ProofGate:
    return ProofGate(proof, FakeEcosystem())


def check_at(
    repo: RepoContext, tmp_path: Path, proof: Proof, report: Callable[[str], None] = say_nothing
) -> str:
    return check_proof(
        gate(proof),
        advisory(),
        repo,
        clients=SubprocessClients(),
        sandbox=BubblewrapSandbox(),
        workspace=tmp_path / "state",
        report=report,
    )


def check(tmp_path: Path, proof: Proof) -> str:
    return check_at(repository(tmp_path / "repo", FILES), tmp_path, proof)


def test_a_right_fix_passes(tmp_path: Path) -> None:
    with case(tmp_path, RIGHT) as found:
        verdict = gate().judge(found.context)
    assert verdict.status is GateStatus.PASSED
    assert verdict.failure_kind is None


def test_a_wrong_fix_fails_and_says_how(tmp_path: Path) -> None:
    with case(tmp_path, WRONG) as found:
        verdict = gate().judge(found.context)
    assert verdict.status is GateStatus.FAILED
    assert verdict.failure_kind is FailureKind.PROOF_FAILED
    assert str(tmp_path) not in verdict.log
    summary = distill([verdict], application=applied(), attempt=1).prior_failure_summary
    assert "failed at gate proof: proof_failed" in summary
    assert "test_the_answer" in summary
    assert "AssertionError: 43 != 42" in summary


TWO = b"""\
import unittest
from app import answer

class ProofTest(unittest.TestCase):
    def test_the_answer(self):
        self.assertEqual(answer(), 42)
    def test_it_is_odd(self):
        self.assertEqual(answer() % 2, 0)
    def test_it_is_large(self):
        self.assertGreater(answer(), 41)
"""


@pytest.mark.parametrize(
    ("app", "fixed"),
    [
        ("def answer():\n    return 43\n", ("test_it_is_large",)),
        ("def answer():\n    return 44\n", ("test_it_is_large", "test_it_is_odd")),
        ("def answer():\n    return 1\n", ()),
        ("def answer(:\n", ()),  # nothing ran: nothing passes
        ("import unittest\ndef answer():\n    raise unittest.SkipTest('no')\n", ()),
    ],
)
def test_what_of_the_proof_passes_now_is_said(
    tmp_path: Path, app: str, fixed: tuple[str, ...]
) -> None:
    proof = Proof(PROOF.command, {"proof/test_proof.py": TWO})
    with case(tmp_path, {"app.py": app}) as found:
        verdict = gate(proof).judge(found.context)
    assert verdict.failure_kind is FailureKind.PROOF_FAILED
    message = verdict.detail.partition("; of its tests these pass now: ")[2]
    assert [name.split(" ")[0] for name in message.split(", ") if name] == list(fixed)
    summary = distill([verdict], application=applied(), attempt=1).prior_failure_summary
    assert all(name in summary for name in fixed)


def test_a_proof_that_passes_at_the_base_is_no_pass(tmp_path: Path) -> None:
    """Nobody asked check_proof first: the gate itself must not count such a proof."""
    with case(tmp_path, RIGHT) as found:
        verdict = gate(Proof(("true",))).judge(found.context)
    assert verdict.status is GateStatus.SKIPPED


def test_the_base_is_asked_once(tmp_path: Path) -> None:
    class Counting(BubblewrapSandbox):
        runs = 0

        def run(self, *args: object, **options: object):  # type: ignore[no-untyped-def, override]
            self.runs += 1
            return super().run(*args, **options)  # type: ignore[arg-type]

    sandbox = Counting()
    with case(tmp_path, WRONG) as found:
        for _ in range(2):
            gate().judge(replace(found.context, sandbox=sandbox))
        assert sandbox.runs == 3
        # With another interpreter, or another set installed, it is another question.
        elsewhere = ProofGate(PROOF, FakeEcosystem(on="another"))
        elsewhere.judge(replace(found.context, sandbox=sandbox))
        assert sandbox.runs == 3 + 2


@pytest.mark.parametrize("patched_run", [False, True], ids=["at the base commit", "with the patch"])
def test_a_set_that_became_another_while_the_proof_ran_proves_nothing(
    tmp_path: Path, patched_run: bool
) -> None:
    """At midnight, say: what failed at the base commit ran on other releases."""

    class Midnight(FakeEcosystem):
        def run(self, context, tree, *more):  # type: ignore[no-untyped-def]
            ran = super().run(context, tree, *more)
            if ("42" in tree.read_text("app.py")) is patched_run:
                self.on = "the next day"
            return ran

    with case(tmp_path, RIGHT) as found:
        judging = ProofGate(PROOF, Midnight())
        assert judging.judge(found.context).status is GateStatus.SKIPPED
        assert judging.judge(found.context).status is GateStatus.PASSED


def test_other_gates_and_the_diff_never_see_the_proof(tmp_path: Path) -> None:
    with case(tmp_path, RIGHT) as found:
        assert gate().judge(found.context).status is GateStatus.PASSED
        assert found.context.worktree.tree.find("proof") is None
        assert [change.path for change in found.worktree.changed()] == ["app.py"]
        for other in common_gates(FakeEcosystem()):
            assert other.judge(found.context).status is GateStatus.PASSED
        assert list((found.context.cache).glob("proof-*")) == []


def test_what_an_earlier_command_left_does_not_matter(tmp_path: Path) -> None:
    """A suite of the target's may leave files, or links to elsewhere, in the worktree."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with case(tmp_path, WRONG) as found:
        written = found.worktree.tree.layers[0]
        (written / "proof").symlink_to(elsewhere)
        (written / "unittest.py").write_text("raise SystemExit(0)\n")
        verdict = gate().judge(found.context)
    assert verdict.failure_kind is FailureKind.PROOF_FAILED
    assert list(elsewhere.iterdir()) == []


def test_a_patch_that_sits_in_the_proofs_place_fails(tmp_path: Path) -> None:
    planted = {**WRONG, "proof/test_proof.py": "import unittest\n"}
    with case(tmp_path, planted) as found:
        verdict = gate().judge(found.context)
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION


@pytest.mark.parametrize("end", ["import os\nos._exit(0)\n", "import sys\nsys.exit(0)\n"])
def test_a_patch_that_ends_the_proof_early_is_no_pass(tmp_path: Path, end: str) -> None:
    """The process ends well, and the test of the flaw never ran."""
    with case(tmp_path, {"app.py": end + RIGHT["app.py"]}) as found:
        verdict = gate().judge(found.context)
    assert verdict.failure_kind is FailureKind.PROOF_FAILED
    assert verdict.detail == "the proof ran 1 test(s) at the base commit, 0 with the patch"


SCRIPT = b"from app import answer\nassert answer() == 42, answer()\nprint('found no flaw')\n"
BARE = Proof(("python3", "poc.py"), {"poc.py": SCRIPT})
EARLY = {"app.py": "import os\nos._exit(0)\n" + RIGHT["app.py"]}


@pytest.mark.parametrize("changes", [RIGHT, EARLY])
def test_a_script_that_says_no_end_is_a_persons_question(
    tmp_path: Path, changes: Mapping[str, str]
) -> None:
    """It ends well either way."""
    with case(tmp_path, changes) as found:
        verdict = gate(BARE).judge(found.context)
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.proof_level is None
    assert verdict.kinds == {"end_not_shown"}


SAYS = b"print('answered in 0.01s')\nfrom app import answer\nassert answer() == 42\n"


def test_a_line_like_a_summary_of_no_test_counts_for_none(tmp_path: Path) -> None:
    proof = Proof(("python", "proof.py"), {"proof.py": SAYS})
    with case(tmp_path, {"app.py": "import os\nos._exit(0)\n"}) as found:
        verdict = ProofGate(proof, PyPIEcosystem(SubprocessClients())).judge(found.context)
    assert verdict.status is GateStatus.SKIPPED


def test_a_test_that_the_patch_ends_early_is_missed(tmp_path: Path) -> None:
    with case(tmp_path, EARLY) as found:
        verdict = ProofGate(PROOF, PyPIEcosystem(SubprocessClients())).judge(found.context)
    assert (verdict.status, verdict.failure_kind) == (GateStatus.FAILED, FailureKind.PROOF_FAILED)
    assert verdict.detail == "the proof ran 1 test(s) at the base commit, 0 with the patch"


BEFORE_ALL = {"lib.js": "process.exit(0)\n"}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (
            "let a = require('../lib.js')\nrequire('node:test')('it', () => { if (a() != 42) throw 1 })\n",
            GateStatus.FAILED,
        ),
        ("if (require('../lib.js')() !== 42) throw new Error('no')\n", GateStatus.SKIPPED),
    ],
    ids=["a test", "a bare script"],
)
def test_a_file_is_no_test_whatever_node_counts(
    tmp_path: Path, text: str, status: GateStatus
) -> None:
    proof = Proof(("node", "--test", "proof/p.test.js"), {"proof/p.test.js": text.encode()})
    files = {**FILES, "lib.js": "module.exports = () => 41\n"}
    with patched(tmp_path, files, BEFORE_ALL, about=advisory()) as found:
        npm = npm_ecosystem(SubprocessClients())
        assert ProofGate(proof, npm).judge(found.context).status is status


@pytest.mark.parametrize(
    ("changes", "status"), [(RIGHT, GateStatus.PASSED), (EARLY, GateStatus.FAILED)]
)
def test_a_script_proves_by_its_last_line(
    tmp_path: Path, changes: Mapping[str, str], status: GateStatus
) -> None:
    end = "found no flaw"
    with case(tmp_path, changes) as found:
        verdict = gate(replace(BARE, end=end)).judge(found.context)
    assert verdict.status is status
    assert end not in verdict.detail  # what a patch is not told, it can't print


def test_that_a_script_will_prove_nothing_is_said_before_anything_is_spent(tmp_path: Path) -> None:
    messages: list[str] = []
    repo = repository(tmp_path / "repo", FILES)
    for proof in (BARE, replace(BARE, end="found no flaw"), PROOF):
        check_at(repo, tmp_path, proof, messages.append)
    assert len(messages) == 1
    assert "will prove nothing" in messages[0]


def test_a_last_line_at_the_base_commit_shows_nothing(tmp_path: Path) -> None:
    proof = Proof(("sh", "-c", "echo done; exit 1"), end="done")
    with pytest.raises(ProofError, check=OfKind("end_line_at_base")):
        check(tmp_path, proof)


@pytest.mark.parametrize("end", ["two\nlines", " spaces ", " "])
def test_a_last_line_is_one_line(end: str) -> None:
    with pytest.raises(ProofError, check=OfKind("bad_end_line")):
        Proof(("true",), end=end)


def test_a_patch_that_hangs_fails(tmp_path: Path) -> None:
    hangs = {"app.py": hanging.IN_PYTHON}
    proof = replace(PROOF, timeout_s=2.0)
    with case(tmp_path, hangs) as found:
        verdict = gate(proof).judge(found.context)
    assert verdict.failure_kind is FailureKind.GATE_TIMEOUT


def test_a_good_proof_is_accepted_before_anything_is_spent(tmp_path: Path) -> None:
    assert "AssertionError: 41 != 42" in check(tmp_path, PROOF)
    assert list((tmp_path / "state" / "worktrees").iterdir()) == []


def test_a_proof_that_passes_already_is_an_error_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(ProofError, check=OfKind("passes_at_base")):
        check(tmp_path, Proof(("true",)))
    assert issubclass(ProofError, InputError)


def test_a_proof_that_never_ends_is_an_error_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(ProofError, check=OfKind("timed_out")):
        check(tmp_path, Proof(("sleep", "60"), timeout_s=1.0))


@pytest.mark.parametrize("path", ["app.py", "app.py/test.py"])
def test_a_file_of_the_repository_is_never_replaced(tmp_path: Path, path: str) -> None:
    with pytest.raises(ProofError, check=OfKind("file_in_the_way")):
        check(tmp_path, Proof(("true",), {path: b""}))


def test_a_link_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = tmp_path / "repo"
    write(root, FILES)
    (root / "proof").symlink_to(elsewhere)
    commit_all(root)
    facts = inspect_repository(root, SubprocessClients())
    repo = RepoContext(
        **facts.model_dump(exclude={"dirty", "hidden"}),
        manifests=(),
        fix_id="fix-1",
        gate_transition_id="gate-1",
    )
    with pytest.raises(ProofError, check=OfKind("file_in_the_way")):
        check_at(repo, tmp_path, Proof(("false",), {"proof/deep/test.py": b""}))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", ".git/hooks/x", "", "."])
def test_places_outside_the_repository_are_refused(path: str) -> None:
    with pytest.raises(ProofError, check=OfKind("outside")):
        Proof(("true",), {path: b""})


def test_a_command_is_needed() -> None:
    with pytest.raises(ProofError, check=OfKind("no_command")):
        Proof(())
