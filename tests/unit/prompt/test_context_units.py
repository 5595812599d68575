"""Large files are shown by whole definitions: those that the advisory and the failure point at."""

import re
from pathlib import Path

import pytest

from fallback_tier.prompt.context import MAX_SNIPPET_BYTES, MAX_SNIPPETS, Snippet, select_snippets
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.unit.prompt.context_cases import advisory, failed


class _Importing(FakeEcosystem):
    """Knows what the PyPI plugin knows: ``from vulnerable import …`` as well."""

    def mentions(self, package: str, path: str, text: str) -> bool:
        return re.search(rf"^(?:from|import) {package}\b", text, re.MULTILINE) is not None


PLUGIN = _Importing()


def function(name: str, body: str = "return value", lines: int = 12) -> str:
    padding = "".join(f"    value = value + {i}\n" for i in range(lines))
    return f"def {name}(value):\n{padding}    {body}\n\n\n"


def module(*named: str, imports: str = "import json\n\n\n", before: int = 30) -> str:
    """A file too large for one snippet, with the functions in its middle."""
    filler = "".join(function(f"other_{i}") for i in range(before))
    return imports + filler + "".join(named) + filler.replace("other", "more")


def shown(snippets: tuple[Snippet, ...]) -> str:
    return "".join(snippet.text for snippet in snippets)


def test_a_symbol_of_the_advisory_brings_its_whole_definition(tmp_path: Path) -> None:
    wanted = function("read_archive", "return open(value)")
    repo = context(tmp_path, {"a.py": module(wanted)})
    (found,) = select_snippets(advisory("`read_archive` follows links."), repo, PLUGIN)
    assert found.text.strip() == wanted.strip()
    lines = (tmp_path / "a.py").read_text().split("\n")
    assert lines[found.start_line - 1] == "def read_archive(value):"


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import vulnerable\n", "vulnerable.load(value)"),
        ("import vulnerable as v\n", "v.load(value)"),
        ("from vulnerable import load as read_it\n", "read_it(value)"),
        ("from vulnerable.parts import (\n    one,\n    load,\n)\n", "load(value)"),
    ],
)
def test_functions_that_call_the_package_by_any_name(
    tmp_path: Path, imports: str, call: str
) -> None:
    caller = function("caller", f"return {call}")
    repo = context(tmp_path, {"a.py": module(caller, imports=f"{imports}\n\n")})
    text = shown(select_snippets(advisory(), repo, PLUGIN))
    assert caller.strip() in text
    assert imports in text
    assert "other_5" not in text


def test_prose_finds_code_that_has_its_words(tmp_path: Path) -> None:
    wanted = function("normalisePath", "return value.replace('backslash', 'separator')")
    repo = context(tmp_path, {"a.py": module(wanted), "b.py": module(function("unrelated"))})
    prose = "Paths with a backslash separator are normalised wrongly."
    assert wanted.strip() in select_snippets(advisory(prose), repo, PLUGIN)[0].text


def test_a_word_or_two_in_common_and_no_name_is_not_enough(tmp_path: Path) -> None:
    files = {
        "a.py": "def separator():\n    return 'backslash'\n",
        "tests/test_a.py": "# paths backslash separator are normalised wrongly\n",
    }
    prose = "Paths with a backslash separator are normalised wrongly."
    assert select_snippets(advisory(prose), context(tmp_path, files), PLUGIN) == ()


def test_a_route_is_not_cut_though_its_function_has_no_name(tmp_path: Path) -> None:
    padding = "  audit(req);\n\n" * 20
    routes = [
        f"app.get('/{i}', (req, res) => {{\n{padding}  res.send(req.{name});\n}});\n"
        for i, name in enumerate(["body"] * 15 + ["queryText"] + ["body"] * 15)
    ]
    repo = context(tmp_path, {"a.js": "\n".join(routes)})
    (found,) = select_snippets(advisory("`queryText` is not escaped."), repo, PLUGIN)
    assert found.text.strip() == routes[15].strip()


def test_a_dotted_name_finds_its_module(tmp_path: Path) -> None:
    files = {"pkg/web_app.py": "x = 1\n", "pkg/other.py": "y = 1\n"}
    repo = context(tmp_path, files)
    (found,) = select_snippets(advisory("see pkg.web_app.Application"), repo, PLUGIN)
    assert found.path == "pkg/web_app.py"


def test_callers_of_what_was_found_come_before_others(tmp_path: Path) -> None:
    target = function("read_archive")
    files = {
        "a.py": module(function("talks", "return 'archive'")),
        "b.py": module(function("handler", "return read_archive(value)")),
        "c.py": module(target),
    }
    repo = context(tmp_path, files)
    paths = [s.path for s in select_snippets(advisory("`read_archive()` is unsafe"), repo, PLUGIN)]
    assert paths[:2] == ["c.py", "b.py"]


def test_neighbours_become_one_snippet(tmp_path: Path) -> None:
    pair = function("read_archive") + function("open_archive")
    repo = context(tmp_path, {"a.py": module(pair)})
    (found,) = select_snippets(advisory("`read_archive` and `open_archive`"), repo, PLUGIN)
    assert found.text.strip() == pair.strip()


def test_a_definition_over_the_cap_is_shown_around_what_matters(tmp_path: Path) -> None:
    long = function("enormous", "return danger_zone(value)", lines=400)
    repo = context(tmp_path, {"a.py": module(long)})
    found = select_snippets(advisory("calls `danger_zone`"), repo, PLUGIN)[0]
    assert "danger_zone" in found.text
    assert len(found.text.encode()) <= MAX_SNIPPET_BYTES


def test_the_lines_that_a_failing_gate_names_come_first(tmp_path: Path) -> None:
    broken = function("build", "return thing.removed_call(value)")
    text = module(broken)
    line = text[: text.index("removed_call")].count("\n") + 1
    repo = context(tmp_path, {"deps.txt": "vulnerable 1.0\n", "src/a.py": text})
    summary = f'File "/work/src/a.py", line {line}, in build\nFile "/work/src/a.py", line 5, in x'
    found = select_snippets(advisory(), repo, PLUGIN, prior_attempts=failed(summary))
    assert [s.path for s in found] == ["src/a.py", "src/a.py", "deps.txt"]
    assert found[0].text.strip() == broken.strip()
    assert found[1].start_line <= 5 <= found[1].end_line


def test_a_name_in_the_failure_brings_its_call_sites_before_manifests(tmp_path: Path) -> None:
    broken = function("build", "return thing.escape_all(value)")
    files = {
        "deps.txt": "vulnerable 1.0\n",
        "src/a.py": module(broken),
        "tests/test_a.py": module(broken),
    }
    repo = context(tmp_path, files)
    summary = "ImportError: cannot import name 'escape_all' from 'vulnerable'"
    found = select_snippets(advisory(), repo, PLUGIN, prior_attempts=failed(summary))
    assert [s.path for s in found] == ["src/a.py", "deps.txt"]
    assert found[0].text.strip() == broken.strip()


def test_what_was_tried_is_not_what_failed(tmp_path: Path) -> None:
    broken = function("build", "return thing.escape_all(value)")
    repo = context(tmp_path, {"deps.txt": "vulnerable 1.0\n", "src/a.py": module(broken)})
    summary = "It failed.\nWhat the patch tried:\n  - escape_all(value)"
    found = select_snippets(advisory(), repo, PLUGIN, prior_attempts=failed(summary))
    assert [s.path for s in found] == ["deps.txt"]


def test_a_common_name_in_the_failure_moves_nothing(tmp_path: Path) -> None:
    files = {f"m{i}.py": f"shared_name({i})\n" for i in range(9)} | {"deps.txt": "vulnerable 1.0\n"}
    repo = context(tmp_path, files)
    found = select_snippets(
        advisory(), repo, PLUGIN, prior_attempts=failed("NameError: 'shared_name'")
    )
    assert [s.path for s in found] == ["deps.txt"]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"def read_archive{i}(): read_archive()\n" for i in range(2_000)),
        "read_archive(" * 70 + "\n" + "(" * 900 + "\n",
        ("(}[{)read_archive" * 40 + "\n") * 60,
        "".join(f"{' ' * min(i, 900)}if read_archive:\n" for i in range(250)),
    ],
    ids=["functions", "open", "garbage", "deep"],
)
def test_hostile_code_is_bounded(tmp_path: Path, text: str) -> None:
    repo = context(tmp_path, {f"a{i}.py": text for i in range(2)})
    found = select_snippets(advisory("`read_archive`"), repo, PLUGIN)
    assert len(found) <= MAX_SNIPPETS
    assert all(s.text in text for s in found)


def test_what_may_be_quoted_are_the_lines_that_are_shown_as_they_are() -> None:
    """A secret's line can't be an edit's old text, so it parts what is in a row."""
    text = "a = 1\nkey = [REDACTED]\n\nb = 2\n"
    snippet = Snippet(id="S1", path="app.py", start_line=10, text=text, hidden=(11,))
    assert [run.lines for run in snippet.quotable] == [("a = 1",), ("", "b = 2")]
    assert {run.path for run in snippet.quotable} == {"app.py"}
    assert not snippet.model_copy(update={"hidden": (10, 11, 12, 13)}).quotable
