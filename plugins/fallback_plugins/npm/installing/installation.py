"""One npm project of one tree: what it declares, installing it, running its commands.

Installing is a ladder (ADR-0039), the most exact way first:

1. the project's client follows its lock;
2. the client resolves again what the lock does not answer;
3. npm alone, from the manifests;
4. npm installs only what the project runs with, and its test tools.

npm also tries each with its older rule for peers, if the newer one prevents it. The first way that works
counts; each that fails is recorded with its client's own reason. Downloads run outside the sandbox, over
copies of texts, with all scripts disabled. The installed packages are stored as a read-only layer below
the tree; commands in the tree run inside the sandbox.
"""

import json
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.by_lock import client_for
from fallback_plugins.npm.clients.hosts import run_client
from fallback_plugins.npm.clients.npm_run import WITHOUT_PEERS, peer_options
from fallback_plugins.npm.clients.pnpm import PNPM, carried_manifest, carried_text
from fallback_plugins.npm.clients.provision import NO_GIT, ClientStore, PinnedClient
from fallback_plugins.npm.clients.scopes import scoped
from fallback_plugins.npm.clients.scratch import NEST, check_lock_names, check_places
from fallback_plugins.npm.clients.words import own_words
from fallback_plugins.npm.clients.yarn import ENVIRONMENT, HOOKS, YARN
from fallback_plugins.npm.installing.modules_layer import Package, gather, layered, packages_in
from fallback_plugins.npm.locks.addresses import registry_prefixes
from fallback_plugins.npm.locks.pnpm_lock import parse_pnpm_lock, without_importers
from fallback_plugins.npm.locks.yarn_lock import berry_compression, berry_format
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    LOCKS,
    MANIFEST,
    MEMBER_SECTIONS,
    PNPM_LOCK,
    SECTIONS,
    YARN_LOCK,
    entries,
    in_folder,
    is_manifest,
    mapping,
    parse_manifest,
    readable_manifest,
    texts_of,
)
from fallback_plugins.npm.manifests.pnpm_workspace import settings
from fallback_plugins.npm.surveying.projects import Site, manifest_folders, matching, site_of
from fallback_plugins.npm.surveying.resolutions import CommandResolution
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.installation import (
    Installed,
    Level,
    interpreters,
    left_out_reason,
    today,
    version_of,
)
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    ResolvedPackage,
)
from fallback_plugins.shared.store import InstalledStore, Wanted
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory import compare_versions, sort_key
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.files.tree import FileTree
from fallback_tier.gate_ports import GateContext, SuiteTime
from fallback_tier.repo import RepoContext

#: The last yarn of each line that this Node runs, by the lowest format of yarn.lock that it writes.
BERRY = {
    8: PinnedClient(
        "@yarnpkg/cli-dist",
        "4.9.4",
        "sha512-q504Eb++phLdYrVWhHLNpTwlwPkqz+w/+ydkSJUIP2SWKPUoeIllFD0xGVAWOR0pImxYwEjaRVXfdfVeJP6wqA==",
        "bin/yarn.js",
        "82fe2034dc42ce74d2b165c6469a29ceab03be22f21923ab08232ae11b11c254",
        "yarn",
    ),
    0: PinnedClient(
        "@yarnpkg/cli-dist",
        "3.8.7",
        "sha512-YMoAlLR9f+kxXjK72ggBIidi3ulQQrQpMSxzrLUt0OUk9Xdst2v26LBSYFlzOm+7KRNWgYIJpFjA8uRnCgB5xQ==",
        "bin/yarn.js",
        "41a86ee8fcde7091d514e36ce9a8d7e3027e89ff94599ab210b8fe0cddf2cbcd",
        "yarn",
    ),
}

_NPM = (
    "--ignore-scripts",
    "--include=dev",
    "--install-links=false",
    "--allow-git=none",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=error",
    "--logs-max=0",
)

_YARN = ("--ignore-scripts", "--ignore-engines", "--non-interactive", "--no-progress", "--no-emoji")

_PNPM = (
    "--ignore-scripts",
    "--ignore-pnpmfile",
    "--reporter=append-only",
    "--package-import-method=copy",
    # One folder of modules, as npm makes it, without paths of this machine.
    "--config.node-linker=hoisted",
    "--config.extend-node-path=false",
    # By default, it waits a minute before its third request for something that is missing.
    "--config.fetch-retry-maxtimeout=5000",
    "--config.fetch-retry-mintimeout=1000",
    "--config.strict-peer-dependencies=false",
    "--config.engine-strict=false",
    "--config.package-manager-strict=false",
    "--config.manage-package-manager-versions=false",
)

_BERRY_ENVIRONMENT = {
    "YARN_IGNORE_PATH": "1",
    "YARN_NODE_LINKER": "node-modules",
    "YARN_NM_HOISTING_LIMITS": "none",
    "YARN_ENABLE_SCRIPTS": "false",
    "YARN_ENABLE_TELEMETRY": "false",
    "YARN_ENABLE_COLORS": "false",
    "YARN_ENABLE_PROGRESS_BARS": "false",
}


#: Names packages that lerna installs and links, also if they are not members of a workspace.
LERNA = "lerna.json"

_DEV = "devDependencies"
_WORKSPACE = "workspace:"


def yarn_for(lock_text: str) -> PinnedClient:
    """Return the yarn that writes a lock's format."""
    written = berry_format(lock_text)
    if written is None:
        return YARN
    return next(client for lowest, client in BERRY.items() if written >= lowest)


@dataclass(frozen=True)
class Inputs:
    """One project's texts by path in the repository.

    ``files``: with every package.json of the repository, as a project can require any of its folders; the
    client runs in the folder of the workspace. ``own``: the manifests of the root and its members.
    ``patches``: patch files that a manifest or the lock names. ``bootstrapped``: manifests of lerna's
    packages that are not members.
    """

    files: Files
    own: tuple[str, ...]
    patches: Mapping[str, str] = field(default_factory=dict)
    bootstrapped: tuple[str, ...] = ()

    @classmethod
    def of(cls, repo: RepoContext, folder: str) -> "Inputs":
        """Return the inputs of the project to which a folder belongs. Raises RepositoryError."""
        site = site_of(repo, folder)
        read = replace(site, lock=None) if site.lock and site.lock.endswith(".lockb") else site
        files = read.files(repo)
        manifests = dict(files.manifests)
        for path in repo.tracked_files:
            if is_manifest(path) and PurePosixPath(path).name == MANIFEST and path not in manifests:
                with suppress(RepositoryError):  # a fixture's manifest, which no project requires
                    manifests[path] = repo.read_text(path)
        inputs = cls(replace(files, manifests=manifests, lock=site.lock), site.manifests)
        bootstrapped = tuple(path for path in _lernas_manifests(repo, site) if path in manifests)
        return replace(inputs, patches=_patches(repo, inputs), bootstrapped=bootstrapped)

    @property
    def declares(self) -> bool:
        """Return whether there is anything to install, or to link."""
        return (
            len(self.own) > 1
            or bool(self.bootstrapped)
            or any(manifest.get(section) for manifest in self._manifests for section in SECTIONS)
        )

    @property
    def _manifests(self) -> Iterator[Mapping[str, Any]]:
        return (parse_manifest(path, self.files.manifests[path]) for path in self.own)

    @property
    def own_files(self) -> Files:
        """Return its files without the manifests of other projects."""
        return replace(
            self.files, manifests={path: self.files.manifests[path] for path in self.own}
        )

    @property
    def lock_name(self) -> str:
        """Return the lock's file name; empty if there is none."""
        return PurePosixPath(self.files.lock or "").name

    @property
    def identity(self) -> tuple[object, ...]:
        """Return everything that decides what is installed."""
        files = self.files
        texts = [dict(files.manifests), dict(files.settings or {}), dict(self.patches)]
        return (files.folder, *texts, files.lock, files.lock_text, self.bootstrapped)

    @property
    def client(self) -> str:
        """Return the client that is tried first: the lock's, or npm."""
        return {YARN_LOCK: "yarn", PNPM_LOCK: "pnpm"}.get(self.lock_name, "npm")

    def texts(self, *, locked: bool) -> dict[str, str]:
        """Return the texts to copy by path; ``locked``: with the lock."""
        files = self.files if locked else replace(self.files, lock=None)
        return {**files.texts, **self.patches}

    def for_npm(self) -> "Inputs":
        """Return the inputs for npm: the root's manifest names the members; no spec is ``workspace:``."""
        manifests = {
            path: _without_workspace_specs(self.files.manifests[path]) for path in self.own
        }
        path = self.files.root_manifest
        if self.members and path in manifests:
            facts = parse_manifest(path, manifests[path])
            manifests[path] = json.dumps({**facts, "workspaces": list(self.members)})
        return self._with(manifests)

    @property
    def members(self) -> tuple[str, ...]:
        """Return the folders of the workspace's members, below the root."""
        prefix = "" if self.files.folder == "." else f"{self.files.folder}/"
        return tuple(str(PurePosixPath(path).parent).removeprefix(prefix) for path in self.own[1:])

    @property
    def private_members(self) -> tuple[str, ...]:
        """Return the members that are never published (sites, examples), if others are."""
        members = zip(self.members, [*self._manifests][1:], strict=True)
        private = [member for member, manifest in members if manifest.get("private") is True]
        return tuple(private) if len(private) < len(self.members) else ()

    def for_tests(self) -> tuple["Inputs", dict[str, list[str]]]:
        """Return the inputs with only dependencies and test tools, and the names of what is left out."""
        private = self.private_members
        members = zip(self.members, self.own[1:], strict=True)
        public = [path for member, path in members if member not in private]
        fewer = replace(self, own=(*self.own[:1], *public)).for_npm() if private else self
        texts, other_dependencies = {}, dict[str, None]()
        for path, facts in zip(fewer.own, fewer._manifests, strict=True):
            declared, tools = facts.get(_DEV), test_tools(facts)
            if isinstance(declared, dict):
                test_dependencies = {name: spec for name, spec in declared.items() if name in tools}
                other_dependencies |= dict.fromkeys(name for name in declared if name not in tools)
                texts[path] = json.dumps({**facts, _DEV: test_dependencies})
        left_out = {
            "private members": list(private),
            "other devDependencies": list(other_dependencies),
        }
        return fewer._with(texts), {what: names for what, names in left_out.items() if names}

    def _with(self, manifests: Mapping[str, str]) -> "Inputs":
        both = {**self.files.manifests, **manifests}
        return replace(self, files=replace(self.files, manifests=both))


def write(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts below a folder, byte for byte."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())


def _lernas_manifests(repo: RepoContext, site: Site) -> tuple[str, ...]:
    path = in_folder(site.folder, LERNA)
    if len(site.manifests) > 1 or not repo.has(path):
        return ()
    patterns = texts_of(readable_manifest(repo, path), "packages")
    folders = matching(site.folder, patterns, manifest_folders(repo))
    return tuple(in_folder(member, MANIFEST) for member in folders)


def _without_workspace_specs(text: str) -> str:
    """Return a manifest with "*" instead of ``workspace:`` specs: npm takes the workspace's package."""
    facts = parse_manifest(MANIFEST, text)
    if _WORKSPACE not in text:
        return text
    changed = {
        section: {
            name: "*" if str(spec).startswith(_WORKSPACE) else spec
            for name, spec in facts[section].items()
        }
        for section in MEMBER_SECTIONS
        if isinstance(facts.get(section), dict)
    }
    return json.dumps({**facts, **changed})


def _patches(repo: RepoContext, inputs: Inputs) -> dict[str, str]:
    texts = (inputs.files.manifests[path] for path in inputs.own)
    all_texts, patches = "".join([inputs.files.lock_text, *texts]), {}
    for path in repo.tracked_files:
        if path.endswith(".patch") and PurePosixPath(path).name in all_texts:
            with suppress(RepositoryError):  # the client reports what it lacks
                patches[path] = repo.read_text(path)
    return patches


#: A package with one of these words in its name runs tests, measures them, or is for use in them.
_WORDS = frozenset(
    {
        *("ava", "jasmine", "jest", "karma", "mocha", "qunit", "tap", "tape", "uvu", "vitest"),
        *("c8", "chai", "expect", "istanbul", "nyc", "sinon", "testing"),
    }
)

#: Further packages that test runs need.
_NAMES = frozenset(
    {
        *(
            "babel-core",
            "babel-register",
            "esbuild",
            "esm",
            "ts-node",
            "tslib",
            "tsx",
            "typescript",
        ),
        *("cross-env", "npm-run-all", "run-s", "nock", "proxyquire", "should", "supertest"),
    }
)
_SCOPES = ("@babel/", "@swc/", "@types/node")

_PART = re.compile(r"[^a-z0-9]+")
_SCRIPT = re.compile(r"(?:pre|post)?test(?::.*)?")


def test_tools(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Return the ``devDependencies`` that are known test tools, or that a test script names."""
    dev_dependencies = mapping(manifest.get(_DEV))
    scripts = entries(manifest.get("scripts"))
    commands = (text for name, text in scripts if _SCRIPT.fullmatch(name))
    words = {word for text in commands for word in re.split(r"[\s;&|=]+", text)}
    return frozenset(
        name
        for name in dev_dependencies
        if name in words
        or name in _NAMES
        or name.startswith(_SCOPES)
        or not _WORDS.isdisjoint(_PART.split(name))
    )


@dataclass(frozen=True)
class Commands:
    """The clients, and the folders in which they cache downloads.

    They run outside the sandbox, over copies of texts: no script runs, no git repository is cloned, and no
    configuration of the target is read. The clients that we run on node can't start programs: a lock can
    name a generator, or a repository to be packed, and nothing else would stop those.
    """

    clients: ClientRunner
    store: ClientStore
    cache: Path
    timeout_s: float

    def npm(self, inputs: Inputs, folder: Path, words: Sequence[str]) -> CommandResult:
        """Run the user's npm."""
        options = [*_NPM, *peer_options(inputs.files), f"--cache={self.cache / 'npm'}"]
        command = [*words, *dict.fromkeys(options)]
        return run_client(
            self.clients, "npm", command, cwd=folder, timeout_s=self.timeout_s, env=NO_GIT
        )

    def yarn(
        self, folder: Path, words: Sequence[str], *, only_resolves: bool = False
    ) -> CommandResult:
        """Run our yarn classic. ``only_resolves``: it writes the lock, and installs nothing."""
        cache = self.cache / "yarn"
        cache_options = [f"--cache-folder={cache}", f"--mutex=file:{cache}.mutex"]
        hooks = HOOKS if only_resolves else ""
        return self._node(
            YARN, folder, ["install", *_YARN, *cache_options, *words], ENVIRONMENT, hooks
        )

    def berry(
        self, client: PinnedClient, folder: Path, compression: str, *, frozen: bool
    ) -> CommandResult:
        """Run our yarn 2 or later. It reads no npm configuration, so the registry is passed."""
        registry = self.registry(folder)
        env = {
            **_BERRY_ENVIRONMENT,
            "YARN_GLOBAL_FOLDER": str(self.cache / client.folder.replace("@", "")),
            "YARN_ENABLE_IMMUTABLE_INSTALLS": "true" if frozen else "false",
            "YARN_NPM_REGISTRY_SERVER": registry,
            "YARN_COMPRESSION_LEVEL": compression,
        }
        if registry.startswith("http:"):
            env["YARN_UNSAFE_HTTP_WHITELIST"] = registry.split("/")[2].partition(":")[0]
        # Without this the scripts of the root and of members run, even with scripts disabled.
        return self._node(client, folder, ["install", "--mode=skip-build"], env)

    def pnpm(self, client: PinnedClient, folder: Path, words: Sequence[str]) -> CommandResult:
        """Run the pnpm of the lock's format."""
        options = [*_PNPM, f"--store-dir={self.store.place / 'pnpm-store'}"]
        return self._node(client, folder, ["install", *options, *words], {"CI": "1"})

    def registry(self, folder: Path) -> str:
        """Return npm's registry, in a folder without configuration."""
        ask = ["config", "get", "registry", "--loglevel=error"]
        result = self.clients.run("npm", ask, cwd=folder, timeout_s=self.timeout_s)
        return (result.output.split() or [""])[-1]

    def _node(
        self,
        client: PinnedClient,
        folder: Path,
        words: Sequence[str],
        env: Mapping[str, str],
        hooks: str = "",
    ) -> CommandResult:
        try:
            return self.store.run(
                client,
                words,
                clients=self.clients,
                cwd=folder,
                timeout_s=self.timeout_s,
                env=env,
                hooks=hooks,
            )
        except RecipeError as error:  # the ladder's reason for this step
            return CommandResult(argv=("npm",), exit_code=1, output=error.problem, duration_ms=0)


#: Characters of a client's output in a step's reason.
_MAX_WORDS = 300

#: Lines in which yarn and pnpm report errors.
_ERROR = re.compile(
    r"^(?:error:? |(?!WARN).*\bERR_PNPM|➤ YN(?!0000|0007|0013)\d{4}:(?! │ [+-])|\[ERR)|Error:"
)

#: A user and a password in an address of a lock: they are not recorded.
_CREDENTIALS = re.compile(r"(https?://)[^/@\s\"']+@")

#: npm's refusal of a lock ends with how it is used.
_USAGE = "; Clean install a project; Usage"


@dataclass(frozen=True)
class InstallStep:
    """One way to install. ``run`` gets the folder of the copies; ``left_out``: what it does not install.

    ``where``: text that the reason of the step before must contain for this step to be tried. ``lock``:
    path of the lock that the client writes while it resolves; empty: it follows the project's lock.
    """

    name: str
    level: Level
    texts: Mapping[str, str]
    run: Callable[[Path], CommandResult]
    left_out: tuple[tuple[str, str], ...] = ()
    where: str = ""
    lock: str = ""

    @property
    def is_frozen(self) -> bool:
        """Return whether the project's lock decides everything."""
        return not self.lock


def steps(inputs: Inputs, commands: Commands) -> Iterator[InstallStep | tuple[str, str]]:
    """Yield each step, or (name, reason) if one can't be tried."""
    name = inputs.lock_name
    if inputs.bootstrapped and (not name or name in LOCKS):
        # lerna links its packages without a lock; npm does so if they are members.
        both = replace(inputs, own=(*inputs.own, *inputs.bootstrapped)).for_npm()
        what = f"npm install with the packages of {LERNA}"
        yield from _by_npm(both, commands, what, Level.EVERYTHING, "install", locked=True)
    if name in LOCKS:
        yield from _by_npm(inputs, commands, "npm ci", Level.EVERYTHING, "ci", locked=True)
        what = f"npm install, {name} beside it"
        yield from _by_npm(inputs, commands, what, Level.IN_PART, "install", locked=True)
        yield from _for_tests(inputs, commands, locked=True)
        # The lock can name what is not available any more.
        yield from _from_manifests(inputs, commands, Level.IN_PART)
        return
    if name == YARN_LOCK:
        yield from _by_yarn(inputs, commands)
    elif name == PNPM_LOCK:
        yield from _by_pnpm(inputs, commands)
    elif name:
        yield name, "no client of ours follows it"
    level = Level.IN_PART if name else Level.EVERYTHING
    yield from _from_manifests(inputs.for_npm(), commands, level)


def _from_manifests(inputs: Inputs, commands: Commands, level: Level) -> Iterator[InstallStep]:
    name = "npm install" if level is Level.EVERYTHING else "npm install without a lock"
    yield from _by_npm(inputs, commands, name, level, "install", locked=False)
    yield from _for_tests(inputs, commands, locked=False)


def _for_tests(inputs: Inputs, commands: Commands, *, locked: bool) -> Iterator[InstallStep]:
    """Yield steps without other development dependencies; none if there are no others."""
    fewer, left_out = inputs.for_tests()
    if not left_out:
        return
    reasons = tuple((what, left_out_reason(names)) for what, names in left_out.items())
    name = "npm install of what it runs with and its test runner"
    name += f", {inputs.lock_name} beside it" if locked else ""
    words = ("install", WITHOUT_PEERS)
    for step in _by_npm(fewer, commands, name, Level.IN_PART, *words, locked=locked):
        yield replace(step, left_out=reasons)


def _by_npm(
    inputs: Inputs, commands: Commands, name: str, level: Level, *words: str, locked: bool
) -> Iterator[InstallStep]:
    """Yield a step, and one by npm's older rule for peers, unless the step or the project sets that.
    ``locked``: the project's lock is next to the manifests."""
    files, texts, is_ci = inputs.files, inputs.texts(locked=locked), words[0] == "ci"
    lock = files.lock if files.lock in texts else in_folder(files.folder, LOCKS[-1])
    run = partial(commands.npm, inputs, words=[*words, "--package-lock"])
    step = InstallStep(name, level, texts, run, lock="" if is_ci else str(lock))
    yield step
    if WITHOUT_PEERS not in words and not peer_options(files):
        run = partial(commands.npm, inputs, words=[*words, WITHOUT_PEERS, "--package-lock"])
        # A lock that was made by the older rule looks incomplete by the newer one.
        where = "" if is_ci else "ERESOLVE"
        yield replace(step, name=f"{name} {WITHOUT_PEERS}", run=run, where=where)


def _by_yarn(inputs: Inputs, commands: Commands) -> Iterator[InstallStep | tuple[str, str]]:
    client, texts = yarn_for(inputs.files.lock_text), inputs.texts(locked=True)
    if client is YARN:
        frozen = "--frozen-lockfile"

        def resolve(folder: Path) -> CommandResult:
            _at_our_registry(folder / YARN_LOCK, commands.registry(folder))
            return commands.yarn(folder, (), only_resolves=True)

        def install(folder: Path) -> CommandResult:
            _at_our_registry(folder / YARN_LOCK, commands.registry(folder))
            # Resolving marked the packages as installed, so yarn has to check the files.
            return commands.yarn(folder, [frozen, "--check-files"])

        whole = partial(_resolved_first, YARN_LOCK, resolve, install)
        yield InstallStep(f"{YARN.label} {frozen}", Level.EVERYTHING, texts, install)
        name = f"{YARN.label} without {frozen}"
        yield InstallStep(name, Level.IN_PART, texts, whole, lock=str(inputs.files.lock))
        return
    compression = berry_compression(inputs.files.lock_text)

    def berry(*, frozen: bool) -> Callable[[Path], CommandResult]:
        return lambda folder: commands.berry(client, folder, compression, frozen=frozen)

    yield InstallStep(f"{client.label} --immutable", Level.EVERYTHING, texts, berry(frozen=True))
    name = f"{client.label} without --immutable"
    yield InstallStep(name, Level.IN_PART, texts, berry(frozen=False), lock=str(inputs.files.lock))


def _by_pnpm(inputs: Inputs, commands: Commands) -> Iterator[InstallStep | tuple[str, str]]:
    try:
        client = PNPM[parse_pnpm_lock(inputs.files.lock_text).format[0]]
        texts = _pnpm_texts(inputs)
    except RecipeError as error:
        yield inputs.lock_name, error.problem
        return
    frozen = "--frozen-lockfile"

    def run(*words: str) -> Callable[[Path], CommandResult]:
        return lambda folder: commands.pnpm(client, folder, words)

    yield InstallStep(f"{client.label} {frozen}", Level.EVERYTHING, texts, run(frozen))
    if private := inputs.private_members:
        name = f"{client.label} {frozen} without private members"
        left_out = (("private members", left_out_reason(private)),)
        published = _published(inputs, texts)
        yield InstallStep(name, Level.IN_PART, published, run(frozen), left_out)
    resolve = run("--no-frozen-lockfile", "--lockfile-only")
    whole = partial(_resolved_first, PNPM_LOCK, resolve, run(frozen))
    name = f"{client.label} without {frozen}"
    yield InstallStep(name, Level.IN_PART, texts, whole, lock=str(inputs.files.lock))


def _resolved_first(
    lock: str,
    resolve: Callable[[Path], CommandResult],
    install: Callable[[Path], CommandResult],
    folder: Path,
) -> CommandResult:
    """Resolve, check the names in the lock, and install what was resolved."""
    result = resolve(folder)
    if not result.ok:
        return result
    try:
        check_lock_names(lock, (folder / lock).read_text("utf-8"))
    except (OSError, RecipeError) as error:
        why = error.problem if isinstance(error, RecipeError) else f"{lock} can't be read"
        return result.model_copy(update={"exit_code": 1, "output": f"error: {why}\n"})
    return install(folder)


def _pnpm_texts(inputs: Inputs) -> dict[str, str]:
    content = settings(inputs.files)
    texts = inputs.texts(locked=True)
    for path, text in carried_text(content).items():
        texts[in_folder(inputs.files.folder, path)] = text
    path = in_folder(inputs.files.folder, MANIFEST)
    texts[path] = carried_manifest(content, texts[path])
    return texts


def _published(inputs: Inputs, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a workspace without its private members."""
    private = inputs.private_members
    public = [member for member in inputs.members if member not in private]
    fewer = dict(texts)
    for path, text in carried_text({**settings(inputs.files), "packages": public}).items():
        fewer[in_folder(inputs.files.folder, path)] = text
    return {**fewer, str(inputs.files.lock): without_importers(inputs.files.lock_text, private)}


def _at_our_registry(lock: Path, registry: str) -> None:
    """Replace a lock's registry by the one that this machine reaches, as npm does, so that yarn fetches
    from there; the lock's digests still count."""
    text = lock.read_text(encoding="utf-8")
    for prefix in registry_prefixes(text):
        text = text.replace(f'resolved "{prefix}', f'resolved "{registry.rstrip("/")}/')
    lock.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Earlier:
    """Earlier choices of a client, kept if the texts admit them. ``lock``: the lock that it
    wrote at ``path``, made from the project's own, ``before``. All may be empty."""

    path: str = ""
    lock: str = ""
    before: str = ""


#: Changes with the way of installing, so that no result of an older version is used.
_FORMAT = 7


class Installation:
    """One project folder of one tree (patched, or the base commit's); what is installed is read once."""

    def __init__(self, context: GateContext, repo: RepoContext, folder: str) -> None:
        self.context = context
        self._repo = repo
        self.folder = folder
        self.manifest = in_folder(folder, MANIFEST)
        self._store = InstalledStore.of(context)
        self._place: Path | None = None
        self._facts = parse_manifest(self.manifest, repo.read_text(self.manifest))

    @cached_property
    def inputs(self) -> Inputs:
        """Return the inputs; a workspace's member has its workspace's. Raises RepositoryError."""
        return Inputs.of(self._repo, self.folder)

    @property
    def scripts(self) -> Mapping[str, str]:
        """Return its scripts by name."""
        return dict(entries(self._facts.get("scripts")))

    def install(self) -> Installed:
        """Install as much as possible, once for these manifests. Versions that no lock of the project
        decides are those of the base commit, except what the patch moves (ADR-0102).

        Raises RecipeError, RepositoryError (a manifest can't be read), ToolMissingError; ToolFailedError if
        no registry answers, or if what was resolved for this fix is not available any more.
        """
        if not self.inputs.declares:
            return Installed(Level.EVERYTHING)
        return Installed.kept(self._entry())

    def contents(self) -> str:
        """Return everything that a run in it uses, as a text: a run with another text is another run.
        Raises as ``install`` does."""
        here = interpreters(self.context.clients)
        if not self.inputs.declares:
            return f"{self.wanted.asked} {here}"
        return f"{self.wanted.asked} {self._store.digest(self._entry())} {here}"

    def packages(self) -> Iterator[Package]:
        """Yield the packages that are installed already, nested ones too."""
        entry = self._found()
        return iter(()) if entry is None else iter(_packages(entry, self._store.digest(entry)))

    def copies(self, package: str) -> tuple[Package, ...] | None:
        """Return what is installed as a package, or in a folder of its name; None if that does not show
        what users get: nothing is installed, or not by the project's lock. Raises as ``found``, OSError."""
        installed = self.found()
        if installed is None or installed.level is Level.METADATA:
            return None
        if self.inputs.lock_name and not installed.by_lock:
            return None
        return tuple(copy for copy in self.packages() if package in (copy.own_name, copy.name))

    def found(self) -> Installed | None:
        """Return what is installed already; None if no installation was tried."""
        entry = self._found()
        return None if entry is None else Installed.kept(entry)

    @property
    def tree(self) -> FileTree:
        """Return the tree with what was installed for this project."""
        entry = self._found() if self.inputs.declares else None
        return self._repo.tree if entry is None else layered(self._repo.tree, entry)

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
        suite_time: SuiteTime | None = None,
        servers: Sequence[str] = (),
    ) -> CommandResult:
        """Run a command in the sandbox, in the tree's root; the output's paths are relative. ``servers``:
        those that it starts; ``suite_time``: as for ``gating.run_as_given``. Raises SandboxError."""
        time = suite_time or SuiteTime(self.context.timeout_s)
        result = self.context.sandbox.run(
            argv,
            worktree=self.tree,
            timeout_s=time.limit_s,
            silent_s=time.silent_s,
            env=env,
            readable=readable,
            servers=servers,
        )
        return result.model_copy(update={"output": gating.relative_log(result, self._repo.root)})

    def in_tree(self, tree: RepoContext, context: GateContext | None = None) -> "Installation":
        """Return the same project in another tree; ``context``: whose limits apply."""
        return Installation(context or self.context, tree, self.folder)

    @property
    def at_base(self) -> "Installation":
        """Return the base commit's installation, even if it is the same as this. Raises RepositoryError,
        RecipeError."""
        return self.in_tree(self.context.repo)

    def _entry(self) -> Path:
        if self._place is None:
            if not self.inputs.lock_name and self.base is not self:
                self.base.install()
            self._place = self._store.installed(self.wanted, self._make)
        return self._place

    def _found(self) -> Path | None:
        self._place = self._place or self._store.find_for(self.wanted)
        return self._place

    def _make(self, entry: Path, recorded: Resolution | None) -> tuple[Installed, Resolution]:
        installed, chosen = self._install(entry, recorded)
        by_lock, client = chosen is None, self._followed(recorded).client
        resolution = Resolution(
            ecosystem=ECOSYSTEM,
            command=InstallCommand(
                client=client, files=(self.manifest,), label=f"{client} for {self.manifest}"
            ),
            by=ResolvedBy.LOCK if by_lock else ResolvedBy.CLIENT,
            client=version_of("npm", self.context.clients),
            reason="" if installed.absent is None else _plain(installed.in_words),
            made_on=None if by_lock else date.fromisoformat(today()),
            lock="" if chosen is None else chosen.lock,
            lock_path="" if chosen is None else chosen.path,
            packages=()
            if by_lock
            else tuple(
                ResolvedPackage(
                    key=package.place,
                    name=_plain(package.own_name),
                    version=_plain(package.version),
                )
                for package in packages_in(entry)
            ),
        )
        return installed, resolution

    def _install(
        self, entry: Path, recorded: Resolution | None
    ) -> tuple[Installed, Earlier | None]:
        """Install into ``entry``. Return also what the client chose, None if the project's lock decides.
        Raises ToolFailedError if no registry answers, or as ``resolution``; ToolMissingError."""
        context, inputs = self.context, self._followed(recorded)
        try:
            check_places(inputs.files, inputs.patches)
        except RecipeError as error:  # a client would read what is at those paths
            return Installed(Level.METADATA, (("all of it", error.problem),)), Earlier()
        clients, store = scoped(inputs.files, context.clients), ClientStore(context.clients)
        commands = Commands(clients, store, context.cache, context.timeout_s)
        declined: list[tuple[str, str]] = []
        for step in steps(inputs, commands):
            if not isinstance(step, InstallStep):
                declined.append(step)
                continue
            if step.where and step.where not in declined[-1][1]:
                continue
            texts = dict(step.texts)
            if not step.is_frozen and (
                earlier_lock := self._kept(step, self._earlier(recorded), clients)
            ):
                texts[step.lock] = earlier_lock
            why, lock = self._try(commands, step, texts, entry)
            if why is None:
                by_lock = self.inputs.files.lock in step.texts
                missing = (*declined, *step.left_out)
                installed = Installed(step.level, missing, step=step.name, by_lock=by_lock)
                if not step.is_frozen:
                    return installed, Earlier(step.lock, lock)
                return installed, None if self.inputs.lock_name else self._earlier(recorded)
            declined.append((step.name, why))
        return Installed(Level.METADATA, tuple(declined)), Earlier()

    def _kept(self, step: InstallStep, earlier: Earlier, clients: ClientRunner) -> str:
        """Return the lock that a step begins from: the base commit's, with what the patch changes in it."""
        lock = step.texts.get(step.lock, "")
        if not earlier.lock or earlier.path != step.lock:
            return lock
        if lock in {"", earlier.before}:
            return earlier.lock
        # A lock in a format that our clients don't write stays as it is.
        with suppress(RecipeError, RepositoryError, ToolError):
            files, client = self._site.files(self._repo), client_for(step.lock, clients)
            before, after = (client.tree(files.with_lock(text)) for text in (earlier.before, lock))
            moved = _moved(before, after)
            resolved = client.resolve(files.with_lock(earlier.lock), moved)
            releases = {(node.name, node.version) for node in client.tree(resolved).nodes.values()}
            if releases.issuperset((name, version) for (name, _), version in moved.items()):
                return resolved.lock_text
        return lock

    def _followed(self, recorded: Resolution | None) -> Inputs:
        """Return the inputs; with yarn's or pnpm's lock, if that client resolved a project without one."""
        earlier = Earlier() if self.inputs.lock_name else self._earlier(recorded)
        if PurePosixPath(earlier.path).name not in {YARN_LOCK, PNPM_LOCK}:
            return self.inputs
        files = replace(self.inputs.files, lock=earlier.path, lock_text=earlier.lock)
        return replace(self.inputs, files=files)

    def _earlier(self, recorded: Resolution | None) -> Earlier:
        """Return what was resolved for this fix, of these manifests or of the base commit's."""
        first, base = self, self.base
        if recorded is None and self._start is not None:
            return self._start
        if recorded is None and base is not self and base.inputs.declares:
            first, recorded = base, base.resolution
        if recorded is None:
            return Earlier()
        return Earlier(recorded.lock_path, recorded.lock, first.inputs.files.lock_text)

    def _try(
        self, commands: Commands, step: InstallStep, texts: dict[str, str], entry: Path
    ) -> tuple[str | None, str]:
        """Return why a step failed (None: it worked), and the lock that the client left."""
        with gating.scratch(self.context) as scratch:
            # This deep, relative paths in the texts stay inside the scratch folder.
            project = scratch.joinpath(*("in" for _ in range(NEST)))
            write(texts, project)
            result = step.run(project / self.inputs.files.folder)
            # A lock, or a manifest, can name other hosts than the registry's.
            silent = frozenset() if result.ok else gating.unreached(result.output)
            elsewhere = result.refused_hosts or (
                silent and silent.isdisjoint(gating.hosts(commands.registry(project)))
            )
            if result.timed_out or not elsewhere:
                gating.check_reachable(step.name.partition(" ")[0], result)
            if result.ok:
                lock = ""
                with suppress(OSError):  # without dependencies no lock is written
                    text = (project / step.lock).read_text("utf-8", "replace") if step.lock else ""
                    lock = _CREDENTIALS.sub(r"\1", text)
                gather(project, step.texts, entry)
                return None, lock
            log = gating.relative_log(result, project)
            return words(result.model_copy(update={"output": log})), ""

    @property
    def resolution(self) -> Resolution:
        """Return the project's resolution in this fix. Raises as ``install`` does."""
        self._entry()
        return self._store.resolved(self.wanted)

    @cached_property
    def base(self) -> "Installation":
        """Return the base commit's installation; itself, if that has the same texts or can't be read."""
        base = self.context.repo
        if self._repo is base or not base.has(self.manifest):
            return self
        with suppress(RecipeError, RepositoryError):
            installation = self.at_base
            if installation.inputs.identity != self.inputs.identity:
                return installation
        return self

    @cached_property
    def _site(self) -> Site:
        return site_of(self._repo, self.folder)

    @cached_property
    def _start(self) -> Earlier | None:
        """Return what the recipe resolved these manifests to, or None."""
        with suppress(RecipeError, RepositoryError):
            files = self._site.files(self._repo)
            lock, clients = self._site.client_lock(files), self.context.clients
            nearest = CommandResolution(files, lock, clients, self.context.repo).nearest
            if nearest is not None:
                text = _CREDENTIALS.sub(r"\1", nearest.lock_text)
                return Earlier(nearest.lock or "", text, files.lock_text)
        return None

    @cached_property
    def wanted(self) -> Wanted:
        """Return everything that decides what is installed except the resolution: texts, clients, node, the
        machine; for a patched tree also the base commit's texts, whose resolution it keeps."""
        clients = [client.label for client in (YARN, *BERRY.values(), *PNPM.values())]
        versions = [version_of(tool, self.context.clients) for tool in ("npm", "node")]
        here = [*versions, sys.platform, platform.machine()]
        base = None if self.base is self else self.base.wanted
        what = gating.content_key(*self.inputs.identity, base and base.what)
        by = gating.content_key(_FORMAT, clients, *here)
        fresh = today() if self._start is None else gating.content_key(self._start.lock)
        return Wanted("npm", what, by, self.context.resolutions, fresh, base)


def _moved(before: DependencyTree, after: DependencyTree) -> dict[tuple[str, str], str]:
    """Return the releases that a patch raises in a lock: (package, version) → the next new version."""
    moves: dict[tuple[str, str], str] = {}
    for name, nodes in before.by_name.items():
        old, new = (
            {node.version for node in same_name if is_orderable(ECOSYSTEM, node.version)}
            for same_name in (nodes, after.of(name))
        )
        for gone in old - new:
            higher = [
                version for version in new - old if compare_versions(ECOSYSTEM, version, gone) > 0
            ]
            if higher:
                moves[name, gone] = min(higher, key=partial(sort_key, ECOSYSTEM))
    return moves


def words(result: CommandResult) -> str:
    """Return a client's errors on one line."""
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    errors = "; ".join(
        line.removeprefix("error ").removeprefix("error: ") for line in lines if _ERROR.search(line)
    )
    text = (errors or own_words(result.output)).partition(_USAGE)[0]
    return text[:_MAX_WORDS].strip(" ;.")


def _plain(text: str) -> str:
    """Return a text of a published manifest, which may have lone surrogates, as valid Unicode."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=8)
def _packages(entry: Path, digest: str) -> tuple[Package, ...]:  # noqa: ARG001 (of the entry's bytes)
    return tuple(packages_in(entry))
