"""What the tests of the context ask with."""

from fallback_audit.vocabulary import FailureKind
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.outcome import AttemptSummary


def advisory(details: str = "") -> Advisory:
    body = Advisory.model_validate(
        {
            "id": "TEST-1",
            "details": details,
            "affected": [{"package": {"ecosystem": "PyPI", "name": "vulnerable"}}],
        }
    )
    return parse_advisory(body.model_dump_json().encode(), "test")


def failed(summary: str) -> tuple[AttemptSummary, ...]:
    return (
        AttemptSummary(
            attempt=1, failure_kind=FailureKind.TESTS_FAILED, prior_failure_summary=summary
        ),
    )
