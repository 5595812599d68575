"""The places of a package in a Python project: what can be bumped, what prevents it, and which exact
versions manifests and locks hold."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.locks.pipfile_lock import parsed_lock
from fallback_plugins.pypi.manifests.commands import (
    SCRIPT_START,
    has_literals,
    literals,
    script_metadata,
    started_commands,
)
from fallback_plugins.pypi.manifests.kinds import LOCKS, PYPI, Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.metadata import items, parsed
from fallback_plugins.pypi.manifests.pyproject import (
    foreign_sources,
    is_excluded,
    other_requirements,
    parse_toml,
    requirement_strings,
    table_of,
    tables,
    texts,
)
from fallback_plugins.pypi.manifests.requirements import (
    FROM_ELSEWHERE,
    Declaration,
    declaration_in,
    declarations,
    from_elsewhere,
    includes,
    is_closed,
    is_requirements,
    requirement_in,
)
from fallback_plugins.shared.identity import OTHER_LOCKS, is_aside
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.unread import LeftOut, Reader
from fallback_tier.advisory import Advisory, sort_key
from fallback_tier.advisory.versions import served
from fallback_tier.ecosystem_rules import installed_rules
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.repo import RepoContext

ECOSYSTEM = PYPI

#: Texts whose words are kept.
_TEXTS = 32

#: Longest file that is searched (characters): people write shorter ones, and clients longer ones.
_MAX_CHARS = 4_000_000

#: Files by whose words packages may be installed.
_MAY_INSTALL = lazy_pattern(
    r".*\.(?:txt|in|li?st|lock|pip|reqs?|requirements|constraints?|cfg|ini|toml|ya?ml|sh|bash|zsh|ps1|bat"
    r"|cmd|mk|env|conf|nix|bzl|bazel|dockerfile|limits?)|\.?[^.]+|\.env\..*|(?:docker|container)file\..*"
    r"|\.?devcontainer\.json|.*\.ipynb"
    r"|(?:noxfile|tasks|fabfile|dodo|toxfile|build|install)\.py",
    re.IGNORECASE,
)
#: Files that are read as requirements if each line is one.
_MAY_LIST = lazy_pattern(
    r"[^.].*\.(?:txt|in|li?st|lock|pip|reqs?|requirements|constraints?|limits?)|[^.]*(?:req|dep|pip)[^.]*",
    re.IGNORECASE,
)
#: Words for people, which often name old versions.
_FOR_PEOPLE = lazy_pattern(
    r".*\.(?:md|rst|adoc|html?)|(?:change|history|news|release|readme|licen|authors|notice|copying|thanks"
    r"|contribut|security|upgrad|migrat).*",
    re.IGNORECASE,
)
#: Where installed trees lie: what is in them came from what is read.
_INSTALLED = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", ".nox"})

#: Files that a command takes requirements from: ``-r``, ``-c``, ``PIP_CONSTRAINT``.
_LED_TO = lazy_pattern(
    r"(?:(?<![\w-])-[rc]|--(?:with-)?(?:requirements?|constraints?|overrides?)|\bpip(?:-|[ \t]+)sync"
    r"|\b(?:PIP|UV)_(?:BUILD_)?(?:CONSTRAINT|REQUIREMENT|OVERRIDE)S?|^[ -]*requirements:[ ]*(?=\S))"
    r"[=:\s\"',]*(?P<path>[^\s\"',;&|)\]]+)",
    re.MULTILINE,
)
#: … one of which constrains the others, and the end of a line that goes on.
_CONSTRAINS = lazy_pattern(r"(?<![\w-])-c\b|--constraint")
_CONTINUED = lazy_pattern(r"[\\`^][ \t]*\r?\n")

_LOCKED_BY = {
    Kind.UV_LOCK: ("pyproject.toml",),
    Kind.POETRY_LOCK: ("pyproject.toml",),
    Kind.PDM_LOCK: ("pyproject.toml",),
    Kind.PIPFILE_LOCK: ("Pipfile",),
}

#: What its client writes in each lock, also of a project without dependencies, and where its packages are.
_ALWAYS = {
    Kind.PIPFILE_LOCK: ("_meta", "default", "develop"),
    Kind.POETRY_LOCK: ("metadata", "package"),
    Kind.PDM_LOCK: ("metadata",),
    Kind.UV_LOCK: ("version", "requires-python"),
    Kind.PYLOCK: ("lock-version", "packages"),
}
_PACKAGES = ("package", "packages", "default", "develop")
_PIPFILE_SECTIONS = ("default", "develop")

#: A package of no interest: what is asked of it has the file parsed.
_ANY = "any"

_WORD = lazy_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION_AFTER = lazy_pattern(r"[-_.](?=v?\d)")
#: The table of hatch's plugin that takes requirements from files.
HATCH_FILES = ("tool", "hatch", "metadata", "hooks", "requirements_txt")
#: A value of setup.cfg that names files with the requirements.
_FILES = lazy_pattern(r"\s*file:\s*")
_QUOTED = lazy_pattern(r"""(?P<quote>['"])(?P<text>[^'"\n]*)(?P=quote)""")


@dataclass(frozen=True)
class Sources:
    """The tracked files by which packages may be installed, apart from manifests that are known by name.

    ``texts``: requirements files by path: those by their names, those that one of them, metadata or a
    command leads to, and those that read as requirements. ``missing``: what can't be read of these, with
    the file that leads to it; one by its own name is missing here, since its project says so.
    ``literals``: files with install commands or script metadata, in which a fix may change versions.
    ``searched``: the same and all others by whose words packages may be installed (of scripts: metadata).
    """

    texts: Mapping[str, str]
    missing: Mapping[str, str]
    literals: Mapping[str, str]
    searched: Mapping[str, str]

    @classmethod
    def of(cls, repo: RepoContext) -> "Sources":
        """Those of the tracked files, read once for each snapshot. Nothing is raised."""
        return repo.once(cls, lambda: cls._read(repo))

    @classmethod
    def _read(cls, repo: RepoContext) -> "Sources":
        searched = {
            path: searched_text(repo, path) for path in repo.tracked_files if _is_searched(path)
        }
        texts, missing = _requirement_files(repo, searched)
        literals: dict[str, str] = {}
        rest = {path: text for path, text in searched.items() if path not in texts}
        for path, text in rest.items():
            with suppress(RepositoryError):
                if has_literals(path, text) and repo.read_text(path):
                    literals[path] = text
            if _is_script(path):
                rest[path] = f"{script_metadata(text)}\n{started_commands(path, text)}".strip()
        return cls(texts, missing, literals, rest)


def _requirement_files(
    repo: RepoContext, searched: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    texts: dict[str, str] = {}
    missing: dict[str, str] = {}
    waiting: list[tuple[str, str]] = []
    links: set[str] = set()
    for path in repo.tracked_files:
        match kind_of(path):
            case Kind.REQUIREMENTS:
                waiting.append((path, path))
            case Kind.PYPROJECT | Kind.SETUP_CFG:
                with suppress(RecipeError, RepositoryError):  # its own project says so
                    named = metadata_files(path, repo.read_text(path))
                    waiting += [(target, path) for _, target in named]
            case None if path in searched and _MAY_LIST.fullmatch(posixpath.basename(path)):
                if is_requirements(searched[path], compiled_or_pinned=True):
                    waiting.append((path, path))
    waiting += [(path, path) for path in _led_to(repo, searched)]
    while waiting:
        path, by = waiting.pop()
        if path in texts or path in missing or kind_of(path) not in {None, Kind.REQUIREMENTS}:
            continue
        if kind_in_set(path) is not Kind.REQUIREMENTS:  # by its name it has commands
            missing[path] = by
            continue
        try:
            text = texts[path] = repo.read_text(path)
        except RepositoryError:
            target = repo.leads_to(path) if path not in links else None
            if target is not None and path != by:
                links.add(path)
                waiting.append((target, by))  # what a link shows is read, and raised, there
            elif path != by and not (repo.has(path) and kind_of(path)):
                missing[path] = by
        else:
            waiting += [(other, path) for other, _ in includes(path, text)]
            compiled_from = str(PurePosixPath(path).with_suffix(".in"))
            if is_closed(text) and repo.has(compiled_from):
                waiting.append((compiled_from, compiled_from))
    return texts, missing


def constrained_by_commands(repo: RepoContext) -> Iterator[frozenset[str]]:
    """Files that one command takes requirements and constraints from: ``-r a.txt -c b.txt``."""
    found = Sources.of(repo)
    by_name: dict[str, list[str]] = {}
    for path in found.texts:
        by_name.setdefault(posixpath.basename(path), []).append(path)
    for by, text in found.searched.items():
        for line in _CONTINUED.sub(" ", text).splitlines():
            if _CONSTRAINS.search(line):
                names = [match["path"] for match in _LED_TO.finditer(line)]
                yield frozenset(path for name in names for path in _of_name(name, by, by_name))


def _of_name(name: str, by: str, by_name: Mapping[str, Sequence[str]]) -> Collection[str]:
    """The files that a word of a file may mean: from the repository's root or the file's own folder; if
    neither has it (an image has its own folders), all of that name."""
    known = by_name.get(posixpath.basename(name), ())
    folders = ("", posixpath.dirname(by))
    exact = {posixpath.normpath(posixpath.join(folder, name)) for folder in folders}
    return exact.intersection(known) or known


def _led_to(repo: RepoContext, searched: Mapping[str, str]) -> Iterator[str]:
    """Files that read as requirements, and that a command leads to."""
    by_name: dict[str, list[str]] = {}
    for path in repo.tracked_files:
        if kind_of(path) is None and not is_installed(path):
            by_name.setdefault(posixpath.basename(path), []).append(path)
    for by, text in searched.items():
        named = {match["path"] for match in _LED_TO.finditer(text)}
        if kind_of(by) is Kind.SETUP_PY:  # which reads its requirements from a file
            named |= {match["text"] for match in _QUOTED.finditer(text)}
        for name in named:
            for path in _of_name(name, by, by_name):
                with suppress(RepositoryError):
                    if is_requirements(repo.read_text(path)):
                        yield path


def is_installed(path: str) -> bool:
    """Return whether a file lies in an installed tree: what is in it came from what is read."""
    return not _INSTALLED.isdisjoint(PurePosixPath(path).parts)


def _is_searched(path: str) -> bool:
    kind, parts = kind_of(path), PurePosixPath(path).parts
    if kind is not None:
        return kind in {Kind.PYPROJECT, Kind.SETUP_PY} and not is_aside(path)
    is_prose = _FOR_PEOPLE.fullmatch(parts[-1]) and kind_in_set(path) is Kind.REQUIREMENTS
    if is_aside(path) or is_installed(path) or is_prose:
        return False
    if parts[-1] in _of_other_ecosystems():
        return False
    return _MAY_INSTALL.fullmatch(parts[-1]) is not None or _is_script(path)


@cache
def _of_other_ecosystems() -> frozenset[str]:
    """Names of manifests and locks whose packages are not Python's, though they may have the same names."""
    rules = [rules for name, rules in installed_rules() if name != ECOSYSTEM]
    globs = (it for one in rules for it in (*one.manifest_globs, *one.lock_globs))
    return frozenset(globs).union(*OTHER_LOCKS.values())


def _is_script(path: str) -> bool:
    return kind_of(path) is None and kind_in_set(path) is Kind.SCRIPT


def searched_text(repo: RepoContext, path: str) -> str:
    """A file's text as far as it can be seen. What is larger, and no text at all, installs nothing."""
    try:
        text = repo.read_text(path)
    except RepositoryError:
        text = repo.glimpse(path) or ""
    text = text[:_MAX_CHARS]
    if path.endswith(".ipynb"):
        return started_commands(path, text)
    if _is_script(path) and SCRIPT_START not in text and not started_commands(path, text):
        return ""
    return text


def metadata_files(path: str, text: str) -> list[tuple[str, str]]:
    """Extras (empty: none) and the requirements files that metadata takes each from: by setuptools' words
    (``dependencies = {file = …}`` in pyproject.toml, ``file: …`` in setup.cfg) or those of hatch's plugin
    for such files. Raises RecipeError."""
    if "file" not in text:
        return []
    if kind_of(path) is Kind.SETUP_CFG:
        values = [
            (it, _FILES.sub("", value))
            for it, value in _requirement_values(text)
            if _FILES.match(value)
        ]
        named = [
            (extra, name.strip()) for extra, value in values for name in re.split(r"[,\n]", value)
        ]
    else:
        document = parse_toml(path, text)
        dynamic = table_of(document, "tool", "setuptools", "dynamic")
        hatch = table_of(document, *HATCH_FILES)
        main = {"": dynamic.get("dependencies")}
        sources = {**main, **table_of(dynamic, "optional-dependencies")}
        files = [(it, one.get("file")) for it, one in sources.items() if isinstance(one, dict)]
        files += [("", hatch.get("files")), *table_of(hatch, "optional-dependencies").items()]
        named = [(extra, name) for extra, one in files for name in (texts([one]) or texts(one))]
    folder = posixpath.dirname(path)
    return [(it, posixpath.normpath(posixpath.join(folder, name))) for it, name in named if name]


@dataclass(frozen=True)
class Place:
    """One place that holds the package in ``current`` (None: no version can be read there).

    ``keys`` lead to a string of a TOML file; ``blocker`` says why the place can't be changed: the
    sentence is "<path> asks for <package> …, but <this>.". ``asked``: what it asks for, also where that is
    nothing to edit (a program's text); None: a lock, which holds one version. ``decided``: another file
    says which version is installed; this one only has to admit it.
    """

    path: str
    kind: Kind
    current: str | None
    declaration: Declaration | None = None
    keys: tuple[str | int, ...] = ()
    blocker: str | None = None
    asked: Declaration | None = None
    decided: bool = False

    @property
    def is_range(self) -> bool:
        """Whether ``current`` is a lower bound, not a version that is locked or pinned."""
        return self.asked is not None and self.asked.pin is None

    def admits(self, version: str) -> bool:
        """Return whether its requirement admits the version."""
        return self.asked is not None and self.asked.admits(version)


def survey(repo: RepoContext, package: str, unread: LeftOut | None = None) -> tuple[Place, ...]:
    """Every place that holds the package, by path.

    Raises RecipeError (a manifest can't be parsed) or RepositoryError (one can't be read) of a file that
    names the package, or locks what names it; another that can't be read is left out, and noted in
    ``unread``. Files that don't name the package are not parsed: a broken one elsewhere blocks nothing.
    """
    unread = unread or left_out((package,), repo)
    named = name_pattern(package)
    places: list[Place] = []
    found = Sources.of(repo)
    for path in sorted({*filter(kind_of, repo.tracked_files), *found.texts, *found.literals}):
        try:
            if named.search(text := repo.read_text(path)):
                places.extend(places_in(path, text, package))
        except (RecipeError, RepositoryError) as error:
            folder = posixpath.dirname(path)
            locked = [posixpath.join(folder, name) for name in locked_by(path)]
            own = [path, *filter(repo.has, locked)]
            if (refusal := unread.refusal(own, error)) is not None:
                raise refusal from error
    return tuple(places)


def locked_by(path: str) -> tuple[str, ...]:
    """Names of the manifests beside a lock that says what of them is installed."""
    kind = kind_of(path)
    return _LOCKED_BY.get(kind, ()) if kind is not None else ()


def nothing_in(path: str, text: str) -> str:
    """Return why nothing is in a lock; empty: something is.

    It is empty, or holds no package and lacks what its client always writes: it was cut off, or written by
    hand, and does not say that nothing is installed. Raises RecipeError if it can't be read.
    """
    if not text.strip():
        return "is empty"
    kind = kind_of(path)
    document = (parsed_lock if kind is Kind.PIPFILE_LOCK else parse_toml)(path, text)
    lacking = [key for key in _ALWAYS.get(kind, ()) if key not in document] if kind else []
    if kind is Kind.PIPFILE_LOCK:
        wrong = [key for key in _PIPFILE_SECTIONS if not isinstance(document.get(key), dict)]
        # Whatever develop holds, it says nothing of the packages of default; the other way round it may.
        if "default" in wrong or not document.keys().isdisjoint(wrong):
            return f"lacks {wrong[0]!r}, which its client always writes"
        lacking += wrong
    if not lacking or any(document.get(key) for key in _PACKAGES):
        return ""
    return f"lacks {lacking[0]!r}, which its client always writes"


def check_says_something(path: str, text: str) -> None:
    """Raise RecipeError for a lock that has ``nothing_in`` it, or can't be read."""
    if why := nothing_in(path, text):
        raise unknown(
            path,
            f"{path!r} {why}, so what is installed is unknown.",
            next_step="Make a new one with its client, or remove it.",
        )


def left_out(packages: Sequence[str], repo: RepoContext) -> LeftOut:
    """Collects what is left out by someone who looks for these packages."""

    def names(text: str, some: Sequence[str]) -> bool:
        return bool(mentioned(text, frozenset(some)))

    return LeftOut(Reader(repo, packages, kind_of, names, _parse))


def _parse(path: str, text: str) -> None:
    """Raises RecipeError. Any text has lines, so those that are read line by line are never at fault."""
    kind = kind_of(path)
    if kind in LOCKS:  # an empty one says nothing, which is not that nothing is installed
        check_says_something(path, text)
    if kind is Kind.PIPFILE_LOCK:
        pinned_versions(path, text, _ANY)
    elif kind in LOCKS or kind in {Kind.PYPROJECT, Kind.PIPFILE}:
        parse_toml(path, text)


def places_in(path: str, text: str, package: str) -> tuple[Place, ...]:
    """Return every place of a package in a manifest or lock, top down, without those that no Python of
    the project installs. Raises RecipeError."""
    return _places(path, text, package, excluded=False)


def excluded_lines(path: str, text: str, advisory: Advisory) -> Iterator[str]:
    """Yield a sentence on each line that requires an affected version for no Python of the project."""
    for package in mentioned(text, frozenset(advisory.packages(ECOSYSTEM))):
        for place in _places(path, text, package, excluded=True):
            asked = place.asked
            if asked is not None and only_affected(advisory, package, asked):
                yield (
                    f"{path} requires {package}{asked.specifier} if {asked.marker.strip()}, which excludes"
                    " every Python that it supports: that line is left as it is."
                )


def _places(path: str, text: str, package: str, *, excluded: bool) -> tuple[Place, ...]:
    kind = kind_in_set(path)
    return tuple(
        place
        for place in _READERS.get(kind, _read_lock)(path, kind, text, package)
        if is_excluded(path, text, place.asked.marker if place.asked else "") is excluded
    )


def mentioned(text: str, packages: frozenset[str]) -> frozenset[str]:
    """Return which of the packages (canonical names) a text names, in one pass."""
    return _words(text) & packages


@lru_cache(maxsize=_TEXTS)
def _words(text: str) -> frozenset[str]:
    words = set(_WORD.findall(text))
    words |= {
        key for word in words if "." in word for key in word.split(".")
    }  # of TOML: ``a.left``
    # Names of archives and repositories are one word with what follows: ``idna-3.6.tar.gz``, ``idna.git``.
    words |= {_VERSION_AFTER.split(word, maxsplit=1)[0].removesuffix(".git") for word in words}
    return frozenset(map(canonicalize_name, words))


def name_pattern(package: str) -> re.Pattern[str]:
    """Return a pattern of the package's name in any PEP 503 spelling, as a whole word."""
    spelled = r"[-_.]+".join(map(re.escape, canonicalize_name(package).split("-")))
    return re.compile(rf"(?<![A-Za-z0-9]){spelled}(?![A-Za-z0-9])", re.IGNORECASE)


def current_of(declaration: Declaration) -> str | None:
    """Return a declaration's version: its archive's, its pin, or its highest lower bound."""
    if declaration.taken:
        return declaration.taken
    if declaration.pin is not None:
        return declaration.pin.version
    bounds = [clause.version for clause in declaration.floors]
    return max(bounds, key=lambda version: sort_key(ECOSYSTEM, version), default=None)


def only_affected(advisory: Advisory, package: str, declaration: Declaration) -> bool:
    """Does a declaration lead to an affected version, whatever a registry has? So does one that can't be
    read: nothing shows that it doesn't.

    Of the versions that the record names, those that it admits are asked about; if it admits none of them,
    its own.
    """
    matcher = advisory.matcher(ECOSYSTEM, package)
    if matcher is None:
        return False
    if declaration.taken:
        return matcher.covers(declaration.taken)
    if declaration.choices:
        return all(only_affected(advisory, package, one) for one in declaration.choices)
    if declaration.refusal or not declaration.clauses:
        return declaration.refusal is not None
    named = (*matcher.named, served(ECOSYSTEM).above_all)
    own = (clause.version.removesuffix(".*") for clause in declaration.clauses)
    candidates = filter(declaration.admits, (it for one in own for it in (one, f"{one}.1")))
    admitted = [*filter(declaration.admits, named)] or [*candidates]
    return bool(admitted) and all(map(matcher.covers, admitted))


def highest_named(advisory: Advisory, package: str, admits: Callable[[str], bool]) -> str | None:
    """The highest affected version that the record names and ``admits`` accepts."""
    matcher = advisory.matcher(ECOSYSTEM, package)
    named = reversed(matcher.named) if matcher else ()
    return next((it for it in named if admits(it) and matcher and matcher.covers(it)), None)


def _read_lines(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    lists = kind is Kind.REQUIREMENTS
    found = declarations(text, package) if lists else literals(path, text, package)
    return (_declared(path, kind, declaration) for declaration in found)


def _read_pyproject(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    sources = foreign_sources(path, text, package)
    why = "[tool.uv.sources] takes it from elsewhere than a registry"
    strings = requirement_strings(path, text, package)
    for string in (*strings, *other_requirements(path, text, package)):
        place = _declared(path, kind, string.declaration, string.keys)
        yield replace(place, blocker=place.blocker or why) if sources is not None else place
    # The client checks that what it takes is admitted; otherwise the archive's name tells the version.
    taken = from_elsewhere(package, *sources or ())
    bare = not any(string.declaration.clauses for string in strings)
    if taken.taken or (sources and bare):
        yield Place(path, kind, current_of(taken), blocker=why)


def _read_lock(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    return (Place(path, kind, version) for version in pinned_versions(path, text, package))


def _read_pipfile(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    entries = requirement_strings(path, text, package)
    return (_declared(path, kind, entry.declaration, entry.keys) for entry in entries)


def _read_setup_cfg(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    known = [line for line in setup_cfg_requirements(text) if declaration_in(line, package)]
    # Paths and addresses are in other keys as well.
    written = [it for it in declarations(text, package) if known or it.refusal != FROM_ELSEWHERE]
    for declaration in written:
        place = _declared(path, kind, declaration)
        if len(known) != len(written):
            place = replace(place, blocker="it does so elsewhere than one requirement a line")
        yield place
    if known and not written:
        yield Place(path, kind, None, blocker="it does so elsewhere than one requirement a line")


def _read_setup_py(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    for match in _QUOTED.finditer(text):
        declaration = declaration_in(match["text"], package)
        if declaration and (declaration.clauses or re.search(r"[\w\]]\s*@", match["text"])):
            why = "it is a program, which no recipe edits"
            yield Place(path, kind, current_of(declaration), blocker=why, asked=declaration)


@lru_cache(maxsize=_TEXTS)
def setup_cfg_requirements(text: str) -> tuple[str, ...]:
    """The requirements that setuptools takes from a setup.cfg itself, those of its build and its tests too;
    none if it can't be read. A value on one line is separated by semicolons."""
    values = [value for _, value in _requirement_values(text) if not _FILES.match(value)]
    lines = (it for value in values for it in value.split("\n" if "\n" in value else ";"))
    return tuple(filter(None, map(str.strip, lines)))


def _requirement_values(text: str) -> list[tuple[str, str]]:
    """Extras (empty: none) and what setup.cfg has for each; none where it can't be read."""
    parser = parsed(text)
    options = {key.replace("-", "_"): value for key, value in items(parser, "options")}
    main = (options.get(key, "") for key in ("install_requires", "setup_requires", "tests_require"))
    return [*(("", it) for it in main), *items(parser, "options.extras_require")]


def _declared(
    path: str, kind: Kind, declaration: Declaration, keys: tuple[str | int, ...] = ()
) -> Place:
    current, refusal = current_of(declaration), declaration.refusal
    return Place(path, kind, current, declaration, keys, refusal, asked=declaration)


_READERS: dict[Kind, Callable[[str, Kind, str, str], Iterator[Place]]] = {
    Kind.REQUIREMENTS: _read_lines,
    Kind.PYPROJECT: _read_pyproject,
    Kind.PIPFILE: _read_pipfile,
    Kind.SETUP_CFG: _read_setup_cfg,
    Kind.SETUP_PY: _read_setup_py,
    Kind.COMMANDS: _read_lines,
    Kind.SCRIPT: _read_lines,
}


#: Locks that are TOML with one table a package: the name of their array.
_TOML_LOCKS = {
    Kind.UV_LOCK: "package",
    Kind.POETRY_LOCK: "package",
    Kind.PDM_LOCK: "package",
    Kind.PYLOCK: "packages",
}

#: Where a uv.lock says that an entry is a folder of the repository.
_LOCAL = frozenset({"editable", "virtual", "directory"})


def pinned_versions(path: str, text: str, package: str) -> tuple[str, ...]:
    """Exact versions of ``package`` in one file, as written, in its order, each once.

    Requirements files and pyproject.toml: ``==`` pins (a range pins nothing). uv.lock, poetry.lock,
    pdm.lock, pylock.toml, Pipfile.lock: the locked versions. Any other file: none. Raises
    RecipeError where the file can't be parsed.
    """
    kind = kind_of(path)
    found: Iterator[str] = iter(())
    if kind in {Kind.REQUIREMENTS, Kind.PYPROJECT}:
        places = (
            [it.declaration for it in requirement_strings(path, text, package)]
            if kind is Kind.PYPROJECT
            else declarations(text, package)
        )
        found = (place.pin.version for place in places if place.pin is not None)
    elif kind in _TOML_LOCKS:
        found = _toml_lock(path, text, package)
    elif kind is Kind.PIPFILE_LOCK:
        found = _pipfile_lock(path, text, package)
    return tuple(dict.fromkeys(found))


def _toml_tables(path: str, text: str) -> list[Mapping[str, Any]]:
    """Return the packages of a lock in TOML; none of another file. Raises RecipeError."""
    kind = kind_of(path)
    return tables(parse_toml(path, text).get(_TOML_LOCKS[kind]) if kind else None)


def locked_in_toml(path: str, text: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield name, version and table of each package of a lock in TOML that has both. Raises RecipeError."""
    for table in _toml_tables(path, text):
        name, version = table.get("name"), table.get("version")
        if isinstance(name, str) and isinstance(version, str):
            yield name, version, table


def unversioned_in_toml(path: str, text: str) -> frozenset[str]:
    """Return canonical names of packages that a lock in TOML lists without a version, except folders of the
    repository. Raises RecipeError."""
    return frozenset(
        str(canonicalize_name(table["name"]))
        for table in _toml_tables(path, text)
        if isinstance(table.get("name"), str)
        and not isinstance(table.get("version"), str)
        and not table.keys() & {"path", "editable", "directory"}
    )


def unlisted_in_toml(path: str, text: str) -> frozenset[str]:
    """Return canonical names of packages that those of a pdm.lock or pylock.toml require in every case, and
    that it does not list. Raises RecipeError."""
    packages = _toml_tables(path, text)
    listed = {str(canonicalize_name(str(table.get("name", "")))) for table in packages}
    required = {name for table in packages for name in _required(table)}
    return frozenset(required - listed)


def _required(table: Mapping[str, Any]) -> Iterator[str]:
    """Of pdm.lock, requirements; of pylock.toml, tables that name packages of it (PEP 751)."""
    asked = table.get("dependencies")
    for one in asked if isinstance(asked, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            yield str(canonicalize_name(one["name"]))
        elif isinstance(one, str):
            requirement = requirement_in(one)
            if requirement is not None and requirement.marker is None:
                yield str(canonicalize_name(requirement.name))


def _toml_lock(path: str, text: str, package: str) -> Iterator[str]:
    """Not the project's own entry, or a folder of it: no registry gave that version."""
    wanted = canonicalize_name(package)
    for name, version, table in locked_in_toml(path, text):
        source = table_of(table, "source")
        # Other people's code, below ``vendor``, is not a project of the repository.
        own = any(kind_of(f"{source[key]}/pyproject.toml") for key in _LOCAL if key in source)
        if canonicalize_name(name) == wanted and not own:
            yield version


def _pipfile_lock(path: str, text: str, package: str) -> Iterator[str]:
    wanted = canonicalize_name(package)
    for section in parsed_lock(path, text).values():
        for name, entry in section.items() if isinstance(section, dict) else ():
            version = entry.get("version") if isinstance(entry, dict) else None
            if isinstance(version, str) and canonicalize_name(name) == wanted:
                yield version.lstrip("=")
