"""docs/runbook.md: a shell runs its blocks in their order, on a record that has a patch in it."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fallback_tier.cli.main import build_parser
from tests.e2e.command import SCRIPT, osv, repository, run, run_with_workers
from tests.e2e.shell import command_for_shells
from tests.waiting import PATIENCE_S, next_line

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "runbook.md"

_BLOCK = re.compile(r"(<!-- run -->\n)?```sh\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[bool, str]]:
    """Each block, and whether it is to be run."""
    return [(bool(mark), text) for mark, text in _BLOCK.findall(PAGE.read_text())]


def anchors() -> set[str]:
    """As the page is linked to."""
    headings = re.findall(r"^##+ (.+)$", PAGE.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The page's variables, and a record with a fix in it."""
    found = {
        **os.environ,
        "FALLBACK_TIER_KEYS": str(tmp_path / "keys"),
        "FALLBACK_TIER_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "STATE": str(tmp_path / "state"),
        "BACKUP": str(tmp_path / "backup"),
    }
    attempt(tmp_path, found, "one")
    with command_for_shells(tmp_path / "bin") as folder:
        yield {**found, "PATH": f"{folder}:{os.environ['PATH']}"}


def attempt(place: Path, environ: dict[str, str], name: str) -> None:
    """Something to keep: an attempt that makes a patch."""
    repo = repository(place / name, {"requirements.txt": "left==1.0.0\n"})
    request = json.dumps({"advisory": json.loads(osv("left")), "repository": str(repo)})
    given = {key: environ[key] for key in ("FALLBACK_TIER_KEYS", "FALLBACK_TIER_CHECKPOINTS")}
    words = ("attempt", "--offline", "--state-dir", environ["STATE"])
    assert run(*words, stdin=request, env=given).code == 0


def shell(text: str, environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_every_block_is_run(tmp_path: Path, environ: dict[str, str]) -> None:
    assert [text for runs, text in blocks() if not runs] == []
    assert len(blocks()) >= 13
    for _, text in blocks():
        done = shell(text, environ, tmp_path)
        assert done.returncode == 0, (text, done.stdout, done.stderr)
    assert "ready" in shell(blocks()[1][1], environ, tmp_path).stdout
    assert json.loads((tmp_path / "verify.json").read_text())["ok"] is True


def campaign(place: Path, environ: dict[str, str]) -> None:
    """Run the example campaign: three fixes, in the list of campaigns and in the audit trail."""
    assert run("fleet", "example", place / "try").code == 0
    words = ("fleet", "run", place / "try" / "CAMPAIGN.toml", "--state-dir", environ["STATE"])
    assert run_with_workers(*words, env=environ).code == 8  # nothing shows two of the flaws gone


def block_after(heading: str) -> str:
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return "".join(text for _, text in _BLOCK.findall(section))


def test_a_backup_brings_all_back_and_says_what_it_does_not(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    campaign(tmp_path, environ)
    fixes = run("fleet", "status", "example", "--state-dir", environ["STATE"], "--json").out
    made = shell(block_after("Keys") + block_after("Backup"), environ, tmp_path)
    assert made.returncode == 0, made.stderr
    before = run("audit", "log", "--state-dir", environ["STATE"], "--json").out
    attempt(tmp_path, environ, "two")
    newer = tmp_path / "newer-keys"
    assert shell(f'cp -a "$FALLBACK_TIER_KEYS" {newer}', environ, tmp_path).returncode == 0
    restored = shell(block_after("Restore"), environ, tmp_path)
    assert restored.returncode == 0, (restored.stdout, restored.stderr)
    assert run("audit", "log", "--state-dir", environ["STATE"], "--json").out == before
    assert run("fleet", "status", "example", "--state-dir", environ["STATE"], "--json").out == fixes
    listed = run("keys", "list", "--state-dir", environ["STATE"], "--json").json
    assert [key["name"] for key in listed["keys"]] == ["ci"]
    attempt(tmp_path, environ, "three")  # it goes on
    # With the newer folder of keys the older record is refused.
    shell(f'rm -r "$FALLBACK_TIER_KEYS"; cp -a {newer} "$FALLBACK_TIER_KEYS"', environ, tmp_path)
    reported = shell('fallback-tier health --state-dir "$STATE" --json', environ, tmp_path)
    assert reported.returncode == 6, reported
    checks = json.loads(reported.stdout)["checks"]
    assert [one["check"] for one in checks if one["state"] == "failed"] == ["checkpoints"]


def test_nothing_has_to_be_stopped_for_a_backup(tmp_path: Path, environ: dict[str, str]) -> None:
    """Attempts are recorded and covered all the while; the copy verifies, its evidence too."""
    repo = repository(tmp_path / "busy", {"requirements.txt": "left==1.0.0\n"})
    line = json.dumps({"advisory": json.loads(osv("left")), "repository": str(repo)})
    writer = subprocess.Popen(
        [SCRIPT, "attempt", "--serve", "--offline", "--state-dir", environ["STATE"]],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    try:
        writer.stdin.write(f"{line}\n" * 80)  # as many as a pipe holds
        writer.stdin.flush()
        assert '"applied"' in next_line(writer)
        done = shell(block_after("Backup"), environ, tmp_path)
        assert done.returncode == 0, (done.stdout, done.stderr)
        copied = run("audit", "log", "--state-dir", f"{environ['BACKUP']}/state", "--json").json
        assert 1 < len(copied["fixes"]) < 81, "it was not copied in the middle"
    finally:
        writer.kill()
        writer.communicate(timeout=PATIENCE_S)


def test_a_damaged_record_is_named_before_anything_is_repaired(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (Path(environ["STATE"]) / "audit.db").write_bytes(b"not a database" * 1_000)
    done = shell(block_after("Verify says no"), environ, tmp_path)
    assert done.returncode != 0
    assert (tmp_path / "state.evidence" / "audit.db").exists()
    reported = shell('fallback-tier health --state-dir "$STATE"', environ, tmp_path)
    assert reported.returncode == 6
    assert "failed    store" in reported.stdout


def test_every_command_in_a_sentence_parses() -> None:
    text = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    named = [" ".join(one.split()) for one in re.findall(r"`fallback-tier ([^`]+)`", text)]
    assert len(named) > 3
    for words in named:
        assert build_parser().parse_args(shlex.split(words.replace(" N ", " 1 "))).handler, words


def test_every_alert_leads_to_a_part_of_the_page() -> None:
    (group,) = yaml.safe_load((DOCS / "observability" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/runbook.md"
        assert anchor in anchors(), rule["alert"]
