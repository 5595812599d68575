"""Advisories by identifier, from an OSV API: https://google.github.io/osv.dev/get-v1-vulns/.

A record's aliases describe the same vulnerability in other databases. All of them are requested, because
each may name packages and ranges that the others lack; the records that name a package are merged, and what
any of them calls affected stays affected (ADR-0131). An alias that the database does not have is ignored;
an alias that can't be requested is an error, because its ranges would be missing.

Each answer is kept as the server sent it, one file per identifier, so that a person without a network can
write the same file with any HTTP client.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_tier.advisory.found import Found, FoundAdvisory, Skipped, mapping
from fallback_tier.advisory.identifiers import requestable
from fallback_tier.advisory.osv import Advisory, Reference, record_from
from fallback_tier.advisory.osv_server import (
    MAX_CONCURRENT,
    OsvServer,
    reason_of,
    says_not_found,
    utc_text,
)
from fallback_tier.errors import (
    AdvisoryError,
    AdvisoryNotFoundError,
    AdvisoryResponseError,
    AdvisoryUnreachableError,
    FallbackError,
    NoPackageError,
    StateFolderError,
    WithdrawnError,
)
from fallback_tier.files.inputs import parse_json
from fallback_tier.files.whole import keep, kept
from fallback_tier.limits import MAX_ADVISORY_BYTES

#: Folder of kept answers, below the folder of caches.
FOLDER: Final = "advisories"

#: Most records that the aliases of one identifier may lead to. Real ones lead to fewer than ten; the limit
#: stops a server that invents aliases.
MAX_RECORDS: Final = 50


class AdvisorySource(Frozen):
    """Where the record of an advisory came from.

    ``modified``: the record's own date. ``fetched``: when the server answered, in UTC. ``kept``: the answer
    is an earlier one, because there was no network or none was to be used. ``missing``: the answer was that
    the database has no such record.
    """

    id: str
    url: str
    modified: str
    fetched: str
    kept: bool = False
    missing: bool = False

    @property
    def sentence(self) -> str:
        """The origin of the record, for people."""
        how = "kept since" if self.kept else "fetched"
        if self.missing:
            return f"no record of {self.id}: {self.url}, {how} {self.fetched}"
        modified = f"modified {self.modified}" if self.modified else "without a date"
        return f"advisory {self.id}: {self.url}, {modified}, {how} {self.fetched}"


@dataclass(frozen=True)
class _Answer:
    """A record and its source. ``record`` is None if the database does not have it."""

    record: Advisory | None
    source: AdvisorySource


@dataclass
class OsvLookup:
    """Lookup of advisories at an OSV API, a few requests at a time; not thread-safe. ``folder`` returns the
    folder of kept answers; ``offline``: use kept answers alone."""

    server: OsvServer
    folder: Callable[[], Path]
    offline: bool = False
    #: Sources of the records that were used, and of each kept answer that was, in the order of their use.
    sources: list[AdvisorySource] = field(default_factory=list, init=False)
    #: Answers by identifier. An error concerns its identifier alone: it is raised if that answer is needed.
    _answers: dict[str, _Answer | FallbackError] = field(default_factory=dict, init=False)

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return self.server.base_url

    def request(self, names: Iterable[str]) -> None:
        """Fetch the answers to these identifiers together, so that ``find`` does not wait for each in turn.
        ``find`` reports those that are not available."""
        missing = [name for name in dict.fromkeys(names) if name not in self._answers]
        if not missing:
            return
        with ThreadPoolExecutor(min(MAX_CONCURRENT, len(missing))) as pool:
            self._answers.update(
                zip(missing, pool.map(self._answer_or_error, missing), strict=True)
            )

    def find(self, names: Sequence[str]) -> Iterator[Found]:
        """Yield the advisory that these identifiers name, and a note for each withdrawn record among them
        and each alias that can't be part of a URL. The first identifier is the requested one; the others
        are of the same vulnerability.

        Raises AdvisoryNotFoundError: no record; AdvisoryUnreachableError: no answer, and none is kept;
        AdvisoryResponseError: an answer that can't be used; NoPackageError: no record names a package;
        WithdrawnError: all records were withdrawn.
        """
        first = names[0]
        answers = self._follow(names)
        # Also unusable ones: that there is no record, or a withdrawn one, may have changed since.
        self._use(answer.source for answer in answers if answer.source.kept)
        records = [(answer.record, answer.source) for answer in answers if answer.record]
        if not records:
            since = answers[0].source.fetched if answers[0].source.kept else ""
            raise AdvisoryNotFoundError(
                f"The OSV database at {self.base_url} has no record of {' or '.join(names)}"
                f"{f' (an answer kept since {since})' if since else ''}.",
                next_step="Check the identifier, or give the advisory as a file.",
            )
        live = [(record, source) for record, source in records if not record.is_withdrawn]
        if not live:
            record, source = records[0]
            raise WithdrawnError(
                f"The advisory {first} ({source.url}) was withdrawn on {record.withdrawn}.",
                next_step="There is nothing to fix; look for the advisory that replaced it.",
            )
        naming = [(record, source) for record, source in live if record.ecosystems]
        if not naming:
            ids = ", ".join(record.id for record, _ in live)
            raise NoPackageError(
                f"No record of {first} at {self.base_url} names a package ({ids}), so no dependency can be "
                "compared with it. Whether it is affected is unknown.",
                next_step="Give an advisory that names the package and its versions.",
            )
        for record, source in records:
            if record.is_withdrawn:
                yield Skipped(
                    source=source.url,
                    reason=f"The record {record.id} was withdrawn on {record.withdrawn}. "
                    "Others of the same vulnerability are used.",
                    unknown=False,
                )
        for alias in dict.fromkeys(alias for record, _ in records for alias in record.aliases):
            if requestable(alias) is None:
                reason = f"Its alias {alias[:200]!r} can't be requested: its ranges are unknown."
                yield Skipped(source=first, reason=reason)
        self._use(source for _, source in naming)
        same = tuple(dict.fromkeys((*names, *(record.id for record, _ in live))))
        for record, source in naming:
            yield FoundAdvisory(_linked(record, source, same))

    def _use(self, sources: Iterable[AdvisorySource]) -> None:
        self.sources += [source for source in sources if source not in self.sources]

    def _follow(self, names: Sequence[str]) -> list[_Answer]:
        """Return the answers to these identifiers and to all that their records call aliases."""
        waiting, seen = list(dict.fromkeys(names)), set(names)
        answers: list[_Answer] = []
        while waiting:
            if len(answers) + len(waiting) > MAX_RECORDS:
                raise AdvisoryResponseError(
                    f"The aliases of {names[0]} lead to more than {MAX_RECORDS} identifiers.",
                    next_step="Give the advisory as a file.",
                )
            self.request(waiting)
            batch = [self._answer(name) for name in waiting]
            answers += batch
            waiting = []
            for alias in (
                alias for answer in batch if answer.record for alias in answer.record.aliases
            ):
                if alias not in seen and (usual := requestable(alias)) and usual not in seen:
                    seen |= {alias, usual}
                    waiting.append(usual)
        return answers

    def _answer(self, name: str) -> _Answer:
        """Return an identifier's answer. Raises the error that was stored instead of one."""
        answer = self._answers[name]
        if isinstance(answer, FallbackError):
            raise answer
        return answer

    def _answer_or_error(self, name: str) -> _Answer | FallbackError:
        """Return the server's answer, otherwise the kept one, or the error. Several threads may call it."""
        try:
            if self.offline:
                return self._kept(name, "--offline was given")
            if self.server.down:
                return self._kept(name, f"{self.base_url} did not answer ({self.server.down})")
            try:
                content = self.server.get(_path(name), max_bytes=MAX_ADVISORY_BYTES)
            except OSError as error:
                return self._kept(name, f"{self.base_url} did not answer ({reason_of(error)})")
            answer = self._read(name, content, datetime.now(UTC), is_kept=False)
            try:
                keep(self._file(name), content)
            except OSError as error:
                reason = StateFolderError(
                    f"The answer for {name} can't be kept in {self.folder()}: {error.strerror}.",
                    next_step="Check the folder, or name another with --state-dir.",
                )
                raise blamed(error, str(self.folder()), reason) from error
        except FallbackError as error:
            return error
        return answer

    def _kept(self, name: str, why: str) -> _Answer:
        """Return the kept answer. Raises AdvisoryUnreachableError if none is kept. ``why``: a clause on why
        the server gave none."""
        file = self._file(name)
        try:
            content = kept(file, MAX_ADVISORY_BYTES)
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
        fetched = utc_text(when)
        try:
            document = mapping(parse_json(content))
        except (ValueError, RecursionError) as error:
            raise AdvisoryResponseError(
                f"The answer for {name} is not JSON ({where}).", next_step=remove
            ) from error
        if says_not_found(content):
            source = AdvisorySource(
                id=name, url=url, modified="", fetched=fetched, kept=is_kept, missing=True
            )
            return _Answer(None, source)
        try:
            # Records that were withdrawn, or are about other software, may have no ``affected``.
            affected = document.get("affected")
            record = record_from(
                {**document, "affected": [] if affected is None else affected}, where
            )
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
        return f"{self.base_url}{_path(name)}"

    def _file(self, name: str) -> Path:
        return self.server_folder / f"{name.replace(':', '_')}.json"

    @property
    def server_folder(self) -> Path:
        """The folder of this server's answers: a private database's must not pass for the public one's."""
        return self.folder() / quote(self.base_url.removeprefix("https://"), safe="")


def _path(name: str) -> str:
    return f"/v1/vulns/{name}"


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
