"""Which of a pnpm workspace's settings a scratch project may have: those that name packages, no more."""

from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.scratch import is_outside
from fallback_plugins.npm.locks.pnpm_lock import has_aliases
from fallback_plugins.npm.refusals import own_client, unsupported
from fallback_tier.errors import RecipeError

FILE = "pnpm-workspace.yaml"

#: Where members are, and ranges that they share.
_CARRIED = ("packages", "catalog", "catalogs")

#: Decide what is built or checked after resolution, never what is resolved.
_WITHOUT_EFFECT = frozenset(
    {
        "onlyBuiltDependencies",
        "onlyBuiltDependenciesFile",
        "neverBuiltDependencies",
        "ignoredBuiltDependencies",
        "strictDepBuilds",
        "dangerouslyAllowAllBuilds",
        "allowBuilds",
        "verifyDepsBeforeRun",
        "managePackageManagerVersions",
    }
)


def settings_texts(files: Files) -> dict[str, str]:
    """The settings file as the scratch project gets it. Raises RecipeError, naming a setting that decides
    what is resolved and isn't carried over."""
    content = settings(files)
    other = [key for key in content if key not in _CARRIED and key not in _WITHOUT_EFFECT]
    if other:
        raise _unsupported(f"sets {other[0]}, which is not carried over")
    return carried_text(content)


def settings(files: Files) -> dict[str, Any]:
    """The settings file's content, every scalar a text; empty where there is none. Raises RecipeError."""
    found = [text for path, text in (files.settings or {}).items() if path.endswith(FILE)]
    if not found:
        return {}
    import yaml

    try:
        if has_aliases(found[0]):
            raise _unsupported("has YAML aliases")
        content: Any = yaml.load(found[0], Loader=yaml.BaseLoader)  # noqa: S506 (makes text only)
    except (yaml.YAMLError, RecursionError) as error:
        raise _unsupported("is not YAML") from error
    if not isinstance(content, dict):
        raise _unsupported("is not a YAML mapping")
    return content


def carried_text(content: dict[str, Any]) -> dict[str, str]:
    """A settings file of what names members and ranges, and of nothing else."""
    import yaml

    globs = content.get("packages")
    for glob in globs if isinstance(globs, list) else ():
        if is_outside(str(glob)):
            raise _unsupported(f"names {glob!r}, which is outside of the repository")
    carried = {key: content[key] for key in _CARRIED if key in content}
    return {FILE: yaml.safe_dump(carried, default_flow_style=False)} if carried else {}


def _unsupported(why: str) -> RecipeError:
    return unsupported(f"{FILE} {why}.", own_client("pnpm", "pnpm update"))
