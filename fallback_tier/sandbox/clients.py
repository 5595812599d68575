"""Runs git and the package clients of plugins outside the sandbox: they need the registries, we give them
nothing else.

Clients never run a target's code here: the callers pass ``--ignore-scripts`` and ``--no-build``,
and git is hardened by construction (``fallback_tier.sandbox.git``).
"""

import os
import pkgutil
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fallback_tier.ecosystem_rules import PackageClient, Wall, client_of, installed_rules
from fallback_tier.errors import ConfigurationError, ToolMissingError
from fallback_tier.execution import CommandResult
from fallback_tier.hosts import (
    ALLOW_HOST,
    HostRefusedError,
    Hosts,
    NamedHost,
    allowed_hosts,
    naming_file,
    settings_paths,
)
from fallback_tier.sandbox.git import GitRepositories, git_environment
from fallback_tier.sandbox.process import run_bounded

#: A client's output in memory. `git ls-files -z` of MAX_TRACKED_FILES paths is about 12 MB, and its
#: head must be whole; more is cut and says so.
MAX_CLIENT_OUTPUT_BYTES = 64 * 1024 * 1024

#: What every client may know: where programs, the home (for credentials that belong to the client),
#: proxies and certificates are. An allow-list: a model key or a cloud token is never among it.
_ENVIRONMENT = re.compile(
    r"""PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|XDG_(CACHE|CONFIG|DATA)_HOME|NETRC
    |(?i:https?_proxy|no_proxy|all_proxy)
    |SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO""",
    re.VERBOSE,
)

_PROXIES = re.compile(r"(?i:https?_proxy|all_proxy)")
_GIT = PackageClient(
    "git",
    how_to_install="Install git (https://git-scm.com/downloads) and make sure it is on PATH.",
)


def _known(tool: str) -> PackageClient:
    """What its ecosystem's plugin says of a client; nothing particular of any other program."""
    return _GIT if tool == _GIT.tool else client_of(tool) or PackageClient(tool)


def _how_to_install(tool: str) -> str:
    return _known(tool).how_to_install or f"Install {tool}."


class SubprocessClients:
    """The reference ``execution.ClientRunner`` and ``execution.KnowsHosts``. ``allow_hosts``: hosts
    (``HOST[:PORT]``) that a person allowed every client. Raises ConfigurationError if ``hosts.ALLOW_HOST``
    can't be read."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        *,
        python: Path = Path(sys.executable),
        allow_hosts: Sequence[str] = (),
    ) -> None:
        self._environ = dict(environ)
        self._python = python
        self._repositories = GitRepositories()
        try:
            by_variable = allowed_hosts(self._environ.get(ALLOW_HOST, ""))
        except ValueError as error:
            raise ConfigurationError(
                f"{ALLOW_HOST}: {error}.", next_step="Separate hosts by commas."
            ) from error
        self._allow_hosts = (*by_variable, *allow_hosts)
        self._refused: set[str] = set()

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a client, stdout and stderr joined, at most MAX_CLIENT_OUTPUT_BYTES; the process tree is
        killed at ``timeout_s``. ``env`` is added last; an empty value removes the variable. Raises
        ToolMissingError, and OSError if git's temporary folder can't be made."""
        path = self._locate(tool)
        if tool == _GIT.tool:

            def run_git(words: Sequence[str], at: Path, more: Mapping[str, str]) -> CommandResult:
                variables = self._environment(tool) | dict(more)
                return self._run(tool, path, words, at, timeout_s, variables)

            result = self._repositories.run(run_git, args, cwd, env or {})
            return result.model_copy(update={"argv": (tool, *args)})
        variables = self._environment(tool) | dict(env or {})
        allowed = (*self._allow_hosts, *allowed_hosts(variables.pop(ALLOW_HOST, "")))
        known = _known(tool)
        if not known.wall:
            return self._run(tool, path, args, cwd, timeout_s, variables)
        hosts = self._hosts(known, path, variables, allowed)
        with tempfile.TemporaryDirectory(prefix="fallback-tier-hosts-") as folder:
            report = Path(folder) / "refused"
            try:
                wall: Wall = pkgutil.resolve_name(known.wall)
                variables |= wall(hosts, cwd, args, report)
            except HostRefusedError as error:
                refused = tuple(one.host for one in error.named)
                self._refused.update(refused)
                said = f"error: {error}"
                argv = (tool, *args)
                return CommandResult(
                    argv=argv, exit_code=1, output=said, duration_ms=0, refused_hosts=refused
                )
            result = self._run(tool, path, args, cwd, timeout_s, variables)
            lines = report.read_text("utf-8").splitlines() if report.exists() else ()
            named = [NamedHost(it, naming_file(it, cwd)) for it in dict.fromkeys(lines)]
        if not named:
            return result
        said = "".join(f"error: {one.sentence}\n" for one in named)
        refused = tuple(one.host for one in named)
        self._refused.update(refused)
        return result.model_copy(update={"output": said + result.output, "refused_hosts": refused})

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        """As ``KnowsHosts``."""
        found = set(self._allow_hosts)
        for tool in tools:
            with suppress(ToolMissingError):
                path = self._locate(tool)
                hosts = self._hosts(_known(tool), path, self._environment(tool), ())
                found |= hosts.allowed
        return tuple(sorted(found))

    def take_refused(self) -> tuple[str, ...]:
        """As ``KnowsHosts``."""
        refused, self._refused = self._refused, set()
        return tuple(sorted(refused))

    def _run(
        self,
        tool: str,
        path: Path,
        args: Sequence[str],
        cwd: Path,
        timeout_s: float,
        variables: Mapping[str, str],
    ) -> CommandResult:
        try:
            result = run_bounded(
                [str(path), *args],
                cwd=cwd,
                env={name: value for name, value in variables.items() if value},
                timeout_s=timeout_s,
                max_output_bytes=MAX_CLIENT_OUTPUT_BYTES,
                shown=(tool, *args),
            )
        except OSError as error:
            raise ToolMissingError(
                f"{path} can't be started in {cwd}: {error.strerror}.",
                next_step=_how_to_install(tool),
                kind="not_startable",
            ) from error
        return result.model_copy(update={"argv": (tool, *args)})

    def _hosts(
        self,
        known: PackageClient,
        path: Path,
        variables: Mapping[str, str],
        allowed: Sequence[str],
    ) -> Hosts:
        home = self._environ.get("HOME") or str(Path.home())
        own = re.compile(known.environment)
        named = {
            name: value
            for name, value in variables.items()
            if value and (own.fullmatch(name) or _PROXIES.fullmatch(name))
        }
        settings = settings_paths(known.settings, home, path, self._environ)
        return Hosts.of_user(settings, named, (*known.default_hosts, *allowed))

    def _locate(self, tool: str) -> Path:
        beside = self._python.parent / tool
        if _known(tool).beside_python and os.access(beside, os.X_OK):
            return beside
        found = shutil.which(tool, path=self._environ.get("PATH", os.defpath))
        # A relative PATH entry would let a file in the working directory stand in for the client.
        if found is None or not Path(found).is_absolute():
            raise ToolMissingError(
                f"{tool} is not on PATH.", next_step=_how_to_install(tool), kind="not_on_path"
            )
        return Path(found)

    def _environment(self, tool: str) -> dict[str, str]:
        own = re.compile(_known(tool).environment)
        allowed = {
            name: value
            for name, value in self._environ.items()
            if _ENVIRONMENT.fullmatch(name) or own.fullmatch(name)
        }
        return allowed | git_environment() if tool == "git" else allowed


def passed_to_clients(environ: Mapping[str, str]) -> dict[str, str]:
    """Of an environment what some client may know: what a process needs that does nothing but run them.
    Raises PluginError."""
    of_clients = [client.environment for _, rules in installed_rules() for client in rules.clients]
    patterns = [_ENVIRONMENT, *map(re.compile, of_clients)]
    return {
        name: value
        for name, value in environ.items()
        if any(pattern.fullmatch(name) for pattern in patterns)
    }
