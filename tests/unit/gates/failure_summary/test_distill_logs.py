"""Distilling beats the log's tail: what a fixer needs from each recorded log, and who still tells it.

The logs were recorded from the real tools, on a small project with hundreds of passing tests and a
failing fix; coverage tables, file lists and the tools' own chatter are as they were printed.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.fix.decision import Failure, decide
from fallback_tier.fix.steps import FixProgress
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.failure_summary.diagnosis import (
    MAX_ASSERTIONS,
    MAX_PLACES,
    clean,
    diagnose,
)
from fallback_tier.gates.failure_summary.distill import distill, failure_signature
from fallback_tier.limits import MAX_FAILURE_SUMMARY_BYTES, MAX_FENCED_SUMMARY_BYTES
from fallback_tier.outcome import AttemptSummary
from fallback_tier.prompt.fence import SourceKind, fence
from tests.integration.gate_setup import applied

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"

#: Of each log: the failing tests, what was expected and what came, where, and with which code.
#: A floor, not a census: chosen by hand among what the summary does hold. Known to be missing from it:
#: long-node's `value: 1` (cut from a long diff), long-pytest's lines 8, 13 and 21 of the tests file.
FACTS = {
    "long-jest": (
        "safeJoin \u203a keeps a name inside the base", "safeJoin \u203a refuses an absolute name",
        "parse \u203a reads a header", "parse \u203a reads one pair", "test/shelf.test.js",
        'Expected: "/srv/files/secret/key"', 'Received: "/srv/secret/key"',
        "Expected constructor: RangeError", "Received function did not throw",
        "TypeError: Cannot read properties of undefined (reading 'split')",
        '"quoted": false,', '"value": 1,', '"value": "1",',
        "Cannot find module './sanitise' from 'lib/shelf.js'",
        "test/paths.test.js:5", "test/paths.test.js:8", "lib/paths.js:10", "lib/shelf.js:2",
    ),
    "long-mocha": (
        "keeps a name inside the base", "refuses an absolute name", "reads a header",
        "reads one pair", "answers in time", "/srv/files/secret/key", "/srv/secret/key",
        "Missing expected exception (RangeError)", "Timeout of 300ms exceeded",
        "TypeError: Cannot read properties of undefined (reading 'split')",
        '"quoted": false', '"value": 1', '"value": "1"',
        "mocha-test/paths.test.js:6", "mocha-test/paths.test.js:9", "lib/paths.js:10",
        "mocha-test/paths.test.js:21",
    ),
    "long-node": (
        "keeps a name inside the base", "refuses an absolute name", "reads a header",
        "reads one pair", "expected: '/srv/files/secret/key'", "actual: '/srv/secret/key'",
        "Missing expected exception (RangeError)", "reading 'split'", "quoted: false",
        "value: '1'", "node-test/paths.test.js:7", "lib/paths.js:10", "node-test/paths.test.js:22",
    ),
    "long-vitest": (
        "safeJoin > keeps a name inside the base", "safeJoin > refuses an absolute name",
        "parse > reads a header", "parse > reads one pair", "vi-test/shelf.test.mjs",
        "Failed to load url ./sanitise.mjs", "/srv/files/secret/key", "/srv/secret/key",
        "expected function to throw an error, but it didn't", "reading 'split'",
        '"quoted": false,', '"value": 1,', '"value": "1",',
        "vi-test/paths.test.mjs:6", "vi-test/paths.test.mjs:9", "lib/paths.js:10",
    ),
    "long-tsc": (
        "src/paths.ts(7,9)", "TS2322", "src/paths.ts(8,10)", "TS2304", "'normalise'",
        "src/paths.ts(12,10)", "TS18048", "src/route01.ts(4,19)", "TS2345", "src/server.ts(2,26)",
        "TS2307", "'./sanitise'", "TS2741", "TS2554", "src/server.ts(20,3)", "TS2416",
        "Type '() => number' is not assignable to type '() => string'",
    ),
    "long-tsc-pretty": (
        "src/paths.ts:7:9", "TS2322", "src/paths.ts:8:10", "TS2304", "'normalise'",
        "src/paths.ts:12:10", "TS18048", "src/route01.ts:4:19", "TS2345", "src/server.ts:2:26",
        "TS2307", "'./sanitise'", "TS2741", "TS2554", "src/server.ts:20:3", "TS2416",
        "Type '() => number' is not assignable to type '() => string'",
    ),
    "long-mypy": (
        "app/shelf.py:1", '"app.sanitise"', "import-not-found", "app/paths.py:25", "call-arg",
        "app/paths.py:29", "assignment", "app/paths.py:30", "operator", "tests/test_paths.py:31",
    ),
    "long-pytest": (
        "test_sibling_is_refused[../files-secret/key]", "test_sibling_is_refused[a]",
        "test_absolute_is_inside", "TestParse::test_header", "test_header_without_value",
        "test_with_a_file", "tests/test_shelf.py", "test_store", "No module named 'app.sanitise'",
        "OSError: the store is locked", "DID NOT RAISE PermissionError",
        "PermissionError: '/etc/passwd' lies outside '/srv/files'", "{'b': '2'} != {'b': 2}",
        "ValueError: not enough values to unpack (expected 2, got 1)", "other.txt",
        "app/shelf.py:1", "app/paths.py:7", "app/paths.py:16", "tests/test_paths.py:18",
    ),
    "long-pytest-summary": (
        "test_sibling_is_refused[../files-secret/key]", "test_absolute_is_inside",
        "TestParse::test_header", "test_header_without_value", "test_with_a_file",
        "tests/test_shelf.py", "test_store", "OSError: the store is locked",
        "DID NOT RAISE PermissionError", "lies outside '/srv/files'", "{'b': '2'} != {'b': 2}",
        "ValueError: not enough values to unpack (expected 2, got 1)",
    ),
    "npm-eresolve": ("ERESOLVE", 'peer react@"17.0.2" from react-dom@17.0.2'),
    "import-error-python3.13": (
        "tests/test_app.py", "ImportError: cannot import name 'sanitise' from 'app'",
    ),
    "unittest-python3.13": (
        "test_absolute_is_inside", "AssertionError: PermissionError not raised", "app/paths.py",
    ),
}  # fmt: skip

#: A summary of the size that both may have, and of the size that a retry's prompt holds.
SIZES = (MAX_FAILURE_SUMMARY_BYTES, MAX_FENCED_SUMMARY_BYTES)

RUNNERS = sorted(name for name in FACTS if name.startswith("long-"))


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text()


def verdict(text: str) -> GateVerdict:
    return GateVerdict(
        gate="tests", status=GateStatus.FAILED, failure_kind=FailureKind.TESTS_FAILED,
        detail="Tests failed.", log=text,
    )  # fmt: skip


@cache
def summary_of(text: str) -> AttemptSummary:
    return distill([verdict(text)], application=applied(), attempt=1)


def fenced(text: str) -> str:
    quoted = fence(text, source_kind=SourceKind.PRIOR_ATTEMPT_SUMMARY, nonce="0" * 32).text
    assert len(quoted.encode()) <= MAX_FENCED_SUMMARY_BYTES
    return quoted


def tail(text: str, size: int) -> str:
    return clean(text.encode()[-size:].decode("utf-8", "ignore"))


def held(facts: tuple[str, ...], text: str) -> int:
    return sum(fact in text for fact in facts)


@pytest.mark.parametrize("name", FACTS)
def test_the_summary_holds_every_fact_of_the_log_also_fenced(name: str) -> None:
    text = summary_of(log(name)).prior_failure_summary
    assert len(text.encode()) <= MAX_FAILURE_SUMMARY_BYTES
    quoted = fenced(text)
    for fact in FACTS[name]:
        assert fact in clean(log(name)), "not a fact of this log"
        assert fact in text
        assert fact in quoted


@pytest.mark.parametrize("size", SIZES)
def test_a_tail_of_the_same_length_holds_fewer(size: int) -> None:
    ours = {name: held(facts, fenced(summary_of(log(name)).prior_failure_summary))
            for name, facts in FACTS.items()}  # fmt: skip
    theirs = {name: held(facts, tail(log(name), size)) for name, facts in FACTS.items()}
    mean = sum(len(summary_of(log(name)).prior_failure_summary.encode()) for name in FACTS)
    print(
        f"{sum(ours.values())} of {sum(map(len, FACTS.values()))} facts in summaries of "
        f"{mean // len(FACTS):,} bytes on average, {sum(theirs.values())} in the last {size:,} bytes"
    )
    assert all(ours[name] >= theirs[name] for name in FACTS)
    assert sum(ours.values()) > sum(theirs.values())


@pytest.mark.parametrize("name", ["long-jest", "long-mocha"])
def test_two_runs_of_one_failure_have_one_signature(name: str) -> None:
    first, again = log(name), log(f"{name}-again")
    assert first != again
    assert failure_signature(summary_of(first)) == failure_signature(summary_of(again))


def _another_run(text: str) -> str:
    """No colours, other durations, another temporary folder, lines moved by an edit above them."""
    text = re.sub(r"\x1b\[\d+m", "", text)
    text = re.sub(r"\((\d+(?:\.\d+)?) (m?s)\)", r"(9\1 \2)", text)
    text = re.sub(r"duration_ms: [\d.]+", "duration_ms: 7.5", text)
    text = text.replace("pytest-of-root/pytest-7", "pytest-of-else/pytest-104")
    return re.sub(r"(?<=\.(?:js|ts|py))([:(])(\d+)", r"\g<1>1\2", text)


@pytest.mark.parametrize("name", RUNNERS)
def test_what_differs_between_runs_is_not_signed(name: str) -> None:
    text = log(name)
    other = _another_run(text)
    assert other != text
    assert failure_signature(summary_of(other)) == failure_signature(summary_of(text))


@pytest.mark.parametrize(
    "line",
    [
        "Error: connect ECONNREFUSED 127.0.0.1:{}", "AssertionError: order differs, seed {}",
        "AssertionError: worker with pid {} died", "AssertionError: no answer on port {}",
        "AssertionError: 1f0c2d3e-4b5a-4c6d-8e7f-0000000{} is unknown",
    ],
)  # fmt: skip
def test_ports_seeds_pids_and_identifiers_are_not_signed(line: str) -> None:
    texts = [line.format(number) for number in (43817, 51902)]
    assert all(diagnose(text).assertions for text in texts)
    assert len({failure_signature(summary_of(text)) for text in texts}) == 1
    assert failure_signature(summary_of(line.replace("r", "b", 3))) != failure_signature(
        summary_of(texts[0])
    )


def test_the_order_in_which_parallel_workers_end_is_not_signed() -> None:
    text = log("long-jest")
    begin, end = text.index("FAIL test/shelf"), text.index("----------|")
    moved = text[begin:end] + text[:begin] + text[end:]
    assert diagnose(moved).tests != diagnose(text).tests
    assert failure_signature(summary_of(moved)) == failure_signature(summary_of(text))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("long-jest", 'Received: "/srv/secret/key"', 'Received: "/srv/other"'),
        ("long-jest", "Cannot find module './sanitise'", "Cannot find module './clean'"),
        ("long-mocha", "-/srv/secret/key", "-/srv/other"),
        ("long-vitest", "reading 'split'", "reading 'trim'"),
        ("long-tsc", "name 'normalise'", "name 'join'"),
        ("long-tsc-pretty", "name 'normalise'", "name 'join'"),
        ("long-pytest-summary", "the store is locked", "the store is full"),
    ],
)
def test_another_failure_of_the_same_test_has_another_signature(
    name: str, old: str, new: str
) -> None:
    text = log(name)
    assert old in text
    changed = failure_signature(summary_of(text.replace(old, new)))
    assert changed != failure_signature(summary_of(text))


#: Of made-up accounts, in the forms that the redaction knows.
SECRETS = (
    "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8",
    "AKIA" + "Q3EGRZ5XW7N2LK4T",
    "npm_" + "Zx9Yw8Vu7Ts6Rq5Po4Nm" + "3Lk2Ji1Hg0Fe9Dc8",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("long-jest", "/srv/secret/key"), ("long-mocha", "/srv/secret/key"),
        ("long-node", "/srv/secret/key"), ("long-vitest", "/srv/secret/key"),
        ("long-tsc", "normalise"), ("long-tsc-pretty", "normalise"), ("long-mypy", "app.sanitise"),
        ("long-pytest", "the store is locked"), ("long-pytest-summary", "the store is locked"),
        ("npm-eresolve", "17.0.2"),
    ],
)  # fmt: skip
def test_a_secret_in_any_log_is_not_handed_on(name: str, old: str, secret: str) -> None:
    planted = log(name).replace(old, f"x {secret} y")
    assert secret in summary_of(planted).prior_failure_summary, "this log shows that it was there"
    decision = decide(FixProgress(application=applied(), verdicts=(verdict(planted),)), "fix-1")
    assert isinstance(decision, Failure)
    assert secret not in decision.summary.model_dump_json()
    assert "[REDACTED]" in decision.summary.prior_failure_summary


def test_a_message_with_many_places_is_told_once() -> None:
    found = diagnose(log("long-tsc")).diagnostics
    (callers,) = [line for line in found if "TS2345" in line]
    assert callers.startswith("src/route01.ts(4,19): error TS2345: Argument of type 'string'")
    assert callers.count("src/route") == 1 + MAX_PLACES
    assert callers.endswith("and 10 more)")


def test_a_long_diff_leaves_room_for_the_other_failures() -> None:
    blocks = [
        f"E   AssertionError: failure {number}\n"
        + "\n".join(f"E   - line {number}.{line}" for line in range(40))
        + f"\n\ntests/test_x.py:{number}: AssertionError"
        for number in range(4)
    ]
    found = diagnose("\n".join(blocks)).assertions
    assert len(found) <= MAX_ASSERTIONS
    for number in range(4):
        assert f"AssertionError: failure {number}" in found


def test_the_signs_of_a_diff_are_told_in_words() -> None:
    mocha, jest = diagnose(log("long-mocha")).assertions, diagnose(log("long-jest")).assertions
    assert "actual: /srv/secret/key" in mocha
    assert "expected: /srv/files/secret/key" in mocha
    assert 'expected: "quoted": false,' in jest
    assert 'actual: "value": "1",' in jest


def test_other_runners_of_javascript() -> None:
    jasmine, ava, tape = (diagnose(log(name)) for name in ("jasmine", "ava", "tape"))
    assert jasmine.tests == ("also fails: here", "calc adds nothing")
    assert "Expected 0 to be 1." in jasmine.assertions
    assert "a \u203a calc adds nothing" in ava.tests
    assert {"actual: 0", "expected: 1", "TypeError: boom"} <= set(ava.assertions)
    assert tape.tests == ("adds nothing",)
