"""Which form of an answer is asked for: by the option, and by the kind of model."""

import argparse
import json
import re
from pathlib import Path

import pytest

from fallback_tier.cli.arguments import ANSWER_FORMS
from fallback_tier.cli.main import build_parser
from fallback_tier.cli.options import settings
from fallback_tier.errors import ConfigurationError
from fallback_tier.repo import AnswerForm, Settings, Strategy
from fallback_tier.wiring import Configuration, wire
from fallback_tier.wiring.models import build_leaf
from tests.fakes.answering import AnsweringModel
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fixtures.retry_case import Simulator

#: A line that a grammar of blocks lets an edit quote.
_QUOTED = re.compile(r'^run\d+-\d+ ::= new \| "(.*)\\n" run', re.MULTILINE)


def parsed(*options: str) -> argparse.Namespace:
    return build_parser().parse_args(["fix", "REPO", "--advisory", "FILE", *options])


def form(*options: str) -> AnswerForm:
    return settings(parsed(*options)).answer_form


def test_json_where_nobody_says() -> None:
    """No measurement speaks for another form: who changes a default publishes its figures."""
    assert tuple(AnswerForm) == ANSWER_FORMS
    assert form() is form("--model", "claude") is AnswerForm.JSON
    assert Settings().answer_form is AnswerForm.JSON


def test_blocks_for_a_model_on_this_machine() -> None:
    """ADR-0045 has the figures. Self-RAG asks for edits one by one, in JSON."""
    local = ("--model", "local:m.gguf")
    assert form(*local) is AnswerForm.BLOCKS
    assert form(*local, "--answer-form", "json") is AnswerForm.JSON
    assert form(*local, "--strategy", "self-rag") is AnswerForm.JSON


@pytest.mark.parametrize("model", [(), ("--model", "claude"), ("--model", "local:m.gguf")])
@pytest.mark.parametrize("name", ANSWER_FORMS)
def test_as_it_is_said(model: tuple[str, ...], name: str) -> None:
    assert form(*model, "--answer-form", name) is AnswerForm(name)


def test_another_form_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--answer-form", "yaml")
    assert "--answer-form" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["fix", "R", "--advisory", "F"], ["attempt"], ["eval", "fixes"]]
)
def test_every_command_that_asks_a_model_has_it(command: list[str]) -> None:
    reported = build_parser().parse_args([*command, "--answer-form", "blocks"])
    assert reported.answer_form == "blocks"


def test_self_rag_knows_json_alone(tmp_path: Path) -> None:
    """Said before a store is opened, naming both options."""
    chosen = Settings(strategy=Strategy.SELF_RAG, answer_form=AnswerForm.BLOCKS)
    configuration = Configuration(state_dir=tmp_path / "state", settings=chosen)
    with pytest.raises(ConfigurationError) as error:
        wire(configuration, author=AnsweringModel(lambda _: ""))
    assert "--strategy self-rag" in error.value.problem
    assert "--answer-form blocks" in error.value.problem
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("asked", AnswerForm)
def test_a_schema_goes_with_json_alone(tmp_path: Path, asked: AnswerForm) -> None:
    """A server that enforces one would refuse every answer in blocks."""
    author = AnsweringModel(lambda _: "action: refuse\nreason: no")
    Simulator(tmp_path, settings=Settings(answer_form=asked)).run(author)
    assert {request.answer_schema is None for request in author.requests} == {
        asked is AnswerForm.BLOCKS
    }
    # The same unusable answer again ends the attempt.
    assert len(author.requests) == (1 if asked is AnswerForm.BLOCKS else 2)


@pytest.mark.parametrize("asked", AnswerForm)
@pytest.mark.parametrize("held", [False, True])
def test_a_grammar_goes_with_blocks_to_who_can_hold_an_answer_to_it(
    tmp_path: Path, asked: AnswerForm, held: bool
) -> None:
    """What it lets an edit quote are lines that this prompt shows."""
    author = AnsweringModel(lambda _: "action: refuse\nreason: no")
    Simulator(tmp_path, settings=Settings(answer_form=asked), held_author=held).run(author)
    for request in author.requests:
        wanted = held and asked is AnswerForm.BLOCKS
        assert (request.answer_grammar is not None) == wanted
        for line in _QUOTED.findall(request.answer_grammar or ""):
            assert "| " + json.loads(f'"{line}"') in request.text


@pytest.mark.parametrize(("model", "held"), [("local:m.gguf", True), ("m", False), (None, False)])
def test_a_server_of_ours_can_hold_it(tmp_path: Path, model: str | None, held: bool) -> None:
    configuration = Configuration(state_dir=tmp_path, model=model)
    author, parts = AnsweringModel(lambda _: ""), (MemoryAudit(), MemoryEvidence())
    assert build_leaf(configuration, author, None, None, str, *parts).held_author is held
