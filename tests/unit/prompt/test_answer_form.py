"""Prompts that ask for either form: JSON as it always was, blocks without a word of JSON."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from fallback_tier.answers.block_form import SEARCH
from fallback_tier.answers.blocks import parse_blocks, parse_plan
from fallback_tier.errors import ConfigurationError
from fallback_tier.outcome import Plan, SearchReplace
from fallback_tier.prompt.builder import Prompt, PromptBuilder
from fallback_tier.repo import AnswerForm, RepoContext, Settings
from fallback_tier.retrieval import FewShot
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.kinds import OfKind
from tests.unit.prompt.test_builder import TEMPLATES, Nonces, advisory, example, failed

FORMS = [*AnswerForm]


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> RepoContext:
    return context(tmp_path_factory.mktemp("repo"), {"app.py": "import vulnerable\n"})


def build(
    repo: RepoContext, form: AnswerForm, template: str = TEMPLATES["pypi"], **given: object
) -> Prompt:
    asked = repo.model_copy(update={"settings": Settings(answer_form=form)})
    plugin = FakeEcosystem(template_text=template)
    return PromptBuilder(Nonces()).build(advisory(), asked, plugin, **given)  # type: ignore[arg-type]


def whole(prompt: Prompt) -> str:
    return prompt.system + prompt.user


def worked_example(system: str) -> str:
    return system.rpartition("The answer:\n")[2]


@pytest.mark.parametrize("ecosystem", TEMPLATES)
def test_the_worked_example_is_one_plan_in_either_form(repo: RepoContext, ecosystem: str) -> None:
    """Character by character: a prompt that shows another text for the same edit teaches a wrong one."""
    json_form, blocks = (
        worked_example(build(repo, form, TEMPLATES[ecosystem]).system) for form in FORMS
    )
    plan, problems = parse_plan(json_form)
    assert plan is not None, problems
    assert parse_blocks(blocks) == (plan, ())


@pytest.mark.parametrize("ecosystem", TEMPLATES)
def test_each_kind_of_plan_is_shown_in_either_form(repo: RepoContext, ecosystem: str) -> None:
    def kinds(form: AnswerForm) -> list[Plan | None]:
        system = build(repo, form, TEMPLATES[ecosystem]).system
        shown = system.partition("# Answer\n")[2].partition("\n\n- `dependency_bump`")[0]
        if form is AnswerForm.JSON:
            return [parse_plan(line)[0] for line in shown.splitlines() if line.startswith("{")]
        return [parse_blocks(f"action: {one}")[0] for one in shown.split("\naction: ")[1:]]

    as_json, as_blocks = map(kinds, FORMS)
    assert [plan.action for plan in as_json if plan] == [
        "dependency_bump",
        "override",
        "source_edit",
        "refuse",
    ]
    # The words in the places of the code differ: "exact text", and "exact lines".
    assert [plan.action for plan in as_blocks if plan] == [plan.action for plan in as_json if plan]
    assert as_blocks[:2] == as_json[:2]
    assert as_blocks[3] == as_json[3]


@pytest.mark.parametrize("ecosystem", TEMPLATES)
def test_a_prompt_for_blocks_says_nothing_of_json(repo: RepoContext, ecosystem: str) -> None:
    prompt = build(repo, AnswerForm.BLOCKS, TEMPLATES[ecosystem], examples=[example()])
    assert not re.search(
        r"json\b(?!\s+and the lock)", whole(prompt).replace("package.json", ""), re.IGNORECASE
    )
    assert "\\n" not in prompt.system
    assert prompt.user.endswith("Answer with one plan in the form that was told, nothing else.\n")


def test_what_both_forms_have_to_say_is_said_once(repo: RepoContext) -> None:
    """Rules, data, ecosystem: the forms differ in how an answer looks, and in nothing else."""
    as_json, as_blocks = (set(build(repo, form).system.splitlines()) for form in FORMS)
    assert len(as_json & as_blocks) >= 15
    assert all(
        "`old`" not in line or "SEARCH" in line or line[0] == "1" for line in as_json ^ as_blocks
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_system_part_does_not_depend_on_the_fix(repo: RepoContext, form: AnswerForm) -> None:
    first = build(repo, form, examples=[example()])
    retry = build(repo, form, prior_attempts=[failed("the tests failed")], own_code=True)
    assert first.system == retry.system
    assert first.answer_form is form


def test_the_forms_are_different_requests(repo: RepoContext) -> None:
    assert len({hashlib.sha256(whole(build(repo, form)).encode()).digest() for form in FORMS}) == 2


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        (AnswerForm.JSON, "one JSON object, nothing else."),
        (AnswerForm.BLOCKS, "one plan in the form that was told, nothing else."),
    ],
)
def test_asked_again_it_is_the_same_form(repo: RepoContext, form: AnswerForm, asked: str) -> None:
    prompt, builder = build(repo, form), PromptBuilder(Nonces(50))
    bare = prompt.model_copy(update={"snippets": ()})
    shown = builder.with_more_code(bare, "app.py is not shown", repo, own_code=False)
    assert shown is not None
    asked_again = (
        builder.repair(prompt, "?", ["No."]),
        builder.regenerate(prompt, "?", ["No."]),
        shown.opening,
    )
    for turn in asked_again:
        again = turn.messages[-1].content
        assert asked in again
        assert ("JSON" in again) == (form is AnswerForm.JSON)


def few_shot(*edits: SearchReplace) -> FewShot:
    shot = example()
    record = shot.example.model_copy(update={"edits": edits})
    return shot.model_copy(update={"example": record, "edits": edits})


def test_examples_are_shown_in_the_form_of_the_answer(repo: RepoContext) -> None:
    edit = SearchReplace(path="x.py", old="a", new='"b"')
    reported = {form: build(repo, form, examples=[few_shot(edit)]).examples[0] for form in FORMS}
    assert json.dumps(edit.model_dump()) in reported[AnswerForm.JSON]
    assert f'path: x.py\n```\n{SEARCH}\na\n=======\n"b"\n' in reported[AnswerForm.BLOCKS]
    assert "{" not in reported[AnswerForm.BLOCKS]


def test_an_example_that_blocks_can_not_say_is_shown_all_the_same(repo: RepoContext) -> None:
    edit = SearchReplace(path="x.md", old="Title\n=======", new="Title")
    (text,) = build(repo, AnswerForm.BLOCKS, examples=[few_shot(edit)]).examples
    assert json.dumps(edit.model_dump()) in text


def test_a_template_that_knows_of_json_alone_is_refused(repo: RepoContext, tmp_path: Path) -> None:
    template = (
        "{% block system %}Answer in JSON.{% endblock %}{% block user %}{{ advisory }}"
        "{% for one in snippets %}{{ one.text }}{% endfor %}{% endblock %}"
    )
    assert build(repo, AnswerForm.JSON, template).system == "Answer in JSON."
    with pytest.raises(ConfigurationError, check=OfKind("not_shown")) as error:
        build(repo, AnswerForm.BLOCKS, template)
    assert "--answer-form json" in error.value.next_step


def test_an_example_that_blocks_would_push_out_of_its_fence_is_shown_in_json(
    repo: RepoContext,
) -> None:
    many = SearchReplace(path="x.py", old="a\n" * 600, new="b\n" * 100)
    user = build(repo, AnswerForm.BLOCKS, examples=[few_shot(many)]).user
    assert '| {"path": "x.py"' in user
    assert "<<<CUT" not in user
