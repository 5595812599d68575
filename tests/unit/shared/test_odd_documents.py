"""Whatever a stranger's manifests and locks hold: an answer or a typed error, and never anything else."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_plugins.npm import build_ecosystem as npm
from fallback_plugins.npm.gates import all_gates
from fallback_plugins.npm.installing.installation import Inputs
from fallback_plugins.npm.surveying.survey import survey as npm_survey
from fallback_plugins.pypi import build_ecosystem as pypi
from fallback_plugins.pypi.gates.checks import configured
from fallback_plugins.pypi.installing.declared import declared
from fallback_plugins.pypi.surveying.survey import survey as pypi_survey
from fallback_tier.advisory import bundle
from fallback_tier.errors import FallbackError
from fallback_tier.outcome import Selected
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext
from tests.unit.pypi.pypi_files import offline
from tests.unit.shared.odd_documents import NPM, NPM_SETTINGS, PYTHON, odd_text
from tests.unit.shared.recipes import FakeClients, advisory

FOLDERS = ("", "pk/a/", "test/fixtures/")


def failing_client() -> FakeClients:
    return FakeClients(lambda _tool, _args, _cwd: (1, "no"))


def asked(*steps: Callable[[], object]) -> None:
    """Each step may refuse, in a typed way; anything else is a defect."""
    for step in steps:
        with suppress(FallbackError):
            step()


def read_npm(repo: RepoContext) -> None:
    plugin = npm(failing_client())
    repo = repo.model_copy(update={"manifests": plugin.manifests(repo.tracked_files)})
    read(plugin, repo, "npm-ladder")
    asked(partial(npm_survey, repo, "left"))
    for folder in folders(repo):
        asked(partial(installed, repo, folder))
        asked(partial(all_gates.declares_typescript, repo, folder))
        asked(partial(all_gates.configurations, repo, folder))


def installed(repo: RepoContext, folder: str) -> None:
    inputs = Inputs.of(repo, folder)
    asked(inputs.for_npm, inputs.for_tests)
    asked(lambda: inputs.declares)


def read_python(repo: RepoContext) -> None:
    read(pypi(failing_client()), repo, "pypi-ladder")
    asked(partial(pypi_survey, repo, "left"))
    for folder in folders(repo):
        asked(partial(configured, repo, folder), partial(declared, repo, folder))


def read(plugin: EcosystemPlugin, repo: RepoContext, recipe: str) -> None:
    one, other = (advisory(plugin.name, name, [("0", "2.0.0")]) for name in ("left", "right"))
    both = bundle([one.model_copy(update={"id": "A"}), other.model_copy(update={"id": "B"})])
    asked(
        partial(plugin.own_packages, repo, frozenset({"left", "app"})),
        partial(plugin.outline, both, repo),
        partial(plugin.select, one, repo),
        partial(plugin.apply, Selected(recipe=recipe), one, repo),
        partial(plugin.apply, Selected(recipe=recipe), both, repo),
        partial(plugin.apply, plugin.bump("left", "2.0.0"), one, repo),
        partial(plugin.apply, plugin.override("left", "2.0.0"), one, repo),
    )


def folders(repo: RepoContext) -> list[str]:
    return sorted({str(PurePosixPath(path).parent) for path in repo.tracked_files})


def written(tmp_path_factory: pytest.TempPathFactory, files: Mapping[str, str]) -> RepoContext:
    return offline(tmp_path_factory.mktemp("repo"), files)


def odd_files(draw: random.Random, names: tuple[str, ...]) -> dict[str, str]:
    places = draw.sample(FOLDERS, draw.randint(1, 2))
    return {
        f"{place}{name}": odd_text(name, draw)
        for place in places
        for name in draw.sample(names, draw.randint(1, 3))
    }


_SETTINGS = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_SETTINGS
@given(draw=st.randoms(use_true_random=False))
def test_npm_files(draw: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    read_npm(written(tmp_path_factory, odd_files(draw, (*NPM, *NPM_SETTINGS))))


@_SETTINGS
@given(draw=st.randoms(use_true_random=False))
def test_python_files(draw: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    read_python(written(tmp_path_factory, odd_files(draw, PYTHON)))


@pytest.mark.campaign
@settings(max_examples=2_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.randoms(use_true_random=False))
def test_many_of_both(draw: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    read_npm(written(tmp_path_factory, odd_files(draw, (*NPM, *NPM_SETTINGS))))
    read_python(written(tmp_path_factory, odd_files(draw, PYTHON)))


@pytest.mark.parametrize(
    "files",
    [
        # Each was a traceback once.
        {"package.json": '{"devDependencies": 3}', "tsconfig.json": "{}"},
        {"package.json": "{}", "lerna.json": '{"packages": ["pk/*"]}', "pk/a/yarn.lock": ""},
        {"package.json": "{}", "lerna.json": "{"},
        {"other/yarn.lock": 'left@1.0.0:\n  version "1.0.0"\n', "package.json": "{}"},
    ],
)
def test_npm_files_that_were_not_thought_of(files: Mapping[str, str], tmp_path: Path) -> None:
    read_npm(offline(tmp_path, files))


@pytest.mark.parametrize(
    "files",
    [
        {"uv.lock": 'package = [{name = "left", version = "1.0.0"}]\n', "pyproject.toml": ""},
        {"pyproject.toml": "tool.poetry.dependencies.left = {version = '1', extras = 1.5}\n"},
        {"poetry.lock": 'package = ["left"]\n'},
        {"pdm.lock": 'package = ["left"]\n'},
    ],
)
def test_python_files_that_were_not_thought_of(files: Mapping[str, str], tmp_path: Path) -> None:
    read_python(offline(tmp_path, files))
