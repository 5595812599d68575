"""What a reader of one file can't tell the power of: each with the question that the project may answer.

A module that is brought in, the member that is called of a value that nothing here makes, a name that
nothing binds, a call of what is computed, the way from a value to its inner parts.
"""

import posixpath
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fallback_audit.vocabulary import Capability
from fallback_tier.gates.capability.harmless import inner_names, plain_dunder
from fallback_tier.gates.capability.names import Names
from fallback_tier.gates.capability.project import About, Question, package_of
from fallback_tier.gates.capability.tables import ANY, STEERING, Table
from fallback_tier.gates.capability.uses import CapabilityUse
from fallback_tier.gates.capability.words import words

if TYPE_CHECKING:
    from tree_sitter import Node

#: What a relative import of JavaScript can run that is no source of a language that is read.
_NATIVE = (".node", ".wasm")

#: Members that lead from any value to what runs a text.
_LEADING = frozenset({"constructor", "__proto__"})

#: Members of node's modules that load code, whatever leads to them.
_LOADING = words(
    """
    _load _resolveFilename _resolveLookupPaths _extensions _compile _findPath _nodeModulePaths _initPaths
    _preloadModules runMain registerHooks
    """
)

_NO_QUESTION = Question(About.NOTHING, "")


class Unknown:
    """The unknown uses of one file, collected while it is read."""

    def __init__(self, names: Names, table: Table, path: str, *, is_python: bool) -> None:
        self._names, self._table, self._is_python = names, table, is_python
        self._folder = PurePosixPath(path).parent
        self.found: defaultdict[CapabilityUse, list[int]] = defaultdict(list)
        self.questions: dict[CapabilityUse, Question] = {}

    def brought(self, message: str, node: "Node") -> None:
        """A module, as an import names it, that is not of the language's own library."""
        if self._is_python:
            if message.startswith("."):
                self._relative(message, node)
                return
            top = message.partition(".")[0]
            self._ask(message, Question(About.MODULE, top), node)
        elif message.startswith("."):
            place = posixpath.normpath(str(self._folder / message))
            is_file = not place.startswith("..") and not message.endswith(_NATIVE)
            self._ask(
                message,
                Question(About.FILE, _stem(place), False) if is_file else _NO_QUESTION,
                node,
            )
        elif message.startswith("/") or ":" in message:
            self._ask(message, _NO_QUESTION, node)
        elif message:
            self._ask(message, Question(About.MODULE, package_of(message), False), node)

    def _relative(self, message: str, node: "Node") -> None:
        """``from .a.b import c``; what ``from . import c`` brings may be a name of the package's."""
        names = message.lstrip(".").split(".")
        folder = self._folder
        for _ in range(len(message) - len(message.lstrip(".")) - 1):
            folder = folder.parent
        if names[0]:
            place = folder.joinpath(*names)
            self._ask(message, Question(About.FILE, str(place), True), node)

    def called_member(self, name: str, node: "Node") -> None:
        """A member that is called of a value of which nothing is known."""
        if name in _LEADING:
            self._ask(f".{name}", _NO_QUESTION, node)
            return
        if not (name in self._table.harmless.members or _is_dunder(name) or name.startswith("#")):
            self._ask(f".{name}", Question(About.MEMBER, name, self._is_python), node)

    def unbound(self, name: str, node: "Node") -> None:
        """A name that nothing in the file binds; Python's, its built-in ones, are in ``tables.py``."""
        if self._is_python:
            return
        if name not in self._table.harmless.roots and name not in self._table.roots:
            self._ask(name, Question(About.ROOT, name, False), node)

    def inner(self, name: str, node: "Node") -> None:
        """An attribute, if it leads to code, frames or all classes; in JavaScript, to node's loader."""
        if not plain_dunder(name):
            self._ask(name, _NO_QUESTION, node)
        elif not self._is_python and name in _LOADING and not self._names.is_own(node):
            self._ask(f".{name}", _NO_QUESTION, node)

    def spelled(self, message: str | None, node: "Node") -> None:
        """A name or a text, if it is a variable that steers what programs load."""
        name = (message or "").partition("=")[0]
        if name in STEERING:
            self._ask(f"the variable {name}", _NO_QUESTION, node)

    def written(self, holder: "Node | None", name: str, node: "Node") -> None:
        """A member that is set, if code that is not the project's own is another for it. ``name``: empty if
        it is computed."""
        for path in self._names.holders(holder):
            if self._table.steers(path, name):
                self._ask(f"a change of {path}.{name or ANY}", _NO_QUESTION, node)

    def text(self, message: str | None, node: "Node") -> None:
        """A text that names such an attribute: a formatter or a getter may follow it."""
        for name in inner_names(message or ""):
            self._ask(f"{name} in a text", _NO_QUESTION, node)

    def made(self, what: str, node: "Node") -> None:
        """What is only made when the program runs."""
        self._ask(what, _NO_QUESTION, node)

    def _ask(self, callee: str, question: Question, node: "Node") -> None:
        use = CapabilityUse(Capability.UNKNOWN, callee)
        self.questions[use] = question
        self.found[use].append(node.start_point.row + 1)


def _stem(place: str) -> str:
    """A path that may name a file of another ending: ``a.js`` of ``a.ts``."""
    return place[:-3] if place.endswith((".js", ".ts")) else place.removesuffix(".mjs")


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
