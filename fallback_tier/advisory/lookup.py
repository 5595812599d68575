"""Advisories by identifier, from an OSV API: https://google.github.io/osv.dev/get-v1-vulns/.

A record's aliases describe the same vulnerability in other databases. All of them are requested, because
each may name packages and ranges that the others lack; the records that name a package are merged, and what
any of them calls affected stays affected (ADR-0131). An alias that the database does not have is none; an
alias that can't be requested is an error, because its ranges would be missing.

Each answer is kept as the server sent it, one file per identifier, so that a person without a network can
write the same file with any HTTP client.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_tier.advisory.found import Found, FoundAdvisory, Skipped, mapping
from fallback_tier.advisory.identifiers import identifier_or_none
from fallback_tier.advisory.osv import Advisory, Reference, record_from
from fallback_tier.errors import (
    AdvisoryError,
    AdvisoryNotFoundError,
    AdvisoryResponseError,
    AdvisoryUnreachableError,
    ConfigurationError,
    NoPackageError,
    StateFolderError,
    WithdrawnError,
)
from fallback_tier.files.inputs import parse_json
from fallback_tier.files.whole import keep, kept
from fallback_tier.limits import MAX_ADVISORY_BYTES

#: The public OSV database.
DEFAULT_URL: Final = "https://api.osv.dev"

#: Where answers are kept, below the folder of caches.
FOLDER: Final = "advisories"

#: Records that the aliases of one identifier may lead to. Real ones lead to fewer than ten; a server that
#: invents aliases is stopped.
MAX_RECORDS: Final = 50

#: Seconds for one request. OSV answers within one.
REQUEST_TIMEOUT_S: Final = 20.0

#: Seconds to wait before each retry: a server that is overloaded for longer is reported.
RETRY_DELAYS_S: Final = (0.5, 2.0)

#: HTTP statuses after which the same request may succeed.
_RETRIED = frozenset({429, 500, 502, 503, 504})
_NOT_FOUND = 404

#: gRPC's code for "not found", which OSV sends with status 404.
_GRPC_NOT_FOUND = 5


class AdvisorySource(Frozen):
    """Where the record of an advisory came from.

    ``modified``: the record's own date. ``fetched``: when the server answered, in UTC. ``kept``: the answer
    is an earlier one, because there was no network or none was to be used.
    """

    id: str
    url: str
    modified: str
    fetched: str
    kept: bool = False

    @property
    def sentence(self) -> str:
        """What a person reads."""
        modified = f"modified {self.modified}" if self.modified else "without a date"
        how = "kept since" if self.kept else "fetched"
        return f"advisory {self.id}: {self.url}, {modified}, {how} {self.fetched}"


@dataclass(frozen=True)
class _Answer:
    """A record and its source; ``record`` None: the database does not have it."""

    record: Advisory | None
    source: AdvisorySource


@dataclass
class OsvLookup:
    """Looks advisories up at an OSV API. Not for two threads.

    ``folder``: returns where answers are kept, on first use. ``offline``: use kept answers alone.
    ``pause``: waits between retries. Raises ConfigurationError: ``base_url`` is not an http(s) address.
    """

    base_url: str
    folder: Callable[[], Path]
    offline: bool = False
    pause: Callable[[float], None] = time.sleep
    #: The records that were used, in the order of their use.
    sources: list[AdvisorySource] = field(default_factory=list, init=False)
    _answers: dict[str, _Answer] = field(default_factory=dict, init=False)
    #: Why the server was unreachable: it is not asked again, since a report may name hundreds of ids.
    _down: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.base_url = self.base_url.rstrip("/")
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            plain = not (parts.username or parts.password or parts.query or parts.fragment)
        except ValueError:
            usable = plain = False
        if not (usable and plain):
            raise ConfigurationError(
                "The address of the OSV API is not usable.",
                next_step=f"Give an address without credentials and query, as {DEFAULT_URL}.",
            )

    def find(self, names: Sequence[str]) -> Iterator[Found]:
        """Yield the advisory that these identifiers name, and a note for each withdrawn record among them.
        The first identifier is what was asked for; the others are of the same vulnerability.

        Raises AdvisoryNotFoundError: no record; AdvisoryUnreachableError: no answer, and none is kept;
        AdvisoryResponseError: an answer that can't be used; NoPackageError: no record names a package;
        WithdrawnError: all records were withdrawn.
        """
        asked = names[0]
        answers = self._follow(names)
        records = [(answer.record, answer.source) for answer in answers if answer.record]
        if not records:
            raise AdvisoryNotFoundError(
                f"The OSV database at {self.base_url} has no record of {' or '.join(names)}.",
                next_step="Check the identifier, or give the advisory as a file.",
            )
        live = [(record, source) for record, source in records if not record.withdrawn]
        if not live:
            record, source = records[0]
            raise WithdrawnError(
                f"The advisory {asked} ({source.url}) was withdrawn on {record.withdrawn}.",
                next_step="There is nothing to fix; look for the advisory that replaced it.",
            )
        naming = [(record, source) for record, source in live if record.ecosystems]
        if not naming:
            ids = ", ".join(record.id for record, _ in live)
            raise NoPackageError(
                f"No record of {asked} at {self.base_url} names a package ({ids}), so no dependency can be "
                "compared with it. Whether it is affected is unknown.",
                next_step="Give an advisory that names the package and its versions.",
            )
        for record, source in records:
            if record.withdrawn:
                yield Skipped(
                    source=source.url,
                    reason=f"The record {record.id} was withdrawn on {record.withdrawn}. "
                    "Others of the same vulnerability are used.",
                    unknown=False,
                )
        self.sources += [source for _, source in naming if source not in self.sources]
        same = tuple(dict.fromkeys((*names, *(record.id for record, _ in live))))
        for record, source in naming:
            yield FoundAdvisory(_linked(record, source, same))

    def _follow(self, names: Sequence[str]) -> list[_Answer]:
        """Return the answers to these identifiers and to all that their records call aliases."""
        waiting, seen = list(dict.fromkeys(names)), set(names)
        answers: list[_Answer] = []
        while waiting:
            name = waiting.pop(0)
            if len(answers) >= MAX_RECORDS:
                raise AdvisoryResponseError(
                    f"The aliases of {names[0]} lead to more than {MAX_RECORDS} identifiers.",
                    next_step="Give the advisory as a file.",
                )
            answer = self._answer(name)
            answers.append(answer)
            for alias in () if answer.record is None else answer.record.aliases:
                if alias not in seen and (usual := identifier_or_none(alias)) and usual not in seen:
                    seen |= {alias, usual}
                    waiting.append(usual)
        return answers

    def _answer(self, name: str) -> _Answer:
        if name not in self._answers:
            self._answers[name] = self._requested(name) or self._kept(name)
        return self._answers[name]

    def _requested(self, name: str) -> _Answer | None:
        """Return what the server answers, and keep it; None: there is no answer."""
        if self.offline or self._down:
            return None
        url = self._url(name)
        try:
            content = self._fetched(url)
        except OSError as error:
            self._down = str(error) or type(error).__name__
            return None
        answer = self._read(name, content, datetime.now(UTC), is_kept=False)
        try:
            keep(self._file(name), content)
        except OSError as error:
            reason = StateFolderError(
                f"The answer for {name} can't be kept in {self.folder()}: {error.strerror}.",
                next_step="Check the folder, or name another with --state-dir.",
            )
            raise blamed(error, str(self.folder()), reason) from error
        return answer

    def _fetched(self, url: str) -> bytes:
        """Raises OSError: no answer after all retries."""
        # Imported on first use: most commands read files.
        from fallback_tier.network import AddressError, AnswerTooLargeError, StatusError, fetch

        delays = iter(RETRY_DELAYS_S)
        while True:
            try:
                return fetch(
                    url,
                    max_bytes=MAX_ADVISORY_BYTES,
                    timeout_s=REQUEST_TIMEOUT_S,
                    allowed=self._allowed,
                )
            except StatusError as error:
                if error.status == _NOT_FOUND:
                    return json.dumps(
                        {"code": _GRPC_NOT_FOUND, "message": "Bug not found."}
                    ).encode()
                if error.status not in _RETRIED:
                    raise
                failure: OSError = error
            except AnswerTooLargeError as error:
                raise AdvisoryResponseError(
                    f"The answer of {url} is larger than {MAX_ADVISORY_BYTES:,} bytes.",
                    next_step="Give the advisory as a file.",
                ) from error
            except AddressError:
                raise
            except OSError as error:
                failure = error
            delay = next(delays, None)
            if delay is None:
                raise failure
            self.pause(delay)

    def _allowed(self, url: str) -> bool:
        """Return whether a redirect may be followed: never from TLS to plain text."""
        return self.base_url.startswith("http:") or url.startswith("https:")

    def _kept(self, name: str) -> _Answer:
        file = self._file(name)
        try:
            content = kept(file)
            if content is not None:
                when = datetime.fromtimestamp(file.stat().st_mtime, UTC)
                return self._read(name, content, when, is_kept=True)
        except OSError as error:
            unreadable = AdvisoryError(
                f"The kept answer {str(file)!r} can't be read: {error.strerror}.",
                next_step="Check its permissions, or remove it.",
            )
            raise blamed(error, str(file), unreadable) from error
        url = self._url(name)
        why = (
            "--offline was given"
            if self.offline
            else f"{self.base_url} did not answer ({self._down})"
        )
        raise AdvisoryUnreachableError(
            f"{name} can't be looked up: {why}, and no answer is kept.",
            next_step=f"Fetch {url} elsewhere and write the answer to {file}; then run this again.",
            url=url,
            file=file,
        )

    def _read(self, name: str, content: bytes, when: datetime, *, is_kept: bool) -> _Answer:
        url = self._url(name)
        where = str(self._file(name)) if is_kept else url
        remove = (
            f"Remove {where}." if is_kept else "Check the address of the OSV API (--advisory-url)."
        )
        fetched = when.isoformat(timespec="seconds").replace("+00:00", "Z")
        try:
            document = mapping(parse_json(content))
        except (ValueError, RecursionError) as error:
            raise AdvisoryResponseError(
                f"The answer for {name} is not JSON ({where}).", next_step=remove
            ) from error
        if "id" not in document and document.get("code") == _GRPC_NOT_FOUND:
            source = AdvisorySource(id=name, url=url, modified="", fetched=fetched, kept=is_kept)
            return _Answer(None, source)
        try:
            # Records that were withdrawn, or are about other software, may have no ``affected``.
            affected = document.get("affected")
            record = record_from({**document, "affected": affected or []}, where)
        except AdvisoryError as error:
            raise AdvisoryResponseError(error.problem, next_step=remove) from error
        # A server may answer for an alias with the record itself, and with no other record.
        if name.upper() not in {text.upper() for text in (record.id, *record.aliases)}:
            raise AdvisoryResponseError(
                f"The answer for {name} is the record of {record.id} ({where}).", next_step=remove
            )
        modified = record.modified
        source = AdvisorySource(
            id=record.id, url=url, modified=modified, fetched=fetched, kept=is_kept
        )
        return _Answer(record, source)

    def _url(self, name: str) -> str:
        return f"{self.base_url}/v1/vulns/{name}"

    def _file(self, name: str) -> Path:
        # One folder per server: a private database's record must not pass for the public one's.
        server = quote(self.base_url.removeprefix("https://"), safe="")
        return self.folder() / server / f"{name.replace(':', '_')}.json"


def _linked(record: Advisory, source: AdvisorySource, same: Sequence[str]) -> Advisory:
    """Return a record with all identifiers of its vulnerability, by which the records are merged later, and
    with the address that it came from: the audit trail keeps the record, and so its source."""
    aliases = dict.fromkeys((*record.aliases, *same))
    link = Reference(type="ADVISORY", url=source.url)
    return record.model_copy(
        update={
            "aliases": tuple(alias for alias in aliases if alias != record.id),
            "references": tuple(dict.fromkeys((*record.references, link))),
        }
    )
