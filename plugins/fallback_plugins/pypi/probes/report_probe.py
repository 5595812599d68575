"""Runs pytest or unittest in the target's interpreter, and reports each test in a file as it ends.

Run as ``python -c`` with the file, the runner and the runner's own arguments, so that no module of this
tool needs to be importable there. A test's changes to ``os`` or ``json`` (a fake file system) don't affect
it, since it binds the functions first. A forked child reports nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unittest
from pathlib import Path
from typing import Any

#: Prefix of the argument with the only tests to run, as a JSON list: names, or whole paths of files.
ONLY = "--fallback-tier-only="


class Lines:
    """The report file; ``fallback_plugins.shared.gates.suite_run`` describes its lines."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        file, own_pid = os.open(path, flags, 0o600), os.getpid()
        write, pid, dumps = os.write, os.getpid, json.dumps

        def put(line: dict[str, Any]) -> bool:
            if pid() != own_pid:
                return False
            try:
                write(file, (dumps(line) + "\n").encode())
            except (
                OSError
            ):  # a test closed the file: the end will not match, and the report is not used
                return False
            return True

        self._put = put
        self._told = 0

    def write(self, name: str, was: str) -> None:
        """Report how one test ended."""
        self._told += self._put({"test": name, "was": was})

    def collected(self, count: int) -> None:
        """Report how many tests the runner is going to run."""
        self._put({"collected": count})

    def end(self, ran: int, failed: int) -> None:
        """Report the runner's own counts."""
        self._put({"told": self._told, "ran": ran, "failed": failed})


class Names:
    """Unique names of tests. From its second use on, a name is numbered, as in the log
    (``suite_run.numbered``): otherwise a test that has long failed could hide another."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def next(self, name: str) -> str:
        """Return the name for one more test with this name."""
        number = self._seen.get(name, 0) + 1
        unique = name if number == 1 else f"{name} ({number})"
        while number > 1 and unique in self._seen:
            number += 1
            unique = f"{name} ({number})"
        self._seen[unique] = 1
        self._seen[name] = number
        return unique


_PYTEST = {
    "passed": "passed",
    "xfailed": "passed",
    "xpassed": "passed",
    "failed": "failed",
    "error": "failed",
    "skipped": "skipped",
}


#: The address of an object in a subtest's name, which differs in each run.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

#: unittest's name for a subtest without a name.
_NAMELESS = " (<subtest>)"

#: Limit of the text that identifies a subtest within its test (characters).
_MAX_PART = 300


def files_in(only: frozenset[str]) -> frozenset[str]:
    """Return the real paths of the files among the tests to run."""
    return frozenset(os.path.realpath(path) for path in only if path.startswith("/"))


def stands_in(test: Any, files: frozenset[str]) -> bool:
    """Return whether a unittest test is in one of these files. A test for a module that can't be imported
    has the module's dotted name."""
    if not files:
        return False
    if type(test).__name__ == "_FailedTest":
        end = "/{}.py".format(test._testMethodName.replace(".", "/"))
        return any(file.endswith(end) for file in files)
    module = sys.modules.get(type(test).__module__)
    return os.path.realpath(getattr(module, "__file__", None) or "") in files


class PytestReporter:
    """A pytest plugin. Its categories are those that pytest's own last line counts."""

    def __init__(self, lines: Lines, only: frozenset[str] = frozenset()) -> None:
        self._lines = lines
        self._only = only
        self._files = files_in(only)
        self._config: Any = None
        self._names: dict[str, Names] = {}
        self.ran = self.failed = 0

    def pytest_configure(self, config: Any) -> None:
        """Store the configuration, for the tests' categories. Chosen tests run in one process: with
        pytest-xdist, each process collects the tests itself, and would leave out none. Command line options
        can't set this, since the project may have pytest-xdist installed and not load it."""
        self._config = config
        if self._only and hasattr(config.option, "tx"):
            config.option.dist, config.option.tx = "no", []

    def pytest_make_collect_report(self, collector: Any) -> Any:
        """Return an empty collection for a file that is not chosen, if files are chosen: importing it may
        take longer than the tests. Return None to let pytest collect the file."""
        kinds = {cls.__name__ for cls in type(collector).__mro__}
        is_file = "Module" in kinds and "Package" not in kinds
        if not self._files or not is_file or self._is_in_file(collector):
            return None
        try:
            from _pytest.reports import CollectReport
        except ImportError:
            return None
        return CollectReport(collector.nodeid, "passed", None, [])

    # What pytest.hookimpl would set, which is not loaded yet: before pytest's own hook, since this plugin
    # is registered earlier than that in a process that a command starts.
    setattr(pytest_make_collect_report, "pytest_impl", {"tryfirst": True})  # noqa: B010 (for mypy)

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Leave out tests that are not to run. A chosen file means all tests in it."""
        if not self._only:
            return
        parts: dict[bool, list[Any]] = {True: [], False: []}
        for item in items:
            parts[self._is_chosen(item.nodeid) or self._is_in_file(item)].append(item)
        items[:], deselected = parts[True], parts[False]
        config.hook.pytest_deselected(items=deselected)

    def pytest_collection_finish(self, session: Any) -> None:
        """Report the number of the remaining tests, which are run."""
        if items := getattr(session, "items", None):
            self._lines.collected(len(items))

    def _is_in_file(self, node: Any) -> bool:
        path = getattr(node, "path", None) or getattr(node, "fspath", "")
        return bool(self._files) and os.path.realpath(str(path)) in self._files

    def _is_chosen(self, name: str) -> bool:
        if name in self._only or name.partition("::")[0] in self._only:
            return True
        return any(chosen.startswith(f"{name} ") for chosen in self._only)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Report one phase of one test, or of one of its subtests; also of a pytest-xdist process."""
        status = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        # Without its terminal (``-p no:terminal``) pytest has no category for tests that pass or fail.
        category = status[0] if status else report.outcome if report.when == "call" else ""
        was, part = _PYTEST.get(category), _part_of(report)
        if was is None and not (part and _is_nameless(*part)):
            return
        names = self._names.setdefault(report.when, Names())
        self._count(names.next(report.nodeid + (_in_words(*part) if part else "")), was)

    def pytest_collectreport(self, report: Any) -> None:
        """Report a file that can't be collected."""
        if report.failed:
            self._count(report.nodeid, "uncollected")

    def _count(self, name: str, was: str | None) -> None:
        if was is None:
            return
        self.ran += was != "skipped"
        self.failed += was in ("failed", "uncollected")
        self._lines.write(name, was)


def _part_of(report: Any) -> tuple[Any, Any] | None:
    """Return a subtest's message and values, for pytest 9 and pytest-subtests; None for a test."""
    context = getattr(report, "context", None)
    return context and (getattr(context, "msg", None), getattr(context, "kwargs", None) or {})


def _is_nameless(message: Any, values: Any) -> bool:
    """Return whether only its position identifies a subtest. Then subtests that pass are counted, too; for
    others, no text is made that the runner itself does not make."""
    return message is None and not values


def _in_words(message: Any, values: Any) -> str:
    """Return what identifies a subtest within its test. pytest-xdist passes values as quoted texts."""
    if _is_nameless(message, values):
        return _NAMELESS
    try:
        parts = [f" [{message}]"] if message is not None else []
        assignments = (f"{key}={_text(values[key])}" for key in values)
        parts += [" ({})".format(", ".join(assignments))] if values else []
        return _ADDRESS.sub("", "".join(parts))[:_MAX_PART]
    except Exception:  # noqa: BLE001 (a value's own code: this probe must not make its test fail)
        return _NAMELESS


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else repr(value)).strip("'\"")


#: unittest's methods for results, with the test's outcome. Only subtests that fail are reported.
_UNITTEST = {
    "addSuccess": "passed",
    "addExpectedFailure": "passed",
    "addFailure": "failed",
    "addError": "failed",
    "addUnexpectedSuccess": "failed",
    "addSkip": "skipped",
}


def _named(part: Any) -> str:
    """Return a subtest's name in unittest: its test, and what identifies it there."""
    try:
        return _ADDRESS.sub("", str(part))[:_MAX_PART]
    except Exception:  # noqa: BLE001 (a value's own code: this probe must not make its test fail)
        return f"{part.test_case}{_NAMELESS}"


def unittest_runner(
    lines: Lines, only: frozenset[str] = frozenset()
) -> type[unittest.TextTestRunner]:
    """Return unittest's own runner, extended to report each test."""

    names = Names()
    files = files_in(only)
    running: list[Any] = [None, ""]

    def started(self: Any, test: Any) -> None:
        unittest.TextTestResult.startTest(self, test)
        running[:] = test, names.next(str(test))

    def telling(call: str, was: str) -> Any:
        def reported(self: Any, test: Any, *details: Any) -> None:
            getattr(unittest.TextTestResult, call)(self, test, *details)
            is_unimported = type(test).__name__ == "_FailedTest"  # a module that can't be imported
            numbered_name = running[1] if running[0] is test else str(test)
            name = test._testMethodName if is_unimported else numbered_name
            lines.write(name, "uncollected" if is_unimported else was)

        return reported

    def subtest(self: Any, test: Any, part: Any, error: Any) -> None:
        unittest.TextTestResult.addSubTest(self, test, part, error)
        # A nameless subtest gets a number even if it passes, as in pytest.
        if error is not None or _is_nameless(None, part.params):
            name = names.next(_named(part))
            if error is not None:
                lines.write(name, "failed")

    def chosen(test: Any) -> list[Any]:
        if isinstance(test, unittest.TestSuite):
            return [inner for part in test for inner in chosen(part)]
        # The name of a failing subtest begins with that of its test.
        name = str(test)
        is_chosen = name in only or any(only_name.startswith(f"{name} ") for only_name in only)
        return [test] if is_chosen or stands_in(test, files) else []

    def run(self: Any, test: Any) -> Any:
        test = unittest.TestSuite(chosen(test)) if only else test
        lines.collected(test.countTestCases())
        result = unittest.TextTestRunner.run(self, test)
        failures = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
        lines.end(result.testsRun - len(result.skipped), failures)
        return result

    methods = {call: telling(call, was) for call, was in _UNITTEST.items()}
    methods |= {"startTest": started, "addSubTest": subtest}
    result_class = type("Result", (unittest.TextTestResult,), methods)
    return type("Runner", (unittest.TextTestRunner,), {"resultclass": result_class, "run": run})


def main(path: str, runner: str, arguments: list[str]) -> None:
    """Run the tests, and exit with the runner's exit code."""
    lines = Lines(path)
    only: frozenset[str] = frozenset()
    if arguments and arguments[0].startswith(ONLY):
        only = frozenset(json.loads(arguments.pop(0)[len(ONLY) :]))
    if runner == "unittest":
        sys.argv = ["python -m unittest", *arguments]
        unittest.main(module=None, testRunner=unittest_runner(lines, only))
    import pytest  # available only if the target installed it

    sys.argv = [str(Path(pytest.__file__).with_name("__main__.py")), *arguments]
    reporter = PytestReporter(lines, only)
    code = pytest.main(arguments, plugins=[reporter])
    lines.end(reporter.ran, reporter.failed)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
