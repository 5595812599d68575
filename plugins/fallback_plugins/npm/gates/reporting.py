"""How a project's own test script is made to report each test: its runner is asked to, where the script
plainly calls one, beside what it prints. Other scripts are left as they are, and their logs tell."""

import re
import shlex
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from fallback_plugins.shared.gates.reports import Report, read_lines
from fallback_plugins.shared.gates.suite_run import Names, numbered, shortened
from fallback_tier.files.whole import write_whole

#: What may stand before a runner's name and hands on all that stands behind it.
_WRAPPERS = frozenset({"cross-env", "npx", "nyc", "c8", "node", "env"})
_RUNNERS = frozenset({"jest", "vitest", "mocha", "_mocha"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
#: Beyond one plain call: pipes, lists, substitutions, arguments that are not the runner's.
_NOT_PLAIN = re.compile(r"[|;<>`$()&\n]| -- ")

_NODE_TEST = re.compile(r"\bnode\b[^&|;]* --test(?![\w-])")
_REPORTER = "--test-reporter"

_REPORTERS = "fallback_plugins.npm.gates"


@dataclass(frozen=True)
class Reporting:
    """What is added to ``npm test``, and how the file is read that comes of it."""

    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: A folder that the runner reads a reporter from.
    readable: Sequence[Path] = ()
    read: Callable[[str | None], Report | None] = read_lines


def reporting(scripts: Mapping[str, str], place: str, cache: Path) -> Reporting | None:
    """How ``scripts["test"]`` is made to report in the file ``place``; None where nobody knows how."""
    runner = plain_runner(scripts.get("test", ""))
    if runner is not None:
        return _of_runner(runner, place, cache)
    message = " && ".join(scripts.values())
    if not _NODE_TEST.search(message) or _REPORTER in message:
        return None
    source = b64encode(_source("node.mjs").encode()).decode()
    quoted = place.replace("\\", "\\\\").replace('"', '\\"')
    options = [f"{_REPORTER}=tap", f"{_REPORTER}-destination=stdout"]
    options += [f"{_REPORTER}=data:text/javascript;base64,{source}"]
    options += [f'"{_REPORTER}-destination={quoted}"']
    return Reporting(env={"NODE_OPTIONS": " ".join(options)})


def reporting_part(script: str, place: str, cache: Path) -> tuple[str, Reporting] | None:
    """A command of a script of several that plainly calls a runner, and how it is made to report when it
    runs by itself; None where there is none."""
    for part in map(str.strip, script.split("&&")):
        if (runner := plain_runner(part)) is not None:
            asked = _of_runner(runner, place, cache)
            return f"{part} {shlex.join(asked.arguments)}", asked
    return None


def _of_runner(runner: str, place: str, cache: Path) -> Reporting:
    if runner == "jest":
        return Reporting(["--json", f"--outputFile={place}", "--bail=0"], read=read_jest)
    if runner == "vitest":
        options = ["--reporter=default", "--reporter=json", f"--outputFile.json={place}"]
        return Reporting([*options, "--bail=0"], read=read_jest)
    reporter = laid_out(cache, "mocha.cjs")
    env = {"FALLBACK_TIER_REPORT": place}
    return Reporting(["--reporter", str(reporter)], env, [reporter.parent])


def plain_runner(script: str) -> str | None:
    """The runner that the last command of a script plainly calls: what is added to the script is its."""
    last = script.rpartition("&&")[2]
    if _NOT_PLAIN.search(last):
        return None
    try:
        words = shlex.split(last)
    except ValueError:
        return None
    for word in words:
        name = PurePosixPath(word).name.removesuffix(".js").removesuffix(".mjs")
        if name in _RUNNERS:
            return name
        if not (name in _WRAPPERS or word.startswith("-") or _ASSIGNMENT.match(word)):
            return None
    return None


class _JestReport(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class _Assertion(_JestReport):
    ancestor_titles: list[str]
    title: str
    status: str


class _File(_JestReport):
    name: str
    status: str
    assertion_results: list[_Assertion]


class _Jest(_JestReport):
    num_passed_tests: int
    num_failed_tests: int
    test_results: list[_File]


def read_jest(text: str | None) -> Report | None:
    """jest's JSON, which vitest's has taken over; None for anything else, or more than a real one has."""
    try:
        found = _Jest.model_validate_json(text or "")
    except ValidationError:
        return None
    reported: list[tuple[str, str]] = []
    full = Names()
    for file in found.test_results:
        path, tests = shortened(file.name), file.assertion_results
        names = numbered(full.full(path, _titles(one)) for one in tests)
        reported += [(name, _was(one.status)) for name, one in zip(names, tests, strict=True)]
        if file.status == "failed" and not any(one.status == "failed" for one in tests):
            reported.append((path, "uncollected"))
    if full.are_lost:
        return None
    failed = found.num_failed_tests
    return Report.of(reported, (found.num_passed_tests + failed, failed))


def _titles(test: _Assertion) -> str:
    return " > ".join([*test.ancestor_titles, test.title])


def _was(status: str) -> str:
    return status if status in ("passed", "failed") else "skipped"


def _source(name: str) -> str:
    return files(_REPORTERS).joinpath("reporters", name).read_text("utf-8")


def laid_out(cache: Path, name: str) -> Path:
    """A reporter's file where a sandbox can be shown it: an installed package may lie anywhere."""
    text = _source(name)
    digest = sha256(text.encode()).hexdigest()[:16]
    place = cache / "reporters" / digest / name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text.encode())
    return place
