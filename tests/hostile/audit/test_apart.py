"""Processes that share a campaign: every case is done by one of them, and what one finds is found."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile.audit.apart import shared
from tests.hostile.audit.campaign import Ask, BrokenRecordError, Skipped, Tally


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


def skips(ask: Ask) -> Tally:
    """Always."""
    raise Skipped("not here")


def fails(ask: Ask) -> Tally:
    """By itself, in one process of two."""
    return Tally(cases=1 // ask.worker)


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
    with pytest.raises(BrokenRecordError, match="said nothing"):
        shared(fails, Ask(1, tmp_path), 2)


def test_a_campaign_that_can_not_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="not here"):
        shared(skips, Ask(1, tmp_path), 2)
