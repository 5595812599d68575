"""Weakness families of an advisory, by a small lexicon grounded in CWE (ADR-0019).

Most records have no CWE id, and two advisories with the same one may need different fixes. A
family is finer: a mechanism and its usual remedy ("resolve the path, then check that it is below
the root"). The lexicon is ``weaknesses.toml`` next to this module.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

#: Weights of the evidence for a family: a CWE id is a person's judgement, a title says what the
#: advisory is about, its body has the story around it. Between 1 and 4 the figures hardly change.
CWE_WEIGHT = 3.0
TITLE_WEIGHT = 3.0
BODY_WEIGHT = 1.0

#: Families with their weights; the vector's length is 1, or the profile is empty (unknown).
Profile = Mapping[str, float]

_UNKNOWN: Profile = MappingProxyType({})

#: Memory in which RE2 may keep its automaton. With its default of 8 MB it discards this one again
#: and again: 1 ms per text instead of 0.03.
_AUTOMATON_BYTES = 64 * 2**20

#: Characters of a text that are matched: the mechanism is named early, the rest is impact,
#: credits and proofs of concept that name other mechanisms too.
_MAX_CHARS = 4_000


class _Patterns:
    """Many patterns matched in one pass (RE2: linear time, whatever the text)."""

    def __init__(self, families: Mapping[str, Iterable[str]]) -> None:
        import re2

        self._names: list[str] = []
        options = re2.Options()
        options.case_sensitive = False
        options.max_mem = _AUTOMATON_BYTES
        self._set = re2.Set.SearchSet(options)
        for family, patterns in families.items():
            for pattern in patterns:
                self._set.Add(pattern)
                self._names.append(family)
        self._set.Compile()

    def families(self, text: str) -> list[str]:
        """Return the family of each pattern that matches: a family with two matches is in it twice."""
        # RE2 refuses lone surrogates; an advisory may have any text.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return [self._names[index] for index in self._set.Match(clean) or ()]


def weaknesses(text: str, *, cwe: Iterable[str] = ()) -> Profile:
    """Return the families that an advisory (first line: its title) and its CWE ids indicate, with weights.

    Empty if nothing is recognised. Weights are between 0 and 1, their squares add up to 1.
    """
    patterns, by_cwe = _lexicon()
    title, _, body = text[:_MAX_CHARS].strip().partition("\n")
    weight_by_family: dict[str, float] = {}
    for weight, families in (
        (CWE_WEIGHT, [name for item in cwe for name in by_cwe.get(item.upper(), ())]),
        (TITLE_WEIGHT, patterns.families(title)),
        (BODY_WEIGHT, patterns.families(body)),
    ):
        for name in families:
            weight_by_family[name] = weight_by_family.get(name, 0.0) + weight
    length = math.sqrt(sum(weight * weight for weight in weight_by_family.values()))
    return (
        {name: weight / length for name, weight in weight_by_family.items()} if length else _UNKNOWN
    )


def affinity(left: Profile, right: Profile) -> float:
    """Return how similar two profiles are (their cosine): 0 nothing in common, 1 the same."""
    return sum(weight * right.get(name, 0.0) for name, weight in left.items())


@cache
def families() -> Mapping[str, Mapping[str, Any]]:
    """Return the lexicon as it is written: family → ``cwe``, ``text``."""
    text = (
        files("fallback_plugins.solved_examples.search")
        .joinpath("weaknesses.toml")
        .read_text("utf-8")
    )
    return tomllib.loads(text)


@cache
def _lexicon() -> tuple[_Patterns, Mapping[str, Sequence[str]]]:
    """Return the patterns that find families in a text, and the families of each CWE id."""
    table = families()
    by_cwe: dict[str, list[str]] = {}
    for name, family in table.items():
        for number in family["cwe"]:
            by_cwe.setdefault(f"CWE-{number}", []).append(name)
    return _Patterns({name: family["text"] for name, family in table.items()}), by_cwe
