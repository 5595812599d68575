"""pnpm as a client: its own ``--lockfile-only`` resolution, in the version that wrote the lock's format.

A scratch project has those of a workspace's settings that decide versions, as data only. pnpm 10 reads all
settings from its workspace file; the pnpm that resolves may be older, and reads them from the root's
package.json and from options. A setting that can name a program is left out.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files, OverridePlace, WantedVersions
from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient, unresolved
from fallback_plugins.npm.clients.scratch import (
    check_addresses,
    check_named,
    check_paths,
    is_outside,
    scratch_project,
)
from fallback_plugins.npm.locks.pnpm_lock import (
    PnpmLock,
    in_form_of,
    parse_pnpm_lock,
    pnpm_tree,
    without,
)
from fallback_plugins.npm.manifests.manifest import (
    MANIFEST,
    SECTIONS,
    entries,
    parse_manifest,
    referred,
)
from fallback_plugins.npm.manifests.pnpm_workspace import (
    FILE,
    not_supported,
    referred_entry,
    settings,
    settings_path,
    with_entry,
)
from fallback_plugins.npm.manifests.specs import admits, is_tag
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.jsontext import set_value
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.execution import ClientRunner

#: The last pnpm of each lock format (its major number). pnpm 6 and older do not run on today's Node.
PNPM = {
    "5": PinnedClient(
        "pnpm",
        "7.33.7",
        "sha512-ev4kEGQrOcaY30baTOXHIxpczjYGmNafjPj0IlfUCz5D8jEFOwe43oSf1P+/SnH/V7g1E3d3o1I4jz09p0cgDg==",
        "bin/pnpm.cjs",
        "6c2529d55f9f37cdaa34acc7d5f8428366894c042c4a7b94cafcb7d4cc270177",
    ),
    "6": PinnedClient(
        "pnpm",
        "8.15.9",
        "sha512-SZQ0ydj90aJ5Tr9FUrOyXApjOrzuW7Fee13pDzL0e1E6ypjNXP0AHDHw20VLw4BO3M1XhQHkyik6aBYWa72fgQ==",
        "bin/pnpm.cjs",
        "da062028470c63208ca1b97f58fd609a2afe114017096cc41eccfd3ae1f23580",
    ),
    "9": PinnedClient(
        "pnpm",
        "9.15.9",
        "sha512-aARhQYk8ZvrQHAeSMRKOmvuJ74fiaR1p5NQO7iKJiClf1GghgbrlW1hBjDolO95lpQXsfF+UA+zlzDzTfc8lMQ==",
        "bin/pnpm.cjs",
        "d80773105c9892274178ae20013fc1e09d1c6434ffea987681445fdf726f586f",
    ),
}

#: Seconds for one run; pnpm queries the registry about every package of the lock.
PNPM_TIMEOUT_S = 600.0

_PATCHED = ("pnpm", "patchedDependencies")

#: Keys of pnpm's overrides in package.json; it also reads yarn's.
_OVERRIDES = ("pnpm", "overrides")
_RESOLUTIONS = ("resolutions",)

#: The package at the end of an override's key: ``parent@1>package@^2``; ``>`` also begins a range.
_TARGET = re.compile(r"(?:.*[^ |@]>)?(?P<name>@?[^@]+)(?:@.*)?")

#: A pnpm that reads no overrides from package.json.
_WITHOUT_MANIFEST = re.compile(r"pnpm@(?:1[1-9]|[2-9]\d)\.")

#: Lines that releases of pnpm with the same lock format write in different ways.
_RESPELLED = ("lockfileVersion", "packageExtensionsChecksum")

_OPTIONS = (
    "--lockfile-only",
    "--no-frozen-lockfile",
    "--ignore-scripts",
    "--ignore-pnpmfile",
    "--reporter=append-only",
    "--config.strict-peer-dependencies=false",
    "--config.engine-strict=false",
    # Run no other client and no other version, whatever ``packageManager`` says.
    "--config.package-manager-strict=false",
    "--config.manage-package-manager-versions=false",
)


@dataclass(frozen=True)
class _Force:
    """A wanted version that pnpm can be made to use: one dependent (a manifest by its path, or a locked
    package) gets one package in one version.

    ``name``: the name under which the dependent requires it; an alias, if it is not ``package``.
    """

    dependent: str
    dependent_version: str
    name: str
    package: str
    version: str
    is_manifest: bool

    @property
    def _spec(self) -> str:
        alias = "" if self.name == self.package else f"npm:{self.package}@"
        return alias + self.version

    def upon(self, manifests: dict[str, str], root: str) -> None:
        """Write it into the scratch manifests: as a project's own range, or as an override in the root."""
        path = self.dependent if self.is_manifest else root
        manifest = dict(parse_manifest(path, manifests[path]))
        if self.is_manifest:
            for section in SECTIONS:
                if self.name in _strings_at(manifest, section):
                    manifest[section] = {**manifest[section], self.name: self._spec}
        else:
            section, inner = _OVERRIDES
            existing = manifest.get(section)
            key = f"{self.dependent}@{self.dependent_version}>{self.name}"
            overrides = {**_strings_at(manifest, *_OVERRIDES), key: self._spec}
            manifest[section] = {
                **(existing if isinstance(existing, dict) else {}),
                inner: overrides,
            }
        manifests[path] = json.dumps(manifest)

    def holds_in(self, tree: DependencyTree) -> bool:
        """Return whether the dependent, if it is still in the tree, has that version and no other."""
        return all(
            tree.nodes[ask.to].version == self.version
            for node in self._dependents(tree)
            for ask in node.asks
            if ask.name == self.name and ask.to is not None
        )

    def _dependents(self, tree: DependencyTree) -> Iterator[Node]:
        if self.is_manifest:
            yield from (root for root in tree.roots if root.key == self.dependent)
        else:
            yield from (n for n in tree.of(self.dependent) if n.version == self.dependent_version)


def forces_of(
    files: Files, tree: DependencyTree, wanted_versions: WantedVersions
) -> tuple[_Force, ...]:
    """Return one for each dependent of a wanted package. A manifest whose range doesn't admit the version
    gets none; other dependents' ranges are not in the lock, so that only pnpm knows them."""
    forces: dict[_Force, None] = {}
    for (package, current), version in wanted_versions.items():
        for node in tree.of(package):
            dependents = tree.dependents(node.key) if node.version == current else ()
            for dependent, ask in dependents:
                is_root = tree.is_root(dependent)
                is_open = is_tag(ask.spec) or admits(ask.spec, version)
                if is_root and not (dependent.key in files.manifests and is_open):
                    continue
                who = (dependent.key, "") if is_root else (dependent.name, dependent.version)
                forces[_Force(*who, ask.name, package, version, is_manifest=is_root)] = None
    return tuple(forces)


def _addresses_of(manifests: Mapping[str, str]) -> Iterator[str]:
    """Yield the URLs that manifests require: pnpm fetches them even if they are locked."""
    key_paths = (*((section,) for section in SECTIONS), _OVERRIDES, ("resolutions",))
    for path, text in manifests.items():
        manifest = parse_manifest(path, text)
        for key_path in key_paths:
            specs = _strings_at(manifest, *key_path).values()
            yield from (spec for spec in specs if spec.startswith(("http:", "https:")))


def _strings_at(manifest: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """Return the entries that are strings, of the object at ``keys`` of a manifest."""
    value: Any = manifest
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return dict(entries(value))


@dataclass(frozen=True)
class PnpmClient:
    """The protocol ``npm.client.Client`` over pnpm-lock.yaml."""

    clients: ClientRunner
    store: ClientStore | None = field(default=None)
    name: str = field(default="pnpm", init=False)

    def tree(self, files: Files) -> DependencyTree:
        """Return the tree (``Client.tree``). The lock has the ranges of projects and of peers only."""
        return pnpm_tree(files)

    def resolve(self, files: Files, wanted_versions: WantedVersions | None = None) -> Files:
        """Resolve the files (``Client.resolve``): first with each wanted version forced on each dependent,
        then without force: a version stays if the dependent's range admits it. If some don't stay, do both
        again with the others only."""
        forces = forces_of(files, self.tree(files), wanted_versions or {})
        resolved = self._granting(files, forces)
        tree = self.tree(resolved)
        lasting = [force for force in forces if force.holds_in(tree)]
        return resolved if len(lasting) == len(forces) else self._granting(files, lasting)

    def update(self, files: Files, packages: Sequence[str]) -> Files:
        """Raise packages (``Client.update``)."""
        # Not `pnpm update`: pnpm 8 does not raise what other packages require.
        stripped = files.with_lock(without(files.lock_text, packages))
        return self._run(stripped, files.manifests, shape=files.lock_text)

    def overrides(self, files: Files, package: str) -> tuple[OverridePlace, ...]:
        """Return the workspace's ``overrides``, and the root manifest's ``pnpm.overrides`` and
        ``resolutions``, whose last part is the package."""
        path = files.root_manifest
        root, workspace = parse_manifest(path, files.manifests[path]), settings(files)
        sections: Sequence[tuple[str, tuple[str, ...], Mapping[str, Any]]] = (
            (settings_path(files), _OVERRIDES[1:], workspace),
            ("", _OVERRIDES, root),
            ("", _RESOLUTIONS, root),
        )
        return tuple(
            _place(files, root, OverridePlace((*keys, key), package, spec, file))
            for file, keys, content in sections
            for key, spec in _strings_at(content, *keys).items()
            if _target(key) == package
        )

    def with_override(self, files: Files, parent: str | None, package: str, version: str) -> Files:
        """Return the files with an override ``parent>package``: it applies to every direct dependency of
        any parent of that name. It is written to the file from which the project's pnpm reads overrides:
        from version 11 on, only the workspace's file.

        Raises RecipeError if that file doesn't exist, or an override can't be added to it."""
        key = package if parent is None else f"{parent}>{package}"
        path, workspace = files.root_manifest, settings_path(files)
        root = parse_manifest(path, files.manifests[path])
        if _WITHOUT_MANIFEST.match(str(root.get("packageManager"))) and not workspace:
            raise unsupported(
                f"{root['packageManager']} reads overrides from {FILE} only, which is not there.",
                f"Add {FILE} with `overrides: {{'{key}': {version}}}`, and run `pnpm install`.",
                kind="no_workspace_file",
            )
        if workspace and (
            "overrides" in settings(files)
            or _WITHOUT_MANIFEST.match(str(root.get("packageManager")))
        ):
            text = with_entry(files.text(workspace), "overrides", key, version)
            return files.with_manifest(workspace, text)
        return files.with_manifest(
            path, set_value(files.manifests[path], (*_OVERRIDES, key), version)
        )

    def _granting(self, files: Files, forces: Sequence[_Force]) -> Files:
        if forces:
            manifests = dict(files.manifests)
            for force in forces:
                force.upon(manifests, files.root_manifest)
            files = self._run(files, manifests)
        return self._run(files, files.manifests)

    def _run(self, files: Files, manifests: Mapping[str, str], shape: str = "") -> Files:
        """Return the files with the lock that pnpm makes of them, in a folder that is deleted afterwards.

        ``shape``: the lock whose spelling of the format's version is kept.
        """
        lock = parse_pnpm_lock(files.lock_text)
        client = PNPM[lock.format[0]]
        store = self.store or ClientStore(self.clients)
        prefix = "" if files.folder == "." else f"{files.folder}/"
        texts = {
            path.removeprefix(prefix): text
            for path, text in (files.folders | dict(manifests)).items()
        }
        workspace_settings = settings(files)
        check_carried(workspace_settings)
        texts |= {"pnpm-lock.yaml": files.lock_text, **carried_text(workspace_settings)}
        texts[MANIFEST] = carried_manifest(workspace_settings, texts[MANIFEST])
        patched = _strings_at(parse_manifest(MANIFEST, texts[MANIFEST]), *_PATCHED)
        texts = _patches(patched) | texts
        check_paths(files)
        check_addresses(_addresses_of(files.manifests))
        with scratch_project(texts, files.archives) as scratch:
            made_with = (*carried_options(workspace_settings), *_settings(lock))
            options = [*_OPTIONS, *made_with, f"--store-dir={store.place / 'pnpm-store'}"]
            arguments = ["install", *options]
            result = store.run(
                client,
                arguments,
                clients=self.clients,
                cwd=scratch,
                timeout_s=PNPM_TIMEOUT_S,
                env={"CI": "1"},
            )
            if not result.ok:
                raise unresolved(client, result, PNPM_TIMEOUT_S, files)
            new_lock = (scratch / "pnpm-lock.yaml").read_bytes().decode()
        new_lock = _with_patches(lock, new_lock)
        return files.with_lock(_as_found(shape or files.lock_text, new_lock))


def _place(files: Files, root: Mapping[str, Any], override: OverridePlace) -> OverridePlace:
    """Return the override as written, or what it refers to: a catalog's entry, a declaration's range."""
    entry = referred_entry(files, override.package, override.spec)
    if entry is None:
        return replace(override, spec=referred(root, override.spec))
    keys = (*entry.section.split(".", 1), entry.key)
    return OverridePlace(keys, override.package, entry.spec, settings_path(files))


def _target(key: str) -> str:
    """Return the package that an override's key is about."""
    match = _TARGET.fullmatch(key)
    last = match["name"] if match else key
    return "/".join(last.split("/")[-2:]) if "/@" in f"/{last}" else last.rpartition("/")[2]


def _settings(lock: PnpmLock) -> list[str]:
    """Return options by which the lock was made, whatever the user's configuration says."""
    recorded = lock.content.get("settings")
    names = {
        "autoInstallPeers": "auto-install-peers",
        "excludeLinksFromLockfile": "exclude-links-from-lockfile",
    }
    return [
        f"--config.{option}={recorded[name]}"
        for name, option in names.items()
        if isinstance(recorded, dict) and recorded.get(name) in ("true", "false")
    ]


def _patches(patched: Mapping[str, str]) -> dict[str, str]:
    """Return a text for each patch of ``patchedDependencies``, by its path: any text is good enough, as a
    lock holds only a digest of it, which ``_with_patches`` restores. Raises RecipeError for a file that is
    not a patch: pnpm could read its settings from it."""
    for package, path in patched.items():
        pure = PurePosixPath(path)
        if pure.suffix not in {".patch", ".diff"} or pure.is_absolute() or ".." in pure.parts:
            raise unsupported(
                f"patchedDependencies names {path!r} for {package!r}, which is not a patch in the project.",
                "Name a file in the project's folder that ends in .patch or .diff.",
            )
    return {path: sha256(package.encode()).hexdigest() for package, path in patched.items()}


def _with_patches(lock: PnpmLock, new_lock: str) -> str:
    """Return the lock that pnpm made with the digests that ``lock`` has of patches, which no fix changes.
    Raises RecipeError if it has none of a patch."""
    digests = _digests(lock)
    for package, digest in _digests(parse_pnpm_lock(new_lock)).items():
        if package not in digests:
            raise unsupported(
                f"The lock lacks the patch of {package} that patchedDependencies names.",
                "Run `pnpm install`, commit the lock, and try again.",
                kind="patch_missing",
            )
        new_lock = new_lock.replace(digest, digests[package])
    return new_lock


def _digests(lock: PnpmLock) -> dict[str, str]:
    """Return the digest of each patched package's patch."""
    patched = lock.content.get("patchedDependencies")
    patches = patched.items() if isinstance(patched, dict) else ()
    return {key: str(patch["hash"] if isinstance(patch, dict) else patch) for key, patch in patches}


def _as_found(before: str, new_lock: str) -> str:
    """Restore the format's version and the extensions' digest: no fix changes what they mean."""
    for key in _RESPELLED:
        pattern = re.compile(rf"^{key}: .*$", re.MULTILINE)
        line = pattern.search(before)
        new_lock = pattern.sub(line.group(), new_lock, count=1) if line else new_lock
    return in_form_of(before, new_lock)


#: Settings that locate members, and ranges that they share.
_CARRIED = ("packages", "catalog", "catalogs")

#: Settings that every pnpm reads from the root's manifest.
_MOVED = (
    "overrides",
    "packageExtensions",
    "patchedDependencies",
    "ignoredOptionalDependencies",
    "allowedDeprecatedVersions",
    "peerDependencyRules",
)

#: Settings of one word that decide what a lock holds, and are options of every pnpm.
_LOCK_OPTIONS = (
    "autoInstallPeers",
    "dedupeInjectedDeps",
    "dedupePeerDependents",
    "excludeLinksFromLockfile",
    "injectWorkspacePackages",
    "linkWorkspacePackages",
    "preferWorkspacePackages",
    "resolutionMode",
    "resolvePeersFromWorkspaceRoot",
)
_WORD = re.compile(r"[a-z0-9-]+")

#: Settings without which other packages, or other files of theirs, would be locked.
_NOT_CARRIED = re.compile(r"(?:named)?registr(?:y|ies)", re.IGNORECASE)


def check_carried(content: Mapping[str, Any]) -> None:
    """Raise RecipeError if a setting decides what is locked and can't be carried over."""
    for key in filter(_NOT_CARRIED.fullmatch, content):
        step = f"Update what is affected with the project's own pnpm, which reads {key}."
        raise not_supported(f"sets {key}, which is not carried over", step)


def carried_options(content: Mapping[str, Any]) -> list[str]:
    """Return the options that give any pnpm these settings."""
    values = {key: content[key] for key in _LOCK_OPTIONS if isinstance(content.get(key), str)}
    return [
        f"--config.{re.sub('[A-Z]', lambda match: f'-{match[0].lower()}', key)}={value}"
        for key, value in values.items()
        if _WORD.fullmatch(value)
    ]


def carried_manifest(content: Mapping[str, Any], manifest: str) -> str:
    """Return the root's package.json with the settings that every pnpm reads there; its own overrides come
    first. Raises RecipeError."""
    moved = {key: content[key] for key in _MOVED if key in content}
    if not moved:
        return manifest
    check_named(FILE, moved)
    facts = parse_manifest(MANIFEST, manifest)
    section = facts.get("pnpm")
    own_settings = section if isinstance(section, dict) else {}
    for key, value in moved.items():
        if isinstance(value, dict) and isinstance(own_settings.get(key), dict):
            moved[key] = {**value, **own_settings[key]}
    return json.dumps({**facts, "pnpm": {**own_settings, **moved}})


def carried_text(content: Mapping[str, Any]) -> dict[str, str]:
    """Return a settings file that only locates members and has shared ranges."""
    import yaml

    globs = content.get("packages")
    for glob in globs if isinstance(globs, list) else ():
        if is_outside(str(glob)):
            problem = f"names {glob!r}, which is outside of the repository"
            raise not_supported(problem, f"Remove {glob!r} from {FILE}.", kind="outside")
    carried = {key: content[key] for key in _CARRIED if key in content}
    if carried:
        carried.setdefault("packages", ["."])  # older releases of pnpm require it
    return {FILE: yaml.safe_dump(carried, default_flow_style=False)} if carried else {}
