"""The recipes over real bumps that people committed (shared data; skipped where it isn't).

Clients are not started here (the real ones have tests of their own): a case that needs one ends in
the typed error that says so.
"""

import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm import build_ecosystem as build_npm
from fallback_plugins.pypi import build_ecosystem as build_pypi
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.surveying.survey import pinned_versions
from fallback_tier.advisory import compare_versions, is_affected, load_advisory
from fallback_tier.errors import RecipeError, ToolMissingError
from fallback_tier.execution import CommandResult
from fallback_tier.outcome import NotApplicable, RecipeResult
from tests.unit.shared.recipes import tracked

#: One worker: the cases are run once, before the first test.
pytestmark = pytest.mark.xdist_group("recipe-cases")

ARCHIVE = Path(__file__).parents[2].parent / "shared" / "data" / "recipe-cases.tar.xz"

#: Files that a recipe edits as text, without a client.
TEXT_KINDS = {Kind.REQUIREMENTS, Kind.PYPROJECT}

#: People did more than the bump: pip-compile's annotations, other packages raised with it. Bytes
#: differ, the version doesn't.
MORE_THAN_THE_BUMP = {
    "pypi-aiohttp-PYSEC-2026-2104-41e0608a",
    "pypi-cryptography-PYSEC-2026-2141-5bf20087",
    "pypi-urllib3-PYSEC-2021-108-1b10e085",
    "pypi-virtualenv-PYSEC-2026-2009-affe8edd",
    "pypi-wheel-PYSEC-2026-2047-19735763",
}

#: New hashes are uv's to tell.
HASH_PINNED = {
    "pypi-pyasn1-PYSEC-2026-2263-5c9c40ff",
    "pypi-pyopenssl-PYSEC-2026-2268-e9f736f3",
}


class NoClients:
    """A machine without npm and uv."""

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        raise ToolMissingError(f"{tool} is not here.", next_step="It isn't needed.")


Outcome = RecipeResult | NotApplicable | RecipeError | ToolMissingError


@dataclass(frozen=True)
class Ending:
    """A case after its advisories were handed in, one after the other, in ``root``."""

    name: str
    case: Mapping[str, Any]
    folder: Path
    root: Path
    outcomes: tuple[Outcome, ...]

    @property
    def is_text_only(self) -> bool:
        files = (path for path in (self.folder / "before").rglob("*") if path.is_file())
        return all(
            kind_of(str(path.relative_to(self.folder / "before"))) in TEXT_KINDS for path in files
        )


@pytest.fixture(scope="session")
def endings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ending, ...]:
    if not ARCHIVE.exists():
        pytest.skip("../shared/data/recipe-cases.tar.xz is not here")
    place = tmp_path_factory.mktemp("cases")
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(place)
    files = sorted((place / "recipe-cases").glob("*/case.json"))
    assert len(files) == 154
    return tuple(run_case(file.parent, place / "run" / file.parent.name) for file in files)


def run_case(folder: Path, root: Path) -> Ending:
    case = json.loads((folder / "case.json").read_text())
    shutil.copytree(folder / "before", root)
    outcomes: list[Outcome] = []
    for file in sorted((folder / "advisories").glob("*.json")):
        advisory = load_advisory(file)
        build = build_npm if "npm" in advisory.ecosystems else build_pypi
        plugin, repo = build(NoClients()), tracked(root)
        selection = plugin.select(advisory, repo)
        if isinstance(selection, NotApplicable):
            outcomes.append(selection)
            continue
        try:
            result = plugin.apply(selection, advisory, repo)
        except (RecipeError, ToolMissingError) as error:
            outcomes.append(error)
            continue
        for change in result.changes:
            (root / change.path).write_bytes((change.after or "").encode())
        for move in result.moves:
            assert move.after is not None
            assert not is_affected(advisory, plugin.name, move.package, move.after)
        outcomes.append(result)
    return Ending(folder.name, case, folder, root, tuple(outcomes))


def test_every_result_is_an_upgrade_that_changes_something(endings: tuple[Ending, ...]) -> None:
    results = 0
    for ending in endings:
        ecosystem = "npm" if ending.case["ecosystem"] == "npm" else "PyPI"
        for result in ending.outcomes:
            if not isinstance(result, RecipeResult):
                continue
            results += 1
            assert result.changes, ending.name
            assert all(change.before != change.after for change in result.changes), ending.name
            for move in result.moves:
                for before in move.before:
                    assert compare_versions(ecosystem, move.after or "", before) > 0, ending.name
    assert results >= 75


def test_minimal_text_bumps_end_exactly_as_committed(endings: tuple[Ending, ...]) -> None:
    """97 cases are minimal; those that are text only end on the version that people chose."""
    judged = 0
    for ending in endings:
        case = ending.case
        minimal = case.get("expected_is_minimal_bump") and ending.is_text_only
        if not minimal or ending.name in HASH_PINNED:
            continue
        judged += 1
        expected = ending.folder / "expected"
        for file in (path for path in expected.rglob("*") if path.is_file()):
            path = str(file.relative_to(expected))
            ours, theirs = (ending.root / path).read_bytes(), file.read_bytes()
            pins = [
                pinned_versions(path, text.decode(), case["package"]) for text in (ours, theirs)
            ]
            assert pins[0] == pins[1], (ending.name, path)
            exact = case["expected_kind"].startswith("exact bytes")
            if exact and ending.name not in MORE_THAN_THE_BUMP:
                assert ours == theirs, (ending.name, path)
    assert judged == 66


def test_what_isnt_supported_is_refused_by_name(endings: tuple[Ending, ...]) -> None:
    for ending in endings:
        # Later advisories of a case may find the package fixed: that is no refusal.
        if any(isinstance(outcome, RecipeResult) for outcome in ending.outcomes):
            continue
        for outcome in ending.outcomes:
            if isinstance(outcome, ToolMissingError):
                continue
            assert isinstance(outcome, NotApplicable | RecipeError)
            if outcome.reason is RefusalReason.NOT_AFFECTED:
                # Only the fixtures whose packages are transitive, and that have no lock to tell;
                # which needs a client.
                assert ending.name.startswith("osv-scalibr"), ending.name
    by_name = {ending.name: ending.outcomes for ending in endings}
    for name in HASH_PINNED:
        assert all(isinstance(outcome, ToolMissingError) for outcome in by_name[name])


@pytest.mark.parametrize(
    ("name", "spec", "version"),
    [
        ("npm-jquery-GHSA-jpcq-cgw6-v4j6-f645d88b", "jquery", "3.5.0"),
        ("npm-js-yaml-GHSA-2pr6-76vf-7546-49491432", "js-yaml", "3.13.0"),
        ("npm-eslint-GHSA-jcgq-xh2f-2hfm-ec393244", "eslint", "4.18.2"),
    ],
)
def test_npm_manifests_without_a_lock(
    endings: tuple[Ending, ...], name: str, spec: str, version: str
) -> None:
    """People went further than the lowest fixed version here; the recipe doesn't."""
    (ending,) = (ending for ending in endings if ending.name == name)
    (result,) = ending.outcomes
    assert isinstance(result, RecipeResult)
    (move,) = result.moves
    assert (move.package, move.after) == (spec, version)
    (change,) = result.changes
    assert change.before is not None
    assert change.after is not None
    pairs = zip(change.before.splitlines(), change.after.splitlines(), strict=True)
    (changed,) = [(before, now) for before, now in pairs if before != now]
    assert changed[1] == changed[0].replace(move.before[0], version)
