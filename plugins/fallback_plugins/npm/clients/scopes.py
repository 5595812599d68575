"""Registries of scopes that a repository's .npmrc names: which of them our clients may query (ADR-0053).

A repository is not trusted. It may say to which of the *user's* registries a scope belongs; one that the
user's own configuration does not know is not queried, nor is any other instead. Credentials stay in the
user's configuration, where each client finds them by itself: npm only reports for which addresses they are.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.scratch import scratch_project
from fallback_plugins.npm.manifests.manifest import MANIFEST
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult

#: A line of an .npmrc that names a scope's registry: no variables, no credentials, no query.
SCOPE_LINE = re.compile(
    r"\s*(?P<scope>@[a-z0-9~][a-z0-9.~-]*):registry\s*=\s*[\"']?"
    r"(?P<url>https?://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9._~/-]*)?)[\"']?\s*"
)

#: What ``npm config list`` prints: a registry, and an address for which there are credentials.
_REGISTRY = re.compile(r'(?:(@[^:\s]+):)?registry = "([^"]*)"')
_CREDENTIALS = re.compile(r"//([^\s:]+(?::\d+)?[^\s:]*):\S+ = .*")

_CONFIG_TIMEOUT_S = 30.0

#: Not an address: a client sends no request to it.
_NOWHERE = "refused:"

#: Clients that read npm's variables; node runs yarn and pnpm.
_READERS = frozenset({"npm", "node"})


@dataclass(frozen=True)
class Scopes:
    """The registries that a repository names, by scope: those that the user knows, and all others."""

    granted: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    source: str = ".npmrc"

    @classmethod
    def of(cls, files: Files, clients: ClientRunner) -> "Scopes":
        """Return the scopes of a project's .npmrc, compared with the user's configuration. Raises
        ToolError."""
        for path, text in (files.settings or {}).items():
            url_by_scope = {
                match["scope"]: match["url"]
                for line in text.splitlines()
                if path.endswith(".npmrc") and (match := SCOPE_LINE.fullmatch(line))
            }
            if url_by_scope:
                users = _Users.of(clients)
                project_scopes = {
                    scope: url for scope, url in url_by_scope.items() if scope not in users.scopes
                }
                granted = {scope: url for scope, url in project_scopes.items() if users.know(url)}
                refused = {
                    scope: url for scope, url in project_scopes.items() if scope not in granted
                }
                return cls(granted, refused, path)
        return cls()

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what distinguishes these scopes from another project's."""
        return tuple(self.granted.items()), tuple(self.refused.items())

    def over(self, clients: ClientRunner) -> ClientRunner:
        """Return the clients as a project may use them; without scopes they are the same for all."""
        return ScopedClients(clients, self) if self.granted or self.refused else clients

    def refusal(self, package: str) -> RecipeError | None:
        """Return why no registry can be queried about a package; None if one can."""
        scope = package.partition("/")[0]
        if scope not in self.refused:
            return None
        url = self.refused[scope]
        return RecipeError(
            RefusalReason.RESOLVER_FAILED,
            f"{package} comes from {urlsplit(url).netloc} by {self.source}, from a registry that your "
            "own npm configuration does not name, so it was not asked.",
            next_step=f"If you trust it: `npm config set {scope}:registry {url} --location=user`, and"
            " log in there if it asks for that.",
        )


@dataclass(frozen=True)
class _Users:
    """Scopes, and addresses without their protocol, in the user's own configuration."""

    scopes: frozenset[str]
    places: tuple[str, ...]

    @classmethod
    def of(cls, clients: ClientRunner) -> "_Users":
        """Return the scopes and addresses that npm lists, without secrets."""
        with scratch_project({MANIFEST: "{}"}) as folder:
            arguments = ["config", "list", "--long", "--loglevel=silent"]
            result = clients.run("npm", arguments, cwd=folder, timeout_s=_CONFIG_TIMEOUT_S)
        scopes, places = set(), []
        for line in result.output.splitlines() if result.ok else ():
            if registry := _REGISTRY.fullmatch(line.strip()):
                scopes.add(registry[1])
                places.append(_place(registry[2]))
            elif credentials := _CREDENTIALS.fullmatch(line.strip()):
                places.append(credentials[1].rstrip("/") + "/")
        return cls(frozenset(filter(None, scopes)), tuple(places))

    def know(self, url: str) -> bool:
        """Return whether a URL is at or below an address that the user's configuration names."""
        return ".." not in url and any(_place(url).startswith(place) for place in self.places)


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/"


def scoped(files: Files, clients: ClientRunner) -> ClientRunner:
    """Return the clients as a project may use them. Raises ToolError."""
    return Scopes.of(files, clients).over(clients)


@dataclass(frozen=True, eq=False)
class ScopedClients:
    """The clients of a project, with variables for the registries of its scopes."""

    inner: ClientRunner
    scopes: Scopes

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a tool (``ClientRunner.run``). A scope whose registry was refused is not looked up in another
        registry either: a public package of that name is a different one."""
        url_by_scope = dict.fromkeys(self.scopes.refused, _NOWHERE) | dict(self.scopes.granted)
        variables = {f"npm_config_{scope}:registry": url for scope, url in url_by_scope.items()}
        both = {**variables, **(env or {})} if tool in _READERS else env
        return self.inner.run(tool, args, cwd=cwd, timeout_s=timeout_s, env=both)
