"""The recipe for Python: finds the affected projects of a repository and fixes them by the ladder."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi.manifests.kinds import kind_of
from fallback_plugins.pypi.projects import PythonProject, files_of, projects
from fallback_plugins.pypi.strategies.direct import NOT_EDITABLE
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

#: The steps by which a version may be reached that a person or a model chose.
_CHOSEN_STEPS = frozenset({LadderStep.LOCK_REFRESH, LadderStep.DIRECT_BUMP, LadderStep.LOCK_EDIT})


def bump(package: str, version: str) -> Selected:
    """Return the selection that raises ``package`` to exactly ``version``."""
    name = canonicalize_name(package)
    return Selected(recipe=LADDER, parameters={"package": name, "version": version})


def override(package: str, version: str) -> Selected:
    """Return the selection that forces the transitive ``package`` to ``version``."""
    return bumping.override(LADDER, canonicalize_name(package), version)


def select(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Selected:
    """Return the ladder if some project holds, or may bring in, an affected version.

    No client runs: whether what a project declares and can't change stops the fix of others, ``apply``
    decides. Raises RecipeError, RepositoryError if nothing is affected, if nothing of what is affected can
    be fixed, or if it is unknown what is affected.
    """
    python_projects, unread = projects(repo, clients), _left_out(advisory, repo)
    outlined = _outline(python_projects, advisory, unread)
    stuck = [item for item in outlined.left if not item.is_outside]
    if outlined.moves:
        is_bundle = isinstance(advisory, AdvisoryBundle)
        stuck = [item for item in stuck if not is_bundle and item.kind != NOT_EDITABLE]
    if stuck:
        refuse(stuck[0])
    if not outlined.moves and not _may_be_affected(python_projects, advisory):
        if outlined.left:
            refuse(outlined.left[0])
        raise _nothing(advisory, repo, python_projects, unread)
    return Selected(recipe=LADDER, parameters={})


def outline(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Outline:
    """Return what the files alone show about each project. Never raises for a file that can't be read."""
    python_projects = projects(repo, clients)
    for project in python_projects:
        if isinstance(project, ManifestProject):
            project.only_kept = True
    unread = _left_out(advisory, repo)
    outlined = _outline(python_projects, advisory, unread)
    notes = (*outlined.notes, *unchecked(repo, ECOSYSTEM, outlined.moves))
    items = dict.fromkeys((*unread.items, *_open_by_files(python_projects, advisory, outlined)))
    return outlined.model_copy(update={"notes": notes, "unread": (*items,)[:MAX_UNREAD_LISTED]})


def _open_by_files(
    python_projects: Sequence[PythonProject], advisory: Advisory, outlined: Outline
) -> Iterator[UnreadItem]:
    """Yield what the outline does not have of each project: unknown parts that may bring in an affected
    package, and affected packages for which only a client can tell the fix."""
    pairs = [(move.manifest, move.package) for move in outlined.moves]
    pairs += [(item.manifest or "", item.package) for item in outlined.left]
    for project in python_projects:
        files = {project.path, *project.manifests}
        outlined_packages = {package for path, package in pairs if path in files}
        for doubt in _unresolved([project], advisory):
            if doubt.packages - outlined_packages:
                yield from doubt.error.unread
        with suppress(RecipeError, RepositoryError):  # the project's outline reports the reason
            if set(project.unsettled(advisory)) - outlined_packages:
                for package in project.resolution.affected(advisory):
                    if package.name not in outlined_packages:
                        reason = f"{project.path} brings in {package.name} {package.version}."
                        step = (
                            "Run it without --no-resolve: only a client can tell how it is fixed."
                        )
                        yield UnreadItem(path=project.path, reason=reason, next_step=step)


def apply(
    selection: Selected, advisory: Advisory, repo: RepoContext, clients: ClientRunner
) -> RecipeResult:
    """Return the fix of all affected projects, made in memory. Raises RecipeError, RepositoryError,
    ToolError."""
    terms = bumping.terms_of(selection)
    choice, python_projects = terms.choice, projects(repo, clients, terms)
    unread = _left_out(advisory, repo)
    if choice is not None:
        _check_choice(advisory, repo, python_projects, choice)
        advisory = bumping.about(advisory, ECOSYSTEM, choice.package)
    # Projects that install folders of the repository come last: they are resolved with the fix of these.
    in_order = sorted(python_projects, key=lambda project: project.installs_folders)
    resolved = []
    for project in in_order:
        files = files_of(project, repo)
        scoped: Project = HeldToAges(project)
        if not repo.selects(files):  # outside of the folders of ``--path``
            scoped = LeftAsItIs(project.path, ECOSYSTEM, partial(_left_of, project))
        resolved.append(Lenient(scoped, files, unread))
    fixes = resolve_all(
        advisory, resolved, nothing=lambda: _nothing(advisory, repo, python_projects, unread)
    )
    unresolved = [*_unresolved(python_projects, advisory)]
    doubts = (
        f"What {doubt.path} brings in is unknown. {doubt.part.reason}" for doubt in unresolved
    )
    notes = (*unread.notes, *doubts, *_how_resolved(python_projects, advisory))
    fixes[0] = replace(fixes[0], notes=(*fixes[0].notes, *notes))
    result = combined(ECOSYSTEM, advisory, repo, fixes)
    patched = {change.path: change.after or "" for change in result.changes}
    staying = [*_staying(python_projects, advisory, result, unread)]
    if staying and not isinstance(advisory, AdvisoryBundle):
        refuse(staying[0])
    still_unresolved = [*_unresolved(python_projects, advisory, patched)]
    items = [item for doubt in still_unresolved for item in doubt.error.unread]
    result = result.model_copy(
        update={
            "left": (*result.left, *staying, *_open_members(advisory, result, still_unresolved)),
            "unread": (*items, *unread.items)[:MAX_UNREAD_LISTED],
            "tree_before": result.tree_before or _listing(python_projects, result),
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
    """Yield what is affected in a project outside of ``--path``: what its files declare, and what they
    bring in. Raises RecipeError, RepositoryError."""
    declared = left_as_it_is(project.outline(advisory)).left
    yield from declared
    declared_packages = {item.package for item in declared}
    try:
        affected = [*left_of(project.resolution, project.path, advisory)]
    except (RecipeError, RepositoryError):
        if not declared:
            raise
    else:
        yield from (
            item for item in affected if not (item.is_unknown and item.package in declared_packages)
        )


def _left_out(advisory: Advisory, repo: RepoContext) -> LeftOut:
    """Return the collection of what is not read, which starts with what no project reads."""
    unread = left_out(advisory.packages(ECOSYSTEM), repo)
    for source in unread_sources(repo, advisory):
        unread.note(source.path, source.error)
    return unread


def _check_choice(
    advisory: Advisory, repo: RepoContext, python_projects: Sequence[PythonProject], choice: Choice
) -> None:
    """Raise RecipeError if a chosen version is not a version, is affected or is a downgrade, or if nothing
    affected is installed and it is not forced."""
    versions = [
        version
        for move in _outline(
            python_projects, advisory, left_out(advisory.packages(ECOSYSTEM), repo)
        ).moves
        if move.package == choice.package
        for version in move.before
    ]
    if not versions and not choice.forced:
        raise _nothing(
            advisory, repo, python_projects, left_out(advisory.packages(ECOSYSTEM), repo)
        )
    highest = max(versions, key=lambda version: sort_key(ECOSYSTEM, version), default=None)
    check_target(ECOSYSTEM, advisory, choice.package, choice.version, highest)


def _outline(
    python_projects: Sequence[PythonProject], advisory: Advisory, unread: LeftOut
) -> Outline:
    parts = []
    for project in python_projects:
        try:
            part = project.outline(advisory)
            if not unread.reader.repo.selects(files_of(project, unread.reader.repo)):
                part = left_as_it_is(part)
        except (RecipeError, RepositoryError) as error:
            files = files_of(project, unread.reader.repo)
            item = unread.left(project.path, files, error, advisory, ECOSYSTEM)
            part = Outline(left=(item,) if item is not None else ())
        parts.append((project.path, part))
    main_projects = [project for project in python_projects if not is_aside(project.path)]
    main_has_moves = any(part.moves for path, part in parts if not is_aside(path))
    if main_has_moves or _may_be_affected(main_projects, advisory):
        stuck = [(path, part.left[0]) for path, part in parts if part.left]
        aside = {path for path, left in stuck if unread.set_aside(path, error_of(left))}
        parts = [(path, part) for path, part in parts if path not in aside]
    moves = tuple(move for _, part in parts for move in part.moves)
    left = tuple(item for _, part in parts for item in part.left)
    if not moves and not left and not _may_be_affected(python_projects, advisory):
        notes = unread.notes
        if [*_unresolved(python_projects, advisory)]:
            # What is unknown must not be reported as unaffected.
            nothing = _nothing(advisory, unread.reader.repo, python_projects, unread)
            return Outline(left=(whole_project_left("", nothing),), notes=notes)
    return Outline(
        moves=moves, left=left, notes=(*unread.notes, *_how_resolved(python_projects, advisory))
    )


@dataclass(frozen=True)
class _Open:
    """An unknown part of a project's resolution, and the advisory's packages that it may bring in."""

    path: str
    part: Unresolved
    packages: frozenset[str]

    @property
    def error(self) -> RecipeError:
        """Return the refusal to call the project unaffected."""
        part = self.part
        return unknown(self.path, part.reason, next_step=part.next_step, blockers=part.blockers)


def _listing(python_projects: Sequence[PythonProject], result: RecipeResult) -> str:
    """Return the listings of the projects that a fix changes, as evidence of the state before it."""
    changed = {change.path for change in result.changes}
    trees = []
    for project in python_projects:
        with suppress(RecipeError, RepositoryError):
            if changed & project.manifests:
                trees.append(project.resolution.tree)
    return "".join(f"# {tree.source}\n{tree.listing()}" for tree in trees if tree.nodes)


def _may_be_affected(python_projects: Sequence[PythonProject], advisory: Advisory) -> bool:
    """Return whether only a client can tell what is affected, or a resolution without one shows that
    something is."""
    for project in python_projects:
        with suppress(RecipeError, RepositoryError):  # the project's outline reports the reason
            if project.awaits_client(advisory):
                return True
            if project.unsettled(advisory) and [*project.resolution.affected(advisory)]:
                return True
    return False


def _unresolved(
    python_projects: Sequence[PythonProject],
    advisory: Advisory,
    patched: Mapping[str, str] = NO_TEXTS,
) -> Iterator[_Open]:
    """Yield the unknown parts of the projects that may bring in a package of the advisory. ``patched``: a
    fix's texts by path."""
    for project in python_projects:
        packages, parts = frozenset[str](), tuple[Unresolved, ...]()
        with suppress(RecipeError, RepositoryError):  # the project's outline reports the reason
            packages = frozenset(project.unsettled(advisory, patched))
            parts = project.resolution.unresolved if packages else ()
            if isinstance(project, ManifestProject):
                parts = (*project.stuck(advisory), *parts)
        for part in parts:
            if concerned := packages & part.names if part.names else packages:
                yield _Open(project.path, part, concerned)


def _staying(
    python_projects: Sequence[PythonProject],
    advisory: Advisory,
    result: RecipeResult,
    unread: LeftOut,
) -> Iterator[Left]:
    """Yield what projects declare and can't change, if the client installs a safe release of it, but no fix
    of its package shows that: nothing else of the package moves, or only in other folders."""
    is_bundle = isinstance(advisory, AdvisoryBundle)
    for project in python_projects:
        for item in project.admitted if isinstance(project, ManifestProject) else ():
            moves = [move for move in result.moves if move.package == item.package]
            folders = {posixpath.dirname(move.manifest) for move in moves}
            if not folders.isdisjoint(map(posixpath.dirname, project.manifests)):
                continue
            is_aside = bool(moves) and unread.set_aside(project.path, error_of(item))
            if not is_aside and (item.kind == NOT_EDITABLE or (is_bundle and not moves)):
                yield item


def _open_members(
    advisory: Advisory, result: RecipeResult, unresolved: Sequence[_Open]
) -> Iterator[Left]:
    """Yield a bundle's packages that the result does not mention, and of which it is unknown whether they
    are affected."""
    if not isinstance(advisory, AdvisoryBundle):
        return
    account = {move.package for move in result.moves} | {item.package for item in result.left}
    for member in advisory.members:
        packages = frozenset(member.packages(ECOSYSTEM))
        about = [doubt for doubt in unresolved if doubt.packages & packages]
        if about and not account & packages:
            package, ids = min(about[0].packages & packages), (member.id,)
            left = whole_project_left(about[0].path, about[0].error)
            yield left.model_copy(update={"advisory_ids": ids, "package": package})


def _how_resolved(python_projects: Sequence[PythonProject], advisory: Advisory) -> Iterator[str]:
    """Yield notes on the resolutions that were made (what they don't show, the day of a kept one, why pins
    are counted as installed), and on lines that no Python installs."""
    for project in python_projects:
        with suppress(RepositoryError, RecipeError):
            if isinstance(project, ManifestProject):
                yield from (*project.unknown, *project.command.notes)
            if isinstance(project, ManifestProject | LockedProject):
                for path, text in project.texts.items():
                    yield from excluded_lines(path, text, advisory)


def _nothing(
    advisory: Advisory, repo: RepoContext, python_projects: Sequence[PythonProject], unread: LeftOut
) -> RecipeError:
    """Return the refusal if nothing that was read or resolved is affected: *unknown* if something was
    not."""
    for project in python_projects:
        if isinstance(project, ManifestProject) and project.limited:
            left, parts = project.limited[0], [*project.stuck(advisory)]
            if not parts:
                return error_of(left)  # it is only admitted
            return RecipeError(
                left.reason, parts[0].reason, next_step=parts[0].next_step, declined=left.declined
            )
    for doubt in _unresolved(python_projects, advisory):
        unread.note(doubt.path, doubt.error)
    names = ", ".join(advisory.packages(ECOSYSTEM))
    read = {path for project in python_projects for path in project.manifests}
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
    clean = f"No manifest or lock here holds an affected version of {names} ({len(read)} read)."
    problem = " ".join([clean, *_how_resolved(python_projects, advisory)])
    return unread.or_else(
        RecipeError(
            RefusalReason.NOT_AFFECTED,
            problem,
            next_step="Nothing needs to be done.",
            kind="not_affected",
        )
    )
