"""Addresses of a lock's tarballs: new entries get addresses like those of the others.

A lock keeps its project's registry; the one that this machine reaches is not written into it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

#: A registry's tarball: before the package's name is the registry's address.
_TARBALL = re.compile(r"(https?://.+?/)(?:@[^/]+?(?:/|%2[fF]))?[^/@]+/-/[^/]+(?:/[^/]+)?")

#: The same at a mirror whose addresses have ``download``; it accepts ``/-/``, too.
_MIRRORED = re.compile(
    r"(https?://.+?/)(?:@[^/]+/)?(?P<file>[^/@]+)/download/(?:@[^/]+/)?(?P=file)-[^/?#]+\.tgz(?:[?#].*)?"
)

#: The address of a package in a yarn.lock.
_ADDRESS = re.compile(r'^  resolved "([^"]+)"', re.MULTILINE)


#: The path of a tarball at a registry: ``…/@scope/name/-/name-1.0.0.tgz``.
_AT_REGISTRY = re.compile(
    r"(?:.*?/)??(?P<name>(?:@[^/]+/)?[^/@]+)/-/(?:@[^/]+/)?(?P<file>[^/]+)\.(?:tgz|tar\.gz)"
)

#: Characters at which an address is decoded or cut.
_NOT_PLAIN = re.compile(r"[%?#]")

#: The name of any tarball that states a version.
_ARCHIVE = re.compile(r"(?P<stem>.+?)-v?(?P<version>\d+\.\d+\.\d+.*)\.(?:tgz|tar\.gz|tar)")

#: An address of a repository: git's own, a host's archive of one, or npm's short forms.
_REPOSITORY = re.compile(
    r"(?:git\b.*|(?:git\+)?ssh:.*|https?://codeload\.github\.com/[^/]+/(?P<code>[^/]+)/.*"
    r"|https?://[^/]+/.*\.git(?:#.*)?|https?://github\.com/[^/]+/(?P<hub>[^/#]+)(?:/(?:tarball|archive)/.*)?"
    r"|(?:github|gitlab|bitbucket):.*|[\w.-]+/[\w.-]+(?:#.*)?)"
)


@dataclass(frozen=True)
class Origin:
    """The package at an address. ``name``: of a registry's package; ``stem``: of a file or a git
    repository, which may be called differently; ``version``: None if the address states none."""

    name: str | None = None
    stem: str | None = None
    version: str | None = None

    @property
    def label(self) -> str:
        """Return name and version, for messages."""
        return " ".join(filter(None, (self.name or self.stem, self.version)))

    def may_be(self, package: str) -> bool:
        """Return whether it can be a package of this name; ``npm pack`` writes a scope before the name."""
        if self.name is not None:
            return self.name == package
        scopeless = package.rpartition("/")[2]
        return self.stem in {scopeless, package.removeprefix("@").replace("/", "-")}


def is_registrys(address: str, name: str, version: str = "") -> bool:
    """Return whether an address is a registry's for a package (one release, if ``version`` is given), in
    its plain form. Nearly all are: reading each with ``origin_of`` would take half of a plan's time."""
    above, sign, file = address.rpartition("/-/")
    if not sign or not above.endswith(f"/{name}") or _NOT_PLAIN.search(address):
        return False
    if version and file != f"{name.rpartition('/')[2]}-{version}.tgz":
        return False
    return "://" in above and "@" not in above[: -len(name) - 1].rpartition("/")[2]


def origin_of(address: str) -> Origin:
    """Read an address of a lock."""
    plain = unquote(address)
    path = urlsplit(plain).path if "://" in plain else plain.partition("#")[0].partition("?")[0]
    if (match := _AT_REGISTRY.fullmatch(path)) and "://" in plain:
        name, file = match["name"], match["file"]
        start = f"{name.rpartition('/')[2]}-"
        if file.startswith(start):
            return Origin(name, version=file.removeprefix(start))
        return Origin(stem=file)
    if match := _ARCHIVE.fullmatch(PurePosixPath(path).name):
        return Origin(stem=match["stem"], version=match["version"])
    if match := _REPOSITORY.fullmatch(plain):
        last = plain.partition("#")[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]
        return Origin(stem=(match["code"] or match["hub"] or last).removesuffix(".git"))
    return Origin()


@dataclass(frozen=True)
class Addresses:
    """The registry address of a lock's entries, by scope ('/': none; '': all)."""

    common: Mapping[str, str] = field(default_factory=dict)
    #: Whether the addresses end with the tarball's SHA-1 (``#…``). Very old and some mirrored ones don't.
    with_hash: bool = True

    @classmethod
    def of(cls, entries: Iterable[tuple[str, str]]) -> "Addresses":
        """Return the addresses that the majority of these packages (name, ``resolved``) have."""
        counted: dict[str, Counter[str]] = {}
        hashed = Counter[bool]()
        for name, resolved in entries:
            if match := _TARBALL.fullmatch(resolved) or _MIRRORED.fullmatch(resolved):
                hashed[bool("#" in resolved)] += 1
                for scope in {"", _scope(name)}:
                    counted.setdefault(scope, Counter())[match[1]] += 1
        common = {scope: counts.most_common(1)[0][0] for scope, counts in counted.items()}
        return cls(common, hashed[True] >= hashed[False])

    def like_the_others(self, name: str, resolved: str) -> str:
        """Return the address at the others' registry; one that is not a registry's tarball stays."""
        match = _TARBALL.fullmatch(resolved)
        prefix = self.common.get(_scope(name)) or self.common.get("")
        if match is None or prefix is None:
            return resolved
        moved = prefix + resolved[match.end(1) :]
        return moved if self.with_hash else moved.partition("#")[0]


def _scope(name: str) -> str:
    return name.partition("/")[0] if name.startswith("@") else "/"


def registry_prefixes(lock_text: str) -> tuple[str, ...]:
    """Return the registry addresses in a yarn.lock from which packages without a scope come."""
    matches = (_TARBALL.match(address) for address in _ADDRESS.findall(lock_text))
    return tuple(
        dict.fromkeys(
            match[1] for match in matches if match and not match[0][match.end(1) :].startswith("@")
        )
    )
