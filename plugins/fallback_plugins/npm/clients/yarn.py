"""yarn classic as a client: its own resolver over copies, its lock edited only where it must change.

Yarn 1 has no lock-only mode. Its installer lets every step be replaced (``experimentalYarnHooks``), so ours
resolves and writes the lock, and nothing is fetched, linked or built.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files, OverridePlace, WantedVersions
from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient, unresolved
from fallback_plugins.npm.clients.scratch import check_addresses, check_paths, scratch_project
from fallback_plugins.npm.clients.yarn_draft import Draft, Lookups, Release, asked_by, plain_range
from fallback_plugins.npm.locks.yarn_lock import (
    Block,
    YarnLock,
    parse_yarn_lock,
    real_name,
    resolution_target,
    split_pattern,
    yarn_tree,
)
from fallback_plugins.npm.manifests.manifest import (
    LATER_YARN,
    SECTIONS,
    entries,
    parse_manifest,
    texts_of,
)
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.jsontext import set_value
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner

YARN = PinnedClient(
    name="yarn",
    version="1.22.22",
    integrity="sha512-prL3kGtyG7o9Z9Sv8IPfBNrWTDmXB4Qbes8A9rEzt6wkJV8mUvoirjU0Mp3GGAU06Y0XQyA3/2/RQFVuK7MTfg==",
    script="bin/yarn.js",
    code="488f980886ac23c25c5d7dd1accde35235541c996550d3a57b4b63f3f1c1c4af",
)

#: Seconds for one run. If the lock doesn't hold a wanted version, two runs are made.
YARN_TIMEOUT_S = 300.0

_LOCK, _MANIFEST, _RESOLUTIONS = "yarn.lock", "package.json", "resolutions"

#: Replaces every step of an installation except the first.
HOOKS = """const nothing = async () => {};
global.experimentalYarnHooks = {
  auditStep: nothing, fetchStep: nothing, linkStep: nothing, pnpStep: nothing, buildStep: nothing,
};
"""

_OPTIONS = (
    "--ignore-scripts",
    "--ignore-platform",
    "--ignore-engines",
    "--non-interactive",
    "--no-progress",
    "--no-emoji",
)

#: Runs no program that a .yarnrc names, and looks for no other yarn because of ``packageManager``.
ENVIRONMENT = {"YARN_IGNORE_PATH": "1", "SKIP_YARN_COREPACK_CHECK": "1"}

_CACHE, _MODULES = ".cache", ".modules"


#: A manifest, parsed.
Manifest = Mapping[str, Any]


def asked(manifest: Manifest) -> Iterator[str]:
    """Yield the patterns that a manifest requires (peers are not installed) or substitutes for others."""
    for section in SECTIONS:
        for name, spec in entries(manifest.get(section)):
            yield f"{name}@{spec}"
    for key, spec in entries(manifest.get("resolutions")):
        yield f"{resolution_target(key)}@{spec}"


def unseen_asks(lock: YarnLock, manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Return the patterns that no known manifest or package requires, which yarn would therefore drop.

    Members or linked folders that are not available may require them; if not, a fix does not tidy up.
    Patterns that only the former range of a raised declaration required are left out.
    """
    asks = [pattern for manifest in manifests for pattern in asked(manifest)]
    reached: set[str] = set()

    def walk(waiting: list[str]) -> None:
        while waiting:
            pattern = waiting.pop()
            block = lock.by_pattern.get(pattern)
            if block is not None and pattern not in reached:
                reached.add(pattern)
                waiting.extend(asked_by(block))

    walk(list(asks))
    raised = {split_pattern(pattern)[0] for pattern in asks if pattern not in lock.by_pattern}
    walk([pattern for pattern in lock.by_pattern if split_pattern(pattern)[0] in raised])
    orphans = {
        pattern: block
        for block in lock.blocks
        for pattern in block.patterns
        # The former resolution of a block that is still required: ``a@1.2.3, a@^1.0.0``.
        if not (reached.intersection(block.patterns) and plain_range(pattern) == block.version)
    }
    inner = {pattern for block in orphans.values() for pattern in asked_by(block)}
    unseen = []
    # First the orphans that no other orphan requires; the rest require each other in a cycle.
    for late in (False, True):
        for pattern in orphans:
            if pattern not in reached and (pattern in inner) == late:
                unseen.append(pattern)
                walk([pattern])
    return tuple(unseen)


@dataclass(frozen=True)
class YarnClient:
    """The protocol ``npm.client.Client`` over yarn.lock (format 1)."""

    clients: ClientRunner
    store: ClientStore | None = field(default=None)
    #: What the registry answered in earlier runs of one plan.
    lookups: Lookups = field(default_factory=Lookups, compare=False)
    name: str = field(default="yarn", init=False)

    def tree(self, files: Files) -> DependencyTree:
        """Return the tree (``Client.tree``). Keys are ``name@version``, of roots the paths of their
        manifests. Later yarns' locks are read, too; the other methods refuse them."""
        return yarn_tree(files)

    def resolve(self, files: Files, wanted_versions: WantedVersions | None = None) -> Files:
        """Resolve the files (``Client.resolve``). Each dependent's range counts by itself: yarn can give
        two dependents two versions."""
        return self._resolved(files, wanted_versions or {}, ())

    def update(self, files: Files, packages: Sequence[str]) -> Files:
        """Raise packages (``Client.update``)."""
        return self._resolved(files, {}, packages)

    def overrides(self, files: Files, package: str) -> tuple[OverridePlace, ...]:
        """Return the root manifest's ``resolutions`` whose last part is the package."""
        path = files.root_manifest
        return tuple(
            OverridePlace((_RESOLUTIONS, key), package, spec)
            for key, spec in entries(parse_manifest(path, files.manifests[path]).get(_RESOLUTIONS))
            if resolution_target(key) == package
        )

    def with_override(self, files: Files, parent: str | None, package: str, version: str) -> Files:
        """Return the files with ``**/parent/**/package``: at any depth below the parent; without a parent,
        everywhere."""
        key = package if parent is None else f"**/{parent}/**/{package}"
        path = files.root_manifest
        return files.with_manifest(
            path, set_value(files.manifests[path], (_RESOLUTIONS, key), version)
        )

    def _resolved(
        self, files: Files, wanted_versions: WantedVersions, packages: Sequence[str]
    ) -> Files:
        check_paths(files)
        lock = parse_yarn_lock(files.lock_text)
        texts, required = yarn_project(files, lock)
        check_addresses(split_pattern(ask)[1] for ask in unanswered(lock, required))
        draft = Draft(lock)
        draft.forget(packages)
        wanted = self._as_wanted(files, lock, draft, wanted_versions)
        new = [*required, *(ask for block in wanted.values() for ask in asked_by(block))]
        for (package, version), block in wanted.items():
            draft.grant(package, version, block, new)
        draft.settle(new, but=packages)
        written = self._looked_up(files, texts, draft, required, new)
        return files.with_lock(lock.following(written).text)

    def _as_wanted(
        self, files: Files, lock: YarnLock, draft: Draft, wanted_versions: WantedVersions
    ) -> dict[tuple[str, str], Block]:
        """Return the block of each wanted version; a separate run of yarn finds those that neither the lock
        holds nor an earlier run found."""
        releases = {copy: Release(copy[0], version) for copy, version in wanted_versions.items()}
        blocks = {
            release: draft.held(*release) or self.lookups.block(lock, release)
            for release in releases.values()
        }
        missing = {
            release: f"w{number}@npm:{release.package}@{release.version}"
            for number, release in enumerate(blocks)
            if blocks[release] is None
        }
        if missing:
            self.lookups.check(missing)
            resolved = self._wished(files, lock, tuple(missing.values()))
            for release, ask in missing.items():
                blocks[release] = resolved.by_pattern[ask]
                self.lookups.keep(lock, release, resolved.by_pattern[ask])
        found = {release: block for release, block in blocks.items() if block is not None}
        return {copy: found[release] for copy, release in releases.items()}

    def _wished(self, files: Files, lock: YarnLock, wishes: Sequence[str]) -> YarnLock:
        """Return a lock with blocks of these patterns. If the registry lacks what one of them requires,
        look up the rest, so that no other trial does: the project itself is refused then."""
        asks = dict(map(split_pattern, wishes))
        manifest = {"name": "wishes", "private": True, "dependencies": asks}
        texts = {_MANIFEST: json.dumps(manifest)}

        def looked_up() -> YarnLock:
            draft = Draft(lock)
            draft.fill_in(self.lookups.absent)
            before = [*self.lookups.asked_by(map(real_name, wishes))]
            return self._looked_up(files, texts, draft, wishes, before)

        known = self.lookups.absent
        try:
            return looked_up()
        except RecipeError:
            wished = {Release(real_name(wish), plain_range(wish)) for wish in wishes}
            if self.lookups.absent == known or wished.intersection(self.lookups.absent):
                raise
            return looked_up()

    def _looked_up(
        self,
        files: Files,
        texts: Mapping[str, str],
        draft: Draft,
        required: Iterable[str],
        more: Iterable[str] = (),
    ) -> YarnLock:
        """Return the lock that yarn makes of a project and a draft. What the registry answered in earlier
        runs, about what is ``required``, what that leads to or ``more`` patterns, is not looked up again,
        unless the manifest changes what a range means."""
        root = parse_manifest(_MANIFEST, texts[_MANIFEST])
        if root.get("flat"):  # one version of each package, whatever the ranges
            return self._run(files, {**texts, _LOCK: draft.lock.text})
        manifests = (parse_manifest(path, text) for path, text in files.manifests.items())
        members = [str(manifest.get("name")) for manifest in manifests]
        replaced = [resolution_target(key) for key, _ in entries(root.get(_RESOLUTIONS))]
        draft.recall((*required, *more), self.lookups, but=(*members, *replaced))
        draft.check(required, self.lookups, but=(*members, *replaced))
        given = draft.lock
        try:
            written = self._run(files, {**texts, _LOCK: given.text})
        except RecipeError as error:
            self.lookups.refuse(error)
            raise
        self.lookups.note(given, written, but=replaced)
        return written

    def _run(self, files: Files, texts: Mapping[str, str]) -> YarnLock:
        """Return the lock that yarn makes of a project, in a folder that is deleted afterwards."""
        store = self.store or ClientStore(self.clients)
        with scratch_project(texts, files.archives) as scratch:
            folders = [f"--cache-folder={_CACHE}", f"--modules-folder={_MODULES}"]
            arguments = ["install", *_OPTIONS, *folders]
            result = store.run(
                YARN,
                arguments,
                clients=self.clients,
                cwd=scratch,
                timeout_s=YARN_TIMEOUT_S,
                env=ENVIRONMENT,
                hooks=HOOKS,
            )
            if not result.ok:
                raise unresolved(YARN, result, YARN_TIMEOUT_S, files)
            return parse_yarn_lock((scratch / _LOCK).read_bytes().decode())


#: Folder of the members that require what unseen members may require.
_MEMBERS = ".members"


def yarn_project(files: Files, lock: YarnLock) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the texts of a scratch project by relative path, and what the known manifests require. Raises
    RecipeError if a manifest can't be parsed, or requires yarn 2 or later.

    If no known manifest requires a part of the lock, added members require it, or yarn would drop it. A
    folder from which the lock has a package gets a manifest that is made of the block of that package.
    """
    manifests = {path: parse_manifest(path, text) for path, text in files.manifests.items()}
    root = manifests[files.root_manifest]
    wanted = root.get("packageManager")
    if isinstance(wanted, str) and LATER_YARN.match(wanted):
        raise unsupported(
            f"package.json wants {wanted.partition('+')[0]}, and only yarn classic (1) is driven.",
            "Run `yarn install` with that yarn, and commit the lock that it writes.",
        )
    prefix = "" if files.folder == "." else f"{files.folder}/"
    sources = files.folders | dict(files.manifests)
    texts = {path.removeprefix(prefix): text for path, text in sources.items()}
    for path, manifest in _folders(lock):
        texts.setdefault(path, json.dumps(manifest))
    unseen = [ask for ask in unseen_asks(lock, manifests.values()) if lock.by_pattern[ask].resolved]
    if members := _stand_ins(unseen):
        texts |= {f"{_MEMBERS}/{n}/package.json": json.dumps(m) for n, m in enumerate(members)}
        workspaces = [*texts_of(root, "workspaces"), f"{_MEMBERS}/*"]
        texts["package.json"] = json.dumps({**root, "private": True, "workspaces": workspaces})
    asks = tuple(pattern for manifest in manifests.values() for pattern in asked(manifest))
    return texts, asks


def unanswered(lock: YarnLock, asks: Iterable[str]) -> Iterator[str]:
    """Yield the patterns that yarn would have to look up: required or substituted, and not locked."""
    locked = (pattern for block in lock.blocks for pattern in asked_by(block))
    return (ask for ask in (*asks, *locked) if ask not in lock.by_pattern)


def _folders(lock: YarnLock) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in lock.blocks:
        for pattern in block.patterns if block.from_folder else ():
            name, spec = split_pattern(pattern)
            folder = PurePosixPath(spec.partition(":")[2])
            if folder.is_absolute() or ".." in folder.parts or block.fields.get("uid") == "":
                continue  # outside, or yarn found no manifest there
            yield (
                str(folder / "package.json"),
                {
                    "name": name,
                    "version": block.version,
                    "dependencies": dict(block.dependencies),
                    "optionalDependencies": dict(block.optional),
                },
            )


def _stand_ins(patterns: Iterable[str]) -> list[dict[str, Any]]:
    """Return as few members as possible: each requires a package at most once."""
    members: list[dict[str, str]] = []
    for pattern in patterns:
        name, spec = split_pattern(pattern)
        free = next((asks for asks in members if name not in asks), None)
        if free is None:
            members.append(free := {})
        free[name] = spec
    return [
        {"name": f"member-{number}", "version": "0.0.0", "dependencies": asks}
        for number, asks in enumerate(members)
    ]
