"""Record a cassette against the scripted server: for a behaviour that needs a precise answer.

Such a cassette says of itself that no model wrote its answers.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.demo.cassette import use_cassette
from fallback_tier.ports import LanguageModel
from tests.fakes.messages_server import answer, messages_server

#: The model that such a cassette's requests name.
SCRIPTED_MODEL = "scripted-server"

SCRIPTED_SERVER = "scripted: answers written by hand, served by tests/fakes/messages_server.py"


def record_scripted(
    path: Path, answers: Sequence[str], play: Callable[[LanguageModel], object], *, why: str
) -> None:
    """``play`` is run with a model whose answers are these, in order, each streamed in two pieces.

    All of them must be asked for: an answer that nobody read is no recording.
    """
    with messages_server() as server:
        for text in answers:
            middle = len(text) // 2
            server.streams(answer(text[:middle], text[middle:]))
        facts = {
            "model": SCRIPTED_MODEL,
            "model_sha256": "no model",
            "server": SCRIPTED_SERVER,
            "recorded": datetime.now(UTC).date().isoformat(),
            "scrubbed": "headers by allow-list; the server's address replaced",
            "selection": why,
        }
        with use_cassette(path, record=True, provenance=facts):
            play(ClaudeModel(SCRIPTED_MODEL, base_url=server.url, max_retries=0))
            if len(server.seen) != len(answers):
                raise AssertionError(f"{len(server.seen)} of {len(answers)} answers were asked for")
