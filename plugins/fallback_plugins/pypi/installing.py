"""Installing is a ladder (ADR-0039): what can be had is installed, the rest is named with uv's reason.

1. *everything*: the project's own lock or files, in one resolution, with the groups that tests need;
2. *in part*: file by file, then line by line, what it runs with before what it is tested with, and a test
   runner where its tests ask for one;
3. *its metadata alone*: nothing could be had; programs find the project by its name and version.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fallback_plugins import gating
from fallback_plugins.installed import Installed, Level
from fallback_plugins.pypi.declared import Source
from fallback_tier.execution import CommandResult

#: Lines of one file that are tried one by one: each is a resolution of its own.
MAX_LINES = 120

#: Runs a uv command on the environment in the making.
Uv = Callable[[Sequence[str]], CommandResult]


@dataclass(frozen=True)
class Step:
    """One way to install all of it: commands that must all work."""

    name: str
    commands: tuple[Sequence[str], ...]


@dataclass(frozen=True)
class Plan:
    """What to try. ``everything``: ways to install all of it, the first that works counts; ``sources``: for
    step 2, asked for only there; ``runner``: the test runner that the tests ask for, declared or not.

    ``refused``: why all of it is not even tried, by what stands in the way.
    """

    everything: tuple[Step, ...]
    sources: Callable[[], Sequence[Source]]
    runner: str | None = None
    refused: tuple[tuple[str, str], ...] = ()


def install(plan: Plan, uv: Uv, write: Callable[[str], Path]) -> Installed:
    """Climb. ``write`` puts lines into a file of ours and says where.

    Raises ToolFailedError where no registry answers, and what ``uv`` raises.
    """
    declined = list(plan.refused)
    for step in plan.everything:
        results = _until_one_fails(uv, step.commands)
        if results[-1].ok:
            return _with_runner(Installed(Level.EVERYTHING), plan, uv, write)
        declined.append((step.name, gating.in_short(results[-1].output)))
    had = 0
    for source in plan.sources():
        for line, why in _one_by_one(source, uv, write):
            if why is None:
                had += 1
            else:
                declined.append((line, why))
    level = Level.IN_PART if had else Level.METADATA if declined else Level.EVERYTHING
    return _with_runner(Installed(level, tuple(declined)), plan, uv, write)


def _until_one_fails(uv: Uv, commands: Iterable[Sequence[str]]) -> list[CommandResult]:
    results = []
    for command in commands:
        results.append(uv(command))
        gating.check_reachable("uv", results[-1])
        if not results[-1].ok:
            break
    return results


def _one_by_one(
    source: Source, uv: Uv, write: Callable[[str], Path]
) -> Iterator[tuple[str, str | None]]:
    """All of a source at once; where that can't be had, its lines. None: it was installed."""
    yield from ((line, "it leads elsewhere than to a registry") for line in source.left_out)
    if not source.lines:
        return
    command = ["pip", "install", *(["--no-deps"] if source.pinned else []), "-r"]
    (result,) = _until_one_fails(uv, [[*command, str(write("\n".join(source.lines)))]])
    yield source.name, None if result.ok else gating.in_short(result.output)
    if result.ok:
        return
    for line in source.lines[:MAX_LINES]:
        (one,) = _until_one_fails(uv, [[*command, str(write(line))]])
        yield line, None if one.ok else gating.in_short(one.output)
    for line in source.lines[MAX_LINES:]:
        yield line, f"only the first {MAX_LINES} lines are tried one by one"


def _with_runner(found: Installed, plan: Plan, uv: Uv, write: Callable[[str], Path]) -> Installed:
    """Put the test runner beside it. What is there satisfies it where it is declared."""
    if plan.runner is None:
        return found
    (result,) = _until_one_fails(uv, [["pip", "install", "-r", str(write(plan.runner))]])
    if result.ok:
        level = found.level if found.level is not Level.METADATA else Level.IN_PART
        return Installed(level, found.declined)
    return Installed(found.level, (*found.declined, (plan.runner, gating.in_short(result.output))))
