"""The PyPI plugin's implementation of ``ports.EcosystemPlugin``."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from packaging.utils import canonicalize_name

from fallback_plugins.pypi import identity, recipe
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.pyproject import NO_CATEGORIES, OTHER_ARRAYS, UV_ARRAYS
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.plugin_base import Recipe, RecipeEcosystem
from fallback_tier.advisory import Advisory
from fallback_tier.affected import OwnPackage
from fallback_tier.gate_ports import Gate, GateContext, TargetRun
from fallback_tier.inventory import Inventory
from fallback_tier.outcome import Outline
from fallback_tier.repo import RepoContext

#: The parts of pyproject.toml that the ladder edits.
_PYPROJECT_KEYS = (
    "project.dependencies",
    "project.optional-dependencies",
    "dependency-groups",
    "tool.poetry.dependencies",
    "tool.poetry.dev-dependencies",
    "tool.poetry.group",
    *(f"tool.uv.{key}" for key in UV_ARRAYS),
    *map(".".join, OTHER_ARRAYS),
)
_KEYS = {
    Kind.PYPROJECT: _PYPROJECT_KEYS,
    Kind.PIPFILE: ("!" + "!".join(sorted(NO_CATEGORIES)),),
    Kind.SETUP_CFG: (
        "options.install_requires",
        "options.extras_require",
        "options.setup_requires",
        "options.tests_require",
    ),
    Kind.SETUP_PY: ("requirements",),
}


@dataclass(frozen=True)
class PyPIEcosystem(RecipeEcosystem):
    """Requirements files, pyproject.toml, Pipfile, setup.cfg and locks, resolved by the real clients."""

    _package = "fallback_plugins.pypi"

    @property
    def name(self) -> str:
        """Return OSV's name of the ecosystem."""
        return ECOSYSTEM

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        """Return the manifests and locks, including those that are only read."""
        return tuple(path for path in tracked_files if kind_of(path) is not None)

    def own_packages(self, repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
        """Return the distributions that pyproject.toml, setup.cfg or setup.py files name, of ``names``."""
        return identity.own_packages(repo, names)

    def source_links(self, package: str) -> tuple[str, ...]:
        """Return the project's URLs in the metadata of a package's newest release."""
        return identity.source_links(package, self.clients)

    @property
    def _recipe(self) -> Recipe:
        return recipe

    def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
        """Return what the files alone show. Nothing is resolved."""
        return recipe.outline(advisory, repo, self.clients)

    def inventory(self, repo: RepoContext) -> Inventory:
        """Return the installed packages by locks, or by clients if there is no lock in step."""
        from fallback_plugins.pypi.projects import inventory

        return inventory(repo, self.clients)

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        """Return the keys of a manifest that list requirements; none for requirements files and locks,
        which have no such keys. None: the file is not a manifest."""
        kind = kind_of(path)
        return None if kind is None else _KEYS.get(kind, ())

    def gates(self) -> Sequence[Gate]:
        """Return PyPI's gates, cheapest first."""
        from fallback_plugins.pypi.gates import build_gates

        return build_gates()

    def run(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],
        timeout_s: float | None = None,
    ) -> TargetRun:
        """Run a command in the root, with the environment's programs first on the path."""
        from fallback_plugins.pypi.gates import testing

        return testing.run(context, tree, argv, timeout_s)

    def runs_on(self, context: GateContext, tree: RepoContext, argv: Sequence[str]) -> str:
        """Return the interpreter and installed files that a command runs on, to the byte."""
        from fallback_plugins.pypi.gates import testing

        return testing.runs_on(context, tree, argv)

    def run_on_another(
        self, context: GateContext, tree: RepoContext, argv: Sequence[str], number: int
    ) -> bool:
        """Choose another Python of this machine for all later commands; return False if there is none of
        that number."""
        from fallback_plugins.pypi.gates import testing

        return testing.run_on_another(context, tree, argv, number)

    def tests_ran(self, output: str) -> int | None:
        """Return the number of tests that ran, by the last lines of pytest or unittest; None if there are
        none.

        Expected failures don't count: code under test can call ``pytest.xfail()``, and the test succeeds.
        """
        from fallback_plugins.pypi.gates.testing import pytest_summary, unittest_summary

        summary = pytest_summary(output) or unittest_summary(output)
        return None if summary is None else summary.ran - summary.expected

    def mentions(self, package: str, path: str, text: str) -> bool:
        """Return whether a source file imports the package."""
        return mentions(package, path, text)


#: The common import names that aren't the distribution's name with "_" for "-"; others are missed.
_IMPORT_NAMES = {
    "attrs": ("attr", "attrs"),
    "beautifulsoup4": ("bs4",),
    "django-allauth": ("allauth",),
    "djangorestframework": ("rest_framework",),
    "gitpython": ("git",),
    "msgpack-python": ("msgpack",),
    "mysql-connector-python": ("mysql",),
    "opencv-python": ("cv2",),
    "pillow": ("PIL",),
    "protobuf": ("google.protobuf",),
    "psycopg2-binary": ("psycopg2",),
    "pycryptodome": ("Crypto",),
    "pycryptodomex": ("Cryptodome",),
    "pyjwt": ("jwt",),
    "pyopenssl": ("OpenSSL",),
    "pysaml2": ("saml2",),
    "python-dateutil": ("dateutil",),
    "python-dotenv": ("dotenv",),
    "python-jose": ("jose",),
    "python-ldap": ("ldap",),
    "python-multipart": ("multipart", "python_multipart"),
    "pyyaml": ("yaml",),
    "scikit-learn": ("sklearn",),
    "setuptools": ("setuptools", "pkg_resources"),
}

_SOURCES = (".py", ".pyi", ".pyx")


def mentions(package: str, path: str, text: str) -> bool:
    """Return whether a Python file imports the distribution's package."""
    if not path.endswith(_SOURCES):
        return False
    names, importing = _imports(package)
    # Most files don't contain the name at all, and a plain search is a hundred times as fast.
    folded = text.lower()
    return any(name.lower() in folded for name in names) and bool(importing.search(text))


@lru_cache(maxsize=64)
def _imports(package: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the names that a program imports to use the distribution, as far as known, and a pattern of
    such imports."""
    name = canonicalize_name(package)
    names = _IMPORT_NAMES.get(name, (name.replace("-", "_"),))
    module = rf"(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9_])"
    # Distribution names fold case, import names don't; PyPI's Django is imported as django.
    pattern = rf"^[ \t]*(?:from[ \t]+{module}|import[ \t]+(?:[^#\n]*,[ \t]*)?{module})"
    return names, re.compile(pattern, re.MULTILINE | re.IGNORECASE)
