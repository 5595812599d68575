"""The author on loopback: what it answers to a first prompt, a retry, and a rejection."""

import json
from typing import Any
from urllib.request import Request, urlopen

from fallback_tier.outcome import SearchReplace, plan_adapter
from tests.campaigns.own_code.author import REFUSAL, Asked, InTurn, Perfect, plan, serving

EDIT = SearchReplace(path="a.py", old="a", new="b")
FIRST = Asked(prompt="fix it", last="fix it", is_again=False)
AGAIN = Asked(prompt="fix it", last="rejected", is_again=True)
RETRY = Asked(
    prompt='it failed; add "capabilities": ["process"] to the plan', last="", is_again=False
)


def test_the_perfect_author_declares_where_it_is_told_to() -> None:
    author = Perfect("CVE-1", [EDIT])
    assert author.answers(FIRST) == author.answers(AGAIN) == plan("CVE-1", [EDIT])
    assert author.answers(RETRY) == plan("CVE-1", [EDIT], ["process"])
    assert author.answers(RETRY) == REFUSAL


def test_the_perfect_author_has_nothing_else_to_say() -> None:
    author = Perfect("CVE-1", [EDIT])
    assert author.answers(FIRST) != REFUSAL
    assert author.answers(FIRST) == REFUSAL


def test_answers_are_plans() -> None:
    for text in (plan("CVE-1", [EDIT], ["process"]), REFUSAL):
        plan_adapter.validate_json(text)


def test_answers_in_turn_are_told_apart_by_attempt() -> None:
    author = InTurn(["one", "two", "three"])
    messages = [author.answers(asked) for asked in (FIRST, AGAIN, RETRY, RETRY)]
    assert messages == ["one", "two", "three", REFUSAL]
    assert author.given == [[0, 1], [2], []]


def test_the_server_keeps_the_prompt_of_each_attempt() -> None:
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "fix it"}]}
    ]
    rejected = [{"role": "assistant", "content": "no"}, {"role": "user", "content": "again"}]
    with serving(InTurn(["one", "two"])) as server:
        for messages in (turns, turns + rejected):
            body = json.dumps({"model": "m", "messages": messages}).encode()
            with urlopen(Request(f"{server.url}/v1/messages", data=body), timeout=30) as reply:
                assert b"event: message_stop" in reply.read()
    assert server.prompts == ("fix it",)
    assert [asked.last for asked in server.asked] == ["fix it", "again"]
