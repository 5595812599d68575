"""What is kept of a verdict."""

from pathlib import Path

import pytest

from fallback_audit.event_types import JudgedTests
from fallback_audit.events import GateJudged
from fallback_audit.evidence.store import MAX_EVIDENCE_BYTES, FileEvidenceStore
from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_tier.advisory import parse_advisory
from fallback_tier.fix.journal import recording
from fallback_tier.fix.journal.history import _verdict
from fallback_tier.fix.journal.recording import MAX_NAMED_TESTS, MAX_SECRET_LINES, FixRecord
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.prompt.redact import REDACTED, redact_secrets
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fakes.repository import context
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES

SECRET = "ghp_" + "a1B2" * 9


def test_a_log_is_kept_without_the_secrets_that_tests_print(tmp_path: Path) -> None:
    audit, evidence = MemoryAudit(), MemoryEvidence()
    repo = context(tmp_path / "repo", FILES)
    record = FixRecord(audit, evidence, parse_advisory(ADVISORY, "test"), repo, lambda _: None)
    verdict = GateVerdict(
        gate="tests",
        status=GateStatus.FAILED,
        failure_kind=FailureKind.TESTS_FAILED,
        detail=f"1 failed: {SECRET}",
        log=f"one\n{SECRET}\ntwo\n",
        duration_ms=1,
    )
    kept = record.judged(verdict, 1)
    assert kept.log == "one\n[REDACTED]\ntwo\n"
    (judged,) = [stored.payload for stored in audit.stored]
    assert isinstance(judged, GateJudged)
    assert judged.evidence_sha256 is not None
    assert evidence.get(judged.evidence_sha256).decode() == kept.log
    assert SECRET not in judged.detail


def test_a_log_that_is_longer_than_the_record_takes_is_cut(tmp_path: Path) -> None:
    """Whoever made it, and though it grew as secrets were taken out."""
    repo = context(tmp_path / "repo", FILES)
    evidence = FileEvidenceStore(tmp_path / "evidence")
    record = FixRecord(
        MemoryAudit(), evidence, parse_advisory(ADVISORY, "test"), repo, lambda _: None
    )
    log = "a\n" * (MAX_EVIDENCE_BYTES // 2 + 1)
    kept = record.judged(GateVerdict(gate="tests", status=GateStatus.PASSED, detail="", log=log), 1)
    assert "bytes left out" in kept.log
    assert len(kept.log.encode()) <= MAX_EVIDENCE_BYTES


def test_tests_that_failed_before_are_on_record_as_many_as_an_event_has_room_for(
    tmp_path: Path,
) -> None:
    audit, evidence = MemoryAudit(), MemoryEvidence()
    repo = context(tmp_path / "repo", FILES)
    record = FixRecord(audit, evidence, parse_advisory(ADVISORY, "test"), repo, lambda _: None)
    names = tuple(f"t::{number}" for number in range(MAX_NAMED_TESTS + 1))
    verdict = GateVerdict(gate="tests", status=GateStatus.PASSED, detail="", failing_before=names)
    kept = record.judged(verdict, 1)
    (judged,) = [stored.payload for stored in audit.stored]
    assert isinstance(judged, GateJudged)
    assert kept.failing_before == judged.failing_before == names[:MAX_NAMED_TESTS]
    assert _verdict(judged, evidence).failing_before == kept.failing_before


def test_an_excerpt_has_no_part_of_a_secret_of_several_lines(tmp_path: Path) -> None:
    """The whole output shows that it is one; the lines that were chosen of it don't."""
    repo = context(tmp_path / "repo", FILES)
    audit = MemoryAudit()
    record = FixRecord(
        audit, MemoryEvidence(), parse_advisory(ADVISORY, "test"), repo, lambda _: None
    )
    key = "MIIEerrorfail" + "Ab1" * 17
    log = f"error: no database\n-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n"
    tests = JudgedTests(
        project=".",
        tests_level=Level.NOT_JUDGED,
        exit_code=1,
        output=f"error: no database\n{key}\nerror: token {SECRET}",
    )
    log += f"error: token {SECRET}\n"
    verdict = GateVerdict(
        gate="tests", status=GateStatus.SKIPPED, detail="", log=log, tests=(tests,)
    )
    (kept,) = record.judged(verdict, 1).tests
    assert kept.output.splitlines() == ["error: no database", "error: token [REDACTED]"]
    (judged,) = [stored.payload for stored in audit.stored]
    assert isinstance(judged, GateJudged)
    assert judged.tests == (kept,)


KEY = ["MIIE" + "Ab1x" * 15, "MIIF" + "Cd2y" * 15, "Q3zerror" + "Ef3z" * 9]


def test_the_last_line_of_a_cut_key_stands_nowhere(tmp_path: Path) -> None:
    """A log that ends inside a private key: by itself its last line is a word like any other."""
    repo = context(tmp_path / "repo", FILES)
    audit = MemoryAudit()
    record = FixRecord(
        audit, MemoryEvidence(), parse_advisory(ADVISORY, "test"), repo, lambda _: None
    )
    log = "error: no database\n-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(KEY) + "\n"
    detail = f"no test ran; the output ends: {KEY[-1]}"
    tests = JudgedTests(project=".", tests_level=Level.NOT_JUDGED, reason=detail, last_line=KEY[-1])
    verdict = GateVerdict(
        gate="tests", status=GateStatus.SKIPPED, detail=detail, log=log, tests=(tests,)
    )
    kept = record.judged(verdict, 1)
    (stored,) = audit.stored
    for text in (kept.model_dump_json(), stored.payload.model_dump_json()):
        assert not any(line in text for line in KEY)
    assert kept.detail.startswith("no test ran")
    assert kept.tests[0].last_line == ""


def test_a_secret_that_a_quote_has_cut_stands_nowhere(tmp_path: Path) -> None:
    """What is left of it has no format any more."""
    repo = context(tmp_path / "repo", FILES)
    record = FixRecord(
        MemoryAudit(), MemoryEvidence(), parse_advisory(ADVISORY, "test"), repo, lambda _: None
    )
    line = f"error: {'x' * 180} {SECRET}"
    detail = f"no test ran; the output ends: {line[:200]}"
    verdict = GateVerdict(gate="tests", status=GateStatus.SKIPPED, detail=detail, log=f"{line}\n")
    kept = record.judged(verdict, 1)
    assert SECRET[:8] in detail
    assert SECRET[:8] not in kept.detail
    assert f"error: {'x' * 180} [REDACTED]" in kept.detail


def test_what_a_target_prints_decides_how_often_a_line_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line that holds a secret is looked through once, for all texts; of too many, none is quoted."""
    looked: list[str] = []

    def counted(text: str) -> tuple[str, int]:
        looked.append(text)
        return redact_secrets(text)

    monkeypatch.setattr(recording, "redact_secrets", counted)
    repo = context(tmp_path / "repo", FILES)
    for count, detail in ((50, "Error: connect refused"), (MAX_SECRET_LINES + 1, REDACTED)):
        looked.clear()
        record = FixRecord(
            MemoryAudit(), MemoryEvidence(), parse_advisory(ADVISORY, "test"), repo, lambda _: None
        )
        lines = [f"Error: connect postgres://app:pw{n:06}Xq@db/x" for n in range(count)]
        verdict = GateVerdict(
            gate="tests",
            status=GateStatus.SKIPPED,
            detail="Error: connect refused",
            log="\n".join(lines),
            notes=("Error: connect failed",) * 20,
        )
        kept = record.judged(verdict, 1)
        assert kept.detail == detail
        assert not any(f"pw{n:06}" in kept.model_dump_json() for n in range(count))
        assert len([it for it in looked if it in lines]) == (count if count == 50 else 0)


def test_lines_that_were_printed_in_colour_are_kept(tmp_path: Path) -> None:
    """A gate leaves the colours out where it quotes."""
    repo = context(tmp_path / "repo", FILES)
    record = FixRecord(
        MemoryAudit(), MemoryEvidence(), parse_advisory(ADVISORY, "test"), repo, lambda _: None
    )
    lines = ["Error: Cannot find module 'foo'", "TypeError: a is not a function"]
    log = (
        "\x1b[31mError\x1b[0m: Cannot find module '\x1b[36mfoo\x1b[0m'\r\n    at x\n"
        "\x1b[1mTypeError\x1b[22m: a is not \x1b[33ma function\x1b[0m\n"
    )
    tests = JudgedTests(
        project=".",
        tests_level=Level.NOT_JUDGED,
        exit_code=1,
        output="\n".join(lines),
        last_line=lines[-1],
    )
    verdict = GateVerdict(
        gate="tests", status=GateStatus.SKIPPED, detail="", log=log, tests=(tests,)
    )
    (kept,) = record.judged(verdict, 1).tests
    assert kept.output.splitlines() == lines
    assert kept.last_line == lines[-1]
