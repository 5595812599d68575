"""Refusals told apart by their kind, which stays when their words change."""

from collections.abc import Callable
from traceback import walk_tb

from fallback_audit.errors import FallbackError


class OfKind:
    """For ``pytest.raises(…, check=OfKind("…"))``: has the error one of these kinds?"""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def __call__(self, error: FallbackError) -> bool:
        return error.kind in self._kinds

    def __repr__(self) -> str:
        return f"OfKind{self._kinds}"


class RaisedIn:
    """For ``pytest.raises(ValueError, check=RaisedIn(function))``: did the function's own module raise it?

    For errors without a kind, such as a broken contract of a function: one of what it calls is another.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._module = function.__module__

    def __call__(self, error: BaseException) -> bool:
        *_, (frame, _) = walk_tb(error.__traceback__)
        return frame.f_globals["__name__"] == self._module

    def __repr__(self) -> str:
        return f"RaisedIn({self._module})"
