"""Sources of affected npm packages other than projects: commands with packages as arguments, addresses that
pages and programs load, lists of hooks and tools, manifests that only pnpm reads, and locks that only
their own client reads in a workspace's member (ADR-0106).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.by_lock import client_for
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    MANIFEST,
    PNPM_LOCK,
    in_folder,
    readable_text,
)
from fallback_plugins.npm.manifests.specs import admits, floor, split_alias
from fallback_plugins.npm.surveying.commands import ClientCommand, Commands
from fallback_plugins.npm.surveying.projects import discover
from fallback_plugins.npm.surveying.resolutions import CommandResolution, is_refused
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.resolution import ResolvedPackage
from fallback_tier.advisory import Advisory, fixed_versions, is_affected
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

#: A line that installs packages or runs one by name, whatever else is in it.
_INSTALLS = re.compile(r"\b(?:npm|npx|yarn|pnpm|pnpx|bun|bunx)(?:\s|[\"'],?\s)")

#: Manifests that only pnpm reads. Another tool's package.yaml lists its dependencies.
_ONLY_PNPM = {
    "package.json5": re.compile(""),
    "package.yaml": re.compile(
        r"^(?:d|devD|optionalD)ependencies\s*:\s*\n\s+[\w@\"']", re.MULTILINE
    ),
}

#: An address in a line, its part before the suffix of a file, and packages with a scope in it.
_ADDRESS = re.compile(r"//[^\s\"'`<>]+")
_FILE = re.compile(r"(.*)\.(?:[cm]?js|css)\b")
_SCOPED = re.compile(r"(?<![\w.-])@[\w.-]{1,214}/[\w.-]{1,214}")
#: A version in a file's name.
_OF_FILE = (
    r"v?(\d{1,20}(?:\.\d{1,20}){0,3}(?:-(?:alpha|beta|rc|next|pre)[\w.]{0,30}?)?)"
    r"(?:[.-](?:min|slim|umd|esm|cjs|full|bundle|prod|all|core)){0,4}\.(?:[cm]?js|css)\b"
)

#: Causes that may be the same for each package.
_OF_REGISTRIES = frozenset({BlockerKind.REGISTRY, BlockerKind.CLIENT})


@dataclass(frozen=True)
class Elsewhere:
    """Finds what is installed besides a repository's projects, for one advisory."""

    repo: RepoContext
    advisory: Advisory
    clients: ClientRunner
    #: The base commit, whose fix may have resolved the same commands already; None: ``repo`` is.
    base: RepoContext | None = None

    @property
    def affected(self) -> Iterator[tuple[str, RecipeError]]:
        """Yield (path, reason) of files that install an affected version, and of unreadable locks."""
        yield from self._named()
        yield from self._manifests()
        yield from self._locks()

    def resolved(self, notes: list[str]) -> Iterator[tuple[str, RecipeError]]:
        """Yield the same for what commands' packages require: each command is resolved as a project that
        requires them. One that can't be resolved can't be shown to concern the advisory, and is noted."""
        named_paths = {path for path, _ in self._named()}
        commands = [command for command in self.open_commands if command.path not in named_paths]
        for tried, command in enumerate(commands, 1):
            try:
                package = self._brought_in(command)
            except (RecipeError, RepositoryError, ToolError) as error:
                is_unanswered = not (self.repo.settings.offline or _is_answered(error))
                skipped = commands[tried:] if is_unanswered else []
                notes.extend(
                    f"What `{unresolved.text}` in {unresolved.path} installs was not resolved."
                    for unresolved in (command, *skipped)
                )
                if is_unanswered:
                    return
                continue
            if package is not None:
                which = (
                    "or another version, by a variable" if command.is_open else "which is affected"
                )
                what = f"installs {package.name} {package.version}, {which}"
                yield command.path, self._unknown(command.path, f"`{command.text}`", what)

    def _brought_in(self, command: ClientCommand) -> ResolvedPackage | None:
        """Return the first affected package that a command installs, or None. If a variable decides its
        versions, any version of the advisory's packages counts: another release may require another."""
        specs = {name: spec or "latest" for name, spec in command.packages}
        has_settings = self.repo.has(".npmrc")
        settings = {".npmrc": readable_text(self.repo, ".npmrc")} if has_settings else None
        files = Files(
            ".",
            {MANIFEST: json.dumps({"name": "command", "version": "0.0.0", "dependencies": specs})},
            settings=settings,
        )
        base = self.base or self.repo
        resolution = CommandResolution(files, None, self.clients, base).resolution
        names = {*self.advisory.packages(ECOSYSTEM)} if command.is_open else set[str]()
        own_names = {name for name, _ in command.packages}
        listed = (
            package
            for name in sorted(names - own_names)
            for package in resolution.by_name.get(name, ())
        )
        return next(chain(listed, resolution.affected(self.advisory)), None)

    @property
    def open_commands(self) -> tuple[ClientCommand, ...]:
        """Return commands that install or run packages which no project installs, each once."""
        texts = [
            readable_text(self.repo, path)
            for path in self.repo.tracked_files
            if path.endswith(MANIFEST)
        ]
        commands = {
            command.packages: command
            for command in reversed(Commands.of(self.repo).found)
            if command.packages and not (command.is_run and self._is_own(command, texts))
        }
        return tuple(reversed(commands.values()))

    @staticmethod
    def _is_own(command: ClientCommand, manifests: list[str]) -> bool:
        """Return whether a project installs what is run: npx takes that before it asks a registry."""
        return all(
            not spec and any(json.dumps(name) in text for text in manifests)
            for name, spec in command.packages
        )

    def _named(self) -> Iterator[tuple[str, RecipeError]]:
        packages = self.advisory.packages(ECOSYSTEM)
        for path, line in Commands.of(self.repo).lines if packages else ():
            for package in (name for name in packages if name in line):
                is_command = _INSTALLS.search(line) is not None
                specs = _specs(path, line, package, is_command=is_command)
                for spec in dict.fromkeys(specs):
                    if "$" in spec or self._admits_affected_alone(package, spec):
                        which = "may be" if "$" in spec else "is"
                        how = "installs" if is_command else "names"
                        what = f"{how} {package}@{spec}, which {which} affected"
                        yield path, self._unknown(path, "A command" if is_command else "", what)

    def _manifests(self) -> Iterator[tuple[str, RecipeError]]:
        """Yield the manifests that only pnpm reads, and that no lock of it answers."""
        for path in self.repo.tracked_files:
            pure = PurePosixPath(path)
            pattern = _ONLY_PNPM.get(pure.name)
            if pattern is None or is_aside(path) or "node_modules" in pure.parts:
                continue
            is_locked = any(
                self.repo.has(in_folder(str(folder), PNPM_LOCK)) for folder in pure.parents
            )
            if pattern.search(readable_text(self.repo, path)) and not is_locked:
                reason = (
                    f"{path} is a manifest that only pnpm reads, and no pnpm-lock.yaml answers it."
                )
                step = "Commit its lock, or write a package.json."
                yield path, unknown(path, reason, next_step=step)

    def _locks(self) -> Iterator[tuple[str, RecipeError]]:
        for lock in (path for site in discover(self.repo) for path in site.members_locks):
            folder = str(PurePosixPath(lock).parent)
            try:
                manifest = in_folder(folder, MANIFEST)
                texts = {manifest: self.repo.read_text(manifest)}
                files = Files(folder, texts, lock, self.repo.read_text(lock))
                tree = client_for(lock, self.clients).tree(files)
                labels = (node.label for node in tree.affected(self.advisory, ECOSYSTEM))
                why = next((f"it holds {label}" for label in labels), "")
            except (RecipeError, RepositoryError) as error:
                why = error.problem.rstrip(".")
            if why:
                reason = f"{lock} is read if {folder} is installed without its workspace: {why}."
                step = "Remove it if it is not used, or update it with its client."
                yield lock, unknown(lock, reason, next_step=step)

    @staticmethod
    def _unknown(path: str, subject: str, what: str) -> RecipeError:
        reason = f"{subject} in {path} {what}." if subject else f"{path} {what}."
        step = f"Raise the version there, or remove {'the command' if subject else 'it'}."
        return unknown(path, reason, next_step=step)

    def _admits_affected_alone(self, package: str, spec: str) -> bool:
        start = floor(split_alias(spec)[1])
        fixes = fixed_versions(self.advisory, ECOSYSTEM, package)
        return (
            start is not None
            and is_affected(self.advisory, ECOSYSTEM, package, start)
            and not any(
                admits(spec, fixed) and not is_affected(self.advisory, ECOSYSTEM, package, fixed)
                for fixed in fixes
            )
        )


def _specs(path: str, line: str, package: str, *, is_command: bool) -> Iterator[str]:
    """Yield a package's versions in a line: in a command's argument, an address, or a list of a hook's, a
    tool's or bower's."""
    name, version = re.escape(package), r"([^\s\"'`;&|)\\\]]+)"
    if is_command:
        yield from re.findall(rf"(?<![\w@/.-]){name}@{version}", line)
    exact = r"v?(\d[\w.+-]*)"
    for address in _ADDRESS.findall(line):
        yield from _loaded(address if "/" in package else _SCOPED.sub("", address), name)
    yield from re.findall(rf"\bnpm:{name}(?:@|\"\s*=\s*\"){version}", line)
    if path.endswith((".yml", ".yaml")):
        yield from re.findall(
            rf"^\s*(?:-|additional_dependencies:.*[\[,])\s*[\"']?{name}@{exact}", line
        )
    elif path.endswith("bower.json"):
        yield from re.findall(rf"\"{name}\"\s*:\s*\"(?:{name}#)?([^\"/#]+)\"", line)


def _loaded(address: str, name: str) -> Iterator[str]:
    """Yield the versions of a package that an address loads. ``name``: a regular expression."""
    exact, last = r"v?(\d[\w.+-]*)", name.rpartition("/")[2]
    yield from re.findall(rf"[/:,=*!]{name}@{exact}", address)
    yield from re.findall(rf"/{name}/-/{last}-(\d[\w.+-]{{0,100}})\.tgz\b", address)
    yield from re.findall(rf"/{name}[.-]{_OF_FILE}", address)
    if file := _FILE.match(address):
        yield from re.findall(rf"/{name}(?:\.js)?[/-]{exact}/", file[1])


def _is_answered(error: RecipeError | RepositoryError | ToolError) -> bool:
    """Return whether a registry answered, or none was queried. Other failures would repeat."""
    return isinstance(error, RecipeError) and (
        is_refused(error) or any(blocker.kind not in _OF_REGISTRIES for blocker in error.blockers)
    )
