"""What a project calls to test itself, by tox.ini, setup.cfg or noxfile.py: what is no runner of ours.

Only to be named in a verdict: nothing is run through tox or nox, and these files are only read.
"""

import ast
import re
from collections.abc import Iterator
from configparser import ConfigParser, Error

from fallback_plugins.shared.gates.gating import in_folder
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext

#: Commands that a sentence names.
_NAMED = 3

_OURS = re.compile(r"\b(?:pytest|py\.test|unittest)\b")

#: A factor (``py3: make test``) and a failure that is let pass (``- make test``) stand before a command.
_BEFORE = re.compile(r"^(?:[\w,{}!-]+:\s+)?(?:-\s*)?")


def foreign_runners(repo: RepoContext, folder: str) -> str:
    """``tox.ini calls `make test```; empty where there is nothing to name."""
    for name, read in (("tox.ini", _tox), ("setup.cfg", _tox), ("noxfile.py", _nox)):
        path = in_folder(folder, name)
        if not repo.has(path):
            continue
        try:
            found = [one for one in read(repo.read_text(path)) if one and not _OURS.search(one)]
        except (RepositoryError, Error, SyntaxError, ValueError):
            continue
        if found:
            message = ", ".join(f"`{one}`" for one in dict.fromkeys(found[:_NAMED]))
            return f"{name} calls {message}, no runner of ours"
    return ""


def _tox(text: str) -> Iterator[str]:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    for section in parser.sections():
        if section.startswith("testenv"):
            commands = parser[section].get("commands", "")
            yield from (_BEFORE.sub("", line.strip()) for line in commands.splitlines())


def _nox(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            words = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if node.func.attr == "run" and words:
                yield " ".join(map(str, words))
