"""ClaudeAuthor over real HTTP: a server of our own on loopback, and recorded traffic of a real model."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import CallType, Provenance
from fallback_plugins.claude.author import PLACEHOLDER_KEY, PROVIDER_URL, ClaudeAuthor
from fallback_tier.demo.cassette import CassetteMismatch, replayed_author, use_cassette
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.outcome import Refuse
from fallback_tier.ports import Message, PlanRequest, Usage

KEY = "sk-ant-test-0123456789abcdef"
REQUEST = PlanRequest(
    call_type=CallType.AUTHOR,
    system="You fix.",
    messages=(
        Message(role="user", content="fix it"),
        Message(role="assistant", content="no"),
        Message(role="user", content="again"),
    ),
    max_output_tokens=77,
)
PLAN_TEXT = '{"action": "refuse", "reason": "no"}'


def answer(text: str = PLAN_TEXT, stop_reason: str = "end_turn") -> bytes:
    return json.dumps(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "thinking", "thinking": "?"}, {"type": "text", "text": text}],
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 11,
                "output_tokens": 22,
                "cache_read_input_tokens": 33,
                "cache_creation_input_tokens": None,
            },
        }
    ).encode()


@dataclass
class Server:
    """Answers each request with the next reply, the last one again and again."""

    url: str
    replies: list[tuple[int, bytes, dict[str, str]]] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def reply(self, status: int, body: bytes = b"{}", **headers: str) -> None:
        self.replies.append((status, body, headers))


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            number = min(len(told.seen), len(told.replies)) - 1
            status, content, headers = told.replies[number]
            self.send_response(status)
            kept = {"content-type": "application/json", **headers}
            for name, value in {**kept, "content-length": str(len(content))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Server(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield told
    listener.shutdown()
    thread.join()
    listener.server_close()


def author(server: Server, **options: Any) -> ClaudeAuthor:
    return ClaudeAuthor("some-model", **{"base_url": server.url, "max_retries": 0, **options})


def failure(server: Server, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        author(server, **options).draft(REQUEST)
    return caught.value


# --- What is sent -----------------------------------------------------------------------------------


def test_sends_a_cacheable_system_block_the_turns_and_nothing_else(server: Server) -> None:
    server.reply(200, answer())
    author(server).draft(REQUEST)
    [(path, headers, body)] = server.seen
    assert path == "/v1/messages"
    assert headers["anthropic-version"]
    assert body == {
        "model": "some-model",
        "max_tokens": 77,
        "system": [{"type": "text", "text": "You fix.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "fix it"},
            {"role": "assistant", "content": "no"},
            {"role": "user", "content": "again"},
        ],
    }


def test_the_provider_is_asked_to_enforce_the_schema(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider itself is never called: its address is replaced by the local server's."""
    monkeypatch.setattr("fallback_plugins.claude.author.PROVIDER_URL", server.url)
    server.reply(200, answer())
    ClaudeAuthor("m", api_key=KEY).draft(REQUEST)
    [(_, headers, body)] = server.seen
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert body["output_config"]["format"]["schema"]["required"] == ["plan"]


def test_no_key_of_the_environment_reaches_another_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"x-gateway: {KEY}\nAuthorization: {KEY}")
    server.reply(200, answer())
    author(server).draft(REQUEST)
    [(_, headers, _)] = server.seen
    assert headers["authorization"] == f"Bearer {PLACEHOLDER_KEY}"
    assert KEY not in str(headers)


def test_a_key_that_is_given_is_sent(server: Server) -> None:
    server.reply(200, answer())
    author(server, api_key=KEY).draft(REQUEST)
    assert server.seen[0][1]["authorization"] == f"Bearer {KEY}"


def test_the_environment_does_not_choose_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere.invalid")
    assert str(ClaudeAuthor("m", api_key=KEY)._client().base_url).rstrip("/") == PROVIDER_URL


@pytest.mark.parametrize("base_url", [None, PROVIDER_URL, PROVIDER_URL + "/"])
def test_the_provider_without_a_key_is_refused_at_once(
    base_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with pytest.raises(ConfigurationError, match="needs a key"):
        ClaudeAuthor("m", base_url=base_url)


# --- What comes back --------------------------------------------------------------------------------


def test_an_answer_is_read_with_its_usage(server: Server) -> None:
    server.reply(200, answer())
    read = author(server).draft(REQUEST)
    assert read.plan == Refuse(reason="no")
    assert read.text == PLAN_TEXT
    assert read.stop_reason == "end_turn"
    assert read.usage == Usage(input_tokens=11, output_tokens=22, cache_read_tokens=33)


@pytest.mark.parametrize(
    ("stop_reason", "said"),
    [
        ("max_tokens", "cut after 22 tokens"),
        ("model_context_window_exceeded", "cut after 22 tokens"),
        ("refusal", "safety system"),
    ],
)
def test_an_answer_that_was_ended_early_is_never_a_plan(
    server: Server, stop_reason: str, said: str
) -> None:
    server.reply(200, answer(stop_reason=stop_reason))
    read = author(server).draft(REQUEST)
    assert read.plan is None
    assert said in read.problems[0]
    assert read.stop_reason == stop_reason


@pytest.mark.parametrize("text", ["", "no plan here"])
def test_an_answer_without_a_plan_has_problems(server: Server, text: str) -> None:
    server.reply(200, answer(text))
    assert author(server).draft(REQUEST).problems


@pytest.mark.parametrize(
    "body",
    [
        b"<html>hello</html>",
        b"not json",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"content": "x"}',
        b'{"content": [1], "usage": {}}',
        b'{"content": [], "usage": {"input_tokens": "many", "output_tokens": 1}}',
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
def test_a_body_that_is_no_answer_is_a_model_error(
    server: Server, body: bytes, content_type: str
) -> None:
    server.reply(200, body, content_type=content_type)
    assert "not a Messages API answer" in failure(server).problem


# --- What fails -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "problem", "next_step"),
    [
        (400, "answered 400: the server's words", "check the model's name"),
        (401, "answered 401", "Check the API key"),
        (403, "answered 403", "ask for access"),
        (404, "does not know the model 'some-model'", "ends before /v1"),
        (413, "answered 413", "too large"),
        (418, "answered 418", "refused the request"),
        (429, "too many requests", "rate limit"),
        (500, "answered 500", "try again later"),
        (529, "answered 529", "try again later"),
        (307, "answered 307", "Redirects are not followed"),
    ],
)
def test_a_status_says_what_happened_and_what_to_do(
    server: Server, status: int, problem: str, next_step: str
) -> None:
    body = {"type": "error", "error": {"type": "x", "message": f"the server's words, {KEY}"}}
    server.reply(status, json.dumps(body).encode(), location="http://elsewhere.invalid/")
    error = failure(server, api_key=KEY)
    assert problem in error.problem
    assert server.url.removeprefix("http://") in error.problem
    assert next_step in error.next_step
    assert KEY not in str(error)
    assert len(server.seen) == 1


def test_the_sdk_retries_and_gives_up(server: Server) -> None:
    server.reply(429, b"{}", retry_after_ms="1")
    assert "429" in failure(server, max_retries=2).problem
    assert len(server.seen) == 3


def test_a_retry_that_succeeds_is_an_answer(server: Server) -> None:
    server.reply(529, b"{}", retry_after_ms="1")
    server.reply(200, answer())
    assert author(server, max_retries=1).draft(REQUEST).plan is not None


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_unreachable_server_is_named_by_host_and_port() -> None:
    port = closed_port()
    away = ClaudeAuthor("m", base_url=f"http://user:{KEY}@127.0.0.1:{port}/x", max_retries=0)
    with pytest.raises(ModelError) as caught:
        away.draft(REQUEST)
    assert f"127.0.0.1:{port} can't be reached" in caught.value.problem
    assert KEY not in str(caught.value)


def test_a_server_that_never_answers_is_a_timeout() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        silent = ClaudeAuthor("m", base_url=url, max_retries=0, timeout_s=0.2)
        with pytest.raises(ModelError, match="did not answer in time"):
            silent.draft(REQUEST)


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/", "http://[::1", "http://a:b/"])
def test_a_base_url_that_is_none_is_a_clear_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not of the form"):
        ClaudeAuthor("m", base_url=url)


def test_nothing_heavy_is_imported_before_the_first_request() -> None:
    code = (
        "import sys; from fallback_plugins.claude.author import ClaudeAuthor;"
        "from fallback_plugins.claude.scripted import ScriptedAuthor;"
        "import fallback_tier.demo.cassette; ClaudeAuthor('m', base_url='http://localhost');"
        "sys.exit(not {'anthropic', 'httpx2', 'vcr', 'yaml'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Recorded traffic -------------------------------------------------------------------------------


def record(server: Server, path: Path) -> None:
    server.reply(200, answer(), set_cookie="session=secret", request_id="r1")
    with use_cassette(path, record=True, provenance={"model": "some-model"}):
        author(server, api_key=KEY).draft(REQUEST)


def test_a_recording_replays_and_keeps_no_secret(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    record(server, path)
    stored = path.read_text(encoding="utf-8")
    for secret in (KEY, "session=secret", "authorization", "user-agent", "127.0.0.1", "r1"):
        assert secret not in stored.lower()
    with replayed_author(path) as replayed:
        assert replayed.provenance is Provenance.REPLAYED
        assert replayed.model == "some-model"
        assert replayed.draft(REQUEST).plan == Refuse(reason="no")
    assert len(server.seen) == 1


def test_requests_are_those_of_this_run(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    record(server, path)
    with use_cassette(path) as tape:
        assert not tape.requests
        ClaudeAuthor("some-model", base_url="http://other.invalid", max_retries=0).draft(REQUEST)
    assert [request.prompt for request in tape.requests] == ["You fix.\nfix it\nno\nagain"]


def test_another_body_is_a_mismatch_and_not_an_unreachable_server(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    record(server, path)
    other = REQUEST.model_copy(update={"system": "You break."})
    with (
        pytest.raises(CassetteMismatch, match=r"body\.system\[0\]\.text \(character 4\)") as caught,
        replayed_author(path) as replayed,
    ):
        replayed.draft(other)
    assert "'You fix.' was recorded, 'You break.' sent" in caught.value.problem


def test_a_mismatch_that_was_swallowed_is_raised_at_the_end(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    record(server, path)
    other = ClaudeAuthor("another", base_url="http://other.invalid", max_retries=0)
    with pytest.raises(CassetteMismatch), use_cassette(path), suppress(CassetteMismatch):
        other.draft(REQUEST)


def test_a_partly_played_cassette_fails(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    record(server, path)
    with pytest.raises(CassetteMismatch, match="0 of 1"), replayed_author(path):
        pass


def test_a_request_too_many_fails(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    record(server, path)
    with (
        pytest.raises(CassetteMismatch, match="holds 1 requests, and this is request 2"),
        replayed_author(path) as replayed,
    ):
        [replayed.draft(REQUEST) for _ in range(2)]


def test_a_recording_that_fails_leaves_the_old_one(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    record(server, path)
    before = path.read_bytes()
    server.reply(401)
    with pytest.raises(ModelError), use_cassette(path, record=True):
        author(server).draft(REQUEST)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [None, "", "interactions: []\nversion: 1\n", "nonsense"])
def test_no_cassette_is_a_configuration_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError), use_cassette(path):
        pass
