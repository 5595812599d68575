"""One npm project of a repository, resolved (``ladder.Project``): with a lock, without, or only a lock."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import PurePosixPath

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.by_lock import only_read, own_command
from fallback_plugins.npm.clients.registry import NpmRegistry
from fallback_plugins.npm.locks.entries import (
    LockEntry,
    contradiction,
    maybe_optional,
    unlisted_bundles,
    unlisted_names,
)
from fallback_plugins.npm.locks.lockfile import parse_lock
from fallback_plugins.npm.manifests.manifest import (
    BINARY_LOCKS,
    ECOSYSTEM,
    MANIFEST,
    MEMBER_SECTIONS,
    SECTIONS,
    every_declared,
    in_folder,
    may_name,
    names_any,
    parse_manifest,
    readable_text,
)
from fallback_plugins.npm.manifests.pnpm_workspace import workspace_text
from fallback_plugins.npm.manifests.specs import admits
from fallback_plugins.npm.strategies.all_strategies import Strategies
from fallback_plugins.npm.strategies.pins import pinned, raise_pins
from fallback_plugins.npm.strategies.resolving import Answers, NpmPosition, Resolver, judge_of
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.npm.surveying.origins import local_copies
from fallback_plugins.npm.surveying.projects import Site, files_of, left_out
from fallback_plugins.npm.surveying.resolutions import (
    CommandResolution,
    blank_lock,
    is_refused,
    out_of_step,
)
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import (
    FREE,
    Terms,
    no_override,
    unneeded_override,
    unsupported,
    use_bump,
)
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.ladder import (
    NO_TEXTS,
    ProjectFix,
    Reached,
    Resolution,
    Strategy,
    copies,
    ordered,
    unknown,
)
from fallback_plugins.shared.resolution import ResolvedBy, unlisted
from fallback_plugins.shared.tree import Node
from fallback_plugins.shared.unread import LeftOut
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.errors import RecipeError, StoppedError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class InStep:
    """A lock next to another one whose fix raised their manifests: it must answer them as well."""

    project: "NpmProject"

    @property
    def path(self) -> str:
        """Return the lock's path."""
        return self.project.path

    @property
    def ages(self) -> Ages:
        """Return the project's rules on ages."""
        return self.project.ages

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Update the lock; None: it answers the patched manifests. Raises RecipeError, ToolError."""
        if patched.keys().isdisjoint(self.project.site.manifests):
            return None  # the lock, even an empty one, was judged by itself
        again = replace(self.project, patched=patched)
        if again.files == self.project.files or not again.command.unanswered:
            return None
        fix = again.resolve(advisory)
        text = fix.texts.get(self.path) if fix is not None else None
        text = text or again.command.locked.lock_text
        tree = again.command.client.tree(again.files.with_lock(text))
        # The fix of the project's first lock reports whatever else is left.
        open_ones = (
            tuple(item for item in fix.left if item.is_not_resolved) if fix is not None else ()
        )
        return ProjectFix({self.path: text}, (), open_ones, before=tree, after=tree)


@dataclass(frozen=True)
class NpmProject:
    """One project, and the terms of its resolution: if they have a choice, nothing else is changed."""

    site: Site
    repo: RepoContext
    clients: ClientRunner
    terms: Terms = FREE
    #: Collects what is unknown of projects that are left out; None: errors are raised.
    unread: LeftOut | None = None
    #: Texts of the projects that are fixed already, by path: locks of one folder share their manifests.
    patched: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)

    @property
    def path(self) -> str:
        """Return the path of the lock; without one, of the manifest."""
        return self.site.path

    @cached_property
    def files(self) -> Files:
        """Return the texts as they are, or as another lock's fix left them. Raises RepositoryError."""
        files = self.site.files(self.repo)
        raised = {path: text for path, text in self.patched.items() if path in self.site.manifests}
        files = replace(files, manifests={**files.manifests, **raised})
        lock = self.patched.get(self.site.lock or "")
        return files if lock is None else files.with_lock(lock)

    @cached_property
    def ages(self) -> Ages:
        """Return its rules on the age of releases."""
        by_lock = self.site.lock is not None

        def published_at(package: str, version: str) -> datetime | None:
            offline = self.repo.settings.offline  # then no date is known
            return None if offline else self._registry.published_at(package, version)

        return Ages.of(self.repo, ECOSYSTEM, self.path, published_at, by_lock=by_lock)

    @property
    def _registry(self) -> NpmRegistry:
        """Return the registry client, shared by projects with the same registries."""
        scopes = self.command.scopes
        key = "npm registry", scopes.identity
        return self.repo.once(key, lambda: NpmRegistry(scopes.over(self.clients)))

    @cached_property
    def command(self) -> CommandResolution:
        """Return the resolution of its install command. Raises as ``files`` does."""
        lock = self.site.client_lock(self.files)
        return CommandResolution(self.files, lock, self.clients, self.repo)

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Fix the project; None: not affected, or unknown and noted. Raises RecipeError, ToolError."""
        if not patched.keys().isdisjoint(self.site.manifests):
            return replace(self, patched=patched).resolve(advisory)
        if not (self.is_trusted(advisory) and self.is_readable(advisory)):
            return None
        try:
            if self.site.lock is None:
                fix = self._without_lock(advisory)
            else:
                self.check_bundles(advisory)
                fix = self._with_lock(advisory)
            return self._noted(fix, advisory)
        except RecipeError as error:
            if not self.leaves_out(error, advisory):
                raise
            return None

    def is_readable(self, advisory: Advisory) -> bool:
        """Return whether a client of ours reads its lock. False: none does, and the files, which are
        complete, name no package of the advisory's. Raises RecipeError if one does, or if one is broken."""
        if self.site.lock is None:
            return True
        try:
            _ = self.command.tree
        except RecipeError as error:
            broken, is_named = left_out(advisory.packages(ECOSYSTEM), self.repo).reader.look(
                files_of(self.site)
            )
            if broken or is_named or not files_of(self.site):
                raise
            for path, text in self.files.manifests.items():
                for name in (
                    declared.key
                    for declared in every_declared(parse_manifest(path, text), SECTIONS)
                ):
                    if not may_name(self.files.lock_text, name):  # it is not complete
                        reason = (
                            f"{error.problem} It does not name {name}, which its manifest requires."
                        )
                        raise unknown(self.path, reason, next_step=error.next_step) from error
            return False
        return True

    def _noted(self, fix: ProjectFix | None, advisory: Advisory) -> ProjectFix | None:
        """Return the fix, with a note on each lock that names a package and that no client reads."""
        if fix is None:
            return None
        notes = [
            f"{path} is not what {self.path}'s client reads, and is left as it is: remove it."
            for path in self.site.unused
            if names_any(readable_text(self.repo, path), advisory.packages(ECOSYSTEM))
        ]
        kept_notes = filter(None, [self.command.kept_note])
        return replace(fix, notes=(*fix.notes, *kept_notes, *notes))

    def leaves_out(self, error: RecipeError, advisory: Advisory) -> bool:
        """Return whether an error is noted, not raised: what the project installs is unknown, but it is
        test data, or its lock names none of the advisory's packages. Nothing is called unaffected because
        of it. What a client refuses of test data concerns no package that its files don't name."""
        if error.reason is not RefusalReason.UNKNOWN or self.unread is None:
            return False
        packages = advisory.packages(ECOSYSTEM)
        is_named = self.site.names_any(self.repo, packages)
        if not is_aside(self.path) and (is_named or self.site.lock is None):
            return False
        if is_aside(self.path) and not is_named and is_refused(error):
            self.unread.refused[self.path] = error
            return True  # it installs nothing, until a person changes what it requires
        self.unread.note(self.path, error)
        return True

    def is_trusted(self, advisory: Advisory) -> bool:
        """Return whether the files are right about the advisory's packages. False: they are not, which is
        noted, as nothing is installed from test data. Raises RecipeError for a lock that contradicts
        itself, and for an affected copy in the repository, which no change of a version reaches."""
        try:
            self._check_origins(advisory)
            self._check_listed(advisory)
        except RecipeError as error:
            if self.unread is None or not is_aside(self.path):
                raise
            self.unread.note(self.path, error)
            return False
        return True

    def _check_origins(self, advisory: Advisory) -> None:
        packages, locks = advisory.packages(ECOSYSTEM), self._locks
        for copy in local_copies(self.repo, self.site.manifests, locks, packages):
            if copy.version is None:
                raise unknown(
                    copy.path,
                    f"{self.path} takes {copy.name} from {copy.path!r}, which states no version.",
                    next_step="State its version there, or take it from a registry.",
                )
            if is_affected(advisory, ECOSYSTEM, copy.name, copy.version):
                label = f"{copy.name} {copy.version}"
                raise unsupported(
                    f"{self.path} takes {label} from {copy.path!r} in this repository, which no change of"
                    " a version reaches.",
                    "Replace it with a fixed release.",
                )
        for lock in locks:
            text = readable_text(self.repo, lock)
            refusal = contradiction(lock, text, packages) if names_any(text, packages) else None
            if refusal is not None:
                raise refusal

    def _check_listed(self, advisory: Advisory) -> None:
        """Raise RecipeError if a lock in step does not list a required package of the advisory's."""
        lock, packages = self.site.lock, advisory.packages(ECOSYSTEM)
        if lock is None or not names_any(self.files.lock_text, packages):
            return
        try:
            tree = self.command.tree
            if self.command.unanswered:
                return
            missing = unlisted_names(lock, self.files.lock_text, tree)
            missing |= maybe_optional(lock, self.files.lock_text)
        except RecipeError:
            return  # the lock's reader reports it
        for part in unlisted(self.path, missing.intersection(packages)):
            raise unknown(self.path, part.reason, next_step=part.next_step)

    @property
    def _locks(self) -> tuple[str, ...]:
        paths = (path for path in (self.site.lock, *self.site.others) if path is not None)
        return tuple(path for path in paths if PurePosixPath(path).name not in BINARY_LOCKS)

    def hides_a_copy(self, advisory: Advisory) -> bool:
        """Return whether archives may hold a copy that the lock does not list; only they state its version.
        Raises RecipeError with the reason UNKNOWN if none may be fetched and a copy is named as bundled."""
        entries = list(self._unlisted_bundles())
        if not self.repo.settings.offline:
            return bool(entries)
        for entry in entries:
            for package in sorted(entry.bundles.intersection(advisory.packages(ECOSYSTEM))):
                reason = f"{self._bundles(entry, package)}: its version can't be known offline."
                step = "Run it without --offline, so that the archive can be read."
                raise unknown(self.path, reason, next_step=step)
        return False

    def _unlisted_bundles(self) -> Iterator[LockEntry]:
        for lock in self._locks:
            yield from unlisted_bundles(lock, readable_text(self.repo, lock))

    def _bundles(self, entry: LockEntry, package: str) -> str:
        return f"{entry.name} {entry.version} bundles {package}, and {self.path} does not list that copy"

    def check_bundles(self, advisory: Advisory) -> None:
        """Raise RecipeError if a copy that the lock does not list is affected, or can't be read."""
        if not self.hides_a_copy(advisory):
            return
        registry, packages = self._registry, advisory.packages(ECOSYSTEM)
        for entry in self._unlisted_bundles():
            for copy in registry.bundled(entry.name, entry.version):
                # A copy that the lock lists is among its packages: a release of its parent may fix it.
                if (copy.name, copy.version) in entry.inside or copy.name not in packages:
                    continue
                if is_affected(advisory, ECOSYSTEM, copy.name, copy.version):
                    raise unsupported(
                        f"{self._bundles(entry, copy.name)}, which is {copy.version}.",
                        f"Update {entry.name} with the project's own client.",
                    )

    def _with_lock(self, advisory: Advisory) -> ProjectFix | None:
        """Fix the lock's packages first: they are installed, whatever the manifests require."""
        if self.files.root_manifest not in self.files.manifests:
            return self._lock_alone(advisory)
        self.check_writable(advisory)
        strategies = self._strategies(advisory, self._resolver())
        names = advisory.packages(ECOSYSTEM)
        fix = None
        if self.site.names_any(self.repo, names):
            fix = self._resolved(strategies, self._as_installed(advisory))
        if fix is None and self.command.unanswered and self._is_affected(advisory):
            fix = self._resolved(strategies, self.command.locked)
        return fix or self._only_declared(advisory)

    def _as_installed(self, advisory: Advisory) -> Files:
        """Return the files, if their lock is out of step, with the lock that the client makes of it: what
        each installation adds does not count as brought in by the fix (ADR-0147). Keep the lock if the new
        one lacks an affected copy of it or has a release that is too new. Raises ToolError."""
        if not self.command.unanswered or self.repo.settings.offline:
            return self.files
        try:
            updated = self.command.locked
        except RecipeError:
            return self.files
        if updated.settings != self.files.settings:
            return self.files  # peers conflict, so it was made without them
        tree, installed = (
            self.command.tree,
            copies(self.command.client.tree(updated).nodes.values()),
        )
        is_lost = bool(copies(tree.affected(advisory, ECOSYSTEM)) - installed)
        # The client did not get the user's rule on ages, and does not know all rules of the project.
        too_new = self.ages.first_problem(installed - copies(tree.nodes.values()))
        return self.files if is_lost or too_new is not None else updated

    def _is_affected(self, advisory: Advisory) -> bool:
        """Return whether the install command brings in an affected version. A client may run. Raises
        RecipeError with the reason UNKNOWN, ToolError."""
        resolution = self.command.resolution
        if next(resolution.affected(advisory), None) is not None:
            return True
        if resolution.by is not ResolvedBy.LOCK and self.command.client.name != "npm":
            names = advisory.packages(ECOSYSTEM)
            self._check_ages(
                (package.name, package.version)
                for package in resolution.packages
                if package.name in names
            )
        return False

    def _check_ages(self, releases: Iterable[tuple[str, str]]) -> None:
        """Raise RecipeError (UNKNOWN) if our yarn or pnpm, which has no age rules, took a release that the
        project's own client would not."""
        project_ages = replace(
            self.ages, rules=tuple(rule for rule in self.ages.rules if rule.line)
        )
        too_new = project_ages.first_problem(releases)
        if too_new is not None:
            problem = f"{too_new.problem} So which release is installed instead is unknown."
            step = f"Commit the lock that the project's own {self.command.client.name} makes."
            raise unknown(self.path, problem, next_step=step)

    def check_writable(self, advisory: Advisory) -> None:
        """Raise RecipeError for a lock that holds an affected version and that no client of ours writes."""
        refusal = only_read(self.files)
        if refusal is None:
            return
        tree, targets = self.command.tree, Targets(advisory, None)
        for node in tree.affected(advisory, ECOSYSTEM):
            target = next(iter(targets.named(node.name, node.version, tree)), None)
            rules = "".join(f" Its rule on ages is {rule.label}." for rule in self.ages.rules[:1])
            raise unsupported(
                f"{self.path} holds {node.label}. {refusal.problem}{rules}",
                own_command(self.path, tree, node, target),
            )

    def _only_declared(self, advisory: Advisory) -> ProjectFix | None:
        """Raise declarations that nothing installed answers, and that admit only affected releases."""
        targets = self._targets(advisory)
        fix = raise_pins(self.files, advisory, targets, self.command.tree)
        if fix is None or not fix.texts:
            return fix
        resolved = self.command.running.resolve(self.files.with_manifests(fix.texts))
        return replace(fix, texts={**fix.texts, self.path: resolved.lock_text})

    def _strategies(self, advisory: Advisory, resolver: Resolver) -> Strategies:
        return Strategies(resolver, self._targets(advisory), judge_of(advisory, self.ages))

    def _resolver(self, *, fresh: bool = False, blank: str = "") -> Resolver:
        """Return a resolver by the client, with the answers that it gave in this plan or fix."""
        key = "npm answers", self.path, self.repo.settings.offline
        answers = self.repo.once(key, Answers)
        return Resolver(self.command.running, fresh, blank, answers)

    def _targets(self, advisory: Advisory) -> Targets:
        # Offline no registry is queried; a choice was made with its knowledge.
        choice = self.terms.choice
        registry = None if choice or self.repo.settings.offline else self._registry
        return Targets(advisory, registry, choice.version if choice else None, self.ages)

    def _resolved(self, strategies: Strategies, files: Files) -> ProjectFix | None:
        resolve = Resolution(strategies.judge, strategies.resolver.position(self._ruled(files)))
        if not resolve.packages:
            return None
        choice = self.terms.choice
        if choice is None:
            wanted = ordered(strategies.all, self.repo.settings.prefer, self.terms.left_out)
        elif choice.forced:
            wanted = [strategies.forced(choice.version)]
        else:
            wanted = strategies.refresh_or_bump
        resolve.run([self._where_it_may_ask(strategy) for strategy in wanted])
        with suppress(StoppedError):  # more is changed than necessary
            resolve.at = strategies.pruned(resolve.at, self.files.manifests)
        return self._fix(resolve, strategies)

    def _ruled(self, files: Files) -> Files:
        """Return the files with the user's own rules on ages, as npm reads them."""
        lines = [f"min-release-age-exclude[]={name}\n" for name in self.ages.exceptions]
        until = self.ages.until() if self.repo.settings.release_age_days else None
        if until is not None:
            lines.append(f"before={until.isoformat(timespec='seconds')}\n")
        path, settings = in_folder(files.folder, ".npmrc"), dict(files.settings or {})
        return replace(
            files, settings={**settings, path: "".join([settings.get(path, ""), *lines])}
        )

    def _where_it_may_ask(self, strategy: Strategy[Files]) -> Strategy[Files]:
        def attempt(at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
            for refusal in filter(None, map(self.command.scopes.refusal, packages)):
                raise refusal
            return strategy.attempt(at, packages)

        return replace(strategy, attempt=attempt)

    def _fix(self, resolve: Resolution[Files], strategies: Strategies) -> ProjectFix:
        at, manifest, moves = resolve.at, self.path, resolve.moves(self.path)
        result = at.files if moves else self.files
        texts, old = (files.texts | workspace_text(files) for files in (result, self.files))
        if strategies.resolver.fresh and at.files.lock is not None:
            texts.pop(at.files.lock, None)  # a scratch lock: the project has none
            self._remember(at.files)
        brought_up = []
        if at is not resolve.start and self.site.lock and (lacking := self.command.unanswered):
            brought_up = [f"{out_of_step(manifest, lacking).problem} The new lock answers it."]
        return ProjectFix(
            texts={path: text for path, text in texts.items() if old.get(path) != text},
            moves=moves,
            left=resolve.lefts(manifest),
            before=replace(resolve.start.tree, source=manifest),
            after=replace(at.tree, source=manifest),
            notes=(
                *resolve.notes,
                *brought_up,
                *_unneeded_overrides(at, {move.package for move in moves}, strategies),
                *strategies.targets.notes,
            ),
        )

    def _remember(self, resolved: Files) -> None:
        """Store the resolution of a patched project without a lock, for the gates to install."""
        current = dict(self.files.settings or {})
        settings = {
            path: text for path, text in (resolved.settings or {}).items() if path in current
        }
        settings |= {path: current[path] for path in current if path.endswith(".npmrc")}
        written = replace(self.files, manifests=resolved.manifests, settings=settings)
        replace(self.command, files=written).remember(resolved, self.command)

    # --- a manifest without a lock --------------------------------------------------------------------

    def _without_lock(self, advisory: Advisory) -> ProjectFix | None:
        """Raise declared versions as text; resolve the others in a scratch folder."""
        choice, offline = self.terms.choice, self.repo.settings.offline
        if choice and choice.forced:
            if pinned(self.files, advisory):
                raise use_bump(choice.package, f"declared in {self.path}")
            if offline:
                problem = f"{self.path} has no lock: what it depends on can't be known offline."
                raise no_override(problem, kind="no_lock")
            return self._fresh(self.command.locked, advisory) if self.command.requires else None
        pins = None
        if LadderStep.DIRECT_BUMP not in self.terms.left_out:
            pins = raise_pins(self.files, advisory, self._targets(advisory))
        if choice is not None or not self.command.requires:
            return pins
        if pins is None:
            affected = self._is_affected(advisory)
            return self._fresh(self.command.locked, advisory) if affected else None
        if offline:
            return pins
        try:
            resolved = replace(self.command, files=self.files.with_manifests(pins.texts)).locked
            self._remember(resolved)
            fix = self._fresh(resolved, advisory)
        except (RecipeError, ToolError) as error:
            # That its declarations are affected is known; what else it brings in is not.
            note = f"What {self.path} installs besides is unknown: {error.problem}"
            return replace(pins, notes=(*pins.notes, note))
        if fix is None:
            return replace(pins, before=None, after=None)
        return replace(
            fix,
            texts={**pins.texts, **fix.texts},
            moves=(*pins.moves, *fix.moves),
            cleared=pins.cleared,
            left=(*pins.left, *fix.left),
        )

    def _fresh(self, resolved: Files, advisory: Advisory) -> ProjectFix | None:
        blank = blank_lock(self.command.running, resolved).lock_text
        resolver = self._resolver(fresh=True, blank=blank)
        return self._resolved(self._strategies(advisory, resolver), resolved)

    # --- a lock without its manifest ------------------------------------------------------------------

    def _lock_alone(self, advisory: Advisory) -> ProjectFix | None:
        """Resolve from the lock, which repeats its manifest from version 2 on. Ranges stay as they are."""
        tree = self.command.tree
        affected = tuple(tree.affected(advisory, ECOSYSTEM))
        if not affected:
            return None
        if self.terms.choice and self.terms.choice.forced:
            raise self.missing(affected[0])
        manifests = declared_in(self.files)
        if manifests is None:
            raise self.missing(affected[0])
        strategies = self._strategies(advisory, self._resolver())
        files = self._ruled(replace(self.files, manifests=manifests))
        resolve = Resolution(strategies.judge, strategies.resolver.position(files))
        resolve.run([strategies.lock_alone])
        if resolve.at is resolve.start and not resolve.is_stopped:
            raise self.missing(affected[0])
        fix = self._fix(resolve, strategies)
        return replace(
            fix,
            texts={self.path: resolve.at.files.lock_text},
            left=tuple(
                item.model_copy(update={"reason": RefusalReason.MANIFEST_MISSING})
                if item.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
                else item
                for item in fix.left
            ),
        )

    def missing(self, node: Node) -> RecipeError:
        """Return the refusal of a lock that can't be changed without its manifest."""
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            f"{self.path} locks {node.label}, but no {MANIFEST} is beside it.",
            next_step="Add the manifest that the lock was made from.",
            kind="manifest_missing",
        )


def _unneeded_overrides(
    at: NpmPosition, packages: Iterable[str], strategies: Strategies
) -> Iterator[str]:
    """Yield a note for each override of a fixed package whose dependents admit the version by themselves,
    as far as their ranges are known."""
    for package in packages:
        for place in strategies.resolver.client.overrides(at.files, package):
            nodes = [node for node in at.tree.of(package) if admits(place.spec, node.version)]
            asks = [
                (node, ask)
                for node in nodes
                for _, ask in strategies.targets.dependents(at.tree, node.key)
                if not ask.peer
            ]
            if asks and all(ask.spec and admits(ask.spec, node.version) for node, ask in asks):
                yield unneeded_override(place.label(at.files), package)


def declared_in(files: Files) -> Mapping[str, str] | None:
    """Return the manifests that a lock of version 2 or 3 repeats, as far as they resolve; else None."""
    if files.lock is None or not files.lock.endswith(".json"):
        return None
    packages = parse_lock(files.lock_text, files.lock).get("packages")
    if not isinstance(packages, dict) or not isinstance(packages.get(""), dict):
        return None
    manifests = {}
    for key, entry in packages.items():
        outside = key.startswith("/") or ".." in key.split("/")
        if "node_modules" in key or outside or not isinstance(entry, dict):
            continue
        fields = ("name", "version", "workspaces", "peerDependenciesMeta", *MEMBER_SECTIONS)
        manifest = {name: entry[name] for name in fields if name in entry}
        path = in_folder(files.folder, in_folder(key or ".", MANIFEST))
        manifests[path] = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    return manifests
