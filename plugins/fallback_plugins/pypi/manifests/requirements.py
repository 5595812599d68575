"""Requirements as text: where a package is declared, and the exact spans that an edit may touch.

One grammar (PEP 508) stands in requirements files, constraints files and the strings of
pyproject.toml; ``declarations`` reads the first two, ``declaration_in`` one such string. Tables keep name
and specifier apart: ``specifier_in`` reads a Pipfile's, ``poetry_specifier_in`` Poetry's own grammar.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from fallback_plugins.pypi.manifests.kinds import PYPI
from fallback_tier.advisory.versions import is_orderable

_NAME = re.compile(r"[ \t]*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_EXTRAS = re.compile(r"[ \t]*\[[^\]\n]*\]")
_CLAUSE = re.compile(r"(?P<operator>===|==|~=|!=|<=|>=|<|>)(?P<gap>[ \t]*)(?P<version>[^\s,;)#]+)")
_CONTINUATION = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#[^\r\n]*", re.MULTILINE)
_LINE_END = re.compile(r"\r\n|\r|\n")
_EGG = re.compile(r"[#&]egg=(?P<name>[A-Za-z0-9._-]+)")
#: pip's own placement of hashes; they may stand on continuation lines.
_HASH = re.compile(r"--hash[= ][ \t]*[A-Za-z0-9]+:[A-Za-z0-9]+")
_MARKER = re.compile(r";(?P<marker>.*?)(?:\s--|$)")

#: Poetry's own grammar: ``^1.2``, ``~1.2``, and a bare version that is a pin.
_POETRY_CLAUSE = re.compile(
    r"(?P<operator>\^|===|==|=|~=|~|!=|<=|>=|<|>|)(?P<gap>[ \t]*)(?P<version>v?[0-9][^\s,;|]*)"
)

_PIN_OPERATORS = frozenset({"==", "===", "=", ""})
_FLOOR_OPERATORS = frozenset({">=", ">", "~=", "^", "~"})

#: Texts whose masked form is kept: one resolution asks about many packages of the same few files.
_TEXTS = 32

FROM_ELSEWHERE = "it is taken from a URL or a checkout"

#: A line that is an archive, a folder or an address, without a package's name before it.
_REFERENCE = re.compile(r"[ \t]*(?:(?:-e|--editable)[ \t=]*)?[\"']?(?P<place>[^\s\"'\[;]+)")
_PLACE = re.compile(r"[A-Za-z][\w.+-]*:[/\\]|[^-=:][^=:]*[/\\]|\.{1,2}$|/")
_ARCHIVE = re.compile(r"\.(?:whl|zip|tgz|tbz|tar(?:\.(?:gz|bz2|xz|zst|lzma))?)$", re.IGNORECASE)
_COMPONENT = re.compile(r"[^/\\@?&=:+#]+")


@dataclass(frozen=True)
class Clause:
    """One comparison of a specifier; ``start`` and ``end`` are its version's span in the text.

    ``^``, ``~``, ``=`` and no operator at all are Poetry's.
    """

    operator: str
    version: str
    start: int
    end: int
    operator_start: int

    @property
    def pep440(self) -> str:
        """The same comparison in PEP 440's words."""
        if self.operator in {"", "="}:
            return f"=={self.version}"
        if self.operator in {"^", "~"}:
            return f">={self.version},<{_poetry_ceiling(self.operator, self.version)}"
        return f"{self.operator}{self.version}"

    @property
    def is_wildcard(self) -> bool:
        """``==1.*``: a range that is written as a pin."""
        return self.version.endswith(".*")

    def admits(self, version: str) -> bool:
        """Would this comparison accept the version (pre-releases too)? False: it can't be read."""
        try:
            return SpecifierSet(self.pep440).contains(version, prereleases=True)
        except ValueError:
            return False


@dataclass(frozen=True)
class Declaration:
    """One place that asks for the package. ``refusal``: why it can't be edited as text.

    ``hashes``: spans of its ``--hash`` options. ``marker``: when it holds, as written. ``taken``: the
    version of the archive that it names; empty if it names none. ``choices``: the ranges of which any is
    enough (Poetry's ``||``), each to be judged by itself.
    """

    clauses: tuple[Clause, ...]
    refusal: str | None = None
    hashes: tuple[tuple[int, int], ...] = ()
    marker: str = ""
    taken: str = ""
    choices: tuple["Declaration", ...] = ()

    @property
    def pin(self) -> Clause | None:
        """The clause that allows one version only."""
        pins = [clause for clause in self.clauses if clause.operator in _PIN_OPERATORS]
        return pins[0] if len(pins) == 1 and not pins[0].is_wildcard else None

    @property
    def floors(self) -> tuple[Clause, ...]:
        """Lower bounds."""
        return tuple(clause for clause in self.clauses if clause.operator in _FLOOR_OPERATORS)

    @property
    def specifier(self) -> str:
        """What is asked for, without the spaces."""
        return ",".join(f"{clause.operator}{clause.version}" for clause in self.clauses)

    @property
    def pep440(self) -> str:
        """What is asked for, in PEP 440's words."""
        return ",".join(clause.pep440 for clause in self.clauses)

    @property
    def is_readable(self) -> bool:
        """Does it follow PEP 440 (or Poetry's grammar over it)?"""
        try:
            SpecifierSet(self.pep440)
            return all(is_orderable(PYPI, clause.version) for clause in self.floors)
        except ValueError:
            return False

    def admits(self, version: str) -> bool:
        """Would this declaration accept the version (pre-releases too)? False: it can't be read."""
        if self.choices:
            return any(one.admits(version) for one in self.choices)
        return all(clause.admits(version) for clause in self.clauses)


def declarations(text: str, package: str) -> tuple[Declaration, ...]:
    """Where a requirements or constraints file declares the package, top down."""
    wanted = canonicalize_name(package)
    found = (_read(_mask(text), *span, wanted) for span in _lines_by_name(text).get(wanted, ()))
    return tuple(declaration for declaration in found if declaration is not None)


def declaration_in(requirement: str, package: str) -> Declaration | None:
    """The declaration that one PEP 508 string makes, if it is about the package."""
    return _read(requirement, 0, len(requirement), canonicalize_name(package))


def declaration_at(text: str, start: int, end: int, package: str) -> Declaration | None:
    """The declaration that the requirement between two offsets makes, with spans of the whole text."""
    return _read(text, start, end, canonicalize_name(package))


def requirement_in(line: str) -> Requirement | None:
    """The PEP 508 requirement that a line is; None: it is none."""
    try:
        return Requirement(line)
    except (InvalidRequirement, RecursionError):
        return None


def specifier_in(value: str) -> Declaration:
    """A specifier that stands without its name: a Pipfile's (PEP 440)."""
    return _declaration(value, 0, len(value), _CLAUSE)


def poetry_specifier_in(value: str) -> Declaration:
    """A specifier in Poetry's own grammar."""
    if "|" in value:
        choices = tuple(poetry_specifier_in(part) for part in re.split(r"\|\|?", value))
        read = choices if not any(one.refusal for one in choices) else ()
        return Declaration((), f"{value!r} is a choice of ranges", choices=read)
    return _declaration(value, 0, len(value), _POETRY_CLAUSE)


def at_least(version: str) -> str:
    """Return a version as a bound can state it: without its local label."""
    return version.partition("+")[0]


def from_elsewhere(package: str, *places: str) -> Declaration:
    """The declaration of a package that is taken from these addresses or paths, not from a registry."""
    versions = (_archive(place)[1] for place in places if _archive(place)[0] == package)
    return Declaration((), FROM_ELSEWHERE, taken=next(versions, ""))


def names_in_reference(place: str) -> frozenset[str]:
    """Canonical names that an address or a path has: of an archive its package's, if that can be read;
    otherwise those of its folders, any of which may be the package's."""
    name, _ = _archive(place)
    if name:
        return frozenset({name})
    components = _COMPONENT.findall(unquote(place))
    return frozenset(canonicalize_name(one.removesuffix(".git")) for one in components)


def reference_in(line: str) -> str:
    """Return the archive, folder or address that a line is; empty if it is a requirement or an option."""
    return _reference(line, 0, len(line))


def _archive(place: str) -> tuple[str, str]:
    """Canonical name and version in an archive's file name; empty if the place is no such archive."""
    file = re.split(r"[/\\]", unquote(re.split(r"[#?]", place, maxsplit=1)[0]))[-1]
    try:
        if file.lower().endswith(".whl"):
            name, version, *_ = parse_wheel_filename(file)
        elif _ARCHIVE.search(file):
            name, version = parse_sdist_filename(_ARCHIVE.sub(".tar.gz", file))
        else:
            return "", ""
    except (InvalidWheelFilename, InvalidSdistFilename):
        return "", ""
    return str(name), str(version)


def logical_lines(text: str) -> tuple[str, ...]:
    """The lines of a requirements file: comments blanked, continued lines joined."""
    return tuple(_LINE_END.split(_mask(text)))


@lru_cache(maxsize=_TEXTS)
def _lines_by_name(text: str) -> dict[str, list[tuple[int, int]]]:
    """The spans of the lines that may declare each package, by canonical name."""
    masked = _mask(text)
    found: dict[str, list[tuple[int, int]]] = {}
    start = 0
    for line in _LINE_END.split(masked):
        end = start + len(line)
        egg = _EGG.search(masked, start, end)
        place = "" if egg else _reference(masked, start, end)
        named = egg or _NAME.match(masked, start, end)
        if place:
            names = names_in_reference(place)
        else:
            names = frozenset({canonicalize_name(named["name"])} if named else ())
        for name in names:
            found.setdefault(name, []).append((start, end))
        start = end + (2 if masked.startswith("\r\n", end) else 1)
    return found


@lru_cache(maxsize=_TEXTS)
def _mask(text: str) -> str:
    """The text with comments, continuations and a byte order mark blanked: same length, so that spans
    stay true."""
    text = " " + text[1:] if text.startswith("\ufeff") else text
    blank = _COMMENT.sub(lambda match: " " * len(match[0]), text)
    return _CONTINUATION.sub(lambda match: " " * len(match[0]), blank)


def _read(text: str, start: int, end: int, wanted: str) -> Declaration | None:
    egg = _EGG.search(text, start, end)
    if egg and canonicalize_name(egg["name"]) == wanted:
        return Declaration((), FROM_ELSEWHERE)
    if not egg and (place := _reference(text, start, end)):
        return from_elsewhere(wanted, place) if wanted in names_in_reference(place) else None
    name = _NAME.match(text, start, end)
    if name is None or canonicalize_name(name["name"]) != wanted:
        return None
    extras = _EXTRAS.match(text, name.end(), end)
    position = extras.end() if extras else name.end()
    rest = text[position:end]
    if rest.lstrip().startswith("@"):
        return from_elsewhere(wanted, *rest.lstrip(" \t@").split()[:1])
    stop = position + len(re.split(r"[;]|\s--", rest, maxsplit=1)[0])
    declaration = _declaration(text, position, stop, _CLAUSE)
    marker = _MARKER.search(text, stop, end)
    return replace(
        declaration,
        hashes=tuple(match.span() for match in _HASH.finditer(text, stop, end)),
        marker=marker["marker"].strip() if marker else "",
    )


def _reference(text: str, start: int, end: int) -> str:
    found = _REFERENCE.match(text, start, end)
    place = found["place"] if found else ""
    return place if _PLACE.match(place) or _ARCHIVE.search(place) else ""


def _declaration(text: str, start: int, stop: int, grammar: re.Pattern[str]) -> Declaration:
    clauses = tuple(
        Clause(
            operator=match["operator"],
            version=match["version"],
            start=match.start("version"),
            end=match.end("version"),
            operator_start=match.start("operator"),
        )
        for match in grammar.finditer(text, start, stop)
    )
    leftover = grammar.sub("", text[start:stop]).strip(" \t,()").replace("*", "", not clauses)
    declaration = Declaration(clauses)
    if leftover or not declaration.is_readable:
        message = leftover or declaration.specifier
        return Declaration(clauses, f"{message!r} can't be read as a version specifier")
    return declaration


def _poetry_ceiling(operator: str, version: str) -> str:
    """The first version that ``^`` or ``~`` excludes."""
    release = Version(version).release
    if operator == "^":
        place = next((at for at, part in enumerate(release) if part), len(release) - 1)
    else:
        place = min(1, len(release) - 1)
    epoch = f"{Version(version).epoch}!" if Version(version).epoch else ""
    return epoch + ".".join(map(str, (*release[:place], release[place] + 1)))
