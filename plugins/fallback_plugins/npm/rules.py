"""npm's rules: SemVer 2.0.0 order, names as they are, scopes as namespaces (ports: EcosystemRules); and the
imports of source files.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fallback_tier.ecosystem_rules import ClientCache, EcosystemRules, PackageClient, PurlName
from fallback_tier.files.source_paths import PYTHON_SUFFIXES, SOURCE_SUFFIXES

if TYPE_CHECKING:
    from semantic_version import Version as SemVer

#: npm's own tolerance: surrounding blanks, "=" and "v" before the number.
_LOOSE_PREFIX = re.compile(r"[\s=v]+")

#: A fourth number would silently become build metadata, that is, equal to the first three.
_FOUR_NUMBERS = re.compile(r"\d+\.\d+\.\d+\.")

#: A release as nearly all are published. The library takes ten times as long over one, and a lock
#: has thousands; what does not look like this is left to it.
_PLAIN_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)

#: A release has this instead of pre-release identifiers: it is above all of them.
_RELEASE = ((2, ""),)

#: One version in a manifest. Of the range ``2.0.0 || 1.0.0``, an order would only see the first version.
_EXACT = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")

#: The first number of a version, zeros before it left out. Equal versions have it in common.
_FIRST_NUMBER = re.compile(r"\D*?0*(\d+)")

_FILES = frozenset(
    {"package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml"}
)

#: Registries, caches and their tokens, as npm reads them; yarn and pnpm read the same.
_SETTINGS = r"(?i:npm_config_.+)|NPM_TOKEN|NODE_AUTH_TOKEN"

#: Files in which the user's own npm, yarn and pnpm find their registries.
_USERS = (
    *("~/.npmrc", "$PREFIX/etc/npmrc", "/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"),
    *("~/.yarnrc", "~/.yarnrc.yml", "$CONFIG/yarn/.yarnrc", "$CONFIG/pnpm/rc"),
)

#: The default registries of npm and yarn, in parts, as no file here names a real registry.
_DEFAULTS = tuple(
    ".".join(("registry", *owner)) + ":443" for owner in (("npmjs", "org"), ("yarnpkg", "com"))
)

_WALL = "fallback_plugins.npm.clients.hosts:wall"

_REQUIRE = r"\brequire(?:\.resolve)?\s*\("
_SOURCES = (".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".vue", ".svelte")

_INSTALL = "Install Node.js with npm (https://nodejs.org) and make sure it is on PATH."


class NpmRules(EcosystemRules):
    """Implements EcosystemRules."""

    range_type: Literal["SEMVER"] = "SEMVER"
    above_all = "999999.0.0"
    package_types = ("npm", "node", "javascript", "node-pkg", "yarn", "pnpm", "bun")
    # Of pnpm-workspace.yaml, a recipe changes entries of catalogs and overrides alone.
    manifest_globs = ("package.json", "pnpm-workspace.yaml")
    lock_globs = (
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "bun.lockb",
    )
    protected_globs = ()
    source_suffixes = SOURCE_SUFFIXES - PYTHON_SUFFIXES
    # node runs the yarn and the pnpm that this plugin has provisioned, core's own reader of JavaScript,
    # and nothing else.
    clients = (
        PackageClient("npm", _SETTINGS, _INSTALL, False, _USERS, _DEFAULTS, _WALL),
        PackageClient(
            "node", _SETTINGS + r"|(?i:yarn_registry)", _INSTALL, False, _USERS, _DEFAULTS, _WALL
        ),
    )

    def caches(self, environ: Mapping[str, str], *, offline: bool) -> Sequence[ClientCache]:
        """Return npm's cache; none offline: then npm only reads it."""
        if offline:
            return ()
        configured = (value for key, value in environ.items() if key.lower() == "npm_config_cache")
        return (
            ClientCache(
                folder=next(filter(None, configured), "~/.npm"),
                what="npm's cache",
                moved_by="npm_config_cache",
                ask=("npm", "config", "get", "cache"),
            ),
        )

    def sort_key(self, version: str) -> Any:
        """Return the order of SemVer 2.0.0, section 11, as a tuple: numeric identifiers are below the
        others. Build metadata does not count: a local build of an affected version is affected."""
        plain = _PLAIN_SEMVER.fullmatch(version)
        if plain:
            return (*map(int, plain.groups()), _RELEASE)
        parsed = _semver(version)
        identifiers = tuple(
            (0, int(part)) if part.isdigit() else (1, part) for part in parsed.prerelease
        )
        return parsed.major, parsed.minor, parsed.patch, identifiers or _RELEASE

    def shared_by_equals(self, version: str) -> str | None:
        """Return the first number."""
        match = _FIRST_NUMBER.match(version)
        return match[1] if match else ""

    def successor(self, version: str) -> str:
        """Return the first pre-release after it."""
        parsed = _semver(version)
        if parsed.prerelease:
            return f"{parsed.truncate('prerelease')}.0"
        return f"{parsed.major}.{parsed.minor}.{parsed.patch + 1}-0"

    def next_line(self, version: str) -> str:
        """Return the next minor version, pre-releases included."""
        parsed = _semver(version)
        return f"{parsed.major}.{parsed.minor + 1}.0-0"

    def is_major_step(self, old: str, new: str) -> bool:
        """Return whether the major version changes; below 1.0, the minor one."""
        (major, minor, *_), (new_major, new_minor, *_) = self.sort_key(old), self.sort_key(new)
        return bool(major != new_major if major or new_major else minor != new_minor)

    def is_prerelease(self, version: str) -> bool:
        """Return whether it has identifiers after the numbers."""
        return bool(self.sort_key(version)[-1] != _RELEASE)

    def is_exact(self, text: str) -> bool:
        """Return whether it is three numbers, and what SemVer allows after them."""
        return _EXACT.fullmatch(text) is not None

    def canonical_name(self, name: str) -> str:
        """Return the name as it is."""
        return name

    def canonical_text(self, text: str) -> str:
        """Return the text as it is."""
        return text

    def purl_name(self, name: str) -> PurlName:
        """Split a name: scopes are namespaces."""
        namespace, _, bare = name.rpartition("/")
        return PurlName("npm", namespace, bare)

    def owns_file(self, name: str) -> bool:
        """Return whether a file is a manifest or a lock of npm, yarn or pnpm."""
        return name in _FILES

    def document(self, path: str, text: str) -> Any:  # noqa: ARG002 (core reads these formats)
        """Return None: core reads these formats."""
        return None

    def age_exception_keys(self, package: str) -> Sequence[str]:  # noqa: ARG002
        """Return no keys: no manifest of npm has exceptions."""
        return ()


def _semver(version: str) -> "SemVer":
    from semantic_version import Version as SemVer

    text = _LOOSE_PREFIX.sub("", version, count=1) if version[:1] in " =v\t" else version
    if _FOUR_NUMBERS.match(text):
        raise ValueError(version)
    return SemVer.coerce(text.strip())


def mentions(package: str, path: str, text: str) -> bool:
    """Return whether a JavaScript or TypeScript file imports or requires the package, or a path in it."""
    if not is_source(path) or package not in text:
        return False
    call = rf"(?:{_REQUIRE}|\bimport\b\s*\(?|\bfrom\b)\s*{_quoted(package)}"
    return re.search(call, text) is not None


def requires(package: str, text: str) -> bool:
    """Return whether a file calls ``require`` for the package, or a path in it."""
    return package in text and bool(re.search(rf"{_REQUIRE}\s*{_quoted(package)}", text))


def is_source(path: str) -> bool:
    """Return whether a file is a source file, by its name."""
    return path.endswith(_SOURCES)


def _quoted(package: str) -> str:
    return rf"""(?P<quote>['"`]){re.escape(package)}(?:/[^'"`\n]*)?(?P=quote)"""
