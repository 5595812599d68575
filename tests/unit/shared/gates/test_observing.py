"""What a run with the patch did, weighed against the base commit's runs: the policy, over made-up runs."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.pypi.probes.observed import START, VARIABLE, add_to, hook_text, read_acts
from fallback_plugins.shared.gates.base_runs import BASE_RUNS
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.gates.suites import judge_tests
from fallback_tier.gate_ports import GateVerdict
from tests.integration.gate_setup import applied
from tests.unit.shared.gates.test_flaky import Project, context, run


def did(*acts: str) -> SuiteRun:
    return replace(run(3), acts=frozenset(acts))


def judge(
    place: Path, patched: list[SuiteRun], base: list[SuiteRun], *, alike: bool = True
) -> tuple[GateVerdict, list[str]]:
    project = Project([*patched], [*base])
    facts = replace(context(place), application=applied())
    return judge_tests("tests", facts, ".", project, str, lambda: alike), project.asked


def test_what_is_new_is_asked_about_once_it_was_seen_twice(tmp_path: Path) -> None:
    verdict, asked = judge(tmp_path, [did("start curl")], [did("start git")])
    assert verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    assert asked == ["base", "patched", *["base"] * (BASE_RUNS - 1), "patched"]


def test_what_one_run_of_the_base_commit_does_too_is_not_new(tmp_path: Path) -> None:
    verdict, _ = judge(tmp_path, [did("start a")], [did(), did(), did("start a")])
    assert (verdict.status, verdict.detail) == (GateStatus.PASSED, "3 test(s) pass")


def test_what_a_second_run_does_not_do_is_named_only(tmp_path: Path) -> None:
    verdict, _ = judge(tmp_path, [did("start a"), did()], [did()])
    assert verdict.status is GateStatus.PASSED
    assert verdict.detail.endswith(" ran: it starts a; 3 test(s) pass")


def test_where_another_release_may_be_the_reason_it_is_named_only(tmp_path: Path) -> None:
    verdict, asked = judge(tmp_path, [did("connect h 80")], [did()], alike=False)
    assert verdict.status is GateStatus.PASSED
    assert verdict.detail.endswith(" ran: it connects to h 80; 3 test(s) pass")
    assert asked.count("patched") == 1


@pytest.mark.parametrize("patched", [run(3), did("start a")])
def test_what_was_not_observed_on_both_sides_is_not_compared(
    tmp_path: Path, patched: SuiteRun
) -> None:
    """Node, and a Python before 3.8, tell nothing."""
    base = run(3) if patched.acts else did()
    verdict, _ = judge(tmp_path, [patched], [base])
    assert verdict.detail == "3 test(s) pass"


def test_what_the_base_commit_did_is_kept(tmp_path: Path) -> None:
    base = [did("start a"), did()]
    assert judge(tmp_path, [did("start a")], base)[1] == ["base", "patched"]
    verdict, asked = judge(tmp_path, [did("start a")], base)
    assert (verdict.detail, asked) == ("3 test(s) pass", ["patched"])
    verdict, _ = judge(tmp_path, [did("start b")], base)
    assert verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY


def test_a_base_commit_that_is_not_observed_whole_is_compared_with_nothing(tmp_path: Path) -> None:
    verdict, _ = judge(tmp_path, [did("start b", "damage")], [did("start a", "damage")])
    assert verdict.detail == "3 test(s) pass"


HERE = "header\n'here'\n"
DAMAGED = frozenset({"damage"})


def test_a_report_that_is_not_whole_says_so(tmp_path: Path) -> None:
    for text in (None, "", "'here'\n", HERE + "'start", HERE + "1\n", HERE + "'tamper'\n"):
        found = read_acts(text, "header", tmp_path)
        assert found is not None
        assert found >= DAMAGED
    assert read_acts("header\n", "header", tmp_path) is None
    flood = "".join(f"'connect h{number} 80'\n" for number in range(5000))
    acts = read_acts(HERE + flood, "header", tmp_path)
    assert acts is not None
    assert acts >= DAMAGED
    assert len(acts) <= 2001


@pytest.mark.parametrize(
    ("told", "acts"),
    [
        ("start /usr/bin/git\0log", {"start git"}),
        (
            "start sh\0-c\0A=1 nice curl -s h|(wc -l)",
            {f"start {p}" for p in ("sh", "nice", "curl", "wc")},
        ),
        ("start {env}/bin/python3.11\0-S\0-m\0pip\0x", {"start python -S -m pip"}),
        ("start /tmp/a1/evil", {"start (temporary)/evil"}),
        (
            f"start sh\0-c\0true;{'':2000}curl h"[:1000],
            {"start sh", "start true", "start (a command too long to be kept)"},
        ),
        ("connect 127.0.0.1 4711", {"connect loopback"}),
        ("connect ::1 4711", {"connect loopback"}),
        ("connect 10.0.0.7 443", {"connect 10.0.0.7 443"}),
        ("listen 0.0.0.0 0", {"listen any address"}),
        ("connect unix /tmp/x/s.sock", {"connect unix (temporary)/s.sock"}),
        ("write /tmp/x", set()),
        ("write /tmp", set()),
        ("write .fallback-tier-0123", set()),
        ("write build/tmpab12cd_x/out-4711.txt", {"write build/0/out-0.txt"}),
        ("write out-0a1b2c3d-aaaa-4bbb-8ccc-a1b2c3d4e5f6.txt", {"write out-0.txt"}),
        ("write c_deadbeefcafe.txt", {"write c_0.txt"}),
        ("write .hypothesis/constants/.tmp-hn0bj0rf", {"write .hypothesis/constants/.0"}),
        ("write /proc/4711/mem", {"steer /proc/0/mem"}),
    ],
)
def test_what_varies_is_left_out(tmp_path: Path, told: str, acts: set[str]) -> None:
    line = ascii(told.replace("{env}", str(tmp_path)))
    assert read_acts(f"{HERE}{line}\n", "header", tmp_path) == acts


@pytest.mark.parametrize("limit", ["RLIMIT_FSIZE, (0, 0)", "RLIMIT_NOFILE, (3, 3)"])
def test_what_a_limit_keeps_from_being_told_is_not_done(tmp_path: Path, limit: str) -> None:
    report = tmp_path / "report"
    report.write_text("header\n")
    act = f"import os, resource; resource.setrlimit(resource.{limit}); os.system(':')"
    words = [sys.executable, "-c", START, hook_text(), str(report), act]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, "UnreportedError" in ran.stderr) == (1, True)


def test_another_prefix_reads_the_path_file_in_silence(tmp_path: Path) -> None:
    place = tmp_path / "lib/python3.11/site-packages"
    place.mkdir(parents=True)
    add_to(tmp_path)
    read = [sys.executable, "-S", "-c", f"import site; site.addsitedir({str(place)!r})"]
    env = {**os.environ, VARIABLE: str(tmp_path / "report")}
    ran = subprocess.run(read, capture_output=True, text=True, check=True, env=env)
    assert ran.stderr == ""
