"""A Python project's tests, run in its environment by pytest or by unittest, whichever finds some.

Nothing runs through tox, nox or a project's own script: what they would call is one of the two, mostly.
"""

import ast
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fallback_plugins.pypi.gates.summaries import pytest_summary, unittest_summary
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.installing.plan import is_test
from fallback_plugins.pypi.manifests.setup_config import parsed
from fallback_plugins.pypi.probes.observed import START, hook_text, read_acts, source_of
from fallback_plugins.pypi.probes.report_probe import ONLY
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.gates.reports import read_lines, report_in
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.installed import Level, NotInstalled
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext

#: ``--verbosity``: a project's own ``-q`` beside another would leave out the last line. Sugar prints one of
#: its own. ``--maxfail``: over a project's own ``-x``, behind the first failure there may be others.
_OPTIONS = (
    "--verbosity=-1", "-ra", "--tb=short", "--color=no", "-p", "no:cacheprovider", "-p", "no:sugar",
    "--maxfail=0", "--continue-on-collection-errors",
)  # fmt: skip

#: What a project sets for every run of its own may ask for plugins that could not be installed.
_WITHOUT_ITS_OWN = ("-o", "addopts=", "-o", "required_plugins=")

_COMPLAINT = re.compile(r"error: (.+)|^ERROR: (.+)|^(\w*Error: .+)", re.MULTILINE)

#: Commands that a sentence names.
_COMMANDS_NAMED = 3

_OUR_RUNNERS = re.compile(r"\b(?:pytest|py\.test|unittest)\b")

#: A factor (``py3: make test``) and a failure that is let pass (``- make test``) stand before a command.
_BEFORE_COMMAND = re.compile(r"^(?:[\w,{}!-]+:\s+)?(?:-\s*)?")

_SUMMARIES = {"pytest": pytest_summary, "unittest": unittest_summary}


def run_tests(target: Environment, only: Sequence[str] = ()) -> SuiteRun | NotInstalled:
    """Run the suite of a tree in its environment. A run that ends well but reports nothing has run nothing.

    ``only``: names of tests, as a report has them: no other is run, though all are collected. Raises what
    installing and running raise.
    """
    found = target.install()
    if found.absent is not None:
        return found.absent
    is_usual = found.level is Level.EVERYTHING and not found.unusual
    installed = "" if is_usual else f"installed {found.in_words}"
    chosen = [f"{ONLY}{json.dumps([*only])}"] if only else []
    ours = _pytest(target, installed, chosen) if target.installed("pytest") else None
    if ours is None or (ours.count == 0 and not ours.result.timed_out):
        other = _run(target, "unittest", [*chosen, *_discovery(target)], installed)
        ours = other if ours is None or other.count else ours
    if ours.count == 0 and (called := _foreign_runners(target.repo, target.folder)):
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
    installed = "; ".join(filter(None, (installed, remark)))
    return replace(again, installed=installed, without_options=True)


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


def _foreign_runners(repo: RepoContext, folder: str) -> str:
    """What a project calls to test itself, by tox.ini, setup.cfg or noxfile.py: what is no runner of ours.

    Only to be named in a verdict (``tox.ini calls `make test```), these files are only read; empty where
    there is nothing to name.
    """
    for name, read in (("tox.ini", _tox), ("setup.cfg", _tox), ("noxfile.py", _nox)):
        path = in_folder(folder, name)
        if not repo.has(path):
            continue
        try:
            found = [
                one for one in read(repo.read_text(path)) if one and not _OUR_RUNNERS.search(one)
            ]
        except (RepositoryError, SyntaxError, ValueError):
            continue
        if found:
            message = ", ".join(f"`{one}`" for one in dict.fromkeys(found[:_COMMANDS_NAMED]))
            return f"{name} calls {message}, no runner of ours"
    return ""


def _tox(text: str) -> Iterator[str]:
    parser = parsed(text)
    for section in parser.sections():
        if section.startswith("testenv"):
            commands = parser[section].get("commands") or ""
            yield from (_BEFORE_COMMAND.sub("", line.strip()) for line in commands.splitlines())


def _nox(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            words = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if node.func.attr == "run" and words:
                yield " ".join(map(str, words))
