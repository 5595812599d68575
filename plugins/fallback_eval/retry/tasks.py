"""The tasks: one TOML file each, a vulnerable function with all that judges a fix of it.

::

    language, cwe, weakness, package     what it is
    advisory                             what the model is told: the function, the flaw, the wanted result
    code                                 the whole module
    uses                                 what the checks import or define first (optional)
    tests                                checks that hold at base and with every right fix
    proof                                checks of which each fails at base, or some do
    hidden                               stricter checks, which no model and no gate sees
    [[reference]]                        edits (old, new) of a right fix
    [[wrong]]                            fixes that are plausible and wrong, and who catches each
    [decoy]                              a solved example that is close in topic, and wrong here

A check is one line: ``EXPRESSION -> VALUE`` or ``EXPRESSION raises ERROR``. Each becomes one test of
Python's unittest or of node's test runner.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_eval.fixes.projects import commit_all
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.errors import InputError, first_fault
from fallback_tier.execution import ClientRunner
from fallback_tier.gates.builtin.proof import Proof
from fallback_tier.outcome import SearchReplace, SourceEdit
from fallback_tier.retrieval import ExampleOrigin, ExampleProvenance, FewShot, SolvedExample

SUFFIX: Final = ".toml"

#: One git command over some five small files.
_RETURNS, _RAISES = " -> ", " raises "

Checks = Annotated[tuple[str, ...], Field(min_length=1)]


class Language(StrEnum):
    """What a task is written in."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"


class Edit(Frozen):
    """A text of the module and its replacement."""

    old: str
    new: str


Edits = Annotated[tuple[Edit, ...], Field(min_length=1)]


class WrongFix(Frozen):
    """A plausible fix that is none. ``caught_by``: the checks that fail with it, the first of these kinds;
    ``follows_decoy``: it does here what the decoy does there."""

    what: str
    caught_by: Literal["tests", "proof", "hidden"]
    follows_decoy: bool = False
    edits: Edits


class Decoy(Frozen):
    """A solved example of another repository: right there, wrong here."""

    package: str
    advisory: str
    path: str
    fix: str
    old: str
    new: str


class _Facts(Frozen):
    language: Language
    cwe: Annotated[str, Field(pattern=r"^CWE-\d+$")]
    weakness: str
    package: str
    advisory: str
    code: str
    uses: str = ""
    tests: Checks
    proof: Checks
    hidden: Checks
    reference: Edits
    wrong: Annotated[tuple[WrongFix, ...], Field(min_length=1)]
    decoy: Decoy


class Task(_Facts):
    """One vulnerable program, read. ``digest``: SHA-256 of its file, by which results name it."""

    name: str
    digest: str

    @property
    def path(self) -> str:
        """Return the module's path in the repository."""
        return f"{self.package}.py" if self.language is Language.PYTHON else "index.js"

    @property
    def advisory_id(self) -> str:
        """Return the identifier of its advisory."""
        return f"TASK-{self.name}"

    def files(self) -> dict[str, str]:
        """Return the repository's files by path."""
        if self.language is Language.PYTHON:
            manifest = '[project]\nname = "app"\nversion = "1.0.0"\n'
            return {
                "pyproject.toml": manifest,
                self.path: self.code,
                "tests/__init__.py": "",
                "tests/test_base.py": self.test_file(self.tests),
            }
        manifest = '{ "scripts": { "test": "node --test test/" } }\n'
        return {
            "package.json": manifest,
            self.path: self.code,
            "test/base.test.js": self.test_file(self.tests, up="../"),
        }

    def test_file(self, checks: Sequence[str], *, up: str = "") -> str:
        """Return the checks as one test file. ``up``: from it to the repository's root (JavaScript)."""
        if self.language is Language.PYTHON:
            return "\n".join(_python_tests(self.package, self.uses, checks))
        return "\n".join(_javascript_tests(f"{up or './'}index.js", self.uses, checks))

    def proof_of(self, checks: Sequence[str], folder: str) -> Proof:
        """Return checks as a proof: a command, and a file that is laid over the repository."""
        if self.language is Language.PYTHON:
            path = f"{folder}/test_{folder}.py"
            command = ("python", "-m", "unittest", path)
            return Proof(command, {path: self.test_file(checks).encode()})
        path = f"{folder}/{folder}.test.js"
        text = self.test_file(checks, up="../").encode()
        return Proof(("node", "--test", path), {path: text})

    def as_advisory(self) -> Advisory:
        """Return the advisory, of the repository's own package."""
        ecosystem = "PyPI" if self.language is Language.PYTHON else "npm"
        events = [{"introduced": "0"}, {"fixed": "1.0.1"}]
        kind = "ECOSYSTEM" if self.language is Language.PYTHON else "SEMVER"
        document = {
            "id": self.advisory_id,
            "modified": "2026-01-01T00:00:00Z",
            "summary": f"{self.weakness} in {self.package}",
            "details": self.advisory,
            "affected": [
                {
                    "package": {"ecosystem": ecosystem, "name": self.package},
                    "ranges": [{"type": kind, "events": events}],
                }
            ],
            "database_specific": {"cwe_ids": [self.cwe]},
        }
        return parse_advisory(json.dumps(document).encode(), self.advisory_id)

    def example(self) -> FewShot:
        """Return the decoy as a memory of solved examples would."""
        decoy = self.decoy
        edit = SearchReplace(path=decoy.path, old=decoy.old, new=decoy.new)
        example = SolvedExample(
            example_id=f"decoy-{self.name}",
            advisory_id=f"DECOY-{self.name}",
            advisory_text=decoy.advisory,
            ecosystem="PyPI" if self.language is Language.PYTHON else "npm",
            package=decoy.package,
            cwe=(self.cwe,),
            language=self.language.value,
            edits=(edit,),
            file_sha256={},
            provenance=ExampleProvenance(origin=ExampleOrigin.WRITTEN, source="written as a decoy"),
            licence="Apache-2.0",
            fix_summary=decoy.fix,
        )
        digest = hashlib.sha256(example.model_dump_json().encode()).hexdigest()
        return FewShot(example=example, content_sha256=digest, text=decoy.advisory, edits=(edit,))

    def solved(self) -> SolvedExample:
        """Return its reference fix as a record of a memory, for other tasks."""
        return SolvedExample(
            example_id=f"fix-{self.name}",
            advisory_id=self.advisory_id,
            advisory_text=self.advisory,
            ecosystem="PyPI" if self.language is Language.PYTHON else "npm",
            package=self.package,
            cwe=(self.cwe,),
            language=self.language.value,
            edits=tuple(
                SearchReplace(path=self.path, old=one.old, new=one.new) for one in self.reference
            ),
            file_sha256={},
            provenance=ExampleProvenance(
                origin=ExampleOrigin.WRITTEN, source="a task's reference fix"
            ),
            licence="Apache-2.0",
        )

    def plan(self, edits: Sequence[Edit]) -> SourceEdit:
        """Return edits of the module as the plan that a model would answer with."""
        return SourceEdit(
            rationale="by hand",
            citations=(self.advisory_id,),
            edits=tuple(SearchReplace(path=self.path, old=one.old, new=one.new) for one in edits),
        )

    def with_edits(self, edits: Sequence[Edit]) -> str:
        """Return the module with edits. Raises ValueError: an old text is not in it exactly once."""
        text = self.code
        for edit in edits:
            if text.count(edit.old) != 1:
                raise ValueError(
                    f"{self.name}: {edit.old!r} is in the module {text.count(edit.old)} times"
                )
            text = text.replace(edit.old, edit.new)
        return text

    def commit_to(self, place: Path, clients: ClientRunner) -> None:
        """Make a repository of it at ``place``, with one commit. Raises OSError, ToolError."""
        for path, text in self.files().items():
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        commit_all(place, clients, "task")


def load_tasks(root: Path, only: Sequence[str] = ()) -> tuple[Task, ...]:
    """Return all tasks of a folder by name, or those named. Raises InputError."""
    names = sorted(place.stem for place in root.glob(f"*{SUFFIX}"))
    if unknown := [name for name in only if name not in names]:
        raise InputError(
            f"There is no task {unknown[0]!r} in {str(root)!r}.",
            next_step=f"Choose among: {', '.join(names)}.",
            kind="no_such_task",
        )
    return tuple(_load(root / f"{name}{SUFFIX}") for name in names if not only or name in only)


def _load(place: Path) -> Task:
    try:
        content = place.read_bytes()
        facts = _Facts.model_validate(tomllib.loads(content.decode("utf-8")))
        for check in (*facts.tests, *facts.proof, *facts.hidden):
            _parts(check)
    except OSError as error:
        unreadable = _unfit(place, error.strerror or "it can't be read")
        raise blamed(error, str(place), unreadable) from error
    except ValidationError as error:
        raise _unfit(place, first_fault(error, "the file")) from error
    except ValueError as error:  # not UTF-8, not TOML, no check
        raise _unfit(place, str(error)) from error
    return Task(name=place.stem, digest=hashlib.sha256(content).hexdigest(), **dict(facts))


def _unfit(place: Path, why: str) -> InputError:
    return InputError(
        f"{place} does not describe a task: {why}.",
        next_step="Compare it with one of the others.",
        kind="not_a_task",
    )


def _parts(check: str) -> tuple[str, str, str]:
    """Return a check's expression, separator and expected end. Raises ValueError."""
    for separator in (_RETURNS, _RAISES):
        expression, found, end = check.rpartition(separator)
        if found:
            return expression, separator, end
    raise ValueError(f"{check!r} is not `EXPRESSION -> VALUE` or `EXPRESSION raises ERROR`")


def _python_tests(module: str, uses: str, checks: Sequence[str]) -> Iterator[str]:
    yield from ("import unittest", "", f"from {module} import *", *uses.splitlines(), "", "")
    yield "class Checks(unittest.TestCase):"
    for number, check in enumerate(checks, start=1):
        expression, separator, end = _parts(check)
        yield f"    def test_{number:02}(self):"
        if separator == _RETURNS:
            yield f"        self.assertEqual({expression}, {end})"
        else:
            yield from (f"        with self.assertRaises({end}):", f"            {expression}")
        yield ""


#: One line says which check failed and how, which node's own messages spread over many.
_SAME = """\
function same(check, got, wanted) {
  if (isDeepStrictEqual(got, wanted)) return;
  throw new Error(`${check} gives ${inspect(got)}, not ${inspect(wanted)}`);
}"""


def _javascript_tests(module: str, uses: str, checks: Sequence[str]) -> Iterator[str]:
    yield from ("const { test } = require('node:test');", "const assert = require('node:assert');")
    yield "const { inspect, isDeepStrictEqual } = require('node:util');"
    yield from (f"const lib = require('{module}');", _SAME, *uses.splitlines(), "")
    for number, check in enumerate(checks, start=1):
        expression, separator, end = _parts(check)
        yield f"test('check {number}', () => {{"
        if separator == _RETURNS:
            yield f"  same({json.dumps(expression)}, {expression}, {end});"
        else:
            yield f"  assert.throws(() => {expression}, {end});"
        yield "});"
