"""Liveness of ClaudeModel: what a server has said is here before it says more, and closing tells it.

No test waits for a clock: the server holds back until the test lets it go.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.llm.calling import exchange
from fallback_tier.ports import ModelAnswer
from tests.fakes.asking import REQUEST, hear
from tests.fakes.messages_server import (
    HANG,
    PATIENCE_S,
    Hold,
    Server,
    answer,
    block,
    block_end,
    messages_server,
    piece,
    start,
    stop,
)


@pytest.fixture
def server() -> Iterator[Server]:
    with messages_server() as server:
        yield server


def model(server: Server, **options: Any) -> ClaudeModel:
    return ClaudeModel("some-model", **{"base_url": server.url, "max_retries": 0, **options})


def test_the_first_piece_is_here_while_the_server_holds_back_the_second(server: Server) -> None:
    hold = Hold()
    server.streams(start() + block() + piece("first"), hold, piece(" second"), block_end() + stop())
    asking = model(server).ask(REQUEST)
    assert next(asking) == "first"
    assert hold.reached.wait(PATIENCE_S)
    assert not hold.released.is_set()
    hold.let_go()
    assert next(asking) == " second"
    with pytest.raises(StopIteration) as end:
        next(asking)
    heard: ModelAnswer = end.value.value
    assert heard.text == "first second"


def test_no_answer_is_returned_before_the_server_has_ended_it(server: Server) -> None:
    """All the text is here; whether it is the whole, only the last event says."""
    hold = Hold()
    server.streams(start() + block() + piece("all of it") + block_end(), hold, stop("max_tokens"))
    asking = model(server).ask(REQUEST)
    assert next(asking) == "all of it"
    hold.let_go()
    with pytest.raises(StopIteration) as end:
        next(asking)
    assert end.value.value.stop_reason == "max_tokens"


def test_closing_the_generator_closes_the_connection(server: Server) -> None:
    server.streams(start() + block() + piece("first"), HANG)
    asking = model(server).ask(REQUEST)
    assert next(asking) == "first"
    assert not server.left.is_set()
    asking.close()
    assert server.left.wait(PATIENCE_S)


def test_nothing_is_sent_before_the_first_piece_is_asked_for(server: Server) -> None:
    server.streams(answer("x"))
    asking = model(server).ask(REQUEST)
    assert not server.seen
    asking.close()
    assert not server.seen


def test_a_model_can_be_asked_again_after_an_answer_was_abandoned(server: Server) -> None:
    one = model(server)
    server.streams(start() + block() + piece("first"), HANG)
    with closing(one.ask(REQUEST)) as asking:
        next(asking)
    server.streams(answer("x"))
    assert hear(one)[1].text == "x"


def test_closing_the_model_is_idempotent_and_asking_opens_it_again(server: Server) -> None:
    one = model(server)
    server.streams(answer("x"))
    one.close()
    for _ in range(2):
        assert hear(one)[1].text == "x"
        one.close()
        one.close()


def test_several_threads_share_a_model_and_each_has_its_own_answer(server: Server) -> None:
    """Both are in flight at once: each is held until the other has been reached."""
    holds = [Hold(), Hold()]
    for name, hold in zip("ab", holds, strict=True):
        server.streams(start() + block() + piece(name), hold, piece(name), block_end() + stop())
    asking = exchange(model(server), [REQUEST, REQUEST])
    first = [next(asking), next(asking)]
    assert {part.text for part in first} == {"a", "b"}
    for hold in holds:
        assert hold.reached.wait(PATIENCE_S)
        hold.let_go()
    with closing(asking):
        while True:
            try:
                next(asking)
            except StopIteration as end:
                arrived = end.value
                break
    assert {one.outcome.text for one in arrived} == {"aa", "bb"}
