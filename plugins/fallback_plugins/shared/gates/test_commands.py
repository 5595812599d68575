"""How a project says that it is tested: the commands of its CI, its task runners and its scripts.

They are read and never run here. A gate runs them in the sandbox, in the order in which they are found, and
takes the first that runs tests at the base commit (ADR-0116).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fallback_tier.repo import RepoContext


class CommandKind(StrEnum):
    """What a command shows. Each kind is judged by itself: an error of a type check is no failing test."""

    TESTS = "tests"
    TYPES = "types"
    LINT = "lint"
    BUILD = "build"


@dataclass(frozen=True)
class TestCommand:
    """One command by which a project tests itself.

    ``line``: for a shell, in ``folder`` of the repository ("." is the root). ``source``: the place of it,
    for people: ``.github/workflows/ci.yml, job test, step "Run tests"``. ``env``: variables with literal
    values that the source sets. ``before``: what the source runs before it in the same place and tests need
    (a build, generated code); no check-outs, installs or set-ups of tools. ``services``: what it starts
    beside the tests, by its usual name (``postgres``, ``redis``). ``group``: the job or script that runs
    it; commands of one group are parts of one suite. ``runtime``: ``python`` or ``node``, or "" if unknown.
    """

    line: str
    source: str
    folder: str = "."
    kind: CommandKind = CommandKind.TESTS
    env: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    group: str = ""
    runtime: str = ""


def own_commands(
    repo: RepoContext, folder: str, stated: Sequence[str] = ()
) -> tuple[TestCommand, ...]:
    """Return the commands that concern a project folder, the best source first; empty: none is stated.

    ``stated``: what the user says (``--test-command``, configuration), which comes first. What can't be
    read is left out.
    """
    del repo
    return tuple(TestCommand(line, "--test-command", folder) for line in stated)
