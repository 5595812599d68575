"""PyPI's rules: PEP 440 order, PEP 503 names (port: EcosystemRules)."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from fallback_tier.ecosystem_rules import ClientCache, EcosystemRules, PackageClient, PurlName
from fallback_tier.files.source_paths import PYTHON_SUFFIXES

#: One version as written in a manifest, without blanks around it, which the version parser would ignore.
_EXACT = re.compile(r"[0-9A-Za-z.!+_-]+")

#: The first number of a version, without leading zeros. Equal versions share it.
_FIRST_NUMBER = re.compile(r"\D*?0*(\d+)")

#: PEP 440: ``0!1.0`` equals ``1.0``, so equal versions with an epoch may have different first numbers.
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


#: The files in which the user's clients configure registries.
_USERS = (
    *("$CONFIG/uv/uv.toml", "/etc/xdg/uv/uv.toml", "/etc/uv/uv.toml"),
    *("$CONFIG/pip/pip.conf", "~/.pip/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/pip.conf"),
    *("$CONFIG/pypoetry/config.toml", "$CONFIG/pypoetry/auth.toml"),
)

#: The default index, and the host of its files. In parts, so that no source file names a registry that
#: could be queried.
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
        offline: bool,  # noqa: ARG002 (uv can't use a read-only cache)
    ) -> Sequence[ClientCache]:
        """Return uv's cache, in the folder that uv would use."""
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
        """Return the library's key, without the local label: a local build of an affected version is
        affected."""
        parsed = Version(version)
        return parsed if parsed.local is None else Version(parsed.public)

    def shared_by_equals(self, version: str) -> str | None:
        """Return the version's first number; empty if it has none, None if it has an epoch."""
        if _EPOCH in version:
            return None
        match = _FIRST_NUMBER.match(version)
        return match[1] if match else ""

    def successor(self, version: str) -> str:
        """Return the lowest version above this one: the first development release after it."""
        parsed = Version(version)
        base = parsed.public
        if parsed.dev is not None:
            return f"{base.rpartition('.dev')[0]}.dev{parsed.dev + 1}"
        if parsed.post is not None:
            return f"{base.rpartition('.post')[0]}.post{parsed.post + 1}.dev0"
        return f"{base}.post0.dev0"

    def next_line(self, version: str) -> str:
        """Return the start of the next minor line, with its pre-releases."""
        parsed = Version(version)
        return f"{parsed.epoch}!{parsed.major}.{parsed.minor + 1}.dev0"

    def is_major_step(self, old: str, new: str) -> bool:
        """Return whether the first number differs. PEP 440 defines no major version, but projects use that
        number."""
        return Version(old).major != Version(new).major

    def is_prerelease(self, version: str) -> bool:
        """Return whether a version is an alpha, beta, rc or dev release."""
        return Version(version).is_prerelease

    def is_exact(self, text: str) -> bool:
        """Return whether a text has only characters of one version."""
        return _EXACT.fullmatch(text) is not None

    def canonical_name(self, name: str) -> str:
        """Return the name as PEP 503 normalizes it."""
        return canonicalize_name(name)

    def age_exception_keys(self, package: str) -> Sequence[str]:
        """Return the key of uv's exception. No other Python client has exceptions in a manifest."""
        return (f"tool.uv.exclude-newer-package.{canonicalize_name(package)}",)

    def canonical_text(self, text: str) -> str:
        """Return the text, normalized as a whole like a name (PEP 503)."""
        return re.sub(r"[-_.]+", "-", text).lower()

    def purl_name(self, name: str) -> PurlName:
        """Return the name without a namespace. Package URLs normalize the name themselves."""
        return PurlName("pypi", "", name)

    def owns_file(self, name: str) -> bool:
        """Return whether a file name is of a manifest, a lock, requirements or an installed package's
        metadata."""
        return name in _FILES or _REQUIREMENTS.fullmatch(name) is not None

    def document(self, path: str, text: str) -> Any:
        """Return a setup.py as data; None for the other formats, which the core reads. Raises
        ValueError."""
        if posixpath.basename(path) != "setup.py":
            return None
        from fallback_plugins.pypi.manifests.setup_py import setup_document

        return setup_document(text)
