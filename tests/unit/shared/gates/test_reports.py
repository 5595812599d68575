"""Reports of real runners, and files that only look like one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.npm.gates.testing import plain_runner, read_jest, reporting
from fallback_plugins.pypi.gates.testing import pytest_summary, unittest_summary
from fallback_plugins.pypi.probes import witness_probe
from fallback_plugins.pypi.probes.observed import read_suite
from fallback_plugins.pypi.probes.report_probe import ONLY, Names
from fallback_plugins.shared.gates.suite_run import (
    MAX_REPORT_BYTES,
    Report,
    numbered,
    read_lines,
    report_in,
)
from fallback_tier.files.tree import FileTree
from tests.conftest import TEMPORARY
from tests.waiting import PATIENCE_S

PROBE = files("fallback_plugins.pypi.probes").joinpath("report_probe.py").read_text()


def line(**facts: object) -> str:
    return json.dumps(facts) + "\n"


# --- Files ----------------------------------------------------------------------------------------

WHOLE = line(test="a", was="passed") + line(test="b", was="failed") + line(told=2, ran=2, failed=1)


def test_a_whole_report() -> None:
    assert read_lines(WHOLE) == Report(frozenset({"a"}), ("b",), (), (2, 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "[]\n",
        "nothing\n" + WHOLE,
        WHOLE + line(test="c", was="passed"),
        WHOLE + WHOLE,
        WHOLE + line(told=2, ran=2, failed=0),
        line(test="c", was="passed") + WHOLE,
        line(test="a") + line(told=1, ran=1, failed=0),
        line(test="a", was="passed") + line(told=1, ran="1", failed=0),
        line(test="a", was="passed") + line(told=1, ran=True, failed=0),
        "[" * 100_000 + "\n",
    ],
)
def test_what_was_added_to_or_can_not_be_read_is_no_report(text: str | None) -> None:
    assert read_lines(text) is None


def test_what_failed_once_has_failed(tmp_path: Path) -> None:
    reported = [
        ("a", "passed"),
        ("a", "failed"),
        ("b", "skipped"),
        ("b", "passed"),
        ("c", "uncollected"),
    ]
    assert Report.of(reported) == Report(frozenset({"b"}), ("a", "c"), ("c",))


def test_a_run_that_was_ended_tells_what_came_before_and_a_cut_line_is_left_out() -> None:
    assert read_lines(line(test="a", was="passed") + '{"test": "b", "w') == Report(frozenset({"a"}))


@given(st.text() | st.builds(json.dumps, st.recursive(st.text() | st.integers(), st.lists)))
def test_nothing_that_is_written_there_raises(text: str) -> None:
    read_lines(text)
    read_lines(text + "\n")
    read_jest(text)


def test_a_place_is_new_each_time_and_only_a_plain_file_is_read(tmp_path: Path) -> None:
    tree = FileTree(root=tmp_path)
    with report_in(tree) as file, report_in(tree) as other:
        place = Path(file.path)
        assert file.path != other.path
        assert file.read() is None
        place.write_text(f"{tmp_path}/a {tmp_path}")
        assert file.read() == "a ."
    assert list(tmp_path.iterdir()) == []


def test_links_pipes_folders_and_floods_are_no_report(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    for make in (
        lambda place: place.symlink_to(secret),
        os.mkfifo,
        Path.mkdir,
        lambda place: place.write_bytes(bytes(MAX_REPORT_BYTES + 1)),
    ):
        with report_in(FileTree(root=tmp_path)) as file:
            make(Path(file.path))
            assert file.read() is None
    assert secret.read_text() == "key"


# --- pytest and unittest --------------------------------------------------------------------------

PYTEST = """import pytest, unittest

@pytest.fixture
def torn():
    yield
    raise OSError

def test_good(): pass
def test_bad(): assert 0
def test_torn(torn): pass
@pytest.mark.skip
def test_left(): pass
@pytest.mark.xfail
def test_known(): assert 0
@pytest.mark.parametrize("name", ["a b", "c\\nd"])
def test_each(name): pass

class Old(unittest.TestCase):
    def test_parts(self):
        for number in (1, 2, 3):
            with self.subTest(number=number):
                self.assertEqual(number, 1)
"""


def python(folder: Path, runner: str, *arguments: str, **env: str) -> tuple[Report | None, str]:
    report = folder / "report"
    # Our plugins take longer to import than the tests to run; ``XDIST`` names the one that some want.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    kept = {name: os.environ[name] for name in ("PATH", TEMPORARY)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(report), runner, *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(folder)} | kept | plugins | env,
        timeout=PATIENCE_S,
    )  # fmt: skip
    text = report.read_text()
    report.unlink()
    return read_lines(text), done.stdout + done.stderr


XDIST = ("-p", "xdist.plugin", "-n", "2")

OPTIONS = ("--verbosity=-1", "-ra", "-p", "no:cacheprovider", "--continue-on-collection-errors")


@pytest.mark.parametrize("more", [(), XDIST])
def test_pytest_tells_each_test_as_its_last_line_counts_them(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "test_a.py").write_text(PYTEST)
    (tmp_path / "test_b.py").write_text("import missing\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -x\n")
    reported, log = python(tmp_path, "pytest", *OPTIONS, "--maxfail=0", *more)
    found = pytest_summary(log)
    assert reported is not None
    assert found is not None
    assert reported.figures == (found.ran, found.failed)
    assert reported.passed == {
        "test_a.py::test_good", "test_a.py::test_known",
        "test_a.py::test_each[a b]", "test_a.py::test_each[c\\nd]", "test_a.py::Old::test_parts",
    }  # fmt: skip
    assert set(reported.failed) == {
        "test_a.py::test_bad", "test_a.py::test_torn", "test_b.py",
        "test_a.py::Old::test_parts (number=2)", "test_a.py::Old::test_parts (number=3)",
    }  # fmt: skip
    assert reported.uncollected == ("test_b.py",)


@pytest.mark.parametrize("more", [(), XDIST])
def test_pytest_runs_chosen_tests_alone_also_where_it_would_distribute_them(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "test_a.py").write_text(PYTEST)
    only = f'{ONLY}["test_a.py::test_good"]'
    reported, _ = python(tmp_path, "pytest", only, *OPTIONS, *more)
    assert reported == Report(frozenset({"test_a.py::test_good"}), (), (), (1, 0))


#: A command's own pytest, reported from inside (``witness_probe``).
INSIDE = f"""import os, sys
os.environ[{witness_probe.VARIABLE!r}] = {witness_probe.SUITE!r}
os.environ[{witness_probe.ONLY!r}] = sys.argv.pop(1)
from fallback_plugins.pypi.probes import witness_probe
witness_probe.witness(lambda line: print(line, file=sys.__stderr__), sys.argv.pop(1))
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def inside(place: Path, file: Path, *options: str) -> tuple[Report | None, str]:
    words = [sys.executable, "-c", INSIDE, str(file), PROBE, *options]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    lines = map(repr, done.stderr.splitlines())
    return read_suite("\n".join(["header", *lines]), "header")[0], done.stdout


def by_the_probe(place: Path, file: Path, *options: str) -> tuple[Report | None, str]:
    return python(place, "pytest", f"{ONLY}{json.dumps([str(file)])}", *options)


@pytest.mark.parametrize("run", [by_the_probe, inside])
def test_pytest_reads_in_the_chosen_files_alone(
    tmp_path: Path, run: Callable[..., tuple[Report | None, str]]
) -> None:
    (tmp_path / "pkg").mkdir()
    for name in ("test_a.py", "pkg/__init__.py", "pkg/test_b.py"):
        (tmp_path / name).write_text(f"print('read in:', {name!r})\ndef test_one(): pass\n")
    options = (*OPTIONS, "--capture=no", "-p", "no:xdist")
    reported, log = run(tmp_path, tmp_path / "pkg/test_b.py", *options)
    assert reported == Report(frozenset({"pkg/test_b.py::test_one"}), (), (), (1, 0))
    assert reported.collected == 1
    assert "read in: pkg/test_b.py" in log
    assert "read in: test_a.py" not in log


def test_pytest_runs_the_test_of_a_chosen_subtest(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PYTEST)
    only = f'{ONLY}["test_a.py::Old::test_parts (number=2)"]'
    reported, _ = python(tmp_path, "pytest", only, *OPTIONS)
    assert reported is not None
    assert len(reported.failed) == 2
    assert len(reported.passed) == 1


#: Tests of one name, of which the second, and a subtest without a name, and one with, fail only if told to.
NAMESAKES = """import os, unittest

BROKEN = os.environ["BROKEN"]

class Odd:
    def __repr__(self): raise OSError

class Calc(unittest.TestCase):
    row = 0
    def test_parts(self):
        for row in (1, 2, 3):
            with self.subTest():
                self.assertFalse(row == 1 or (row == 2 and "parts" in BROKEN))
    def test_named(self):
        for row in (1, 2, 3):
            with self.subTest("some", row=row, of=object(), not_told=Odd() if row == 3 else 0):
                self.assertFalse(row == 1 or (row == 2 and "named" in BROKEN))
    def test_row(self):
        self.assertFalse(self.row == 1 or (self.row == 2 and "twice" in BROKEN))

def load_tests(loader, tests, pattern):
    tests.addTests([Calc("test_row"), Calc("test_row")])
    for number, test in enumerate(one for one in flat(tests) if "test_row" in str(one)):
        test.row = number
    return tests

def flat(suite):
    return [test for one in suite for test in (flat(one) if hasattr(one, "__iter__") else [one])]
"""


@pytest.mark.parametrize(
    ("runner", "broken"),
    [
        (
            "pytest",
            {
                "test_parts (<subtest>) (2)",
                "test_named [some] (row=2, of=<object object>, not_told=0)",
            },
        ),
        (
            "unittest",
            {
                "test_parts (test_a.Calc.test_parts) (<subtest>) (2)",
                "test_named (test_a.Calc.test_named) [some] (row=2, of=<object object>, not_told=0)",
                "test_row (test_a.Calc.test_row) (3)",
            },
        ),
    ],
)
def test_what_fails_for_years_hides_no_namesake(
    tmp_path: Path, runner: str, broken: set[str]
) -> None:
    (tmp_path / "test_a.py").write_text(NAMESAKES)
    arguments = OPTIONS if runner == "pytest" else ("discover",)
    there, _ = python(tmp_path, runner, *arguments, BROKEN="")
    here, log = python(tmp_path, runner, *arguments, BROKEN="parts named twice")
    found = (pytest_summary if runner == "pytest" else unittest_summary)(log)
    assert there is not None
    assert here is not None
    assert found is not None
    new = {name.removeprefix("test_a.py::Calc::") for name in {*here.failed} - {*there.failed}}
    assert new == broken
    assert here.figures == (found.ran, found.failed)


UNITTEST = """import unittest

class Calc(unittest.TestCase):
    def test_good(self): pass
    def test_bad(self): self.fail()
    @unittest.skip("")
    def test_left(self): pass
    @unittest.expectedFailure
    def test_known(self): self.fail()
    def test_parts(self):
        for number in (1, 2, 3):
            with self.subTest(number=number):
                self.assertEqual(number, 1)

class Unset(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError
    def test_never(self): pass
"""


def test_unittest_tells_each_test_as_its_last_line_counts_them(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(UNITTEST)
    (tmp_path / "test_b.py").write_text("import missing\n")
    reported, log = python(tmp_path, "unittest", "discover")
    found = unittest_summary(log)
    assert reported is not None
    assert found is not None
    assert reported.figures == (found.ran, found.failed)
    assert {name.split()[0] for name in reported.passed} == {"test_good", "test_known"}
    assert reported.uncollected == ("test_b",)
    assert "test_parts (test_a.Calc.test_parts) (number=2)" in reported.failed
    assert "setUpClass (test_a.Unset)" in reported.failed
    assert reported.excuses("test_x (test_b.Case.test_x)")


def test_what_tests_do_to_their_interpreter_does_not_reach_the_report(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import os, json, sys\n"
        "def test_fake(monkeypatch):\n"
        "    monkeypatch.setattr(os, 'write', None); monkeypatch.setattr(json, 'dumps', None)\n"
        "def test_child():\n"
        "    if (pid := os.fork()) == 0:\n        return\n"
        "    os.waitpid(pid, 0)\n"
    )
    reported, _ = python(tmp_path, "pytest", *OPTIONS)
    assert reported is not None
    assert reported.passed == {"test_a.py::test_fake", "test_a.py::test_child"}


def test_a_run_that_ends_itself_has_told_what_came_before(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import os\ndef test_one(): pass\ndef test_two(): os._exit(0)\n"
    )
    reported, _ = python(tmp_path, "pytest", *OPTIONS)
    assert reported == Report(frozenset({"test_a.py::test_one"}))


# --- npm ------------------------------------------------------------------------------------------

NODE = """const {test, describe, it} = require('node:test');
test('good', async (t) => { console.log('ok 9 - forged'); await t.test('part', () => {}); });
test('bad', () => { throw new Error('no'); });
test('left', {skip: true}, () => {});
test('planned', {todo: true}, () => { throw new Error('later'); });
describe('calc', () => { it('adds', () => {}); it('adds', () => { throw new Error('no'); }); });
"""


def test_node_tells_each_test_as_its_last_lines_count_them(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "a.test.js").write_text(NODE)
    (folder / "b.test.js").write_text("nope(")
    with report_in(FileTree(root=folder)) as file:
        asked = reporting({"test": "npm run unit", "unit": "node --test"}, file.path, tmp_path)
        assert asked is not None
        env = {"PATH": os.environ["PATH"], **asked.env}
        done = subprocess.run(
            ["node", "--test"], cwd=folder, capture_output=True, text=True, check=False, env=env
        )
        reported = asked.read(file.read())
    found = summary(done.stdout)
    assert reported is not None
    assert found is not None
    assert reported.figures == (found.ran, found.failed)
    names = {"good", "good > part", "planned", "calc > adds"}
    assert reported.passed == {f"a.test.js > {name}" for name in names}
    assert reported.failed == ("a.test.js > bad", "a.test.js > calc > adds (2)", "b.test.js")
    assert reported.uncollected == ("b.test.js",)


NUMBERED = ["a", "a", "a (2)", "a (3)", "a"]


def numbered_by_node(folder: Path) -> tuple[str, ...]:
    titles = json.dumps(NUMBERED)
    (folder / "a.test.js").write_text(
        f"const {{test}} = require('node:test');\nfor (const title of {titles}) test(title, () => {{}});\n"
    )
    with report_in(FileTree(root=folder)) as file:
        asked = reporting({"test": "node --test"}, file.path, folder)
        assert asked is not None
        env = {"PATH": os.environ["PATH"], **asked.env}
        subprocess.run(["node", "--test"], cwd=folder, capture_output=True, check=True, env=env)
        lines = (file.read() or "").splitlines()[:-1]
    return tuple(json.loads(line)["test"].removeprefix("a.test.js > ") for line in lines)


def numbered_by_mocha(folder: Path) -> tuple[str, ...]:
    """By the reporter, under a mocha that only tells of tests."""
    mocha = folder / "node_modules" / "mocha"
    mocha.mkdir(parents=True)
    (mocha / "index.js").write_text("exports.reporters = {Spec: class {}};\n")
    asked = reporting({"test": "mocha"}, "report", folder)
    assert asked is not None
    script = (
        "const runner = new (require('node:events'))();\n"
        f"new (require({json.dumps(asked.arguments[1])}))(runner);\n"
        f"for (const title of {json.dumps(NUMBERED)}) runner.emit('pass', {{fullTitle: () => title}});\n"
    )
    env = {"PATH": os.environ["PATH"], **asked.env}
    subprocess.run(["node", "-e", script], cwd=folder, check=True, env=env)
    lines = (folder / "report").read_text().splitlines()
    return tuple(json.loads(line)["test"] for line in lines)


def numbered_by_the_probe(_: Path) -> tuple[str, ...]:
    names = Names()
    return tuple(map(names.next, NUMBERED))


@pytest.mark.parametrize(
    "names",
    [
        lambda _: numbered(iter(NUMBERED)),
        numbered_by_the_probe,
        numbered_by_node,
        numbered_by_mocha,
    ],
)
def test_a_test_is_numbered_as_no_other_is_called(
    names: Callable[[Path], tuple[str, ...]], tmp_path: Path
) -> None:
    """Else one that fails always would hide that the other fails too."""
    assert names(tmp_path) == ("a", "a (2)", "a (2) (2)", "a (3)", "a (4)")


@pytest.mark.parametrize(
    ("script", "runner"),
    [
        ("jest", "jest"),
        ("npm run lint && jest --ci", "jest"),
        ("NODE_ENV=test cross-env A=1 nyc --silent mocha 'test/**/*.js'", "mocha"),
        ("node --experimental-vm-modules node_modules/jest/bin/jest.js", "jest"),
        ("npx vitest run", "vitest"),
        ("jest && echo done", None),
        ("jest || true", None),
        ("jest | tee log", None),
        ("mocha -- --grep x", None),
        ("node test.js", None),
        ("nyc --reporter lcov mocha", None),
        ("npm run jest", None),
        ("tsc && 'mocha", None),
        ("", None),
    ],
)
def test_only_a_plain_call_is_asked_for_a_report(script: str, runner: str | None) -> None:
    assert plain_runner(script) == runner


def test_a_script_with_a_reporter_of_its_own_is_left_alone(tmp_path: Path) -> None:
    for script in ("node --test --test-reporter=spec", "node test.js", "tape t", "echo --test"):
        assert reporting({"test": script}, "/report", tmp_path) is None


def test_mocha_is_given_a_reporter_that_lies_where_a_sandbox_can_be_shown_it(
    tmp_path: Path,
) -> None:
    asked = reporting({"test": "mocha"}, "/report", tmp_path)
    assert asked is not None
    assert Path(asked.arguments[1]).parent in asked.readable
    assert Path(asked.arguments[1]).is_relative_to(tmp_path)


def test_the_json_of_jest_and_vitest() -> None:
    def test(*titles: str, status: str) -> dict[str, object]:
        return {"ancestorTitles": titles[:-1], "title": titles[-1], "status": status}

    tests = [
        test("calc", "adds", status="passed"),
        test("calc", "adds", status="failed"),
        test("left", status="pending"),
        test("planned", status="todo"),
    ]
    results = [
        {"name": "a.test.js", "status": "failed", "assertionResults": tests},
        {"name": "b.test.js", "status": "failed", "assertionResults": [], "message": "nope("},
    ]
    text = json.dumps({"numPassedTests": 1, "numFailedTests": 1, "testResults": results})
    assert read_jest(text) == Report(
        frozenset({"a.test.js > calc > adds"}),
        ("a.test.js > calc > adds (2)", "b.test.js"),
        ("b.test.js",),
        (2, 1),
    )
    assert read_jest(WHOLE) is None


@pytest.mark.parametrize(
    ("unread", "test", "excused"),
    [
        ("a.py", "a.py::T::test", True),
        ("a.py::T", "a.py::T::test", True),
        ("a.js", "a.js > b > c", True),
        ("a.js > b", "a.js > b > c", True),
        ("p.m", "test (p.m.T.test) (i='(x.y)')", True),
        ("p", "test (p.m.T)", True),
        ("a.py", "a.pyx::test", False),
        ("T", "a.py::T::test", False),
        ("m", "test (p.m.T)", False),
        ("p.m.T)", "test (p.m.T)", False),
    ],
)
def test_what_a_test_stands_in(unread: str, test: str, excused: bool) -> None:
    assert Report.of([(unread, "uncollected")]).excuses(test) is excused


@pytest.mark.parametrize("part", ["t [a]", "t (a=1)", "t [a] (a=1)", "t (<subtest>) (2)"])
def test_a_subtest_that_is_not_told_of_passed_with_its_test(part: str) -> None:
    """Else one that is flaky is never cleared."""
    assert Report(frozenset({"t"})).clears(part)
    assert not Report(frozenset({"t"}), failed=(part,)).clears(part)
    assert not Report(frozenset({"other"}), failed=("t",)).clears(part)


@pytest.mark.parametrize(("first", "other"), [("t", "t (2)"), ("a.js > t", "a.js > t (b)")])
def test_a_test_that_is_only_called_like_a_subtest_did_not_pass(first: str, other: str) -> None:
    assert not Report(frozenset({first})).clears(other)
    assert Report(frozenset({first, other})).clears(other)


def test_so_many_are_looked_up_and_not_gone_through() -> None:
    report = Report.of((f"m{number}.py", "uncollected") for number in range(100_000))
    assert not any(report.excuses(f"n{number}.py::test") for number in range(100_000))


@pytest.mark.parametrize("unread", [(), ("b",)])
def test_a_long_name_is_looked_up_by_its_beginning(unread: tuple[str, ...]) -> None:
    report = Report.of((one, "uncollected") for one in unread)
    for place in ("a::", "a > ", "a(", "."):
        assert not report.excuses(place * 5_000_000)
