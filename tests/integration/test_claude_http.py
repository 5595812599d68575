"""ClaudeModel over real HTTP, the SDK and a server of our own on loopback: what is sent, what is read."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fallback_audit.vocabulary import ModelFailureKind
from fallback_plugins.messages_api.model import PLACEHOLDER_KEY, PROVIDER_URL, ClaudeModel
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.network import TimeLimit
from fallback_tier.outcome import plan_adapter
from fallback_tier.ports import Message, Usage
from fallback_tier.repo import Effort
from tests.fakes.asking import REQUEST, hear
from tests.fakes.messages_server import (
    PING,
    Server,
    answer,
    block,
    block_end,
    event,
    message,
    messages_server,
    piece,
    start,
    stop,
)
from tests.kinds import OfKind

KEY = "sk-ant-test-0123456789abcdef"


@pytest.fixture
def server() -> Iterator[Server]:
    with messages_server() as server:
        yield server


def model(server: Server, **options: Any) -> ClaudeModel:
    return ClaudeModel("some-model", **{"base_url": server.url, "max_retries": 0, **options})


# --- What is sent -----------------------------------------------------------------------------------


def test_sends_a_cacheable_system_block_the_turns_and_nothing_else(server: Server) -> None:
    server.streams(answer("x"))
    hear(model(server))
    [seen] = server.seen
    assert seen.path == "/v1/messages"
    assert seen.headers["anthropic-version"]
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.body == {
        "model": "some-model",
        "max_tokens": 77,
        "stream": True,
        "system": [{"type": "text", "text": "You fix.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "fix it"},
            {"role": "assistant", "content": "no"},
            {"role": "user", "content": "again"},
        ],
    }


def cached_turns(server: Server, *marks: bool) -> list[bool]:
    """Which turns were sent with a place to cache up to; every turn's text must have arrived."""
    turns = tuple(
        Message(role="user" if number % 2 == 0 else "assistant", content=f"t{number}", cache=mark)
        for number, mark in enumerate(marks)
    )
    server.streams(answer("x"))
    hear(model(server), REQUEST.model_copy(update={"messages": turns}))
    contents = [turn["content"] for turn in server.seen[-1].body["messages"]]
    for number, content in enumerate(contents):
        cached = {"type": "text", "text": f"t{number}", "cache_control": {"type": "ephemeral"}}
        assert content in (f"t{number}", [cached])
    return [isinstance(content, list) for content in contents]


def test_a_turn_that_is_marked_is_a_place_to_cache_up_to(server: Server) -> None:
    assert cached_turns(server, True, False, False) == [True, False, False]


def test_the_api_takes_four_such_places_so_the_last_turns_have_them(server: Server) -> None:
    assert cached_turns(server, *[True] * 5) == [False, False, True, True, True]


def test_an_empty_turn_is_no_place_to_cache_up_to(server: Server) -> None:
    """The API refuses ``cache_control`` on an empty text."""
    server.streams(answer("x"))
    turns = (Message(role="user", content="", cache=True),)
    hear(model(server), REQUEST.model_copy(update={"messages": turns}))
    assert server.seen[0].body["messages"] == [{"role": "user", "content": ""}]


def test_effort_is_sent_where_it_was_asked_for(server: Server) -> None:
    server.streams(answer("x"))
    server.streams(answer("x"))
    hear(model(server), REQUEST.model_copy(update={"effort": Effort.XHIGH}))
    hear(model(server))
    asked, without = server.seen
    assert asked.body["output_config"] == {"effort": "xhigh"}
    assert "output_config" not in without.body
    keys = {one.key("m") for one in (REQUEST, REQUEST.model_copy(update={"effort": Effort.LOW}))}
    assert len(keys) == 2  # an answer of another effort is not found again


def test_the_provider_is_asked_to_enforce_the_schema(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider itself is never called: its address is replaced by the local server's."""
    monkeypatch.setattr("fallback_plugins.messages_api.model.PROVIDER_URL", server.url)
    server.streams(answer("x"))
    schema = plan_adapter.json_schema()
    hear(ClaudeModel("m", api_key=KEY), REQUEST.model_copy(update={"answer_schema": schema}))
    hear(ClaudeModel("m", api_key=KEY))
    with_schema, without = server.seen
    assert with_schema.headers["authorization"] == f"Bearer {KEY}"
    assert with_schema.body["output_config"]["format"]["type"] == "json_schema"
    assert with_schema.body["output_config"]["format"]["schema"]["required"] == ["answer"]
    assert "output_config" not in without.body


def test_another_server_is_not_asked_to_enforce_it(server: Server) -> None:
    server.streams(answer("x"))
    schema = plan_adapter.json_schema()
    hear(model(server), REQUEST.model_copy(update={"answer_schema": schema}))
    assert "output_config" not in server.seen[0].body


def test_no_key_of_the_environment_reaches_another_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"x-gateway: {KEY}\nAuthorization: {KEY}")
    server.streams(answer("x"))
    hear(model(server))
    assert server.seen[0].headers["authorization"] == f"Bearer {PLACEHOLDER_KEY}"
    assert KEY not in str(server.seen)


def test_a_key_that_is_given_is_sent(server: Server) -> None:
    server.streams(answer("x"))
    hear(model(server, api_key=KEY))
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_the_environment_does_not_choose_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere.invalid")
    client = ClaudeModel("m", api_key=KEY)._client(TimeLimit(1))
    assert str(client.base_url).rstrip("/") == PROVIDER_URL


@pytest.mark.parametrize("base_url", [None, PROVIDER_URL, PROVIDER_URL + "/"])
def test_the_provider_without_a_key_is_refused_at_once(
    base_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with pytest.raises(ConfigurationError, check=OfKind("no_key")):
        ClaudeModel("m", base_url=base_url)


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/", "http://[::1", "http://a:b/"])
def test_a_base_url_that_is_none_is_a_clear_error(url: str) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("bad_base_url")):
        ClaudeModel("m", base_url=url)


def test_nothing_heavy_is_imported_before_the_first_request() -> None:
    code = (
        "import sys; from fallback_plugins.messages_api.model import ClaudeModel;"
        "from fallback_plugins.messages_api.scripted import ScriptedModel;"
        "import fallback_tier.demo.cassette; m = ClaudeModel('m', base_url='http://localhost');"
        "import fallback_plugins.messages_api.model;"
        "from tests.fakes.asking import REQUEST; m.ask(REQUEST);"
        "sys.exit(not {'anthropic', 'httpx2', 'vcr', 'yaml'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- What comes back --------------------------------------------------------------------------------


def test_an_answer_comes_in_pieces_and_with_its_usage(server: Server) -> None:
    server.streams(answer("he", "llo", cache_read_input_tokens=33, cache_creation_input_tokens=44))
    pieces, heard = hear(model(server))
    assert pieces == ["he", "llo"]
    assert heard.text == "hello"
    assert heard.stop_reason == "end_turn"
    assert heard.mean_logprob is None
    assert heard.usage == Usage(
        input_tokens=11, output_tokens=22, cache_read_tokens=33, cache_write_tokens=44
    )


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_why_it_stopped_is_told(server: Server, reason: str) -> None:
    server.streams(answer("half", stop_reason=reason))
    _, heard = hear(model(server))
    assert (heard.text, heard.stop_reason) == ("half", reason)


def test_blocks_that_are_no_text_are_left_out_and_their_tokens_counted(server: Server) -> None:
    thinking = {"type": "thinking_delta", "thinking": "hmm"}
    arguments = {"type": "input_json_delta", "partial_json": '{"a": 1}'}
    server.streams(
        start(),
        block(0, "thinking") + event("content_block_delta", index=0, delta=thinking) + block_end(0),
        block(1, text="be") + piece("gun", 1) + block_end(1),
        block(2, "tool_use", id="t", name="n", input={}),
        event("content_block_delta", index=2, delta=arguments) + block_end(2),
        block(3) + piece(", done", 3) + block_end(3) + stop(output_tokens=500),
    )
    pieces, heard = hear(model(server))
    assert pieces == ["be", "gun", ", done"]
    assert heard.text == "begun, done"
    assert heard.usage.output_tokens == 500


def test_events_of_a_later_version_of_the_api_are_ignored(server: Server) -> None:
    server.streams(start(), event("news", data=[1]), PING, block(), piece("x"), block_end(), stop())
    assert hear(model(server))[1].text == "x"


def test_an_answer_without_text_is_an_empty_answer(server: Server) -> None:
    server.streams(start() + stop("refusal"))
    pieces, heard = hear(model(server))
    assert (pieces, heard.text, heard.stop_reason) == ([], "", "refusal")


def test_a_lone_surrogate_becomes_a_question_mark_in_the_piece_and_in_the_whole(
    server: Server,
) -> None:
    server.streams(answer("a\ud800", "b"))
    pieces, heard = hear(model(server))
    assert pieces == ["a?", "b"]
    assert heard.text == "a?b"


def test_a_server_that_does_not_stream_gives_one_piece(server: Server) -> None:
    server.answers(200, message("hello"))
    pieces, heard = hear(model(server))
    assert pieces == ["hello"]
    assert heard.text == "hello"
    assert heard.usage == Usage(input_tokens=11, output_tokens=22)


NO_ANSWERS: list[Any] = [
    b"<html>hello</html>",
    b"not json",
    b"\xff",
    b"[" * 100_000,
    [],
    None,
    "text",
    {},
    {"type": "error", "error": {"type": "overloaded_error", "message": "no"}},
    {"choices": [{"message": {"content": "x"}}]},
    message(stop_reason=None),
    message(content="x"),
    message(content=[1]),
    message(content=[{"type": "text"}]),
    message(usage={}),
    message(usage=None),
    message(usage={"input_tokens": "many", "output_tokens": 1}),
    message(usage={"input_tokens": -5, "output_tokens": 1}),
    message(usage={"input_tokens": 5, "output_tokens": 2**60}),
]


@pytest.mark.parametrize("body", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
def test_a_body_that_is_no_answer_is_a_model_error(server: Server, body: object) -> None:
    server.answers(200, body)
    with pytest.raises(ModelError, check=OfKind("not_an_answer")) as caught:
        hear(model(server))
    assert caught.value.failure is ModelFailureKind.NOT_AN_ANSWER


NO_STREAMS = [
    b"event: message_start\ndata: {\n\n",
    b"event: message_start\ndata: []\n\n",
    b"event: message_start\ndata: \xff\n\n",
    event("message_start"),
    event("message_start", message={"content": 5}) + block(),
    stop(),
    block() + piece("x") + stop(),
    start() + piece("x") + stop(),
    start() + block() + piece(5) + stop(),  # type: ignore[arg-type]
    start("many") + stop(),
    start(-5) + stop(),
    start(2**60) + stop(),
    start() + stop(output_tokens="many"),
    start() + event("message_delta", delta={}) + event("message_stop"),
    start() + b"event: message_delta\ndata: {\n\n",
]


# The SDK itself may grumble at what it reads.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("sent", NO_STREAMS, ids=range(len(NO_STREAMS)))
def test_a_stream_that_is_no_answer_is_a_model_error(server: Server, sent: bytes) -> None:
    server.streams(sent)
    with pytest.raises(ModelError, check=OfKind("not_an_answer")) as caught:
        hear(model(server))
    assert caught.value.failure is ModelFailureKind.NOT_AN_ANSWER


@pytest.mark.parametrize(("reported", "kept"), [("x" * 1_000, "x" * 64), ("\ud800", "?")])
def test_a_stop_reason_can_be_put_on_record_whatever_a_server_says(
    server: Server, reported: str, kept: str
) -> None:
    server.answers(200, message(stop_reason=reported))
    assert hear(model(server))[1].stop_reason == kept
