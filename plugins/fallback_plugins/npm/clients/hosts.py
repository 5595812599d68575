"""Keeps npm, yarn and pnpm from hosts that only a repository, or a package, names (ADR-0096)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from fallback_plugins.npm.clients.scratch import scratch_project
from fallback_plugins.npm.locks.entries import lock_entries
from fallback_plugins.npm.manifests.manifest import FOREIGN_LOCKS, LOCKS, MANIFEST
from fallback_plugins.npm.manifests.specs import is_package_name
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult, allowing
from fallback_tier.hosts import Hosts, host_in

#: Seconds for one query.
_ASK_S = 60.0

_VERSION = re.compile(r"\d[0-9A-Za-z.+-]*")

#: ``npm pack NAME@VERSION``.
_PACKED = re.compile(r"(?P<name>@?[^@\s]+)@(?P<version>\d[^\s]*)")


def wall(hosts: Hosts, _cwd: Path, _args: Sequence[str], report: Path) -> Mapping[str, str]:
    """Return a client's variables (``ecosystem_rules.Wall``): node loads ``hosts.cjs`` before anything
    else; a git that the client starts, which does not load it, may use no transport."""
    code = files(__package__).joinpath("hosts.cjs")
    settings = {
        "allowed": sorted(hosts.allowed),
        "proxies": sorted(hosts.proxies),
        "report": str(report),
    }
    loader = report.with_name("hosts.cjs")
    loader.write_text(
        f"require({json.dumps(str(code))})({json.dumps(settings)});\n", encoding="utf-8"
    )
    return {
        "NODE_OPTIONS": f"--require {json.dumps(str(loader))}",
        "GIT_ALLOW_PROTOCOL": "none",
    }


def run_client(
    clients: ClientRunner,
    tool: str,
    words: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    """Run a client (``ClientRunner.run``). A host that a lock names for an archive is allowed if the user's
    registry names it for that release, too: one release of each such host is looked up."""
    result = clients.run(tool, words, cwd=cwd, timeout_s=timeout_s, env=env)
    confirmed = [
        host
        for host in result.refused_hosts
        if _is_confirmed(host, [*_releases(words, cwd)], clients)
    ]
    if not confirmed:
        return result
    return allowing(clients, confirmed).run(tool, words, cwd=cwd, timeout_s=timeout_s, env=env)


def _is_confirmed(
    host: str, releases: Sequence[tuple[str, str, str]], clients: ClientRunner
) -> bool:
    """Return whether the user's registry names this host for a release, as a lock does."""
    for name, version, url in releases:
        if url and host_in(url) != host:
            continue
        if not is_package_name(name) or not _VERSION.fullmatch(version):
            continue  # to npm it may be an address
        question = [
            "view",
            "--json",
            "--loglevel=silent",
            "--",
            f"{name}@{version}",
            "dist.tarball",
        ]
        with scratch_project({MANIFEST: "{}"}) as folder:
            answer = clients.run("npm", question, cwd=folder, timeout_s=_ASK_S)
        try:
            return answer.ok and host_in(str(json.loads(answer.output))) == host
        except ValueError:
            return False
    return False


def _releases(words: Sequence[str], cwd: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and address of what is fetched; an empty address is unknown."""
    for word in words[1:] if words[:1] == ["pack"] else ():
        if match := _PACKED.fullmatch(word):
            yield match["name"], match["version"], ""
    for path in cwd.glob("*"):
        with suppress(RecipeError):  # its client reports what is wrong with it
            if path.name in {*LOCKS, *FOREIGN_LOCKS}:
                for entry in lock_entries(path.name, path.read_text("utf-8", "replace")):
                    if entry.address:
                        yield entry.name, entry.version, entry.address
