"""What the tool said of a run, read from the JSON that it printed.

The reader is liberal: older and newer tools differ in fields. No code of the tool's is used.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.measuring.process import Done
from tests.campaigns.measuring.words import cleaned

#: How much of a sentence a row keeps: refusals name constraints, and the words looked for come late.
_WORDS_CHARS = 900

_TRACEBACK = "Traceback (most recent call last)"

Document = Mapping[str, Any]
Places = Iterable[tuple[str, str]]


class Reported(Frozen):
    """``outcome``: as ``Outcome`` names it, or patched, error, timeout. ``words``: its sentences.

    ``traceback``: of ``fix``, or of the ``plan`` before it. ``first_failed``: the gates that failed the
    first attempt; ``first_said``: what was kept of why.
    """

    code: int | None
    outcome: str
    reasons: tuple[str, ...] = ()
    words: str = ""
    headline: str = ""
    attempts: int = 0
    first_failed: tuple[str, ...] = ()
    first_said: str = ""
    traceback: bool = False
    seconds: float = 0.0

    @property
    def says_fixed(self) -> bool:
        """Did it deliver something that it calls a fix?"""
        return self.outcome in {"fixed", "partly"}


def read_reported(done: Done, seconds: float, places: Places = ()) -> Reported:
    """How a run of ``fix --json`` ended."""
    places = tuple(places)
    facts: dict[str, Any] = {"code": done.code, "seconds": round(seconds, 1)}
    facts["traceback"] = has_traceback(done)
    document = answer(done)
    if done.code is None:
        return Reported(outcome="timeout", words=_short(done.err[-_WORDS_CHARS:], places), **facts)
    if document is None or isinstance(document.get("error"), dict):
        reported = (document or {}).get("error") or {}
        words = f"{reported.get('problem') or done.said[-_WORDS_CHARS:]}"
        reasons = (str(reported["code"]),) if reported.get("code") else ()
        return Reported(outcome="error", reasons=reasons, words=_short(words, places), **facts)
    parts = list(document["fixes"]) if "fixes" in document else [document]
    return Reported(
        outcome=_outcome(document, parts),
        reasons=tuple(dict.fromkeys(_reasons(document, parts))),
        words=_short(" ".join(_sentences(document, parts)), places),
        headline="; ".join(str(it["headline"]) for it in parts if it.get("headline")),
        attempts=max((int(it.get("attempts") or 0) for it in parts), default=0),
        first_failed=tuple(_first_failed(parts)),
        first_said=_short(" ".join(_first_message(parts)), places),
        **facts,
    )


def has_traceback(done: Done) -> bool:
    """Did a command end in what only its authors can read?"""
    return _TRACEBACK in done.err or _TRACEBACK in done.out


def answer(done: Done) -> Document | None:
    """The JSON object on the last line; None where there is none."""
    try:
        found = json.loads(done.out.strip().rpartition("\n")[2])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _outcome(document: Document, parts: list[Document]) -> str:
    if "fixes" in document:
        delivered = any(one.get("delivered") for one in parts)
        ends = {str(one.get("outcome")) for one in parts}
        if document.get("exit_code") == 0 and delivered:
            return "fixed"
        if delivered:
            return "partly"
        if "escalated" in ends:
            return "escalated"
        return "refused" if document.get("left") or parts else "not affected"
    named = {"verified": "fixed", "refused": "refused"}
    if document.get("reason") == "not_affected":
        return "not affected"
    return named.get(str(document.get("outcome")), str(document.get("outcome")))


def _reasons(document: Document, parts: list[Document]) -> Iterator[str]:
    for one in (*parts, *document.get("left", ())):
        if one.get("reason"):
            yield str(one["reason"])


def _sentences(document: Document, parts: list[Document]) -> Iterator[str]:
    for one in (*parts, *document.get("left", ())):
        for key in ("sentence", "question", "held_back"):
            if one.get(key):
                yield str(one[key])


def _first_failed(parts: list[Document]) -> Iterator[str]:
    for one in parts:
        for attempt in (one.get("prior_attempts") or ())[:1]:
            yield from map(str, attempt.get("failing_gates") or ())
        if not one.get("prior_attempts"):
            for verdict in one.get("verdicts") or ():
                if verdict.get("status") == "failed":
                    yield str(verdict.get("gate"))


def _first_message(parts: list[Document]) -> Iterator[str]:
    for one in parts:
        for attempt in (one.get("prior_attempts") or ())[:1]:
            yield str(attempt.get("prior_failure_summary") or "")


def _short(text: str, places: Places) -> str:
    return cleaned(text, places, _WORDS_CHARS)
