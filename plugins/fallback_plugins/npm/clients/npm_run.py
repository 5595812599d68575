"""The real npm, run over copies of a project's manifests in a scratch folder that holds nothing else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.hosts import run_client
from fallback_plugins.npm.clients.scratch import check_paths, names_address, scratch_project
from fallback_plugins.npm.clients.words import WITHOUT_PARENT, blockers_in, own_words
from fallback_plugins.npm.locks.lockfile import lock_tree, lockfile_version, modern
from fallback_plugins.npm.manifests.specs import excludes
from fallback_plugins.shared.ladder import client_refused
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult

#: Seconds for one npm run. npm queries the registry about every package of a version 1 lock.
NPM_TIMEOUT_S = 300.0

#: npm's lock, if the project has none.
DEFAULT_LOCK = "package-lock.json"

#: No git transport is allowed, as older releases of npm do not know ``allow-git``.
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none"}

#: The option that forbids fetching from named addresses, and npm's error for a manifest or a package that
#: names one.
_NO_REMOTE, _REMOTE_REFUSED = "--allow-remote=none", "EALLOWREMOTE"

#: The option that ignores peers, and npm's error for packages that exclude each other.
WITHOUT_PEERS, _CONFLICT = "--legacy-peer-deps", "ERESOLVE"

#: How a lock marks a package that is required as a peer only.
_AS_PEER = re.compile(r'"peer"\s*:\s*true')

#: How much npm prints: its errors, or also which package it looks up for which dependent.
_BRIEF, _DETAILED = "--loglevel=error", "--loglevel=silly"

#: Options for the same run from npm's cache, without any request.
_FROM_CACHE = "--offline"
_OFFLINE = {_NO_REMOTE: "--allow-remote=all", "--prefer-offline": _FROM_CACHE}

#: A line of an .npmrc that is a rule on the age of releases, or exempts packages from it.
AGE_LINE = re.compile(
    r"\s*(?P<key>before|min-release-age(?:-exclude)?)(?:\[\])?\s*=\s*[\"']?(?P<value>[\w@/*?.:+-]+)[\"']?\s*$"
)

#: Version of a fresh lock: it has the most data, so that the registry need not be queried again.
_FRESH_VERSION = 3

#: An entry of a lock with the address of its tarball.
_FROM_A_REGISTRY = re.compile(r'"resolved"\s*:\s*"https?:')


@dataclass
class NpmRunner:
    """Runs npm, never in the repository.

    No script runs, no git repository is cloned (npm prepares a clone by another install), and the
    repository's .npmrc is not copied: it can name programs.
    """

    clients: ClientRunner
    #: Whether this runner has queried the registry already: further runs prefer npm's cache.
    _asked: bool = field(default=False, init=False)

    def lock_after(self, words: Sequence[str], files: Files) -> str:
        """Return the lock's text after ``npm WORDS``. Raises RecipeError with npm's errors, ToolError."""
        check_paths(files)
        copied = {**files.folders, **(files.texts if files.lock_text else files.manifests)}
        if files.lock is not None and files.lock in copied and files.root_manifest in copied:
            new = modern(files.lock_text, copied[files.root_manifest])
            copied = {**copied, files.lock: new}
        texts = {_below(files.folder, path): text for path, text in copied.items()}
        with scratch_project(texts, files.archives) as scratch:
            lock = scratch / _below(files.folder, files.lock or DEFAULT_LOCK)
            options = [*_shape(files), *peer_options(files), *age_options(files)]
            if self._asked:
                options.append("--prefer-offline")
            # After "--", no package's name is taken for an option.
            command = [words[0], *options, "--", *words[1:]]
            result = self._run(command, scratch, files)
            if not result.ok and _CONFLICT in result.output and _has_conflict(files):
                result = self._run([words[0], WITHOUT_PEERS, *command[1:]], scratch, files)
            if not result.ok:
                raise self._refusal(command, scratch, files, result)
            self._asked = True
            if not lock.is_file():
                raise client_refused(_head(files), "it wrote no lock", (), file=files.root_manifest)
            return lock.read_bytes().decode()

    def _run(self, command: Sequence[str], scratch: Path, files: Files) -> CommandResult:
        def run(words: Sequence[str]) -> CommandResult:
            return run_client(
                self.clients, "npm", words, cwd=scratch, timeout_s=NPM_TIMEOUT_S, env=_ENVIRONMENT
            )

        result = run(command)
        if _REMOTE_REFUSED not in result.output or names_address(files):
            return result
        # npm reads a new archive that bundles packages, and fetches it by its address, which is forbidden.
        # Offline it sends no request: ``archives`` has put the archive into npm's cache.
        again = run(
            [_OFFLINE.get(word, word) for word in (*command[:1], _FROM_CACHE, *command[1:])]
        )
        return again if again.ok else result

    def _refusal(
        self, command: Sequence[str], scratch: Path, files: Files, result: CommandResult
    ) -> RecipeError:
        output, words = result.output, own_words(result.output)
        if WITHOUT_PARENT.search(output):
            again = [_DETAILED if word == _BRIEF else word for word in command]
            output += self._run(again, scratch, files).output
        if result.timed_out:
            words = f"no answer in {NPM_TIMEOUT_S:.0f} s"
        blockers = blockers_in(output, files)
        hosts, file = result.refused_hosts, files.root_manifest
        return client_refused(_head(files), words, blockers, hosts, file)


def peer_options(files: Files) -> list[str]:
    """Return the one setting of the repository's .npmrc that changes which packages fit together."""
    texts = [text for path, text in (files.settings or {}).items() if path.endswith(".npmrc")]
    lines = {"".join(line.split()) for text in texts for line in text.splitlines()}
    return [WITHOUT_PEERS] if "legacy-peer-deps=true" in lines else []


def _has_conflict(files: Files) -> bool:
    """Return whether the project's lock holds a peer in a version that its dependent excludes, and nothing
    that npm installed as a peer only: npm 6 made it, or a person who ignored peers. npm accepts such a lock
    only if peers are ignored, whatever is to change. From another lock that would remove packages."""
    if not files.lock_text or _AS_PEER.search(files.lock_text):
        return False
    tree = lock_tree(files.lock or "", files.lock_text, files.manifests, files.root_manifest)
    peers = (
        (ask.spec, tree.nodes.get(ask.to or ""))
        for node in (*tree.roots, *tree.nodes.values())
        for ask in node.asks
        if ask.peer
    )
    return any(peer is not None and excludes(spec, peer.version) for spec, peer in peers)


def age_options(files: Files) -> list[str]:
    """Return the repository's rules on the age of releases, as npm's options."""
    texts = [text for path, text in (files.settings or {}).items() if path.endswith(".npmrc")]
    matches = (AGE_LINE.match(line) for text in texts for line in text.splitlines())
    return [f"--{match['key']}={match['value']}" for match in matches if match]


def _head(files: Files) -> str:
    return f"npm could not resolve {files.root_manifest}"


def _below(folder: str, path: str) -> str:
    return path if folder == "." else path.removeprefix(f"{folder}/")


def _shape(files: Files) -> list[str]:
    """Return options that keep the lock's own format, whatever the user's npmrc says."""
    lock_text, source = files.lock_text, files.lock or DEFAULT_LOCK
    # The folder of a workspace's member is "resolved" in every lock.
    omitted = "true" if lock_text and not _FROM_A_REGISTRY.search(lock_text) else "false"
    version = lockfile_version(lock_text, source) if lock_text else _FRESH_VERSION
    return [
        "--package-lock-only",
        "--package-lock=true",
        "--ignore-scripts",
        "--allow-git=none",
        _NO_REMOTE,
        "--no-audit",
        "--no-fund",
        _BRIEF,
        f"--omit-lockfile-registry-resolved={omitted}",
        f"--lockfile-version={version}",
    ]
