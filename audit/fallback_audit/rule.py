"""What a rule of the trace contract is."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fallback_audit.trail import Finding, Trail


class Rule(NamedTuple):
    """One sentence, where it comes from, and the predicate that finds violations of it."""

    id: str
    sentence: str
    source: str
    check: Callable[[Trail], Iterator[Finding]]
