"""Several advisories by `fix`: one gate transition an ecosystem, delivered when all is proved, nothing
dropped silently. The ecosystems are small ones of ours; the trail, git and the runner are real."""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import AuditEvent, FixStarted
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.showing.describe import summarise
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.verify import verify
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory, AdvisorySet, Staying, bundle
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.command import run_with
from fallback_tier.errors import ToolFailedError
from fallback_tier.fix import Fixer
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import Configuration, Services, audit_db, evidence_dir
from tests.e2e.command import repository, snapshot
from tests.fakes.ecosystem import LadderEcosystem
from tests.fakes.gates import RuleGate, SkippedGate
from tests.fakes.repository import git
from tests.unit.planning.test_planning import advisory, both

PINS = "left 1.0.0\nright 1.0.0\n"
MORE = f"{PINS}middle 1.0.0\n"
FILES = {"pypi.txt": PINS, "npm.txt": PINS, "shared.txt": "shared\n"}


def ecosystem(name: str, *, accepts: bool = True, **facts: Any) -> LadderEcosystem:
    return LadderEcosystem(name=name, gate_list=(RuleGate(lambda _: accepts),), **facts)


def breaking(*packages: str, pair: tuple[str, str] | None = None) -> LadderEcosystem:
    """PyPI, whose tests fail where one of these is raised, or both of a pair."""

    def accepts(context: GateContext) -> bool:
        text = context.worktree.tree.locate("pypi.txt").read_text()
        raised = {line.split()[0] for line in text.splitlines() if not line.endswith(" 1.0.0")}
        together = pair is not None and raised.issuperset(pair)
        return raised.isdisjoint(packages) and not together

    return LadderEcosystem(gate_list=(RuleGate(accepts),))


@dataclass
class JudgedBy:
    """A gate by a function of the test's."""

    judge: Callable[[GateContext], GateVerdict]
    name: str = "proof"


class Scenario:
    """A repository, its services, and `fix` with arguments."""

    def __init__(self, place: Path) -> None:
        self.repo = repository(place / "repo", FILES)
        self.state = place / "state"
        self.plugins = {"PyPI": ecosystem("PyPI"), "npm": ecosystem("npm")}
        self.model: str | None = None

    @contextmanager
    def services(self) -> Iterator[Services]:
        self.state.mkdir(exist_ok=True)
        audit = SqliteAuditStore(audit_db(self.state))
        evidence = FileEvidenceStore(evidence_dir(self.state))
        configuration = Configuration(
            state_dir=self.state, sandbox_waiver="a test", model=self.model
        )
        tier = FallbackTier(
            plugins=self.plugins, retriever=None, leaf=None, audit=audit, evidence=evidence
        )
        clients = SubprocessClients()
        yield Services(configuration, clients, self.plugins, audit, evidence, tier)
        audit.close()

    def fix(self, *advisories: Advisory, **options: Any) -> int:
        reported: dict[str, Any] = {"repository": self.repo, "output": None, "dry_run": False}
        reported |= dict.fromkeys(("resume", "commit", "report"))
        arguments = argparse.Namespace(**{**reported, "json": True, **options})
        with self.services() as services:
            return run_with(AdvisorySet(advisories=advisories), Fixer(services), arguments)

    @property
    def events(self) -> list[AuditEvent]:
        store = SqliteAuditStore(audit_db(self.state))
        found = [stored.payload for stored in store.events()]
        store.close()
        return found

    @property
    def shown(self) -> dict[str, str]:
        """The headline of each fix by its id, as `audit show` has it."""
        with closing(SqliteAuditStore(audit_db(self.state))) as store:
            return {one.fix_id: one.headline for one in summarise(store.events())}

    @property
    def kinds(self) -> list[str]:
        store = SqliteAuditStore(audit_db(self.state))
        kinds = [event.kind for event in store.events()]
        report = verify(
            store, checkpoints=None, evidence=FileEvidenceStore(evidence_dir(self.state))
        )
        store.close()
        assert report.ok, report
        return kinds

    def read(self, path: str) -> str:
        return (self.repo / path).read_text()


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


A, B = advisory("A", "left"), advisory("B", "right")
NPM = advisory("N", "left", ecosystem="npm")


def test_one_transition_an_ecosystem_all_delivered(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    code = scenario.fix(A, B, NPM, advisory("X", "absent"))
    document = printed(capsys)
    assert (code, document["exit_code"], document["delivered"]) == (0, 0, True)
    assert [(fix["ecosystem"], fix["advisory_ids"]) for fix in document["fixes"]] == [
        ("PyPI", ["A", "B"]),
        ("npm", ["N"]),
    ]
    assert [fix["outcome"] for fix in document["fixes"]] == ["verified", "verified"]
    assert document["fixes"][0]["advisory_id"] == "A+B"
    assert [
        move["package"] for move in document["fixes"][0]["application"]["remediation"]["moves"]
    ] == [
        "left",
        "right",
    ]
    assert (document["left"], document["not_affected"]) == ([], ["X"])
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 2.0.0\n"
    assert scenario.read("npm.txt") == "left 2.0.0\nright 1.0.0\n"
    kinds = scenario.kinds
    assert (kinds.count("FixStarted"), kinds.count("FixVerified")) == (2, 2)


def test_what_cannot_be_fixed_is_reported_and_the_rest_is_delivered(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    code = scenario.fix(A, advisory("B", "right@never"))
    document = printed(capsys)
    assert code == exit_codes.REFUSED
    assert document["fixes"][0]["advisory_ids"] == ["A"]
    (left,) = document["left"]
    assert (left["advisory_ids"], left["reason"]) == (["B"], RefusalReason.NO_FIXED_VERSION)
    assert left["sentence"]
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 1.0.0\n"


def test_for_a_person(scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    scenario.model = "m"
    code = scenario.fix(A, advisory("B", "right@never"), advisory("X", "absent"), json=False)
    assert code == exit_codes.REFUSED
    out = " ".join(capsys.readouterr().out.split())
    assert "left 1.0.0 → 2.0.0 (direct bump) in pypi.txt" in out
    assert "left right in pypi.txt (B): no_fixed_version" in out
    assert "right 1.0.0 can't be raised: no_fixed_version." in out
    assert "not affected: 1 of the advisories" in out
    assert "one advisory at a time: fallback-tier fix REPO --advisory THAT" in out
    assert "on the working tree, not committed: pypi.txt" in out


def test_a_model_is_never_asked_for_a_bundle(scenario: Scenario) -> None:
    """The gate fails; a retry would ask the model, which is configured, and can't plan a bundle."""
    scenario.plugins["PyPI"] = ecosystem("PyPI", accepts=False)
    scenario.model = "m"
    assert scenario.fix(A, B) == exit_codes.ESCALATED
    assert "ModelCalled" not in scenario.kinds
    assert scenario.read("pypi.txt") == PINS


def test_a_failed_proof_in_one_ecosystem_does_not_stop_the_other(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.plugins["npm"] = ecosystem("npm", accepts=False)
    assert scenario.fix(A, NPM) == exit_codes.ESCALATED
    document = printed(capsys)
    assert [fix["outcome"] for fix in document["fixes"]] == ["verified", "escalated"]
    assert [fix["delivered"] for fix in document["fixes"]] == [True, False]
    assert (scenario.read("pypi.txt"), scenario.read("npm.txt")) == (
        "left 2.0.0\nright 1.0.0\n",
        PINS,
    )


def outcomes(document: Any) -> dict[str, str]:
    return {one["id"]: one["outcome"] for one in document["advisories"]}


def test_one_that_fails_its_gates_sinks_no_other(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.plugins["PyPI"] = breaking("right")
    assert scenario.fix(A, B) == exit_codes.ESCALATED
    document = printed(capsys)
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 1.0.0\n"
    assert outcomes(document) == {"A": "fixed", "B": "not_fixed"}
    (fixed, failed) = document["fixes"]
    assert (fixed["advisory_ids"], fixed["outcome"], fixed["delivered"]) == (
        ["A"],
        "verified",
        True,
    )
    assert (failed["advisory_ids"], failed["outcome"]) == (["B"], "escalated")
    assert failed["failing_gates"] == ["proof"]
    (why,) = document["advisories"][1]["why"]
    assert (why["failing_gates"], why["fix_id"]) == (["proof"], failed["fix_id"])
    assert why["reason"] == "tests_failed"
    assert why["sentence"] == (
        "Attempt 1 (recipe) failed at gate proof: tests_failed. tests failed Failing tests: "
        "- tests/test_app.py::test_escape Assertions: - AssertionError: escaped"
    )
    # All, A, and B for its own reason; the first is taken apart, and asks nobody anything.
    assert (document["gate_runs"], len(document["taken_apart"])) == (3, 1)
    kinds = scenario.kinds
    ends = [kinds.count(kind) for kind in ("FixVerified", "FixRefused", "FixEscalated")]
    assert ends == [1, 1, 1]


def test_for_a_person_each_advisory_is_named_with_its_end(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.plugins["PyPI"] = breaking("right")
    given = (A, B, advisory("C", "left@never", ecosystem="npm"))
    assert scenario.fix(*given, json=False) == exit_codes.ESCALATED
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "fixed A" in lines
    assert "not fixed B: tests_failed at proof" in lines
    assert "not fixed C: no_fixed_version" in lines


def test_what_holds_by_itself_and_not_with_another_is_named(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each passes alone, both together fail: one is delivered, and the other one is not claimed."""
    scenario.plugins["PyPI"] = breaking(pair=("left", "right"))
    assert scenario.fix(A, B) == exit_codes.REFUSED
    document = printed(capsys)
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 1.0.0\n"
    assert outcomes(document) == {"A": "fixed", "B": "not_fixed"}
    (_, alone) = document["fixes"]
    assert (alone["outcome"], alone["delivered"]) == ("verified", False)
    assert "failed at gate proof" in alone["held_back"]
    assert "`fallback-tier fix REPO --advisory B`" in alone["held_back"]
    assert document["advisories"][1]["why"][0]["reason"] == "held_back"
    for headline in (alone["headline"], scenario.shown[alone["fix_id"]]):
        assert headline.startswith("not delivered")


def test_a_person_sees_that_each_works_alone_and_how_to_go_on(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.plugins["PyPI"] = breaking(pair=("left", "right"))
    assert scenario.fix(A, B, json=False) == exit_codes.REFUSED
    shown = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "fixed A" in lines
    assert "works alone, not together B: it fails with A" in lines
    assert any(line.startswith("works alone, not together; not delivered B ") for line in lines)
    assert "--advisory B" in shown
    assert "not fixed" not in shown
    assert "REFUSED" not in shown


def test_where_nothing_holds_nothing_is_delivered(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.plugins["PyPI"] = breaking("left", "right")
    before = snapshot(scenario.repo)
    assert scenario.fix(A, B) == exit_codes.ESCALATED
    document = printed(capsys)
    assert outcomes(document) == {"A": "not_fixed", "B": "not_fixed"}
    assert snapshot(scenario.repo) == before
    assert scenario.kinds.count("PatchDelivered") == 0


def test_advisories_of_one_package_stay_together(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """One move clears both, so that there is nothing between them to prove."""
    scenario.plugins["PyPI"] = breaking("right")
    assert scenario.fix(A, B, advisory("B2", "right@1.5.0")) == exit_codes.ESCALATED
    document = printed(capsys)
    assert outcomes(document) == {"A": "fixed", "B": "not_fixed", "B2": "not_fixed"}
    assert document["fixes"][1]["advisory_ids"] == ["B", "B2"]
    assert document["gate_runs"] == 3


def test_what_no_gate_can_prove_in_one_patch_is_proved_apart(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one package's patch no gate can say anything: the other one's is proved all the same."""

    def judge(context: GateContext) -> GateVerdict:
        text = context.worktree.tree.locate("pypi.txt").read_text()
        gate = RuleGate(lambda _: True) if "right 1.0.0" in text else SkippedGate()
        return gate.judge(context)

    scenario.plugins["PyPI"] = LadderEcosystem(gate_list=(JudgedBy(judge),))
    assert scenario.fix(A, B) == exit_codes.ESCALATED
    document = printed(capsys)
    assert outcomes(document) == {"A": "fixed", "B": "not_fixed"}
    assert document["advisories"][1]["why"][0]["reason"] == "nothing_proved"
    assert len(document["taken_apart"]) == 1
    assert scenario.kinds.count("FixEscalated") == 1


def test_gates_that_cannot_be_run_are_not_run_again_for_each(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: GateContext) -> bool:
        raise ToolFailedError("The registry is down.", next_step="Wait.")

    scenario.plugins["PyPI"] = LadderEcosystem(gate_list=(RuleGate(broken),))
    assert scenario.fix(A, B) == exit_codes.ENVIRONMENT
    document = printed(capsys)
    assert document["gate_runs"] == 1
    assert outcomes(document) == {"A": "not_fixed", "B": "not_fixed"}


def test_what_can_be_fixed_of_an_advisory_is_delivered_and_called_that(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """B has no fix for one of its packages: the other is raised, and nothing says that B is fixed."""
    scenario.repo = repository(scenario.repo.parent / "more", {**FILES, "pypi.txt": MORE})
    assert scenario.fix(A, advisory("B", "right", "middle@never")) == exit_codes.REFUSED
    document = printed(capsys)
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 2.0.0\nmiddle 1.0.0\n"
    assert outcomes(document) == {"A": "fixed", "B": "fixed_in_part"}
    (why,) = document["advisories"][1]["why"]
    assert (why["reason"], why["fix_id"]) == ("no_fixed_version", None)
    (fix,) = document["fixes"]
    assert (fix["advisory_ids"], fix["in_part"]) == (["A", "B"], ["B"])
    assert fix["headline"].endswith("; in part: B")
    started = [event for event in scenario.events if isinstance(event, FixStarted)]
    assert [event.in_part for event in started] == [("B",)]


def test_what_one_ecosystem_refuses_of_an_advisory_another_delivers_in_part(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """… and what else the delivered patch fixes is fixed: the branch is named after that."""
    git(scenario.repo, "config", "user.name", "A Person")
    git(scenario.repo, "config", "user.email", "person@example.invalid")
    scenario.plugins["npm"] = ecosystem("npm", accepts=False)
    assert scenario.fix(both("A", "left", "left"), B, commit="") == exit_codes.ESCALATED
    document = printed(capsys)
    assert outcomes(document) == {"A": "fixed_in_part", "B": "fixed"}
    assert document["commit"]["branch"] == "fallback-tier/B"
    message = git(scenario.repo, "log", "-1", "--format=%B", "fallback-tier/B")
    assert message.startswith("Fix A+B in part\n\nA: in part only, something of it stays affected;")
    assert "\nB: fixed; the proof passes" in message
    (fixed,) = (fix for fix in document["fixes"] if fix["delivered"])
    assert fixed["headline"].endswith("; in part: A")
    assert scenario.shown[fixed["fix_id"]] == fixed["headline"]


def test_what_holds_already_is_delivered_where_the_gates_cannot_go_on(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """The registry goes down when the second half is proved: what it says is about the others alone."""
    asked: list[str] = []

    def judge(context: GateContext) -> bool:
        asked.append(context.worktree.tree.locate("pypi.txt").read_text())
        if len(asked) > 2:
            raise ToolFailedError("The registry is down.", next_step="Wait.")
        return "right 1.0.0" in asked[-1]

    scenario.plugins["PyPI"] = LadderEcosystem(gate_list=(RuleGate(judge),))
    scenario.repo = repository(scenario.repo.parent / "more", {**FILES, "pypi.txt": MORE})
    assert scenario.fix(A, B, advisory("C", "middle")) == exit_codes.ENVIRONMENT
    document = printed(capsys)
    assert outcomes(document) == {"A": "fixed", "B": "not_fixed", "C": "not_fixed"}
    assert document["advisories"][2]["why"][0]["reason"] == "gate_infrastructure"
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 1.0.0\nmiddle 1.0.0\n"


def test_the_tier_leaves_nothing_that_the_plan_does_not_say_stays(scenario: Scenario) -> None:
    scenario.repo = repository(scenario.repo.parent / "more", {**FILES, "pypi.txt": MORE})
    both_in_one = bundle([A, advisory("B", "right", "middle@never")])
    staying = (Staying(advisory_id="B", package="middle"),)
    planned = both_in_one.model_copy(update={"staying": staying})
    with scenario.services() as services:
        for asked, ended in ((both_in_one, "refused"), (planned, "applied")):
            inputs = services.inputs(asked, scenario.repo)
            found = services.tier.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
            assert found.outcome == ended, found


def test_a_partial_fix_is_not_delivered(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """One advisory of two ecosystems, proved in the one and not in the other."""
    scenario.plugins["npm"] = ecosystem("npm", accepts=False)
    before = snapshot(scenario.repo)
    assert scenario.fix(both("A", "left", "left")) == exit_codes.ESCALATED
    document = printed(capsys)
    assert (
        document["fixes"][0]["held_back"]
        == "A is not fixed in npm, and a partial fix is not delivered."
    )
    assert not document["delivered"]
    assert snapshot(scenario.repo) == before


def test_one_advisory_of_two_ecosystems_is_delivered_in_both(scenario: Scenario) -> None:
    assert scenario.fix(both("A", "left", "right")) == exit_codes.OK
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 1.0.0\n"
    assert scenario.read("npm.txt") == "left 1.0.0\nright 2.0.0\n"


def test_one_advisory_of_two_ecosystems_that_concerns_one(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it is one fix as ever, with the result of one."""
    assert scenario.fix(both("A", "left", "absent")) == exit_codes.OK
    document = printed(capsys)
    assert (document["outcome"], document["advisory_id"]) == ("verified", "A")
    assert scenario.read("pypi.txt") == "left 2.0.0\nright 1.0.0\n"


def test_two_patches_of_one_file_are_not_put_together(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.plugins["PyPI"] = ecosystem("PyPI", touches=("shared.txt",))
    scenario.plugins["npm"] = ecosystem("npm", touches=("shared.txt",))
    assert scenario.fix(A, NPM) == exit_codes.REFUSED
    document = printed(capsys)
    assert [fix["held_back"] for fix in document["fixes"]] == [
        None,
        "The PyPI patch changes shared.txt too; run fix again for npm once that one is committed.",
    ]
    assert scenario.read("shared.txt") == "shared\nPyPI\n"
    assert scenario.read("npm.txt") == PINS


def test_a_dry_run_prints_one_patch_that_git_applies(
    scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(scenario.repo)
    patch = tmp_path / "fix.patch"
    assert scenario.fix(A, NPM, dry_run=True, output=str(patch)) == exit_codes.OK
    assert not printed(capsys)["delivered"]
    assert snapshot(scenario.repo) == before
    done = SubprocessClients().run("git", ["apply", str(patch)], cwd=scenario.repo, timeout_s=60.0)
    assert done.ok, done
    assert scenario.read("npm.txt") == scenario.read("pypi.txt") == "left 2.0.0\nright 1.0.0\n"


@pytest.mark.parametrize("given", [(), (advisory("X", "absent"), advisory("Y", "absent"))])
def test_nothing_to_fix(
    scenario: Scenario, given: tuple[Advisory, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert scenario.fix(*given, json=False) == exit_codes.NOT_AFFECTED
    assert "not affected" in capsys.readouterr().out
    assert scenario.kinds == []


def test_a_missing_client_is_the_environments(scenario: Scenario) -> None:
    from fallback_tier.errors import ToolMissingError

    missing = ToolMissingError("No client.", next_step="Install it.")
    scenario.plugins["PyPI"] = ecosystem("PyPI", failing={"left": missing})
    assert scenario.fix(A, B) == exit_codes.ENVIRONMENT
