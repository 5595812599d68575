"""Peers run for real on a case's repository, and their ends say no more than they claim."""

from pathlib import Path

import pytest

from tests.campaigns.eval_repos.loopback import tree_audit
from tests.campaigns.no_false_fixed.case import Ended, load_cases, make_repository, serving
from tests.campaigns.no_false_fixed.peers import PEERS, programs, run_peer


def ends(case_id: str, folder: Path) -> dict[str, Ended]:
    """Run every peer whose client is on this machine, without fetching any."""
    clients, _ = programs(folder / "clients", fetched=())
    (case,) = load_cases([case_id])
    found: dict[str, Ended] = {}
    with serving(case, clients) as (registry, environ):
        base = make_repository(case, registry, environ, folder / "base")
        for peer in PEERS:
            if peer.client in {"npm", "uv"}:
                after = folder / peer.name.replace(" ", "-")
                ended = run_peer(peer, case, base, after, registry.npm_url, environ)
                found |= {peer.name: ended} if ended else {}
    return found


def test_npms_own_commands_fix_a_lock(tmp_path: Path) -> None:
    found = ends("npm-ordinary-transitive", tmp_path)
    assert {name: ended.end for name, ended in found.items()} == {
        "npm update": "fixed",
        "npm audit fix": "fixed",
    }
    for name in ("npm-update", "npm-audit-fix"):
        assert "left-1.1.0.tgz" in (tmp_path / name / "package-lock.json").read_text()


def test_audit_claims_that_a_fixed_project_is_not_affected_and_an_updater_claims_nothing(
    tmp_path: Path,
) -> None:
    found = ends("npm-ordinary-safe", tmp_path)
    assert found["npm audit fix"].end == "not_affected"
    assert found["npm update"].end == "refused"


def test_what_an_audit_leaves_is_a_refusal(tmp_path: Path) -> None:
    ended = ends("npm-ordinary-direct-pin", tmp_path)["npm audit fix"]
    assert (ended.end, ended.exit_code) == ("refused", 1)
    assert "1 high severity vulnerability" in ended.output


@pytest.mark.parametrize(
    ("case_id", "peer", "file", "text"),
    [
        ("uv-ordinary-refresh", "uv lock --upgrade-package", "uv.lock", 'version = "1.1.0"'),
        (
            "uv-compiled-requirements",
            "uv pip compile --upgrade-package",
            "requirements.txt",
            "left==1.1.0",
        ),
    ],
)
def test_uvs_own_commands_move_a_package(
    tmp_path: Path, case_id: str, peer: str, file: str, text: str
) -> None:
    (found,) = ends(case_id, tmp_path).items()
    assert (found[0], found[1].end) == (peer, "fixed"), found
    assert text in (tmp_path / peer.replace(" ", "-") / file).read_text()


def test_older_interface_has_an_advisory_for_each_range() -> None:
    (case,) = load_cases(["npm-workspaces-two-majors"])
    tree = {
        "dependencies": {
            "packages/a": {"version": "0.0.0", "dependencies": {"left": {"version": "1.0.0"}}},
            "packages/b": {"version": "0.0.0", "dependencies": {"left": {"version": "2.0.0"}}},
        }
    }
    found = [*tree_audit([case.record], tree)["advisories"].values()]
    assert [(one["vulnerable_versions"], one["patched_versions"]) for one in found] == [
        (">=0 <1.1.0", ">=1.1.0"),
        (">=2.0.0 <2.1.0", ">=2.1.0"),
    ]
    assert [one["findings"][0]["paths"] for one in found] == [
        ["packages/a>left"],
        ["packages/b>left"],
    ]
