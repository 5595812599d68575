"""What the files alone tell about a fix: the steps that would be tried first. Nothing is resolved."""

from collections.abc import Iterator

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.npm.manifests.declaring import blocked_by, no_fix
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import admits, compatible
from fallback_plugins.npm.project import NpmProject
from fallback_plugins.npm.refusals import no_project_affected
from fallback_plugins.npm.strategies.bundles import bundled
from fallback_plugins.npm.strategies.pins import move, raise_pins, unfixed
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.npm.surveying.projects import discover, files_of, left_out, scope_of
from fallback_plugins.shared.ages import unchecked
from fallback_plugins.shared.ladder import Tried, whole_project_left
from fallback_plugins.shared.scope import left_as_it_is
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Left, Move, Outline
from fallback_tier.repo import RepoContext


def outline(advisory: Advisory, repo: RepoContext, clients: ClientRunner) -> Outline:
    """The first steps, project by project, as an offline run knows them; what can't be read is in ``left``,
    or left out with a note."""
    moves: list[Move] = []
    left: list[Left] = []
    kept: list[str] = []
    targets = Targets(advisory, None)
    names = advisory.packages(ECOSYSTEM)
    quiet = repo.settings.model_copy(update={"offline": True})
    repo = repo.model_copy(update={"settings": quiet})
    unread = left_out(names, repo)
    for site in (command for found in discover(repo) for command in found.each):
        project = NpmProject(site, repo, clients, unread=unread)
        found: list[Move | Left] = []
        try:
            if not (project.is_trusted(advisory) and site.names_any(repo, names)):
                pass
            elif site.lock is None:
                fix = raise_pins(project.files, advisory, targets)
                found = [*fix.moves, *fix.left] if fix else []
            else:
                tree = project.command.tree
                found = list(_first_steps(project, advisory, targets, tree))
            if not found and project.files.root_manifest in project.files.manifests:
                found = list(_first_steps_kept(project, advisory, targets, kept))
            if not found:
                project.hides_a_copy(advisory)
            if found:
                unread.check(files_of(site))
        except (RecipeError, RepositoryError) as error:
            found = []
            if not (isinstance(error, RecipeError) and project.leaves_out(error, advisory)):
                item = unread.left(site.path, files_of(site), error, advisory, ECOSYSTEM)
                found = [] if item is None else [item]
        made = Outline(
            moves=tuple(item for item in found if isinstance(item, Move)),
            left=tuple(item for item in found if isinstance(item, Left)),
        )
        if not repo.selects(scope_of(site)):
            made = left_as_it_is(made)
        moves += made.moves
        left += made.left
    if unread.found and not moves and not left:
        left = [whole_project_left("", unread.or_else(no_project_affected(names)))]
    notes = (*kept, *unread.notes, *unchecked(repo, ECOSYSTEM, moves))
    return Outline(moves=tuple(moves), left=tuple(left), notes=notes)


def _first_steps_kept(
    project: NpmProject, advisory: Advisory, targets: Targets, notes: list[str]
) -> Iterator[Move | Left]:
    """Of a project that no lock in step tells about: by a kept resolution, which is noted. Raises
    RecipeError with the reason UNKNOWN if none is kept."""
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
    lowest = targets.lowest(node, lambda _version: True, ask=False)
    if lowest is None:
        return unfixed(advisory, path, node, no_fix(node), tried)
    blockers = [(dependent, ask) for dependent, ask in asks if not admits(ask.spec, lowest)]
    # Several asks that exclude one another: the first is named.
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
    kept = targets.lowest(node, lambda version: compatible(version, node.version), ask=False)
    return move(path, node, LadderStep.PARENT_BUMP, kept or lowest, tried.declined)
