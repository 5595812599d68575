"""One case from end to end: its repository, the plan, the fix with its gates, the judge, the peers."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.campaigns.eval_repos import agreeing
from tests.campaigns.eval_repos.advisories import Record, records_of, write_advisories
from tests.campaigns.eval_repos.cases import Case, Outcome
from tests.campaigns.eval_repos.clients import Clients, installed_version
from tests.campaigns.eval_repos.judge import Change, Seen, affected, judge
from tests.campaigns.eval_repos.looking import Looked, look
from tests.campaigns.eval_repos.making import changed_lines, make
from tests.campaigns.eval_repos.peers import run_peers
from tests.campaigns.eval_repos.reported import answer, has_traceback, read_reported
from tests.campaigns.eval_repos.results import Base, Result
from tests.campaigns.measuring.clones import copy
from tests.campaigns.measuring.process import Done, run_to_end
from tests.campaigns.measuring.tool import SCRIPT, version_of
from tests.registry import Universe, serve

#: One run: installs at two commits, their suites, some tries of the ladder.
RUN_TIMEOUT_S = 1_800

#: What would choose another server, or another environment's modules.
_HIDDEN = ("ANTHROPIC_", "FALLBACK_TIER_", "PYTHONHOME", "VIRTUAL_ENV")


Document = Mapping[str, Any]


@dataclass(frozen=True)
class Options:
    """How the cases are measured. ``npm``: the real registry, for peers; "" where it is on loopback."""

    clients: Clients
    label: str = "now"
    script: Path = SCRIPT
    clones: Path | None = None
    npm: str = ""
    with_peers: bool = True


@dataclass(frozen=True)
class _Run:
    """The tool on one checkout, with state and keys of the case's own."""

    options: Options
    advisory: Path
    folder: Path

    def give(self, verb: str, root: Path) -> Done:
        words: list[str | Path] = [
            self.options.script,
            verb,
            root,
            "--advisory",
            self.advisory,
            "--json",
        ]
        if verb == "fix":
            words += ["--keys", self.folder / "keys"]
        return self._run([*words, "--state-dir", self.folder / "state"])

    def applied(self, fixed: Document | None) -> list[Document]:
        """The remediation that the first attempt of each gate transition applied."""
        parts = (fixed or {}).get("fixes", [fixed or {}])
        return [found for one in parts if (found := self._first(one))]

    def _first(self, part: Document) -> Document | None:
        """As it is printed, or, where gates failed it and it is no longer, from the record."""
        application = part.get("application") or {}
        if application.get("remediation") and not part.get("prior_attempts"):
            return dict(application["remediation"])
        if not part.get("fix_id"):
            return None
        state = self.folder / "state"
        words = ["audit", "show", part["fix_id"], "--json", "--state-dir", state]
        shown = answer(self._run([self.options.script, *words])) or {}
        for event in shown.get("events", ()):
            payload = event.get("payload") or {}
            if event.get("kind") == "PatchProposed" and payload.get("attempt") == 1:
                return _evidence(state, str(payload.get("remediation_sha256")))
        return None

    def _run(self, command: list[str | Path]) -> Done:
        kept = {name: it for name, it in os.environ.items() if not name.startswith(_HIDDEN)}
        env = {**kept, **self.options.clients.more, "COLUMNS": "200"}
        env = {name: value for name, value in env.items() if value}
        return run_to_end(command, cwd=self.folder, env=env, timeout_s=RUN_TIMEOUT_S)


def _evidence(state: Path, digest: str) -> Document | None:
    place = state / "evidence" / digest[:2] / digest[2:]
    try:
        found = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "moves" in found else None


@contextmanager
def at_home(case: Case, options: Options) -> Iterator[Options]:
    """The same, with the case's own registry where its packages are made up."""
    if not case.package:
        yield options
        return
    with serve(universe(case)) as registry:
        clients = replace(options.clients, more={**options.clients.more, **registry.environ})
        yield replace(options, clients=clients, npm=registry.npm_url)


def universe(case: Case) -> Universe:
    """The made-up packages of a case."""
    made = Universe()
    for one in case.package:
        if case.ecosystem == "npm":
            inside = {
                f"node_modules/{name}/package.json": json.dumps({"name": name, "version": version})
                for name, version in one.bundled.items()
            }
            more = {"bundleDependencies": [*one.bundled]} if one.bundled else {}
            needs, peers = one.needs or None, one.peers or None
            files = {**inside, **one.files}
            made.npm(one.name, one.version, needs, None, peers, files=files, manifest=more)
        else:
            asked = [f"{name}{spec}" for name, spec in one.needs.items()]
            made.pypi(one.name, one.version, asked, files=one.files)
    return made


def run_case(case: Case, published: Mapping[str, Record], options: Options) -> Result:
    """Measure one case. Raises RuntimeError where its repository or a client can't be had, or where its
    base is not what the case says: then that is no result of the tool's."""
    began = time.monotonic()
    with (
        at_home(case, options) as chosen,
        TemporaryDirectory(prefix="eval-repos-", ignore_cleanup_errors=True) as place,
    ):
        folder = Path(place).resolve()
        records = records_of(case, published)
        root = make(case, folder, chosen.clients, chosen.clones)
        run = _Run(chosen, write_advisories(records, folder / "advisories"), folder)
        return _measured(case, records, root, run, began)


def look_at_base(
    case: Case, published: Mapping[str, Record], options: Options
) -> tuple[str, list[str], str]:
    """Name, affected copies, a client's words: the base alone. Raises RuntimeError as ``run_case``."""
    with (
        at_home(case, options) as chosen,
        TemporaryDirectory(prefix="eval-repos-", ignore_cleanup_errors=True) as place,
    ):
        root = make(case, Path(place).resolve(), chosen.clients, chosen.clones)
        base, hit = base_of(case, records_of(case, published), root, chosen.clients)
        return case.name, hit, base.said


def _measured(case: Case, records: list[Record], root: Path, run: _Run, began: float) -> Result:
    options, folder = run.options, run.folder
    base, hit = base_of(case, records, root, options.clients)
    planning = run.give("plan", copy(root, folder / "planned"))
    work = copy(root, folder / "fixed")
    started = time.monotonic()
    done = run.give("fix", work)
    places = [(str(folder), "FOLDER"), (str(Path.home()), "~")]
    reported = read_reported(done, time.monotonic() - started, places)
    reported = reported.model_copy(
        update={"traceback": reported.traceback or has_traceback(planning)}
    )
    before, lines = changed_lines(work)
    after = {path: text_at(work / path) for path in before}
    seen = Seen(
        case=case,
        records=records,
        told=reported,
        base=base,
        after=look(work, case, options.clients) if lines else base,
        change=Change(before, after, lines),
    )
    fixed = answer(done)
    peers = (
        run_peers(case, records, root, base, options.clients, options.npm)
        if options.with_peers
        else ()
    )
    return Result(
        label=options.label,
        name=case.name,
        half=case.half,
        draw=case.draw,
        ecosystem=case.ecosystem,
        kinds=case.kinds,
        case_sha256=case.sha256,
        expected_sha256=case.expected_sha256,
        expected=" or ".join(end.outcome for end in case.end),
        changes=len(case.changed),
        base=Base(installs=base.installs, works=base.works, affected=tuple(hit), said=base.said),
        told=reported,
        verdict=judge(seen),
        lines=lines,
        unlike=tuple(agreeing.differences(answer(planning), fixed, run.applied(fixed))),
        peers=peers,
        seconds=round(time.monotonic() - began, 1),
        made=datetime.now(UTC).date().isoformat(),
        tool=version_of(options.script),
        tools={"npm": installed_version("npm"), "uv": installed_version("uv")},
    )


def base_of(
    case: Case, records: list[Record], root: Path, clients: Clients
) -> tuple[Looked, list[str]]:
    """What is there before anything is done, and the copies that an advisory covers. Raises RuntimeError
    where the base is not what a case needs: affected, and working, where it can be installed at all."""
    base = look(root, case, clients)
    hit = affected(records, case.ecosystem, base.held)
    if base.works is False:
        raise RuntimeError(f"{case.name}: its check fails at the base: {base.said}")
    due = any(end.outcome is not Outcome.NOT_AFFECTED for end in case.end)
    if base.installs and due and not hit:
        raise RuntimeError(f"{case.name}: no copy at the base is affected")
    if base.installs == case.installs_never:
        raise RuntimeError(f"{case.name}: installs at the base, or doesn't: {base.said}")
    return base, hit


def text_at(place: Path) -> str:
    """A file's text with its own line ends; empty where there is none."""
    return place.read_bytes().decode("utf-8", "replace") if place.is_file() else ""
