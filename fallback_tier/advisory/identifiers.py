"""Identifiers of advisory databases, as people write them."""

import re
from contextlib import suppress
from typing import Final

from fallback_tier.errors import AdvisoryIdError

#: Databases whose identifiers have a known form: a malformed one is reported before anything is requested.
_FORMS: Final = {
    "GHSA": (
        re.compile(r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}", re.IGNORECASE),
        "GHSA-xxxx-xxxx-xxxx",
    ),
    "CVE": (re.compile(r"CVE-\d{4}-\d{4,12}", re.IGNORECASE), "CVE-YEAR-NUMBER"),
    "PYSEC": (re.compile(r"PYSEC-\d{4}-\d{1,12}", re.IGNORECASE), "PYSEC-YEAR-NUMBER"),
    "MAL": (re.compile(r"MAL-\d{4}-\d{1,12}", re.IGNORECASE), "MAL-YEAR-NUMBER"),
}

#: Identifiers of other databases (``RUSTSEC-2023-0001``): capitals, then parts, one of them with a digit.
_OTHER = re.compile(r"(?=[^\d]*\d)[A-Z][A-Z0-9]{1,20}(?:-[A-Za-z0-9:]{1,60}){1,6}")

#: Texts that can be a part of a URL and the name of a file.
_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,118}[A-Za-z0-9])?")


def identifier(text: str) -> str | None:
    """Return an identifier as databases spell it, or None if the text is not meant as one. Raises
    AdvisoryIdError for a malformed one of a known database."""
    prefix, dash, rest = text.partition("-")
    database = prefix.upper()
    if not dash or "/" in text or text.lower().endswith((".json", ".jsonl", ".sarif")):
        return None
    if database not in _FORMS:
        return text if _OTHER.fullmatch(text) else None
    pattern, form = _FORMS[database]
    if not pattern.fullmatch(text):
        raise AdvisoryIdError(
            f"{text!r} is neither a file nor an identifier of {database}.",
            next_step=f"Give {form}, or the path of a file.",
        )
    return f"{database}-{rest.lower()}"


def identifier_or_none(text: str) -> str | None:
    """Return ``identifier`` of a text in a report or a record, or None if the text is malformed."""
    with suppress(AdvisoryIdError):
        return identifier(text)
    return None


def requestable(text: str) -> str | None:
    """Return an alias of a record as it can be requested, whatever its database; None if it can't be."""
    return identifier_or_none(text) or (text if _SAFE.fullmatch(text) else None)


def not_looked_up(name: str) -> AdvisoryIdError:
    """Return the error for an identifier that is given to a caller without a database."""
    return AdvisoryIdError(
        f"{name} is an advisory's identifier, and only a record or a report can be read here.",
        next_step="Give the record as a file, or the identifier to `fallback-tier fix` or `plan`.",
    )
