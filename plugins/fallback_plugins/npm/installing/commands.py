"""Inputs and command lines of an installation, outside the sandbox, over copies of texts.

No script runs, no git repository is cloned, no configuration of the target is in reach, and
those clients that node runs for us can start no program at all: a lock of theirs can name a generator, or a
repository to be packed, and nothing else would stop those.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.hosts import run_client
from fallback_plugins.npm.clients.npm_run import peer_options
from fallback_plugins.npm.clients.provision import NO_GIT, ClientStore, PinnedClient
from fallback_plugins.npm.clients.yarn import ENVIRONMENT, HOOKS, YARN
from fallback_plugins.npm.manifests.manifest import (
    MANIFEST,
    MEMBER_SECTIONS,
    PNPM_LOCK,
    SECTIONS,
    YARN_LOCK,
    entries,
    in_folder,
    is_manifest,
    parse_manifest,
    texts_of,
)
from fallback_plugins.npm.surveying.projects import Site, matching, site_of
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner, CommandResult
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
    # One folder of modules, as npm makes it, and nothing in it that names this machine's folders.
    "--config.node-linker=hoisted",
    "--config.extend-node-path=false",
    # It waits a minute before it asks a third time for what is not there.
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


#: Names packages that lerna installs and links beside the root, where they are no members of a workspace.
LERNA = "lerna.json"

_DEV = "devDependencies"
_WORKSPACE = "workspace:"


@dataclass(frozen=True)
class Inputs:
    """One project's texts by path in the repository.

    ``files``: with every package.json of the repository: a project can ask for any of its folders. The
    client runs in its folder, which for a member is its workspace's. ``own``: paths of the manifests of the
    root and its members. ``patches``: patch files that a manifest or the lock names (yarn, pnpm), which
    are data. ``bootstrapped``: manifests of lerna's packages that are no members.
    """

    files: Files
    own: tuple[str, ...]
    patches: Mapping[str, str] = field(default_factory=dict)
    bootstrapped: tuple[str, ...] = ()

    @classmethod
    def of(cls, repo: RepoContext, folder: str) -> "Inputs":
        """The project to which a folder belongs. Raises RepositoryError."""
        site = site_of(repo, folder)
        read = replace(site, lock=None) if site.lock and site.lock.endswith(".lockb") else site
        files = read.files(repo)
        manifests = dict(files.manifests)
        for path in repo.tracked_files:
            if is_manifest(path) and PurePosixPath(path).name == MANIFEST and path not in manifests:
                with suppress(RepositoryError):  # a fixture's, which nobody asks for
                    manifests[path] = repo.read_text(path)
        inputs = cls(replace(files, manifests=manifests, lock=site.lock), site.manifests)
        bootstrapped = tuple(path for path in _bootstrapped(repo, site) if path in manifests)
        return replace(inputs, patches=_patches(repo, inputs), bootstrapped=bootstrapped)

    @property
    def declares(self) -> bool:
        """Is there anything to install, or to link?"""
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
        """Its texts without the manifests of other projects."""
        return replace(
            self.files, manifests={path: self.files.manifests[path] for path in self.own}
        )

    @property
    def lock_name(self) -> str:
        """The lock's file name; empty: there is none."""
        return PurePosixPath(self.files.lock or "").name

    @property
    def identity(self) -> tuple[object, ...]:
        """All that decides what is installed."""
        files = self.files
        texts = [dict(files.manifests), dict(files.settings or {}), dict(self.patches)]
        return (files.folder, *texts, files.lock, files.lock_text, self.bootstrapped)

    @property
    def client(self) -> str:
        """The client that is asked first: of the lock, or npm."""
        return {YARN_LOCK: "yarn", PNPM_LOCK: "pnpm"}.get(self.lock_name, "npm")

    def texts(self, *, locked: bool) -> dict[str, str]:
        """What is copied; ``locked``: the lock, too."""
        files = self.files if locked else replace(self.files, lock=None)
        return {**files.texts, **self.patches}

    def for_npm(self) -> "Inputs":
        """The same project in npm's words: what pnpm alone reads is said in the root's manifest."""
        found = {path: _plain(self.files.manifests[path]) for path in self.own}
        path = self.files.root_manifest
        if self.members and path in found:
            facts = parse_manifest(path, found[path])
            found[path] = json.dumps({**facts, "workspaces": list(self.members)})
        return self._with(found)

    @property
    def members(self) -> tuple[str, ...]:
        """Folders of the workspace's members, below the root."""
        prefix = "" if self.files.folder == "." else f"{self.files.folder}/"
        return tuple(str(PurePosixPath(path).parent).removeprefix(prefix) for path in self.own[1:])

    @property
    def private_members(self) -> tuple[str, ...]:
        """Those that are never published (sites, examples), where others are."""
        members = zip(self.members, [*self._manifests][1:], strict=True)
        found = [member for member, manifest in members if manifest.get("private") is True]
        return tuple(found) if len(found) < len(self.members) else ()

    def for_tests(self) -> tuple["Inputs", dict[str, list[str]]]:
        """What it runs with and what its tests are run by; and the names of what is left out then."""
        private = self.private_members
        members = zip(self.members, self.own[1:], strict=True)
        kept = [path for member, path in members if member not in private]
        fewer = replace(self, own=(*self.own[:1], *kept)).for_npm() if private else self
        fewer, left_out = fewer._without_other_tools()
        reported = {"private members": list(private), "other devDependencies": left_out}
        return fewer, {what: names for what, names in reported.items() if names}

    def _without_other_tools(self) -> tuple["Inputs", list[str]]:
        found, left_out = {}, []
        for path, manifest in zip(self.own, self._manifests, strict=True):
            facts = dict(manifest)
            tools = test_tools(facts)
            asked = facts.get(_DEV)
            if isinstance(asked, dict):
                facts[_DEV] = {name: spec for name, spec in asked.items() if name in tools}
                left_out += [name for name in asked if name not in tools]
                found[path] = json.dumps(facts)
        return self._with(found), list(dict.fromkeys(left_out))

    def _with(self, manifests: Mapping[str, str]) -> "Inputs":
        both = {**self.files.manifests, **manifests}
        return replace(self, files=replace(self.files, manifests=both))


def write(texts: Mapping[str, str], place: Path) -> None:
    """Lay texts out below a folder, byte for byte."""
    for path, text in texts.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(text.encode())


def _bootstrapped(repo: RepoContext, site: Site) -> tuple[str, ...]:
    path = in_folder(site.folder, LERNA)
    if len(site.manifests) > 1 or not repo.has(path):
        return ()
    try:
        found = texts_of(parse_manifest(path, repo.read_text(path)), "packages")
    except (RecipeError, RepositoryError):
        return ()  # as for lerna itself, which does not run here
    return tuple(in_folder(member, MANIFEST) for member in matching(repo, site.folder, found))


def _plain(text: str) -> str:
    """A manifest with ``workspace:`` as npm says it: any version, and the one here is taken."""
    facts = parse_manifest(MANIFEST, text)
    if _WORKSPACE not in text:
        return text
    changed = dict(facts)
    for section in MEMBER_SECTIONS:
        if isinstance(entries := facts.get(section), dict):
            changed[section] = {
                name: "*" if str(spec).startswith(_WORKSPACE) else spec
                for name, spec in entries.items()
            }
    return json.dumps(changed)


def _patches(repo: RepoContext, inputs: Inputs) -> dict[str, str]:
    message = "".join(
        [inputs.files.lock_text, *(inputs.files.manifests[path] for path in inputs.own)]
    )
    found = {}
    for path in repo.tracked_files:
        if path.endswith(".patch") and PurePosixPath(path).name in message:
            with suppress(RepositoryError):  # the client says what it lacks
                found[path] = repo.read_text(path)
    return found


#: A package with one of these words in its name runs tests, measures them, or is for use in them.
_WORDS = frozenset(
    {
        *("ava", "jasmine", "jest", "karma", "mocha", "qunit", "tap", "tape", "uvu", "vitest"),
        *("c8", "chai", "expect", "istanbul", "nyc", "sinon", "testing"),
    }
)

#: Further packages without which a runner can't read what it is to run.
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
    """Names in ``devDependencies``: known runners and what goes with them, and what a test script names."""
    asked = manifest.get("devDependencies")
    if not isinstance(asked, dict):
        return frozenset()
    scripts = entries(manifest.get("scripts"))
    messages = (text for name, text in scripts if _SCRIPT.fullmatch(name))
    words = {word for text in messages for word in re.split(r"[\s;&|=]+", text)}
    return frozenset(name for name in asked if _is_known(name) or name in words)


def _is_known(name: str) -> bool:
    return (
        bool(_WORDS.intersection(_PART.split(name))) or name in _NAMES or name.startswith(_SCOPES)
    )


@dataclass(frozen=True)
class Commands:
    """The clients, and folders of ours in which they keep what they fetched."""

    clients: ClientRunner
    store: ClientStore
    cache: Path
    timeout_s: float

    def npm(self, inputs: Inputs, folder: Path, words: Sequence[str]) -> CommandResult:
        """The user's own npm."""
        options = [*_NPM, *peer_options(inputs.files), f"--cache={self.cache / 'npm'}"]
        command = [*words, *dict.fromkeys(options)]
        return run_client(
            self.clients, "npm", command, cwd=folder, timeout_s=self.timeout_s, env=NO_GIT
        )

    def yarn(
        self, folder: Path, words: Sequence[str], *, only_resolves: bool = False
    ) -> CommandResult:
        """yarn classic, in our version. ``only_resolves``: it writes the lock, and installs nothing."""
        cache = self.cache / "yarn"
        places = [f"--cache-folder={cache}", f"--mutex=file:{cache}.mutex"]
        hooks = HOOKS if only_resolves else ""
        return self._node(YARN, folder, ["install", *_YARN, *places, *words], ENVIRONMENT, hooks)

    def berry(
        self, client: PinnedClient, folder: Path, compression: str, *, frozen: bool
    ) -> CommandResult:
        """yarn from version 2 on, in ours. It reads no npm configuration: the registry is told."""
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
        # Without this the scripts of the root and of members run, whatever is said of scripts.
        return self._node(client, folder, ["install", "--mode=skip-build"], env)

    def pnpm(self, client: PinnedClient, folder: Path, words: Sequence[str]) -> CommandResult:
        """pnpm, in the version that wrote the lock's format."""
        options = [*_PNPM, f"--store-dir={self.store.place / 'pnpm-store'}"]
        return self._node(client, folder, ["install", *options, *words], {"CI": "1"})

    def registry(self, folder: Path) -> str:
        """Where npm fetches from, in a folder without a configuration of its own."""
        ask = ["config", "get", "registry", "--loglevel=error"]
        reported = self.clients.run("npm", ask, cwd=folder, timeout_s=self.timeout_s)
        return (reported.output.split() or [""])[-1]

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
        except RecipeError as error:  # what the ladder then says of this step
            return CommandResult(argv=("npm",), exit_code=1, output=error.problem, duration_ms=0)
