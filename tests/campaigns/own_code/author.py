"""A model's server on loopback whose author has its answers ready; it keeps every prompt.

It speaks the streamed part of the Messages API that the command uses. What a request is, is told by its
turns: one turn begins an attempt, three ask again for an answer that was rejected.
"""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from fallback_tier.outcome import SearchReplace
from tests.fakes.messages_server import answer
from tests.fakes.serving import listening

#: How a retry is told that it must declare what its edits reach for.
_DECLARE = re.compile(r'"capabilities": (\[[^\]]*\])')

_RATIONALE = "The code that the advisory tells of is changed so that the flaw is gone."

REFUSAL = json.dumps({"action": "refuse", "reason": "There is no other plan."})


def plan(advisory: str, edits: Sequence[SearchReplace], capabilities: Sequence[str] = ()) -> str:
    """A model's answer with these edits."""
    reported: dict[str, Any] = {"action": "source_edit", "rationale": _RATIONALE}
    reported |= {"citations": [advisory], "edits": [edit.model_dump() for edit in edits]}
    return json.dumps(
        {**reported, **({"capabilities": list(capabilities)} if capabilities else {})}
    )


@dataclass(frozen=True)
class Asked:
    """One request: the prompt of its attempt, and whether an answer is asked for again."""

    prompt: str
    last: str
    is_again: bool


class Author(Protocol):
    """Answers requests in the order in which they come."""

    def answers(self, asked: Asked) -> str:
        """The text of the answer."""
        ...


@dataclass
class Perfect:
    """Gives the true fix, and once more with what it must declare where a retry asks for that."""

    advisory: str
    edits: Sequence[SearchReplace]
    attempts: int = 0
    said: str = REFUSAL

    def answers(self, asked: Asked) -> str:
        if asked.is_again:
            return self.said  # whoever is right has nothing else to say
        self.attempts += 1
        wanted = _DECLARE.search(asked.prompt)
        if self.attempts == 1:
            self.said = plan(self.advisory, self.edits)
        elif self.attempts == 2 and wanted is not None:
            self.said = plan(self.advisory, self.edits, json.loads(wanted[1]))
        else:
            self.said = REFUSAL
        return self.said


@dataclass
class InTurn:
    """Gives one answer after the other; ``given``: the numbers of those of each attempt."""

    texts: Sequence[str]
    given: list[list[int]] = field(default_factory=list)
    at: int = 0

    def answers(self, asked: Asked) -> str:
        if not asked.is_again or not self.given:
            self.given.append([])
        if self.at == len(self.texts):
            return REFUSAL
        self.given[-1].append(self.at)
        self.at += 1
        return self.texts[self.at - 1]


@dataclass
class Server:
    """Where it listens, and what it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt of each attempt that asked the model."""
        return tuple(one.prompt for one in self.asked if not one.is_again)


@contextmanager
def serving(author: Author) -> Iterator[Server]:
    """A server for one run of the command."""
    reported = Server()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = _asked(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            with lock:
                reported.asked.append(asked)
                content = answer(author.answers(asked))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(content)))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as reported.url:
        yield reported


def _asked(body: dict[str, Any]) -> Asked:
    turns = [_text(turn["content"]) for turn in body["messages"]]
    return Asked(prompt=turns[0], last=turns[-1], is_again=len(turns) > 1)


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content)
