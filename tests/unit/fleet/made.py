"""Small campaigns for tests."""

import json
from collections.abc import Sequence

from fallback_tier.fleet.campaign_list import FleetFix, Risk
from fallback_tier.fleet.store.store import Planned, PlannedFix, PlannedRepository

NAME = "spring"


def fix(number: int, repository: str = "app", **facts: object) -> FleetFix:
    """The fix of place ``number``."""
    return FleetFix.model_validate(
        {
            "campaign": NAME,
            "fix_id": f"fix-{number}",
            "number": number,
            "repository": repository,
            "advisory_id": f"TEST-{number}",
            "ecosystem": "npm",
            "risk": Risk(severity=7.5),
            "priority": 30.0,
            **facts,
        }
    )


def planned(
    fixes: Sequence[FleetFix], *, cap: int | None = None, fix_cap: int | None = None
) -> Planned:
    """A campaign of these fixes."""
    return Planned(
        campaign=NAME,
        digest="d" * 64,
        settings="{}",
        cap=cap,
        fix_cap=fix_cap,
        repositories=tuple(
            PlannedRepository(repository=name, source='{"path": "/src"}', base_commit="c" * 40)
            for name in sorted({one.repository for one in fixes})
        ),
        fixes=tuple(
            PlannedFix(fix=one, advisory=json.dumps({"id": one.advisory_id})) for one in fixes
        ),
    )
