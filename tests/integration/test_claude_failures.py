"""Every way in which a request fails is typed, says what to do, and never shows the key or half an answer.

Each failure is served: by a server of our own on loopback, through the real SDK.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from fallback_audit.vocabulary import ModelFailureKind as Kind
from fallback_plugins.messages_api.model import MAX_RETRY_WAIT_S, ClaudeModel
from fallback_tier.errors import ModelError
from tests.fakes.asking import hear
from tests.fakes.endless import PATIENCE_S, Endless, serving
from tests.fakes.messages_server import (
    BREAK,
    HANG,
    PING,
    Repeat,
    Server,
    Step,
    answer,
    block,
    block_end,
    error_event,
    event,
    messages_server,
    piece,
    start,
    stop,
)

KEY = "gateway-key-0123456789abcdef"


@pytest.fixture
def server() -> Iterator[Server]:
    with messages_server() as server:
        yield server


def model(server: Server, **options: Any) -> ClaudeModel:
    return ClaudeModel("some-model", **{"base_url": server.url, "max_retries": 0, **options})


def failure(server: Server, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        hear(model(server, **options))
    assert server.url.removeprefix("http://") in caught.value.problem
    return caught.value


# --- A status ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error_type", "kind", "problem", "next_step"),
    [
        (400, "invalid_request_error", Kind.REJECTED, "answered 400: words", "the model's name"),
        (401, "authentication_error", Kind.UNAUTHORISED, "answered 401", "Check the API key"),
        (402, "billing_error", Kind.UNAUTHORISED, "answered 402", "check its balance"),
        (403, "permission_error", Kind.UNAUTHORISED, "answered 403", "ask for access"),
        (404, "not_found_error", Kind.UNKNOWN_MODEL, "the model 'some-model'", "before /v1"),
        (408, "x", Kind.TIMEOUT, "answered 408", "allow more time"),
        (413, "request_too_large", Kind.CONTEXT_TOO_LONG, "413", "Lower --code-room"),
        (418, "x", Kind.REJECTED, "answered 418", "refused the request"),
        (429, "rate_limit_error", Kind.RATE_LIMITED, "too many requests", "rate limit"),
        (500, "api_error", Kind.SERVER_ERROR, "answered 500", "try again later"),
        (503, "unavailable_error", Kind.SERVER_ERROR, "answered 503", "try again later"),
        (504, "timeout_error", Kind.TIMEOUT, "answered 504", "allow more time"),
        (529, "overloaded_error", Kind.OVERLOADED, "answered 529", "try again later"),
        (529, "x", Kind.OVERLOADED, "answered 529", "try again later"),
        (307, "x", Kind.REJECTED, "answered 307", "Redirects are not followed"),
    ],
)
def test_a_status_says_what_happened_and_what_to_do(
    server: Server, status: int, error_type: str, kind: Kind, problem: str, next_step: str
) -> None:
    server.fails(status, error_type, f"words, {KEY}, sk-ant-1\n.", location="http://x.invalid/")
    error = failure(server, api_key=KEY)
    assert error.failure is kind
    assert problem in error.problem
    assert next_step in error.next_step
    assert "words, [key], [key]" in error.problem
    assert KEY not in str(error)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 9_000,
                    "n_ctx": 8_192,
                }
            },
        ),
        (400, {"error": {"message": "input length and `max_tokens` exceed context limit: 9 > 8"}}),
        (400, {"message": "This model's maximum context length is 4096 tokens."}),
        (400, {"error": "the input exceeds the context length"}),
        (413, b"<html>Request Entity Too Large</html>"),
    ],
)
def test_a_prompt_that_does_not_fit_is_known_by_any_servers_words(
    server: Server, status: int, body: object
) -> None:
    server.answers(status, body)
    error = failure(server)
    assert error.failure is Kind.CONTEXT_TOO_LONG
    assert "--code-room" in error.next_step


@pytest.mark.parametrize("body", [b"<html>502</html>", b"", b"\xff", [], {"error": []}, None])
def test_an_error_without_words_is_told_by_its_status(server: Server, body: object) -> None:
    server.answers(502, body)
    error = failure(server)
    assert (error.failure, error.problem) == (
        Kind.SERVER_ERROR,
        f"The server at {server.url.removeprefix('http://')} answered 502.",
    )


def test_a_servers_words_are_bounded(server: Server) -> None:
    server.fails(500, "api_error", "a " * 10_000)
    assert len(failure(server).problem) < 400


# --- Retries ----------------------------------------------------------------------------------------


def test_the_sdk_retries_and_gives_up(server: Server) -> None:
    server.fails(429, "rate_limit_error", "slow down", retry_after_ms="1")
    assert failure(server, max_retries=2).failure is Kind.RATE_LIMITED
    assert len(server.seen) == 3


def test_a_retry_that_succeeds_is_an_answer(server: Server) -> None:
    server.fails(529, "overloaded_error", "busy", retry_after_ms="1")
    server.streams(answer("x"))
    assert hear(model(server, max_retries=1))[1].text == "x"


def test_the_wait_that_a_server_asks_for_is_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    server.fails(429, "rate_limit_error", "slow down", retry_after="7")
    server.streams(answer("x"))
    assert hear(model(server, max_retries=2))[1].text == "x"
    assert waited == [7.0]


@pytest.mark.parametrize("wait", ["86400", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_server_that_asks_for_a_long_wait_is_not_waited_for(
    server: Server, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"would sleep {seconds} s"))
    server.fails(429, "rate_limit_error", "come back tomorrow", retry_after=wait)
    assert failure(server, max_retries=2).failure is Kind.RATE_LIMITED
    assert len(server.seen) == 1
    assert MAX_RETRY_WAIT_S < 86_400


def test_a_wait_beyond_the_exchanges_own_limit_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"would sleep {seconds} s"))
    server.fails(429, "rate_limit_error", "slow down", retry_after="50")
    error = failure(server, max_retries=2, timeout_s=20)
    assert error.failure is Kind.RATE_LIMITED
    assert "asks to wait 50 s, which is more than is left of the 20 s" in error.problem


def test_an_answer_that_broke_off_is_not_asked_for_again(server: Server) -> None:
    """It may have been paid for: what follows is the caller's decision, on its budget."""
    server.streams(start() + block() + piece("half"), BREAK)
    assert failure(server, max_retries=2).failure is Kind.BROKEN_STREAM
    assert len(server.seen) == 1


# --- A stream ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error_type", "kind"),
    [
        ("overloaded_error", Kind.OVERLOADED),
        ("rate_limit_error", Kind.RATE_LIMITED),
        ("timeout_error", Kind.TIMEOUT),
        ("authentication_error", Kind.UNAUTHORISED),
        ("not_found_error", Kind.UNKNOWN_MODEL),
        ("api_error", Kind.SERVER_ERROR),
        ("exceed_context_size_error", Kind.CONTEXT_TOO_LONG),
        ("news_error", Kind.SERVER_ERROR),
    ],
)
def test_an_error_event_in_place_of_an_answer_has_its_kind(
    server: Server, error_type: str, kind: Kind
) -> None:
    server.streams(error_event(error_type, f"so {KEY}") + stop())
    error = failure(server, api_key=KEY)
    assert error.failure is kind
    assert f"ended its answer with an error ({error_type}): so [key]" in error.problem
    assert "retries" not in error.next_step


@pytest.mark.parametrize("error_type", ["overloaded_error", "api_error", "authentication_error"])
@pytest.mark.parametrize("before", [start(), start() + block() + piece("half")])
def test_an_error_event_in_an_answer_that_began_may_be_billed(
    server: Server, error_type: str, before: bytes
) -> None:
    """The prompt was read: whatever the server calls it, nobody learned what it cost."""
    server.streams(before + error_event(error_type, "so") + stop())
    error = failure(server)
    assert error.failure is Kind.BROKEN_STREAM
    assert error.failure.may_be_billed
    assert f"ended its answer with an error ({error_type}): so" in error.problem


def test_an_error_event_without_a_body_is_the_servers_error(server: Server) -> None:
    server.streams(b"event: error\ndata: oops\n\n")
    assert failure(server).failure is Kind.SERVER_ERROR


@pytest.mark.parametrize(
    ("error_type", "words", "shown"),
    [
        (KEY, "so", "an error ([key]): so."),
        ("t" * 10_000, "so", "so."),
        ("t", "a \ud800\x1b[2J b\nc", "an error (t): a [2J b c."),
    ],
    ids=["key", "long", "unprintable"],
)
def test_what_a_server_calls_its_error_is_as_untrusted_as_its_words(
    server: Server, error_type: str, words: str, shown: str
) -> None:
    server.streams(error_event(error_type, words))
    error = failure(server, api_key=KEY)
    assert shown in error.problem
    assert len(error.problem) < 800
    assert str(error).isprintable()
    assert KEY not in str(error)


WHOLE = start() + block() + piece("a whole answer") + block_end() + stop()


@pytest.mark.parametrize(
    "steps",
    [
        (b"",),
        (PING,),
        (start(),),
        (WHOLE.removesuffix(event("message_stop")),),
        (WHOLE[:-1],),
        (WHOLE[:-1], BREAK),
        (start() + block() + piece("half"), BREAK),
        (BREAK,),
        (b'data: {"choices": []}\n\n',),
    ],
    ids=range(9),
)
def test_a_stream_without_its_end_is_never_an_answer(server: Server, steps: tuple[Step]) -> None:
    server.streams(*steps)
    error = failure(server)
    assert error.failure is Kind.BROKEN_STREAM


def test_every_beginning_of_a_stream_but_the_whole_is_no_answer(server: Server) -> None:
    """Cut after each event: the only answer is the one that has its end."""
    events = [part + b"\n\n" for part in WHOLE.split(b"\n\n")[:-1]]
    for count in range(len(events)):
        server.streams(b"".join(events[:count]))
        assert failure(server).failure is Kind.BROKEN_STREAM
    server.streams(b"".join(events))
    assert hear(model(server))[1].text == "a whole answer"


def test_what_follows_the_end_does_no_harm(server: Server) -> None:
    for last in (HANG, BREAK):
        server.streams(WHOLE, last)
        assert hear(model(server))[1].text == "a whole answer"


@pytest.mark.parametrize(
    "last",
    [HANG, Repeat(PING), Repeat(piece("more"))],
    ids=["silence", "pings", "more and more text"],
)
def test_a_limit_on_the_whole_answer_holds_whatever_keeps_coming(
    server: Server, last: Step
) -> None:
    server.streams(start() + block(), last)
    error = failure(server, timeout_s=0.5)
    assert error.failure is Kind.TIMEOUT
    assert "did not finish its answer within 0.5 s" in error.problem
    assert server.left.wait(30)


def test_an_answer_larger_than_any_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallback_plugins.messages_api.model.MAX_ANSWER_BYTES", 10_000)
    server.streams(start() + block(), Repeat(piece("x" * 1_000)))
    assert failure(server).failure.may_be_billed
    assert server.left.wait(30)


# --- What never ends --------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


@pytest.mark.parametrize("status", [b"400", b"404", b"429", b"500", b"302"])
def test_a_failure_whose_body_never_ends_is_told_by_its_status(status: bytes) -> None:
    head = b"HTTP/1.1 " + status + b" No\r\nretry-after-ms: 1\r\n" + CHUNKED
    with serving(head, chunk(b"x" * 65_536)) as endless:
        error = stopped(endless, max_retries=2)
        assert status.decode() in error.problem
        assert endless.sent < 60_000_000  # three times what the kernel's buffers take


@pytest.mark.parametrize(
    "content",
    [b"data: x\n", b"x" * 65_536, PING, piece("x" * 1_000), piece("x" * 1_000)[:-1]],
    ids=["one event", "one line", "pings", "text", "broken text"],
)
@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_an_answer_that_never_ends_does_so_at_the_limit(
    content: bytes, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallback_plugins.messages_api.model.MAX_ANSWER_BYTES", 200_000)
    head = OK.replace(b"text/event-stream", kind) + CHUNKED
    many = chunk(content) * (200_000 // len(content) // 4 + 1)
    with serving(head, many) as endless:
        error = stopped(endless)
        assert "is no answer: it has more than 200,000 bytes" in error.problem
        assert error.failure in {Kind.NOT_AN_ANSWER, Kind.BROKEN_STREAM}


@pytest.mark.parametrize(
    ("head", "forever"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (OK, b"x: y\r\n"),
        (OK + b"x: ", b"y"),
        (OK + CHUNKED, chunk(b"x")),
        (OK + CHUNKED, chunk(PING)),
    ],
    ids=["interim answers", "headers", "one header", "single characters", "pings"],
)
def test_what_drips_ends_when_its_time_is_over(head: bytes, forever: bytes) -> None:
    with serving(head, forever, drip=True) as endless:
        error = stopped(endless, timeout_s=0.4, max_retries=2)
        assert error.failure is Kind.TIMEOUT
        assert "did not finish its answer within 0.4 s" in error.problem
        assert endless.connections == 1


def test_a_failures_body_that_drips_ends_when_its_time_is_over() -> None:
    with serving(b"HTTP/1.1 400 No\r\n" + CHUNKED, chunk(b"x"), drip=True) as endless:
        assert stopped(endless, timeout_s=0.4).failure is Kind.REJECTED


def test_headers_without_end_are_no_answer() -> None:
    with serving(OK, b"x: y\r\n" * 1_000) as endless:
        assert stopped(endless).failure is Kind.BROKEN_STREAM


def test_a_failures_body_that_breaks_off_or_is_badly_packed_is_told_by_its_status() -> None:
    for body in (b"content-length: 10\r\n\r\nx", b"content-encoding: gzip\r\n\r\nno gzip"):
        with serving(b"HTTP/1.1 400 No\r\n" + body) as server:
            assert unending(server).failure is Kind.REJECTED


def unending(server: Endless, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        hear(ClaudeModel("some-model", base_url=server.url, **{"max_retries": 0, **options}))
    return caught.value


def stopped(server: Endless, **options: Any) -> ModelError:
    """The failure; the connection is closed by then, or soon."""
    error = unending(server, **options)
    assert server.left.wait(PATIENCE_S)
    return error
