"""Plans from any server that speaks the Messages API, over the official SDK.

The only place that imports ``anthropic``, and only when the first request is made: the import alone
takes longer than a recipe fix. Retries on 429, 5xx and broken connections are the SDK's, bounded.
"""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fallback_audit.errors import FallbackError
from fallback_audit.vocabulary import Provenance
from fallback_plugins.claude.parse import parse_plan, well_formed
from fallback_tier.errors import ConfigurationError
from fallback_tier.outcome import Plan
from fallback_tier.ports import Message as Turn
from fallback_tier.ports import PlanAnswer, PlanRequest, Usage

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message, MessageParam, OutputConfigParam
    from httpx2 import Request

#: Where the SDK sends requests by default. Named here so that ANTHROPIC_BASE_URL, which the SDK would
#: read by itself, can't redirect a request (and its key) behind our caller's back.
PROVIDER_URL: Final = "https://api.anthropic.com"

#: Sent to other servers in place of a key: the SDK insists on one, local servers ignore it.
PLACEHOLDER_KEY: Final = "no-key"

#: The SDK's own default: attempts after the first, with exponential back-off (0.5 s to 8 s).
DEFAULT_MAX_RETRIES: Final = 2

#: Seconds that one answer may take, the SDK's own default: 2,048 tokens at 3.5 a second, the slowest
#: local model that is of use.
DEFAULT_TIMEOUT_S: Final = 600.0

#: Seconds to connect. A server that is there answers at once.
CONNECT_TIMEOUT_S: Final = 5.0

#: What may leave for a server that we have no key for, beside the SDK's ``x-stainless-*``. The SDK adds
#: ANTHROPIC_CUSTOM_HEADERS to every request, and they may hold credentials meant for another server.
_HEADERS_WITHOUT_KEY: Final = frozenset(
    {"accept", "accept-encoding", "anthropic-version", "connection", "content-length"}
    | {"content-type", "host", "user-agent"}
)

_CUT_SHORT: Final = frozenset({"max_tokens", "model_context_window_exceeded"})


class ClaudeAuthor:
    """Implements PlanAuthor. One request a call of ``draft``, not streamed.

    ``base_url`` None is the provider itself: then ``api_key`` is required, and the server enforces the
    plan's JSON schema. Any other server gets no schema (some ignore it, some refuse it) and no key but
    the one given here. Either way the answer is parsed tolerantly and validated strictly.

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
    ) -> None:
        self._url = _checked(base_url or PROVIDER_URL)
        self._enforces_schema = self._url == PROVIDER_URL
        if self._enforces_schema and api_key is None:
            raise ConfigurationError(
                f"Model {model!r} needs a key for {PROVIDER_URL}, and none was given.",
                next_step="Pass an API key, or the base URL of a server that needs none.",
            )
        self._model = model
        self._key = api_key
        self._provenance = provenance
        self._max_retries = max_retries
        self._timeout_s = timeout_s
        self._made: Anthropic | None = None

    @property
    def model(self) -> str:
        """The model's name, as it is asked for."""
        return self._model

    @property
    def provenance(self) -> Provenance:
        """As given: a replay's author says so."""
        return self._provenance

    def draft(self, request: PlanRequest) -> PlanAnswer:
        """Ask once. Raises ModelError where no answer came, after the SDK's retries.

        An error of our own that was raised below the SDK (a cassette that doesn't match) passes
        through unchanged: the server was not unreachable.
        """
        from anthropic import AnthropicError

        from fallback_plugins.claude.failures import model_error, not_an_answer

        try:
            answer = self._send(request)
        except AnthropicError as error:
            own = _own_error(error)
            raise own or model_error(error, self._url, self._model) from error
        except ValueError as error:  # the SDK decodes a 200's body without catching
            raise not_an_answer(self._url) from error
        return _read(answer, self._url)

    def _send(self, request: PlanRequest) -> "Message":
        from anthropic import omit

        return self._client().messages.create(
            model=self._model,
            max_tokens=request.max_output_tokens,
            system=[
                {"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}
            ],
            messages=[_turn(message) for message in request.messages],
            output_config=_output_config() if self._enforces_schema else omit,
        )

    def _client(self) -> "Anthropic":
        if self._made is None:
            import httpx2
            from anthropic import Anthropic, DefaultHttpxClient

            timeout = httpx2.Timeout(self._timeout_s, connect=CONNECT_TIMEOUT_S)
            self._made = Anthropic(
                api_key=self._key or PLACEHOLDER_KEY,
                base_url=self._url,
                max_retries=self._max_retries,
                timeout=timeout,
                # A redirect would carry the key and the prompt to a host that nobody chose.
                http_client=DefaultHttpxClient(
                    timeout=timeout,
                    follow_redirects=False,
                    event_hooks={} if self._key else {"request": [_strip_headers]},
                ),
            )
        return self._made


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
        )
    return base_url.rstrip("/")


def _turn(message: Turn) -> "MessageParam":
    if message.role == "user":
        return {"role": "user", "content": message.content}
    return {"role": "assistant", "content": message.content}


def _strip_headers(request: "Request") -> None:
    for name in list(request.headers):
        if name not in _HEADERS_WITHOUT_KEY and not name.startswith("x-stainless-"):
            del request.headers[name]
    request.headers["authorization"] = f"Bearer {PLACEHOLDER_KEY}"


def _output_config() -> "OutputConfigParam":
    from fallback_plugins.claude.schema import plan_schema

    return {"format": {"type": "json_schema", "schema": plan_schema()}}


def _own_error(error: BaseException) -> FallbackError | None:
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, FallbackError):
            return cause
        cause = cause.__cause__
    return None


def _read(answer: "Message", url: str) -> PlanAnswer:
    """The SDK doesn't validate a 200's body, so nothing of it is taken for granted."""
    from fallback_plugins.claude.failures import not_an_answer

    try:
        text = well_formed("".join(block.text for block in answer.content if block.type == "text"))
        stop_reason = answer.stop_reason or "unknown"
        usage = Usage(
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            cache_read_tokens=answer.usage.cache_read_input_tokens or 0,
            cache_write_tokens=answer.usage.cache_creation_input_tokens or 0,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise not_an_answer(url) from error
    plan, problems = _judge(text, stop_reason, usage.output_tokens)
    return PlanAnswer(text=text, plan=plan, problems=problems, usage=usage, stop_reason=stop_reason)


def _judge(text: str, stop_reason: str, output_tokens: int) -> tuple[Plan | None, tuple[str, ...]]:
    """A cut answer is never used, however whole its beginning looks: what was cut is unknown."""
    if stop_reason in _CUT_SHORT:
        cut = f"The answer was cut after {output_tokens:,} tokens ({stop_reason})"
        return None, (f"{cut}: give a shorter one, with fewer and smaller edits.",)
    if stop_reason == "refusal":
        ended = "The model's safety system ended the answer (refusal)"
        return None, (f"{ended}: give a plan, or one with the action refuse.",)
    return parse_plan(text)
