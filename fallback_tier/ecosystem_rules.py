"""The pure rules of an ecosystem: the order of its versions, the names of its packages, its files.

They run no client and read nothing, so they can be used before a repository is looked at. They come from
the ecosystem's plugin, by its entry point, and are loaded when they are first needed (ADR-0066).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

from fallback_tier.entry_points import Mounted, guarded, mounted
from fallback_tier.hosts import Hosts

#: Entry points by OSV's name of the ecosystem: a callable that builds the plugin from a client runner and
#: has its rules as ``rules`` (``EcosystemFactory``).
ECOSYSTEMS_GROUP = "fallback_tier.ecosystems"


#: Keeps a client from hosts that it may not contact. Gets the allowed hosts, the client's folder and
#: arguments, and a file for the refused hosts, one per line. Returns variables for the client. Raises
#: HostRefusedError if what the client would read names another host.
Wall = Callable[[Hosts, Path, Sequence[str], Path], Mapping[str, str]]


class PackageClient(NamedTuple):
    """A program that an ecosystem's plugin runs outside the sandbox, and what it may know."""

    tool: str
    #: A pattern for names of environment variables that it gets, in addition to every client's.
    environment: str = ""
    #: A sentence for users who do not have it.
    how_to_install: str = ""
    #: Installed with this Python, if at all: looked for next to it first.
    beside_python: bool = False
    #: The user's own settings files that name its registries (``hosts.settings_paths``).
    settings: tuple[str, ...] = ()
    #: Hosts of its default registries, and of their files.
    default_hosts: tuple[str, ...] = ()
    #: Its ``Wall`` (``package.module:function``); empty if it contacts no registry.
    wall: str = ""


class ClientCache(NamedTuple):
    """A folder that a client writes by default. ``ask``: the arguments by which it reports the actual
    one."""

    folder: str
    what: str
    moved_by: str
    ask: tuple[str, ...] = ()


class PurlName(NamedTuple):
    """A package's name as package URLs have it (purl-spec)."""

    type: str
    namespace: str
    name: str


class EcosystemRules(Protocol):
    """The facts of an ecosystem that depend on no repository. All of it is pure."""

    @property
    def range_type(self) -> Literal["SEMVER", "ECOSYSTEM"]:
        """OSV's type of a version range of this ecosystem."""
        ...

    @property
    def above_all(self) -> str:
        """A version above every real one: it represents what will be published later."""
        ...

    @property
    def package_types(self) -> tuple[str, ...]:
        """Types that scanners and package URLs use for it, in lower case; the first is purl's."""
        ...

    @property
    def manifest_globs(self) -> tuple[str, ...]:
        """Names of files that only a recipe may change, by their keys; in lower case."""
        ...

    @property
    def lock_globs(self) -> tuple[str, ...]:
        """Names of files that only a client writes; in lower case."""
        ...

    @property
    def protected_globs(self) -> tuple[str, ...]:
        """Names of files and folders that no fix may change: what judges a fix or runs by itself, in
        addition to what ``patch.policy`` names; in lower case."""
        ...

    @property
    def source_suffixes(self) -> frozenset[str]:
        """Suffixes of source files in the ecosystem's language (``.py``)."""
        ...

    @property
    def clients(self) -> tuple[PackageClient, ...]:
        """The programs that its plugin runs."""
        ...

    def caches(self, environ: Mapping[str, str], *, offline: bool) -> Sequence[ClientCache]:
        """Return the folders that its clients have to write."""
        ...

    def sort_key(self, version: str) -> Any:
        """Return a hashable key: keys compare as versions do, and are equal if versions are. Raises
        ValueError if the text is not a version."""
        ...

    def shared_by_equals(self, version: str) -> str | None:
        """Return a text that all versions equal to this one share, or None if there is none: so few need
        parsing of the hundreds that a record lists. Also for texts that are not versions."""
        ...

    def successor(self, version: str) -> str:
        """Return the lowest version above this one: no version lies between."""
        ...

    def next_line(self, version: str) -> str:
        """Return where the release line after this version's begins."""
        ...

    def is_major_step(self, old: str, new: str) -> bool:
        """Return whether a step between two versions announces changes that break users."""
        ...

    def is_prerelease(self, version: str) -> bool:
        """Return whether this version is taken only on request (alpha, rc, dev …)."""
        ...

    def is_exact(self, text: str) -> bool:
        """Return whether this is one version as a manifest has it: no range, no blanks, nothing around
        it."""
        ...

    def canonical_name(self, name: str) -> str:
        """Return the name that identifies a package."""
        ...

    def canonical_text(self, text: str) -> str:
        """Return a text with every package name in it in canonical form."""
        ...

    def purl_name(self, name: str) -> PurlName:
        """Return a package's name as package URLs have it."""
        ...

    def owns_file(self, name: str) -> bool:
        """Return whether a file of this name (no folders) is its manifest, lock or package metadata."""
        ...

    def document(self, path: str, text: str) -> Any:
        """Return a manifest or lock as data, as its client reads it, or None for a format that core reads.

        In a lock, what is fetched is a table with ``name``, ``url`` and ``hash``. Raises ValueError.
        """
        ...

    def age_exception_keys(self, package: str) -> Sequence[str]:
        """Return keys of a manifest that exempt a package from its rules on release ages (ADR-0110)."""
        ...


#: Exceptions by which a hook reports that its input is not what it expects.
_PASSES: Mapping[str, type[Exception]] = {"sort_key": ValueError, "document": ValueError}


def base_ecosystem(ecosystem: str) -> str:
    """Return an ecosystem without OSV's suffix (``Debian:12``): the part before it decides the rules."""
    return ecosystem.partition(":")[0]


@cache
def rules_of(ecosystem: str) -> EcosystemRules | None:
    """Return the rules of an ecosystem by OSV's name, whatever suffix it has, or None if no plugin has
    them.

    Raises PluginError.
    """
    owner = mounted(ECOSYSTEMS_GROUP).get(base_ecosystem(ecosystem))
    return None if owner is None else _rules(owner)


@cache
def ecosystems() -> tuple[str, ...]:
    """Return the names of the ecosystems that have a plugin, without loading it."""
    return tuple(sorted(mounted(ECOSYSTEMS_GROUP), key=str.casefold))


def installed_rules() -> Iterator[tuple[str, EcosystemRules]]:
    """Yield every ecosystem that has a plugin, and its rules. Raises PluginError."""
    for name in ecosystems():
        rules = rules_of(name)
        if rules is not None:
            yield name, rules


def client_of(tool: str) -> PackageClient | None:
    """Return the declaration of a program that a plugin runs, or None. Raises PluginError."""
    clients = (client for _, rules in installed_rules() for client in rules.clients)
    return next((client for client in clients if client.tool == tool), None)


def _rules(owner: Mounted) -> EcosystemRules:
    rules = owner.call("rules", getattr, owner.load(), "rules")
    return cast("EcosystemRules", guarded(rules, owner, EcosystemRules, passes=_PASSES))
