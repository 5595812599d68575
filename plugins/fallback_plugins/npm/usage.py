"""Does a source file use a package?"""

import re
from functools import lru_cache

_REQUIRE = r"\brequire(?:\.resolve)?\s*\("

_SOURCES = (".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".vue", ".svelte")


def mentions(package: str, path: str, text: str) -> bool:
    """Does this JavaScript or TypeScript file import or require the package (or a path in it)?"""
    if not is_source(path) or package not in text:
        return False
    return bool(_import_of(package).search(text))


def requires(package: str, text: str) -> bool:
    """Does this file call ``require`` for the package (or a path in it)?"""
    return package in text and bool(_require_of(package).search(text))


def is_source(path: str) -> bool:
    """May this file import anything, by its name?"""
    return path.endswith(_SOURCES)


@lru_cache(maxsize=64)
def _import_of(package: str) -> re.Pattern[str]:
    name = _quoted(package)
    return re.compile(rf"(?:{_REQUIRE}|\bimport\b\s*\(?|\bfrom\b)\s*{name}")


@lru_cache(maxsize=64)
def _require_of(package: str) -> re.Pattern[str]:
    return re.compile(rf"{_REQUIRE}\s*{_quoted(package)}")


def _quoted(package: str) -> str:
    return rf"""(?P<quote>['"`]){re.escape(package)}(?:/[^'"`\n]*)?(?P=quote)"""
