"""Solved examples from our own fixes: only those that were proved, and whose trail is intact.

1. The trail of a gate transition ends in FixVerified, keeps its contract, and has no event that a clean
   proof does not have (a flag of low confidence, a waived sandbox).
2. All evidence that it relies on is there, unaltered.
3. A model wrote the patch, for source files. A recipe's bump is not a precedent: recipes make a better one,
   and tomorrow another. A replayed example adds nothing new.
4. The patch fits the files of the base commit, byte for byte; its edits show no secret.

A fix that is not taken is returned as a typed result with its reason, never as an exception.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import PurePosixPath

from fallback_audit.contract.table import violations
from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.errors import EvidenceError
from fallback_audit.events import FixStarted, FixVerified
from fallback_audit.evidence.checking import kept_digests
from fallback_audit.frozen import Frozen
from fallback_audit.ports import EvidenceStore, Scope, StoredEvent
from fallback_audit.vocabulary import Tier
from fallback_plugins.solved_examples.sources.release_files import LANGUAGES, edits_between
from fallback_plugins.solved_examples.store.records import text_sha256
from fallback_tier.advisory import Advisory
from fallback_tier.errors import FallbackError, PatchError, RepositoryError
from fallback_tier.outcome import FileChange, SearchReplace
from fallback_tier.retrieval import ExampleOrigin, ExampleProvenance, SolvedExample

#: Events of a clean proof's trail. Only these are allowed, so that an unknown event of a later version,
#: which may say that the fix is doubtful, excludes the fix.
_CLEAN = frozenset(
    {
        "FixStarted",
        "AttemptStarted",
        "RecipeEvaluated",
        "RetrievalQueried",
        "ExampleReplayed",
        "RagSkippedOnRetry",
        "ModelCalled",
        "ModelAnswered",
        "ModelFailed",
        "PlanRejected",
        "MoreCodeShown",
        "RepeatedPatchRejected",
        "GroundingNotEvaluated",
        "PatchProposed",
        "AttemptRefused",
        "ConsumerLeft",
        "GateJudged",
        "AttemptFailed",
        "FixVerified",
    }
)


class NotHarvestedReason(StrEnum):
    """Why a fix on record becomes no example."""

    NOT_VERIFIED = "not_verified"
    NOT_CLEAN = "not_clean"
    BROKEN_TRAIL = "broken_trail"
    BROKEN_EVIDENCE = "broken_evidence"
    NOT_A_MODELS_WORK = "not_a_models_work"
    NO_ADVISORY = "no_advisory"
    NOT_SOURCE = "not_source"
    OTHER_BASE = "other_base"
    SECRETS = "secrets"


class NotHarvested(Frozen):
    """A gate transition that was looked at and left, and why, in one sentence."""

    fix_id: str
    gate_transition_id: str
    reason: NotHarvestedReason
    sentence: str


class Harvest(Frozen):
    """The examples, and what was left."""

    examples: tuple[SolvedExample, ...] = ()
    left: tuple[NotHarvested, ...] = ()


@dataclass(frozen=True)
class HarvestTools:
    """Functions that a plugin may not import, passed by the caller."""

    #: (base commit, path) → the file's exact text. Raises RepositoryError.
    base_text: Callable[[str, str], str]
    #: (diff, reader of base texts) → what it changes. Raises PatchError.
    changes: Callable[[str, Callable[[str], str]], tuple[FileChange, ...]]
    #: Returns why no example may edit a path (manifests, tests, CI); None if it may.
    barred: Callable[[str], str | None]
    finds_secrets: Callable[[str], bool]


@dataclass(frozen=True)
class HarvestSource:
    """Facts that no trail has: the advisories (by id and alias), name and licence of the code."""

    advisories: Mapping[str, Advisory]
    repository: str
    licence: str


class _LeftError(Exception):
    def __init__(self, reason: NotHarvestedReason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


def harvest(
    events: Iterable[StoredEvent],
    evidence: EvidenceStore,
    source: HarvestSource,
    tools: HarvestTools,
) -> Harvest:
    """Return the examples from gate transitions, in the order of their first event. The caller has verified
    the chain (``fallback_audit.verifying.verify``): this checks each trail's contract and evidence."""
    examples: list[SolvedExample] = []
    left: list[NotHarvested] = []
    links = sorted(events, key=lambda link: (link.scope.fix_id, link.scope.gate_transition_id))
    grouped = [(scope, list(group)) for scope, group in groupby(links, lambda link: link.scope)]
    for scope, trail_links in sorted(grouped, key=lambda group: group[1][0].seq):
        try:
            examples.append(_example(scope, trail_links, evidence, source, tools))
        except _LeftError as left_error:
            left.append(
                NotHarvested(
                    fix_id=scope.fix_id,
                    gate_transition_id=scope.gate_transition_id,
                    reason=left_error.reason,
                    sentence=left_error.sentence,
                )
            )
    return Harvest(examples=tuple(examples), left=tuple(left))


def _example(
    scope: Scope,
    links: Sequence[StoredEvent],
    evidence: EvidenceStore,
    source: HarvestSource,
    tools: HarvestTools,
) -> SolvedExample:
    started, verified = _proof(scope, links)
    _check_evidence(links, evidence)
    advisory = source.advisories.get(started.advisory_id)
    packages = advisory.packages(started.ecosystem) if advisory else ()
    if advisory is None or not packages:
        raise _LeftError(
            NotHarvestedReason.NO_ADVISORY,
            f"no advisory {started.advisory_id} that names a package of {started.ecosystem} was given",
        )
    diff = evidence.get(verified.patch_sha256).decode("utf-8", "replace")
    changes = _changes(diff, started.base_commit, tools)
    edits = tuple(edit for change in changes for edit in _edits(change))
    if any(tools.finds_secrets(part) for edit in edits for part in (edit.old, edit.new)):
        raise _LeftError(
            NotHarvestedReason.SECRETS, "its edits show what looks like a secret of the repository"
        )
    language_by_suffix = LANGUAGES.get(started.ecosystem, {})
    languages = (
        language_by_suffix.get(PurePosixPath(change.path).suffix.lower()) for change in changes
    )
    return SolvedExample(
        example_id=f"harvested-{verified.patch_sha256[:16]}",
        advisory_id=advisory.id,
        advisory_aliases=advisory.aliases,
        advisory_text=advisory.text,
        ecosystem=started.ecosystem,
        package=packages[0],
        cwe=advisory.cwe,
        language=next(filter(None, languages), ""),
        edits=edits,
        file_sha256={change.path: text_sha256(change.before or "") for change in changes},
        provenance=ExampleProvenance(
            origin=ExampleOrigin.HARVESTED,
            source=f"fix {scope.fix_id}",
            repository=source.repository,
            revision=started.base_commit,
        ),
        licence=source.licence,
    )


def _proof(scope: Scope, links: Sequence[StoredEvent]) -> tuple[FixStarted, FixVerified]:
    unclean = sorted(
        {link.kind for link in links} - _CLEAN - {"FixPatched", "FixRefused", "FixEscalated"}
    )
    if unclean:
        raise _LeftError(
            NotHarvestedReason.NOT_CLEAN, f"its trail has {', '.join(unclean)}: no clean proof"
        )
    trail = Trail(scope, [Entry(link.seq, link.payload) for link in links])
    if trail.judges_again is not None:
        # How it was made, and any doubt about it, is in another trail.
        raise _LeftError(
            NotHarvestedReason.NOT_CLEAN, "its gates failed before they passed: no clean proof"
        )
    started, verified = trail.of(FixStarted), trail.of(FixVerified)
    if not (started and verified):
        ended = trail.terminal.event.kind if trail.terminal else "nothing"
        raise _LeftError(
            NotHarvestedReason.NOT_VERIFIED, f"it ended in {ended}, not in FixVerified"
        )
    broken = next(violations(trail), None)
    if broken is not None:
        raise _LeftError(
            NotHarvestedReason.BROKEN_TRAIL,
            f"its trail breaks {broken.rule} at event {broken.seq}: {broken.detail}",
        )
    proof = verified[0].event
    if proof.tier is not Tier.LLM:
        what = {
            Tier.RECIPE: "a recipe made its patch, and can make it again",
            Tier.RAG: "it replayed an example, so it adds nothing new",
        }[proof.tier]
        raise _LeftError(NotHarvestedReason.NOT_A_MODELS_WORK, what)
    return started[0].event, proof


def _check_evidence(links: Sequence[StoredEvent], evidence: EvidenceStore) -> None:
    for link in links:
        for digest in kept_digests(link.payload):
            try:
                content = evidence.get(digest)
            except EvidenceError as error:
                raise _LeftError(
                    NotHarvestedReason.BROKEN_EVIDENCE, error.problem.rstrip(".")
                ) from error
            if hashlib.sha256(content).hexdigest() != digest:
                raise _LeftError(
                    NotHarvestedReason.BROKEN_EVIDENCE, f"evidence {digest} was altered"
                )


def _changes(diff: str, commit: str, tools: HarvestTools) -> tuple[FileChange, ...]:
    try:
        changes = tools.changes(diff, lambda path: tools.base_text(commit, path))
    except (RepositoryError, PatchError) as error:
        raise _LeftError(NotHarvestedReason.OTHER_BASE, error.problem.rstrip(".")) from error
    for change in changes:
        why = tools.barred(change.path)
        if change.before is None or change.after is None:
            why = "it is made or deleted, which no example can say"
        if why is not None:
            raise _LeftError(
                NotHarvestedReason.NOT_SOURCE,
                f"its patch has {change.path}: {why}; the rest alone would be a partial fix",
            )
    return changes


def _edits(change: FileChange) -> tuple[SearchReplace, ...]:
    try:
        return edits_between(change.path, change.before or "", change.after or "")
    except FallbackError as error:
        raise _LeftError(NotHarvestedReason.NOT_SOURCE, error.problem.rstrip(".")) from error
