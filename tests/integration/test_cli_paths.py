"""`--path`: a fix, a plan and a scan of some folders of a repository, by the real npm and uv. What the
other projects hold is left by name: never fixed, and never "not affected"."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.events import FixStarted
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.cli import exit_codes
from fallback_tier.wiring import audit_db
from tests.e2e.command import Ended, run
from tests.fakes.osv_api import osv_api
from tests.fakes.repository import commit_all, git
from tests.integration.gate_setup import needs_sandbox
from tests.integration.test_cli_scan_fix import LEAF, LEFT, UNIVERSE, Scenario, python
from tests.registry import serve
from tests.unit.npm.world import at, project

pytestmark = pytest.mark.sandbox

OUTSIDE = RefusalReason.OUTSIDE_PATHS.value


def below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in files.items()}


def node() -> dict[str, str]:
    return project({"bough": "^1.0.0"}, {"bough": at("1.0.0", leaf="^1.0.0"), "leaf": at("1.0.0")})


@pytest.fixture(scope="module")
def environ() -> Iterator[Mapping[str, str]]:
    with serve(UNIVERSE) as registry:
        yield registry.environ


@pytest.fixture
def scenario(tmp_path: Path, environ: Mapping[str, str]) -> Iterator[Scenario]:
    """Two projects of each ecosystem, all of them affected."""
    with osv_api({}) as api:
        made = Scenario(tmp_path, api, environ)
        made.commit(
            {
                **below("web", node()),
                **below("admin", node()),
                **below("api", python("left")),
                **below("jobs", python("left")),
            }
        )
        made.lists("left", LEFT)
        made.lists("leaf", LEAF, "npm")
        yield made


def ask(scenario: Scenario, verb: str, name: str, *more: str) -> Ended:
    """`plan` or `fix` by the record in a file."""
    record = scenario.place / f"{name}.json"
    record.write_text(json.dumps(scenario.api.records[name]))
    own = scenario.own if verb == "fix" else scenario.own[:2]
    words = (scenario.repo, "--advisory", record, *own, *more, "--json")
    return run(verb, *words, env=scenario.environ)


def write(scenario: Scenario, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (scenario.repo / path).write_text(text)
    commit_all(scenario.repo)


def held(scenario: Scenario, folder: str) -> str:
    lock = json.loads((scenario.repo / folder / "package-lock.json").read_text())
    version: str = lock["packages"]["node_modules/leaf"]["version"]
    return version


@pytest.mark.parametrize("more", [(), ("--no-resolve",), ("--offline",)])
@pytest.mark.parametrize(
    ("name", "folder", "mine", "other"),
    [
        (LEAF, "web", "web/package-lock.json", "admin/package-lock.json"),
        (LEFT, "api", "api/requirements.txt", "jobs/requirements.txt"),
    ],
)
def test_a_plan_of_one_folder(
    scenario: Scenario, name: str, folder: str, mine: str, other: str, more: tuple[str, ...]
) -> None:
    ended = ask(scenario, "plan", name, "--path", folder, *more)
    document = ended.json
    assert "fixes" in document, ended
    (fix,) = document["fixes"]
    assert fix["files"] == [mine]
    assert {move["manifest"] for move in fix["moves"]} == {mine}
    assert fix["in_part"] == [name]
    assert [(it["manifest"], it["reason"]) for it in document["left"]] == [(other, OUTSIDE)]
    assert document["not_affected"] == []
    assert ended.code == exit_codes.REFUSED, ended


@pytest.mark.parametrize("name", [LEAF, LEFT])
def test_what_is_outside_is_never_called_not_affected(scenario: Scenario, name: str) -> None:
    """No project in the folder has the package."""
    folder = "api" if name == LEAF else "web"
    for verb in (("plan",), ("plan", "--no-resolve"), ("plan", "--offline"), ("fix", "--dry-run")):
        ended = ask(scenario, verb[0], name, "--path", folder, *verb[1:])
        assert ended.code == exit_codes.REFUSED, ended
        assert {it["reason"] for it in ended.json["left"]} == {OUTSIDE}, verb


def test_a_fix_of_one_folder_is_a_fix_in_part(scenario: Scenario) -> None:
    needs_sandbox()
    ended = ask(scenario, "fix", LEAF, "--path", "web")
    document = ended.json
    assert (ended.code, document["delivered"]) == (exit_codes.REFUSED, True), ended
    assert [(it["id"], it["outcome"]) for it in document["advisories"]] == [(LEAF, "fixed_in_part")]
    assert (held(scenario, "web"), held(scenario, "admin")) == ("1.5.0", "1.0.0")
    assert {it["reason"] for it in document["left"]} == {OUTSIDE}
    with closing(SqliteAuditStore(audit_db(scenario.place / "state"))) as store:
        starts = [it.payload for it in store.events() if isinstance(it.payload, FixStarted)]
    assert [(it.paths, it.in_part) for it in starts] == [(("web",), (LEAF,))]
    assert run("audit", "verify", *scenario.own).code == exit_codes.OK


def test_a_fix_of_one_folder_is_whole_if_no_other_is_affected(scenario: Scenario) -> None:
    needs_sandbox()
    done = ask(scenario, "fix", LEFT, "--path", "api", "--commit", "part")
    assert done.code == exit_codes.REFUSED, done
    write(scenario, below("jobs", python("right")))
    ended = ask(scenario, "fix", LEFT, "--path", "api")
    assert ended.code == exit_codes.OK, ended
    assert [it["outcome"] for it in ended.json["advisories"]] == ["fixed"]
    assert (scenario.repo / "api/requirements.txt").read_text() == "left==1.5.0\n"


def test_a_scan_asks_about_the_folders_alone(scenario: Scenario) -> None:
    ended = scenario.run("scan", "--path", "web", "--json")
    document = ended.json
    assert ended.code == exit_codes.VULNERABLE, ended
    assert [it["id"] for it in document["findings"]] == [LEAF]
    assert document["findings"][0]["sources"] == ["web/package-lock.json"]
    assert document["paths"] == ["web"]
    assert document["outside"] == [
        "admin/package-lock.json",
        "api/requirements.txt",
        "jobs/requirements.txt",
    ]
    assert document["packages"] == 2


def test_a_scan_of_folders_fixes_them_alone(scenario: Scenario) -> None:
    ended = scenario.fix("--path", "web", "--path", "api")
    document = ended.json
    assert ended.code == exit_codes.REFUSED, ended
    outcomes = {it["id"]: it["outcome"] for it in document["fix"]["advisories"]}
    assert outcomes == {LEFT: "fixed_in_part", LEAF: "fixed_in_part"}
    assert (held(scenario, "web"), held(scenario, "admin")) == ("1.5.0", "1.0.0")
    assert (scenario.repo / "jobs/requirements.txt").read_text() == "left==1.0.0\n"
    assert {(it["id"], it["why"]) for it in document["not_fixed"]} == {
        (LEFT, "not_fixed"),
        (LEAF, "not_fixed"),
    }


def test_a_repository_may_name_its_folders(scenario: Scenario) -> None:
    write(scenario, {".fallback-tier.toml": '[tool.fallback-tier]\npaths = "web"\n'})
    by_file = ask(scenario, "plan", LEAF).json
    assert [fix["files"] for fix in by_file["fixes"]] == [["web/package-lock.json"]]
    ended = scenario.run("scan", "--json")
    scanned = ended.json
    assert scanned["paths"] == ["web"]
    assert [rule["key"] for rule in scanned["rules"]] == ["paths"]
    by_option = ask(scenario, "plan", LEAF, "--path", ".").json
    assert [len(fix["files"]) for fix in by_option["fixes"]] == [2]
    assert by_option["left"] == []


@pytest.mark.parametrize("folder", ["nowhere", "we", "web/package.jso"])
def test_a_folder_without_a_tracked_file_is_an_error(scenario: Scenario, folder: str) -> None:
    for verb in ("plan", "fix"):
        ended = ask(scenario, verb, LEAF, "--path", folder)
        assert ended.code == exit_codes.BAD_INPUT, ended
        assert folder in ended.err


@pytest.mark.parametrize("folder", ["../other", "/etc", "a/../../b"])
def test_a_folder_outside_of_the_repository_is_no_folder(scenario: Scenario, folder: str) -> None:
    ended = ask(scenario, "plan", LEAF, "--path", folder)
    assert (ended.code, folder in ended.err) == (exit_codes.BAD_INPUT, True), ended


#: A project that its client can't resolve, by ecosystem: nobody publishes the package.
UNRESOLVABLE = {
    "npm": {"package.json": json.dumps({"name": "x", "dependencies": {"nowhere": "^1.0.0"}})},
    "PyPI": {"requirements.txt": "nowhere>=1\n"},
}
BROKEN = {
    "npm": {"package.json": "{", "package-lock.json": "{"},
    "PyPI": {"uv.lock": "version = ["},
}


@pytest.mark.parametrize("files", [UNRESOLVABLE, BROKEN])
@pytest.mark.parametrize(
    ("ecosystem", "name", "folder", "mine"),
    [
        ("npm", LEAF, "web", "web/package-lock.json"),
        ("PyPI", LEFT, "api", "api/requirements.txt"),
    ],
)
def test_a_project_outside_that_nobody_can_read_stops_no_fix(
    scenario: Scenario,
    ecosystem: str,
    name: str,
    folder: str,
    mine: str,
    files: Mapping[str, Mapping[str, str]],
) -> None:
    (scenario.repo / "legacy").mkdir()
    write(scenario, below("legacy", files[ecosystem]))
    document = ask(scenario, "plan", name, "--path", folder).json
    assert [fix["files"] for fix in document["fixes"]] == [[mine]]
    unread = {it["path"] for it in document["unread"]}
    assert any(path.startswith("legacy/") for path in unread), document


@pytest.mark.parametrize("files", [UNRESOLVABLE, BROKEN])
@pytest.mark.parametrize(("ecosystem", "name"), [("npm", LEAF), ("PyPI", LEFT)])
def test_what_is_outside_and_unknown_is_not_called_not_affected(
    scenario: Scenario, ecosystem: str, name: str, files: Mapping[str, Mapping[str, str]]
) -> None:
    (scenario.repo / "legacy").mkdir()
    for folder in ("web", "admin", "api", "jobs"):
        git(scenario.repo, "rm", "-rq", folder)
    (scenario.repo / "here").mkdir()
    here = project({"bough": "^1.0.0"}, {"bough": at("1.0.0")}) | {"requirements.txt": ""}
    write(scenario, below("here", here) | below("legacy", files[ecosystem]))
    ended = ask(scenario, "plan", name, "--path", "here")
    assert ended.code == exit_codes.UNKNOWN, ended
    assert ended.json["not_affected"] == []


def test_a_member_names_the_project_that_its_workspace_is(scenario: Scenario) -> None:
    """One lock for all: it is resolved as a whole, from whichever folder it is named."""
    members = {"workspaces": ["packages/*"]}
    root = project({"bough": "^1.0.0"}, {"bough": at("1.0.0", leaf="^1.0.0"), "leaf": at("1.0.0")})
    lock = json.loads(root["package-lock.json"])
    lock["packages"][""] |= members
    lock["packages"]["packages/one"] = {"name": "one", "version": "1.0.0"}
    lock["packages"]["node_modules/one"] = {"resolved": "packages/one", "link": True}
    (scenario.repo / "packages/one").mkdir(parents=True)
    write(
        scenario,
        {
            "package.json": json.dumps(json.loads(root["package.json"]) | members),
            "package-lock.json": json.dumps(lock),
            "packages/one/package.json": json.dumps({"name": "one", "version": "1.0.0"}),
        },
    )
    document = ask(scenario, "plan", LEAF, "--path", "packages/one").json
    assert [fix["files"] for fix in document["fixes"]] == [["package-lock.json"]], document
    assert {it["manifest"] for it in document["left"]} == {
        "web/package-lock.json",
        "admin/package-lock.json",
    }


def test_one_attempt_is_of_the_whole_repository(scenario: Scenario) -> None:
    """Attempts, campaigns and the service have no plan, which alone leaves something: the file says nothing
    to them."""
    write(scenario, {".fallback-tier.toml": '[tool.fallback-tier]\npaths = "web"\n'})
    task = {"advisory": scenario.api.records[LEAF], "repository": str(scenario.repo)}
    ended = run("attempt", *scenario.own, stdin=json.dumps(task), env=scenario.environ)
    assert ended.code == exit_codes.OK, ended
    assert {"web/package-lock.json", "admin/package-lock.json"} <= {*ended.json["files"]}


def test_what_is_unknown_outside_is_no_doubt_about_what_is_fixed(scenario: Scenario) -> None:
    """The root's users run a committed bundle, and nobody knows which version `jobs` installs."""
    needs_sandbox()
    (scenario.repo / "dist").mkdir()
    bundle = {
        "action.yml": "name: it\nruns:\n  using: node20\n  main: dist/index.js\n",
        "dist/index.js": "// node_modules/leaf/index.js\n",
        "jobs/requirements.txt": "left>=1.0,<2\n",
    }
    write(scenario, node() | bundle)
    ended = ask(scenario, "fix", LEAF, "--path", "web")
    assert ended.code == exit_codes.REFUSED, ended
    assert [it["outcome"] for it in ended.json["advisories"]] == ["fixed_in_part"]
    (proved,) = (it for it in ended.json["fixes"][0]["verdicts"] if it["gate"] == "not_vulnerable")
    assert [it["project"] for it in proved["projects"]] == ["web/package-lock.json"]
    commit_all(scenario.repo)
    ended = ask(scenario, "fix", LEFT, "--path", "api")
    assert ended.code == exit_codes.REFUSED, ended
    assert [it["outcome"] for it in ended.json["advisories"]] == ["fixed_in_part"]


def test_a_folder_of_no_project_is_an_error_of_a_scan(scenario: Scenario) -> None:
    """Nothing would be looked at, and nothing found."""
    (scenario.repo / "web/src").mkdir()
    write(scenario, {"web/src/a.js": "1;\n"})
    for more in ((), ("--fix",)):
        ended = scenario.run("scan", "--path", "web/src", "--json", *more)
        assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "no_project_below"), ended


def test_a_repository_does_not_scan_clean_by_its_own_word(scenario: Scenario) -> None:
    """What it leaves out was looked at by nobody who asked; who scans chose an option's folders."""
    (scenario.repo / "here").mkdir()
    clean = project({"bough": "^1.0.0"}, {"bough": at("1.0.0")})
    own = {".fallback-tier.toml": '[tool.fallback-tier]\npaths = "here"\n'}
    write(scenario, below("here", clean) | own)
    for more in ((), ("--fix",)):
        assert scenario.run("scan", "--json", *more).code == exit_codes.UNKNOWN
    assert scenario.run("scan", "--json", "--path", "here").code == exit_codes.OK


def test_what_is_handed_over_does_not_say_that_it_is_fixed(scenario: Scenario) -> None:
    needs_sandbox()
    report = scenario.place / "report"
    more = ("--path", "web", "--commit", "part", "--report", str(report))
    ended = ask(scenario, "fix", LEAF, *more)
    assert ended.code == exit_codes.REFUSED, ended
    (stated,) = json.loads((report / "openvex.json").read_text())["statements"]
    assert stated["status"] == "under_investigation"
    (flaw,) = json.loads((report / "cyclonedx.json").read_text())["vulnerabilities"]
    assert flaw["affects"][0]["versions"][0]["status"] == "affected"
    whole = ask(scenario, "fix", LEAF, "--commit", "whole")
    assert whole.code == exit_codes.OK, "another run: it does not go on with the limited one"
    changed = git(scenario.repo, "diff", "--name-only", "HEAD", "whole").split()
    assert sorted(changed) == ["admin/package-lock.json", "web/package-lock.json"]
