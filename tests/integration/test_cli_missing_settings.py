"""A setting that is missing stops `resume`, and never ends the fix: exit code 6, and the option by name."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_tier.advisory import load_advisory
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.cli import exit_codes
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import fix_parts
from fallback_tier.wiring import Configuration, open_services
from tests.e2e.command import Ended, run
from tests.integration.test_cli_budget import PLAN, Scenario
from tests.integration.test_cli_reopen import breaking

WHO = ("--by", "Ada", "--because", "it is back")
NO_KEY = {"ANTHROPIC_API_KEY": "", "FALLBACK_TIER_API_KEY": ""}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def on_record(scenario: Scenario, fix_id: str) -> list[str]:
    shown = run("audit", "show", fix_id, "--state-dir", scenario.state, "--json").json
    return [event["kind"] for event in shown["events"]]


def resume(scenario: Scenario, fix_id: str, *options: str | Path) -> Ended:
    return run("resume", fix_id, "--state-dir", scenario.state, *options, env=NO_KEY)


def review(scenario: Scenario, verb: str, fix_id: str, *options: str) -> Ended:
    return run("review", verb, fix_id, *WHO, *options, "--state-dir", scenario.state)


def by_a_host(
    scenario: Scenario,
    *answers: object,
    model: str | None = None,
    budget: BudgetLimits | None = None,
) -> str:
    """A fix whose host handed its model in as an object: the recorded configuration has no model, or
    ``model`` without its key."""
    configuration = Configuration(
        state_dir=scenario.state,
        sandbox_waiver="a test",
        model=model,
        budget=budget or BudgetLimits(),
    )
    author = ScriptedModel(answers)
    with open_services(configuration, author=author) as services:
        inputs = services.inputs(load_advisory(scenario.advisory), scenario.repo, fix_id="fix-1")
        parts = fix_parts(services, inputs.advisory, lambda _: None, repo=inputs.repo_ctx)
        run_fix(parts, inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
    return "fix-1"


def stopped_at_budget(scenario: Scenario) -> str:
    fix_id = by_a_host(scenario, PLAN, budget=BudgetLimits(tokens_per_fix=1))
    assert review(scenario, "raise-budget", fix_id, "--max-tokens", "1000000").code == 0
    return fix_id


def model_was_unavailable(scenario: Scenario) -> str:
    fix_id = by_a_host(scenario)
    assert review(scenario, "reopen", fix_id).code == 0
    return fix_id


def every_attempt_failed(scenario: Scenario) -> str:
    fix_id = by_a_host(scenario, *map(breaking, range(4)))
    assert review(scenario, "reopen", fix_id).code == 0
    return fix_id


@pytest.mark.parametrize("begun", [stopped_at_budget, model_was_unavailable, every_attempt_failed])
def test_resume_without_a_model_leaves_the_fix_as_it_is(
    scenario: Scenario, begun: Callable[[Scenario], str]
) -> None:
    fix_id = begun(scenario)
    before = on_record(scenario, fix_id)
    stopped = resume(scenario, fix_id, "--json")
    assert stopped.code == exit_codes.ENVIRONMENT, stopped
    assert stopped.kind == "no_model"
    assert "--model NAME" in stopped.next_step
    assert on_record(scenario, fix_id) == before, "nothing is recorded of an attempt that can't be"
    scenario.answer(PLAN)
    ended = resume(scenario, fix_id, "--script", scenario.script)
    assert ended.code == exit_codes.PATCHED, ended
    assert run("audit", "verify", "--state-dir", scenario.state).code == exit_codes.OK


def test_fix_with_resume_and_without_a_model_leaves_the_fix_as_it_is(scenario: Scenario) -> None:
    fix_id = stopped_at_budget(scenario)
    words = ["fix", scenario.repo, "--advisory", scenario.advisory, "--state-dir", scenario.state]
    stopped = run(*words, "--no-sandbox", "--resume", fix_id, env=NO_KEY)
    assert stopped.code == exit_codes.ENVIRONMENT, stopped
    assert "--model NAME" in stopped.next_step
    assert on_record(scenario, fix_id)[-1] == "BudgetRaised"


def test_resume_without_the_models_key_names_its_variable(scenario: Scenario) -> None:
    fix_id = by_a_host(scenario, model="claude-sonnet-5")
    assert review(scenario, "reopen", fix_id).code == 0
    stopped = resume(scenario, fix_id)
    assert stopped.code == exit_codes.ENVIRONMENT, stopped
    assert "ANTHROPIC_API_KEY is not set" in stopped.problem
    assert "--base-url" in stopped.next_step
    assert f"fallback-tier resume {fix_id}" in stopped.next_step
    assert on_record(scenario, fix_id)[-1] == "TransitionReopened"


@pytest.mark.parametrize("option", ["--script", "--examples", "--judge-script"])
def test_resume_without_a_file_that_the_fix_began_with_names_its_option(
    scenario: Scenario, tmp_path: Path, option: str
) -> None:
    fix_id = scenario.fix("--max-tokens", "1").json["fix_id"]
    assert review(scenario, "raise-budget", fix_id, "--max-tokens", "1000000").code == 0
    missing = tmp_path / "gone"
    if option == "--script":
        scenario.script.rename(missing)
        stopped = resume(scenario, fix_id)
    else:
        stopped = resume(scenario, fix_id, option, missing)
    assert stopped.code == exit_codes.ENVIRONMENT, stopped
    assert f"{option} " in stopped.problem
    assert on_record(scenario, fix_id)[-1] == "BudgetRaised"


def test_resume_without_a_local_models_file_names_the_option(scenario: Scenario) -> None:
    fix_id = stopped_at_budget(scenario)
    stopped = resume(scenario, fix_id, "--model", "local:/no/such.gguf")
    assert stopped.code == exit_codes.ENVIRONMENT, stopped
    assert "--model local:FILE" in stopped.next_step
    assert on_record(scenario, fix_id)[-1] == "BudgetRaised"


def test_a_fix_that_began_without_a_model_ends_as_it_would_have(scenario: Scenario) -> None:
    """Its own end is not the fault of a missing setting: it never had a model."""
    words = ["fix", scenario.repo, "--advisory", scenario.advisory, "--state-dir", scenario.state]
    assert run(*words, "--no-sandbox", env=NO_KEY).code == exit_codes.REFUSED


def test_a_fix_whose_model_was_unavailable_is_tried_again_by_the_commands_that_it_names(
    scenario: Scenario,
) -> None:
    scenario.answer()  # a model that gives no answer
    asked = scenario.fix()
    assert (asked.code, asked.json["reason"]) == (exit_codes.ESCALATED, "model_unavailable")
    fix_id = asked.json["fix_id"]
    shown = run("review", "show", fix_id, "--state-dir", scenario.state, "--json").json
    verbs = [shlex.split(step)[2] for step in shown["next_steps"]]
    assert verbs == ["reject", "reopen"]
    reopened = run(*shlex.split(shown["next_steps"][1])[1:], "--state-dir", scenario.state)
    assert reopened.code == exit_codes.OK, reopened
    scenario.answer(PLAN)
    follows = shlex.split(reopened.out.partition("next: ")[2])[1:]
    ended = run(*follows, "--state-dir", scenario.state, "--json")
    assert ended.code == exit_codes.PATCHED, ended
    assert ended.json["prior_attempts"] == []
    kinds = on_record(scenario, fix_id)
    assert kinds.count("RecipeEvaluated") == 2, "a first attempt, the whole chain"
    assert "RagSkippedOnRetry" not in kinds
    assert run("audit", "verify", "--state-dir", scenario.state).code == exit_codes.OK


def test_a_fix_at_its_budget_is_rejected_by_the_command_that_it_names(scenario: Scenario) -> None:
    fix_id = scenario.fix("--max-tokens", "1").json["fix_id"]
    shown = run("review", "show", fix_id, "--state-dir", scenario.state, "--json").json
    again, reject = shown["next_steps"]
    assert " review raise-budget " in again
    assert " --max-tokens " in again
    assert run(*shlex.split(reject)[1:], "--state-dir", scenario.state).code == exit_codes.OK
    assert run("review", "list", "--state-dir", scenario.state, "--json").json["questions"] == []
    for words in (again, f"fallback-tier review reopen {fix_id} --by A --because B"):
        late = run(*shlex.split(words)[1:], "--state-dir", scenario.state)
        assert late.code == exit_codes.BAD_INPUT
        assert "answered already: rejected by" in late.problem
    assert run("resume", fix_id, "--state-dir", scenario.state).code == exit_codes.ESCALATED
    assert run("audit", "verify", "--state-dir", scenario.state).code == exit_codes.OK
