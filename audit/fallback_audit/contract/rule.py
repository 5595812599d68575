"""What a rule of the trace contract is."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fallback_audit.contract.links import Link
from fallback_audit.contract.trail import Finding, Trail


class Rule(NamedTuple):
    """One sentence, where it comes from, and the predicate that finds violations of it."""

    id: str
    sentence: str
    source: str
    check: Callable[[Trail], Iterator[Finding]]


class FixRule(NamedTuple):
    """As ``Rule``, over all gate transitions of one fix; a finding names the one that it is in."""

    id: str
    sentence: str
    source: str
    check: Callable[[Sequence[Link]], Iterator[tuple[Link, Finding]]]
