"""Peers run for real, on made-up packages, and are held to the same judge."""

from pathlib import Path

from tests.campaigns.eval_repos.judged_case import JudgedCase, judged_case, npm_case, uv_case
from tests.campaigns.eval_repos.loopback import bulk, osv
from tests.campaigns.eval_repos.peers import PeerEnd, run_peers


def ends(made: JudgedCase, npm: str) -> dict[str, PeerEnd]:
    records = [one.osv(made.case.ecosystem) for one in made.case.advisory]
    found = run_peers(made.case, records, made.root, made.base, made.clients, npm)
    return {one.peer: one for one in found}


def test_npms_own_commands(tmp_path: Path) -> None:
    with judged_case(npm_case(), tmp_path) as made:
        found = ends(made, made.clients.environ["npm_config_registry"])
    assert found.keys() == {"npm update", "npm audit fix", "npm install pkg@fixed"}
    for name in ("npm update", "npm audit fix"):
        assert found[name].cleared, found[name]
        assert not found[name].works, "both go to the highest in range, which breaks the call"
    assert found["npm install pkg@fixed"].serves, found
    assert found["npm install pkg@fixed"].lines > 6, "it rewrites what is asked for too"


def test_uvs_own_command(tmp_path: Path) -> None:
    with judged_case(uv_case(), tmp_path) as made:
        found = ends(made, "")
    (end,) = found.values()
    assert end.peer == "uv lock --upgrade-package"
    assert (end.cleared, end.works, end.moved) == (True, False, 1)


def test_what_servers_answer_of_an_advisory() -> None:
    npm, pypi = (
        [one.osv(case.ecosystem) for one in case.advisory] for case in (npm_case(), uv_case())
    )
    reported = bulk(npm, {"left": ["1.0.0"], "right": ["1.0.0"]})
    assert [one["vulnerable_versions"] for one in reported["left"]] == [">=0 <1.1.0"]
    assert "right" not in reported
    assert bulk(npm, {"left": ["1.1.0"]}) == {}
    asked = {"package": {"name": "left", "ecosystem": "PyPI"}, "version": "1.0.0"}
    assert osv(pypi, asked) == {"vulns": pypi}
    assert osv(pypi, {**asked, "version": "1.1.0"}) == {}
