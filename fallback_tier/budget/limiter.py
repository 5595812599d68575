"""A provider's limits per minute, shared by all its callers: the port, and a model that keeps to it.

A single fix has none. A fleet passes one whose state its workers share
(``fallback_tier.fleet.store_limiter``).
"""

from collections.abc import Generator
from typing import Protocol

from fallback_audit.vocabulary import ModelFailureKind, Provenance
from fallback_tier.budget.prices import tokens_at_most
from fallback_tier.errors import ModelError
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest, Usage

#: How often in a row a request is repeated if the provider is overloaded. The limiter decides how long all
#: callers wait in between; each try includes the SDK's own quick retries.
MAX_OVERLOADS = 6

_NO_ROOM = frozenset({ModelFailureKind.OVERLOADED, ModelFailureKind.RATE_LIMITED})


class CallLimiter(Protocol):
    """Requests and tokens per minute. Threads and processes may share it."""

    def take(self, tokens: int) -> None:
        """Wait until one request of at most this many tokens may be sent. Raises ModelError (withheld) if
        that takes too long, FallbackError if the state is unavailable."""
        ...

    def settle(self, reserved: int, used: int) -> None:
        """Report the end of a request: others may use the unused tokens. Never raises: tokens that are not
        released become available within minutes."""
        ...

    def overloaded(self) -> None:
        """Report that the provider is overloaded: all who share this wait. Never raises."""
        ...


class LimitedModel:
    """A LanguageModel that wraps another one with a limiter. Waiting counts as part of a call's time."""

    def __init__(self, model: LanguageModel, limiter: CallLimiter) -> None:
        self._asked = model
        self._limiter = limiter

    @property
    def model(self) -> str:
        """The wrapped model's name."""
        return self._asked.model

    @property
    def provenance(self) -> Provenance:
        """The wrapped model's provenance."""
        return self._asked.provenance

    def close(self) -> None:
        """Close the wrapped model."""
        self._asked.close()

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """Ask the wrapped model; repeat the request if the provider was overloaded before any text
        arrived."""
        max_tokens = tokens_at_most(request)
        overloads = 0
        while True:
            self._limiter.take(max_tokens)
            used, has_text = max_tokens, False  # the usage of a call that breaks off is unknown
            try:
                asking = self._asked.ask(request)
                try:
                    while True:
                        piece = next(asking)
                        has_text = True
                        yield piece
                except StopIteration as end:
                    answer: ModelAnswer = end.value
                    used = tokens_of(answer.usage)
                    return answer
                finally:
                    asking.close()
            except ModelError as error:
                used = max_tokens if error.failure.may_be_billed else 0
                if error.failure not in _NO_ROOM:
                    raise
                self._limiter.overloaded()
                overloads += 1
                if has_text or overloads > MAX_OVERLOADS:
                    raise
            finally:
                self._limiter.settle(max_tokens, used)


def tokens_of(usage: Usage) -> int:
    """Return all tokens of a call, also cached ones: providers count them differently, none counts more."""
    return (
        usage.input_tokens
        + usage.output_tokens
        + usage.cache_read_tokens
        + usage.cache_write_tokens
    )
