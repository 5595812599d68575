"""One case from end to end, by the command that a user would give, and what became of it."""

import json
import platform
import subprocess
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fallback_audit.frozen import Frozen
from tests.campaigns.measuring.proof_end import END, saying_its_end
from tests.campaigns.proofs.cases import Case, held
from tests.e2e.command import SCRIPT, Ended, run
from tests.fakes.repository import git

#: Published OSV records, beside the checkout (never in it): used by id where they are.
PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "recipe-cases.tar.xz"

#: Who made a patch, by the tier: no model is asked here.
_AUTHORS = {"recipe": "recipe", "llm": "scripted"}

#: Gates that have something to say of every case.
_NEEDED = ("applies", "declared_set", "policy", "resolves", "not_vulnerable", "tests", "proof")

#: The event that says that a retry touched no retrieval.
_SKIPPED = "RagSkippedOnRetry"

#: How much of a failure's own words a result keeps.
_SAID_CHARS = 300


class Gate(Frozen):
    """One verdict of the attempt that counted."""

    name: str
    status: str
    duration_ms: int


class Result(Frozen):
    """What became of a case. ``problems`` is empty exactly where all that was asked of it holds."""

    name: str
    case_sha256: str
    ecosystem: str
    package: str
    advisory: str
    advisory_is_published: bool
    weakness: str
    edits: str
    vulnerable: str
    resolved: str
    outcome: str
    author: str
    attempts: int
    failed_first: tuple[str, ...]
    retrieval_skipped: bool
    gates: tuple[Gate, ...]
    files: tuple[str, ...]
    lines_added: int
    lines_removed: int
    seconds: float
    made: str
    tools: dict[str, str]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def published_records() -> dict[str, Any]:
    """OSV records by id; empty where the data isn't here."""
    if not PUBLISHED.exists():
        return {}
    found = {}
    with tarfile.open(PUBLISHED) as archive:
        for member in archive:
            if "/advisories/" in member.name and member.name.endswith(".json"):
                file = archive.extractfile(member)
                if file is not None:
                    record = json.load(file)
                    found[record["id"]] = record
    return found


@dataclass(frozen=True)
class Ran:
    """A case that was run: the command's end, and what it left."""

    case: Case
    root: Path
    ended: Ended
    answer: Mapping[str, Any]
    seconds: float
    changed: Mapping[str, tuple[int, int]]
    #: Kinds of the events on record, and how `audit verify` ended.
    kinds: frozenset[str]
    verify_code: int

    @property
    def application(self) -> Mapping[str, Any]:
        return self.answer.get("application") or {}


def run_case(case: Case, published: Mapping[str, Any], script: Path = SCRIPT) -> Result:
    """Make the repository, fix it with the proof, look at what is there afterwards.

    Raises RuntimeError and ValueError where the repository can't be made or the command has no outcome
    (a client, the registry, the sandbox): that is no result.
    """
    with TemporaryDirectory(prefix="proof-") as folder:
        root = Path(folder).resolve() / case.facts.package
        root.mkdir()
        case.make_repository(root, SCRIPT.with_name("uv"))
        record, is_published = case.record(published)
        root.with_name("advisory.json").write_text(json.dumps(record))
        return _result(_fix(case, root, script), is_published=is_published)


def _fix(case: Case, root: Path, script: Path) -> Ran:
    state = root.with_name("state")
    place = case.proof.relative_to(case.folder).as_posix()
    command: list[str | Path] = ["fix", root, "--advisory", root.with_name("advisory.json")]
    program = case.proof_command.partition(" ")[0]
    given = root.with_name(case.proof.name)
    given.write_bytes(saying_its_end(program, case.proof.read_bytes()))
    command += ["--proof", case.proof_command, "--proof-file", f"{given}={place}"]
    command += ["--proof-end", END]
    command += ["--script", case.script] if case.script else []
    began = time.monotonic()
    ended = run(*command, "--state-dir", state, "--json", script=script)
    seconds = time.monotonic() - began
    answer = ended.json if ended.out else {}
    if "outcome" not in answer:
        message = " ".join((ended.err or ended.out).split())[-_SAID_CHARS:]
        raise RuntimeError(f"{case.name}: exit code {ended.code}, and no outcome: {message}")
    verify = run("audit", "verify", "--state-dir", state, "--json", script=script)
    kinds = _kinds(answer, state, script)
    return Ran(case, root, ended, answer, seconds, _changed(root), kinds, verify.code)


def _result(ran: Ran, *, is_published: bool) -> Result:
    case, answer = ran.case, ran.answer
    return Result(
        name=case.name,
        case_sha256=case.digest,
        ecosystem=case.ecosystem,
        package=case.facts.package,
        advisory=case.facts.advisory.id,
        advisory_is_published=is_published,
        weakness=case.facts.weakness,
        edits=case.facts.edits,
        vulnerable=case.facts.vulnerable,
        resolved=held(ran.root, case.facts.package),
        outcome=answer["outcome"],
        author=_AUTHORS.get(ran.application.get("tier", ""), "none"),
        attempts=answer.get("attempts", len(answer["prior_attempts"])),
        failed_first=tuple(map(_failure, answer.get("prior_attempts", ()))),
        retrieval_skipped=_SKIPPED in ran.kinds,
        gates=tuple(
            Gate(name=one["gate"], status=one["status"], duration_ms=one["duration_ms"])
            for one in answer.get("verdicts", ())
        ),
        files=tuple(sorted(ran.changed)),
        lines_added=sum(added for added, _ in ran.changed.values()),
        lines_removed=sum(removed for _, removed in ran.changed.values()),
        seconds=round(ran.seconds, 1),
        made=datetime.now(UTC).date().isoformat(),
        tools=tools(),
        problems=(*_end_problems(ran), *_tree_problems(ran), *_trail_problems(ran)),
    )


@cache
def tools() -> dict[str, str]:
    """The clients that fetched and ran the packages, and ourselves."""
    asked = {
        "npm": ["npm", "--version"],
        "node": ["node", "--version"],
        "git": ["git", "--version"],
    }
    asked |= {"uv": [str(SCRIPT.with_name("uv")), "--version"]}
    found = {
        name: subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, command in asked.items()
    }
    numbers = {name: text.strip().removeprefix("v") for name, text in found.items()}
    numbers["git"] = numbers["git"].removeprefix("git version ")
    numbers["uv"] = numbers["uv"].removeprefix("uv ").split()[0]
    numbers |= {"Python": platform.python_version(), "fallback-tier": version("fallback-tier")}
    return numbers


def _failure(attempt: Mapping[str, Any]) -> str:
    gates = ", ".join(attempt["failing_gates"]) or "no gate"
    return f"{attempt['tier']}: {attempt['failure_kind']} at {gates}"


def _kinds(answer: Mapping[str, Any], state: Path, script: Path) -> frozenset[str]:
    command = ["audit", "show", answer["fix_id"], "--state-dir", state, "--json"]
    return frozenset(event["kind"] for event in run(*command, script=script).json["events"])


def _changed(root: Path) -> dict[str, tuple[int, int]]:
    """Path → lines added and removed in the working tree; a new file counts as none."""
    rows = [line.split("\t") for line in git(root, "diff", "--numstat").splitlines()]
    found = {path: (int(added), int(removed)) for added, removed, path in rows}
    return found | dict.fromkeys(git(root, "ls-files", "--others").split(), (0, 0))


def _end_problems(ran: Ran) -> list[str]:
    """How the command ended: proved, and by every gate that has something to say."""
    ended, answer = ran.ended, ran.answer
    if ended.code != 0 or answer.get("outcome") != "verified":
        message = " ".join(str(answer.get("question") or answer.get("sentence", "")).split())
        return [f"exit code {ended.code}, {answer['outcome']}: {message[:_SAID_CHARS]}"]
    status = {one["gate"]: one["status"] for one in answer["verdicts"]}
    failed = sorted(gate for gate in status if status[gate] not in {"passed", "skipped"})
    silent = sorted(gate for gate in _NEEDED if status.get(gate) != "passed")
    found = [f"gates that did not pass: {', '.join(failed)}"] if failed else []
    return found + ([f"gates that said nothing: {', '.join(silent)}"] if silent else [])


def _tree_problems(ran: Ran) -> list[str]:
    """The delivered patch: those files, and another version."""
    package, declared = ran.case.facts.package, sorted(ran.application.get("files", ()))
    found = []
    if sorted(ran.changed) != declared:
        found.append(f"the working tree differs in {sorted(ran.changed)}, the patch in {declared}")
    if held(ran.root, package) in {"", ran.case.facts.vulnerable}:
        found.append(f"{package} {ran.case.facts.vulnerable} is held still, or none is")
    return found


def _trail_problems(ran: Ran) -> list[str]:
    """A bump is the recipe's at once; edits are a retry's, without retrieval. The record is intact."""
    found = [] if ran.verify_code == 0 else [f"audit verify: exit code {ran.verify_code}"]
    made = (ran.application.get("tier"), ran.answer.get("attempts"), _SKIPPED in ran.kinds)
    wanted = ("llm", 2, True) if ran.case.script else ("recipe", 1, False)
    if made != wanted:
        found.append(f"tier, attempts, {_SKIPPED} on record: {made}, {wanted} wanted")
    return found
