"""PyPI's rules: PEP 440 order, PEP 503 names (ports: EcosystemRules)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from fallback_tier.ecosystem_rules import ClientCache, EcosystemRules, PackageClient, PurlName
from fallback_tier.files.source_paths import PYTHON_SUFFIXES

#: One version as a manifest has it: the order would pass over blanks around it.
_EXACT = re.compile(r"[0-9A-Za-z.!+_-]+")

#: The first number of a version, zeros before it left out. Equal versions have it in common.
_FIRST_NUMBER = re.compile(r"\D*?0*(\d+)")

#: PEP 440: ``0!1.0`` is ``1.0``. The first number of an epoch's version says nothing.
_EPOCH = "!"

_FILES = frozenset(
    {
        "pyproject.toml",
        "uv.lock",
        "poetry.lock",
        "pdm.lock",
        "pylock.toml",
        "Pipfile",
        "Pipfile.lock",
        "setup.cfg",
        "METADATA",
        "PKG-INFO",
    }
)
_REQUIREMENTS = re.compile(r".*(?:requirements|constraints).*\.(?:txt|in)", re.IGNORECASE)


#: Where the user's own clients read which registries they have.
_USERS = (
    *("$CONFIG/uv/uv.toml", "/etc/xdg/uv/uv.toml", "/etc/uv/uv.toml"),
    *("$CONFIG/pip/pip.conf", "~/.pip/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/pip.conf"),
    *("$CONFIG/pypoetry/config.toml", "$CONFIG/pypoetry/auth.toml"),
)

#: The default index, and where its files are. In parts: no file here names a registry that could be asked.
_DEFAULTS = tuple(
    ".".join(parts) + ":443" for parts in (("pypi", "org"), ("files", "pythonhosted", "org"))
)


class PyPIRules(EcosystemRules):
    """Implements EcosystemRules."""

    range_type: Literal["ECOSYSTEM"] = "ECOSYSTEM"
    above_all = "999999.0.0"
    package_types = ("pypi", "python", "pip", "python-pkg", "pipenv", "poetry", "uv", "pylock")
    manifest_globs = (
        *("requirements*.txt", "requirements*.in", "*requirements.txt", "*requirements.in"),
        *(
            "constraints*.txt",
            "constraints*.in",
            "pyproject.toml",
            "setup.cfg",
            "setup.py",
            "pipfile",
        ),
        "environment.y*ml",  # conda's, which lists what pip is to install
    )
    lock_globs = ("uv.lock", "poetry.lock", "pipfile.lock", "pdm.lock", "pylock*.toml")
    protected_globs = ()
    source_suffixes = PYTHON_SUFFIXES
    clients = (
        PackageClient(
            "uv",
            r"UV_(?!PUBLISH_).+|PIP_.+",
            "Install uv (`pip install uv`): it belongs beside the Python that runs fallback-tier.",
            beside_python=True,
            settings=_USERS,
            default_hosts=_DEFAULTS,
            wall="fallback_plugins.pypi.manifests.indexes:wall",
        ),
    )

    def caches(
        self,
        environ: Mapping[str, str],
        *,
        offline: bool,  # noqa: ARG002 (uv can't do with a cache that it can only read)
    ) -> Sequence[ClientCache]:
        """uv's, where it would have it."""
        folder = environ.get("XDG_CACHE_HOME") or "~/.cache"
        return (
            ClientCache(
                folder=environ.get("UV_CACHE_DIR") or f"{folder}/uv",
                what="uv's cache",
                moved_by="UV_CACHE_DIR, or XDG_CACHE_HOME",
                ask=("uv", "cache", "dir"),
            ),
        )

    def sort_key(self, version: str) -> Any:
        """The library's own. Local labels don't order: a local build of an affected version is affected."""
        parsed = Version(version)
        return parsed if parsed.local is None else Version(parsed.public)

    def shared_by_equals(self, version: str) -> str | None:
        """The first number, without an epoch."""
        if _EPOCH in version:
            return None
        found = _FIRST_NUMBER.match(version)
        return found[1] if found else ""

    def successor(self, version: str) -> str:
        """The first development release after it."""
        parsed = Version(version)
        base = parsed.public
        if parsed.dev is not None:
            return f"{base.rpartition('.dev')[0]}.dev{parsed.dev + 1}"
        if parsed.post is not None:
            return f"{base.rpartition('.post')[0]}.post{parsed.post + 1}.dev0"
        return f"{base}.post0.dev0"

    def next_line(self, version: str) -> str:
        """The next value of the second number, pre-releases included."""
        parsed = Version(version)
        return f"{parsed.epoch}!{parsed.major}.{parsed.minor + 1}.dev0"

    def is_major_step(self, old: str, new: str) -> bool:
        """PEP 440 promises nothing; the first number is what projects use for it."""
        return Version(old).major != Version(new).major

    def is_prerelease(self, version: str) -> bool:
        """Alpha, beta, rc or dev."""
        return Version(version).is_prerelease

    def is_exact(self, text: str) -> bool:
        """The characters of one version, none around it."""
        return _EXACT.fullmatch(text) is not None

    def canonical_name(self, name: str) -> str:
        """PEP 503."""
        return canonicalize_name(name)

    def age_exception_keys(self, package: str) -> Sequence[str]:
        """uv's; no other client of Python has exceptions in a manifest."""
        return (f"tool.uv.exclude-newer-package.{canonicalize_name(package)}",)

    def canonical_text(self, text: str) -> str:
        """PEP 503, over the whole text."""
        return re.sub(r"[-_.]+", "-", text).lower()

    def purl_name(self, name: str) -> PurlName:
        """Without a namespace; package URLs normalise the name themselves."""
        return PurlName("pypi", "", name)

    def owns_file(self, name: str) -> bool:
        """Manifests and locks, requirements, and what is in an installed package."""
        return name in _FILES or _REQUIREMENTS.fullmatch(name) is not None

    def document(self, path: str, text: str) -> Any:  # noqa: ARG002 (core reads these formats)
        """Core reads them."""
        return None
