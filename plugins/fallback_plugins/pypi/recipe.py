"""The Python ladder over a repository: which projects are affected, and the fix of all of them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi.manifests.kinds import kind_of
from fallback_plugins.pypi.projects import files_of, projects
from fallback_plugins.pypi.strategies.manifest_project import ManifestProject
from fallback_plugins.pypi.strategies.python_project import PythonProject
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, left_out
from fallback_plugins.pypi.surveying.unread_sources import unread_sources
from fallback_plugins.shared import bumping
from fallback_plugins.shared.bumping import Choice, check_target, unsupported
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.ladder import (
    combined,
    refuse,
    resolve_all,
    unknown,
    whole_project_left,
)
from fallback_plugins.shared.unread import LeftOut, Lenient
from fallback_tier.advisory import Advisory, AdvisoryBundle, sort_key
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.limits import MAX_UNREAD_LISTED
from fallback_tier.outcome import Outline, RecipeResult, Selected
from fallback_tier.repo import RepoContext

#: The recipe's name in selections and events.
LADDER = "pypi-ladder"

#: The steps that a version which somebody else chose may be reached by.
_CHOSEN_STEPS = frozenset({LadderStep.LOCK_REFRESH, LadderStep.DIRECT_BUMP, LadderStep.LOCK_EDIT})


def bump(package: str, version: str) -> Selected:
    """The selection that raises ``package`` to exactly ``version``."""
    name = canonicalize_name(package)
    return Selected(recipe=LADDER, parameters={"package": name, "version": version})


def override(package: str, version: str) -> Selected:
    """The selection that forces the transitive ``package`` to ``version``."""
    return bumping.override(LADDER, canonicalize_name(package), version)


def select(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Selected:
    """The ladder, where some project holds, or may bring in, an affected version.

    Nothing is resolved. Raises RecipeError, RepositoryError: nothing is affected, or it is hopeless.
    """
    found, unread = projects(repo, clients), _left_out(advisory, repo)
    seen = _outline(found, advisory, unread)
    if seen.left and not (seen.moves and isinstance(advisory, AdvisoryBundle)):
        refuse(seen.left[0])
    if not seen.moves and not any(_is_open(project, advisory) for project in found):
        raise _nothing_affected(advisory, repo, found, unread)
    return Selected(recipe=LADDER, parameters={})


def outline(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Outline:
    """What the files alone tell, project by project. Never raises for a file that can't be read."""
    return _outline(projects(repo, clients), advisory, _left_out(advisory, repo))


def apply(
    selection: Selected, advisory: Advisory, repo: RepoContext, clients: ClientRunner
) -> RecipeResult:
    """Resolve, in memory. Raises RecipeError, RepositoryError, ToolError."""
    terms = bumping.terms_of(selection)
    choice, found = terms.choice, projects(repo, clients, terms)
    doubts = _doubts(found)
    unread = _left_out(advisory, repo)
    if choice is not None:
        _check_choice(advisory, repo, found, choice)
        advisory = bumping.about(advisory, ECOSYSTEM, choice.package)
    resolved = [Lenient(project, files_of(project, repo), unread) for project in found]
    fixes = resolve_all(
        advisory,
        resolved,
        nothing=lambda: _nothing_affected(advisory, repo, found, unread),
    )
    unresolved = [*_unresolved(found, advisory)]
    messages = (one.problem for one in (*unresolved, *doubts))
    notes = (*unread.notes, *messages)
    if notes:
        fixes[0] = replace(fixes[0], notes=(*fixes[0].notes, *notes))
    result = combined(ECOSYSTEM, advisory, repo, fixes)
    items = [item for one in (*unresolved, *doubts) for item in one.unread]
    listed = (*items, *unread.items)[:MAX_UNREAD_LISTED]
    result = result.model_copy(update={"unread": listed})
    if choice is not None and not choice.forced:
        for move in result.moves:
            if move.step not in _CHOSEN_STEPS:
                raise unsupported(
                    f"{move.package} can't be raised to {choice.version} where it is declared: that takes"
                    f" a {move.step.label}."
                )
    return result


def _left_out(advisory: Advisory, repo: RepoContext) -> LeftOut:
    """Collects what is left out, beginning with what no project reads."""
    unread = left_out(advisory.packages(ECOSYSTEM), repo)
    for source in unread_sources(repo, advisory):
        unread.note(source.path, source.error)
    return unread


def _check_choice(
    advisory: Advisory, repo: RepoContext, found: Sequence[PythonProject], choice: Choice
) -> None:
    """A version that somebody else chose: real, not affected, no downgrade. Raises RecipeError."""
    held = [
        before
        for move in _outline(found, advisory, left_out(advisory.packages(ECOSYSTEM), repo)).moves
        if move.package == choice.package
        for before in move.before
    ]
    if not held and not choice.forced:
        raise _nothing(advisory, repo)
    highest = max(held, key=lambda it: sort_key(ECOSYSTEM, it), default=None)
    check_target(ECOSYSTEM, advisory, choice.package, choice.version, highest)


def _outline(found: Sequence[PythonProject], advisory: Advisory, unread: LeftOut) -> Outline:
    parts = []
    for project in found:
        try:
            parts.append(project.outline(advisory))
        except (RecipeError, RepositoryError) as error:
            files = files_of(project, unread.reader.repo)
            if (item := unread.left(project.path, files, error, advisory, ECOSYSTEM)) is not None:
                parts.append(Outline(left=(item,)))
    moves = tuple(move for part in parts for move in part.moves)
    left = tuple(item for part in parts for item in part.left)
    doubts = _doubts(found)
    is_open = any(_is_open(project, advisory) for project in found)
    if doubts and not moves and not left and not is_open:
        # Unknown is not clean.
        return Outline(left=(whole_project_left("", doubts[0]),), notes=unread.notes)
    notes = (*unread.notes, *(one.problem for one in doubts))
    return Outline(moves=moves, left=left, notes=notes)


def _doubts(found: Sequence[PythonProject]) -> list[RecipeError]:
    """What is said of projects whose lock is out of step. One that can't be read is told of elsewhere."""
    doubts: list[RecipeError] = []
    for project in found:
        with suppress(RecipeError, RepositoryError):
            doubt = project.doubt()
            if doubt is not None:
                doubts.append(doubt)
    return doubts


def _is_open(project: PythonProject, advisory: Advisory) -> bool:
    try:
        return isinstance(project, ManifestProject) and project.is_open(advisory)
    except RepositoryError:
        return False  # said where it is outlined


def _unresolved(found: Sequence[PythonProject], advisory: Advisory) -> Iterator[RecipeError]:
    """Yield a refusal for each set that was not resolved and may bring in the advisory's packages."""
    for project in found:
        if not isinstance(project, ManifestProject) or is_aside(project.path):
            continue
        reasons = [*project.unknown]
        with suppress(RepositoryError):
            if not reasons and project.repo.settings.offline and project.may_bring_in(advisory):
                reasons.append(f"What {project.path} depends on can't be known offline.")
        for reason in reasons:
            next_step = "Commit a lock, so that transitive versions are known."
            yield unknown(project.path, reason, next_step=next_step)


def _nothing_affected(
    advisory: Advisory, repo: RepoContext, found: Sequence[PythonProject], unread: LeftOut
) -> RecipeError:
    """Return the refusal if nothing that was read or resolved is affected: *unknown* if not all was."""
    for doubt in (*_doubts(found), *_unresolved(found, advisory)):
        unread.note(doubt.unread[0].path, doubt)
    return unread.or_else(_nothing(advisory, repo))


def _nothing(advisory: Advisory, repo: RepoContext) -> RecipeError:
    what = ", ".join(advisory.packages(ECOSYSTEM))
    read = [path for path in repo.tracked_files if kind_of(path) is not None]
    if not read:
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            "No requirements file, pyproject.toml or Python lock is tracked in this repository.",
            next_step="Name the folder that holds the Python project, and commit its manifest.",
        )
    return RecipeError(
        RefusalReason.NOT_AFFECTED,
        f"No manifest or lock here holds an affected version of {what} ({len(read)} read).",
        next_step="Nothing needs to be done.",
    )
