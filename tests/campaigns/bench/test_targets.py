"""The rows' own parts, each tried without its peer."""

import json
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaigns.bench import rows_loop, rows_recipe
from tests.campaigns.bench.measure import BenchError, Command, Processes, Worker
from tests.campaigns.bench.row import Bench
from tests.campaigns.bench.targets import REQUIREMENTS, Attempt, Target, osv_server

PROGRAM = Path(sys.prefix) / "bin" / "fallback-tier"
WORKER = Path(rows_loop.__file__).with_name("worker.py")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target.create(tmp_path, REQUIREMENTS)


def text(target: Target) -> str:
    return (target.root / "requirements.txt").read_text()


def test_our_side_leaves_the_fix_on_the_tree_each_round(target: Target) -> None:
    side = Attempt(PROGRAM, target)
    for _ in range(2):
        assert side.measure().wall_s > 0
        assert text(target) == REQUIREMENTS.files["requirements.txt"].replace("3.1.2", "3.1.4")
    target.reset.run()
    assert text(target) == REQUIREMENTS.files["requirements.txt"]


def test_a_refused_attempt_is_no_figure(target: Target, tmp_path: Path) -> None:
    program = tmp_path / "refuses"
    refusal = json.dumps({"outcome": "refused", "sentence": "No way."})
    program.write_text(f"#!/bin/sh\necho '{refusal}'\n")
    program.chmod(0o755)
    with pytest.raises(BenchError, match="No way"):
        Attempt(program, target).measure()


def test_the_server_knows_which_versions_are_vulnerable(target: Target) -> None:
    with osv_server(target.advisory) as url:
        assert url.startswith("http://127.0.0.1:")
        found = {
            query: "vulns" in _ask(url, *query)
            for query in [("jinja2", "3.1.2"), ("jinja2", "3.1.4"), ("idna", "3.1.2")]
        }
    assert found == {
        ("jinja2", "3.1.2"): True,
        ("jinja2", "3.1.4"): False,
        ("idna", "3.1.2"): False,
    }


def _ask(url: str, package: str, version: str) -> dict[str, object]:
    query = {"package": {"name": package, "ecosystem": "PyPI"}, "version": version}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(query).encode())) as answer:
        found: dict[str, object] = json.load(answer)
        return found


@pytest.mark.parametrize(("options", "synchronous"), [([], 2), (["OFF"], 0)])
def test_our_loop_is_durable_unless_told_otherwise(
    tmp_path: Path, options: list[str], synchronous: int
) -> None:
    argv: list[str | Path] = [sys.executable, WORKER, "work_fix_loop", tmp_path, *options]
    with Worker("loop", argv, tmp_path) as side:
        assert side.measure().wall_s > 0
        assert side.facts == {"journal_mode": "wal", "synchronous": synchronous}


def test_a_lock_that_cannot_be_made_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="`false`"):
        Target.create(tmp_path, replace(REQUIREMENTS, lock=("false",)))


def test_a_peer_that_fixes_nothing_is_no_figure(target: Target, tmp_path: Path) -> None:
    bench = Bench(tmp_path, Path(sys.prefix), Path(sys.prefix))
    idle = Processes("idle", [Command(["true"], target.root)], [target.reset])
    with pytest.raises(BenchError, match="the fix was not made"):
        rows_recipe.pair(bench, target, idle).check()
