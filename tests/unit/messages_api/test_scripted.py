"""The scripted model: answers in order, labelled, and an error at the end of the script."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import Provenance
from fallback_plugins.messages_api.scripted import ScriptedModel, load_script
from fallback_tier.answers.blocks import read_plan
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.outcome import Refuse
from fallback_tier.ports import Message, ModelRequest, Usage
from tests.fakes.asking import REQUEST, hear
from tests.kinds import OfKind

PLAN = {"action": "refuse", "reason": "no"}


def request(text: str) -> ModelRequest:
    return REQUEST.model_copy(update={"messages": (Message(role="user", content=text),)})


def test_answers_in_order_and_remembers_what_was_asked() -> None:
    model = ScriptedModel([PLAN, "rubbish", Refuse(reason="no")])
    first, second, third = (hear(model, request(text))[1] for text in "abc")
    assert read_plan(first)[0] == read_plan(third)[0] == Refuse(reason="no")
    assert second.text == "rubbish"
    assert [asked.messages[0].content for asked in model.requests] == ["a", "b", "c"]


def test_an_answer_is_one_piece_never_cut_into_tokens_that_nobody_sent() -> None:
    pieces, answer = hear(ScriptedModel(["several words, one piece"]))
    assert pieces == [answer.text] == ["several words, one piece"]
    assert (answer.stop_reason, answer.usage, answer.mean_logprob) == ("end_turn", Usage(), None)


def test_an_answer_may_say_what_it_used() -> None:
    usage = {"input_tokens": 7, "output_tokens": 5, "cache_read_tokens": 3}
    model = ScriptedModel([{"answer": PLAN, "usage": usage}, {"answer": "raw", "usage": {}}])
    answer = hear(model)[1]
    assert read_plan(answer)[0] == Refuse(reason="no")
    assert answer.usage == Usage(input_tokens=7, output_tokens=5, cache_read_tokens=3)
    assert hear(model)[1].text == "raw"


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert hear(ScriptedModel(["\ud800x"])) == (["?x"], hear(ScriptedModel(["?x"]))[1])


def test_is_labelled_as_a_script() -> None:
    model = ScriptedModel([])
    assert (model.model, model.provenance) == ("scripted", Provenance.SCRIPTED)


def test_an_exhausted_script_raises() -> None:
    model = ScriptedModel([PLAN])
    hear(model)
    with pytest.raises(ModelError, check=OfKind("script_over"), match=r"\b1 .* 2\b"):
        hear(model)
    assert len(model.requests) == 2


def test_loads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps([PLAN, "text"]), encoding="utf-8")
    model = load_script(path)
    assert read_plan(hear(model)[1])[0] == Refuse(reason="no")
    assert hear(model)[1].text == "text"


@pytest.mark.parametrize(
    ("content", "kind", "value"),
    [
        (b"{", "not_json", "script"),
        (b"\xff", "not_json", "script"),
        (b"{}", "not_a_list", "script"),
        (b"[1]", "not_a_list", "script"),
        (b'[{"answer": "x", "usage": {"input_tokens": "many"}}]', "bad_usage", "input_tokens"),
        (b'[{"answer": "x", "usage": {"input_tokens": -1}}]', "bad_usage", "input_tokens"),
        (b'[{"answer": "x", "usage": {"output_tokens": 1e30}}]', "bad_usage", "output_tokens"),
    ],
)
def test_a_bad_file_is_a_clear_error(tmp_path: Path, content: bytes, kind: str, value: str) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, check=OfKind(kind), match=value):
        load_script(path)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_script(tmp_path / "none.json")
