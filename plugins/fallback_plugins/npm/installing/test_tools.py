"""Which of a project's development dependencies its tests are run by."""

import re
from collections.abc import Mapping
from typing import Any

from fallback_plugins.npm.manifests.manifest import entries

#: A package with one of these words in its name runs tests, measures them, or is for use in them.
_WORDS = frozenset(
    {
        *("ava", "jasmine", "jest", "karma", "mocha", "qunit", "tap", "tape", "uvu", "vitest"),
        *("c8", "chai", "expect", "istanbul", "nyc", "sinon", "testing"),
    }
)

#: Further packages without which a runner can't read what it is to run.
_NAMES = frozenset(
    {
        *(
            "babel-core",
            "babel-register",
            "esbuild",
            "esm",
            "ts-node",
            "tslib",
            "tsx",
            "typescript",
        ),
        *("cross-env", "npm-run-all", "run-s", "nock", "proxyquire", "should", "supertest"),
    }
)
_SCOPES = ("@babel/", "@swc/", "@types/node")

_PART = re.compile(r"[^a-z0-9]+")
_SCRIPT = re.compile(r"(?:pre|post)?test(?::.*)?")


def test_tools(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Names in ``devDependencies``: known runners and what goes with them, and what a test script names."""
    asked = manifest.get("devDependencies")
    if not isinstance(asked, dict):
        return frozenset()
    scripts = entries(manifest.get("scripts"))
    messages = (text for name, text in scripts if _SCRIPT.fullmatch(name))
    words = {word for text in messages for word in re.split(r"[\s;&|=]+", text)}
    return frozenset(name for name in asked if _is_known(name) or name in words)


def _is_known(name: str) -> bool:
    return (
        bool(_WORDS.intersection(_PART.split(name))) or name in _NAMES or name.startswith(_SCOPES)
    )
