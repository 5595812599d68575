"""``fallback-tier fix``, from the wheel, on cases that people once met (shared data; skipped where
it isn't): real npm, real uv, recorded registries, a real sandbox. The record of each is checked, then
tampered with."""

import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import Ended, half_written, run, snapshot
from tests.e2e.wheel import BIN, Installed
from tests.fakes.repository import commit_all, git
from tests.registry.recording import at_registry

pytestmark = [pytest.mark.registry, pytest.mark.sandbox]


#: What says where packages came from: in a test that is the recorded registry.
LOCKS = ("package-lock.json", "yarn.lock", "uv.lock")


@dataclass(frozen=True)
class Expected:
    """How a case must end; ``lines`` are those that the patch adds."""

    code: int
    outcome: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


def fixed(proof: str, *lines: str) -> Expected:
    return Expected(0, "verified", {"proof": proof}, lines)


def refused(reason: str, words: str) -> Expected:
    return Expected(4, "refused", {"reason": reason, "sentence": words})


#: Each with one advisory, and with wheels for the Python of today: a requirements file is proved by
#: resolving and installing it. The versions are the lowest fixed ones, as their advisories say.
CASES = {
    # Another pin forbids the fixed version: it moves along.
    "pypi-cryptography-PYSEC-2026-2141-5bf20087": fixed(
        "resolved tree: cryptography 46.0.5", "cffi==2.0.0", "cryptography==46.0.5"
    ),
    "pypi-langchain-anthropic-PYSEC-2026-2556-711b3155": fixed(
        "resolved tree: langchain-anthropic 1.4.6", '  "langchain-anthropic==1.4.6",'
    ),
    # Only the lock changes. It comes from git, which no client of ours fetches: nothing is installed.
    "npm-handlebars-GHSA-q42p-pg8m-cqh6-a6c49b24": fixed(
        "pins: handlebars 4.0.14; known by its text alone, for it is not installed here: yarn.lock",
        "async@1.x:",
        "async@^2.5.0:",
        '  version "2.6.4"',
        "  dependencies:",
        '    lodash "^4.17.14"',
        "",
        '  version "4.0.14"',
        '    async "^2.5.0"',
        '    source-map "^0.6.1"',
        '    uglify-js "^3.1.4"',
        "lodash@^4.17.14:",
        '  version "4.18.1"',
        "source-map@^0.6.1, source-map@~0.6.1:",
        "uglify-js@^3.1.4:",
        '  version "3.19.3"',
    ),
    "pypi-pyasn1-PYSEC-2026-2263-5c9c40ff": fixed(
        "resolved tree: pyasn1 0.6.3",
        "pyasn1==0.6.3 \\",
        "    --hash=sha256:697a8ecd6d98891189184ca1fa05d1bb00e2f84b5977c481452050549c8a72cf \\",
        "    --hash=sha256:a80184d120f0864a52a073acc6fc642847d0be408e7c7252f31390c0f4eadcde",
    ),
    "pypi-virtualenv-PYSEC-2026-2009-affe8edd": fixed(
        "resolved tree: virtualenv 20.36.1", "virtualenv==20.36.1"
    ),
    "pypi-idna-PYSEC-2026-215-776967b7": fixed("resolved tree: idna 3.15", "idna==3.15"),
    "osv-scalibr-inplace-npm-npm": refused("manifest_missing", "no package.json is beside it"),
    "pypi-pygments-PYSEC-2026-2987-c84f414a": fixed(
        "resolved tree: pygments 2.20.0", "pygments==2.20.0"
    ),
}


@dataclass(frozen=True)
class Bench:
    """The cases, a state folder, and the command of the wheel."""

    cases: Path
    place: Path
    installed: Installed

    @property
    def state(self) -> Path:
        return self.place / "state"

    def command(self, *arguments: str | Path) -> Ended:
        path = f"{BIN}:{os.environ['PATH']}"  # uv, which an installer would put beside our script
        return run(*arguments, script=self.installed.script, env={"PATH": path})

    def check_out(self, name: str) -> Path:
        root = Path(shutil.copytree(self.cases / name / "before", self.place / name))
        for lock in (path for kind in LOCKS for path in root.rglob(kind)):
            lock.write_text(at_registry(lock.read_text(), os.environ["NPM_CONFIG_REGISTRY"]))
        commit_all(root)
        return root

    def fix(self, name: str, root: Path) -> Ended:
        advisory = min((self.cases / name / "advisories").glob("*.json"))
        command = ["fix", root, "--advisory", advisory, "--state-dir", self.state, "--json"]
        return self.command(*command)


@pytest.fixture(scope="module")
def cases(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recipe-cases")
    with tarfile.open(shared_data / "recipe-cases.tar.xz") as archive:
        wanted = [one for one in archive if not CASES.keys().isdisjoint(one.name.split("/"))]
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(place, members=wanted)
    return place / "recipe-cases"


@pytest.fixture
def bench(cases: Path, tmp_path: Path, installed: Installed) -> Bench:
    return Bench(cases, tmp_path, installed)


#: One with digests, and a refusal; below: one that moves alone.
WITH_THE_SUITE = ("pypi-pyasn1-PYSEC-2026-2263-5c9c40ff", "osv-scalibr-inplace-npm-npm")


@pytest.mark.parametrize(
    "name",
    [
        *WITH_THE_SUITE,
        *(
            pytest.param(name, marks=pytest.mark.campaign)
            for name in CASES
            if name not in WITH_THE_SUITE
        ),
    ],
)
def test_a_case_ends_as_expected(bench: Bench, name: str) -> None:
    expected = CASES[name]
    root = bench.check_out(name)
    before, head = snapshot(root), git(root, "rev-parse", "HEAD")
    ended = bench.fix(name, root)
    assert ended.code == expected.code, ended
    result = ended.json
    assert result["outcome"] == expected.outcome
    assert half_written(root, bench.state) == []
    assert run("audit", "verify", "--state-dir", bench.state).code == 0
    facts = dict(expected.facts)
    if expected.outcome == "verified":
        application = result["application"]
        assert application["tier"] == "recipe"
        shown = {verdict["gate"]: verdict["detail"] for verdict in result["verdicts"]}
        assert shown["not_vulnerable"] == facts["proof"]
        _check_delivered(bench, name, root, application, expected.lines)
        assert git(root, "rev-parse", "HEAD") == head
        return
    assert snapshot(root) == before
    assert result["reason"] == facts["reason"]
    assert facts.get("sentence", "") in result.get("sentence", "")
    kinds = tuple(attempt["failure_kind"] for attempt in result["prior_attempts"])
    assert kinds == facts.get("failure_kinds", ())


def _check_delivered(
    bench: Bench, name: str, root: Path, application: dict[str, Any], lines: tuple[str, ...]
) -> None:
    """The working tree holds the patch and nothing else; where people made a minimal bump, the
    version is theirs."""
    diff = git(root, "diff", "--no-ext-diff", "--unified=0")
    added = [line[1:] for line in diff.splitlines() if line.startswith("+") and line[1:2] != "+"]
    # Addresses in a yarn.lock are those of the registry of the day.
    of_the_day = ("  resolved ", "  integrity ")
    assert tuple(line for line in added if not line.startswith(of_the_day)) == lines
    changed = git(root, "diff", "--name-only").split()
    assert changed == application["files"]
    assert git(root, "ls-files", "--others") == ""
    case = json.loads((bench.cases / name / "case.json").read_text())
    if case.get("expected_is_minimal_bump"):
        (version,) = case["after_versions"]
        assert any(version in line for line in added)


def test_the_record_is_intact_until_a_byte_is_changed(bench: Bench) -> None:
    names = [
        "pypi-idna-PYSEC-2026-215-776967b7",
        "osv-scalibr-inplace-npm-npm",
    ]
    for name in names:
        root = bench.check_out(name)
        ended, expected = bench.fix(name, root), CASES[name]
        assert (ended.code, ended.json["outcome"]) == (expected.code, expected.outcome), ended
        if expected.lines:
            _check_delivered(bench, name, root, ended.json["application"], expected.lines)
    log = run("audit", "log", "--state-dir", bench.state, "--json").json["fixes"]
    assert [fix["repository"] for fix in log] == names
    verify = ["audit", "verify", "--state-dir"]
    intact = bench.command(*verify, bench.state, "--json")
    assert (intact.code, intact.json["ok"], intact.json["open_fix_count"]) == (0, True, 0)
    assert intact.json["evidence_checked"] >= 1

    db = bench.state / "audit.db"
    data = db.read_bytes()
    at = data.rindex(b'"status":"passed"') + len(b'"status":"')
    db.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    caught = run(*verify, bench.state, "--json")  # the same code, which has started already
    assert caught.code == 7
    assert "payload" in caught.json["first_bad"]["reason"]
    db.write_bytes(data)
    assert run(*verify, bench.state).code == 0
