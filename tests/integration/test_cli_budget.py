"""The budget as a user meets it: caps, what was used, the question, the way on."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.budget.listed_prices import listed_prices_as_of
from fallback_tier.budget.prices import PRICES_AS_OF
from fallback_tier.cli import exit_codes
from fallback_tier.fix.journal.holding import holding
from tests.e2e.command import Ended, osv, repository, run, snapshot

OWN_CODE = {
    "pyproject.toml": '[project]\nname = "left"\nversion = "1.0.0"\n',
    "left.py": "def pad(text):\n    return eval(text)\n",
    "test_left.py": "import unittest\n\nimport left\n\n\nclass LeftTest(unittest.TestCase):\n"
    "    def test_pad(self):\n        self.assertEqual(left.pad('1'), 1)\n",
}

PLAN = {
    "action": "source_edit",
    "edits": [{"path": "left.py", "old": "    return eval(text)", "new": "    return int(text)"}],
}

USED = {"input_tokens": 2_000, "output_tokens": 500}


class Scenario:
    """A repository, an advisory, a script, a state folder."""

    def __init__(self, place: Path) -> None:
        self.repo = repository(place / "repo", OWN_CODE)
        self.advisory = place / "advisory.json"
        self.advisory.write_text(osv("left"))
        self.state = place / "state"
        self.script = place / "script.json"
        self.answer("no plan", PLAN)

    def answer(self, *answers: Any) -> None:
        self.script.write_text(json.dumps([{"answer": a, "usage": USED} for a in answers]))

    def fix(self, *options: str | Path, as_json: bool = True, price: str | None = "1:10") -> Ended:
        return run(
            *["fix", self.repo, "--advisory", self.advisory, "--state-dir", self.state],
            *["--script", self.script, "--no-sandbox"],
            *(["--price", price] if price else []),
            *options,
            *(["--json"] if as_json else []),
        )

    def wanted(self, option: str) -> Decimal:
        """What the first call may use: a prompt's size is not this test's business."""
        question = self.fix("--dry-run", option, "0.000001" if "usd" in option else "1").json
        found = re.search(r"may use \$?([\d,.]+\d)", question["question"])
        assert found
        return Decimal(found[1].replace(",", ""))

    def review(self, fix_id: str, *options: str) -> Ended:
        who = ["--by", "Ada", "--because", "worth it", "--state-dir", self.state]
        return run("review", "raise-budget", fix_id, *who, *options, "--json")


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def test_what_was_used_is_told_with_the_day_of_its_prices(scenario: Scenario) -> None:
    reported = scenario.fix("--dry-run").json
    assert reported["outcome"] == "patched"
    (author,) = reported["usage"]
    assert (author["call_type"], author["calls"]) == ("author", 2)
    assert (author["input_tokens"], author["output_tokens"]) == (4_000, 1_000)
    assert author["cost_usd_estimate"] == "0.014000"
    assert reported["prices_as_of"] == PRICES_AS_OF
    assert reported["listed_prices_as_of"] == listed_prices_as_of()
    shown = scenario.fix("--dry-run", as_json=False).out
    assert "used by author: 2 call(s), 4,000 tokens in, 1,000 out, about $0.014000" in shown
    assert f"price table of {PRICES_AS_OF}, else from --price, else" in shown
    assert listed_prices_as_of() in " ".join(shown.split())


def test_it_stops_at_its_cap_and_goes_on_where_it_stopped(scenario: Scenario) -> None:
    before = snapshot(scenario.repo)
    cap = str(scenario.wanted("--max-usd") + Decimal("0.001"))
    stopped = scenario.fix("--max-usd", cap)
    assert stopped.code == exit_codes.ESCALATED
    assert stopped.json["reason"] == "budget_exhausted"
    assert snapshot(scenario.repo) == before
    fix_id, question = stopped.json["fix_id"], stopped.json["question"]
    assert f"fallback-tier review raise-budget {fix_id}" in question
    assert f"of at most ${cap}." in question
    assert stopped.json["usage"][0]["calls"] == 1

    refused = scenario.fix("--max-usd", cap, "--resume", fix_id)
    assert refused.code == exit_codes.BAD_INPUT
    assert "nobody has raised it" in refused.json["error"]["problem"]

    raised = scenario.review(fix_id, "--max-usd", "1.50")
    assert raised.code == exit_codes.OK
    assert raised.json["usd_per_fix"] == "1.50"

    unpriced = scenario.fix("--resume", fix_id, price=None)
    assert unpriced.code == exit_codes.BAD_INPUT
    assert "price of model 'scripted' is not known" in unpriced.json["error"]["problem"]

    scenario.answer(PLAN)  # the first answer is not asked for again
    ended = scenario.fix("--max-usd", cap, "--resume", fix_id)
    assert ended.code == exit_codes.PATCHED, ended
    assert ended.json["fix_id"] == fix_id
    assert ended.json["usage"][0]["calls"] == 2
    assert (scenario.repo / "left.py").read_text().endswith("return int(text)\n")
    assert run("audit", "verify", "--state-dir", scenario.state).code == exit_codes.OK


def test_nothing_is_raised_while_the_fix_goes_on(scenario: Scenario) -> None:
    """Behind the next attempt's start, the record would say that it began without being let."""
    fix_id = scenario.fix("--max-tokens", "1").json["fix_id"]
    with holding(scenario.state, fix_id):
        refused = scenario.review(fix_id, "--max-tokens", "1000000")
    assert refused.code == exit_codes.BAD_INPUT
    assert "by another process" in refused.json["error"]["problem"]
    shown = run("audit", "show", fix_id, "--state-dir", scenario.state, "--json")
    assert "BudgetRaised" not in shown.out
    assert scenario.review(fix_id, "--max-tokens", "1000000").code == exit_codes.OK


def test_a_day_is_shared_by_all_fixes_of_a_state_folder(scenario: Scenario) -> None:
    cap = str(scenario.wanted("--max-tokens-per-day") + 4_000)
    assert scenario.fix("--dry-run", "--max-tokens-per-day", cap).json["outcome"] == "patched"
    other = scenario.fix("--dry-run", "--max-tokens-per-day", cap).json
    assert other["reason"] == "budget_exhausted"
    assert "5,000 tokens today (UTC) are used" in other["question"]
    assert other["usage"] == []


def test_a_cap_in_dollars_needs_a_price(scenario: Scenario) -> None:
    ended = run(
        *["fix", scenario.repo, "--advisory", scenario.advisory, "--state-dir", scenario.state],
        *["--script", scenario.script, "--no-sandbox", "--max-usd-per-day", "5"],
    )
    assert ended.code == exit_codes.BAD_INPUT
    assert "price of model 'scripted' is not known" in ended.problem
    assert "--price IN:OUT" in ended.next_step
    assert not scenario.state.exists()


@pytest.mark.parametrize(
    "option",
    [
        ["--max-usd", "five"],
        ["--max-usd", "-1"],
        ["--max-usd", "1e3"],
        ["--max-usd", "."],
        ["--max-usd", "1."],
        ["--max-tokens", "1.5"],
        ["--max-tokens", "-1"],
        ["--max-tokens", "\u0661"],
        ["--price", "1"],
        ["--price", "1:-2"],
    ],
)
def test_what_is_no_cap_and_no_price(scenario: Scenario, option: list[str]) -> None:
    ended = scenario.fix(*option)
    assert ended.code == exit_codes.BAD_INPUT
    assert option[0].lstrip("-").split("-")[0] in ended.err
    assert not scenario.state.exists()


def test_several_advisories_are_not_resumed(scenario: Scenario) -> None:
    other = scenario.advisory.with_name("other.json")
    other.write_text(osv("left").replace("TEST-2026-1", "TEST-2026-2"))
    ended = scenario.fix("--advisory", other, "--resume", "fix-1")
    assert ended.code == exit_codes.BAD_INPUT
    assert "--resume continues the fix of one advisory" in ended.json["error"]["problem"]


def test_a_review_without_a_trail_makes_none(scenario: Scenario) -> None:
    ended = scenario.review("fix-1", "--max-usd", "1")
    assert ended.code == exit_codes.ENVIRONMENT
    assert not scenario.state.exists()


def test_an_attempt_of_another_orchestrator_goes_on_the_same_way(scenario: Scenario) -> None:
    """It keeps its own state: the same identifiers and prior attempts are all that it sends again."""
    asked = {
        "advisory": json.loads(scenario.advisory.read_text()),
        "repository": str(scenario.repo),
        "fix_id": "fix-7",
        "gate_transition_id": "gate-7",
    }

    def attempt(cap: str) -> Any:
        options = ["--script", scenario.script, "--state-dir", scenario.state, "--max-tokens", cap]
        return run("attempt", *options, stdin=json.dumps(asked)).json

    cap = str(scenario.wanted("--max-tokens") + 1_000)
    stopped = attempt(cap)
    assert stopped["reason"] == "budget_exhausted"
    assert stopped["usage"][0]["calls"] == 1
    assert scenario.review("fix-7", "--max-tokens", "50000").code == exit_codes.OK
    scenario.answer(PLAN)
    assert attempt(cap)["outcome"] == "applied"
    assert run("audit", "verify", "--state-dir", scenario.state).code == exit_codes.OK
