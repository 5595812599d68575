"""``fallback-tier examples`` from the outside: what is printed, what is left, which code."""

import json
import sqlite3
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.retrieval import SolvedExample
from tests.database_files import watched
from tests.e2e.command import Ended
from tests.unit.solved_examples.builders import example
from tests.unit.solved_examples.sources.test_dataset import NEW_FILE, row


def run(*arguments: str | Path) -> Ended:
    """The command in this process: there are many of them here."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(str(end.code))
    return Ended(code, out.getvalue(), err.getvalue())


def written(path: Path, *records: SolvedExample | dict[str, object]) -> Path:
    path.write_text(
        "".join(
            f"{json.dumps(record) if isinstance(record, dict) else record.model_dump_json()}\n"
            for record in records
        )
    )
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two records."""
    records = written(
        tmp_path / "records.jsonl",
        example("e1", cwe=("CWE-22",), language="python"),
        example("e2", ecosystem="npm", package="left"),
    )
    path = tmp_path / "examples.db"
    done = run("examples", "ingest", records, "--store", path)
    assert (done.code, done.out, done.err) == (0, "2 added, 0 already there\n", "")
    return path


def test_several_files_of_both_formats_are_one_ingest(tmp_path: Path, store: Path) -> None:
    run("examples", "withdraw", "e2", "--reason", "wrong", "--store", store)
    files = [
        written(tmp_path / "own.jsonl", example("e1", licence="MIT"), example("e2"), example("e3")),
        written(tmp_path / "set.jsonl", row(), row(id="new", diff=NEW_FILE), row(id="no", diff="")),
    ]
    done = run("examples", "ingest", *files, "--store", store, "--json")
    assert done.code == 0, done
    assert done.json == {
        "added": 2,
        "duplicates": 0,
        "revised": 1,
        "withdrawn": 1,
        "skipped": [
            {"example_id": "new", "reason": "no usable edit", "place": f"'{files[1]}', line 2"},
            {"example_id": "no", "reason": "no usable edit", "place": f"'{files[1]}', line 3"},
        ],
        "left_out": {"new file": 1},
    }
    again = run("examples", "ingest", *files, "--store", store)
    assert again.out.splitlines() == [
        "0 added, 3 already there, 1 refused: withdrawn before",
        "2 skipped: no usable edit",
        f"  new ('{files[1]}', line 2): no usable edit",
        f"  no ('{files[1]}', line 3): no usable edit",
        "1 parts of diffs left out: new file",
    ]


def test_one_bad_line_and_nothing_is_added(tmp_path: Path, store: Path) -> None:
    good = written(tmp_path / "good.jsonl", example("e3"))
    bad = tmp_path / "bad.jsonl"
    bad.write_text(example("e4").model_dump_json() + "\n{}\n")
    before = store.read_bytes()
    done = run("examples", "ingest", good, bad, "--store", store)
    assert done.code == exit_codes.BAD_INPUT
    assert done.problem.startswith(f"'{bad}', line 2 is not a solved example: example_id")
    assert store.read_bytes() == before
    new = tmp_path / "new.db"
    assert run("examples", "ingest", good, bad, "--store", new).code == exit_codes.BAD_INPUT
    assert not new.exists()


def test_list_and_show(store: Path) -> None:
    def names(*options: str) -> list[str]:
        done = run("examples", "list", "--store", store, "--json", *options)
        return [listed["example_id"] for listed in done.json["examples"]]

    assert names() == ["e1", "e2"]
    assert names("--ecosystem", "npm") == ["e2"]
    assert names("--cwe", "CWE-22", "--language", "python", "--package", "some_package") == ["e1"]
    assert names("--state", "withdrawn") == []
    line = run("examples", "list", "--store", store).out.splitlines()[0]
    assert line == "e1  PyPI some-package  GHSA-1  written  python CWE-22"
    text = run("examples", "show", "e1", "--store", store).out
    assert "path traversal in e1" in text
    assert "\na.py\n- x\n+ y\n" in text
    shown = run("examples", "show", "e1", "--store", store, "--json").json
    assert SolvedExample.model_validate(shown["versions"][0]["record"]).example_id == "e1"
    absent = run("examples", "show", "e9", "--store", store)
    assert (absent.code, absent.next_step) == (
        exit_codes.BAD_INPUT,
        f"`fallback-tier examples list --store {store}` shows those that are there.",
    )


def test_what_a_record_says_can_not_act_on_a_terminal(tmp_path: Path) -> None:
    text = "bell \x07, colour \x1b[31m, turned \u202e"
    records = written(tmp_path / "r.jsonl", example("e\x1b]0;x", advisory_text=text))
    store = tmp_path / "examples.db"
    run("examples", "ingest", records, "--store", store)
    for verb in (["list"], ["show", "e\x1b]0;x"], ["withdraw", "e\x1b]0;x", "--reason", "x"]):
        printed = run("examples", *verb, "--store", store).out
        assert printed
        assert not set("\x07\x1b\u202e") & set(printed)


def test_what_a_record_says_forges_no_line_of_ours(tmp_path: Path) -> None:
    name = "e1  version 1, live\nlicence    forged"
    records = written(tmp_path / "r.jsonl", example(name, advisory_text="its text\nhas lines"))
    store = tmp_path / "examples.db"
    run("examples", "ingest", records, "--store", store)
    shown = run("examples", "show", name, "--store", store).out.splitlines()
    assert [line for line in shown if line.startswith("licence ")] == ["licence    Apache-2.0"]
    assert "has lines" in shown


def test_a_reason_is_kept_for_good_and_shows_no_secret(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLBACK_TIER_API_KEY", "the-key-of-another-server")
    reason = "logged the-key-of-another-server"
    done = run("examples", "withdraw", "e1", "--reason", reason, "--store", store)
    assert done.code == exit_codes.BAD_INPUT
    assert "another-server" not in done.out + done.err + str(store.read_bytes())
    assert "e1" in run("examples", "list", "--store", store).out


def test_withdraw_keeps_who_and_why(store: Path) -> None:
    taken = run(
        *("examples", "withdraw", "e1", "--reason", "breaks logins", "--by", "Ada"),
        *("--store", store, "--json"),
    )
    assert (taken.code, taken.json["example_id"], taken.json["by"]) == (0, "e1", "Ada")
    text = run("examples", "show", "e1", "--store", store).out
    assert "withdrawn  20" in text
    assert "by Ada: breaks logins" in text
    again = run("examples", "withdraw", "e1", "--reason", "x", "--store", store, "--json")
    assert (again.code, again.kind) == (exit_codes.BAD_INPUT, "withdrawn_before")
    # Without --by it is the user's name.
    assert run("examples", "withdraw", "e2", "--reason", "x", "--store", store).code == 0


def test_a_user_without_a_name_has_to_give_one(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    done = run("examples", "withdraw", "e2", "--reason", "x", "--store", store)
    assert (done.code, done.next_step) == (exit_codes.BAD_INPUT, "Give --by.")


def test_a_files_name_is_no_markup(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal rich would take ``[/x]`` for the end of something."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    (tmp_path / "a[").mkdir()
    records = written(tmp_path / "a[" / "x].jsonl", example("e3"))
    named = records.relative_to(tmp_path)  # a long path may be cut at the terminal's width
    monkeypatch.chdir(tmp_path)
    done = run("examples", "ingest", named, "--store", store)
    assert (done.code, done.out) == (0, "1 added, 0 already there\n")
    assert "a[/x]" in done.err


def test_manifest_and_validate(store: Path) -> None:
    shown = run("examples", "manifest", "--store", store, "--json").json
    assert (shown["examples"], shown["embedding"]) == (2, None)
    assert len(shown["manifest_sha256"]) == len(shown["corpus_sha256"]) == 64
    text = run("examples", "manifest", "--store", store).out
    assert "words alone are searched" in text
    intact = run("examples", "validate", "--store", store)
    assert (intact.code, intact.out) == (0, "no drift\n")


def test_drift_has_its_own_exit_code(store: Path) -> None:
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("UPDATE examples SET language = 'c' WHERE example_id = 'e1'")
    connection.close()
    found = run("examples", "validate", "--store", store, "--json")
    assert found.code == exit_codes.ENVIRONMENT
    assert found.json["drift"] == [
        {"kind": "record", "sentence": "e1: language is filed as c, and the record says python"}
    ]


def test_search_says_what_was_found_and_what_was_dropped(store: Path) -> None:
    found = run("examples", "search", "path traversal", "--store", store, "--json").json
    looked_at = [*found["returned"], *(item["example_id"] for item in found["dropped"])]
    assert set(looked_at) == {"e1", "e2"}
    assert found["mode"] == "lexical"
    text = run("examples", "search", "nothing of the kind", "--store", store)
    assert (text.code, text.out.splitlines()[1]) == (0, "nothing is good enough")
    strict = ("examples", "search", "path traversal", "--store", store, "--routing-floor")
    assert run(*strict, "1", "--json").json["returned"] == []
    assert run(*strict, "0", "--json").json["returned"] == found["returned"]
    for value in ("1.1", "nan", "much"):
        assert run(*strict, value).code == exit_codes.BAD_INPUT


def test_lines_before_a_record_that_can_not_be_read_are_printed(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE examples SET added_at = 'never' WHERE example_id = 'e2'")
    done = run("examples", "list", "--store", store)
    assert done.code != exit_codes.OK
    assert done.out.startswith("e1 ")


@pytest.mark.parametrize("verb", ["list", "manifest", "validate", "index"])
def test_a_store_that_is_not_there(tmp_path: Path, verb: str) -> None:
    done = run("examples", verb, "--store", tmp_path / "absent.db")
    assert done.code == exit_codes.ENVIRONMENT
    assert "absent.db" in done.problem
    assert list(tmp_path.iterdir()) == []


def test_the_verbs_are_told(tmp_path: Path) -> None:
    verbs = run("examples", "--help").out
    for verb in ("ingest", "harvest", "releases", "index", "search", "list", "show", "withdraw"):
        assert f"    {verb} " in verbs
    assert run("examples").code == exit_codes.BAD_INPUT


def test_a_store_is_not_read_as_a_file_of_records(tmp_path: Path, store: Path) -> None:
    """Records are read while the store is being written: to close its file would drop the lock on it."""
    (link := tmp_path / "link").symlink_to(store)
    for name in (store, link):
        with watched():
            records = tmp_path / "records.jsonl"
            done = run("examples", "ingest", records, name, "--store", store, "--json")
        assert (done.code, done.kind) == (exit_codes.BAD_INPUT, "the_store_itself")
        assert repr(str(name)) in done.problem
