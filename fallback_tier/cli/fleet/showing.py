"""The present state of a plan and of a campaign, for a terminal and for machines."""

from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from fallback_audit.showing.describe import visible
from fallback_tier.budget.tally import in_dollars
from fallback_tier.fleet.campaign_list import CampaignLine, FixState, FleetFix, LeftOut
from fallback_tier.fleet.store.store import FleetStore, Planned
from fallback_tier.fleet.store.summing import reasons

#: Most fixes and left-out inputs that a terminal shows; JSON has all.
_SHOWN = 20

#: Most fixes that ``fleet status`` lists: a screenful of a small campaign, the urgent ones of a large one.
_LISTED = 200

#: States in the order in which they are shown.
STATES = tuple(FixState)


def plan_document(plan: Planned) -> dict[str, Any]:
    """Return a plan for machines."""
    return {
        "campaign": plan.campaign,
        "repositories": [
            {"repository": planned.repository, "base_commit": planned.base_commit}
            for planned in plan.repositories
        ],
        "fixes": [
            planned.fix.model_dump(
                mode="json",
                include={"number", "repository", "advisory_id", "ecosystem", "risk", "priority"},
            )
            for planned in plan.fixes
        ],
        "left_out": [item.model_dump() for item in plan.left_out],
        "pairs_not_named": plan.unnamed,
    }


def show_plan(plan: Planned, console: Console) -> None:
    """Print the first fixes of the queue, and what is not in it."""
    console.print(
        f"campaign {plan.campaign}: {len(plan.fixes):,} fixes in "
        f"{len(plan.repositories):,} repositories"
    )
    table = Table("", "priority", "repository", "advisory", "ecosystem", "CVSS", "EPSS", "KEV")
    for planned in plan.fixes[:_SHOWN]:
        fix, risk = planned.fix, planned.fix.risk
        table.add_row(
            str(fix.number + 1),
            f"{fix.priority:.1f}",
            fix.repository,
            _plain(fix.advisory_id),
            fix.ecosystem,
            "" if risk.severity is None else f"{risk.severity:.1f}",
            "" if risk.epss is None else f"{risk.epss:.3f}",
            "yes" if risk.kev else "",
        )
    console.print(table)
    if len(plan.fixes) > _SHOWN:
        console.print(f"… and {len(plan.fixes) - _SHOWN:,} more (--json has all)")
    show_left_out(plan.left_out, console)
    if plan.unnamed:
        console.print(f"{plan.unnamed:,} pairs are not in it: no manifest names the package")


def show_left_out(left_out: tuple[LeftOut, ...], console: Console) -> None:
    """Print what the campaign's file names and the list does not have."""
    for item in left_out[:_SHOWN]:
        console.print(_plain(f"left out: {item.what}: {item.why}"))
    if len(left_out) > _SHOWN:
        console.print(f"… and {len(left_out) - _SHOWN:,} more left out (--json has all)")


def status_document(reader: FleetStore, name: str) -> dict[str, Any]:
    """Return a campaign and every fix, for machines."""
    return {
        **line_document(reader.campaign(name)),
        "left_out": [item.model_dump() for item in reader.left_out(name)],
        "fixes": [*map(fix_document, reader.every(name))],
    }


def line_document(line: CampaignLine) -> dict[str, Any]:
    """Return a campaign with its sums, money in dollars."""
    return {
        "campaign": line.campaign,
        "state": line.state.value,
        "created_at": line.created_at,
        "counts": {state.value: line.counts.get(state, 0) for state in STATES},
        "usd": {
            "cap": _dollars(line.cap),
            "spent": _dollars(line.spent),
            "reserved": _dollars(line.reserved),
        },
        "fixes_of_unknown_price": line.unpriced,
    }


def fix_document(fix: FleetFix) -> dict[str, Any]:
    """Return a fix, money in dollars."""
    excluded = {"campaign", "cap", "cost", "holder", "not_before"}
    return {**fix.model_dump(mode="json", exclude=excluded), "usd": _dollars(fix.cost)}


def _dollars(micro: int | None) -> str | None:
    return None if micro is None else in_dollars(micro)


def _plain(text: str) -> Text:
    """Return a text of advisories or reports: nothing in it is markup, or acts on a terminal."""
    return Text(visible(text))


def lines_table(lines: tuple[CampaignLine, ...]) -> Table:
    """Return a table with one row per campaign."""
    table = Table("campaign", "state", "over", "fixes", "$ spent", "$ cap")
    for line in lines:
        over = sum(count for state, count in line.counts.items() if state.is_over)
        cap = "" if line.cap is None else in_dollars(line.cap)
        done, spent = f"{over:,} of {line.total:,}", in_dollars(line.spent)
        table.add_row(line.campaign, line.state.value, done, counts_of(line), spent, cap)
    return table


def counts_of(line: CampaignLine) -> str:
    """Return how many fixes are in each state, as a phrase."""
    return ", ".join(
        f"{line.counts[state]:,} {state}" for state in STATES if line.counts.get(state)
    )


def show_reasons(reader: FleetStore, name: str, console: Console) -> None:
    """Print why fixes ended as they did, the most frequent reasons first."""
    rows = reasons(reader, name)
    for row in rows[:_SHOWN]:
        reason = row.why if row.sentence is None else f"{row.why}: {row.sentence}"
        console.print(_plain(f"{row.fixes:,} {row.state.value}, {reason}"))
    if len(rows) > _SHOWN:
        console.print(f"… and {len(rows) - _SHOWN:,} more reasons (`fleet report` has all)")


def fixes_table(fixes: list[FleetFix]) -> Table:
    """Return a table with one row per fix."""
    # A fix's id is never cut: other commands take it.
    folded = {name: Column(name, overflow="fold") for name in ("repository", "advisory", "why")}
    table = Table(
        folded["repository"],
        folded["advisory"],
        "state",
        "attempts",
        "$",
        folded["why"],
        Column("fix", no_wrap=True),
    )
    for fix in fixes:
        cost = "?" if fix.cost is None else in_dollars(fix.cost)
        why = _plain(fix.why or "")
        attempts = str(fix.attempts)
        row = (fix.repository, _plain(fix.advisory_id), fix.state.value, attempts, cost, why)
        table.add_row(*row, fix.fix_id)
    return table


def show_fixes(reader: FleetStore, name: str, console: Console) -> None:
    """Print the fixes of a campaign: those that run or need a person first, then the queue's order."""
    fixes = {fix.number: fix for fix in worth_showing(reader, name)}
    for fix in reader.fixes(name, limit=_LISTED):
        fixes.setdefault(fix.number, fix)
    listed = [*fixes.values()][:_LISTED]
    if listed:
        console.print(fixes_table(listed))
    if (more := reader.campaign(name).total - len(listed)) > 0:
        console.print(f"… and {more:,} more (--json has all)")


def worth_showing(reader: FleetStore, name: str) -> list[FleetFix]:
    """Return running fixes first, then those that wait for a person, or for which a person waits."""
    shown: list[FleetFix] = []
    for state in (FixState.RUNNING, FixState.ESCALATED, FixState.FAILED):
        shown += reader.fixes(name, state=state, limit=_SHOWN)
    return [*shown, *reader.undelivered(name, limit=_SHOWN)]


def branches_table(reader: FleetStore, name: str) -> Table | None:
    """Return a table of the last branches that patches were committed on, or None if there are none."""
    fixes = reader.on_branches(name, limit=_SHOWN)
    table = Table("repository", "advisory", "branch")
    for fix in fixes:
        table.add_row(fix.repository, _plain(fix.advisory_id), _plain(fix.branch or ""))
    return table if fixes else None


class Watching:
    """Display of a campaign on a terminal while it lasts; elsewhere a line whenever a count changes."""

    def __init__(self, reader: FleetStore, name: str, console: Console) -> None:
        self._reader = reader
        self._name = name
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._told: dict[FixState, int] = {}

    def refresh(self) -> None:
        """Show the present state."""
        line = self._reader.campaign(self._name)
        if self._live is not None:
            table = Table.grid()
            table.add_row(lines_table((line,)))
            if fixes := worth_showing(self._reader, self._name):
                table.add_row(fixes_table(fixes[:_SHOWN]))
            self._live.update(table, refresh=True)
        elif line.counts != self._told:
            self._told = line.counts
            spent = in_dollars(line.spent)
            self._console.print(f"{line.campaign}: {counts_of(line)}; ${spent} spent")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
