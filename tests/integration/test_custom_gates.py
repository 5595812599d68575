"""Gates of the user's own, on real worktrees and in the sandbox."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.configured import GateSettings, of_base
from fallback_tier.errors import ConfigurationError
from fallback_tier.fix.parts import gates_for
from fallback_tier.gate_ports import GateContext, GateVerdict, TargetRun
from fallback_tier.gates.builtin.common import common_gates
from fallback_tier.gates.builtin.custom import CustomGate
from fallback_tier.gates.failure_summary.distill import distill
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Configuration
from tests.fakes.ecosystem import FakeEcosystem
from tests.integration.gate_setup import Case, advisory, applied, needs_sandbox, patched
from tests.kinds import OfKind

pytestmark = pytest.mark.sandbox

LINT = """\
import pathlib, sys
bad = [p.name for p in pathlib.Path().glob("*.py") if "eval(" in p.read_text()]
print("eval in", bad)
sys.exit(bool(bad))
"""
CLEAN, EVIL = "x = 1\n", "x = eval('1')\n"
FILES = {"app.py": CLEAN, "tools/lint": LINT}


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def settings(**facts: Any) -> GateSettings:
    reported = {"name": "lint", "command": ("python3", "tools/lint"), "timeout_s": 60.0}
    return GateSettings.model_validate(reported | facts)


@contextmanager
def case(
    tmp_path: Path, before: Mapping[str, str], after: Mapping[str, str | None]
) -> Iterator[Case]:
    with patched(tmp_path, {**FILES, **before}, after, about=advisory()) as found:
        yield found


def judged(found: Case, **facts: Any) -> GateVerdict:
    return CustomGate(settings(**facts), FakeEcosystem()).judge(found.context)


def test_a_patch_that_keeps_it_passes(tmp_path: Path) -> None:
    with case(tmp_path, {}, {"app.py": "x = 2\n"}) as found:
        verdict = judged(found)
    assert verdict.status is GateStatus.PASSED
    assert verdict.gate == "lint"
    assert verdict.log == "eval in []\n"


def test_a_patch_that_breaks_it_fails_with_its_log(tmp_path: Path) -> None:
    with case(tmp_path, {}, {"app.py": EVIL}) as found:
        verdict = judged(found)
    assert verdict.failure_kind is FailureKind.CUSTOM_GATE_FAILED
    assert verdict.detail == "python3 tools/lint ends with exit code 1"
    summary = distill([verdict], application=applied(), attempt=1).prior_failure_summary
    assert "failed at gate lint: custom_gate_failed" in summary
    assert "eval in ['app.py']" in summary


def test_what_fails_at_the_base_commit_too_tells_nothing_of_the_patch(tmp_path: Path) -> None:
    with case(tmp_path, {"old.py": EVIL}, {"app.py": "x = 2\n"}) as found:
        verdict = judged(found)
        strict = judged(found, compare_base=False)
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.detail == "python3 tools/lint ends with exit code 1, and at the base commit too"
    assert strict.failure_kind is FailureKind.CUSTOM_GATE_FAILED


def test_a_failure_that_is_not_required_is_told_and_is_no_pass(tmp_path: Path) -> None:
    with case(tmp_path, {}, {"app.py": EVIL}) as found:
        verdict = judged(found, required=False)
    assert verdict.status is GateStatus.SKIPPED
    assert "not required" in verdict.detail
    assert "eval in" in verdict.log


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    slow = "import time\nwhile 'y' in open('app.py').read(): time.sleep(1)\n"
    with case(tmp_path, {"tools/lint": slow}, {"app.py": "y = 1\n"}) as found:
        verdict = judged(found, timeout_s=2.0)
    assert verdict.failure_kind is FailureKind.GATE_TIMEOUT
    assert verdict.detail == "python3 tools/lint did not end within 2 s"


def test_a_program_that_is_not_there_is_not_the_patchs_fault(tmp_path: Path) -> None:
    with case(tmp_path, {}, {"app.py": "x = 2\n"}) as found:
        verdict = judged(found, command=["no-such-linter"])
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.kinds == {"program_missing"}


def test_what_an_earlier_command_left_is_not_seen(tmp_path: Path) -> None:
    """A suite of the target's may plant what would make the next gate pass."""
    with case(tmp_path, {}, {"app.py": EVIL}) as found:
        plant = "echo 'import sys; sys.exit(0)' > sitecustomize.py; : > app.py; : > pathlib.py"
        tree = found.context.worktree.tree
        done = found.context.sandbox.run(["sh", "-c", plant], worktree=tree, timeout_s=60)
        assert done.ok
        verdict = judged(found)
    assert verdict.failure_kind is FailureKind.CUSTOM_GATE_FAILED


def test_it_runs_in_the_sandbox_without_network_and_outside_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    nosy = f"""\
import os, socket, sys
for what in (lambda: open({str(secret)!r}), lambda: socket.create_connection(("192.0.2.1", 9), 3)):
    try:
        what()
    except OSError as error:
        print(type(error).__name__)
    else:
        sys.exit("reached")
print(sorted(name for name in os.environ if "KEY" in name or "TOKEN" in name))
"""
    with case(tmp_path / "in", {"tools/lint": nosy}, {"app.py": "x = 2\n"}) as found:
        verdict = judged(found)
    assert verdict.status is GateStatus.PASSED, verdict.log
    assert verdict.log.splitlines()[-1] == "[]"
    assert "FileNotFoundError" in verdict.log


def running(ran: Callable[[TargetRun], TargetRun]) -> FakeEcosystem:
    """One whose runs become others."""

    class Running(FakeEcosystem):
        def run(
            self,
            context: GateContext,
            tree: RepoContext,
            argv: Any,
            timeout_s: float | None = None,
        ) -> TargetRun:
            return ran(super().run(context, tree, argv, timeout_s))

    return Running()


def test_dependencies_that_can_not_be_installed_are_a_reason(tmp_path: Path) -> None:
    nothing = running(lambda _: TargetRun(None, "npm says no"))
    with case(tmp_path, {}, {"app.py": EVIL}) as found:
        verdict = CustomGate(settings(), nothing).judge(found.context)
    assert verdict.status is GateStatus.SKIPPED
    assert "npm says no" in verdict.detail


# --- where they stand, and in what order ----------------------------------------------------------

CONFIG = '[[tool.fallback-tier.gates]]\nname = "lint"\ncommand = ["python3", "tools/lint"]\n'
WEAK = CONFIG.replace('"tools/lint"', '"-c", ""')


@pytest.mark.parametrize("name", [".fallback-tier.toml", "pyproject.toml"])
def test_a_patch_can_not_weaken_what_it_is_judged_by(tmp_path: Path, name: str) -> None:
    """The weaker gate in the patched tree is not read; and changing where it stands is refused."""
    with case(tmp_path, {name: CONFIG}, {name: WEAK, "app.py": EVIL}) as found:
        context = found.context
        for own in of_base(context.repo, context.clients).gates:
            verdict = CustomGate(own, FakeEcosystem()).judge(context)
            assert verdict.failure_kind is FailureKind.CUSTOM_GATE_FAILED
        policy = next(gate for gate in common_gates(FakeEcosystem()) if gate.name == "policy")
        assert policy.judge(context).failure_kind is FailureKind.POLICY_VIOLATION


def names(found: Case, **facts: Any) -> list[str]:
    configuration = Configuration(state_dir=found.context.cache, **facts)
    context = found.context
    gates = gates_for(FakeEcosystem(), context.repo, configuration, context.clients)
    return [gate.name for gate in gates]


def test_they_come_after_the_ecosystems_and_the_proof(tmp_path: Path) -> None:
    with case(tmp_path, {".fallback-tier.toml": CONFIG}, {"app.py": EVIL}) as found:
        assert names(found)[-1] == "lint"
        assert names(found, proof={"command": ["true"]})[-2:] == ["proof", "lint"]
        assert names(found, gates=[])[-1] != "lint"  # our configuration counts alone
        assert names(found, gates=[{"name": "docs", "command": ["true"]}])[-1] == "docs"


@pytest.mark.parametrize("name", ["proof", "applies", "policy"])
def test_a_built_in_gates_name_is_taken(tmp_path: Path, name: str) -> None:
    config = CONFIG.replace('"lint"', f'"{name}"')
    with (
        case(tmp_path, {".fallback-tier.toml": config}, {"app.py": EVIL}) as found,
        pytest.raises(ConfigurationError, check=OfKind("built_in_name"), match=f"'{name}'"),
    ):
        names(found)
