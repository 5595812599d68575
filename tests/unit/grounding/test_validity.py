"""Validity of plans: each rule has a plan that breaks it alone, and a sentence to act on."""

from pathlib import Path
from typing import Any

import pytest

from fallback_tier.advisory import parse_advisory
from fallback_tier.grounding.validity import MAX_EDIT_BYTES, MAX_EDITS, check_plan
from fallback_tier.outcome import Plan, plan_adapter
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context

ADVISORY = b"""{"id": "TEST-1", "affected": [
  {"package": {"ecosystem": "PyPI", "name": "Vulner.able"}, "ranges": [{"type": "ECOSYSTEM",
    "events": [{"introduced": "1.0"}, {"fixed": "1.4.2"}, {"introduced": "2.0"}, {"fixed": "2.1"}]}]},
  {"package": {"ecosystem": "PyPI", "name": "never-fixed"}, "ranges": [{"type": "ECOSYSTEM",
    "events": [{"introduced": "1.0"}]}]},
  {"package": {"ecosystem": "npm", "name": "elsewhere"}}]}"""

FILES = {"deps.txt": "vulnerable 1.0\n", "src/a.py": "one\ntwo\ntwo\n", "src/b.py": "x\n"}


def problems(root: Path, plan: dict[str, Any]) -> tuple[str, ...]:
    parsed: Plan = plan_adapter.validate_python(plan)
    return check_plan(
        parsed,
        advisory=parse_advisory(ADVISORY, "test"),
        repo=context(root, FILES),
        plugin=FakeEcosystem(),
        snippet_ids=frozenset({"S1", "S2", "S10"}),
        example_ids=frozenset({"E1"}),
    )


def edit(path: str = "src/a.py", old: str = "one", new: str = "1") -> dict[str, str]:
    return {"path": path, "old": old, "new": new}


def source(*edits: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {"action": "source_edit", "edits": edits, **fields}


def bump(version: str, package: str = "vulner-able", **fields: Any) -> dict[str, Any]:
    return {"action": "dependency_bump", "package": package, "version": version, **fields}


@pytest.mark.parametrize(
    "plan",
    [
        source(edit()),
        source(edit(), edit("src/b.py", "x", "y"), citations=["S1", "S10", "E1"]),
        source(edit(), edit(old="1", new="one!")),
        bump("1.4.2"),
        bump("1.5", edits=[edit()]),
        bump("2.1.post1", package="VULNER_able"),
        {"action": "refuse", "reason": "The fix needs a decision."},
    ],
)
def test_valid(tmp_path: Path, plan: dict[str, Any]) -> None:
    assert problems(tmp_path, plan) == ()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (source(edit(), citations=["S3"]), "Citation 'S3' does not exist; those that do: E1, S1"),
        (source(edit(), citations=["E2"]), "'E2'"),
        (source(edit(), citations=["s1"]), "'s1'"),
        (source(edit(old="three")), "Edit 1: The old text of an edit is not in 'src/a.py'"),
        (source(edit(old="two")), "2 times (lines 2, 3)"),
        (source(edit(), edit(old="one", new="uno")), "Edit 2: The old text"),
        (source(edit(new="one")), "are the same in 'src/a.py'"),
        (source(edit("src/c.py")), "'src/c.py' is not a tracked file"),
        (source(edit("../a.py")), "`..` component"),
        (source(edit("/etc/passwd")), "absolute"),
        (source(edit(".github/workflows/x.yml")), "CI"),
        (source(edit("tests/a.py")), "test"),
        (source(edit("sitecustomize.py")), "by itself"),
        (source(edit("package-lock.json")), "use dependency_bump"),
        (source(edit("pyproject.toml")), "use dependency_bump"),
        (source(edit("deps.txt", "vulnerable 1.0", "vulnerable 2.1")), "use dependency_bump"),
        (bump("1.4.2", edits=[edit("deps.txt", "1.0", "2.1")]), "use dependency_bump"),
        (source(edit(new="x" * (MAX_EDIT_BYTES + 1))), "16,384 bytes"),
        (source(edit(old="é" * MAX_EDIT_BYTES)), "16,384 bytes"),
        (source(*[edit()] * (MAX_EDITS + 1)), f"the limit is {MAX_EDITS}"),
        (bump("1.4.1"), "is affected by TEST-1; use one of 1.4.2, 2.1 or above"),
        (bump("2.0.5"), "is affected"),
        (bump("1.0+local"), "is affected"),
        (bump("0.9"), "below every fixed version"),
        (bump("^1.4.2"), "not an exact PyPI version"),
        (bump(">=1.4.2"), "not an exact PyPI version"),
        (bump("latest"), "not an exact PyPI version"),
        (bump(""), "not an exact PyPI version"),
        (bump("1.4.2", package="requests"), "names for PyPI: vulner-able, never-fixed"),
        (bump("1.4.2", package="elsewhere"), "not one that TEST-1 names"),
        (bump("0.5", package="never-fixed"), "no fixed version is known"),
        (
            {"action": "override", "package": "vulner-able", "version": "1.4.2"},
            "`override` is not supported",
        ),
        ({"action": "refuse", "reason": " "}, "`reason` is empty"),
    ],
)
def test_invalid(tmp_path: Path, plan: dict[str, Any], said: str) -> None:
    found = problems(tmp_path, plan)
    assert len(found) == 1
    assert said in found[0]
    assert found[0].endswith("."), "one sentence"


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    plan = bump("1.4.1", citations=["S9", "S9"], edits=[edit("tests/a.py"), edit(old="none")])
    assert len(problems(tmp_path, plan)) == 4


def test_a_hostile_path_is_quoted_short(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, source(edit("x/" * 2000)))
    assert len(found) < 300


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    repo = context(tmp_path, FILES)
    (tmp_path / "src/a.py").write_bytes(b"\xff")
    found = check_plan(
        plan_adapter.validate_python(source(edit())),
        advisory=parse_advisory(ADVISORY, "test"),
        repo=repo,
        plugin=FakeEcosystem(),
        snippet_ids=frozenset(),
        example_ids=frozenset(),
    )
    assert len(found) == 1
    assert "not UTF-8" in found[0]


def test_only_the_advisory_can_be_cited_where_no_snippet_was_offered(tmp_path: Path) -> None:
    found = check_plan(
        plan_adapter.validate_python(source(edit(), citations=["S1"])),
        advisory=parse_advisory(ADVISORY, "test"),
        repo=context(tmp_path, FILES),
        plugin=FakeEcosystem(),
        snippet_ids=frozenset(),
        example_ids=frozenset(),
    )
    assert found == ("Citation 'S1' does not exist; those that do: TEST-1.",)
