"""Rules on where a fix may create a file, and of what kind: far fewer places than it may edit.

An edit is in a file that the repository already loads. A new file can be loaded merely by its name or its
location, instead of another file, or by an unexpected tool. So it must be source of a language that is read
here, in a folder that has product source with the same ending, under a name that no other file has and that
nothing looks for.

The cost of a wrong refusal is another name; the cost of a wrong permission is the gates' proof.
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

#: Endings of declarations: they are not executed, and a checker believes them instead of the code.
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

#: Imports of a module by name, by language: ``from name …``, ``require('name')``.
_ASKED = {
    "python": r"^\s*(?:from|import)\s+{name}\b",
    "": r"(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*['\"`]{name}['\"`/]",
}


def creation_reason(path: str, repo: RepoContext, others: Sequence[str] = ()) -> str | None:
    """Return why a fix may not create this file, or None if it may. ``others``: the other files that it
    creates.

    The reason is a clause after "``path`` may not be made:". The repository is checked at its base commit;
    the caller must check whether an untracked file is in the way. Never raises.
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
    """Return why a new file may not have this text, or None if it may."""
    if not text.strip():
        return "it would be empty"
    if text.removeprefix("\ufeff").startswith("#!"):
        return "its first line makes it a program of its own (`#!`)"
    return None


def _reason_here(path: PurePosixPath, repo: RepoContext, others: Sequence[str]) -> str | None:
    if repo.tracked_files_cut:
        return "the repository has more files than are looked at, so that one may be in the way"
    if not any(_is_like(namesake, path) for namesake in repo.tracked_files):
        return f"no product source file of the repository ends in {path.suffix} in that folder"
    if not repo.tree.has_folder(str(path.parent)):
        return "its folder is, or lies behind, a link"
    paths = chain(repo.tracked_files, (namesake for namesake in others if namesake != str(path)))
    namesake = next((namesake for namesake in paths if _is_namesake(namesake, path)), None)
    if namesake is not None:
        return f"{namesake!r} is there, and one may be taken for the other"
    return _reason_of_name(path, repo)


def _reason_of_name(path: PurePosixPath, repo: RepoContext) -> str | None:
    """Return which module the new file would replace, as a clause: its folder may be on a search path."""
    is_python = grammar_of(path.name) == "python"
    if is_python and (len(path.parts) == 1 or not repo.has(str(path.parent / "__init__.py"))):
        return "it would be a top-level module: a new one is made inside a package alone"
    if is_python and path.stem in sys.stdlib_module_names:
        return "Python's own library has a module of that name"
    import_pattern = _ASKED["python" if is_python else ""].format(name=re.escape(path.stem))
    pattern = re.compile(import_pattern, re.MULTILINE)
    for tracked in repo.tracked_files:
        grammar = grammar_of(tracked)
        if grammar and (grammar == "python") == is_python:
            with suppress(RepositoryError):
                if pattern.search(repo.read_text(tracked)):
                    return f"{tracked!r} imports another module of that name"
    return None


def _is_like(tracked: str, path: PurePosixPath) -> bool:
    """Return whether it is product source with the same ending, in the same folder."""
    tracked_path = PurePosixPath(tracked)
    if (tracked_path.parent, tracked_path.suffix) != (path.parent, path.suffix) or tracked.endswith(
        _DECLARATIONS
    ):
        return False
    return forbidden_reason(tracked) is None and recipe_only_reason(tracked) is None


def _is_namesake(tracked: str, path: PurePosixPath) -> bool:
    """Return whether it, or a folder above it, is in the same folder under the same name, endings aside."""
    parts = PurePosixPath(tracked).parts
    depth = len(path.parts) - 1
    return (
        len(parts) > depth
        and [*map(folded, parts[:depth])] == [*map(folded, path.parts[:depth])]
        and _stem(parts[depth]) == _stem(path.name)
    )


def _stem(name: str) -> str:
    return folded(name.partition(".")[0] or name)


def _plain_ending(path: str) -> str:
    """Return the path with the ending that a case-sensitive loader looks for."""
    pure = PurePosixPath(path)
    return str(pure.with_suffix(pure.suffix.lower()))
