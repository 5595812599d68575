"""Patches as rows: line numbers that are right, and nothing of a patch that is not shown as text."""

import pytest

from fallback_tier.portal.views.diffs import MAX_LINE_CHARS, MAX_ROWS, read_diff

PATCH = '''diff --git a/app.py b/app.py
index 1..2 100644
--- a/app.py
+++ b/app.py
@@ -3,3 +3,4 @@ def f(x):
     a = 1
-    return """<b>
+    return """<i>
+    more"""
     # end
\\ No newline at end of file
diff --git a/old.txt b/old.txt
deleted file mode 100644
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
'''


def test_rows_have_their_numbers() -> None:
    diff = read_diff(PATCH)
    assert [file.path for file in diff.files] == ["app.py", "old.txt"]
    assert (diff.added, diff.removed) == (2, 2)
    (hunk,) = diff.files[0].hunks
    assert hunk.about == "def f(x):"
    assert [(row.kind, row.old, row.new) for row in hunk.rows] == [
        ("same", 3, 3),
        ("del", 4, None),
        ("add", None, 4),
        ("add", None, 5),
        ("same", 5, 6),
        ("note", None, None),
    ]
    assert diff.files[1].notes == ["deleted file mode 100644"]


def test_code_is_escaped_whatever_colours_it() -> None:
    text = "".join(
        row.code for file in read_diff(PATCH).files for hunk in file.hunks for row in hunk.rows
    )
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    for name in ("a.html", "a.js", "a.json", "a.md", "a.unknown", ""):
        patch = f"diff --git a/{name} b/{name}\n@@ -1 +1 @@\n+<script>alert(1)</script>\n"
        (row,) = read_diff(patch).files[0].hunks[0].rows
        assert "<script" not in row.code, name


@pytest.mark.parametrize("text", ["", "no patch", "@@ -1 +1 @@\n+x", "diff --git", "@@ -x @@"])
def test_what_is_no_patch_is_no_error(text: str) -> None:
    read_diff(text)


def test_a_long_patch_and_a_long_line_are_cut() -> None:
    head = "diff --git a/x.py b/x.py\n@@ -0,0 +1,9999 @@\n"
    diff = read_diff(head + "+x = 1\n" * (MAX_ROWS + 5))
    assert diff.rows_left_out == 5
    (row,) = read_diff(head + "+" + "y" * (MAX_LINE_CHARS + 7)).files[0].hunks[0].rows
    assert row.code.endswith("… (7 more characters)")


def test_control_characters_are_spelled_out() -> None:
    (row,) = read_diff("diff --git a/x b/x\n@@ -0,0 +1 @@\n+a\u202eb\x1bc").files[0].hunks[0].rows
    assert row.code == "a\\u202eb\\x1bc"
