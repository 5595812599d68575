"""Goal 2: a recipe's fix without gates. Both sides begin at the same commit and end with the fix on
the working tree: ours is ``attempt``, then ``git apply`` of the diff it printed.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.campaigns.bench.measure import BenchError, Command, Processes
from tests.campaigns.bench.row import Bench, Pair, Row
from tests.campaigns.bench.targets import NPM, REQUIREMENTS, UV, Attempt, Target, osv_server
from tests.campaigns.bench.warm import WarmAttempt


def _finds(target: Target, text: str) -> Callable[[], None]:
    """A check that the fix is on the working tree."""

    def check() -> None:
        if text not in (target.root / target.kind.proof).read_text():
            raise BenchError(f"{target.kind.proof} does not have {text!r}: the fix was not made")

    return check


#: Text-only fixes as the goal means them: the files suffice, no client runs, no registry is asked.
_OFFLINE = "--offline"


def pair(bench: Bench, target: Target, theirs: Processes, *options: str) -> Pair:
    """Our attempt against a peer; the check runs both once more and looks for the fix."""
    ours = Attempt(bench.our("fallback-tier"), target, *options)
    fixed = _finds(target, target.kind.fixed)

    def check() -> None:
        for side in (ours, theirs):
            side.measure()
            fixed()

    return Pair(ours, theirs, check)


@contextmanager
def against_git(bench: Bench) -> Iterator[Pair]:
    """The cheapest thing that does the same to the tree: Python that does nothing, and git."""
    with _against_git(bench, _OFFLINE) as found:
        yield found


@contextmanager
def against_git_asking(bench: Bench) -> Iterator[Pair]:
    """As it is by default: uv asks the registry whether the release was yanked."""
    with _against_git(bench) as found:
        yield found


@contextmanager
def _against_git(bench: Bench, *options: str) -> Iterator[Pair]:
    target = Target.create(bench.place, REQUIREMENTS)
    patch = bench.place / "known.diff"
    Attempt(bench.our("fallback-tier"), target).write_diff(patch)
    commands = [
        Command([bench.python, "-c", "pass"], target.root),
        Command(["git", "apply", patch], target.root),
    ]
    theirs = Processes("bare Python + git apply", commands, [target.reset])
    yield pair(bench, target, theirs, *options)


def _pip_audit(bench: Bench, target: Target, url: str, *options: str) -> Command:
    words = ["--fix", "--progress-spinner", "off", "--vulnerability-service", "osv"]
    program = bench.peer("pip-audit")
    return Command(
        (program, "-r", "requirements.txt", *words, "--osv-url", url, *options), target.root
    )


@contextmanager
def against_pip_audit(bench: Bench) -> Iterator[Pair]:
    """Its quickest way: pins as they stand, nothing resolved; advisories from a loopback server."""
    target = Target.create(bench.place, REQUIREMENTS)
    with osv_server(target.advisory) as url:
        audit = _pip_audit(bench, target, url, "--no-deps", "--disable-pip")
        theirs = Processes("pip-audit --fix --no-deps --disable-pip", [audit], [target.reset])
        yield pair(bench, target, theirs, _OFFLINE)


@contextmanager
def against_pip_audit_resolving(bench: Bench) -> Iterator[Pair]:
    """As people call it: it makes an environment and has pip resolve into it (needs an index)."""
    target = Target.create(bench.place, REQUIREMENTS)
    with osv_server(target.advisory) as url:
        audit = _pip_audit(bench, target, url)
        yield pair(bench, target, Processes("pip-audit --fix", [audit], [target.reset]))


@contextmanager
def against_npm(bench: Bench) -> Iterator[Pair]:
    """npm's own call for the same bump of package.json and package-lock.json."""
    target = Target.create(bench.place, NPM)
    install = ["npm", "install", "--package-lock-only", "--save-exact", "lodash@4.17.21"]
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    command = Command([*install, *quiet], target.root)
    yield pair(
        bench, target, Processes("npm install --package-lock-only", [command], [target.reset])
    )


@contextmanager
def against_uv(bench: Bench) -> Iterator[Pair]:
    """uv's own call for the same bump of uv.lock."""
    target = Target.create(bench.place, UV, uv=bench.our("uv"))
    lock = ("lock", "--upgrade-package", "jinja2==3.1.4", "--no-progress", "--no-python-downloads")
    command = Command((bench.our("uv"), *lock), target.root)
    yield pair(bench, target, Processes("uv lock --upgrade-package", [command], [target.reset]))


@contextmanager
def warm_against_process(bench: Bench) -> Iterator[Pair]:
    """An attempt in a warm process against one in a process of its own; no patch is put on a tree."""
    target = Target.create(bench.place, REQUIREMENTS)
    request = bench.place / "request.json"
    record = json.loads(target.advisory.read_text())
    request.write_text(json.dumps({"advisory": record, "repository": str(target.root)}))
    words = [bench.our("fallback-tier"), "attempt", "--state-dir", target.state, _OFFLINE]
    theirs = Processes("fallback-tier attempt", [Command(words, target.root, stdin=request)])
    with WarmAttempt(bench.our("fallback-tier"), target, _OFFLINE) as ours:
        yield Pair(ours, theirs)


ROWS = (
    Row("recipe-git", "Recipe fix, text only", "2", 7.0, 31, against_git),
    Row("attempt-warm", "Attempt, text only, warm", "2", 0.25, 31, warm_against_process),
    Row("recipe-git-asking", "Same, yanked is asked", "2", None, 11, against_git_asking),
    Row("recipe-pip-audit", "Recipe fix, text only", "2", 0.25, 15, against_pip_audit),
    Row(
        "recipe-pip-audit-resolving", "Same, it resolves", "2", None, 3, against_pip_audit_resolving
    ),
    Row("recipe-npm", "Recipe fix with npm", "2", 1.3, 11, against_npm),
    Row("recipe-uv", "Recipe fix with uv", "2", 1.3, 15, against_uv),
)
