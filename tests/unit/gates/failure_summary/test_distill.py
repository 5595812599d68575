"""Distillation: the diagnosis of recorded logs, the same on every machine and Python.

The logs in tests/fixtures/logs are of small failing projects that were run for this purpose.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.vocabulary import (
    FailureKind,
    GateStatus,
    PromptShape,
    RefusalReason,
    Tier,
)
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.failure_summary.diagnosis import MAX_LINE_CHARS, clean, diagnose
from fallback_tier.gates.failure_summary.distill import distill, failure_signature, of_tests
from fallback_tier.limits import MAX_FAILURE_SUMMARY_BYTES
from fallback_tier.outcome import Applied, AttemptSummary, Refused
from fallback_tier.prompt.fence import SourceKind, fence
from tests.integration.gate_setup import applied
from tests.kinds import RaisedIn

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"
DIFF = """diff --git a/app/paths.py b/app/paths.py
--- a/app/paths.py
+++ b/app/paths.py
@@ -1,3 +1,3 @@
 import os
-    full = os.path.join(base, name)
+    full = os.path.normpath(os.path.join(base, name))
diff --git a/package-lock.json b/package-lock.json
--- a/package-lock.json
+++ b/package-lock.json
@@ -1 +1 @@
-  "version": "1.0.0"
+  "version": "1.0.1"
"""


def log(name: str) -> str:
    return (LOGS / name).read_text()


def failure(text: str, kind: FailureKind = FailureKind.TESTS_FAILED) -> GateVerdict:
    return GateVerdict(
        gate="tests", status=GateStatus.FAILED, failure_kind=kind, detail="1 failed", log=text
    )


def summary_of(text: str, *, attempt: int = 1, diff: str = DIFF) -> AttemptSummary:
    application: Applied = applied(diff)
    return distill([failure(text)], application=application, attempt=attempt)


def test_pytest_names_tests_assertions_and_frames_in_the_repository() -> None:
    found = diagnose(log("pytest-short.txt"))
    assert found.tests == (
        "tests/test_paths.py::test_sibling_prefix_is_refused[../srv-secret/key]",
        "tests/test_paths.py::test_absolute_is_inside",
        "tests/test_paths.py::test_dict",
    )
    assert found.assertions[:2] == (
        "Failed: DID NOT RAISE <class 'PermissionError'>",
        "PermissionError: '/etc/passwd' lies outside '/srv' (<object object at 0x...>)",
    )
    assert "app/paths.py:6 in safe_join" in found.frames
    assert found.diagnostics == ()


def test_colours_change_nothing() -> None:
    assert diagnose(log("pytest-colour.txt")) == diagnose(log("pytest-short.txt"))


def test_long_tracebacks_give_the_same_tests_and_assertions() -> None:
    long, short = diagnose(log("pytest-long.txt")), diagnose(log("pytest-short.txt"))
    assert (long.tests, long.assertions) == (short.tests, short.assertions)


@pytest.mark.parametrize("kind", ["unittest", "import-error"])
def test_one_failure_gives_one_text_on_every_python(kind: str) -> None:
    texts = {
        summary_of(log(f"{kind}-python3.{minor}.txt")).prior_failure_summary
        for minor in (11, 12, 13)
    }
    raw = {log(f"{kind}-python3.{minor}.txt") for minor in (11, 12, 13)}
    assert len(raw) == 3
    assert len(texts) == 1


def test_unittest_and_an_import_error() -> None:
    found = diagnose(log("unittest-python3.13.txt"))
    assert found.tests[0] == (
        "test_absolute_is_inside (tests.test_paths.SafeJoin.test_absolute_is_inside)"
    )
    assert "AssertionError: PermissionError not raised" in found.assertions
    assert "app/paths.py:11 in check" in found.frames
    found = diagnose(log("import-error-python3.13.txt"))
    assert found.assertions[-1] == "ImportError: cannot import name 'sanitise' from 'app' (app.py)"
    assert found.frames == ("tests/test_app.py:1 in <module>",)


def test_node_in_both_of_its_forms() -> None:
    tap, spec = diagnose(log("node-tap.txt")), diagnose(log("node-spec.txt"))
    assert tap.tests == spec.tests == ("refuses a sibling", "is refused", "is equal", "outside")
    assert "error: '/etc/passwd lies outside /srv'" in tap.assertions
    assert "expected: '/srv/c'" in tap.assertions
    assert "paths.js:4 in exports.safeJoin" in tap.frames
    assert not [frame for frame in tap.frames + spec.frames if "node:" in frame]


def test_what_clients_could_not_resolve() -> None:
    npm, uv = diagnose(log("npm-eresolve.txt")), diagnose(log("uv-conflict.txt"))
    assert 'peer react@"17.0.2" from react-dom@17.0.2' in npm.diagnostics
    assert not [line for line in npm.diagnostics if "_logs" in line or "retry" in line]
    assert len(uv.diagnostics) == 3
    assert "werkzeug>=3.0.0" in uv.diagnostics[1]


def test_a_log_of_unknown_shape_gives_its_last_lines() -> None:
    found = diagnose("\n".join(f"step {number}" for number in range(100)))
    assert found.diagnostics[-1] == "step 99"
    assert len(found.diagnostics) < 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at 0x7f3d1d94c810", "at 0x..."),
        ("3 passed in 0.21s", "3 passed <time>"),
        ("2026-11-21T23:06:59.516Z up", "<time> up"),
        ("open /tmp/tmpab12cd34/tree/x.py", "open .../x.py"),
        ("/home/someone/.cache/app/x.py:3", ".../x.py:3"),
        ("/data/state/venvs/0123/lib/python3.11/site-packages/a/b.py", ".../b.py"),
        ("'/etc/passwd' and https://host/tmp/a", "'/etc/passwd' and https://host/tmp/a"),
        ("\x1b[31mred\x1b[0m \u202eevil\x00", "red evil"),
        ("Python 3.11.7 and Node.js v20.1.2", "Python and Node.js"),
        ("no attribute 'a'. Did you mean: 'b'?", "no attribute 'a'"),
    ],
)
def test_what_differs_between_machines_is_removed(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_the_summary_reads_as_a_diagnosis() -> None:
    text = summary_of(log("unittest-python3.11.txt")).prior_failure_summary
    assert text.startswith("Attempt 1 (recipe) failed at gate tests: tests_failed.\n1 failed\n")
    assert text.endswith(
        "What the patch tried:\n"
        "  app/paths.py\n"
        "  -     full = os.path.join(base, name)\n"
        "  +     full = os.path.normpath(os.path.join(base, name))\n"
        "  package-lock.json (by the package client)"
    )


def test_a_line_that_looks_like_a_header_is_not_one() -> None:
    diff = "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n--- old comment\n+-- new comment\n"
    text = summary_of("x", diff=diff).prior_failure_summary
    assert text.endswith("  q.sql\n  - -- old comment\n  + -- new comment")


def test_the_same_failure_has_the_same_signature_although_the_edit_differs() -> None:
    first = summary_of(log("unittest-python3.11.txt"))
    again = summary_of(
        re.sub(r"line (\d+)", "line 9\\1", log("unittest-python3.13.txt")),
        attempt=3,
        diff=DIFF.replace("normpath", "realpath"),
    )
    assert first.prior_failure_summary != again.prior_failure_summary
    assert failure_signature(first) == failure_signature(again)


@pytest.mark.parametrize(
    ("old", "new"),
    [("test_missing", "test_present"), ("PermissionError not raised", "OSError not raised")],
)
def test_another_test_or_assertion_is_another_failure(old: str, new: str) -> None:
    text = log("unittest-python3.11.txt")
    changed = text.replace(old, new)
    assert changed != text
    assert failure_signature(summary_of(text)) != failure_signature(summary_of(changed))


def test_gate_and_kind_are_signed() -> None:
    text = log("unittest-python3.11.txt")
    base = failure_signature(summary_of(text))
    other = distill([failure(text, FailureKind.BUILD_FAILED)], application=applied(DIFF), attempt=1)
    assert failure_signature(other) != base
    assert failure_signature(other.model_copy(update={"failing_gates": ("proof",)})) != base


def test_a_foreign_summary_is_signed_whole() -> None:
    def foreign(text: str) -> AttemptSummary:
        return AttemptSummary(
            attempt=1, failure_kind=FailureKind.TESTS_FAILED, prior_failure_summary=text
        )

    assert failure_signature(foreign("one")) == failure_signature(foreign("one"))
    assert failure_signature(foreign("one")) != failure_signature(foreign("two"))


def test_verdicts_without_a_log_differ_by_their_detail() -> None:
    def of(detail: str, attempt: int) -> str:
        verdict = failure("").model_copy(update={"detail": detail})
        return failure_signature(distill([verdict], application=applied(DIFF), attempt=attempt))

    assert of("2 test(s) ran, 3 before", 1) == of("2 test(s) ran, 3 before", 2)
    assert of("2 test(s) ran, 3 before", 1) != of("1 test(s) ran, 3 before", 1)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (RefusalReason.PLAN_INVALID, FailureKind.PLAN_INVALID),
        (RefusalReason.REPEATED_PATCH, FailureKind.REPEATED_PATCH),
    ],
)
def test_a_refused_attempt_is_distilled(reason: RefusalReason, kind: FailureKind) -> None:
    refused = Refused(
        attempt=2, prompt_shape=PromptShape.RETRY, reason=reason, sentence="It cites nothing."
    )
    summary = distill([], application=refused, attempt=2)
    assert summary.failure_kind is kind
    assert summary.prior_failure_summary.endswith("It cites nothing.")
    assert summary.tier is None


def test_nothing_that_failed_is_an_error_of_the_caller() -> None:
    passed = GateVerdict(gate="tests", status=GateStatus.PASSED, detail="ok")
    with pytest.raises(ValueError, check=RaisedIn(distill)):
        distill([passed], application=applied(DIFF), attempt=1)
    final = Refused(
        attempt=1,
        prompt_shape=PromptShape.NONE,
        reason=RefusalReason.NO_FIXED_VERSION,
        sentence="None.",
    )
    with pytest.raises(ValueError, match="no_fixed_version"):
        distill([], application=final, attempt=1)


def test_facts_of_the_attempt_go_with_it() -> None:
    application = applied(DIFF).model_copy(
        update={"tier": Tier.RAG, "used_few_shot_ref": ("example-7",)}
    )
    summary = distill([failure("x")], application=application, attempt=3)
    assert (summary.attempt, summary.tier) == (3, Tier.RAG)
    assert summary.failing_gates == ("tests",)
    assert summary.edit_digest == application.edit_digest
    assert summary.used_few_shot_ref == ("example-7",)
    assert "example-7" not in summary.prior_failure_summary


def test_of_earlier_attempts_a_line_each_is_told_where_that_is_wished() -> None:
    first = summary_of(log("unittest-python3.11.txt"))
    second = summary_of(
        log("pytest-short.txt"), attempt=2, diff=DIFF.replace("normpath", "realpath")
    )
    verdicts, tried = [failure(log("jest.txt"))], applied(DIFF)
    third = distill(verdicts, application=tried, attempt=3, earlier=[first, second])
    text = third.prior_failure_summary
    messages = text.split("Earlier attempts:\n")[1].split("\nWhat the patch tried:")[0].split("\n")
    assert [line[:38] for line in messages] == [
        "- Attempt 1 (recipe) failed at gate te",
        "- Attempt 2 (recipe) failed at gate te",
    ]
    assert "normpath" in messages[0]
    assert "realpath" in messages[1]
    alone = distill(verdicts, application=tried, attempt=3)
    assert "Earlier attempts:" not in alone.prior_failure_summary
    assert failure_signature(alone) == failure_signature(third)
    # What was told of attempt 1 is told again as its own line, never as a part of attempt 3's.
    fourth = distill(verdicts, application=tried, attempt=4, earlier=[first, second, third])
    assert fourth.prior_failure_summary.count("Attempt 1 ") == 1


def test_lessons_of_any_script_are_all_told() -> None:
    long = summary_of("\n".join(f"FAILED tests/a.py::test_{n}_{'ж' * 200}" for n in range(9)))
    made = distill(
        [failure("FAILED a.py::b")],
        application=applied(DIFF),
        attempt=4,
        earlier=[long.model_copy(update={"attempt": number}) for number in (1, 2, 3)],
    )
    assert made.prior_failure_summary.count("\n- Attempt 1 ") == 3


def test_of_an_attempt_without_a_patch_its_reason_is_told() -> None:
    refused = Refused(
        attempt=1,
        prompt_shape=PromptShape.INITIAL,
        reason=RefusalReason.PLAN_INVALID,
        sentence="S9 is no snippet.",
    )
    first = distill([], application=refused, attempt=1)
    text = distill(
        [failure("x")], application=applied(DIFF), attempt=2, earlier=[first]
    ).prior_failure_summary
    assert "- Attempt 1 gave no patch: plan_invalid. S9 is no snippet.\n" in text


def test_three_long_lessons_leave_the_summary_within_its_fence() -> None:
    long = summary_of("\n".join(f"FAILED tests/a.py::test_{n}_{'x' * 200}" for n in range(99)))
    noise = log("pytest-short.txt") + "\n".join(
        f"src/a.ts({n},1): error TS1: {'y' * 90}" for n in range(99)
    )
    tried = applied("--- a/x\n+++ b/x\n" + f"+{'z' * 90}\n" * 99)
    made = distill([failure(noise)], application=tried, attempt=4, earlier=[long] * 3)
    assert made.prior_failure_summary.count("\n- Attempt 1 ") == 3
    shown = fence(
        made.prior_failure_summary, source_kind=SourceKind.PRIOR_ATTEMPT_SUMMARY, nonce="0" * 32
    ).text
    assert shown.count("- Attempt 1 ") == 3


#: Text with the shapes that the parsers look for, and the characters that make parsers fail.
_PIECES = st.sampled_from(
    ["E   ", "FAILED ", "not ok 1 - ", "error: |-", '  File "', "npm error ", "/tmp/", "\x1b[", "é",
     "\ud800", "\u202e", "{", "^^^", "--- ", "+++ b/", "- ", "\n", "\r", "x" * 400, " ", ":1:",
     "  \u25cf ", "- Expected\n", "+ expected - actual\n", "  1 failing\n", "  1) ",
     "a.ts(1,2): error TS1: ", "FAIL a.test.js\n", "\u276f a.js:1:2\n", "FAILED a::b - c\n", "  Message:\n"]
)  # fmt: skip
_TEXTS = st.lists(_PIECES | st.text(max_size=20), max_size=60).map("".join)


@given(_TEXTS, _TEXTS)
def test_any_log_and_diff_give_a_bounded_clean_deterministic_summary(text: str, diff: str) -> None:
    application = applied().model_copy(update={"diff": diff})
    alone = distill([failure(text)], application=application, attempt=2)
    foreign = alone.model_copy(update={"attempt": 1, "prior_failure_summary": diff[:4_000]})
    first = distill([failure(text)], application=application, attempt=3, earlier=[foreign, alone])
    again = distill([failure(text)], application=application, attempt=3, earlier=[foreign, alone])
    assert first == again
    assert failure_signature(first) == failure_signature(alone)
    assert failure_signature(first) == failure_signature(again)
    content = first.prior_failure_summary.encode("utf-8")
    assert len(content) <= MAX_FAILURE_SUMMARY_BYTES
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", diagnose(text).__repr__())


def test_a_huge_log_stays_within_the_limit() -> None:
    text = "\n".join(f"FAILED tests/test_{n}.py::test_{'é' * 400}" for n in range(5_000))
    summary = summary_of(text, diff="+é\n" * 5_000).prior_failure_summary
    assert len(summary.encode()) <= MAX_FAILURE_SUMMARY_BYTES
    assert summary.count("\n  ...") == 2
    assert "What the patch tried:" in summary
    assert all(len(line) <= MAX_LINE_CHARS + 2 for line in summary.split("\n"))


@pytest.mark.parametrize(
    ("name", "broken", "told", "unreported"),
    [
        (
            "pytest-short.txt",
            "tests/test_paths.py::test_dict",
            "tests/test_paths.py:21 in test_dict",
            "app/paths.py",
        ),
        ("jest.txt", "test/a.test.js > calc > adds nothing", "test/a.test.js:4", "b.test.js"),
        ("vitest.txt", "test/b.test.js > each 2", "test/b.test.js:2", "a.test.js:4"),
        (
            "unittest-python3.11.txt",
            "test_missing (tests.test_paths.SafeJoin.test_missing)",
            "tests/test_paths.py:19 in test_missing",
            "app/paths.py",
        ),
    ],
)
def test_a_retry_is_not_told_of_tests_that_the_patch_did_not_break(
    name: str, broken: str, told: str, unreported: str
) -> None:
    verdict = failure(log(name)).model_copy(update={"broken": (broken,)})
    text = distill([verdict], application=applied(DIFF), attempt=1).prior_failure_summary
    message = text.partition("What the patch tried:")[0]
    assert f"Failing tests:\n- {broken}\n" in message
    assert told in message
    assert unreported not in message
    everything = summary_of(log(name)).prior_failure_summary
    assert unreported in everything.partition("What the patch tried:")[0]


def test_where_no_heading_names_what_broke_the_whole_log_is_read() -> None:
    verdict = failure(log("mocha.txt")).model_copy(update={"broken": ("x > adds nothing",)})
    text = distill([verdict], application=applied(DIFF), attempt=1).prior_failure_summary
    assert "test/b.test.js:1" in text


def test_a_line_of_a_megabyte_takes_no_time() -> None:
    """It took an hour with a pattern that tried every place again."""
    text = f"FAILED tests/a.py::test_a\n= {'1' * 1_000_000}\n{'_' * 500_000} x {'_' * 500_000}"
    assert of_tests(text, ["tests/a.py::test_a"])
