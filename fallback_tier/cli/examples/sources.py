"""``fallback-tier examples``: sources of records, and the fixes that used them.

Sources are the product's own proved fixes (``harvest``) and the difference of two releases (``releases``);
``influenced`` goes from an example to its fixes.
"""

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from fallback_audit.errors import AuditIntegrityError
from fallback_audit.frozen import Frozen
from fallback_audit.ports import StoredEvent
from fallback_audit.verifying.verify import verify
from fallback_plugins.shared.scratch import scratch_folder
from fallback_plugins.solved_examples.sources.harvest import (
    Harvest,
    HarvestSource,
    HarvestTools,
    NotHarvested,
)
from fallback_plugins.solved_examples.sources.harvest import harvest as harvest_from
from fallback_plugins.solved_examples.sources.release_pair import (
    RegistryReleases,
    choose_pair,
    declared_licence,
    example_from,
)
from fallback_plugins.solved_examples.store.example_store import IngestCounts, StoredExample
from fallback_plugins.solved_examples.store.influence import Influence, influences
from fallback_plugins.solved_examples.store.schema import State
from fallback_tier.advisory import Advisory, load_advisory
from fallback_tier.cli.examples.records import open_store, shows_secret
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.results import print_plain
from fallback_tier.committed import CommittedFiles
from fallback_tier.errors import ConfigurationError, InputError
from fallback_tier.fix.advisories import advisories_at
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.patch.apply import apply_patch
from fallback_tier.patch.policy import forbidden_reason, recipe_only_reason
from fallback_tier.retrieval import SolvedExample
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.wiring.trail import ReadOnlyTrail, open_evidence, read_trail

#: Manifests of a repository that may declare its licence.
_MANIFESTS = ("package.json", "pyproject.toml")


class Harvested(IngestCounts):
    """What ``examples harvest --json`` prints: the names of the examples, and the fixes that gave none."""

    examples: tuple[str, ...]
    left: tuple[NotHarvested, ...]


class ReleaseAdded(IngestCounts):
    """What ``examples releases --json`` prints."""

    example: SolvedExample


class InfluenceShown(Influence):
    """A fix that an example had a part in, and which version of it (None: not known)."""

    version: int | None
    state: State | None


class InfluencedFixes(Frozen):
    """What ``examples influenced --json`` prints."""

    example_id: str
    influenced: tuple[InfluenceShown, ...]


def harvest(arguments: argparse.Namespace) -> int:
    """Add the product's own proved fixes. Raises InputError for a fix that is not on record or a repository
    without a licence, and AuditIntegrityError if the trail is not intact."""
    repository = inspect_repository(Path(arguments.repo), SubprocessClients()).root
    source = HarvestSource(
        advisories=_by_id(arguments),
        repository=repository.name,
        licence=arguments.licence or _licence_of(repository),
    )
    state = state_dir(arguments)
    evidence = open_evidence(state)
    with closing(read_trail(state, record(arguments))) as reader:
        _check_chain(reader)
        events = _asked(reader, arguments.fix_ids)
        harvested = harvest_from(events, evidence, source, _tools(repository))
    counts = _ingest(arguments, *harvested.examples)
    names = tuple(example.example_id for example in harvested.examples)
    document = Harvested(**dict(counts), examples=names, left=harvested.left)
    return print_plain(arguments, document, _harvest_lines(harvested, counts))


def releases(arguments: argparse.Namespace) -> int:
    """Add what a fixed release changed. Raises InputError (an advisory, an archive, two releases that make
    no example), and ToolError if a registry can't be reached."""
    advisory = load_advisory(Path(arguments.advisory))
    if bool(arguments.before) != bool(arguments.after):
        raise ConfigurationError(
            "--before and --after belong together.",
            next_step="Give both archives, or neither.",
            kind="one_archive",
        )
    with scratch_folder("releases") as folder:
        example = _from_disk(advisory, arguments) or _fetched(advisory, arguments, folder)
    if _finds_secrets(example):
        raise InputError(
            f"The releases of {example.package} show what looks like a secret.",
            next_step="Write the example by hand, without it.",
            kind="secret",
        )
    counts = _ingest(arguments, example)
    files = ", ".join(sorted(example.file_sha256))
    state = "added" if counts.added or counts.revised else "already there"
    document = ReleaseAdded(**dict(counts), example=example)
    return print_plain(arguments, document, [f"{example.example_id} {state}: {files}"])


def influenced(arguments: argparse.Namespace) -> int:
    """Print the fixes that an example had a part in, whatever became of either."""
    name = arguments.example_id
    versions = {item.content_sha256: item for item in open_store(arguments).versions(name)}
    state = state_dir(arguments)
    evidence = open_evidence(state)
    with closing(read_trail(state, record(arguments))) as reader:
        influenced_fixes = influences(name, reader.events(), evidence)
    if not (versions or influenced_fixes):
        raise InputError(
            f"There is no example {name!r} in {arguments.store!r}, and no fix names it.",
            next_step="`fallback-tier examples list` shows those that are there.",
            kind="no_such_example",
        )
    shown = tuple(
        InfluenceShown(**dict(influence), **_version(influence, versions))
        for influence in influenced_fixes
    )
    document = InfluencedFixes(example_id=name, influenced=shown)
    return print_plain(arguments, document, _influence_lines(name, influenced_fixes, versions))


# --- harvest --------------------------------------------------------------------------------------


def _by_id(arguments: argparse.Namespace) -> dict[str, Advisory]:
    advisories = advisories_at([Path(path) for path in arguments.advisory]).advisories
    return {name: advisory for advisory in advisories for name in (*advisory.aliases, advisory.id)}


def _licence_of(repository: Path) -> str:
    paths = (repository / name for name in _MANIFESTS)
    files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    licence = declared_licence(files)
    if licence is None:
        raise InputError(
            f"{repository} declares no licence in {' or '.join(_MANIFESTS)}.",
            next_step="Give the licence of its code with --licence; none is assumed.",
            kind="no_licence",
        )
    return licence


def _check_chain(reader: ReadOnlyTrail) -> None:
    """Check that the trail is intact: no example is taken from another one. Raises AuditIntegrityError."""
    # Each trail's contract is judged as it is harvested, and its own evidence read.
    report = verify(reader, checkpoints=None, contract=False)
    if report.integrity_problem_count:
        reason = report.integrity_problems[0].reason
        raise AuditIntegrityError(
            f"Nothing is harvested from a trail that is not intact: {reason}.",
            next_step="Run `fallback-tier audit verify`, and find out who wrote to it.",
            kind="not_intact",
        )


def _asked(reader: ReadOnlyTrail, fix_ids: list[str]) -> list[StoredEvent]:
    if not fix_ids:
        return list(reader.events())
    events: list[StoredEvent] = []
    for fix_id in dict.fromkeys(fix_ids):
        fix_events = list(reader.events(fix_id))
        if not fix_events:
            raise InputError(
                f"There is no fix {fix_id!r} in the audit trail.",
                next_step="`fallback-tier audit log` lists those on record.",
            )
        events += fix_events
    return events


def _tools(repository: Path) -> HarvestTools:
    return HarvestTools(
        base_text=CommittedFiles(repository, SubprocessClients()).text,
        changes=apply_patch,
        barred=lambda path: forbidden_reason(path) or recipe_only_reason(path),
        finds_secrets=shows_secret,
    )


def _harvest_lines(harvested: Harvest, counts: IngestCounts) -> Iterator[str]:
    yield f"{counts.added} added, {counts.duplicates} already there, {len(harvested.left)} left"
    if counts.revised or counts.withdrawn:
        yield f"{counts.revised} new versions, {counts.withdrawn} refused: withdrawn before"
    for example in harvested.examples:
        yield f"  {example.example_id}  {example.provenance.source}: {example.advisory_id}"
    for not_harvested in harvested.left:
        yield f"  left: fix {not_harvested.fix_id} ({not_harvested.reason}): {not_harvested.sentence}"


# --- releases -------------------------------------------------------------------------------------


def _from_disk(advisory: Advisory, arguments: argparse.Namespace) -> SolvedExample | None:
    if not arguments.before:
        return None
    return example_from(
        advisory,
        Path(arguments.before),
        Path(arguments.after),
        package=arguments.package,
        vulnerable=arguments.vulnerable,
        fixed=arguments.fixed,
        licence=arguments.licence,
    )


def _fetched(advisory: Advisory, arguments: argparse.Namespace, folder: Path) -> SolvedExample:
    registry = RegistryReleases(SubprocessClients())
    pair = choose_pair(
        advisory,
        arguments.package,
        registry,
        vulnerable=arguments.vulnerable,
        fixed=arguments.fixed,
    )
    before, after = (
        registry.fetch(pair.ecosystem, pair.package, version, folder)
        for version in (pair.vulnerable, pair.fixed)
    )
    return example_from(
        advisory,
        before,
        after,
        package=pair.package,
        vulnerable=pair.vulnerable,
        fixed=pair.fixed,
        licence=arguments.licence,
    )


def _finds_secrets(example: SolvedExample) -> bool:
    return any(shows_secret(part) for edit in example.edits for part in (edit.old, edit.new))


def _ingest(arguments: argparse.Namespace, *examples: SolvedExample) -> IngestCounts:
    if not examples:
        return IngestCounts()
    return open_store(arguments).ingest(examples)


# --- influenced -----------------------------------------------------------------------------------


def _version(influence: Influence, versions: dict[str, StoredExample]) -> dict[str, Any]:
    stored = versions.get(influence.content_sha256 or "")
    return {
        "version": stored.version if stored else None,
        "state": stored.state if stored else None,
    }


def _influence_lines(
    name: str, influenced_fixes: tuple[Influence, ...], versions: dict[str, StoredExample]
) -> Iterator[str]:
    states = sorted({stored.state for stored in versions.values()})
    yield f"{name} ({', '.join(states) or 'not in this store'}): {len(influenced_fixes)} attempts"
    for entry in influenced_fixes:
        parts = [
            word
            for word, had in (
                ("returned", entry.retrieved),
                ("in the prompt", entry.prompted),
                ("replayed", entry.replayed),
            )
            if had
        ]
        stored = versions.get(entry.content_sha256 or "")
        version = (
            f"version {stored.version}" if stored else entry.problem or "version not on record"
        )
        yield (
            f"  fix {entry.fix_id}, attempt {entry.attempt}: {entry.advisory_id} in {entry.repository}:"
            f" {', '.join(parts)} ({version})"
        )
        patch = f", patch {entry.patch_sha256}" if entry.patch_sha256 else ""
        delivered = ", delivered" if entry.delivered else ""
        yield f"    {entry.attempt_outcome}; fix {entry.fix_outcome}{delivered}{patch}"
