"""Where a fix may make a new file, and of what kind: far less than it may edit.

An edit stands in a file that the repository already loads. A new file can be loaded by its name or its
place alone, instead of another one, or by a tool that nobody thinks of. So it must be source of a
language that is read here, in a folder that has product source with the same ending, under a name that
nothing else has and that nobody looks for.

A wrong refusal costs another name, a wrong permission what the gates prove.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import PurePosixPath

from fallback_tier.errors import RepositoryError
from fallback_tier.patch.paths import folded
from fallback_tier.patch.policy import Place, components_of, forbidden_reason, recipe_only_reason
from fallback_tier.repo import RepoContext
from fallback_tier.syntax import grammar_of

#: Endings of declarations: nothing runs them, and a checker believes them instead of the code.
_DECLARATIONS = (".pyi", ".d.ts", ".d.cts", ".d.mts")

_BY_NAME = Place(
    "something loads a file of that name, or in such a folder, by itself",
    folders=".* hook hooks migrations pages plugins management templatetags *.egg-info",
    files=".* __*__.* index.* main.* app.* server.* manage.py wsgi.py asgi.py conf.py settings.py"
    " *_settings.py env.py admin.py apps.py models.py urls.py tasks.py fabfile.py locustfile.py"
    " toxfile.py pavement.py hatch_build.py versioneer.py celeryconfig.py gunicorn* test*.* setup*"
    " config.* *.config.* *-config.* *.conf.* *-preset.* jakefile.* cakefile.* knexfile.*"
    " codegen.* typedoc.* babel* eslint* stylelint* prettier* commitlint* jest* vitest* mocha*"
    " ava.* nyc.* tap.* karma* webpack* rollup* esbuild* vite.* ember-cli* brunch* middleware.*"
    " instrumentation.* service-worker.* sw.* _app.* _document.*",
)
_BESIDE = Place(
    "no product source lies in such a folder",
    folders="doc docs example examples sample samples demo demos bench benchmark benchmarks script"
    " scripts bin vendor vendored _vendor third_party third-party dist build out coverage",
)
_DEVICE = Place(
    "Windows has a device of that name",
    files="con.* prn.* aux.* nul.* com[0-9].* lpt[0-9].*",
)

#: ``from name …``, ``require('name')``: where a module of that name is asked for, by how it ends.
_ASKED = {
    "python": r"^\s*(?:from|import)\s+{name}\b",
    "": r"(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*['\"`]{name}['\"`/]",
}


def creation_reason(path: str, repo: RepoContext, others: Sequence[str] = ()) -> str | None:
    """Why a fix may not make this file; None where it may. ``others``: what else it makes.

    The reason is a clause that follows "``path`` may not be made:". The repository is looked at as its base
    commit has it; whether an untracked file is in the way, whoever writes must ask. Never raises.
    """
    reason = forbidden_reason(path) or recipe_only_reason(path)
    if reason is not None:
        return reason
    components = components_of(path)
    for place in (_BY_NAME, _BESIDE, _DEVICE):
        if place.holds(components):
            return place.reason
    if not grammar_of(path) or path.endswith(_DECLARATIONS) or path != _plain_ending(path):
        return "only source files (.py, .js, .ts and their like) are made"
    return _reason_here(PurePosixPath(path), repo, others)


def text_reason(text: str) -> str | None:
    """Why a new file may not have this text; None where it may."""
    if not text.strip():
        return "it would be empty"
    if text.removeprefix("\ufeff").startswith("#!"):
        return "its first line makes it a program of its own (`#!`)"
    return None


def _reason_here(path: PurePosixPath, repo: RepoContext, others: Sequence[str]) -> str | None:
    if repo.tracked_files_cut:
        return "the repository has more files than are looked at, so that one may be in the way"
    if not any(_is_like(other, path) for other in repo.tracked_files):
        return f"no product source file of the repository ends in {path.suffix} in that folder"
    if not repo.tree.has_folder(str(path.parent)):
        return "its folder is, or lies behind, a link"
    there = chain(repo.tracked_files, (other for other in others if other != str(path)))
    other = next((other for other in there if _is_namesake(other, path)), None)
    if other is not None:
        return f"{other!r} is there, and one may be taken for the other"
    return _reason_of_name(path, repo)


def _reason_of_name(path: PurePosixPath, repo: RepoContext) -> str | None:
    """What it would be loaded instead of: a folder may be on a search path."""
    is_python = grammar_of(path.name) == "python"
    if is_python and (len(path.parts) == 1 or not repo.has(str(path.parent / "__init__.py"))):
        return "it would be a top-level module: a new one is made inside a package alone"
    if is_python and path.stem in sys.stdlib_module_names:
        return "Python's own library has a module of that name"
    asked = _ASKED["python" if is_python else ""].format(name=re.escape(path.stem))
    pattern = re.compile(asked, re.MULTILINE)
    for other in repo.tracked_files:
        grammar = grammar_of(other)
        if grammar and (grammar == "python") == is_python:
            with suppress(RepositoryError):
                if pattern.search(repo.read_text(other)):
                    return f"{other!r} imports another module of that name"
    return None


def _is_like(other: str, path: PurePosixPath) -> bool:
    """Is it product source with the same ending, in the same folder?"""
    found = PurePosixPath(other)
    if (found.parent, found.suffix) != (path.parent, path.suffix) or other.endswith(_DECLARATIONS):
        return False
    return forbidden_reason(other) is None and recipe_only_reason(other) is None


def _is_namesake(other: str, path: PurePosixPath) -> bool:
    """Does it, or a folder on its way, stand in the same folder under the same name, endings aside?"""
    parts = PurePosixPath(other).parts
    at = len(path.parts) - 1
    return (
        len(parts) > at
        and [*map(folded, parts[:at])] == [*map(folded, path.parts[:at])]
        and _stem(parts[at]) == _stem(path.name)
    )


def _stem(name: str) -> str:
    return folded(name.partition(".")[0] or name)


def _plain_ending(path: str) -> str:
    """The path with its ending as a loader that minds case looks for it."""
    pure = PurePosixPath(path)
    return str(pure.with_suffix(pure.suffix.lower()))
