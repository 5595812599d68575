"""A check beside the same check of the base commit: the verdicts, over made-up runs."""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import Check, Finding, judge_check, together
from fallback_plugins.shared.installation import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.repo import RepoContext
from tests.unit.shared.gates.test_flaky import context

PASSED, SKIPPED, UNDECIDED = GateStatus.PASSED, GateStatus.SKIPPED, GateStatus.UNDECIDED


def result(*messages: str, code: int | None = None) -> CommandResult:
    """What was complained of, a line each; ``STOP``: and then it stopped."""
    code = int(bool(messages)) if code is None else code
    return CommandResult(argv=("c",), exit_code=code, output="\n".join(messages), duration_ms=1)


NOWHERE = NotInstalled("no wheel of left")
HANGS = result().model_copy(update={"exit_code": None})
CUT = result("a").model_copy(update={"truncated": True})


def findings(output: str) -> list[Finding]:
    return [Finding(line, f"here: {line}") for line in output.split("\n") if line != "STOP"]


def judge(
    place: Path,
    ours: CommandResult | NotInstalled,
    base: CommandResult | NotInstalled,
    label: str = "check",
    on: str = "",
) -> tuple[GateVerdict, list[str]]:
    asked: list[str] = []

    def run(tree: RepoContext) -> CommandResult | NotInstalled:
        asked.append(tree.tree.root.name)
        return ours if asked[-1] == "patched" else base

    check = Check(label, run, findings, lambda one: "STOP" in one.output, on=lambda: on)
    return judge_check("typecheck", context(place), ".", check), asked


def test_a_check_in_order_needs_no_comparison(tmp_path: Path) -> None:
    verdict, asked = judge(tmp_path, result(), result("a"))
    assert (verdict.status, asked) == (PASSED, ["patched"])


def test_what_the_base_commit_does_not_complain_of_fails_and_is_the_log(tmp_path: Path) -> None:
    verdict, _ = judge(tmp_path, result("a", "b", "a"), result("a"))
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.log == "here: b\nhere: a"


def test_where_the_base_commit_is_in_order_the_whole_log_is_kept(tmp_path: Path) -> None:
    verdict, _ = judge(tmp_path, result("a", "explained"), result())
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.log == "a\nexplained"


@pytest.mark.parametrize(
    ("ours", "base", "status"),
    [
        (result("a"), result("a", "b"), PASSED),
        (result("a"), result("a"), PASSED),
        (result("a", "STOP"), result("a", "STOP"), SKIPPED),
        (result("a", "b"), result("STOP"), SKIPPED),
        (result("STOP"), result("STOP"), SKIPPED),
        (HANGS, HANGS, SKIPPED),
        (NOWHERE, result(), SKIPPED),
        # The base commit's lock may be out of step: whose doing it is nobody can tell.
        (result("a"), NOWHERE, UNDECIDED),
        (HANGS, NOWHERE, UNDECIDED),
        # What the base commit did not come to may be out of order there too.
        (result("a"), HANGS, SKIPPED),
        # Of a log too long to be kept nobody knows what else it complained of.
        (CUT, result("a"), SKIPPED),
        (result("a", "b"), CUT, SKIPPED),
        (result("b").model_copy(update={"truncated": True}), CUT, SKIPPED),
    ],
)
def test_nothing_new_is_a_pass_only_where_everything_was_looked_at(
    tmp_path: Path,
    ours: CommandResult | NotInstalled,
    base: CommandResult | NotInstalled,
    status: GateStatus,
) -> None:
    verdict, _ = judge(tmp_path, ours, base)
    assert verdict.status is status
    assert verdict.detail != ""


@pytest.mark.parametrize(
    ("ours", "base", "kind"),
    [
        (result("a", code=139), result("a"), FailureKind.BUILD_FAILED),
        (HANGS, result("a"), FailureKind.GATE_TIMEOUT),
        (HANGS, result(), FailureKind.GATE_TIMEOUT),
    ],
)
def test_what_ends_otherwise_than_at_the_base_commit_fails(
    tmp_path: Path, ours: CommandResult, base: CommandResult, kind: FailureKind
) -> None:
    verdict, _ = judge(tmp_path, ours, base)
    assert verdict.failure_kind is kind


def test_what_can_not_be_installed_is_named_in_the_clients_words(tmp_path: Path) -> None:
    for number, (ours, base) in enumerate([(NOWHERE, result()), (result("a"), NOWHERE)]):
        verdict, _ = judge(tmp_path / str(number), ours, base)
        assert "no wheel of left" in verdict.detail


def test_the_base_commit_is_asked_once_and_not_relied_on_where_it_hung(tmp_path: Path) -> None:
    judge(tmp_path, result("a"), result("a"))
    again = judge(tmp_path, result("a", "b"), result("b"))
    other = judge(tmp_path, result("a"), result("a"), label="another check")
    assert (again[0].log, again[1]) == ("here: b", ["patched"])
    assert other[1] == ["patched", "base"]
    elsewhere = judge(tmp_path, result("a"), result("a"), on="another interpreter")
    assert elsewhere[1] == ["patched", "base"]
    judge(tmp_path / "2", HANGS, HANGS)
    assert judge(tmp_path / "2", HANGS, HANGS)[1] == ["patched", "base"]


def test_a_pass_over_several_checks_says_what_it_leaves_out() -> None:
    good, left = gating.passed("build", "a: in order"), gating.skipped("build", "b has none")
    bad = gating.failed("build", FailureKind.BUILD_FAILED, "c fails")
    assert together("build", [good, left]).detail == "a: in order; not checked: b has none"
    assert together("build", [left, left]).status is SKIPPED
    assert together("build", [good, bad, left]).detail == "c fails"
