"""``examples harvest``, ``releases`` and ``influenced`` from the outside, over a real proved fix."""

import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import FixParts
from fallback_tier.fix_result import Verified
from fallback_tier.outcome import Applied
from fallback_tier.retrieval import RagHit, RetrievalAccount, SolvedExample
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from fallback_tier.wiring.trail import RecordSettings, audit_db, open_evidence, open_trail
from tests.e2e.command import run
from tests.fakes.gates import RuleGate
from tests.fakes.memory import FixedRetriever
from tests.fakes.repository import commit_all, write
from tests.fixtures.examples import shown
from tests.fixtures.fallback_tier_callable import (
    ADVISORY,
    FILES,
    NO_RECIPE,
    PLAN,
    FallbackTierCallable,
)
from tests.integration.gate_setup import RepoContext, inspect_repository

#: One worker: the fix on record is made once.
pytestmark = pytest.mark.xdist_group("examples-sources")

TARGET = {**FILES, "pyproject.toml": '[project]\nname = "shop"\nlicense = "ISC"\n'}


def context(root: Path, fix_id: str) -> RepoContext:
    facts = inspect_repository(root, SubprocessClients())
    return RepoContext(
        root=facts.root,
        base_commit=facts.base_commit,
        tracked_files=facts.tracked_files,
        manifests=("deps.txt",),
        fix_id=fix_id,
        gate_transition_id="gate-1",
    )


def fixed(
    place: Path, fix_id: str, answers: Sequence[Any], *examples: SolvedExample
) -> Verified | None:
    """Run the real gate runner with real stores; the model is scripted, the gate asks for a check."""
    state = place / "state"
    record = RecordSettings(keys=state / "keys")
    with closing(open_trail(state, record)) as audit:
        evidence = open_evidence(state)
        account = RetrievalAccount(mode="lexical", returned=("of the retriever's own",))
        tier = FallbackTierCallable(
            place / "repo",
            retriever=FixedRetriever(
                RagHit(examples=tuple(map(shown, examples)), evidence="fixed", account=account)
            ),
            audit=audit,
            evidence=evidence,
        ).build(ScriptedModel(answers))
        parts = FixParts(
            tier=tier,
            gates=[RuleGate(lambda c: "replace" in c.worktree.tree.locate("app.py").read_text())],
            sandbox=UnsandboxedRunner(),
            clients=SubprocessClients(),
            audit=audit,
            evidence=evidence,
            workspace=state,
            tool_version="0",
            observe=lambda event: None,
        )
        repo = context(place / "repo", fix_id)
        result = run_fix(parts, parse_advisory(ADVISORY, "test"), repo, NO_RECIPE)
    return result if isinstance(result, Verified) else None


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository, and a state folder with one proved fix of it; tests work on copies."""
    place = tmp_path_factory.mktemp("recorded")
    (place / "repo").mkdir()
    write(place / "repo", TARGET)
    commit_all(place / "repo")
    (place / "advisory.json").write_bytes(ADVISORY)
    assert fixed(place, "fix-1", [PLAN]) is not None
    return place


@pytest.fixture
def place(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "place"))


def state(place: Path) -> tuple[str | Path, ...]:
    return "--state-dir", place / "state", "--keys", place / "state" / "keys"


def harvested(place: Path, *more: str) -> Any:
    arguments = ["--repo", place / "repo", "--advisory", place / "advisory.json"]
    where = ["--store", place / "examples.db", *state(place)]
    return run("examples", "harvest", *arguments, *where, *more, "--json")


def the_example(place: Path) -> SolvedExample:
    ended = harvested(place)
    assert (ended.code, ended.json["left"]) == (exit_codes.OK, []), ended
    (name,) = ended.json["examples"]
    (stored,) = ExampleStore(place / "examples.db").versions(name)
    return stored.example


def test_a_proved_fix_is_harvested_once(place: Path) -> None:
    example = the_example(place)
    assert example.licence == "ISC"
    assert example.provenance.source == "fix fix-1"
    again = harvested(place, "fix-1")
    assert (again.json["added"], again.json["duplicates"]) == (0, 1)


def test_what_was_harvested_is_replayed_on_the_same_code_and_on_no_other(place: Path) -> None:
    example = the_example(place)
    done = fixed(place, "fix-2", [], example)
    assert done is not None
    assert isinstance(done.application, Applied)
    assert done.application.tier == "rag"
    with (place / "repo" / "app.py").open("a") as file:
        file.write(" ")
    commit_all(place / "repo", "one byte more")
    other = fixed(place, "fix-3", [PLAN], example)
    assert other is not None
    assert other.application.tier == "llm"

    left = {one["fix_id"]: one["reason"] for one in harvested(place).json["left"]}
    assert left == {"fix-2": "not_a_models_work"}

    where = ["--store", place / "examples.db", *state(place)]
    reported = run("examples", "influenced", example.example_id, *where, "--json").json
    reported_value = [
        (one["fix_id"], one["prompted"], one["replayed"], one["version"], one["fix_outcome"])
        for one in reported["influenced"]
    ]
    assert reported_value == [
        ("fix-2", False, True, 1, "verified"),
        ("fix-3", True, False, 1, "verified"),
    ]
    reason = ["--reason", "it was wrong", "--by", "a test"]
    assert run("examples", "withdraw", example.example_id, *where[:2], *reason).code == 0
    text = run("examples", "influenced", example.example_id, *where).out
    assert "(withdrawn): 2 attempts" in text
    assert "fix fix-2, attempt 1: TEST-2026-1 in repo: returned, replayed (version 1)" in text
    assert done.application.patch_sha256 in text
    assert run("audit", "verify", *where[2:]).code == exit_codes.OK


def test_an_altered_patch_is_not_harvested(place: Path) -> None:
    digest = next(
        file
        for file in (place / "state" / "evidence").rglob("*")
        if file.is_file() and file.read_bytes().startswith(b"diff --git")
    )
    digest.write_bytes(digest.read_bytes() + b"\n")
    ended = harvested(place)
    assert [one["reason"] for one in ended.json["left"]] == ["broken_evidence"]
    assert not (place / "examples.db").exists()


def test_nothing_is_harvested_from_an_altered_trail(place: Path) -> None:
    file = audit_db(place / "state")
    data = file.read_bytes()
    at = data.rfind(b'"tier":"llm"')
    file.write_bytes(data[:at] + b'"tier":"11m"' + data[at + 12 :])
    ended = harvested(place)
    assert ended.code == exit_codes.TRAIL_BROKEN
    assert ended.kind == "not_intact"


def test_the_commit_counts_and_not_the_working_tree(place: Path) -> None:
    (place / "repo" / "app.py").write_text("something else\n")
    assert the_example(place).edits[0].old.startswith("def read_file")


def test_another_repository_has_not_the_commit(place: Path) -> None:
    shutil.rmtree(place / "repo" / ".git")
    commit_all(place / "repo", "another history")
    write(place / "repo", {"x": "y"})
    ended = harvested(place)
    assert [one["reason"] for one in ended.json["left"]] == ["other_base"]


def test_what_cannot_be_asked_for(place: Path) -> None:
    ended = harvested(place, "fix-9")
    assert (ended.code, ended.problem) == (
        exit_codes.BAD_INPUT,
        "There is no fix 'fix-9' in the audit trail.",
    )
    (place / "repo" / "pyproject.toml").unlink()
    ended = harvested(place)
    assert ended.code == exit_codes.BAD_INPUT
    assert ended.kind == "no_licence"
    assert harvested(place, "--licence", "MIT").code == exit_codes.OK
    where = ["--store", place / "examples.db", *state(place)]
    ended = run("examples", "influenced", "nobody", *where, "--json")
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "no_such_example")


def archive(folder: Path, version: str, body: str) -> Path:
    files = {
        "package.json": json.dumps({"name": "left", "version": version, "license": "MIT"}),
        "lib/merge.js": body,
    }
    with tarfile.open(folder / f"{version}.tgz", "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return folder / f"{version}.tgz"


def test_two_archives_make_an_example(tmp_path: Path) -> None:
    from tests.e2e.command import osv

    (tmp_path / "advisory.json").write_text(osv("left"))
    advisory = json.loads(osv("left"))
    ecosystem = advisory["affected"][0]["package"]["ecosystem"]
    if ecosystem != "npm":
        advisory["affected"][0]["package"]["ecosystem"] = "npm"
        advisory["affected"][0]["ranges"][0]["type"] = "SEMVER"
        (tmp_path / "advisory.json").write_text(json.dumps(advisory))
    fixed_version = advisory["affected"][0]["ranges"][0]["events"][1]["fixed"]
    pair = [
        archive(tmp_path, "0.9.0", "function merge(a) {\n  return a;\n}\n"),
        archive(tmp_path, fixed_version, "function merge(a) {\n  return copy(a);\n}\n"),
    ]
    store = ["--store", tmp_path / "examples.db"]
    given = ["examples", "releases", tmp_path / "advisory.json", *store, "--before", pair[0]]
    ended = run(*given, "--after", pair[1], "--json")
    assert ended.code == exit_codes.OK, ended
    assert ended.json["example"]["provenance"]["revision"] == f"0.9.0..{fixed_version}"
    assert "already there: lib/merge.js" in run(*given, "--after", pair[1]).out
    assert run(*given, "--json").kind == "one_archive"
    ended = run(*given, "--after", pair[0], "--json")
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "not_a_fix")
    secret = archive(
        tmp_path,
        fixed_version,
        "function merge(a) {\n  // ghp_" + "a1B2" * 9 + "\n  return a;\n}\n",
    )
    assert run(*given, "--after", secret, "--json").kind == "secret"
