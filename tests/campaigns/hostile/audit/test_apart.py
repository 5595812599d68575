"""Processes that share a campaign: every case is done by one of them, and what one finds is found."""

import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.campaigns.hostile.audit.apart import ROOT, shared
from tests.campaigns.hostile.audit.campaign import Ask, BrokenRecordError, Skipped, Tally
from tests.kinds import RaisedIn
from tests.waiting import becomes


def counts(ask: Ask) -> Tally:
    """Each case by its number."""
    sys.stdout.write("what a campaign prints is none of its lines\n")
    tally = Tally(possible=7)
    for case in ask.cases:
        tally.counts[str(case)] += 1
        tally.cases += 1
        ask.told(tally.cases, ask.count)
    return tally


def breaks(ask: Ask) -> Tally:
    """At its fourth case."""
    for case in ask.cases:
        if case == 3:
            raise ask.broken(case, "lost")
    return Tally()


NOT_HERE = "not here"


def skips(ask: Ask) -> Tally:
    """Always."""
    raise Skipped(NOT_HERE)


def fails(ask: Ask) -> Tally:
    """By itself, in one process of two."""
    return Tally(cases=1 // ask.worker)


def leaves(ask: Ask) -> Tally:
    """Processes of its own behind, one in a group of its own, one whose parent is gone."""
    start = (
        "import subprocess; quiet = subprocess.DEVNULL;"
        "print(subprocess.Popen(['sleep', '600'], stdout=quiet, start_new_session=True).pid)"
    )
    orphan = subprocess.check_output([sys.executable, "-c", start])
    pids = [subprocess.Popen(["sleep", "600"], start_new_session=own).pid for own in (False, True)]
    text = " ".join(_named(str(pid)) for pid in (os.getpid(), *pids, int(orphan)))
    (ask.place / "part").write_text(text)
    (ask.place / "part").rename(ask.place / "pids")
    if ask.seed == 1:
        raise ask.broken(0, "lost")
    while ask.seed == 2:
        time.sleep(600)
    return Tally()


def _named(pid: str) -> str:
    """With the moment of its start: a number is given again soon where many processes start. Raises OSError
    where it has ended."""
    state, *facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(pid)
    return f"{pid}@{facts[18]}"


def _left(place: Path) -> list[str]:
    """Of those that ``leaves`` started: who runs still."""
    left = []
    for one in [one for file in place.glob("*/pids") for one in file.read_text().split()]:
        with suppress(OSError):
            left += [one] if _named(one.partition("@")[0]) == one else []
    return left


@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_a_campaign_started_ends_with_it(tmp_path: Path, seed: int) -> None:
    ask = Ask(2, tmp_path, seed=seed)
    if seed:
        with pytest.raises(BrokenRecordError, match="lost"):
            shared(leaves, ask, 2)
    else:
        shared(leaves, ask, 2)
    assert list(tmp_path.glob("*/pids"))
    becomes(lambda: not _left(tmp_path), "all have ended")


def test_a_campaign_ends_with_who_began_it(tmp_path: Path) -> None:
    text = (
        "import sys; from pathlib import Path;"
        "from tests.campaigns.hostile.audit import apart, campaign, test_apart;"
        "apart.shared(test_apart.leaves, campaign.Ask(2, Path(sys.argv[1]), seed=2), 2)"
    )
    with subprocess.Popen([sys.executable, "-c", text, str(tmp_path)], cwd=ROOT) as process:
        becomes(lambda: len(list(tmp_path.glob("*/pids"))) == 2, "both processes run")
        workers = [file.read_text().split()[0] for file in tmp_path.glob("*/pids")]
        groups = [file.read_text().split()[1] for file in tmp_path.glob("*/pids")]
        others = {*_left(tmp_path)} - {*workers, *groups}
        process.kill()
    becomes(
        lambda: not {*workers, *groups}.intersection(_left(tmp_path)), "their groups have ended"
    )
    for one in others:  # in groups of their own, and nobody there to look for the mark
        os.kill(int(one.partition("@")[0]), 9)


def test_every_case_is_done_once(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    ask = Ask(7, tmp_path, first=2, told=lambda done, total: heard.append((done, total)))
    tally = shared(counts, ask, 2)
    assert tally.counts == Counter(str(case) for case in range(2, 9))
    assert (tally.cases, tally.possible) == (7, 7)
    assert heard[-1] == (7, 7)


def test_what_one_finds_is_found(tmp_path: Path) -> None:
    with pytest.raises(BrokenRecordError, match=r"case 3 of seed 5 .*: lost"):
        shared(breaks, Ask(9, tmp_path, seed=5), 2)


def test_a_process_that_fails_by_itself_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(BrokenRecordError, check=RaisedIn(shared)):
        shared(fails, Ask(1, tmp_path), 2)


def test_a_campaign_that_can_not_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match=NOT_HERE):
        shared(skips, Ask(1, tmp_path), 2)
