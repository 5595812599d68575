"""``audit verify``, ``export`` and ``import`` from the outside: copies, files, pipes, keys, exit codes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, repository, run, snapshot
from tests.unit.audit.tamper import behind_the_triggers

#: One worker: the two attempts on record are made once.
pytestmark = pytest.mark.xdist_group("audit-verify")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a state, its keys apart, and two attempts on record: tests work on copies."""
    place = tmp_path_factory.mktemp("recorded")
    repo = repository(place / "repo", {"requirements.txt": "left==1.0.0\n"})
    for number in (1, 2):
        request = {
            "advisory": json.loads(osv("left")),
            "repository": str(repo),
            "fix_id": f"fix-{number}",
            "gate_transition_id": "gate-1",
        }
        ended = run("attempt", *_of(place), stdin=json.dumps(request))
        assert ended.code == exit_codes.OK, ended
    return place


@pytest.fixture
def place(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "place"))


def _of(place: Path) -> tuple[str | Path, ...]:
    return ("--state-dir", place / "state", "--keys", place / "keys")


def audit(place: Path, verb: str, *arguments: str | Path, stdin: str = "") -> Ended:
    return run("audit", verb, *arguments, *_of(place), stdin=stdin)


def vkey(place: Path) -> str:
    return next((place / "keys").glob("*.vkey")).read_text().strip()


def latest(place: Path) -> Path:
    return max((place / "state" / "checkpoints").rglob("*.checkpoint"))


def test_the_record_is_intact_and_covered(place: Path) -> None:
    ended = audit(place, "verify", "--json")
    assert ended.code == exit_codes.OK, ended
    report: dict[str, Any] = ended.json
    assert report["ok"]
    assert report["covered_to"] == report["events"]
    assert report["checkpoints_checked"] >= 1
    message = audit(place, "verify").out
    assert "INTACT" in message
    assert f"covered to event {report['events']}; nothing after it." in message


def test_without_its_checkpoints_or_keys_it_is_not(place: Path) -> None:
    shutil.move(place / "keys", place / "elsewhere")
    ended = audit(place, "verify", "--json")
    assert ended.code == exit_codes.TRAIL_BROKEN
    assert "no trusted key" in ended.json["checkpoint_problems"][0]["reason"]
    trusted = next((place / "elsewhere").glob("*.vkey"))
    for trust in (trusted, trusted.read_text().strip()):
        assert audit(place, "verify", "--trust", trust).code == exit_codes.OK
    shutil.rmtree(place / "state" / "checkpoints")
    ended = audit(place, "verify", "--trust", trusted, "--json")
    assert ended.code == exit_codes.TRAIL_BROKEN
    assert ended.json["checkpoint_problems"][0]["next_step"]


def test_a_moved_copy_says_that_it_needs_a_kept_checkpoint(place: Path, tmp_path: Path) -> None:
    """Cut short together with its checkpoints it looks whole: only a word from outside tells."""
    verified = audit(place, "verify", "--json").json
    assert (verified["end_known"], verified["notes"]) == (True, [])
    kept = latest(place)
    moved = Path(shutil.copytree(place / "state", tmp_path / "moved"))
    of_it = ("--state-dir", moved, "--keys", place / "keys")
    assert run("audit", "verify", *of_it, "--json").json["end_known"]  # moved whole: known again
    (moved / "checkpoints" / kept.relative_to(place / "state" / "checkpoints")).unlink()
    size = int(max((moved / "checkpoints").rglob("*.checkpoint")).stem)
    with behind_the_triggers(moved / "audit.db") as store:
        for table in ("audit_header", "audit_payload"):
            store.execute(f"DELETE FROM {table} WHERE seq > {size}")
    ended = run("audit", "verify", *of_it)
    assert ended.out.startswith("INTACT, as far as it goes: "), ended
    assert "--checkpoint FILE" in ended.out
    found = run("audit", "verify", *of_it, "--checkpoint", kept, "--json")
    assert found.code == exit_codes.TRAIL_BROKEN
    assert "truncated" in found.json["first_bad"]["reason"]


def attempt(place: Path, number: int, state: Path | None = None, cwd: Path | None = None) -> Ended:
    request = {
        "advisory": json.loads(osv("left")),
        "repository": str(place / "repo"),
        "fix_id": f"fix-{number}",
        "gate_transition_id": "gate-1",
    }
    of_it = ("--state-dir", state or place / "state", "--keys", place / "keys")
    return run("attempt", *of_it, stdin=json.dumps(request), cwd=cwd)


@pytest.fixture
def older(place: Path) -> Path:
    """A copy of the state, as it was before the last attempt was recorded."""
    assert attempt(place, 3).code == exit_codes.OK  # the keys know the folder of this test now
    older = Path(shutil.copytree(place / "state", place / "older"))
    assert attempt(place, 4).code == exit_codes.OK
    return older


def test_older_copy_behind_a_link_is_noticed_and_refused(place: Path, older: Path) -> None:
    (place / "state").rename(place / "newer")
    (place / "state").symlink_to(older)
    verified = audit(place, "verify", "--json")
    assert verified.code == exit_codes.TRAIL_BROKEN
    assert verified.json["checkpoint_problems"]
    assert attempt(place, 5).json["error"]["code"] == "audit_history"
    assert audit(place, "verify", "--json").json["events"] == verified.json["events"]


def test_older_copy_behind_the_link_of_a_parent_folder(
    place: Path, older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is in that folder, and names the rest: its shell's PWD has the link."""
    link = place.with_name("link")
    link.symlink_to(place)
    monkeypatch.setenv("PWD", str(link))
    of_it = ("--state-dir", "state", "--keys", place / "keys")
    assert attempt(place, 5, state=Path("state"), cwd=link).code == exit_codes.OK
    other = place.with_name("other")
    other.mkdir()
    older.rename(other / "state")
    link.unlink()
    link.symlink_to(other)
    verified = run("audit", "verify", *of_it, "--json", cwd=link)
    assert (verified.code, verified.json["ok"]) == (exit_codes.TRAIL_BROKEN, False)


def test_older_copy_elsewhere_is_named_and_refused(place: Path, older: Path) -> None:
    """A verified backup is intact; continued, it would become a second history."""
    of_it = ("--state-dir", older, "--keys", place / "keys")
    verified = run("audit", "verify", *of_it, "--json")
    assert verified.code == exit_codes.OK
    assert "older copy" in verified.json["notes"][-1]
    assert attempt(place, 5, state=older).json["error"]["code"] == "audit_history"
    assert attempt(place, 5).code == exit_codes.OK  # the trail itself goes on


def test_a_checkpoint_that_was_kept(place: Path, tmp_path: Path) -> None:
    kept = Path(shutil.copy(latest(place), tmp_path / "kept"))
    assert audit(place, "verify", "--checkpoint", kept).code == exit_codes.OK
    kept.write_bytes(kept.read_bytes().replace(b"\ntip ", b"\ntop "))
    assert audit(place, "verify", "--checkpoint", kept).code == exit_codes.TRAIL_BROKEN
    ended = audit(place, "verify", "--checkpoint", tmp_path / "none")
    assert ended.code == exit_codes.BAD_INPUT
    assert "No such file" in ended.problem


def test_a_read_only_copy_is_left_as_it_is(place: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    shutil.copy(place / "state" / "audit.db", copies / "copy.db")
    copies.chmod(0o500)
    before = snapshot(copies).digests
    assert audit(place, "verify", copies / "copy.db").code == exit_codes.OK
    after = snapshot(copies).digests
    assert {name: after[name] for name in before} == before
    ended = audit(place, "verify", tmp_path / "none.db", "--json")
    assert (ended.code, ended.kind) == (exit_codes.ENVIRONMENT, "no_such_file")


def test_only_what_is_new(place: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = audit(place, "verify", "--since-state", state, "--json").json
    assert (first["since"], state.is_file()) == (0, True)
    second = audit(place, "verify", "--since-state", state, "--json").json
    assert (second["ok"], second["since"], second["root"]) == (True, first["events"], first["root"])
    state.write_text("nothing")
    assert audit(place, "verify", "--since-state", state).code == exit_codes.TRAIL_BROKEN


def test_an_export_is_verified_anywhere(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "record.jsonl"
    ended = audit(place, "export", "--out", out, "--with-evidence", "--json")
    assert ended.code == exit_codes.OK, ended
    assert ended.json["events"] > 2
    assert out.stat().st_mode & 0o777 == 0o600
    verified = run("audit", "verify", out, "--trust", vkey(place), "--json")
    assert verified.code == exit_codes.OK, verified
    assert verified.json["evidence_checked"] > 0
    piped = audit(place, "export").out
    assert run("audit", "verify", "-", "--trust", vkey(place), stdin=piped).code == exit_codes.OK
    cut = run("audit", "verify", "-", "--trust", vkey(place), "--json", stdin=piped[:-2])
    assert (cut.code, "cut" in cut.problem) == (exit_codes.TRAIL_BROKEN, True)
    again = audit(place, "export", "--out", out, "--json")
    assert (again.code, again.kind) == (exit_codes.BAD_INPUT, "exists")


def test_an_export_of_one_fix(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "fix.jsonl"
    assert audit(place, "export", "--fix", "fix-2", "--out", out).code == exit_codes.OK
    assert b"fix-1" not in out.read_bytes()
    ended = run("audit", "verify", out, "--trust", vkey(place))
    assert ended.code == exit_codes.OK, ended
    out.write_bytes(out.read_bytes().replace(b"TEST-2026-1", b"TEST-2026-2"))
    assert run("audit", "verify", out, "--trust", vkey(place)).code == exit_codes.TRAIL_BROKEN
    missing = audit(place, "export", "--fix", "fix-9", "--out", tmp_path / "none")
    assert missing.code != exit_codes.OK
    assert [path.name for path in tmp_path.iterdir() if "none" in path.name] == []


def test_an_import_is_a_record_of_its_own(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "record.jsonl"
    assert audit(place, "export", "--out", out, "--with-evidence").code == exit_codes.OK
    new = tmp_path / "new"
    into = ("--state-dir", new, "--keys", place / "keys")
    ended = run("audit", "import", out, *into, "--json")
    assert ended.code == exit_codes.OK, ended
    assert ended.json["database"] == str(new / "audit.db")
    for verb in (("verify",), ("show", "fix-1"), ("log",)):
        assert run("audit", *verb, *into).code == exit_codes.OK
    again = run("audit", "import", out, *into, "--json")
    assert again.code == exit_codes.BAD_INPUT
    assert "already" in again.problem


def test_without_keys_it_says_what_is_missing(place: Path, tmp_path: Path) -> None:
    without = ("--state-dir", place / "state", "--keys", tmp_path / "none")
    report = run("audit", "verify", "--json", *without).json
    assert not report["ok"]
    assert "no trusted key signed it" in report["first_bad"]["reason"]
    assert "--trust" in report["first_bad"]["next_step"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["verify", "--trust", "nonsense"], "--trust nonsense: A key of the audit trail can't be"),
        (["verify", "."], ".: Is a directory"),
        (["export", "--fix", "nope"], "There is no fix 'nope'"),
        (["log", "--audit-store", "http://x"], "not a PostgreSQL URL"),
    ],
)
def test_bad_input_has_its_exit_code(place: Path, words: list[str], problem: str) -> None:
    ended = audit(place, words[0], *words[1:])
    assert ended.code == exit_codes.BAD_INPUT
    assert problem in ended.problem


def test_what_is_no_export_is_named_once(place: Path, tmp_path: Path) -> None:
    """Bad input: nothing of a record is damaged by it. What is an export, and cut, is damaged."""
    junk = tmp_path / "junk"
    into = ("--state-dir", tmp_path / "new", "--keys", place / "keys")
    junk.write_text("no JSON\n")
    for words in (("import", junk), ("verify", "-")):
        ended = run("audit", *words, *into, "--json")
        assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "not_an_export")
    out = tmp_path / "record.jsonl"
    assert audit(place, "export", "--out", out).code == exit_codes.OK
    junk.write_bytes(out.read_bytes()[:-1])
    assert run("audit", "import", junk, *into).code == exit_codes.TRAIL_BROKEN
    ended = run(
        "audit", "import", out, "--state-dir", tmp_path / "new", "--keys", tmp_path / "none"
    )
    assert ended.code == exit_codes.TRAIL_BROKEN
    assert ".." not in ended.problem
    assert not (tmp_path / "new" / "audit.db").exists()
