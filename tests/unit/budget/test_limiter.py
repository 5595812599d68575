"""A model behind a limiter: what is reserved, what is given back, and what an overload does."""

from collections.abc import Generator

import pytest

from fallback_audit.vocabulary import ModelFailureKind
from fallback_tier.budget.limiter import MAX_OVERLOADS, LimitedModel
from fallback_tier.budget.prices import tokens_at_most
from fallback_tier.errors import ModelError
from fallback_tier.ports import ModelAnswer, ModelRequest
from tests.fakes.asking import REQUEST, hear
from tests.fakes.talking import TalkingModel, answer

MOST = tokens_at_most(REQUEST)


class Noting:
    """Implements CallLimiter: notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def take(self, tokens: int) -> None:
        self.told.append(("take", tokens))

    def settle(self, reserved: int, used: int) -> None:
        self.told.append(("settle", reserved, used))

    def overloaded(self) -> None:
        self.told.append(("overloaded",))


def no_room(kind: ModelFailureKind = ModelFailureKind.OVERLOADED) -> ModelError:
    return ModelError("It has no room.", next_step="Wait.", failure=kind)


def replying(*outcomes: ModelAnswer | ModelError) -> TalkingModel:
    left = list(outcomes)

    def reply(_: ModelRequest) -> ModelAnswer:
        found = left.pop(0)
        if isinstance(found, ModelError):
            raise found
        return found

    return TalkingModel(reply)


def test_what_a_call_did_not_use_is_given_back() -> None:
    noting = Noting()
    used = answer("done", input_tokens=5, output_tokens=2, cache_read_tokens=3)
    pieces, reported = hear(LimitedModel(replying(used), noting))
    assert ("".join(pieces), reported) == ("done", used)
    assert noting.told == [("take", MOST), ("settle", MOST, 10)]


@pytest.mark.parametrize("kind", [ModelFailureKind.OVERLOADED, ModelFailureKind.RATE_LIMITED])
def test_all_wait_for_a_provider_without_room_and_it_is_asked_again(kind: ModelFailureKind) -> None:
    noting = Noting()
    model = replying(no_room(kind), answer("done", output_tokens=1))
    hear(LimitedModel(model, noting))
    assert len(model.asked) == 2
    take, back = ("take", MOST), ("settle", MOST, 0)
    assert noting.told == [take, ("overloaded",), back, take, ("settle", MOST, 1)]


def test_a_provider_that_has_no_room_for_ever_is_given_up() -> None:
    model = replying(*[no_room()] * (MAX_OVERLOADS + 1))
    with pytest.raises(ModelError) as caught:
        hear(LimitedModel(model, Noting()))
    assert caught.value.failure is ModelFailureKind.OVERLOADED
    assert len(model.asked) == MAX_OVERLOADS + 1


def test_another_failure_is_the_callers_and_may_have_used_all() -> None:
    for kind, used in ((ModelFailureKind.TIMEOUT, MOST), (ModelFailureKind.REJECTED, 0)):
        noting = Noting()
        with pytest.raises(ModelError):
            hear(LimitedModel(replying(no_room(kind)), noting))
        assert noting.told == [("take", MOST), ("settle", MOST, used)]


def test_who_leaves_in_the_middle_may_have_used_all() -> None:
    noting = Noting()
    asking = LimitedModel(replying(answer("done")), noting).ask(REQUEST)
    next(asking)
    asking.close()
    assert noting.told == [("take", MOST), ("settle", MOST, MOST)]


class _BreaksOff(TalkingModel):
    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        self.asked.append("")
        yield "half"
        raise no_room()


def test_words_that_were_heard_are_not_said_twice() -> None:
    model = _BreaksOff()
    with pytest.raises(ModelError):
        hear(LimitedModel(model, Noting()))
    assert len(model.asked) == 1
