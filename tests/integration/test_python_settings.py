"""With which Python, and releases of which day, a project is installed: real uv, Pythons and bubblewrap."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from fallback_audit.vocabulary import AffectedCode, DecidedBy, GateStatus
from fallback_plugins.pypi.gates.checks import ResolvesGate
from fallback_plugins.pypi.gates.testing import TestsGate as PythonTests
from fallback_plugins.pypi.gates.testing import run_tests
from fallback_plugins.pypi.installing import environment
from fallback_plugins.pypi.installing.environment import MAX_APART, Environment
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.installation import Level
from fallback_tier.affected import Affected
from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes import repository
from tests.integration.gate_setup import advisory, needs_sandbox, older_python, patched
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

MINE = sys.version_info.minor
#: After the first release of a package in a made-up registry, before its second.
THE_DAY = "2020-01-01"
#: Packages of which a project asks for the second release, by their number.
LATE = [f"late-{number}" for number in range(MAX_APART + 1)]
#: More than twice as many that it asks for without one: the greater part.
OF_THE_DAY = [f"early-{number}" for number in range(2 * len(LATE) + 1)]


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.0.1")
    broken = {"pytest/__init__.py": "", "pytest/__main__.py": "raise SystemExit('too old')\n"}
    good = {"pytest/__init__.py": "", "pytest/__main__.py": "print('pytest 8')\n"}
    for name in ("right", *OF_THE_DAY, *LATE):
        universe.pypi(name, "1.0.0").pypi(name, "1.0.1")
    universe.pypi("setuptools", "60.0").pypi("setuptools", "61.0")
    universe.pypi("pytest", "5.0", files=broken).pypi("pytest", "8.0", files=good)
    for minor in range(pythons.OLDEST_MINOR, MINE):  # no wheel for ours
        universe.pypi("earlier", "1.0", tag=f"cp3{minor}-none-any")
    universe.pypi("latest", "1.0", tag=f"cp3{MINE}-none-any")
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Path:
    return older_python(monkeypatch)


@contextmanager
def project(
    place: Path,
    registry: Registry,
    files: Mapping[str, str],
    code: AffectedCode = AffectedCode.OWN,
    changes: Mapping[str, str | None] = MappingProxyType({"x": "1"}),
) -> Iterator[Environment]:
    clients = SubprocessClients(os.environ | registry.environ)
    with patched(place, files, changes, about=advisory()) as case:
        affected = Affected(code=code, decided_by=DecidedBy.MANIFEST)
        repo = case.context.repo.model_copy(update={"affected": affected})
        context = case.with_(clients=clients, repo=repo).context
        yield Environment(context, repo.laid_out(context.worktree.tree), ".")


def committed_on(monkeypatch: pytest.MonkeyPatch, day: str) -> None:
    monkeypatch.setitem(repository.GIT_ENV, "GIT_COMMITTER_DATE", f"{day}T12:00:00Z")


def test_own_code_of_long_ago_is_tested_with_releases_of_its_day(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed_on(monkeypatch, THE_DAY)
    with project(tmp_path, registry, {"requirements.txt": "left\n"}) as made:
        found = made.install()
        assert made.installed("left") == ("1.0.0",)
        assert found.in_words == f"everything, from releases up to {THE_DAY}"


@pytest.mark.skipif(MINE > 11, reason="new environments of this Python never had setuptools")
@pytest.mark.parametrize(("day", "found"), [(THE_DAY, ("60.0",)), ("2099-01-01", ())])
def test_releases_of_a_day_find_what_every_environment_of_it_had(
    tmp_path: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    day: str,
    found: tuple[str, ...],
) -> None:
    """They import ``pkg_resources`` without asking for it."""
    committed_on(monkeypatch, day)
    with project(tmp_path, registry, {"requirements.txt": "left\n"}) as made:
        assert made.install().level is Level.EVERYTHING
        assert made.installed("setuptools") == found


@pytest.mark.parametrize(
    ("day", "code"),
    [
        pytest.param(THE_DAY, AffectedCode.DEPENDENCY, id="a dependency, whose fix came later"),
        pytest.param("2099-01-01", AffectedCode.OWN, id="a commit of these days"),
        pytest.param("1999-01-01", AffectedCode.OWN, id="older than every release"),
    ],
)
def test_else_releases_of_today_are_taken(
    tmp_path: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    day: str,
    code: AffectedCode,
) -> None:
    committed_on(monkeypatch, day)
    with project(tmp_path, registry, {"requirements.txt": "left\n"}, code) as made:
        assert made.install().is_as_declared
        assert made.installed("left") == ("1.0.1",)


def test_what_the_day_can_not_give_is_of_another_and_named(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One package came with the commit, the day after; the others are still of the day."""
    committed_on(monkeypatch, THE_DAY)
    with project(tmp_path, registry, {"requirements.txt": "left\nright\nlate-0>=1.0.1\n"}) as made:
        found = made.install()
        assert made.installed("left") == ("1.0.0",)
        assert made.installed("late-0") == ("1.0.1",)
        assert found.in_words == f"everything, from releases up to {THE_DAY}, but for late-0"


def test_a_set_of_many_days_is_of_today(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed_on(monkeypatch, THE_DAY)
    asked = "".join([*(f"{name}>=1.0.1\n" for name in LATE), *(f"{one}\n" for one in OF_THE_DAY)])
    with project(tmp_path, registry, {"requirements.txt": f"left\n{asked}"}) as made:
        assert made.install().is_as_declared
        assert made.installed("left") == ("1.0.1",)


@pytest.mark.parametrize(
    ("patch", "is_alike"),
    [("left\nright\nlate-0>=1.0.1\nlatest\n", True), ("left\nlatest\n", False)],
)
def test_a_patched_tree_is_of_the_day_but_for_the_same(
    tmp_path: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    patch: str,
    is_alike: bool,
) -> None:
    """Where it is not, what runs in the two can't be compared, and the verdicts say so."""
    committed_on(monkeypatch, THE_DAY)
    files = {"requirements.txt": "left\nright\nlate-0>=1.0.1\n"}
    with project(tmp_path, registry, files, changes={"requirements.txt": patch}) as made:
        made.install()
        assert made.installed("left") == ("1.0.0",)
        assert (made.otherwise() == "") is is_alike


def test_what_our_python_can_not_have_is_had_with_another(
    tmp_path: Path, registry: Registry, other: Path
) -> None:
    files = {
        "requirements.txt": "earlier\nleft\n",
        "test_it.py": "import sys, unittest\nclass T(unittest.TestCase):\n"
        "    def test_python(self):\n        import earlier\n"
        f"        self.assertLess(sys.version_info, (3, {MINE}))\n",
    }
    with project(tmp_path, registry, files, AffectedCode.DEPENDENCY) as made:
        found = made.install()
        assert found.level is Level.EVERYTHING
        assert found.how == (f"on Python 3.{pythons.minor_of(other)}",)
        ran = run_tests(made)
        assert isinstance(ran, SuiteRun)
        assert (ran.result.exit_code, ran.count) == (0, 1), ran.result.output
        assert ran.report is not None
        assert found.in_words in ran.installed


def test_a_project_that_asks_for_another_python_gets_it(
    tmp_path: Path, registry: Registry, other: Path
) -> None:
    about = f'[project]\nname = "app"\nversion = "1"\nrequires-python = "<3.{MINE}"\n'
    with project(
        tmp_path, registry, {"pyproject.toml": f'{about}dependencies = ["left"]\n'}
    ) as made:
        assert made.install().how[0] == f"on Python 3.{pythons.minor_of(other)}"


def test_where_nobody_has_it_our_python_has_the_rest(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python3.9"
    broken.write_text("no program")
    broken.chmod(0o755)
    committed_on(monkeypatch, "2099-01-01")
    monkeypatch.setattr(pythons, "suited_once", lambda *_: (pythons.ours(), broken))
    with project(tmp_path, registry, {"requirements.txt": "earlier\nleft\n"}) as made:
        found = made.install()
        assert made.installed("left") == ("1.0.1",)
        assert (found.level, found.how) == (Level.IN_PART, ())
        assert "earlier" in dict(found.declined)


def test_another_release_installed_later_is_another_thing_to_run_on(tmp_path: Path) -> None:
    """What was seen at the base commit counts only on what it was seen on."""
    universe = Universe().pypi("left", "1.0.0")
    with (
        serve(universe) as registry,
        project(tmp_path, registry, {"requirements.txt": "left\n"}) as made,
    ):
        before = made.contents()
        universe.pypi("left", "1.0.1")
        other = made.context.cache / "elsewhere"
        next_fix = replace(made.context, cache=other, resolutions={})
        again = Environment(next_fix, made.repo, ".")
        assert again.contents() != before
        assert again.wanted.asked == made.wanted.asked
        assert Environment(made.context, made.repo, ".").contents() == before


def test_a_patch_is_installed_as_the_base_commit_was_or_not_at_all(
    tmp_path: Path, registry: Registry, other: Path
) -> None:
    """Else tests would be compared over two Pythons, and what fails for the one would excuse the other."""
    base, needs = {"requirements.txt": "left\n"}, "earlier\nleft\n"
    with project(
        *(tmp_path / "1", registry, base, AffectedCode.DEPENDENCY), {"requirements.txt": needs}
    ) as made:
        found = made.install()
        assert (found.level, found.how) == (Level.IN_PART, ())
        assert ResolvesGate().judge(made.context).status is GateStatus.FAILED
    on_other = (f"on Python 3.{pythons.minor_of(other)}",)
    before = {"requirements.txt": "earlier\nleft==1.0.0\n", **TEST}
    with project(
        *(tmp_path / "2", registry, before, AffectedCode.DEPENDENCY), {"requirements.txt": "left\n"}
    ) as made:
        assert made.install().how == on_other  # though ours could have it now
        assert PythonTests().judge(made.context).status is GateStatus.PASSED
    before |= {"requirements-dev.txt": "left\n"}
    change = {"requirements-dev.txt": "left==1.0.0\n"}
    with project(tmp_path / "3", registry, before, AffectedCode.DEPENDENCY, change) as made:
        assert made.install().how == on_other
        assert made.resolved("left") == ()  # users may get another


TEST = {"test_it.py": "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n"}


@pytest.mark.parametrize("tests", [TEST, {}], ids=["with tests", "without"])
def test_what_can_not_be_installed_as_its_base_was_is_a_persons_question(
    tmp_path: Path, registry: Registry, other: Path, tests: dict[str, str]
) -> None:
    """It resolves, on ours alone; what worked on the other is not known to work."""
    before = {"requirements.txt": "earlier\nleft==1.0.0\n", **tests}
    change = {"requirements.txt": "latest\nleft==1.0.1\n"}
    with project(tmp_path, registry, before, AffectedCode.DEPENDENCY, change) as made:
        found = made.install()
        assert (found.level, found.how) == (Level.EVERYTHING, ())
        resolves = ResolvesGate().judge(made.context)
        assert resolves.status is GateStatus.UNDECIDED
        on_other = f"on Python 3.{pythons.minor_of(other)}"
        message = f"at the base commit everything, all of it, as uv reads it, {on_other}"
        assert message in resolves.detail
        judged = PythonTests().judge(made.context)
        assert judged.status is (GateStatus.UNDECIDED if tests else GateStatus.SKIPPED)
        assert judged.kinds == ({"another_setting"} if tests else {"no_tests"})


def test_a_failure_beside_another_step_of_the_ladder_is_no_patchs_doing_for_certain(
    tmp_path: Path, registry: Registry
) -> None:
    """At the base commit a line could not be had; with the patch all of it can, and a pass is one."""
    fails = TEST["test_it.py"].replace("pass", "import left; self.assertNotIn('1.0.1', V)")
    before = {"requirements.txt": "left==1.0.0\nno-such-thing\n", **TEST}
    for number, (test, status) in enumerate(
        ((TEST["test_it.py"], GateStatus.PASSED), (fails, GateStatus.UNDECIDED))
    ):
        change = {"requirements.txt": "left==1.0.1\n", "test_it.py": test}
        place = tmp_path / str(number)
        with project(place, registry, before, AffectedCode.DEPENDENCY, change) as made:
            assert made.install().level is Level.EVERYTHING
            verdict = PythonTests().judge(made.context)
            assert verdict.status is status, verdict.detail
            message = "here everything, all of it, as uv reads it; at the base commit in part"
            assert (message in verdict.detail) is (status is GateStatus.UNDECIDED)


def test_releases_of_its_day_that_do_not_start_here_are_not_taken(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed_on(monkeypatch, THE_DAY)
    with project(tmp_path, registry, {"requirements.txt": "left\npytest\n"}) as made:
        found = made.install()
        assert found.how == ()
        assert (made.installed("left"), made.installed("pytest")) == (("1.0.1",), ("8.0",))


def test_a_machine_that_is_busy_chooses_no_other_releases(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it starts is not known in time: then it is taken to start."""
    committed_on(monkeypatch, THE_DAY)
    late = CommandResult(argv=("pytest",), exit_code=None, output="", duration_ms=60_000)
    with project(tmp_path, registry, {"requirements.txt": "left\npytest\n"}) as made:
        monkeypatch.setattr(type(made.context.sandbox), "run", lambda *_, **__: late)
        assert made.install().how == (f"from releases up to {THE_DAY}",)
        assert (made.installed("left"), made.installed("pytest")) == (("1.0.0",), ("5.0",))


def test_a_commit_of_the_end_of_time_is_a_commit_of_these_days(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_git", lambda *_: "9999-12-31")
    with project(tmp_path, registry, {"requirements.txt": "left\n"}) as made:
        assert made.install().is_as_declared


#: What a package of its day imports at its start, as every environment had it.
OF_OLD = "import pkg_resources\n"
OLD_RUNNER = {"pytest/__init__.py": "", "pytest/__main__.py": "import pkg_resources\n"}


@pytest.fixture(scope="module")
def of_old() -> Iterator[Registry]:
    has = {"pkg_resources/__init__.py": "", "setuptools/__init__.py": ""}
    universe = Universe().pypi("setuptools", "80.0", files=has)
    universe.pypi("setuptools", "82.0", files={"setuptools/__init__.py": ""})
    universe.pypi("old", "1.0", files={"old/__init__.py": OF_OLD})
    universe.pypi("asks", "1.0", ["setuptools"], files={"asks/__init__.py": OF_OLD})
    universe.pypi(
        "guards", "1.0", files={"guards/__init__.py": "try:\n    import imp\nexcept A: 0\n"}
    )
    universe.pypi("pytest", "5.0", ["setuptools"], files=OLD_RUNNER).pypi("extra", "1.0")
    with serve(universe) as registry:
        yield registry


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"requirements.txt": "old\n"}, ("80.0",)),
        ({"requirements.txt": "asks\n"}, ("80.0",)),
        ({"requirements.txt": "extra\n", "app.py": OF_OLD}, ("80.0",)),
        ({"requirements.txt": "guards\n", "setup.py": OF_OLD}, ()),
        ({"requirements.txt": "asks\nsetuptools==82.0\n"}, ("82.0",)),
    ],
)
def test_what_code_imports_of_every_old_environment_is_installed_beside_it(
    tmp_path: Path, of_old: Registry, files: dict[str, str], found: tuple[str, ...]
) -> None:
    with project(tmp_path, of_old, files, AffectedCode.DEPENDENCY) as made:
        installed = made.install()
        assert made.installed("setuptools") == found
        assert installed.is_as_declared
        assert installed.beside == (("setuptools 80.0",) if found == ("80.0",) else ())
        assert made.is_whole


def test_an_old_runner_starts_with_the_setuptools_of_its_day(
    tmp_path: Path, of_old: Registry
) -> None:
    files = {"requirements.txt": "pytest==5.0\n", "tests/test_it.py": "def test_it(): pass\n"}
    with project(tmp_path, of_old, files, AffectedCode.DEPENDENCY) as made:
        assert made.sandboxed(["-m", "pytest"]).ok


CI = {
    ".github/workflows/ci.yml": "- run: pip install -r requirements/ci.txt extra\n"
    "- run: pip install -r docs/requirements.txt absent-package\n",
    "requirements/ci.txt": "right\n",
    "requirements.txt": "left==1.0.0\n",
}


def test_what_ci_installs_for_tests_is_installed_beside_what_is_declared(
    tmp_path: Path, registry: Registry
) -> None:
    """It changes nothing of that, and what is not available of it is no fault."""
    with project(tmp_path, registry, CI, AffectedCode.DEPENDENCY) as made:
        assert made.install().is_as_declared
        assert (made.installed("left"), made.installed("right")) == (("1.0.0",), ("1.0.1",))
        assert made.is_whole
