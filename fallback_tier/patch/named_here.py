"""Modules of a repository's product that nothing has to import: they are named to be loaded.

Entry points (entry points specification, PyPA), programs that a script starts with ``python -m``, texts
of the product (``BACKEND = "package.module.Class"``). Nothing is run, as for imports (``imports_here``).
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator

from fallback_tier.imports_here import Imports

#: Where programs are named that nothing imports.
_SCRIPTS = re.compile(
    r"(?i:GNUmakefile|makefile|Procfile|justfile|(?:[\w.-]+\.)?Dockerfile(?:\.[\w.-]+)?)"
    r"|[\w.-]+\.(?:sh|bash|service)|pyproject\.toml|setup\.cfg|setup\.py"
)
#: ``name = package.module:function``, and ``python -m package.module``, also as a list of words.
_ENTRY_POINT = re.compile(r"""([\w.-]+)["']?\s*=\s*["']?([A-Za-z_][\w.]*):[A-Za-z_]""")
#: Python's ``-m``, and no other program's: git's text, pytest's marker.
_STARTED = re.compile(
    r"""(?i:python[\d.]*|executable)\b(?:[^\n;&|]*?|["',\s]*)["'\s]-m["',]*\s+["']?([A-Za-z_][\w.]*)"""
)
#: A rule of a makefile: what it is called, and its lines.
_RULE = re.compile(r"^([\w.-]+(?:[ \t]+[\w.-]+)*)[ \t]*::?(?!=).*(?:\n\t.*)*", re.MULTILINE)
#: What is called so runs tests, like what is called after them.
_CHECKING = re.compile(r"(?i)(?:^|.*[\W_])(?:ci|checks?|verify|qa|cov(?:erage)?)(?:[\W_].*|$)")
#: Entry points of pytest's own: their modules judge.
_PYTEST_GROUP = "pytest11"
#: A text that may be the name of a module, or of something in it.
_DOTTED = re.compile(r"""["']([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)["']""")


def named_modules(
    imports: Imports, product: Collection[str], is_of_tests: Callable[[str], bool]
) -> Iterator[str]:
    """The files of modules that ``product``, or a script, names to be loaded.

    ``is_of_tests``: by a path, or by what an entry point is called. What is so may run the tests, and is
    left out: neither read nor given.
    """

    def without_checks(rule: re.Match[str]) -> str:
        names = rule[1].split()
        return "" if any(is_of_tests(one) or _CHECKING.match(one) for one in names) else rule[0]

    for path in imports.repo.tracked_files:
        is_script = _SCRIPTS.fullmatch(posixpath.basename(path)) is not None
        if not (is_script or path in product) or is_of_tests(path):
            continue
        text = imports.text(path)
        started = _RULE.sub(without_checks, text) if is_script else text
        checks = is_script and _CHECKING.match(posixpath.basename(path)) is not None
        found = set(() if checks else _STARTED.findall(started))
        if is_script and _PYTEST_GROUP not in text:
            calls = _ENTRY_POINT.findall(text)
            found.update(module for call, module in calls if not is_of_tests(call))
        if path in product and path.endswith(".py"):
            found.update(_DOTTED.findall(text))
        for module in found:
            yield from (one for one in imports.module(module, path) if not is_of_tests(one))
