"""Paths of a repository that no fix may change, and paths that only a recipe may change.

Three questions, each answered by one sentence or None:

* ``forbidden_reason``: neither a model nor a recipe may change this file. What judges a fix (CI, tests,
  their configuration), what runs without being called (start-up hooks, client configuration), and what no
  gate can prove (image recipes). In some of them (``_PINS``) versions may change, and nothing else
  (ADR-0103).
* ``recipe_only_reason``: manifests and lock files. A recipe changes them by their keys and through
  the real client; a typed edit is refused.
* ``check_policy``: both over a whole change, given the dependency files that the recipe declared.

Names are compared as on the most lenient file system (case folded, see ``paths.folded``), at any depth. A
repository whose *product* has such a path (``django/test/client.py``) is refused too: the cost of a wrong
refusal is a person's look, the cost of a wrong permission is the proof.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cache

from fallback_tier.ecosystem_rules import installed_rules
from fallback_tier.outcome import FileChange
from fallback_tier.patch.paths import folded, unsafe_reason

_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Place:
    """Folders (by name, at any depth) and files (by glob) that share one reason."""

    reason: str
    folders: str = ""
    files: str = ""

    def holds(self, components: list[str]) -> bool:
        """Return whether these folded path components are in one of the folders, or name one of
        the files."""
        folders, name = components[:-1], components[-1]
        if any(_matches(self.folders, folder) for folder in folders):
            return True
        # A file with a folder's name replaces, or becomes, that folder (a link, a submodule).
        return any(_matches(globs, name) for globs in (self.folders, self.files))


def _matches(globs: str, name: str) -> bool:
    names, pattern = _parts(globs)
    return name in names or pattern.fullmatch(name) is not None


@cache
def _parts(globs: str) -> tuple[frozenset[str], re.Pattern[str]]:
    """Return the globs that are plain names, and one pattern of the others."""
    names = frozenset(glob for glob in globs.split() if not _WILDCARD.search(glob))
    others = [translate(glob) for glob in globs.split() if glob not in names]
    return names, re.compile("|".join(others) or "(?!)")


_CI = Place(
    "it is CI or release configuration, which judges and publishes the fix",
    folders=".github .gitlab .gitea .forgejo .circleci .azure-pipelines .azuredevops .buildkite"
    " .teamcity .semaphore .tekton .woodpecker .drone .ci .jenkins",
    files=".gitlab-ci* azure-pipelines* jenkinsfile* .travis.y*ml .drone.* .woodpecker.y*ml"
    " .cirrus.* bitbucket-pipelines.y*ml appveyor.y*ml .appveyor.y*ml cloudbuild.* buildspec*.y*ml"
    " wercker.y*ml codemagic.y*ml codecov.y*ml .codecov.y*ml action.y*ml",
)
_GIT = Place(
    "it steers git itself (attributes, ignores, modules, hooks)",
    folders=".git*",
)
_HOOKS = Place(
    "it runs or is read by itself when someone enters, installs or starts the project",
    folders=".husky .yarn .vscode .idea .devcontainer .direnv node_modules site-packages"
    " .venv __pycache__",
    files="sitecustomize.py usercustomize.py *.pth *.egg-link *.pyc .npmrc npmrc .yarnrc*"
    " .pnpmfile.* pnpmfile.* .pnp.* bunfig.toml .pypirc pip.conf pip.ini"
    " uv.toml poetry.toml .netrc .condarc .envrc .env .env.* .pdbrc .gdbinit"
    " .pre-commit-config.y*ml lefthook*.y*ml .lefthook*.y*ml .lintstagedrc* .python-version .nvmrc"
    " .node-version .tool-versions .mise.toml mise.toml",
)
_BUILD = Place(
    "it decides how the project is built or checked, and with that what the gates prove",
    files="makefile gnumakefile *.mk justfile taskfile.y*ml rakefile gruntfile.* gulpfile.*"
    " noxfile.py dodo.py tsconfig*.json jsconfig.json babel.config.* .babelrc* .swcrc"
    " vite.config.* webpack.*.* rollup.*.* rspack.config.* esbuild.config.* tsup.config.* metro.config.*"
    " binding.gyp *.gyp *.gypi cmakelists.txt *.cmake meson.build hatch_build.py"
    " pdm_build.py versioneer.py mypy.ini .mypy.ini pyrightconfig.json ruff.toml .ruff.toml .flake8"
    " pylintrc .pylintrc eslint.config.* .eslintrc* .eslintignore biome.json*",
)
_OURS = Place(
    "it says which gates of the project's own a fix is put to",
    files=".fallback-tier.toml",
)
_IMAGE = Place(
    "it is an image recipe, which no gate of ours builds, so that a change there can't be proved",
    files="dockerfile dockerfile.* *.dockerfile containerfile containerfile.* docker-compose*.y*ml"
    " compose.y*ml compose.*.y*ml .dockerignore",
)
_TESTS = Place(
    "it is a test or test configuration; a fix is judged by the tests of the base commit",
    folders="tests test __tests__ spec specs e2e __mocks__ __snapshots__",
    files="test_*.py *_test.py *_tests.py tests.py test.py conftest.py pytest.ini .pytest.ini"
    " pytest.toml .pytest.toml tox.ini tox.toml .coveragerc"
    + "".join(
        f" *.test.{js} *.tests.{js} *.spec.{js} *-test.{js} *_test.{js} *-spec.{js} *_spec.{js}"
        f" test-*.{js} test.{js} tests.{js} spec.{js}"
        for js in ("js", "cjs", "mjs", "jsx", "ts", "cts", "mts", "tsx")
    )
    + " *.snap setuptests.* jest.config.* jest.setup.* jest-*.config.* vitest.config.* vitest.setup.*"
    " vitest.workspace.* karma.conf* .mocharc* mocha.opts ava.config.* .nycrc* nyc.config.*"
    " playwright.config.* cypress.config.* cypress.json .taprc .c8rc*",
)

#: Those in which a recipe may change the versions of requirements, and nothing else.
_PINS = Place(
    "a recipe may change versions there",
    files="makefile gnumakefile *.mk justfile taskfile.y*ml noxfile.py dodo.py tox.ini"
    f" {_IMAGE.files.removesuffix(' .dockerignore')}"
    " environment.y*ml *.txt *.in *.list *.lst *.pip *.lock *.req *.reqs *.requirements *.constraints"
    " *.limit *.limits",
)
#: A version after a comparison.
_VERSION = re.compile(
    r"((?:[=<>~!]=|[<>])[ \t]*)v?\d[\w.!+*-]*(?:[ \t]*,[ \t]*>=[ \t]*\d[\w.!+*-]*)?"
)

_LOCK = "it is a lock file; only a package client writes those (use dependency_bump or override)"
_MANIFEST = (
    "it is a dependency manifest; only a recipe changes it, by its keys "
    "(use dependency_bump or override)"
)


@cache
def _dependency_files() -> tuple[Place, ...]:
    """Return the locks and manifests of every ecosystem that has a plugin, whichever is being fixed."""
    rules = [rules for _, rules in installed_rules()]
    locks = " ".join(glob for ecosystem_rules in rules for glob in ecosystem_rules.lock_globs)
    manifests = " ".join(
        glob for ecosystem_rules in rules for glob in ecosystem_rules.manifest_globs
    )
    return Place(_LOCK, files=locks), Place(_MANIFEST, files=manifests)


@cache
def _forbidden() -> tuple[Place, ...]:
    """Return the places in this order: the first reason that fits is reported."""
    of_plugins = " ".join(glob for _, rules in installed_rules() for glob in rules.protected_globs)
    of_plugins_place = Place(_BUILD.reason, folders=of_plugins)
    return (_CI, _GIT, _HOOKS, _BUILD, _OURS, _IMAGE, of_plugins_place)


def forbidden_reason(path: str) -> str | None:
    """Return why neither a model nor a recipe may change ``path``, or None if it may be changed.

    The reason is a clause after "``path`` may not be changed:". A manifest or lock file inside a test
    folder is not a test: ``recipe_only_reason`` applies to it.
    """
    unsafe = unsafe_reason(path)
    if unsafe is not None:
        return unsafe
    components = components_of(path)
    for place in _forbidden():
        if place.holds(components):
            return place.reason
    if _TESTS.holds(components) and recipe_only_reason(path) is None:
        return _TESTS.reason
    return None


def _holds_pins(path: str) -> bool:
    """Return whether a recipe may change versions of requirements there, and nothing else. Never in CI."""
    if unsafe_reason(path) is not None:
        return False
    components = components_of(path)
    locks, _ = _dependency_files()
    first = next((place for place in (*_forbidden(), _TESTS) if place.holds(components)), None)
    is_open = first in (None, _BUILD, _IMAGE, _TESTS) and not locks.holds(components[-1:])
    return is_open and _PINS.holds(components)


def changes_versions_only(before: str, after: str) -> bool:
    """Return whether two texts are the same but for versions that follow a comparison (``left==1.0``)."""
    return before != after and _VERSION.sub(r"\1", before) == _VERSION.sub(r"\1", after)


def is_test(path: str) -> bool:
    """Return whether it is, by its path, a test, its data, or a test runner's configuration."""
    return _TESTS.holds(components_of(path))


def recipe_only_reason(path: str) -> str | None:
    """Return why only a recipe may change ``path`` (a manifest, a lock file); None: any other file."""
    name = components_of(path)[-1:]
    for place in _dependency_files():
        if place.holds(name):
            return place.reason
    return None


def check_policy(
    changes: Iterable[FileChange | str],
    *,
    allowed: frozenset[str] = frozenset(),
    pins: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Return every breach of the path policy, one sentence each, sorted by path; empty if there is none.

    ``changes``: file changes, or just paths. ``allowed``: the manifests and lock files that the recipe
    declared; it permits those and nothing else, so that a declaration can't permit CI or the tests.
    ``pins``: files of which only versions changed.
    """
    paths = {item if isinstance(item, str) else item.path for item in changes}
    problems: list[str] = []
    for path in sorted(paths):
        is_pins = path in pins and _holds_pins(path)
        reason = None if is_pins else forbidden_reason(path)
        if reason is None and not is_pins and path not in allowed:
            reason = recipe_only_reason(path)
        if reason is not None:
            problems.append(f"{path!r} may not be changed: {reason}.")
    return tuple(problems)


def components_of(path: str) -> list[str]:
    """Return a path's parts as ``Place.holds`` compares them."""
    return [folded(component) for component in path.split("/")]
