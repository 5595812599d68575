"""What the first prompt shows of the fix's place, by the bytes that there are for code.

``python -m tests.own_code.code_budget`` writes the page.

No command runs, and no model: a prompt is made as ``fix`` makes it, from the case's checkout and advisory.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_audit.vocabulary import AffectedCode, DecidedBy
from fallback_tier.advisory import parse_advisory
from fallback_tier.affected import Affected
from fallback_tier.installed import clients_and_plugins, look_at
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.repo import Settings
from tests.measuring.halves import Half
from tests.own_code import report
from tests.own_code.cases import Case, Record, load_cases, read_records
from tests.own_code.checkout import check_out, write_advisory
from tests.own_code.shown import Shown, shown, site
from tests.own_code.upstream import fix_of

#: Budgets that are compared, in kilobytes.
BUDGETS = (12, 24, 48, 96, 192)

PAGE = "code-budget.md"

#: Bytes of code and prose that one token is, about.
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class Seen:
    """What one prompt shows, and its size in bytes."""

    shown: Shown
    size: int


def measure(case: Case, record: Record, clones: Path | None, budgets: Sequence[int]) -> list[Seen]:
    """One case, each budget. Raises RuntimeError where its repository can't be had."""
    clients, plugins = clients_and_plugins()
    with TemporaryDirectory(prefix="own-code-budget-", ignore_cleanup_errors=True) as folder:
        checkout = check_out(case, Path(folder), clones)
        place = write_advisory(record, Path(folder))
        advisory = parse_advisory(place.read_bytes(), str(place))
        hunks = site(fix_of(record.diff, checkout).files)
        plugin = plugins[case.ecosystem]
        repo = look_at(checkout.root, clients, Settings())
        names = frozenset(advisory.packages(case.ecosystem))
        own = plugin.own_packages(repo, names)
        affected = Affected(code=AffectedCode.OWN, decided_by=DecidedBy.MANIFEST, own=own)
        manifests = plugin.manifests(repo.tracked_files)
        repo = repo.model_copy(update={"affected": affected, "manifests": manifests})
        found = []
        for kilobytes in budgets:
            settings = Settings(own_code_budget_bytes=kilobytes * 1_000)
            tree = repo.model_copy(update={"settings": settings})
            prompt = PromptBuilder(lambda: "0" * 32).build(advisory, tree, plugin, own_code=True)
            found.append(Seen(shown(prompt.user, hunks), prompt.byte_count))
        return found


def page(rows: Sequence[tuple[str, Sequence[Seen]]], half: Half) -> str:
    """The table of one half."""
    return "\n".join(_lines(rows, half)) + "\n"


def _lines(rows: Sequence[tuple[str, Sequence[Seen]]], half: Half) -> Iterator[str]:
    yield f"## The half {half}"
    yield ""
    yield "| room for code | a line | half of them | all of them | tokens a prompt, about (largest) |"
    yield "| --- | --- | --- | --- | --- |"
    for at, kilobytes in enumerate(BUDGETS):
        seen = [one[at] for _, one in rows]
        sizes = [one.size // _BYTES_PER_TOKEN for one in seen]
        cells = [
            f"{kilobytes} KB",
            _share(one.shown.any for one in seen),
            _share(one.shown.half for one in seen),
            _share(one.shown.all for one in seen),
            f"{sum(sizes) // len(sizes):,} ({max(sizes):,})",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"| case | {' | '.join(f'{kilobytes} KB' for kilobytes in BUDGETS)} |"
    yield f"| --- |{' --- |' * len(BUDGETS)}"
    for name, seen in rows:
        lines = (f"{one.shown.lines_shown}/{one.shown.lines}" for one in seen)
        yield f"| {name} | {' | '.join(lines)} |"


def _share(held: Iterable[bool]) -> str:
    every = list(held)
    return f"{sum(every)} of {len(every)} ({100 * sum(every) / len(every):.0f} %)"


HEAD = """\
# How much of a package's own code a prompt shows

Made by `python -m tests.own_code.code_budget`: the first prompt of each case of `make eval-own`, as
`fix` makes it, with more and more room for code (`--code-room`). Counted are the lines that upstream's
fix removes, or stands between. No model is asked. The default is 192 KB; for a model on the same
machine, whose window is small, it is 12 KB.

"""


def main() -> int:
    """0: every case was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.own_code.code_budget", description=__doc__
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the data sets")
    parser.add_argument("--clones", type=Path, metavar="DIR", help="bare clones, OWNER+NAME.git")
    parser.add_argument("--look-at-what-was-set-aside", action="store_true", help="mean it")
    parser.add_argument("--folder", type=Path, default=report.FOLDER, help="where the page is")
    arguments = parser.parse_args()
    records = read_records(arguments.data)
    halves = (Half.SEEN, Half.SET_ASIDE) if arguments.look_at_what_was_set_aside else (Half.SEEN,)
    parts = []
    for half in halves:
        rows = []
        for case in load_cases(half=half):
            record = records[(case.record, case.fix_commit)]
            rows.append((case.name, measure(case, record, arguments.clones, BUDGETS)))
            print(f"{case.name}: {[one.shown.lines_shown for one in rows[-1][1]]}", file=sys.stderr)
        parts.append(page(rows, half))
    (arguments.folder / PAGE).write_text(HEAD + "\n".join(parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
