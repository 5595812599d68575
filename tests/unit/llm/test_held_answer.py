"""What an answer in blocks is held to by its attempt: files that a plan may edit, and what it may cite."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fallback_audit.vocabulary import Capability, FailureKind
from fallback_tier.llm.leaf import _grammar
from fallback_tier.prompt.context import Snippet
from fallback_tier.repo import AnswerForm, Settings
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.unit.prompt.test_builder import advisory

FILES = {
    "app.py": "import os\n",
    "requirements.txt": "vulnerable==1.0\n",
    "tests/test_app.py": "import app\n",
}


@pytest.fixture
def attempt(tmp_path: Path) -> Any:
    repo = context(tmp_path, FILES).model_copy(
        update={"settings": Settings(answer_form=AnswerForm.BLOCKS)}
    )
    snippets = [
        Snippet(id=f"S{number}", path=path, start_line=1, text=text)
        for number, (path, text) in enumerate(FILES.items(), start=1)
    ]
    task = SimpleNamespace(
        repo=repo,
        plugin=FakeEcosystem(),
        advisory=advisory(),
        prior_attempts=(),
        is_own_code=False,
    )
    prompt = SimpleNamespace(snippets=snippets, example_citations=frozenset({"E1"}))
    return SimpleNamespace(task=task, prompt=prompt)


def rules(attempt: Any) -> dict[str, str]:
    grammar = _grammar(attempt)
    assert grammar is not None
    return dict(line.split(" ::= ", 1) for line in grammar.splitlines())


def test_manifests_and_tests_are_not_quoted(attempt: Any) -> None:
    block = rules(attempt)["block"]
    assert "path: app.py" in block
    assert "requirements.txt" not in block
    assert "tests/" not in block


def test_what_is_shown_is_cited(attempt: Any) -> None:
    cited = rules(attempt)["citation"].replace('"', "").split(" | ")
    found = attempt.task.advisory
    assert cited == ["S1", "S2", "S3", "E1", found.id, *found.aliases]


def test_a_dependency_is_raised_where_there_is_one(attempt: Any) -> None:
    assert rules(attempt)["root"] == "edit | bump | refuse"
    attempt.task.is_own_code = True
    assert rules(attempt)["root"] == "edit | refuse"


def test_who_must_declare_can(attempt: Any) -> None:
    """No other answer has the line: a small model filled it in at once (ADR-0045)."""
    assert rules(attempt)["declared"] == '""'
    kind = FailureKind.UNDECLARED_CAPABILITY
    attempt.task.prior_attempts = (SimpleNamespace(failure_kind=kind),)
    assert all(f'"{one}"' in rules(attempt)["declared"] for one in Capability)
