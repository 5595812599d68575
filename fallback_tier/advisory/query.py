"""Advisories that affect packages, from an OSV API: ``POST /v1/querybatch``
(https://google.github.io/osv.dev/post-v1-querybatch/).

The answer has identifiers alone; ``lookup`` has their records. It is kept as one document in the server's
format, by a digest of the query, so that the same packages can be queried without a network.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_tier.advisory.found import mapping, text
from fallback_tier.advisory.lookup import OsvLookup
from fallback_tier.advisory.osv_server import MAX_CONCURRENT, reason_of, utc_text
from fallback_tier.errors import (
    AdvisoryError,
    AdvisoryResponseError,
    AdvisoryUnreachableError,
    StateFolderError,
)
from fallback_tier.files.inputs import parse_json
from fallback_tier.files.whole import MAX_KEPT_BYTES, keep, kept

#: Queries of one request: the server's own limit.
MAX_QUERIES: Final = 1_000

#: Most pages of one package's answer. Packages have a few hundred advisories; a page has up to 1,000.
MAX_PAGES: Final = 50

#: Most bytes of one answer: an identifier and a date take about 70.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024

#: Folder of kept answers, below the folder of the server's records.
FOLDER: Final = "queries"

_PATH = "/v1/querybatch"


class PackageVersion(NamedTuple):
    """A version of a package, by OSV's name of the ecosystem."""

    ecosystem: str
    name: str
    version: str


class Answered(Frozen):
    """The identifiers of the advisories of each package that was asked about, in the order of the packages.

    ``answered``: when the server answered, in UTC. ``kept``: it was an earlier answer.
    """

    ids: tuple[tuple[str, ...], ...]
    url: str
    answered: str
    kept: bool = False

    @property
    def sentence(self) -> str:
        """The origin of the answer, for people."""
        how = "an answer kept since" if self.kept else "asked"
        return f"{len(self.ids)} packages at {self.url}: {how} {self.answered}"


def affecting(lookup: OsvLookup, packages: Sequence[PackageVersion]) -> Answered:
    """Return the ids of the advisories that affect these versions. Raises AdvisoryUnreachableError if there
    is no answer and none is kept, AdvisoryResponseError for an answer in another format, AdvisoryError if a
    kept answer can't be read, and StateFolderError if the answer can't be kept."""
    url = f"{lookup.base_url}{_PATH}"
    if not packages:
        return Answered(ids=(), url=url, answered=utc_text(datetime.now(UTC)))
    file = lookup.server_folder / FOLDER / f"{_digest(packages)}.json"
    if lookup.offline:
        why = "--offline was given"
    else:
        batches = [
            packages[first : first + MAX_QUERIES] for first in range(0, len(packages), MAX_QUERIES)
        ]
        try:
            with ThreadPoolExecutor(min(MAX_CONCURRENT, len(batches))) as pool:
                pages = pool.map(lambda batch: _all_pages(lookup, batch), batches)
                results = [result for page in pages for result in page]
        except OSError as error:
            why = f"{lookup.base_url} did not answer ({reason_of(error)})"
        else:
            document = {
                "results": [
                    {"vulns": [{"id": advisory_id} for advisory_id in ids]} for ids in results
                ]
            }
            try:
                keep(file, json.dumps(document).encode())
            except OSError as error:
                reason = StateFolderError(
                    f"The answer can't be kept in {file.parent}: {error.strerror}.",
                    next_step="Check the folder, or name another with --state-dir.",
                )
                raise blamed(error, str(file.parent), reason) from error
            return Answered(
                ids=tuple(map(tuple, results)), url=url, answered=utc_text(datetime.now(UTC))
            )
    try:
        content = kept(file, MAX_KEPT_BYTES)
        when = datetime.fromtimestamp(file.stat().st_mtime, UTC) if content is not None else None
    except OSError as error:
        unreadable = AdvisoryError(
            f"The kept answer {str(file)!r} can't be read: {error.strerror}.",
            next_step="Check its permissions, or remove it.",
        )
        raise blamed(error, str(file), unreadable) from error
    if content is None or when is None:
        raise AdvisoryUnreachableError(
            f"The packages can't be asked about: {why}, and no answer on just these packages is kept.",
            next_step="Run it once with a network; the answer is kept for the same packages.",
            url=url,
            file=file,
        )
    answers = _results(content, len(packages), str(file))
    ids = tuple(tuple(_ids(answer, str(file))) for answer in answers)
    return Answered(ids=ids, url=url, answered=utc_text(when), kept=True)


def _all_pages(lookup: OsvLookup, packages: Sequence[PackageVersion]) -> list[list[str]]:
    """Return the identifiers of each package, all pages together. Raises OSError, AdvisoryResponseError."""
    url = f"{lookup.base_url}{_PATH}"
    ids_by_package: list[list[str]] = [[] for _ in packages]
    tokens: dict[int, str] = dict.fromkeys(range(len(packages)), "")
    for _ in range(MAX_PAGES):
        queries = [_query(packages[index], token) for index, token in tokens.items()]
        body = json.dumps({"queries": queries}).encode()
        content = lookup.server.post(_PATH, body, max_bytes=MAX_ANSWER_BYTES)
        results = _results(content, len(queries), url)
        following: dict[int, str] = {}
        for index, result in zip(tokens, results, strict=True):
            ids_by_package[index] += _ids(result, url)
            if token := text(result.get("next_page_token")):
                following[index] = token
        tokens = following
        if not tokens:
            return [[*dict.fromkeys(ids)] for ids in ids_by_package]
    raise AdvisoryResponseError(
        f"The answer of {url} has more than {MAX_PAGES} pages.",
        next_step="Check the address of the OSV API (--advisory-url).",
    )


def _query(package: PackageVersion, token: str) -> dict[str, Any]:
    query: dict[str, Any] = {
        "package": {"name": package.name, "ecosystem": package.ecosystem},
        "version": package.version,
    }
    return {**query, "page_token": token} if token else query


def _results(content: bytes, expected: int, where: str) -> list[Mapping[str, Any]]:
    """Return the result of each query. Raises AdvisoryResponseError if there is not one for each."""
    try:
        listed = mapping(parse_json(content)).get("results")
    except (ValueError, RecursionError):
        listed = None
    if (
        not isinstance(listed, list)
        or len(listed) != expected
        or not all(_is_result(result) for result in listed)
    ):
        raise _unusable(where)
    return listed


def _is_result(result: object) -> bool:
    """Return whether this is a query's result. An error instead (``code``), or an unusable page token, is
    not."""
    if not isinstance(result, dict) or not result.keys() <= {"vulns", "next_page_token"}:
        return False
    return isinstance(result.get("next_page_token", ""), str)


def _ids(result: Mapping[str, Any], where: str) -> Iterable[str]:
    listed = result.get("vulns", [])
    if not isinstance(listed, list):
        raise _unusable(where)
    for entry in listed:
        if not (name := text(mapping(entry).get("id"))):
            raise _unusable(where)
        yield name


def _unusable(where: str) -> AdvisoryResponseError:
    return AdvisoryResponseError(
        f"The answer is not that of an OSV API to several queries ({where}).",
        next_step="Check the address of the OSV API (--advisory-url), or remove the kept file.",
    )


def _digest(packages: Iterable[PackageVersion]) -> str:
    return sha256(json.dumps([*packages]).encode()).hexdigest()
