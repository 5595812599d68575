"""Logs that are longer than a verdict's may be."""

import pytest

from fallback_tier.verdict_logs import MAX_LOG_BYTES, cut, joined


def lines(word: str, count: int) -> str:
    return "".join(f"{word} {number}\n" for number in range(count))


def test_what_fits_stays_as_it_is() -> None:
    log = lines("a", 9)
    assert cut(log, len(log)) == log
    assert joined([log, log], 2 * len(log) + 2) == f"{log}\n{log}"
    assert joined([]) == ""


def test_a_log_is_cut_in_its_middle_at_ends_of_lines_and_says_so() -> None:
    log = lines("\u2713", 999)
    short = cut(log, 4_000)
    kept = short.split("\n")
    (marker,) = set(kept) - set(log.split("\n"))
    assert marker.startswith("[... ")
    assert len(short.encode()) <= 4_000
    assert (kept[0], kept[-2]) == ("\u2713 0", "\u2713 998")
    left_out = int(marker.split()[1])
    assert len(log.encode()) == len(short.encode()) - len(f"{marker}\n") + left_out


@pytest.mark.parametrize("character", ["x", "\u2713", "\ufffd", "\U0001f600"])
@pytest.mark.parametrize("most", [64, 65, 200, 201, 202, 203])
def test_a_log_of_one_line_is_cut_between_characters(character: str, most: int) -> None:
    short = cut(character * 999, most)
    assert len(short.encode()) <= most
    assert set(short.split("\n")[0]) <= {character}


def test_of_many_logs_the_long_ones_are_cut() -> None:
    short, long = lines("short", 9), lines("long", 9_999)
    text = joined([long, short, long], 40_000)
    assert len(text.encode()) <= 40_000
    assert f"\n{short}\n" in text
    assert text.count("bytes left out") == 2
    assert text.count("long 9998\n") == 2
    assert len(text.encode()) > 39_000


def test_many_logs_are_cut_together() -> None:
    assert len(joined([lines("a", 99)] * 999, 10_000).encode()) <= 10_000


def test_a_log_is_no_longer_than_one_command_s() -> None:
    most = "\ufffd" * (MAX_LOG_BYTES // 3)
    assert cut(most) == most
    assert len(joined([most, most]).encode()) <= MAX_LOG_BYTES
