"""Where a lock's tarballs come from: new entries get the address that the others have.

Which registry a project uses is its own affair; the one that this machine reaches is not written into it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Where a registry keeps tarballs: what stands before the package's name is the registry's address.
_TARBALL = re.compile(r"(https?://.+?/)(?:@[^/]+?(?:/|%2[fF]))?[^/@]+/-/[^/]+(?:/[^/]+)?")

#: Where a yarn.lock says that a package came from.
_ADDRESS = re.compile(r'^  resolved "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Addresses:
    """Which registry address the entries of a lock have, by scope ('/': none; '': all of them)."""

    common: Mapping[str, str] = field(default_factory=dict)
    #: Do their addresses end with the tarball's SHA-1 (``#…``)? Very old and some mirrored ones don't.
    with_hash: bool = True

    @classmethod
    def of(cls, entries: Iterable[tuple[str, str]]) -> "Addresses":
        """As the majority of these packages (name, ``resolved``) has it."""
        counted: dict[str, Counter[str]] = {}
        hashed = Counter[bool]()
        for name, resolved in entries:
            if match := _TARBALL.fullmatch(resolved):
                hashed[bool("#" in resolved)] += 1
                for scope in {"", _scope(name)}:
                    counted.setdefault(scope, Counter())[match[1]] += 1
        common = {scope: found.most_common(1)[0][0] for scope, found in counted.items()}
        return cls(common, hashed[True] >= hashed[False])

    def like_the_others(self, name: str, resolved: str) -> str:
        """The address that its neighbours would have; one that is no registry's tarball stays."""
        match = _TARBALL.fullmatch(resolved)
        prefix = self.common.get(_scope(name)) or self.common.get("")
        if match is None or prefix is None:
            return resolved
        moved = prefix + resolved[match.end(1) :]
        return moved if self.with_hash else moved.partition("#")[0]


def _scope(name: str) -> str:
    return name.partition("/")[0] if name.startswith("@") else "/"


def registry_prefixes(lock_text: str) -> tuple[str, ...]:
    """Registry addresses in a yarn.lock from which packages without a scope come: a company's own registry
    has its packages under a scope."""
    found = (_TARBALL.match(address) for address in _ADDRESS.findall(lock_text))
    return tuple(
        dict.fromkeys(
            match[1] for match in found if match and not match[0][match.end(1) :].startswith("@")
        )
    )
