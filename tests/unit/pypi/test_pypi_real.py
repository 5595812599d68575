"""The PyPI recipe with the real uv, on tiny packages."""

import tomllib
from pathlib import Path

import pytest

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_plugins.pypi.manifests.pyproject import harmless
from fallback_plugins.pypi.resolving.uv_client import uv_lock
from fallback_plugins.pypi.surveying.survey import pinned_versions
from fallback_tier.errors import RecipeError
from tests.kinds import OfKind
from tests.unit.pypi.pypi_files import RECORD, pyproject
from tests.unit.shared.recipes import advisory, after, fix, real_clients, repository


def real_lock(root: Path, text: str, *pins: str) -> str:
    repository(root, {"pyproject.toml": text})
    upgrades = [f"--upgrade-package={pin}" for pin in pins]
    made = real_clients().run("uv", ["lock", "--no-build", *upgrades], cwd=root, timeout_s=120)
    assert made.ok, made.output
    return (root / "uv.lock").read_text()


@pytest.mark.registry
@pytest.mark.parametrize("requirement", ["idna>=3.0", "idna==3.6", "idna~=3.6.0"])
def test_real_uv_bumps_one_package_to_the_lowest_fix(tmp_path: Path, requirement: str) -> None:
    build = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    text = pyproject(requirement, "six<1.17", more=build)
    old = real_lock(tmp_path / "made", text, "idna==3.6", "six==1.15.0")
    repo = repository(tmp_path / "repo", {"pyproject.toml": text, "uv.lock": old})

    result = fix(build_ecosystem(real_clients()), RECORD, repo)

    new = after(result, "uv.lock")
    assert pinned_versions("uv.lock", new, "idna") == ("3.7",)
    assert pinned_versions("uv.lock", new, "six") == ("1.15.0",)
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    own = next(it for it in tomllib.loads(new)["package"] if it["name"] == "app")
    # The scratch copy's stand-in build system left no trace.
    assert own["source"] == {"editable": "."}


@pytest.mark.registry
def test_real_uv_builds_nothing_of_the_project(tmp_path: Path) -> None:
    """--no-build alone lets uv run the project's own backend; the stand-in backend must not."""
    witness = tmp_path / "ran"
    hook = f"open({str(witness)!r}, 'w').close()\n"
    text = pyproject(
        "idna>=3.0",
        more='[build-system]\nrequires = []\nbuild-backend = "hook"\nbackend-path = ["."]\n',
    )
    dynamic = text.replace('version = "1"', 'dynamic = ["version"]')
    old = real_lock(tmp_path / "made", text, "idna==3.6")
    repo = repository(
        tmp_path / "repo", {"pyproject.toml": dynamic, "uv.lock": old, "hook.py": hook}
    )
    result = fix(build_ecosystem(real_clients()), RECORD, repo)
    # A version stands for the one that only a build could tell: nothing is left for a backend to say.
    assert pinned_versions("uv.lock", after(result, "uv.lock"), "idna") == ("3.7",)
    assert 'name = "app"\nversion = "1"' in after(result, "uv.lock")
    assert not witness.exists()

    # Where the build would tell what is required, nothing can stand for it.
    hidden = text.replace('version = "1"', 'version = "1"\ndynamic = ["optional-dependencies"]')
    other = repository(
        tmp_path / "hidden", {"pyproject.toml": hidden, "uv.lock": old, "hook.py": hook}
    )
    with pytest.raises(RecipeError, check=OfKind("dynamic")) as caught:
        fix(build_ecosystem(real_clients()), RECORD, other)
    assert caught.value.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert not witness.exists()

    # Without the stand-in version uv meets the stand-in backend: neither runs the project's own.
    files = {"pyproject.toml": harmless("pyproject.toml", dynamic), "uv.lock": old, "hook.py": hook}
    with pytest.raises(RecipeError, check=OfKind("dynamic")):
        uv_lock(real_clients(), files, "uv.lock", ["--upgrade-package=idna==3.7"])
    assert not witness.exists()

    # The alarm works: uv by itself, in the repository, does run the hook.
    real_clients().run("uv", ["lock", "--no-build"], cwd=repo.root, timeout_s=120)
    assert witness.exists()


@pytest.mark.registry
def test_real_uv_that_cant_resolve_is_a_typed_refusal(tmp_path: Path) -> None:
    text = pyproject("idna>=3.0")
    old = real_lock(tmp_path / "made", text, "idna==3.6")
    repo = repository(tmp_path / "repo", {"pyproject.toml": text, "uv.lock": old})
    plugin = build_ecosystem(real_clients())

    # A fixed version that was never published: the next release is as good.
    result = fix(plugin, advisory("PyPI", "idna", [("0", "3.6.999")]), repo)
    assert pinned_versions("uv.lock", after(result, "uv.lock"), "idna") == ("3.7",)
    assert "3.6.999 was never published" in " ".join(result.notes)

    # There is none above.
    with pytest.raises(RecipeError, match=r"3\.999") as caught:
        fix(plugin, advisory("PyPI", "idna", [("0", "3.999")]), repo)
    assert caught.value.reason is RefusalReason.NO_FIXED_VERSION
