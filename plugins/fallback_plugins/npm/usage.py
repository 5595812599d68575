"""Does a source file use a package?"""

import re
from functools import lru_cache
from pathlib import PurePosixPath

_SOURCES = frozenset(
    {".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".vue", ".svelte"}
)


def mentions(package: str, path: str, text: str) -> bool:
    """Does this JavaScript or TypeScript file import or require the package (or a path in it)?"""
    return PurePosixPath(path).suffix in _SOURCES and bool(_import_of(package).search(text))


@lru_cache(maxsize=64)
def _import_of(package: str) -> re.Pattern[str]:
    name = rf"""(?P<quote>['"`]){re.escape(package)}(?:/[^'"`\n]*)?(?P=quote)"""
    return re.compile(rf"(?:\brequire(?:\.resolve)?\s*\(|\bimport\b\s*\(?|\bfrom\b)\s*{name}")
