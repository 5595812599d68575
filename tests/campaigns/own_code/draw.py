"""How the cases of ``make eval-own`` were drawn: the order of the walk, its rules, and a check of it.

Every record of the data set with a change of tests, sorted by a hash of its identifier: nobody chose. npm
and PyPI are walked apart. A repository gives one case at most and is tried with two of its records at most.
What decides what a case installs is its stratum; a stratum gives eight cases of its ecosystem at most, so
that the walk goes on to the rarer ones; only if it ends short of its goal are the records passed over for
that taken, again in order. Within a stratum the cases fall alternately to the half that is seen and the
half set aside.

``draw.jsonl`` has a line for every record that the walk came to, ``cases.toml`` what it found.

    python -m tests.campaigns.own_code.draw DATA           # check the record of the walk
    python -m tests.campaigns.own_code.draw DATA --order   # print the order
"""

import argparse
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from fallback_eval.campaign import Half
from tests.campaigns.own_code.cases import HERE, Case, Record, load_cases, read_records

SEED = "own-code-1"
DRAW = HERE / "draw.jsonl"
ECOSYSTEMS = ("npm", "PyPI")

#: A stratum's cases of one ecosystem, a repository's records that are tried, an ecosystem's cases.
STRATUM, TRIES, GOAL = 8, 2, 22

#: What a record is, or why it is none: a case is ``CASE``, and the last three were not tried.
CASE = "case"
HAS_CASE = "repository has its case"
GIVEN_UP = "repository given up"
FULL = "stratum is full"
OUTCOMES = (
    CASE,
    "clone missing",
    "interpreter missing",
    "test does not fail at the base in its own words",
    "names what only the fix adds",
    "needs a network or a service",
    "can't be built here",
    HAS_CASE,
    GIVEN_UP,
    FULL,
)
_UNTRIED = (HAS_CASE, GIVEN_UP, FULL)


def draw_order(records: Iterable[Record]) -> list[Record]:
    """All records with a change of tests, in the order of the walk."""
    drawn = [record for record in records if record.test_diff]
    return sorted(
        drawn, key=lambda record: hashlib.sha256(f"{SEED}:{record.id}".encode()).hexdigest()
    )


def faults(
    order: Sequence[Record], lines: Sequence[dict[str, str]], cases: Sequence[Case]
) -> list[str]:
    """What in the walk's record breaks its rules: nothing, if it is right."""
    found = [
        f"{line['record']}: outcome {line['outcome']!r}"
        for line in lines
        if line["outcome"] not in OUTCOMES
    ]
    for ecosystem in ECOSYSTEMS:
        walked = [line for line in lines if line["ecosystem"] == ecosystem]
        due = [(row.id, row.fix_commit) for row in order if row.ecosystem == ecosystem][
            : len(walked)
        ]
        if [(line["record"], line["fix_commit"]) for line in walked] != due:
            found.append(
                f"{ecosystem}: the lines are not the walk's first {len(walked)} records in their order"
            )
        tried = Counter(line["repo"] for line in walked if line["outcome"] not in _UNTRIED)
        found += [f"{repo}: tried {times} times" for repo, times in tried.items() if times > TRIES]
        of_repo = Counter(line["repo"] for line in walked if line["outcome"] == CASE)
        found += [f"{repo}: {times} cases" for repo, times in of_repo.items() if times > 1]
    return found + _unlike(lines, cases)


def _unlike(lines: Sequence[dict[str, str]], cases: Sequence[Case]) -> list[str]:
    """Where the walk's record and the cases differ, and halves that are not due."""
    drawn = {
        (line["record"], line["fix_commit"]): line for line in lines if line["outcome"] == CASE
    }
    named = {(case.record, case.fix_commit): case for case in cases}
    found = [f"{record}: a case in one file only" for record, _ in drawn.keys() ^ named.keys()]
    strata: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for key, line in drawn.items():
        if case := named.get(key):
            strata[(line["ecosystem"], line["installs_by"])].append(case)
    for members in strata.values():
        due = [(Half.SEEN, Half.SET_ASIDE)[place % 2] for place in range(len(members))]
        found += [
            f"{case.name}: is {case.half}"
            for case, half in zip(members, due, strict=True)
            if case.half != half
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check ``draw.jsonl`` and ``cases.toml`` against the rules, or print the order."""
    parser = argparse.ArgumentParser(description="The draw of the cases.")
    parser.add_argument("data", type=Path, help="folder of the data sets")
    parser.add_argument("--order", action="store_true", help="print the order of the walk")
    reported = parser.parse_args(arguments)
    order = draw_order(read_records(reported.data).values())
    if reported.order:
        for ecosystem in ECOSYSTEMS:
            for record in (row for row in order if row.ecosystem == ecosystem):
                print(ecosystem, record.id, record.fix_commit, record.repo)
        return 0
    lines = [json.loads(line) for line in DRAW.read_text(encoding="utf-8").splitlines()]
    found = faults(order, lines, load_cases())
    print("\n".join(found) or f"{len(lines)} records walked, as the rules say.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
