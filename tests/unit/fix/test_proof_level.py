"""What a fix is proved to be is what the gates have seen, not what the attempt says of itself."""

import pytest

from fallback_audit.vocabulary import GateStatus, ProofLevel
from fallback_plugins.shared.gates import gating
from fallback_tier.fix_result import shown_by
from fallback_tier.gate_ports import GateVerdict


def verdict(level: ProofLevel | None, status: GateStatus = GateStatus.PASSED) -> GateVerdict:
    return GateVerdict(gate="g", status=status, detail="", proof_level=level)


@pytest.mark.parametrize(
    ("verdicts", "level"),
    [
        ([], None),
        ([verdict(None)], None),
        ([verdict(None), verdict(ProofLevel.RESOLVED_TREE)], ProofLevel.RESOLVED_TREE),
        ([verdict(ProofLevel.RESOLVED_TREE, GateStatus.SKIPPED)], None),
    ],
)
def test_the_gate_that_looked_at_versions_tells(
    verdicts: list[GateVerdict], level: ProofLevel | None
) -> None:
    assert shown_by(verdicts) is level


def test_of_several_projects_the_weakest_proof_counts() -> None:
    both = [verdict(ProofLevel.RESOLVED_TREE), verdict(ProofLevel.PINS)]
    assert gating.combined("g", both).proof_level is ProofLevel.PINS
    assert gating.combined("g", both[:1] * 2).proof_level is ProofLevel.RESOLVED_TREE


def test_a_package_that_could_not_be_read_lowers_what_the_others_prove() -> None:
    passed = gating.passed("g", "resolved tree: a 2", proof_level=ProofLevel.RESOLVED_TREE)
    both = gating.combined("g", [passed, gating.unread("g", "b tells no version")])
    assert (both.status, both.proof_level) == (GateStatus.PASSED, ProofLevel.PINS)
    assert "b tells no version" in both.detail
    absent = gating.combined("g", [passed, gating.skipped("g", "b is not a dependency")])
    assert absent == passed
    alone = gating.combined("g", [gating.unread("g", "b tells no version")])
    assert alone.status is GateStatus.SKIPPED


def test_tests_that_failed_before_are_named_of_every_project() -> None:
    both = [
        gating.passed("tests", one).model_copy(update={"failing_before": (one,)}) for one in "ab"
    ]
    assert gating.combined("tests", both).failing_before == ("a", "b")
