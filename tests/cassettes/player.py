"""Cassettes of the tests, beside this file; the player is the one that the demo ships."""

from contextlib import AbstractContextManager
from pathlib import Path

from fallback_tier.demo.cassette import REPLAY_URL, CassetteMismatch, SentRequest, Tape
from fallback_tier.demo.cassette import use_cassette as _use_cassette

__all__ = ["REPLAY_URL", "CassetteMismatch", "SentRequest", "Tape", "use_cassette"]

CASSETTES = Path(__file__).parent


def use_cassette(name: str | Path) -> AbstractContextManager[Tape]:
    """Play ``tests/cassettes/NAME``: raises where anything else, or less, is sent."""
    return _use_cassette(CASSETTES / name)
