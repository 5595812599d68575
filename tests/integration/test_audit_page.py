"""docs/audit.md tells the truth: each of its commands is run, in its order, on a record that fits."""

import re
import shlex
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallback_audit.ports import Record, Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.wiring import audit_db
from tests.unit.audit import trails

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
LENGTH = len(trails.recipe_verified())


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(blocks).replace(" && ", "\n").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Two fixes in the default state folder: one a year old, one of this week. When sealing may begin."""
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    now = datetime.now(UTC)
    for fix_id, days in (("old-fix", 365), ("new-fix", 3)):
        _record(audit_db(tmp_path / "state" / "fallback-tier"), fix_id, now - timedelta(days=days))
    return now - timedelta(days=30)


def _record(path: Path, fix_id: str, moment: datetime) -> None:
    scope = Scope(fix_id=fix_id, gate_transition_id=f"{fix_id}-1")
    with closing(SqliteAuditStore(path, clock=lambda: moment)) as store:
        store.append_all([Record(scope, event) for event in trails.recipe_verified()])


def test_every_command_of_the_page_works(
    old: datetime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "keygen"]) == exit_codes.OK
    vkey = capsys.readouterr().out.splitlines()[0]
    assert main(["audit", "checkpoint"]) == exit_codes.OK
    (note,) = (tmp_path / "state").rglob("*.checkpoint")
    (tmp_path / "kept.note").write_bytes(note.read_bytes())
    here = {
        "FIX": "old-fix",
        "NAME+ID+KEY": vkey,
        "NAME": "Ada",
        "42": "3",
        "57": str(LENGTH + 1),
        "2026-06-01": str(old.date()),
    }
    used: set[str] = set()
    verbs: set[str] = set()
    for program, *words in commands():
        assert program == "fallback-tier"
        used |= here.keys() & set(words)
        verbs.add(words[1])
        # These trails name evidence that nobody put: it is another test's.
        more = ["--no-evidence"] if words[1] == "verify" else []
        missing = words[1:3] == ["evidence", "check"]
        code = main([here.get(word, word) for word in words] + more)
        reported = capsys.readouterr()
        expected = exit_codes.TRAIL_BROKEN if missing else exit_codes.OK
        assert code == expected, (words, reported.out, reported.err)
    assert used == here.keys()
    assert verbs >= {"verify", "export", "import", "prove", "seal", "retire", "redact", "evidence"}
    assert main(["audit", "verify", "--no-evidence"]) == exit_codes.OK


def test_every_verb_has_its_place_in_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    """One that no page names is not found."""
    pages = (PAGE, PAGE.parent / "usage.md", PAGE.parent / "postgresql.md")
    message = "".join(page.read_text() for page in pages)
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    verbs = re.findall(r"^    ([a-z]\S*)", capsys.readouterr().out, re.MULTILINE)
    assert "verify" in verbs
    assert [verb for verb in verbs if f"audit {verb}" not in message] == []
