"""A uv project (lock, manifest, workspace members), fixed by the real uv.

Each step of the ladder makes a lock by uv. uv keeps a locked version if it can, and otherwise takes the
highest. So a parent raised to an old release could get a child of this year, a combination that was never
tested. Therefore what has to move with a fix moves as little as possible.

Edits of ``[tool.uv]`` keep every other byte.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import tomlkit
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.pypi.locks.uv_lock import (
    MANIFEST,
    declared,
    foreign_source,
    manifest_paths,
    missing,
    package_tables,
    read_tree,
    registries,
    requires_python,
    rewrites,
    scratch_files,
    spliced,
    stub_wheels,
)
from fallback_plugins.pypi.manifests.pyproject import (
    BOM,
    parse_toml,
    replace_requirement,
    table_of,
    tables,
    texts,
)
from fallback_plugins.pypi.manifests.requirements import Declaration, at_least, requirement_in
from fallback_plugins.pypi.resolving.registry import Releases, as_options, lowest_python
from fallback_plugins.pypi.resolving.uv_client import (
    Locked,
    UvRefusedError,
    resolver_failed,
    uv_lock,
)
from fallback_plugins.pypi.strategies import locked
from fallback_plugins.pypi.strategies.all_strategies import Step
from fallback_plugins.pypi.strategies.locked import (
    LockedProject,
    LockResolver,
    State,
    admits,
    not_admitting,
    one_by_one,
)
from fallback_plugins.pypi.surveying.deciding import LockStep, asked_in_arrays
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.pypi.uv_words import PYTHON
from fallback_plugins.shared.bumping import unneeded_override, unsupported
from fallback_plugins.shared.ladder import PROJECT, ProjectFix, Strategy, copies, does_not_apply
from fallback_plugins.shared.resolution import Resolution
from fallback_plugins.shared.tree import DependencyTree, Node, grouped
from fallback_tier.advisory import is_affected
from fallback_tier.advisory.versions import is_prerelease
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.files import inputs
from fallback_tier.outcome import Blocker


@dataclass
class UvProject(LockedProject):
    """uv.lock with the manifests it was made from; without them, the lock alone is edited."""

    _CLIENT = "uv"
    _INSTALL = "uv sync"

    @property
    def manifests(self) -> frozenset[str]:
        """Return the paths of the lock, of the pyproject.toml next to it, and of those of its local
        packages."""
        return super().manifests.union(self._paths)

    @cached_property
    def step(self) -> LockStep:
        """Return the lock with the requirements in the arrays of its manifests that hold in every case, or
        differ from those that the lock records."""
        tables = package_tables(self.path, self.text)
        versions = grouped((table["name"], str(table.get("version", ""))) for table in tables)
        recorded = [
            (canonicalize_name(entry["name"]), SpecifierSet(entry.get("specifier", "")))
            for table in tables
            for entry in declared(table)
        ]
        requests = asked_in_arrays(self.texts, self._members, recorded)
        return LockStep(self.path, "uv lock", versions, requests)

    @cached_property
    def resolution(self) -> Resolution:
        """Return the resolution as ``LockedProject`` does. It is also unknown if the lock was made with
        other constraints or overrides, or lacks the project itself, which uv locks as a package."""
        resolution = super().resolution
        project = table_of(self._manifest_document, "project") if self.declares else {}
        name = project.get("name")
        if isinstance(name, str) and canonicalize_name(name) not in self.step.held:
            return resolution.doubted(
                f"{self.path} has no entry of {name}, the project of {self.manifest}, so what is"
                " installed is unknown.",
                "Run `uv lock`, commit what it writes, and try again.",
            )
        if not self.declares:
            return resolution
        recorded = table_of(parse_toml(self.path, self.text), "manifest")
        settings = table_of(self._manifest_document, "tool", "uv")
        keys = ("constraint", "override")
        rules_recorded = _rules(
            (key, f"{rule.get('name')}{rule.get('specifier', '')}")
            for key in keys
            for rule in tables(recorded.get(f"{key}s"))
        )
        rules_declared = _rules(
            (key, line) for key in keys for line in texts(settings.get(f"{key}-dependencies"))
        )
        if rules_recorded == rules_declared:
            return resolution
        return resolution.doubted(
            f"{self.manifest} constrains or overrides packages otherwise than {self.path} was made"
            " with, so what is installed is unknown.",
            "Run `uv lock`, commit what it writes, and try again.",
        )

    @property
    def _manifest_document(self) -> Mapping[str, Any]:
        return parse_toml(self.manifest, self.texts[self.manifest])

    @property
    def _members(self) -> set[str]:
        """Return the paths of the workspace's manifests. uv locks no extras and groups of other local
        packages."""
        names = parse_toml(self.path, self.text).get("manifest", {}).get("members", ())
        local: Mapping[str, Mapping[str, Any]] = {}
        with suppress(RecipeError):  # it is outside of the repository: a resolution reports it
            local = manifest_paths(self.path, self.text)
        return {self.manifest} | {path for path, table in local.items() if table["name"] in names}

    def _check_forced(self, packages: Iterable[str]) -> None:
        super()._check_forced(packages)
        if not self.declares:
            raise missing(
                self.path,
                f"{self.manifest}, where an override stands, is missing.",
                kind="manifest_missing",
            )

    @cached_property
    def tree(self) -> DependencyTree:
        """Return the lock as a tree, with the workspace's members as its roots."""
        return read_tree(self.path, self.text)

    @cached_property
    def _paths(self) -> list[str]:
        """Return the paths of the manifests in the repository; of a lock that can't be read, the one next
        to it."""
        try:
            paths = list(manifest_paths(self.path, self.text))
        except (RecipeError, RepositoryError):
            paths = []
        return [path for path in dict.fromkeys([self.manifest, *paths]) if self.repo.has(path)]

    @cached_property
    def texts(self) -> dict[str, str]:
        """Return the texts of the manifests in the repository, by path."""
        return {path: self.repo.read_text(path) for path in self._paths}

    def _resolver(self, releases: Releases) -> "_UvResolver":
        return _UvResolver(self, releases)

    def _refusal(self, node: Node) -> RecipeError | None:
        tables = [
            table for table in package_tables(self.path, self.text) if table["name"] == node.name
        ]
        kind = next(filter(None, map(foreign_source, reversed(tables))), None)
        if kind is None:
            return None
        return unsupported(f"{self.path} takes {node.name} from a {kind}, not a registry.")


def _rules(lines: Iterable[tuple[str, str]]) -> set[tuple[str, str, SpecifierSet]]:
    """Return constraints and overrides by name, without those that can't be read."""
    requirements = ((key, requirement_in(text)) for key, text in lines)
    return {
        (key, canonicalize_name(requirement.name), requirement.specifier)
        for key, requirement in requirements
        if requirement is not None
    }


#: The most further runs of uv because it went back to an older release: each may name other packages.
MAX_FORWARD = 3

#: The most minor release lines of a parent that are tried; each costs several runs of uv.
MAX_LINES = 8

_FLOORS = frozenset({">=", ">", "~=", "=="})

#: The most declared ancestors of one package that are tried; each costs two runs of uv.
MAX_PARENTS_TRIED = 4


class _UvResolver(LockResolver[LockedProject]):
    """The steps of one resolution. Each makes a lock in which one package has a given version."""

    @property
    def strategies(self) -> list[Strategy[Mapping[str, str]]]:
        """Return the steps, cheapest first. Raises RecipeError if no resolution can start from these
        files."""
        # Raises RecipeError for what uv must not read: once, not in each step.
        scratch_files(self._project.texts, self._path, self._project.text)
        if not self._project.declares:
            self._check_rebuilt()
        return super().strategies

    @property
    def _override(self) -> Step | None:
        return one_by_one(partial(self._aimed, self._overridden))

    def _refresh(self, state: State, package: str) -> State:
        return self._aimed(self._refreshed, state, package)

    def _direct(self, state: State, package: str) -> State:
        return self._aimed(self._directly, state, package)

    def _parent(self, state: State, package: str) -> State:
        return self._aimed(self._by_parents, state, package)

    def _aimed(self, step: Callable[[State, str, str], State], state: State, package: str) -> State:
        """Take a step with the version that the advisory names: uv itself reports one that is yanked or not
        published. Query the registry for another version only if that one fails."""
        current = locked.affected_versions(state.tree, self._advisory)[package][-1]
        lowest_safe = partial(self.releases.lowest_safe, package, current)
        try:
            named_version = self.releases.named(package, current)
        except RecipeError:
            return step(state, package, lowest_safe())
        is_candidate = is_prerelease(ECOSYSTEM, named_version) and not is_prerelease(
            ECOSYSTEM, current
        )
        if is_candidate or "+" in current:
            return step(state, package, lowest_safe())
        try:
            return step(state, package, named_version)
        except RecipeError as error:
            if error.reason is RefusalReason.BLOCKED_BY_CONSTRAINT:
                raise
            target = lowest_safe()
            if target == named_version:
                raise
            return step(state, package, target)

    def _not_declared(self, state: State, package: str) -> RecipeError | None:
        if any(locked.declared(self._manifests(state), package)):
            return None
        problem = f"No manifest of {self._path} holds {package} back."
        return locked.required_by_others(state, package, problem, partial(self._place, state))

    def _no_parent(self, state: State, package: str) -> RecipeError | None:
        if self._ancestors(state, package):
            return None
        problem = f"No declared package of {self._path} brings in {package}."
        return does_not_apply(problem, package, PROJECT, "", self._place(state, package))

    def _refreshed(self, state: State, package: str, target: str) -> State:
        """Lock a safe version that all ranges admit: only the lock changes."""
        manifests = self._manifests(state)
        if _has_lines(state, package):
            return self._locked(state, manifests, {package: ""})
        excluded = not_admitting(manifests, package, target)
        if excluded:
            target = self._target_within(state, package, target, excluded)
        # A declaration whose manifest is missing is only recorded in the lock, and can't be raised.
        recorded = () if self._project.declares else state.tree.roots
        for name, ask in ((root.name, ask) for root in recorded for ask in root.asks):
            if ask.name == package and ask.spec and not admits(ask.spec, target):
                raise missing(
                    self._path,
                    f"{name} requires {package} {ask.spec}, which does not admit {target},"
                    f" and its {MANIFEST} is not in this repository.",
                )
        return self._locked(state, manifests, {package: target})

    def _directly(self, state: State, package: str, target: str) -> State:
        """Raise every declaration that excludes the version to it, including constraints and overrides."""
        manifests, lines = self._manifests(state), _has_lines(state, package)
        affected = locked.affected_versions(state.tree, self._advisory)[package]

        def of_line(declaration: Declaration) -> str | None:
            """Return the safe version above the highest affected copy that the declaration admits."""
            admitted = [version for version in affected if declaration.admits(version)]
            return self.releases.lowest_safe(package, admitted[-1]) if admitted else None

        edited = locked.raised(manifests, package, of_line if lines else target)
        if not edited:
            raise unsupported(f"No manifest of {self._path} holds {package} back.")
        # Several release lines: uv keeps those that may stay, and moves those whose declarations exclude
        # the locked version.
        wanted = {} if lines else {package: target}
        return self._locked(state, {**manifests, **edited}, wanted)

    def _by_parents(self, state: State, package: str, target: str) -> State:
        """Raise a declared ancestor, or all together, to the lowest version whose tree has the safe one."""
        last_error: RecipeError | None = None
        versions: dict[str, str] = {}
        child = {package: target}
        for name, current in self._ancestors(state, package):
            try:
                version = self._lowest_parent(name, current, package, target)
                versions[name] = version
                return self._with_parents(state, {name: version}, child)
            except UvRefusedError as error:
                last_error = self._placed(error, state, child)
            except RecipeError as error:
                last_error = error
        if len(versions) > 1:
            try:
                return self._with_parents(state, versions, child)
            except RecipeError as error:
                last_error = error
        for name, version in versions.items():
            with suppress(RecipeError):
                return self._with_followers(state, {name: version}, child)
        raise last_error or resolver_failed("No ancestor could be tried.")

    def _overridden(self, state: State, package: str, target: str) -> State:
        """Override a parent's requirement (``override-dependencies``) within the same major version."""
        current = state.tree.highest(ECOSYSTEM, package) or target
        if Version(current).major != Version(target).major:
            raise self._not_forced(state, package, current, target)
        root = self._project.manifest
        manifests = self._manifests(state)
        # With an upper bound: a later lock must not reach a major version that the parent was never tried
        # with.
        bounds = f">={at_least(target)},<{Version(target).major + 1}"
        text = with_override(root, manifests[root], f"{package}{bounds}")
        return self._locked(state, {**manifests, root: text}, {package: target})

    def notes_on(self, fix: ProjectFix) -> Iterator[str]:
        """Yield the notes of ``LockResolver.notes_on``, and one for each override of a fixed package that
        is unneeded, as uv resolves to the same versions without it."""
        yield from super().notes_on(fix)
        path, after = self._project.manifest, fix.after
        files = {self._path: self._project.text, **self._project.texts, **fix.texts}
        for move in fix.moves if after is not None and path in files else ():
            less = _without_override(path, files[path], move.package)
            if less is None or move.after is None or after is None:
                continue
            state, wanted = State(files, after), {move.package: move.after}
            try:
                tree = self._tree_of(state, {**self._manifests(state), path: less}, wanted)
            except RecipeError:
                continue
            if tree.listing() == after.listing():
                where = f"The override of {move.package} in {path}"
                yield unneeded_override(where, move.package)

    def _not_forced(self, state: State, package: str, current: str, target: str) -> RecipeError:
        """Return the refusal to override a requirement whose target is another major version."""
        dependents = (
            dependent
            for node in state.tree.of(package)
            for dependent in state.tree.dependents(node.key)
        )
        blockers = [
            Blocker(
                kind=BlockerKind.CONFLICT,
                package=PROJECT if state.tree.is_root(parent) else parent.label,
                constraint=f"{package} {ask.spec}".strip(),
                file=self._place(state, parent.name),
            )
            for parent, ask in dependents
        ]
        return RecipeError(
            RefusalReason.BLOCKED_BY_CONSTRAINT,
            f"{package} {target} is another major version than {current}: it is not forced on what requires"
            f" it ({', '.join(blocker.package for blocker in blockers)}).",
            next_step=f"Upgrade what requires {package} to releases that admit {target}.",
            blockers=blockers,
            kind="another_major",
        )

    def _target_within(
        self, state: State, package: str, target: str, excluded: tuple[str, str]
    ) -> str:
        current = locked.affected_versions(state.tree, self._advisory)[package][-1]
        manifests = self._manifests(state)

        def admitted(version: str) -> bool:
            return not_admitting(manifests, package, version) is None

        try:
            self.releases.named(package, current, admitted)
            return self.releases.lowest_safe(package, current, admitted)
        except RecipeError as error:
            raise locked.excluded_by(*excluded, package, target) from error

    def _with_parents(
        self, state: State, parents: Mapping[str, str], child: Mapping[str, str]
    ) -> State:
        edited = locked.all_raised(self._manifests(state), parents)
        return self._locked(state, edited, {**parents, **child})

    def _with_followers(
        self, state: State, parents: Mapping[str, str], child: Mapping[str, str]
    ) -> State:
        """Raise parents, and those other declared packages that exclude what the parents need (ADR-0077).
        Raises RecipeError."""
        edited = locked.all_raised(self._manifests(state), parents)
        wanted = {**parents, **child}
        after = self._tree_of(state, _with_room(edited, state.tree, wanted), wanted)
        moved = _followers(edited, after)
        edited = locked.all_raised(edited, moved)
        return self._locked(state, edited, {**wanted, **moved})

    def _ancestors(self, state: State, package: str) -> Sequence[tuple[str, str]]:
        """Return the declared packages that bring a package in, with their locked versions, shortest paths
        first."""
        versions = {
            dependency_path[1].name: dependency_path[1].version
            for node in state.tree.of(package)
            for dependency_path in state.tree.paths_to(node.key)
            if len(dependency_path) > 2 and state.tree.is_root(dependency_path[0])
        }
        manifests = self._manifests(state)
        declared_names = [name for name in versions if any(locked.declared(manifests, name))]
        return [(name, versions[name]) for name in declared_names[:MAX_PARENTS_TRIED]]

    def _lowest_parent(self, name: str, current: str, package: str, target: str) -> str:
        """Return the version to which a parent, locked at ``current``, is raised for ``target`` of its
        child.

        Within a major version, the lowest that admits the target is the smallest step (ADR-0016). In
        another one, everything moves anyway, and the lowest that admits the target ("werkzeug>=2.0") may be
        years older than it and was never tried with it. So the lowest version is taken whose lower bound is
        in the target's minor line or above, if a release of that major version has such a bound. Raises
        RecipeError if none admits the target; ToolMissingError.
        """
        python = lowest_python(requires_python(self._path, self._project.text))
        wanted, constraint = f"{name}>={at_least(current)}", f"{package}>={at_least(target)}"
        lowest = version = self._index.lowest_with(wanted, constraint, python)[name]
        if Version(lowest).major == Version(current).major:
            return lowest
        for _ in range(MAX_LINES):
            try:
                specifier = self._required(name, version, package, python)
                if specifier is None or not specifier.contains(target, prereleases=True):
                    return lowest
                floors = (
                    clause.version.removesuffix(".*")
                    for clause in specifier
                    if clause.operator in _FLOORS
                )
                line = Version(target).release[:2]
                if any(Version(floor).release[:2] >= line for floor in floors):
                    return version
                parsed = Version(version)
                above = f"{name}>={parsed.major}.{parsed.minor + 1},<{parsed.major + 1}"
                version = self._index.lowest_with(above, f"{package}>={target}", python)[name]
            except RecipeError:
                return lowest
        return lowest

    def _required(self, name: str, version: str, package: str, python: str) -> SpecifierSet | None:
        """Return a release's version range of a package it requires, or None if it does so only with an
        extra, or not at all."""
        _, metadata = self._index.release(name, version, python)
        required = (
            requirement.specifier
            for requirement in metadata.requirements
            if canonicalize_name(requirement.name) == package
            and "extra" not in str(requirement.marker or "")
        )
        return next(required, None)

    # --- making a lock ------------------------------------------------------------------------------

    def _check_rebuilt(self) -> None:
        """Raise RecipeError if uv does not accept the lock for the manifest that is recreated from it."""
        objection = self._objection(self._project.texts, self._project.text)
        if objection:
            raise missing(
                self._path,
                f"{self._path} does not show all of its manifest. {objection}",
                kind="manifest_incomplete",
            )

    def _locked(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> State:
        """Return the lock with these versions and, if possible, everything else unchanged. An empty
        version: each release line of the package as high as its declarations admit. Raises RecipeError."""
        manifests = self._excepting(manifests, wanted)
        new = self._lowest(state, manifests, wanted)
        unchanged = (
            self._unchanged if rewrites(self._project.text, new.text) else self._project.text
        )
        text = spliced(self._project.text, unchanged, new.text)
        self._check_origins(text, new)
        # If the text is not exactly uv's own, uv must accept it as a current lock.
        objection = self._objection(manifests, text) if text != new.text else None
        if objection:
            raise resolver_failed(
                f"uv does not accept the new {self._path} as up to date. {objection}"
            )
        return State({**manifests, self._path: text}, read_tree(self._path, text))

    @cached_property
    def _rules(self) -> list[str]:
        """Return the age rules in uv.toml, which uv is not given here, as options that the lock records."""
        rules = [rule for rule in self._project.ages.rules if rule.file.endswith("uv.toml")]
        whole = [f"--exclude-newer={rule.value}" for rule in rules if not rule.only][:1]
        single = [(name, rule.value) for rule in rules for name in rule.only]
        return [*whole, *(f"--exclude-newer-package={name}={value}" for name, value in single)]

    def _excepting(
        self, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the manifests with a person's age exceptions, each valid until the end of the day of its
        release. uv makes no lock that its own settings exclude. Raises RecipeError."""
        ages, edited = self._project.ages, dict(manifests)
        files = [rule.file for rule in ages.rules if rule.line]
        for package, version in wanted.items() if files else ():
            until = ages.exception_until(package, version) if version else None
            if until is None:
                continue
            path = self._project.manifest
            if path not in files:
                raise unsupported(
                    f"{files[0]} excludes {package} {version}, and only an entry of its own there could"
                    " make an exception."
                )
            edited[path] = _with_exception(
                path, edited[path], package, f"{until:%Y-%m-%dT%H:%M:%SZ}"
            )
        return edited

    def _tree_of(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> DependencyTree:
        """Return the tree of a lock with these versions, for manifests that are only tried. Raises
        RecipeError."""
        return read_tree(self._path, self._lowest(state, manifests, wanted).text)

    def _lowest(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Locked:
        text, floors = state.files[self._path], dict[str, str]()

        def lock_with(versions: Mapping[str, str]) -> Locked:
            options = [*_pinned(versions), *_floors(floors, but=versions)]
            return self._made(manifests, text, options, text)

        try:
            new = lock_with(wanted)
        except UvRefusedError as error:
            raise self._placed(error, state, wanted) from error
        # uv may go back to an older release of a dependent that admits the version. Going forward, what
        # requires that dependent may have to move as well.
        for _ in range(MAX_FORWARD):
            back = _gone_back(state.tree, read_tree(self._path, new.text))
            if not back:
                break
            floors |= back
            try:
                new = lock_with(wanted)
            except RecipeError:
                break  # there is no way forward: the ladder judges the lock as it is
        for choose in (self._lower, self._older):
            if versions := choose(state, manifests, wanted, new):
                with suppress(RecipeError):  # uv's own choice stays
                    new, wanted = lock_with({**wanted, **versions}), {**wanted, **versions}
        return new

    def _made(
        self, manifests: Mapping[str, str], start: str, options: Sequence[str], stubs_of: str
    ) -> Locked:
        """Return the lock that uv makes from these manifests and the lock ``start``. ``stubs_of``: a lock,
        whose releases without a wheel get stubs."""
        files = scratch_files(manifests, self._path, start)
        stubs = stub_wheels(self._path, stubs_of)
        return uv_lock(
            self._project.clients, files, self._path, [*options, *self._rules], stubs=stubs
        )

    def _lower(
        self,
        state: State,
        manifests: Mapping[str, str],
        wanted: Mapping[str, str],
        new: Locked,
    ) -> Mapping[str, str]:
        """Return the lowest versions of the packages that had to move along, if lower than uv's choice."""
        after = read_tree(self._path, new.text)
        floors = _moved_along(state.tree, after, wanted)
        if not floors:
            return {}
        # uv discards a lock that was made in another mode. With this mode set, it keeps all but what is to
        # move.
        start = tomlkit.parse(new.text)
        start.setdefault("options", {})["resolution-mode"] = "lowest"
        options = ["--resolution=lowest", *_pinned(wanted), *_floors(floors)]
        try:
            lock = self._made(manifests, tomlkit.dumps(start), options, state.files[self._path])
            lowest = read_tree(self._path, lock.text)
        except RecipeError:
            return {}
        versions: dict[str, str] = {}
        for name in floors:
            chosen = [Version(node.version) for node in after.of(name)]
            version = lowest.highest(ECOSYSTEM, name)
            if version is None or is_affected(self._advisory, ECOSYSTEM, name, version):
                continue
            # It is lower than one of uv's choices, and higher than none.
            if Version(version) <= min(chosen) and Version(version) < max(chosen):
                versions[name] = version
        return versions

    def _older(
        self,
        state: State,
        manifests: Mapping[str, str],
        wanted: Mapping[str, str],
        new: Locked,
    ) -> Mapping[str, str]:
        """Return versions that the age rules admit, for packages that came in with a version that they
        exclude. These are chosen in a scratch lock, because uv would record ``--release-age`` in the
        lock."""
        ages, after = self._project.ages, read_tree(self._path, new.text)
        came = copies(after.nodes.values()) - copies(state.tree.nodes.values())
        young = {
            name for name, version in came if name not in wanted and ages.problem(name, version)
        }
        if not young:
            return {}
        options = [*as_options(ages, excepting=True, own=True), *_pinned(wanted)]
        try:
            lock = self._made(manifests, new.text, options, state.files[self._path])
        except RecipeError:
            return {}
        tree = read_tree(self._path, lock.text)
        return {name: tree.of(name)[0].version for name in young if len(tree.of(name)) == 1}

    def _objection(self, manifests: Mapping[str, str], text: str) -> str | None:
        """Return why uv rejects a lock for these manifests; None if it accepts it. No registry is queried.
        Raises RecipeError."""
        files = scratch_files(manifests, self._path, text)
        try:
            options = ["--check", "--offline", *self._rules]
            uv_lock(self._project.clients, files, self._path, options)
        except RecipeError as error:
            return error.problem
        return None

    def _check_origins(self, text: str, new: Locked) -> None:
        """Raise RecipeError for a new yanked release, and for a registry that the old lock does not
        name."""
        previous = {(node.name, node.version) for node in self._project.tree.nodes.values()}
        for name, version in new.yanked - previous:
            raise resolver_failed(f"It would take {name} {version}, which is yanked.")
        for index in registries(self._path, text) - registries(self._path, self._project.text):
            raise resolver_failed(
                f"It would take packages from {index}, which {self._path} does not name: uv is set up with"
                " another index than the project."
            )

    def _placed(
        self, error: UvRefusedError, state: State, wanted: Mapping[str, str]
    ) -> RecipeError:
        """Return uv's refusal of these versions, with the files that declare what blocks."""

        def file_of(package: str) -> str:
            return self._project.manifest if package == PYTHON else self._place(state, package)

        return error.placed(self._path, state.tree, file_of, wanted)

    @cached_property
    def _unchanged(self) -> str:
        """Return the old lock as this uv writes it; the difference to the old lock is not part of the
        fix."""
        affected = locked.affected_versions(self._project.tree, self._advisory)
        pins = _pinned({name: versions[-1] for name, versions in affected.items()})
        try:
            return self._made(
                self._project.texts, self._project.text, pins, self._project.text
            ).text
        except RecipeError:
            return self._project.text


def _has_lines(state: State, package: str) -> bool:
    """Return whether a lock holds several versions of a package: conflicting extras, or marker forks."""
    return len({node.version for node in state.tree.of(package)}) > 1


def _with_room(
    manifests: Mapping[str, str], tree: DependencyTree, but_for: Collection[str]
) -> Mapping[str, str]:
    """Return the manifests with lower bounds, at the locked versions, in place of their requirements.

    For a scratch folder. ``but_for``: packages that are raised already. A requirement that can't be edited
    as text stays.
    """
    freed = dict(manifests)
    for path, name, string in locked.asked_for(manifests):
        current, requirement = tree.highest(ECOSYSTEM, name), requirement_in(string.value)
        if name in but_for or current is None or string.declaration.refusal or requirement is None:
            continue
        requirement.specifier = SpecifierSet(f">={at_least(current)}")
        freed[path] = replace_requirement(path, freed[path], string.keys, str(requirement))
    return freed


def _followers(manifests: Mapping[str, str], after: DependencyTree) -> dict[str, str]:
    """Return the versions in a tree that the manifests exclude, by package."""
    versions = {}
    for _, name, _ in locked.asked_for(manifests):
        version = after.highest(ECOSYSTEM, name)
        if version is not None and not_admitting(manifests, name, version):
            versions[name] = version
    return versions


def _pinned(versions: Mapping[str, str]) -> list[str]:
    return [
        f"--upgrade-package={name}=={version}" if version else f"--upgrade-package={name}"
        for name, version in versions.items()
    ]


def _floors(versions: Mapping[str, str], but: Collection[str] = ()) -> list[str]:
    return [
        f"--upgrade-package={name}>={at_least(version)}"
        for name, version in versions.items()
        if name not in but
    ]


def _gone_back(before: DependencyTree, after: DependencyTree) -> dict[str, str]:
    """Return the packages that went down, with their versions before; without those that had several."""
    return {
        name: nodes[0].version
        for name, nodes in before.by_name.items()
        if len(nodes) == 1
        and any(Version(node.version) < Version(nodes[0].version) for node in after.of(name))
    }


def _moved_along(
    before: DependencyTree, after: DependencyTree, wanted: Iterable[str]
) -> dict[str, str]:
    """Return the packages that went up unrequested, with their versions before.

    A package that had several versions (by platform) is left out: it can't be pinned to one. A package that
    has several only now is not left out: a lower version of it may serve everywhere.
    """
    return {
        name: nodes[0].version
        for name, nodes in before.by_name.items()
        if name not in wanted
        and len(nodes) == 1
        and after.of(name)
        and all(Version(node.version) > Version(nodes[0].version) for node in after.of(name))
    }


_KEY, _AGES = "override-dependencies", "exclude-newer-package"
_TABLE = re.compile(r"^\[tool\.uv\][ \t]*(?:#[^\r\n]*)?(?P<end>\r?\n|\Z)", re.MULTILINE)
_ARRAY = re.compile(rf"^{_KEY}[ \t]*=[ \t]*\[(?P<gap>[ \t]*(?:\r?\n[ \t]*)?)", re.MULTILINE)


def with_override(path: str, text: str, requirement: str) -> str:
    """Return the manifest with one more override, first in its array.

    Raises RecipeError if the manifest has no plain table for it.
    """
    document = parse_toml(path, text)
    wanted = deepcopy(dict(document))
    uv = wanted.setdefault("tool", {}).setdefault("uv", {})
    uv[_KEY] = [requirement, *uv.get(_KEY, ())]
    mark = BOM if text.startswith(BOM) else ""
    for candidate in _candidates(text.removeprefix(BOM), requirement):
        try:
            if inputs.parse_toml(candidate) == wanted:
                return mark + candidate
        except ValueError:
            continue
    raise unsupported(
        f"{path} has no plain [tool.uv] table that an override can be added to.",
        kind="no_plain_table",
    )


def _without_override(path: str, text: str, package: str) -> str | None:
    """Return the manifest without its overrides of a package, or None if it has none."""
    overrides = table_of(parse_toml(path, text), "tool", "uv").get(_KEY)
    requirements = [(line, requirement_in(line)) for line in texts(overrides)]
    remaining = [
        line
        for line, requirement in requirements
        if requirement is None or canonicalize_name(requirement.name) != package
    ]
    if len(remaining) == len(requirements):
        return None
    document = tomlkit.parse(text.removeprefix(BOM))
    document["tool"]["uv"][_KEY] = remaining
    return tomlkit.dumps(document)


def _with_exception(path: str, text: str, package: str, until: str) -> str:
    """Return the manifest with a separate cutoff for one package in ``exclude-newer-package``.

    Raises RecipeError if the manifest has no plain table for it.
    """
    wanted = deepcopy(dict(parse_toml(path, text)))
    wanted.setdefault("tool", {}).setdefault("uv", {}).setdefault(_AGES, {})[package] = until
    plain, mark = text.removeprefix(BOM), BOM if text.startswith(BOM) else ""
    document: Any = tomlkit.parse(plain)
    uv = document.setdefault("tool", {}).setdefault("uv", {})
    if _AGES not in uv:
        uv[_AGES] = tomlkit.inline_table()
    uv[_AGES][package] = until
    edited = tomlkit.dumps(document)
    if inputs.parse_toml(edited) != wanted:
        raise unsupported(f"{path} has no plain [tool.uv] table that an exception can be added to.")
    return mark + edited


def _candidates(text: str, requirement: str) -> list[str]:
    line_end = "\r\n" if "\r\n" in text else "\n"
    candidates = []
    for array in _ARRAY.finditer(text):
        at = array.end()
        rest = text[at:].lstrip()
        if rest.startswith("]"):
            candidates.append(f'{text[:at]}"{requirement}"{text[at:]}')
        else:
            candidates.append(f'{text[:at]}"{requirement}",{array["gap"] or " "}{text[at:]}')
    entry = f'{_KEY} = ["{requirement}"]'
    for table in _TABLE.finditer(text):
        new = f"{entry}{line_end}" if table["end"] else f"{line_end}{entry}"
        candidates.append(f"{text[: table.end()]}{new}{text[table.end() :]}")
    ended = not text or text.endswith("\n")
    gap, last = (line_end, line_end) if ended else (line_end * 2, "")
    candidates.append(f"{text}{gap}[tool.uv]{line_end}{entry}{last}")
    return candidates
