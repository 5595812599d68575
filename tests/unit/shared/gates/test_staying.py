"""Which affected copies a gate lets stay: those that the plan left, as they were, and no other."""

import pytest

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.shared.gates.comparing import may_stay
from fallback_tier.advisory import Advisory, AdvisoryBundle, Staying, bundle
from fallback_tier.outcome import Applied, Move, Remediation
from tests.integration.gate_setup import DIGEST, applied
from tests.unit.planning.test_planning import advisory


def planned(*staying: tuple[str, str]) -> Advisory:
    """A and B are both about leaf, A about twig as well."""
    two = bundle([advisory("A", "leaf", "twig"), advisory("B", "leaf@1.5.0")])
    reported = [Staying(advisory_id=name, package=package) for name, package in staying]
    return AdvisoryBundle.model_validate({**dict(two), "staying": reported})


def raising(*before: str, package: str = "leaf") -> Applied:
    move = Move(
        package=package, manifest="lock", step=LadderStep.LOCK_REFRESH, before=before, after="2.0.0"
    )
    account = Remediation(moves=(move,), evidence_sha256=DIGEST)
    return applied().model_copy(update={"remediation": account})


STAYS = planned(("A", "leaf"))


@pytest.mark.parametrize(
    ("now", "before", "made", "may"),
    [
        (["1.6.0"], ["1.6.0", "1.7.0"], raising("1.7.0"), True),
        (["1.6.0"], ["1.6.0", "1.6.0"], raising("1.6.0"), True),
        (["1.6.0"], ["1.6.0"], raising("1.0.0", package="twig"), True),
        # What the recipe says that it raised is there as before.
        (["1.6.0", "1.7.0"], ["1.6.0", "1.7.0"], raising("1.7.0"), False),
        # One copy more, and a version that was not there.
        (["1.6.0", "1.6.0"], ["1.6.0", "1.7.0"], raising("1.7.0"), False),
        (["1.8.0"], ["1.6.0", "1.7.0"], raising("1.7.0"), False),
        # B covers this one, and says nothing of what stays.
        (["1.4.0"], ["1.4.0", "1.7.0"], raising("1.7.0"), False),
        # No recipe tells what it raised.
        (["1.6.0"], ["1.6.0", "1.7.0"], applied(), False),
    ],
)
def test_only_what_was_left_stays(
    now: list[str], before: list[str], made: Applied, may: bool
) -> None:
    assert may_stay(STAYS, made, "PyPI", "leaf", now, before) is may


def test_without_a_plan_nothing_stays() -> None:
    made = raising("1.7.0")
    assert not may_stay(advisory("A", "leaf"), made, "PyPI", "leaf", ["1.6.0"], ["1.6.0"])
    assert not may_stay(planned(("A", "twig")), made, "PyPI", "leaf", ["1.6.0"], ["1.6.0"])
