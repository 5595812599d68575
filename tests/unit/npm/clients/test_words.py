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


ABSENT = """npm silly placeDep node_modules/up left@ OK for: up@2.0.0 want: ^4.7.1
npm silly placeDep node_modules/other right@ OK for: other@1.0.0 want: ^0.1.0
npm error code ETARGET
npm error notarget No matching version found for left@^4.7.1.
"""
RENAMED = ABSENT.replace("placeDep node_modules/up left@", "placeDep node_modules/up l@")


@pytest.mark.parametrize(
    ("output", "parent"),
    [
        (ABSENT, "up 2.0.0"),
        (
            ABSENT.replace(
                "right@ OK for: other@1.0.0 want: ^0.1.0", "left@ OK for: o@1.0.0 want: ^3"
            ),
            "up 2.0.0",
        ),
        (RENAMED, ""),
        (RENAMED.replace("other@1.0.0", "up@2.0.0"), "up 2.0.0"),
    ],
)
def test_the_dependent_of_the_missing_release_is_named(output: str, parent: str) -> None:
    (blocker,) = blockers_in(output, FILES)
    assert (blocker.package, blocker.required_by) == ("left", parent)
