"""What decides whether a Python project is affected: its resolution and its declarations (ADR-0099)."""

import io
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_plugins.pypi.projects import projects
from fallback_plugins.pypi.resolving import uv_client
from fallback_plugins.pypi.resolving.resolutions import MAX_WITHOUT_WHEEL
from fallback_plugins.shared.resolution import Resolution, ResolvedBy
from fallback_tier.advisory import AdvisorySet
from fallback_tier.advisory.bundles import bundle
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.plan import exit_code, show
from fallback_tier.errors import RecipeError
from fallback_tier.execution import CommandResult
from fallback_tier.outcome import NotApplicable, RecipeResult
from fallback_tier.planning import RemediationPlan, divisible_plan
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Registry, Universe, serve
from tests.unit.shared.recipes import advisory, repository

LEFT = advisory("PyPI", "left", [("0", "1.1.0")])
RIGHT = advisory("PyPI", "right", [("0", "1.1.0")])

Files = Mapping[str, str]


#: Releases without a wheel, and what their archives say that they require; none: nothing.
_SDISTS = (
    ("middle", "2.0", "left<1.1\n"),
    ("middle", "3.0", "left>=1.1\n"),
    ("under", "2.0", "left<1.1\n"),
    ("low", "1.0", "left<1.1\n"),
    ("early-sdist", "2.0rc1", "left<1.1\n"),
    ("child", "2.0", "left<1.1\n"),
    ("marked", "1.0", "right\n\n[:sys_platform == 'win32']\nleft<1.1\n"),
    ("extra", "1.0", "right\n\n[x]\nleft<1.1\n"),
    ("odd", "1.0", "right\nleft @@ <1.1\n"),
    ("moves", "2.0", ""),
)
_OF_312 = "of-312; python_version >= '3.12'"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe()
    universe.pypi("left", "1.0.0").pypi("left", "1.1.0")
    universe.pypi("right", "1.0.0").pypi("right", "1.1.0")
    universe.pypi("asks", "1.0", ["left"]).pypi("holds", "1.0", ["left<1.1"])
    universe.pypi("windows", "1.0", ["left<1.1; sys_platform == 'win32'"])
    universe.pypi("old-python", "1.0", ["left<1.1; python_version < '3.10'"])
    universe.pypi("cap", "1.0", ["right<1.1"])
    universe.pypi("built", "1.0", ["left<1.1"], sdist_only=True)
    told = {"told.egg-info/requires.txt": "left<1.1\n"}
    universe.pypi(
        "alone", "1.0", sdist_only=True, files={"alone.egg-info/SOURCES.txt": "setup.py\n"}
    )
    universe.pypi("told", "1.0", sdist_only=True, files=told)
    for name, more in (("plain", ""), ("computes", ", install_requires=read()")):
        script = f'from setuptools import setup\nsetup(name="{name}", version="1.0"{more})\n'
        universe.pypi(name, "1.0", sdist_only=True, files={"setup.py": script})
    fine = {"fine.egg-info/requires.txt": "left>=1.1\n"}
    universe.pypi("fine", "1.0", sdist_only=True, files=fine)
    universe.pypi("newer", "1.0", ["left>=1.1"])
    universe.pypi(
        "newer", "2.0", sdist_only=True, files={"newer.egg-info/requires.txt": "left<1.1\n"}
    )
    universe.pypi("early", "1.0", ["left>=1.1"]).pypi("early", "2.0rc1", ["left<1.1"])
    universe.pypi("late", "1.0", ["left<1.1"]).pypi("late", "2.0", ["left>=1.1"])
    universe.pypi("future", "1.0", requires_python=">=3.97")
    universe.pypi("above", "1.0", ["newer"])
    universe.pypi("below", "1.0", ["newer<2"])
    for name, version, text in _SDISTS:
        files = {f"{name}.egg-info/requires.txt": text} if text else None
        universe.pypi(name, version, sdist_only=True, files=files)
    for name in ("middle", "under", "early-sdist"):
        universe.pypi(name, "1.0", ["left>=1.1"])
    universe.pypi("under", "3.0", ["left>=1.1"]).pypi("low", "2.0", ["left>=1.1"])
    universe.pypi("caps", "1.0", ["middle<3", "under<3"]).pypi(
        "of-312", "1.0", requires_python=">=3.12"
    )
    universe.pypi("caps-under", "1.0", ["under<3"]).pypi("asks-312", "1.0", [_OF_312])
    universe.pypi("parent", "1.0", ["left"]).pypi("parent", "2.0", ["child==2.0"])
    universe.pypi("moves", "1.0", ["left<1.1"]).pypi("brings-moves", "1.0", ["moves"])
    with serve(universe) as served:
        yield served


@dataclass(eq=False)
class Clients:
    """The real clients; ``runs``: the commands of uv."""

    registry: Registry
    more: Mapping[str, str] = field(default_factory=dict)
    runs: list[tuple[str, ...]] = field(default_factory=list)

    @cached_property
    def real(self) -> SubprocessClients:
        return SubprocessClients(os.environ | self.registry.environ | self.more)

    def run(self, tool: str, args: Sequence[str], **more: Any) -> CommandResult:
        if tool == "uv":
            self.runs.append(tuple(args))
        return self.real.run(tool, args, **more)

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        return self.real.allowed_hosts(tools)

    def take_refused(self) -> tuple[str, ...]:
        return self.real.take_refused()


@dataclass
class Plan:
    """What selecting and applying said."""

    clients: Clients
    repo: RepoContext
    result: RecipeResult | None = None
    reason: RefusalReason | None = None
    problem: str = ""
    unread: Sequence[str] = ()

    @property
    def resolutions(self) -> list[Resolution]:
        return [project.resolution for project in projects(self.repo, self.clients)]


def planned(
    registry: Registry,
    root: Path,
    files: Files,
    record: Any = LEFT,
    *,
    offline: bool = False,
    more: Mapping[str, str] | None = None,
) -> Plan:
    """Outline, select and apply, as a plan does."""
    repo = repository(root, files)
    settings = repo.settings.model_copy(update={"offline": offline})
    repo = repo.model_copy(update={"settings": settings})
    plan = Plan(Clients(registry, more or {}), repo)
    plugin = build_ecosystem(plan.clients)
    plugin.outline(record, repo)
    selection = plugin.select(record, repo)
    if isinstance(selection, NotApplicable):
        plan.reason, plan.problem = selection.reason, selection.sentence
        plan.unread = [item.path for item in selection.unread]
        return plan
    try:
        plan.result = plugin.apply(selection, record, repo)
    except RecipeError as error:
        plan.reason, plan.problem = error.reason, error.problem
        plan.unread = [item.path for item in error.unread]
    return plan


def from_files(registry: Registry, root: Path, files: Files, record: Any) -> RemediationPlan:
    """What ``plan --no-resolve`` says; no client runs."""
    clients = Clients(registry)
    given = AdvisorySet(advisories=(record,))
    plugins = {"PyPI": build_ecosystem(clients)}
    plan = divisible_plan(given, repository(root, files), plugins, resolve=False).plan
    assert clients.runs == []
    return plan


HATCH = (
    '[build-system]\nrequires = []\nbuild-backend = "hatchling.build"\n[project]\nname = "app"\n'
    'dynamic = ["version", "dependencies"]\n[tool.hatch.metadata.hooks.'
)
#: A lock of ``asks``.
LOCKED = """version = 1
requires-python = ">=3.9"

[[package]]
name = "app"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "asks" }]

[package.metadata]
requires-dist = [{ name = "asks" }]

[[package]]
name = "asks"
version = "1.0"
source = { registry = "INDEX" }
dependencies = [{ name = "left" }]

[[package]]
name = "left"
version = "1.1.0"
source = { registry = "INDEX" }
""".replace("INDEX", f"https://{'.'.join(('pypi', 'org'))}/simple")
FUTURE = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.98"\n'
PROJECT = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'

OWN_INDEX = "--index-url https://packages.invalid/simple\n"
LIBRARY_MODULE = "class Setup:\n    def read(self):\n        self.install_requires = list()\n"


def lock_without(asked: str, folder: str) -> Files:
    """A Poetry project whose lock holds nothing of what it asks for."""
    return {
        f"{folder}pyproject.toml": TABLES["Poetry"][1].replace("{}", f'{asked} = "^1.0"'),
        f"{folder}poetry.lock": 'package = []\n[metadata]\nlock-version = "2.1"\n'
        'python-versions = "*"\ncontent-hash = "0"\n',
    }


#: Each kind of manifest, with a line of requirements in it.
KINDS: dict[str, tuple[str, str]] = {
    "requirements": ("requirements.txt", "{}\n"),
    "compiled by nobody": ("requirements/dev.txt", "{}\n"),
    "PEP 621": ("pyproject.toml", PROJECT + 'dependencies = ["{}"]\n'),
    "extra": ("pyproject.toml", PROJECT + '[project.optional-dependencies]\nx = ["{}"]\n'),
    "group": ("pyproject.toml", PROJECT + '[dependency-groups]\ndev = ["{}"]\n'),
    "setup.cfg": ("setup.cfg", "[options]\ninstall_requires =\n  {}\n"),
    "setup.cfg, extra": ("setup.cfg", "[options.extras_require]\nx =\n  {}\n"),
}
TABLES: dict[str, tuple[str, str]] = {
    "Poetry": ("pyproject.toml", '[tool.poetry]\nname = "app"\n[tool.poetry.dependencies]\n{}\n'),
    "Poetry, group": (
        "pyproject.toml",
        '[tool.poetry]\nname = "app"\n[tool.poetry.group.dev.dependencies]\n{}\n',
    ),
    "Pipfile": ("Pipfile", "[packages]\n{}\n"),
    "Pipfile, dev": ("Pipfile", "[dev-packages]\n{}\n"),
}


def written(kind: str, name: str, spec: str) -> Files:
    path, text = {**KINDS, **TABLES}[kind]
    line = f"{name}{spec}" if kind in KINDS else f'{name} = "{spec or "*"}"'
    return {path: text.replace("{}", line)}


@pytest.mark.parametrize("kind", [*KINDS, *TABLES])
def test_a_range_that_admits_both_is_raised_and_labelled(
    registry: Registry, tmp_path: Path, kind: str
) -> None:
    plan = planned(registry, tmp_path / "range", written(kind, "left", ">=1.0"))
    assert plan.result is not None, plan.problem
    (move,) = plan.result.moves
    assert (move.before, move.after, move.range_admits) == (("1.0",), "1.1.0", True)
    assert '"range_admits":true' in move.model_dump_json()
    assert [move.manifest in note and "left" in note for note in plan.result.notes] == [True]
    # A declaration that admits only affected releases is affected, whatever is installed.
    only = planned(registry, tmp_path / "pin", written(kind, "left", "==1.0.0"))
    assert only.result is not None, only.problem
    assert [move.range_admits for move in only.result.moves] == [False]
    assert "range_admits" not in only.result.moves[0].model_dump_json()


SETUP = "from setuptools import setup\nleft = 'left>=1.0'\nsetup(install_requires=[left])\n"


def test_a_range_in_a_list_of_a_program_is_raised(registry: Registry, tmp_path: Path) -> None:
    files = {
        "setup.py": SETUP.replace("[left]", "['left>=1.0']").replace("left = 'left>=1.0'\n", "")
    }
    plan = planned(registry, tmp_path, files)
    assert plan.result is not None, plan.problem
    (change,) = plan.result.changes
    assert change.after == files["setup.py"].replace("1.0", "1.1.0")
    assert [move.range_admits for move in plan.result.moves] == [True]


def test_a_range_of_a_program_that_can_not_be_edited_stops_no_other_fix(
    registry: Registry, tmp_path: Path
) -> None:
    """It admits an affected release, and a client installs a safe one: that is neither affected nor "not
    affected"."""
    pinned = {"setup.py": SETUP, "requirements.txt": "left==1.0.0\n"}
    # No client says yet what the range installs.
    unknown = planned(registry, tmp_path / "offline", pinned, offline=True)
    assert unknown.reason is RefusalReason.RECIPE_UNSUPPORTED
    alone = planned(registry, tmp_path / "alone", {"setup.py": SETUP})
    assert alone.reason is RefusalReason.RECIPE_UNSUPPORTED
    plan = planned(registry, tmp_path / "pinned", pinned)
    assert plan.result is not None, plan.problem
    assert [change.path for change in plan.result.changes] == ["requirements.txt"]
    assert any("setup.py requires left>=1.0" in note for note in plan.result.notes)
    both = {**pinned, "setup.py": SETUP.replace(">=", "==")}
    assert planned(registry, tmp_path / "both", both).reason is RefusalReason.RECIPE_UNSUPPORTED
    # A pin that is no part of what is resolved; a range in a folder that no fix touches.
    built = SETUP.replace("[left]", "['left>=1.1'], setup_requires=[left]").replace(
        ">=1.0", "==1.0.0"
    )
    aside = {**pinned, "setup.py": built}
    assert planned(registry, tmp_path / "built", aside).reason is RefusalReason.RECIPE_UNSUPPORTED
    other = {"lib/setup.py": SETUP, "requirements.txt": "left==1.0.0\n"}
    assert planned(registry, tmp_path / "lib", other).reason is RefusalReason.RECIPE_UNSUPPORTED


@pytest.mark.parametrize(
    "hidden", ['f"left=={V}"', "V + 'left==1.0.0'", "run(\"pip install 'left==1.0.0'\")"]
)
def test_a_computed_requirement_of_a_program_stops_the_fix(
    registry: Registry, tmp_path: Path, hidden: str
) -> None:
    script = f"setup(install_requires=['asks'], extras_require=dict(x={hidden}))\n"
    files = {
        "setup.py": f"from setuptools import setup\n{script}# reads requirements.txt\n",
        "requirements.txt": "left==1.0.0\n",
    }
    plan = planned(registry, tmp_path, files)
    assert plan.result is None
    assert plan.reason is not RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize(
    "prose", ['"""\nneeds\n\nleft>=1.0\n"""', '"left <3 isn\'t enough"', "'left'"]
)
def test_prose_of_a_program_stops_no_fix(registry: Registry, tmp_path: Path, prose: str) -> None:
    script = f"setup(install_requires=['asks'], long_description={prose})\n"
    files = {
        "setup.py": f"from setuptools import setup\n{script}",
        "requirements.txt": "left==1.0.0\n",
    }
    plan = planned(registry, tmp_path, files)
    assert plan.result is not None, plan.problem
    assert [change.path for change in plan.result.changes] == ["requirements.txt"]


def test_a_range_in_an_example_stops_no_fix(registry: Registry, tmp_path: Path) -> None:
    files = {"examples/x/setup.py": SETUP, "requirements.txt": "left==1.0.0\n"}
    plan = planned(registry, tmp_path, files)
    assert plan.result is not None, plan.problem
    assert [change.path for change in plan.result.changes] == ["requirements.txt"]


@pytest.mark.parametrize(
    "hidden",
    [
        """'left==1.0.0; sys_platform == "win32"'""",
        """'left>=1.0; python_version > "3.5"'""",
        "'left' '==1.0.0'",
        "'left' '>=1.0'",
        '"""left==1.0.0"""',
        "'left\\x3d=1.0.0'",
    ],
)
@pytest.mark.parametrize("offline", [True, False])
def test_each_requirement_of_a_program_moves_or_stops_the_fix(
    registry: Registry, tmp_path: Path, hidden: str, *, offline: bool
) -> None:
    script = f"setup(install_requires=['left==1.0.0'], extras_require={{'x': [{hidden}]}})\n"
    files = {"setup.py": f"from setuptools import setup\n{script}"}
    plan = planned(registry, tmp_path, files, offline=offline)
    if plan.result is None:
        assert plan.reason is not RefusalReason.NOT_AFFECTED
    else:
        (change,) = plan.result.changes
        assert "1.0.0'" not in (change.after or "")
        assert ">=1.0;" not in (change.after or "")
        assert "==1.0.0;" not in (change.after or "")


def test_of_a_bundle_what_a_program_holds_is_left(registry: Registry, tmp_path: Path) -> None:
    """Nothing of the package moves, so no fix is about its advisory."""
    files = {"setup.py": SETUP, "requirements.txt": "right==1.0.0\n"}
    other = RIGHT.model_copy(update={"id": "OSV-RIGHT", "aliases": ()})
    plan = planned(registry, tmp_path, files, bundle((LEFT, other)))
    assert plan.result is not None, plan.problem
    assert {move.package for move in plan.result.moves} == {"right"}
    assert [(item.package, item.manifest) for item in plan.result.left] == [("left", "setup.py")]


@pytest.mark.parametrize("kind", [*KINDS, *TABLES])
def test_what_a_manifest_brings_in_decides(registry: Registry, tmp_path: Path, kind: str) -> None:
    clean = planned(registry, tmp_path / "clean", written(kind, "asks", ""))
    assert clean.reason is RefusalReason.NOT_AFFECTED
    held = planned(registry, tmp_path / "held", written(kind, "holds", ""))
    assert held.reason not in {None, RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}
    assert "holds" in held.problem
    private = planned(registry, tmp_path / "private", written(kind, "private", ""))
    assert private.reason is RefusalReason.UNKNOWN
    assert private.unread == [next(iter(written(kind, "private", "")))]


def test_a_setup_script_is_read_and_one_that_computes_is_unknown(
    registry: Registry, tmp_path: Path
) -> None:
    head = "from setuptools import setup\n"
    for number, (text, reason) in enumerate(
        {
            "setup(install_requires=['asks'])\n": RefusalReason.NOT_AFFECTED,
            "setup(name='app')\n": RefusalReason.NOT_AFFECTED,
            "setup(install_requires=computed())\n": RefusalReason.UNKNOWN,
            "setup(install_requires=['asks', computed()])\n": RefusalReason.UNKNOWN,
            "setup(install_requires=open('requirements.txt'))\n": RefusalReason.NOT_AFFECTED,
            "a = ['asks']\na.append('right')\nsetup(install_requires=a)\n": RefusalReason.NOT_AFFECTED,
            "a = ['asks']\na += computed()\nsetup(install_requires=a)\n": RefusalReason.UNKNOWN,
            "setup(**read('meta.json'))\n": RefusalReason.UNKNOWN,
        }.items()
    ):
        files = {"setup.py": head + text, "requirements.txt": "asks\n"}
        assert planned(registry, tmp_path / str(number), files).reason is reason, text
    for number, text in enumerate(
        (
            "setup(install_requires=['holds'])",
            "a = ['asks']\na.append('holds')\nsetup(install_requires=a)",
            "a = ['asks']\nif x:\n    a += ['holds']\nsetup(install_requires=a)",
            "a = ['asks']\na.extend(['holds'])\nsetup(install_requires=a + ['right'])",
        )
    ):
        held = planned(registry, tmp_path / f"x{number}", {"setup.py": head + text})
        assert held.reason not in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}, text


def test_what_a_build_computes_is_unknown(registry: Registry, tmp_path: Path) -> None:
    head = PROJECT + 'dynamic = ["dependencies"]\n'
    hatch = '[build-system]\nrequires = []\nbuild-backend = "hatchling.build"\n'
    poetry = '[build-system]\nrequires = []\nbuild-backend = "poetry.core.masonry.api"\n'
    flake8 = {"setup.cfg": "[flake8]\nmax-line-length = 100\n"}
    computed = planned(registry, tmp_path / "a", {"pyproject.toml": head + hatch, **flake8})
    assert computed.reason is RefusalReason.UNKNOWN
    table = '[tool.poetry.dependencies]\nasks = "*"\n'
    read = planned(registry, tmp_path / "b", {"pyproject.toml": head + poetry + table})
    assert read.reason is RefusalReason.NOT_AFFECTED


def test_compiled_without_comments_is_resolved(registry: Registry, tmp_path: Path) -> None:
    files = {
        "requirements.txt": "# This file is autogenerated by pip-compile\nright==1.0.0\nholds==1.0\n"
    }
    held = planned(registry, tmp_path, files)
    assert held.reason not in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        # Another system, and another Python that the project supports.
        ({"requirements.txt": "windows\n"}, "affected"),
        ({"pyproject.toml": PROJECT + 'dependencies = ["old-python"]\n'}, "affected"),
        ({"requirements.txt": "old-python\n"}, RefusalReason.NOT_AFFECTED),
        # Folders of the repository, with the extras that are named.
        (
            {"requirements.txt": "-e .\n", "setup.py": "setup(install_requires=['holds'])"},
            "affected",
        ),
        (
            {
                "requirements.txt": "-e ./lib[test]\n",
                "lib/pyproject.toml": PROJECT
                + '[project.optional-dependencies]\ntest = ["holds"]\nx = ["private"]\n',
                "lib/uv.lock": "version = 1\n",
            },
            "affected",
        ),
        # A source archive says what it requires, or nobody knows.
        ({"requirements.txt": "told==1.0\n"}, "affected"),
        ({"requirements.txt": "fine\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "alone\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "plain\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "computes\n"}, RefusalReason.UNKNOWN),
        # Test data that no registry answers concerns what it names.
        ({"tests/fixtures/requirements.txt": OWN_INDEX + "right\n"}, RefusalReason.NOT_AFFECTED),
        ({"tests/fixtures/requirements.txt": OWN_INDEX + "left\n"}, RefusalReason.UNKNOWN),
        ({"requirements.txt": OWN_INDEX + "right\n"}, RefusalReason.UNKNOWN),
        ({"tests/data/requirements.txt": "absent>=1\n"}, RefusalReason.NOT_AFFECTED),
        ({"tests/data/requirements.txt": "absent>=1\nleft\n"}, RefusalReason.UNKNOWN),
        ({"tests/data/requirements.txt": "computes\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "absent>=1\n"}, RefusalReason.UNKNOWN),
        (lock_without("right", "tests/fixtures/"), RefusalReason.NOT_AFFECTED),
        (lock_without("left", "tests/fixtures/"), RefusalReason.UNKNOWN),
        (lock_without("right", ""), RefusalReason.UNKNOWN),
        # A package's module that is called setup.py, and a script that computes what it passes.
        ({"src/app/setup.py": LIBRARY_MODULE}, RefusalReason.NOT_AFFECTED),
        ({"setup.py": LIBRARY_MODULE + "Setup(install_requires=read())\n"}, RefusalReason.UNKNOWN),
        ({"requirements.txt": "newer\n"}, "affected"),
        # A constraint of a command's.
        (
            {
                "requirements.txt": "late\n",
                "constraints.txt": "late<2\n",
                "Makefile": "x:\n\tpip install -r requirements.txt \\\n\t  -c constraints.txt\n",
            },
            "affected",
        ),
        # The client's own choice among releases.
        ({"requirements.txt": "--pre\nearly\n"}, "affected"),
        ({"requirements.txt": "early\nlate\n"}, RefusalReason.NOT_AFFECTED),
        (
            {
                "pyproject.toml": PROJECT
                + 'dependencies = ["late"]\n[tool.uv]\nresolution = "lowest"\n'
            },
            "affected",
        ),
        (
            {
                "pyproject.toml": PROJECT + 'dependencies = ["late"]\n',
                "uv.toml": 'override-dependencies = ["late==1.0"]\n',
            },
            RefusalReason.UNKNOWN,
        ),
        ({"requirements.txt": "above\n"}, "affected"),
        # An older release without a wheel, if what requires it admits no newer one.
        ({"requirements.txt": "newer>=1,==2.*\n"}, "affected"),
        ({"requirements.txt": "middle==2.*\n"}, "affected"),
        ({"requirements.txt": "middle<3\n"}, "affected"),
        ({"requirements.txt": "middle\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "caps\n"}, "affected"),
        ({"requirements.txt": "caps-under\n"}, "affected"),
        ({"requirements.txt": "under\n"}, RefusalReason.NOT_AFFECTED),
        # … one that a newer release with a wheel requires, which uv therefore leaves.
        ({"requirements.txt": "parent\n"}, "affected"),
        # … one beside a package that not every Python has.
        ({"pyproject.toml": PROJECT + f'dependencies = ["newer", "{_OF_312}"]\n'}, "affected"),
        ({"pyproject.toml": PROJECT + 'dependencies = ["newer", "asks-312"]\n'}, "affected"),
        # … one that the client's own choice takes.
        (
            {
                "pyproject.toml": PROJECT
                + 'dependencies = ["low>=1"]\n[tool.uv]\nresolution = "lowest"\n'
            },
            "affected",
        ),
        ({"requirements.txt": "--pre\nearly-sdist\n"}, "affected"),
        ({"requirements.txt": "early-sdist\n"}, RefusalReason.NOT_AFFECTED),
        # What it requires on another system, or with an extra; a line that can't be read.
        ({"requirements.txt": "marked\n"}, "affected"),
        ({"requirements.txt": "extra[x]\n"}, "affected"),
        ({"requirements.txt": "extra\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "odd\n"}, RefusalReason.UNKNOWN),
        # Pins that don't go together.
        ({"requirements.txt": "cap==1.0\nright==1.1.0\nbuilt==1.0\n"}, RefusalReason.UNKNOWN),
        ({"requirements.txt": "newer<2\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "below\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "built\n"}, RefusalReason.UNKNOWN),
        ({"requirements.txt": "asks\nright @ git+https://127.0.0.1/x\n"}, RefusalReason.UNKNOWN),
        ({"requirements.txt": "-r gone.txt\nasks\n"}, RefusalReason.UNKNOWN),
        ({"requirements.txt": "--trusted-host x\n--pre\nasks\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "pkg-resources==0.0.0\nasks==1.0\n"}, RefusalReason.NOT_AFFECTED),
        # hatch has plugins that take requirements from files, and scripts that may.
        (
            {"pyproject.toml": HATCH + "requirements_txt]\nfiles=['deps']\n", "deps": "holds\n"},
            "affected",
        ),
        (
            {"pyproject.toml": HATCH + "requirements_txt]\nfiles=['deps']\n", "deps": "asks\n"},
            RefusalReason.NOT_AFFECTED,
        ),
        ({"pyproject.toml": HATCH + "requirements_txt]\n"}, RefusalReason.UNKNOWN),
        (
            {
                "pyproject.toml": HATCH + "custom]\npath='ci/hook.py'\n",
                "ci/hook.py": "read('requirements.txt')\n",
                "requirements.txt": "asks\n",
            },
            RefusalReason.NOT_AFFECTED,
        ),
        (
            {"pyproject.toml": HATCH + "custom]\n", "hatch_build.py": "read('left')\n"},
            RefusalReason.UNKNOWN,
        ),
        ({"pyproject.toml": HATCH + "custom]\n"}, RefusalReason.UNKNOWN),
        # Files that a command leads to by other options.
        (
            {
                "requirements.txt": "asks\n",
                "Makefile": "x:\n\tuv pip sync frozen\n",
                "frozen": "holds\n",
            },
            "affected",
        ),
        (
            {
                "requirements.txt": "asks\n",
                "a.sh": "uv run --with-requirements more x.py\n",
                "more": "holds\n",
            },
            "affected",
        ),
        # No Python of this machine is as new as the project's lowest.
        (
            {"pyproject.toml": FUTURE + 'dependencies = ["asks", "future"]\n'},
            RefusalReason.NOT_AFFECTED,
        ),
        ({"pyproject.toml": FUTURE + 'dependencies = ["holds"]\n'}, "affected"),
        (
            {"pyproject.toml": FUTURE + 'dependencies = ["old-python"]\n'},
            RefusalReason.NOT_AFFECTED,
        ),
        # A declaration that holds in every case settles it, whatever else is unknown.
        ({"requirements.txt": "private\nleft>=1.1\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "private\nleft>=1.1; os_name == 'x'\n"}, RefusalReason.UNKNOWN),
        ({"requirements.txt": "private\nleft!=1.0.0\n"}, RefusalReason.UNKNOWN),
        (
            {"a.txt": "private\n", "requirements.txt": "-r a.txt\nleft==1.1.0\n"},
            RefusalReason.NOT_AFFECTED,
        ),
        # … but not for a command that does not read it.
        (
            {
                "requirements/base.txt": "holds\n",
                "requirements/dev.txt": "-r base.txt\n",
                "requirements/prod.txt": "-r base.txt\nleft==1.1.0\n",
            },
            "affected",
        ),
        # A script brings in what its own metadata requires, but is not a project if it has none.
        ({"tool.py": '# /// script\n# dependencies = ["holds"]\n# ///\n'}, "affected"),
        (
            {"tool.py": '# /// script\n# dependencies = ["left>=1.1"]\n# ///\n'},
            RefusalReason.NOT_AFFECTED,
        ),
        # Compiled: it says all that is installed; a line that was added by hand does not.
        ({"requirements.txt": "private==1.0\n    # via app\n"}, RefusalReason.NOT_AFFECTED),
        ({"requirements.txt": "right==1.1.0\n    # via app\nholds==1.0\n"}, "affected"),
        ({"requirements.txt": "private==1.0 --hash=sha256:0\n"}, RefusalReason.NOT_AFFECTED),
        # Conditions of tables.
        (
            {"Pipfile": "[packages]\nholds = {version = '*', markers = \"os_name == 'nt'\"}\n"},
            "affected",
        ),
        (
            {
                "pyproject.toml": '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\n'
                'python = "^3.9"\nright = [{version = "1.0.0", python = "<3.4"},'
                '{version = "1.1.0", python = ">=3.4"}]\nasks = "*"\n'
            },
            RefusalReason.NOT_AFFECTED,
        ),
    ],
)
def test_what_is_known(
    registry: Registry, tmp_path: Path, files: Files, reason: RefusalReason | str
) -> None:
    plan = planned(registry, tmp_path, files)
    if reason == "affected":
        assert plan.reason not in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}, plan.problem
    else:
        assert plan.reason is reason, plan.problem


@pytest.mark.parametrize(
    "command",
    [
        "pip install -qr frozen",
        "pip install -Urfrozen",
        "pip install --requirem frozen",
        "pip install asks -qcfrozen",
        "pip install --build-constraint frozen asks",
        "cat frozen | xargs pip install",
        "grep -v '^#' ./frozen | xargs -n 1 pip install -q",
        "xargs pip3 install <frozen",
        "xargs -a frozen uv pip install",
        "pip install $(cat frozen)",
        'uv pip install `grep -v "^#" \\\n  frozen`',
        "while read it; do pip install $it; done < frozen",
        "while read it; do\n  pip install $it\ndone < frozen",
        "for it in $(cat frozen); do\n  pip install $it\ndone",
        "cat frozen | while read it; do\n  pip install ${it}\ndone",
        "cat frozen |\n  xargs pip install",
        "xargs --arg-file=frozen pip install",
        "uv add $(cat frozen)",
        "poetry add `cat frozen`",
        "cat frozen | grep -v '^#' | sed 's/;.*//' | xargs pip install",
        "cat frozen |& xargs pip install",
        "pip install $(grep -vE '^(#|-)' frozen)",
        "pip install -r <(cat frozen)",
        "pip install ${X:-$(cat frozen)}",
        "cat frozen | while IFS= read -r it\ndo\n  pip install $it\ndone",
        "cat frozen | xargs uv add",
    ],
)
def test_file_that_a_command_takes_requirements_from_is_read(
    registry: Registry, tmp_path: Path, command: str
) -> None:
    files = {"requirements.txt": "asks\n", "frozen": "holds\n"}
    assert planned(registry, tmp_path / "a", files).reason is RefusalReason.NOT_AFFECTED
    plan = planned(registry, tmp_path / "b", {**files, "install.sh": f"{command}\n"})
    assert plan.reason not in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}, plan.problem


@pytest.mark.parametrize(
    "command",
    [
        "pip install asks==$(cat VERSION)",
        "pip install 'asks<2' && echo VERSION",
        "pip install $(cat VERSION)",
    ],
)
def test_file_that_no_command_takes_requirements_from_is_not_read(
    registry: Registry, tmp_path: Path, command: str
) -> None:
    files = {"requirements.txt": "asks\n", "VERSION": "1.2.3\n", "other": "holds\n"}
    plan = planned(registry, tmp_path, {**files, "install.sh": f"{command}\n"})
    assert plan.reason is RefusalReason.NOT_AFFECTED, plan.problem


def test_pins_that_do_not_go_together_are_the_resolution(
    registry: Registry, tmp_path: Path
) -> None:
    for number, text in enumerate(
        ("cap==1.0\nright==1.1.0\nholds==1.0\n", "private==2.0\nholds==1.0\n")
    ):
        plan = planned(registry, tmp_path / str(number), {"requirements.txt": text}, RIGHT)
        assert plan.reason is RefusalReason.NOT_AFFECTED, plan.problem
        (resolution,) = plan.resolutions
        assert resolution.by is ResolvedBy.PINS
        assert text.split("\n")[0] in resolution.reason
        # What they bring in is affected, and known.
        assert [it.key for it in resolution.affected(LEFT)] == ["left 1.0.0"]
    (tmp_path / "local").mkdir()
    local = planned(
        registry, tmp_path / "local", {"requirements.txt": "right==1.1.0+cpu\nasks==1.0\n"}
    )
    assert local.reason is RefusalReason.NOT_AFFECTED
    assert "requirements.txt: its pins are counted as installed" in local.problem
    (resolution,) = local.resolutions
    assert resolution.by is ResolvedBy.PINS
    assert [it.key for it in resolution.packages] == ["right 1.1.0+cpu", "asks 1.0", "left 1.1.0"]


def test_a_fix_says_why_pins_were_not_resolved(registry: Registry, tmp_path: Path) -> None:
    text = "cap==1.0\nright==1.1.0\nleft==1.0.0\n"
    plan = planned(registry, tmp_path, {"requirements.txt": text})
    assert plan.result is not None, plan.problem
    (note,) = (note for note in plan.result.notes if "pins are counted as installed" in note)
    assert note.startswith("requirements.txt: ")
    assert "uv finds no usable" in note


def test_commands_that_conflict_are_resolved_one_by_one(registry: Registry, tmp_path: Path) -> None:
    files = {
        "base-requirements.txt": "asks\n",
        "a-requirements.txt": "-r base-requirements.txt\nright==1.0.0\n",
        "b-requirements.txt": "-r base-requirements.txt\nright==1.1.0\n",
    }
    plan = planned(registry, tmp_path / "a", files)
    assert plan.reason is RefusalReason.NOT_AFFECTED
    (resolution,) = plan.resolutions
    assert {it.version for it in resolution.by_name["right"]} == {"1.0.0", "1.1.0"}
    extras = (
        '[project.optional-dependencies]\na = ["right==1.0.0"]\nb = ["right==1.1.0", "holds"]\n'
    )
    both = planned(registry, tmp_path / "b", {"pyproject.toml": PROJECT + extras})
    assert [it.key for it in both.resolutions[0].affected(LEFT)] == ["left 1.0.0"]
    assert both.reason not in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}


def test_a_pin_that_a_marker_excludes_is_judged_by_its_text(
    registry: Registry, tmp_path: Path
) -> None:
    files = {"requirements.txt": "asks\nleft==1.0.0; python_version < '3.6'\n"}
    plan = planned(registry, tmp_path, files)
    assert plan.result is not None
    assert [(move.before, move.after) for move in plan.result.moves] == [(("1.0.0",), "1.1.0")]


def test_the_value_says_where_packages_come_from(registry: Registry, tmp_path: Path) -> None:
    plan = planned(registry, tmp_path, {"requirements.txt": "# it\nwindows\n"})
    (resolution,) = plan.resolutions
    assert (resolution.by, resolution.command.files) == (ResolvedBy.CLIENT, ("requirements.txt",))
    assert resolution.command.label == "pip install -r requirements.txt"
    (left,) = resolution.by_name["left"]
    assert left.origin.endswith("/pypi/simple")
    assert left.digest.startswith("sha256:")
    assert resolution.dependents(left.key) == (("windows 1.0", ""),)
    (declared,) = resolution.declarations
    assert (declared.name, declared.file, declared.line) == ("windows", "requirements.txt", 2)


def test_a_registry_that_is_away_leaves_it_unknown(registry: Registry, tmp_path: Path) -> None:
    away = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    for number, text in enumerate(("asks\n", "asks==1.0\n")):
        plan = planned(registry, tmp_path / str(number), {"requirements.txt": text}, more=away)
        assert plan.reason is RefusalReason.UNKNOWN
        assert "127.0.0.1:9" in plan.problem


def test_an_index_of_its_own_is_never_replaced_by_another(
    registry: Registry, tmp_path: Path
) -> None:
    """``asks`` of this registry is not the ``asks`` that the project means."""
    for number, (path, text) in enumerate(
        {
            "requirements.txt": "--index-url https://packages.invalid/simple\nasks==1.0\n",
            "pyproject.toml": PROJECT
            + 'dependencies = ["asks"]\n[[tool.uv.index]]\nurl = "https://packages.invalid/simple"\n',
            "Pipfile": '[[source]]\nurl = "https://packages.invalid/simple"\nname = "own"\n'
            '[packages]\nasks = "*"\n',
        }.items()
    ):
        plan = planned(registry, tmp_path / str(number), {path: text})
        assert plan.reason is RefusalReason.UNKNOWN, path
        assert path in plan.problem
        assert plan.clients.runs == []


def test_the_base_commit_is_resolved_once(registry: Registry, tmp_path: Path) -> None:
    plan = planned(registry, tmp_path, {"requirements.txt": "asks\n", "requirements.in": "asks\n"})
    assert plan.reason is RefusalReason.NOT_AFFECTED
    assert [run[0] for run in plan.clients.runs] == ["lock"]
    plugin = build_ecosystem(plan.clients)
    for record in (LEFT, RIGHT, LEFT):
        selection = plugin.select(record, plan.repo)
        assert not isinstance(selection, NotApplicable)
        with pytest.raises(RecipeError):
            plugin.apply(selection, record, plan.repo)
    assert len(plan.clients.runs) == 1


def test_offline_takes_what_was_kept_with_its_date(registry: Registry, tmp_path: Path) -> None:
    files = {"requirements.txt": "asks\nright<1.1\n"}
    before = planned(registry, tmp_path / "a", files, offline=True)
    assert before.reason is RefusalReason.UNKNOWN
    assert before.unread == ["requirements.txt"]
    online = planned(registry, tmp_path / "b", files)
    assert online.reason is RefusalReason.NOT_AFFECTED
    kept = planned(registry, tmp_path / "c", files, offline=True)
    assert kept.reason is RefusalReason.NOT_AFFECTED
    assert "requirements.txt was resolved on 20" in kept.problem
    assert kept.clients.runs == []
    # So does a plan from the files alone.
    plan = from_files(registry, tmp_path / "p", files, LEFT)
    assert plan.not_affected == (LEFT.id,)
    assert any("requirements.txt was resolved on 20" in note for note in plan.notes)
    assert from_files(registry, tmp_path / "q", files, RIGHT).fixes
    other = {"requirements.txt": "asks\nright<1.0.1\n"}
    plan = from_files(registry, tmp_path / "r", other, LEFT)
    assert plan.undecided == (LEFT.id,)
    out = io.StringIO()
    show(plan, Console(file=out, width=200))
    assert plan.unread
    assert all(item.path in out.getvalue() for item in plan.unread)
    ranged = {"requirements.txt": "right>=1.0\n"}
    assert planned(registry, tmp_path / "e", ranged, RIGHT).result is not None
    fixed = planned(registry, tmp_path / "f", ranged, RIGHT, offline=True)
    assert fixed.result is not None, fixed.problem
    assert any("requirements.txt was resolved on 20" in note for note in fixed.result.notes)
    # Another text, another key.
    changed = {"requirements.txt": files["requirements.txt"] + "# another text\n"}
    other = planned(registry, tmp_path / "d", changed, offline=True)
    assert other.reason is RefusalReason.UNKNOWN


def test_from_the_files_alone_what_is_not_resolved_beside_a_fix_is_unknown(
    registry: Registry, tmp_path: Path
) -> None:
    """Another project may bring in what the fix of the first raises: not all can be called fixable."""
    pinned = {"requirements.txt": "right==1.0\n"}
    beside = {**pinned, "tools/requirements.txt": "asks\n"}
    plan = from_files(registry, tmp_path / "a", beside, RIGHT)
    assert [move.manifest for fix in plan.fixes for move in fix.moves] == ["requirements.txt"]
    assert [item.path for item in plan.unread] == ["tools/requirements.txt"]
    assert exit_code(plan) == exit_codes.UNKNOWN
    # What is pinned is settled, and what its own fix raises as well.
    for name, files in (
        ("b", {**pinned, "tools/requirements.txt": "right==9.9\n"}),
        ("c", {**pinned, "tools/requirements.txt": "right==1.0\nasks\n"}),
    ):
        plan = from_files(registry, tmp_path / name, files, RIGHT)
        assert (plan.unread, exit_code(plan)) == ((), exit_codes.OK), name
    # A resolution that was kept tells what the other brings in, and no step for it.
    held = {"requirements.txt": "holds\n"}
    planned(registry, tmp_path / "d", held)
    files = {"app/requirements.txt": "left==1.0.0\n", **held}
    plan = from_files(registry, tmp_path / "e", files, LEFT)
    assert [move.manifest for fix in plan.fixes for move in fix.moves] == ["app/requirements.txt"]
    (item,) = plan.unread
    assert item.path == "requirements.txt"
    assert "left 1.0.0" in item.reason
    assert exit_code(plan) == exit_codes.UNKNOWN


def test_nothing_of_the_target_runs(registry: Registry, tmp_path: Path) -> None:
    """A canary in setup.py, in a build backend, and in an archive of the registry."""
    canary = tmp_path / "ran"
    program = f"open({str(canary)!r}, 'w').close()\n"
    backend = '[build-system]\nrequires = []\nbuild-backend = "hook"\nbackend-path = ["."]\n'
    files = {
        "a/setup.py": f"{program}from setuptools import setup\nsetup(install_requires=['asks'])\n",
        "b/pyproject.toml": PROJECT + f'dependencies = ["asks"]\n{backend}',
        "b/hook.py": program,
        "c/pyproject.toml": f'[project]\nname = "c"\ndynamic = ["version", "dependencies"]\n{backend}',
        "c/hook.py": program,
        "requirements.txt": "-e ./a\n./b\n-e c\nspring\n",
    }
    universe = Universe().pypi("asks", "1.0", ["left"]).pypi("left", "1.1.0")
    universe.pypi("spring", "1.0", ["left"], sdist_only=True, files={"setup.py": program})
    with serve(universe) as served:
        plan = planned(served, tmp_path / "repo", files)
        assert plan.reason is RefusalReason.UNKNOWN  # of c, and of spring
        assert not canary.exists()
        # The alarm works: uv by itself builds it.
        repo = plan.repo.root / "b"
        plan.clients.run("uv", ["build", "--wheel", "--offline"], cwd=repo, timeout_s=60)
    assert canary.exists()


def _project(*lines: str, name: str = "app") -> str:
    return f'[project]\nname = "{name}"\nversion = "1"\ndependencies = {list(lines)}\n'.replace(
        "'", '"'
    )


#: A file that installs folders of the repository, beside the metadata of these.
_FOLDERS = [
    ({"requirements.txt": "-e .\n", "pyproject.toml": _project("left==1.0.0")}, ["pyproject.toml"]),
    (
        {"requirements.txt": "-e .\nleft==1.0.0\n", "pyproject.toml": _project("left==1.0.0")},
        ["pyproject.toml", "requirements.txt"],
    ),
    (
        {"requirements.txt": "./lib\nright==1.0.0\n", "lib/pyproject.toml": _project("left<1.1")},
        ["lib/pyproject.toml"],
    ),
    (
        {
            "requirements.txt": "-e .[x]\n",
            "pyproject.toml": _project() + '[project.optional-dependencies]\nx = ["left==1.0.0"]\n',
        },
        ["pyproject.toml"],
    ),
    (
        {
            "dev/deps.txt": "-r more.txt\n",
            "dev/more.txt": "-e ..\n",
            "pyproject.toml": _project("left==1.0.0"),
        },
        ["pyproject.toml"],
    ),
    (
        {
            "requirements.txt": "-e ./a\n",
            "a/pyproject.toml": _project("b @ file:../b", name="a"),
            "b/pyproject.toml": _project("left==1.0.0", name="b"),
        },
        ["b/pyproject.toml"],
    ),
    (
        {
            "requirements.txt": "-e .\n",
            "setup.cfg": "[options]\ninstall_requires =\n  left==1.0.0\n",
        },
        ["setup.cfg"],
    ),
]


@pytest.mark.parametrize(("files", "changed"), _FOLDERS)
def test_a_set_is_resolved_with_the_folders_that_the_fix_changes(
    registry: Registry, tmp_path: Path, files: Files, changed: Sequence[str]
) -> None:
    plan = planned(registry, tmp_path / "repo", files)
    assert plan.result is not None, plan.problem
    assert sorted(it.path for it in plan.result.changes) == changed
    assert all(move.after == "1.1.0" for move in plan.result.moves)
    assert not plan.result.left
    assert not plan.result.unread


def test_a_set_that_no_change_of_its_folder_frees_is_refused(
    registry: Registry, tmp_path: Path
) -> None:
    """``holds`` requires the affected release, and has no other."""
    files = {"requirements.txt": "-e .\nholds\n", "pyproject.toml": _project("left==1.0.0")}
    plan = planned(registry, tmp_path / "repo", files)
    assert plan.result is None
    assert plan.reason in {RefusalReason.BLOCKED_BY_CONSTRAINT, RefusalReason.RESOLVER_FAILED}


@pytest.mark.parametrize(
    "files",
    [
        {"Dockerfile": "FROM python:3.12\nRUN pip install --no-cache-dir late==1.0\n"},
        {"Dockerfile": 'RUN ["pip", "install", "late==1.0"]\n'},
        {"Makefile": "install:\n\tpython -m pip install -U 'late>=1,<2'\n"},
        {"scripts/setup.sh": "uv pip install --system \\\n  late==1.0\n"},
        {"tox.ini": "[testenv]\ndeps =\n    late==1.0\n"},
        {"noxfile.py": 'def lint(session):\n    session.install("late==1.0")\n'},
        {"Dockerfile": "RUN pip install -t /opt/lib early holds\n"},
        {"Dockerfile": 'CMD ["uvx", "late@1.0"]\n'},
        {"Makefile": "lint:\n\tuvx --python 3.12 --from 'late>=1,<2' tool x\n"},
        {"scripts/run.sh": "uv tool run --with 'late<2' right\n"},
        {"scripts/run.sh": "uv run --with=late==1.0 script.py\n"},
        {"scripts/run.sh": "pipx run --spec 'late<2' tool; uv -q tool install asks\n"},
        {"Dockerfile": "RUN pip install left==1.1.0 && pip install late==1.0\n"},
    ],
)
def test_what_a_command_brings_in_counts(registry: Registry, tmp_path: Path, files: Files) -> None:
    """``late`` 1.0 and ``holds`` require the affected release; no file names it in that version."""
    plan = planned(registry, tmp_path / "repo", files)
    assert plan.reason not in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}, plan.problem
    held = [it.key for made in plan.resolutions for it in made.affected(LEFT)]
    assert held == ["left 1.0.0"]


def test_a_command_is_raised_with_what_it_brings_in(registry: Registry, tmp_path: Path) -> None:
    files = {"Dockerfile": "RUN pip install --no-cache-dir late==1.0  # for left\n"}
    plan = planned(registry, tmp_path / "repo", files)
    assert plan.result is not None, plan.problem
    assert [it.after for it in plan.result.changes] == [
        "RUN pip install --no-cache-dir late==2.0  # for left\n"
    ]


def test_a_command_is_only_raised_to_what_installs(registry: Registry, tmp_path: Path) -> None:
    """``holds`` requires the affected release beside it."""
    files = {"Dockerfile": "RUN pip install left==1.0.0 holds==1.0\n"}
    assert planned(registry, tmp_path / "repo", files).result is None


@pytest.mark.parametrize(
    "command",
    [
        "pip install -r requirements.txt",
        "pip install --upgrade pip setuptools",
        "pip install unheard-of==1.0",
        "pip install asks",
        "pip install -i https://index.invalid/simple private==1.0",
        "pip install $PACKAGES .",
    ],
)
def test_a_command_that_does_not_concern_the_package_is_no_doubt(
    registry: Registry, tmp_path: Path, command: str
) -> None:
    files = {"Dockerfile": f"RUN {command}\n", "requirements.txt": "left==1.1.0\n"}
    assert planned(registry, tmp_path / "repo", files).reason is RefusalReason.NOT_AFFECTED


CI = ".github/workflows/ci.yml"


@pytest.mark.parametrize(
    "files",
    [
        {CI: "      - run: pip install late==1.0\n"},
        {CI: "      - run: uvx --with right late@1.0 check\n"},
        {".gitlab-ci.yml": "lint:\n  script:\n    - pipx install 'late<2'\n"},
        {"pyproject.toml": '[tool.hatch.envs.docs]\ndependencies = ["late<2"]\n'},
        {"pyproject.toml": '[build-system]\nrequires = ["late==1.0"]\nbuild-backend = "late"\n'},
    ],
)
def test_what_a_fix_can_not_change_is_unknown_if_it_brings_in_the_package(
    registry: Registry, tmp_path: Path, files: dict[str, str]
) -> None:
    table = files.pop("pyproject.toml", "")
    files |= {"pyproject.toml": PROJECT + f'dependencies = ["asks"]\n{table}', "uv.lock": LOCKED}
    plan = planned(registry, tmp_path / "a", files)
    assert plan.reason is RefusalReason.UNKNOWN, plan.problem
    assert "left 1.0.0" in plan.problem
    # Next to a fix it is a note.
    files["requirements.txt"] = "left==1.0.0\n"
    fixed = planned(registry, tmp_path / "b", files)
    assert fixed.result is not None, fixed.problem
    assert [it.path for it in fixed.result.unread] == plan.unread


@pytest.mark.parametrize(
    "files",
    [
        {CI: "      - run: pip install late uvx unheard-of && uvx late@latest --help\n"},
        {CI: "      - run: pip install -r requirements.txt build ${{ matrix.extra }}\n"},
        {
            CI: "      - name: pip install holds\n        run: pip install asks ${{ holds }} $(cat holds)\n"
        },
        {"pyproject.toml": '[tool.hatch.envs.docs]\ndependencies = ["late", "app[x]"]\n'},
        {"pyproject.toml": '[build-system]\nrequires = ["unheard-of==1"]\nbuild-backend = "x"\n'},
    ],
)
def test_what_a_fix_can_not_change_is_no_doubt_otherwise(
    registry: Registry, tmp_path: Path, files: dict[str, str]
) -> None:
    table = files.pop("pyproject.toml", "")
    files |= {"pyproject.toml": PROJECT + f'dependencies = ["asks"]\n{table}', "uv.lock": LOCKED}
    assert planned(registry, tmp_path / "a", files).reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize(
    "table",
    [
        '[tool.hatch.envs.docs]\ndependencies = ["late<2"]\n',
        '[tool.hatch.envs.docs]\nextra-dependencies = ["late==1.0"]\n',
        '[tool.pdm.dev-dependencies]\ntest = ["late<2"]\n',
        '[tool.rye]\ndev-dependencies = ["late<2"]\n',
        '[build-system]\nrequires = ["late==1.0"]\nbuild-backend = "late"\n',
        # An environment that can't be had together with the project's own dependencies.
        '[tool.hatch.envs.old]\ndependencies = ["holds", "right<1.1"]\n',
    ],
)
def test_what_environments_of_tools_bring_in_counts(
    registry: Registry, tmp_path: Path, table: str
) -> None:
    files = {"pyproject.toml": PROJECT + f'dependencies = ["right>=1.1"]\n{table}'}
    plan = planned(registry, tmp_path / "repo", files)
    assert plan.reason not in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}, plan.problem
    assert [it.key for made in plan.resolutions for it in made.affected(LEFT)] == ["left 1.0.0"]


def test_a_build_takes_the_newest_of_a_range(registry: Registry, tmp_path: Path) -> None:
    table = '[build-system]\nrequires = ["late", "unheard-of>=1"]\nbuild-backend = "late"\n'
    plan = planned(registry, tmp_path / "repo", {"pyproject.toml": PROJECT + table})
    assert plan.reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize(
    "table",
    [
        '[project.dependencies]\nleft = "==1.0.0"\n',
        'dependencies = "left==1.0.0"\n',
        '[project.optional-dependencies]\nx = "left==1.0.0"\n',
        '[dependency-groups.dev]\nleft = "==1.0.0"\n',
    ],
)
def test_what_is_no_list_of_requirements_is_unknown(
    registry: Registry, tmp_path: Path, table: str
) -> None:
    plan = planned(registry, tmp_path / "repo", {"pyproject.toml": PROJECT + table})
    assert plan.reason is RefusalReason.UNKNOWN
    assert plan.unread == ["pyproject.toml"]


def test_a_fix_is_not_of_releases_of_which_it_is_unknown_what_they_bring_in(
    registry: Registry, tmp_path: Path
) -> None:
    """``moves`` 2.0 has no wheel, and does not say what it requires."""
    for number, text in enumerate(("moves==1.0\n", "moves>=1.0,<2\n", "left==1.0.0\nmoves==1.0\n")):
        plan = planned(registry, tmp_path / str(number), {"requirements.txt": text})
        assert plan.result is None, text
        assert plan.reason not in {None, RefusalReason.NOT_AFFECTED}
    # Next to a fix it is a note.
    plan = planned(registry, tmp_path / "x", {"requirements.txt": "left==1.0.0\nbrings-moves\n"})
    assert plan.result is not None, plan.problem
    assert any("moves 2.0 has no wheel" in note for note in plan.result.notes)


def test_more_releases_without_a_wheel_than_are_read_are_unknown(tmp_path: Path) -> None:
    universe = Universe().pypi("left", "1.1.0")
    names = [f"p{number}" for number in range(MAX_WITHOUT_WHEEL + 1)]
    for name in names:
        files = {f"{name}.egg-info/requires.txt": "left>=1.1\n"}
        universe.pypi(name, "1.0").pypi(name, "2.0", sdist_only=True, files=files)
    with serve(universe) as served:
        files = {"requirements.txt": "\n".join(names[1:]) + "\n"}
        assert planned(served, tmp_path / "a", files).reason is RefusalReason.NOT_AFFECTED
    with serve(universe) as served:
        files = {"requirements.txt": "\n".join(names) + "\n"}
        assert planned(served, tmp_path / "b", files).reason is RefusalReason.UNKNOWN


def test_a_uv_that_reports_its_steps_in_other_words_is_not_believed(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uv_client, "_LOGGED", {})
    for name in ("newer", "caps"):
        plan = planned(registry, tmp_path / name, {"requirements.txt": f"{name}\n"})
        assert plan.reason not in {None, RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}
    plan = planned(registry, tmp_path / "asks", {"requirements.txt": "asks\n"})
    assert plan.reason is RefusalReason.NOT_AFFECTED


def test_a_python_that_can_not_start_is_passed_over(registry: Registry, tmp_path: Path) -> None:
    """pyenv puts a script on the path for each Python that it has, and only the chosen one starts."""
    shims = tmp_path / "shims"
    shims.mkdir()
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        (shims / name).write_text("#!/bin/sh\nexit 127\n")
        (shims / name).chmod(0o755)
    path = {"PATH": str(shims)}
    files = {"pyproject.toml": PROJECT + 'dependencies = ["asks"]\n'}
    assert planned(registry, tmp_path / "a", files, more=path).reason is RefusalReason.NOT_AFFECTED
    clients, root = SubprocessClients(os.environ | registry.environ), tmp_path / "made"
    for manifest in ('dependencies = ["left==1.0.0"]\n', 'dependencies = ["left"]\n'):
        files = {"pyproject.toml": PROJECT + manifest}
        root.mkdir(exist_ok=True)
        (root / "pyproject.toml").write_text(files["pyproject.toml"])
        assert clients.run("uv", ["lock"], cwd=root, timeout_s=60).ok
    files |= {"uv.lock": (root / "uv.lock").read_text()}
    plan = planned(registry, tmp_path / "b", files, more=path)
    assert plan.result is not None, plan.problem
    assert [(move.package, move.after) for move in plan.result.moves] == [("left", "1.1.0")]


def test_a_page_that_can_not_be_read_may_have_any_source_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv logs in to the registry, and passes over what has no wheel: of ``between`` it takes 1.0."""
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.1.0")
    files = {"between.egg-info/requires.txt": "left<1.1\n"}
    universe.pypi("between", "1.0", ["left>=1.1"])
    universe.pypi("between", "2.0", sdist_only=True, files=files)
    universe.pypi("between", "3.0", ["left>=1.1"])
    universe.pypi("caps", "1.0", ["between<3"]).pypi("fine", "1.0", ["between"])
    whole = Registry.answer

    def answer(self: Registry, path: str, accept: str) -> Any:
        is_clients = "json" in accept or "/files/" in path
        return whole(self, path, accept) if is_clients else None

    monkeypatch.setattr(Registry, "answer", answer)
    with serve(universe) as served:
        plan = planned(served, tmp_path / "a", {"requirements.txt": "caps\n"})
        assert plan.reason is RefusalReason.UNKNOWN, plan.problem
        plan = planned(served, tmp_path / "b", {"requirements.txt": "fine\n"})
        assert plan.reason is RefusalReason.NOT_AFFECTED, plan.problem


def test_projects_of_a_repository_share_what_a_registry_said(
    registry: Registry, tmp_path: Path
) -> None:
    """One question about the release, and per set one resolution of the base and one of the fix."""
    texts = {f"p{it}/requirements.txt": f"left==1.0.0\nright>=1.0.{it}\n" for it in range(5)}
    for number in (1, 5):
        files = dict(list(texts.items())[:number])
        plan = planned(registry, tmp_path / str(number), files)
        assert plan.result is not None, plan.problem
        assert Counter(run[0] for run in plan.clients.runs) == {"pip": 1, "lock": 2 * number}
