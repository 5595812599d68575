"""The real run's runner, played by scripts: every reference fix is verified, every wrong one is caught.

The scripted trail fail → retry with fresh context → pass, through tier, gates and proof.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import AuditEvent, FixVerified, ModelAnswered
from fallback_audit.vocabulary import FailureKind, PromptShape, Provenance
from fallback_eval.fixes.projects import MiniProject, WrongFix, load_projects
from fallback_eval.fixes.report import page
from fallback_eval.fixes.run import FixOptions, run_fixes
from fallback_eval.fixes.runs import FixFolder, FixRun, events_of, unpack
from fallback_eval.retrieval.results import EvaluationError
from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_tier.errors import ConfigurationError
from fallback_tier.gates.builtin.proof import ProofError
from fallback_tier.ports import LanguageModel
from fallback_tier.wiring import Configuration
from tests.choice import a_choice
from tests.kinds import OfKind

ROOT = Path(__file__).parents[1] / "mini_projects"
PROJECTS = {project.name: project for project in load_projects(ROOT)}
ONE = PROJECTS["mailhead"]

#: Six in Python, then six in JavaScript: each has a fix that its tests catch, and one that its proof does.
BY_LANGUAGE = sorted(PROJECTS, key=lambda name: sorted(PROJECTS[name].advisory.ecosystems))

#: One worker: the fix that was retried is made once.
pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("eval-fixes")]


def reference(project: MiniProject) -> LanguageModel:
    return ScriptedModel([project.reference.plan(project.advisory.id)])


def wrong_first(project: MiniProject) -> LanguageModel:
    """Each wrong fix in turn, then the right one."""
    fixes = [*project.wrong, project.reference]
    return ScriptedModel([fix.plan(project.advisory.id) for fix in fixes])


class Run:
    """A folder of runs, and what was said on the way."""

    def __init__(self, place: Path) -> None:
        self.folder = FixFolder(place / "fixes")
        self.state = place / "state"
        self.started: list[str] = []

    def go(
        self,
        projects: list[MiniProject],
        author_of: Callable[[MiniProject], LanguageModel] | None = reference,
        **options: Any,
    ) -> tuple[FixRun, ...]:
        def progress(what: str, done: int, total: int) -> None:
            if done < total:
                self.started.append(what)

        run_fixes(
            projects,
            self.folder,
            Configuration(state_dir=self.state),
            FixOptions(**options),
            progress,
            author_of=author_of,
        )
        return self.folder.runs()


def events(folder: FixFolder, row: FixRun) -> Sequence[AuditEvent]:
    packed = folder.path / "transcripts" / f"{row.project}-{row.seed}.json.gz"
    return events_of(unpack(packed.read_bytes()))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture(scope="module")
def retried(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One that was fixed at its second attempt: read, and not changed."""
    half = next(fix for fix in ONE.wrong if fix.gate == "proof")
    plans = [half, ONE.reference]
    run = Run(tmp_path_factory.mktemp("retried"))
    run.go([ONE], lambda p: ScriptedModel([fix.plan(p.advisory.id) for fix in plans]))
    return run


@pytest.mark.parametrize("name", a_choice(BY_LANGUAGE, step=6))
def test_wrong_fixes_fail_at_their_gate_and_a_fresh_context_fixes_it(run: Run, name: str) -> None:
    project = PROJECTS[name]
    (row,) = run.go([project], wrong_first)
    facts = row.facts
    assert facts.verified_at == len(project.wrong) + 1, facts
    for attempt, fix in zip(facts.attempts, project.wrong, strict=False):
        assert attempt.failing_gates == (fix.gate,)
    assert [one.shape for one in facts.attempts[1:]] == [PromptShape.RETRY] * len(project.wrong)
    assert facts.attempts[0].shape is PromptShape.INITIAL
    assert row.provenance is Provenance.SCRIPTED
    (verified,) = [one for one in events(run.folder, row) if isinstance(one, FixVerified)]
    assert {"applies", "declared_set", "policy", "tests", "proof"} <= set(verified.gates_passed)
    assert list(run.folder.faults("")) == [
        "report.md does not follow from runs.jsonl: make it again"
    ]


def test_the_retry_was_told_what_the_proof_saw(retried: Run) -> None:
    (row,) = retried.folder.runs()
    assert row.facts.attempts[0].failure_kind is FailureKind.PROOF_FAILED
    transcript = unpack((retried.folder.path / "transcripts" / "mailhead-1.json.gz").read_bytes())
    texts: Any = transcript["texts"]
    prompts = [step for step in transcript["steps"] if "prompt" in step]  # type: ignore[attr-defined]
    assert [step["attempt"] for step in prompts] == [1, 2]
    first, second = (texts[step["prompt"]["messages"][0][1]] for step in prompts)
    assert "a header was added" not in first
    assert "a header was added" in second
    assert "failed at gate proof" in second
    assert "test_proof.py" not in first, "the proof is not shown to the model before it failed"


def test_all_references_are_verified_at_once_and_reported(run: Run) -> None:
    some = [PROJECTS[name] for name in ("greetcard", "mailhead")]
    rows = run.go(some)
    assert [row.facts.verified_at for row in rows] == [1, 1]
    report = page(rows)
    assert "2 of 2 runs over 2 projects ended in a verified patch (2 at attempt 1)" in report
    run.folder.publish(report)
    assert list(run.folder.faults(page(run.folder.runs()))) == []


def test_it_goes_on_where_it_stopped_and_can_be_repeated(run: Run) -> None:
    """The fences' nonces follow from project and seed: the same run has the same prompts."""

    def prompts(seed: int) -> list[Any]:
        packed = run.folder.path / "transcripts" / f"mailhead-{seed}.json.gz"
        read: Any = unpack(packed.read_bytes())
        return [step["prompt"] for step in read["steps"] if "prompt" in step]

    run.go([ONE])
    first = prompts(1)
    run.go([ONE])
    assert run.started == ["mailhead"]
    rows = run.go([ONE], seed=2)
    assert [row.key for row in rows] == [("mailhead", 1), ("mailhead", 2)]
    rows = run.go([ONE], rerun=True)
    assert [row.key for row in rows] == [("mailhead", 2), ("mailhead", 1)]
    assert prompts(1) == first != prompts(2)


def test_a_transcript_is_whole_and_names_no_place_of_this_machine(retried: Run) -> None:
    packed = (retried.folder.path / "transcripts" / "mailhead-1.json.gz").read_bytes()
    transcript: Any = unpack(packed)
    kinds = {key for step in transcript["steps"] for key in step}
    assert kinds >= {"prompt", "answer", "patch", "log"}
    assert transcript["events"][0]["kind"] == "FixStarted"
    assert transcript["events"][-1]["kind"] == "FixVerified"
    message = json.dumps(transcript)
    assert "fallback-tier-fixes-" not in message
    assert str(Path.home()) not in message


def test_a_transcript_keeps_no_secret_that_a_model_says(run: Run) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    plan = ONE.reference.plan(ONE.advisory.id).model_copy(update={"rationale": f"uses {token}"})
    run.go([ONE], lambda _project: ScriptedModel([plan]))
    packed = (run.folder.path / "transcripts" / "mailhead-1.json.gz").read_bytes()
    transcript = unpack(packed)
    answered = [event for event in events_of(transcript) if isinstance(event, ModelAnswered)]
    assert [event.answer_evidence for event in answered] == [None], "such an answer is not kept"
    assert token not in json.dumps(transcript)


def test_a_model_that_never_gets_there_is_a_row_too(run: Run) -> None:
    nothing = "I am sorry, but I can't do that."
    (row,) = run.go([ONE], lambda _project: ScriptedModel([nothing] * 12))
    assert row.facts.verified_at is None
    assert row.facts.outcome == "escalated"
    assert {one.failure_kind for one in row.facts.attempts} == {FailureKind.PLAN_INVALID}
    report = page([row])
    assert "No run failed first and was verified on a retry" in report
    assert "plan_invalid" in report


def test_an_outage_is_no_result(run: Run) -> None:
    with pytest.raises(EvaluationError, match="mailhead could not be run to its end"):
        run.go([ONE], lambda _project: ScriptedModel([]))
    assert run.folder.runs() == ()


def test_without_a_model_nothing_is_run(run: Run) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("no_model")):
        run.go([ONE], None)


def test_a_proof_that_proves_nothing_stops_before_the_model(run: Run) -> None:
    model = ScriptedModel([])
    useless = ONE.model_copy(update={"command": ("true",)})
    with pytest.raises(ProofError, check=OfKind("passes_at_base")):
        run.go([useless], lambda _project: model)
    assert model.requests == ()


def tamper_row(folder: FixFolder) -> None:
    place = folder.path / "runs.jsonl"
    row = json.loads(place.read_text())
    row["facts"]["attempts"] = []
    place.write_text(json.dumps(row) + "\n")


def tamper_transcript(folder: FixFolder) -> None:
    place = folder.path / "transcripts" / "mailhead-1.json.gz"
    place.write_bytes(place.read_bytes() + b"\0")


def lose_transcript(folder: FixFolder) -> None:
    (folder.path / "transcripts" / "mailhead-1.json.gz").unlink()


def stray_transcript(folder: FixFolder) -> None:
    (folder.path / "transcripts" / "nobody-1.json.gz").write_bytes(b"")


def other_report(folder: FixFolder) -> None:
    (folder.path / "report.md").write_text("all fixed")


def test_the_check_finds_what_was_tampered_with(run: Run, tmp_path: Path) -> None:
    report = page(run.go([ONE]))
    run.folder.publish(report)
    for number, (tamper, message) in enumerate(TAMPERED.items()):
        copy = FixFolder(tmp_path / f"copy-{number}")
        shutil.copytree(run.folder.path, copy.path)
        assert list(copy.faults(report)) == []
        tamper(copy)
        assert any(message in fault for fault in copy.faults(report)), message


TAMPERED: dict[Callable[[FixFolder], None], str] = {
    tamper_row: "does not follow from its transcript",
    tamper_transcript: "was altered",
    lose_transcript: "can't be read",
    stray_transcript: "belongs to no run",
    other_report: "report.md does not follow",
}


def test_a_row_that_is_none_is_named(run: Run) -> None:
    run.folder.path.mkdir()
    (run.folder.path / "runs.jsonl").write_text('{"project": 1}\n')
    with pytest.raises(EvaluationError, match="line 1 is not a run"):
        run.folder.runs()
    for packed in (b"", b"x", hashlib.sha256(b"").digest()):
        with pytest.raises(EvaluationError, check=OfKind("bad_transcript")):
            unpack(packed)


def test_every_project_names_what_is_wrong_with_its_wrong_fixes() -> None:
    fixes = [fix for project in PROJECTS.values() for fix in project.wrong]
    assert all(isinstance(fix, WrongFix) and len(fix.what) > 10 for fix in fixes)


def command(*words: str) -> int:
    from fallback_tier.cli.main import main

    return main(["eval", "fixes", *words])


def test_the_command_runs_reports_and_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([ONE.reference.plan(ONE.advisory.id).model_dump()]))
    report = ["--report", str(tmp_path / "fixes")]
    asked = ["--projects", str(ROOT), "--only", "mailhead", "--script", str(script)]
    assert command(*report, *asked, "--setup", "a script", "--json") == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["runs"][0]["facts"]["outcome"] == "verified"
    assert "a script" in (tmp_path / "fixes" / "report.md").read_text()
    assert command(*report, "--check") == 0
    (tmp_path / "fixes" / "report.md").write_text("all fixed")
    assert command(*report, "--check") == 6
    assert "report.md" in capsys.readouterr().out
    assert command(*report, "--again") == 0
    assert "verified at attempt 1" in capsys.readouterr().out
    assert command(*report, "--check") == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--only", "nobody", "--script", "x"],
        ["--only", "mailhead"],
        ["--max-output-tokens", "0", "--script", "x"],
        ["--projects", "/nowhere"],
    ],
)
def test_the_command_refuses_what_it_cannot_run(tmp_path: Path, words: list[str]) -> None:
    report = tmp_path / "fixes"
    assert command("--report", str(report), "--projects", str(ROOT), *words) == 2
    assert not report.exists()


def test_an_empty_folder_does_not_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--report", str(tmp_path / "fixes"), "--check", "--json") == 6
    assert "there is no run" in json.loads(capsys.readouterr().out)["faults"][0]


def test_the_committed_runs_hold_together() -> None:
    folder = FixFolder(ROOT.parents[1] / "docs" / "evaluation" / "fixes")
    runs = folder.runs()
    if not runs:
        pytest.skip("no run was committed")
    assert list(folder.faults(page(runs))) == []
    assert {run.project for run in runs} <= set(PROJECTS)
    assert {run.provenance for run in runs} == {Provenance.LIVE}
