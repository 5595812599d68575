"""A Python project's tests, run in its environment by pytest or by unittest, whichever finds some.

Nothing runs through tox, nox or a project's own script: what they would call is one of the two, mostly.
"""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

from fallback_plugins.pypi.gates.foreign_runners import foreign_runners
from fallback_plugins.pypi.gates.summaries import pytest_summary, unittest_summary
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.installing.plan import is_test
from fallback_plugins.pypi.probes.observed import START, hook_text, read_acts, source_of
from fallback_plugins.pypi.probes.report_probe import ONLY
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.gates.reports import read_lines, report_in
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.installed import Level, NotInstalled

#: ``--verbosity``: a project's own ``-q`` beside another would leave out the last line. Sugar prints one of
#: its own. ``--maxfail``: over a project's own ``-x``, behind the first failure there may be others.
_OPTIONS = (
    "--verbosity=-1", "-ra", "--tb=short", "--color=no", "-p", "no:cacheprovider", "-p", "no:sugar",
    "--maxfail=0", "--continue-on-collection-errors",
)  # fmt: skip

#: What a project sets for every run of its own may ask for plugins that could not be installed.
_WITHOUT_ITS_OWN = ("-o", "addopts=", "-o", "required_plugins=")

_COMPLAINT = re.compile(r"error: (.+)|^ERROR: (.+)|^(\w*Error: .+)", re.MULTILINE)

_SUMMARIES = {"pytest": pytest_summary, "unittest": unittest_summary}


def run_tests(target: Environment, only: Sequence[str] = ()) -> SuiteRun | NotInstalled:
    """Run the suite of a tree in its environment. A run that ends well but reports nothing has run nothing.

    ``only``: names of tests, as a report has them: no other is run, though all are collected. Raises what
    installing and running raise.
    """
    found = target.install()
    if found.absent is not None:
        return found.absent
    is_usual = found.level is Level.EVERYTHING and not found.how
    installed = "" if is_usual else f"installed {found.in_words}"
    chosen = [f"{ONLY}{json.dumps([*only])}"] if only else []
    ours = _pytest(target, installed, chosen) if target.installed("pytest") else None
    if ours is None or (ours.count == 0 and not ours.result.timed_out):
        other = _run(target, "unittest", [*chosen, *_discovery(target)], installed)
        ours = other if ours is None or other.count else ours
    if ours.count == 0 and (called := foreign_runners(target.repo, target.folder)):
        return replace(ours, installed="; ".join(filter(None, (installed, called))))
    return ours


def _pytest(target: Environment, installed: str, chosen: Sequence[str]) -> SuiteRun:
    options = [*chosen, *_OPTIONS]
    ours = _run(target, "pytest", options, installed)
    if ours.result.ok or ours.result.timed_out or ours.count is not None:
        return ours
    again = _run(target, "pytest", [*options, *_WITHOUT_ITS_OWN], installed)
    if again.count is None:
        return ours
    reported = _COMPLAINT.search(ours.result.output)
    why = next(filter(None, reported.groups())) if reported else "it did not start with them"
    remark = f"pytest ran without the project's own options ({gating.in_short(why)})"
    return replace(again, installed="; ".join(filter(None, (installed, remark))))


def _run(target: Environment, runner: str, arguments: Sequence[str], installed: str) -> SuiteRun:
    source, header = source_of("report_probe"), secrets.token_hex(16)
    with report_in(target.repo.tree) as file, report_in(target.repo.tree) as observed:
        observed.begin(header)
        words = ["-c", START, hook_text(), observed.path, source, file.path, runner, *arguments]
        result = target.sandboxed(words)
        report = read_lines(file.read())
        acts = read_acts(observed.read(), header, target.place)
    result = result.model_copy(update={"argv": ("python", "-m", runner, *arguments)})
    run = SuiteRun.read(result, _SUMMARIES[runner](result.output), report, installed)
    run = replace(run, acts=acts)
    return replace(run, count=0) if run.count is None and result.ok else run


def _discovery(target: Environment) -> list[str]:
    for name in ("tests", "test"):
        inside = in_folder(target.folder, name)
        if any(is_test(path, inside) for path in target.repo.tracked_files):
            package = target.repo.has(f"{inside}/__init__.py")
            return ["discover", *(["-s", name, "-t", "."] if package else ["-s", name])]
    return ["discover"]
