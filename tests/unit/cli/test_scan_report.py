"""A scan's table: what a row says of an advisory, and of the step that fixes it."""

import pytest

from fallback_audit.vocabulary import LadderStep
from fallback_tier.advisory.query import Answered
from fallback_tier.cli import exit_codes
from fallback_tier.cli.scan.command import exit_code
from fallback_tier.cli.scan.report import MAX_SUMMARY_CHARS, WIDTH, lines
from fallback_tier.scan.document import Finding, FixStep, Level, ScanResult, Stopped

STEP = FixStep(
    manifest="package-lock.json", step=LadderStep.DIRECT_BUMP, before=("1.0.0",), after="2.0.0"
)


def finding(**facts: object) -> Finding:
    return Finding.model_validate(
        {
            "id": "GHSA-2222-3333-4444",
            "aliases": (),
            "summary": "",
            "ecosystem": "npm",
            "package": "left",
            "versions": ("1.0.0",),
            "severity": Level.HIGH,
            "sources": ("package-lock.json",),
            "paths": (("app 1.0.0", "left 1.0.0"),),
            "direct": True,
            "development": False,
            **facts,
        }
    )


def result_of(*findings: Finding, **facts: object) -> ScanResult:
    asked = Answered(ids=(), url="https://osv.example", answered="2026-01-02T00:00:00Z")
    known = {"repository": "app", "base_commit": "0" * 40, "packages": 1, "resolved": True}
    return ScanResult.model_validate({**known, "findings": findings, "asked": asked, **facts})


def text(one: Finding) -> str:
    shown = [*lines(result_of(one))]
    assert all(len(line) <= WIDTH for line in shown)
    return "\n".join(shown)


@pytest.mark.parametrize("stopped", Stopped)
def test_stopped_scan_that_shows_nothing_is_unknown(stopped: Stopped) -> None:
    assert exit_code(result_of()) == exit_codes.OK
    assert exit_code(result_of(stopped=stopped)) == exit_codes.UNKNOWN
    assert exit_code(result_of(finding(), stopped=stopped)) == exit_codes.VULNERABLE


def test_row_has_summary_and_aliases() -> None:
    shown = text(finding(summary="left reads any file", aliases=("CVE-2026-1234",)))
    assert "  left reads any file (CVE-2026-1234)\n" in shown


def test_long_summary_is_cut_and_an_identifier_is_none() -> None:
    shown = text(finding(summary="word " * 100))
    assert "…" in shown
    assert shown.count("word") < MAX_SUMMARY_CHARS / 4
    assert text(finding(summary="GHSA-2222-3333-4444")) == text(finding())


def test_summary_of_a_record_moves_no_cursor() -> None:
    shown = text(finding(summary="a\x1b[2Jb\nGHSA-forged  row"))
    assert "\x1b" not in shown
    assert not any(line.startswith("GHSA-forged") for line in shown.splitlines())


def test_step_names_the_packages_that_move_with_it() -> None:
    step = STEP.model_copy(update={"raised": ("parent 3.1.0",)})
    assert "1.0.0 → 2.0.0, with parent 3.1.0" in " ".join(text(finding(steps=(step,))).split())
    assert "with" not in text(finding(steps=(STEP,)))
