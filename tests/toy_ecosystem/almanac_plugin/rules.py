"""Step 2 of docs/ecosystem.md: versions are dates (``2024-mar-12``), names are compared without case."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import PurePosixPath
from typing import Any, Literal

from almanac_plugin.files import LOCK, MANIFEST, read_lock, read_manifest

from fallback_tier.ecosystem_rules import ClientCache, EcosystemRules, PackageClient, PurlName

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

#: ``2024-mar-12``, and ``2024-mar-12-draft`` before it is out.
_VERSION = re.compile(r"(?P<year>\d{4})-(?P<month>[a-z]{3})-(?P<day>\d{1,2})(?P<draft>-draft)?")


def parse(version: str) -> tuple[date, bool]:
    """The day, and whether it is out. Raises ValueError."""
    found = _VERSION.fullmatch(version.strip().lower())
    if found is None:
        raise ValueError(f"{version!r} is no day")
    month = MONTHS.index(found["month"]) + 1  # ValueError, too
    return date(int(found["year"]), month, int(found["day"])), found["draft"] is None


def written(day: date) -> str:
    return f"{day.year:04}-{MONTHS[day.month - 1]}-{day.day:02}"


class AlmanacRules(EcosystemRules):
    range_type: Literal["ECOSYSTEM"] = "ECOSYSTEM"
    above_all = "9999-dec-31"
    package_types = ("almanac",)
    manifest_globs = (MANIFEST,)
    lock_globs = (LOCK,)
    protected_globs = ("almanac.rc",)
    source_suffixes = frozenset({".sh"})
    clients = (
        PackageClient(
            "almanac",
            environment="ALMANAC_REGISTRY",
            how_to_install="Install the almanac (tests/toy_ecosystem/bin) and put it on PATH.",
        ),
    )

    def caches(self, environ: Mapping[str, str], *, offline: bool) -> Sequence[ClientCache]:
        folder = environ.get("ALMANAC_CACHE")
        if folder is None:
            return ()  # it keeps nothing
        return (ClientCache(folder, "the almanac's cache", "ALMANAC_CACHE"),)

    def sort_key(self, version: str) -> Any:
        return parse(version)

    def shared_by_equals(self, version: str) -> str | None:
        return None  # ``2024-mar-03`` and ``2024-Mar-3`` share no text

    def successor(self, version: str) -> str:
        day, is_out = parse(version)
        return f"{written(day + timedelta(days=1))}-draft" if is_out else written(day)

    def next_line(self, version: str) -> str:
        return f"{parse(version)[0].year + 1:04}-jan-01-draft"

    def is_major_step(self, old: str, new: str) -> bool:
        return parse(old)[0].year != parse(new)[0].year

    def is_prerelease(self, version: str) -> bool:
        return not parse(version)[1]

    def is_exact(self, text: str) -> bool:
        return _VERSION.fullmatch(text) is not None

    def canonical_name(self, name: str) -> str:
        return name.lower()

    def canonical_text(self, text: str) -> str:
        return text.lower()

    def purl_name(self, name: str) -> PurlName:
        return PurlName("almanac", "", name)

    def owns_file(self, name: str) -> bool:
        return name in {MANIFEST, LOCK}

    def document(self, path: str, text: str) -> Any:
        if PurePosixPath(path).name == LOCK:
            return {"packages": [vars(release) for release in read_lock(text)]}
        return {"needs": read_manifest(text)}

    def age_exception_keys(self, package: str) -> Sequence[str]:
        """None: no manifest of it has exceptions."""
        return ()
