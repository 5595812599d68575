"""Whole runs on made-up packages: the tool's own command with its gates, the judge, the peers.

Hermetic: no registry but ours. The cases with the real ones: ``make eval-repos``.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.eval_repos import running
from tests.campaigns.eval_repos.cases import Case
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.judge import Kind
from tests.campaigns.eval_repos.judged_case import npm_case, uv_case
from tests.campaigns.eval_repos.results import Result
from tests.campaigns.eval_repos.running import Options, run_case
from tests.campaigns.measuring.forks import run_to_end

pytestmark = pytest.mark.sandbox

#: Calls everything fixed, and changes nothing.
LIAR = """\
#!{python}
import json, sys
if "--version" in sys.argv:
    sys.exit(print("liar 1.0"))
print(json.dumps({{"outcome": "verified", "attempts": 1, "fixes": []}} if "plan" in sys.argv
    else {{"outcome": "verified", "attempts": 1}}))
"""


def run(case: Case, place: Path, **more: Any) -> Result:
    return run_case(case, {}, Options(Clients(place), **more))


# What is npm's own of a run is tested by the judge and by the peers (tests/campaigns/eval_repos).
@pytest.mark.parametrize("case", [uv_case(), npm_case()], ids=lambda case: case.name)
def test_a_whole_run_is_judged(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "run_to_end", run_to_end)
    row = run(case, tmp_path)
    assert row.base.affected == ("left 1.0.0",)
    assert row.told.outcome == "fixed", row.told
    assert row.verdict.problems == ()
    assert row.unlike == ()
    assert row.lines > 0
    assert [end for end in row.peers if end.serves and end.lines < row.lines] == []


def test_a_tool_that_only_says_so_is_found_out(tmp_path: Path) -> None:
    liar = tmp_path / "liar"
    liar.write_text(LIAR.format(python=sys.executable))
    liar.chmod(0o755)
    row = run(uv_case(), tmp_path, script=liar, with_peers=False)
    assert row.is_false_fixed
    assert Kind.STILL_AFFECTED in {one.kind for one in row.verdict.problems}
    assert row.tool == "liar 1.0"
    assert not row.told.traceback


def test_a_plan_that_crashes_is_a_traceback(tmp_path: Path) -> None:
    crash = "#!{python}\nimport sys\nif '--version' not in sys.argv: raise KeyError(sys.argv[1])\n"
    script = tmp_path / "crash"
    script.write_text(crash.format(python=sys.executable))
    script.chmod(0o755)
    row = run(uv_case(), tmp_path, script=script, with_peers=False)
    assert row.told.traceback
    assert row.unlike == ("plan gave no answer",)


def test_a_base_that_is_not_affected_is_no_case(tmp_path: Path) -> None:
    case = uv_case()
    (project,) = case.project
    fresh = project.model_copy(update={"seed": {"left": "1.1.0"}})
    with pytest.raises(RuntimeError, match="no copy at the base is affected"):
        run(case.model_copy(update={"project": (fresh,)}), tmp_path, with_peers=False)
