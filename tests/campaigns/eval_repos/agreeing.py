"""Is what ``plan --json`` says what ``fix`` first applies: versions, steps, declines, what is left?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]

#: What of a move must be the same.
_MOVE = ("manifest", "package", "step", "before", "after", "raised")


def differences(
    planned: Document | None, fixed: Document | None, applied: Sequence[Document]
) -> list[str]:
    """Nothing, where they agree. ``applied``: the remediation of each first attempt of ``fix``."""
    if planned is None or fixed is None:
        return ["plan gave no answer" if planned is None else "fix gave no answer"]
    if "error" in planned or "error" in fixed:
        codes = [(it.get("error") or {}).get("code", "none") for it in (planned, fixed)]
        same = codes[0] == codes[1]
        return [] if same else [f"plan ends with error {codes[0]}, fix with {codes[1]}"]
    theirs = [_moves(one["moves"]) for one in planned.get("fixes", ())]
    ours = [_moves(one["moves"]) for one in applied]
    return [
        *_unlike("move", _all(theirs), _all(ours)),
        *_unlike("left", sorted(_left(planned, [])), sorted(_left(fixed, applied))),
    ]


def _moves(moves: Iterable[Document]) -> list[str]:
    return [_move(one) for one in moves]


def _move(one: Document) -> str:
    messages = [f"{key} {_plain(one.get(key))}" for key in _MOVE]
    declined = [f"{it.get('step')}: {it.get('reason')}" for it in one.get("declined", ())]
    return "; ".join([*messages, *declined])


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _left(document: Document, applied: Sequence[Document]) -> Iterator[str]:
    """By reason; of one advisory ``fix`` says it itself, without naming the package. What ends a fix
    after a patch was applied is the gates' word, and no plan's."""
    named = document.get("left")
    if named is not None:
        yield from (str(one.get("reason")) for one in named)
    elif applied:
        yield from (str(one.get("reason")) for it in applied for one in it.get("left", ()))
    elif document.get("outcome") == "refused" and document.get("reason") != "not_affected":
        yield str(document.get("reason"))


def _all(groups: Sequence[list[str]]) -> list[str]:
    return sorted(one for group in groups for one in group)


def _unlike(what: str, planned: list[str], done: list[str]) -> list[str]:
    found = [f"only planned: {what} {one}" for one in planned if one not in done]
    return found + [f"only done: {what} {one}" for one in done if one not in planned]
