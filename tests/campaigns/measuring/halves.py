"""Half of a measure's cases is set aside, and looked at once."""

import hashlib
import sys
from collections.abc import Iterable
from enum import StrEnum


class Half(StrEnum):
    """Half of the cases is set aside, and looked at once."""

    SEEN = "seen"
    SET_ASIDE = "set aside"


def alternately(names: Iterable[str], seed: str) -> dict[str, Half]:
    """The half of each name: they fall alternately, in the order of a hash, so that nobody chose."""
    drawn = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).hexdigest())
    return {name: (Half.SEEN, Half.SET_ASIDE)[place % 2] for place, name in enumerate(drawn)}


def may_look(halves: Iterable[Half | None], measure: str, *, meant: bool) -> bool:
    """False, and a word on standard error, where somebody would look too early."""
    if meant or Half.SET_ASIDE not in set(halves):
        return True
    print(f"{measure}: that half is set aside, to be looked at once.", file=sys.stderr)
    print("  next: Say --look-at-what-was-set-aside where now is that time.", file=sys.stderr)
    return False
