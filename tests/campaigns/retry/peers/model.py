"""The model of one case: a peer's requests with the study's sampling, counted against a budget, and kept.

A peer in its sandbox reaches it through a Unix socket, as an OpenAI-compatible server. Whatever the peer
asks for, model, sampling and length of an answer are the study's.
"""

import hashlib
import http.client
import json
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from fallback_audit.frozen import Frozen
from fallback_eval.retry.calls import TIMEOUT_S, Call, Calls, Sampling, check_loopback
from fallback_eval.retry.run import MAX_OUTPUT_TOKENS

Messages = Sequence[Mapping[str, Any]]

#: Posts a body to the chat endpoint of a server; returns status and document. Raises OSError, ValueError.
Upstream = Callable[[Mapping[str, Any]], tuple[int, dict[str, Any]]]

#: A request of a peer: its prompts have some ten thousand characters.
_MAX_REQUEST_BYTES: Final = 4_000_000


class Budget(Frozen):
    """What a case may use: as many calls and tokens as the study's fresh-context may, and a time."""

    calls: int = 12
    tokens: int = 21_000
    seconds: float = 600.0


class StoppedError(Exception):
    """The case gets no more answers. Its text: ``calls``, ``tokens``, ``context`` or ``no answer``."""


def llama_server(base_url: str) -> Upstream:
    """Return the chat endpoint of a llama-server of this machine. Raises ConfigurationError for another."""
    url = urlsplit(check_loopback(base_url))

    def post(body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT_S)
        try:
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(body),
                {"content-type": "application/json"},
            )
            response = connection.getresponse()
            document: dict[str, Any] = json.loads(response.read())
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        return response.status, document

    return post


@dataclass
class CaseModel:
    """Answers the requests of one case, one at a time. ``upstream`` None: kept answers alone.

    ``used``: its calls in order; ``stopped``: why it gives no more answers, empty while it does.
    """

    name: str
    calls: Calls
    upstream: Upstream | None
    seed: int
    budget: Budget = field(default_factory=Budget)
    sampling: Sampling = field(default_factory=Sampling)
    used: list[Call] = field(default_factory=list)
    stopped: str = ""
    _asked: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, messages: Messages) -> Call:
        """Return the kept answer, or have the server answer. Raises StoppedError."""
        with self._lock:
            if not self.stopped:
                self.stopped = self._spent()
            if not self.stopped:
                call = self._call(messages)
                if call is not None:
                    self.used.append(call)
                    return call
            raise StoppedError(self.stopped)

    def finish(self) -> None:
        """Give no more answers; wait for the one in progress, which counts."""
        self.stopped = self.stopped or "finished"
        with self._lock:
            pass

    def _spent(self) -> str:
        if len(self.used) >= self.budget.calls:
            return "calls"
        tokens = sum(call.input_tokens + call.output_tokens for call in self.used)
        return "tokens" if tokens >= self.budget.tokens else ""

    def _call(self, messages: Messages) -> Call | None:
        turns = [{"role": one["role"], "content": one["content"]} for one in messages]
        request = [turns, self.name, self.sampling.model_dump(), MAX_OUTPUT_TOKENS]
        digest = _sha256(request)
        self._asked[digest] += 1
        # As the study draws: an equal request of a case gets another seed each time.
        drawn = hashlib.sha256(f"{self.seed} {digest} {self._asked[digest]}".encode()).digest()
        seed = int.from_bytes(drawn[:4], "big") >> 1
        key = _sha256([*request, seed])
        if (kept := self.calls.get(key)) is not None:
            return kept
        if self.upstream is None:
            self.stopped = "no answer"
            return None
        body = {
            "messages": turns,
            "max_tokens": MAX_OUTPUT_TOKENS,
            "seed": seed,
            "cache_prompt": True,
            **self.sampling.model_dump(),
        }
        try:
            status, document = self.upstream(body)
            if status != http.HTTPStatus.OK:
                error = document.get("error")
                kind = error.get("type") if isinstance(error, dict) else None
                too_long = kind == "exceed_context_size_error"
                self.stopped = "context" if too_long else "no answer"
                return None
            call = _call_of(document, key)
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            self.stopped = "no answer"
            return None
        self.calls.add(call)
        return call


def _sha256(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _call_of(document: Mapping[str, Any], key: str) -> Call:
    choice, usage = document["choices"][0], document["usage"]
    timings = document.get("timings") or {}
    return Call(
        key=key,
        text=choice["message"]["content"] or "",
        stop_reason="max_tokens" if choice["finish_reason"] == "length" else "end_turn",
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        cached_tokens=timings.get("cache_n", 0),
        prompt_ms=round(timings.get("prompt_ms", 0)),
        output_ms=round(timings.get("predicted_ms", 0)),
    )


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, model: CaseModel, stop: Path) -> None:
        self.model, self.stop = model, stop
        super().__init__(str(path), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        """Answer one chat completion."""
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MAX_REQUEST_BYTES or not self.path.endswith("/chat/completions"):
            self._send(http.HTTPStatus.NOT_FOUND, {"error": {"message": "only chat completions"}})
            return
        model = self.server.model
        try:
            call = model.answer(json.loads(self.rfile.read(length))["messages"])
        except StoppedError as stopped:
            # A peer would ask again, or wait for a person: it is ended.
            self.server.stop.touch()
            self._send(http.HTTPStatus.BAD_REQUEST, {"error": {"message": str(stopped)}})
        except (ValueError, KeyError, TypeError, AttributeError):
            self._send(http.HTTPStatus.BAD_REQUEST, {"error": {"message": "not a request"}})
        else:
            self._send(http.HTTPStatus.OK, _completion(call, model.name))

    def _send(self, status: int, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Log nothing."""


def _completion(call: Call, model: str) -> dict[str, object]:
    reason = "length" if call.stop_reason == "max_tokens" else "stop"
    message = {"role": "assistant", "content": call.text}
    return {
        "id": call.key[:16],
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": call.input_tokens,
            "completion_tokens": call.output_tokens,
            "total_tokens": call.input_tokens + call.output_tokens,
        },
    }


@contextmanager
def served(model: CaseModel, path: Path, stop: Path) -> Iterator[None]:
    """Serve a case's model at a Unix socket, and finish it. ``stop``: a file that is made when its answers
    end."""
    server = _Server(path, model, stop)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        model.finish()
