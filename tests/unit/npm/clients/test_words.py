"""Output of clients, of whatever length and form."""

import pytest

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.words import blockers_in, own_words

FILES = Files(".", {"package.json": "{}"})


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        ("", "a"),
        ("Could not resolve dependency: ", "a@"),
        ("Could not resolve dependency: Found: ", "@a/"),
        ("engine error ", "a@"),
        ("engine", "error a@b"),
        ("E404 requested resource '", "a"),
        ("", "https://a/@b"),
    ],
)
def test_a_long_word_takes_linear_time(start: str, repeated: str) -> None:
    """More than linear time would be minutes."""
    output = start + repeated * (200_000 // len(repeated))
    assert blockers_in(output, FILES) == ()
    assert own_words(output)


NPM = """npm error code EBADENGINE
npm error engine Unsupported engine
npm error notsup Not compatible with your version of node/npm: @s/a@1.0.0
npm error notsup Required: {"node":">=99"}
"""
YARN = 'error a@1.0.0: The engine "node" is incompatible. Expected version ">=99". Got "22.0.0"'


@pytest.mark.parametrize(("output", "package"), [(NPM, "@s/a 1.0.0"), (YARN, "a 1.0.0")])
def test_the_package_that_requires_another_runtime_is_named(output: str, package: str) -> None:
    (blocker,) = blockers_in(output, FILES)
    assert blocker.kind is BlockerKind.RUNTIME
    assert (blocker.package, blocker.constraint) == (package, "node >=99")
