"""What a registry answered yarn is known in the next run of the plan, and nothing else is."""

import pytest

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.clients import yarn_draft
from fallback_plugins.npm.clients.yarn_draft import Draft, Lookups, Release
from fallback_plugins.npm.locks.yarn_lock import YarnLock, parse_yarn_lock
from fallback_plugins.shared.ladder import refused_for
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker
from tests.unit.npm.locks.test_yarn_lock import block, lock


def read(*blocks: str) -> YarnLock:
    return parse_yarn_lock(lock(*blocks))


#: A lock, and what yarn made of it when b was required, too.
GIVEN = read(block("a@^1.0.0", "1.0.0"))
B = block("b@^2.0.0", "2.1.0", asks='a "^1.0.0"; c "^3.0.0"; d next')
C, D = block("c@^3.0.0", "3.3.0"), block("d@next", "4.0.0")
WRITTEN = read(block("a@^1.0.0", "1.0.0"), B, C, D)


def noted(given: YarnLock = GIVEN, written: YarnLock = WRITTEN) -> Lookups:
    lookups = Lookups()
    lookups.note(given, written)
    return lookups


def recalled(lookups: Lookups, start: YarnLock, *asks: str, but: str = "") -> dict[str, str]:
    draft = Draft(start)
    draft.recall(asks, lookups, but=[but])
    return {
        pattern: answer.version
        for pattern, answer in parse_yarn_lock(draft.lock.text).by_pattern.items()
        if pattern not in start.by_pattern
    }


def test_what_the_registry_answered_is_answered_again_with_what_it_requires() -> None:
    other = read(block("a@^1.0.0", "1.9.0"), block("z@^1", "1.0.0"))
    assert recalled(noted(), other, "b@^2.0.0") == {"b@^2.0.0": "2.1.0", "c@^3.0.0": "3.3.0"}
    assert recalled(noted(), other) == {}
    requiring = read(block("z@^1", "1.0.0", asks='c "^3.0.0"'))
    assert recalled(noted(), requiring) == {"c@^3.0.0": "3.3.0"}


def test_a_locked_answer_is_not_the_registrys() -> None:
    """The lock decided on a 1.0.0; and yarn gave e the very block that was locked."""
    written = read(block("a@^1.0.0, a@^1.0.0-0", "1.0.0"))
    lookups = noted(written=written)
    assert lookups.version("a@^1.0.0") is None
    assert lookups.version("a@^1.0.0-0") == "1.0.0"
    assert lookups.block(GIVEN, Release("a", "1.0.0")) is None
    assert recalled(lookups, read(block("z@^1", "1.0.0")), "a@^1.0.0-0") == {}
    assert recalled(lookups, GIVEN, "a@^1.0.0-0") == {"a@^1.0.0-0": "1.0.0"}


def test_a_locked_block_of_the_same_release_is_shared_as_yarn_does() -> None:
    held = block("b@2.1.0", "2.1.0", host="https://mirror.test/")
    draft = Draft(read(held))
    draft.recall(["b@^2.0.0"], noted())
    (shared,) = (it for it in draft.lock.blocks if it.name == "b")
    assert shared.patterns == ("b@2.1.0", "b@^2.0.0")
    assert "mirror.test" in shared.resolved


@pytest.mark.parametrize(
    "written",
    [
        block("d@next", "4.0.0"),
        block('"e@npm:d@^4.0.0"', "4.0.0", name="d"),
        block('"e@https://host.test/e.tgz"', "4.0.0", name="e"),
        'e@^4.0.0:\n  version "4.0.0"\n',
    ],
    ids=["a tag", "an alias", "an address", "a member"],
)
def test_no_other_pattern_is_known(written: str) -> None:
    lookups = noted(written=read(written))
    (pattern,) = read(written).by_pattern
    assert lookups.version(pattern) is None
    assert recalled(lookups, GIVEN, pattern) == {}


def test_an_archive_from_an_address_is_not_the_registrys_release() -> None:
    written = read(block('"e@https://host.test/e.tgz"', "4.0.0", name="e"))
    assert noted(written=written).block(GIVEN, Release("e", "4.0.0")) is None


def test_a_package_of_the_project_is_left_to_yarn() -> None:
    assert recalled(noted(), GIVEN, "b@^2.0.0", but="b") == {}
    folder = parse_yarn_lock(lock('"b@file:./b":\n  version "2.1.0"\n'))
    assert recalled(noted(), folder, "b@^2.0.0") == {}


def test_a_release_is_known_with_the_line_ends_of_the_lock() -> None:
    crlf = parse_yarn_lock(GIVEN.text.replace("\n", "\r\n"))
    assert noted().block(GIVEN, Release("b", "2.1.0")) == WRITTEN.by_pattern["b@^2.0.0"]
    assert noted().block(crlf, Release("b", "2.1.0")) is None


def test_a_draft_with_more_answers_is_in_the_order_of_yarn() -> None:
    """If nothing is left to do, yarn leaves the lock as it is, and new blocks are placed by its order."""
    draft = Draft(read(block("a@^1.0.0", "1.0.0"), block("z@^1", "1.0.0")))
    draft.recall(["b@^2.0.0"], noted())
    assert [it.name for it in draft.lock.blocks] == ["a", "b", "c", "z"]


def test_beyond_the_limit_nothing_more_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yarn_draft, "MAX_LOOKUPS", 1)
    lookups = noted()
    assert lookups.version("b@^2.0.0") == "2.1.0"
    assert lookups.version("c@^3.0.0") is None


def test_a_release_that_the_registry_lacks_is_refused_again() -> None:
    absent, wanted = Release("d", "1.2.0"), [Release("d", "1.2.0"), Release("e", "1.0.0")]
    lookups = Lookups()
    for kind, name, version in (
        (BlockerKind.REGISTRY, "d", "1.2.0"),
        (BlockerKind.NOT_PUBLISHED, "f", "1.2.4"),
    ):
        blocker = Blocker(kind=kind, package=name, constraint=version)
        lookups.refuse(refused_for(blocker))
    lookups.check([absent])
    lookups.check(wanted)
    error = refused_for(Blocker(kind=BlockerKind.NOT_PUBLISHED, package="d", constraint="1.2.0"))
    lookups.refuse(error)
    lookups.check(wanted[1:])
    with pytest.raises(RecipeError) as refused:
        lookups.check(wanted)
    assert refused.value is error


GONE = refused_for(Blocker(kind=BlockerKind.NOT_PUBLISHED, package="c", constraint="^3.0.0"))


@pytest.mark.parametrize(
    ("start", "required", "but", "refused"),
    [
        (WRITTEN, "b@^2.0.0", "", False),
        (read(B), "b@^2.0.0", "", True),
        (read(B), "c@^3.0.0", "", True),
        (read(B), "z@^1", "", False),
        (read(B), "b@^2.0.0", "b", False),
        (read(B), "b@^2.0.0", "c", False),
    ],
    ids=["answered", "required by a block", "required itself", "elsewhere", "replaced", "left"],
)
def test_what_leads_to_a_lacking_release_is_refused(
    start: YarnLock, required: str, but: str, refused: bool
) -> None:
    lookups = Lookups()
    lookups.refuse(GONE)
    draft = Draft(start)
    if refused:
        with pytest.raises(RecipeError) as caught:
            draft.check([required], lookups, but=[but])
        assert caught.value is GONE
    else:
        draft.check([required], lookups, but=[but])


def test_only_what_is_not_locked_is_filled_in() -> None:
    draft = Draft(read(block("c@3.0.0", "3.0.0")))
    draft.fill_in([Release("c", "3.0.0"), Release("@s/e", "1.2.4")])
    locked, filled = parse_yarn_lock(draft.lock.text).blocks
    assert "registry.test" in locked.resolved
    assert (filled.patterns, filled.version) == (("@s/e@1.2.4",), "1.2.4")
