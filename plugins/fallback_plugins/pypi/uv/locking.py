"""The uv.lock that a fix takes: uv's own, with everything kept that needn't move.

uv keeps a locked version where it can, and takes the highest where it can't: a parent raised to an old
release then stands beside a child of this year, a mix that nobody ever tested. So what has to move along
with a fix moves as little as serves.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import tomlkit
from packaging.version import Version

from fallback_plugins.pypi.locks import uv_files
from fallback_plugins.pypi.locks.uv_lock import (
    read_tree,
    registries,
    rewrites,
    spliced,
    stub_wheels,
)
from fallback_plugins.pypi.manifests.requirements import at_least
from fallback_plugins.pypi.resolving.releases import as_options
from fallback_plugins.pypi.resolving.resolver import (
    Locked,
    UvRefusedError,
    resolver_failed,
    uv_accepts,
    uv_lock,
)
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.lock_edit import State
from fallback_plugins.pypi.strategies.locked_project import LockedProject
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.pypi.uv.overrides import with_exception
from fallback_plugins.pypi.uv_words import PYTHON
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import copies
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.errors import RecipeError

#: Times that uv is asked again because it went back to an older release: each names other packages.
MAX_FORWARD = 3


class UvLocking:
    """Makes locks for one resolution, from the files of its project."""

    def __init__(self, project: LockedProject, advisory: Advisory) -> None:
        self._project = project
        self._advisory = advisory
        self._clients = project.clients
        self._lock = project.path
        self._old = project.text

    def check_readable(self) -> None:
        """Raises RecipeError for what uv must not be shown: said once, not by each step."""
        uv_files.scratch_files(self._project.texts, self._lock, self._old)

    def check_rebuilt(self) -> None:
        """Does uv take the manifest, as the lock tells it, for the one that the lock was made from?"""
        message = self._objection(self._project.texts, self._old)
        if message:
            raise uv_files.missing(
                self._lock,
                f"{self._lock} does not show all of its manifest. {message}",
                kind="manifest_incomplete",
            )

    def locked(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> State:
        """The lock with these versions, everything else kept if possible. An empty version: each release
        line of the package as high as its declarations admit. Raises RecipeError."""
        manifests = self._excepting(manifests, wanted)
        new = self._lowest(state, manifests, wanted)
        unchanged = self._unchanged if rewrites(self._old, new.text) else self._old
        text = spliced(self._old, unchanged, new.text)
        self._check_origins(text, new)
        # What is not uv's own text, uv must take for its own.
        message = self._objection(manifests, text) if text != new.text else None
        if message:
            raise resolver_failed(
                f"uv does not accept the new {self._lock} as up to date. {message}"
            )
        return State({**manifests, self._lock: text}, read_tree(self._lock, text))

    @cached_property
    def _rules(self) -> list[str]:
        """The rules on ages of uv.toml, which is not shown to uv, as options: the lock records them."""
        rules = [rule for rule in self._project.ages.rules if rule.file.endswith("uv.toml")]
        whole = [f"--exclude-newer={rule.value}" for rule in rules if not rule.only][:1]
        single = [(name, rule.value) for rule in rules for name in rule.only]
        return [*whole, *(f"--exclude-newer-package={name}={value}" for name, value in single)]

    def _excepting(
        self, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        """The manifests with a person's exceptions, each until the day of its release: uv makes no lock
        that its own settings exclude. Raises RecipeError."""
        ages, found = self._project.ages, dict(manifests)
        places = [rule.file for rule in ages.rules if rule.line]
        for package, version in wanted.items() if places else ():
            until = ages.exception_until(package, version) if version else None
            if until is None:
                continue
            path = self._project.manifest
            if path not in places:
                raise unsupported(
                    f"{places[0]} excludes {package} {version}, and only an entry of its own there could"
                    " make an exception."
                )
            found[path] = with_exception(path, found[path], package, f"{until:%Y-%m-%dT%H:%M:%SZ}")
        return found

    def tree_of(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> DependencyTree:
        """Return the tree of such a lock, for manifests that are not a fix. Raises RecipeError."""
        return read_tree(self._lock, self._lowest(state, manifests, wanted).text)

    def _lowest(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Locked:
        text, floors = state.files[self._lock], dict[str, str]()

        def made(versions: Mapping[str, str]) -> Locked:
            options = [*_pinned(versions), *_floors(floors, but=versions)]
            return self._made(manifests, text, options, text)

        try:
            new = made(wanted)
        except UvRefusedError as error:
            raise self.placed(error, state, wanted) from error
        # uv holds what asks for a package as it is, and goes back to an older release of that which admits
        # the version. Forward, what asks for it may have to move as well.
        for _ in range(MAX_FORWARD):
            back = _gone_back(state.tree, read_tree(self._lock, new.text))
            if not back:
                break
            floors |= back
            try:
                new = made(wanted)
            except RecipeError:
                break  # there is no way forward: whoever judges the lock says so
        for other in (self._lower, self._older):
            if found := other(state, manifests, wanted, new):
                with suppress(RecipeError):  # uv's own choice stands
                    new, wanted = made({**wanted, **found}), {**wanted, **found}
        return new

    def _made(
        self, manifests: Mapping[str, str], start: str, options: Sequence[str], stubs_of: str
    ) -> Locked:
        """Return uv's lock of manifests and a lock, with stubs of what another lock has no wheel of."""
        files = uv_files.scratch_files(manifests, self._lock, start)
        stubs = stub_wheels(self._lock, stubs_of)
        return uv_lock(self._clients, files, self._lock, [*options, *self._rules], stubs=stubs)

    def _lower(
        self,
        state: State,
        manifests: Mapping[str, str],
        wanted: Mapping[str, str],
        new: Locked,
    ) -> Mapping[str, str]:
        """What had to move along, as low as serves, where that is lower than uv's choice."""
        after = read_tree(self._lock, new.text)
        floors = _moved_along(state.tree, after, wanted)
        if not floors:
            return {}
        options = ["--resolution=lowest", *_pinned(wanted), *_floors(floors)]
        start, text = _in_lowest_mode(new.text), state.files[self._lock]
        try:
            lowest = read_tree(self._lock, self._made(manifests, start, options, text).text)
        except RecipeError:
            return {}
        return {
            name: version
            for name in floors
            if (version := lowest.highest(ECOSYSTEM, name)) is not None
            and _is_lower(version, [one.version for one in after.of(name)])
            and not is_affected(self._advisory, ECOSYSTEM, name, version)
        }

    def _older(
        self,
        state: State,
        manifests: Mapping[str, str],
        wanted: Mapping[str, str],
        new: Locked,
    ) -> Mapping[str, str]:
        """Return versions that are old enough for ``--release-age``, of packages that came in and are not.
        uv would record that rule in the lock, so that it is passed for a scratch lock alone."""
        ages, after = self._project.ages, read_tree(self._lock, new.text)
        came = copies(after.nodes.values()) - copies(state.tree.nodes.values())
        young = {
            name for name, version in came if name not in wanted and ages.problem(name, version)
        }
        if not young:
            return {}
        options = [*as_options(ages, excepting=True, own=True), *_pinned(wanted)]
        try:
            made = self._made(manifests, new.text, options, state.files[self._lock])
        except RecipeError:
            return {}
        found = read_tree(self._lock, made.text)
        return {it: found.of(it)[0].version for it in young if len(found.of(it)) == 1}

    def _objection(self, manifests: Mapping[str, str], text: str) -> str | None:
        """Why uv does not take a lock for one of these manifests; None: it does. Raises RecipeError."""
        files = uv_files.scratch_files(manifests, self._lock, text)
        return uv_accepts(self._clients, files, self._lock, self._rules)

    def _check_origins(self, text: str, new: Locked) -> None:
        """No release that was withdrawn, no other registry than the lock's. Raises RecipeError."""
        held = {(node.name, node.version) for node in self._project.tree.nodes.values()}
        for name, version in new.yanked - held:
            raise resolver_failed(f"It would take {name} {version}, which is yanked.")
        for other in registries(self._lock, text) - registries(self._lock, self._old):
            raise resolver_failed(
                f"It would take packages from {other}, which {self._lock} does not name: uv is set up with"
                " another index than the project."
            )

    def placed(self, error: UvRefusedError, state: State, wanted: Mapping[str, str]) -> RecipeError:
        """Return uv's refusal of these versions, with the files that declare what blocks."""
        manifests = {path: text for path, text in state.files.items() if path != self._lock}

        def place(package: str) -> str:
            if package == PYTHON:
                return self._project.manifest
            return next(lock_edit.declared(manifests, package), self._lock)

        return error.placed(self._lock, state.tree, place, wanted)

    @cached_property
    def _unchanged(self) -> str:
        """The old lock as this uv writes it: what differs between the two is not the fix's doing."""
        affected = lock_edit.affected_versions(self._project.tree, self._advisory)
        pins = _pinned({name: held[-1] for name, held in affected.items()})
        try:
            return self._made(self._project.texts, self._old, pins, self._old).text
        except RecipeError:
            return self._old


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
    """The packages that went down, with the version that they had; no package of several versions."""
    return {
        name: nodes[0].version
        for name, nodes in before.by_name.items()
        if len(nodes) == 1
        and any(Version(one.version) < Version(nodes[0].version) for one in after.of(name))
    }


def _moved_along(
    before: DependencyTree, after: DependencyTree, wanted: Iterable[str]
) -> dict[str, str]:
    """The packages that went up without being asked to, with the version that they had.

    A package that was there in several versions (by platform) is left out: it can't be pinned to one. One
    that uv splits now is not: a lower version of it may do everywhere.
    """
    return {
        name: nodes[0].version
        for name, nodes in before.by_name.items()
        if name not in wanted
        and len(nodes) == 1
        and after.of(name)
        and all(Version(one.version) > Version(nodes[0].version) for one in after.of(name))
    }


def _in_lowest_mode(text: str) -> str:
    """A lock as uv would have written it with ``--resolution=lowest``, for a scratch folder.

    uv drops a lock that was made in another mode; this one it keeps, but for what it is told to move.
    """
    document = tomlkit.parse(text)
    document.setdefault("options", {})["resolution-mode"] = "lowest"
    return tomlkit.dumps(document)


def _is_lower(version: str, than: Iterable[str]) -> bool:
    """Lower than one of these, and higher than none."""
    others = [Version(one) for one in than]
    return Version(version) <= min(others) and Version(version) < max(others)
