"""How urgent advisories are: their own severity, FIRST's EPSS scores, CISA's list of exploited ones.

The feeds are files that somebody else has fetched; nothing is asked over the network.
"""

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallback_tier.advisory import Advisory
from fallback_tier.advisory.vulnerability import cvss_rating
from fallback_tier.files.inputs import open_named, parse_json
from fallback_tier.fleet.model import Risk
from fallback_tier.fleet.refusals import CampaignError

#: EPSS has some 350,000 lines (20 MB) and grows; KEV is 2 MB.
MAX_FEED_BYTES = 256 * 1024 * 1024

_GET_EPSS = "Give FIRST's daily file epss_scores-DATE.csv, or its .gz."
_GET_KEV = "Give CISA's known_exploited_vulnerabilities.json."


@dataclass(frozen=True)
class Feeds:
    """By CVE id. ``epss``: probabilities; ``kev``: what is known to be exploited."""

    epss: Mapping[str, float] = field(default_factory=dict)
    kev: frozenset[str] = frozenset()

    def risk(self, advisory: Advisory) -> Risk:
        """Of an advisory, by all its names: the worst of what is known."""
        names = [name.upper() for name in (*advisory.ids, *advisory.aliases)]
        known = [self.epss[name] for name in names if name in self.epss]
        return Risk(
            severity=severity(advisory),
            epss=max(known, default=None),
            kev=any(name in self.kev for name in names),
        )


def read_feeds(epss: Path | None, kev: Path | None) -> Feeds:
    """Raises CampaignError naming the file."""
    return Feeds(
        epss={} if epss is None else dict(_epss(epss)),
        kev=frozenset() if kev is None else frozenset(_kev(kev)),
    )


def severity(advisory: Advisory) -> float | None:
    """The highest base score of its CVSS vectors; None: it has none that can be read."""
    ratings = (cvss_rating(one.score) for one in advisory.severity)
    return max((rating.score for rating in ratings if rating is not None), default=None)


def _epss(path: Path) -> Iterator[tuple[str, float]]:
    lines = io.StringIO(_text(path, _GET_EPSS))
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    if not {"cve", "epss"} <= set(rows.fieldnames or ()):
        raise CampaignError(
            f"The EPSS feed {path} has no columns cve and epss.",
            next_step=_GET_EPSS,
            kind="no_epss",
        )
    for number, row in enumerate(rows, start=1):
        try:
            score = float(row["epss"])
        except (TypeError, ValueError):
            score = math.nan
        if not 0 <= score <= 1:
            raise CampaignError(
                f"The EPSS feed {path}: row {number} has no probability.",
                next_step=_GET_EPSS,
                kind="no_epss",
            )
        yield str(row["cve"]).upper(), score


def _kev(path: Path) -> Iterator[str]:
    try:
        document: Any = parse_json(_text(path, _GET_KEV))
        for entry in document["vulnerabilities"]:
            yield str(entry["cveID"]).upper()
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CampaignError(
            f"The KEV feed {path} is not CISA's list of vulnerabilities.",
            next_step=_GET_KEV,
            kind="no_kev",
        ) from error


def _text(path: Path, next_step: str) -> str:
    try:
        with open_named(path) as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            data = file.read(MAX_FEED_BYTES + 1)
        if len(data) <= MAX_FEED_BYTES:
            return data.decode("utf-8-sig")
        reason = f"it is larger than {MAX_FEED_BYTES:,} bytes"
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not gzip"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    raise CampaignError(
        f"The feed {path} can't be read: {reason}.", next_step=next_step, kind="unreadable"
    )
