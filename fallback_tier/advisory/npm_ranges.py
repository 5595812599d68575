"""npm's range syntax as OSV ranges, exactly: what `npm audit` says is affected, and nothing else.

npm tests advisories with ``includePrerelease``, so its ranges are intervals of SemVer's total order, as
OSV's are. A range that begins *after* a version begins at that version's successor.
"""

import re
from typing import Any, NamedTuple

from fallback_tier.advisory.versions import SortKey, is_orderable, sort_key, successor
from fallback_tier.errors import AdvisoryError

NPM = "npm"

#: Far above the ranges that databases publish (tens of characters): a longer one is not a range.
MAX_RANGE_LENGTH = 4_096

_PART = r"(?:[0-9]+|[xX*])"
_PARTIAL = rf"{_PART}(?:\.{_PART}){{0,2}}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
_COMPARATOR = re.compile(rf"(?P<operator>[<>]=?|=|~>?|\^)?\s*[v=]*\s*(?P<version>{_PARTIAL})")
_HYPHEN = re.compile(rf"\s*[v=]*(?P<low>{_PARTIAL})\s+-\s+[v=]*(?P<high>{_PARTIAL})\s*")


#: major, minor, patch
_NUMBERS = 3


class _Interval(NamedTuple):
    """Interval of versions. ``low`` is inclusive ("0": from the beginning); ``high`` is exclusive unless
    ``closed``, None: open."""

    low: str
    high: str | None
    closed: bool = False


_ALL = _Interval("0", None)


def osv_ranges(text: str) -> list[dict[str, Any]]:
    """Return the OSV ranges (SEMVER) of an npm range, pre-releases included. Raises AdvisoryError if the
    text is not an npm range."""
    if len(text) > MAX_RANGE_LENGTH:
        raise _not_a_range(text[:80])
    intervals = [_intersection(alternative) for alternative in text.split("||")]
    return [
        {"type": "SEMVER", "events": _events(interval)}
        for interval in intervals
        if not _is_empty(interval)
    ]


def _events(interval: _Interval) -> list[dict[str, str]]:
    events = [{"introduced": interval.low}]
    if interval.high is not None:
        events.append({"last_affected" if interval.closed else "fixed": interval.high})
    return events


def _is_empty(interval: _Interval) -> bool:
    if interval.high is None:
        return False
    low, high = _low_key(interval), sort_key(NPM, interval.high)
    return high < low or (high == low and not interval.closed)


def _intersection(alternative: str) -> _Interval:
    intersection = _ALL
    for interval in _comparators(alternative):
        if _low_key(interval) > _low_key(intersection):
            intersection = intersection._replace(low=interval.low)
        if _high_key(interval) < _high_key(intersection):
            intersection = intersection._replace(high=interval.high, closed=interval.closed)
    return intersection


def _low_key(interval: _Interval) -> SortKey:
    return (-1, "") if interval.low == "0" else sort_key(NPM, interval.low)


def _high_key(interval: _Interval) -> tuple[bool, SortKey, bool]:
    """Return a key to compare upper ends. Open ends are highest; of equal versions, the exclusive end is
    lower."""
    if interval.high is None:
        return True, (1, ()), True
    return False, sort_key(NPM, interval.high), interval.closed


def _comparators(alternative: str) -> list[_Interval]:
    hyphen = _HYPHEN.fullmatch(alternative)
    if hyphen:
        first, last = _interval(">=", hyphen["low"]), _interval("<=", hyphen["high"])
        if first.low != "0" and "-" not in first.low:
            first = first._replace(low=f"{first.low}-0")
        if last.closed and last.high is not None and "-" not in last.high:
            last = _Interval("0", successor(NPM, last.high))
        return [first, last]
    intervals, position = [], 0
    text = alternative.strip()
    while position < len(text):
        comparator = _COMPARATOR.match(text, position)
        end = comparator.end() if comparator else 0
        # A comparator is followed by a blank, a comma (GitHub writes them) or the end.
        if comparator is None or text[end : end + 1].strip(" \t\n,"):
            raise _not_a_range(alternative)
        intervals.append(_interval(comparator["operator"] or "=", comparator["version"]))
        while text[end : end + 1] in (" ", "\t", "\n", ","):
            end += 1
        position = end
    return intervals


def _interval(operator: str, text: str) -> _Interval:
    """Return the interval of one comparator. A missing or ``x`` part covers all its values, and later
    parts."""
    numbers, full = _numbers(text)
    if not numbers:
        return _Interval("0", "0.0.0-0") if operator in ("<", ">") else _ALL
    partial = len(numbers) < _NUMBERS
    start = _floor(numbers) if partial else full
    after = _floor(_raised(numbers, len(numbers) - 1)) if partial else successor(NPM, full)
    match operator:
        case ">":
            return _Interval(after, None)
        case ">=":
            return _Interval(start, None)
        case "<":
            return _Interval("0", start)
        case "<=":
            return _Interval("0", after) if partial else _Interval("0", full, closed=True)
        case "^":
            return _Interval(start, _floor(_raised(numbers, _caret_place(numbers))))
        case "~" | "~>":
            return _Interval(start, _floor(_raised(numbers, min(1, len(numbers) - 1))))
        case _:
            return _Interval(start, after) if partial else _Interval(full, full, closed=True)


def _caret_place(numbers: list[int]) -> int:
    """Return the index of the number that ``^`` raises: the first that isn't zero, or else the last one."""
    return next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)


def _numbers(text: str) -> tuple[list[int], str]:
    """Return the numbers before the first ``x``, and the version as npm spells it, without build metadata.
    Raises AdvisoryError if it is not a version."""
    core, _, _build = text.partition("+")
    release, dash, identifiers = core.partition("-")
    numbers: list[int] = []
    for part in release.split("."):
        if part in ("x", "X", "*"):
            break
        numbers.append(int(part))
    full = ".".join(map(str, numbers)) + dash + identifiers
    if len(numbers) == _NUMBERS and not is_orderable(NPM, full):
        raise _not_a_range(text)
    return numbers, full


def _raised(numbers: list[int], index: int) -> list[int]:
    return [*numbers[:index], numbers[index] + 1]


def _floor(numbers: list[int]) -> str:
    """Return the lowest version that begins with these numbers: its lowest pre-release."""
    return ".".join(map(str, [*numbers, 0, 0][:3])) + "-0"


def _not_a_range(text: str) -> AdvisoryError:
    return AdvisoryError(
        f"{text.strip()!r} is not an npm version range.",
        next_step="Look at the report: it may not be npm's.",
        kind="not_a_range",
    )
