"""Rules on the hosts that a package client may contact: those of the user's own configuration, those that a
person allowed, and the client's own default registries. A host that only a repository names is not
contacted (ADR-0096)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fallback_tier.lazy_patterns import lazy_pattern

#: Hosts that a person allowed, separated by commas or blanks (``--allow-host``).
ALLOW_HOST = "FALLBACK_TIER_ALLOW_HOST"

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]"

#: ``HOST`` or ``HOST:PORT``, as a pattern.
ALLOWED_HOST = rf"^(?:{_NAME})(?::\d{{1,5}})?$"

#: An address that every parser of addresses reads alike. Other forms are not admitted: clients leave out
#: blanks, take ``\`` for ``/``, and read ``http:host`` and numbers as hosts.
_ADDRESS = lazy_pattern(
    rf"(?P<scheme>https?)://(?:[^/@\s\\?#]*@)?(?P<host>{_NAME})(?::(?P<port>\d{{1,5}}))?(?:[/?#][^\s\\]*)?",
    re.IGNORECASE,
)

#: An address in a user's own settings; npm's settings have credentials by an address without its scheme. A
#: path (``file:///opt``) names no host.
_IN_SETTINGS = lazy_pattern(
    rf"(?:(?P<scheme>https?):|(?<![:/]))//(?:[^/@\s\"']*@)?(?P<host>{_NAME})(?::(?P<port>\d{{1,5}}))?",
    re.IGNORECASE,
)
_COMMENT = lazy_pattern(r"\s*[#;]")
_PROXY = lazy_pattern(r"\s*[\w.-]*proxy[\"']?\s*[=:\s]", re.IGNORECASE)
_NO_PROXY = lazy_pattern(r"\s*[\w.-]*no[-_]?proxy[\"']?\s*[=:\s]", re.IGNORECASE)
_FILE = lazy_pattern(r".*config(?:_file)?", re.IGNORECASE)

#: Most bytes of a file that is searched for hosts, most files, most characters of a shown address.
_MAX_TEXT = 50_000_000
_MAX_FILES = 2_000
_SHOWN = 80

_PORTS = {"https": ("443",), "http": ("80",), "": ("443", "80")}


class NamedHost(NamedTuple):
    """A host that is not contacted, and the file that names it (empty: unknown)."""

    host: str
    file: str = ""

    @property
    def sentence(self) -> str:
        """A sentence that names the host, the file that names it, and what to do."""
        source = self.file or "what a package asks for"
        return (
            f"{self.host} is named by {source} and not by your own configuration, so it was not asked;"
            f" if you trust it, allow it with --allow-host {self.host}"
        )


class HostRefusedError(Exception):
    """A client is not started: what it would read names hosts that it may not contact, or can't be read
    (``why``)."""

    def __init__(self, named: Sequence[NamedHost], why: str = "") -> None:
        self.named = tuple(dict.fromkeys(named))
        super().__init__("; ".join([host.sentence for host in self.named] + [why] * bool(why)))


@dataclass(frozen=True)
class Hosts:
    """Hosts of a client. ``allowed``: those that it may contact, with their ports (``host:443``); without a
    port, on any port. ``proxies``: those that the user's connections go through; nothing is requested of
    them."""

    allowed: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()

    @classmethod
    def of_user(
        cls, settings: Iterable[Path], variables: Mapping[str, str], more: Iterable[str] = ()
    ) -> "Hosts":
        """Return the hosts that a user's settings files and variables name. ``more``: hosts as
        ``--allow-host`` has them."""
        texts = [f"{name}={value}" for name, value in variables.items()]
        moved = (Path(value) for name, value in variables.items() if _FILE.fullmatch(name))
        for path in (*settings, *(path for path in moved if path.is_absolute())):
            texts += _text(path).splitlines()
        hosts: dict[bool, set[str]] = {True: set(), False: set()}
        for text in texts:
            if not _COMMENT.match(text) and not _NO_PROXY.match(text):
                is_proxy = _PROXY.match(text) is not None
                # A proxy may be written without a scheme.
                line = (
                    re.sub(r"=\s*\"?(?![\w+]*:?//)(?=\S)", "=http://", text) if is_proxy else text
                )
                hosts[is_proxy] |= {
                    host for match in _IN_SETTINGS.finditer(line) for host in _places(match)
                }
        return cls(
            frozenset((*hosts[False], *(host.lower() for host in more))), frozenset(hosts[True])
        )

    def admits(self, address: str) -> bool:
        """Return whether it is an allowed host's address, written so that it can't be read as another's."""
        match = _ADDRESS.fullmatch(address)
        if match is None or ".." in match["host"]:
            return False
        return match["host"].lower() in self.allowed or not self.allowed.isdisjoint(_places(match))


def allowed_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts (``HOST[:PORT]``) in a text, separated by commas or blanks. Raises ValueError."""
    hosts = [host for host in re.split(r"[,\s]+", text) if host]
    for host in hosts:
        if re.fullmatch(ALLOWED_HOST, host) is None:
            raise ValueError(f"{host[:_SHOWN]!r} is not HOST or HOST:PORT")
    return tuple(host.lower() for host in hosts)


def host_in(address: str) -> str:
    """Return the host of an address for a message, with a port that isn't its scheme's. An address that
    can't be read is repeated, without credentials."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return re.sub(r"[^/\\:@]*:?[^/\\:@]*@", "", address)[:_SHOWN]
    (host_and_port,) = _places(match)
    usual = match["port"] is None or match["port"] in _PORTS[match["scheme"].lower()]
    return match["host"].lower() if usual else host_and_port


def allow_step(hosts: Iterable[str]) -> str:
    """Return the next step about hosts that were not contacted."""
    options = " ".join(f"--allow-host {host}" for host in hosts)
    return f"If you trust what the repository names, allow it: {options}."


def naming_file(host: str, folder: Path) -> str:
    """Return the file of a client's folder that names a host, relative to it; empty if none does."""
    for depth in ("*", "*/*", "*/*/*"):
        for path in sorted(folder.glob(depth))[:_MAX_FILES]:
            if host in _text(path):
                return path.relative_to(folder).as_posix()
    return ""


def _places(match: re.Match[str]) -> tuple[str, ...]:
    ports = (match["port"],) if match["port"] else _PORTS[(match["scheme"] or "").lower()]
    return tuple(f"{match['host'].lower()}:{port}" for port in ports)


def _text(path: Path) -> str:
    """Return a file's text; empty if there is none that can be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_TEXT:
            return ""
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def settings_paths(
    patterns: Iterable[str], home: str, program: Path, environ: Mapping[str, str]
) -> list[Path]:
    """Return the paths of settings: ``~`` is the user's home, ``$CONFIG`` their folder of settings,
    ``$PREFIX`` where a program is installed."""
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    prefix = program.parent.parent
    return [
        Path(
            pattern.replace("~", home, 1).replace("$CONFIG", config).replace("$PREFIX", str(prefix))
        )
        for pattern in patterns
    ]
