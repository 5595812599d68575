"""Does a source file use a package?"""

import re
from functools import lru_cache

_SOURCES = (".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".vue", ".svelte")


def mentions(package: str, path: str, text: str) -> bool:
    """Does this JavaScript or TypeScript file import or require the package (or a path in it)?"""
    if not path.endswith(_SOURCES) or package not in text:
        return False
    return bool(_import_of(package).search(text))


@lru_cache(maxsize=64)
def _import_of(package: str) -> re.Pattern[str]:
    name = rf"""(?P<quote>['"`]){re.escape(package)}(?:/[^'"`\n]*)?(?P=quote)"""
    return re.compile(rf"(?:\brequire(?:\.resolve)?\s*\(|\bimport\b\s*\(?|\bfrom\b)\s*{name}")
