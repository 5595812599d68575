"""The scripted author: answers in order, labelled, and an error at the end of the script."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import CallType, Provenance
from fallback_plugins.claude.scripted import ScriptedAuthor, load_script
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.outcome import Refuse
from fallback_tier.ports import Message, PlanRequest

PLAN = {"action": "refuse", "reason": "no"}


def request(text: str) -> PlanRequest:
    return PlanRequest(
        call_type=CallType.AUTHOR,
        system="You fix.",
        messages=(Message(role="user", content=text),),
        max_output_tokens=10,
    )


def test_answers_in_order_and_remembers_what_was_asked() -> None:
    author = ScriptedAuthor([PLAN, "rubbish", Refuse(reason="no")])
    first, second, third = (author.draft(request(text)) for text in "abc")
    assert first.plan == third.plan == Refuse(reason="no")
    assert second.plan is None
    assert second.problems
    assert second.text == "rubbish"
    assert [asked.messages[0].content for asked in author.requests] == ["a", "b", "c"]


def test_is_labelled_as_a_script() -> None:
    author = ScriptedAuthor([])
    assert (author.model, author.provenance) == ("scripted", Provenance.SCRIPTED)


def test_an_exhausted_script_raises() -> None:
    author = ScriptedAuthor([PLAN])
    author.draft(request("a"))
    with pytest.raises(ModelError, match=r"1 answer.*request 2"):
        author.draft(request("b"))
    assert len(author.requests) == 2


def test_loads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps([PLAN, "text"]), encoding="utf-8")
    author = load_script(path)
    assert author.draft(request("a")).plan == Refuse(reason="no")
    assert author.draft(request("b")).text == "text"


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"{", "not JSON"), (b"\xff", "not JSON"), (b"{}", "not a list"), (b"[1]", "not a list")],
)
def test_a_bad_file_is_a_clear_error(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=why):
        load_script(path)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_script(tmp_path / "none.json")
