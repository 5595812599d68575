"""``fleet status|pause|resume|cancel|report``: show a campaign, and change its state."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from fallback_tier.cli import exit_codes
from fallback_tier.cli.fleet.showing import (
    Watching,
    branches_table,
    line_document,
    lines_table,
    show_fixes,
    show_left_out,
    status_document,
)
from fallback_tier.cli.options import FLEET_STORE, record, state_dir
from fallback_tier.cli.output import print_json
from fallback_tier.fleet import campaign_control
from fallback_tier.fleet.audit_facts import FleetRecord
from fallback_tier.fleet.campaign_control import refresh
from fallback_tier.fleet.campaign_list import CampaignLine
from fallback_tier.fleet.campaign_report import report_document, report_page
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.store.store import FleetStore, open_store


def store_url(arguments: argparse.Namespace) -> str | None:
    """Return the URL of the list in PostgreSQL, or None if it is in the state folder."""
    return arguments.fleet_store or os.environ.get(FLEET_STORE) or None


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[tuple[FleetStore, FleetRecord]]:
    """Yield the list of campaigns and the audit trail's facts; both are closed. Raises FleetStoreError."""
    state = state_dir(arguments)
    with (
        open_store(state, store_url(arguments)) as store,
        closing(FleetRecord(state, record(arguments))) as facts,
    ):
        yield store, facts


#: Seconds between two refreshes of --follow.
_LOOK_S = 1.0


def status(arguments: argparse.Namespace) -> int:
    """Print one line per campaign, or one campaign with its fixes."""
    console = Console()
    with opened(arguments) as (store, facts):
        name = arguments.campaign
        if name is None:
            lines = store.campaigns()
            if arguments.json:
                print_json({"campaigns": [line_document(line) for line in lines]})
            else:
                console.print(lines_table(lines) if lines else "There is no campaign yet.")
            return exit_codes.OK
        refresh(store, name, facts, only=facts.changed_fixes())
        if arguments.follow and not arguments.json:
            _follow(store, name, console)
        elif arguments.json:
            print_json(status_document(store, name))
        else:
            console.print(lines_table((store.campaign(name),)))
            show_fixes(store, name, console)
            if (branches := branches_table(store, name)) is not None:
                console.print(branches)
            show_left_out(store.left_out(name), console)
    return exit_codes.OK


def _follow(store: FleetStore, name: str, console: Console) -> None:
    with Watching(store, name, console) as watching:
        while not store.campaign(name).is_over:
            time.sleep(_LOOK_S)
            watching.refresh()


def pause(arguments: argparse.Namespace) -> int:
    """Pause a campaign: no further fix starts."""
    return _stopped(arguments, campaign_control.pause)


def cancel(arguments: argparse.Namespace) -> int:
    """Cancel a campaign: no further fix starts, and its runner ends what runs."""
    return _stopped(arguments, campaign_control.cancel)


def _stopped(arguments: argparse.Namespace, change: Callable[[FleetStore, str], None]) -> int:
    with opened(arguments) as (store, _):
        change(store, arguments.campaign)
        _say(arguments, store.campaign(arguments.campaign), "")
    return exit_codes.OK


def resume(arguments: argparse.Namespace) -> int:
    """Resume a campaign: it starts fixes again, failed and cancelled ones too."""
    with opened(arguments) as (store, facts):
        name = arguments.campaign
        queued = campaign_control.resume(store, name, facts)
        line = store.campaign(name)
        _say(arguments, line, _what_follows(line, queued))
    return exit_codes.OK


def _what_follows(line: CampaignLine, count: int) -> str:
    if line.is_over:
        return "Nothing of it is left to do."
    queued = "1 fix is" if count == 1 else f"{count:,} fixes are"
    return f"{queued} queued again; `fleet run` goes on with them."


def _say(arguments: argparse.Namespace, line: CampaignLine, more: str) -> None:
    if arguments.json:
        print_json(line_document(line))
    else:
        sys.stdout.write(f"campaign {line.campaign} is {line.state}. {more}".rstrip() + "\n")


def report(arguments: argparse.Namespace) -> int:
    """Print the results of a campaign as JSON, and write them as a page if --html is given."""
    with opened(arguments) as (store, facts):
        name = arguments.campaign
        refresh(store, name, facts, only=facts.changed_fixes())
        line, fixes = store.campaign(name), list(store.every(name))
        document = report_document(line, fixes, store.left_out(name))
        if arguments.html:
            try:
                Path(arguments.html).write_text(report_page(document), encoding="utf-8")
            except OSError as error:
                raise CampaignError(
                    f"--html {arguments.html}: {error.strerror}.", next_step="Name another file."
                ) from error
        if arguments.json or not arguments.html:
            print_json(document)
        else:
            sys.stdout.write(f"{arguments.html} has the report of {len(fixes):,} fixes.\n")
    return exit_codes.OK
