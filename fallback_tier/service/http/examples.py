"""Examples for the OpenAPI document, and what every route may answer besides."""

from typing import Any

from pydantic import Field

from fallback_audit.frozen import Frozen

ADVISORY: dict[str, Any] = {
    "id": "GHSA-jjg7-2v4v-x38h",
    "modified": "2024-04-12T00:00:00Z",
    "summary": "A crafted argument to idna.encode() takes quadratic time",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "idna"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]}],
        }
    ],
}

SUBMISSION = {"repository": "app", "advisory": ADVISORY}

ATTEMPT = {"repository": "app", "advisory": ADVISORY, "prior_attempts": []}

DECISION = {"verdict": "reject", "because": "the package goes away next week"}

BECAUSE = {"because": "the provider is needed elsewhere until Monday"}


class ProblemDocument(Frozen):
    """RFC 9457. ``code`` and ``next_step`` are ours."""

    type: str = Field(examples=["urn:fallback-tier:problem:not_found"])
    title: str
    status: int
    detail: str
    code: str
    next_step: str
    faults: list[dict[str, str]] = Field(default_factory=list)


_WORDS = {
    400: "the body is not JSON, or an object of it has a key twice",
    401: "nobody has signed in",
    403: "the caller does not have the role",
    404: "there is no such thing",
    409: "it stands against what is there",
    410: "evidence that is named is gone",
    413: "the body is too large",
    415: "the body is not application/json",
    422: "the request is not valid, or not served",
    429: "more requests than this caller may make",
    503: "nothing can be taken now",
    504: "no answer in time",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides success, with those that every route may."""
    every = {400, 401, 403, 413, 415, 422, 429, 503, 504, *statuses}
    return {
        status: {
            "description": _WORDS[status],
            "content": {"application/problem+json": {"schema": _SCHEMA}},
        }
        for status in sorted(every)
    }


_SCHEMA = ProblemDocument.model_json_schema()
