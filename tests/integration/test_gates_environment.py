"""What differs between the base commit's environment and the patched one, and whose doing it is.

Real uv, Python and bubblewrap, and a made-up registry. Each alarm that a patch is not to blame for stands
beside one that it is.
"""

import gc
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.pypi.gates import build_gates
from fallback_plugins.pypi.installing import building
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.shared.gates import gating
from fallback_tier.errors import ToolFailedError
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

#: Complains of each installed module that says BAD, by its path, as mypy does of stubs that it can't read.
MYPY = """import pathlib, sys
bad = [path for path in sorted(pathlib.Path(__file__).parents[1].glob('*.py')) if 'BAD' in path.read_text()]
for path in bad:
    print(f'{path}:1: error: BAD  [syntax]')
sys.exit(2 if bad else 0)
"""
TYPED = "[tool.mypy]\nstrict = true\n"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .pypi("left", "1.0.0", files={"left.py": ""})
        .pypi("left", "1.0.1", files={"left.py": ""})
        .pypi("left", "1.0.2", files={"left.py": "", "left_more.py": "BAD = 1\n"})
        .pypi("older", "1.0", ["left<1.0.2"])
        .pypi("source", "1.0", sdist_only=True)
        .pypi("source", "1.1", sdist_only=True)
        .pypi("odd", "1.0", files={"odd.py": "BAD = 1\n"})
        .pypi("mypy", "2.0.0", files={"mypy/__main__.py": MYPY, "mypy/__init__.py": ""})
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def judged(
    place: Path,
    registry: Registry,
    files: Mapping[str, str],
    changes: Mapping[str, str | None],
    gate: str,
) -> GateVerdict:
    """One gate's verdict on a dependency's fix."""
    found = next(one for one in build_gates() if one.name == gate)
    with patched(place, files, changes, about=advisory("left", "PyPI")) as case:
        clients = SubprocessClients(os.environ | registry.environ)
        return found.judge(case.with_(clients=clients).context)


@pytest.mark.parametrize(
    ("line", "now", "is_had"),
    [
        # requirements/dev.txt comes first with left 1.0.0: no other could be had beside it before.
        pytest.param("left==1.0.1\n", "left==1.0.2\n", True, id="as before"),
        pytest.param("left==1.0.1\n", "left==9.9\n", False, id="no such release"),
        pytest.param("left==1.0.1\nolder\n", "left==1.0.2\nolder\n", False, id="its own file"),
        pytest.param("mypy\n", "mypy\nleft==1.0.2\n", False, id="nothing before"),
        pytest.param("source==1.0\n", "source==1.1\n", True, id="no wheel before either"),
        pytest.param("source==1.0\n", "source==9.9\n", False, id="no wheel, then no release"),
    ],
)
def test_a_moved_line_that_could_not_be_had_before_is_judged_by_its_own_file(
    tmp_path: Path, registry: Registry, line: str, now: str, is_had: bool
) -> None:
    files = {"requirements/dev.txt": "left==1.0.0\n", "requirements/tests.txt": line}
    verdict = judged(tmp_path, registry, files, {"requirements/tests.txt": now}, "resolves")
    kind = None if is_had else FailureKind.RESOLUTION_FAILED
    assert verdict.failure_kind is kind, verdict.log
    assert ("so it is at the base commit" in verdict.detail) is is_had


def test_a_line_that_is_not_moved_and_can_no_longer_be_had_is_the_patchs(
    tmp_path: Path, registry: Registry
) -> None:
    """Though the moved one could not be had before."""
    files = {"requirements.txt": "source\nleft==1.0.1\n", "requirements-dev.txt": "older\n"}
    change = {"requirements.txt": "source\nleft==1.0.2\n"}
    verdict = judged(tmp_path, registry, files, change, "resolves")
    assert verdict.failure_kind is FailureKind.RESOLUTION_FAILED
    assert "older" in verdict.log


@pytest.mark.parametrize(
    ("fixed", "new"), [("1.0.1", ""), ("1.0.2", "left_more.py:1: error: BAD  [syntax]")]
)
def test_a_complaint_of_what_lies_in_the_environment_is_the_same_in_both(
    tmp_path: Path, registry: Registry, fixed: str, new: str
) -> None:
    lines = "mypy\nodd\nleft=={}\n"
    files = {"pyproject.toml": TYPED, "requirements.txt": lines.format("1.0.0")}
    change = {"requirements.txt": lines.format(fixed)}
    verdict = judged(tmp_path, registry, files, change, "typecheck")
    assert (verdict.failure_kind is FailureKind.BUILD_FAILED) is bool(new), verdict.log
    assert verdict.log.endswith(new)
    assert verdict.status is not GateStatus.PASSED  # the checker stopped at it
    assert str(tmp_path) not in verdict.log


PROGRAM = {
    "pyproject.toml": '[project]\nname = "app"\nversion = "1"\n'
    '[project.scripts]\npython = "app:cli"\ntool = "app.cli:Tool.run"\n',  # no script covers Python
    "app/__init__.py": "cli = 'no module'\n",
    "app/cli.py": "import sys\nclass Tool:\n"
    "    @classmethod\n    def run(cls): return sys.argv[1] != 'a b'\n",
    "tests/test_tool.py": "import subprocess, unittest\n"
    "class Tool(unittest.TestCase):\n"
    "    def test_it(self): subprocess.run(['tool', 'a b'], check=True)\n",
}


@pytest.mark.parametrize(
    ("message", "passes"), [("not sys.argv[1:]", True), ("sys.argv[1] != 'a'", False)]
)
def test_a_projects_own_programs_are_there_for_its_tests(
    tmp_path: Path, registry: Registry, message: str, passes: bool
) -> None:
    change = {"app/cli.py": PROGRAM["app/cli.py"].replace("sys.argv[1] != 'a b'", message)}
    verdict = judged(tmp_path, registry, PROGRAM, change, "tests")
    assert verdict.failure_kind is (None if passes else FailureKind.TESTS_FAILED), verdict.log
    assert (verdict.detail == "1 test(s) pass") is passes


@pytest.mark.parametrize("fixed", ["1.0.1", "1.0.2"])
def test_a_release_published_between_the_two_installs_is_in_neither(
    tmp_path: Path, fixed: str
) -> None:
    """The base commit is resolved once, and the patch moves ``left`` and what that requires."""
    universe = (
        Universe()
        .pypi("left", "1.0.0", ["odd<1.1"])
        .pypi("left", "1.0.1", ["odd"])
        .pypi("left", "1.0.2", ["odd>=1.1"])
        .pypi("odd", "1.0", files={"odd.py": ""})
        .pypi("mypy", "2.0.0", files={"mypy/__main__.py": MYPY, "mypy/__init__.py": ""})
        .pypi("alone", "1.0", ["far"], files={"alone.py": ""})
        .pypi("far", "1.0")
    )
    lines = "mypy\nalone\nleft=={}\n"
    files = {"pyproject.toml": TYPED, "requirements.txt": lines.format("1.0.0")}
    change = {"requirements.txt": lines.format(fixed)}
    about = advisory("left", "PyPI")
    with serve(universe) as registry, patched(tmp_path, files, change, about=about) as case:
        before = case.with_(clients=SubprocessClients(os.environ | registry.environ)).context
        Environment(before, before.repo, ".").install()
        universe.pypi("alone", "1.1", files={"alone.py": "BAD = 1\n"}).pypi("far", "1.1")
        universe.pypi("odd", "1.1", files={"odd.py": "BAD = 1\n"})
        # uv asks for a package again only after minutes.
        fresh = {"UV_CACHE_DIR": str(tmp_path / "uv")}
        later = case.with_(clients=SubprocessClients(os.environ | registry.environ | fresh)).context
        verdicts = [gate.judge(later) for gate in build_gates()]
        ours = in_patched(later)
        both = [versions(ours), versions(ours.base)]
    moved = {"left": fixed, "odd": "1.1"} if fixed == "1.0.2" else {"left": fixed}
    assert both == [both[1] | moved, both[1]]
    assert (both[1]["alone"], both[1]["far"], both[1]["odd"]) == ("1.0", "1.0", "1.0")
    assert GateStatus.UNDECIDED not in {verdict.status for verdict in verdicts}
    assert not any("releases" in verdict.detail for verdict in verdicts)
    (types,) = (verdict for verdict in verdicts if verdict.gate == "typecheck")
    assert types.detail.startswith("mypy: in order" if fixed == "1.0.1" else "mypy fails")


def in_patched(context: GateContext) -> Environment:
    return Environment(context, gating.patched(context), ".")


def versions(tree: Environment) -> dict[str, str]:
    return {name: found.version for name, found in tree.distributions().items()}


def test_what_was_resolved_for_a_fix_is_installed_again_on_another_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both trees, though nothing is left of the store. The next fix resolves anew."""
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.0.1").pypi("alone", "1.0")
    files, change = ({"requirements.txt": f"alone\nleft{it}\n"} for it in ("==1.0.0", ">1.0.0"))
    with (
        serve(universe) as registry,
        patched(tmp_path, files, change, about=advisory("left", "PyPI")) as case,
    ):
        environ = os.environ | registry.environ | {"UV_CACHE_DIR": str(tmp_path / "uv")}
        context = case.with_(clients=SubprocessClients(environ)).context
        ours = in_patched(context)
        before = [versions(ours), versions(ours.base)]
        del ours
        gc.collect()
        universe.pypi("alone", "1.1").pypi("left", "1.0.2")
        shutil.rmtree(tmp_path / "uv")
        shutil.rmtree(context.cache)
        monkeypatch.setattr(building, "today", lambda: "2199-01-01")
        again = in_patched(context)
        assert [versions(again), versions(again.base)] == before
        another = in_patched(replace(context, resolutions={}))
        assert versions(another) == {"left": "1.0.2", "alone": "1.1"}
        assert versions(another.base) == {"left": "1.0.0", "alone": "1.1"}
        # A resolution that is not available any more is an error, not another resolution.
        shutil.rmtree(tmp_path / "uv")
        shutil.rmtree(context.cache)
        del universe.pypi_packages["alone"]["alone-1.0-py3-none-any.whl"]
        with pytest.raises(ToolFailedError, match=r"can't be installed again: alone 1\.0"):
            in_patched(context).install()


LOCKED = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.8"\ndependencies = ["left=={}"]\n'


def test_what_a_lock_does_not_pin_is_as_at_the_base_commit(tmp_path: Path) -> None:
    """The test runner, which the project does not declare, and what that requires."""
    universe = Universe().pypi("left", "1.0.0", ["odd<1.1"]).pypi("left", "1.0.1", ["odd"])
    universe.pypi("odd", "1.0").pypi("odd", "1.1").pypi("pytest", "9.0", ["helper"])
    universe.pypi("helper", "1.0").pypi("mine", "1.0")
    trees = []
    with serve(universe) as registry:
        clients = SubprocessClients(os.environ | registry.environ)
        for version in ("1.0.0", "1.0.1"):
            place = tmp_path / f"lock-{version}"
            place.mkdir()
            (place / "pyproject.toml").write_text(LOCKED.format(version))
            assert clients.run("uv", ["lock"], cwd=place, timeout_s=60).ok
            trees.append({one.name: one.read_text() for one in place.iterdir() if one.is_file()})
        files = {**trees[0], "test_a.py": "import pytest\n"}
        with patched(tmp_path, files, trees[1], about=advisory("left", "PyPI")) as case:
            # uv asks for a package again only after minutes.
            fresh = {"UV_CACHE_DIR": str(tmp_path / "uv")}
            later = case.with_(clients=SubprocessClients(os.environ | registry.environ | fresh))
            base = Environment(case.with_(clients=clients).context, case.context.repo, ".")
            base.install()
            universe.pypi("helper", "1.1")
            ours = in_patched(later.context)
            moved = {"left": "1.0.1", "odd": "1.1"}
            assert versions(ours) == versions(ours.base) | moved
            assert versions(ours)["helper"] == "1.0"


def test_a_lock_decides_where_a_manifest_admits_the_base_commits_release(tmp_path: Path) -> None:
    """A refresh of poetry.lock, whose pyproject.toml has a range in standard metadata."""
    manifest = LOCKED.format("").replace("left==", "left>=1")
    lock = '[[package]]\nname = "left"\nversion = "{}"\n[metadata]\nlock-version = "2.1"\n'
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.0.1")
    files = {"pyproject.toml": manifest, "poetry.lock": lock.format("1.0.0")}
    change = {"poetry.lock": lock.format("1.0.1")}
    with (
        serve(universe) as registry,
        patched(tmp_path, files, change, about=advisory("left", "PyPI")) as case,
    ):
        clients = SubprocessClients(os.environ | registry.environ)
        ours = in_patched(case.with_(clients=clients).context)
        assert (versions(ours.base), versions(ours)) == ({"left": "1.0.0"}, {"left": "1.0.1"})


def test_an_environment_is_keyed_by_what_was_resolved_and_by_no_day(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next day's fix resolves again; what comes out the same is the same environment."""
    files, about = {"requirements.txt": "left==1.0.0\n"}, advisory("left", "PyPI")
    with patched(tmp_path, files, {"x": "1"}, about=about) as case:
        clients = SubprocessClients(os.environ | registry.environ)
        context = case.with_(clients=clients).context
        first = Environment(context, context.repo, ".")
        ran_on = first.contents()
        monkeypatch.setattr(building, "today", lambda: "2001-01-01")
        second = Environment(replace(context, resolutions={}), context.repo, ".")
        assert second.contents() == ran_on
        assert second.place == first.place
