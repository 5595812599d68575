"""What is known to do nothing beyond its own process: all else that is new must be declared.

The other way round than ``tables.py``, which names what reaches out and of which kind. What neither names
is *unknown*: a gap in these lists costs a question, not a hole.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


#: Every member, but those that begin with an underscore.
_ALL = "*"

#: Attributes of Python's data model that tell or compare: not what leads to code, frames or all classes.
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

    ``modules``: of the language's own library, with the members that are harmless (``*``: those that don't
    begin with an underscore and are no module of the library). ``library``: all of its modules. ``roots``:
    names that need no import. ``members``: of values of any kind.
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
        """Objects of JavaScript's own: what is changed of one, all code sees."""
        if self.carries:
            return frozenset()
        return frozenset({"console", *(name for name in self.roots if name[0].isupper())})

    def led_to(self, path: str) -> str:
        """``os.system`` for ``random._os.system``: what a module imports is a member of it."""
        if not self.carries or not self.is_own(path):
            return path
        parts = path.split(".")
        for at in range(len(parts) - 1, 0, -1):
            name, there = parts[at].lstrip("_"), ".".join(parts[: at + 1])
            if name in self.library and not self.allows(there):
                return ".".join([name, *parts[at + 1 :]])
        return path

    def is_own(self, path: str) -> bool:
        """Is it of the language's own library?"""
        return path.partition(".")[0] in self.library

    def near(self, path: str) -> str:
        """A path of the library, no deeper than a member of a module; empty where that is harmless: what is
        done with it then is a value's. Aliases of one letter would make paths without end."""
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
        """Is a module of the library, or what is taken from it, harmless?"""
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
        if any(member == one or fnmatchcase(member, one) for one in allowed if one != _ALL):
            return True
        is_module = self.carries and member in self.library and member != module
        return _ALL in allowed and not member.startswith("_") and not is_module


def plain_dunder(name: str) -> bool:
    """Does ``__name__`` only tell or compare? True of a name of another form."""
    found = _DUNDER.fullmatch(name)
    return found is None or found[1] in _PLAIN_DUNDERS


def inner_names(text: str) -> list[str]:
    """What a text names that leads to code, frames or all classes: ``{0.__globals__}``."""
    return [found[0] for found in _DUNDER.finditer(text) if found[1] in _INNER]


#: As words of a text: any other ``__word__`` may be one of the text's own.
_INNER = words(
    """
    globals builtins code closure subclasses loader getattribute
    """
)


def modules(text: str) -> dict[str, tuple[str, ...]]:
    """A line a module: its path, then its members; several of which all are harmless without a colon."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.strip().splitlines():
        path, is_listed, members = line.partition(":")
        if is_listed:
            found[path.strip()] = found.get(path.strip(), ()) + tuple(members.split())
        else:
            found |= dict.fromkeys(line.split(), (_ALL,))
    return found
