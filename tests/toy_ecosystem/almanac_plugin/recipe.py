"""Step 4 of docs/ecosystem.md: the deterministic fix, made in memory."""

from collections.abc import Callable, Iterable

from almanac_plugin.files import (
    LOCK,
    MANIFEST,
    Release,
    raised_in_lock,
    raised_in_manifest,
    read_lock,
)
from almanac_plugin.registry import published, release

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_tier.advisory import Advisory, is_affected, lowest_fixed_version, lowest_safe
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import (
    FileChange,
    Left,
    Move,
    NotApplicable,
    Outline,
    RecipeResult,
    RecipeSelection,
    Selected,
)
from fallback_tier.repo import RepoContext

ECOSYSTEM = "Almanac"


def locked(repo: RepoContext) -> list[Release]:
    """Raises RecipeError where the lock can't be read."""
    try:
        return read_lock(repo.read_text(LOCK))
    except ValueError as error:
        raise RecipeError(
            RefusalReason.RECIPE_UNSUPPORTED, f"{error}.", next_step="Write it anew."
        ) from error


def affected(advisory: Advisory, repo: RepoContext) -> list[Release]:
    return [it for it in locked(repo) if is_affected(advisory, ECOSYSTEM, it.name, it.version)]


def select(advisory: Advisory, repo: RepoContext) -> RecipeSelection:
    if not {MANIFEST, LOCK} <= {*repo.manifests}:
        why = f"There is no {MANIFEST} with its {LOCK}."
        return NotApplicable(reason=RefusalReason.MANIFEST_MISSING, sentence=why)
    try:
        if affected(advisory, repo):
            return Selected(recipe="raise")
    except RecipeError as error:
        return NotApplicable(reason=error.reason, sentence=str(error))
    why = "No affected version is locked."
    return NotApplicable(reason=RefusalReason.NOT_AFFECTED, sentence=why)


def outline(advisory: Advisory, repo: RepoContext) -> Outline:
    """From the record alone: which version it names as fixed."""
    moves, left = [], []
    for old in affected(advisory, repo) if LOCK in repo.manifests else []:
        to = lowest_fixed_version(advisory, ECOSYSTEM, old.name, old.version)
        if to is None:
            left.append(_no_version(old))
        else:
            moves.append(_move(old, to))
    return Outline(moves=tuple(moves), left=tuple(left))


#: Of an affected release and what is published: the version to take.
Choose = Callable[[Advisory, Release, Iterable[str]], str | None]


def lowest_unaffected(advisory: Advisory, old: Release, versions: Iterable[str]) -> str | None:
    return lowest_safe(advisory, ECOSYSTEM, old.name, old.version, versions)


def apply(
    selection: Selected,
    advisory: Advisory,
    repo: RepoContext,
    clients: ClientRunner,
    choose: Choose = lowest_unaffected,
) -> RecipeResult:
    """Raises RecipeError where nothing can be raised."""
    manifest, lock = before = repo.read_text(MANIFEST), repo.read_text(LOCK)
    moves, left = [], []
    for old in affected(advisory, repo):
        found = published(old.name, clients)
        to = selection.parameters.get("version") or choose(advisory, old, found)
        if to is None or to not in found:
            left.append(_no_version(old))
            continue
        manifest = raised_in_manifest(manifest, old.name, to)
        lock = raised_in_lock(lock, release(old.name, to, found[to]))
        moves.append(_move(old, to))
    if not moves:
        why = left[0].sentence if left else "Nothing is affected."
        raise RecipeError(RefusalReason.NO_FIXED_VERSION, why, next_step="Wait for a release.")
    return RecipeResult(
        changes=(
            FileChange(path=MANIFEST, before=before[0], after=manifest),
            FileChange(path=LOCK, before=before[1], after=lock),
        ),
        proof_level=ProofLevel.RESOLVED_TREE,
        moves=tuple(moves),
        left=tuple(left),
    )


def _move(old: Release, to: str) -> Move:
    return Move(
        package=old.name,
        manifest=MANIFEST,
        step=LadderStep.DIRECT_BUMP,
        before=(old.version,),
        after=to,
    )


def _no_version(old: Release) -> Left:
    return Left(
        package=old.name,
        manifest=MANIFEST,
        reason=RefusalReason.NO_FIXED_VERSION,
        sentence=f"No later day of {old.name} is without the flaw.",
    )
