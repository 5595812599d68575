"""A campaign before the store has it, and how it gets there: whole, or not at all."""

import hashlib
import json

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.model import CampaignState, FleetFix, LeftOut
from fallback_tier.fleet.store.tables import Session


class PlannedRepository(Frozen):
    """A repository of a campaign, at a commit. ``source``: its settings, as JSON."""

    repository: str
    source: str
    base_commit: str


class PlannedFix(Frozen):
    """A new fix. ``advisory``: the OSV record, as JSON; ``proof``: a ``Proof``, as JSON."""

    fix: FleetFix
    advisory: str
    proof: str | None = None


class Planned(Frozen):
    """A campaign before the store has it. ``settings``: the file, as JSON; ``digest``: of the file."""

    campaign: str
    digest: str
    settings: str
    cap: int | None
    fix_cap: int | None
    repositories: tuple[PlannedRepository, ...]
    fixes: tuple[PlannedFix, ...]
    left_out: tuple[LeftOut, ...] = ()


def insert(session: Session, planned: Planned, now: str) -> None:
    """All its rows, in the caller's transaction."""
    name = planned.campaign
    session.change(
        "INSERT INTO campaigns (campaign, digest, settings, state, created_at, cap, fix_cap)"
        " VALUES (?,?,?,?,?,?,?)",
        (
            name, planned.digest, planned.settings, CampaignState.RUNNING.value, now, planned.cap,
            planned.fix_cap,
        ),
    )  # fmt: skip
    if planned.left_out:
        session.change(
            "UPDATE campaigns SET left_out = ? WHERE campaign = ?",
            (json.dumps([it.model_dump() for it in planned.left_out]), name),
        )
    for repository in planned.repositories:
        session.change(
            "INSERT INTO repositories VALUES (?,?,?,?)",
            (name, repository.repository, repository.source, repository.base_commit),
        )
    known: set[str] = set()
    for one in planned.fixes:
        digest = hashlib.sha256(one.advisory.encode()).hexdigest()
        if digest not in known:
            known.add(digest)
            session.change("INSERT INTO advisories VALUES (?,?,?)", (name, digest, one.advisory))
        facts = one.fix.model_dump(mode="json", exclude={"branch"}) | {
            "risk": one.fix.risk.model_dump_json(),
            "advisory_sha256": digest,
            "lease": 0.0,
        }
        if one.proof is not None:
            facts["proof"] = one.proof
        session.change(
            f"INSERT INTO fixes ({', '.join(facts)}) VALUES ({','.join('?' * len(facts))})",  # noqa: S608
            tuple(facts.values()),
        )
