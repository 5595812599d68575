"""Advisories from any input: identifiers, OSV records, folders of them, scanner reports.

A document's format is recognised by its content (``reports``), never by a file's name. Nothing is left out
silently: what gives no advisory is ``skipped``, with a reason.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_tier.advisory.bundles import by_flaw, merged
from fallback_tier.advisory.found import (
    CodeFinding,
    Found,
    FoundAdvisory,
    Named,
    Skipped,
    mapping,
    text,
    unstated,
)
from fallback_tier.advisory.identifiers import identifier, identifier_or_none, not_looked_up
from fallback_tier.advisory.lookup import AdvisorySource, OsvLookup
from fallback_tier.advisory.osv import Advisory
from fallback_tier.advisory.osv_affected import Affected
from fallback_tier.advisory.versions import canonical_name
from fallback_tier.ecosystem_rules import base_ecosystem, rules_of
from fallback_tier.errors import AdvisoryError, AdvisoryIdError, FallbackError, WithdrawnError
from fallback_tier.files.inputs import DuplicateKeyError, open_named, parse_json

#: Most bytes of one report. osv-scanner writes out every record in full: a few MB for a large repository.
#: Parsed, it takes about eight times as much memory.
MAX_REPORT_BYTES = 32 * 1024 * 1024

#: Most files of one folder: about as many as a whole database has for PyPI. A plan is made for those that
#: concern one repository.
MAX_FOLDER_FILES = 20_000

#: Most bytes of all files of one folder.
MAX_FOLDER_BYTES = 128 * 1024 * 1024

#: Suffixes of the files of a folder that are read, in upper or lower case.
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".sarif")

#: Suffixes of files that may hold advisories in formats that are not read: they are reported as skipped.
_OTHER_SUFFIXES = (".csv", ".gz", ".toml", ".xml", ".xz", ".yaml", ".yml", ".zip", ".zst")

#: Names standard input among paths.
STANDARD_INPUT = Path("-")


class AdvisorySet(Frozen):
    """All that the given inputs say: each flaw once, findings in source code, and what was left out.

    ``sources``: where records come from that were looked up by an identifier.
    """

    advisories: tuple[Advisory, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    findings: tuple[CodeFinding, ...] = ()
    sources: tuple[AdvisorySource, ...] = ()


def load_advisories(
    paths: Sequence[Path], lookup: OsvLookup | None = None, *, commits_suffice: bool = False
) -> AdvisorySet:
    """Read files, folders, standard input (``-``) and identifiers (``GHSA-…``), in any supported format.

    ``lookup``: finds the records of identifiers; without it, an identifier is refused, and in a report
    skipped. ``commits_suffice``: a record that names only commits is read if nothing else was given (a fix
    of the package's own source). A file wins over an identifier of the same name.

    Records of the same vulnerability become one. If a whole OSV record is given or looked up, a report's
    ranges of the same vulnerability and package are dropped for it, and versions that the report found stay
    affected. Raises AdvisoryError for a path that can't be read, is over its limit or has none of the
    formats; for a file that is one OSV record and can't be used; and for an identifier that gives no record
    (as ``OsvLookup.find``). What was withdrawn, or can't be used *inside* a folder or a report, is skipped.
    """
    items = [item for path in paths for item in _read(path, lookup)]
    if lookup is not None:
        lookup.request(name for item in items for name in _known_ids(item))
    alone: list[str] = []
    statements = [statement for item in items for statement in _looked_up(item, lookup, alone)]
    records = [item for item in statements if isinstance(item, FoundAdvisory)]
    skipped = [item for item in statements if isinstance(item, Skipped)]
    if alone and lookup is not None:
        skipped.append(_reports_alone(alone, lookup))
    advisories = []
    for advisory in _one_per_flaw(records):
        is_only = commits_suffice and len(records) == len(statements) == 1
        if advisory.says_nothing and not is_only:
            skipped.append(_says_nothing(advisory))
        else:
            advisories.append(advisory)
    return AdvisorySet(
        advisories=tuple(advisories),
        skipped=tuple(dict.fromkeys(skipped)),
        findings=tuple(dict.fromkeys(item for item in statements if isinstance(item, CodeFinding))),
        sources=() if lookup is None else tuple(lookup.sources),
    )


def _looked_up(item: Found, lookup: OsvLookup | None, alone: list[str]) -> Iterator[Found]:
    """Yield what an identifier of a report leads to, and what the report states itself. ``alone`` collects
    the identifiers of which only the report's statement is available."""
    if isinstance(item, FoundAdvisory) and not item.whole:
        yield from _completed(item, lookup, alone)
        return
    if not isinstance(item, Named):
        yield item
        return
    if lookup is None:
        yield Skipped(source=item.source, reason=f"{item.ids[0]!r}: {item.lacks}.")
        yield from item.stated
        return
    try:
        looked_up = list(lookup.find(_identifiers(item)))
    except AdvisoryError as error:
        # The report's statement on installed versions holds without the record.
        skipped = Skipped.because(item.source, error)
        yield skipped.model_copy(update={"reason": f"{error.problem} {error.next_step}"})
        yield from item.stated
        return
    yield from looked_up
    # Both are about one vulnerability: ``_one_per_flaw`` adds to the record what only the report states.
    yield from item.stated


def _completed(item: FoundAdvisory, lookup: OsvLookup | None, alone: list[str]) -> Iterator[Found]:
    """Yield what a report states, and the record if it is found: it has the other release lines."""
    names = _known_ids(item)
    if lookup is not None and names:
        try:
            yield from lookup.find(names)
        except WithdrawnError as error:
            yield Skipped.because(names[0], error)
        except AdvisoryError:
            # Without the record, what the report does not state counts as affected: no version is called
            # safe for lack of it.
            alone.append(names[0])
    yield item


def _reports_alone(names: Sequence[str], lookup: OsvLookup) -> Skipped:
    """Return a note. Nothing is missing, since what reports leave open counts as affected."""
    ids = [*dict.fromkeys(names)]
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return Skipped(
        source=lookup.base_url,
        reason=f"No record of {ids[0]}{more} is at hand: what reports do not call fixed is affected.",
        unknown=False,
    )


def _with_ranges(stated: Advisory, ranges: Callable[[Affected], Sequence[object]]) -> Advisory:
    """Return a report's statement with other ranges. The versions that it found affected stay affected,
    whatever a record's ranges say."""
    affected = [{**entry.model_dump(), "ranges": ranges(entry)} for entry in stated.affected]
    # model_copy() would keep what the record has computed from its ranges.
    return Advisory.model_validate({**stated.model_dump(), "affected": affected})


def _identifiers(item: Named) -> tuple[str, ...]:
    """Return those ids of a report that are identifiers: no other text of it becomes a URL or a file's
    name. Raises AdvisoryIdError if none is."""
    identifiers = _known_ids(item)
    if not identifiers:
        raise AdvisoryIdError(
            f"{item.ids[0][:200]!r} is no identifier of a database that is known.",
            next_step="Give the record as a file.",
        )
    return identifiers


def _known_ids(item: Found) -> tuple[str, ...]:
    if isinstance(item, Named):
        names = item.ids
    elif isinstance(item, FoundAdvisory) and not item.whole:
        names = (item.advisory.id, *item.advisory.aliases)
    else:
        return ()
    return tuple(dict.fromkeys(filter(None, map(identifier_or_none, names))))


def _one_per_flaw(records: Sequence[FoundAdvisory]) -> Iterator[Advisory]:
    """Yield one advisory per vulnerability. Whole records win over what reports state, package by package.
    A version that a report calls affected stays affected; without a whole record, so does all that no
    report calls safe."""
    origin = {id(record.advisory): record for record in records}
    for group in by_flaw(record.advisory for record in records):
        group_records = [origin[id(advisory)] for advisory in group]
        whole = [record.advisory for record in group_records if record.whole]
        reports: dict[tuple[str, str], list[FoundAdvisory]] = {}
        for record in group_records:
            if not record.whole:
                for package in _packages(record.advisory):
                    reports.setdefault(package, []).append(record)
        known_packages = {
            package
            for advisory in whole
            for package in _packages(advisory)
            if not advisory.says_nothing_of(*package)
        }
        # The whole record's id and texts come first.
        yield merged([*whole, *_reported(group_records, known_packages, reports)])


def _reported(
    records: Iterable[FoundAdvisory],
    known_packages: set[tuple[str, str]],
    reports: Mapping[tuple[str, str], Sequence[FoundAdvisory]],
) -> Iterator[Advisory]:
    """Yield what each report states. ``known_packages``: those of which a whole record states versions."""
    rest = {
        package: unstated(package[0], statements)
        for package, statements in reports.items()
        if package not in known_packages and rules_of(package[0]) is not None
    }
    for record in records:
        if record.whole:
            continue

        def ranges(entry: Affected) -> Sequence[object]:
            package = entry.package
            if package is None:
                return ()
            ecosystem = base_ecosystem(package.ecosystem)
            name = canonical_name(ecosystem, package.name)
            if (ecosystem, name) in known_packages:
                return ()
            unstated_range = rest.get((ecosystem, name))
            return (
                *(a_range.model_dump() for a_range in entry.ranges),
                *filter(None, (unstated_range,)),
            )

        yield _with_ranges(record.advisory, ranges)


def _packages(advisory: Advisory) -> set[tuple[str, str]]:
    return {
        (ecosystem, package)
        for ecosystem in advisory.ecosystems
        for package in advisory.packages(ecosystem)
    }


def _says_nothing(advisory: Advisory) -> Skipped:
    return Skipped(
        source=advisory.id,
        reason=(
            "It says which commits are affected, not which versions, or numbers these otherwise than its "
            "ecosystem does, so no dependency can be compared with it. A fix of the package's own source "
            "takes this record alone."
        ),
    )


# --- Files and folders ----------------------------------------------------------------------------


def _read(path: Path, lookup: OsvLookup | None) -> Iterator[Found]:
    if path.is_dir():
        yield from _read_folder(path)
        return
    name = None if path == STANDARD_INPUT or os.path.lexists(path) else identifier(str(path))
    try:
        if name is not None and lookup is None:
            raise not_looked_up(name)
        if name is not None and lookup is not None:
            yield from lookup.find((name,))
        elif path == STANDARD_INPUT:
            yield from _read_document(_bytes(Path("/dev/stdin")), "standard input")
        else:
            yield from _read_document(_bytes(path), str(path))
    except WithdrawnError as error:
        yield Skipped.because(str(path), error)


def _read_folder(folder: Path) -> Iterator[Found]:
    bytes_left = MAX_FOLDER_BYTES
    for number, path in enumerate(_files(folder)):
        if path.is_symlink():
            yield Skipped(source=str(path), reason="It is a symbolic link, which is not followed.")
            continue
        if path.name.lower().endswith(_OTHER_SUFFIXES):
            yield Skipped(source=str(path), reason="It is no JSON, which is all that is read.")
            continue
        if not path.is_file():
            raise AdvisoryError(
                f"The input {str(path)!r} is not a regular file.",
                next_step="Take it out of the folder.",
                kind="not_a_file",
            )
        data = _bytes(path)
        bytes_left -= len(data)
        if number >= MAX_FOLDER_FILES or bytes_left < 0:
            raise AdvisoryError(
                f"The folder {str(folder)!r} holds more than {MAX_FOLDER_FILES:,} files or "
                f"{MAX_FOLDER_BYTES:,} bytes of advisories.",
                next_step="Give a folder with the advisories that concern this repository.",
                kind="folder_too_large",
            )
        try:
            yield from _read_document(data, str(path))
        except AdvisoryError as error:
            yield Skipped.because(str(path), error)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files to look at, in an order that does not depend on the file system."""

    def stop(error: OSError) -> None:
        raise _unreadable(Path(error.filename), error) from error

    is_empty = True
    for directory, folders, names in os.walk(folder, onerror=stop):
        folders.sort()
        links = [name for name in folders if Path(directory, name).is_symlink()]
        for name in sorted([*names, *links]):
            ending = name.lower()
            if ending.endswith(_SUFFIXES) or name in links:
                is_empty = False
                yield Path(directory, name)
            elif ending.endswith(_OTHER_SUFFIXES) and not name.startswith("."):
                yield Path(directory, name)
    if is_empty:
        raise AdvisoryError(
            f"The folder {str(folder)!r} holds no {', '.join(_SUFFIXES)} file.",
            next_step="Give the folder that has the advisories.",
            kind="nothing_to_read",
        )


def _bytes(path: Path) -> bytes:
    try:
        with open_named(path) as stream:
            data = stream.read(MAX_REPORT_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > MAX_REPORT_BYTES:
        raise AdvisoryError(
            f"The input {str(path)!r} is larger than {MAX_REPORT_BYTES:,} bytes.",
            next_step="Give the advisories or the report in smaller files.",
            kind="too_large",
        )
    return data


def _unreadable(path: Path, error: OSError) -> FallbackError:
    unreadable = AdvisoryError(
        f"The input {str(path)!r} can't be read: {error.strerror}.",
        next_step="Check the path and its permissions.",
        kind="unreadable",
    )
    return blamed(error, f"The input {str(path)!r}", unreadable)


# --- Documents ------------------------------------------------------------------------------------


def _read_document(data: bytes, source: str) -> Iterator[Found]:
    # Imported only when a document is read.
    from fallback_tier.advisory import reports

    document = _parsed(data, source)
    statements = reports.read(document, source)
    if statements is None:
        raise _unknown(mapping(document), source)
    return statements


def _unknown(answer: Mapping[str, Any], source: str) -> AdvisoryError:
    message = text(mapping(answer.get("error")).get("summary")) or text(answer.get("message"))
    if message:
        return AdvisoryError(
            f"The input {source!r} is a scanner's error, not a report: {message[:200]!r}.",
            next_step="Run the scanner again and give its report.",
        )
    return AdvisoryError(
        f"The input {source!r} is no advisory and no report that we know.",
        next_step=f"Give one of: {_formats()}.",
    )


def _parsed(data: bytes, source: str) -> object:
    """Return the JSON value, or an array of what JSON lines hold, in any encoding that JSON may have.
    Raises AdvisoryError, also if it is nested too deeply."""
    try:
        decoded = data.decode(json.detect_encoding(data))
        try:
            return parse_json(decoded)
        except json.JSONDecodeError as error:
            # Not splitlines(): JSON strings may hold what Python calls line ends (U+2028).
            lines = [line for line in decoded.split("\n") if line.strip()]
            if len(lines) < 2 or not error.msg.startswith("Extra data"):
                raise
            return [parse_json(line) for line in lines]
    except DuplicateKeyError as error:
        raise AdvisoryError(
            f"The input {source!r} is ambiguous: {error}.",
            next_step="Give a record or a report in which each object has each key once.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise AdvisoryError(
            f"The input {source!r} is not JSON: {_short(error)}.",
            next_step=f"Give one of: {_formats()}.",
        ) from error


def _formats() -> str:
    from fallback_tier.advisory import reports

    return reports.supported()


def _short(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
