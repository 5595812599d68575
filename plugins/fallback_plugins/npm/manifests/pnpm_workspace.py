"""pnpm-workspace.yaml: its settings, the entries of its catalogs, and an exact edit of one value."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.manifests.manifest import Declared, entries
from fallback_plugins.shared.bumping import unsupported
from fallback_tier.errors import RecipeError

FILE = "pnpm-workspace.yaml"

#: Begins a spec that refers to a catalog; without a name, to the default one.
CATALOG = "catalog:"

#: What comes before the first entry of a mapping: a brace, or the indent of a line.
_OPENING = r"^{}:[ \t]*(?:(?P<brace>\{{)[ \t]*|(?:#.*)?(?:\r?\n[ \t]*)*\r?\n(?P<indent>[ \t]+))"

#: A star before a letter may be an alias (or text).
_MAYBE_ALIAS = re.compile(r"\*[\w-]")


def settings(files: Files) -> dict[str, Any]:
    """Return the settings, each scalar a string; empty without the file. Raises RecipeError."""
    return next(map(_parsed, workspace_text(files).values()), {})


def settings_path(files: Files) -> str:
    """Return the path of the settings file; empty if there is none."""
    return next((path for path in files.settings or {} if path.endswith(FILE)), "")


def workspace_text(files: Files) -> dict[str, str]:
    """Return the text of the settings file by its path; empty if there is none."""
    path = settings_path(files)
    return {path: files.text(path)} if path else {}


def catalogs(content: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    """Return, for each catalog by name, the keys that lead to it and its entries."""
    sections = content.get("catalogs")
    by_name: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        name: (("catalogs", name), dict(entries(section)))
        for name, section in (sections.items() if isinstance(sections, dict) else ())
    }
    if "catalog" in content:
        by_name["default"] = (("catalog",), dict(entries(content["catalog"])))
    return by_name


def referred_entry(files: Files, key: str, spec: str) -> Declared | None:
    """Return the entry of a catalog that a spec refers to, or None. Raises RecipeError."""
    if not spec.startswith(CATALOG):
        return None
    name = spec.removeprefix(CATALOG).strip() or "default"
    keys, catalog = catalogs(settings(files)).get(name, ((), {}))
    return Declared(".".join(keys), key, catalog[key]) if key in catalog else None


def meant(files: Files, key: str, spec: str) -> str:
    """Return the range of a spec: of its entry in a catalog, or the spec itself."""
    entry = referred_entry(files, key, spec)
    return entry.spec if entry is not None else spec


def with_scalar(text: str, keys: Sequence[str], value: str) -> str:
    """Return the text with a scalar replaced, every other byte kept. Raises RecipeError if it does not
    exist, or is not written as a plain or quoted text."""
    import yaml

    wanted: Any = _parsed(text)
    node: Any = yaml.compose(text.removeprefix("\ufeff"), Loader=yaml.BaseLoader)
    try:
        inner = wanted
        for key in keys:
            (node,) = (item for name, item in node.value if name.value == key)
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        quote, shift = node.style or "", text.startswith("\ufeff")
        start, end = node.start_mark.index + shift, node.end_mark.index + shift
        edited = f"{text[:start]}{quote}{value}{quote}{text[end:]}"
        is_exact = yaml.safe_load(f"{quote}{value}{quote}") == value and _parsed(edited) == wanted
    except (ValueError, TypeError, AttributeError, LookupError, yaml.YAMLError):
        is_exact = False
    if not is_exact:
        name = ".".join(keys)
        raise not_supported(f"does not write {name} as a plain text", f"Write {name} on one line.")
    return edited


def with_entry(text: str, section: str, key: str, value: str) -> str:
    """Return the text with an entry of a mapping replaced, or added first, every other byte kept. Raises
    RecipeError if the mapping is not written as plain lines or in braces."""
    import yaml

    wanted = _parsed(text)
    existing = wanted.get(section) or {}
    if not isinstance(existing, dict) or key in existing:
        return with_scalar(text, (section, key), value)
    end = "\r\n" if "\r\n" in text else "\n"
    line = yaml.safe_dump({key: value}, width=10_000).rstrip("\n")
    gap = "" if text.endswith("\n") else end
    candidates = [] if section in wanted else [f"{text}{gap}{section}:{end}  {line}{end}"]
    for match in re.finditer(_OPENING.format(section), text, re.MULTILINE):
        more = f"{line}, " if match["brace"] else f"{line}{end}{match['indent']}"
        candidates.append(text[: match.end()] + more + text[match.end() :])
    for edited in candidates:
        with suppress(RecipeError):
            if _parsed(edited) == wanted | {section: {key: value, **existing}}:
                return edited
    problem = f"has no plain {section} that an entry can be added to"
    raise not_supported(problem, f"Write {section} as lines of a name and a value.")


def has_aliases(text: str) -> bool:
    """Return whether YAML has aliases: a line of them can expand to gigabytes. Raises YAMLError."""
    import yaml

    if _MAYBE_ALIAS.search(text) is None:  # usually; reading all events takes as long as loading
        return False
    events = yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return any(isinstance(event, yaml.AliasEvent) for event in events)


def _parsed(text: str) -> dict[str, Any]:
    import yaml

    try:
        if has_aliases(text):
            raise not_supported("has YAML aliases", "Write what each alias stands for.")
        content: Any = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 (makes text only)
    except (yaml.YAMLError, RecursionError) as error:
        raise not_supported("is not YAML", f"Correct {FILE}.") from error
    if not isinstance(content, dict):
        raise not_supported("is not a YAML mapping", f"Correct {FILE}.")
    return content


def not_supported(why: str, next_step: str, *, kind: str = "") -> RecipeError:
    """The refusal of a settings file. ``why``: a clause that follows its name."""
    return unsupported(f"{FILE} {why}.", next_step, kind=kind)
