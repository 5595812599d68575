"""Which code goes into the prompt: relevant, bounded, in one order."""

from pathlib import Path

import pytest

from fallback_tier.prompt.context import (
    MAX_SCANNED_FILES,
    MAX_SNIPPET_BYTES,
    MAX_SNIPPETS,
    Snippet,
    select_snippets,
)
from fallback_tier.repo import RepoContext, Settings
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.unit.prompt.context_cases import advisory, failed

PLUGIN = FakeEcosystem()


def budget(repo: RepoContext, size: int) -> RepoContext:
    return repo.model_copy(update={"settings": Settings(snippet_budget_bytes=size)})


def paths(snippets: tuple[Snippet, ...]) -> list[str]:
    return [snippet.path for snippet in snippets]


def test_manifest_then_what_uses_the_package_then_tests(tmp_path: Path) -> None:
    files = {
        "deps.txt": "vulnerable 1.0\n",
        "tests/test_a.py": "import vulnerable\n",
        "deep/er/b.py": "import vulnerable\n",
        "a.py": "import vulnerable\n",
        "unrelated.py": "import json\n",
    }
    snippets = select_snippets(advisory(), context(tmp_path, files), PLUGIN)
    assert paths(snippets) == ["deps.txt", "a.py", "deep/er/b.py", "tests/test_a.py"]
    assert [snippet.id for snippet in snippets] == ["S1", "S2", "S3", "S4"]
    assert snippets[1] == Snippet(id="S2", path="a.py", start_line=1, text="import vulnerable\n")


def test_own_code_is_found_by_the_path_and_the_symbols_that_the_advisory_names(
    tmp_path: Path,
) -> None:
    filler = "x = 1\n" * 3000
    files = {
        "src/reader.py": f"read_archive('x')\n{filler}def read_archive(name):\n    pass\n{filler}",
        "src/other.py": "import json\n",
        "src/named.py": "pass\n",
        "src/caller.py": "from src.reader import read_archive\n",
    }
    text = "In `read_archive()` of lib/src/named.py a name is not checked."
    snippets = select_snippets(advisory(text), context(tmp_path, files), PLUGIN)
    assert list(dict.fromkeys(paths(snippets))) == [
        "src/named.py",
        "src/reader.py",
        "src/caller.py",
    ]
    definition = snippets[1]
    assert "def read_archive(name):" in definition.text
    assert definition.start_line > 2000
    shown = definition.text.splitlines()
    assert shown[3002 - definition.start_line] == "def read_archive(name):"
    assert definition.end_line == definition.start_line + len(shown) - 1


def test_after_a_failure_the_files_that_it_names_come_first(tmp_path: Path) -> None:
    files = {
        "deps.txt": "vulnerable 1.0\n",
        "app.py": "import vulnerable\n",
        "pkg/util.py": "a = 1\n" * 2000 + "boom()\n" + "b = 2\n" * 2000,
        "tests/test_x.py": "assert True\n",
    }
    repo = context(tmp_path, files)
    summary = (
        'File "/work/pkg/util.py", line 2001, in f\n'
        "E   AssertionError (tests/test_x.py:1); see also ../../etc/passwd.py and gone.py"
    )
    snippets = select_snippets(advisory(), repo, PLUGIN, prior_attempts=failed(summary))
    assert paths(snippets) == ["pkg/util.py", "tests/test_x.py", "deps.txt", "app.py"]
    assert "boom()" in snippets[0].text
    without = select_snippets(advisory(), repo, PLUGIN)
    assert paths(without) == ["deps.txt", "app.py"]


@pytest.mark.parametrize(
    "text", ["x" * 200_000, "a." * 100_000, "a/" * 100_000, "`" * 200_000, "a_" * 100_000 + "("]
)
def test_no_text_makes_the_search_slow(tmp_path: Path, text: str) -> None:
    # Each of these took minutes with a pattern that looked twice; now it's some milliseconds.
    repo = context(tmp_path, {"a.py": "import vulnerable\n"})
    found = select_snippets(advisory(text), repo, PLUGIN, prior_attempts=failed(text))
    assert paths(found) == ["a.py"]


def test_only_the_last_failure_counts(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "a\n", "b.py": "b\n"})
    history = (*failed("a.py:1"), *failed("b.py:1"))
    assert paths(select_snippets(advisory(), repo, PLUGIN, prior_attempts=history)) == ["b.py"]


@pytest.mark.parametrize(
    "path",
    [
        "node_modules/x/a.py",
        "vendor/a.py",
        "dist/a.py",
        "a.min.py",
        "notes.md",
        "data.bin",
        "bundle.lock",
    ],
)
def test_other_peoples_code_and_other_files_stay_out(tmp_path: Path, path: str) -> None:
    repo = context(tmp_path, {path: "import vulnerable\n"})
    assert select_snippets(advisory(), repo, PLUGIN) == ()


@pytest.mark.parametrize(
    "content",
    [
        b"import vulnerable\n\0",
        b"import vulnerable \xff\xfe",
        b"import vulnerable;" + b"x" * 2000,
        b"import vulnerable\n" + b"y = 1\n" * 200_000,
    ],
    ids=["nul", "not UTF-8", "minified", "too large"],
)
def test_what_no_person_wrote_stays_out(tmp_path: Path, content: bytes) -> None:
    repo = context(tmp_path, {"a.py": ""})
    (tmp_path / "a.py").write_bytes(content)
    assert select_snippets(advisory(), repo, PLUGIN) == ()


def test_links_and_missing_files_are_skipped(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("import vulnerable\n")
    root = tmp_path / "repo"
    repo = context(root, {"a.py": "", "gone.py": "", "ok.py": "import vulnerable\n"})
    (root / "a.py").unlink()
    (root / "a.py").symlink_to(outside)
    (root / "gone.py").unlink()
    assert paths(select_snippets(advisory(), repo, PLUGIN)) == ["ok.py"]


@pytest.mark.parametrize("size", [0, 100, 500, 3000, 12_000])
def test_the_budget_holds(tmp_path: Path, size: int) -> None:
    files = {f"m{i:02}.py": "import vulnerable  # é\n" * (10 * i + 1) for i in range(30)}
    repo = budget(context(tmp_path, files), size)
    snippets = select_snippets(advisory(), repo, PLUGIN)
    assert sum(len(s.text.encode()) for s in snippets) <= size
    assert len(snippets) <= MAX_SNIPPETS
    assert all(len(s.text.encode()) <= MAX_SNIPPET_BYTES for s in snippets)
    assert bool(snippets) == (size >= 100)
    assert snippets == select_snippets(advisory(), repo, PLUGIN)


def test_the_order_does_not_depend_on_that_of_the_listing(tmp_path: Path) -> None:
    names = ["a.py", "b.py", "c/same.py", "d/same.py", "e.txt", "f.txt"]
    repo = context(tmp_path, dict.fromkeys(names, "import vulnerable\n"))
    listings = (names, names[::-1])
    chosen = [
        select_snippets(
            advisory(),
            RepoContext(
                **repo.model_dump(exclude={"tracked_files", "manifests"}),
                tracked_files=tuple(listing),
                manifests=tuple(name for name in listing if name.endswith(".txt")),
            ),
            PLUGIN,
            prior_attempts=failed("same.py failed"),
        )
        for listing in listings
    ]
    expected = ["c/same.py", "d/same.py", "e.txt", "f.txt", "a.py", "b.py"]
    assert [paths(snippets) for snippets in chosen] == [expected, expected]


def test_work_is_bounded_in_a_large_repository(tmp_path: Path) -> None:
    files = {f"m{i}.py": "x\n" for i in range(MAX_SCANNED_FILES)}
    files["z/deep.py"] = "import vulnerable\n"
    repo = context(tmp_path, files)
    assert select_snippets(advisory(), repo, PLUGIN) == ()
    # What the advisory names is looked at whatever the bound.
    assert paths(select_snippets(advisory("see z/deep.py"), repo, PLUGIN)) == ["z/deep.py"]


def test_work_is_bounded_in_a_repository_of_large_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read until as much was read as may be; what the advisory names comes first."""
    monkeypatch.setattr("fallback_tier.prompt.context.sources.MAX_READ_CHARS", 2_500)
    code = "import vulnerable\n" + "x = 1\n" * 200
    files = {f"m{number}.py": code for number in range(9)} | {"z/deep.py": code}
    repo = context(tmp_path, files)
    assert paths(select_snippets(advisory(), repo, PLUGIN)) == ["m0.py", "m1.py", "m2.py"]
    assert paths(select_snippets(advisory("see z/deep.py"), repo, PLUGIN))[0] == "z/deep.py"


def test_secrets_are_out_before_the_window_is_chosen(tmp_path: Path) -> None:
    body = "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" for _ in range(200))
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    text = f'KEY = """{key}"""\nimport vulnerable\n# swordfish\n'
    repo = context(tmp_path, {"a.py": text})
    (snippet,) = select_snippets(advisory(), repo, PLUGIN, secrets=frozenset({"swordfish"}))
    assert "BAQEFAASCBK" not in snippet.text
    assert "swordfish" not in snippet.text
    # The line numbers are still those of the file.
    at = snippet.text.split("\n").index("import vulnerable")
    assert text.split("\n")[snippet.start_line - 1 + at] == "import vulnerable"
