"""What is known to have no effect outside its own process: all other new uses must be declared.

The complement of ``tables.py``, which names what has such an effect and of which kind. What neither names
is *unknown*: a gap in these lists costs a question, not a hole.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


#: Every member, except those that begin with an underscore.
_ALL = "*"

#: Attributes of Python's data model that describe or compare, but don't lead to code, frames or all
#: classes.
_PLAIN_DUNDERS = words(
    """
    abs add aenter aexit aiter all and anext annotations args author await bool bytes call cause
    ceil class complex contains context copy debug deepcopy defaults delattr delete delitem
    delslice dict dir divmod doc enter eq exit fields file float floor floordiv format future ge
    get getattr getitem getnewargs getslice getstate gt hash iadd iand idiv index init int
    invert ior isub iter ixor kwdefaults le len length_hint lshift lt main members metaclass
    missing mod module mro mul name ne neg new next nonzero notes or origin orig_bases package
    parameters path pos post_init pow prepare qualname radd rand repr reversed ror round rshift
    rsub rtruediv set setattr set_name setitem setstate signature sizeof slots str sub
    suppress_context title traceback truediv trunc unicode version weakref wrapped xor
    """
)

_DUNDER = re.compile(r"__(\w+?)__")


@dataclass(frozen=True)
class Harmless:
    """One language's lists.

    ``modules``: of the standard library, with their harmless members (``*``: those that don't begin with an
    underscore and are not modules of the library). ``library``: all of its modules. ``roots``: names that
    need no import. ``members``: of values of any kind.
    """

    modules: Mapping[str, tuple[str, ...]]
    library: frozenset[str]
    roots: frozenset[str]
    members: frozenset[str]
    carries: bool = False

    @cached_property
    def _packages(self) -> frozenset[str]:
        return frozenset(path.rpartition(".")[0] for path in self.modules if "." in path)

    @cached_property
    def natives(self) -> frozenset[str]:
        """Built-in objects of JavaScript: a change of one affects all code."""
        if self.carries:
            return frozenset()
        return frozenset({"console", *(name for name in self.roots if name[0].isupper())})

    def led_to(self, path: str) -> str:
        """Return ``os.system`` for ``random._os.system``: a module has those that it imports as members."""
        if not self.carries or not self.is_own(path):
            return path
        parts = path.split(".")
        for index in range(len(parts) - 1, 0, -1):
            name, prefix = parts[index].lstrip("_"), ".".join(parts[: index + 1])
            if name in self.library and not self.allows(prefix):
                return ".".join([name, *parts[index + 1 :]])
        return path

    def is_own(self, path: str) -> bool:
        """Return whether it is in the language's standard library."""
        return path.partition(".")[0] in self.library

    def near(self, path: str) -> str:
        """Return a path of the library, no deeper than a member of a module, or "" if that is harmless:
        deeper members are a value's. One-letter aliases would otherwise make endless paths."""
        if not self.is_own(path):
            return ""
        parts = path.split(".")
        for end in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:end])
            if module in self.modules or module in self._packages or end == 1:
                member = ".".join(parts[: end + 1])
                is_deeper = member != path
                return "" if is_deeper and self.allows(member) else member
        return path

    def allows(self, path: str) -> bool:
        """Return whether a module of the library, or a member of one, is harmless."""
        if path in self.modules or path in self._packages:
            return True
        parts = path.split(".")
        for end in range(len(parts) - 1, 0, -1):
            allowed = self.modules.get(".".join(parts[:end]))
            if allowed is not None:
                return self._member(allowed, parts[end], parts[end - 1])
        return False

    def _member(self, allowed: tuple[str, ...], member: str, module: str) -> bool:
        if _DUNDER.fullmatch(member):
            return plain_dunder(member)
        if any(
            member == pattern or fnmatchcase(member, pattern)
            for pattern in allowed
            if pattern != _ALL
        ):
            return True
        is_module = self.carries and member in self.library and member != module
        return _ALL in allowed and not member.startswith("_") and not is_module


def plain_dunder(name: str) -> bool:
    """Return whether ``__name__`` only describes or compares; True for a name of another form."""
    match = _DUNDER.fullmatch(name)
    return match is None or match[1] in _PLAIN_DUNDERS


def inner_names(text: str) -> list[str]:
    """Return the names in a text that lead to code, frames or all classes: ``{0.__globals__}``."""
    return [match[0] for match in _DUNDER.finditer(text) if match[1] in _INNER]


#: In a text any other ``__word__`` may be the text's own.
_INNER = words(
    """
    globals builtins code closure subclasses loader getattribute
    """
)


def modules(text: str) -> dict[str, tuple[str, ...]]:
    """Return the members by module. The text has one module per line with its members, or several modules
    without a colon of which all members are harmless."""
    members_by_module: dict[str, tuple[str, ...]] = {}
    for line in text.strip().splitlines():
        path, is_listed, members = line.partition(":")
        if is_listed:
            members_by_module[path.strip()] = members_by_module.get(path.strip(), ()) + tuple(
                members.split()
            )
        else:
            members_by_module |= dict.fromkeys(line.split(), (_ALL,))
    return members_by_module
