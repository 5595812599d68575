import pytest

from fallback_audit.vocabulary import GateStatus
from fallback_tier.portal.pages.triage import decision_message
from fallback_tier.portal.views.triage import not_proved

PASSED, FAILED, SKIPPED = GateStatus.PASSED, GateStatus.FAILED, GateStatus.SKIPPED


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        ({"tests": PASSED}, "Not proved: that the flaw is gone."),
        (
            {"tests": FAILED, "lint": SKIPPED},
            "Not proved: that the flaw is gone and that the tests pass. Gates skipped: lint.",
        ),
        ({"proof": PASSED, "tests": FAILED}, "Not proved: that the tests pass."),
        ({"proof": FAILED}, "Not proved: that the flaw is gone."),
        (
            {"proof": PASSED, "not_vulnerable": SKIPPED},
            (
                "What ran passed on the patch asked about; something else is asked. "
                "Gates skipped: not_vulnerable."
            ),
        ),
    ],
)
def test_what_is_not_proved(verdicts: dict[str, GateStatus], says: str) -> None:
    assert not_proved(verdicts, shows=frozenset({"proof"}), has_patch=True) == says


def test_without_a_patch_nothing_is_proved() -> None:
    assert (
        not_proved({}, shows=frozenset(), has_patch=False)
        == "There is no patch, so nothing is proved."
    )


@pytest.mark.parametrize(
    ("done", "says"),
    [
        ("fix-1.approve.over", "fix-1: approved."),
        ("fix.1.reopen.queued", "fix.1: reopened in a new gate transition. It goes on now."),
        ("fix-1.merge.over", None),
        ("nothing", None),
        ("", None),
    ],
)
def test_the_decision_before(done: str, says: str | None) -> None:
    assert decision_message(done) == says
