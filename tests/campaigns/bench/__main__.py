"""``python -m tests.campaigns.bench``: measure rows, print the table, keep the JSON (``make bench``)."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.campaigns.bench import report
from tests.campaigns.bench.catalogue import ROWS
from tests.campaigns.bench.machine import describe
from tests.campaigns.bench.measure import BenchError, peak_floor_bytes
from tests.campaigns.bench.ratio import compare
from tests.campaigns.bench.row import Bench, Row
from tests.campaigns.bench.versions import installed

_ROOT = Path(__file__).parents[3]

#: Columns of the table where it does not go to a terminal.
WIDTH = 120

#: Rounds of a smoke run: enough to see that every row works, too few to believe a ratio.
SMOKE_ROUNDS = 2


def main(argv: Sequence[str] | None = None, rows: Sequence[Row] = ROWS) -> int:
    """Exit code 0: every row has its figures, a missed goal is one too. 1: a row has none."""
    parser = _parser(rows)
    options = parser.parse_args(argv)
    if unknown := set(options.rows).difference(row.name for row in rows):
        parser.error(f"there is no row {', '.join(sorted(unknown))}")
    chosen = [row for row in rows if not options.rows or row.name in options.rows]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.place) as folder:
        place = Path(folder)
        machine = describe(place)
        results = [_measure(row, place, options) for row in chosen]
    run = report.document(
        results,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine,
        versions=installed(options.environments),
        peak_floor_bytes=peak_floor_bytes(),
    )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n")
    _print(run)
    return int(any(result.skipped for result in results))


def _measure(row: Row, place: Path, options: argparse.Namespace) -> report.Result:
    own = place / row.name
    own.mkdir()
    environments: Path = options.environments
    bench = Bench(own, environments / "ours", environments / "peers")
    sys.stderr.write(f"{row.name}: {row.title}\n")
    try:
        with row.prepare(bench) as pair:
            rounds = SMOKE_ROUNDS if options.smoke else (options.rounds or row.rounds)
            comparison = compare(pair.ours, pair.theirs, rounds=rounds)
            pair.check()
            labels = (pair.ours.label, pair.theirs.label)
            return report.Result(
                row, labels, comparison, dict(pair.facts()), figures=tuple(pair.figures())
            )
    except BenchError as error:
        return report.Result(row, skipped=str(error))


def _print(run: dict[str, object]) -> None:
    # Only now: what this imports would raise the floor under every peak.
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(report.table(run))
    console.print({key: run[key] for key in ("date", "machine", "versions", "peak_floor_mib")})


def _parser(rows: Sequence[Row]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.bench", description=__doc__)
    names = ", ".join(row.name for row in rows)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"all, or some of: {names}")
    parser.add_argument("--rounds", type=int, help="rounds of every row, instead of its own number")
    parser.add_argument("--smoke", action="store_true", help="does every row work? no figures")
    parser.add_argument(
        "--place", type=Path, help="folder for scratch and state: the disk to measure"
    )
    parser.add_argument(
        "--environments", type=Path, default=_ROOT / ".venv-bench", help="made by `make bench`"
    )
    parser.add_argument(
        "--json", type=Path, default=_ROOT / "bench-results" / "bench.json", metavar="FILE"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
