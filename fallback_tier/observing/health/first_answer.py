"""A server's first answer: does it answer at all, with which status, and by which clock?"""

import email.utils
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

#: Of the answer's body, which is not read.
_MAX_BYTES = 1024 * 1024


class FirstAnswer(NamedTuple):
    """``status``: any is an answer. ``date``: by the server's clock (RFC 9110 §6.6.1) in UTC, if it states
    one that UTC can express."""

    status: int
    date: datetime | None


def first_answer(url: str, headers: Mapping[str, str], timeout_s: float) -> FirstAnswer:
    """Return the answer to one GET, through the proxies of the environment. Raises OSError: there is
    none."""
    import httpx2

    from fallback_tier.network import LOOPBACK, TimeLimit, bounds

    try:
        host = httpx2.URL(url).host
        with (
            TimeLimit(timeout_s) as limit,
            httpx2.Client(
                headers={"accept-encoding": "identity", **headers},
                event_hooks=bounds(limit, _MAX_BYTES),
                timeout=timeout_s,
                trust_env=host not in LOOPBACK,
            ) as client,
            client.stream("GET", url) as response,
        ):
            return FirstAnswer(response.status_code, _date(response.headers.get("date", "")))
    except (httpx2.HTTPError, httpx2.InvalidURL, ImportError, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


def _date(text: str) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(text)
        # Without an offset (``-0000``), it is UTC (RFC 5322 §3.3).
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    # OverflowError: the end of the year 9999 in another zone.
    except (ValueError, OverflowError):
        return None
