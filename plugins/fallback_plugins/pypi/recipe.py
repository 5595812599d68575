"""The Python ladder over a repository: which projects are affected, and the fix of all of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi.manifests.kinds import kind_of
from fallback_plugins.pypi.projects import PythonProject, files_of, projects
from fallback_plugins.pypi.strategies.locked import LockedProject
from fallback_plugins.pypi.strategies.manifest_project import ManifestProject
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, excluded_lines, left_out
from fallback_plugins.pypi.surveying.unread_sources import unread_sources
from fallback_plugins.shared import bumping
from fallback_plugins.shared.ages import unchecked
from fallback_plugins.shared.bumping import Choice, check_target, unsupported
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.ladder import (
    NO_TEXTS,
    HeldToAges,
    Project,
    combined,
    error_of,
    refuse,
    resolve_all,
    unknown,
    whole_project_left,
)
from fallback_plugins.shared.resolution import Unresolved
from fallback_plugins.shared.scope import LeftAsItIs, left_as_it_is, left_of
from fallback_plugins.shared.unread import LeftOut, Lenient
from fallback_tier.advisory import Advisory, AdvisoryBundle, sort_key
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.limits import MAX_UNREAD_LISTED
from fallback_tier.outcome import Left, Outline, RecipeResult, Selected, UnreadItem
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

    No client runs. Raises RecipeError, RepositoryError: nothing is affected, or it is hopeless, or unknown.
    """
    found, unread = projects(repo, clients), _left_out(advisory, repo)
    seen = _outline(found, advisory, unread)
    stuck = [item for item in seen.left if not item.is_outside]
    if stuck and not (seen.moves and isinstance(advisory, AdvisoryBundle)):
        refuse(stuck[0])
    if not seen.moves and not _may_be_affected(found, advisory):
        if seen.left:
            refuse(seen.left[0])
        raise _nothing(advisory, repo, found, unread)
    return Selected(recipe=LADDER, parameters={})


def outline(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Outline:
    """What the files alone tell, project by project. Never raises for a file that can't be read."""
    found = projects(repo, clients)
    for project in found:
        if isinstance(project, ManifestProject):
            project.only_kept = True
    unread = _left_out(advisory, repo)
    made = _outline(found, advisory, unread)
    notes = (*made.notes, *unchecked(repo, ECOSYSTEM, made.moves))
    items = dict.fromkeys((*unread.items, *_open_by_files(found, advisory, made)))
    return made.model_copy(update={"notes": notes, "unread": (*items,)[:MAX_UNREAD_LISTED]})


def _open_by_files(
    found: Sequence[PythonProject], advisory: Advisory, made: Outline
) -> Iterator[UnreadItem]:
    """Yield what each project may bring in beside what is outlined, and what it does bring in of which only
    a client can tell how it is fixed."""
    outlined = [(it.manifest, it.package) for it in made.moves]
    outlined += [(it.manifest or "", it.package) for it in made.left]
    for project in found:
        files = {project.path, *project.manifests}
        known = {package for path, package in outlined if path in files}
        for doubt in _unresolved([project], advisory):
            if doubt.packages - known:
                yield from doubt.error.unread
        with suppress(RecipeError, RepositoryError):  # the reason is said when it is outlined
            if set(project.unsettled(advisory)) - known:
                for one in project.resolution.affected(advisory):
                    if one.name not in known:
                        reason = f"{project.path} brings in {one.name} {one.version}."
                        step = (
                            "Run it without --no-resolve: only a client can tell how it is fixed."
                        )
                        yield UnreadItem(path=project.path, reason=reason, next_step=step)


def apply(
    selection: Selected, advisory: Advisory, repo: RepoContext, clients: ClientRunner
) -> RecipeResult:
    """Resolve, in memory. Raises RecipeError, RepositoryError, ToolError."""
    terms = bumping.terms_of(selection)
    choice, found = terms.choice, projects(repo, clients, terms)
    unread = _left_out(advisory, repo)
    if choice is not None:
        _check_choice(advisory, repo, found, choice)
        advisory = bumping.about(advisory, ECOSYSTEM, choice.package)
    # A set that installs folders of the repository is resolved with what the fix makes of these.
    in_order = sorted(found, key=lambda it: it.installs_folders)
    resolved = []
    for project in in_order:
        files = files_of(project, repo)
        scoped: Project = HeldToAges(project)
        if not repo.selects(files):  # outside of the folders of ``--path``
            scoped = LeftAsItIs(project.path, ECOSYSTEM, partial(_left_of, project))
        resolved.append(Lenient(scoped, files, unread))
    fixes = resolve_all(advisory, resolved, nothing=lambda: _nothing(advisory, repo, found, unread))
    unresolved = [*_unresolved(found, advisory)]
    doubts = (f"What {it.path} brings in is unknown. {it.part.reason}" for it in unresolved)
    notes = (*unread.notes, *doubts, *_how_resolved(found, advisory))
    fixes[0] = replace(fixes[0], notes=(*fixes[0].notes, *notes))
    result = combined(ECOSYSTEM, advisory, repo, fixes)
    patched = {change.path: change.after or "" for change in result.changes}
    still = [*_unresolved(found, advisory, patched)]
    items = [item for it in still for item in it.error.unread]
    result = result.model_copy(
        update={
            "left": (*result.left, *_open_members(advisory, result, still)),
            "unread": (*items, *unread.items)[:MAX_UNREAD_LISTED],
            "tree_before": result.tree_before or _listing(found, result),
        }
    )
    if choice is not None and not choice.forced:
        for move in result.moves:
            if move.step not in _CHOSEN_STEPS:
                raise unsupported(
                    f"{move.package} can't be raised to {choice.version} where it is declared: that takes"
                    f" a {move.step.label}."
                )
    return result


def _left_of(project: PythonProject, advisory: Advisory) -> Iterator[Left]:
    """Yield what is affected of a project outside of ``--path``: as its files declare, and of what they
    bring in. Raises RecipeError, RepositoryError."""
    declared = left_as_it_is(project.outline(advisory)).left
    yield from declared
    known = {item.package for item in declared}
    try:
        found = [*left_of(project.resolution, project.path, advisory)]
    except (RecipeError, RepositoryError):
        if not declared:
            raise
    else:
        yield from (item for item in found if not (item.is_unknown and item.package in known))


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
        raise _nothing(advisory, repo, found, left_out(advisory.packages(ECOSYSTEM), repo))
    highest = max(held, key=lambda it: sort_key(ECOSYSTEM, it), default=None)
    check_target(ECOSYSTEM, advisory, choice.package, choice.version, highest)


def _outline(found: Sequence[PythonProject], advisory: Advisory, unread: LeftOut) -> Outline:
    parts = []
    for project in found:
        try:
            part = project.outline(advisory)
            if not unread.reader.repo.selects(files_of(project, unread.reader.repo)):
                part = left_as_it_is(part)
        except (RecipeError, RepositoryError) as error:
            files = files_of(project, unread.reader.repo)
            item = unread.left(project.path, files, error, advisory, ECOSYSTEM)
            part = Outline(left=(item,) if item is not None else ())
        parts.append((project.path, part))
    others = [project for project in found if not is_aside(project.path)]
    goes_on = any(part.moves for path, part in parts if not is_aside(path))
    if goes_on or _may_be_affected(others, advisory):
        stuck = [(path, part.left[0]) for path, part in parts if part.left]
        aside = {path for path, left in stuck if unread.set_aside(path, error_of(left))}
        parts = [(path, part) for path, part in parts if path not in aside]
    moves = tuple(move for _, part in parts for move in part.moves)
    left = tuple(item for _, part in parts for item in part.left)
    if not moves and not left and not _may_be_affected(found, advisory):
        notes = unread.notes
        if [*_unresolved(found, advisory)]:
            # Unknown is not clean.
            nothing = _nothing(advisory, unread.reader.repo, found, unread)
            return Outline(left=(whole_project_left("", nothing),), notes=notes)
    return Outline(moves=moves, left=left, notes=(*unread.notes, *_how_resolved(found, advisory)))


@dataclass(frozen=True)
class _Open:
    """A part of a project's resolution that is unknown, and the advisory's packages that it may hold."""

    path: str
    part: Unresolved
    packages: frozenset[str]

    @property
    def error(self) -> RecipeError:
        """The refusal to call the project clean."""
        part = self.part
        return unknown(self.path, part.reason, next_step=part.next_step, blockers=part.blockers)


def _listing(found: Sequence[PythonProject], result: RecipeResult) -> str:
    """The resolutions of the projects that a fix of texts changes, as evidence."""
    changed = {change.path for change in result.changes}
    trees = []
    for project in found:
        with suppress(RecipeError, RepositoryError):
            if changed & project.manifests:
                trees.append(project.resolution.tree)
    return "".join(f"# {tree.source}\n{tree.listing()}" for tree in trees if tree.nodes)


def _may_be_affected(found: Sequence[PythonProject], advisory: Advisory) -> bool:
    """Return whether only a client can tell, or a resolution that needs none holds an affected version."""
    for project in found:
        with suppress(RecipeError, RepositoryError):  # the reason is said when it is outlined
            if project.awaits_client(advisory):
                return True
            if project.unsettled(advisory) and [*project.resolution.affected(advisory)]:
                return True
    return False


def _unresolved(
    found: Sequence[PythonProject], advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS
) -> Iterator[_Open]:
    """What of the projects may bring in a package of the advisory, and is unknown. ``patched``: texts of a
    fix, by path."""
    for project in found:
        packages, parts = frozenset[str](), tuple[Unresolved, ...]()
        with suppress(RecipeError, RepositoryError):  # the reason is said when it is outlined
            packages = frozenset(project.unsettled(advisory, patched))
            parts = project.resolution.unresolved if packages else ()
            if isinstance(project, ManifestProject):
                parts = (*project.stuck(advisory), *parts)
        for part in parts:
            if concerned := packages & part.names if part.names else packages:
                yield _Open(project.path, part, concerned)


def _open_members(
    advisory: Advisory, result: RecipeResult, unresolved: Sequence[_Open]
) -> Iterator[Left]:
    """Of a bundle, the packages of which nothing is fixed, and it is unknown whether they are affected."""
    if not isinstance(advisory, AdvisoryBundle):
        return
    account = {it.package for it in result.moves} | {it.package for it in result.left}
    for member in advisory.members:
        packages = frozenset(member.packages(ECOSYSTEM))
        about = [it for it in unresolved if it.packages & packages]
        if about and not account & packages:
            package, ids = min(about[0].packages & packages), (member.id,)
            left = whole_project_left(about[0].path, about[0].error)
            yield left.model_copy(update={"advisory_ids": ids, "package": package})


def _how_resolved(found: Sequence[PythonProject], advisory: Advisory) -> Iterator[str]:
    """Yield what is to know about the resolutions that were made (what they don't show, a kept one's day,
    why pins are one), and about lines that no Python installs."""
    for project in found:
        with suppress(RepositoryError, RecipeError):
            if isinstance(project, ManifestProject):
                yield from (*project.unknown, *project.command.notes)
            if isinstance(project, ManifestProject | LockedProject):
                for path, text in project.texts.items():
                    yield from excluded_lines(path, text, advisory)


def _nothing(
    advisory: Advisory, repo: RepoContext, found: Sequence[PythonProject], unread: LeftOut
) -> RecipeError:
    """The refusal if nothing that was read or resolved is affected: *unknown* if not all was."""
    for project in found:
        if isinstance(project, ManifestProject) and project.limited:
            left, (part, *_) = project.limited[0], [*project.stuck(advisory)]
            return RecipeError(
                left.reason, part.reason, next_step=part.next_step, declined=left.declined
            )
    for doubt in _unresolved(found, advisory):
        unread.note(doubt.path, doubt.error)
    what = ", ".join(advisory.packages(ECOSYSTEM))
    read = {path for project in found for path in project.manifests}
    read |= {path for path in repo.tracked_files if kind_of(path) is not None}
    if not read:
        return unread.or_else(
            RecipeError(
                RefusalReason.MANIFEST_MISSING,
                "No requirements file, pyproject.toml or Python lock is tracked in this repository.",
                next_step="Name the folder that holds the Python project, and commit its manifest.",
                kind="no_project",
            )
        )
    clean = f"No manifest or lock here holds an affected version of {what} ({len(read)} read)."
    problem = " ".join([clean, *_how_resolved(found, advisory)])
    return unread.or_else(
        RecipeError(
            RefusalReason.NOT_AFFECTED,
            problem,
            next_step="Nothing needs to be done.",
            kind="not_affected",
        )
    )
