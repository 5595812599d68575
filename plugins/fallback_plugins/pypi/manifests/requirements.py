"""Requirements as text: declarations of a package, the exact spans that an edit may touch, edits that raise
them, and groups of requirements files.

One grammar (PEP 508) is used in requirements files, constraints files and the strings of pyproject.toml;
``declarations`` reads the first two, ``declaration_in`` one such string. Tables separate name and
specifier: ``specifier_in`` reads a Pipfile's, ``poetry_specifier_in`` Poetry's own grammar.

uv gets only the requirement lines of a requirements file, each parsed and written again: an option could
name another registry, or a folder or environment variable of this machine.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath
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
from packaging.version import InvalidVersion, Version

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.manifests.kinds import PYPI
from fallback_plugins.shared.tree import grouped
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.lazy_patterns import lazy_pattern

_NAME = lazy_pattern(r"[ \t]*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_EXTRAS = lazy_pattern(r"[ \t]*\[[^\]\n]*\]")
_CLAUSE = lazy_pattern(
    r"(?P<operator>===|==|~=|!=|<=|>=|<|>)(?P<gap>[ \t]*)(?P<version>[^\s,;)#]+)"
)
_CONTINUATION = lazy_pattern(r"\\\r?\n")
_COMMENT = lazy_pattern(r"(?:^|(?<=[ \t]))#[^\r\n]*", re.MULTILINE)
_LINE_END = lazy_pattern(r"\r\n|\r|\n")
_EGG = lazy_pattern(r"[#&]egg=(?P<name>[A-Za-z0-9._-]+)")
#: pip's own syntax for hashes; they may be on continuation lines.
_HASH = lazy_pattern(r"--hash[= ][ \t]*[A-Za-z0-9]+:[A-Za-z0-9]+")
_MARKER = lazy_pattern(r";(?P<marker>.*?)(?:\s--|$)")

#: Poetry's own grammar: ``^1.2``, ``~1.2``, and a bare version that is a pin.
_POETRY_CLAUSE = lazy_pattern(
    r"(?P<operator>\^|===|==|=|~=|~|!=|<=|>=|<|>|)(?P<gap>[ \t]*)(?P<version>v?[0-9][^\s,;|]*)"
)

_PIN_OPERATORS = frozenset({"==", "===", "=", ""})
_FLOOR_OPERATORS = frozenset({">=", ">", "~=", "^", "~"})

#: Texts whose masked form is cached: one resolution reads many packages of the same few files.
_TEXTS = 32

FROM_ELSEWHERE = "it is taken from a URL or a checkout"

#: A line that is an archive, a folder or an address, without a package's name before it.
_REFERENCE = lazy_pattern(r"[ \t]*(?:(?:-e|--editable)[ \t=]*)?[\"']?(?P<place>[^\s\"'\[;]+)")
_PLACE = lazy_pattern(r"[A-Za-z][\w.+-]*:[/\\]|[^-=:][^=:]*[/\\]|\.{1,2}$|/")
_ARCHIVE = lazy_pattern(r"\.(?:whl|zip|tgz|tbz|tar(?:\.(?:gz|bz2|xz|zst|lzma))?)$", re.IGNORECASE)
_COMPONENT = lazy_pattern(r"[^/\\@?&=:+#]+")


@dataclass(frozen=True)
class Clause:
    """One comparison of a specifier; ``start`` and ``end`` are its version's span in the text.

    ``^``, ``~``, ``=`` and no operator are Poetry's.
    """

    operator: str
    version: str
    start: int
    end: int
    operator_start: int

    @property
    def pep440(self) -> str:
        """The same comparison in PEP 440's grammar."""
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
        """Return whether this comparison accepts the version (pre-releases too); False if it can't be
        read."""
        try:
            return SpecifierSet(self.pep440).contains(version, prereleases=True)
        except ValueError:
            return False


@dataclass(frozen=True)
class Declaration:
    """One requirement of the package. ``refusal``: why it can't be edited as text.

    ``hashes``: spans of its ``--hash`` options. ``marker``: its condition, as written. ``taken``: the
    version of the archive that it names; empty if it names none. ``choices``: the alternative ranges of
    Poetry's ``||``, each to be judged by itself.
    """

    clauses: tuple[Clause, ...]
    refusal: str | None = None
    hashes: tuple[tuple[int, int], ...] = ()
    marker: str = ""
    taken: str = ""
    choices: tuple["Declaration", ...] = ()

    @property
    def pin(self) -> Clause | None:
        """The one clause that allows a single version."""
        pins = [clause for clause in self.clauses if clause.operator in _PIN_OPERATORS]
        return pins[0] if len(pins) == 1 and not pins[0].is_wildcard else None

    @property
    def floors(self) -> tuple[Clause, ...]:
        """Lower bounds."""
        return tuple(clause for clause in self.clauses if clause.operator in _FLOOR_OPERATORS)

    @property
    def specifier(self) -> str:
        """The specifier as written, without spaces."""
        return ",".join(f"{clause.operator}{clause.version}" for clause in self.clauses)

    @property
    def pep440(self) -> str:
        """The specifier in PEP 440's grammar."""
        return ",".join(clause.pep440 for clause in self.clauses)

    @property
    def is_readable(self) -> bool:
        """Whether it follows PEP 440 (or Poetry's grammar, which extends it)."""
        try:
            SpecifierSet(self.pep440)
            return all(is_orderable(PYPI, clause.version) for clause in self.floors)
        except ValueError:
            return False

    def admits(self, version: str) -> bool:
        """Return whether this declaration accepts the version (pre-releases too); False if it can't be
        read."""
        if self.choices:
            return any(choice.admits(version) for choice in self.choices)
        return all(clause.admits(version) for clause in self.clauses)


def declarations(text: str, package: str) -> tuple[Declaration, ...]:
    """Return a requirements or constraints file's declarations of a package, top down."""
    wanted = canonicalize_name(package)
    matches = (_read(_mask(text), *span, wanted) for span in _lines_by_name(text).get(wanted, ()))
    return tuple(declaration for declaration in matches if declaration is not None)


def declaration_in(requirement: str, package: str) -> Declaration | None:
    """Return the declaration in a PEP 508 string; None if it is about another package."""
    return _read(requirement, 0, len(requirement), canonicalize_name(package))


def declaration_at(text: str, start: int, end: int, package: str) -> Declaration | None:
    """Return the declaration between two offsets, with spans of the whole text."""
    return _read(text, start, end, canonicalize_name(package))


def requirement_in(line: str) -> Requirement | None:
    """Return a line's PEP 508 requirement; None if it is not one."""
    try:
        return Requirement(line)
    except (InvalidRequirement, RecursionError):
        return None


def specifier_in(value: str) -> Declaration:
    """Read a specifier without its name, as in a Pipfile (PEP 440)."""
    return _declaration(value, 0, len(value), _CLAUSE)


def poetry_specifier_in(value: str) -> Declaration:
    """Read a specifier in Poetry's own grammar."""
    if "|" in value:
        choices = tuple(poetry_specifier_in(part) for part in re.split(r"\|\|?", value))
        read = choices if not any(choice.refusal for choice in choices) else ()
        return Declaration((), f"{value!r} is a choice of ranges", choices=read)
    return _declaration(value, 0, len(value), _POETRY_CLAUSE)


def at_least(version: str) -> str:
    """Return a version as a bound can state it: without its local label."""
    return version.partition("+")[0]


def from_elsewhere(package: str, *places: str) -> Declaration:
    """Return the declaration of a package that is installed from addresses or paths."""
    versions = (_archive(reference)[1] for reference in places if _archive(reference)[0] == package)
    return Declaration((), FROM_ELSEWHERE, taken=next(versions, ""))


def names_in_reference(reference: str) -> frozenset[str]:
    """Return the canonical names in an address or a path: an archive's package, if its name can be read;
    otherwise all folders, any of which may have the package's name."""
    name, _ = _archive(reference)
    if name:
        return frozenset({name})
    components = _COMPONENT.findall(unquote(reference))
    return frozenset(canonicalize_name(component.removesuffix(".git")) for component in components)


def reference_in(line: str) -> str:
    """Return the archive, folder or address that a line is; empty if it is a requirement or an option."""
    return _reference(line, 0, len(line))


def _archive(reference: str) -> tuple[str, str]:
    """Return canonical name and version in an archive's file name; empty if there is no such archive."""
    file = re.split(r"[/\\]", unquote(re.split(r"[#?]", reference, maxsplit=1)[0]))[-1]
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
    """Return a requirements file's lines: comments blanked, continued lines joined."""
    return tuple(_LINE_END.split(_mask(text)))


@lru_cache(maxsize=_TEXTS)
def _lines_by_name(text: str) -> dict[str, list[tuple[int, int]]]:
    """Return the spans of the lines that may declare each package, by canonical name."""
    masked = _mask(text)
    spans: dict[str, list[tuple[int, int]]] = {}
    start = 0
    for line in _LINE_END.split(masked):
        end = start + len(line)
        egg = _EGG.search(masked, start, end)
        reference = "" if egg else _reference(masked, start, end)
        match = egg or _NAME.match(masked, start, end)
        names: Collection[str] = [canonicalize_name(match["name"])] if match else ()
        for name in names_in_reference(reference) if reference else names:
            spans.setdefault(name, []).append((start, end))
        start = end + (2 if masked.startswith("\r\n", end) else 1)
    return spans


@lru_cache(maxsize=_TEXTS)
def _mask(text: str) -> str:
    """Return the text with comments, continuations and a byte order mark blanked. It has the same length,
    so spans stay valid."""
    text = " " + text[1:] if text.startswith("\ufeff") else text
    blank = _COMMENT.sub(lambda match: " " * len(match[0]), text)
    return _CONTINUATION.sub(lambda match: " " * len(match[0]), blank)


def _read(text: str, start: int, end: int, wanted: str) -> Declaration | None:
    egg = _EGG.search(text, start, end)
    if egg and canonicalize_name(egg["name"]) == wanted:
        return Declaration((), FROM_ELSEWHERE)
    if not egg and (reference := _reference(text, start, end)):
        return (
            from_elsewhere(wanted, reference) if wanted in names_in_reference(reference) else None
        )
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
    match = _REFERENCE.match(text, start, end)
    reference = match["place"] if match else ""
    return reference if _PLACE.match(reference) or _ARCHIVE.search(reference) else ""


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
        unreadable = leftover or declaration.specifier
        return Declaration(clauses, f"{unreadable!r} can't be read as a version specifier")
    return declaration


def _poetry_ceiling(operator: str, version: str) -> str:
    """Return the first version that ``^`` or ``~`` excludes."""
    release = Version(version).release
    if operator == "^":
        position = next((index for index, part in enumerate(release) if part), len(release) - 1)
    else:
        position = min(1, len(release) - 1)
    epoch = f"{Version(version).epoch}!" if Version(version).epoch else ""
    return epoch + ".".join(map(str, (*release[:position], release[position] + 1)))


#: Limit of a line in a message (characters): a line can be as long as a file.
_SHOWN = 200

#: pip lets an option be shortened: ``--cons`` is ``--constraint``.
_INCLUDE = lazy_pattern(
    r"(?<!\S)(?:-(?P<short>[rc])|--(?P<long>requirem[a-z]*|cons[a-z]*)(?=[ \t=]))[ \t=]*"
    r"(?P<path>\"[^\"]*\"|'[^']*'|\S+)"
)
_OWN_INDEX = lazy_pattern(
    r"[ \t]*(?:-i|--index-url|--extra-index-url|-f|--find-links|--no-index)\b"
)
#: Such an option anywhere in a line, in any short form that pip accepts: ``--ex`` is ``--extra-index-url``.
_AN_INDEX = lazy_pattern(r"[ \t]*(?:-\S.*[ \t])?[\"'\\]?(?:-[if]|--(?:i|py|ex|f|no-i))")
_INDEX_VALUE = lazy_pattern(
    r"[ \t]*(?:-[if]|--(?:index-url|extra-index-url|find-links))(?:[ \t]*=[ \t]*|[ \t]+|(?<=-[if]))"
    r"(?P<value>[^\s'\"\\]+)[ \t]*"
)
_NO_INDEX = lazy_pattern(r"[ \t]*--no-index[ \t]*")
_OPTIONS = lazy_pattern(r"[ \t]--[a-z].*$")
_PER_FILE = lazy_pattern(
    r"[ \t]*(?:--(?:no-binary|only-binary|prefer-binary|pre|require-hashes|use-)|-r|-c)"
)
_LONG_INCLUDE = lazy_pattern(r"[ \t]*--(?:requirement|constraint)\b")
#: An environment variable, which uv inserts into the addresses of requirements (measured).
VARIABLE = lazy_pattern(r"\$\{\w+\}")
_CONTINUED = lazy_pattern(r"\\\r?\n")
#: An option of pip, and the text after a requirement: a comment, options.
_OPTION = lazy_pattern(r"-(?:[rcefi]\b|-[a-z])")
_AFTER = lazy_pattern(r"(?:^|[ \t])#.*$|[ \t]--[a-z].*$")

#: What compilers of requirements write: such a file is closed, since it lists all that is installed.
_COMPILED = lazy_pattern(r"#[ \t]*(?:via\b|this file (?:is|was) autogenerated by)", re.IGNORECASE)
_HASHED = lazy_pattern(r"--hash[= ]")


def includes(path: str, text: str) -> tuple[tuple[str, bool], ...]:
    """Return the paths that a file includes (repository-relative), each with whether as constraints.

    Addresses, and paths with a variable in them, are returned as written: no tracked file has such a name.
    """
    return tuple(
        (_led_to(path, match["path"].strip("'\"")), (match["short"] or match["long"])[0] == "c")
        for line in logical_lines(text)
        if line.lstrip().startswith("-")
        for match in _INCLUDE.finditer(line)
    )


def with_included(
    paths: Sequence[str], text_of: Callable[[str], str | None], *, constrain: bool | None = None
) -> dict[str, str | None]:
    """Return the texts of files and of all that they include, by path; None if ``text_of`` has none.
    ``constrain``: follow only includes of constraints, or of requirements."""
    texts: dict[str, str | None] = {}
    waiting = [*reversed(paths)]
    while waiting:
        path = waiting.pop()
        if path not in texts:
            text = texts[path] = text_of(path)
            included = reversed(includes(path, text or ""))
            waiting += [
                included_path for included_path, binds in included if constrain in {None, binds}
            ]
    return texts


def _led_to(path: str, target: str) -> str:
    if "://" in target or VARIABLE.search(target):
        return target
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def local_folders(path: str, text: str) -> Iterator[str]:
    """Yield folders of the repository that a file installs (``-e ./lib``, ``./lib[extra]``)."""
    for line in logical_lines(text):
        reference = reference_in(line).removeprefix("file:")
        if reference and "://" not in reference:
            yield _led_to(path, reference)


def connected(
    texts: Mapping[str, str], together: Iterable[Collection[str]] = ()
) -> tuple[tuple[str, ...], ...]:
    """Return the files in groups: files that include each other, an ``.in`` with the ``.txt`` compiled from
    it, and files that are ``together`` otherwise."""
    parent = {path: path for path in texts}

    def root(path: str) -> str:
        while parent[path] != path:
            path = parent[path]
        return path

    for path, text in texts.items():
        linked = [linked_path for linked_path, _ in includes(path, text)]
        if path.endswith(".in"):
            linked.append(str(PurePosixPath(path).with_suffix(".txt")))
        for linked_path in linked:
            if linked_path in texts:
                parent[root(linked_path)] = root(path)
    for paths in together:
        first, *linked = sorted(texts.keys() & paths) or ("",)
        for linked_path in linked:
            parent[root(linked_path)] = root(first)
    return tuple(grouped((root(path), path) for path in sorted(texts)).values())


def is_closed(text: str) -> bool:
    """Return whether the file lists all that is installed (it is compiled or hash-pinned)."""
    return bool(_HASHED.search(text) or _COMPILED.search(text))


def is_requirements(text: str, *, compiled_or_pinned: bool = False) -> bool:
    """Return whether each line is a requirement, an archive, an address or an option of pip, and one
    installs something. ``compiled_or_pinned``: also require that a compiler wrote it, or that there is a
    requirement and each limits its versions."""
    if not text or "\0" in text:
        return False
    installs = False
    for line in _CONTINUED.sub(" ", text.removeprefix("\ufeff")).splitlines():
        bare = _AFTER.sub("", line).strip()
        if not bare:
            continue
        if bare.startswith("-"):
            if not _OPTION.match(bare):
                return False
            installs = installs or _INCLUDE.match(bare) is not None
            continue
        requirement = requirement_in(bare)
        if requirement is None and not reference_in(bare):
            return False
        if compiled_or_pinned and requirement and not (requirement.specifier or requirement.url):
            return _COMPILED.search(text) is not None and is_requirements(text)
        installs = installs or requirement is not None or not compiled_or_pinned
    return installs


def names_an_index(text: str) -> bool:
    """Return whether a requirements file names a registry or a folder of packages."""
    return any(True for _ in _lines_with_indexes(text))


def _lines_with_indexes(text: str) -> Iterator[str]:
    lines = (
        line for joined in logical_lines(text) for line in joined.splitlines()
    )  # with pip's line ends
    return filter(_AN_INDEX.match, lines)


def index_lines(text: str) -> Iterator[str]:
    """Yield the value of each option that names a registry or a folder; the whole line if its reader may
    see another value than this code does."""
    for line in _lines_with_indexes(text):
        if not _NO_INDEX.fullmatch(line):
            option = _INDEX_VALUE.fullmatch(line)
            yield option["value"] if option else line.strip()


def requirement_lines(path: str, text: str) -> Iterator[str]:
    """Yield the file's requirements, each written again. Raises RecipeError for what uv must not get."""
    for line in logical_lines(text):
        bare = line.strip()
        if not bare or _PER_FILE.match(line) or _LONG_INCLUDE.match(line):
            continue
        if bare.startswith("-") or VARIABLE.search(bare):
            raise unresolvable(path, bare)
        yield clean(path, bare_line(line))


def bare_line(line: str) -> str:
    """Return a line without its options."""
    return _OPTIONS.sub("", line).strip()


def is_plain(path: str, text: str) -> bool:
    """Return whether each line is a requirement, an include, an index or a per-file option."""
    try:
        for line in logical_lines(text):
            if not _OWN_INDEX.match(line) and not _LONG_INCLUDE.match(line):
                list(requirement_lines(path, line))
    except RecipeError:
        return False
    return True


def with_requirement(text: str, package: str, version: str) -> str:
    """Return the file with a line for a package added at its end: a pin if every line is one."""
    lines = [line.strip() for line in logical_lines(text)]
    asking = [line for line in lines if line and not line.startswith("-")]
    operator = "==" if asking and all("==" in line for line in asking) else ">="
    end = "\r\n" if "\r\n" in text else "\n"
    head = text if not text or text.endswith(("\n", "\r")) else text + end
    return f"{head}{package}{operator}{version}{end}"


def clean(path: str, requirement: str) -> str:
    """Return a requirement, parsed and written again. Raises RecipeError for a URL, or for other text."""
    try:
        parsed = Requirement(requirement)
    except (InvalidRequirement, RecursionError):  # a marker may be nested too deeply to be read
        raise unresolvable(path, requirement) from None
    if parsed.url:
        raise unresolvable(path, f"{canonicalize_name(parsed.name)} @ …")
    try:
        written = str(parsed)
    except (ValueError, RecursionError):  # a marker that can't be serialized
        raise unresolvable(path, requirement) from None
    # Parsing resolves escapes in a marker: the result must be one line, and name no variable.
    if len(written.splitlines()) > 1 or "\\" in requirement or VARIABLE.search(written):
        raise unresolvable(path, requirement)
    return written


def plain(path: str, requirement: str) -> str:
    """Return a requirement as written. Raises RecipeError for an address, or more than one line."""
    if len(requirement.splitlines()) > 1:
        raise unresolvable(path, requirement)
    clean(path, requirement)
    return requirement


def unresolvable(path: str, what: str) -> RecipeError:
    """Return the typed refusal of a line that no resolver outside the sandbox gets."""
    shown = what.split()[0] if what.startswith("-") else repr(what)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    return RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED,
        f"{path} has {shown}, which is not resolved outside the sandbox.",
        next_step=f"Replace it in {path} by the requirement of a registry's package, or commit a lock.",
        kind="not_resolved",
    )


#: From this many blanks on, a comment was aligned to a column, and stays there.
_ALIGNED = 3

_BLANKS_BEFORE_COMMENT = lazy_pattern(r" +(?=#)")

#: Upper bounds: they move with the version if they would exclude it.
_BOUNDS = frozenset({"<", "<="})

#: Operators of Poetry's own grammar.
_POETRYS_OWN = frozenset({"^", "~", "=", ""})

_RELEASE = lazy_pattern(r"v?(?:\d+!)?(?P<release>\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Edit:
    """Replacement of the text between two offsets."""

    start: int
    end: int
    new: str


def edits_for(declaration: Declaration, version: str) -> tuple[Edit, ...] | None:
    """Return the edits that raise a declaration to ``version``; None if no edit would admit it.

    A pin moves; otherwise every lower bound below the version does, and each upper bound that excludes it,
    in its written style (``>=1.0,<2.0`` to 2.1: ``>=2.1,<3.0``; ``==1.*``: ``==2.*``). Other clauses
    (``!=1.5``) stay, so a declaration that excludes the version can't be raised.
    """
    moved = tuple(clause for clause in declaration.clauses if _moves(clause, declaration, version))
    edits = tuple(edit for clause in moved for edit in _edits(clause, version))
    unchanged = (clause for clause in declaration.clauses if clause not in moved)
    fits = all(clause.admits(version) for clause in unchanged) and all(
        _after(clause, version).admits(_labelled(clause, version)) for clause in moved
    )
    return edits if edits and fits else None


def _after(clause: Clause, version: str) -> Declaration:
    """Return one comparison as it is after its edits."""
    edits, origin = _edits(clause, version), clause.operator_start
    text = clause.operator.ljust(clause.start - origin) + clause.version
    moved = tuple(Edit(edit.start - origin, edit.end - origin, edit.new) for edit in edits)
    read = poetry_specifier_in if clause.operator in _POETRYS_OWN else specifier_in
    return read(apply_edits(text, moved))


def apply_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """Return the edited text; a comment in a separate column keeps its column."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        tail = _realigned(text[edit.end :], len(edit.new) - (edit.end - edit.start))
        text = text[: edit.start] + edit.new + tail
    return text


def hash_edit(text: str, declaration: Declaration, hashes: Sequence[str]) -> Edit:
    """Return the edit that replaces a declaration's hashes by these (``sha256:…``).

    The text between two of them (a continuation, its indentation) is kept; they are sorted, as the
    compilers write them.
    """
    spans = declaration.hashes
    start, end = spans[0][0], spans[-1][1]
    if len(spans) > 1:
        between = text[spans[0][1] : spans[1][0]]
    else:
        head = text[:start].rstrip(" \t\\\r\n")
        between = text[len(head) : start]
    return Edit(start, end, between.join(f"--hash={value}" for value in sorted(hashes)))


def _moves(clause: Clause, declaration: Declaration, version: str) -> bool:
    if clause is declaration.pin:
        return True
    wanted = Version(version)
    if clause.operator in _BOUNDS:
        return not clause.admits(version)
    if clause.is_wildcard and clause.operator != "!=":
        return not clause.admits(version) and Version(clause.version[:-2]) < wanted
    return (
        declaration.pin is None
        and clause in declaration.floors
        and Version(clause.version) < wanted
    )


def _edits(clause: Clause, version: str) -> tuple[Edit, ...]:
    if clause.operator == ">":
        raised = Edit(clause.operator_start, clause.operator_start + 1, ">=")
        return raised, Edit(clause.start, clause.end, at_least(version))
    new = _labelled(clause, version)
    if clause.operator == "~=":
        new = _compatible(clause.version, version)
    elif clause.operator == "<":
        new = _bound_above(clause.version, version)
    elif clause.is_wildcard:
        new = _wildcard(clause.version, version)
    elif clause.operator == "~" and "." not in clause.version:
        # ``~1`` reaches to 2, ``~1.4`` only to 1.5.
        return (
            Edit(clause.operator_start, clause.operator_start + 1, ">="),
            Edit(clause.start, clause.end, f"{new},<{Version(version).major + 1}"),
        )
    return (Edit(clause.start, clause.end, new),)


def _labelled(clause: Clause, version: str) -> str:
    """Return the version for a clause: with a local label (``2.5+cpu``) if its pin has one."""
    has_label = clause.pep440.startswith("==") and "+" in clause.version
    return version if has_label else at_least(version)


def _compatible(old: str, version: str) -> str:
    """Return the version for ``~=``. The number of components stays, since the last but one sets its
    range."""
    length, wanted = len(Version(old).release), Version(version)
    release = wanted.release
    if len(release) < length:
        filled = (*release, *(0,) * (length - len(release)))
        return _epoch(version) + ".".join(map(str, filled))
    if len(release) == length:
        return wanted.public
    return _epoch(version) + ".".join(map(str, release[:length])) + f",>={wanted.public}"


def _bound_above(old: str, version: str) -> str:
    """Return ``<`` moved above the version: the same component is raised, and as many are written."""
    match = _RELEASE.match(old)
    if match is None:
        raise InvalidVersion(old)
    parts = [int(part) for part in match["release"].split(".")]
    position = max((index for index, part in enumerate(parts) if part), default=0)
    release = (*Version(version).release, *(0,) * len(parts))
    moved = (*release[:position], release[position] + 1, *(0,) * (len(parts) - position - 1))
    return _epoch(version) + ".".join(map(str, moved)) + old[match.end() :]


def _wildcard(old: str, version: str) -> str:
    length = old.count(".")
    release = (*Version(version).release, *(0,) * length)
    return _epoch(version) + ".".join(map(str, release[:length])) + ".*"


def _epoch(version: str) -> str:
    epoch = Version(version).epoch
    return f"{epoch}!" if epoch else ""


def _realigned(tail: str, grown: int) -> str:
    match = _BLANKS_BEFORE_COMMENT.search(re.split(r"[\r\n]", tail, maxsplit=1)[0])
    if match is None or len(match[0]) < _ALIGNED:
        return tail
    blanks = max(2, len(match[0]) - grown)
    return tail[: match.start()] + " " * blanks + tail[match.end() :]
