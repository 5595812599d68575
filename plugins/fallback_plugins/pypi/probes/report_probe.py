"""Runs pytest or unittest in the target's interpreter, and tells of each test in a file as it ends.

Run as ``python -c`` with the file, the runner and the runner's own arguments: nothing of ours needs to be
importable there. What a test does to ``os`` or ``json`` (a fake file system) does not reach it, since the
functions are bound before. A forked child tells nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unittest
from pathlib import Path
from typing import Any

#: Begins the argument that names the tests to be run alone, as a JSON list: names, or whole paths of files.
ONLY = "--fallback-tier-only="


class Lines:
    """The file; see ``fallback_plugins.shared.gates.suite_run`` for what a line is."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        file, mine = os.open(path, flags, 0o600), os.getpid()
        write, pid, dumps = os.write, os.getpid, json.dumps

        def put(line: dict[str, Any]) -> bool:
            if pid() != mine:
                return False
            try:
                write(file, (dumps(line) + "\n").encode())
            except (
                OSError
            ):  # a test closed it: the end won't fit, and the report counts for nothing
                return False
            return True

        self._put = put
        self._told = 0

    def write(self, name: str, was: str) -> None:
        """How one test ended."""
        self._told += self._put({"test": name, "was": was})

    def collected(self, count: int) -> None:
        """How many tests the runner is going to run."""
        self._put({"collected": count})

    def end(self, ran: int, failed: int) -> None:
        """What the runner counts."""
        self._put({"told": self._told, "ran": ran, "failed": failed})


class Names:
    """Names of tests as they are; a name's second bearer and those after it are numbered, as the log's are
    (``suite_run.numbered``): else one that fails for years hides another."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def next(self, name: str) -> str:
        """Of one more bearer."""
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


#: Of an object in a subtest's name: another in each run.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

#: What unittest calls a subtest without a name.
_NAMELESS = " (<subtest>)"

#: Characters of what tells a subtest from others.
_MAX_PART = 300


def files_in(only: frozenset[str]) -> frozenset[str]:
    """Paths of the files among what is to be run alone."""
    return frozenset(os.path.realpath(one) for one in only if one.startswith("/"))


def stands_in(test: Any, files: frozenset[str]) -> bool:
    """Does a test of unittest's stand in one of these files? One for a module that can't be imported has
    its dotted name."""
    if not files:
        return False
    if type(test).__name__ == "_FailedTest":
        end = "/{}.py".format(test._testMethodName.replace(".", "/"))
        return any(one.endswith(end) for one in files)
    module = sys.modules.get(type(test).__module__)
    return os.path.realpath(getattr(module, "__file__", None) or "") in files


class PytestReporter:
    """A plugin of pytest's. Categories are those that pytest's own last line counts."""

    def __init__(self, lines: Lines, only: frozenset[str] = frozenset()) -> None:
        self._lines = lines
        self._only = only
        self._files = files_in(only)
        self._config: Any = None
        self._names: dict[str, Names] = {}
        self.ran = self.failed = 0

    def pytest_configure(self, config: Any) -> None:
        """Whom to ask for categories. Chosen tests run in one process: what pytest-xdist distributes is
        collected by each of its own, where nothing is left out. By options of its own that can't be
        said, since the project may have it and not load it."""
        self._config = config
        if self._only and hasattr(config.option, "tx"):
            config.option.dist, config.option.tx = "no", []

    def pytest_make_collect_report(self, collector: Any) -> Any:
        """Import no file whose tests are left out, if files are chosen: it may take longer than the tests.
        None: pytest goes on by itself."""
        kinds = {one.__name__ for one in type(collector).__mro__}
        is_file = "Module" in kinds and "Package" not in kinds
        if not self._files or not is_file or self._is_in_file(collector):
            return None
        try:
            from _pytest.reports import CollectReport
        except ImportError:
            return None
        return CollectReport(collector.nodeid, "passed", None, [])

    # As pytest.hookimpl marks it, which is not loaded yet: before pytest's own, which comes later to a
    # process that a command starts.
    setattr(pytest_make_collect_report, "pytest_impl", {"tryfirst": True})  # noqa: B010 (for mypy)

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Leave out what is not to be run. A file stands for the tests in it."""
        if not self._only:
            return
        parts: dict[bool, list[Any]] = {True: [], False: []}
        for one in items:
            parts[self._is_chosen(one.nodeid) or self._is_in_file(one)].append(one)
        items[:], apart = parts[True], parts[False]
        config.hook.pytest_deselected(items=apart)

    def pytest_collection_finish(self, session: Any) -> None:
        """What is left is run."""
        if items := getattr(session, "items", None):
            self._lines.collected(len(items))

    def _is_in_file(self, node: Any) -> bool:
        place = getattr(node, "path", None) or getattr(node, "fspath", "")
        return bool(self._files) and os.path.realpath(str(place)) in self._files

    def _is_chosen(self, name: str) -> bool:
        if name in self._only or name.partition("::")[0] in self._only:
            return True
        return any(one.startswith(f"{name} ") for one in self._only)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One phase of one test, or of one of its subtests; of a process of pytest-xdist too."""
        found = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        # Without its terminal (``-p no:terminal``) pytest has no category for a test that passes or fails.
        category = found[0] if found else report.outcome if report.when == "call" else ""
        was, part = _PYTEST.get(category), _part_of(report)
        if was is None and not (part and _is_nameless(*part)):
            return
        names = self._names.setdefault(report.when, Names())
        self._count(names.next(report.nodeid + (_in_words(*part) if part else "")), was)

    def pytest_collectreport(self, report: Any) -> None:
        """A file that can't be read in."""
        if report.failed:
            self._count(report.nodeid, "uncollected")

    def _count(self, name: str, was: str | None) -> None:
        if was is None:
            return
        self.ran += was != "skipped"
        self.failed += was in ("failed", "uncollected")
        self._lines.write(name, was)


def _part_of(report: Any) -> tuple[Any, Any] | None:
    """Message and values of a subtest, as pytest 9 and pytest-subtests have them; None for a test."""
    context = getattr(report, "context", None)
    return context and (getattr(context, "msg", None), getattr(context, "kwargs", None) or {})


def _is_nameless(message: Any, values: Any) -> bool:
    """Is a subtest told from its test's others by its place alone? So those that pass are counted, too; of
    others nothing is made into text that the runner does not."""
    return message is None and not values


def _in_words(message: Any, values: Any) -> str:
    """What tells a subtest from the others of its test. pytest-xdist hands on values as quoted texts."""
    if _is_nameless(message, values):
        return _NAMELESS
    try:
        parts = [f" [{message}]"] if message is not None else []
        told = (f"{key}={_text(values[key])}" for key in values)
        parts += [" ({})".format(", ".join(told))] if values else []
        return _ADDRESS.sub("", "".join(parts))[:_MAX_PART]
    except Exception:  # noqa: BLE001 (a value's own code: nothing of ours may fail its test)
        return _NAMELESS


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else repr(value)).strip("'\"")


#: What unittest calls of a result, and how that test was. Of subtests only those that fail are told.
_UNITTEST = {
    "addSuccess": "passed",
    "addExpectedFailure": "passed",
    "addFailure": "failed",
    "addError": "failed",
    "addUnexpectedSuccess": "failed",
    "addSkip": "skipped",
}


def _named(part: Any) -> str:
    """A subtest of unittest's by its test and what tells it from others."""
    try:
        return _ADDRESS.sub("", str(part))[:_MAX_PART]
    except Exception:  # noqa: BLE001 (a value's own code: nothing of ours may fail its test)
        return f"{part.test_case}{_NAMELESS}"


def unittest_runner(
    lines: Lines, only: frozenset[str] = frozenset()
) -> type[unittest.TextTestRunner]:
    """unittest's own runner, which tells of each test."""

    names = Names()
    files = files_in(only)
    running: list[Any] = [None, ""]

    def started(self: Any, test: Any) -> None:
        unittest.TextTestResult.startTest(self, test)
        running[:] = test, names.next(str(test))

    def telling(call: str, was: str) -> Any:
        def reported(self: Any, test: Any, *more: Any) -> None:
            getattr(unittest.TextTestResult, call)(self, test, *more)
            unread = type(test).__name__ == "_FailedTest"  # a module that can't be imported
            own = running[1] if running[0] is test else str(test)
            name = test._testMethodName if unread else own
            lines.write(name, "uncollected" if unread else was)

        return reported

    def subtest(self: Any, test: Any, part: Any, error: Any) -> None:
        unittest.TextTestResult.addSubTest(self, test, part, error)
        # One that passes has a number where it has no name, as those of pytest.
        if error is not None or _is_nameless(None, part.params):
            name = names.next(_named(part))
            if error is not None:
                lines.write(name, "failed")

    def chosen(test: Any) -> list[Any]:
        if isinstance(test, unittest.TestSuite):
            return [one for part in test for one in chosen(part)]
        # Of subtests those that fail have a name of their own, which begins with their test's.
        name = str(test)
        is_chosen = name in only or any(one.startswith(f"{name} ") for one in only)
        return [test] if is_chosen or stands_in(test, files) else []

    def run(self: Any, test: Any) -> Any:
        test = unittest.TestSuite(chosen(test)) if only else test
        lines.collected(test.countTestCases())
        result = unittest.TextTestRunner.run(self, test)
        bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
        lines.end(result.testsRun - len(result.skipped), bad)
        return result

    methods = {call: telling(call, was) for call, was in _UNITTEST.items()}
    methods |= {"startTest": started, "addSubTest": subtest}
    made = type("Result", (unittest.TextTestResult,), methods)
    return type("Runner", (unittest.TextTestRunner,), {"resultclass": made, "run": run})


def main(path: str, runner: str, arguments: list[str]) -> None:
    """Run it, and exit as it exits."""
    lines = Lines(path)
    only: frozenset[str] = frozenset()
    if arguments and arguments[0].startswith(ONLY):
        only = frozenset(json.loads(arguments.pop(0)[len(ONLY) :]))
    if runner == "unittest":
        sys.argv = ["python -m unittest", *arguments]
        unittest.main(module=None, testRunner=unittest_runner(lines, only))
    import pytest  # only what the target installed has it

    sys.argv = [str(Path(pytest.__file__).with_name("__main__.py")), *arguments]
    reporter = PytestReporter(lines, only)
    code = pytest.main(arguments, plugins=[reporter])
    lines.end(reporter.ran, reporter.failed)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
