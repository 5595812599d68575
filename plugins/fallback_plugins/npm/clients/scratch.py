"""Scratch projects for npm, yarn and pnpm, some levels deep in a separate folder, so that their relative
paths stay inside it.
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

#: Levels above a scratch project that are scratch, too. Real projects are less deep in a repository.
NEST = 12

#: Keys of package.json below which a text can be a path, or a range of some sort.
_NAMING = (*MEMBER_SECTIONS, "overrides", "resolutions", "pnpm", "workspaces")

#: A path on this machine in a lock.
_IN_A_LOCK = re.compile(r"\b(?:file|link|portal):([^\s\"',)]*)")

#: The file of a patch in a lock or a spec; ``~/`` is the project itself, ``~builtin`` yarn.
_PATCH = re.compile(r"\bpatch:[^\s\"',]*?(?:#|%23)(?:optional!)?([^\s\"',]*)")

#: A path that leads out of a folder, and the lines of a patch that name files.
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
    """Yield the folder of a project with these texts and archives (by path relative to it), and delete it
    afterwards. Raises RecipeError."""
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
    """Raise RecipeError if a manifest or a lock names a path on this machine that isn't in the project: a
    client would read what is there, and could write it into the lock."""
    for path, text in (files.folders | dict(files.manifests)).items():
        manifest = parse_manifest(path, text)
        check_named(path, [manifest.get(key) for key in _NAMING])
    paths = [(match[0], match[1]) for match in _IN_A_LOCK.finditer(files.lock_text)]
    patches = _PATCH.finditer(files.lock_text)
    paths += [(match[0], match[1].removeprefix("~/").removeprefix("~")) for match in patches]
    _check(files.lock, paths)


def check_named(path: str, facts: Any) -> None:
    """Raise RecipeError if a file (``path``) names a path outside of the project, or a package by a name
    that leads out of its folder: yarn and pnpm write what they install to the folder of that name."""
    keys, texts = _keys_and_texts(facts)
    for text in filter(_leads_out, texts):
        raise _unsupported(
            f"{path} names {text!r}, which is outside of the repository", kind="outside"
        )
    _check(path, [(name, name) for name in keys if _CLIMBS.search(name)], most=0)


def check_lock_names(lock: str, text: str) -> None:
    """Check the names of packages in a lock of yarn or pnpm, as ``check_named`` does. npm checks those in
    its own locks itself, and those of newer yarns have no slashes. Raises RecipeError, also for a lock that
    can't be read."""
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
    """Check what ``check_paths`` does, and what a client writes when it installs: the paths in npm's own
    locks, the names in other clients' locks, and the files of ``patches``. Raises RecipeError."""
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
        return  # npm reports what is wrong with it
    for location, facts in packages.items() if isinstance(packages, dict) else ():
        resolved = facts.get("resolved") if isinstance(facts, dict) else None
        _check(
            files.lock,
            [(text, text) for text in (location, resolved) if isinstance(text, str)],
        )


def check_addresses(specs: Iterable[str]) -> None:
    """Raise RecipeError for a spec that a client would not fetch from its registry."""
    for spec in specs:
        if foreign(spec) in {"a URL", "a git repository or path"}:
            raise _unsupported(
                f"{spec!r} is not of the registry, and would have to be fetched",
                kind="not_of_the_registry",
            )


def names_address(files: Files) -> bool:
    """Return whether a manifest requires a package by a URL. Raises RecipeError."""
    manifests = [parse_manifest(path, text) for path, text in files.manifests.items()]
    _, texts = _keys_and_texts([manifest.get(key) for manifest in manifests for key in _NAMING])
    return any(foreign(text.strip().lower()) == "a URL" for text in texts)


def is_outside(path: str) -> bool:
    """Return whether a path, or a glob, can lead out of the scratch folder."""
    return _is_outside(path.lstrip("!"))


def _check(lock: str | None, paths: Iterable[tuple[str, str]], most: int = NEST) -> None:
    """Raise RecipeError if a path leads out of the project. ``most``: levels that it may lead up."""
    for shown, path in paths:
        if _is_outside(path, most):
            raise _unsupported(
                f"{lock} names {shown!r}, which is outside of the repository", kind="outside"
            )


def _write(project: Path, path: str, content: bytes) -> None:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("it is outside of the project")
    target = project / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _keys_and_texts(value: Any) -> tuple[list[str], list[str]]:
    """Return every key, and every text, in a JSON value, at any depth."""
    keys, texts, waiting = list[str](), list[str](), [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict | list):
            keys.extend(map(str, item if isinstance(item, dict) else ()))
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return keys, texts


def _leads_out(text: str) -> bool:
    if patch := _PATCH.search(text):
        return _is_outside(patch[1].removeprefix("~/").removeprefix("~"))
    match = _LOCAL.match(text.strip().lstrip("!"))
    # A range or a user/repo can be read as a path, too; neither leads out.
    return _is_outside(match["path"] if match else text.strip().lstrip("!"))


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
