"""The peer's guided-remediation fixtures against their own packages, served on loopback.

Hermetic: no registry but ours. The whole set, with the real registries: ``make bench-recipes``.
"""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep
from tests.campaigns.recipes_bench.cases import ARCHIVE, Case, Group, unpack
from tests.campaigns.recipes_bench.fixture import moved
from tests.campaigns.recipes_bench.judge import Ending, Verdict, judge
from tests.campaigns.recipes_bench.raw import Raw
from tests.campaigns.recipes_bench.reviews import Reviews
from tests.campaigns.recipes_bench.run import run_case
from tests.campaigns.recipes_bench.versions import affecting

FIXTURES = (
    "e2e-npm-basic",
    "e2e-npm-basicrelax",
    "e2e-python-relax-poetry",
    "e2e-python-relax-requirements",
    "inplace-npm-npm",
    "relax-npm-deepen",
    "relax-npm-diamond",
    "relax-npm-introduce-vuln",
    "relax-npm-removed-vuln",
    "relax-npm-simple",
    "relax-npm-vuln-without-fix",
    "relax-python-deepen",
    "relax-python-diamond",
    "relax-python-max-depth",
    "relax-python-no-fix",
    "relax-python-non-constraining",
    "relax-python-removed",
    "relax-python-simple",
)

#: What people's commits did beside the bump, each found by reading the commit.
_DID_ELSE = {
    "npm-acorn-GHSA-6chw-6frg-f759-8ed7b28a": "downgrade",
    "npm-handlebars-GHSA-w457-6q6x-cgp9-627dc6b6": "downgrade",
    "npm-lodash-GHSA-4xc9-xhrj-v574-0543fc23": "formatting lost",
    "npm-mongoose-GHSA-8687-vv9j-hgph-e7a8f64b": "downgrade",
    "pypi-h11-PYSEC-2026-348-c6971c6a": "downgrade",
    "pypi-idna-PYSEC-2026-215-1e6ff974": "downgrade",
    "pypi-langchain-core-PYSEC-2026-1517-8963bb2b": "comment lost",
    "pypi-urllib3-PYSEC-2026-1994-e60fa0ad": "more than the package changed",
}


@pytest.fixture(scope="module")
def cases(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    if not (shared_data / ARCHIVE).is_file():
        pytest.skip(f"../shared/data/{ARCHIVE} is not here")
    return {case.name: case for case in unpack(shared_data, tmp_path_factory.mktemp("cases"))}


def test_the_fixtures_are_all_here(cases: dict[str, Case]) -> None:
    named = {name for name, case in cases.items() if case.group is Group.FIXTURE}

    assert named == {f"osv-scalibr-{name}" for name in FIXTURES}


def test_the_judge_agrees_with_what_people_committed(cases: dict[str, Case]) -> None:
    """Their commits, judged as if a recipe had made them: fixed, but for what they really did else."""
    committed = [case for case in cases.values() if case.group is not Group.FIXTURE]

    verdicts = [judge(case, _as_committed(case), Reviews()) for case in committed]

    assert {one.case: one.cause for one in verdicts if one.ending is Ending.MISS} == _DID_ELSE
    minimal = [one for one in verdicts if one.group is Group.MINIMAL]
    assert len(minimal) == 72
    assert all(one.exact_version and one.exact_bytes and one.line_ratio == 1 for one in minimal)


def _as_committed(case: Case) -> Raw:
    changes = {path: text for path, text in case.expected.items() if case.before.get(path) != text}
    move = {"step": LadderStep.DIRECT_BUMP.value, "package": case.facts["package"]}
    return Raw(case.name, "fixed", changes=dict(changes), proof_level="pins", moves=[move])


@pytest.mark.parametrize("name", [name for name in FIXTURES if name.startswith("e2e")])
def test_the_universe_has_the_peers_findings(
    cases: dict[str, Case], name: str, tmp_path: Path
) -> None:
    """Our registry and our judge see in the untouched files what the peer's scan sees there."""
    case = cases[f"osv-scalibr-{name}"]
    result = json.loads((case.folder / "expected" / "result.json").read_text())
    theirs = {
        (item["id"], package["name"], package["version"])
        for item in result["vulnerabilities"]
        for package in item["packages"]
    }

    with moved(case) as there:
        installed = there.installed(there.texts, tmp_path / "scratch")

    ours = {
        (found, package, version)
        for package, version in installed
        for found in affecting(case.advisories, case.ecosystem, package, version)
    }
    assert ours == theirs


@pytest.mark.parametrize("name", FIXTURES)
def test_the_recipes_do_what_the_peer_does_or_better(cases: dict[str, Case], name: str) -> None:
    case = cases[f"osv-scalibr-{name}"]

    verdict = judge(case, run_case(case), Reviews.load())

    assert verdict.ending is not Ending.MISS, _words(verdict)


def _words(verdict: Verdict) -> str:
    return f"{verdict.cause}: {verdict.detail}"
