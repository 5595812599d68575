"""Which real fixes the gate may be made on, and which are looked at once.

The halves are chosen by a hash of repository and commit, before any of them was looked at. Several
records of the data set have one commit: it is one fix, and in one half.
"""

from collections.abc import Iterable

from fallback_eval.campaign import Half, alternately
from tests.campaigns.own_code.cases import Record

SEED = "capability-1"


def halves(records: Iterable[Record]) -> dict[str, Half]:
    """The half of each fix, by ``name_of``."""
    return alternately({name_of(record) for record in records}, SEED)


def name_of(record: Record) -> str:
    """A fix's name: its repository and its commit."""
    return f"{record.repo} {record.fix_commit[:12]}"
