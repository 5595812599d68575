"""What recorded traffic says: a request's prompt, where two differ, which secrets a body shows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Characters shown on each side of the first difference.
_SHOWN: Final = 60


@dataclass(frozen=True)
class SentRequest:
    """A request as sent in this run. ``body`` is the decoded JSON."""

    method: str
    path: str
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """Everything that the model is given to read: system blocks, then messages."""
        parts = [self.body.get("system", ())]
        parts += [turn["content"] for turn in self.body.get("messages", ())]
        blocks = [[{"text": part}] if isinstance(part, str) else part for part in parts]
        return "\n".join(block["text"] for part in blocks for block in part)


def sent_request(request: Any) -> SentRequest:
    """From vcrpy's request; a body that is no JSON object is an empty one."""
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        body = {}
    return SentRequest(request.method, request.path, body if isinstance(body, dict) else {})


def first_difference(recorded: Any, sent: Any, place: str) -> str | None:
    """The first place where two JSON values differ, in words."""
    if isinstance(recorded, dict) and isinstance(sent, dict):
        for key in sorted(recorded.keys() | sent.keys()):
            found = first_difference(recorded.get(key), sent.get(key), f"{place}.{key}")
            if found is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(sent, list) and len(recorded) == len(sent):
        for number, (old, new) in enumerate(zip(recorded, sent, strict=True)):
            found = first_difference(old, new, f"{place}[{number}]")
            if found is not None:
                return found
        return None
    if recorded == sent:
        return None
    at = 0
    if isinstance(recorded, str) and isinstance(sent, str):
        pairs = zip(recorded, sent, strict=False)
        at = next(
            (n for n, (old, new) in enumerate(pairs) if old != new), min(map(len, (recorded, sent)))
        )
        start = max(0, at - _SHOWN // 2)
        recorded, sent = recorded[start : at + _SHOWN], sent[start : at + _SHOWN]
    return f"at {place} (character {at}) {str(recorded)[:120]!r} was recorded, {str(sent)[:120]!r} sent"


def secrets_in(body: bytes | str, known: frozenset[str]) -> int:
    """How many secrets a body shows: values in ``known``, and what has a secret's format.

    A stream is read event by event and, as a secret may be cut across pieces, as the text they make.
    """
    from fallback_tier.prompt.redact import redact_secrets  # only who records pays for it

    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    return sum(redact_secrets(part, known)[1] for part in _texts(text))


def _texts(body: str) -> Iterator[str]:
    """Every string value apart: a key of the format itself (``max_tokens``) is no name of a secret."""
    lines = body.splitlines()
    data = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    try:
        documents = [json.loads(document) for document in data or [body]]
    except ValueError:
        yield body
        return
    if data:
        yield "\n".join(line for line in lines if not line.startswith("data:"))
    for document in documents:
        yield from _strings(document)
    yield "".join(_pieces(documents))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _pieces(documents: list[Any]) -> Iterator[str]:
    for document in documents:
        match document:
            case {"delta": {"text": str(text)}}:
                yield text
