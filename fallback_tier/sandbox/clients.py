"""Running of git and plugins' package clients outside the sandbox: they get the registries, nothing else.

Clients never run a target's code here: the callers pass ``--ignore-scripts`` and ``--no-build``, and git is
hardened by construction (``fallback_tier.sandbox.git``).
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

#: The limit of a client's output in memory. `git ls-files -z` of MAX_TRACKED_FILES paths is about 12 MB,
#: and its head must be whole; longer output is cut and says so.
MAX_CLIENT_OUTPUT_BYTES = 64 * 1024 * 1024

#: Variables that every client gets: where programs, the home (for the client's own credentials), proxies
#: and certificates are. An allow-list: a model key or a cloud token is never on it.
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
    """Return what a client's ecosystem plugin declares; no particulars for any other program."""
    return _GIT if tool == _GIT.tool else client_of(tool) or PackageClient(tool)


def _how_to_install(tool: str) -> str:
    return _known(tool).how_to_install or f"Install {tool}."


class SubprocessClients:
    """The reference ``execution.ClientRunner`` and ``execution.KnowsHosts``.

    ``allow_hosts``: hosts (``HOST[:PORT]``) that a person allowed for every client. Raises
    ConfigurationError if ``hosts.ALLOW_HOST`` can't be parsed.
    """

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
        """Run a client, with stdout and stderr joined, at most MAX_CLIENT_OUTPUT_BYTES.

        The process tree is killed at ``timeout_s``. ``env`` is added last; an empty value removes the
        variable. Raises ToolMissingError, and OSError if git's temporary folder can't be created.
        """
        path = self._locate(tool)
        if tool == _GIT.tool:

            def run_git(
                git_args: Sequence[str], folder: Path, extra_env: Mapping[str, str]
            ) -> CommandResult:
                variables = self._environment(tool) | dict(extra_env)
                return self._run(tool, path, git_args, folder, timeout_s, variables)

            result = self._repositories.run(run_git, args, cwd, env or {})
            return result.model_copy(update={"argv": (tool, *args)})
        variables = self._environment(tool) | dict(env or {})
        allowed = (*self._allow_hosts, *allowed_hosts(variables.pop(ALLOW_HOST, "")))
        client = _known(tool)
        if not client.wall:
            return self._run(tool, path, args, cwd, timeout_s, variables)
        hosts = self._hosts(client, path, variables, allowed)
        with tempfile.TemporaryDirectory(prefix="fallback-tier-hosts-") as folder:
            report = Path(folder) / "refused"
            try:
                wall: Wall = pkgutil.resolve_name(client.wall)
                variables |= wall(hosts, cwd, args, report)
            except HostRefusedError as error:
                refused = tuple(named_host.host for named_host in error.named)
                self._refused.update(refused)
                refusal_text = f"error: {error}"
                argv = (tool, *args)
                return CommandResult(
                    argv=argv,
                    exit_code=1,
                    output=refusal_text,
                    duration_ms=0,
                    refused_hosts=refused,
                )
            result = self._run(tool, path, args, cwd, timeout_s, variables)
            lines = report.read_text("utf-8").splitlines() if report.exists() else ()
            named_hosts = [NamedHost(host, naming_file(host, cwd)) for host in dict.fromkeys(lines)]
        if not named_hosts:
            return result
        refusal_text = "".join(f"error: {named_host.sentence}\n" for named_host in named_hosts)
        refused = tuple(named_host.host for named_host in named_hosts)
        self._refused.update(refused)
        return result.model_copy(
            update={"output": refusal_text + result.output, "refused_hosts": refused}
        )

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Implement ``KnowsHosts``."""
        hosts_of_tools = set(self._allow_hosts)
        for tool in tools:
            with suppress(ToolMissingError):
                path = self._locate(tool)
                hosts = self._hosts(_known(tool), path, self._environment(tool), ())
                hosts_of_tools |= hosts.allowed
        return tuple(sorted(hosts_of_tools))

    def take_refused(self) -> tuple[str, ...]:
        """Implement ``KnowsHosts``."""
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
        client: PackageClient,
        path: Path,
        variables: Mapping[str, str],
        allowed: Sequence[str],
    ) -> Hosts:
        home = self._environ.get("HOME") or str(Path.home())
        client_variables = re.compile(client.environment)
        variables_with_hosts = {
            name: value
            for name, value in variables.items()
            if value and (client_variables.fullmatch(name) or _PROXIES.fullmatch(name))
        }
        settings = settings_paths(client.settings, home, path, self._environ)
        return Hosts.of_user(settings, variables_with_hosts, (*client.default_hosts, *allowed))

    def _locate(self, tool: str) -> Path:
        next_to_python = self._python.parent / tool
        if _known(tool).beside_python and os.access(next_to_python, os.X_OK):
            return next_to_python
        on_path = shutil.which(tool, path=self._environ.get("PATH", os.defpath))
        # A relative PATH entry would let a file in the working directory replace the client.
        if on_path is None or not Path(on_path).is_absolute():
            raise ToolMissingError(
                f"{tool} is not on PATH.", next_step=_how_to_install(tool), kind="not_on_path"
            )
        return Path(on_path)

    def _environment(self, tool: str) -> dict[str, str]:
        client_variables = re.compile(_known(tool).environment)
        allowed = {
            name: value
            for name, value in self._environ.items()
            if _ENVIRONMENT.fullmatch(name) or client_variables.fullmatch(name)
        }
        return allowed | git_environment() if tool == "git" else allowed


def passed_to_clients(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that only runs clients: those that any client may get. Raises
    PluginError."""
    of_clients = [client.environment for _, rules in installed_rules() for client in rules.clients]
    patterns = [_ENVIRONMENT, *map(re.compile, of_clients)]
    return {
        name: value
        for name, value in environ.items()
        if any(pattern.fullmatch(name) for pattern in patterns)
    }
