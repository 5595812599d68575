"""`scan`: a lock of each client, what the database answers, and what is never called clean."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fallback_tier.advisory.query import MAX_QUERIES
from fallback_tier.cli import exit_codes
from tests.e2e.command import SCRIPT, Ended, repository, run
from tests.fakes.osv_api import OsvApi, osv_api
from tests.fakes.repository import commit_all, write
from tests.registry import Universe, serve
from tests.unit.advisory.osv_shape import OSV_SCHEMA
from tests.unit.shared.locks_support import poetry_lock
from tests.waiting import came, joined

GHSA, CVE = "GHSA-2222-3333-4444", "CVE-2026-1234"
HIGH = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"
SHA512 = "sha512-" + "A" * 86 + "=="
PACKAGE_JSON = json.dumps({"name": "app", "version": "1.0.0", "dependencies": {"top": "^1.0.0"}})
PYPROJECT = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\n'

#: One project a client: the application requires top 1.0.0, and that the affected left 1.0.0.
PROJECTS: dict[str, tuple[str, dict[str, str]]] = {
    "npm": (
        "npm",
        {
            "package.json": PACKAGE_JSON,
            "package-lock.json": json.dumps(
                {
                    "name": "app",
                    "version": "1.0.0",
                    "lockfileVersion": 3,
                    "requires": True,
                    "packages": {
                        "": json.loads(PACKAGE_JSON),
                        "node_modules/top": {
                            "version": "1.0.0",
                            "resolved": "https://registry.example/top/-/top-1.0.0.tgz",
                            "integrity": SHA512,
                            "dependencies": {"left": "^1.0.0"},
                        },
                        "node_modules/left": {
                            "version": "1.0.0",
                            "resolved": "https://registry.example/left/-/left-1.0.0.tgz",
                            "integrity": SHA512,
                        },
                    },
                }
            ),
        },
    ),
    "yarn": (
        "npm",
        {
            "package.json": PACKAGE_JSON,
            "yarn.lock": "# yarn lockfile v1\n\n\nleft@^1.0.0:\n"
            '  version "1.0.0"\n'
            f'  resolved "https://registry.example/left/-/left-1.0.0.tgz#{"a" * 40}"\n'
            f"  integrity {SHA512}\n\ntop@^1.0.0:\n"
            '  version "1.0.0"\n'
            f'  resolved "https://registry.example/top/-/top-1.0.0.tgz#{"b" * 40}"\n'
            f'  integrity {SHA512}\n  dependencies:\n    left "^1.0.0"\n',
        },
    ),
    "pnpm": (
        "npm",
        {
            "package.json": PACKAGE_JSON,
            "pnpm-lock.yaml": "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n"
            "  excludeLinksFromLockfile: false\n\nimporters:\n\n  .:\n    dependencies:\n      top:\n"
            "        specifier: ^1.0.0\n        version: 1.0.0\n\npackages:\n\n  left@1.0.0:\n"
            f"    resolution: {{integrity: {SHA512}}}\n\n  top@1.0.0:\n"
            f"    resolution: {{integrity: {SHA512}}}\n\nsnapshots:\n\n  left@1.0.0: {{}}\n\n"
            "  top@1.0.0:\n    dependencies:\n      left: 1.0.0\n",
        },
    ),
    "uv": (
        "PyPI",
        {
            "pyproject.toml": f'{PYPROJECT}dependencies = ["top"]\n',
            "uv.lock": 'version = 1\nrevision = 3\nrequires-python = ">=3.11"\n\n'
            '[[package]]\nname = "app"\nversion = "1"\nsource = { virtual = "." }\n'
            'dependencies = [{ name = "top" }]\n\n[package.metadata]\n'
            'requires-dist = [{ name = "top" }]\n\n'
            + "".join(
                f'[[package]]\nname = "{name}"\nversion = "1.0.0"\n'
                f'source = {{ registry = "https://index.example/simple" }}\n{more}'
                f'wheels = [{{ url = "https://index.example/packages/{name}-1.0.0-py3-none-any'
                f'.whl", hash = "sha256:{"0" * 64}", size = 1 }}]\n\n'
                for name, more in (("left", ""), ("top", 'dependencies = [{ name = "left" }]\n'))
            ),
        },
    ),
}

PROJECTS["Poetry"] = (
    "PyPI",
    {
        "pyproject.toml": '[tool.poetry]\nname = "app"\nversion = "1"\ndescription = ""\nauthors = []\n'
        '\n[tool.poetry.dependencies]\npython = "^3.9"\ntop = "^1.0.0"\n',
        "poetry.lock": poetry_lock(
            *(
                f'[[package]]\nname = "{name}"\nversion = "1.0.0"\ndescription = ""\noptional = false\n'
                f'python-versions = ">=3.7"\nfiles = [\n    {{file = "{name}-1.0.0-py3-none-any.whl", '
                f'hash = "sha256:{"0" * 64}"}},\n]\n{more}'
                for name, more in (
                    ("left", ""),
                    ("top", '\n[package.dependencies]\nleft = ">=1.0"\n'),
                )
            )
        ),
    },
)


def record(name: str = GHSA, ecosystem: str = "PyPI", **facts: Any) -> dict[str, Any]:
    """A record of the package left, affected below 1.5.0, in the published shape."""
    document: dict[str, Any] = {
        "schema_version": "1.7.3",
        "id": name,
        "modified": "2026-01-01T00:00:00Z",
        "summary": "Denial of service",
        "affected": [
            {
                "package": {"name": "left", "ecosystem": ecosystem},
                "ranges": [
                    {
                        "type": "SEMVER" if ecosystem == "npm" else "ECOSYSTEM",
                        "events": [{"introduced": "0"}, {"fixed": "1.5.0"}],
                    }
                ],
            }
        ],
        "severity": [{"type": "CVSS_V3", "score": HIGH}],
        **facts,
    }
    jsonschema.validate(document, OSV_SCHEMA)
    return document


@pytest.fixture
def api() -> Iterator[OsvApi]:
    with osv_api({GHSA: record()}) as served:
        served.affected["PyPI", "left", "1.0.0"] = [GHSA]
        yield served


class Scenario:
    """A repository, a state folder and an OSV API."""

    def __init__(self, place: Path, api: OsvApi) -> None:
        self.place, self.api = place, api
        self.env: Mapping[str, str] = {}

    def commit(self, files: Mapping[str, str]) -> None:
        self.repo = repository(self.place / "repo", files)

    def commit_again(self, files: Mapping[str, str]) -> None:
        write(self.repo, dict(files))
        commit_all(self.repo)

    def __call__(self, *more: str) -> Ended:
        state = str(self.place / "state")
        words = ["scan", str(self.repo), "--advisory-url", self.api.url, "--state-dir", state]
        return run(*words, *more, env=self.env)

    def quick(self, *more: str) -> Any:
        """Of the files alone: a lock in step needs no client."""
        return self("--no-resolve", "--json", *more)


@pytest.fixture
def scenario(tmp_path: Path, api: OsvApi) -> Scenario:
    scenario = Scenario(tmp_path, api)
    scenario.commit(PROJECTS["uv"][1])
    return scenario


@pytest.mark.parametrize("client", PROJECTS)
def test_a_lock_of_each_client_is_read(tmp_path: Path, api: OsvApi, client: str) -> None:
    ecosystem, files = PROJECTS[client]
    api.records[GHSA] = record(ecosystem=ecosystem, aliases=[CVE])
    api.affected = {(ecosystem, "left", "1.0.0"): [GHSA]}
    scenario = Scenario(tmp_path, api)
    scenario.commit(files)
    ended = scenario.quick()
    assert ended.code == exit_codes.VULNERABLE, ended
    (finding,) = ended.json["findings"]
    assert (finding["id"], finding["aliases"]) == (GHSA, [CVE])
    assert (finding["package"], finding["versions"]) == ("left", ["1.0.0"])
    assert (finding["severity"], finding["fixed"]) == ("high", ["1.5.0"])
    assert (finding["direct"], finding["development"]) == (False, False)
    (path,) = finding["paths"]
    assert path[1:] == ["top 1.0.0", "left 1.0.0"], path
    assert ended.json["packages"] == 2
    asked = {(it["package"]["name"], it["version"]) for it in api.batches[0]}
    assert asked == {("left", "1.0.0"), ("top", "1.0.0")}


@pytest.mark.parametrize("client", PROJECTS)
def test_nothing_vulnerable(tmp_path: Path, api: OsvApi, client: str) -> None:
    api.affected = {}
    scenario = Scenario(tmp_path, api)
    scenario.commit(PROJECTS[client][1])
    ended = scenario.quick()
    assert ended.code == exit_codes.OK, ended
    assert (ended.json["findings"], ended.json["unread"]) == ([], [])
    assert ended.json["schema_version"] == 1


def test_a_manifest_that_requires_nothing_needs_no_lock(tmp_path: Path, api: OsvApi) -> None:
    """Of an entry point, under a name that npm refuses: there is nothing to resolve."""
    scenario = Scenario(tmp_path, api)
    entry_point = json.dumps({"name": "@app/react/offline", "main": "../dist/offline.js"})
    scenario.commit({**PROJECTS["npm"][1], "react/offline/package.json": entry_point})
    ended = scenario.quick()
    assert ended.code == exit_codes.OK, ended
    assert (ended.json["packages"], ended.json["unread"]) == (2, [])


def test_a_manifest_with_an_odd_requirement_is_not_passed_over(tmp_path: Path, api: OsvApi) -> None:
    scenario = Scenario(tmp_path, api)
    odd = json.dumps({"dependencies": {"left": {}}})
    scenario.commit({**PROJECTS["npm"][1], "react/offline/package.json": odd})
    ended = scenario.quick()
    assert ended.code == exit_codes.UNKNOWN, ended
    assert [it["path"] for it in ended.json["unread"]] == ["react/offline/package.json"]


def test_the_step_is_the_plans(tmp_path: Path, api: OsvApi) -> None:
    """A pinned requirement, resolved by its client; the same step as `plan` shows."""
    universe = Universe()
    for version in ("1.0.0", "1.5.0"):
        universe.pypi("left", version)
    scenario = Scenario(tmp_path, api)
    scenario.commit({"requirements.txt": "left==1.0.0\n", "app.py": "import left\n"})
    with serve(universe) as served:
        scenario.env = served.environ
        ended = scenario("--json")
        text = scenario()
    assert ended.code == text.code == exit_codes.VULNERABLE, (ended, text)
    (finding,) = ended.json["findings"]
    assert finding["direct"]
    (step,) = finding["steps"]
    assert (step["manifest"], step["step"]) == ("requirements.txt", "direct_bump")
    assert (step["before"], step["after"]) == (["1.0.0"], "1.5.0")
    assert all(len(line) <= 80 for line in text.out.splitlines()), text.out
    assert GHSA in text.out


OTHER = "GHSA-2222-3333-5555"


def test_what_one_version_clears_has_a_step_though_no_version_clears_all(
    tmp_path: Path, api: OsvApi
) -> None:
    """Two advisories of a package, one of them fixed in a release that nobody can install."""
    universe = Universe()
    for version in ("1.0.0", "1.5.0"):
        universe.pypi("left", version)
    never = record(OTHER, severity=[])
    never["affected"][0]["ranges"][0]["events"][1]["fixed"] = "2.0.0"
    api.records[OTHER] = never
    api.affected["PyPI", "left", "1.0.0"] = [GHSA, OTHER]
    scenario = Scenario(tmp_path, api)
    scenario.commit({"requirements.txt": "left==1.0.0\n", "app.py": "import left\n"})
    with serve(universe) as served:
        scenario.env = served.environ
        ended = scenario("--json")
        fixed = scenario("--fix", "--dry-run", "--json")
    first, second = ended.json["findings"]
    assert (first["id"], second["id"]) == (GHSA, OTHER)  # of unknown severity: last
    assert [step["after"] for step in first["steps"]] == ["1.5.0"]
    assert second["steps"] == []
    assert "2.0.0" in second["why_not"]
    assert fixed.code == exit_codes.REFUSED, fixed
    assert [one["id"] for one in fixed.json["not_fixed"]] == [OTHER]


def test_development_alone_is_left_out_by_production(scenario: Scenario) -> None:
    files = dict(PROJECTS["uv"][1])
    files["pyproject.toml"] = f'{PYPROJECT}\n[dependency-groups]\ndev = ["top"]\n'
    files["uv.lock"] = files["uv.lock"].replace(
        'dependencies = [{ name = "top" }]\n\n[package.metadata]\nrequires-dist = [{ name = "top" }]\n',
        '\n[package.dev-dependencies]\ndev = [{ name = "top" }]\n\n[package.metadata]\n\n'
        '[package.metadata.requires-dev]\ndev = [{ name = "top" }]\n',
    )
    scenario = Scenario(scenario.place / "other", scenario.api)
    scenario.commit(files)
    ended = scenario.quick()
    assert [it["development"] for it in ended.json["findings"]] == [True], ended
    ended = scenario.quick("--production")
    assert ended.code == exit_codes.OK
    assert (ended.json["findings"], ended.json["development"]) == ([], 1)


@pytest.mark.parametrize("client", ["npm", "yarn", "pnpm", "Poetry"])
def test_what_a_manifest_declares_for_development_is(
    tmp_path: Path, api: OsvApi, client: str
) -> None:
    """Also what such a package requires; the same package required for production is production's."""
    ecosystem, files = PROJECTS[client]
    api.records[GHSA] = record(ecosystem=ecosystem)
    api.affected = {(ecosystem, "left", "1.0.0"): [GHSA]}
    scenario = Scenario(tmp_path, api)
    scenario.commit(
        {
            path: text.replace('"dependencies": {"top": "^1', '"devDependencies": {"top": "^1')
            .replace("    dependencies:\n      top:", "    devDependencies:\n      top:")
            .replace('top = "^1', '[tool.poetry.group.dev.dependencies]\ntop = "^1')
            for path, text in files.items()
        }
    )
    ended = scenario.quick()
    (finding,) = ended.json["findings"]
    assert (finding["development"], ended.json["unread"]) == (True, []), ended


def test_a_local_build_is_asked_about_as_its_release(tmp_path: Path, api: OsvApi) -> None:
    """Databases list releases: 1.0.0+cpu is in none."""
    scenario = Scenario(tmp_path, api)
    scenario.commit(
        {
            path: text.replace(
                'name = "left"\nversion = "1.0.0"', 'name = "left"\nversion = "1.0.0+cpu"'
            )
            for path, text in PROJECTS["uv"][1].items()
        }
    )
    ended = scenario.quick()
    assert [it["versions"] for it in ended.json["findings"]] == [["1.0.0+cpu"]], ended
    assert ended.json["packages"] == 2


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({}, "high"),
        ({"severity": []}, "unknown"),
        ({"severity": [], "database_specific": {"severity": "MODERATE"}}, "medium"),
        ({"database_specific": {"severity": "CRITICAL"}}, "critical"),
        ({"severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/none"}]}, "unknown"),
    ],
)
def test_the_severity_and_its_floor(scenario: Scenario, facts: dict[str, Any], level: str) -> None:
    """What no database rates may be anything: it is shown whatever the floor."""
    scenario.api.records[GHSA] = record()
    scenario.api.records[GHSA] |= facts
    (finding,) = scenario.quick().json["findings"]
    assert finding["severity"] == level
    ended = scenario.quick("--severity", "high")
    is_shown = level != "medium"
    assert ended.code == (exit_codes.VULNERABLE if is_shown else exit_codes.OK)
    assert ended.json["below"] == (0 if is_shown else 1)


def test_the_highest_severity_of_all_records_counts(scenario: Scenario) -> None:
    scenario.api.records[GHSA] = record(
        aliases=[CVE], severity=[], database_specific={"severity": "LOW"}
    )
    scenario.api.records[CVE] = record(CVE, aliases=[GHSA])
    scenario.api.affected["PyPI", "left", "1.0.0"] = [GHSA, CVE]
    (finding,) = scenario.quick().json["findings"]
    assert finding["severity"] == "high"


@pytest.mark.parametrize("name", [GHSA, GHSA.lower(), CVE])
@pytest.mark.parametrize("days", [-1, 0, 1])
def test_an_advisory_is_ignored_until_its_day_has_passed(
    scenario: Scenario, name: str, days: int
) -> None:
    scenario.api.records[GHSA] = record(aliases=[CVE])
    until = (datetime.now(UTC) + timedelta(days=days)).date()
    ended = scenario.quick("--ignore", f"{name},{until},no untrusted input, ever")
    if days < 0:
        assert ended.code == exit_codes.VULNERABLE
        assert ended.json["expired"] == [name]
        assert ended.json["ignored"] == []
    else:
        assert ended.code == exit_codes.OK, ended
        assert ended.json["findings"] == []
        (ignored,) = ended.json["ignored"]
        assert (ignored["finding"]["id"], ignored["until"]) == (GHSA, str(until))
        assert ignored["reason"] == "no untrusted input, ever"


@pytest.mark.parametrize("text", [GHSA, f"{GHSA},soon,why", f"{GHSA},2026-12-31,", ",2026-12-31,x"])
def test_an_ignore_has_a_date_and_a_reason(scenario: Scenario, text: str) -> None:
    ended = scenario("--ignore", text)
    assert ended.code == exit_codes.BAD_INPUT
    assert scenario.api.batches == []


#: One rule each that hides the finding, in a file: what it says, and where the document counts it.
HIDING = {
    "ignore": f'ignore = [{{id = "{GHSA}", reason = "no untrusted input", until = 2999-12-31}}]',
    "severity": 'severity = "critical"',
}


@pytest.mark.parametrize("key", HIDING)
@pytest.mark.parametrize("source", ["repository", "users_file", "given_file", "variable"])
def test_a_rule_of_any_source_is_counted_with_its_source(
    tmp_path: Path, api: OsvApi, key: str, source: str
) -> None:
    """A repository's too: it is others' text, so what it hides is never hidden silently."""
    scenario = Scenario(tmp_path, api)
    text = f"[tool.fallback-tier]\n{HIDING[key]}\n"
    files = dict(PROJECTS["uv"][1])
    more: list[str] = []
    if source == "repository":
        files[".fallback-tier.toml"] = text
    elif source == "variable":
        value = f"{GHSA},2999-12-31,no untrusted input" if key == "ignore" else "critical"
        scenario.env = {f"FALLBACK_TIER_{key.upper()}": value}
    else:
        (tmp_path / "own.toml").write_text(text)
        own = str(tmp_path / "own.toml")
        if source == "users_file":
            scenario.env = {"FALLBACK_TIER_CONFIG": own}
        else:
            more = ["--config", own]
    scenario.commit(files)
    ended = scenario.quick(*more)
    assert ended.code == exit_codes.OK, ended
    (rule,) = ended.json["rules"]
    assert (rule["key"], rule["source"]) == (key, source)
    assert ended.json["findings"] == []
    if key == "ignore":
        (ignored,) = ended.json["ignored"]
        assert (ignored["finding"]["id"], ignored["where"]) == (GHSA, rule["where"])
    else:
        assert ended.json["below"] == 1
    shown = scenario("--no-resolve", *more)
    assert "".join(rule["where"].split()) in "".join(shown.out.split())


@pytest.mark.parametrize("words", [("--severity", "none"), ("--config", "/dev/null")])
def test_the_user_may_look_behind_a_repositorys_rules(
    tmp_path: Path, api: OsvApi, words: tuple[str, ...]
) -> None:
    scenario = Scenario(tmp_path, api)
    text = f"[tool.fallback-tier]\n{HIDING['severity']}\n"
    scenario.commit({**PROJECTS["uv"][1], ".fallback-tier.toml": text})
    assert scenario.quick().code == exit_codes.OK
    ended = scenario.quick(*words)
    assert (ended.code, ended.json["below"]) == (exit_codes.VULNERABLE, 0)


def test_uncommitted_rules_do_not_count(scenario: Scenario) -> None:
    (scenario.repo / ".fallback-tier.toml").write_text(
        f"[tool.fallback-tier]\n{HIDING['severity']}\n"
    )
    assert scenario.quick().code == exit_codes.VULNERABLE


def test_a_folder_means_its_whole_repository(scenario: Scenario) -> None:
    (scenario.repo / "docs").mkdir()
    words = ("--advisory-url", scenario.api.url, "--state-dir", str(scenario.place / "state"))
    ended = run("scan", "--no-resolve", "--json", *words, cwd=scenario.repo / "docs")
    assert ended.code == exit_codes.VULNERABLE, ended


def test_what_the_database_lists_beyond_its_ranges_is_shown(scenario: Scenario) -> None:
    document = record()
    document["affected"][0]["ranges"][0]["events"] = [{"introduced": "0"}, {"fixed": "0.9"}]
    scenario.api.records[GHSA] = document
    ended = scenario.quick()
    assert ended.code == exit_codes.VULNERABLE, ended
    assert [it["disputed"] for it in ended.json["findings"]] == [["1.0.0"]]


def test_what_a_records_ranges_cover_beyond_the_answer_is_shown(scenario: Scenario) -> None:
    """The answer lists it for top alone; its record covers left as well."""
    document = record()
    other = {**document["affected"][0], "package": {"name": "top", "ecosystem": "PyPI"}}
    document["affected"].append(other)
    scenario.api.records[GHSA] = document
    scenario.api.affected = {("PyPI", "top", "1.0.0"): [GHSA]}
    found = scenario.quick().json["findings"]
    assert sorted(it["package"] for it in found) == ["left", "top"]
    assert [it["disputed"] for it in found] == [[], []]


def test_all_pages_are_asked_for(scenario: Scenario) -> None:
    names = [f"CVE-2026-{10_000 + number}" for number in range(5)]
    for name in names:
        scenario.api.records[name] = record(name)
    scenario.api.affected["PyPI", "left", "1.0.0"] = names
    scenario.api.page = 2
    ended = scenario.quick()
    assert sorted(it["id"] for it in ended.json["findings"]) == names
    assert len(scenario.api.batches) == 3


def test_a_kept_answer_is_used_offline_and_dated(scenario: Scenario) -> None:
    first = scenario.quick().json
    before = len(scenario.api.requests), len(scenario.api.batches)
    ended = scenario.quick("--offline")
    assert ended.code == exit_codes.VULNERABLE, ended
    assert ended.json["findings"] == first["findings"]
    assert ended.json["asked"]["kept"]
    assert ended.json["asked"]["answered"] <= first["asked"]["answered"]
    assert all(it["kept"] for it in ended.json["advisory_sources"])
    assert (len(scenario.api.requests), len(scenario.api.batches)) == before
    text = scenario("--no-resolve", "--offline")
    assert ended.json["asked"]["answered"] in text.out


def test_offline_without_an_answer_is_an_error(scenario: Scenario) -> None:
    ended = scenario.quick("--offline")
    assert ended.code == exit_codes.BAD_INPUT
    assert ended.json["error"]["code"] == "advisory_unreachable"


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"results":[]}', b'{"results":[{"vulns":[{}]}, {}]}']
)
def test_an_answer_of_another_shape_is_not_clean(scenario: Scenario, body: bytes) -> None:
    scenario.api.batch_failures, scenario.api.failure_body = [200], body
    ended = scenario.quick()
    assert ended.json["error"]["code"] == "advisory_response", ended


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_refused_batch_is_not_clean(scenario: Scenario, status: int) -> None:
    scenario.api.batch_failures = [status]
    assert scenario.quick().json["error"]["code"] == "advisory_unreachable"


def test_a_record_that_can_t_be_had_is_not_clean(scenario: Scenario) -> None:
    """The database lists it and has no record: nothing says what it is, so it is unknown."""
    scenario.api.records.clear()
    ended = scenario.quick()
    assert ended.code == exit_codes.UNKNOWN, ended
    assert [it["unknown"] for it in ended.json["skipped"]] == [True]


@pytest.mark.parametrize(
    "change",
    [
        {"uv.lock": "version = 1\n[[package]\n"},
        {"uv.lock": PROJECTS["uv"][1]["uv.lock"].replace('name = "top"', 'name = "other"')},
        {"pdm.lock": '[metadata]\nlock_version = "4.5.0"\n'},
    ],
)
def test_a_lock_that_cannot_be_read_is_unknown(
    tmp_path: Path, api: OsvApi, change: dict[str, str]
) -> None:
    api.affected = {}
    scenario = Scenario(tmp_path, api)
    scenario.commit({**PROJECTS["uv"][1], **change})
    ended = scenario.quick("--offline") if not change else scenario.quick()
    assert ended.code == exit_codes.UNKNOWN, ended
    assert ended.json["unread"]


def test_a_repository_without_dependencies_is_unknown(tmp_path: Path, api: OsvApi) -> None:
    scenario = Scenario(tmp_path, api)
    scenario.commit({"README": "nothing\n"})
    assert scenario.quick().code == exit_codes.UNKNOWN
    assert api.batches == []


def test_the_limit_of_a_batch_is_the_servers() -> None:
    from tests.fakes import osv_api as fake

    assert fake.MAX_QUERIES == MAX_QUERIES


def test_names_of_others_can_t_move_the_cursor(scenario: Scenario) -> None:
    document = record()
    document["summary"] = document["details"] = "\x1b[2J"
    document["affected"][0]["ranges"][0]["events"][1]["fixed"] = "1.5.0\x1b[31m"
    scenario.api.records[GHSA] = document
    ended = scenario("--no-resolve")
    assert "\x1b" not in ended.out
    assert GHSA in ended.out


def test_a_file_of_settings_that_is_not_committed_is_named(tmp_path: Path) -> None:
    files = PROJECTS["npm"][1]
    repo = repository(tmp_path / "repo", files)
    (repo / ".fallback-tier.toml").write_text("[tool.fallback-tier]\nseverity = 'critical'\n")
    with osv_api({}) as api:
        words = (repo, "--advisory-url", api.url, "--state-dir", tmp_path / "state")
        ended = run("scan", *words)
        assert ended.code == exit_codes.OK, ended
        assert ".fallback-tier.toml" in ended.err
        given = run("scan", *words, "--config", repo / ".fallback-tier.toml")
        assert ".fallback-tier.toml is not committed" not in given.err


@dataclass
class SilentRegistry:
    """A registry that takes a connection and never answers. ``asked``: a client has connected."""

    listener: socket.socket
    asked: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/simple"

    def accept(self) -> None:
        with self.listener.accept()[0]:
            self.asked.set()
            came(self.closing)


@pytest.fixture
def registry() -> Iterator[SilentRegistry]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        registry = SilentRegistry(listener)
        accepting = threading.Thread(target=registry.accept)
        accepting.start()
        yield registry
        registry.closing.set()
        socket.create_connection(listener.getsockname()).close()  # if no client did
        joined(accepting)


@pytest.fixture
def waiting(scenario: Scenario, registry: SilentRegistry) -> Scenario:
    """Its lock says what is vulnerable, and no step can be resolved."""
    address = registry.url
    scenario.commit_again(
        {
            path: text.replace("https://index.example/simple", address)
            for path, text in PROJECTS["uv"][1].items()
        }
    )
    scenario.env = {"UV_DEFAULT_INDEX": address, "UV_NO_CONFIG": "1", "UV_HTTP_TIMEOUT": "300"}
    return scenario


def test_after_the_time_limit_what_is_vulnerable_is_shown(waiting: Scenario) -> None:
    """The finding is there before any step is looked for; its step is said to be missing, and how to find
    it."""
    text = waiting("--time-limit", "2")
    assert text.code == exit_codes.VULNERABLE, text
    row = re.compile(rf"^high +left 1\.0\.0 +{GHSA} +1\.5\.0$", re.MULTILINE)
    assert row.search(text.err), text.err
    assert row.search(text.out), text.out
    shown = " ".join(text.out.split())
    assert f"not resolved within 2 s: `fallback-tier plan REPO --advisory {GHSA}` goes on." in shown
    assert "no step" not in shown
    assert "not resolved: steps of 1 of 1 findings; --time-limit gives more time" in shown
    assert all(len(line) <= 80 for line in text.out.splitlines()), text.out


def test_json_says_which_steps_were_not_resolved(waiting: Scenario) -> None:
    ended = waiting("--time-limit", "2", "--json")
    assert ended.code == exit_codes.VULNERABLE, ended
    (finding,) = ended.json["findings"]
    assert (ended.json["stopped"], finding["not_resolved"]) == ("time_limit", True)
    assert finding["steps"] == []
    assert f"plan REPO --advisory {GHSA}" in finding["why_not"]
    assert GHSA not in ended.err  # for programs, standard output alone


def test_quiet_shows_the_result_alone(waiting: Scenario) -> None:
    ended = waiting("--time-limit", "2", "-q")
    assert (ended.code, GHSA in ended.err, GHSA in ended.out) == (11, False, True)


def test_a_scan_in_time_is_whole(scenario: Scenario) -> None:
    ended = scenario.quick("--time-limit", "0.001")  # no client runs
    (finding,) = ended.json["findings"]
    assert (ended.json["stopped"], finding["not_resolved"]) == (None, False)
    assert finding["steps"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_interrupted_scan_shows_what_it_found(
    waiting: Scenario,
    registry: SilentRegistry,
    form: tuple[str, ...],
    request: pytest.FixtureRequest,
) -> None:
    state = str(waiting.place / "state")
    words = ["scan", str(waiting.repo), "--advisory-url", waiting.api.url, "--state-dir", state]
    process = subprocess.Popen(
        [SCRIPT, *words, *form],
        env={**os.environ, "COLUMNS": "200", **waiting.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where these tests run in the background of a shell, it is ignored, and a program inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    request.addfinalizer(process.kill)
    came(registry.asked)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == exit_codes.INTERRUPTED, err
    assert "interrupted; the repository is as it was" in err
    if form:
        document = json.loads(out)
        assert (document["stopped"], document["exit_code"]) == ("interrupted", 130)
        assert [it["not_resolved"] for it in document["findings"]] == [True]
    else:
        assert GHSA in out
        assert "not resolved before the interruption" in " ".join(out.split())
