"""What has no wheel is built in the sandbox, and nothing of it reaches farther: real uv and bubblewrap."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.pypi.gates.checks import lacks_by_the_patch
from fallback_plugins.pypi.gates.testing import TestsGate
from fallback_plugins.pypi.installing import building
from fallback_plugins.pypi.installing.building import (
    BuildSystem,
    NotBuiltError,
    NotHadError,
    WheelBuild,
    listed,
)
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.pypi.manifests.indexes import Indexes
from fallback_plugins.pypi.manifests.pythons import minor_of, ours
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from fallback_tier.gates.builtin.proof import Proof, ProofGate
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import advisory, needs_sandbox, older_python, patched
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

MINE = sys.version_info.minor

#: Builds as a source's own backend does, or as setuptools.
BACKEND = """import os, zipfile

NAME = {name!r}

def get_requires_for_build_wheel(settings=None):
    return {asks!r}

def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(os.path.join(folder, NAME + "-py3-none-any.whl"), "w") as wheel:
        info = NAME + ".dist-info/"
        wheel.writestr(NAME.partition("-")[0] + "/__init__.py", "V = 'built'")
        name, version = NAME.split("-")
        about = f"Name: {{name}}\\nVersion: {{version}}\\n"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\n" + about)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
{doing}
"""


def source(
    name: str, doing: str = "", needs: tuple[str, ...] = (), asks: tuple[str, ...] = ()
) -> dict[str, str]:
    """A source that builds itself. ``doing``: behind the wheel that it leaves."""
    system = f"[build-system]\nrequires = {[*needs]}\nbuild-backend = 'own'\nbackend-path = ['.']\n"
    lines = "\n".join(f"    {line}" for line in ["here = folder", *doing.splitlines()])
    return {
        "pyproject.toml": system,
        "own.py": BACKEND.format(name=f"{name}-1.0", asks=[*asks], doing=lines),
    }


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe().pypi("left", "1.0").pypi("right", "1.0", ["plain==1.0"])
    for name in ("plain", "other", "third"):
        universe.pypi(name, "1.0", sdist_only=True, files=source(name))
    universe.pypi("newer", "1.0").pypi("newer", "2.0", sdist_only=True, files=source("newer"))
    legacy = BACKEND.format(name="legacy-1.0", asks=["wheel"], doing="")
    universe.pypi(
        "setuptools",
        "70.0",
        files={
            "setuptools/build_meta.py": f"import sys\n{legacy}\n__legacy__ = sys.modules[__name__]\n"
        },
    )
    universe.pypi("wheel", "1.0").pypi("legacy", "1.0", sdist_only=True)
    asks = "import tool"
    universe.pypi("tool", "1.0")
    universe.pypi(
        "declares", "1.0", sdist_only=True, files=source("declares", asks, needs=("tool",))
    )
    universe.pypi("asks", "1.0", sdist_only=True, files=source("asks", asks, asks=("tool",)))
    universe.pypi("deep", "1.0", sdist_only=True, files=source("deep", needs=("plain",)))
    universe.pypi(
        "away", "1.0", sdist_only=True, files=source("away", needs=("a @ https://b.invalid/c",))
    )
    asks_afar = source("afar", asks=("a @ https://b.invalid/c",))
    universe.pypi("afar", "1.0", sdist_only=True, files=asks_afar)
    for minor in range(pythons.OLDEST_MINOR, MINE):
        universe.pypi("elsewhere", "1.0", tag=f"cp3{minor}-none-any")
    universe.pypi("elsewhere", "1.0", sdist_only=True, files=source("elsewhere"))
    picky = source("picky", f"import sys\nassert sys.version_info.minor != {MINE}")
    universe.pypi("picky", "1.0", sdist_only=True, files=picky)
    broken = source("broken", "raise SystemExit('no compiler here')")
    universe.pypi("broken", "1.0", sdist_only=True, files=broken)
    universe.pypi("broken", "1.1", sdist_only=True, files=broken)
    universe.pypi("broken", "0.9")
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
    changes: Mapping[str, str | None] | None = None,
) -> Iterator[Environment]:
    with patched(place, files, changes or {"x": "1"}, about=advisory()) as case:
        clients = SubprocessClients(os.environ | registry.environ)
        context = case.with_(clients=clients).context
        yield Environment(context, context.repo.laid_out(context.worktree.tree), ".")


def installed(place: Path, registry: Registry, lines: str) -> Installed:
    with project(place, registry, {"requirements.txt": lines}) as made:
        return made.install()


def fetched(registry: Registry, name: str) -> int:
    return registry.paths().count(f"/pypi/files/{name}-1.0.tar.gz")


def test_what_a_wheel_asks_for_is_built_and_told(tmp_path: Path, registry: Registry) -> None:
    with project(tmp_path, registry, {"requirements.txt": "left\nright\n"}) as made:
        found = made.install()
        assert found.in_words == "everything, built from source: plain 1.0"
        done = made.sandboxed(["-c", "import plain; print(plain.V)"])
        assert done.output.strip() == "built"
        assert made.resolved("left") == ("1.0",)  # read from what is installed, as "plain" is
        assert made.resolved("plain") == ("1.0",)


@pytest.mark.parametrize("name", ["legacy", "declares", "asks"])
def test_what_its_build_needs_is_there(tmp_path: Path, registry: Registry, name: str) -> None:
    found = installed(tmp_path, registry, f"{name}==1.0\n")
    assert found.in_words == f"everything, built from source: {name} 1.0"


def test_a_wheel_is_taken_before_any_is_built(tmp_path: Path, registry: Registry) -> None:
    assert installed(tmp_path, registry, "newer\n").is_as_declared
    assert "/pypi/files/newer-2.0.tar.gz" not in registry.paths()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("deep==1.0", "what its build needs: Because plain==1.0 has no usable wheels"),
        (
            "away==1.0",
            "what its build needs: its pyproject.toml has 'a @ …', which is not resolved",
        ),
        (
            "afar==1.0",
            "what its build needs: its backend's own list has 'a @ …', which is not resolved",
        ),
        ("broken==1.0", "its build failed: no compiler here"),
    ],
)
def test_what_is_not_built_is_told_with_the_reason(
    tmp_path: Path, registry: Registry, line: str, why: str
) -> None:
    """Nothing is built for a build, and another release is taken then, as before."""
    found = installed(tmp_path, registry, f"{line}\nleft\n")
    assert found.level is Level.IN_PART
    ((what, reason),) = found.unbuilt
    assert what == line.replace("==", " ")
    assert "not built: " in reason
    assert why in " ".join(reason.split())


def test_another_python_that_has_a_wheel_is_taken_before_any_is_built(
    tmp_path: Path, registry: Registry, other: Path
) -> None:
    found = installed(tmp_path, registry, "elsewhere==1.0\n")
    assert (found.how, found.built) == ((f"on Python 3.{minor_of(other)}",), ())


def test_what_ours_can_not_build_another_python_may(
    tmp_path: Path, registry: Registry, other: Path
) -> None:
    found = installed(tmp_path, registry, "picky==1.0\n")
    how = (f"on Python 3.{minor_of(other)}",)
    assert (found.level, found.how, found.built) == (Level.EVERYTHING, how, ("picky 1.0",))


def test_a_pin_is_built_before_another_release_of_it_is_taken(
    tmp_path: Path, registry: Registry
) -> None:
    found = installed(tmp_path, registry, "nowhere==1.0\nplain==1.0\n")
    assert (found.level, found.built) == (Level.IN_PART, ("plain 1.0",))
    assert {what for what, _ in found.declined} >= {"nowhere==1.0"}
    assert "plain==1.0" not in {what for what, _ in found.declined}


def test_both_trees_have_the_same_wheel(tmp_path: Path, registry: Registry) -> None:
    before = fetched(registry, "third")
    files = {"requirements.txt": "third==1.0\n"}
    with project(tmp_path, registry, files, {"requirements.txt": "third==1.0\nleft\n"}) as made:
        assert made.install().in_words == "everything, built from source: third 1.0"
        assert made.otherwise() == ""
    assert fetched(registry, "third") == before + 1


def test_what_failed_once_is_not_tried_again_that_day(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fetched(registry, "broken")
    files = {"requirements.txt": "broken==1.0\n"}
    with project(tmp_path, registry, files, {"requirements.txt": "broken==1.0\nleft\n"}) as made:
        base = Environment(made.context, made.context.repo, ".")
        assert made.install().unbuilt == base.install().unbuilt != ()
        assert fetched(registry, "broken") == before + 1
        expected, until = made.install().unbuilt, "2198-01-01"
        changes: list[dict[str, Any]] = [{}, {}, {"today": lambda: "2199-01-01"}]
        changes.append({"_system": lambda: (1,)})
        tries = []
        for change in changes:
            for name, value in change.items():
                monkeypatch.setattr(building, name, value)
            again = building.Building(made.context, Indexes)
            again.build(ours(), until, ["broken==1.0 has no usable wheels"])
            assert again.failed(ours(), until) == expected
            tries.append(fetched(registry, "broken") - before)
        assert tries == [2, 2, 3, 4]


@pytest.mark.parametrize("change", [{"today": lambda: "2199-01-01"}, {"_system": lambda: (1,)}])
def test_what_can_be_built_in_the_meantime_is_in_the_next_fixs_trees(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """One fix keeps what its base commit was resolved to."""
    files = {"requirements.txt": "plain==1.0\n"}
    with project(tmp_path, registry, files, {"requirements.txt": "plain==1.0\nleft\n"}) as made:

        def trees(context: GateContext) -> tuple[Environment, Environment]:
            base = Environment(context, context.repo, ".")
            return base, Environment(context, made.repo, ".")

        with monkeypatch.context() as without:
            without.setattr(building, "build_system", _cannot_be_built)
            for tree in trees(made.context):
                assert tree.install().unbuilt == (("plain 1.0", "not built: no compiler"),)
        for name, value in change.items():
            monkeypatch.setattr(building, name, value)
        assert [tree.install().built for tree in trees(made.context)] == [(), ()]
        another = trees(replace(made.context, resolutions={}))
        assert [tree.install().built for tree in another] == [("plain 1.0",), ("plain 1.0",)]
        assert another[1].otherwise() == ""


def _cannot_be_built(_: bytes) -> BuildSystem:
    raise NotBuiltError("no compiler")


def test_a_proof_is_compared_where_one_tree_needed_a_build(
    tmp_path: Path, registry: Registry
) -> None:
    files = {"requirements.txt": "third==1.0\nleft\n", "app.py": "assert 0\n"}
    after = {"requirements.txt": "left\n", "app.py": ""}
    proof = {
        "test_it.py": b"import unittest\nclass T(unittest.TestCase):\n    def test(self): import app\n"
    }
    with project(tmp_path, registry, files, after) as made:
        given = Proof(("python", "-m", "unittest", "test_it.py"), proof)
        verdict = ProofGate(given, PyPIEcosystem(made.context.clients)).judge(made.context)
    assert verdict.status is GateStatus.PASSED, verdict.detail


@pytest.mark.parametrize("lacking_in_both", ["", "nowhere==1.0\n"])
def test_a_test_that_had_less_at_the_base_commit_is_not_known_to_fail_there_too(
    tmp_path: Path, registry: Registry, lacking_in_both: str
) -> None:
    """It failed there for want of a package, and may fail for the patch here."""
    lines = f"{lacking_in_both}left\n"
    test = "import unittest\nclass T(unittest.TestCase):\n"
    files = {
        "requirements.txt": f"broken==1.0\n{lines}",
        "test_a.py": f"import os\n{test}    def test_a(self): assert not os.path.exists('red')\n",
        "test_b.py": f"{test}    def test_b(self): pass\n",
        "red": "",
    }
    with project(tmp_path, registry, files, {"requirements.txt": f"broken==0.9\n{lines}"}) as made:
        verdict = TestsGate().judge(made.context)
    assert verdict.status is GateStatus.UNDECIDED
    assert "1 fail as at the base commit: " in verdict.detail
    assert verdict.kinds == {"another_setting"}


def test_an_archive_that_could_not_be_had_is_asked_for_again(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(building, "fetched", lambda url, _: asked.append(url))
    with project(tmp_path, registry, {"a": ""}) as made:
        for _ in range(2):
            tried = building.Building(made.context, Indexes)
            tried.build(ours(), "", ["plain==1.0 has no usable wheels"])
            ((_, why),) = tried.failed(ours(), "")
            assert "the registry gives no archive" in why
    assert len(asked) == 2


def test_a_registry_that_does_not_answer_ends_it_and_nothing_is_kept(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less than there is, a patch would be blamed for it, or the base commit."""

    unanswered = ToolFailedError("It did not answer.", next_step="Wait.")

    def fetched(*_: str) -> bytes:
        raise unanswered

    with project(tmp_path, registry, {"requirements.txt": "third==1.0\nleft\n"}) as made:
        with monkeypatch.context() as without:
            without.setattr(building, "fetched", fetched)
            with pytest.raises(ToolFailedError) as caught:
                made.install()
        assert caught.value is unanswered
        assert made.install().in_words == "everything, built from source: third 1.0"


def test_what_is_asked_for_under_a_condition_is_built(tmp_path: Path, registry: Registry) -> None:
    """uv says ``plain{os_name != 'nt'}==1.0 has no usable wheels``."""
    found = installed(tmp_path, registry, "plain==1.0 ; os_name != 'nt'\nleft\n")
    assert found.in_words == "everything, built from source: plain 1.0"


def test_both_runs_of_a_build_have_one_clock(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    with project(tmp_path, registry, {"a": ""}) as made:
        run = made.context.sandbox.run

        def seen(*args: Any, **more: Any) -> CommandResult:
            limits.append(more["timeout_s"])
            return run(*args, **more)

        monkeypatch.setattr(made.context.sandbox, "run", seen)
        archive = listed(made.context, "asks", "==1.0", ours(), "")
        assert archive is not None
        WheelBuild(made.context, archive, ours(), "").into(tmp_path)
    first, second = limits
    assert second < first


def test_a_patch_that_needs_no_build_is_compared_all_the_same(
    tmp_path: Path, registry: Registry
) -> None:
    files = {"requirements.txt": "third==1.0\nleft\n"}
    with project(tmp_path, registry, files, {"requirements.txt": "left\n"}) as made:
        assert made.install().is_as_declared
        assert made.otherwise() == made.in_another_setting() == ""


@pytest.mark.parametrize("condition", ["", " ; os_name != 'nt'"])
def test_a_pin_that_moves_and_is_built_in_neither_tree_is_no_failure_of_the_patch(
    tmp_path: Path, registry: Registry, condition: str
) -> None:
    files = {"requirements.txt": f"broken==1.0{condition}\nleft\n"}
    with project(
        tmp_path, registry, files, {"requirements.txt": f"broken==1.1{condition}\nleft\n"}
    ) as made:
        found, base = made.install(), Environment(made.context, made.context.repo, ".")
        assert found.unbuilt[0][0] == "broken 1.1"
        assert "broken 1.1 (not built: its build failed" in found.in_words
        assert base.install().unbuilt[0][0] == "broken 1.0"
        assert not lacks_by_the_patch(made, base)


def test_pins_of_a_lock_are_all_had(tmp_path: Path, registry: Registry) -> None:
    pyproject = (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["right", "left"]\n'
        # What locks it has it built; here nothing is, outside of what is tested.
        '[[tool.uv.dependency-metadata]]\nname = "plain"\nrequires-dist = []\n'
    )
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock" / "pyproject.toml").write_text(pyproject)
    clients = SubprocessClients(os.environ | registry.environ)
    read = {"UV_NO_CONFIG": ""}
    assert clients.run("uv", ["lock"], cwd=tmp_path / "lock", timeout_s=60, env=read).ok
    files = {"pyproject.toml": pyproject, "uv.lock": (tmp_path / "lock" / "uv.lock").read_text()}
    with project(tmp_path / "case", registry, files) as made:
        found = made.install()
        assert (found.level, found.built) == (Level.IN_PART, ("plain 1.0",))
        assert {what for what, _ in found.declined} == {"uv.lock", "uv.lock as it stands"}
        assert made.installed("plain") == made.installed("left") == ("1.0",)


def test_no_more_than_so_many_are_built(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "MAX_BUILT", 1)
    found = installed(tmp_path, registry, "plain==1.0\nother==1.0\nleft\n")
    assert (found.level, len(found.built)) == (Level.IN_PART, 1)
    assert [why for _, why in found.unbuilt] == [building._TOO_MANY]


def test_no_more_than_so_many_are_tried(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "MAX_TRIED", 1)
    found = installed(tmp_path, registry, "broken==1.0\nother==1.0\nleft\n")
    assert (found.level, found.built) == (Level.IN_PART, ())


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("--extra-index-url {url}\n", {}),
        ("", {"uv.toml": "extra-index-url = ['{url}']\n"}),
        ("", {"pyproject.toml": "[tool.uv.pip]\nindex-url = '{url}'\n"}),
        (
            "",
            {
                "poetry.lock": "[[package]]\nname = 'left'\nversion = '1.0'\n[package.source]\n"
                "type = 'legacy'\nurl = 'https://b.invalid/simple'\n"
            },
        ),
    ],
    ids=["requirements", "uv.toml", "pyproject", "lock"],
)
def test_of_a_project_with_an_index_of_its_own_nothing_is_built(
    tmp_path: Path, registry: Registry, line: str, more: dict[str, str]
) -> None:
    """Somebody else may have the name in another."""
    before = fetched(registry, "other")
    files = {"requirements.txt": f"{line}other==1.0\nleft\n"} | more
    filled = {path: text.format(url=registry.pypi_url) for path, text in files.items()}
    with project(tmp_path, registry, filled) as made:
        found = made.install()
    assert found.unbuilt == (("other==1.0", "not built: the project names an index of its own"),)
    assert fetched(registry, "other") == before


@contextmanager
def one_build(place: Path, doing: str, **more: str) -> Iterator[Callable[[], Path]]:
    """Builds ``it``, whose build ends with ``doing``; the folder that the wheel is put into."""
    files = source("it", doing) | more
    universe = Universe().pypi("it", "1.0", sdist_only=True, files=files)
    with (
        serve(universe) as registry,
        patched(place, {"a": ""}, {"x": "1"}, about=advisory()) as case,
    ):
        clients = SubprocessClients(os.environ | registry.environ)
        context = case.with_(clients=clients).context
        archive = listed(context, "it", "==1.0", ours(), "")
        assert archive is not None
        made = place / "taken"
        made.mkdir()

        def build() -> Path:
            WheelBuild(context, archive, ours(), "").into(made)
            return made

        yield build


def refused(place: Path, doing: str, **more: str) -> str:
    with one_build(place, doing, **more) as build:
        with pytest.raises(NotBuiltError) as caught:
            build()
        assert list((place / "taken").iterdir()) == []
        assert list((place / "cache").glob("scratch-*")) == []
        return caught.value.problem


WHEEL = "it-1.0-py3-none-any.whl"
HERE = f"there = os.path.join(folder, {WHEEL!r})\n"


def test_a_build_leaves_its_wheel_alone(tmp_path: Path) -> None:
    with one_build(tmp_path, "") as build:
        assert [path.name for path in build().iterdir()] == [WHEEL]


def test_a_build_reaches_no_network(tmp_path: Path) -> None:
    asked = Universe().pypi("left", "1.0")
    with serve(asked) as other:
        doing = (
            f"import urllib.request\nurllib.request.urlopen({other.url + '/stolen'!r}, timeout=20)"
        )
        assert "its build failed: " in refused(tmp_path, doing)
        assert other.paths() == []


def test_what_a_compiler_misses_is_told_and_not_how_it_was_called(tmp_path: Path) -> None:
    missing = "a.c:1:10: fatal error: lber.h: No such file or directory"
    doing = f"print({missing!r})\nraise SystemExit('gcc ' + '-DA ' * 999)"
    assert refused(tmp_path, doing) == f"its build failed: {missing}"


def test_a_build_reads_nothing_of_the_users(tmp_path: Path) -> None:
    secret = tmp_path / "home" / "secret"
    secret.parent.mkdir()
    secret.write_text("s3cret")
    message = refused(tmp_path, f"raise SystemExit(open({str(secret)!r}).read())")
    assert "No such file" in message
    assert "s3cret" not in message


def test_a_build_writes_nowhere_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    doing = f"open({str(outside)!r}, 'w')"
    with one_build(tmp_path, doing) as build, suppress(NotBuiltError):
        build()  # what it wrote may lie in the sandbox's own memory
    assert not outside.exists()


def test_a_build_changes_nothing_that_its_environment_has(tmp_path: Path) -> None:
    doing = "import sysconfig\nopen(sysconfig.get_path('purelib') + '/own.pth', 'w')"
    assert "Read-only file system" in refused(tmp_path, doing)


def test_an_archive_is_unpacked_nowhere_else(tmp_path: Path) -> None:
    refused(tmp_path, "", **{"../../escaped": "here"})
    assert list(tmp_path.rglob("escaped")) == []


def test_a_link_in_place_of_a_wheel_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    doing = f"{HERE}os.remove(there)\nos.symlink({str(secret)!r}, there)"
    assert "left something that is no file" in refused(tmp_path, doing)


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / WHEEL).write_text("s3cret")
    doing = f"import shutil\nshutil.rmtree(folder)\nos.symlink({str(there)!r}, folder)"
    assert "left no single wheel" in refused(tmp_path, doing)


def test_a_wheel_of_another_name_is_not_taken(tmp_path: Path) -> None:
    doing = f"{HERE}os.rename(there, os.path.join(folder, 'left-1.0-py3-none-any.whl'))"
    assert "another file than its wheel" in refused(tmp_path, doing)


def test_nothing_of_what_a_build_leaves_stays_however_deep(tmp_path: Path) -> None:
    doing = (
        "os.mkdir('shut')\nos.mkdir('shut/below')\nos.chmod('shut', 0)\n"
        "for _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\nraise SystemExit('left it')"
    )
    try:
        assert "left it" in refused(tmp_path, doing)
    finally:  # pytest itself can't remove what is so deep, and ends with it
        subprocess.run(["rm", "-rf", tmp_path / "cache"], check=True)


def test_a_backend_that_fits_into_no_command(tmp_path: Path) -> None:
    system = (
        f"[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['{'p' * 60_000}']\n"
    )
    assert "more than 1,000 characters" in refused(tmp_path, "", **{"pyproject.toml": system})


def test_a_build_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "BUILD_TIMEOUT_S", 3.0)
    assert refused(tmp_path, "import time\ntime.sleep(600)") == "its build did not end in time"


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1]", "[" * 60_000, f'["{"a" * 200_000}"]'])
def test_what_it_needs_more_is_read_as_any_word_of_a_strangers(tmp_path: Path, text: str) -> None:
    asked = f"open(os.path.join(folder, 'needs.json'), 'w').write({text!r})"
    doing = f"{HERE}os.remove(there)\n{asked}"
    assert refused(tmp_path, doing) == "it does not say what its build needs"


def test_another_archive_than_the_listing_has_is_not_built(
    tmp_path: Path, registry: Registry
) -> None:
    with project(tmp_path, registry, {"a": ""}) as made:
        archive = listed(made.context, "plain", "==1.0", ours(), "")
        assert archive is not None
        other = replace(archive, hash="sha256:" + "0" * 64)
        with pytest.raises(NotHadError):
            WheelBuild(made.context, other, ours(), "").into(tmp_path)
