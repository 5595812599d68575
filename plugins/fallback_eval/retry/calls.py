"""Model calls by the digest of their request: asked once, kept in a file, found again without weights.

``Calls`` is that file. ``CachedModel`` is the language model of one case: it looks a request up, and asks a
``Server`` only for one that is new. Without a server, a request that is new raises ModelError.
"""

import hashlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import ModelFailureKind, Provenance
from fallback_eval.campaign import AppendedRows
from fallback_eval.retry.instruction import bare_prefix
from fallback_plugins.messages_api.local import grammar_of
from fallback_tier.budget.prices import Prices
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest, Usage

#: One answer of a small model with one thread of a busy machine.
TIMEOUT_S: Final = 1_800.0


class Sampling(Frozen):
    """How an answer is drawn. At temperature 0 blind resampling would be no policy."""

    temperature: float = 0.4
    top_p: float = 0.95
    top_k: int = 40


class Call(Frozen):
    """An answered request. ``key``: see ``call_key``. Tokens of the prompt are counted whole;
    ``cached_tokens``: those of them that the server did not evaluate again."""

    key: Digest
    text: str
    stop_reason: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    prompt_ms: float = 0
    output_ms: float = 0

    @property
    def seconds(self) -> float:
        """Return what the server took."""
        return (self.prompt_ms + self.output_ms) / 1_000


CALLS: Final = AppendedRows(Call, key=lambda call: call.key)


def call_key(request: ModelRequest, model: str, sampling: Sampling, seed: int) -> str:
    """Return the SHA-256 of all that an answer follows from."""
    facts = [request.key(model), request.answer_grammar, sampling.model_dump(), seed]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class Calls:
    """The answered requests of a file. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls = CALLS.read(path)
        self._lock = threading.Lock()

    def get(self, key: str) -> Call | None:
        """Return the call of a key, if it was made."""
        return self._calls.get(key)

    def add(self, call: Call) -> None:
        """Keep a call; it is durable when this returns. Raises OSError."""
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            CALLS.add(call, self._path)
            self._calls[call.key] = call


class Server(Protocol):
    """What answers a request that was not made before."""

    def answer(self, request: ModelRequest, key: str, sampling: Sampling, seed: int) -> Call:
        """Return the answer. Raises ModelError."""
        ...


@dataclass(frozen=True)
class LlamaServer:
    """A running llama-server of this machine.

    Its chat endpoint takes a grammar and a seed with each request, which ``/v1/messages`` does not, so one
    server keeps the cached prefix of all prompts.
    """

    base_url: str

    def answer(self, request: ModelRequest, key: str, sampling: Sampling, seed: int) -> Call:
        """Return the answer. Raises ModelError."""
        messages = [{"role": "system", "content": request.system}]
        messages += [{"role": one.role, "content": one.content} for one in request.messages]
        body: dict[str, Any] = {
            "messages": messages,
            "max_tokens": request.max_output_tokens,
            "seed": seed,
            "cache_prompt": True,
            **sampling.model_dump(),
        }
        if request.answer_schema is not None:
            body["grammar"] = grammar_of(request.answer_schema)
        elif request.answer_grammar is not None:
            body["grammar"] = request.answer_grammar
        document = self._post(body)
        try:
            choice, usage = document["choices"][0], document["usage"]
            timings = document["timings"]
            return Call(
                key=key,
                text=choice["message"]["content"] or "",
                stop_reason="max_tokens" if choice["finish_reason"] == "length" else "end_turn",
                input_tokens=usage["prompt_tokens"],
                output_tokens=usage["completion_tokens"],
                cached_tokens=timings.get("cache_n", 0),
                prompt_ms=round(timings["prompt_ms"]),
                output_ms=round(timings["predicted_ms"]),
            )
        except (KeyError, IndexError, TypeError) as error:
            raise _no_answer(f"its answer has no {error}") from error

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        url = urlsplit(self.base_url)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT_S)
        try:
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(body),
                {"content-type": "application/json"},
            )
            response = connection.getresponse()
            content = response.read()
            if response.status != http.HTTPStatus.OK:
                raise _no_answer(f"status {response.status}: {content[:200]!r}")
            document: dict[str, Any] = json.loads(content)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _no_answer(str(error)) from error
        finally:
            connection.close()
        return document


@dataclass
class PaidServer:
    """A model behind the product's client of the Messages API, which is asked nothing once a sum is spent.

    It takes neither a seed nor the sampling of a request: its own hold, and equal requests of two seeds
    are asked twice. ``spent``: dollars so far; one answer may pass the sum.
    """

    model: LanguageModel
    prices: Prices
    max_usd: Decimal
    spent: Decimal = Decimal(0)

    def answer(self, request: ModelRequest, key: str, sampling: Sampling, seed: int) -> Call:
        """Return the answer. Raises ModelError, also where the sum is spent."""
        del sampling, seed  # see above
        if self.spent >= self.max_usd:
            raise _no_answer(f"{self.spent:.2f} of {self.max_usd} dollars are spent")
        began = time.monotonic()
        answer = _whole(self.model.ask(request))
        usage = answer.usage
        self.spent += self.prices.cost(self.model.model, usage) or Decimal(0)
        return Call(
            key=key,
            text=answer.text,
            stop_reason=answer.stop_reason,
            input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cache_read_tokens,
            output_ms=round((time.monotonic() - began) * 1_000),
        )


def _whole(asked: Generator[str, None, ModelAnswer]) -> ModelAnswer:
    while True:
        try:
            next(asked)
        except StopIteration as end:
            answer: ModelAnswer = end.value
            return answer


@dataclass
class CachedModel:
    """Implements LanguageModel for one case. ``used``: its calls, in order.

    A request that a case makes again gets another seed each time; two cases of one ``seed`` get the same
    answer to the same request, so that policies are compared on the same first attempts.
    """

    name: str
    calls: Calls
    server: Server | None
    sampling: Sampling
    seed: int
    used: list[Call] = field(default_factory=list)
    last_request: ModelRequest | None = None
    _asked: Counter[str] = field(default_factory=Counter)

    @property
    def model(self) -> str:
        """Return its name, as recorded."""
        return self.name

    @property
    def provenance(self) -> Provenance:
        """Return whether it can be asked now."""
        return Provenance.REPLAYED if self.server is None else Provenance.LIVE

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """Look the request up, or have it answered, in one piece. Raises ModelError."""
        self.last_request = request
        request = bare_prefix(request)
        content = request.key(self.name)
        self._asked[content] += 1
        drawn = f"{self.seed} {content} {self._asked[content]}"
        seed = int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:4], "big") >> 1
        key = call_key(request, self.name, self.sampling, seed)
        call = self.calls.get(key)
        if call is None:
            if self.server is None:
                raise ModelError(
                    f"No answer to this request is kept ({key[:16]}), and no server is named.",
                    next_step="Name a server (--base-url), or use the version of the tool that made the "
                    "kept answers.",
                    failure=ModelFailureKind.UNREACHABLE,
                    kind="not_kept",
                )
            call = self.server.answer(request, key, self.sampling, seed)
            self.calls.add(call)
        self.used.append(call)
        yield call.text
        usage = Usage(input_tokens=call.input_tokens, output_tokens=call.output_tokens)
        return ModelAnswer(text=call.text, usage=usage, stop_reason=call.stop_reason)

    def close(self) -> None:
        """Nothing is held: connections are one per request."""


def check_loopback(base_url: str) -> str:
    """Return the address of a server of this machine. Raises ConfigurationError for another."""
    url = urlsplit(base_url)
    if url.scheme != "http" or url.hostname not in {"127.0.0.1", "localhost", "::1"}:
        raise ConfigurationError(
            f"{base_url} is not a server of this machine.",
            next_step="Give the address of a running llama-server, such as http://127.0.0.1:8091.",
            kind="not_loopback",
        )
    return base_url


def _no_answer(why: str) -> ModelError:
    return ModelError(
        f"The model's server gave no answer: {why}.",
        next_step="Start it, and run this again: it resumes.",
        failure=ModelFailureKind.UNREACHABLE,
    )
