"""Answers from any server that speaks the Messages API, over the official SDK's stream."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fallback_audit.vocabulary import Provenance
from fallback_plugins.messages_api.failures import Failures
from fallback_plugins.messages_api.schema import enforced
from fallback_tier.errors import ConfigurationError
from fallback_tier.ports import Message, ModelAnswer, ModelRequest

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import MessageParam, OutputConfigParam, TextBlockParam

    from fallback_tier.network import TimeLimit

#: Where the SDK sends requests by default. Named here so that ANTHROPIC_BASE_URL, which the SDK would
#: read by itself, can't redirect a request (and its key) behind our caller's back.
PROVIDER_URL: Final = "https://api.anthropic.com"

#: The SDK's own default: attempts after the first, with exponential back-off (0.5 s to 8 s).
DEFAULT_MAX_RETRIES: Final = 2

#: Seconds that one answer may take, the SDK's own default: 2,048 tokens at 3.5 a second, the slowest
#: local model that is of use.
DEFAULT_TIMEOUT_S: Final = 600.0

#: Places up to which a prompt may be cached: the API takes four, and the system block is one.
MAX_CACHED_TURNS: Final = 3


class ClaudeModel:
    """Implements LanguageModel. One streamed request a call of ``ask``; safe to share among threads.

    ``base_url`` None is the provider itself: then ``api_key`` is required, and the server enforces the
    request's JSON schema. Any other server gets no schema (some ignore it, some refuse it) and no key
    but the one given here. ``enforces_schema`` says otherwise of a server, as a replay of the provider's
    traffic must. ``timeout_s`` is the limit on one whole answer, from the first request on,
    with retries; a wait that the server asks for (at most MAX_RETRY_WAIT_S) is not cut short by it.

    Raises ConfigurationError for the provider without a key, and for what is no http(s) URL.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provenance: Provenance = Provenance.LIVE,
        max_retries: int = DEFAULT_MAX_RETRIES,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        enforces_schema: bool | None = None,
    ) -> None:
        url = _checked(base_url or PROVIDER_URL)
        self._enforces_schema = url == PROVIDER_URL if enforces_schema is None else enforces_schema
        if url == PROVIDER_URL and api_key is None:
            raise ConfigurationError(
                f"Model {model!r} needs a key for {PROVIDER_URL}, and none was given.",
                next_step="Pass an API key, or the base URL of a server that needs none.",
                kind="no_key",
            )
        self._model = model
        self._failures = Failures(url, model, api_key)
        self._provenance = provenance
        self._max_retries = max_retries
        self._timeout_s = timeout_s

    @property
    def model(self) -> str:
        """The model's name, as it is asked for."""
        return self._model

    @property
    def provenance(self) -> Provenance:
        """As given: a replay's model says so."""
        return self._provenance

    def close(self) -> None:
        """There is nothing to release: no connection outlives its exchange."""

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """Ask once. Closing the generator closes the connection: the server need not go on.

        Raises ModelError where no whole answer came: before its first byte the SDK has retried, after
        it nobody does. An error of our own that was raised below the SDK (a cassette that doesn't
        match) passes through unchanged: the server was not unreachable.
        """
        from anthropic import AnthropicError, omit

        from fallback_plugins.messages_api.stream import read_answer
        from fallback_tier.network import TimeLimit

        config = self._output_config(request)
        try:
            with (
                TimeLimit(self._timeout_s) as limit,
                self._client(limit) as client,
                client.messages.stream(
                    model=self._model,
                    max_tokens=request.max_output_tokens,
                    system=[_cached(request.system)],
                    messages=_turns(request.messages),
                    output_config=config or omit,
                ) as stream,
            ):
                return (yield from read_answer(stream, self._failures, limit))
        except AnthropicError as error:
            raise self._failures.of(error) from error

    def _output_config(self, request: ModelRequest) -> "OutputConfigParam":
        config: OutputConfigParam = {}
        if request.answer_schema is not None and self._enforces_schema:
            schema = enforced(request.answer_schema)
            config["format"] = {"type": "json_schema", "schema": schema}
        if request.effort is not None:
            config["effort"] = request.effort.value
        return config

    def _client(self, limit: "TimeLimit") -> "Anthropic":
        from fallback_plugins.messages_api.client import make_client

        return make_client(self._failures, limit, max_retries=self._max_retries)


def _turns(messages: Sequence[Message]) -> "list[MessageParam]":
    """Put cache marks on the last ``MAX_CACHED_TURNS`` marked turns: a later request reads up to one."""
    marked = [place for place, message in enumerate(messages) if message.cache and message.content]
    cached = marked[-MAX_CACHED_TURNS:]
    return [_turn(message, cache=place in cached) for place, message in enumerate(messages)]


def _turn(message: Message, *, cache: bool) -> "MessageParam":
    content = [_cached(message.content)] if cache else message.content
    if message.role == "user":
        return {"role": "user", "content": content}
    return {"role": "assistant", "content": content}


def _cached(text: str) -> "TextBlockParam":
    """Without a ``ttl`` it is kept for five minutes, and costs what the price table says."""
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def _checked(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, an address that is not closed
        usable = False
    if not usable:
        raise ConfigurationError(
            "The model's base URL is not of the form http(s)://host[:port][/path].",
            next_step="Give the address of a Messages API server, without /v1.",
            kind="bad_base_url",
        )
    return base_url.rstrip("/")
