"""A model's override in Python projects, with the real uv over a registry of made-up packages."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep, ProofLevel
from fallback_plugins.pypi import build_ecosystem
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import RecipeResult
from fallback_tier.repo import Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.kinds import OfKind
from tests.registry import Universe, serve
from tests.unit.shared.recipes import advisory, after, repository

LEAF = advisory("PyPI", "Lea.f", [("0", "1.2")])

_UNIVERSE = (
    Universe()
    .pypi("lea-f", "1.0")
    .pypi("lea-f", "1.1")
    .pypi("lea-f", "1.2")
    .pypi("lea-f", "1.3")
    .pypi("lea-f", "2.0")
    .pypi("open", "1.0", ["lea-f<2"])
    .pypi("exact", "1.0", ["lea-f==1.0"])
    .pypi("exact", "1.1", ["lea-f<1.3"])
    .pypi("early", "1.0", ["pre"])
    .pypi("pre", "1.0")
    .pypi("pre", "1.1rc1")
)


@pytest.fixture(scope="module")
def clients() -> Iterator[SubprocessClients]:
    with serve(_UNIVERSE) as registry:
        yield SubprocessClients({**os.environ, **registry.environ})


def manifest(*dependencies: str, more: str = "") -> str:
    lines = "".join(f'    "{one}",\n' for one in dependencies)
    head = '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.9"\n'
    return f"{head}dependencies = [\n{lines}]\n{more}"


def locked(clients: SubprocessClients, folder: Path, text: str, *pins: str) -> dict[str, str]:
    """The manifest, and the lock that uv makes of it with these versions."""
    place = repository(folder / "made", {"pyproject.toml": text}).root
    upgrades = [f"--upgrade-package={pin}" for pin in pins]
    result = clients.run("uv", ["lock", *upgrades], cwd=place, timeout_s=60)
    assert result.ok, result.output
    return {"pyproject.toml": text, "uv.lock": (place / "uv.lock").read_text()}


def forced(
    clients: SubprocessClients,
    folder: Path,
    files: Mapping[str, str],
    version: str = "1.2",
    *,
    offline: bool = False,
) -> RecipeResult:
    plugin = build_ecosystem(clients)
    repo = repository(folder / "repo", files)
    repo = repo.model_copy(update={"settings": Settings(offline=offline)})
    return plugin.apply(plugin.override("Lea_f", version), LEAF, repo)


@pytest.mark.parametrize("parent", ["exact==1.0", "open"])
def test_the_step_is_resolved_whatever_the_cheaper_ones_could_do(
    clients: SubprocessClients, tmp_path: Path, parent: str
) -> None:
    files = locked(clients, tmp_path, manifest(parent), "lea-f==1.0")
    result = forced(clients, tmp_path, files)
    (move,) = result.moves
    assert (move.package, move.step, move.before, move.after) == (
        "lea-f",
        LadderStep.OVERRIDE,
        ("1.0",),
        "1.2",
    )
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    added = '\n[tool.uv]\noverride-dependencies = ["lea-f>=1.2,<2"]\n'
    assert after(result, "pyproject.toml") == files["pyproject.toml"] + added
    assert re.search(r'name = "lea-f"\nversion = "1\.2"', after(result, "uv.lock"))


def test_a_higher_version_than_the_lowest_is_taken_at_the_models_word(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    files = locked(clients, tmp_path, manifest("exact==1.0"), "lea-f==1.0")
    assert forced(clients, tmp_path, files, "1.3").moves[0].after == "1.3"


def test_a_set_without_a_lock_gets_a_constraint(clients: SubprocessClients, tmp_path: Path) -> None:
    """Where a resolver leaves the affected version although the parents admit a safe one."""
    plugin = build_ecosystem(clients)
    record = advisory("PyPI", "pre", [("0", "1.1rc1")])
    repo = repository(tmp_path, {"requirements.txt": "early==1.0\n"})
    result = plugin.apply(plugin.override("pre", "1.1rc1"), record, repo)
    (move,) = result.moves
    assert (move.step, move.before, move.after) == (LadderStep.OVERRIDE, ("1.0",), "1.1rc1")
    assert after(result, "requirements.txt") == "early==1.0\npre==1.1rc1\n"


def test_a_constraint_that_is_there_is_raised_not_doubled(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    files = {
        "requirements.txt": "exact==1.1\n-c constraints.txt\n",
        "constraints.txt": "lea-f<1.2\n",
    }
    with pytest.raises(RecipeError, check=OfKind("direct_dependency"), match=r"constraints\.txt"):
        forced(clients, tmp_path, files)


@pytest.mark.parametrize(
    ("files", "version", "kind"),
    [
        ({"requirements.txt": "lea-f==1.0\n"}, "1.2", "direct_dependency"),
        ({"pyproject.toml": manifest("lea-f==1.0")}, "1.2", "direct_dependency"),
        ({"requirements.txt": "open\n"}, "1.1", "affected"),
        ({"requirements.txt": "open\n"}, ">=1.2", "not_a_version"),
        ({"requirements.txt": "exact==1.0\n"}, "1.2", "conflict"),  # its parent pins it
        ({"pyproject.toml": manifest("exact==1.0")}, "1.2", "no_place"),
        ({"requirements.txt": "exact==1.0\n"}, "2.0", "another_major"),
        ({"requirements.txt": "open==1.0\n"}, "1.2", "not_affected"),
        ({"README.md": "x"}, "1.2", "no_project"),
    ],
)
def test_what_can_not_be_overridden(
    clients: SubprocessClients, tmp_path: Path, files: dict[str, str], version: str, kind: str
) -> None:
    with pytest.raises(RecipeError, check=OfKind(kind)) as caught:
        forced(clients, tmp_path, files, version)
    assert caught.value.next_step


def test_offline_a_set_without_a_lock_is_not_known(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, check=OfKind("no_lock")):
        forced(clients, tmp_path, {"requirements.txt": "exact==1.0\n"}, offline=True)


def test_uv_declares_it_itself_or_has_no_manifest(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    more = '[tool.uv]\noverride-dependencies = ["lea-f==1.1"]\n'
    for name, text in {"a": manifest("lea-f<1.2"), "b": manifest("exact", more=more)}.items():
        with pytest.raises(RecipeError, check=OfKind("direct_dependency")) as caught:
            forced(clients, tmp_path, locked(clients, tmp_path / name, text))
        assert caught.value.next_step == "Use dependency_bump."
    files = locked(clients, tmp_path / "c", manifest("exact==1.0"))
    with pytest.raises(RecipeError, check=OfKind("manifest_missing")):
        forced(clients, tmp_path / "alone", {"uv.lock": files["uv.lock"]})


def test_another_major_is_not_forced_on_a_parent(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    files = locked(clients, tmp_path, manifest("exact==1.0"))
    with pytest.raises(RecipeError, check=OfKind("another_major")):
        forced(clients, tmp_path, files, "2.0")


def test_a_bump_that_a_parent_blocks_tells_a_model_of_the_override(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    files = locked(clients, tmp_path, manifest("exact==1.0"))
    plugin = build_ecosystem(clients)
    with pytest.raises(RecipeError) as caught:
        plugin.apply(plugin.bump("lea-f", "1.2"), LEAF, repository(tmp_path / "repo", files))
    assert caught.value.next_step.startswith("Use override where only others bring it in")


POETRY = """[[package]]
name = "exact"
version = "1.0"
description = ""
optional = false
python-versions = "*"
files = []

[package.dependencies]
lea-f = "1.0"

[[package]]
name = "lea-f"
version = "1.0"
description = ""
optional = false
python-versions = "*"
files = []

[metadata]
lock-version = "2.0"
python-versions = "*"
content-hash = "0"
"""
PIPENV = '{"_meta": {"pipfile-spec": 6}, "default": {"lea-f": {"version": "==1.0"}}, "develop": {}}'


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (
            {
                "poetry.lock": POETRY,
                "pyproject.toml": '[tool.poetry.dependencies]\nexact = "1.0"\n',
            },
            "no_overrides",
        ),
        (
            {
                "poetry.lock": POETRY,
                "pyproject.toml": '[tool.poetry.dependencies]\nlea-f = "1.0"\n',
            },
            "direct_dependency",
        ),
        (
            {"Pipfile.lock": PIPENV, "Pipfile": '[packages]\nexact = "*"\n'},
            "no_overrides",
        ),
        ({"Pipfile.lock": PIPENV, "Pipfile": '[packages]\nlea-f = "*"\n'}, "direct_dependency"),
    ],
)
def test_clients_without_overrides_say_so(
    clients: SubprocessClients, tmp_path: Path, files: dict[str, str], kind: str
) -> None:
    with pytest.raises(RecipeError, check=OfKind(kind)):
        forced(clients, tmp_path, files)
