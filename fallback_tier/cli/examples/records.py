"""``fallback-tier examples``: records of the solved-example memory, added and shown."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from fallback_audit.frozen import Frozen
from fallback_audit.showing.describe import visible
from fallback_plugins.solved_examples.sources.dataset import (
    Format,
    Skipped,
    SkipReason,
    read_examples,
)
from fallback_plugins.solved_examples.store.example_store import (
    ExampleStore,
    IngestCounts,
    Listed,
    Selection,
    StoredExample,
    Withdrawal,
)
from fallback_plugins.solved_examples.store.schema import State
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import OTHER_KEY, PROVIDER_KEY, user_name
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import spinner
from fallback_tier.cli.results import print_plain, print_shown
from fallback_tier.errors import InputError
from fallback_tier.retrieval import SolvedExample

#: Most skipped records that are printed one by one; JSON has them all.
_MAX_SKIPPED_SHOWN = 20


@dataclass
class _Tally:
    """Content of the files that became no record, or no edit of one."""

    skipped: list[Skipped] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


class SkippedRecord(Frozen):
    """A record that is not taken. ``place`` names file and line."""

    example_id: str
    reason: SkipReason
    place: str


class Ingested(IngestCounts):
    """What ``examples ingest --json`` prints. ``left_out``: parts of diffs, by reason."""

    skipped: tuple[SkippedRecord, ...]
    left_out: dict[str, int]


class ExampleList(Frozen):
    """What ``examples list --json`` prints: every version that was asked for."""

    examples: tuple[Listed, ...]


class ExampleVersion(Frozen):
    """A version of a record as it was added."""

    version: int
    state: State
    content_sha256: str
    added_at: str
    record: SolvedExample


class ExampleShown(Frozen):
    """What ``examples show --json`` prints, the newest version first."""

    example_id: str
    versions: tuple[ExampleVersion, ...]
    withdrawal: Withdrawal | None


def open_store(arguments: argparse.Namespace) -> ExampleStore:
    """Return the store that --store names; nothing is opened yet."""
    return ExampleStore(Path(arguments.store))


def shows_secret(text: str) -> bool:
    """Return whether a text has a server's key of this environment, or what looks like any secret."""
    from fallback_tier.prompt.redact import redact_secrets  # imported for stored texts only

    keys = (os.environ.get(name) for name in (PROVIDER_KEY, OTHER_KEY))
    return redact_secrets(text, frozenset(filter(None, keys)))[1] > 0


def ingest(arguments: argparse.Namespace) -> int:
    """Add the records of all files, or none. Raises InputError naming file and line."""
    _check_records(arguments)
    tally = _Tally()
    with spinner(Console(stderr=True)) as progress:
        counts = open_store(arguments).ingest(_examples(arguments, tally, progress))
    lines = (f"{line}\n" for line in _counts_lines(counts, tally))
    document = _counts_json(counts, tally)
    return print_shown(arguments, document, lambda: sys.stdout.writelines(lines))


def _check_records(arguments: argparse.Namespace) -> None:
    """Check that no file of records is the store itself: records are read while it is open, and reading its
    own file would drop its locks. Raises InputError."""
    store = Path(arguments.store)
    for name in arguments.records:
        if store.exists() and Path(name).exists() and store.samefile(name):
            raise InputError(
                f"{name!r} is the example store itself, not a file of records.",
                next_step="Name a file with one JSON object per line.",
                kind="the_store_itself",
            )


def list_examples(arguments: argparse.Namespace) -> int:
    """Print one line per version."""
    selection = Selection(
        ecosystem=arguments.ecosystem,
        package=arguments.package,
        language=arguments.language,
        cwe=arguments.cwe,
        state=None if arguments.state == "all" else State(arguments.state),
    )
    listed_examples = open_store(arguments).listing(selection)
    if arguments.json:
        print_json(ExampleList(examples=tuple(listed_examples)).model_dump(mode="json"))
    else:  # printed while they are read: a memory has many, and the last record may be unreadable
        sys.stdout.writelines(f"{visible(_list_line(listed))}\n" for listed in listed_examples)
    return exit_codes.OK


def show(arguments: argparse.Namespace) -> int:
    """Print one record, whole. Raises InputError for an unknown id."""
    store = open_store(arguments)
    versions = store.versions(arguments.example_id)
    if not versions:
        raise InputError(
            f"There is no example {arguments.example_id!r} in {arguments.store!r}.",
            next_step="`fallback-tier examples list` shows those that are there.",
        )
    withdrawal = next(
        (item for item in store.withdrawals() if item.example_id == arguments.example_id), None
    )
    lines = (f"{line}\n" for line in _record_lines(versions, withdrawal))
    document = _record_json(versions, withdrawal)
    return print_shown(arguments, document, lambda: sys.stdout.writelines(lines))


def withdraw(arguments: argparse.Namespace) -> int:
    """Withdraw one record. Raises InputError if that is not possible, or if the reason shows a secret."""
    if shows_secret(arguments.reason):
        raise InputError(
            "The reason shows what looks like a secret, and it is kept for good.",
            next_step="State it without.",
        )
    withdrawal = open_store(arguments).withdraw(
        arguments.example_id, reason=arguments.reason, by=arguments.by or user_name()
    )
    return print_plain(
        arguments, withdrawal, [f"{withdrawal.example_id} withdrawn by {withdrawal.by}"]
    )


def _examples(
    arguments: argparse.Namespace, tally: _Tally, progress: Progress
) -> Iterator[SolvedExample]:
    """Yield the records of all files, one at a time; the tally gets what is not taken."""
    for name in arguments.records:
        task = progress.add_task("")
        count = 0
        for entry in read_examples(Path(name), Format(arguments.format)):
            tally.left_out.update(part.reason for part in entry.left_out)
            if isinstance(entry, Skipped):
                tally.skipped.append(entry)
                continue
            count += 1
            progress.update(task, description=f"{visible(name)}: {count:,} records")
            yield entry.example


def _counts_json(counts: IngestCounts, tally: _Tally) -> Ingested:
    skipped = tuple(
        SkippedRecord(example_id=item.example_id, reason=item.reason, place=item.place)
        for item in tally.skipped
    )
    return Ingested(**dict(counts), skipped=skipped, left_out=dict(tally.left_out))


def _counts_lines(counts: IngestCounts, tally: _Tally) -> Iterator[str]:
    more = {"new versions": counts.revised, "refused: withdrawn before": counts.withdrawn}
    parts = [f"{counts.added} added", f"{counts.duplicates} already there"]
    yield ", ".join(parts + [f"{count} {label}" for label, count in more.items() if count])
    for reason, count in Counter(item.reason for item in tally.skipped).items():
        yield f"{count} skipped: {reason}"
    for item in tally.skipped[:_MAX_SKIPPED_SHOWN]:
        yield f"  {visible(item.example_id)} ({visible(item.place)}): {item.reason}"
    if len(tally.skipped) > _MAX_SKIPPED_SHOWN:
        yield f"  … and {len(tally.skipped) - _MAX_SKIPPED_SHOWN} more (--json has them all)"
    for part, count in tally.left_out.items():
        yield f"{count} parts of diffs left out: {part}"


def _list_line(listed: Listed) -> str:
    state = "" if listed.state is State.LIVE else f" {listed.state}"
    version = f" v{listed.version}" if listed.version > 1 else ""
    about = " ".join(filter(None, [listed.language, *listed.cwe]))
    return (
        f"{listed.example_id}{version}{state}  {listed.ecosystem} {listed.package}  "
        f"{listed.advisory_id}  {listed.origin}  {about}"
    ).rstrip()


def _record_json(
    versions: tuple[StoredExample, ...], withdrawal: Withdrawal | None
) -> ExampleShown:
    shown = tuple(
        ExampleVersion(
            version=stored.version,
            state=stored.state,
            content_sha256=stored.content_sha256,
            added_at=stored.added_at.isoformat(),
            record=stored.example,
        )
        for stored in versions
    )
    example_id = versions[0].example.example_id
    return ExampleShown(example_id=example_id, versions=shown, withdrawal=withdrawal)


def _record_lines(
    versions: tuple[StoredExample, ...], withdrawal: Withdrawal | None
) -> Iterator[str]:
    """Yield lines that are safe to print. Only text and edits have their own: an id could forge one."""
    example = versions[0].example
    yield from map(visible, _about(versions[0], withdrawal))
    yield from ("", visible(example.advisory_text, lines=True))
    for edit in example.edits:
        yield from ("", visible(edit.path))
        yield from _marked("-", edit.old)
        yield from _marked("+", edit.new)
    for stored in versions[1:]:
        yield f"\nversion {stored.version}, {stored.state}, content {stored.content_sha256}"


def _about(newest: StoredExample, withdrawal: Withdrawal | None) -> Iterator[str]:
    example, origin = newest.example, newest.example.provenance
    yield f"{example.example_id}  version {newest.version}, {newest.state}, {newest.added_at:%Y-%m-%d}"
    if withdrawal is not None:
        yield f"withdrawn  {withdrawal.at:%Y-%m-%d} by {withdrawal.by}: {withdrawal.reason}"
    yield f"advisory   {', '.join([example.advisory_id, *example.advisory_aliases])}"
    yield f"package    {example.ecosystem} {example.package}"
    yield f"weakness   {', '.join(example.cwe) or 'not stated'}"
    yield f"origin     {origin.origin}: {origin.source}"
    yield f"licence    {example.licence}"
    yield f"content    {newest.content_sha256}"
    replay = "the same package and files" if example.file_sha256 else "nothing: shown only"
    yield f"replayed   on {replay}"


def _marked(mark: str, text: str) -> Iterator[str]:
    lines = text.removesuffix("\n").split("\n") if text else []
    return (f"{mark} {visible(line, lines=True)}" for line in lines)
