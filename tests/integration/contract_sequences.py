"""Attempt sequences by the thousand, against the model of the protocol, the guard and ``verify``.

``main(count)`` for the campaign (``make hostile-audit``); some hundreds of them in the suite.
"""

import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from fallback_audit.contract.guard import ContractGuard, JudgedFix
from fallback_audit.contract.trail import Entry
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.fakes.repository import context
from tests.fixtures.fallback_tier_callable import FILES
from tests.integration.contract_scenario import ContractScenario, Watched, ended, predicted, told
from tests.integration.leaf_sequences import UNSEEN
from tests.places import fast_place

#: Fixes that share a store: enough that a guard has many in hand.
A_STORE = 50

#: What a person may say that opens a gate transition.
OPENING = {"reopen": "reopened", "again": "gates again"}


def run_stories(seeds: range, place: Path) -> Counter[str]:
    """Tell the stories of these seeds in one store. Returns how they ended; raises AssertionError."""
    ends: Counter[str] = Counter()
    repo = context(place / "repo", {**FILES, **UNSEEN})
    watched = Watched(SqliteAuditStore(place / "audit.db", guard=ContractGuard()))
    for seed in seeds:
        story = told(seed)
        watched.protocols.clear()
        watched.opened_with = watched.opened_again = watched.last = None
        mine = repo.model_copy(update={"fix_id": f"fix-{seed}"})
        scenario = ContractScenario(story, watched, mine, place / "state")
        try:
            ends[_told(scenario)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}: {story}")
            raise
    watched.store.close()
    check_whole(place / "audit.db", len(seeds))
    return ends


def _told(scenario: ContractScenario) -> str:
    ends = predicted(scenario.story)
    result = scenario.run()
    came = ended(result)
    if not scenario.story.leaves:
        assert came == next(ends), came
    assert scenario.memory.queries <= 1 + len(scenario.story.leaves)
    if (answer := scenario.answer(result)) in OPENING:
        # The new transition never asks the memory: its first attempt is a retry, or none.
        heard = scenario.memory.queries, *scenario.author.heard
        scenario.leave_after = None
        again = ended(scenario.run_again())
        assert scenario.memory.queries == heard[0]
        assert answer == "reopen" or heard[1:] == tuple(scenario.author.heard)
        if not scenario.story.leaves:
            assert again == next(ends), again
        came = f"{OPENING[answer]}, {again}"
    return came


def check_whole(path: Path, fixes: int) -> None:
    """Everything in the store keeps the contract, judged anew; every fix has ended."""
    with closing(SqliteAuditStore(path)) as store:
        found: dict[str, JudgedFix] = {}
        for stored in store.events():
            fix = found.setdefault(stored.scope.fix_id, JudgedFix(stored.scope.fix_id))
            assert not fix.add(Entry(stored.seq, stored.payload), stored.scope)
        assert len(found) == fixes


def main(count: int, first_seed: int = 0) -> Counter[str]:
    """Tell ``count`` stories. Returns how many ended how."""
    ends: Counter[str] = Counter()
    for start in range(first_seed, first_seed + count, A_STORE):
        with tempfile.TemporaryDirectory(dir=fast_place()) as place:
            seeds = range(start, min(start + A_STORE, first_seed + count))
            ends += run_stories(seeds, Path(place))
    return ends


if __name__ == "__main__":
    sys.stdout.write(f"{main(int(sys.argv[1]))}\n")
