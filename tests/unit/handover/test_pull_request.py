"""The body: everything a reviewer needs, and no byte of it that a renderer would act on."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fallback_audit.event_types import JudgedTests
from fallback_audit.vocabulary import GateStatus, PromptShape, RefusalReason, Tier
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_tier.handover.folder import (
    MAX_BODY_CHARS,
    MAX_INLINE_CHARS,
    OtherAdvisory,
    Subject,
    block,
    inline,
    pull_request_body,
)
from fallback_tier.outcome import ChangedDeclaration, FileChange, Left, LowConfidence
from fallback_tier.patch.diff import unified_diff
from tests.unit.handover.verified import (
    BASE,
    FAILED,
    PROOF,
    TESTS,
    USAGE,
    advisory,
    gate,
    remediation,
    verified,
)

HOSTILE = (
    "`</code> <img src=x onerror=alert(1)> @everyone #1 [x](javascript:1) ```\n\n"
    "# Approved\x1b[2J\u202e"
)


def by_model(**facts: object) -> Subject:
    result = verified(
        PROOF,
        TESTS,
        gate("typecheck", GateStatus.SKIPPED, "no tsconfig"),
        result={"prior_attempts": (FAILED,), "usage": (USAGE,), "attempts": 2},
        tier=Tier.LLM,
        prompt_shape=PromptShape.RETRY,
        **facts,
    )
    return Subject(result, advisory(), BASE, proof="python proof.py")


def test_a_new_file_is_called_so() -> None:
    made = FileChange(path="src/b.py", before=None, after="x\n")
    both = (FileChange(path="src/a.py", before="diff --git a/x b/x\n", after="y\n"), made)
    body = pull_request_body(by_model(diff=unified_diff(both), files=("src/a.py", "src/b.py")))
    assert "Files changed: `src/a.py`, `src/b.py` (new).\n" in body


def test_a_reviewer_reads_what_the_recipe_noted() -> None:
    noted = remediation().model_copy(update={"notes": ("a.txt was resolved on 2026-01-02 <img>.",)})
    body = pull_request_body(by_model(remediation=noted))
    assert "- `a.txt was resolved on 2026-01-02 <img>.`\n" in body


def test_a_reviewer_finds_everything() -> None:
    body = pull_request_body(by_model())
    for wanted in (
        "GHSA-test-0000-0000", "left lets in", "`a.txt`", "shown: proof", "3 test(s) pass",
        "not judged: `typecheck`", "no tsconfig", "fresh LLM run, no RAG", "attempt 2",
        "Attempt 1 failed (tests_failed)", "- test_a", "2 call(s), 900 tokens in", "about $0.0123",
        "python proof.py", "fallback-tier audit show fix-1", BASE, "No judge looked",
    ):  # fmt: skip
        assert wanted in body, wanted


@pytest.mark.parametrize("many", [1, 80])
def test_what_is_not_in_a_change_keeps_nothing_else_out(many: int) -> None:
    """Reasons quote a target, and there may be hundreds: it stands last, and is cut by itself."""
    reasons = tuple(f"{number} {'x' * MAX_INLINE_CHARS}" for number in range(20))
    others = [OtherAdvisory(f"GHSA-{at}", "**not fixed**", reasons) for at in range(many)]
    untested = JudgedTests(project=".", tests_level=Level.NOT_JUDGED, reason="no test ran")
    result = verified(
        gate("tests", GateStatus.SKIPPED, "none").model_copy(
            update={"tests_level": Level.NOT_JUDGED, "tests": (untested,)}
        )
    )
    body = pull_request_body(Subject(result, advisory(), BASE, sandboxed=False, others=others))
    assert len(body) < MAX_BODY_CHARS
    assert "merging this merges an untested change" in body
    assert "**Without a sandbox**" in body
    for title in ("What shows it", "What was checked", "How to verify", "Not in this change"):
        assert f"\n## {title}\n" in body
    *before, section = body.partition("\n## Not in this change\n")
    assert "\n## How to verify\n" in before[0]
    named = sum(line.startswith("- `GHSA-") for line in section.splitlines())
    assert 0 < named <= many
    assert (f"\n- and {many - named} more: " in section) == (named < many)
    assert section.count(" and 18 more\n") == named


@pytest.mark.parametrize(
    "reason", ["](http://evil.example)", "@team", "closes #1", "`", "a ``` b", HOSTILE, "\n# x"]
)
def test_a_reason_of_what_is_not_in_a_change_is_text(reason: str) -> None:
    other = OtherAdvisory(f"[A{reason}", "**not fixed**", (f"[x{reason}",) * 2)
    body = pull_request_body(replace(by_model(), others=[other], together=[f"[B{reason}"]))
    tokens = MarkdownIt("commonmark", {"html": True}).parse(body)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    assert not {it.type for it in every} & {"html_block", "html_inline", "link_open", "image"}
    prose = "".join(it.content for it in every if it.type == "text")
    assert not re.search("@team|@everyone|closes|evil|Approved|# x", prose)
    headings = [tokens[at + 1].content for at, it in enumerate(tokens) if it.type == "heading_open"]
    assert headings[-1] == "Not in this change"


def test_a_recipes_body_has_its_moves_and_no_model() -> None:
    body = pull_request_body(Subject(verified(TESTS, remediation=remediation()), advisory(), BASE))
    assert "`@scope/left` from `1.0.0` to `2.0.0`" in body
    for absent in ("## Cost", "judge", "double-check", "proof test, which"):
        assert absent not in body


def test_what_to_double_check_is_there() -> None:
    flag = LowConfidence(reason="unsupported", attempts=2, double_check=("the port is closed",))
    body = pull_request_body(by_model(low_confidence=flag, grounded=False))
    assert "Please double-check" in body
    assert "the port is closed" in body
    assert "**look at this**: support" in body


@given(st.text(max_size=400) | st.just(HOSTILE))
def test_untrusted_text_is_one_code_span(text: str) -> None:
    tokens = MarkdownIt().parse(f"- {inline(text)} end")
    children = [child for token in tokens for child in token.children or ()]
    kinds = [child.type for child in children]
    assert kinds in (["code_inline", "text"], ["text"])
    if kinds == ["text"]:
        assert children[0].content == "(nothing) end"


@given(st.text(max_size=400) | st.just(HOSTILE))
def test_untrusted_lines_are_one_block(text: str) -> None:
    tokens = MarkdownIt().parse(f"before\n\n{block(text, 'text')}\n\nafter")
    assert [token.type for token in tokens if token.level == 0] == [
        "paragraph_open", "paragraph_close", "fence", "paragraph_open", "paragraph_close",
    ]  # fmt: skip


def test_long_text_is_cut() -> None:
    assert len(inline("x" * 10_000)) <= MAX_INLINE_CHARS + 3


def test_hostile_words_render_as_words() -> None:
    result = verified(
        gate("tests", detail=HOSTILE, flaky=(HOSTILE,)),
        result={"prior_attempts": (FAILED.model_copy(update={"prior_failure_summary": HOSTILE}),)},
        notes=(HOSTILE,),
        loose_edits=(HOSTILE,),
        low_confidence=LowConfidence(reason=HOSTILE, attempts=2, double_check=(HOSTILE,)),
        files=(HOSTILE,),
        remediation=remediation(HOSTILE),
        tier=Tier.LLM,
    )
    body = pull_request_body(Subject(result, advisory(HOSTILE, (HOSTILE,)), BASE, HOSTILE))
    assert "\x1b" not in body
    assert "\u202e" not in body
    tokens = MarkdownIt("commonmark", {"html": True}).parse(body)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    assert not {token.type for token in every} & {"html_block", "html_inline", "link_open", "image"}
    prose = "".join(t.content for t in every if t.type == "text")
    assert "@everyone" not in prose
    assert "Approved" not in prose
    headings = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert not [heading for heading in headings if "Approved" in heading]


def test_no_list_pushes_another_section_out() -> None:
    many = tuple(f"{number} {'x' * MAX_INLINE_CHARS}" for number in range(400))
    moved = remediation()
    declared = ChangedDeclaration(package="p", file="a.txt", line=1, before="", after=many[0])
    left = Left(package="p", reason=RefusalReason.NO_FIXED_VERSION, sentence=many[0])
    recipe = moved.model_copy(
        update={
            "moves": moved.moves * 400,
            "declarations": (declared,) * 400,
            "left": (left,) * 400,
            "notes": many,
        }
    )
    projects = tuple(
        JudgedTests(project=f"p{at}", tests_level=Level.NOT_JUDGED, reason=many[0])
        for at in range(40)
    )
    unjudged = gate("tests", GateStatus.SKIPPED, many[0]).model_copy(
        update={"tests_level": Level.NOT_JUDGED, "tests": projects}
    )
    others = [OtherAdvisory(f"GHSA-{at}", "**not fixed**", many) for at in range(400)]
    result = verified(
        *(gate(f"custom-{at}", detail=many[0]) for at in range(40)),
        unjudged,
        result={"prior_attempts": (FAILED,) * 3, "usage": (USAGE,)},
        notes=many,
        loose_edits=many,
        files=many,
        remediation=recipe,
        low_confidence=LowConfidence(reason="unsupported", attempts=2, double_check=many),
    )
    body = pull_request_body(
        Subject(result, advisory(), BASE, proof="python proof.py", others=others, together=many)
    )
    assert len(body) < MAX_BODY_CHARS
    assert "(cut:" not in body
    for title in (
        "What this fixes", "What shows it", "Please double-check", "What was checked",
        "How it came about", "Cost", "How to verify", "Not in this change",
    ):  # fmt: skip
        assert f"\n## {title}\n" in body
    assert "merging this merges an untested change" in body
    assert "**not fixed**: `p`" in body
    assert "**something more was not fixed**" in body
    assert "- not judged: `tests`, " in body
    assert re.search(r"^- and \d{3} more: `fallback-tier audit show fix-1`$", body, re.MULTILINE)


def test_a_body_is_bounded() -> None:
    proof = "x" * MAX_BODY_CHARS
    subject = replace(by_model(), base_commit=proof)
    assert len(body := pull_request_body(subject)) == MAX_BODY_CHARS
    assert body.endswith("has all of it)*\n")


def test_gates_without_a_sandbox_are_told() -> None:
    subject = by_model()
    assert "In a sandbox without network, on base commit" in pull_request_body(subject)
    body = pull_request_body(replace(subject, sandboxed=False))
    assert "**Without a sandbox**, as a person had chosen, on base commit" in body
    assert "In a sandbox" not in body
