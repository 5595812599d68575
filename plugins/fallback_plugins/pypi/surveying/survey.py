"""Places of a package in a Python project: what can be bumped, what prevents it, and the exact versions in
manifests and locks."""

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
from fallback_plugins.pypi.manifests.install_options import SHORT_FLAGS
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
    declaration_at,
    declaration_in,
    declarations,
    from_elsewhere,
    includes,
    is_closed,
    is_requirements,
    requirement_in,
)
from fallback_plugins.pypi.manifests.setup_py import editable_spans, other_literals
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

#: Texts whose words are cached.
_TEXTS = 32

#: Largest part of a file that is searched (characters): handwritten files are shorter, and clients' are
#: longer.
_MAX_CHARS = 4_000_000

#: Files whose text may install packages.
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
#: Texts for people, which often name old versions.
_FOR_PEOPLE = lazy_pattern(
    r".*\.(?:md|rst|adoc|html?)|(?:change|history|news|release|readme|licen|authors|notice|copying|thanks"
    r"|contribut|security|upgrad|migrat).*",
    re.IGNORECASE,
)
#: Folders of installed trees: their content comes from files that are read.
_INSTALLED = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", ".nox"})

#: Files that a command takes requirements from: ``-r``, ``-qr``, ``-c``, ``PIP_CONSTRAINT``; also the file
#: that a shell's loop reads (``done < a.txt``).
_LED_TO = lazy_pattern(
    rf"(?P<option>(?<![\w-])-{SHORT_FLAGS}[rc]"
    r"|--(?:with-|build-)?(?:requirem[a-z]*|cons[a-z]*|overrides?)|\bpip(?:-|[ \t]+)sync"
    r"|\b(?:PIP|UV)_(?:BUILD_)?(?:CONSTRAINT|REQUIREMENT|OVERRIDE)S?|^[ -]*requirements:[ ]*(?=\S)"
    r"|\bdone[ \t]*<)"
    r"[=:\s\"',]*(?P<path>[^\s\"',;&|)\]]+)",
    re.MULTILINE,
)
#: Options among these that name constraints.
_CONSTRAINS = lazy_pattern(rf"-{SHORT_FLAGS}c|--(?:build-)?cons|.*_CONSTRAINT")
#: A shell line that installs Python packages, and a variable in such a line: a loop gives its value.
_INSTALLS = lazy_pattern(
    r"\b(?:pip|pipx|uv|poetry|pdm|pipenv)[\d.]*\b.*\b(?:install|add)\b|\beasy_install\b"
)
_INSTALLS_EACH = lazy_pattern(r"\bpip[\d.]*[ \t]+install\b[^\n]*\$\{?\w")
_LOOPS = lazy_pattern(r"\bfor\b.*\bin\b|\bwhile\b.*\bread\b")
#: How a shell gives a program the content of files, and what is between a line's words.
_FEEDS = ("xargs", "$(", "`", "<", "|")
_BETWEEN_WORDS = lazy_pattern(r"[\s\"'`;&|()<>{}=]+")
#: A file that has only a version.
_ONLY_VERSION = lazy_pattern(r"[\s\dv.]*")
#: End of a line that continues.
_CONTINUED = lazy_pattern(r"[\\`^][ \t]*\r?\n")
#: The end of a line that goes on behind a pipe.
_PIPED_ON = lazy_pattern(r"\|[ \t]*\r?\n")

_LOCKED_BY = {
    Kind.UV_LOCK: ("pyproject.toml",),
    Kind.POETRY_LOCK: ("pyproject.toml",),
    Kind.PDM_LOCK: ("pyproject.toml",),
    Kind.PIPFILE_LOCK: ("Pipfile",),
}

#: Keys that each lock's client always writes, also for a project without dependencies; keys of packages.
_ALWAYS = {
    Kind.PIPFILE_LOCK: ("_meta", "default", "develop"),
    Kind.POETRY_LOCK: ("metadata", "package"),
    Kind.PDM_LOCK: ("metadata",),
    Kind.UV_LOCK: ("version", "requires-python"),
    Kind.PYLOCK: ("lock-version", "packages"),
}
_PACKAGES = ("package", "packages", "default", "develop")
_PIPFILE_SECTIONS = ("default", "develop")

#: A placeholder for a package: reading its versions makes the file be parsed.
_ANY = "any"

_WORD = lazy_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION_AFTER = lazy_pattern(r"[-_.](?=v?\d)")
#: The table of hatch's plugin that takes requirements from files.
HATCH_FILES = ("tool", "hatch", "metadata", "hooks", "requirements_txt")
#: Beginning of a value in setup.cfg that names requirements files.
_FILES = lazy_pattern(r"\s*file:\s*")
_QUOTED = lazy_pattern(r"""(?P<quote>['"])(?P<text>[^'"\n]*)(?P=quote)""")


@dataclass(frozen=True)
class Sources:
    """Tracked files that may install packages, apart from manifests that are known by name.

    ``texts``: requirements files by path: files that are named as such, files that one of them, metadata or
    a command names, and files that read as requirements. ``missing``: unreadable ones, with the file that
    names each; one that is known by its own name is not listed, since its project reports it.
    ``literals``: files with install commands or script metadata, in which a fix may change versions.
    ``searched``: all files but ``texts`` whose text may install packages (only the metadata and install
    commands of scripts).
    """

    texts: Mapping[str, str]
    missing: Mapping[str, str]
    literals: Mapping[str, str]
    searched: Mapping[str, str]

    @classmethod
    def of(cls, repo: RepoContext) -> "Sources":
        """Return the sources among the tracked files, read once for each snapshot. Raises nothing."""
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
                with suppress(RecipeError, RepositoryError):  # its own project reports it
                    files = metadata_files(path, repo.read_text(path))
                    waiting += [(target, path) for _, target in files]
            case None if path in searched and _MAY_LIST.fullmatch(posixpath.basename(path)):
                if is_requirements(searched[path], compiled_or_pinned=True):
                    waiting.append((path, path))
    waiting += [(path, path) for path in _led_to(repo, searched)]
    while waiting:
        path, by = waiting.pop()
        if path in texts or path in missing or kind_of(path) not in {None, Kind.REQUIREMENTS}:
            continue
        if kind_in_set(path) is not Kind.REQUIREMENTS:  # its name says that it has commands
            missing[path] = by
            continue
        try:
            text = texts[path] = repo.read_text(path)
        except RepositoryError:
            target = repo.leads_to(path) if path not in links else None
            if target is not None and path != by:
                links.add(path)
                waiting.append((target, by))  # the link's target is read, and reported, itself
            elif path != by and not (repo.has(path) and kind_of(path)):
                missing[path] = by
        else:
            waiting += [(included, path) for included, _ in includes(path, text)]
            compiled_from = str(PurePosixPath(path).with_suffix(".in"))
            if is_closed(text) and repo.has(compiled_from):
                waiting.append((compiled_from, compiled_from))
    return texts, missing


def constrained_by_commands(repo: RepoContext) -> Iterator[frozenset[str]]:
    """Yield the files that one command takes requirements and constraints from: ``-r a.txt -c b.txt``."""
    sources = Sources.of(repo)
    by_name: dict[str, list[str]] = {}
    for path in sources.texts:
        by_name.setdefault(posixpath.basename(path), []).append(path)
    for by, text in sources.searched.items():
        for line in _CONTINUED.sub(" ", text).splitlines():
            matches = list(_LED_TO.finditer(line))
            if any(_CONSTRAINS.match(match["option"]) for match in matches):
                names = [match["path"] for match in matches]
                yield frozenset(path for name in names for path in _of_name(name, by, by_name))


def _of_name(name: str, by: str, by_name: Mapping[str, Sequence[str]]) -> Collection[str]:
    """Return the files that a path in a file may mean: relative to the repository's root or to the file's
    own folder; if neither has it (an image has its own folders), all files of that name."""
    same_name = by_name.get(posixpath.basename(name), ())
    folders = ("", posixpath.dirname(by))
    exact = {posixpath.normpath(posixpath.join(folder, name)) for folder in folders}
    return exact.intersection(same_name) or same_name


def _led_to(repo: RepoContext, searched: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that read as requirements, and that a command names."""
    by_name: dict[str, list[str]] = {}
    for path in repo.tracked_files:
        if kind_of(path) is None and not is_installed(path):
            by_name.setdefault(posixpath.basename(path), []).append(path)
    for by, text in searched.items():
        names = {match["path"] for match in _LED_TO.finditer(text)} | {*_fed(text)}
        if kind_of(by) is Kind.SETUP_PY:  # which reads its requirements from a file
            names |= {match["text"] for match in _QUOTED.finditer(text)}
        for name in names:
            for path in _of_name(name, by, by_name):
                with suppress(RepositoryError):
                    content = repo.read_text(path)
                    if is_requirements(content) and not _ONLY_VERSION.fullmatch(content):
                        yield path


def _fed(text: str) -> Iterator[str]:
    """Yield the words that may name a file whose content a shell gives to a client: ``cat a.txt | xargs
    pip install``, ``pip install $(cat a.txt)``, ``for it in $(cat a.txt); do pip install $it``."""
    if "install" not in text and " add" not in text:
        return
    is_each = _INSTALLS_EACH.search(text) is not None
    for line in _PIPED_ON.sub("| ", _CONTINUED.sub(" ", text)).splitlines():
        is_one = _INSTALLS.search(line) or (is_each and _LOOPS.search(line))
        if is_one and any(sign in line for sign in _FEEDS):
            yield from filter(None, _BETWEEN_WORDS.split(line))


def is_installed(path: str) -> bool:
    """Return whether a file is in an installed tree, whose content comes from files that are read."""
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
    """Return file names of other ecosystems' manifests and locks, whose packages may have the same
    names."""
    rules = [rules for name, rules in installed_rules() if name != ECOSYSTEM]
    globs = (
        glob
        for ecosystem_rules in rules
        for glob in (*ecosystem_rules.manifest_globs, *ecosystem_rules.lock_globs)
    )
    return frozenset(globs).union(*OTHER_LOCKS.values())


def _is_script(path: str) -> bool:
    return kind_of(path) is None and kind_in_set(path) is Kind.SCRIPT


def searched_text(repo: RepoContext, path: str) -> str:
    """Return the visible part of a file's text. What is beyond it, and a file that is not text, installs
    nothing."""
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
    """Return the requirements files that metadata names, each with its extra (empty: none): by setuptools'
    keys (``dependencies = {file = …}`` in pyproject.toml, ``file: …`` in setup.cfg) or those of hatch's
    plugin for such files. Raises RecipeError."""
    if "file" not in text:
        return []
    if kind_of(path) is Kind.SETUP_CFG:
        values = [
            (extra, _FILES.sub("", value))
            for extra, value in _requirement_values(text)
            if _FILES.match(value)
        ]
        files_by_extra = [
            (extra, name.strip()) for extra, value in values for name in re.split(r"[,\n]", value)
        ]
    else:
        document = parse_toml(path, text)
        dynamic = table_of(document, "tool", "setuptools", "dynamic")
        hatch = table_of(document, *HATCH_FILES)
        main = {"": dynamic.get("dependencies")}
        sources = {**main, **table_of(dynamic, "optional-dependencies")}
        files = [
            (extra, table.get("file"))
            for extra, table in sources.items()
            if isinstance(table, dict)
        ]
        files += [("", hatch.get("files")), *table_of(hatch, "optional-dependencies").items()]
        files_by_extra = [
            (extra, name) for extra, value in files for name in (texts([value]) or texts(value))
        ]
    folder = posixpath.dirname(path)
    return [
        (extra, posixpath.normpath(posixpath.join(folder, name)))
        for extra, name in files_by_extra
        if name
    ]


@dataclass(frozen=True)
class Place:
    """One place that has the package, in version ``current`` (None: no version can be read there).

    ``keys`` lead to a string of a TOML file; ``blocker`` says why the place can't be changed: the
    sentence is "<path> asks for <package> …, but <this>.". ``asked``: the requirement, also if it can't be
    edited (a program's text); None: a lock, which has one version. ``decided``: another file determines
    which version is installed; this one only has to admit it.
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
    """Return every place that has the package, by path.

    Raises RecipeError (a manifest can't be parsed) or RepositoryError (one can't be read) for a file that
    names the package, or that locks one that names it; another unreadable file is left out, and noted in
    ``unread``. Files that don't name the package are not parsed: a broken one elsewhere blocks nothing.
    """
    unread = unread or left_out((package,), repo)
    pattern = name_pattern(package)
    places: list[Place] = []
    sources = Sources.of(repo)
    for path in sorted({*filter(kind_of, repo.tracked_files), *sources.texts, *sources.literals}):
        try:
            if pattern.search(text := repo.read_text(path)):
                places.extend(places_in(path, text, package))
        except (RecipeError, RepositoryError) as error:
            folder = posixpath.dirname(path)
            locked = [posixpath.join(folder, name) for name in locked_by(path)]
            checked_paths = [path, *filter(repo.has, locked)]
            if (refusal := unread.refusal(checked_paths, error)) is not None:
                raise refusal from error
    return tuple(places)


def locked_by(path: str) -> tuple[str, ...]:
    """Return the names of the manifests, in a lock's folder, whose installed versions the lock
    determines."""
    kind = kind_of(path)
    return _LOCKED_BY.get(kind, ()) if kind is not None else ()


def nothing_in(path: str, text: str) -> str:
    """Return why a lock has no content; empty if it has some.

    It is empty, or has no package and lacks what its client always writes: it was cut off, or written by
    hand, and does not mean that nothing is installed. Raises RecipeError if it can't be read.
    """
    if not text.strip():
        return "is empty"
    kind = kind_of(path)
    document = (parsed_lock if kind is Kind.PIPFILE_LOCK else parse_toml)(path, text)
    lacking = [key for key in _ALWAYS.get(kind, ()) if key not in document] if kind else []
    if kind is Kind.PIPFILE_LOCK:
        wrong = [key for key in _PIPFILE_SECTIONS if not isinstance(document.get(key), dict)]
        # If default is missing, develop's content says nothing about it; the other way round it may.
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
    """Return a collector of what a search for these packages leaves out."""

    def names(text: str, wanted: Sequence[str]) -> bool:
        return bool(mentioned(text, frozenset(wanted)))

    return LeftOut(Reader(repo, packages, kind_of, names, _parse))


def _parse(path: str, text: str) -> None:
    """Parse a file. Raises RecipeError. Any text has lines, so files that are read line by line never
    fail."""
    kind = kind_of(path)
    if kind in LOCKS:  # an empty lock does not mean that nothing is installed
        check_says_something(path, text)
    if kind is Kind.PIPFILE_LOCK:
        pinned_versions(path, text, _ANY)
    elif kind in LOCKS or kind in {Kind.PYPROJECT, Kind.PIPFILE}:
        parse_toml(path, text)


def places_in(path: str, text: str, package: str) -> tuple[Place, ...]:
    """Return every place of a package in a manifest or lock, top down, without places that no Python of the
    project installs. Raises RecipeError."""
    return _places(path, text, package, excluded=False)


def excluded_lines(path: str, text: str, advisory: Advisory) -> Iterator[str]:
    """Yield a sentence on each line that requires an affected version on no Python that the project
    supports."""
    for package in mentioned(text, frozenset(advisory.packages(ECOSYSTEM))):
        for place in _places(path, text, package, excluded=True):
            line = place.asked
            if line is not None and only_affected(advisory, package, line):
                yield (
                    f"{path} requires {package}{line.specifier} if {line.marker.strip()}, which excludes"
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
    }  # in TOML: ``a.left``
    # Names of archives and repositories form one word with what follows: ``idna-3.6.tar.gz``, ``idna.git``.
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
    """Return whether a declaration leads to an affected version, whatever a registry has. True also for one
    that can't be read: nothing shows that it doesn't.

    The versions that the advisory names and the declaration admits are checked; if it admits none of them,
    the declaration's own versions.
    """
    matcher = advisory.matcher(ECOSYSTEM, package)
    if matcher is None:
        return False
    if declaration.taken:
        return matcher.covers(declaration.taken)
    if declaration.choices:
        return all(only_affected(advisory, package, choice) for choice in declaration.choices)
    if declaration.refusal or not declaration.clauses:
        return declaration.refusal is not None
    named_versions = (*matcher.named, served(ECOSYSTEM).above_all)
    own_versions = (clause.version.removesuffix(".*") for clause in declaration.clauses)
    candidates = filter(
        declaration.admits,
        (candidate for version in own_versions for candidate in (version, f"{version}.1")),
    )
    admitted = [*filter(declaration.admits, named_versions)] or [*candidates]
    return bool(admitted) and all(map(matcher.covers, admitted))


def highest_named(advisory: Advisory, package: str, admits: Callable[[str], bool]) -> str | None:
    """Return the highest affected version that the advisory names and ``admits`` accepts."""
    matcher = advisory.matcher(ECOSYSTEM, package)
    named_versions = reversed(matcher.named) if matcher else ()
    return next(
        (
            version
            for version in named_versions
            if admits(version) and matcher and matcher.covers(version)
        ),
        None,
    )


def _read_lines(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    is_list = kind is Kind.REQUIREMENTS
    found_declarations = declarations(text, package) if is_list else literals(path, text, package)
    return (_declared(path, kind, declaration) for declaration in found_declarations)


def _read_pyproject(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    sources = foreign_sources(path, text, package)
    why = "[tool.uv.sources] takes it from elsewhere than a registry"
    strings = requirement_strings(path, text, package)
    for string in (*strings, *other_requirements(path, text, package)):
        place = _declared(path, kind, string.declaration, string.keys)
        yield replace(place, blocker=place.blocker or why) if sources is not None else place
    # The client checks that a source is admitted; otherwise the archive's name gives the version.
    archive = from_elsewhere(package, *sources or ())
    bare = not any(string.declaration.clauses for string in strings)
    if archive.taken or (sources and bare):
        yield Place(path, kind, current_of(archive), blocker=why)


def _read_lock(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    return (Place(path, kind, version) for version in pinned_versions(path, text, package))


def _read_pipfile(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    entries = requirement_strings(path, text, package)
    return (_declared(path, kind, entry.declaration, entry.keys) for entry in entries)


def _read_setup_cfg(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    requirements = [line for line in setup_cfg_requirements(text) if declaration_in(line, package)]
    # Other keys have paths and addresses, too.
    found_declarations = [
        declaration
        for declaration in declarations(text, package)
        if requirements or declaration.refusal != FROM_ELSEWHERE
    ]
    for declaration in found_declarations:
        place = _declared(path, kind, declaration)
        if len(requirements) != len(found_declarations):
            place = replace(place, blocker="it does so elsewhere than one requirement a line")
        yield place
    if requirements and not found_declarations:
        yield Place(path, kind, None, blocker="it does so elsewhere than one requirement a line")


def _read_setup_py(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    spans = editable_spans(text)
    for span in sorted(spans):
        if declaration := declaration_at(text, *span, package):
            yield _declared(path, kind, declaration)
    others, why = other_literals(text), "it is a program, and this is no item of a list in it"
    if others is None:
        why = "it is a program that can't be parsed by this Python"
    # Texts within texts and computed ones, too.
    quoted = (match for match in _QUOTED.finditer(text) if match.span("text") not in spans)
    for line in dict.fromkeys((*(others or ()), *(match["text"] for match in quoted))):
        declaration = declaration_in(line, package)
        if declaration and (declaration.clauses or re.search(r"[\w\]]\s*@", line)):
            yield Place(path, kind, current_of(declaration), blocker=why, asked=declaration)


@lru_cache(maxsize=_TEXTS)
def setup_cfg_requirements(text: str) -> tuple[str, ...]:
    """Return the requirements in a setup.cfg itself, also those of its build and its tests; none if it
    can't be read. A value on one line is separated by semicolons."""
    values = [value for _, value in _requirement_values(text) if not _FILES.match(value)]
    lines = (line for value in values for line in value.split("\n" if "\n" in value else ";"))
    return tuple(filter(None, map(str.strip, lines)))


def _requirement_values(text: str) -> list[tuple[str, str]]:
    """Return the requirement values of setup.cfg, each with its extra (empty: none); none if unreadable."""
    parser = parsed(text)
    options = {key.replace("-", "_"): value for key, value in items(parser, "options")}
    main = (options.get(key, "") for key in ("install_requires", "setup_requires", "tests_require"))
    return [*(("", value) for value in main), *items(parser, "options.extras_require")]


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


#: Locks in TOML with one table per package: the name of their array.
_TOML_LOCKS = {
    Kind.UV_LOCK: "package",
    Kind.POETRY_LOCK: "package",
    Kind.PDM_LOCK: "package",
    Kind.PYLOCK: "packages",
}

#: Keys by which a uv.lock marks an entry as a folder of the repository.
_LOCAL = frozenset({"editable", "virtual", "directory"})


def pinned_versions(path: str, text: str, package: str) -> tuple[str, ...]:
    """Return the exact versions of ``package`` in one file, as written, in its order, each once.

    Requirements files and pyproject.toml: ``==`` pins (a range pins nothing). uv.lock, poetry.lock,
    pdm.lock, pylock.toml, Pipfile.lock: the locked versions. Any other file: none. Raises
    RecipeError if the file can't be parsed.
    """
    kind = kind_of(path)
    versions: Iterator[str] = iter(())
    if kind in {Kind.REQUIREMENTS, Kind.PYPROJECT}:
        declared = (
            [string.declaration for string in requirement_strings(path, text, package)]
            if kind is Kind.PYPROJECT
            else declarations(text, package)
        )
        versions = (
            declaration.pin.version for declaration in declared if declaration.pin is not None
        )
    elif kind in _TOML_LOCKS:
        versions = _toml_lock(path, text, package)
    elif kind is Kind.PIPFILE_LOCK:
        versions = _pipfile_lock(path, text, package)
    return tuple(dict.fromkeys(versions))


def _toml_tables(path: str, text: str) -> list[Mapping[str, Any]]:
    """Return the packages of a lock in TOML; none for another file. Raises RecipeError."""
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
    """Return canonical names of packages that the packages of a pdm.lock or pylock.toml require in every
    case, and that it does not list. Raises RecipeError."""
    packages = _toml_tables(path, text)
    listed = {str(canonicalize_name(str(table.get("name", "")))) for table in packages}
    required = {name for table in packages for name in _required(table)}
    return frozenset(required - listed)


def _required(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the required packages: pdm.lock has requirements, pylock.toml tables that name packages
    (PEP 751)."""
    dependencies = table.get("dependencies")
    for dependency in dependencies if isinstance(dependencies, list) else ():
        if isinstance(dependency, dict) and isinstance(dependency.get("name"), str):
            yield str(canonicalize_name(dependency["name"]))
        elif isinstance(dependency, str):
            requirement = requirement_in(dependency)
            if requirement is not None and requirement.marker is None:
                yield str(canonicalize_name(requirement.name))


def _toml_lock(path: str, text: str, package: str) -> Iterator[str]:
    """Yield a package's versions, without entries that are folders of the project: no registry gave
    them."""
    wanted = canonicalize_name(package)
    for name, version, table in locked_in_toml(path, text):
        source = table_of(table, "source")
        # Vendored code is not one of the repository's projects.
        is_own = any(kind_of(f"{source[key]}/pyproject.toml") for key in _LOCAL if key in source)
        if canonicalize_name(name) == wanted and not is_own:
            yield version


def _pipfile_lock(path: str, text: str, package: str) -> Iterator[str]:
    wanted = canonicalize_name(package)
    for section in parsed_lock(path, text).values():
        for name, entry in section.items() if isinstance(section, dict) else ():
            version = entry.get("version") if isinstance(entry, dict) else None
            if isinstance(version, str) and canonicalize_name(name) == wanted:
                yield version.lstrip("=")
