"""What a client made of files is asked once in a plan, and again if the question or a registry's word may
be another."""

from dataclasses import dataclass, field, fields, replace

import pytest

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.strategies import resolving
from fallback_plugins.npm.strategies.resolving import Answers
from fallback_plugins.shared.ladder import refused_for
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

FILES = Files(".", {"package.json": "{}"}, "yarn.lock", "lock", {".npmrc": ""}, {"a.tgz": b"a"})


@dataclass
class Client:
    """Appends a line to the lock, or fails. ``asked``: how often."""

    error: RecipeError | None = None
    answers: Answers = field(default_factory=Answers)
    asked: int = 0

    def __call__(self, files: Files = FILES, *question: object) -> Files:
        def ask() -> Files:
            self.asked += 1
            if self.error is not None:
                raise self.error
            return files.with_manifest("package.json", '{"a": 1}').with_lock("lock\nä\udcff")

        return self.answers.once(["yarn", *question], files, ask)


def test_the_same_question_is_asked_once() -> None:
    client = Client()
    first, again = client(FILES, ["left", "1.0.0"]), client(FILES, ["left", "1.0.0"])
    assert (first, client.asked) == (again, 1)
    assert again.lock_text == "lock\nä\udcff"


def test_another_question_is_asked() -> None:
    """Of any field that a project's files have."""
    client = Client()
    others = {
        "folder": "web",
        "manifests": {"package.json": '{"name": "b"}'},
        "lock": "web/yarn.lock",
        "lock_text": "another",
        "settings": {".npmrc": "before=2026-01-01"},
        "archives": {"a.tgz": b"b"},
    }
    assert others.keys() == {one.name for one in fields(Files)}
    client(FILES)
    for name, value in others.items():
        client(replace(FILES, **{name: value}))  # type: ignore[arg-type]
    client(FILES, "left")
    assert client.asked == len(others) + 2


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (BlockerKind.CONFLICT, 1),
        (BlockerKind.NOT_PUBLISHED, 1),
        (BlockerKind.REGISTRY, 2),
        (BlockerKind.CLIENT, 2),
    ],
)
def test_a_refusal_counts_for_the_plan_if_nothing_failed(kind: BlockerKind, asked: int) -> None:
    client = Client(refused_for(Blocker(kind=kind, package="left", constraint="^1.0.0")))
    for _ in range(2):
        with pytest.raises(RecipeError):
            client()
    assert client.asked == asked


def test_what_has_no_room_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "MAX_ANSWERS_BYTES", 0)
    client = Client()
    assert client() == client()
    assert client.asked == 2
