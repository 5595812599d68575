"""Gates install what a recipe resolved (ADR-0112): real uv and bubblewrap, a registry on loopback."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.resolution import SharedResolutions
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.outcome import RecipeResult, Selected
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.registry import Universe, serve

pytestmark = pytest.mark.sandbox

ABOUT = advisory("left", "PyPI", fixed="1.1.0")


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def releases() -> Universe:
    universe = Universe().pypi("alone", "1.0")
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        universe.pypi("left", version)
    return universe.pypi("mid", "1.0", ["left<1.1"]).pypi("mid", "1.1", ["left>=1"])


@dataclass
class Counting(SubprocessClients):
    """Keeps the commands of uv that were run."""

    environ: Mapping[str, str]
    commands: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(self.environ)

    __hash__ = object.__hash__

    def run(self, tool: str, args: Sequence[str], **options: object) -> CommandResult:  # type: ignore[override]
        if tool == "uv" and args[0] != "--version":
            self.commands[" ".join(args[:2]) if args[0] == "pip" else args[0]] += 1
        return super().run(tool, args, **options)  # type: ignore[arg-type]


@dataclass
class Fix:
    """The recipe's result for a base commit, and the gates over it."""

    context: GateContext
    ecosystem: PyPIEcosystem

    def recipe(self) -> RecipeResult:
        selection = self.ecosystem.select(ABOUT, self.context.repo)
        assert isinstance(selection, Selected)
        return self.ecosystem.apply(selection, ABOUT, self.context.repo)

    def verdicts(self) -> dict[str, GateVerdict]:
        return {gate.name: gate.judge(self.context) for gate in self.ecosystem.gates()}

    def environment(self, folder: str = ".") -> Environment:
        return Environment(self.context, gating.patched(self.context), folder)

    def resolved(self, path: str) -> list[str]:
        """The digests of what the recipe resolved the file to, at the base commit and with the patch."""
        trees = self.context.repo, gating.patched(self.context)
        shared = SharedResolutions.of(self.context.repo)
        return [one.digest for it in trees for one in shared.among({path: it.read_text(path)})]


@contextmanager
def fix(
    place: Path, universe: Universe, files: Mapping[str, str], change: Mapping[str, str]
) -> Iterator[tuple[Fix, Counting]]:
    with serve(universe) as registry, patched(place, files, change, about=ABOUT) as case:
        environ = {**os.environ, **registry.environ, "UV_CACHE_DIR": str(place / "uv")}
        clients = Counting(environ)
        yield Fix(case.with_(clients=clients).context, PyPIEcosystem(clients)), clients


@pytest.mark.parametrize("projects", [1, 5])
def test_each_project_is_resolved_by_the_recipe_and_installed_twice(
    tmp_path: Path, projects: int
) -> None:
    """Once for all projects that require the same, and never by the gates."""
    paths = [f"p{number}/requirements.txt" for number in range(projects)]
    files, change = (
        dict.fromkeys(paths, f"left=={version}\nalone\n") for version in ("1.0.0", "1.1.0")
    )
    with fix(tmp_path, releases(), files, change) as (made, clients):
        assert {it.path: it.after for it in made.recipe().changes} == change
        assert clients.commands == {"pip compile": 1, "lock": 2}
        verdicts = made.verdicts()
        assert verdicts["not_vulnerable"].status is GateStatus.PASSED
        twice = 2 * projects
        assert clients.commands == {
            "pip compile": 1,
            "lock": 2,
            "venv": twice,
            "pip install": twice,
        }


def test_gates_install_what_the_recipe_resolved_whatever_is_published_since(tmp_path: Path) -> None:
    universe = releases()
    files, change = ({"requirements.txt": f"left=={it}\nalone\n"} for it in ("1.0.0", "1.1.0"))
    with fix(tmp_path, universe, files, change) as (made, clients):
        made.recipe()
        universe.pypi("alone", "1.1")
        # uv asks for a package again only after minutes.
        fresh = SubprocessClients({**clients.environ, "UV_CACHE_DIR": str(tmp_path / "fresh")})
        made.context = replace(made.context, clients=fresh)
        patched_tree = made.environment()
        installed = [it.resolution for it in (patched_tree.base, patched_tree)]
        assert [one.digest for one in installed] == made.resolved("requirements.txt")
        assert [one.by_name["alone"][0].version for one in installed] == ["1.0", "1.0"]


def test_what_was_installed_before_the_recipe_serves_all_gates_and_the_next_fix(
    tmp_path: Path,
) -> None:
    """A proof is checked at the base commit before anything is resolved."""
    files, change = ({"requirements.txt": f"left=={it}\nalone\n"} for it in ("1.0.0", "1.1.0"))
    with fix(tmp_path, releases(), files, change) as (made, clients):
        for _ in range(2):
            made.context = replace(made.context, resolutions={})
            made.environment().base.install()
            made.context = replace(made.context, resolutions={})
            made.recipe()
            assert made.verdicts()["not_vulnerable"].status is GateStatus.PASSED
            assert clients.commands["pip install"] == 2


def test_what_was_installed_before_the_recipe_is_not_taken_if_it_differs(tmp_path: Path) -> None:
    universe = releases()
    files, change = ({"requirements.txt": f"left=={it}\nalone\n"} for it in ("1.0.0", "1.1.0"))
    with fix(tmp_path, universe, files, change) as (made, clients):
        assert made.environment().base.installed("alone") == ("1.0",)
        universe.pypi("alone", "1.1")
        fresh = SubprocessClients({**clients.environ, "UV_CACHE_DIR": str(tmp_path / "fresh")})
        made.context = replace(made.context, clients=fresh, resolutions={})
        made.ecosystem = PyPIEcosystem(fresh)
        made.recipe()
        found = made.environment()
        assert [it.installed("alone") for it in (found.base, found)] == [("1.1",), ("1.1",)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("mid==1.0\n", "mid==1.1\n", id="a raised parent admits more"),
        pytest.param("mid>=1\nleft<1.1\n", "mid>=1\nleft<1.2\n", id="a raised cap"),
    ],
)
@pytest.mark.parametrize("by_recipe", [True, False])
def test_a_fix_that_only_admits_a_safe_release_gets_it(
    tmp_path: Path, before: str, after: str, by_recipe: bool
) -> None:
    """The base commit's affected release is no preference for the patched tree, whoever made the patch."""
    files, change = ({"requirements.txt": it} for it in (before, after))
    with fix(tmp_path, releases(), files, change) as (made, _):
        if by_recipe:
            assert {it.path: it.after for it in made.recipe().changes} == change
        verdicts = made.verdicts()
        assert verdicts["not_vulnerable"].status is GateStatus.PASSED, verdicts
        (left,) = made.environment().installed("left")
        assert left == ("1.1.0" if "left" in after else "1.2.0")


def test_files_whose_resolutions_differ_are_installed_together(tmp_path: Path) -> None:
    """Each was resolved alone: what they agree on stays, and uv finds what serves both."""
    universe = releases().pypi("older", "1.0", ["alone<1.1"]).pypi("alone", "1.1")
    files = {"requirements.txt": "mid==1.0\nalone\n", "requirements-dev.txt": "older\n"}
    change = {"requirements.txt": "mid==1.1\nalone\n"}
    with fix(tmp_path, universe, files, change) as (made, _):
        made.recipe()
        found = made.environment()
        assert found.install().is_as_declared, found.install().in_full
        assert (*found.installed("alone"), *found.installed("left")) == ("1.0", "1.2.0")


def test_what_no_patch_moves_is_as_at_the_base_commit(tmp_path: Path) -> None:
    """Though its own file, resolved alone, would have had another release."""
    universe = releases().pypi("right", "1.0", ["left"]).pypi("right", "1.1", ["left>=1.1"])
    tox = "[testenv]\ndeps = right\n"
    files, change = (
        {"requirements.txt": f"left=={it}\nalone\n", "tox.ini": tox} for it in ("1.0.0", "1.1.0")
    )
    with fix(tmp_path, universe, files, change) as (made, _):
        made.recipe()
        found = made.environment()
        both = [
            {name: it.version for name, it in one.distributions().items()}
            for one in (found.base, found)
        ]
        assert both[0] == {"left": "1.0.0", "alone": "1.0", "right": "1.0"}
        assert both[1] == {**both[0], "left": "1.1.0"}


def test_a_package_in_several_versions_is_installed_in_that_of_this_python(tmp_path: Path) -> None:
    universe = releases().pypi("forked", "1.0").pypi("forked", "2.0", requires_python=">=3.11")
    manifest = (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
        'dependencies = ["left=={}", "forked"]\n'
    )
    files, change = ({"pyproject.toml": manifest.format(it)} for it in ("1.0.0", "1.1.0"))
    with fix(tmp_path, universe, files, change) as (made, clients):
        made.recipe()
        universe.pypi("forked", "2.1", requires_python=">=3.11")
        fresh = SubprocessClients({**clients.environ, "UV_CACHE_DIR": str(tmp_path / "fresh")})
        made.context = replace(made.context, clients=fresh)
        found = made.environment()
        assert [it.installed("forked") for it in (found.base, found)] == [("2.0",), ("2.0",)]


def test_what_failed_at_the_base_commit_is_not_tried_again_unless_the_patch_may_help(
    tmp_path: Path,
) -> None:
    universe = releases().pypi("newer", "1.0", ["left>=1.1"])
    for number in range(20):
        universe.pypi(f"other{number}", "1.0")
    rest = "".join(f"other{number}==1.0\n" for number in range(20))
    rest = rest.replace("other9==1.0", "alone==9").replace("other15==1.0", "none==1")
    files, change = (
        {"requirements.txt": f"left=={it}\n{rest}newer\n"} for it in ("1.0.0", "1.1.0")
    )
    with fix(tmp_path, universe, files, change) as (made, clients):
        patched_tree = made.environment()
        base = patched_tree.base.install()
        resolutions = clients.commands["pip install"]
        assert [line for line, _ in base.declined if "==" in line] == ["alone==9", "none==1"]
        assert any(line == "newer" for line, _ in base.declined)
        clients.commands.clear()
        installed = patched_tree.install()
        assert clients.commands["pip install"] < resolutions / 2
        failed = [(line, why) for line, why in base.declined if "==" in line]
        assert [it for it in installed.declined if "==" in it[0]] == failed
        assert patched_tree.installed("newer") == ("1.0",)
        assert "newer" not in {line for line, _ in installed.declined}
