"""Requirements as text: where a package is declared, and the exact spans that an edit may touch.

One grammar (PEP 508) stands in requirements files, constraints files and the strings of
pyproject.toml; ``declarations`` reads the first two, ``declaration_in`` one such string.
"""

import re
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_tier.advisory.versions import PYPI, is_orderable

_NAME = re.compile(r"[ \t]*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_EXTRAS = re.compile(r"[ \t]*\[[^\]\n]*\]")
_CLAUSE = re.compile(r"(?P<operator>===|==|~=|!=|<=|>=|<|>)(?P<gap>[ \t]*)(?P<version>[^\s,;)#]+)")
_CONTINUATION = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#[^\r\n]*", re.MULTILINE)
_LINE_END = re.compile(r"\r\n|\r|\n")
_EGG = re.compile(r"[#&]egg=(?P<name>[A-Za-z0-9._-]+)")
#: pip's own placement of hashes; it may stand on a continuation line.
_HASH = re.compile(r"--hash[= ]")

_PIN_OPERATORS = frozenset({"==", "==="})
_FLOOR_OPERATORS = frozenset({">=", ">", "~="})


@dataclass(frozen=True)
class Clause:
    """One comparison of a specifier; ``start`` and ``end`` are its version's span in the file."""

    operator: str
    version: str
    start: int
    end: int
    operator_start: int


@dataclass(frozen=True)
class Declaration:
    """One place that asks for the package. ``refusal``: why it can't be edited as text."""

    clauses: tuple[Clause, ...]
    refusal: str | None = None

    @property
    def pin(self) -> Clause | None:
        """The clause that allows one version only."""
        pins = [clause for clause in self.clauses if clause.operator in _PIN_OPERATORS]
        return pins[0] if len(pins) == 1 and not pins[0].version.endswith(".*") else None

    @property
    def floors(self) -> tuple[Clause, ...]:
        """Lower bounds."""
        return tuple(clause for clause in self.clauses if clause.operator in _FLOOR_OPERATORS)

    @property
    def specifier(self) -> str:
        """What is asked for, without the spaces."""
        return ",".join(f"{clause.operator}{clause.version}" for clause in self.clauses)

    @property
    def is_readable(self) -> bool:
        """Does it follow PEP 440?"""
        try:
            SpecifierSet(self.specifier)
            return all(is_orderable(PYPI, clause.version) for clause in self.floors)
        except InvalidSpecifier:
            return False

    def admits(self, version: str) -> bool:
        """Would this declaration accept the version (pre-releases too)? False: it can't be read."""
        try:
            return SpecifierSet(self.specifier).contains(version, prereleases=True)
        except InvalidSpecifier:
            return False


def declarations(text: str, package: str) -> tuple[Declaration, ...]:
    """Where a requirements or constraints file declares the package, top down."""
    wanted = canonicalize_name(package)
    masked = _mask(text)
    found = []
    start = 0
    for line in _LINE_END.split(masked):
        end = start + len(line)
        declaration = _read(masked, start, end, wanted)
        if declaration is not None:
            found.append(declaration)
        start = end + (2 if masked.startswith("\r\n", end) else 1)
    return tuple(found)


def declaration_in(requirement: str, package: str) -> Declaration | None:
    """The declaration that one PEP 508 string makes, if it is about the package."""
    return _read(requirement, 0, len(requirement), canonicalize_name(package))


def _mask(text: str) -> str:
    """The text with comments and continuations blanked: same length, so spans stay true."""
    blank = _COMMENT.sub(lambda match: " " * len(match[0]), text)
    return _CONTINUATION.sub(lambda match: " " * len(match[0]), blank)


def _read(text: str, start: int, end: int, wanted: str) -> Declaration | None:
    egg = _EGG.search(text, start, end)
    if egg and canonicalize_name(egg["name"]) == wanted:
        return Declaration((), "it is taken from a URL or a checkout")
    name = _NAME.match(text, start, end)
    if name is None or canonicalize_name(name["name"]) != wanted:
        return None
    extras = _EXTRAS.match(text, name.end(), end)
    position = extras.end() if extras else name.end()
    rest = text[position:end]
    if rest.lstrip().startswith("@"):
        return Declaration((), "it is taken from a URL or a checkout")
    stop = position + len(re.split(r"[;]|\s--", rest, maxsplit=1)[0])
    clauses = tuple(
        Clause(
            operator=match["operator"],
            version=match["version"],
            start=match.start("version"),
            end=match.end("version"),
            operator_start=match.start("operator"),
        )
        for match in _CLAUSE.finditer(text, position, stop)
    )
    leftover = _CLAUSE.sub("", text[position:stop]).strip(" \t,()")
    declaration = Declaration(clauses)
    if leftover or not declaration.is_readable:
        said = leftover or declaration.specifier
        return Declaration(clauses, f"{said!r} can't be read as a version specifier")
    if _HASH.search(text, stop, end):
        return Declaration(clauses, "it is hash-pinned, and new hashes are not made by this recipe")
    return declaration
