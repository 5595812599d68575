"""Sources from which a Python client may install a package, and that no reader of this plugin follows.

What is not read is unknown, which is not "not affected": each such source is named. There are these kinds:

* an unreadable file that requirements include, or from which metadata takes its dependencies: a missing
  file, an address, a path with a variable, bytes that are not UTF-8;
* any other tracked file that may install packages (a workflow, an image's variables, another client's lock,
  an archive), if it names the package in an affected version, or in a form that can't be read. Only its
  text counts: whether a command reads the file, and which, is not known;
* a committed copy of the package's own code, in an affected version: no version change reaches it.

Tests, documentation and examples are left out: nothing is installed from them.
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

#: Files whose environments are made only for tests.
_TEST_TOOLS = frozenset({"tox.ini", "tox.toml", "toxfile.py", "noxfile.py"})

#: Folders of third-party code, from which a project may well install.
_VENDORED = frozenset(
    {"vendor", "vendored", "_vendor", "_vendored", "third_party", "third-party", "external"}
    | {"extern", "site"}
)

#: Locks that are made from a manifest in their own folder, or from a workspace's members below.
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock")

#: Files that state the version of the code next to them, and the ways to state it.
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
#: The text after a package's name, on the same line unless the file is a lock.
_OPERATOR = r"(?:===|==|~=|!=|<=|>=|<|>)"
_SPECIFIER = lazy_pattern(
    rf"(?:\[[^\]\n]*\])?[ \t]*\(?(?P<specifier>{_OPERATOR}[ \t]*[\w.!*+-]+"
    rf"(?:[ \t]*,[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+)*)"
)
_ADDRESS = lazy_pattern(r"(?:\[[^\]\n]*\])?[ \t]*@[ \t]*(?P<place>[\w+.-]+:[^\s\"';,]+)")
#: A version that is computed; not one from a CI matrix, which tests several.
_COMPUTED = lazy_pattern(
    r"(?:\[[^\]\n]*\])?[ \t]*(?:===?|~=|<=?)[ \t]*"
    r"(?:\$(?!\{\{)[({]?(?P<shell>\w*)|\{+[ ]?(?P<python>\w*)|%|[\"'][ \t]*[+%.])"
)
#: A release in the form that ``uvx`` and ``uv tool`` accept (``name@1.0``).
_AT = lazy_pattern(r"(?:\[[^\]\n]*\])?@v?(?P<version>\d[\w.!+]*)")
#: A colon before a digit does not begin a value: it tags an image.
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
    """A source that was not read. ``names_it``: the file names a package, in a version that is affected or
    can't be read.

    ``for_tests``: only environments of tox or nox do, which a project's users never install.
    """

    path: str
    error: RecipeError
    names_it: bool
    for_tests: bool = False


def unread_sources(
    repo: RepoContext, advisory: Advisory, only: Sequence[str] | None = None
) -> tuple[_UnreadSource, ...]:
    """Return the unread sources that may install an affected version of the advisory's packages. ``only``:
    search only these packages."""
    sources = Sources.of(repo)
    unread = {source.path: source for source in _missing(sources)}
    packages = frozenset(advisory.packages(ECOSYSTEM) if only is None else only)
    for path, mention, for_tests in _named(repo, sources, advisory, packages):
        why = (
            f"{path} names {mention}, and which command installs from that file is not known here."
        )
        error = unsupported(why, "Raise or remove it there, and try again.")
        unread.setdefault(path, _UnreadSource(path, error, names_it=True, for_tests=for_tests))
    for path, package, version in _copies(repo, packages):
        if is_affected(advisory, ECOSYSTEM, package, version):
            why = f"{path} holds a copy of {package} {version}, which no version change reaches."
            step = "Replace it with a fixed release, or remove it, and try again."
            unread.setdefault(path, _UnreadSource(path, unsupported(why, step), names_it=True))
    return tuple(unread.values())


def _missing(files: Sources) -> Iterator[_UnreadSource]:
    """Yield the unreadable includes, without those in tests and examples."""
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
    """Yield each file that names a package so that it counts, with the text, and whether only tests use
    it."""

    def counts(package: str, declaration: Declaration | None) -> bool:
        return declaration is not None and only_affected(advisory, package, declaration)

    for path in repo.tracked_files:
        if path in sources.texts or is_installed(path):
            continue
        for source, mention in _archives(path, packages, counts):
            yield source, mention, False
        if kind_of(path) is Kind.UV_LOCK:
            for source, mention in _vendored(repo, path, packages, counts):
                yield source, mention, False
    in_folders = {path: searched_text(repo, path) for path in _in_folders(repo, sources)}
    for path, text in {**sources.searched, **in_folders}.items():
        for package in sorted(mentioned(text, packages)):
            written = sources.literals.get(path)
            if written is not None:
                text = without(written, literals(path, written, package))
            # The manifest may belong to a lock's project, which raises only what the lock has.
            folders = PurePosixPath(path).parents
            is_locked = any(repo.has(str(folder / name)) for folder in folders for name in _LOCKS)
            counting = [*_counting(path, text, package, counts, locked=is_locked)]
            # Environments of tox and nox often have the oldest supported versions, to test with these.
            is_test_tool = posixpath.basename(path) in _TEST_TOOLS
            for_users = [
                mention
                for mention in counting
                if not is_test_tool and " in tool.tox." not in mention
            ]
            if counting:
                yield path, (for_users or counting)[0], not for_users


_Counts = Callable[[str, Declaration | None], bool]


def _archives(path: str, packages: frozenset[str], counts: _Counts) -> Iterator[tuple[str, str]]:
    """Yield the file itself, if it is a package's archive: ``--find-links`` may name any folder."""
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
    """Yield a uv.lock's folders of third-party code, which its tree counts as the project's own."""
    with suppress(RecipeError, RepositoryError):  # its own project reports it
        for name, version, table in locked_in_toml(path, repo.read_text(path)):
            package, folder = canonicalize_name(name), table_of(table, "source").get("directory")
            if folder is None or package not in packages or kind_of(f"{folder}/pyproject.toml"):
                continue
            if counts(package, declaration_in(f"{package}=={version}", package)):
                yield path, f"{package} {version} of the folder {folder!r}"


def _copies(repo: RepoContext, packages: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Yield committed code of the packages: the file that states the version, the name and the version."""
    for path in repo.tracked_files:
        parts = PurePosixPath(path).parts
        folders = [part.lower() for part in parts[:-1]]
        is_left_out = is_aside("/".join(part for part in parts if part.lower() not in _VENDORED))
        if is_left_out or is_installed(path) or not folders:
            continue
        metadata = _METADATA_FOLDER.fullmatch(parts[-2]) if parts[-1] in _METADATA else None
        if metadata is not None:
            named_packages = packages & {canonicalize_name(metadata["name"])}
        elif not _VENDORED.isdisjoint(folders) and _STATES_VERSION.fullmatch(parts[-1]):
            module = (
                parts[-2] if parts[-1].startswith("_") or parts[-1] == "version.py" else parts[-1]
            )
            named_packages = packages & {canonicalize_name(module.removesuffix(".py"))}
        else:
            continue
        stated = _VERSION.search(repo.glimpse(path) or "") if named_packages else None
        if stated is not None:
            yield from ((path, package, stated["version"]) for package in named_packages)


def _in_folders(repo: RepoContext, files: Sources) -> set[str]:
    """Return manifests of folders that requirements install from, if they are not the repository's own
    manifests (below ``vendor``)."""
    folders = {folder for path, text in files.texts.items() for folder in local_folders(path, text)}
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
        return  # its literals are read; files that it names are searched
    is_project = kind_of(path) is Kind.PYPROJECT
    if not is_project:
        yield from _in_text(text, package, counts)
    if path.endswith(".toml"):
        with suppress(RecipeError):  # its own project reports it
            entries = other_requirements(path, text, package) if is_project and not locked else ()
            read = frozenset(entry.keys for entry in entries)
            table_keys = () if is_project else (posixpath.basename(path),)
            yield from _in_tables(parse_toml(path, text), table_keys, package, counts, read)


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
    if (following := _SPECIFIER.match(text, end)) is not None:
        declaration = declaration_in(f"{package}{following['specifier']}", package)
    elif (following := _COMPUTED.match(text, end)) is not None:
        declaration = _of_variable(following["shell"] or following["python"] or "", text, package)
        if declaration is None:
            yield f"{match[0]}{following[0]}"
            return
    elif (following := _AT.match(text, end)) is not None:
        declaration = declaration_in(f"{package}=={following['version']}", package)
    elif (following := _ADDRESS.match(text, end)) is not None:
        declaration = from_elsewhere(package, following["place"])
    elif (following := _LOCKED.match(text, end)) is not None:
        declaration = declaration_in(f"{package}=={following['version']}", package)
    elif not match[0].isupper() and (following := _VALUE.match(text, end)) is not None:
        declaration = _of_value(following["specifier"], package)
    else:
        return
    if counts(package, declaration):
        yield " ".join(f"{match[0]}{following[0]}".split())[:80]


def _of_variable(name: str, text: str, package: str) -> Declaration | None:
    """Return the pin in a variable, if the text assigns it one version; None if that can't be read."""
    assignment = re.compile(rf"\b{name}\b[ \t]*(?:[:?]?=|:|[ \t])[ \t]*[\"']?(\d[\w.!+]*)")
    versions = set(assignment.findall(text)) if name else ()
    pins = [declaration_in(f"{package}=={version}", package) for version in versions]
    return pins[0] if len(pins) == 1 else None


def _of_value(value: str, package: str) -> Declaration | None:
    """Return the declaration of a version or range without a name. A bare version means any
    release that begins with it (``1.2``: ``==1.2.*``)."""
    plain = value.strip()
    if _OF_POETRY.match(plain):
        return poetry_specifier_in(plain)
    specifier = f"=={plain}.*" if plain[:1].isdigit() else plain
    return declaration_in(f"{package}{specifier}", package)


#: A range in Poetry's own grammar, not PEP 440's.
_OF_POETRY = lazy_pattern(r"\^|~(?!=)")

#: Part of the name of a table in which a bare version may install a package; other tables may well
#: have keys with packages' names. A range counts in any table.
_OF_PACKAGES = lazy_pattern(
    r"dep|requi|constraint|overrid|package|version|pin|lock|install|env|group|extra|feature|source|resol"
    r"|pip|pypi|conda|librar|libs|module|plugin|wheel|vendor|third|runtime|bundle|stub|dist",
    re.IGNORECASE,
)

#: Tables and arrays of pyproject.toml that other code reads.
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
    """Yield requirements in other tables, and entries with the package's name; not those at ``read``."""
    if keys in _READ or keys in read:
        return
    if isinstance(value, str):
        if keys[:1] != ("project",):  # a description, an address
            texts = _in_text(value, package, counts)
            within = ".".join(key for key in keys if isinstance(key, str))
            yield from (f"{text} in {within}" for text in texts)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _in_tables(item, (*keys, index), package, counts, read)
    elif isinstance(value, Mapping):
        # uv's dependency metadata is not installed.
        is_item = keys[2:3] != ("dependency-metadata",) and any(
            isinstance(key, int) for key in keys[-1:]
        )
        name = value.get("name") if is_item else None
        if isinstance(name, str) and canonicalize_name(name) == package:
            yield from _entry(value, keys, package, counts)
        for key, item in value.items():
            if canonicalize_name(key) == package and keys[:1] != ("project",):
                yield from _entry(item, (*keys, key), package, counts)
            yield from _in_tables(item, (*keys, key), package, counts, read)


def _entry(item: Any, keys: Keys, package: str, counts: _Counts) -> Iterator[str]:
    """Yield the affected version of an entry with the package's name. A bare version counts only within a
    table of packages, by the name of the table or of one around it."""
    table = item if isinstance(item, Mapping) else {"version": item}
    version = table.get("version")
    addresses = [
        value for value in map(table.get, ("url", "path", "file")) if isinstance(value, str)
    ]
    declaration = from_elsewhere(package, *addresses) if addresses else None
    version = version.strip(" \"'") if isinstance(version, str) else ""
    is_of_packages = isinstance(keys[-1], int) or any(
        _OF_PACKAGES.search(str(key)) for key in keys[1:-1]
    )
    if version and version[0] in ("0123456789=<>~!^" if is_of_packages else "=<>~!^"):
        declaration = _of_value(version, package)
    if (
        declaration is not None
        and (declaration.taken or declaration.clauses)
        and counts(package, declaration)
    ):
        yield f"{package} {declaration.taken or declaration.pep440} in {'.'.join(map(str, keys))}"
