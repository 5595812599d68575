"""Replay needs identity: every condition alone is enough to refuse it."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fallback_tier.advisory import parse_advisory
from fallback_tier.attempt.rag import replayable
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import SolvedExample
from tests.fakes.repository import context
from tests.fixtures.examples import WRITTEN
from tests.fixtures.fallback_tier_callable import ADVISORY

CODE = "def read(name):\r\n    return open(name)\r\n"
FILES = {"pkg/app.py": CODE, "pkg/other.py": "x = 1\n", "tests/a.py": "x = 1\n"}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def example(**fields: Any) -> SolvedExample:
    edit = SearchReplace(path="pkg/app.py", old="open(name)", new="open(safe(name))")
    return SolvedExample(
        **{
            "example_id": "e",
            "advisory_id": "OTHER-ID",
            "advisory_text": "text",
            "ecosystem": "PyPI",
            "package": "Vulnerable",
            "edits": (edit,),
            "file_sha256": {"pkg/app.py": sha(CODE), "pkg/other.py": sha("x = 1\n")},
            "provenance": WRITTEN,
            "licence": "MIT",
            **fields,
        }
    )


def edits(path: str, old: str, new: str = "y") -> tuple[SearchReplace, ...]:
    return (SearchReplace(path=path, old=old, new=new),)


def test_the_same_package_and_code_is_replayable(tmp_path: Path) -> None:
    assert replayable(example(), parse_advisory(ADVISORY, "a"), context(tmp_path, FILES))


@pytest.mark.parametrize(
    "fields",
    [
        {"package": "other"},
        {"ecosystem": "npm"},
        {"edits": ()},
        {"edits": edits("pkg/app.py", "name")},
        {"edits": edits("pkg/app.py", "absent")},
        {"edits": edits("pkg/app.py", "open", "open")},
        {"edits": edits("tests/a.py", "x = 1"), "file_sha256": {"tests/a.py": sha("x = 1\n")}},
        {"file_sha256": {"pkg/other.py": sha("x = 1\n")}},
        {"file_sha256": {"pkg/app.py": sha(CODE.replace("\r", ""))}},
        {"file_sha256": {"pkg/app.py": sha(CODE), "pkg/absent.py": sha("")}},
        {"file_sha256": {}},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_anything_less_is_not(tmp_path: Path, fields: dict[str, Any]) -> None:
    advisory = parse_advisory(ADVISORY, "a")
    assert not replayable(example(**fields), advisory, context(tmp_path, FILES))


def test_a_changed_file_that_is_not_edited_counts_too(tmp_path: Path) -> None:
    repo = context(tmp_path, {**FILES, "pkg/other.py": "x = 2\n"})
    assert not replayable(example(), parse_advisory(ADVISORY, "a"), repo)


def test_an_example_makes_no_file() -> None:
    """A replay needs the content that an edit was made on."""
    made = SearchReplace(path="pkg/new.py", old="", new="x = 1\n")
    with pytest.raises(ValidationError, match="has an `old` text"):
        example(edits=(made,))
