"""Reader of what the probes in an environment's Pythons report about a run: what its processes do beyond
themselves (``observe_probe``), without differences between two runs that do the same; and how the tests of
a proof ended (``witness_probe``).
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from fallback_plugins.pypi.probes import witness_probe
from fallback_plugins.pypi.probes.observe_probe import MAX_CHARS
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.suite_run import OURS, Act, Report
from fallback_plugins.shared.gates.suites import DAMAGED
from fallback_tier.gate_ports import Witnessed

#: Variable with the report's path, for a Python that a test starts. Without it nothing is reported.
VARIABLE = "FALLBACK_TIER_OBSERVED"

#: Names of the hook's file in an environment, and of the file that loads it: a path file is read whatever
#: PYTHONPATH is, and with ``-I``; only ``-S`` skips it (Python's ``site``).
_HOOK, _PATH_FILE = "fallback-tier-observe.py", "fallback-tier-observe.pth"
_LOAD = (
    f"import os, sys; _at = os.environ.get({VARIABLE!r}); _hook = os.path.join(sys.prefix, {_HOOK!r}); "
    "_at and os.path.exists(_hook) and (_in := {}, exec(compile("
    f"open(_hook).read(), {_HOOK!r}, 'exec'), _in), _in['start'](_at))\n"
)

#: End of the hook's text: it starts the record, and if a proof runs, its witness.
_START = f"""

def start(at):
    put = observe(at)
    if put is not None and {witness_probe.VARIABLE!r} in sys.modules["os"].environ:
        space = {{}}
        exec(compile(WITNESS, "<witness>", "exec", dont_inherit=True), space)
        space["witness"](put, REPORTER)
"""

#: Runs the hook's text, starts the hook, then runs the runner's own text; each is an argument.
START = (
    "import sys\n"
    "def _begin(hook, report):\n"
    "    space = {}\n"
    "    exec(compile(hook, '<observe>', 'exec'), space)\n"
    "    space['observe'](report)\n"
    f"    sys.modules['os'].environ[{VARIABLE!r}] = report\n"
    "_begin(sys.argv.pop(1), sys.argv.pop(1))\n"
    "exec(compile(sys.argv.pop(1), '<string>', 'exec', dont_inherit=True))\n"
)

#: Folder of an environment with shims of the clients that a project's commands call: the clients themselves
#: would make another environment, and query a registry for what is installed already or not available.
SHIMS = "stand-ins"
_CLIENTS = ("uv", "poetry", "pipenv", "pdm", "rye", "hatch", "pip", "pip3")

#: Runs the command that ``run`` names, without the client's own options. It does nothing for other
#: commands.
_SHIM = """#!/bin/sh
name=${0##*/}
case " $* " in *" run "*) ;; *)
    echo "$name $*: not run: what it installs is here already, or is not available" >&2
    exit 0 ;;
esac
while [ "$1" != run ]; do shift; done
shift
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; break ;;
        -m | --module) shift; set -- python -m "$@"; break ;;
        --with | --with-requirements | --with-editable | --extra | --no-extra | --group | --no-group \
        | --only-group | --python | -p | --package | --project | --directory | --env-file | --index \
        | --index-url | --default-index | --refresh-package | -e | --env) shift; [ $# -gt 0 ] && shift ;;
        -*) shift ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || exit 0
case $name-$1 in hatch-*:*) first=${1#*:}; shift; set -- "$first" "$@" ;; esac
case $1 in *.py) [ -f "$1" ] && set -- python "$@" ;; esac
exec "$@"
"""

#: Folders that each run has separately, and that are deleted after it.
_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/")  # noqa: S108 (nothing is written there)

#: Folders of programs that are identified by name alone.
_USUAL = re.compile(r"(?:/usr)?(?:/local)?/s?bin/|/environment/bin/")

#: Counters, process ids, hashes, and names that ``tempfile`` makes.
_VARYING = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![^\W_])[0-9a-f]{8,}(?![^\W_])"
    r"|tmp-?\w{8}\b|\d+"
)

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_WRAPPERS = frozenset({"env", "nohup", "timeout", "xargs", "sudo", "nice", "setsid", "exec"})
_COMMANDS = re.compile(r"[;&|\n()`]+|\$\(")
_LOOPBACK = re.compile(r"127(?:\.\d+){3}|::1|localhost(?:\.localdomain)?")
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (read, not bound)

#: A process's counts at its end: lines, tests that ran, tests that failed.
_COUNT = re.compile(r"\d{1,9}")
_COUNTED = re.compile(r"\d{1,9} -?\d{1,9} \d{1,9}")

#: Acts of a run that are kept. With more of them, it is unclear which are new.
MAX_ACTS = 2000


def source_of(probe: str) -> str:
    """Return the text of a probe that a target's Python is to run."""
    return files("fallback_plugins.pypi.probes").joinpath(f"{probe}.py").read_text("utf-8")


def hook_text() -> str:
    """Return the text that is to run before any of the target's code."""
    return source_of("observe_probe")


def add_to(environment: Path) -> None:
    """Make every Python of a new environment load the hook if the variable is set."""
    witness, reporter = source_of("witness_probe"), source_of("report_probe")
    text = f"{hook_text()}\n\nWITNESS = {witness!r}\nREPORTER = {reporter!r}\n{_START}"
    (environment / _HOOK).write_text(text, encoding="utf-8")
    for packages_folder in environment.glob("lib/python*/site-packages"):
        (packages_folder / _PATH_FILE).write_text(_LOAD, encoding="utf-8")


def add_shims(environment: Path) -> None:
    """Write programs to a new environment that run a command as a project's client would."""
    folder = environment / SHIMS
    folder.mkdir()
    for name in _CLIENTS:
        (folder / name).write_text(_SHIM, encoding="utf-8")
        (folder / name).chmod(0o755)


def read_acts(text: str | None, header: str, environment: Path) -> frozenset[Act] | None:
    """Return the acts of a run, with relative paths. None: the hook never ran, so nothing is known.

    If the report is missing, does not begin with ``header``, or has an invalid line, that is an act itself.
    """
    first, _, rest = (text or "").partition("\n")
    if first != header:
        return frozenset({DAMAGED})
    rest = gating.placeless(rest, environment, "/environment")
    acts: dict[Act, None] = {}
    lines = rest.split("\n")
    for line in lines[:-1]:
        acts.update(dict.fromkeys(_acts(_decoded(line))))
    if lines[-1] or len(acts) > MAX_ACTS:
        acts[DAMAGED] = None
    return frozenset(list(acts)[-MAX_ACTS:]) if len(lines) > 1 else None


def read_suite(text: str | None, header: str) -> tuple[Report | None, str | None]:
    """Return the tests that a command's processes report, and the rest of the record, for ``read_acts``.

    The report has figures if each process that ran tests finished, and counted as many lines as there are;
    it is None if nothing ran tests, or the record is damaged.
    """
    first, _, rest = (text or "").partition("\n")
    acts: list[str] = []
    tests: list[tuple[str, str, str]] = []
    began: dict[str, list[str]] = {}
    ended: dict[str, list[int]] = {}
    collected: list[int] = []
    is_damaged = first != header
    for line in rest.split("\n"):
        kind, _, what = (_decoded(line) if line else "").partition(" ")
        pid, _, details = what.partition(" ")
        if kind == "tested":
            was, _, name = details.partition(" ")
            tests.append((pid, name, was))
        elif kind == "collected" and _COUNT.fullmatch(details):
            collected.append(int(details))
        elif kind == "began":
            is_damaged |= pid in began
            # A process can be its own ancestor: before an ``exec``.
            began[pid] = [ancestor for ancestor in details.split() if ancestor != pid]
        elif kind == "ended" and _COUNTED.fullmatch(details):
            is_damaged |= pid in ended
            ended[pid] = [int(number) for number in details.split()]
        else:
            acts.append(line)
            is_damaged |= kind == "tamper"
    other_lines = None if text is None else "\n".join([first, *acts])
    if is_damaged or not (tests or began):
        return None, other_lines
    # What a runner's own child reports, the runner reports too.
    outer = {pid for pid, ancestors in began.items() if began.keys().isdisjoint(ancestors)}
    outcomes = [(name, was) for pid, name, was in tests if pid not in began or pid in outer]
    counted, collected_count = Counter(pid for pid, _, _ in tests), sum(collected) or None
    is_whole = all(pid in ended and ended[pid][0] == counted[pid] for pid in outer)
    if not is_whole or not counted.keys() <= began.keys():
        return Report.of(outcomes, None, collected_count), other_lines
    figures = [ended[pid][1:] for pid in outer]
    whole = sum(figure[0] for figure in figures), sum(figure[1] for figure in figures)
    return Report.of(outcomes, whole, collected_count), other_lines


def read_witness(text: str | None, header: str, ran: int, failures: int) -> Witnessed:
    """Return how the tests of a run ended, as its own processes report it, and reasons to doubt its end.

    ``ran``, ``failures``: tests that its output counts as run, and as failed.
    """
    first, _, rest = (text or "").partition("\n")
    *lines, cut = rest.split("\n")
    tests: list[tuple[str, str]] = []
    processes: dict[str, Counter[str]] = {"began": Counter(), "ended": Counter()}
    changed: set[str] = set()
    is_damaged = first != header or bool(cut)
    for line in map(_decoded, lines):
        kind, _, what = line.partition(" ")
        if kind == "test":
            was, _, name = what.partition(" ")
            tests.append((name, was))
        elif kind in processes:
            processes[kind][what] += 1
        elif kind == "changed":
            changed.add(what)
        is_damaged |= kind == "tamper"
    doubts = ["the record of its tests was damaged"] if is_damaged else []
    if processes["began"] - processes["ended"]:
        doubts.append("a Python process was ended before its own end")
    if ran and not tests:
        doubts.append("no test runner in the project's own Python reported its tests")
    report = Report.of(tests)
    return Witnessed(
        passed=tuple(sorted(report.passed)),
        failed=report.failed,
        failures=failures,
        changed=tuple(sorted(changed)),
        doubts=tuple(doubts),
    )


def _decoded(line: str) -> str:
    try:
        decoded = ast.literal_eval(line)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        decoded = None
    return decoded if isinstance(decoded, str) else "tamper"


def _acts(line: str) -> Iterator[Act]:
    kind, _, what = line.partition(" ")
    match kind:
        case "here":
            pass
        case "start":
            for program in _programs(*what.split("\0")):
                yield f"start {program}"
            # Otherwise blanks could hide the end of a shell's command.
            if len(line) >= MAX_CHARS:
                yield "start (a command too long to be kept)"
        case "connect" | "listen" | "resolve":
            yield f"{kind} {_place(what)}"
        case "write":
            if not f"{what}/".startswith(_TEMPORARY) and OURS not in what:
                # A process's memory, or a kernel setting.
                kind = "steer" if what.startswith(("/proc/", "/sys/")) else "write"
                yield f"{kind} {_steady(what)}"
        case "load" | "steer" | "call":
            yield f"{kind} {_file(what)}"
        case _:
            yield DAMAGED


def _programs(program: str, *arguments: str) -> Iterator[str]:
    """Yield the program, and the programs that its arguments make it run."""
    name = program.rpartition("/")[2] if _USUAL.match(program) else _file(program)
    if name.startswith("python"):
        name = " ".join(["python", *_options(arguments)])
    yield name
    if name in _SHELLS and (texts := [b for a, b in pairwise(arguments) if a == "-c"]):
        for command in _COMMANDS.split(texts[0]):
            yield from _first(command.split())
    elif name in _WRAPPERS:
        yield from _first(arguments)


def _first(arguments: list[str] | tuple[str, ...]) -> Iterator[str]:
    """Yield the program that a command's words begin with, after options and variables that are set."""
    for number, argument in enumerate(arguments):
        if argument[:1] != "-" and "=" not in argument and not argument.isdigit():
            yield from _programs(argument.strip("'\""), *arguments[number + 1 :])
            return


def _options(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield those of Python's options that matter: the module that it runs, and ``-S``, which skips the
    hook."""
    for number, argument in enumerate(arguments):
        if argument == "-m":
            yield from ("-m", *arguments[number + 1 : number + 2])
        if argument[:1] != "-" or argument in ("-m", "-c", "-"):
            return
        if argument[:2] != "--" and "S" in argument:
            yield "-S"


def _place(what: str) -> str:
    host, _, port = what.partition(" ")
    if host == "unix":
        return f"unix {_file(port)}"
    if _LOOPBACK.fullmatch(host):
        return "loopback"
    if host in _ANYWHERE:
        return "any address"
    return f"{host} {port}".strip()


def _file(path: str) -> str:
    if path.startswith(_TEMPORARY):
        path = f"(temporary)/{path.rpartition('/')[2]}"
    return _steady(path)


def _steady(path: str) -> str:
    return _VARYING.sub("0", path)
