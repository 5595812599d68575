"""Pages: a list, and what to ask for next. What stands in a cursor is nobody's business but ours."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator

#: Numbers of rows and events are far below that.
_MAX = 2**53


def cursor_of(number: int) -> str:
    """What asks for the page behind this row."""
    return urlsafe_b64encode(f"n{number}".encode()).decode().rstrip("=")


def _number(cursor: str) -> str:
    number_in(cursor)
    return cursor


def number_in(cursor: str | None) -> int | None:
    """The row behind which a page begins. Raises ValueError."""
    if cursor is None:
        return None
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError as error:
        raise ValueError("this is no cursor of ours") from error
    if text[:1] != "n" or not text[1:].isdecimal() or int(text[1:]) >= _MAX:
        raise ValueError("this is no cursor of ours")
    return int(text[1:])


Cursor = Annotated[
    str | None,
    AfterValidator(lambda text: text if text is None else _number(text)),
    Query(max_length=40, description="`next` of the page before"),
]
