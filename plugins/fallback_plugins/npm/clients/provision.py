"""Provides yarn and pnpm if a lock needs them: exact versions from the registry, by the real npm.

We decide which version runs, never the repository (``packageManager``, ``yarn-path``): a client is a
program. Each is pinned by the SHA-512 of its tarball, which npm checks; its scripts don't run. A client
that was fetched stays in the user's cache and needs no network again.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.hosts import run_client
from fallback_plugins.npm.clients.words import blockers_in, own_words
from fallback_plugins.shared.ladder import client_refused
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.errors import RecipeError, ToolMissingError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.files.folders import users_folder

#: Seconds for one fetch of at most 20 MB.
_FETCH_TIMEOUT_S = 180.0

#: Characters of npm's output that a refusal repeats.
_MAX_WORDS = 300

#: Files that node may run.
_CODE = frozenset({".js", ".cjs", ".mjs", ".node"})

#: No transport is allowed, so that git clones nothing.
NO_GIT = {"GIT_ALLOW_PROTOCOL": "none"}

#: Loaded before a client: every function that starts a program throws.
_NO_PROGRAMS = """const children = require('node:child_process');
const refuse = () => { throw new Error('an installation starts no program here'); };
for (const name of ['spawn', 'spawnSync', 'exec', 'execSync', 'execFile', 'execFileSync', 'fork']) {
  children[name] = refuse;
}
children.ChildProcess.prototype.spawn = refuse;
require('node:module').syncBuiltinESMExports();
"""

_OPTIONS = ("--ignore-scripts", "--no-bin-links", "--no-audit", "--no-fund", "--loglevel=error")


@dataclass(frozen=True)
class PinnedClient:
    """One client in one version. ``script``: the file that node runs, in the package's folder."""

    name: str
    version: str
    integrity: str
    script: str
    #: Its ``code_digest``: a cached client is compared with it at each use.
    code: str
    #: What people call it, if that is not the package's name.
    called: str = ""

    @property
    def label(self) -> str:
        """Return its name and version, for messages."""
        return f"{self.called or self.name} {self.version}"

    @property
    def folder(self) -> str:
        """Return its folder's name in a store of clients; a scope is not a separate folder."""
        return f"{self.name.replace('/', '+')}-{self.version}"


@dataclass(frozen=True)
class ClientStore:
    """A folder of provisioned clients. ``folder`` None: the user's cache, looked up when needed."""

    clients: ClientRunner
    folder: Path | None = None

    def script(self, client: PinnedClient) -> Path:
        """Return the path of the client's script; fetch the client if necessary. Raises RecipeError."""
        client_folder = self.place / client.folder
        script = client_folder / "node_modules" / client.name / client.script
        if not script.is_file():
            self._fetch(client, client_folder)
        _check(client, client_folder)
        return script

    def run(
        self,
        client: PinnedClient,
        words: Sequence[str],
        *,
        clients: ClientRunner,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str],
        hooks: str = "",
    ) -> CommandResult:
        """Run the client through ``clients``, which may know a project's scopes; it can't start programs.
        ``hooks``: code that it loads first. Raises RecipeError if the client is not available."""
        script = self.script(client)
        with scratch_folder("hook") as folder:
            hook = folder / "no-programs.cjs"
            hook.write_text(_NO_PROGRAMS + hooks, encoding="utf-8")
            command = ["--require", str(hook), str(script), *words]
            both = {**NO_GIT, **env}
            return run_client(clients, "node", command, cwd=cwd, timeout_s=timeout_s, env=both)

    @property
    def place(self) -> Path:
        """Return the folder itself; it need not exist yet."""
        if self.folder is not None:
            return self.folder
        return users_folder("cache") / "clients"

    def _fetch(self, client: PinnedClient, client_folder: Path) -> None:
        try:
            client_folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            scratch = Path(tempfile.mkdtemp(dir=client_folder.parent, prefix=f".{client.folder}-"))
        except OSError as error:
            why = f"{client_folder.parent} can't be written ({error.strerror})"
            raise _missing(
                client, why, "Make it writable, or name another: XDG_CACHE_HOME."
            ) from error
        try:
            for name, content in _project(client).items():
                (scratch / name).write_text(json.dumps(content), encoding="utf-8")
            self._install(client, scratch)
            if not client_folder.is_dir():  # another process may have been faster
                scratch.replace(client_folder)
        except OSError as error:
            if not client_folder.is_dir():
                raise _missing(client, f"it can't be kept ({error.strerror})") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _install(self, client: PinnedClient, scratch: Path) -> None:
        try:
            result = self.clients.run(
                "npm", ["ci", *_OPTIONS], cwd=scratch, timeout_s=_FETCH_TIMEOUT_S
            )
        except ToolMissingError as error:
            raise _missing(client, error.problem, kind="client_missing") from error
        if not result.ok:
            output = " ".join(result.output.replace("npm error", "").split())[:_MAX_WORDS]
            what = (
                f"no answer in {_FETCH_TIMEOUT_S:.0f} s" if result.timed_out else f"npm: {output}"
            )
            raise _missing(client, what, kind="client_missing")


def unresolved(
    client: PinnedClient, result: CommandResult, timeout_s: float, files: Files
) -> RecipeError:
    """Return the refusal of a client that could not resolve a project."""
    reason = f"no answer in {timeout_s:.0f} s" if result.timed_out else own_words(result.output)
    blockers = () if result.timed_out else blockers_in(result.output, files)
    file = files.root_manifest
    head = f"{client.label} could not resolve {file}"
    return client_refused(head, reason, blockers, result.refused_hosts, file)


def _check(client: PinnedClient, client_folder: Path) -> None:
    """Raise RecipeError unless a client is as published, and belongs to this user or to root."""
    package = client_folder / "node_modules" / client.name
    try:
        owners = {client_folder.stat().st_uid, package.stat().st_uid}
        digest = code_digest(package)
    except OSError as error:
        raise _missing(client, f"{client_folder} can't be read ({error.strerror})") from error
    if not owners <= {os.geteuid(), 0}:
        raise _missing(client, f"{client_folder} belongs to another user", kind="another_user")
    if digest != client.code:
        raise _missing(
            client,
            f"{client_folder} is not what was published; remove that folder",
            kind="not_as_published",
        )


def code_digest(package: Path) -> str:
    """Return the SHA-256 of a package's code files. Versions of npm unpack the others differently."""
    whole = hashlib.sha256()
    files = sorted((f.relative_to(package).as_posix(), f) for f in package.rglob("*"))
    for name, file in files:
        if file.suffix in _CODE and file.is_file():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{name} {content}\n".encode())
    return whole.hexdigest()


def _project(client: PinnedClient) -> dict[str, object]:
    """Return a manifest, and a lock without addresses, so that npm fetches from the user's registry."""
    root = {"name": "client", "version": "0.0.0", "dependencies": {client.name: client.version}}
    entry = {"version": client.version, "integrity": client.integrity}
    packages = {"": root, f"node_modules/{client.name}": entry}
    lock = {"name": "client", "version": "0.0.0", "lockfileVersion": 3, "packages": packages}
    return {"package.json": root, "package-lock.json": lock}


def _missing(client: PinnedClient, why: str, next_step: str = "", *, kind: str = "") -> RecipeError:
    make = f"Make {client.label} available in the registry that npm uses, and run it again."
    return RecipeError(
        RefusalReason.TOOL_MISSING,
        f"{client.label}, which resolves this lock, is not available: {why}.",
        next_step=next_step or make,
        kind=kind,
    )
