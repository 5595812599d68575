"""The proof gate with what the project declares installed: real npm and uv, a made-up registry."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.plugin import NpmEcosystem
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_tier.gates.builtin.proof import Proof, ProofError, ProofGate, check_proof
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests.integration.gate_setup import Case, advisory, needs_sandbox, patched, repository
from tests.kinds import OfKind
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

#: What the vulnerable version does and the fixed one does not.
NPM = {"index.js": "module.exports = (text) => {0};\n"}
EVIL_JS, GOOD_JS = "eval(text)", "Number(text)"
PYPI = {"left/api.py": "def read(text):\n    return {0}\n"}
EVIL_PY, GOOD_PY = "eval(text)", "int(text)"


def with_(files: dict[str, str], what: str) -> dict[str, str]:
    return {path: text.replace("{0}", what) for path, text in files.items()}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .npm("left", "1.0.0", files=with_(NPM, EVIL_JS))
        .npm("left", "1.0.1", files=with_(NPM, GOOD_JS))
        .pypi("left", "1.0.0", files=with_(PYPI, EVIL_PY))
        .pypi("left", "1.0.1", files=with_(PYPI, GOOD_PY))
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def package_json(version: str) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "dependencies": {"left": version}})


NODE_TEST = b"""\
const { test } = require('node:test');
test('no code from outside runs', () => {
  global.ran = false;
  require('left')('global.ran = true');
  if (global.ran) throw new Error('code from outside was run');
});
"""
PYTHON_TEST = b"""\
import os
import unittest
from left.api import read

class NoCodeFromOutside(unittest.TestCase):
    def test_it(self):
        with self.assertRaises(ValueError):
            read("os.getpid()")
"""

NODE = Proof(("node", "--test", "proof/poc.js"), {"proof/poc.js": NODE_TEST})
PYTHON = Proof(
    ("python", "-m", "unittest", "proof/test_poc.py"), {"proof/test_poc.py": PYTHON_TEST}
)
#: ecosystem → plugin, manifest, its text at a version, the proof
KINDS = {
    "npm": (NpmEcosystem, "package.json", package_json, NODE),
    "pypi": (PyPIEcosystem, "requirements.txt", "left=={}\n".format, PYTHON),
}
both = pytest.mark.parametrize("kind", KINDS)


def gate(kind: str, case: Case, proof: Proof | None = None) -> ProofGate:
    plugin, _, _, given = KINDS[kind]
    return ProofGate(proof or given, plugin(case.context.clients))


@pytest.fixture
def case(registry: Registry, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A bump of ``left`` from 1.0.0, to what the parameter says."""
    kind, after = request.param
    _, manifest, text, _ = KINDS[kind]
    files = {manifest: text("1.0.0"), "app": "1\n"}
    changes: dict[str, str | None] = {manifest: text(after), "app": "2\n"}
    with patched(tmp_path, files, changes, about=advisory(), manifests=(manifest,)) as found:
        yield found.with_(clients=SubprocessClients(os.environ | registry.environ))


def bumped(after: str, *kinds: str) -> pytest.MarkDecorator:
    cases = [pytest.param((kind, after), kind, id=kind) for kind in kinds or KINDS]
    return pytest.mark.parametrize(("case", "kind"), cases, indirect=["case"])


@bumped("1.0.1")
def test_the_flaw_is_in_a_dependency_and_the_bump_fixes_it(case: Case, kind: str) -> None:
    verdict = gate(kind, case).judge(case.context)
    assert verdict.status is GateStatus.PASSED, verdict.log
    tree = case.context.worktree.tree
    assert tree.find("proof") is None
    assert tree.find("node_modules") is None


@bumped("1.0.0")
def test_a_patch_that_leaves_the_version_leaves_the_flaw(case: Case, kind: str) -> None:
    """Something else is patched, so the proof must fail as it did before."""
    verdict = gate(kind, case).judge(case.context)
    assert verdict.failure_kind is FailureKind.PROOF_FAILED
    assert "NoCodeFromOutside" in verdict.log or "code from outside was run" in verdict.log


@bumped("9.9.9")
def test_what_the_patch_declares_must_be_there(case: Case, kind: str) -> None:
    """A release that is not there is no failure of the proof's: the gate before it says so."""
    plugin, *_ = KINDS[kind]
    verdicts = case.judge(plugin(case.context.clients).gates())
    assert verdicts["resolves"].failure_kind is FailureKind.RESOLUTION_FAILED
    assert "9.9.9" in verdicts["resolves"].log


#: ecosystem → its name, what adds a release, modules, what they do with and without the flaw; a manifest
#: that asks for a release that the patch moves, and for one of any
MOVING = {
    "npm": (
        *("npm", Universe.npm, NPM, EVIL_JS, GOOD_JS),
        '{"name": "app", "version": "1.0.0", "dependencies": {\n"other": "{0}",\n"left": "^1.0.0"\n}}',
    ),
    "pypi": ("PyPI", Universe.pypi, PYPI, EVIL_PY, GOOD_PY, "other=={0}\nleft\n"),
}


@both
def test_a_release_published_in_between_fixes_no_flaw(kind: str, tmp_path: Path) -> None:
    """No file pins ``left``. Its new release has no flaw any more, and the patch moves another package: the
    proof runs on the base commit's release, and fails."""
    ecosystem, release, modules, evil, good, text = MOVING[kind]
    plugin, manifest, _, proof = KINDS[kind]
    base, after = ({manifest: text.replace("{0}", version)} for version in ("1.0.0", "1.0.1"))
    universe, about = Universe(), advisory("other", ecosystem)
    for version in ("1.0.0", "1.0.1"):
        release(universe, "other", version)
    release(universe, "left", "1.0.0", files=with_(modules, evil))
    with serve(universe) as registry, patched(tmp_path, base, after, about=about) as found:
        cache = tmp_path / "uv"
        environ = os.environ | registry.environ | {"UV_CACHE_DIR": str(cache)}
        case = found.with_(clients=SubprocessClients(environ))
        judging = ProofGate(proof, plugin(case.context.clients))
        judging.at_base(case.context)
        release(universe, "left", "1.0.1", files=with_(modules, good))
        for known in (cache, case.context.cache / "npm"):  # what the clients know of packages
            rmtree(known, ignore_errors=True)
        verdict = judging.judge(case.context)
    assert verdict.status is GateStatus.FAILED, verdict.detail
    assert verdict.detail.startswith("the proof fails")


def test_a_proof_on_other_dependencies_shows_nothing_of_the_patch(
    registry: Registry, tmp_path: Path
) -> None:
    """What was missing at the base commit may be why the proof failed there."""
    files = {"requirements.txt": "absent-name\nleft==1.0.0\n"}
    after = {"requirements.txt": "left==1.0.1\n"}
    with patched(tmp_path, files, after, about=advisory()) as found:
        case = found.with_(clients=SubprocessClients(os.environ | registry.environ))
        verdict = gate("pypi", case).judge(case.context)
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.kinds == {"other_dependencies"}
    assert "absent-name" in verdict.detail


def test_also_where_both_are_told_by_the_same_beginning(registry: Registry, tmp_path: Path) -> None:
    missing = "absent-a\nabsent-b\nabsent-c\n"
    files = {"requirements.txt": f"{missing}absent-name\nleft==1.0.0\n"}
    after = {"requirements.txt": f"{missing}other-name\nleft==1.0.1\n"}
    with patched(tmp_path, files, after, about=advisory()) as found:
        case = found.with_(clients=SubprocessClients(os.environ | registry.environ))
        verdict = gate("pypi", case).judge(case.context)
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.kinds == {"other_dependencies"}


@bumped("1.0.1", "pypi")
def test_an_import_that_only_the_patch_brings_is_no_failure_of_the_flaw(
    case: Case, kind: str
) -> None:
    proof = Proof(("python", "-c", "import left.absent"))
    verdict = gate(kind, case, proof).judge(case.context)
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.kinds == {"another_cause"}


@both
def test_a_base_that_can_not_be_installed_is_told_before_anything_is_spent(
    kind: str, registry: Registry, tmp_path: Path
) -> None:
    plugin, manifest, text, proof = KINDS[kind]
    repo = repository(tmp_path / "repo", {manifest: text("9.9.9")}, (manifest,))
    clients = SubprocessClients(os.environ | registry.environ)
    with pytest.raises(
        ProofError, check=OfKind("passes_at_base", "another_cause"), match=r"9\.9\.9"
    ):
        check_proof(
            ProofGate(proof, plugin(clients)),
            advisory(),
            repo,
            clients=clients,
            sandbox=BubblewrapSandbox(),
            workspace=tmp_path / "state",
        )


def test_and_in_a_run_it_is_a_reason_for_a_person_to_look(
    registry: Registry, tmp_path: Path
) -> None:
    files, after = {"requirements.txt": "left==9.9.9\n"}, {"requirements.txt": "left==1.0.1\n"}
    with patched(tmp_path, files, after, about=advisory()) as found:
        case = found.with_(clients=SubprocessClients(os.environ | registry.environ))
        verdict = gate("pypi", case).judge(case.context)
    assert verdict.status is GateStatus.SKIPPED
    assert "9.9.9" in verdict.detail


@bumped("1.0.1", "pypi")
def test_what_was_checked_before_is_not_run_again(case: Case, kind: str) -> None:
    """``check_proof`` and the gate ask the base commit once between them, in one state folder."""
    context = replace(case.context, cache=case.context.cache.parent / "state" / "cache")
    plugin, _, _, proof = KINDS[kind]
    runs = []

    class Counting(plugin):  # type: ignore[misc, valid-type]
        def run(self, *args: object) -> object:
            runs.append(args)
            return super().run(*args)

    counted = ProofGate(proof, Counting(context.clients))
    check_proof(
        counted,
        context.advisory,
        context.repo,
        clients=context.clients,
        sandbox=context.sandbox,
        workspace=context.cache.parent,
    )
    assert len(runs) == 1
    assert counted.judge(context).status is GateStatus.PASSED
    assert len(runs) == 2
