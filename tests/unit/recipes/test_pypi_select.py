"""What the pypi direct bump selects, and what it refuses by name."""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi import build_ecosystem
from tests.unit.recipes.pypi_files import RECORD, lock, pyproject
from tests.unit.recipes.support import (
    FakeClients,
    advisory,
    refusal,
    repository,
)


@pytest.mark.parametrize(
    ("files", "reason", "words"),
    [
        ({"README.md": "idna==3.1"}, RefusalReason.MANIFEST_MISSING, "requirements"),
        ({"requirements.txt": "six==1.0\n"}, RefusalReason.NOT_AFFECTED, "idna"),
        ({"requirements.txt": "idna==3.7\n"}, RefusalReason.NOT_AFFECTED, "idna"),
        ({"requirements.txt": "idna\n"}, RefusalReason.NOT_AFFECTED, "idna"),
        ({"requirements.txt": "idna<4\n"}, RefusalReason.NOT_AFFECTED, "idna"),
        ({"requirements.txt": "idna<3.7\n"}, RefusalReason.RECIPE_UNSUPPORTED, "upper end"),
        (
            {"requirements.txt": "idna>=3.1,<3.5\n"},
            RefusalReason.RECIPE_UNSUPPORTED,
            "not admit 3.7",
        ),
        (
            {"requirements.txt": "idna==3.1 --hash=sha256:0\n"},
            RefusalReason.RECIPE_UNSUPPORTED,
            "hash-pinned",
        ),
        ({"requirements.txt": "idna @ git+x\n"}, RefusalReason.RECIPE_UNSUPPORTED, "URL"),
        ({"uv.lock": lock(("idna", "3.1"))}, RefusalReason.MANIFEST_MISSING, "uv.lock locks idna"),
        (
            {
                "pyproject.toml": pyproject("requests"),
                "uv.lock": lock(
                    ("idna", "3.1"),
                    asks='[[package]]\nname = "requests"\ndependencies = [{ name = "idna" }]\n',
                ),
            },
            RefusalReason.RECIPE_UNSUPPORTED,
            "transitive dependency of requests",
        ),
        (
            {
                "pyproject.toml": pyproject("idna", more='[tool.uv.workspace]\nmembers = ["a"]\n'),
                "uv.lock": lock(("idna", "3.1")),
            },
            RefusalReason.RECIPE_UNSUPPORTED,
            "workspace",
        ),
        (
            {
                "pyproject.toml": pyproject(
                    "idna", more='[tool.uv.sources]\nidna = { git = "https://host/idna" }\n'
                ),
                "uv.lock": lock(("idna", "3.1")),
            },
            RefusalReason.RECIPE_UNSUPPORTED,
            "tool.uv.sources",
        ),
        (
            {"poetry.lock": lock(("idna", "3.1"))},
            RefusalReason.RECIPE_UNSUPPORTED,
            "only poetry writes it",
        ),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\nidna = "^3.1"\n'},
            RefusalReason.RECIPE_UNSUPPORTED,
            "tool.poetry.dependencies",
        ),
        (
            {"Pipfile.lock": '{"default": {"idna": {"version": "==3.1"}}}'},
            RefusalReason.RECIPE_UNSUPPORTED,
            "only pipenv writes it",
        ),
        ({"Pipfile": '[packages]\nidna = "==3.1"\n'}, RefusalReason.RECIPE_UNSUPPORTED, "Pipfile"),
        (
            {"setup.cfg": "[options]\ninstall_requires =\n    idna>=3.1\n"},
            RefusalReason.RECIPE_UNSUPPORTED,
            "setup.cfg",
        ),
        (
            {"setup.py": "setup(install_requires=['idna==3.1'])\n"},
            RefusalReason.RECIPE_UNSUPPORTED,
            "a program",
        ),
        (
            {"pyproject.toml": pyproject().replace('"app"', '"idna"')},
            RefusalReason.OWN_CODE,
            "is idna itself",
        ),
        ({"pyproject.toml": "idna = ["}, RefusalReason.RECIPE_UNSUPPORTED, "is not TOML"),
    ],
)
def test_refusals_by_name(
    tmp_path: Path, files: dict[str, str], reason: RefusalReason, words: str
) -> None:
    told = refusal(build_ecosystem(FakeClients()), RECORD, repository(tmp_path, files))
    assert told.reason is reason, told
    assert words in told.sentence


def test_a_lock_speaks_for_the_pyproject_beside_it(tmp_path: Path) -> None:
    files = {"pyproject.toml": pyproject("idna>=3.1"), "uv.lock": lock(("idna", "3.7"))}
    told = refusal(build_ecosystem(FakeClients()), RECORD, repository(tmp_path, files))
    assert told.reason is RefusalReason.NOT_AFFECTED


def test_no_fixed_version(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"requirements.txt": "idna==3.1\n"})
    plugin = build_ecosystem(FakeClients())
    none = advisory("PyPI", "idna", [("0", None)])
    assert refusal(plugin, none, repo).reason is RefusalReason.NO_FIXED_VERSION
    below = advisory("PyPI", "idna", [("0", "2.9"), ("3.0", None)])
    assert refusal(plugin, below, repo).reason is RefusalReason.NO_FIXED_VERSION


def test_two_affected_packages_are_not_one_bump(tmp_path: Path) -> None:
    one, other = RECORD, advisory("PyPI", "six", [("0", "1.16")])
    both = one.model_copy(update={"affected": one.affected + other.affected})
    repo = repository(tmp_path, {"requirements.txt": "idna==3.1\nsix==1.0\n"})
    told = refusal(build_ecosystem(FakeClients()), both, repo)
    assert told.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert "idna and six" in told.sentence


def test_what_the_plugin_says_of_itself() -> None:
    plugin = build_ecosystem(FakeClients())
    assert plugin.name == "PyPI"
    assert plugin.manifests(["a.py", "requirements.txt", "uv.lock"]) == (
        "requirements.txt",
        "uv.lock",
    )
    assert plugin.editable_keys("pyproject.toml") == (
        "project.dependencies",
        "project.optional-dependencies",
        "dependency-groups",
    )
    assert plugin.editable_keys("requirements.txt") == ()
    assert plugin.editable_keys("a.py") is None
