"""The pure rules of an ecosystem: how its versions are ordered, its packages named, its files known.

No client runs and nothing is read for them, so they are asked before a repository is looked at. They come
from the ecosystem's plugin, by its entry point, and are loaded when somebody asks (ADR-0066).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

from fallback_tier.entry_points import Mounted, guarded, mounted
from fallback_tier.hosts import Hosts

#: Entry points by OSV's name of the ecosystem: a callable that builds the plugin from a client runner, and
#: has its rules as ``rules`` (``EcosystemFactory``).
ECOSYSTEMS_GROUP = "fallback_tier.ecosystems"


#: Keeps a client from hosts that it may not ask. Gets the hosts that it may ask, the client's folder and
#: arguments, and a file for the hosts that it is kept from, one per line. Returns variables for the client.
#: Raises HostRefusedError if what the client would read names another host.
Wall = Callable[[Hosts, Path, Sequence[str], Path], Mapping[str, str]]


class PackageClient(NamedTuple):
    """A program that an ecosystem's plugin runs outside the sandbox, and what it may know."""

    tool: str
    #: A pattern for the names of environment variables that it gets beside those that every client gets.
    environment: str = ""
    #: A sentence for who does not have it.
    how_to_install: str = ""
    #: Installed with our Python, if at all: looked for beside it first.
    beside_python: bool = False
    #: The user's own settings files that name its registries (``hosts.settings_paths``).
    settings: tuple[str, ...] = ()
    #: Hosts of its default registries, and of their files.
    default_hosts: tuple[str, ...] = ()
    #: Where its ``Wall`` is (``package.module:function``); empty: it asks no registry.
    wall: str = ""


class ClientCache(NamedTuple):
    """A folder that a client writes by default. ``ask``: the words by which it says where it really is."""

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
    """What is particular to an ecosystem before any repository is looked at. All of it is pure."""

    @property
    def range_type(self) -> Literal["SEMVER", "ECOSYSTEM"]:
        """OSV's type of a version range of this ecosystem."""
        ...

    @property
    def above_all(self) -> str:
        """A version above every real one: it stands for what will be published later."""
        ...

    @property
    def package_types(self) -> tuple[str, ...]:
        """Types by which scanners and package URLs call it, in lower case; the first is purl's."""
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
        """Names of files and folders that nobody may change: what judges a fix or runs by itself, beside
        what ``patch.policy`` names already; in lower case."""
        ...

    @property
    def source_suffixes(self) -> frozenset[str]:
        """How names of source files in the ecosystem's language end (``.py``)."""
        ...

    @property
    def clients(self) -> tuple[PackageClient, ...]:
        """The programs that its plugin runs."""
        ...

    def caches(self, environ: Mapping[str, str], *, offline: bool) -> Sequence[ClientCache]:
        """The folders that its clients have to write."""
        ...

    def sort_key(self, version: str) -> Any:
        """A hashable key: keys compare as versions do, and are equal where versions are. Raises ValueError
        where the text is no version."""
        ...

    def shared_by_equals(self, version: str) -> str | None:
        """A text that all versions equal to this one share, or None where there is none: so few need
        parsing of the hundreds that a record lists. Also for texts that are no versions."""
        ...

    def successor(self, version: str) -> str:
        """The lowest version above this one: no version lies between."""
        ...

    def next_line(self, version: str) -> str:
        """Where the release line after this version's begins."""
        ...

    def is_major_step(self, old: str, new: str) -> bool:
        """Does a step between two versions announce changes that break users?"""
        ...

    def is_prerelease(self, version: str) -> bool:
        """Is this version one that is not taken unasked (alpha, rc, dev …)?"""
        ...

    def is_exact(self, text: str) -> bool:
        """Is this one version as a manifest has it: no range, no blanks, nothing around it?"""
        ...

    def canonical_name(self, name: str) -> str:
        """The name that identifies a package."""
        ...

    def canonical_text(self, text: str) -> str:
        """A text in which every package name that stands in it stands canonical."""
        ...

    def purl_name(self, name: str) -> PurlName:
        """How package URLs name a package."""
        ...

    def owns_file(self, name: str) -> bool:
        """Is a file of this name (no folders) a manifest, a lock or a package's metadata of it?"""
        ...

    def document(self, path: str, text: str) -> Any:
        """A manifest or lock as data, as its client reads it; None: a format that core reads.

        In a lock, what is fetched is a table with ``name``, ``url`` and ``hash``. Raises ValueError.
        """
        ...

    def age_exception_keys(self, package: str) -> Sequence[str]:
        """Keys of a manifest that exempt a package from its rules on the age of releases (ADR-0110)."""
        ...


#: What a hook may raise to say that its input is not what it asks for.
_PASSES: Mapping[str, type[Exception]] = {"sort_key": ValueError, "document": ValueError}


def base_ecosystem(ecosystem: str) -> str:
    """OSV allows a suffix (``Debian:12``); what stands before it decides the rules."""
    return ecosystem.partition(":")[0]


@cache
def rules_of(ecosystem: str) -> EcosystemRules | None:
    """The rules of an ecosystem by OSV's name, whatever suffix it has; None where no plugin has them.

    Raises PluginError.
    """
    owner = mounted(ECOSYSTEMS_GROUP).get(base_ecosystem(ecosystem))
    return None if owner is None else _rules(owner)


@cache
def ecosystems() -> tuple[str, ...]:
    """The names of those that have a plugin; it is not loaded."""
    return tuple(sorted(mounted(ECOSYSTEMS_GROUP), key=str.casefold))


def installed_rules() -> Iterator[tuple[str, EcosystemRules]]:
    """Every ecosystem that has a plugin, and its rules. Raises PluginError."""
    for name in ecosystems():
        rules = rules_of(name)
        if rules is not None:
            yield name, rules


def client_of(tool: str) -> PackageClient | None:
    """What is known of a program that some ecosystem's plugin runs. Raises PluginError."""
    found = (client for _, rules in installed_rules() for client in rules.clients)
    return next((client for client in found if client.tool == tool), None)


def _rules(owner: Mounted) -> EcosystemRules:
    rules = owner.call("rules", getattr, owner.load(), "rules")
    return cast("EcosystemRules", guarded(rules, owner, EcosystemRules, passes=_PASSES))
