"""Reports, from inside a Python of a proof or of a project's own test command, how each test ended and
whether the process finished.

Runs before any of the target's code, in each Python of the environment (``observed.add_to``). It writes to
the record that ``observe_probe`` guards: ``began PID``, ``ended PID``, ``test OUTCOME NAME``,
``changed NAME``; ``observed.read_witness`` and ``observed.read_suite`` read them. Programs that a test
starts are not witnessed: the variable is removed as soon as a test runner starts. This file imports no
module that a file of the target could replace.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is a file, which could be the target's
    from collections.abc import Callable, Iterator
    from typing import Any

    Put = Callable[[str], None]

#: Set for the first Python that the command starts; those that it starts itself get ``NESTED``.
VARIABLE = "FALLBACK_TIER_WITNESS"
NESTED = "nested"

#: The variable's value to report all tests of a command (``Suite``), and a variable with the names of tests
#: or whole paths of files, one per line, if only these are to run.
SUITE, ONLY = "suite", "FALLBACK_TIER_ONLY"

#: Packages of test runners: if the patched code changes them, their verdict may change.
RUNNERS = frozenset({"unittest", "_pytest", "pytest", "pluggy"})

#: Functions, apart from the runners', that end a process or affect how it ends.
ENDINGS = ((sys, "exit"), (sys, "excepthook"), (os, "_exit"))

_OUTCOMES = {
    "addSuccess": "passed",
    "addFailure": "failed",
    "addError": "failed",
    "addUnexpectedSuccess": "failed",
    "addSkip": "skipped",
    # Code under test can mark its own test as expected to fail.
    "addExpectedFailure": "skipped",
}


class Originals:
    """Functions as they were before the target's code ran, to detect changes."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._kept: list[tuple[str, Any, str, Any, Any]] = []
        self._streams = (sys.stdout, sys.stderr, *map(_stream, (1, 2)))
        for holder, name in ENDINGS:
            self._keep(f"{holder.__name__}.{name}", holder, name)
        self._keep_all("builtins", builtins)
        self._of_process, self._kept = self._kept, []

    def keep_runners(self) -> None:
        """Store the content of those runners' modules that are loaded by now."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in RUNNERS and name not in self._modules:
                self._modules.add(name)
                self._keep_all(name, module)

    def changed_runners(self) -> Iterator[str]:
        """Yield names of the runners' functions that have changed."""
        return self._changed(self._kept)

    def changed(self) -> Iterator[str]:
        """Yield the same, and what else has changed at the end of the process."""
        yield from self.changed_runners()
        yield from self._changed(self._of_process)
        now = (sys.stdout, sys.stderr, *map(_stream, (1, 2)))
        pairs = zip(now, self._streams)  # noqa: B905 (of Python 3.8 too)
        if any(current is not original and current != original for current, original in pairs):
            yield "the standard output"

    @staticmethod
    def _changed(originals: list[tuple[str, Any, str, Any, Any]]) -> Iterator[str]:
        for path, holder, name, value, code in originals:
            if vars(holder).get(name) is not value or getattr(value, "__code__", None) is not code:
                yield path

    def _keep_all(self, path: str, holder: Any) -> None:
        for name, value in list(vars(holder).items()):
            self._keep(f"{path}.{name}", holder, name)
            if isinstance(value, type) and value.__module__ == path:
                for inner in list(vars(value)):
                    self._keep(f"{path}.{name}.{inner}", value, inner)

    def _keep(self, path: str, holder: Any, name: str) -> None:
        value = vars(holder)[name]
        if callable(value) or isinstance(value, (property, classmethod, staticmethod)):
            self._kept.append((path, holder, name, value, getattr(value, "__code__", None)))


def _stream(descriptor: int, fstat: Callable[[int], os.stat_result] = os.fstat) -> Any:
    try:
        status = fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Witness:
    """This process's part of the record. ``reporter``: the source text of ``report_probe``."""

    def __init__(self, put: Put, reporter: str) -> None:
        self._originals = Originals()
        self._reporter = reporter
        self._runner: Any = None
        self._told: set[str] = set()
        own_pid, pid, frame = os.getpid(), os.getpid, sys._getframe
        thread, ident = _thread.get_ident(), _thread.get_ident

        def say(line: str) -> None:
            if pid() == own_pid:  # a forked child does not report this process's end
                put(line)

        def ended() -> None:
            # The interpreter calls this itself: from no other function, and on its first thread.
            if frame(0).f_back is None and ident() == thread:
                self._compare(self._originals.changed())
                say(f"ended {own_pid}")

        self._say = say
        self._began = f"began {own_pid}"
        self._is_first = os.environ.get(VARIABLE) != NESTED
        os.environ[VARIABLE] = NESTED
        atexit.register(ended)  # the first one registered runs last
        if self._is_first:
            say(self._began)

    def starts(self, runner: object) -> bool:
        """Return whether this is the runner whose tests count. A runner that its tests start is not."""
        if self._runner is None:
            self._runner = runner
            os.environ.pop(VARIABLE, None)
            if not self._is_first:
                self._say(self._began)
        return self._runner is runner

    def collected(self, count: int) -> None:
        """Do nothing: in a proof only tests that ran count."""

    def write(self, name: str, was: str) -> None:
        """Report how one test ended."""
        self._compare(self._originals.changed_runners())
        self._say(f"test {was} {name}")

    def _compare(self, changed: Iterator[str]) -> None:
        for name in changed:
            if name not in self._told:
                self._told.add(name)
                self._say(f"changed {name}")

    def report_names(self) -> dict[str, Any]:
        """Return the namespace of ``report_probe``, which has the names of tests."""
        space: dict[str, Any] = {"__name__": "fallback_tier_report"}
        exec(compile(self._reporter, "<report>", "exec", dont_inherit=True), space)  # noqa: S102 (ours)
        return space

    def unittest_loaded(self, _: Any) -> None:
        """Make each unittest result report its tests."""
        result: Any = sys.modules["unittest.result"].TestResult
        probe = self.report_names()
        names = probe["Names"]()
        running: list[Any] = [None, ""]

        def wrapped(call: str, report: Callable[..., None]) -> None:
            original = getattr(result, call)

            def reporting(self: Any, test: Any, *details: Any) -> Any:
                returned = original(self, test, *details)
                if starts(self):
                    report(test, *details)
                return returned

            reporting.__name__ = reporting.__qualname__ = call
            setattr(result, call, reporting)

        def started(test: Any, *_: Any) -> None:
            running[:] = test, names.next(str(test))

        def ended(was: str) -> Callable[..., None]:
            def report(test: Any, *_: Any) -> None:
                write(running[1] if running[0] is test else str(test), was)

            return report

        def subtest(_: Any, part: Any, error: Any) -> None:
            if error is not None:
                write(names.next(probe["_named"](part)), "failed")

        starts, write = self.starts, self.write
        for call, was in _OUTCOMES.items():
            wrapped(call, ended(was))
        wrapped("startTest", started)
        if hasattr(result, "addSubTest"):
            wrapped("addSubTest", subtest)
        self._originals.keep_runners()

    def pytest_loaded(self, config: Any) -> None:
        """Make the first pytest of the process report its tests, by a plugin."""
        manager = config.PytestPluginManager
        original_init, witness = manager.__init__, self

        def make(self: Any, *values: Any, **keywords: Any) -> None:
            original_init(self, *values, **keywords)
            if witness.starts(self):
                probe = witness.report_names()
                probe["_PYTEST"]["xfailed"] = "skipped"
                plugin = probe["PytestReporter"](witness)
                plugin.pytest_plugin_registered = lambda: witness._originals.keep_runners()
                self.register(plugin, "fallback-tier-witness")

        manager.__init__ = make


class Suite:
    """Reporter of the tests of every process of a command: those of pytest sessions, and of unittest
    results of any class, unless a test itself runs them.

    A process that runs tests writes ``began PID ANCESTOR…``, ``collected PID COUNT`` if its runner reports
    that, ``tested PID OUTCOME NAME`` per test, and at its end ``ended PID`` with its counts: lines, tests
    that ran, and tests that failed. A runner's own children write nothing, or are identified by their
    ancestors: the runner reports what they ran (pytest-xdist, ``manage.py test --parallel``). A forked
    child writes nothing.
    """

    def __init__(self, put: Put, reporter: str) -> None:
        self._reporter = reporter
        self._space: dict[str, Any] = {}
        self._only = frozenset(filter(None, os.environ.get(ONLY, "").split("\n")))
        self._files: Any = None
        #: The pytest session, or unittest result, that is running tests now.
        self._session: Any = None
        self._running: Any = None
        self._test: tuple[Any, str] = (None, "")
        self._depth = 0
        self._began = False
        self._told = self._ran = self._failed = 0
        self._sessions: list[Any] = []
        own_pid, pid, frame = os.getpid(), os.getpid, sys._getframe
        thread, ident = _thread.get_ident(), _thread.get_ident

        def say(line: str) -> None:
            if pid() == own_pid:
                put(line)

        def ended() -> None:
            if self._began and frame(0).f_back is None and ident() == thread:
                ran = self._ran + sum(session.ran for session in self._sessions)
                failed = self._failed + sum(session.failed for session in self._sessions)
                say(f"ended {own_pid} {self._told} {ran} {failed}")

        ancestors = os.environ[VARIABLE].partition(" ")[2]
        os.environ[VARIABLE] = f"{SUITE} {ancestors} {own_pid}"

        def begin() -> None:
            if not self._began:
                self._began = True
                os.environ.pop(VARIABLE, None)
                say(f"began {own_pid} {ancestors}")

        self._say, self._begin, self._pid = say, begin, own_pid
        atexit.register(ended)

    def write(self, name: str, was: str) -> None:
        """Report how one test ended."""
        self._told += 1
        self._say(f"tested {self._pid} {was} {name}")

    def collected(self, count: int) -> None:
        """Report how many tests a session is going to run."""
        self._say(f"collected {self._pid} {count}")

    def _names(self) -> dict[str, Any]:
        """Return the namespace of ``report_probe``, which has the names of tests; loaded on first use."""
        if not self._space:
            self._space["__name__"] = "fallback_tier_report"
            exec(compile(self._reporter, "<report>", "exec", dont_inherit=True), self._space)  # noqa: S102 (ours)
            self._space["_numbered"] = self._space["Names"]()
        return self._space

    def pytest_loaded(self, config: Any) -> None:
        """Make each pytest session that no test runs report its tests, by a plugin."""
        manager = config.PytestPluginManager
        original_init, suite = manager.__init__, self

        def make(self: Any, *values: Any, **keywords: Any) -> None:
            original_init(self, *values, **keywords)
            if suite._session is None and suite._running is None:
                suite._session = self
                suite._begin()
                plugin = suite._names()["PytestReporter"](suite, suite._only)
                plugin.pytest_configure = suite._configuring(plugin.pytest_configure)
                plugin.pytest_unconfigure = suite._session_ended
                suite._sessions.append(plugin)
                self.register(plugin, "fallback-tier-suite")

        manager.__init__ = make

    @staticmethod
    def _configuring(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def pytest_configure(config: Any) -> None:
            original(config)
            config.option.maxfail = 0  # other tests may fail after the first
            config.option.verbose = max(config.option.verbose, -1)  # less has no last line

        return pytest_configure

    def _session_ended(self) -> None:
        self._session = None

    def result_loaded(self, module: Any) -> None:
        """Make each class of unittest results report, also those that override all that they inherit."""
        result, wrap = module.TestResult, self._wrap

        def made(cls: Any, /, **keywords: Any) -> None:
            super(result, cls).__init_subclass__(**keywords)
            wrap(cls)

        result.__init_subclass__ = classmethod(made)
        wrap(result)

    def case_loaded(self, module: Any) -> None:
        """Leave out tests that are not to run, if tests are named; and make results report that only have
        the interface of unittest's (nose2)."""
        case, suite = module.TestCase, self
        original_run = case.run
        wrapped: set[Any] = {object}

        def run(self: Any, result: Any = None) -> Any:
            mro = type(result).__mro__
            base = sys.modules["unittest.result"].TestResult
            if result is not None and base not in mro and suite._session is None:
                for cls in mro:
                    if cls not in wrapped:
                        wrapped.add(cls)
                        suite._wrap(cls)
            return original_run(self, result) if suite._is_chosen(self) else result

        case.run = run

    def _is_chosen(self, test: Any) -> bool:
        name = test._testMethodName if type(test).__name__ == "_FailedTest" else str(test)
        if not self._only or self._session is not None or self._running is not None:
            return True
        if name in self._only or any(only_name.startswith(f"{name} ") for only_name in self._only):
            return True
        space = self._names()
        if self._files is None:
            self._files = space["files_in"](self._only)
        return bool(space["stands_in"](test, self._files))

    def _wrap(self, cls: Any) -> None:
        for call in ("startTestRun", "startTest", "stopTest", "addSubTest", *_OUTCOMES):
            original = vars(cls).get(call)
            if callable(original):
                setattr(cls, call, self._reporting(call, original))

    def _reporting(self, call: str, original: Any) -> Any:
        """Return a method of a result that reports, unless the method that calls it does."""

        def reporting(result: Any, *values: Any, **keywords: Any) -> Any:
            is_inner = self._depth > 0 or self._session is not None
            if is_inner or self._running not in (None, result):
                return original(result, *values, **keywords)
            self._depth += 1
            try:
                if call == "startTest":
                    self._started(result, *values)
                elif call == "startTestRun":
                    self._begin()
                returned = original(result, *values, **keywords)
            finally:
                self._depth -= 1
            if call in _OUTCOMES:
                self._was(call, *values)
            elif call == "addSubTest":
                self._part(*values)
            elif call == "stopTest":
                self._running = None
            return returned

        reporting.__name__ = reporting.__qualname__ = call
        return reporting

    def _started(self, result: Any, test: Any, *_: Any) -> None:
        self._begin()
        self._running = result
        self._ran += 1
        self._test = test, self._names()["_numbered"].next(str(test))

    def _was(self, call: str, test: Any, *_: Any) -> None:
        self._begin()
        was = self._names()["_UNITTEST"][call]
        self._ran -= was == "skipped"
        self._failed += was == "failed"
        if type(test).__name__ == "_FailedTest":  # a module that can't be imported
            self.write(test._testMethodName, "uncollected")
        else:
            self.write(self._test[1] if self._test[0] is test else str(test), was)

    def _part(self, _: Any, part: Any = None, error: Any = None) -> None:
        space = self._names()
        # A nameless subtest gets a number even if it passes, as in pytest.
        if error is not None or space["_is_nameless"](None, part.params):
            name = space["_numbered"].next(space["_named"](part))
            if error is not None:
                self._failed += 1
                self.write(name, "failed")


class Loading:
    """Import hook that finds no module itself: it calls a function after a module is loaded."""

    def __init__(self, after: dict[str, Callable[[Any], None]]) -> None:
        self._after = after

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Implement Python's protocol of finders."""
        after = self._after.pop(name, None)
        if after is None:
            return None
        finders = (
            finder
            for finder in sys.meta_path
            if finder is not self and hasattr(finder, "find_spec")
        )
        spec = next(
            filter(None, (finder.find_spec(name, path, target) for finder in finders)), None
        )
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            after(module)

        loader: Any = spec.loader
        loader.exec_module = exec_module
        return spec


def witness(put: Put, reporter: str) -> None:
    """Start reporting in this process."""
    after: dict[str, Callable[[Any], None]]
    if os.environ.get(VARIABLE, "").partition(" ")[0] == SUITE:
        suite = Suite(put, reporter)
        after = {"unittest.result": suite.result_loaded, "unittest.case": suite.case_loaded}
        after["_pytest.config"] = suite.pytest_loaded
    else:
        process_witness = Witness(put, reporter)
        after = {
            "unittest.main": process_witness.unittest_loaded,
            "_pytest.config": process_witness.pytest_loaded,
        }
    sys.meta_path.insert(0, Loading(after))
