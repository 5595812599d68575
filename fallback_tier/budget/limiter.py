"""What a provider allows in a minute, shared by all who ask it: the port, and a model that keeps to it.

A single fix has none. A fleet passes one whose state its workers share
(``fallback_tier.fleet.store_limiter``).
"""

from collections.abc import Generator
from typing import Protocol

from fallback_audit.vocabulary import ModelFailureKind, Provenance
from fallback_tier.budget.prices import tokens_at_most
from fallback_tier.errors import ModelError
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest, Usage

#: How often in a row a request is sent again to a provider that has no room. The limiter decides how long
#: everybody waits in between; the SDK's own quick retries are inside each.
MAX_OVERLOADS = 6

_NO_ROOM = frozenset({ModelFailureKind.OVERLOADED, ModelFailureKind.RATE_LIMITED})


class CallLimiter(Protocol):
    """Requests and tokens a minute. Threads and processes may share it."""

    def take(self, tokens: int) -> None:
        """Wait until one request of at most this many tokens may be sent. Raises ModelError (withheld)
        where that takes too long, FallbackError where nobody knows."""
        ...

    def settle(self, reserved: int, used: int) -> None:
        """It has ended: what was not used may be used by others. Never raises: what is not given back
        comes back by itself within minutes."""
        ...

    def overloaded(self) -> None:
        """The provider has no room: all who share this wait. Never raises."""
        ...


class LimitedModel:
    """Implements LanguageModel by another one, behind a limiter. Waiting is part of a call's time."""

    def __init__(self, model: LanguageModel, limiter: CallLimiter) -> None:
        self._asked = model
        self._limiter = limiter

    @property
    def model(self) -> str:
        """The other's."""
        return self._asked.model

    @property
    def provenance(self) -> Provenance:
        """The other's."""
        return self._asked.provenance

    def close(self) -> None:
        """The other is closed."""
        self._asked.close()

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """As the other one asks; sent again where the provider had no room and no word was heard."""
        most = tokens_at_most(request)
        overloads = 0
        while True:
            self._limiter.take(most)
            used, heard = most, False  # of a call that breaks off nobody knows what it used
            try:
                asking = self._asked.ask(request)
                try:
                    while True:
                        piece = next(asking)
                        heard = True
                        yield piece
                except StopIteration as end:
                    answer: ModelAnswer = end.value
                    used = tokens_of(answer.usage)
                    return answer
                finally:
                    asking.close()
            except ModelError as error:
                used = most if error.failure.may_be_billed else 0
                if error.failure not in _NO_ROOM:
                    raise
                self._limiter.overloaded()
                overloads += 1
                if heard or overloads > MAX_OVERLOADS:
                    raise
            finally:
                self._limiter.settle(most, used)


def tokens_of(usage: Usage) -> int:
    """All tokens of a call, cached ones too: providers count them differently, and none counts more."""
    return (
        usage.input_tokens
        + usage.output_tokens
        + usage.cache_read_tokens
        + usage.cache_write_tokens
    )
