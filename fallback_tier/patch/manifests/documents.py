"""Manifests and lock files as data, whatever they are written in.

What counts is what the client reads: an address that is written with escapes is that address.
"""

import json
import re
from collections.abc import Callable
from configparser import ConfigParser
from configparser import Error as IniError
from pathlib import PurePosixPath
from typing import Any

from fallback_tier.ecosystem_rules import EcosystemRules
from fallback_tier.files.inputs import parse_toml

#: Yarn 2 and later write YAML under the same name; each of its locks has this key.
_BERRY = re.compile(r"^__metadata:\s*$", re.MULTILINE)

#: One line of a yarn classic lock: two or four spaces, a name, a value; or a name and a colon.
_YARN_PAIR = re.compile(r'(?P<name>"(?:[^"\\]|\\.)*"|[^\s":]+) (?P<value>".*"|[^\s"]+)')

#: The largest depth of an entry in a yarn classic lock, in spaces.
_YARN_INDENTS = (2, 4)


#: Tables within tables that are looked into. A lock of npm's first format nests two a package; some fifty
#: is what real ones have. Readers take more (Python 3.13 some thousands), the walks here recurse.
MAX_DEPTH = 100


class UnreadableError(ValueError):
    """A manifest that can't be read as data. The message is a clause."""


#: What the readers raise; INI's an AttributeError, for a value below a key that has none.
_UNREADABLE = (ValueError, RecursionError, IniError, AttributeError)


def read_document(path: str, text: str, rules: EcosystemRules | None = None) -> Any:
    """The data of a manifest, read by the ecosystem's ``rules`` where the format is its own; None for lines
    of requirements. Raises UnreadableError."""
    try:
        document = None if rules is None else rules.document(path, text)
    except ValueError as error:
        raise UnreadableError(" ".join(str(error).split())) from error
    if document is not None:
        return document
    name = PurePosixPath(path).name
    if name.endswith((".txt", ".in")):
        return None
    load = _LOADERS.get(name) or _by_ending(name)
    if load is None:
        raise UnreadableError("nothing here reads such a file")
    try:
        found = load(text.removeprefix("\ufeff"))
    except _UNREADABLE as error:
        raise UnreadableError(" ".join(str(error).split())) from error
    if _nests_deeper_than(MAX_DEPTH, found):
        raise UnreadableError(f"it nests deeper than {MAX_DEPTH} levels")
    return found


def _nests_deeper_than(most: int, found: Any) -> bool:
    """Level by level: no depth is too much for the question itself."""
    level = [found]
    for _ in range(most + 1):
        tables = [one.values() if isinstance(one, dict) else one for one in level if _holds(one)]
        level = [inner for table in tables for inner in table]
    return bool(level)


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _by_ending(name: str) -> Callable[[str], Any] | None:
    endings: dict[str, Callable[[str], Any]] = {".json": json.loads, ".toml": parse_toml}
    return next((load for ending, load in endings.items() if name.endswith(ending)), None)


def _ini(text: str) -> Any:
    """Sections as tables, ``[a.b]`` as a table of ``a``."""
    parser = ConfigParser(interpolation=None, allow_no_value=True)
    parser.read_string(text)
    found: dict[str, Any] = {}
    for section, pairs in parser.items():
        table = found
        for part in section.split("."):
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UnreadableError(f"{part!r} is a key and a section")
        if clash := table.keys() & pairs.keys():
            raise UnreadableError(f"{min(clash)!r} is a key and a section")
        table |= dict(pairs)
    return found


def _yaml(text: str) -> Any:
    """Every scalar as text, no aliases: a line could stand for gigabytes by them."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            raise UnreadableError("it has YAML aliases")
        return yaml.load(text, Loader=loader)  # noqa: S506 (makes only text, lists and dicts)
    except yaml.YAMLError as error:
        raise UnreadableError(str(error)) from error


def _yarn(text: str) -> Any:
    if _BERRY.search(text):
        return _yaml(text)
    found: dict[str, Any] = {}
    entry = inner = found
    for line in text.splitlines():
        message = line.strip()
        if not message or message.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if indent == 0 and message.endswith(":"):
            entry = inner = found.setdefault(_unquoted_keys(message[:-1]), {})
        elif indent == _YARN_INDENTS[0] and message.endswith(":") and entry is not found:
            inner = entry.setdefault(message[:-1], {})
        elif (
            indent in _YARN_INDENTS and entry is not found and (m := _YARN_PAIR.fullmatch(message))
        ):
            table = entry if indent == _YARN_INDENTS[0] else inner
            table[_unquoted(m["name"])] = _unquoted(m["value"])
        else:
            raise UnreadableError(f"{message[:80]!r} is no line of a yarn lock")
    return found


def _unquoted(word: str) -> str:
    return str(json.loads(word)) if word.startswith('"') else word


def _unquoted_keys(keys: str) -> str:
    return ", ".join(_unquoted(key.strip()) for key in keys.split(","))


_LOADERS: dict[str, Callable[[str], Any]] = {
    "Pipfile": parse_toml,
    "Pipfile.lock": json.loads,
    "uv.lock": parse_toml,
    "poetry.lock": parse_toml,
    "pdm.lock": parse_toml,
    "setup.cfg": _ini,
    "pnpm-lock.yaml": _yaml,
    "pnpm-workspace.yaml": _yaml,
    "yarn.lock": _yarn,
}
