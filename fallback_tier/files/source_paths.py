"""Kinds of files, told by their path alone: source, a test, outside the product, a lock."""

import re

from fallback_tier.lazy_patterns import lazy_pattern

PYTHON_SUFFIXES = frozenset({".py", ".pyi", ".pyx"})
SOURCE_SUFFIXES = PYTHON_SUFFIXES | {
    *(".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".vue", ".svelte")
}

#: Names of files and folders that contain secrets.
_SECRETS = lazy_pattern(
    r"(?:^|[/._-])(?:secrets?|credentials?|passwords|(?:private|service|api)[-_]?(?:account)?[-_]?keys?"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)|local[-_]settings|settings[-_]local)(?=[/._-])"
    r"|(?:^|/)\.(?:env|aws|ssh|gnupg)(?=[/._-])|(?:^|/)config/keys\.",
    re.IGNORECASE,
)
_TEST = lazy_pattern(r"(?:^|[/._-])(?:tests?|specs?|__tests__|__mocks__|fixtures?)(?:[/._-]|$)")
#: Folders and files at a project's root that are not part of what it ships; deeper ones, such as ``tools``,
#: may be.
_BESIDE = lazy_pattern(
    r"(?:docs?|documentation|website|site|examples?|demos?|samples?|playground|bench(?:marks?)?|perf"
    r"|scripts?|tools?|tutorials?|e2e|stories)/"
    r"|(?:setup|noxfile|tasks|fabfile)\.py$"
    r"|(?:Gruntfile|gulpfile|[\w.-]+\.conf(?:ig)?)\.[cm]?[jt]s$"
    r"|(?:.*/)?(?:\.[\w-]+/|conftest\.py$|\.[\w-]+\.[cm]?[jt]s$|[^/]*(?:\.d\.[cm]?ts|\.stories\.\w+)$)"
)
_LOCK = lazy_pattern(r"(?:\.lock|[-_]lock\.(?:json|ya?ml)|npm-shrinkwrap\.json|\.lockb)$")


def is_test(path: str) -> bool:
    """Return whether it is a test or test data, by its path."""
    return _TEST.search(path) is not None


def is_beside(path: str) -> bool:
    """Return whether it is outside the product, by its path below the project's root: a test,
    documentation, an example, a tool's configuration."""
    return is_test(path) or _BESIDE.match(path) is not None


def keeps_secrets(path: str) -> bool:
    """Return whether a file is for secrets, by its name or folder: no model sees it. Code about secrets
    (``credentials.py``) may match; a fix of it is left to a person."""
    return _SECRETS.search(path) is not None


def is_lock(path: str) -> bool:
    """Return whether it is a lock file, by its name: written by a client, not manually."""
    return _LOCK.search(path) is not None
