"""Regular expressions that are compiled when they are first used.

A process imports hundreds of patterns and uses a few dozen of them (docs/benchmarks.md, `recipe-git`).
"""

import re
from typing import Any, AnyStr, cast

_METHODS = ("finditer", "findall", "fullmatch", "match", "search", "split", "sub", "subn")


class _LazyPattern:
    """Replacement of ``re.Pattern``: its first attribute access compiles it, and adds its methods."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._arguments = (source, flags)

    def __getattr__(self, name: str) -> Any:
        compiled: re.Pattern[Any] = re.compile(*self._arguments)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern of a module that is compiled at first use, as ``re.compile`` compiles it.

    It has a pattern's methods and attributes, and isn't one: functions of ``re`` don't accept it. An
    invalid source raises ``re.error`` at first use only; a test compiles all.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))
