"""The npm ladder over a repository: select, apply, or outline the first steps from the files alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.npm.manifests.declaring import blocked_by, no_fix
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM, is_manifest
from fallback_plugins.npm.manifests.specs import admits, compatible
from fallback_plugins.npm.project import InStep, NpmProject, declared_in
from fallback_plugins.npm.strategies.bundles import bundled
from fallback_plugins.npm.strategies.pins import (
    ABOVE_ALL,
    move,
    only_affected,
    pinned,
    raise_pins,
    unfixed,
)
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.npm.surveying.elsewhere import Elsewhere
from fallback_plugins.npm.surveying.origins import LocalCopy, unreached
from fallback_plugins.npm.surveying.projects import discover, files_of, left_out, scope_of
from fallback_plugins.shared import bumping
from fallback_plugins.shared.ages import unchecked
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import (
    HeldToAges,
    Project,
    Tried,
    combined,
    copies,
    refuse,
    resolve_all,
    whole_project_left,
)
from fallback_plugins.shared.scope import LeftAsItIs, left_as_it_is, outside
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_plugins.shared.unread import LeftOut, Lenient
from fallback_tier.advisory import Advisory, AdvisoryBundle, is_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Left, Move, Outline, RecipeResult, Selected
from fallback_tier.repo import RepoContext

#: The recipe's name in selections and events.
LADDER = "npm-ladder"


def bump(package: str, version: str) -> Selected:
    """Return the selection that raises ``package`` to exactly ``version``: a model's choice."""
    return Selected(recipe=LADDER, parameters={"package": package, "version": version})


def override(package: str, version: str) -> Selected:
    """Return the selection that forces the transitive ``package`` to ``version``: a model's choice."""
    return bumping.override(LADDER, package, version)


def select(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Selected:
    """Return the ladder if a project is affected, or if only a client can tell; no client runs. Raises
    RecipeError if nothing is affected, if that is unknown, or if no fix is possible."""
    is_open, notes = False, []
    error: RecipeError | RepositoryError | None = None
    unread = left_out(advisory.packages(ECOSYSTEM), repo)
    elsewhere = Elsewhere(repo, advisory, clients)
    for path, affected in elsewhere.affected:
        unread.note(path, affected)
    for site in (command for root_site in discover(repo) for command in root_site.each):
        project = NpmProject(site, repo, clients, unread=unread)
        try:
            if _is_held(project, advisory):
                return Selected(recipe=LADDER)
            is_open = _is_open(project, advisory) or is_open
            if project.is_readable(advisory) and (note := project.command.kept_note):
                notes.append(note)
        except (RecipeError, RepositoryError) as problem:
            if isinstance(problem, RecipeError) and problem.reason is RefusalReason.UNKNOWN:
                unread.note(site.path, problem)
            elif not repo.selects(scope_of(site)):
                return Selected(recipe=LADDER)  # it reports what stays affected
            else:
                refusal = unread.refusal(files_of(site), problem)
                if refusal is not None and not unread.set_aside(site.path, refusal):
                    error = error or refusal
    if error is not None:
        raise error
    if repo.settings.offline:
        for path, affected in elsewhere.resolved(notes):
            unread.note(path, affected)
    elif is_open or elsewhere.open_commands:
        return Selected(recipe=LADDER)
    raise unread.or_else(_nothing(advisory, repo, notes))


def _is_open(project: NpmProject, advisory: Advisory) -> bool:
    """Return whether a client has to resolve the project, or fetch an archive. Raises RecipeError (UNKNOWN)
    if no client may run, or if no client of ours reads a lock that may hold the package."""
    if project.files.root_manifest not in project.files.manifests:
        return False
    if not project.is_readable(advisory):
        return False
    if project.command.known is not None:
        return project.hides_a_copy(advisory)
    if project.repo.settings.offline:
        project.command.locked  # noqa: B018 (raises what is unknown)
    return True


def apply(
    selection: Selected, advisory: Advisory, repo: RepoContext, clients: ClientRunner
) -> RecipeResult:
    """Resolve every project, in memory. Raises RecipeError, RepositoryError, ToolError."""
    terms = bumping.terms_of(selection)
    if terms.choice is not None:
        package, version = terms.choice.package, terms.choice.version
        bumping.check_target(ECOSYSTEM, advisory, package, version, None)
        advisory = bumping.about(advisory, ECOSYSTEM, package)
    unread = left_out(advisory.packages(ECOSYSTEM), repo)
    elsewhere, notes = Elsewhere(repo, advisory, clients), list[str]()
    for path, problem in (*elsewhere.affected, *elsewhere.resolved(notes)):
        unread.note(path, problem)
    projects = _projects(repo, clients, terms, unread)
    fixes = resolve_all(
        advisory, projects, nothing=lambda: unread.or_else(_nothing(advisory, repo, notes))
    )
    fixes = unread.noted(fixes)
    for copy in _unreached(advisory, repo):
        label = f"{copy.name} {copy.version}" if copy.version else f"code of {copy.name}"
        notes.append(
            f"{copy.path} holds {label}, which no version change reaches: replace or rebuild it."
        )
    first = replace(fixes[0], notes=(*fixes[0].notes, *notes))
    result = combined(ECOSYSTEM, advisory, repo, [first, *fixes[1:]])
    return result.model_copy(update={"unread": unread.items})


def _projects(
    repo: RepoContext, clients: ClientRunner, terms: bumping.Terms, unread: LeftOut
) -> Iterator[Project]:
    """Yield a project for each install command, and again for each of several locks of one folder."""
    for site in discover(repo):
        each = [NpmProject(command, repo, clients, terms, unread) for command in site.each]
        if not repo.selects(path for command in site.each for path in scope_of(command)):
            for project in each:
                stays = LeftAsItIs(project.path, ECOSYSTEM, partial(_left_of, project))
                yield Lenient(stays, files_of(project.site), unread)
            continue
        yield from (
            Lenient(HeldToAges(project), files_of(project.site), unread) for project in each
        )
        locked = (project for project in each if project.site.lock and len(each) > 1)
        yield from (HeldToAges(InStep(project)) for project in locked)


def _left_of(project: NpmProject, advisory: Advisory) -> Iterator[Left]:
    """Yield the affected packages of a project outside of ``--path``: those of its lock as it is, and those
    that its client resolves, if the lock does not answer the manifests. Raises as
    ``NpmProject.resolve``."""
    if not (project.is_trusted(advisory) and project.is_readable(advisory)):
        return
    try:
        command, affected = project.command, set[tuple[str, str]]()
        if project.site.lock is not None:
            project.check_bundles(advisory)
            affected |= copies(command.tree.affected(advisory, ECOSYSTEM))
        if project.site.lock is None or command.unanswered:
            affected |= {
                (package.name, package.version) for package in command.resolution.affected(advisory)
            }
    except RecipeError as error:
        if not project.leaves_out(error, advisory):
            raise
    else:
        yield from outside(project.path, ECOSYSTEM, advisory, affected)


def _is_held(project: NpmProject, advisory: Advisory) -> bool:
    """Return whether a project holds an affected version. Raises RecipeError if it can't be fixed."""
    site, names = project.site, advisory.packages(ECOSYSTEM)
    if not (project.is_trusted(advisory) and site.names_any(project.repo, names)):
        return False
    if site.lock is None:
        return _pins_held(project, advisory)
    project.check_writable(advisory)
    tree = project.command.tree
    affected = list(tree.affected(advisory, ECOSYSTEM))
    if not affected:
        return only_affected(project.files, advisory, tree)
    manifest = project.files.root_manifest
    if manifest not in project.files.manifests and declared_in(project.files) is None:
        raise project.missing(affected[0])
    hopeless = [node for node in affected if _is_hopeless(advisory, node)]
    if hopeless and (len(hopeless) == len(affected) or not isinstance(advisory, AdvisoryBundle)):
        _refuse_unless_removable(project, hopeless)
    return True


def _pins_held(project: NpmProject, advisory: Advisory) -> bool:
    if not pinned(project.files, advisory):
        return False
    fix = raise_pins(project.files, advisory, Targets(advisory, None))
    if fix is None:
        return False
    hard = [item for item in fix.left if item.reason is not RefusalReason.NO_FIXED_VERSION] or [
        item for item in fix.left if is_affected(advisory, ECOSYSTEM, item.package, ABOVE_ALL)
    ]
    if hard and (not fix.moves or not isinstance(advisory, AdvisoryBundle)):
        refuse(hard[0])
    return True


def _is_hopeless(advisory: Advisory, node: Node) -> bool:
    """Return whether no fixed version is known, and none can be published."""
    above = Targets(advisory, None).named(node.name, node.version)
    if not is_orderable(ECOSYSTEM, node.version):
        return True
    return not above and is_affected(advisory, ECOSYSTEM, node.name, ABOVE_ALL)


def _refuse_unless_removable(project: NpmProject, hopeless: list[Node]) -> None:
    """Raise RecipeError unless a parent can remove each package, which has no fix."""
    tree = project.command.tree
    for node in hopeless:
        if not is_orderable(ECOSYSTEM, node.version):
            raise unsupported(
                f"{node.name} in {project.path} is locked to {node.version!r}, which is no version"
                " of a registry."
            )
        if any(tree.is_root(dependent) for dependent, _ in tree.dependents(node.key)):
            raise no_fix(node)


def _unreached(advisory: Advisory, repo: RepoContext) -> tuple[LocalCopy, ...]:
    """Return committed copies that are affected, or whose version is unknown."""
    return tuple(
        copy
        for copy in unreached(repo, advisory.packages(ECOSYSTEM))
        if copy.version is None or is_affected(advisory, ECOSYSTEM, copy.name, copy.version)
    )


def _nothing(advisory: Advisory, repo: RepoContext, notes: Sequence[str] = ()) -> RecipeError:
    """Return the refusal if no install command is affected. A committed copy may be."""
    for copy in _unreached(advisory, repo):
        if copy.version is not None:
            return unsupported(
                f"{copy.path} holds {copy.name} {copy.version}, which no version change reaches; no install"
                " command of this repository brings in an affected version.",
                "Replace it with a fixed release.",
            )
    if not any(is_manifest(path) for path in repo.tracked_files):
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            "No package.json is tracked in this repository.",
            next_step="Name the folder that holds the npm project, and commit its manifest.",
            kind="no_project",
        )
    return _no_project_affected(advisory, notes)


def _no_project_affected(advisory: Advisory, notes: Sequence[str] = ()) -> RecipeError:
    """Return the refusal if no project is affected. ``notes``: sentences on kept resolutions."""
    packages = ", ".join(advisory.packages(ECOSYSTEM))
    nothing = f"No npm project here requires or installs an affected version of {packages}."
    return RecipeError(
        RefusalReason.NOT_AFFECTED,
        " ".join((nothing, *notes)),
        next_step="Nothing needs to be done.",
        kind="not_affected",
    )


def outline(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Outline:
    """Return each project's first steps as an offline run knows them; what can't be read is in ``left``, or
    left out with a note."""
    moves: list[Move] = []
    left: list[Left] = []
    kept_notes: list[str] = []
    targets = Targets(advisory, None)
    names = advisory.packages(ECOSYSTEM)
    quiet = repo.settings.model_copy(update={"offline": True})
    repo = repo.model_copy(update={"settings": quiet})
    unread = left_out(names, repo)
    for site in (command for root_site in discover(repo) for command in root_site.each):
        project = NpmProject(site, repo, clients, unread=unread)
        steps: list[Move | Left] = []
        try:
            if not (project.is_trusted(advisory) and site.names_any(repo, names)):
                pass
            elif site.lock is None:
                fix = raise_pins(project.files, advisory, targets)
                steps = [*fix.moves, *fix.left] if fix else []
            else:
                tree = project.command.tree
                steps = list(_first_steps(project, advisory, targets, tree))
            if not steps and project.files.root_manifest in project.files.manifests:
                steps = list(_first_steps_kept(project, advisory, targets, kept_notes))
            if not steps:
                project.hides_a_copy(advisory)
            if steps:
                unread.check(files_of(site))
        except (RecipeError, RepositoryError) as error:
            steps = []
            if not (isinstance(error, RecipeError) and project.leaves_out(error, advisory)):
                item = unread.left(site.path, files_of(site), error, advisory, ECOSYSTEM)
                steps = [] if item is None else [item]
        project_outline = Outline(
            moves=tuple(item for item in steps if isinstance(item, Move)),
            left=tuple(item for item in steps if isinstance(item, Left)),
        )
        if not repo.selects(scope_of(site)):
            project_outline = left_as_it_is(project_outline)
        moves += project_outline.moves
        left += project_outline.left
    if unread.found and not moves and not left:
        left = [whole_project_left("", unread.or_else(_no_project_affected(advisory)))]
    notes = (*kept_notes, *unread.notes, *unchecked(repo, ECOSYSTEM, moves))
    return Outline(moves=tuple(moves), left=tuple(left), notes=notes, unread=unread.items)


def _first_steps_kept(
    project: NpmProject, advisory: Advisory, targets: Targets, notes: list[str]
) -> Iterator[Move | Left]:
    """Yield the first steps of a project without a lock in step, by a kept resolution, which is noted.
    Raises RecipeError with the reason UNKNOWN if none is kept."""
    if not project.is_readable(advisory):
        return
    command = project.command
    if command.locked is not project.files:
        notes.append(command.kept_note)
        tree = command.client.tree(command.locked)
        yield from _first_steps(project, advisory, targets, tree)


def _first_steps(
    project: NpmProject, advisory: Advisory, targets: Targets, tree: DependencyTree
) -> Iterator[Move | Left]:
    seen = set()
    for node in tree.affected(advisory, ECOSYSTEM):
        key = (node.name, node.version, tuple(ask.spec for _, ask in tree.dependents(node.key)))
        if key not in seen:
            seen.add(key)
            yield _first_step(project, advisory, targets, tree, node)


def _first_step(
    project: NpmProject, advisory: Advisory, targets: Targets, tree: DependencyTree, node: Node
) -> Move | Left:
    asks = tree.dependents(node.key)

    def fits(version: str) -> bool:
        return all(admits(ask.spec, version) for _, ask in asks)

    tried, path = Tried(), project.path
    if node.bundled:
        tried.no(LadderStep.LOCK_REFRESH, bundled(tree, node))
        above = targets.lowest(node, lambda _version: True, ask=False)
        if above is not None:
            return move(path, node, LadderStep.PARENT_BUMP, above, tried.declined)
    near = targets.lowest(node, fits, tree=tree, ask=False)
    if near is not None:
        return move(path, node, LadderStep.LOCK_REFRESH, near, tried.declined)
    # A dependent that requires it as a peer installs no copy, and may move along within its own range
    # (ADR-0144).
    firm = [(holder, ask) for holder, ask in asks if not ask.peer or tree.is_root(holder)]

    def fits_beside_peers(version: str) -> bool:
        return all(admits(ask.spec, version) for _, ask in firm)

    near = targets.lowest(node, fits_beside_peers, tree=tree, ask=False)
    if near is not None:
        along = {holder.name for holder, ask in asks if not admits(ask.spec, near)}
        refresh = move(path, node, LadderStep.LOCK_REFRESH, near, tried.declined)
        return refresh.model_copy(update={"raised": tuple(sorted(along))})
    lowest = targets.lowest(node, lambda _version: True, ask=False)
    if lowest is None:
        return unfixed(advisory, path, node, no_fix(node), tried)
    blockers = [(dependent, ask) for dependent, ask in firm if not admits(ask.spec, lowest)]
    # If several requirements exclude one another, the first is named.
    dependent, ask = (blockers or list(asks))[0]
    why = blocked_by(tree, node, lowest, dependent, ask.spec)
    tried.no(LadderStep.LOCK_REFRESH, why)
    if project.files.root_manifest not in project.files.manifests:
        missing = RecipeError(
            RefusalReason.MANIFEST_MISSING, why.problem, next_step="Add the manifest."
        )
        return unfixed(advisory, path, node, missing, tried)
    if all(tree.is_root(dependent) for dependent, _ in blockers):
        return move(path, node, LadderStep.DIRECT_BUMP, lowest, tried.declined)
    tried.no(LadderStep.DIRECT_BUMP, f"{dependent.label} requires it, not the project itself.")
    nearest = targets.lowest(node, lambda version: compatible(version, node.version), ask=False)
    return move(path, node, LadderStep.PARENT_BUMP, nearest or lowest, tried.declined)
