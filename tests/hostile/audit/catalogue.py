"""Every campaign, and how many cases of it make the figure of GOALS."""

from typing import NamedTuple

from tests.hostile.audit.campaign import Campaign
from tests.hostile.audit.crash import crash
from tests.hostile.audit.faults import faults
from tests.hostile.audit.power import power
from tests.hostile.audit.secrets_planted import secrets
from tests.hostile.audit.sequences import sequences
from tests.hostile.audit.tamper import tamper
from tests.hostile.audit.world import world


class Entry(NamedTuple):
    """``promise``: what a run without a failure shows."""

    name: str
    backend: str
    cases: int
    promise: str
    campaign: Campaign


CATALOGUE = (
    Entry(
        "crash",
        "sqlite",
        10_000,
        "kill -9 at any moment: no acknowledged event lost, chain and checkpoints whole",
        crash,
    ),
    Entry(
        "crash",
        "postgres",
        10_000,
        "kill -9 of writers, of server processes, of the whole server: the same",
        crash,
    ),
    Entry(
        "faults",
        "sqlite",
        1_000_000,
        "EIO, ENOSPC, half a write, kill -9 at every system call: typed errors, nothing lost",
        faults,
    ),
    Entry(
        "power",
        "sqlite",
        20_000,
        "power lost behind any call, any part of what was not synced on disk: nothing lost",
        power,
    ),
    Entry(
        "tamper",
        "sqlite",
        10_000,
        "changes by whoever has the files: all caught in what a checkpoint covers",
        tamper,
    ),
    Entry(
        "secrets",
        "sqlite",
        248,
        "secrets in code, output, answers, citations of fixes with retries: none on record in clear",
        secrets,
    ),
    Entry(
        "sequences",
        "sqlite",
        20_000,
        "fixes of ours end as the model says; foreign breaches are refused, and can go on (half each)",
        sequences,
    ),
    Entry(
        "world",
        "sqlite",
        600,
        "many writers, wrong clocks, full disks, locks, overwritten pages: typed errors, nothing lost",
        world,
    ),
)
