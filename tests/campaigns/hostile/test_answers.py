"""Answers that nobody would send, by the thousand: the reader never raises and never invents.

In CI a sample; ``python -m tests.campaigns.hostile.test_answers`` runs the campaign.
"""

import json
import random
import re
import sys
from collections.abc import Iterator
from typing import Any

from fallback_tier.answers.blocks import parse_plan
from fallback_tier.answers.reading import MAX_PROBLEM_CHARS, MAX_PROBLEMS

CASES = 2_000
CAMPAIGN = 100_000

PLANS: tuple[dict[str, Any], ...] = (
    {
        "action": "refuse",
        "reason": 'It\'s {not} safe: "x" \\ \u00e9 \U0001f600',
        "citations": ["S1"],
    },
    {"action": "dependency_bump", "package": "p", "version": "1.0.1", "edits": []},
    {"action": "override", "package": "@s/p", "version": "2.0.0", "rationale": "a\nb"},
    {
        "action": "source_edit",
        "edits": [{"path": "a.js", "old": "f({'a': 1})\n", "new": '"""\n</think>`${x}`'}],
        "rationale": '{"action": "refuse"} is only a word',
    },
)
FRAGMENTS = (
    *("{", "}", "[", "]", ":", ",", '"', "'", '"""', "\\", "\\u00", "\\ud800", "\n", "\0", "null"),
    *('"action":', "'action'", "<think>", "</think>", "```json\n", "1e999", "\u202e", "  "),
)


def mutants(seed: int) -> Iterator[str]:
    """Plans cut, spliced, doubled, framed and sprinkled with what JSON is made of."""
    chance = random.Random(seed)
    while True:
        text = json.dumps(chance.choice(PLANS), ensure_ascii=chance.random() < 0.5)
        for _ in range(chance.randrange(6)):
            at, to = sorted(chance.randrange(len(text) + 1) for _ in range(2))
            other = json.dumps(chance.choice(PLANS))
            piece = chance.choice(
                (*FRAGMENTS, other, other[: chance.randrange(len(other))], text[at:to])
            )
            text = chance.choice((text[:at] + piece + text[at:], text[:at] + piece + text[to:]))
        yield text


def literals(value: object) -> Iterator[str]:
    """Every string inside a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from literals(inner)
    elif isinstance(value, str):
        yield value


def judge(text: str) -> bool:
    """Is it a plan? Fails where the reader did what it may not."""
    plan, problems = parse_plan(text)
    assert (plan is None) == bool(problems), text
    assert len(problems) <= MAX_PROBLEMS + 1, text
    for problem in problems:
        assert problem.endswith("."), text
        assert len(problem) < MAX_PROBLEM_CHARS + 250, text
        assert problem.isprintable(), text
    for words in literals(plan.model_dump() if plan else None):
        for word in re.findall(r"[A-Za-z]{2,}", words):
            assert word in text, "a plan has no word that the answer doesn't have"
    return plan is not None


def fuzz(cases: int, seed: int = 0) -> int:
    """Judges that many mutants; how many of them were plans."""
    answers = mutants(seed)
    return sum(judge(next(answers)) for _ in range(cases))


def test_no_answer_breaks_the_reader() -> None:
    plans = fuzz(CASES)
    assert CASES // 20 < plans < CASES * 19 // 20, "mutants must be plans sometimes, not always"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CAMPAIGN
    print(f"{count:,} answers read, {fuzz(count):,} of them plans")
