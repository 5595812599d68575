"""Cassettes: replay fails loudly, a recording keeps no secret and says what it is."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from vcr.record_mode import RecordMode

from fallback_audit.vocabulary import Provenance
from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.answers.blocks import plan_schema
from fallback_tier.demo import cassette as module
from fallback_tier.demo.cassette import (
    REPLAY_URL,
    REQUIRED_FACTS,
    CassetteMismatch,
    replayed_author,
    use_cassette,
)
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.ports import Message, ModelRequest
from tests.cassettes.player import CASSETTES
from tests.cassettes.recorder import SCRIPTED_SERVER, record_scripted
from tests.fakes.asking import REQUEST, hear
from tests.fakes.messages_server import Server, answer, messages_server
from tests.kinds import OfKind

ROOT = Path(__file__).parents[2]
KEY = "sk-ant-test-0123456789abcdef"
#: The format of an access key id (the documented example), which is in no list of known values.
FORMAT_OF_A_SECRET = "AKIA" + "IOSFODNN7EXAMPLE"
FACTS = {"model": "some-model", "server": "a test's", "recorded": "2026-01-01"}
RECORDED = sorted([*CASSETTES.rglob("*.yaml"), *(ROOT / "fallback_tier/demo").rglob("*.yaml")])


@pytest.fixture
def server() -> Iterator[Server]:
    with messages_server() as server:
        yield server


def model(server: Server, **options: Any) -> ClaudeModel:
    return ClaudeModel("some-model", **{"base_url": server.url, "max_retries": 0, **options})


def record(server: Server, path: Path, text: str = "hello", **options: Any) -> None:
    server.streams(answer(*text))
    with use_cassette(path, record=True, provenance=FACTS, **options):
        hear(model(server, api_key=KEY))


@pytest.fixture
def path(server: Server, tmp_path: Path) -> Path:
    record(server, tmp_path / "c.yaml")
    return tmp_path / "c.yaml"


# --- Any server may be recorded ---------------------------------------------------------------------


def test_a_gateways_path_is_its_address_and_stays_out(server: Server, tmp_path: Path) -> None:
    """It may be a key, and a replay, which knows no gateway, would not match."""
    path = tmp_path / "c.yaml"
    server.streams(answer("x"))
    with use_cassette(path, record=True, provenance=FACTS):
        hear(ClaudeModel("some-model", base_url=f"{server.url}/gw/{KEY}/v1/to", max_retries=0))
    assert server.seen[0].path == f"/gw/{KEY}/v1/to/v1/messages"
    assert KEY not in path.read_text()
    with replayed_author(path) as replayed:
        assert hear(replayed)[1].text == "x"


@pytest.mark.parametrize("schema", [None, plan_schema()], ids=["none asked for", "asked for"])
def test_traffic_with_a_server_that_enforces_a_schema_replays(
    server: Server, tmp_path: Path, schema: dict[str, Any] | None
) -> None:
    """As the provider's does: the request has it, so that the replay's must."""
    path, request = tmp_path / "c.yaml", REQUEST.model_copy(update={"answer_schema": schema})
    server.streams(answer("x"))
    with use_cassette(path, record=True, provenance=FACTS):
        hear(model(server, enforces_schema=True), request)
    assert ("output_config" in server.seen[0].body) == (schema is not None)
    with replayed_author(path) as replayed:
        assert hear(replayed, request)[1].text == "x"


# --- Replay -----------------------------------------------------------------------------------------


def test_a_stream_replays_piece_by_piece_and_nothing_is_sent(server: Server, path: Path) -> None:
    with replayed_author(path) as replayed:
        assert replayed.provenance is Provenance.REPLAYED
        assert replayed.model == "some-model"
        pieces, heard = hear(replayed)
    assert pieces == list("hello")
    assert heard.text == "hello"
    assert len(server.seen) == 1


def test_playing_can_not_record(server: Server, path: Path) -> None:
    """``none``: what is not in the cassette is sent nowhere, and the file stays as it is."""
    assert module._record_mode(recording=False) is RecordMode.NONE
    before = path.read_bytes()
    with pytest.raises(CassetteMismatch), use_cassette(path):
        hear(model(server), REQUEST.model_copy(update={"max_output_tokens": 1}))
    assert len(server.seen) == 1
    assert path.read_bytes() == before


def test_requests_are_those_of_this_run(path: Path) -> None:
    with use_cassette(path) as tape:
        assert not tape.requests
        hear(ClaudeModel("some-model", base_url="http://other.invalid", max_retries=0))
    assert [request.prompt for request in tape.requests] == ["You fix.\nfix it\nno\nagain"]


def test_the_prompt_of_a_turn_that_is_cached_is_read_too(server: Server, tmp_path: Path) -> None:
    server.streams(answer("x"))
    turns = (Message(role="user", content="cached", cache=True), REQUEST.messages[2])
    with use_cassette(tmp_path / "c.yaml", record=True, provenance=FACTS) as tape:
        hear(model(server), REQUEST.model_copy(update={"messages": turns}))
    assert tape.requests[0].prompt == "You fix.\ncached\nagain"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"system": "You break."}, r"body\.system\[0\]\.text \(character 4\)"),
        ({"messages": REQUEST.messages[:1]}, r"body\.messages"),
        ({"max_output_tokens": 1}, r"body\.max_tokens"),
    ],
)
def test_another_body_is_a_mismatch_and_not_an_unreachable_server(
    path: Path, change: dict[str, Any], place: str
) -> None:
    with pytest.raises(CassetteMismatch, match=place), replayed_author(path) as replayed:
        hear(replayed, REQUEST.model_copy(update=change))


def test_a_mismatch_is_not_retried(path: Path) -> None:
    other = ClaudeModel("another", base_url="http://other.invalid", max_retries=5)
    with pytest.raises(CassetteMismatch), use_cassette(path) as tape:
        hear(other)
    assert len(tape.requests) == 1


def test_a_mismatch_that_was_swallowed_is_raised_at_the_end(path: Path) -> None:
    other = ClaudeModel("another", base_url="http://other.invalid", max_retries=0)
    with pytest.raises(CassetteMismatch), use_cassette(path), suppress(CassetteMismatch):
        hear(other)


def test_a_partly_played_cassette_fails(path: Path) -> None:
    with (
        pytest.raises(CassetteMismatch, check=OfKind("not_all_sent"), match=r"0 .* 1 "),
        replayed_author(path),
    ):
        pass


def test_a_request_too_many_fails(path: Path) -> None:
    with (
        pytest.raises(CassetteMismatch, check=OfKind("request_too_many")),
        replayed_author(path) as replayed,
    ):
        [hear(replayed) for _ in range(2)]


@pytest.mark.parametrize("content", [None, "", "interactions: []\nversion: 1\n", "nonsense"])
def test_no_cassette_is_a_configuration_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError), use_cassette(path):
        pass


# --- Recording --------------------------------------------------------------------------------------


def test_a_recording_keeps_no_header_that_is_not_listed(path: Path) -> None:
    stored = path.read_text(encoding="utf-8").lower()
    for secret in (KEY, "authorization", "user-agent", "127.0.0.1", "x-stainless", "connection"):
        assert secret not in stored
    assert "content-type" in stored


def test_the_place_of_a_local_model_is_not_recorded(server: Server, tmp_path: Path) -> None:
    reported = answer("x").replace(b'"model": "m"', b'"model": "/home/somebody/models/m.gguf"')
    server.streams(reported)
    with use_cassette(tmp_path / "c.yaml", record=True, provenance=FACTS):
        hear(model(server))
    stored = (tmp_path / "c.yaml").read_text(encoding="utf-8")
    assert "m.gguf" in stored
    assert "somebody" not in stored


def refused(server: Server, path: Path, request: ModelRequest, text: str, **known: Any) -> None:
    """The old cassette must stay, and the message must not show what it is about."""
    before = path.read_bytes()
    server.replies.clear()
    server.streams(answer(*text))
    with (
        pytest.raises(ConfigurationError, check=OfKind("secret")) as caught,
        use_cassette(path, record=True, provenance=FACTS, **known),
    ):
        hear(model(server), request)
    assert path.read_bytes() == before
    assert FORMAT_OF_A_SECRET not in str(caught.value)


def asking(text: str) -> ModelRequest:
    return REQUEST.model_copy(update={"messages": (Message(role="user", content=text),)})


def test_a_prompt_that_shows_a_secret_is_not_written(server: Server, path: Path) -> None:
    refused(server, path, asking(f'key = "{FORMAT_OF_A_SECRET}"'), "x")


def test_an_answer_that_shows_one_across_its_pieces_is_not_written(
    server: Server, path: Path
) -> None:
    refused(server, path, REQUEST, f"it is {FORMAT_OF_A_SECRET}.")


def test_a_value_that_this_process_knows_is_not_written(server: Server, path: Path) -> None:
    refused(server, path, asking("say hunter two"), "x", secrets=frozenset({"hunter two"}))


def test_a_recording_that_fails_leaves_the_old_one(server: Server, path: Path) -> None:
    before = path.read_bytes()
    server.replies.clear()
    server.fails(401, "authentication_error", "no")
    with pytest.raises(ModelError), use_cassette(path, record=True, provenance=FACTS):
        hear(model(server))
    assert path.read_bytes() == before


@pytest.mark.parametrize("fact", REQUIRED_FACTS)
def test_a_recording_says_what_it_is(tmp_path: Path, fact: str) -> None:
    facts = {name: value for name, value in FACTS.items() if name != fact}
    with (
        pytest.raises(ConfigurationError, check=OfKind("facts_missing"), match=fact),
        use_cassette(tmp_path / "c.yaml", record=True, provenance=facts),
    ):
        pass


def test_a_scripted_recording_is_labelled_so(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    record_scripted(path, ["hello"], hear, why="a test")
    with use_cassette(path) as tape:
        replayed = ClaudeModel(tape.provenance["model"], base_url=REPLAY_URL, max_retries=0)
        assert hear(replayed)[1].text == "hello"
    assert tape.provenance["server"] == SCRIPTED_SERVER


def test_an_answer_that_nobody_asked_for_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="1 of 2"):
        record_scripted(tmp_path / "c.yaml", ["a", "b"], hear, why="a test")
    assert not (tmp_path / "c.yaml").exists()


# --- What is in the project -------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name)
def test_every_cassette_says_what_it_is_and_shows_no_secret(recorded: Path) -> None:
    from fallback_tier.demo.cassette import secrets_in

    content = yaml.safe_load(recorded.read_text(encoding="utf-8"))
    facts = content["metadata"]["provenance"]
    assert all(facts[fact] for fact in (*REQUIRED_FACTS, "model_sha256"))
    for interaction in content["interactions"]:
        kept = {*interaction["request"]["headers"], *interaction["response"]["headers"]}
        assert {name.lower() for name in kept} <= module.KEPT_HEADERS
        assert interaction["request"]["uri"].startswith(REPLAY_URL)
        for part in (interaction["request"]["body"], interaction["response"]["body"]["string"]):
            assert secrets_in(part, frozenset()) == 0
