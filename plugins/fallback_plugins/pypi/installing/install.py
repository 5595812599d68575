"""Installation in steps (ADR-0039): what is available is installed, the rest is listed with uv's reason.

1. *everything*: the project's own lock or files, in one resolution, with the groups that tests need;
2. *in part*: file by file, runtime requirements before those of tests, which may not change them; if a file
   is not available as a whole, each line that is; in place of an unavailable line, another release; in
   place of what a lock takes from elsewhere, the registry's release if another of its packages requires
   one; and a test runner if one is needed;
3. *its metadata alone*: nothing is available; programs find the project by its name and version.

uv downloads nothing but packages, and starts nothing in an environment.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.installing.declared import Source
from fallback_plugins.pypi.manifests import indexes
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext

#: Most resolutions to find the unavailable lines of one project: ten lines among 200 are found in about as
#: many.
MAX_TRIES = 150
_ALSO = "; another release of it is installed"
_NOT_TRIED = f"not tried: {MAX_TRIES} resolutions were made before"
_ELSEWHERE = "it leads elsewhere than to a registry"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")

#: uv's text before the reason. The advice follows it.
_BEFORE = re.compile(r"(?:when resolving dependencies\W*(?:cause:)?|error:)\s*")
_ADVICE = "hint:"

#: Runs a uv command on the new environment.
Uv = Callable[[Sequence[str]], CommandResult]

#: uv asks a Python what it is by starting it, and with it every .pth file in its environment, outside the
#: sandbox. It does so once, while the environment is empty, and caches the result: with a user's
#: ``no-cache`` it would ask again after each package. uv does not accept --no-compile-bytecode together
#: with UV_COMPILE_BYTECODE, so that variable is emptied.
_ALWAYS = {
    "UV_NO_CACHE": "false",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_NO_PROGRESS": "1",
    "NO_COLOR": "1",
    "UV_COMPILE_BYTECODE": "",
}

#: A user's uv.toml may make it upgrade or reinstall (``upgrade``, ``reinstall``, their ``-package`` keys,
#: those of ``[pip]``): each would make uv ask the Python again, too.
_ONCE = ("--no-upgrade", "--no-reinstall")

#: Commands that put packages into an environment.
_INSTALLING = (("pip", "install"), ("sync",))

#: Compiling would start the environment's Python, and every .pth file in it, outside the sandbox.
NOT_COMPILED = "--no-compile-bytecode"


@dataclass(frozen=True)
class InstallWay:
    """One way to install everything: commands that must all succeed."""

    name: str
    commands: tuple[Sequence[str], ...]


@dataclass(frozen=True)
class Failure:
    """Why a line can't be installed. ``named``: the names in uv's whole reason, among other words."""

    why: str
    named: frozenset[str]

    @classmethod
    def of(cls, why: str) -> "Failure":
        """Return a failure of which only the reason was kept."""
        return cls(why, _names_in(why))


#: No line is known to fail.
NO_FAILURES: Mapping[str, Failure] = MappingProxyType({})


@dataclass(frozen=True)
class InstallPlan:
    """What to try. ``everything``: ways to install everything, the first that succeeds counts; ``sources``:
    for step 2, called only there; ``runner``: the test runner that the tests need, declared or not.

    ``failed``: lines that failed in a similar environment (``InstallLadder.failures``): they are not tried
    again. ``beside``: packages that every environment had, so that no project declared them, and packages
    that tests need according to other files than manifests; not reported if unavailable. ``missing``:
    returns lines for modules that installed code imports and no installed release provides. ``refused``:
    what uv must not read, and why: what it would lead to is missing. ``there``: returns what is installed
    by now, as pins.
    """

    everything: tuple[InstallWay, ...]
    sources: Callable[[], Sequence[Source]]
    runner: str | None = None
    refused: tuple[tuple[str, str], ...] = ()
    there: Callable[[], Sequence[str]] = tuple
    beside: tuple[str, ...] = ()
    missing: Callable[[], Sequence[str]] = tuple
    failed: Mapping[str, Failure] = field(default_factory=dict)


@dataclass
class InstallLadder:
    """One installation in steps: what is installed so far, and what could not be. ``write`` writes lines to
    a generated file and returns its path. Methods raise ToolFailedError if no registry answers, and what
    ``uv`` raises."""

    plan: InstallPlan
    uv: Uv
    write: Callable[[str], Path]
    declined: list[tuple[str, str]] = field(default_factory=list)
    had: list[str] = field(default_factory=list)
    pins: list[str] = field(default_factory=list)
    #: Pins of the runtime requirements, which those of tests may not change.
    kept: tuple[str, ...] = ()
    tries: int = 0
    #: Lines that failed alone, by (line, pinned), and why: with more installed, they fail again.
    failed: dict[tuple[str, bool], Failure] = field(default_factory=dict)
    #: uv's output of the last command.
    output: str = ""
    #: The step that succeeded.
    step: str = ""

    def run(self) -> Installed:
        """Install what is available."""
        return self._with_runner(self._everything() or self._in_part())

    def whole(self) -> Installed | None:
        """Install all that is declared, and the runner if it is available; None if anything is missing."""
        level = self._everything()
        return None if level is None else self._with_runner(level)

    def _with_runner(self, level: Level) -> Installed:
        # If the runner is declared, it is installed already, and the runner changes no version: a verdict
        # reports the installed versions as those that users get.
        if self.plan.beside and level is not Level.METADATA:
            self.kept = tuple(self.plan.there())
            if self._try(*self.plan.beside, asked=False) is not None:
                for line in self.plan.beside[1:] and self.plan.beside:
                    self.kept = tuple(self.plan.there())
                    self._try(line, asked=False)
        if (runner := self.plan.runner) is not None:
            self.kept = tuple(self.plan.there())
            why = self._try(runner, asked=False)
            if why is not None:
                self.declined.append((runner, why))
            elif level is Level.METADATA:
                level = Level.IN_PART
        return Installed(level, tuple(self.declined), step=self.step, beside=self._completed(level))

    def _completed(self, level: Level) -> tuple[str, ...]:
        """Install the missing packages, in place of a release that no longer has a module. Return the added
        pins."""
        before = {*self.plan.there()}
        for line in self.plan.missing() if level is not Level.METADATA else ():
            name = canonicalize_name(Requirement(line).name)
            pins = ((pin, pin.partition("==")[0]) for pin in self.plan.there())
            self.kept = tuple(
                pin for pin, pinned_name in pins if canonicalize_name(pinned_name) != name
            )
            self._try(line, asked=False)
        return tuple(sorted(pin.replace("==", " ") for pin in {*self.plan.there()} - before))

    def _everything(self) -> Level | None:
        self.declined += self.plan.refused
        for step in self.plan.everything:
            whys = map(self._run, step.commands)
            why = next((why for why in whys if why is not None), None)
            if why is None:
                self.step = step.name
                return Level.IN_PART if self.plan.refused else Level.EVERYTHING
            self.declined.append((step.name, why))
        return None

    def _in_part(self) -> Level:
        is_any_replaced = False
        for source in self.plan.sources():
            if source.for_tests and not self.kept:
                self.kept = tuple(self.plan.there())
            why_by_line: dict[str, str] = {}
            for line, why in self._of_source(source.lines, source.pinned):
                if why is None:
                    (self.pins if source.pinned else self.had).append(line)
                else:
                    why_by_line[line] = why
                    is_any_replaced = is_any_replaced or why.endswith(_ALSO)
            in_order = dict.fromkeys(line for line in source.lines if line in why_by_line)
            self.declined += [(line, why_by_line[line]) for line in in_order]
            self.declined += self._elsewhere(source)
        if is_any_replaced or self.had or self.pins:
            return Level.IN_PART
        return Level.METADATA if self.declined else Level.EVERYTHING

    def _elsewhere(self, source: Source) -> Iterator[tuple[str, str]]:
        """Yield lines that lead elsewhere than to a registry. If a lock's pins require one of its lines,
        the registry's release is installed. The registry may have another publisher's package under a name
        that only the project states."""
        installed_names: set[str] = set()
        if source.left_out and source.pinned and self.pins and self._try(*self.pins) is None:
            installed_names = {
                canonicalize_name(Requirement(pin).name) for pin in self.plan.there()
            }
        for line in source.left_out:
            name = _NAME.match(line)
            is_there = name is not None and canonicalize_name(name[0]) in installed_names
            yield line, f"{_ELSEWHERE}{_ALSO}" if is_there else _ELSEWHERE

    def failures(self, available: Collection[str]) -> dict[str, Failure]:
        """Return the lines that failed, for ``InstallPlan.failed`` of an environment for which these
        packages are available too: without lines whose reason names one of them."""
        tried = {line: failure for (line, pinned), failure in self.failed.items() if not pinned}
        return {
            line: failure
            for line, failure in {**self.plan.failed, **tried}.items()
            if failure.named.isdisjoint(available)
        }

    def _of_source(self, lines: Sequence[str], pinned: bool) -> Iterator[tuple[str, str | None]]:
        """Try the lines of a source. Of those that are known to fail, only another release is tried, if one
        was installed instead of it."""
        # A pinned line is installed without its dependencies: it may not fail.
        failed = {} if pinned else self.plan.failed
        known = {line: failed[line] for line in lines if line in failed}
        unknown = [line for line in lines if line not in known]
        others = {_any_release(line) for line, it in known.items() if it.why.endswith(_ALSO)}
        others.difference_update(unknown)
        installed: set[str] = set()
        for line, why in self._lines([*unknown, *sorted(others)], pinned):
            if why is None:
                installed.add(line)
            if line not in others:
                yield line, why
        for line, failure in known.items():
            also = _ALSO if _any_release(line) in installed else ""
            failure = replace(failure, why=failure.why.removesuffix(_ALSO) + also)
            self.failed[line, pinned] = failure
            yield line, failure.why

    def _lines(self, lines: Sequence[str], pinned: bool) -> Iterator[tuple[str, str | None]]:
        """Try all lines at once; if that fails, parts of them in order, until a failing line is alone.

        If two lines exclude each other, the first one is installed.
        """
        known = ((line, self.failed.get((line, pinned))) for line in lines)
        yield from ((line, failure.why) for line, failure in known if failure is not None)
        lines = [line for line in lines if (line, pinned) not in self.failed]
        if not lines:
            return
        if self.tries >= MAX_TRIES:
            yield from ((line, _NOT_TRIED) for line in lines)
            return
        why = self._try(*lines, pinned=pinned)
        if why is None:
            yield from ((line, None) for line in lines)
        elif len(lines) == 1:
            (line,) = lines
            named = self._named()
            if self._try(_any_release(line), pinned=pinned) is None:
                why += _ALSO
            else:
                named |= self._named()
            self.failed[line, pinned] = Failure(why, named)
            yield line, why
        else:
            for part in self._parts(lines):
                yield from self._lines(part, pinned)

    def _parts(self, lines: Sequence[str]) -> Sequence[Sequence[str]]:
        """Split lines that failed together, in their order: before and after the last line that uv's reason
        names. If it names none of them, or more than half, return two halves."""
        words = self._named()
        names = enumerate(canonicalize_name(Requirement(line).name) for line in lines)
        named = [index for index, name in names if name in words]
        half = (len(lines) + 1) // 2
        if named and len(named) <= half:
            return lines[: named[-1]], lines[named[-1] : named[-1] + 1], lines[named[-1] + 1 :]
        return lines[:half], lines[half:]

    def _named(self) -> frozenset[str]:
        return _names_in(self.output.partition(_ADVICE)[0])

    def _try(self, *lines: str, pinned: bool = False, asked: bool = True) -> str | None:
        """Return why these lines can't be installed together with those installed before; None: they are.

        ``asked``: the project requires them, so that a registry that does not answer is an error.
        """
        self.tries += 1
        if pinned:  # each is installed independently
            return self._run(["pip", "install", "--no-deps", "-r", self._file(lines)])
        command = ["pip", "install", "-r", self._file([*self.had, *lines])]
        return self._run(
            [*command, "-c", self._file([*map(bound, self.pins), *self.kept])], asked=asked
        )

    def _file(self, lines: Iterable[str]) -> str:
        return str(self.write("\n".join(lines)))

    def _run(self, command: Sequence[str], *, asked: bool = True) -> str | None:
        def names() -> list[str]:
            """Return all declared names, as far as a registry is queried for them."""
            lines = (line for source in self.plan.sources() for line in source.lines)
            return [Requirement(line).name for line in lines]

        result = self.uv(command)
        self.output = result.output
        if asked:
            gating.check_reachable("uv", result, names)
        return None if result.ok else reason(result.output)


def _names_in(text: str) -> frozenset[str]:
    """Return the canonical names in a text, with other words."""
    return frozenset(map(canonicalize_name, _NAME.findall(text)))


def _any_release(line: str) -> str:
    """Return a line without its versions."""
    requirement = Requirement(line)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{marker}"


def is_final(why: str) -> bool:
    """Return whether a line with this reason was tried."""
    return why != _NOT_TRIED


def reason(output: str) -> str:
    """Return uv's own reason, without the decoration around it and the advice after it."""
    text = " ".join(output.split())
    begin = max((match.end() for match in _BEFORE.finditer(text)), default=0)
    return gating.in_short(text[begin:].partition(_ADVICE)[0].rstrip() or text)


def bound(line: str) -> str:
    """Return a line as a constraint, which can't have extras."""
    requirement = Requirement(line)
    return (
        f"{requirement.name}{requirement.specifier}"
        f"{f' ; {requirement.marker}' if requirement.marker else ''}"
    )


def run_uv(
    context: GateContext,
    arguments: Sequence[str],
    cwd: Path,
    until: str = "",
    env: Mapping[str, str] = MappingProxyType({}),
) -> CommandResult:
    """Run uv. ``until``: the day of the releases (``2022-05-27``); empty: any. Raises ToolMissingError."""
    if any(tuple(arguments[: len(command)]) == command for command in _INSTALLING):
        arguments = [*arguments, *_ONCE]
    of_day = {"UV_EXCLUDE_NEWER": f"{until}T23:59:59Z"} if until else {}
    return indexes.run_uv(
        context.clients,
        arguments,
        cwd=cwd,
        timeout_s=context.timeout_s,
        env={**_ALWAYS, **env, **of_day},
    )
