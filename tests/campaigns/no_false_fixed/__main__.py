"""``python -m tests.campaigns.no_false_fixed``: run the cases, judge each end, and write the table."""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.campaigns.no_false_fixed.case import (
    Case,
    CaseError,
    End,
    Ended,
    Half,
    Judgement,
    Outcome,
    load_cases,
    make_repository,
    serving,
)
from tests.campaigns.no_false_fixed.judge import judge
from tests.campaigns.no_false_fixed.peers import PEERS, programs, run_peer
from tests.measuring.clones import copy
from tests.measuring.frozen import Frozen
from tests.measuring.loop import measure
from tests.measuring.process import end_with_all, run_to_end
from tests.measuring.rows import ROOT, Share, table, write_files
from tests.measuring.tool import SCRIPT, version_of
from tests.measuring.words import cleaned

OURS = "fallback-tier"
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
    """One case: ours first, then the peers. ``digest``: of the case that was run."""

    id: str
    digest: str
    half: Half
    author: str
    client: str
    kind: str
    expected: str
    version: str
    day: str
    with_peers: bool
    runs: tuple[Judged, ...]

    @property
    def ours(self) -> Judged:
        """Our own run."""
        return self.runs[0]


@dataclass(frozen=True)
class Options:
    """How cases are run. ``clients``: the folder of programs that comes first in PATH."""

    clients: Path
    tool: Path = SCRIPT
    with_peers: bool = True
    missing: Mapping[str, str] = field(default_factory=dict)


def run_case(case: Case, options: Options) -> Row:
    """Run the tool and the peers, each on a copy of the case's repository, and judge them.

    Raises CaseError if the repository can't be made as the case states: that is no result of a tool.
    """
    with (
        serving(case, options.clients) as (registry, environ),
        TemporaryDirectory(prefix="no-false-fixed-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name).resolve()
        base = make_repository(case, registry, environ, folder / "base")
        after = copy(base, folder / "ours")
        ended = run_tool(case, after, folder, environ, options.tool)
        runs = [_judged(OURS, ended, judge(case, base, after, ended, environ), folder)]
        for number, peer in enumerate(PEERS if options.with_peers else ()):
            if peer.client in options.missing:
                continue
            after = folder / f"peer-{number}"
            try:
                peer_ended = run_peer(peer, case, base, after, registry.npm_url, environ)
            except subprocess.TimeoutExpired as error:
                peer_ended = Ended("error", None, str(error), float(error.timeout))
            if peer_ended is not None:
                judgement = judge(case, base, after, peer_ended, environ)
                runs.append(_judged(peer.name, peer_ended, judgement, folder))
    return Row(
        id=case.id,
        digest=case.digest,
        half=case.half,
        author=case.author,
        client=case.client,
        kind=case.kind,
        expected=case.expected.end,
        version=version_of(options.tool),
        day=datetime.now(UTC).date().isoformat(),
        with_peers=options.with_peers,
        runs=tuple(runs),
    )


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


def _judged(tool: str, ended: Ended, judgement: Judgement, folder: Path) -> Judged:
    places = ((str(folder), "FOLDER"), (str(Path.home()), "~"))
    return Judged(
        tool=tool,
        end=ended.end,
        exit_code=ended.exit_code,
        outcome=judgement.outcome,
        detail=cleaned(judgement.detail, places, 600),
        others=judgement.others,
        output=cleaned(ended.output, places, 4_000),
        seconds=round(ended.seconds, 1),
    )


# --- rows and the page ----------------------------------------------------------------------------


def read_rows(label: str) -> dict[str, Row]:
    """Return the rows of a label by case."""
    path = WORK / f"{label}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row.id: row for row in map(Row.model_validate_json, lines)}


def write_rows(label: str, rows: Iterable[Row]) -> None:
    """Write the rows of a label, whole or not at all."""
    lines = (f"{row.model_dump_json()}\n" for row in sorted(rows, key=lambda row: row.id))
    write_files(WORK, {f"{label}.jsonl": "".join(lines)})


def section(label: str, rows: Sequence[Row], missing: Mapping[str, str]) -> str:
    """Return a label's section of the page: counts by outcome and client, and the seen half by case."""
    runs = [(row, run) for row in rows for run in row.runs]
    tools = [OURS, *(peer.name for peer in PEERS)]
    used = "; ".join(sorted({f"{row.version}, {row.day}" for row in rows}))
    parts = [f"## {label.capitalize()}\n\nMade by {used}; {len(rows)} cases.\n"]
    parts.append(
        "### By tool\n\n" + _counts("tool", [(run.tool, row, run) for row, run in runs], tools)
    )
    ours = [(row, row.ours) for row in rows]
    clients = sorted({row.client for row in rows})
    parts.append(
        "### Ours by client\n\n" + _counts("client", [(r.client, r, it) for r, it in ours], clients)
    )
    groups = [(f"{row.half} half, {row.author} author", row, run) for row, run in ours]
    names = sorted({name for name, _, _ in groups})
    parts.append("### Ours by half and author\n\n" + _counts("cases", groups, names))
    parts.append("### Wins and losses\n\n" + _wins(rows))
    if missing:
        reasons = "".join(f"- {name}: {reason}\n" for name, reason in sorted(missing.items()))
        parts.append(f"### Peers that can't run here\n\n{reasons}")
    parts.append(
        "### The seen half, case by case\n\n" + _by_case([r for r in rows if r.half == Half.SEEN])
    )
    return "\n".join(parts)


def _counts(title: str, runs: Sequence[tuple[str, Row, Judged]], order: Sequence[str]) -> str:
    """One line for each group: how many runs ended in each outcome."""
    lines = []
    for name in order:
        counts = Counter(run.outcome for group, _, run in runs if group == name)
        if total := counts.total():
            cells = [str(Share(counts[Outcome.AS_EXPECTED], total))]
            cells += [str(counts[it] or "") for it in _TITLES if it != Outcome.AS_EXPECTED]
            lines.append([name, *cells])
    return table([title, *_TITLES.values()], lines)


def _wins(rows: Sequence[Row]) -> str:
    """Ours against each peer on the cases of both: as expected where the other is not."""
    lines = []
    for peer in PEERS:
        pairs = [(row.ours, run) for row in rows for run in row.runs if run.tool == peer.name]
        good = [
            (one.outcome == Outcome.AS_EXPECTED, it.outcome == Outcome.AS_EXPECTED)
            for one, it in pairs
        ]
        false = [
            sum(run.outcome in _FALSE for run in column) for column in zip(*pairs, strict=True)
        ]
        if pairs:
            wins, losses = good.count((True, False)), good.count((False, True))
            cells = (len(pairs), wins, losses, len(pairs) - wins - losses, *false)
            lines.append([peer.name, *map(str, cells)])
    return table(["peer", "cases", "we win", "we lose", "alike", "our false", "its false"], lines)


def _by_case(rows: Sequence[Row]) -> str:
    lines = [
        [row.id, row.kind, row.expected, row.ours.end, _TITLES[row.ours.outcome]] for row in rows
    ]
    return table(["case", "kind", "expected", "ended", "outcome"], lines)


def write_page(label: str, rows: Sequence[Row], missing: Mapping[str, str]) -> None:
    """Replace a label's section of the page; the others stay."""
    path = ROOT / "docs" / PAGE
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    begin, end = f"<!-- {label} -->\n", f"<!-- end of {label} -->\n"
    before, found, rest = text.partition(begin)
    after = rest.partition(end)[2] if found else ""
    if not found:
        before = f"{text.rstrip()}\n\n"
    written = f"{before}{begin}{section(label, rows, missing)}{end}{after}"
    write_files(path.parent, {PAGE: written})


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
    except CaseError as error:
        print(error, file=sys.stderr)
        return 2
    tool = arguments.tool.absolute()
    known, version = read_rows(arguments.label), version_of(tool)
    again = arguments.again or bool(arguments.only)
    clients, missing = programs(WORK.resolve() / "clients")
    options = Options(clients, tool, not arguments.no_peers, missing)

    def is_done(case: Case) -> bool:
        row = known.get(case.id)
        if row is None or (row.digest, row.version) != (case.digest, version):
            return False
        return row.with_peers or not options.with_peers

    def keep(row: Row, which: str) -> None:
        known[row.id] = row
        write_rows(arguments.label, known.values())
        _print_row(row, which, in_full=bool(arguments.only) or row.half == Half.SEEN)

    wanted = [case for case in cases if again or not is_done(case)]
    print(f"{len(cases)} cases, {len(wanted)} to run with {version}", flush=True)
    measure(wanted, lambda case: run_case(case, options), keep, jobs=arguments.jobs)
    if arguments.report:
        ids = {case.id for case in load_cases()}
        write_page(arguments.label, [row for row in known.values() if row.id in ids], missing)
    rows = [known.get(case.id) for case in cases]
    return 0 if all(row is not None and row.ours.outcome not in _FALSE for row in rows) else 1


def _print_row(row: Row, which: str, *, in_full: bool) -> None:
    if not in_full:
        print(f"{which} {row.id}: run ({row.ours.seconds:.0f} s)", flush=True)
        return
    ours = f"{row.ours.end}, {_TITLES[row.ours.outcome]} {row.ours.detail[:200]}".rstrip()
    peers = ", ".join(f"{run.tool} {_TITLES[run.outcome]}" for run in row.runs[1:])
    print(f"{which} {row.id}: {ours}; {peers or 'no peers'} ({row.ours.seconds:.0f} s)", flush=True)


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
