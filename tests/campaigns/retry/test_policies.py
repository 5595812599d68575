"""The study's instruction: what it shows of a product's prompt, and how its fences look."""

import re
from collections.abc import Generator
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest

from fallback_audit.vocabulary import CallType, Provenance
from fallback_eval.retry.calls import CachedModel, Call, Calls, PaidServer, Sampling
from fallback_eval.retry.instruction import StudyInstruction, bare_prefix
from fallback_tier.budget.prices import Price, Prices
from fallback_tier.errors import ModelError
from fallback_tier.ports import EcosystemPlugin, Message, ModelAnswer, ModelRequest, Usage
from fallback_tier.prompt.fence import SourceKind, fence
from fallback_tier.prompt.render import render

NONCE = "0123456789abcdef" * 2


class Plugin:
    """A plugin's part that is asked here: what else it has is passed on."""

    language = "any"

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize(("name", "language"), [("npm", "JavaScript"), ("PyPI", "Python")])
def test_the_instruction_names_its_language_and_one_action(name: str, language: str) -> None:
    plugin = StudyInstruction(cast("EcosystemPlugin", Plugin(name)))
    assert cast("Plugin", plugin).language == "any"
    text = render(plugin.instruction_template(), "system", {"answer_form": "blocks"}, next_step="")
    assert language in text
    assert re.findall(r"^action: (.*)$", text, re.MULTILINE) == ["source_edit"]


def test_an_unknown_ecosystem_has_no_instruction() -> None:
    with pytest.raises(KeyError):
        StudyInstruction(cast("EcosystemPlugin", Plugin("Go"))).instruction_template()


def request() -> ModelRequest:
    code = "def f(a):\n    return a | 1\n\n| table |"
    fenced = fence(code, source_kind=SourceKind.REPOSITORY_SNIPPET, nonce=NONCE)
    return ModelRequest(
        call_type=CallType.AUTHOR,
        system="| stays",
        messages=(Message(role="user", content=f"S1:\n{fenced.text}\n"),),
        max_output_tokens=10,
        nonces=(NONCE,),
    )


def test_code_in_a_fence_keeps_its_own_indentation() -> None:
    bare = bare_prefix(request())
    lines = bare.messages[0].content.splitlines()
    assert lines[2:6] == ["|def f(a):", "|    return a | 1", "|", "|| table |"]
    assert bare.system == "| stays"


def test_a_server_is_asked_without_the_blank_and_the_turns_go_on_with_it(tmp_path: Path) -> None:
    asked: list[ModelRequest] = []

    class Server:
        def answer(self, request: ModelRequest, key: str, sampling: Sampling, seed: int) -> Call:
            asked.append(request)
            return Call(key=key, text="a", stop_reason="end_turn", input_tokens=1, output_tokens=1)

    model = CachedModel("scripted", Calls(tmp_path / "calls"), Server(), Sampling(), 1)
    assert list(model.ask(request())) == ["a"]
    assert asked == [bare_prefix(request())]
    assert model.last_request == request()


class Paid:
    """A model whose every answer has a million tokens."""

    model = "paid"
    provenance = Provenance.LIVE

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        yield "a"
        usage = Usage(input_tokens=600_000, cache_read_tokens=400_000)
        return ModelAnswer(text="answer", usage=usage, stop_reason="end_turn")

    def close(self) -> None:
        """Nothing is held."""


def test_a_paid_model_stops_where_its_sum_is_spent() -> None:
    prices = Prices(Price(Decimal(1), Decimal(1), cache_read=Decimal(1)))
    server = PaidServer(Paid(), prices, Decimal("1.5"))
    for _ in range(2):
        call = server.answer(request(), "0" * 64, Sampling(), 1)
        assert (call.text, call.input_tokens, call.cached_tokens) == ("answer", 10**6, 400_000)
    assert server.spent == 2
    with pytest.raises(ModelError):
        server.answer(request(), "0" * 64, Sampling(), 1)
