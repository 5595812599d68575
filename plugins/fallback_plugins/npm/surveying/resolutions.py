"""Resolutions of npm's install commands: a lock in step is parsed, otherwise the project's own client
resolves into a scratch lock (ADR-0101). Anything that no resolution covers is unknown.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Client, Files
from fallback_plugins.npm.clients.by_lock import client_for, only_read
from fallback_plugins.npm.clients.npm_run import peer_options
from fallback_plugins.npm.clients.scopes import Scopes
from fallback_plugins.npm.clients.yarn_draft import Lookups
from fallback_plugins.npm.locks.entries import lock_entries, unlisted_bundles
from fallback_plugins.npm.locks.lockfile import parse_lock
from fallback_plugins.npm.locks.pnpm_lock import parse_pnpm_lock
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    MANIFEST,
    MEMBER_SECTIONS,
    PEER_SECTION,
    PNPM_LOCK,
    SECTIONS,
    YARN_LOCK,
    Declared,
    entries,
    in_folder,
    mapping,
    may_name,
    parse_manifest,
)
from fallback_plugins.npm.manifests.pnpm_workspace import catalogs, settings
from fallback_plugins.npm.manifests.specs import LOCAL, excludes, foreign, is_tag, split_alias
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.resolution import (
    Declaration,
    InstallCommand,
    KeptResolution,
    Resolution,
    ResolvedBy,
)
from fallback_plugins.shared.tree import MAX_PATHS_NAMED, DependencyTree
from fallback_tier.errors import RecipeError, ToolError
from fallback_tier.execution import ClientRunner, KnowsHosts
from fallback_tier.outcome import Blocker
from fallback_tier.repo import RepoContext

#: Sections whose entries a lock always answers. The other two are answered as well if the lock says that it
#: was made for them: npm leaves an optional package out of a lock that another platform made, and peers by
#: a setting.
ANSWERED = ("dependencies", "devDependencies")

#: Clients whose locks list each package that a locked one requires; the others leave workspaces out.
_COMPLETE = frozenset({"npm", "yarn"})

#: Commands that update a lock, by its name; all others are npm's.
_COMMANDS = {YARN_LOCK: "yarn install", PNPM_LOCK: "pnpm install --lockfile-only"}
_NPM_COMMAND = "npm install --package-lock-only"

#: Clients' errors if what the files require can't be installed, and no other cause is known.
_REFUSES = re.compile(
    r"\b(?:E404|ETARGET|ERESOLVE|notarget|EINVALID\w+|EUNSUPPORTED\w+|EOVERRIDE"
    r"|ERR_PNPM_(?:NO_MATCHING_VERSION|FETCH_404|SPEC_NOT_SUPPORTED\w*|NO_VERSIONS))\b"
    r"|Couldn't find (?:any versions for|package)"
)

#: What a manifest must hold to force a version on other packages.
_FORCES = re.compile(r'"(?:overrides|resolutions)"')

#: Name and text of the lock from which yarn and pnpm start a fresh one.
_BLANK = {"yarn": (YARN_LOCK, ""), "pnpm": (PNPM_LOCK, "lockfileVersion: '9.0'\n")}


def is_refused(error: RecipeError) -> bool:
    """Return whether registries answered the client, and it can't install what the files require."""
    return any(
        blocker.kind in {BlockerKind.CONFLICT, BlockerKind.NOT_PUBLISHED}
        or blocker.status == HTTPStatus.NOT_FOUND
        or (blocker.kind is BlockerKind.CLIENT and _REFUSES.search(blocker.constraint))
        for blocker in error.blockers
    )


def blank_lock(client: Client, files: Files) -> Files:
    """Return the files with the lock from which a client starts a fresh one; npm starts without one."""
    name, text = _BLANK.get(client.name, ("", ""))
    lock = in_folder(files.folder, name) if name else None
    return replace(files, lock=lock, lock_text=text)


@dataclass(frozen=True)
class CommandResolution:
    """The resolution of a project's install command. ``lock``: the lock that it has or would get, which
    determines the client; None: npm's. ``repo``: the base commit, whose copies share what was resolved,
    once per fix (ADR-0102)."""

    files: Files
    lock: str | None
    clients: ClientRunner
    repo: RepoContext

    @cached_property
    def client(self) -> Client:
        """Return the client, to read its lock."""
        return client_for(self.lock, self.clients)

    @cached_property
    def tree(self) -> DependencyTree:
        """Return the lock's tree. Raises RecipeError if it can't be read."""
        return self.client.tree(self.files)

    @cached_property
    def scopes(self) -> Scopes:
        """Return the scopes whose registries its .npmrc names. Raises ToolError."""
        return Scopes.of(self.files, self.clients)

    @cached_property
    def running(self) -> Client:
        """Return the client, to query the registries that it may query, once per package. Raises
        ToolError."""
        key = "yarn's lookups", self._path, self.repo.settings.offline
        lookups = self.repo.once(key, Lookups)
        return client_for(self.lock, self.scopes.over(self.clients), lookups)

    @cached_property
    def unanswered(self) -> tuple["Unanswered", ...]:
        """Return what the manifests require and the lock does not answer; empty if it is in step. Raises
        RecipeError for a lock, or a manifest, that can't be read."""
        key = "npm lock in step", self._inputs.digest
        return self.repo.once(key, lambda: tuple(unanswered(self.client, self.files, self.tree)))

    @property
    def _made(self) -> dict[str, Files]:
        return self.repo.once("npm resolutions", dict[str, Files])

    @property
    def made(self) -> Files | None:
        """Return the files with the lock that a client made of them for this fix, or None."""
        return self._made.get(self._inputs.digest)

    @property
    def nearest(self) -> Files | None:
        """Return ``made``, or the files with a lock of their patched form: an installation keeps what they
        admit."""
        return self.made or self._made.get(f"near {self._inputs.digest}")

    def remember(self, resolved: Files, patch_of: "CommandResolution | None" = None) -> None:
        """Store the lock that a client made: installing the files, or ``patch_of``, starts from it."""
        self._made[self._inputs.digest] = resolved
        if patch_of is not None:
            self._made[f"near {patch_of._inputs.digest}"] = resolved

    @property
    def known(self) -> Files | None:
        """Return the files with a lock that answers them, if no client has to run; otherwise None."""
        if self.files.lock is not None and not self.unanswered:
            return self.files
        if self.files.lock is None and not self.requires:
            return self.files
        return self.made or (self._kept() if self.repo.settings.offline else None)

    @cached_property
    def locked(self) -> Files:
        """Return the files with a lock that answers them: their own, a kept one, or the client's. Raises
        RecipeError (UNKNOWN) if none can be made."""
        known = self.known
        if known is not None:
            return known
        if self.repo.settings.offline:
            raise self._unknown("no registry is asked, and no resolution was kept", "")
        try:
            start = self.files if self.files.lock else blank_lock(self.client, self.files)
            resolved = self._by_client(start)
        except (RecipeError, ToolError) as error:
            blockers = error.blockers if isinstance(error, RecipeError) else ()
            raise self._unknown(error.problem.rstrip("."), error.next_step, blockers) from error
        self.remember(resolved)
        self._cached.keep(json.dumps({"lock": resolved.lock, "text": resolved.lock_text}))
        return resolved

    def _by_client(self, start: Files) -> Files:
        """Return the files as the client resolves them; if peers conflict, without peers, as npm advises.

        Raises RecipeError if a manifest requires a package of a scope whose registry may not be queried: no
        other registry has the same package.
        """
        for _, _, key, spec in _required(self.files):
            if (refusal := self.scopes.refusal(_package(key, spec))) is not None:
                raise refusal
        try:
            return self.running.resolve(start)
        except RecipeError as error:
            if not any(blocker.kind is BlockerKind.CONFLICT for blocker in error.blockers):
                raise
        path = in_folder(start.folder, ".npmrc")
        current = dict(start.settings or {})
        legacy = {**current, path: f"{current.get(path, '')}legacy-peer-deps=true\n"}
        return self.running.resolve(replace(start, settings=legacy))

    @cached_property
    def resolution(self) -> Resolution:
        """Return the resolution. Raises as ``locked``."""
        files = self.locked
        by_lock, name = files is self.files, self.client.name
        verb = "ci" if name == "npm" and self.files.lock else "install"
        paths = (self._path, *(path for path in self.files.manifests if path != self._path))
        resolution = Resolution.of_tree(
            ECOSYSTEM,
            InstallCommand(client=name, files=paths, label=f"{name} {verb}"),
            ResolvedBy.LOCK if by_lock else ResolvedBy.CLIENT,
            self.client.tree(files) if files.lock else DependencyTree(self._path, {}),
            client=name,
            made_on=None if by_lock else self._cached.made_on,
            declarations=tuple(_declarations(files)),
        )
        origins = _origins(files)
        packages = tuple(
            package.model_copy(
                update=dict(zip(("origin", "digest"), origins[package.key], strict=True))
            )
            if package.key in origins
            else package
            for package in resolution.packages
        )
        return resolution.model_copy(update={"packages": packages})

    @property
    def kept_note(self) -> str:
        """Return a sentence with the day of the kept resolution that is used offline; empty if none is."""
        if not self.repo.settings.offline or self.known is None or self.known is self.files:
            return ""
        clause = f"{self.client.name} resolved it on {self._cached.made_on:%Y-%m-%d}"
        return f"{self._path} was not resolved again: {clause}, from the same files."

    @property
    def _path(self) -> str:
        return self.files.lock or self.files.root_manifest

    @property
    def requires(self) -> bool:
        """Return whether a manifest requires anything. npm installs a project's peers, too."""
        for path, text in self.files.manifests.items():
            with suppress(RecipeError):  # what npm can't parse, it does not install
                manifest = parse_manifest(path, text)
                if any(manifest.get(section) for section in MEMBER_SECTIONS):
                    return True
        return False

    def _unknown(self, why: str, next_step: str, blockers: Sequence[Blocker] = ()) -> RecipeError:
        step = out_of_step(self._path, self.unanswered) if self.files.lock else None
        state = f"{step.problem} " if step else f"{self._path} has no lock. "
        reason = f"{state}What is installed is unknown: {why}."
        repair = (
            (step and step.next_step) or next_step or f"Run `{_NPM_COMMAND}` and commit the lock."
        )
        return unknown(self._path, reason, next_step=repair, blockers=blockers)

    # --- kept for runs without a registry -----------------------------------------------------------

    @cached_property
    def _inputs(self) -> KeptResolution:
        tools = ("npm", "node")
        hosts = self.clients.allowed_hosts(tools) if isinstance(self.clients, KnowsHosts) else ()
        digests = {
            path: sha256(content).hexdigest() for path, content in self.files.archives.items()
        }
        texts = {**self.files.texts, **(self.files.settings or {}), **digests}
        return KeptResolution([self.client.name, sorted(hosts), sorted(texts.items())])

    @cached_property
    def _cached(self) -> KeptResolution:
        return KeptResolution([self._inputs.digest, _versions()])

    def _kept(self) -> Files | None:
        try:
            document = json.loads(self._cached.text)
            return replace(self.files, lock=str(document["lock"]), lock_text=str(document["text"]))
        except (ValueError, KeyError, TypeError):
            return None


@cache
def _versions() -> tuple[str, str]:
    """Return the versions of npm, from the manifest of its program (empty: not found), and of this program,
    which pins the other clients. Nothing runs."""
    npm = ""
    with suppress(OSError, ValueError, LookupError, TypeError):
        program = Path(shutil.which("npm") or "/").resolve()
        npm = str(json.loads((program.parents[1] / MANIFEST).read_text("utf-8"))["version"])
    return npm, version("fallback-tier")


def _declarations(files: Files) -> Iterator[Declaration]:
    """Yield each line of a manifest that requires a package."""
    for path, section, key, spec in _required(files):
        lines = enumerate(files.manifests[path].splitlines(), 1)
        yield Declaration(
            name=_package(key, spec),
            text=f"{key} {spec}".strip(),
            file=path,
            line=next((number for number, line in lines if json.dumps(key) in line), 1),
            environments="" if section == SECTIONS[0] else section,
        )


def _required(files: Files) -> Iterator[tuple[str, str, str, str]]:
    """Yield (path, section, key, spec) of what the manifests require. Raises RecipeError."""
    for path, text in files.manifests.items():
        manifest = parse_manifest(path, text)
        for section in MEMBER_SECTIONS:
            for key, spec in entries(manifest.get(section)):
                yield path, section, key, spec


def _origins(files: Files) -> dict[str, tuple[str, str]]:
    """Return the address and digest of each package, as the lock states them, by key."""
    entries = lock_entries(files.lock, files.lock_text) if files.lock else ()
    is_by_range = files.lock is not None and PurePosixPath(files.lock).name == YARN_LOCK
    return {
        f"{entry.name}@{entry.version}" if is_by_range else entry.key: (entry.address, entry.digest)
        for entry in entries
    }


@dataclass(frozen=True)
class Unanswered:
    """A declaration that the lock does not answer. ``held``: the version that it has instead, if any."""

    manifest: str
    key: str
    spec: str
    held: str | None


def unanswered(client: Client, files: Files, tree: DependencyTree) -> Iterator[Unanswered]:
    """Yield what the manifests, or locked packages, require and the lock does not have. A range that can't
    be read, a tag or another source is answered by any version. Raises RecipeError."""
    is_complete = client.name in _COMPLETE and only_read(files) is None
    bundlers = unlisted_bundles(tree.source, files.lock_text) if is_complete else ()
    in_archives = {bundler.key: bundler.bundles for bundler in bundlers}
    for locked in tree.nodes.values() if is_complete else ():
        for edge in locked.asks if not locked.bundled else ():
            is_required = edge.to is None and not edge.optional and not edge.peer
            if is_required and edge.name not in in_archives.get(locked.key, ()):
                yield Unanswered(f"{locked.label} in {tree.source}", edge.name, edge.spec, None)
    yield from _against_overrides(client, files, tree)
    roots = {_manifest_of(files, root.key): root for root in tree.roots}
    members = {root.name: root.version for root in tree.roots}
    installed = {**{root.key: root for root in tree.roots}, **tree.nodes}
    recorded = _recorded(client, files)
    for path, text in files.manifests.items():
        root_asks = roots[path].asks if path in roots else ()
        asks = {ask.name: ask for ask in root_asks if ask.to is not None or not ask.peer}
        made_for = recorded.get(path, {}) if recorded is not None else None
        for place in _declared(client, files, path, text):
            is_new = made_for is not None and made_for.get(place.key) != place.spec
            is_other = is_new and (
                foreign(place.spec) is not None or (client.name == "pnpm" and is_tag(place.spec))
            )
            # Not every client locks folders.
            if place.spec.startswith(("workspace:", *LOCAL)) and not (
                is_other and client.name == "npm"
            ):
                continue
            if place.key in members and not excludes(place.spec, members[place.key]):
                continue
            if place.section == PEER_SECTION and not is_new:
                continue  # npm left it out of the lock, and would again
            ask = asks.get(place.key)
            node = installed.get(ask.to) if ask is not None and ask.to is not None else None
            if ask is None or ask.to is None or is_other:
                if place.section in ANSWERED or is_new or (recorded is None and not node):
                    yield Unanswered(path, place.key, place.spec, node.version if node else None)
                continue
            if node is None:
                continue
            may_differ = node.key not in tree.nodes or foreign(place.spec) or is_tag(place.spec)
            is_another = not may_differ and node.name != _package(place.key, place.spec)
            if not (is_another or excludes(place.spec, node.version)):
                continue
            if not any(client.overrides(files, name) for name in {node.name, place.key}):
                yield Unanswered(path, place.key, place.spec, node.version)


def _recorded(client: Client, files: Files) -> Mapping[str, Mapping[str, str]] | None:
    """Return what each manifest required when the lock was made, by path; None: unknown."""
    if client.name == "pnpm":
        lock = parse_pnpm_lock(files.lock_text)
        return {
            in_folder(files.folder, in_folder(folder, MANIFEST)): {
                ask.name: ask.spec for ask in lock.asks(importer, {})
            }
            for folder, importer in lock.importers.items()
        }
    packages = None
    if client.name == "npm":
        packages = parse_lock(files.lock_text, files.lock or "").get("packages")
    if not isinstance(packages, dict):
        return None
    return {
        _manifest_of(files, key): {
            name: spec for section in MEMBER_SECTIONS for name, spec in entries(entry.get(section))
        }
        for key, entry in packages.items()
        if isinstance(entry, dict) and "node_modules" not in key
    }


def _against_overrides(client: Client, files: Files, tree: DependencyTree) -> Iterator[Unanswered]:
    """Yield the locked packages that a current override would have replaced."""
    if only_read(files) is not None:
        return
    path = files.root_manifest
    text = files.manifests.get(path, "")
    if client.name == "pnpm":
        yield from _pnpm_overrides(files, text)
        return
    for name, nodes in tree.by_name.items() if _FORCES.search(text) else ():
        for place in client.overrides(files, name) if may_name(text, name) else ():
            keys = place.keys[1:-1] if place.keys[-1] == "." else place.keys[1:]
            *above, last = (
                keys if client.name == "npm" else keys[0].removeprefix("**/").split("/**/")
            )
            limit = last.partition(f"{name}@")[2]
            parents = {key[: key.find("@", 1)] if key.find("@", 1) > 0 else key for key in above}
            for node in nodes:
                is_meant = not limit or not excludes(limit, node.version)
                is_held = not excludes(place.spec, node.version) and node.name == _package(
                    name, place.spec
                )
                if node.bundled or not is_meant or is_held:
                    continue
                ways = tree.paths_to(node.key) if parents else ()
                is_below = any(ancestor.name in parents for way in ways for ancestor in way)
                if not parents or is_below or len(ways) == MAX_PATHS_NAMED:
                    yield Unanswered(path, last, place.spec, node.version)


def _pnpm_overrides(files: Files, root: str) -> Iterator[Unanswered]:
    """Yield the current overrides and catalog entries that pnpm's lock does not repeat."""
    path = files.root_manifest
    lock, manifest = parse_pnpm_lock(files.lock_text), parse_manifest(path, root)
    workspace = settings(files)
    pnpm_settings = mapping(manifest.get("pnpm"))
    declared = dict(entries(manifest.get("resolutions")))
    declared |= dict(entries(pnpm_settings.get("overrides"))) | dict(
        entries(workspace.get("overrides"))
    )
    made_for = dict(entries(lock.content.get("overrides")))
    for key, spec in declared.items():
        is_reference = spec.startswith(("$", "catalog:"))
        if key not in made_for or (not is_reference and made_for[key] != spec):
            yield Unanswered(path, key, spec, made_for.get(key))
    extensions = mapping(pnpm_settings.get("packageExtensions")) | mapping(
        workspace.get("packageExtensions")
    )
    for key, extension in extensions.items():
        name, _, limit = key[1:].partition("@")
        for node in lock.nodes.values():
            if node.name != key[:1] + name or (limit and excludes(limit, node.version)):
                continue
            locked = {ask.name: lock.nodes.get(ask.to or "") for ask in node.asks}
            for dependency, spec in entries(mapping(extension).get("dependencies")):
                target = locked.get(dependency)
                if target is None or excludes(spec, target.version):
                    yield Unanswered(path, dependency, spec, target.version if target else None)
    current = catalogs(workspace)
    for name, locked in mapping(lock.content.get("catalogs")).items():
        now = current[name][1] if name in current else {}
        for key, entry in mapping(locked).items():
            spec = str(mapping(entry).get("specifier", ""))
            if now.get(key, spec) != spec:
                version = str(mapping(entry).get("version", "")) or None
                yield Unanswered(path, key, now[key], version)


def out_of_step(lock: str, lacking: Sequence[Unanswered]) -> RecipeError:
    """Return the refusal: which file, what it does not answer, and the command that repairs it."""
    first = lacking[0]
    locked = f"{first.key} {first.held}" if first.held else "none of it"
    more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    name = PurePosixPath(lock).name
    folder = str(PurePosixPath(lock).parent)
    where = "" if folder == "." else f" in {folder}"
    return unsupported(
        f"{lock} is out of step with {first.manifest}: that requires {first.key} {first.spec}{more}, and"
        f" the lock holds {locked}.",
        f"Run `{_COMMANDS.get(name, _NPM_COMMAND)}`{where} and commit the lock.",
    )


def _declared(client: Client, files: Files, path: str, text: str) -> Iterator[Declared]:
    """Yield the declarations that are installed: no peers that the client omits or that are optional."""
    manifest = parse_manifest(path, text)
    optional = mapping(manifest.get("optionalDependencies"))
    about = mapping(manifest.get("peerDependenciesMeta"))
    for section in MEMBER_SECTIONS if only_read(files) is None else ANSWERED:
        if section == PEER_SECTION and not _installs_peers(client, files):
            continue
        for key, spec in entries(manifest.get(section)):
            is_spare = section == PEER_SECTION and mapping(about.get(key)).get("optional")
            if not is_spare and not (section in ANSWERED and key in optional):
                yield Declared(section, key, spec)


def _installs_peers(client: Client, files: Files) -> bool:
    """Return whether the client that made the lock installs a project's own peers."""
    if client.name == "pnpm":
        made_with = mapping(parse_pnpm_lock(files.lock_text).content.get("settings"))
        return made_with.get("autoInstallPeers") == "true"
    if client.name != "npm" or "packages" not in parse_lock(files.lock_text, files.lock or ""):
        return False
    return not peer_options(files)


def _package(key: str, spec: str) -> str:
    return split_alias(spec)[0].removeprefix("npm:").rstrip("@") or key


def _manifest_of(files: Files, key: str) -> str:
    """Return a root's manifest: npm's key is a folder below the project, another client's the path."""
    if PurePosixPath(key).name == MANIFEST:
        return key
    return in_folder(files.folder, in_folder(key or ".", MANIFEST))
