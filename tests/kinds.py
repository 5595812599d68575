"""Refusals told apart by their kind, which stays when their words change."""

from fallback_audit.errors import FallbackError


class OfKind:
    """For ``pytest.raises(…, check=OfKind("…"))``: has the error one of these kinds?"""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def __call__(self, error: FallbackError) -> bool:
        return error.kind in self._kinds

    def __repr__(self) -> str:
        return f"OfKind{self._kinds}"
