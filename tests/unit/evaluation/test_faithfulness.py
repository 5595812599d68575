"""Faithfulness measured: golden set, figures, raw results that go on, a report that follows from them."""

import json
import shutil
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.vocabulary import Provenance
from fallback_eval.faithfulness.analysis import (
    CONSTANT,
    LABELS,
    One,
    analyse,
    cohen_kappa,
    figures,
)
from fallback_eval.faithfulness.data import Case
from fallback_eval.faithfulness.golden import (
    MIN_CLAIMS,
    MIN_READ_TWICE,
    Kind,
    PlanRef,
    load_faithfulness,
)
from fallback_eval.faithfulness.report import FaithfulnessFolder
from fallback_eval.faithfulness.results import (
    AnswerFile,
    JudgeRun,
    load_raw,
    save_overlaps,
)
from fallback_eval.faithfulness.run import (
    askings,
    judge_by_model,
    judge_by_words,
    request_for,
)
from fallback_eval.retrieval.golden import GoldenSetError
from fallback_eval.retrieval.results import EvaluationError
from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_tier.errors import ModelError
from fallback_tier.grounding.support import Claim, claims_of
from fallback_tier.llm.judging import JudgeContext
from fallback_tier.outcome import DependencyBump
from fallback_tier.ports import ModelAnswer, ModelRequest
from tests.kinds import OfKind

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/faithfulness"
REPORT = ROOT / "docs/evaluation/faithfulness"
RUN = JudgeRun(model="scripted", provenance=Provenance.SCRIPTED, started="2026-01-01")


# --- The golden set -------------------------------------------------------------------------------


def test_the_golden_set_is_what_the_goals_ask_for() -> None:
    golden = load_faithfulness(GOLDEN)
    claims = golden.every_claim
    assert len(claims) >= MIN_CLAIMS
    assert len(golden.second) >= MIN_READ_TWICE
    kinds = {claim.kind for claim in claims}
    assert kinds == set(Kind)
    share = sum(claim.supported for claim in claims) / len(claims)
    assert 0.4 < share < 0.65
    assert sum(plan.curve for plan in golden.plans.values()) == 10


def write(folder: Path, plans: Iterable[object], claims: Iterable[object]) -> Path:
    for name, rows in (("plans", plans), ("claims", claims), ("second-reading", ())):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


PLAN = {"plan": "P1", "record": "R", "hunks": [0], "version": "2.0"}
CLAIM = {
    "plan": "P1",
    "claim": "C1",
    "text": "It is joined.",
    "supported": True,
    "kind": "stated",
    "reason": "it says so",
}
VERSION = {**CLAIM, "claim": "C2", "text": None, "kind": "version", "supported": False}


@pytest.mark.parametrize(
    ("plans", "claims", "why"),
    [
        ([PLAN, PLAN], [CLAIM], "stands there already"),
        ([{**PLAN, "edit": {"record": "R", "edit": 0}}], [CLAIM], "either a version or an edit"),
        ([{**PLAN, "examples": ["R"]}], [CLAIM], "its own record among its examples"),
        ([{**PLAN, "curve": True}], [CLAIM], "has not 4 examples"),
        ([PLAN], [{**CLAIM, "plan": "P9"}], "no plan has the id"),
        ([PLAN], [CLAIM, CLAIM], "is not the next claim"),
        ([PLAN], [{**CLAIM, "supported": False}], "can't be labelled False"),
        ([PLAN], [{**CLAIM, "kind": "fused-half-truth"}], "can't be labelled True"),
        ([PLAN], [{**CLAIM, "text": None}], "of others ours"),
        ([PLAN], [{**CLAIM, "supported": "yes"}], "not a labelledclaim"),
        ([PLAN], [], "has no claim"),
        ([PLAN], [CLAIM, VERSION], "2 claims, and 150 are the least"),
    ],
)
def test_a_wrong_golden_set_is_named(
    tmp_path: Path, plans: list[object], claims: list[object], why: str
) -> None:
    with pytest.raises(GoldenSetError, match=why):
        load_faithfulness(write(tmp_path, plans, claims))


# --- Figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "kappa"),
    [
        ([], None),
        ([(True, True)] * 5, None),
        ([(True, True), (False, False)] * 5, 1.0),
        ([(True, False), (False, True)] * 5, -1.0),
        ([(True, True), (False, True)] * 5, 0.0),
        # Cohen's 1960 arithmetic: agreed 0.7, by chance 0.5 → 0.4
        ([(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15, 0.4),
    ],
)  # fmt: skip
def test_cohens_kappa(pairs: list[tuple[bool, bool]], kappa: float | None) -> None:
    found = cohen_kappa(pairs)
    assert found == (None if kappa is None else pytest.approx(kappa))


def test_precision_and_recall_are_of_not_supported() -> None:
    reported = [(True, True), (True, False), (False, False), (False, False), (False, True)]
    ones = [One(f"P{n}", Kind.STATED, *pair) for n, pair in enumerate(reported)]
    found = figures([*ones, One("P9", Kind.STATED, label=True, said=None)])
    assert (found.claims, found.graded) == (6, 5)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    assert found.accuracy is not None
    assert found.accuracy.mean == pytest.approx(3 / 5)
    assert found.accuracy.low <= 3 / 5 <= found.accuracy.high


def test_a_constant_judge_has_no_kappa_to_boast_of() -> None:
    ones = [One(f"P{n}", Kind.STATED, label=n % 3 > 0, said=True) for n in range(30)]
    found = figures(ones)
    assert found.kappa == 0
    assert found.recall == 0
    assert found.precision is None


def test_nothing_graded_is_no_figure() -> None:
    found = figures([One("P1", Kind.STATED, label=True, said=None)])
    assert (found.graded, found.accuracy, found.kappa, found.kappa_interval) == (
        0,
        None,
        None,
        None,
    )


# --- Running, stopping, going on ------------------------------------------------------------------


def case(*, curve: bool = True) -> Case:
    plan = DependencyBump(package="p", version="2.0", rationale="It is joined.")
    ref = PlanRef(plan="P1", record="R", hunks=(0,), examples=("A", "B", "C", "D"), version="2.0",
                  curve=curve)  # fmt: skip
    context = JudgeContext(
        advisory="the name is joined; fixed in 2.0", examples=("alpha", "beta", "gamma", "delta")
    )
    return Case(ref, plan, claims_of(plan), context)


def verdict(*supported: bool) -> dict[str, object]:
    claims = [{"id": f"C{n}", "supported": one} for n, one in enumerate(supported, 1)]
    return {"claims": claims}


@pytest.fixture
def folder(tmp_path: Path) -> FaithfulnessFolder:
    """A small set of one plan, judged by words already."""
    golden, report = tmp_path / "golden", tmp_path / "report"
    golden.mkdir()
    examples = {"examples": ["A", "B", "C", "D"], "curve": True}
    write(golden, [PLAN | examples], [CLAIM | {"from_example": 2}, VERSION])
    save_overlaps(report, judge_by_words([case()]))
    return FaithfulnessFolder(report, golden)


def run(folder: FaithfulnessFolder, model: ScriptedModel, judge: JudgeRun = RUN) -> None:
    answers = AnswerFile(folder.path / "raw" / "scripted")
    judge_by_model([case()], model, judge, answers, lambda done, total: None)


def test_whole_contexts_come_first_then_the_curve() -> None:
    plain = case(curve=False)
    assert [count for _, count in askings([case(), plain])] == [4, 4, 0, 1, 2]
    assert "delta" not in request_for(case(), 2).text
    assert "beta" in request_for(case(), 2).text
    assert request_for(case(), 2) == request_for(case(), 2)  # the nonce is fixed: it can go on


def test_a_run_that_was_stopped_goes_on(folder: FaithfulnessFolder) -> None:
    class Stopped(Exception):  # noqa: N818 (a person's Ctrl-C)
        pass

    class StopsAfterTwo(ScriptedModel):
        def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
            if len(self.requests) == 2:
                raise Stopped
            return (yield from super().ask(request))

    with pytest.raises(Stopped):
        run(folder, StopsAfterTwo([verdict(True, True)] * 4))
    kept = folder.path / "raw/scripted/answers.jsonl"
    with kept.open("a") as stream:
        stream.write('{"plan": "P1", "exa')  # and it was killed inside a line
    rest = ScriptedModel([verdict(True, True)] * 4)
    run(folder, rest)
    assert len(rest.requests) == 2
    assert len(load_raw(folder.path).models["scripted"][1]) == 4
    again = ScriptedModel([])
    run(folder, again)
    assert not again.requests


def test_another_models_answers_are_not_added_to(folder: FaithfulnessFolder) -> None:
    run(folder, ScriptedModel([verdict(True, True)] * 4))
    with pytest.raises(EvaluationError, check=OfKind("another_model")):
        run(folder, ScriptedModel([]), RUN.model_copy(update={"weights": "sha256 0"}))


def test_a_server_that_is_down_ends_the_run_and_is_asked_again(folder: FaithfulnessFolder) -> None:
    with pytest.raises(ModelError):
        run(folder, ScriptedModel([]))
    rest = ScriptedModel([verdict(True, True)] * 4)
    run(folder, rest)
    assert len(rest.requests) == 4


# --- From raw results to the report ---------------------------------------------------------------


def test_the_report_follows_from_raw_results(folder: FaithfulnessFolder) -> None:
    """Four contexts: read, k = 4; then 0, 1 and 2, of which one can't be used."""
    run(
        folder,
        ScriptedModel([verdict(True, False), verdict(False, False), "all fine", verdict(True)]),
    )
    golden = load_faithfulness(folder.golden, least=1)
    analysis = analyse(golden, load_raw(folder.path))
    assert analysis.figures["scripted"].kappa == 1
    assert analysis.plans["scripted"].caught == 1
    assert analysis.figures[CONSTANT].kappa == 0
    assert analysis.curve[LABELS] == {0: [0.0], 1: [0.0], 2: [0.5], 4: [0.5]}
    assert analysis.curve["scripted"] == {0: [], 1: [], 2: [], 4: []}  # not graded at every k
    problems = analysis.problems["scripted"]
    assert len(problems) == 2
    assert "nothing about a claim: C2" in problems[1]


def test_words_are_found_or_not() -> None:
    """Versions are words, articles are none, and what examples say counts where they are shown."""
    reported = (
        Claim(id="C1", text="The name is joined in 2.0."),
        Claim(id="C2", text="It is joined in 2.1."),
        Claim(id="C3", text="Only gammas are."),
    )
    (whole, *_, fewer) = judge_by_words([replace(case(), claims=reported)])
    assert whole.shares == (1.0, 0.5, 1.0)
    assert (fewer.examples, fewer.shares) == (2, (1.0, 0.5, 0.0))


def test_the_published_report_follows_from_its_raw_results() -> None:
    assert list(FaithfulnessFolder(REPORT, GOLDEN).faults()) == []


def test_a_changed_page_or_label_is_noticed(tmp_path: Path) -> None:
    report, golden = tmp_path / "report", tmp_path / "golden"
    shutil.copytree(REPORT, report)
    shutil.copytree(GOLDEN, golden)
    folder = FaithfulnessFolder(report, golden)
    page = report / "report.md"
    page.write_text(page.read_text().replace("Cohen's κ", "agreement"))
    assert any(fault.startswith("report.md, line") for fault in folder.faults())
    shutil.copy(REPORT / "report.md", page)
    claims = golden / "claims.jsonl"
    right, wrong = ('"supported": true, "kind": "version"', '"supported": false, "kind": "version"')
    flipped = claims.read_text().replace(right, wrong, 1)
    claims.write_text(flipped)
    assert any(fault.startswith("report.md, line") for fault in folder.faults())
    overlaps = report / "raw/lexical.jsonl"
    overlaps.write_text("".join(overlaps.read_text().splitlines(keepends=True)[1:]))
    assert any("run again" in fault for fault in folder.faults())
