"""One npm project of a repository, climbed (``ladder.Project``): with a lock, without, or only a lock."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.bumping import no_override, use_bump
from fallback_plugins.ladder import ProjectFix, Tried, left_behind
from fallback_plugins.npm.client import Client, Files
from fallback_plugins.npm.clients import client_for
from fallback_plugins.npm.climb import Climb
from fallback_plugins.npm.force import force
from fallback_plugins.npm.layout import ECOSYSTEM, MANIFEST
from fallback_plugins.npm.lockfile import parse_lock
from fallback_plugins.npm.manifest import MEMBER_SECTIONS, SECTIONS, parse_manifest
from fallback_plugins.npm.pins import pinned, raise_pins
from fallback_plugins.npm.projects import Site
from fallback_plugins.npm.registry import NpmRegistry
from fallback_plugins.npm.standing import Mended
from fallback_plugins.npm.targets import Targets
from fallback_plugins.tree import Node, Tree
from fallback_tier.advisory import Advisory, AdvisoryBundle, sort_key
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Left, Move
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class NpmProject:
    """``only``: (package, version) that somebody chose; then nothing but that bump is made.

    ``forced``: the choice is an override, for a package that is not declared.
    """

    site: Site
    repo: RepoContext
    clients: ClientRunner
    only: tuple[str, str] | None = None
    forced: bool = False

    @property
    def path(self) -> str:
        """The lock, or the manifest where there is none."""
        return self.site.path

    @cached_property
    def files(self) -> Files:
        """The texts as they are. Raises RepositoryError."""
        return self.site.files(self.repo)

    @property
    def client(self) -> Client:
        """The client that resolves it. Raises RecipeError where there is none."""
        if self.site.problem is not None:
            raise self.site.problem
        return client_for(self.site.lock, self.clients)

    def climb(self, advisory: Advisory) -> ProjectFix | None:
        """Out of the advisory's reach; None: not affected. Raises RecipeError, ToolError."""
        names = advisory.packages(ECOSYSTEM)
        if self.site.lock is None:
            return self._without_lock(advisory)
        if not self.site.names_any(self.repo, names):
            return None
        if self.files.root_manifest not in self.files.manifests:
            return self._lock_alone(advisory)
        return self._climbed(advisory, self._start(self.files, advisory))

    def _start(self, files: Files, advisory: Advisory, *, fresh: bool = False) -> Climb:
        # Of files alone nothing is asked; a named choice was made with the registry's knowledge.
        quiet = self.repo.settings.offline or self.only is not None
        registry = None if quiet else NpmRegistry(self.clients)
        only = self.only[1] if self.only else None
        client = client_for(files.lock, self.clients) if fresh else self.client
        targets = Targets(advisory, registry)
        return Climb(client, targets, advisory, files, fresh=fresh, only=only)

    def _climbed(self, advisory: Advisory, climb: Climb) -> ProjectFix | None:
        if not climb.affected():
            return None
        if self.only is not None and self.forced:
            force(climb, *self.only)
        else:
            climb.run()
        left = {node.key for node in climb.affected()}
        climb.prune(self.files.manifests, lambda nodes: {node.key for node in nodes} <= left)
        return self._fix(advisory, climb)

    def _fix(self, advisory: Advisory, climb: Climb) -> ProjectFix:
        texts = dict(climb.files.texts)
        if climb.fresh and climb.files.lock is not None:
            del texts[climb.files.lock]  # a scratch lock: the project has none
        manifest = self.path
        return ProjectFix(
            texts={
                path: text for path, text in texts.items() if self.files.texts.get(path) != text
            },
            moves=moves(climb, advisory, manifest),
            left=lefts(climb, advisory, manifest),
            before=replace(climb.before, source=manifest),
            after=replace(climb.tree, source=manifest),
            notes=tuple(climb.targets.notes),
        )

    # --- a manifest without a lock --------------------------------------------------------------------

    def _without_lock(self, advisory: Advisory) -> ProjectFix | None:
        """Declared versions by text; what only a resolver can tell by resolving in a scratch folder."""
        quiet = self.repo.settings.offline
        if self.forced:
            return self._forced_without_lock(advisory)
        targets = Targets(advisory, None if quiet else NpmRegistry(self.clients))
        pins = raise_pins(self.files, advisory, targets, self.only)
        enough = pins is not None and not isinstance(advisory, AdvisoryBundle)
        if enough or quiet or self.only is not None or not self._has_dependencies():
            return pins
        files = self.files
        for path, text in pins.texts.items() if pins else ():
            files = files.with_manifest(path, text)
        fix = self._climbed(advisory, self._fresh(files, advisory))
        if pins is None:
            return fix
        if fix is None:
            return replace(pins, before=None, after=None)
        return replace(
            fix, moves=(*pins.moves, *fix.moves), cleared=pins.cleared, left=(*pins.left, *fix.left)
        )

    def _fresh(self, files: Files, advisory: Advisory) -> Climb:
        client = client_for(None, self.clients)
        resolved = client.resolve(replace(files, lock=None, lock_text=""))
        return self._start(resolved, advisory, fresh=True)

    def _forced_without_lock(self, advisory: Advisory) -> ProjectFix | None:
        if pinned(self.files, advisory) and self.only is not None:
            raise use_bump(self.only[0], f"declared in {self.path}")
        if self.repo.settings.offline:
            raise no_override(f"{self.path} has no lock: what it brings in can't be known offline.")
        if not self._has_dependencies():
            return None
        return self._climbed(advisory, self._fresh(self.files, advisory))

    def _has_dependencies(self) -> bool:
        manifests = (parse_manifest(path, text) for path, text in self.files.manifests.items())
        return any(manifest.get(section) for manifest in manifests for section in SECTIONS)

    # --- a lock without its manifest ------------------------------------------------------------------

    def _lock_alone(self, advisory: Advisory) -> ProjectFix | None:
        """Versions 2 and 3 repeat what the manifest declares, so npm can resolve from the lock alone.

        Ranges can't be changed where the manifest isn't: only what they admit is refreshed.
        """
        held = self.client.tree(self.files)
        affected = tuple(held.affected(advisory, ECOSYSTEM))
        if not affected:
            return None
        if self.forced:
            raise self._missing(affected[0])
        manifests = declared_in(self.files)
        if manifests is None:
            raise self._missing(affected[0])
        climb = self._start(replace(self.files, manifests=manifests), advisory)
        climb.may_declare = False
        climb.run()
        if not climb.mended:
            raise self._missing(climb.affected()[0])
        found = self._fix(advisory, climb)
        lock = climb.files.lock_text
        return replace(
            found,
            texts={self.path: lock},
            moves=tuple(
                move.model_copy(update={"step": LadderStep.LOCK_EDIT}) for move in found.moves
            ),
            left=tuple(
                item.model_copy(update={"reason": RefusalReason.MANIFEST_MISSING})
                if item.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
                else item
                for item in found.left
            ),
        )

    def _missing(self, node: Node) -> RecipeError:
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            f"{self.path} locks {node.label}, but no {MANIFEST} is beside it.",
            next_step="Add the manifest that the lock was made from.",
        )


def declared_in(files: Files) -> Mapping[str, str] | None:
    """The manifests that a lock of version 2 or 3 was made from, as far as they resolve; else None."""
    if files.lock is None or not files.lock.endswith(".json"):
        return None
    packages = parse_lock(files.lock_text).get("packages")
    if not isinstance(packages, dict) or not isinstance(packages.get(""), dict):
        return None
    found = {}
    for key, entry in packages.items():
        outside = key.startswith("/") or ".." in key.split("/")
        if "node_modules" in key or outside or not isinstance(entry, dict):
            continue
        kept = ("name", "version", "workspaces", "peerDependenciesMeta", *MEMBER_SECTIONS)
        said = {name: entry[name] for name in kept if name in entry}
        place = f"{key}/{MANIFEST}" if key else MANIFEST
        path = place if files.folder == "." else f"{files.folder}/{place}"
        found[path] = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    return found


def moves(climb: Climb, advisory: Advisory, manifest: str) -> tuple[Move, ...]:
    """One move for each version that a package's affected copies went to."""
    left = {(node.name, node.version) for node in climb.affected()}
    found: dict[tuple[str, str | None], dict[str, None]] = {}
    for node in climb.before.affected(advisory, ECOSYSTEM):
        if (node.name, node.version) not in left:
            now = _now(climb.tree, node)
            found.setdefault((node.name, now), {})[node.version] = None
    return tuple(
        _move(climb, manifest, package, tuple(versions), after)
        for (package, after), versions in found.items()
    )


def _move(
    climb: Climb, manifest: str, package: str, versions: tuple[str, ...], after: str | None
) -> Move:
    steps = [how for v in versions if (how := climb.mended.get((package, v))) is not None]
    order = list(LadderStep)
    # A copy that went away beside another's fix has that one's rung.
    how = max(steps, key=lambda how: order.index(how.step)) if steps else _any_step(climb)
    tried = climb.tried.get(package, Tried())
    return Move(
        package=package,
        manifest=manifest,
        step=how.step,
        before=tuple(sorted(versions, key=lambda version: sort_key(ECOSYSTEM, version))),
        after=after,
        raised=tuple(name for name in how.raised if name != f"{package} {after}"),
        declined=tuple(
            dict.fromkeys(s for s in tried.declined if order.index(s.step) < order.index(how.step))
        ),
    )


def _any_step(climb: Climb) -> Mended:
    return next(iter(climb.mended.values()), Mended(LadderStep.LOCK_REFRESH))


def _now(tree: Tree, node: Node) -> str | None:
    """What stands in an affected copy's place: at its key, or the lowest copy above it."""
    at = tree.nodes.get(node.key)
    if at is not None and at.name == node.name:
        return at.version
    floor = sort_key(ECOSYSTEM, node.version)
    higher = [v for o in tree.of(node.name) if sort_key(ECOSYSTEM, v := o.version) > floor]
    return min(higher, key=lambda version: sort_key(ECOSYSTEM, version), default=None)


def lefts(climb: Climb, advisory: Advisory, manifest: str) -> tuple[Left, ...]:
    """What is still affected, a package at a time."""
    versions: dict[str, list[Node]] = {}
    for node in climb.affected():
        versions.setdefault(node.name, []).append(node)
    return tuple(
        left_behind(
            advisory,
            ECOSYSTEM,
            package=name,
            versions=dict.fromkeys(node.version for node in nodes),
            manifest=manifest,
            error=climb.why_left(nodes[0]),
            tried=climb.tried.get(name, Tried()),
        )
        for name, nodes in versions.items()
    )
