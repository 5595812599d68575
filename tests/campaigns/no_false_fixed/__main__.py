"""``python -m tests.campaigns.no_false_fixed``: run the cases, judge each end, and write the table."""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_eval.campaign import Rows, measure, write_files
from tests.campaigns.measuring.clones import copy
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.measuring.pages import ROOT, Share, table
from tests.campaigns.measuring.process import end_with_all, run_to_end
from tests.campaigns.measuring.tool import SCRIPT, version_of
from tests.campaigns.measuring.words import cleaned
from tests.campaigns.no_false_fixed.case import (
    CLIENTS,
    Case,
    CaseError,
    End,
    Ended,
    Half,
    Outcome,
    load_cases,
    make_repository,
    serving,
)
from tests.campaigns.no_false_fixed.judge import judge
from tests.campaigns.no_false_fixed.peers import PEERS, lend_clients, programs, run_peer

OURS = "fallback-tier"

#: Label of the peers' rows, which every run of our tool is shown next to.
PEERS_LABEL = "peers"
PAGE = "no-false-fixed.md"

#: Rows and fetched clients: kept from run to run, never committed.
WORK = ROOT / "bench-results" / "no-false-fixed"

#: One run of the tool on a repository of a few files.
TOOL_TIMEOUT_S = 900

#: Exit code → end.
ENDS: Mapping[int | None, End] = {
    0: "fixed",
    3: "person",
    4: "refused",
    5: "not_affected",
    8: "patched",
    9: "unknown",
}

_FALSE = (Outcome.FALSE_FIXED, Outcome.FALSE_UNAFFECTED)

#: How a page calls each outcome.
_TITLES = {
    Outcome.AS_EXPECTED: "as expected",
    Outcome.FALSE_FIXED: "false fixed",
    Outcome.FALSE_UNAFFECTED: "false unaffected",
    Outcome.WRONG_PLACE: "wrong place",
    Outcome.UNREQUESTED_MAJOR: "unrequested major",
    Outcome.LOST_BYTES: "lost bytes",
    Outcome.UNKNOWN: "unknown",
    Outcome.OTHER_END: "other end",
}


class Judged(Frozen):
    """How one tool's run of one case ended, and what the judge says of it."""

    tool: str
    end: End
    exit_code: int | None
    outcome: Outcome
    detail: str = ""
    others: tuple[tuple[Outcome, str], ...] = ()
    output: str = ""
    seconds: float


class Row(Frozen):
    """The runs of one case: ours alone, or the peers'. ``digest``: of the case that was run."""

    id: str
    digest: str
    version: str
    day: str
    runs: tuple[Judged, ...]


@dataclass(frozen=True)
class Made:
    """A case's repository at its base commit, while its packages are served."""

    case: Case
    folder: Path
    base: Path
    npm: str
    environ: Mapping[str, str]

    def judged(self, tool: str, after: Path, ended: Ended) -> Judged:
        """Judge how a tool left its copy of the repository."""
        judgement = judge(self.case, self.base, after, ended, self.environ)
        places = ((str(self.folder), "FOLDER"), (str(Path.home()), "~"))
        return Judged(
            tool=tool,
            end=ended.end,
            exit_code=ended.exit_code,
            outcome=judgement.outcome,
            detail=cleaned(judgement.detail, places, 600),
            others=judgement.others,
            output=cleaned(ended.output, places, 6_000),
            seconds=round(ended.seconds, 1),
        )

    def row(self, version: str, runs: Iterable[Judged]) -> Row:
        """Return the case's row of these runs, made today."""
        today = datetime.now(UTC).date().isoformat()
        digest = self.case.digest
        return Row(id=self.case.id, digest=digest, version=version, day=today, runs=tuple(runs))


@contextmanager
def made(case: Case, clients: Path) -> Iterator[Made]:
    """Make the case's repository and serve its packages until the block ends. Raises CaseError."""
    with (
        serving(case, clients) as (registry, environ),
        TemporaryDirectory(prefix="no-false-fixed-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name).resolve()
        lend_clients(clients.parent, Path(environ["XDG_CACHE_HOME"]))
        base = make_repository(case, registry, environ, folder / "base")
        yield Made(case, folder, base, registry.npm_url, environ)


def run_ours(case: Case, clients: Path, tool: Path = SCRIPT) -> Row:
    """Run our tool on a copy of the case's repository, and judge it. Raises CaseError."""
    with made(case, clients) as it:
        after = copy(it.base, it.folder / "ours")
        ended = run_tool(case, after, it.folder, it.environ, tool)
        return it.row(version_of(tool), [it.judged(OURS, after, ended)])


def run_peers(case: Case, clients: Path, missing: Container[str] = ()) -> Row:
    """Run each peer that is for such a project on its own copy, and judge it. Raises CaseError."""
    with made(case, clients) as it:
        runs = []
        for number, peer in enumerate(peer for peer in PEERS if peer.client not in missing):
            after = it.folder / f"peer-{number}"
            try:
                ended = run_peer(peer, case, it.base, after, it.npm, it.environ)
            except subprocess.TimeoutExpired as error:
                ended = Ended("error", None, str(error), float(error.timeout))
            if ended is not None:
                runs.append(it.judged(peer.name, after, ended))
        return it.row(PEERS_LABEL, runs)


def run_tool(case: Case, root: Path, folder: Path, environ: Mapping[str, str], tool: Path) -> Ended:
    """Run ``fix`` on a clean checkout, with state and keys in ``folder``."""
    advisory = folder / "advisory.json"
    advisory.write_text(json.dumps(case.record), encoding="utf-8")
    state: list[str | Path] = ["--state-dir", folder / "state", "--keys", folder / "keys"]
    command = [tool, "fix", root, "--advisory", advisory, "--json", *state]
    began = time.monotonic()
    done = run_to_end(command, cwd=folder, env=environ, timeout_s=TOOL_TIMEOUT_S)
    end = ENDS.get(done.code, "error")
    return Ended(end, done.code, done.said, time.monotonic() - began)


# --- rows and the page ----------------------------------------------------------------------------


def rows_of(label: str) -> Rows[Row, str]:
    """Return the rows of a label, by case: a file in ``WORK``."""
    return Rows(Row, key=lambda row: row.id, order=lambda row: row.id, name=f"{label}.jsonl")


@dataclass(frozen=True)
class Run:
    """A tool's run of a case."""

    case: Case
    judged: Judged

    @property
    def as_expected(self) -> bool:
        """Whether the judge found nothing wrong."""
        return self.judged.outcome == Outcome.AS_EXPECTED

    @property
    def is_false(self) -> bool:
        """Whether the run claimed what is not so."""
        return self.judged.outcome in _FALSE


def runs_of(cases: Iterable[Case], rows: Mapping[str, Row]) -> list[Run]:
    """Return the runs of the cases as they are now: a row of another form of a case is left out."""
    current = (case for case in cases if case.id in rows and rows[case.id].digest == case.digest)
    return [Run(case, judged) for case in current for judged in rows[case.id].runs]


def section(ours: Sequence[Run], peers: Sequence[Run], missing: Mapping[str, str]) -> str:
    """Return a label's part of the page: counts by outcome, wins and losses, and the seen half by case."""
    halves = [f"{half}, {author} author" for half in Half for author in ("seen", "blind")]
    of_half = [(f"{run.case.half}, {run.case.author} author", run) for run in ours]
    parts = [
        "### By tool\n\n"
        + _counts("tool", [(run.judged.tool, run) for run in (*ours, *peers)], _TOOLS),
        "### Ours by client\n\n"
        + _counts("client", [(run.case.client, run) for run in ours], CLIENTS),
        "### Ours by half and author\n\n" + _counts("half", of_half, halves),
        "### Wins and losses\n\n" + _wins(ours, peers),
    ]
    if missing:
        reasons = "".join(f"- {name}: {reason}\n" for name, reason in sorted(missing.items()))
        parts.append(f"### Peers that can't run here\n\n{reasons}")
    parts.append("### The seen half, case by case\n\n" + _by_case(ours, peers))
    return "\n".join(parts)


def _counts(title: str, runs: Sequence[tuple[str, Run]], order: Sequence[str]) -> str:
    """One line for each group: how many runs ended in each outcome."""
    lines = []
    for name in order:
        counts = Counter(run.judged.outcome for group, run in runs if group == name)
        if total := counts.total():
            cells = [str(Share(counts[Outcome.AS_EXPECTED], total))]
            cells += [str(counts[it] or "") for it in _TITLES if it != Outcome.AS_EXPECTED]
            lines.append([name, *cells])
    return table([title, *_TITLES.values()], lines)


def _wins(ours: Sequence[Run], peers: Sequence[Run]) -> str:
    """Ours against each peer on the cases of both: a win is as expected where the peer's end is not."""
    of_case, lines = {run.case.id: run for run in ours}, []
    for name in _TOOLS[1:]:
        pairs = [
            (of_case[run.case.id], run)
            for run in peers
            if run.judged.tool == name and run.case.id in of_case
        ]
        if pairs:
            wins = sum(our.as_expected > its.as_expected for our, its in pairs)
            losses = sum(our.as_expected < its.as_expected for our, its in pairs)
            false = [sum(run.is_false for run in column) for column in zip(*pairs, strict=True)]
            cells = (len(pairs), wins, losses, len(pairs) - wins - losses, *false)
            lines.append([name, *map(str, cells)])
    return table(["peer", "cases", "we win", "we lose", "alike", "our false", "its false"], lines)


def _by_case(ours: Sequence[Run], peers: Sequence[Run]) -> str:
    lines = []
    for run in ours:
        if run.case.half == Half.SEEN:
            others = [
                f"{it.judged.tool}: {_TITLES[it.judged.outcome]}"
                for it in peers
                if it.case.id == run.case.id
            ]
            end, outcome = run.judged.end, _TITLES[run.judged.outcome]
            lines.append([run.case.id, run.case.expected.end, end, outcome, "; ".join(others)])
    return table(["case", "expected", "ended", "outcome", "peers"], lines)


def write_page(label: str, made_by: str, text: str) -> None:
    """Replace a label's part of the page; the others stay."""
    path = ROOT / "docs" / PAGE
    page = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    begin, end = f"<!-- {label} -->\n", f"<!-- end of {label} -->\n"
    before, found, rest = page.partition(begin)
    after = rest.partition(end)[2] if found else ""
    if not found:
        before = f"{page.rstrip()}\n\n"
    head = f"## {label.capitalize()}\n\nMade by {made_by}.\n\n"
    write_files(path.parent, {PAGE: f"{before}{begin}{head}{text}{end}{after}"})


_TOOLS = (OURS, *(peer.name for peer in PEERS))

_HEAD = """# No false "fixed"

Small repositories, made after public bug reports of other tools, with the end that a careful engineer
expects. Expected ends are committed before the tool is run. A judge that shares no code with the product
installs each repository with its own clients before and after, and counts the outcomes. How to run and add
cases: [tests/campaigns/no_false_fixed](../tests/campaigns/no_false_fixed/README.md).

- *false fixed*: the tool claims a fix, and an install command still installs an affected version, or a
  declaration still admits only affected ones; *false unaffected*: the same for "not affected".
- *wrong place*, *unrequested major*, *lost bytes*: a fix, but not the one that the repository needs.
- *unknown*: the tool could not decide where an engineer would; *other end*: another end than the expected.

An updater (`npm update`, `uv lock --upgrade-package` …) is given the package's name and claims nothing. If
it changed a file, that counts as a fix; if it changed none, as a refusal. `npm audit fix`, `pnpm audit
--fix` and `pip-audit --fix` are served the case's advisory, and their exit code is their claim. Half of the
cases, drawn from their ids by a committed seed, is published as totals only.
"""


# --- the command ----------------------------------------------------------------------------------


def main(words: Sequence[str] | None = None) -> int:
    """Return 0 if every chosen case has a row and none is a false claim of ours; 2: bad input."""
    arguments = _parser().parse_args(words)
    end_with_all()
    try:
        half = None if arguments.half == "all" else Half(arguments.half)
        cases = load_cases(arguments.only, half)
        every = load_cases()
    except CaseError as error:
        print(error, file=sys.stderr)
        return 2
    tool = arguments.tool.absolute()
    version = version_of(tool)
    clients, missing = programs(WORK.resolve() / "clients")

    def run_all(label: str, version: str, run: Callable[[Case], Row]) -> dict[str, Row]:
        kept = rows_of(label)
        known = kept.by_key(WORK)
        again = arguments.again or bool(arguments.only)
        due = {
            case.id
            for case in cases
            if (row := known.get(case.id)) is None
            or (row.digest, row.version) != (case.digest, version)
        }

        def keep(row: Row, which: str) -> None:
            kept.keep(row, WORK)
            half = next(case.half for case in cases if case.id == row.id)
            _print_row(row, which, in_full=bool(arguments.only) or half == Half.SEEN)

        wanted = [case for case in cases if again or case.id in due]
        print(f"{label}: {len(wanted)} of {len(cases)} cases to run", flush=True)
        measure(wanted, run, keep, jobs=arguments.jobs)
        return kept.by_key(WORK)

    rows = run_all(arguments.label, version, lambda case: run_ours(case, clients, tool))
    peers = rows_of(PEERS_LABEL).by_key(WORK)
    if not arguments.no_peers:
        peers = run_all(PEERS_LABEL, PEERS_LABEL, lambda case: run_peers(case, clients, missing))
    ours = runs_of(every, rows)
    if arguments.report:
        days = " and ".join(sorted({rows[run.case.id].day for run in ours}))
        made_by = f"{version}{_checkout(tool)} on {days}: {len(ours)} of {len(every)} cases"
        write_page(arguments.label, made_by, section(ours, runs_of(every, peers), missing))
    chosen = {case.id for case in cases}
    judged = [run for run in ours if run.case.id in chosen]
    return 0 if len(judged) == len(chosen) and not any(run.is_false for run in judged) else 1


def _checkout(tool: Path) -> str:
    """Return the tag or commit of another checkout's program; empty for ours and for a wheel's."""
    if tool == SCRIPT:
        return ""
    command = ["git", "describe", "--tags", "--always"]
    done = subprocess.run(command, cwd=tool.parent, capture_output=True, text=True)
    return f" ({done.stdout.strip()})" if done.stdout else ""


def _print_row(row: Row, which: str, *, in_full: bool) -> None:
    told = [
        f"{run.tool} {run.end}, {_TITLES[run.outcome]} ({run.seconds:.0f} s) {run.detail[:200]}"
        for run in row.runs
    ]
    print(f"{which} {row.id}: {'; '.join(told) if in_full else 'run'}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.no_false_fixed", description=__doc__
    )
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="a case")
    parser.add_argument("--half", choices=[*map(str, Half), "all"], default="all")
    parser.add_argument("--tool", type=Path, default=SCRIPT, help="another fallback-tier program")
    parser.add_argument("--label", default="now", help="of the rows, and of their section in docs")
    parser.add_argument("--no-peers", action="store_true", help="run our tool alone")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases at the same time")
    parser.add_argument("--again", action="store_true", help="run cases that have a row already")
    parser.add_argument("--report", action="store_true", help=f"write docs/{PAGE}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
