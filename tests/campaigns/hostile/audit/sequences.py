"""Attempt sequences by the thousand: ours against a model of the protocol, foreign ones that break a rule.

The stories and what is asserted of each are those of the suite (``tests/integration``): a fix ends as the
model says, the guard refuses no event of ours and each breach of a foreign orchestrator, which can go on.
"""

import time
from collections import Counter
from collections.abc import Callable

from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.integration import contract_foreign, contract_sequences
from tests.integration.contract_sequences import A_STORE

#: More than any run has cases, so that two seeds tell no story twice.
APART = 1_000_000

#: Told by turns, a store of each.
TELLERS: tuple[tuple[str, Callable[[int, int], Counter[str]]], ...] = (
    ("ours ended", contract_sequences.main),
    ("foreign, refused", contract_foreign.main),
)


def sequences(ask: Ask) -> Tally:
    """Half of the cases are ours, half foreign ones."""
    tally, case, end = Tally(), ask.first, ask.first + ask.count
    while case < end and time.monotonic() < ask.until:
        store = case // A_STORE
        count = min(end, (store + 1) * A_STORE) - case
        if not ask.mine(store // len(TELLERS)):  # each process tells both sorts
            case += count
            continue
        sort, report = TELLERS[store % len(TELLERS)]
        try:
            reported = report(count, ask.seed * APART + case)
        except Exception as error:
            why = " ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            raise ask.broken(case, f"{sort}, one of {count}: {why}") from error
        tally.counts.update({f"{sort}: {what}": number for what, number in reported.items()})
        tally.cases += count
        case += count
        ask.told(tally.cases, ask.count)
    return tally
