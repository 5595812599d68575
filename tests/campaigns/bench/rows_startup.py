"""Goal 1: what it costs to be started at all."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.campaigns.bench.measure import Command, Processes
from tests.campaigns.bench.row import Bench, Pair, Row


def _help(bench: Bench) -> Processes:
    argv = (bench.our("fallback-tier"), "--help")
    return Processes("fallback-tier --help", [Command(argv, bench.place)])


@contextmanager
def against_python(bench: Bench) -> Iterator[Pair]:
    """The same interpreter doing nothing."""
    argv = (bench.python, "-c", "pass")
    yield Pair(_help(bench), Processes("bare Python", [Command(argv, bench.place)]))


@contextmanager
def against_isolated_python(bench: Bench) -> Iterator[Pair]:
    """Both isolated (-I): neither the environment nor the working directory is looked at."""
    ours = (bench.python, "-I", bench.our("fallback-tier"), "--help")
    theirs = (bench.python, "-I", "-c", "pass")
    yield Pair(
        Processes("fallback-tier --help, -I", [Command(ours, bench.place)]),
        Processes("bare Python, -I", [Command(theirs, bench.place)]),
    )


@contextmanager
def pydantic_alone(bench: Bench) -> Iterator[Pair]:
    """What any command with a model in it pays before its first line of ours."""
    ours = (bench.python, "-c", "from pydantic import BaseModel, Field, TypeAdapter")
    theirs = (bench.python, "-c", "pass")
    yield Pair(
        Processes("importing pydantic, no more", [Command(ours, bench.place)]),
        Processes("bare Python", [Command(theirs, bench.place)]),
    )


@contextmanager
def against_mini(bench: Bench) -> Iterator[Pair]:
    """A peer with the same job for its --help: to say what it can do."""
    settings = {
        "MSWEA_GLOBAL_CONFIG_DIR": str(bench.place / "mini"),
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_CONFIGURED": "true",
    }
    command = Command([bench.peer("mini"), "--help"], bench.place, env=settings)
    yield Pair(_help(bench), Processes("mini-swe-agent --help", [command]))


#: What `--help` does, after ``first``.
_HELP_AFTER = (
    "import sys; {first}; sys.argv = ['fallback-tier', '--help'];"
    " from fallback_tier.cli.main import main; main()"
)


def _help_after(bench: Bench, label: str, first: str) -> Processes:
    return Processes(
        label, [Command((bench.python, "-c", _HELP_AFTER.format(first=first)), bench.place)]
    )


@contextmanager
def without_typing(bench: Bench) -> Iterator[Pair]:
    """``TYPE_CHECKING = False``: what is imported for annotations alone is not imported by `--help`."""
    annotations = "import typing, collections.abc, fallback_tier.advisory, fallback_tier.configured"
    yield Pair(
        _help_after(bench, "--help", "pass"),
        _help_after(bench, "--help, what annotations name imported", annotations),
    )


@contextmanager
def with_lazy_verbs(bench: Bench) -> Iterator[Pair]:
    """A command's module is imported when the command is called."""
    yield Pair(
        _help_after(bench, "--help", "pass"),
        _help_after(bench, "--help, `fix` imported", "import fallback_tier.cli.fix.command"),
    )


@contextmanager
def with_garbage_left(bench: Bench) -> Iterator[Pair]:
    """Nobody looks for garbage among what importing a command makes (``main._load``)."""
    load = "import {}fallback_tier.cli.fix.command, fallback_plugins.pypi{}"
    ours = load.format("gc; gc.disable(); import ", "; gc.freeze(); gc.enable()")
    yield Pair(
        Processes(
            "importing `fix`, gc at rest", [Command((bench.python, "-c", ours), bench.place)]
        ),
        Processes(
            "importing `fix`", [Command((bench.python, "-c", load.format("", "")), bench.place)]
        ),
    )


ROWS = (
    Row("help-python", "--help against bare Python", "1", 3.0, 41, against_python),
    Row("help-python-isolated", "The same, isolated", "1", None, 41, against_isolated_python),
    Row("import-pydantic", "The floor under every other command", "2", None, 21, pydantic_alone),
    Row("help-annotations", "What TYPE_CHECKING = False saves", "1", None, 21, without_typing),
    Row("help-lazy", "What commands imported when called save", "1", None, 21, with_lazy_verbs),
    Row(
        "import-gc", "What importing without the collector saves", "2", None, 21, with_garbage_left
    ),
    Row("help-mini", "--help against mini-swe-agent's", "1", 0.15, 11, against_mini),
)
