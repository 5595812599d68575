"""A data set of fixes becomes records; what does not is named, with its reason."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.solved_examples.sources.dataset import (
    PERMISSIVE,
    Format,
    Imported,
    LeftOutReason,
    Skipped,
    SkipReason,
    read_examples,
)
from fallback_plugins.solved_examples.store.records import MAX_SUMMARY_CHARS, lines
from fallback_tier.errors import InputError
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import ExampleOrigin
from tests.kinds import OfKind
from tests.unit.solved_examples.builders import example, store_at

DATA = Path(__file__).parents[5] / "shared/data/solved-examples.jsonl.xz"

DIFF = """diff --git a/web/app.py b/web/app.py
index 1111111..2222222 100644
--- a/web/app.py
+++ b/web/app.py
@@ -3,3 +3,3 @@ def show(name):
     page = load(name)
-    return page.html(name)
+    return page.html(escape(name))
\x20
"""

NEW_FILE = """diff --git a/web/safe.py b/web/safe.py
new file mode 100644
index 0000000..3333333
--- /dev/null
+++ b/web/safe.py
@@ -0,0 +1 @@
+SAFE = True
"""


def row(**fields: Any) -> dict[str, Any]:
    return {
        "id": "CVE-2026-1",
        "aliases": ["GHSA-1"],
        "summary": "Cross-site scripting in web",
        "details": "The name is not escaped.\n",
        "cwe_ids": ["CWE-79"],
        "ecosystem": "PyPI",
        "packages": ["Web_App"],
        "language": "python",
        "diff": DIFF,
        "repo": "someone/web",
        "repo_licence": "MIT",
        "fix_commit": "abc",
        "fix_commit_url": "https://example.org/someone/web/commit/abc",
        "published": None,
        **fields,
    }


def read(tmp_path: Path, *rows: Any, **options: Any) -> list[Imported | Skipped]:
    path = tmp_path / "fixes.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in rows))
    return list(read_examples(path, **options))


def test_the_commits_subject_is_the_summary_of_the_fix(tmp_path: Path) -> None:
    subjects = ("\n Escape the name \nmore", None, "x" * 999)
    rows = [row(id=f"A-{n}", commit_subject=message) for n, message in enumerate(subjects)]
    found = [one.example.fix_summary for one in read(tmp_path, *rows) if isinstance(one, Imported)]
    assert found == ["Escape the name", "", "x" * MAX_SUMMARY_CHARS]


def test_a_fix_becomes_a_record(tmp_path: Path) -> None:
    (found,) = read(tmp_path, row(diff=DIFF + NEW_FILE))
    assert isinstance(found, Imported)
    record = found.example
    assert (record.example_id, record.advisory_id) == ("CVE-2026-1", "CVE-2026-1")
    assert record.advisory_aliases == ("GHSA-1",)
    assert record.advisory_text == "Cross-site scripting in web\n\nThe name is not escaped."
    assert (record.ecosystem, record.package, record.language) == ("PyPI", "Web_App", "python")
    assert (record.cwe, record.licence, record.file_sha256) == (("CWE-79",), "MIT", {})
    assert record.provenance.model_dump(mode="json") == {
        "origin": ExampleOrigin.DATASET,
        "source": "https://example.org/someone/web/commit/abc",
        "repository": "someone/web",
        "revision": "abc",
    }
    assert record.edits == (
        SearchReplace(
            path="web/app.py",
            old="    page = load(name)\n    return page.html(name)\n\n",
            new="    page = load(name)\n    return page.html(escape(name))\n\n",
        ),
    )
    assert [(part.path, part.reason) for part in found.left_out] == [
        ("web/safe.py", LeftOutReason.NEW_FILE)
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"withdrawn": True}, SkipReason.WITHDRAWN),
        ({"repo_licence": None}, SkipReason.NO_LICENCE),
        ({"repo_licence": " "}, SkipReason.NO_LICENCE),
        ({"repo_licence": "package.json:"}, SkipReason.NO_LICENCE),
        ({"repo_licence": "GPL-3.0"}, SkipReason.LICENCE),
        ({"repo_licence": "MIT OR AGPL-3.0"}, SkipReason.LICENCE),
        ({"summary": None, "details": " \n"}, SkipReason.NO_TEXT),
        ({"diff": ""}, SkipReason.NO_EDIT),
        ({"diff": NEW_FILE}, SkipReason.NO_EDIT),
    ],
)
def test_what_can_not_be_used_is_skipped_with_its_reason_and_place(
    tmp_path: Path, fields: dict[str, Any], reason: SkipReason
) -> None:
    skipped, taken = read(tmp_path, row(id="bad", **fields), row())
    assert isinstance(skipped, Skipped)
    assert (skipped.example_id, skipped.reason) == ("bad", reason)
    assert skipped.place.endswith("fixes.jsonl', line 1")
    assert isinstance(taken, Imported)


def test_a_licence_counts_wherever_it_was_read(tmp_path: Path) -> None:
    (found,) = read(tmp_path, row(repo_licence="package.json:BlueOak-1.0.0"))
    assert isinstance(found, Imported)
    assert found.example.licence == "BlueOak-1.0.0"
    assert not {"GPL-2.0", "GPL-3.0", "AGPL-3.0", "LGPL-3.0", "MPL-2.0", ""} & PERMISSIVE


# --- Which format ---------------------------------------------------------------------------------


def test_each_file_says_its_format_by_its_first_line(tmp_path: Path) -> None:
    (dataset,) = read(tmp_path, row())
    assert isinstance(dataset, Imported)
    (record,) = read(tmp_path, example().model_dump(mode="json"))
    assert record == Imported(example())
    assert read(tmp_path) == []


@pytest.mark.parametrize("line", ["{}", "[1]", '"id"', "{", '{"id": "x"}', "\x00", "[" * 100_000])
def test_neither_format_is_an_error_that_names_both(tmp_path: Path, line: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(InputError, check=OfKind("unknown_format"), match="line 2") as caught:
        list(read_examples(path))
    assert str(path) in caught.value.problem


def test_a_given_format_is_not_guessed(tmp_path: Path) -> None:
    for rows, format_, field in (
        (row(), Format.RECORDS, "example_id"),
        (
            example().model_dump(mode="json"),
            Format.DATASET,
            "id",
        ),
    ):
        with pytest.raises(InputError, check=OfKind("not_valid"), match=rf"line 1 .*: {field}: "):
            read(tmp_path, rows, format=format_)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"packages": []}, "packages"),
        ({"ecosystem": ""}, "ecosystem"),
        ({"fix_commit_url": None}, "fix_commit_url"),
        ({"diff": None}, "diff"),
        ({"withdrawn": "perhaps"}, "withdrawn"),
        ({"summary": "\udc80"}, "Invalid JSON"),
    ],
)
def test_faults_name_file_line_and_field(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, check=OfKind("not_valid"), match="line 2 ") as caught:
        read(tmp_path, row(), row(**fields))
    assert message in caught.value.problem


# --- The real data --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> list[Imported | Skipped]:
    if not DATA.exists():
        pytest.skip("the data set is not here (DATA: shared/data/solved-examples.jsonl.xz)")
    return list(read_examples(DATA))


def test_every_real_fix_is_taken(real: list[Imported | Skipped], tmp_path: Path) -> None:
    assert Counter(type(found) for found in real) == {Imported: 642}
    examples = [found.example for found in real if isinstance(found, Imported)]
    counts = store_at(tmp_path / "examples.db").ingest(examples)
    assert (counts.added, counts.duplicates, counts.revised) == (642, 0, 0)


def test_every_hunk_of_the_real_fixes_is_an_edit_or_named(real: list[Imported | Skipped]) -> None:
    """Counted a second way: by the hunk headers that stand in the diffs."""
    headers = re.compile(r"^@@ -\d", re.MULTILINE)
    rows = [json.loads(line) for _, line in lines(DATA)]
    for found, raw in zip(real, rows, strict=True):
        assert isinstance(found, Imported)
        edits, left_out = len(found.example.edits), len(found.left_out)
        # Each of these has one hunk, or none where it is empty.
        assert {part.reason for part in found.left_out} <= {
            LeftOutReason.NEW_FILE,
            LeftOutReason.DELETED_FILE,
        }
        assert edits <= len(headers.findall(raw["diff"])) <= edits + left_out
        for edit in found.example.edits:
            body = {line[1:] for line in raw["diff"].split("\n")}
            for text in (edit.old, edit.new):
                assert set(text.removesuffix("\n").split("\n")) <= body | {""}
