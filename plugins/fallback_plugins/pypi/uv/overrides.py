"""Entries of ``[tool.uv]`` as text: ``override-dependencies`` added or left out, ``exclude-newer-package``
added. Every other byte stays."""

import re
from copy import deepcopy
from typing import Any

import tomlkit
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.pyproject import BOM, parse_toml
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.shared.bumping import unsupported
from fallback_tier.files import inputs

_KEY, _AGES = "override-dependencies", "exclude-newer-package"
_TABLE = re.compile(r"^\[tool\.uv\][ \t]*(?:#[^\r\n]*)?(?P<end>\r?\n|\Z)", re.MULTILINE)
_ARRAY = re.compile(rf"^{_KEY}[ \t]*=[ \t]*\[(?P<gap>[ \t]*(?:\r?\n[ \t]*)?)", re.MULTILINE)


def with_override(path: str, text: str, requirement: str) -> str:
    """The manifest with one more override, first in its array.

    Raises RecipeError where the manifest's way of writing leaves no place for it.
    """
    document = parse_toml(path, text)
    wanted = deepcopy(dict(document))
    uv = wanted.setdefault("tool", {}).setdefault("uv", {})
    uv[_KEY] = [requirement, *uv.get(_KEY, ())]
    mark = BOM if text.startswith(BOM) else ""
    for candidate in _candidates(text.removeprefix(BOM), requirement):
        try:
            if inputs.parse_toml(candidate) == wanted:
                return mark + candidate
        except ValueError:
            continue
    raise unsupported(
        f"{path} has no plain [tool.uv] table that an override can be added to.",
        kind="no_plain_table",
    )


def without_override(path: str, text: str, package: str) -> str | None:
    """The manifest without its overrides of a package, for a scratch folder; None: it has none."""
    held = table_of(parse_toml(path, text), "tool", "uv").get(_KEY)
    asked = [(line, requirement_in(line)) for line in texts(held)]
    kept = [line for line, it in asked if it is None or canonicalize_name(it.name) != package]
    if len(kept) == len(asked):
        return None
    document = tomlkit.parse(text.removeprefix(BOM))
    document["tool"]["uv"][_KEY] = kept
    return tomlkit.dumps(document)


def with_exception(path: str, text: str, package: str, until: str) -> str:
    """The manifest with a cutoff of its own for one package in ``exclude-newer-package``.

    Raises RecipeError where the manifest's way of writing leaves no place for it.
    """
    import tomlkit

    wanted = deepcopy(dict(parse_toml(path, text)))
    wanted.setdefault("tool", {}).setdefault("uv", {}).setdefault(_AGES, {})[package] = until
    plain, mark = text.removeprefix(BOM), BOM if text.startswith(BOM) else ""
    document: Any = tomlkit.parse(plain)
    uv = document.setdefault("tool", {}).setdefault("uv", {})
    if _AGES not in uv:
        uv[_AGES] = tomlkit.inline_table()
    uv[_AGES][package] = until
    edited = tomlkit.dumps(document)
    if inputs.parse_toml(edited) != wanted:
        raise unsupported(f"{path} has no plain [tool.uv] table that an exception can be added to.")
    return mark + edited


def _candidates(text: str, requirement: str) -> list[str]:
    line_end = "\r\n" if "\r\n" in text else "\n"
    found = []
    for array in _ARRAY.finditer(text):
        at = array.end()
        rest = text[at:].lstrip()
        if rest.startswith("]"):
            found.append(f'{text[:at]}"{requirement}"{text[at:]}')
        else:
            found.append(f'{text[:at]}"{requirement}",{array["gap"] or " "}{text[at:]}')
    entry = f'{_KEY} = ["{requirement}"]'
    for table in _TABLE.finditer(text):
        new = f"{entry}{line_end}" if table["end"] else f"{line_end}{entry}"
        found.append(f"{text[: table.end()]}{new}{text[table.end() :]}")
    ended = not text or text.endswith("\n")
    gap, last = (line_end, line_end) if ended else (line_end * 2, "")
    found.append(f"{text}{gap}[tool.uv]{line_end}{entry}{last}")
    return found
