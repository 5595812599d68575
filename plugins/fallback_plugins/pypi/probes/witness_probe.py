"""Reports, from inside a Python of a proof, how each test ended and whether the process reached its end.

Runs before anything of the target's, in each Python of the environment (``observed.add_to``). It writes
to the record that ``observe_probe`` guards: ``began PID``, ``ended PID``, ``test OUTCOME NAME``,
``changed NAME``; ``observed.read_witness`` reads them. Programs that a test starts are not witnessed: the
variable is gone as soon as a test runner starts. No module is imported here that a file of the target's
could stand in for.
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

#: Set for the first Python below the command; those that it starts find ``NESTED``.
VARIABLE = "FALLBACK_TIER_WITNESS"
NESTED = "nested"

#: Test runners' own packages: what the patched code changes of them may change their verdict.
RUNNERS = frozenset({"unittest", "_pytest", "pytest", "pluggy"})

#: What else ends a process, or says how it ended.
ENDINGS = ((sys, "exit"), (sys, "excepthook"), (os, "_exit"))

_OUTCOMES = {
    "addSuccess": "passed",
    "addFailure": "failed",
    "addError": "failed",
    "addUnexpectedSuccess": "failed",
    "addSkip": "skipped",
    # Code under test can say of its own test that it is expected to fail.
    "addExpectedFailure": "skipped",
}


class Originals:
    """Functions as they were before the target's code ran."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._kept: list[tuple[str, Any, str, Any, Any]] = []
        self._streams = (sys.stdout, sys.stderr, *map(_stream, (1, 2)))
        for holder, name in ENDINGS:
            self._keep(f"{holder.__name__}.{name}", holder, name)
        self._keep_all("builtins", builtins)
        self._of_process, self._kept = self._kept, []

    def keep_runners(self) -> None:
        """Keep what the runners' modules hold, of those that are loaded by now."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in RUNNERS and name not in self._modules:
                self._modules.add(name)
                self._keep_all(name, module)

    def changed_runners(self) -> Iterator[str]:
        """Names of the runners' functions that are others now."""
        return self._changed(self._kept)

    def changed(self) -> Iterator[str]:
        """The same, and what else differs at the end of the process."""
        yield from self.changed_runners()
        yield from self._changed(self._of_process)
        now = (sys.stdout, sys.stderr, *map(_stream, (1, 2)))
        pairs = zip(now, self._streams)  # noqa: B905 (of Python 3.8 too)
        if any(one is not other and one != other for one, other in pairs):
            yield "the standard output"

    @staticmethod
    def _changed(kept: list[tuple[str, Any, str, Any, Any]]) -> Iterator[str]:
        for path, holder, name, value, code in kept:
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
        found = fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Witness:
    """This process's part of the record. ``reporter``: the text of ``report_probe``."""

    def __init__(self, put: Put, reporter: str) -> None:
        self._originals = Originals()
        self._reporter = reporter
        self._runner: Any = None
        self._told: set[str] = set()
        mine, pid, frame = os.getpid(), os.getpid, sys._getframe
        thread, ident = _thread.get_ident(), _thread.get_ident

        def say(line: str) -> None:
            if pid() == mine:  # a forked child's end is another's
                put(line)

        def ended() -> None:
            # The interpreter calls this itself, from no function and on its first thread.
            if frame(0).f_back is None and ident() == thread:
                self._compare(self._originals.changed())
                say(f"ended {mine}")

        self._say = say
        self._began = f"began {mine}"
        self._is_first = os.environ.get(VARIABLE) != NESTED
        os.environ[VARIABLE] = NESTED
        atexit.register(ended)  # the first is run last
        if self._is_first:
            say(self._began)

    def starts(self, runner: object) -> bool:
        """Is this the runner whose tests count? A runner that its tests start is not."""
        if self._runner is None:
            self._runner = runner
            os.environ.pop(VARIABLE, None)
            if not self._is_first:
                self._say(self._began)
        return self._runner is runner

    def write(self, name: str, was: str) -> None:
        """How one test ended."""
        self._compare(self._originals.changed_runners())
        self._say(f"test {was} {name}")

    def _compare(self, changed: Iterator[str]) -> None:
        for name in changed:
            if name not in self._told:
                self._told.add(name)
                self._say(f"changed {name}")

    def report_names(self) -> dict[str, Any]:
        """``report_probe``, which knows what tests are called."""
        space: dict[str, Any] = {"__name__": "fallback_tier_report"}
        exec(compile(self._reporter, "<report>", "exec", dont_inherit=True), space)  # noqa: S102 (ours)
        return space

    def unittest_loaded(self, _: Any) -> None:
        """Have each result of unittest's report its tests."""
        result: Any = sys.modules["unittest.result"].TestResult
        probe = self.report_names()
        names = probe["Names"]()
        running: list[Any] = [None, ""]

        def wrapped(call: str, report: Callable[..., None]) -> None:
            own = getattr(result, call)

            def reporting(self: Any, test: Any, *more: Any) -> Any:
                returned = own(self, test, *more)
                if starts(self):
                    report(test, *more)
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
        """Have the first pytest of the process report its tests, by a plugin."""
        manager = config.PytestPluginManager
        own, witness = manager.__init__, self

        def make(self: Any, *values: Any, **named: Any) -> None:
            own(self, *values, **named)
            if witness.starts(self):
                probe = witness.report_names()
                probe["_PYTEST"]["xfailed"] = "skipped"
                plugin = probe["PytestReporter"](witness)
                plugin.pytest_plugin_registered = lambda: witness._originals.keep_runners()
                self.register(plugin, "fallback-tier-witness")

        manager.__init__ = make


class Loading:
    """Finds no module by itself: it runs a function once a module is loaded."""

    def __init__(self, after: dict[str, Callable[[Any], None]]) -> None:
        self._after = after

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Python's protocol of finders."""
        after = self._after.pop(name, None)
        if after is None:
            return None
        others = (one for one in sys.meta_path if one is not self and hasattr(one, "find_spec"))
        found = next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        if found is None or found.loader is None:
            return None
        run = found.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            after(module)

        loader: Any = found.loader
        loader.exec_module = exec_module
        return found


def witness(put: Put, reporter: str) -> None:
    """Begin, in this process."""
    here = Witness(put, reporter)
    after = {"unittest.main": here.unittest_loaded, "_pytest.config": here.pytest_loaded}
    sys.meta_path.insert(0, Loading(after))
