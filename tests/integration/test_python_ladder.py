"""Installing Python projects as strangers write them: real uv and bubblewrap, a made-up registry."""

import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType

import pytest

from fallback_plugins.pypi.installing import plan as install_plan
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

#: In parts: no file here names a registry that could be asked.
PUBLIC = f"https://{'.'.join(('pypi', 'org'))}/simple"

GIT = "away @ git+https://host.invalid/away.git"


def module(name: str, version: str) -> dict[str, str]:
    return {f"{name}/__init__.py": f"V = '{version}'\n"}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .pypi("left", "1.0.0", files=module("left", "1.0.0"))
        .pypi("left", "1.0.1", files=module("left", "1.0.1"))
        .pypi("right", "1.0", files=module("right", "1.0"))
        .pypi("right", "2.0", files=module("right", "2.0"))
        .pypi("pytest", "8.0", ["right>=2"], files=module("pytest", "8.0"))
        .pypi("needs-right", "1.0", ["right"], files=module("needs_right", "1.0"))
        .pypi("older", "1.0", ["left<1.0.1"], files=module("older", "1.0"))
        .pypi("source", "1.0", sdist_only=True)
        .pypi("both", "1.0", sdist_only=True)
        .pypi("both", "1.1", files=module("both", "1.1"))
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


@pytest.fixture
def place(registry: Registry, tmp_path: Path) -> "Place":
    return Place(registry, tmp_path)


class Place:
    def __init__(self, registry: Registry, folder: Path) -> None:
        self.clients = SubprocessClients(os.environ | registry.environ)
        self.folder = folder
        self.numbers = count()

    def lock(self, pyproject: str, members: Mapping[str, str] = MappingProxyType({})) -> str:
        """The lock; in it ``source`` has a wheel, which the registry no longer has."""
        folder = self.folder / "locked"
        for path, text in {"pyproject.toml": pyproject, **members}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text.replace("source", "both"))
        done = self.clients.run("uv", ["lock"], cwd=folder, timeout_s=60)
        assert done.ok, done.output
        return (folder / "uv.lock").read_text().replace("both", "source")

    def install(self, files: Mapping[str, str], folder: str = ".") -> tuple[Installed, list[str]]:
        """What was installed, and ``name==version`` of each of ours that is there."""
        with self.opened(files) as case:
            project = Environment(case.context, case.context.repo, folder)
            found = project.install()
            names = ("left", "right", "source", "both")
            there = [f"{name}=={it}" for name in names for it in project.installed(name)]
        return found, there

    def run(self, files: Mapping[str, str], *argv: str) -> str:
        with self.opened(files) as case:
            ran = PyPIEcosystem(self.clients).run(case.context, case.context.repo, argv)
        assert ran.result is not None
        return ran.result.output

    def opened(self, files: Mapping[str, str]):  # type: ignore[no-untyped-def]
        context = patched(
            self.folder / f"case-{next(self.numbers)}", files, {"x": "1"}, about=advisory()
        )
        return _with_clients(context, self.clients)


class _with_clients:  # noqa: N801 (a context manager)
    def __init__(self, context, clients) -> None:  # type: ignore[no-untyped-def]
        self.context, self.clients = context, clients

    def __enter__(self):  # type: ignore[no-untyped-def]
        return self.context.__enter__().with_(clients=self.clients)

    def __exit__(self, *args: object) -> None:
        self.context.__exit__(*args)


PROJECT = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\n'


@pytest.mark.parametrize(
    ("files", "there", "declined"),
    [
        pytest.param(
            {
                "pyproject.toml": PROJECT
                + f'dependencies = ["left"]\n[dependency-groups]\ndocs = ["{GIT}"]\ntest = ["right"]\n'
            },
            ["left==1.0.1", "right==2.0"],
            {"as uv reads it": "from a checkout"},
            id="a docs group from git",
        ),
        pytest.param(
            {
                "requirements.txt": "right\n",
                "requirements/tests.txt": "left==1.0.0\n",
                "requirements/tests38.txt": "left==1.0.1\n",
            },
            ["left==1.0.0", "right==2.0"],
            {"left==1.0.1": "left==1.0.0"},
            id="two files that contradict each other",
        ),
        pytest.param(
            {
                "requirements.txt": "-e .[full]\n",
                "setup.py": "from setuptools import setup\n"
                "setup(name='app', install_requires=['right'], extras_require={'full': ['left']})\n",
            },
            ["left==1.0.1", "right==2.0"],
            {},
            id="the project itself with an extra",
        ),
        pytest.param(
            {"requirements.txt": "left\nboth==1.0\n", "requirements-dev.txt": "source\nright\n"},
            ["left==1.0.1", "right==2.0", "both==1.1"],
            {"both==1.0": "another release of it is installed", "source": "no usable wheels"},
            id="no wheel",
        ),
        pytest.param(
            {"requirements.txt": "left\n", "requirements-dev.txt": "absent-name\nright\n"},
            ["left==1.0.1", "right==2.0"],
            {"absent-name": "absent-name"},
            id="a name that the registry lacks",
        ),
        pytest.param(
            {"poetry.lock": '[[package]]\nname = "left"\nversion = "1.0.0"\n'},
            ["left==1.0.0"],
            {},
            id="poetry.lock",
        ),
        pytest.param(
            {"pdm.lock": '[[package]]\nname = "left"\nversion = "1.0.0"\n'},
            ["left==1.0.0"],
            {},
            id="pdm.lock",
        ),
        pytest.param(
            {
                "Pipfile": '[packages]\nleft = "*"\n',
                "Pipfile.lock": '{"default": {"left": {"version": "==1.0.0"}},'
                ' "develop": {"right": {"version": "==2.0"}}}',
            },
            ["left==1.0.0", "right==2.0"],
            {},
            id="Pipfile.lock",
        ),
        pytest.param(
            {
                "poetry.lock": '[[package]]\nname = "left"\nversion = "1.0.0"\n'
                '[[package]]\nname = "right"\nversion = "9.9"\n[package.source]\ntype = "git"\n'
                'url = "https://host.invalid/right.git"\n'
                '[[package]]\nname = "near"\nversion = "1"\n[package.source]\ntype = "directory"\n'
                'url = "libs/near"\n'
                '[[package]]\nname = "both"\nversion = "1.1"\n[package.source]\ntype = "file"\n'
                'url = "vendor/both-1.1-py3-none-any.whl"\n'
            },
            ["left==1.0.0"],
            {
                "right @ https://host.invalid/right.git": "leads elsewhere than to a registry",
                "both @ vendor/both-1.1-py3-none-any.whl": "leads elsewhere than to a registry",
            },
            id="poetry.lock with a package from git",
        ),
        pytest.param(
            {
                "poetry.lock": '[[package]]\nname = "left"\nversion = "1.0.0"\n[package.source]\n'
                f'type = "legacy"\nurl = "{PUBLIC}"\n'
            },
            ["left==1.0.0"],
            {},
            id="poetry.lock of the public registry by its address",
        ),
        pytest.param(
            {
                "pdm.lock": '[[package]]\nname = "left"\nversion = "1.0.0"\n'
                '[[package]]\nname = "both"\nversion = "1.1"\n'
                'git = "https://host.invalid/both.git"\n'
            },
            ["left==1.0.0"],
            {"both @ https://host.invalid/both.git": "leads elsewhere than to a registry"},
            id="pdm.lock with a package from git",
        ),
        pytest.param(
            {
                "Pipfile.lock": '{"default": {"left": {"version": "==1.0.0"}, "app": {"path": "."},'
                ' "both": {"hg": "https://host.invalid/both"},'
                ' "right": {"git": "https://host.invalid/right.git", "ref": "abc"}}}'
            },
            ["left==1.0.0"],
            {
                "right @ https://host.invalid/right.git": "leads elsewhere than to a registry",
                "both @ https://host.invalid/both": "leads elsewhere than to a registry",
            },
            id="Pipfile.lock with packages from repositories",
        ),
        pytest.param(
            {
                "poetry.lock": '[[package]]\nname = "needs-right"\nversion = "1.0"\n'
                '[[package]]\nname = "both"\nversion = "1.1"\n[package.source]\ntype = "git"\n'
                'url = "https://host.invalid/both.git"\n'
                '[[package]]\nname = "Right"\nversion = "9.9"\n[package.source]\ntype = "git"\n'
                'url = "https://host.invalid/right.git"\n'
            },
            ["right==2.0"],
            {
                "both @ https://host.invalid/both.git": "leads elsewhere than to a registry",
                "Right @ https://host.invalid/right.git": "another release of it is installed",
            },
            id="a package from git that another requires",
        ),
        pytest.param(
            {
                "setup.cfg": "[metadata]\nname = app\n[options]\ninstall_requires =\n    left\n"
                "[options.extras_require]\ntest =\n    right\n",
                "setup.py": "import setuptools\nsetuptools.setup()\n",
            },
            ["left==1.0.1", "right==2.0"],
            {},
            id="setup.cfg",
        ),
        pytest.param(
            {
                "pyproject.toml": PROJECT,
                "tox.ini": "[testenv]\ndeps =\n    left\n    py38: right\n",
            },
            ["left==1.0.1"],
            {},
            id="tox alone",
        ),
    ],
)
def test_what_can_be_had_is_there_and_the_rest_is_named(
    place: Place, files: dict[str, str], there: list[str], declined: dict[str, str]
) -> None:
    found, held = place.install(files)
    assert held == there
    reported = dict(found.declined)
    for line, words in declined.items():
        assert words in reported[line], found.in_full
    assert found.level is (Level.IN_PART if declined else Level.EVERYTHING), found.in_full


def test_a_locks_default_groups_and_the_projects_own_entry_are_left_out(place: Place) -> None:
    pyproject = (
        PROJECT
        + 'dependencies = ["left"]\n[dependency-groups]\ndev = ["right"]\ndocs = ["source"]\n'
        '[tool.uv]\ndefault-groups = ["docs"]\npackage = true\n'
    )
    files = {"pyproject.toml": pyproject, "uv.lock": place.lock(pyproject)}
    found, held = place.install(files)
    assert found.level is Level.EVERYTHING, found.in_full
    assert held == ["left==1.0.1", "right==2.0"]


def test_of_a_lock_that_can_not_be_had_the_pins_are(place: Place) -> None:
    pyproject = PROJECT + 'dependencies = ["left==1.0.0", "source"]\n'
    files = {"pyproject.toml": pyproject, "uv.lock": place.lock(pyproject)}
    found, held = place.install(files)
    assert (found.level, held) == (Level.IN_PART, ["left==1.0.0"])
    assert "source" in dict(found.declined)["source==1.1"]


@pytest.mark.parametrize("more", ["", f"docs = ['{GIT}']\n"], ids=["whole", "by its pins"])
def test_a_member_of_a_workspace_is_installed_by_the_workspaces_lock(
    place: Place, more: str
) -> None:
    """What a member asks for may be computed when it is built; the lock says it."""
    groups = '[dependency-groups]\ndev = ["right"]\n'
    root = PROJECT + groups + '[tool.uv.workspace]\nmembers = ["libs/*"]\n'
    member = '[project]\nname = "member"\n{}requires-python = ">=3.11"\n'
    written = member.format('version = "1"\ndependencies = ["left<1.0.1"]\n')
    files = {
        "pyproject.toml": root.replace(groups, groups + more),
        "uv.lock": place.lock(root, {"libs/member/pyproject.toml": written}),
        "libs/member/pyproject.toml": member.format('dynamic = ["version", "dependencies"]\n'),
    }
    found, held = place.install(files, "libs/member")
    assert held == ["left==1.0.0", "right==2.0"], found.in_full
    files["other/pyproject.toml"] = '[project]\nname = "other"\nversion = "1"\n'
    assert place.install(files, "other")[1] == []


def test_folders_that_a_project_takes_packages_from_are_found_where_they_lie(place: Place) -> None:
    member = '[project]\nname = "{}"\nversion = "1"\n'
    files = {
        "libs/a/pyproject.toml": member.format("a")
        + 'dependencies = ["b"]\n[tool.uv.sources]\nb = { path = "../b" }\n',
        "libs/b/pyproject.toml": member.format("b"),
        "libs/b/src/b.py": "",
        "requirements.txt": "-e ./libs/b\n",
    }
    code = (
        "import b; print(b.__file__); from importlib.metadata import version; print(version('b'))"
    )
    assert place.run(files, "python", "-c", code) == "libs/b/src/b.py\n1\n"


def test_what_a_project_is_tested_with_does_not_change_what_it_runs_with(place: Place) -> None:
    files = {
        "requirements.txt": "left\n",
        "requirements-dev.txt": "older\nright\nabsent-name\n",
    }
    found, held = place.install(files)
    assert held == ["left==1.0.1", "right==2.0"]
    assert set(dict(found.declined)) >= {"older", "absent-name"}


def test_a_module_that_only_a_build_writes_is_there(place: Place) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "app"\ndynamic = ["version"]\n'
        '[tool.setuptools_scm]\nversion_file = "app/_version.py"\n',
        "app/__init__.py": "from app._version import version\n",
    }
    assert place.run(files, "python", "-c", "import app; print(app.version)") == "0\n"


def test_no_setup_script_runs_outside_the_sandbox_whatever_file_names_the_project(
    place: Place,
) -> None:
    """uv builds what is editable in spite of ``--no-build``: it may find neither line nor script."""
    witness = place.folder / "ran"
    files = {
        "requirements.txt": "left\n-r requirements/deep/base.txt\n",
        "requirements/deep/base.txt": "-e .\n",
        "setup.py": f"open({str(witness)!r}, 'w')\nfrom setuptools import setup\nsetup(name='app')\n",
    }
    with place.opened(files) as case:
        project = Environment(case.context, case.context.repo, ".")
        project.install()
        assert project.installed("left") == ("1.0.1",)
        # The registry here has no setuptools to build with: so what uv was given is looked at, too.
        manifests = install_plan.Manifests(case.context.repo, ".")
        steps = [step.name for step in manifests.everything(lambda _: place.folder / "lines.txt")]
        manifests.copy_to(place.folder / "copies")
    assert not witness.exists()
    assert "all of it, as uv reads it" not in steps
    assert not list(place.folder.glob("copies/setup.*"))


def test_the_repository_itself_is_never_written(place: Place) -> None:
    scm = '[project]\nname = "app"\ndynamic = ["version"]\n[tool.setuptools_scm]\n'
    files = {
        "pyproject.toml": scm + 'version_file = "_version.py"\n',
        "requirements.txt": "absent-name\n",
    }
    with place.opened(files) as case:
        for gate in PyPIEcosystem(place.clients).gates():
            gate.judge(case.context)
        assert not (case.context.repo.root / "_version.py").exists()


@pytest.mark.parametrize("outside", ["../../outside.py", "{root}/outside.py"])
def test_no_version_is_written_outside_the_tree(place: Place, outside: str) -> None:
    named = outside.format(root=place.folder)
    text = f'[project]\nname = "app"\n[tool.setuptools_scm]\nversion_file = "{named}"\n'
    place.run({"pyproject.toml": text}, "python", "-c", "")
    assert not list(place.folder.rglob("outside.py"))


def test_a_test_runner_changes_nothing_that_is_installed(place: Place) -> None:
    """The versions that are there are told as those that users get."""
    files = {"requirements.txt": "right<2\n", "test_app.py": "import pytest\n"}
    found, held = place.install(files)
    assert "right==1.0" in held
    assert "pytest" in dict(found.declined)


#: What a user may have set, each of which has uv ask an environment's Python again: uv.toml, variables.
ASKS_AGAIN = {
    "variable": ("", {"UV_NO_CACHE": "1"}),
    "no-cache": ("no-cache = true\n", {}),
    "pip upgrade": ("[pip]\nupgrade = true\n", {}),
    "pip upgrade-package": ('[pip]\nupgrade-package = ["left"]\n', {}),
    "pip reinstall": ("[pip]\nreinstall = true\n", {}),
    "pip reinstall-package": ('[pip]\nreinstall-package = ["left"]\n', {}),
    "upgrade": ("upgrade = true\n", {}),
    "upgrade-package": ('upgrade-package = ["left"]\n', {}),
    "reinstall": ("reinstall = true\n", {}),
    "reinstall-package": ('reinstall-package = ["left"]\n', {}),
}


@pytest.mark.parametrize(
    ("settings", "locked"),
    a_choice(
        [*((it, False) for it in ASKS_AGAIN), *((it, True) for it in ("upgrade", "reinstall"))],
        step=5,
    ),
)
def test_nothing_of_a_package_starts_outside_the_sandbox_whatever_a_user_has_set_for_uv(
    tmp_path: Path, settings: str, locked: bool
) -> None:
    """uv starts an environment's Python to ask what it is, and Python runs each .pth file in it."""
    trace = tmp_path / "started"
    starts = {"starts.pth": f"import pathlib; pathlib.Path({str(trace)!r}).touch()\n"}
    universe = Universe().pypi("left", "1.0", files=starts).pypi("pytest", "8.0")
    text, variables = ASKS_AGAIN[settings]
    (tmp_path / "config" / "uv").mkdir(parents=True)
    (tmp_path / "config" / "uv" / "uv.toml").write_text(text)
    set_by_user = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "UV_NO_CONFIG": "", **variables}
    with serve(universe) as registry:
        place = Place(registry, tmp_path)
        files = {"requirements.txt": "left\n"}
        if locked:
            pyproject = PROJECT + 'dependencies = ["left"]\n'
            files = {"pyproject.toml": pyproject, "uv.lock": place.lock(pyproject)}
        place.clients = SubprocessClients(os.environ | registry.environ | set_by_user)
        found, there = place.install({**files, "test_a.py": "import pytest\n"})
    assert (found.level, there) == (Level.EVERYTHING, ["left==1.0"]), found.in_full
    assert not trace.exists()


@pytest.mark.parametrize(
    "files",
    [
        {"setup.cfg": "[options]\ninstall_requires\n    left\n"},
        {"poetry.lock": 'package = ["a"]\n'},
        {
            "poetry.lock": "[[package]]\nname = 'left'\nversion = '1.0.0'\n[package.source]\n"
            "type = []\nurl = {}\n"
        },
        {"setup.py": 'setup(name="a", entry_points={"console_scripts": ["a=b", ["="]]})\n'},
        {"requirements.txt": "left ; os_name == 'a\\x27b\\x22'\n"},
        {"requirements.txt": "left ; os_name == 'a\"\\n-e .\\nbar ; os_name == \"b'\n"},
        {"pyproject.toml": '[project]\nname = "a"\ndependencies = "left"\n[tool]\nuv = 1\n'},
    ],
)
def test_what_is_written_oddly_is_no_crash(place: Place, files: dict[str, str]) -> None:
    place.install(files)


def test_a_file_that_can_not_be_read_is_left_out_by_name(place: Place) -> None:
    with place.opened({"requirements.txt": "left\n", "requirements-dev.txt": "right\n"}) as case:
        repo = case.context.repo
        (repo.root / "requirements-dev.txt").write_bytes("right\n".encode("utf-16"))
        project = Environment(case.context, repo, ".")
        assert project.install().level is Level.IN_PART
        assert [line for line, _ in project.install().declined] == ["-r requirements-dev.txt"]
        assert project.installed("left") == ("1.0.1",)


@pytest.mark.parametrize("safeguard", [True, False])
def test_no_line_leads_uv_out_of_the_repository(
    place: Place, monkeypatch: pytest.MonkeyPatch, safeguard: bool
) -> None:
    outside = place.folder / "outside.txt"
    outside.write_text("left==1.0.0\n")
    if not safeguard:
        monkeypatch.setattr(install_plan.Manifests, "strays", ())
        monkeypatch.setattr(install_plan.Manifests, "_is_plain", True)
    found, held = place.install({"requirements.txt": f"-r {outside}\n"})
    assert (held == []) is safeguard
    assert bool(found.declined) is safeguard
