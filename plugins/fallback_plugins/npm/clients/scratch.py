"""Scratch projects for npm, yarn and pnpm, some levels deep in a folder of their own: what they name by a
relative path is still in it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.pnpm_lock import parse_yaml
from fallback_plugins.npm.locks.yarn_lock import is_berry, parse_yarn_lock, split_pattern
from fallback_plugins.npm.manifests.manifest import MEMBER_SECTIONS, parse_manifest
from fallback_plugins.npm.manifests.specs import foreign
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.errors import RecipeError

#: Levels above a scratch project that are scratch, too. Real projects lie less deep in a repository.
NEST = 12

#: Keys of package.json below which a text can be a path, or a range of some sort.
_NAMING = (*MEMBER_SECTIONS, "overrides", "resolutions", "pnpm", "workspaces")

#: What a lock gives as a place on this machine.
_IN_A_LOCK = re.compile(r"\b(?:file|link|portal):([^\s\"',)]*)")

#: Where a lock, or a spec, names the file of a patch; ``~/`` is the project itself, ``~builtin`` yarn.
_PATCH = re.compile(r"\bpatch:[^\s\"',]*?(?:#|%23)(?:optional!)?([^\s\"',]*)")

#: What climbs out of a folder, and the lines of a patch that name files.
_CLIMBS = re.compile(r"(?:^|[\s/\\\"])\.\.(?:[\s/\\\"]|$)")
_PATCHED = re.compile(
    r"^(?:diff --git|---|\+\+\+|(?:rename|copy) (?:from|to))[ \t].*", re.MULTILINE
)

_LOCAL = re.compile(r"(?:file|link|portal|workspace|patch):(?P<path>.*)", re.DOTALL)
_ABSOLUTE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]")


@contextmanager
def scratch_project(
    texts: Mapping[str, str], archives: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[Path]:
    """A project of these texts and archives (by path relative to it), deleted afterwards. Raises
    RecipeError."""
    with scratch_folder("npm") as folder:
        project = folder.joinpath(*("in" for _ in range(NEST)))
        try:
            for path, text in texts.items():
                _write(project, path, text.encode())  # text mode would change line ends
            for path, content in archives.items():
                _write(project, path, content)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise _unsupported(f"{path!r} can't be written ({why})", kind="not_writable") from error
        yield project


def check_paths(files: Files) -> None:
    """Raises RecipeError where a manifest or a lock names a place on this machine that isn't in the
    project: a client would read what lies there, and what it reads could end up in the lock."""
    for path, text in (files.folders | dict(files.manifests)).items():
        manifest = parse_manifest(path, text)
        check_named(path, [manifest.get(key) for key in _NAMING])
    named = [(found[0], found[1]) for found in _IN_A_LOCK.finditer(files.lock_text)]
    patches = _PATCH.finditer(files.lock_text)
    named += [(found[0], found[1].removeprefix("~/").removeprefix("~")) for found in patches]
    _check(files.lock, named)


def check_named(path: str, facts: Any) -> None:
    """Raises RecipeError if a file (``path``) names a place outside of the project, or a package by a name
    that climbs out of its folder: yarn and pnpm write what they install to the folder of that name."""
    keys, texts = _keys_and_texts(facts)
    for message in filter(_leads_out, texts):
        raise _unsupported(
            f"{path} names {message!r}, which is outside of the repository", kind="outside"
        )
    _check(path, [(name, name) for name in keys if _CLIMBS.search(name)], most=0)


def check_lock_names(lock: str, text: str) -> None:
    """As ``check_named``, for the names of packages in a lock of yarn or pnpm. Names of npm's own locks npm
    checks itself, and those of newer yarns have no slashes. Raises RecipeError, also for a lock that can't
    be read."""
    name = PurePosixPath(lock).name
    names: Iterable[str] = ()
    if name == "pnpm-lock.yaml":
        names = _keys_and_texts(parse_yaml(text))[0]
    elif name == "yarn.lock" and not is_berry(text):
        blocks = parse_yarn_lock(text).blocks
        patterns = (split_pattern(key)[0] for block in blocks for key in block.patterns)
        names = chain(patterns, *((*block.dependencies, *block.optional) for block in blocks))
    # A path of the repository may be part of a key.
    _check(lock, [(name, name.lstrip("/")) for name in names if _CLIMBS.search(name)])


def check_places(files: Files, patches: Mapping[str, str] = MappingProxyType({})) -> None:
    """As ``check_paths``, and for what a client that is to install writes: the places of npm's own locks,
    the names of other clients' locks, and the files of ``patches``. Raises RecipeError."""
    check_paths(files)
    for path, text in patches.items():
        for line in _PATCHED.findall(text):
            _check(path, [(line, line)] if _CLIMBS.search(line) else [], most=0)
    if not (files.lock or "").endswith(".json"):
        check_lock_names(files.lock or "", files.lock_text)
        return
    try:
        packages = json.loads(files.lock_text).get("packages")
    except (ValueError, AttributeError, RecursionError):
        return  # npm says what is wrong with it
    for place, facts in packages.items() if isinstance(packages, dict) else ():
        resolved = facts.get("resolved") if isinstance(facts, dict) else None
        _check(
            files.lock,
            [(reported, reported) for reported in (place, resolved) if isinstance(reported, str)],
        )


def check_addresses(specs: Iterable[str]) -> None:
    """Raises RecipeError for what a client would fetch from elsewhere than its registry."""
    for spec in specs:
        if foreign(spec) in {"a URL", "a git repository or path"}:
            raise _unsupported(
                f"{spec!r} is not of the registry, and would have to be fetched",
                kind="not_of_the_registry",
            )


def names_address(files: Files) -> bool:
    """Does a manifest name a URL as the place of a package? Raises RecipeError."""
    manifests = [parse_manifest(path, text) for path, text in files.manifests.items()]
    _, texts = _keys_and_texts([it.get(key) for it in manifests for key in _NAMING])
    return any(foreign(one.strip().lower()) == "a URL" for one in texts)


def is_outside(path: str) -> bool:
    """Can a path, or a glob, lead out of the scratch folder?"""
    return _is_outside(path.lstrip("!"))


def _check(lock: str | None, named: Iterable[tuple[str, str]], most: int = NEST) -> None:
    """``most``: levels that a place may lead up."""
    for message, place in named:
        if _is_outside(place, most):
            raise _unsupported(
                f"{lock} names {message!r}, which is outside of the repository", kind="outside"
            )


def _write(project: Path, path: str, content: bytes) -> None:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("it is outside of the project")
    place = project / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def _keys_and_texts(value: Any) -> tuple[list[str], list[str]]:
    """Every key, and every text, in a JSON value, at any depth."""
    keys, texts, waiting = list[str](), list[str](), [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, dict | list):
            keys.extend(map(str, one if isinstance(one, dict) else ()))
            waiting.extend(one.values() if isinstance(one, dict) else one)
    return keys, texts


def _leads_out(message: str) -> bool:
    if patch := _PATCH.search(message):
        return _is_outside(patch[1].removeprefix("~/").removeprefix("~"))
    found = _LOCAL.match(message.strip().lstrip("!"))
    # A range or a user/repo can be read as a path, too; neither leads out.
    return _is_outside(found["path"] if found else message.strip().lstrip("!"))


def _is_outside(path: str, most: int = NEST) -> bool:
    plain = unquote(path)
    if _ABSOLUTE.match(plain):
        return not re.match(r"~\s*v?[\d.xX*]", plain)  # ~1.2 is a range
    return plain.count("..") > most  # a glob can have them in braces


def _unsupported(problem: str, *, kind: str = "") -> RecipeError:
    return unsupported(
        f"{problem}.",
        "Replace it by a registry's package, or by a path inside the repository.",
        kind=kind,
    )
