"""Whoever can write checkpoints can't have this process make objects of their choice."""

from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from fallback_tier.engines.langgraph.fix import strictly
from fallback_tier.errors import ConfigurationError
from tests.kinds import OfKind

MADE: list[str] = []


@dataclass
class Planted:
    """Making one shows that code was run."""

    name: str

    def __post_init__(self) -> None:
        MADE.append(self.name)


class Cipher:
    """Encrypts nothing."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "none", plaintext

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "none"
        return ciphertext


@pytest.mark.parametrize(
    "serde",
    [
        JsonPlusSerializer(allowed_msgpack_modules=True),
        EncryptedSerializer(Cipher(), JsonPlusSerializer(allowed_msgpack_modules=True)),
    ],
)
def test_no_object_of_a_checkpoints_choice_is_made(serde: Any) -> None:
    planted = serde.dumps_typed({"next": Planted("planted")})
    made = strictly(InMemorySaver(serde=serde))
    assert made is not None
    MADE.clear()
    made.serde.loads_typed(planted)
    assert MADE == []
    # The host's own is as it was.
    serde.loads_typed(planted)
    assert MADE == ["planted"]


def test_the_graphs_own_values_are_read_back() -> None:
    made = strictly(InMemorySaver())
    assert made is not None
    state = {"fix_id": "f", "attempt": 2, "delivered": True}
    assert made.serde.loads_typed(made.serde.dumps_typed(state)) == state


def test_another_serializer_is_refused() -> None:
    class Other:
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            raise NotImplementedError

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            raise NotImplementedError

    with pytest.raises(ConfigurationError, check=OfKind("not_strict")):
        strictly(InMemorySaver(serde=Other()))


def test_none_stays_none() -> None:
    assert strictly(None) is None
