"""Validity of plans: each rule has a plan that breaks it alone, and a sentence to act on."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_tier.advisory import parse_advisory
from fallback_tier.grounding.validity import (
    MAX_CITATIONS,
    MAX_EDIT_BYTES,
    MAX_EDITS,
    MAX_EDITS_BYTES,
    MAX_PROBLEMS,
    MAX_RATIONALE_BYTES,
    check_plan,
    quoted,
)
from fallback_tier.outcome import (
    DependencyBump,
    Override,
    Plan,
    Refuse,
    SearchReplace,
    SourceEdit,
    plan_adapter,
)
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context, write

ADVISORY = b"""{"id": "TEST-1", "aliases": ["CVE-2026-1"], "affected": [
  {"package": {"ecosystem": "PyPI", "name": "Vulner.able"}, "ranges": [{"type": "ECOSYSTEM",
    "events": [{"introduced": "1.0"}, {"fixed": "1.4.2"}, {"introduced": "2.0"}, {"fixed": "2.1"}]}]},
  {"package": {"ecosystem": "PyPI", "name": "never-fixed"}, "ranges": [{"type": "ECOSYSTEM",
    "events": [{"introduced": "1.0"}]}]},
  {"package": {"ecosystem": "npm", "name": "elsewhere"}}]}"""

FILES = {"deps.txt": "vulnerable 1.0\n", "src/a.py": "one\ntwo\ntwo\n", "src/b.py": "x\n"}
FILES |= {"pkg/__init__.py": "", "pkg/read.py": "x = 1\n"}


def problems(root: Path, plan: dict[str, Any], files: dict[str, str] = FILES) -> tuple[str, ...]:
    parsed: Plan = plan_adapter.validate_python(plan)
    return check_plan(
        parsed,
        advisory=parse_advisory(ADVISORY, "test"),
        repo=context(root, files),
        plugin=FakeEcosystem(),
        snippet_ids=frozenset({"S1", "S2", "S10"}),
        example_ids=frozenset({"E1"}),
    )


def edit(path: str = "src/a.py", old: str = "one", new: str = "1") -> dict[str, str]:
    return {"path": path, "old": old, "new": new}


def source(*edits: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {"action": "source_edit", "edits": edits, **fields}


def override(version: str, package: str = "vulner-able", **fields: Any) -> dict[str, Any]:
    return {"action": "override", "package": package, "version": version, **fields}


def bump(version: str, package: str = "vulner-able", **fields: Any) -> dict[str, Any]:
    return {"action": "dependency_bump", "package": package, "version": version, **fields}


@pytest.mark.parametrize(
    "plan",
    [
        source(edit()),
        source(edit(), edit("src/b.py", "x", "y"), citations=["S1", "S10", "E1"]),
        source(edit(), edit(old="1", new="uno")),
        bump("1.4.2"),
        bump("1.5", edits=[edit()]),
        override("1.4.2"),
        override("2.1", package="Vulner.able", edits=[edit()], citations=["S1"]),
        source(
            edit(), rationale="é" * (MAX_RATIONALE_BYTES // 2), citations=["S1"] * MAX_CITATIONS
        ),
        source(edit(old="  one \n", new="  1\n")),
        source(edit(), citations=["TEST-1", "CVE-2026-1"]),
        source(edit("pkg/limits.py", "", "MOST = 1\n"), edit()),
        source(edit("pkg/limits.py", "", "MOST = 1"), edit("pkg/limits.py", "1\n", "2\n")),
        source(edit("pkg/limits.py", "", "x" * MAX_EDIT_BYTES)),
        bump("2.1.post1", package="VULNER_able"),
        {"action": "refuse", "reason": "The fix needs a decision."},
    ],
)
def test_valid(tmp_path: Path, plan: dict[str, Any]) -> None:
    assert problems(tmp_path, plan) == ()


@pytest.mark.parametrize(
    ("plan", "message"),
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
        (override("1.4.1"), "is affected by TEST-1; use one of 1.4.2, 2.1 or above"),
        (override("0.9"), "below every fixed version"),
        (override(">=1.4.2"), "not an exact PyPI version"),
        (override("*"), "not an exact PyPI version"),
        (bump("1.4.2\n"), "not an exact PyPI version"),
        (bump(" 1.4.2"), "not an exact PyPI version"),
        (override("1.4.2", package="requests"), "names for PyPI: vulner-able, never-fixed"),
        (override("0.5", package="never-fixed"), "no fixed version is known"),
        (override("1.4.2", edits=[edit("uv.lock")]), "use dependency_bump or override"),
        (source(edit(), rationale="x" * (MAX_RATIONALE_BYTES + 1)), "the limit is 4,096"),
        (source(edit(), citations=["S1"] * (MAX_CITATIONS + 1)), "at most once: E1, S1, S2"),
        ({"action": "refuse", "reason": " "}, "`reason` is empty"),
        (source(edit(old="")), "`old` is empty, which is for a new file, and 'src/a.py' exists"),
        (
            source(edit("pkg/__init__.py", "", "x = 1\n")),
            "'pkg/__init__.py' exists: copy into `old`",
        ),
        (
            source(edit("pkg/c.py", "", "x = 1\n"), edit("pkg/c.py", "", "x = 2\n")),
            "Edit 2: `old` is empty, which is for a new file, and 'pkg/c.py' exists",
        ),
        (
            source(edit("pkg/limits.py", "", "x = 1\n"), edit("pkg/LIMITS.py", "", "x = 2\n")),
            "Edit 2: 'pkg/LIMITS.py' may not be made: 'pkg/limits.py' is there",
        ),
        (source(edit("pkg/limits.py", "", "")), "it would be empty"),
        (source(edit("pkg/limits.py", "", " \n")), "it would be empty"),
        (source(edit("pkg/limits.py", "", "#!/bin/sh\n")), "a program of its own"),
        (source(edit("pkg/limits.py", "", "x = '\0'\n")), "NUL"),
        (source(edit("pkg/limits.py", "", "x" * (MAX_EDIT_BYTES + 1))), "16,384 bytes"),
        (
            source(edit("pkg/limits.py", "", "def f(:\n")),
            "Edit 1 leaves 'pkg/limits.py' with a syntax",
        ),
        (source(edit("pkg/conftest.py", "", "x = 1\n")), "may not be made: it is a test"),
        (source(edit("pkg/settings.py", "", "x = 1\n")), "may not be made: something loads"),
        (source(edit("deps.lock", "", "x = 1\n")), "only source files"),
        (source(edit("pkg/untracked.py", "", "x = 1\n")), "that git does not track"),
        (bump("1.4.2", edits=[edit("pkg/limits.py", "", "x = 1\n")]), "only a source_edit makes"),
        (override("1.4.2", edits=[edit("pkg/limits.py", "", "x = 1\n")]), "only a source_edit"),
    ],
)
def test_invalid(tmp_path: Path, plan: dict[str, Any], message: str) -> None:
    write(tmp_path, {"pkg/untracked.py": "x = 0\n"})
    found = problems(tmp_path, plan)
    assert len(found) == 1
    assert message in found[0]
    assert found[0].endswith("."), "one sentence"


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    plan = bump("1.4.1", citations=["S9", "S9"], edits=[edit("tests/a.py"), edit(old="none")])
    assert len(problems(tmp_path, plan)) == 4


def test_a_flood_of_problems_is_counted_not_listed(tmp_path: Path) -> None:
    found = problems(tmp_path, source(*[edit(old=f"no {n}") for n in range(MAX_EDITS)]))
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1] == f"There are {MAX_EDITS - MAX_PROBLEMS} more problems of these kinds."


def test_the_edits_together_have_a_limit(tmp_path: Path) -> None:
    filler = "x" * (MAX_EDIT_BYTES - 1)
    edits = [edit("src/b.py", "x", "0")]
    edits += [edit("src/b.py", str(n), filler + str(n + 1)) for n in range(4)]
    assert problems(tmp_path, source(*edits[:4])) == ()
    (found,) = problems(tmp_path, source(*edits))
    assert f"the limit is {MAX_EDITS_BYTES:,}" in found


@pytest.mark.parametrize(
    "path",
    [
        *("package.json", "a/package-lock.json", "npm-shrinkwrap.json", "yarn.lock"),
        *("pnpm-lock.yaml", "uv.lock", "poetry.lock", "Pipfile", "Pipfile.lock", "pdm.lock"),
        *("pyproject.toml", "setup.cfg", "setup.py", "requirements-dev.txt", "constraints.txt"),
        *("PACKAGE.JSON", "sub/Poetry.lock", "pylock.dev.toml", "environment.yml", "bun.lock"),
    ],
)
def test_no_manifest_and_no_lock_is_edited(tmp_path: Path, path: str) -> None:
    (found,) = problems(tmp_path, source(edit(path, "1.0", "2.0")))
    assert "(use dependency_bump or override)" in found


def test_a_hostile_path_is_quoted_short(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, source(edit("x/" * 2000)))
    assert len(found) < 300


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
paths = st.sampled_from([*sorted(FILES), "pkg/new.py", "src/c.py"]) | words.filter(bool)
olds = st.sampled_from(["one", "two", "  one\n", "x", "one\ntwo", ""]) | words
some_edits = st.lists(st.builds(SearchReplace, path=paths, old=olds, new=words), max_size=4)
versions = st.sampled_from(["1.4.2", "1.0", "2.1", "v2"]) | words
packages = st.sampled_from(["vulner-able", "Vulner_able", "never-fixed"]) | words
common: dict[str, Any] = {"rationale": words, "citations": st.lists(words, max_size=3).map(tuple)}
moved: dict[str, Any] = {"package": packages, "version": versions, **common}
plans: st.SearchStrategy[Plan] = st.one_of(
    st.builds(DependencyBump, edits=some_edits.map(tuple), **moved),
    st.builds(Override, edits=some_edits.map(tuple), **moved),
    st.builds(SourceEdit, edits=some_edits.filter(bool).map(tuple), **common),
    st.builds(Refuse, reason=words, **common),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans)
def test_no_plan_is_too_strange_to_be_judged(tmp_path: Path, plan: Plan) -> None:
    found = problems(tmp_path, plan.model_dump())
    assert len(found) <= MAX_PROBLEMS + 1
    for problem in found:
        assert problem.endswith(".")
        assert problem.isprintable()


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
    assert found == ("Citation 'S1' does not exist; those that do: TEST-1, CVE-2026-1.",)


NPM = b"""{"id": "TEST-1", "affected": [{"package": {"ecosystem": "npm", "name": "p"}, "ranges":
  [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "2.0.0"}]}]}]}"""


@pytest.mark.parametrize(
    ("version", "valid"),
    [
        *((version, True) for version in ("2.0.0", "2.1.0-rc.1", "2.0.0+build.5", "10.20.30")),
        # Read as 2.0.0 where versions are ordered, and written as a range, a place, or more than one line.
        *(
            (version, False)
            for version in ("2.0.0 || 1.0.0", "2.0.0 - 9", "2.x", "2", "2.0.0/evil")
        ),
        *((version, False) for version in ("2.0.0\n", " 2.0.0", "=2.0.0", "v2.0.0", "2.0.0; x")),
    ],
)
@pytest.mark.parametrize("action", [DependencyBump, Override])
def test_a_version_for_npm_is_one_version_and_nothing_around_it(
    tmp_path: Path, action: type[DependencyBump | Override], version: str, valid: bool
) -> None:
    messages = check_plan(
        action(package="p", version=version),
        advisory=parse_advisory(NPM, "test"),
        repo=context(tmp_path, FILES),
        plugin=FakeEcosystem(name="npm"),
        snippet_ids=frozenset(),
        example_ids=frozenset(),
    )
    assert (messages == ()) == valid
    assert valid or "is not an exact npm version; use one of 2.0.0 or above" in messages[0]


def test_what_stands_for_a_secret_is_not_written_into_code(tmp_path: Path) -> None:
    """The prompt shows ``[REDACTED]`` where the file has a secret: copied, it would be its value."""
    files = FILES | {"src/c.py": "password = 'swordfish'\nx = 1\n"}
    copied = edit("src/c.py", "x = 1", "x = 2\n    password = '[REDACTED]'")
    (message,) = problems(tmp_path, source(copied), files)
    assert message.startswith("Edit 1: `new` has the line \"password = '[REDACTED]'\"")
    assert "swordfish" not in message
    own = edit("src/c.py", "x = 1", "logged = '[REDACTED]'")
    assert problems(tmp_path, source(own), files) == ()


def test_a_line_that_is_quoted_is_redacted_as_a_part_of_its_file(tmp_path: Path) -> None:
    """Alone the line says nothing of a secret."""
    new = 'PASSWORDS = {\n    "alice": "swordfish" "x" if,\n}'
    (message,) = problems(tmp_path, source(edit("pkg/read.py", "x = 1", new)))
    assert "syntax error at line 2" in message
    assert "swordfish" not in message


@pytest.mark.parametrize("hidden", ["\u200b", "\x1b[32m", ""])
def test_a_quoted_secret_is_taken_out_before_its_form_is_lost(hidden: str) -> None:
    """``repr`` writes hidden characters out, and what they split is then no secret's form any more."""
    message = quoted(f"pass{hidden}word = 'hunter22'")
    assert "hunter22" not in message
    assert "[REDACTED]" in message
