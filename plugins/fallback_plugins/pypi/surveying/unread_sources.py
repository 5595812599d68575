"""Sources that a Python client may install a package from, and that no reader here follows.

What is not read is unknown, which is not "not affected": each such source is named. Two kinds of them:

* a file that requirements include, or metadata takes its dependencies from, and that can't be read: a
  missing file, an address, a path with a variable, bytes that are not UTF-8;
* any other tracked file by which packages are installed (a workflow, an image's variables, another client's
  lock, an archive), if it names the package in a version that is affected, or in words that can't be read.
  Only the words count: which command reads the file, and whether any does, is not known;
* a copy of the package's own code that is committed, in a version that is affected: no version change
  reaches it.

Tests, documentation and examples are left out: nobody installs from them.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.commands import literals, without
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.pyproject import (
    POETRY_TABLES,
    UV_ARRAYS,
    Keys,
    other_requirements,
    parse_toml,
    table_of,
)
from fallback_plugins.pypi.manifests.requirements import (
    Declaration,
    declaration_in,
    from_elsewhere,
    local_folders,
    names_in_reference,
    poetry_specifier_in,
)
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    Sources,
    is_installed,
    locked_in_toml,
    mentioned,
    name_pattern,
    only_affected,
    searched_text,
)
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.identity import is_aside
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.repo import RepoContext

#: Files whose environments are made for tests alone.
_TEST_TOOLS = frozenset({"tox.ini", "tox.toml", "toxfile.py", "noxfile.py"})

#: Where other people's code lies, which a project may well install from.
_VENDORED = frozenset(
    {"vendor", "vendored", "_vendor", "_vendored", "third_party", "third-party", "external"}
    | {"extern", "site"}
)

#: Locks that are made from a manifest in their own folder, or from a workspace's members below.
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock")

#: Files that state the version of the code next to them, and how they do.
_METADATA = frozenset({"METADATA", "PKG-INFO"})
_METADATA_FOLDER = lazy_pattern(r"(?P<name>.+?)(?:-\d[^-]*)?(?:-py\d[\d.]*)?\.(?:dist|egg)-info")
_STATES_VERSION = lazy_pattern(
    r"__init__\.py|_*(?:version|about)_*\.py|[a-z]\w*\.py", re.IGNORECASE
)
_VERSION = lazy_pattern(
    r"^(?:Version:[ \t]*|(?:__)?version(?:__)?[ \t]*(?::[ \t]*\w+[ \t]*)?=[ \t]*[\"'])"
    r"(?P<version>\d[\w.!+-]*)",
    re.MULTILINE,
)

_COMMENT = lazy_pattern(r"(?:^|(?<=[ \t]))(?:#|REM[ \t]|//).*$", re.MULTILINE)
_CONTINUATION = lazy_pattern(r"\\\r?\n")
#: What follows a package's name, on the same line unless the file is a lock.
_OPERATOR = r"(?:===|==|~=|!=|<=|>=|<|>)"
_SPECIFIER = lazy_pattern(
    rf"(?:\[[^\]\n]*\])?[ \t]*\(?(?P<specifier>{_OPERATOR}[ \t]*[\w.!*+-]+"
    rf"(?:[ \t]*,[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+)*)"
)
_ADDRESS = lazy_pattern(r"(?:\[[^\]\n]*\])?[ \t]*@[ \t]*(?P<place>[\w+.-]+:[^\s\"';,]+)")
#: A version that is computed; not one of a matrix of CI, which tests several.
_COMPUTED = lazy_pattern(
    r"(?:\[[^\]\n]*\])?[ \t]*(?:===?|~=|<=?)[ \t]*"
    r"(?:\$(?!\{\{)[({]?(?P<shell>\w*)|\{+[ ]?(?P<python>\w*)|%|[\"'][ \t]*[+%.])"
)
#: A release by its name alone, as ``uvx`` and ``uv tool`` take it.
_AT = lazy_pattern(r"(?:\[[^\]\n]*\])?@v?(?P<version>\d[\w.!+]*)")
#: A colon before a digit is no value: it tags an image.
_VALUE = lazy_pattern(
    rf"""(?!:\d)["']?[ \t]*[:=][ \t]*(?:\{{[^}}\n]*?\bversion["']?[ \t]*[:=][ \t]*)?["']?"""
    rf"(?P<specifier>{_OPERATOR}[ \t]*[\w.!*+-]+(?:[ \t]*,[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+)*"
    r"|\d[\w.!+]*)"
)
_LOCKED = lazy_pattern(
    r"""["']?,?[ \t]*\r?\n[ \t]*["']?version["']?[ \t]*[:=][ \t]*["']?(?P<version>\d[\w.!+]*)"""
)
_TOKEN_BEFORE = lazy_pattern(r"[^\s\"'=(,\[]*$")
_TOKEN = lazy_pattern(r"[^\s\"',;)\]]*")


@dataclass(frozen=True)
class _UnreadSource:
    """``names_it``: the file names a package, in a version that is affected or can't be read.

    ``for_tests``: only environments of tox or nox do, which a project's users never install.
    """

    path: str
    error: RecipeError
    names_it: bool
    for_tests: bool = False


def unread_sources(
    repo: RepoContext, advisory: Advisory, only: Sequence[str] | None = None
) -> tuple[_UnreadSource, ...]:
    """Return the sources that may bring in an affected version of the advisory's packages (``only``: of
    these), unread."""
    sources = Sources.of(repo)
    found = {one.path: one for one in _missing(sources)}
    packages = frozenset(advisory.packages(ECOSYSTEM) if only is None else only)
    for path, words, for_tests in _named(repo, sources, advisory, packages):
        why = f"{path} names {words}, and which command installs from that file is not known here."
        error = unsupported(why, "Raise or remove it there, and try again.")
        found.setdefault(path, _UnreadSource(path, error, names_it=True, for_tests=for_tests))
    for path, package, version in _copies(repo, packages):
        if is_affected(advisory, ECOSYSTEM, package, version):
            why = f"{path} holds a copy of {package} {version}, which no version change reaches."
            step = "Replace it with a fixed release, or remove it, and try again."
            found.setdefault(path, _UnreadSource(path, unsupported(why, step), names_it=True))
    return tuple(found.values())


def _missing(files: Sources) -> Iterator[_UnreadSource]:
    """Includes that can't be read. What tests and examples include is left out."""
    for target, by in files.missing.items():
        if not is_aside(by):
            which = "A command" if by == target else by
            why, step = (
                "which is not a UTF-8 text file that git tracks",
                "Commit that file as UTF-8 text, or write its lines into the file that includes it.",
            )
            if kind_in_set(target) is not Kind.REQUIREMENTS:
                why = "which has the name of a file with commands, and is not read as requirements"
                step = "Give that file a name that ends with .txt."
            error = unsupported(f"{which} takes requirements from {target!r}, {why}.", step)
            yield _UnreadSource(target, error, names_it=False)


def _named(
    repo: RepoContext, sources: Sources, advisory: Advisory, packages: frozenset[str]
) -> Iterator[tuple[str, str, bool]]:
    """Each file that names a package so that it counts, with the words, and whether only tests use it."""

    def counts(package: str, declaration: Declaration | None) -> bool:
        return declaration is not None and only_affected(advisory, package, declaration)

    for path in repo.tracked_files:
        if path in sources.texts or is_installed(path):
            continue
        for place, words in _archives(path, packages, counts):
            yield place, words, False
        if kind_of(path) is Kind.UV_LOCK:
            for place, words in _vendored(repo, path, packages, counts):
                yield place, words, False
    in_folders = {it: searched_text(repo, it) for it in _in_folders(repo, sources)}
    for path, text in {**sources.searched, **in_folders}.items():
        for package in sorted(mentioned(text, packages)):
            written = sources.literals.get(path)
            if written is not None:
                text = without(written, literals(path, written, package))
            # A lock's project may have the manifest: only what the lock holds is raised there.
            folders = PurePosixPath(path).parents
            is_locked = any(repo.has(str(folder / name)) for folder in folders for name in _LOCKS)
            counting = [*_counting(path, text, package, counts, locked=is_locked)]
            # Environments of tox and nox often hold the oldest supported versions, to test with these.
            is_test_tool = posixpath.basename(path) in _TEST_TOOLS
            for_users = [it for it in counting if not is_test_tool and " in tool.tox." not in it]
            if counting:
                yield path, (for_users or counting)[0], not for_users


_Counts = Callable[[str, Declaration | None], bool]


def _archives(path: str, packages: frozenset[str], counts: _Counts) -> Iterator[tuple[str, str]]:
    """The file itself, if it is a package's archive: ``--find-links`` may name any folder."""
    parts = PurePosixPath(path).parts
    if not path.endswith((".whl", ".gz", ".zip", ".tgz", ".bz2", ".xz")):
        return
    if is_aside("/".join(part for part in parts if part.lower() not in _VENDORED)):
        return
    for package in packages & names_in_reference(path):
        declaration = from_elsewhere(package, path)
        if declaration.taken and counts(package, declaration):
            yield path, f"{package} {declaration.taken} by its file name"


def _vendored(
    repo: RepoContext, path: str, packages: frozenset[str], counts: _Counts
) -> Iterator[tuple[str, str]]:
    """Folders of other people's code in a uv.lock, which its tree takes for the project's own."""
    with suppress(RecipeError, RepositoryError):  # its own project says so
        for name, version, table in locked_in_toml(path, repo.read_text(path)):
            package, folder = canonicalize_name(name), table_of(table, "source").get("directory")
            if folder is None or package not in packages or kind_of(f"{folder}/pyproject.toml"):
                continue
            if counts(package, declaration_in(f"{package}=={version}", package)):
                yield path, f"{package} {version} of the folder {folder!r}"


def _copies(repo: RepoContext, packages: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Committed code of the packages: the file that states the version, the name and the version."""
    for path in repo.tracked_files:
        parts = PurePosixPath(path).parts
        folders = [part.lower() for part in parts[:-1]]
        aside = is_aside("/".join(part for part in parts if part.lower() not in _VENDORED))
        if aside or is_installed(path) or not folders:
            continue
        metadata = _METADATA_FOLDER.fullmatch(parts[-2]) if parts[-1] in _METADATA else None
        if metadata is not None:
            named = packages & {canonicalize_name(metadata["name"])}
        elif not _VENDORED.isdisjoint(folders) and _STATES_VERSION.fullmatch(parts[-1]):
            module = (
                parts[-2] if parts[-1].startswith("_") or parts[-1] == "version.py" else parts[-1]
            )
            named = packages & {canonicalize_name(module.removesuffix(".py"))}
        else:
            continue
        stated = _VERSION.search(repo.glimpse(path) or "") if named else None
        if stated is not None:
            yield from ((path, package, stated["version"]) for package in named)


def _in_folders(repo: RepoContext, files: Sources) -> set[str]:
    """Manifests of folders that requirements install from, if these are no manifests of this repository's
    own (below ``vendor``)."""
    folders = {place for path, text in files.texts.items() for place in local_folders(path, text)}
    return {
        path
        for path in repo.tracked_files
        if posixpath.dirname(path) in folders
        and kind_of(path) is None
        and posixpath.basename(path) in {"pyproject.toml", "setup.cfg", "setup.py"}
    }


def _counting(
    path: str, text: str, package: str, counts: _Counts, *, locked: bool
) -> Iterator[str]:
    if kind_of(path) is Kind.SETUP_PY:
        return  # its literals are read; what it leads to is searched
    is_project = kind_of(path) is Kind.PYPROJECT
    if not is_project:
        yield from _in_text(text, package, counts)
    if path.endswith(".toml"):
        with suppress(RecipeError):  # its own project says so
            others = other_requirements(path, text, package) if is_project and not locked else ()
            read = frozenset(it.keys for it in others)
            above = () if is_project else (posixpath.basename(path),)
            yield from _in_tables(parse_toml(path, text), above, package, counts, read)


def _in_text(text: str, package: str, counts: _Counts) -> Iterator[str]:
    text = _CONTINUATION.sub(" ", _COMMENT.sub("", text))
    for match in name_pattern(package).finditer(text):
        yield from _behind(text, match, package, counts)


def _behind(text: str, match: re.Match[str], package: str, counts: _Counts) -> Iterator[str]:
    """Yield the affected version that follows one mention of the package."""
    start, end = match.span()
    begin = start - len(_TOKEN_BEFORE.findall(text[max(0, start - 300) : start])[0])
    rest = _TOKEN.match(text, end)
    token = text[begin : rest.end() if rest else end]
    archive = from_elsewhere(package, token)
    if archive.taken:
        if counts(package, archive):
            yield token[-80:]
        return
    if start and text[start - 1] in "-_.":
        return  # the end of another name
    if (found := _SPECIFIER.match(text, end)) is not None:
        read = declaration_in(f"{package}{found['specifier']}", package)
    elif (found := _COMPUTED.match(text, end)) is not None:
        read = _of_variable(found["shell"] or found["python"] or "", text, package)
        if read is None:
            yield f"{match[0]}{found[0]}"
            return
    elif (found := _AT.match(text, end)) is not None:
        read = declaration_in(f"{package}=={found['version']}", package)
    elif (found := _ADDRESS.match(text, end)) is not None:
        read = from_elsewhere(package, found["place"])
    elif (found := _LOCKED.match(text, end)) is not None:
        read = declaration_in(f"{package}=={found['version']}", package)
    elif not match[0].isupper() and (found := _VALUE.match(text, end)) is not None:
        read = _of_value(found["specifier"], package)
    else:
        return
    if counts(package, read):
        yield " ".join(f"{match[0]}{found[0]}".split())[:80]


def _of_variable(name: str, text: str, package: str) -> Declaration | None:
    """The pin that a variable is, if the text gives it one version; None: that can't be read."""
    given = re.compile(rf"\b{name}\b[ \t]*(?:[:?]?=|:|[ \t])[ \t]*[\"']?(\d[\w.!+]*)")
    versions = set(given.findall(text)) if name else ()
    pins = [declaration_in(f"{package}=={version}", package) for version in versions]
    return pins[0] if len(pins) == 1 else None


def _of_value(value: str, package: str) -> Declaration | None:
    """A version or range without the name: a bare version is that release, or one of its line."""
    plain = value.strip()
    if _OF_POETRY.match(plain):
        return poetry_specifier_in(plain)
    specifier = f"=={plain}.*" if plain[:1].isdigit() else plain
    return declaration_in(f"{package}{specifier}", package)


#: A range that PEP 440 does not know.
_OF_POETRY = lazy_pattern(r"\^|~(?!=)")

#: In the name of a table in which a bare version may have a package installed; other tables may well have
#: keys of packages' names. A range needs no such table.
_OF_PACKAGES = lazy_pattern(
    r"dep|requi|constraint|overrid|package|version|pin|lock|install|env|group|extra|feature|source|resol"
    r"|pip|pypi|conda|librar|libs|module|plugin|wheel|vendor|third|runtime|bundle|stub|dist",
    re.IGNORECASE,
)

#: Tables and arrays of pyproject.toml that have a reader.
_READ: frozenset[Keys] = frozenset(
    {
        ("project", "dependencies"),
        ("project", "optional-dependencies"),
        ("dependency-groups",),
        ("tool", "uv", "sources"),
        ("tool", "uv", "exclude-newer-package"),
        ("tool", "uv", "pip", "exclude-newer-package"),
        *(("tool", "uv", key) for key in UV_ARRAYS),
        *POETRY_TABLES,
    }
)


def _in_tables(
    value: Any, keys: Keys, package: str, counts: _Counts, read: frozenset[Keys]
) -> Iterator[str]:
    """Requirements in other tables, and entries named like the package; not those at ``read``."""
    if keys in _READ or keys in read:
        return
    if isinstance(value, str):
        if keys[:1] != ("project",):  # a description, an address
            found = _in_text(value, package, counts)
            within = ".".join(key for key in keys if isinstance(key, str))
            yield from (f"{words} in {within}" for words in found)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _in_tables(item, (*keys, at), package, counts, read)
    elif isinstance(value, Mapping):
        # uv's metadata has nothing installed.
        is_item = keys[2:3] != ("dependency-metadata",) and any(
            isinstance(it, int) for it in keys[-1:]
        )
        name = value.get("name") if is_item else None
        if isinstance(name, str) and canonicalize_name(name) == package:
            yield from _entry(value, keys, package, counts)
        for key, item in value.items():
            if canonicalize_name(key) == package and keys[:1] != ("project",):
                yield from _entry(item, (*keys, key), package, counts)
            yield from _in_tables(item, (*keys, key), package, counts, read)


def _entry(item: Any, keys: Keys, package: str, counts: _Counts) -> Iterator[str]:
    """Yield the affected version of an entry with the package's name: a bare version counts only within a
    table of packages, by its name or by that of one around it."""
    table = item if isinstance(item, Mapping) else {"version": item}
    version = table.get("version")
    places = [one for one in map(table.get, ("url", "path", "file")) if isinstance(one, str)]
    read = from_elsewhere(package, *places) if places else None
    version = version.strip(" \"'") if isinstance(version, str) else ""
    is_of_packages = isinstance(keys[-1], int) or any(
        _OF_PACKAGES.search(str(it)) for it in keys[1:-1]
    )
    if version and version[0] in ("0123456789=<>~!^" if is_of_packages else "=<>~!^"):
        read = _of_value(version, package)
    if read is not None and (read.taken or read.clauses) and counts(package, read):
        yield f"{package} {read.taken or read.pep440} in {'.'.join(map(str, keys))}"
