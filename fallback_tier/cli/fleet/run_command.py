"""``fleet run``: plan a campaign if it is new, then run it to its end."""

import argparse
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr
from rich.console import Console

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fleet.commands import opened, store_url
from fallback_tier.cli.fleet.showing import (
    Watching,
    plan_document,
    show_plan,
    show_reasons,
    status_document,
)
from fallback_tier.cli.fleet.working import check_extra
from fallback_tier.cli.options import keys, record, state_dir
from fallback_tier.cli.results import print_shown
from fallback_tier.fleet.campaign_file import Campaign, EngineKind, read_campaign
from fallback_tier.fleet.campaign_list import CampaignState, FixState
from fallback_tier.fleet.campaign_planner import Planner
from fallback_tier.fleet.campaign_runner import Runner, alone
from fallback_tier.fleet.engine_interface import FleetEngine
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.fix_order import FleetSecrets, Place
from fallback_tier.fleet.local.engine import LocalEngine
from fallback_tier.fleet.store.store import FleetStore, Planned, check_same_list
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.wiring import wire
from fallback_tier.wiring.trail import open_evidence
from fallback_tier.workers.checkouts import Checkouts


def run(arguments: argparse.Namespace) -> int:
    """Plan the campaign or find it, run it, print the result."""
    console = Console(stderr=arguments.json)
    campaign = read_campaign(Path(arguments.file))
    folder = state_dir(arguments)
    if arguments.dry_run:
        plan = _planned(campaign, folder, console)
        return print_shown(arguments, plan_document(plan), lambda: show_plan(plan, console))
    with alone(folder), opened(arguments) as (store, facts):
        _find_or_plan(store, campaign, folder, console)
        engine = _engine_for(campaign, arguments)
        with _ending_well(), Watching(store, campaign.name, console) as watching:
            state = Runner(
                store,
                campaign,
                engine,
                facts,
                holder=_holder(folder),
                list_changed=facts.changed_fixes,
                on_change=watching.refresh,
            ).run()
        document = status_document(store, campaign.name)
        print_shown(arguments, document, lambda: show_reasons(store, campaign.name, console))
        _say_what_waits(store, campaign, state, console)
        return _exit_code(store, campaign.name)


def _engine_for(campaign: Campaign, arguments: argparse.Namespace) -> FleetEngine:
    """Return the engine that the campaign names. Raises CampaignError, ConfigurationError."""
    server_keys = keys(campaign.model.base_url, campaign.model.judge_base_url)
    settings, url = record(arguments), store_url(arguments)
    secrets = FleetSecrets(
        api_key=server_keys["api_key"],
        judge_api_key=server_keys["judge_api_key"],
        database=settings.database,
        store=None if url is None else SecretStr(url),
    )
    place = Place(
        state_dir=state_dir(arguments),
        record=settings,
        fix_s=campaign.limits.fix_s,
    )
    _check(campaign, place, secrets)
    if campaign.engine.kind is EngineKind.TEMPORAL:
        return _temporal(campaign, place)
    return LocalEngine(place, secrets, at_once=campaign.limits.fixes_per_host)


def _temporal(campaign: Campaign, place: Place) -> FleetEngine:
    check_extra()
    from fallback_tier.engines.temporal.client import TemporalEngine
    from fallback_tier.engines.temporal.connecting import ADDRESS, Cluster
    from fallback_tier.engines.temporal.messages import Limits

    engine = campaign.engine
    cluster = Cluster(
        address=engine.address or ADDRESS,
        namespace=engine.namespace,
        ca=engine.tls_ca,
        cert=engine.tls_cert,
        key=engine.tls_key,
    )
    limits = Limits(fix_s=campaign.limits.fix_s)
    return TemporalEngine(cluster, limits, open_evidence(place.state_dir))


def _check(campaign: Campaign, place: Place, secrets: FleetSecrets) -> None:
    """Report a fault of model, prices or audit trail once, before a thousand fixes report it. The audit
    trail is made here, so that workers don't make it at the same time."""
    configured = campaign.configuration().model_copy(
        update={
            "state_dir": place.state_dir,
            "record": place.record,
            "api_key": secrets.api_key,
            "judge_api_key": secrets.judge_api_key,
        }
    )
    wire(configured).close()


def _find_or_plan(store: FleetStore, campaign: Campaign, folder: Path, console: Console) -> None:
    existing = {line.campaign: line for line in store.campaigns()}.get(campaign.name)
    if existing is None:
        plan = _planned(campaign, folder, console)
        show_plan(plan, console)
        store.create(plan)
        return
    check_same_list(campaign.name, existing.digest, campaign.digest)
    store.renew_settings(campaign.name, campaign.model_dump_json(), campaign.cap, campaign.fix_cap)
    if existing.state is CampaignState.CANCELLED and not existing.counts.get(FixState.RUNNING):
        raise CampaignError(
            f"Campaign {campaign.name!r} was cancelled.",
            next_step=f"`fallback-tier fleet resume {campaign.name}`, then run it again.",
            kind="was_cancelled",
        )
    console.print(
        f"campaign {campaign.name}: going on ({existing.total:,} fixes, {existing.state})"
    )


def _planned(campaign: Campaign, folder: Path, console: Console) -> Planned:
    clients, plugins = clients_and_plugins(campaign.allow_hosts)
    checkouts = Checkouts(folder, clients, folder / "fleet")
    if console.is_terminal:
        with console.status("planning") as status:
            return Planner(checkouts, plugins, status.update).plan(campaign)
    return Planner(checkouts, plugins).plan(campaign)


def _holder(folder: Path) -> str:
    """Return a name that stays the same for the successor of a runner that was killed: a state folder has
    only one runner (``alone``)."""
    return f"{socket.gethostname()}:{folder}"


@contextmanager
def _ending_well() -> Iterator[None]:
    """End the runner by SIGTERM as by Ctrl-C: its workers first."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_what_waits(
    store: FleetStore, campaign: Campaign, state: CampaignState, console: Console
) -> None:
    queued = store.campaign(campaign.name).counts.get(FixState.QUEUED, 0)
    if queued and state is CampaignState.RUNNING:
        console.print(
            f"fixes that stay queued: {queued:,}. What is left of ${campaign.limits.usd} is less than one "
            "may use: raise limits.usd, and run it again."
        )


def _exit_code(store: FleetStore, name: str) -> int:
    """Return the worst exit code of what is left to do: none for what is not affected, a repair for what is
    unknown."""
    if store.undelivered(name, limit=1):
        return exit_codes.ENVIRONMENT
    counts = store.campaign(name).counts
    refused = {fix.why for fix in store.every(name, FixState.REFUSED)}
    refused.discard(RefusalReason.NOT_AFFECTED)
    unknown = RefusalReason.UNKNOWN in refused
    if refused <= {RefusalReason.UNKNOWN}:
        counts = counts | {FixState.REFUSED: 0}
    worst = (
        (FixState.FAILED, exit_codes.ENVIRONMENT),
        (FixState.ESCALATED, exit_codes.ESCALATED),
        (FixState.QUEUED, exit_codes.REFUSED),
        (FixState.REFUSED, exit_codes.REFUSED),
        (FixState.CANCELLED, exit_codes.REFUSED),
    )
    success = exit_codes.PATCHED if counts.get(FixState.PARTLY) else exit_codes.OK
    least = exit_codes.UNKNOWN if unknown else success
    return next((code for state, code in worst if counts.get(state)), least)
