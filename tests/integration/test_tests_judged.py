"""The campaign's gate, mounted next to a real fix: the tests gate fails the broken function, and the fix
ends as it does without."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.campaigns.tests_judged.breaking import answers, breaks, mount
from tests.e2e.command import osv, repository, run
from tests.integration.gate_setup import needs_sandbox
from tests.registry import Universe, serve

pytestmark = pytest.mark.sandbox

FILES = {
    "requirements.txt": "left==1.0.0\n",
    "app.py": "def double(one):\n    return one * 2\n\n\ndef unused(one):\n    return one\n",
    "test_app.py": "import unittest\n\nfrom app import double\n\n\n"
    "class Doubles(unittest.TestCase):\n    def test_double(self):\n"
    "        self.assertEqual(double(1), 2)\n",
}


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    universe = Universe()
    for version in ("1.0.0", "1.5.0"):
        universe.pypi("left", version, files={"left/__init__.py": ""})
    with serve(universe) as served:
        yield served.environ


def test_broken_function_fails_the_tests_gate(tmp_path: Path, registry: Mapping[str, str]) -> None:
    needs_sandbox()
    root = repository(tmp_path / "repo", FILES)
    (tmp_path / "advisory.json").write_text(osv("left", fixed="1.5.0"))
    found = breaks(root, "PyPI", "a case")
    assert [one.function for one in found] == ["double", "unused"]
    # Asked first about what no test reaches: it goes on to the next.
    env = {**registry, **mount(tmp_path, found[::-1])}
    state = ("--state-dir", tmp_path / "state", "--keys", tmp_path / "keys")
    ended = run("fix", root, "--advisory", tmp_path / "advisory.json", "--json", *state, env=env)
    assert ended.code == exit_codes.OK, ended
    statuses = {one["gate"]: one["status"] for one in ended.json["verdicts"]}
    assert (statuses["broken_function"], statuses["tests"]) == ("skipped", "passed")
    assert [one["status"] for one in answers(tmp_path)] == ["passed", "failed"]
    assert "def double(one):\n    return" in (root / "app.py").read_text(), (
        "the break is not delivered"
    )
