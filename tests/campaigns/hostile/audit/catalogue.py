"""Every campaign: how many cases make the figure of its promise, what a case is, its share of an hour."""

from typing import NamedTuple

from tests.campaigns.hostile.audit.campaign import Campaign
from tests.campaigns.hostile.audit.crash import crash
from tests.campaigns.hostile.audit.faults import faults
from tests.campaigns.hostile.audit.power import power
from tests.campaigns.hostile.audit.secrets_planted import secrets
from tests.campaigns.hostile.audit.sequences import sequences
from tests.campaigns.hostile.audit.tamper import tamper
from tests.campaigns.hostile.audit.world import world

#: All campaigns together, in minutes: the rest of an hour is for their starts and last cases.
ALL_MINUTES = 57


class Entry(NamedTuple):
    """``promise``: what a run without a failure shows. ``minutes``: after so many it begins no further
    case, on a machine of two cores enough for all of them. ``in_memory``: no case depends on what a disk
    does at last, so its files need none. ``case``: what every single one of them does."""

    name: str
    backend: str
    cases: int
    minutes: float
    in_memory: bool
    promise: str
    case: str
    campaign: Campaign


#: kill -9 stays on the disk: a kill then hits a process that waits for a sync, as often as in use.
CATALOGUE = (
    Entry(
        "crash",
        "sqlite",
        10_000,
        9,
        False,
        "kill -9 at any moment: no acknowledged event lost, chain and checkpoints whole",
        "real processes that append, a real SIGKILL; the store opened anew by another process, and all of "
        "it verified",
        crash,
    ),
    Entry(
        "crash",
        "postgres",
        10_000,
        15,
        False,
        "kill -9 of writers, of server processes, of the whole server: the same",
        "the same, at a server of our own (one a process of the campaign; a schema a store)",
        crash,
    ),
    Entry(
        "faults",
        "sqlite",
        1_000_000,
        10,
        True,
        "EIO, ENOSPC, half a write, kill -9 at every system call: typed errors, nothing lost",
        "a copy of a record, a process that does the work while its n-th call fails; then an append, and "
        "all of it verified. Every call of every workload, in every way, is one case",
        faults,
    ),
    Entry(
        "power",
        "sqlite",
        20_000,
        9,
        True,
        "power lost behind any call, any part of what was not synced on disk: nothing lost",
        "the files that a disk with a cache may hold behind one recorded call, written out; opened, an "
        "append, and all of it verified",
        power,
    ),
    Entry(
        "tamper",
        "sqlite",
        10_000,
        5,
        True,
        "changes by whoever has the files: all caught in what a checkpoint covers",
        "a copy of a whole record, changed in its files; all of it verified, and its tables compared "
        "without our code",
        tamper,
    ),
    Entry(
        "secrets",
        "sqlite",
        248,
        2,
        True,
        "secrets in code, output, answers, citations of fixes with retries: none on record in clear",
        "one secret of twenty in a whole fix by the command; every file and output searched",
        secrets,
    ),
    Entry(
        "sequences",
        "sqlite",
        20_000,
        6,
        True,
        "fixes of ours end as the model says; foreign breaches are refused, and can go on (half each)",
        "one generated story, told to the real tier, runner, guard and store",
        sequences,
    ),
    Entry(
        "world",
        "sqlite",
        600,
        1,
        False,
        "many writers, wrong clocks, full disks, locks, overwritten pages: typed errors, nothing lost",
        "one record in one such world; all of it verified",
        world,
    ),
)
