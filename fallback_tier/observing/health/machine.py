"""The checks of a machine: the package clients and their registries, the clock, folders, a repository.

A service's probes leave them out: they start programs and call other machines (ADR-0132).
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from fallback_tier.ecosystem_rules import PackageClient, rules_of
from fallback_tier.errors import FallbackError, ToolError, ToolFailedError
from fallback_tier.execution import ClientRunner, KnowsHosts
from fallback_tier.inspection import look_at
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.observing.health.checks import first_answer
from fallback_tier.observing.health.running import (
    DEAR_FRESH_S,
    Check,
    Finding,
    as_failed,
    degraded,
    failed,
    ok,
)
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Configuration
from fallback_tier.wiring.places import check_caches, check_places

#: Time limit for all checks together (s): a client takes a second to print its version, and a distant
#: registry a few.
MACHINE_TIMEOUT_S = 30.0

#: Time limit for one client's version, and for one registry's response (s).
_ASK_S = 10.0

#: Maximum number of registries that are checked: a user's settings may name many.
MAX_REGISTRIES = 12

#: How far a clock may be off (s): beyond it, certificates and signatures of others are refused.
MAX_CLOCK_OFF_S = 300.0

#: Maximum number of characters of a client's version.
_SHOWN = 40


def machine_checks(configuration: Configuration, repository: Path | None) -> tuple[Check, ...]:
    """Return checks of what a fix needs of this machine: for the repository's ecosystems, or for all."""
    clients, plugins = clients_and_plugins(configuration.settings.allow_hosts)
    looks: dict[str, Callable[[], Finding]] = {}
    repo = None
    if repository is not None:
        try:
            repo = look_at(repository, clients, configuration.settings)
        except FallbackError as error:
            looks["repository"] = partial(as_failed, error)
    look = _Looks(configuration, clients, plugins, repo)
    if repo is not None:
        looks["repository"] = partial(look.can_be_fixed, repo)
    looks["clients"] = look.programs
    looks["folders"] = look.folders
    looks["registries"] = look.registries
    looks["clock"] = look.clock
    return tuple(Check(name, check, fresh_s=DEAR_FRESH_S) for name, check in looks.items())


@dataclass(frozen=True)
class _Heard:
    """A registry's reply: how far its clock is ahead of ours, or why there is none."""

    host: str
    off: timedelta | None = None
    problem: str = ""


@dataclass
class _Looks:
    """The checks. Each may raise FallbackError, which is a failed finding. ``repo`` None: all
    ecosystems.
    """

    configuration: Configuration
    clients: ClientRunner
    plugins: Mapping[str, EcosystemPlugin]
    repo: RepoContext | None
    _once: threading.Lock = field(default_factory=threading.Lock)
    _heard: tuple[_Heard, ...] | None = None

    def can_be_fixed(self, repo: RepoContext) -> Finding:
        """Check for a clean, writable git checkout with dependencies of a known ecosystem."""
        ecosystems = ", ".join(self._ecosystems())
        if not os.access(repo.root, os.W_OK, effective_ids=True):
            return degraded(
                f"{repo.root} can't be written, so no fix is put on it.",
                "Give it to who runs this, or use --dry-run or --output.",
            )
        if not ecosystems:
            return degraded(
                f"{repo.root} has no file that declares dependencies of {', '.join(self.plugins)}.",
                "Name the folder of a checkout that has one; own code is fixed by a model (--model).",
            )
        return ok(f"{repo.root} is clean at {repo.base_commit[:12]}; dependencies of {ecosystems}.")

    def programs(self) -> Finding:
        versions, errors = [], []
        for client in self._needed():
            try:
                versions.append(f"{client.tool} {self._version(client.tool)}")
            except ToolError as error:
                errors.append(error)
        reason = f"{', '.join(versions) or 'none'} can be run"
        if not errors:
            return ok(f"{reason}.")
        finding = failed if self.repo is not None or not versions else degraded
        return finding(
            " ".join([f"{reason};", *(error.problem for error in errors)]),
            " ".join(dict.fromkeys(error.next_step for error in errors)),
        )

    def folders(self) -> Finding:
        ecosystems = self._ecosystems()
        check_places(self.configuration, self.clients, ecosystems)
        offline = self.configuration.settings.offline
        check_caches(self.clients, ecosystems, offline=offline)
        return ok("State, keys and the clients' caches can be written.")

    def registries(self) -> Finding:
        """Check whether each host that the clients may call answers. This process does not have the
        clients' credentials, so any status is an answer.
        """
        if self.configuration.settings.offline:
            return ok("None was asked (--offline).")
        replies = self._asked()
        if not replies:
            return degraded("No client names a registry.", "Install the clients that are missing.")
        unanswered = [reply for reply in replies if reply.problem]
        reason = (
            f"{', '.join(reply.host for reply in replies if not reply.problem) or 'none'} answered"
        )
        if not unanswered:
            return ok(f"{reason}{self._through()}.")
        problems = "; ".join(f"{reply.host}: {reply.problem}" for reply in unanswered)
        return degraded(
            f"{reason}{self._through()}; no answer from {problems}.",
            "Check the network, HTTPS_PROXY and NO_PROXY, certificates (SSL_CERT_FILE), and the registry "
            "in the client's own settings. Locks that are in step, and --offline, need none.",
        )

    def clock(self) -> Finding:
        offsets = [reply.off for reply in self._asked() if reply.off is not None]
        if not offsets:
            return ok("No registry stated its time, so nothing shows whether it is right.")
        seconds = sorted(offsets)[len(offsets) // 2].total_seconds()
        if abs(seconds) <= MAX_CLOCK_OFF_S:
            return ok(f"It is {abs(seconds):.0f} s off the registries' time.")
        which = "behind" if seconds > 0 else "ahead of"
        return degraded(
            f"It is {abs(seconds):,.0f} s {which} the registries' time.",
            "Set it (NTP): certificates, the age of releases and the dates on record depend on it.",
        )

    def _ecosystems(self) -> list[str]:
        names = sorted(self.plugins, key=str.casefold)
        if self.repo is None:
            return names
        files = self.repo.tracked_files
        return [name for name in names if self.plugins[name].manifests(files)]

    def _needed(self) -> Iterator[PackageClient]:
        yield PackageClient("git")
        for name in self._ecosystems():
            if (rules := rules_of(name)) is not None:
                yield from rules.clients

    def _version(self, tool: str) -> str:
        result = self.clients.run(tool, ["--version"], cwd=Path("/"), timeout_s=_ASK_S)
        if not result.ok:
            raise ToolFailedError(
                f"{tool} is there and can't say its version.",
                next_step=f"Run `{tool} --version` and repair what it says.",
            )
        parts = result.output.replace("version", " ").split()
        return next((part for part in parts if part.lstrip("v")[:1].isdigit()), "?")[:_SHOWN]

    def _asked(self) -> tuple[_Heard, ...]:
        with self._once:
            if self._heard is None:
                is_offline = self.configuration.settings.offline
                hosts = () if is_offline else self._hosts()[:MAX_REGISTRIES]
                with ThreadPoolExecutor(MAX_REGISTRIES) as pool:
                    self._heard = tuple(pool.map(_hear, hosts))
            return self._heard

    def _hosts(self) -> Sequence[str]:
        if not isinstance(self.clients, KnowsHosts):
            return ()
        return self.clients.allowed_hosts([client.tool for client in self._needed()])

    @staticmethod
    def _through() -> str:
        names = [name for name in os.environ if name.lower() in {"https_proxy", "http_proxy"}]
        return f" ({', '.join(sorted(names))} is set)" if any(map(os.environ.get, names)) else ""


def _hear(host: str) -> _Heard:
    """Return the reply of ``HOST`` or ``HOST:PORT``; over TLS, except for port 80 and this machine."""
    name, _, port = host.rpartition(":") if ":" in host else (host, "", "443")
    is_plain = port == "80" or name in {"127.0.0.1", "localhost", "[::1]"}
    try:
        answer = first_answer(f"{'http' if is_plain else 'https'}://{name}:{port}/", {}, _ASK_S)
    except OSError as error:
        return _Heard(host, problem=str(error))
    now = datetime.now(UTC)
    return _Heard(host, None if answer.date is None else answer.date - now)
