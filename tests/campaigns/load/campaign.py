"""All phases against one service, and the facts without which their figures can't be read."""

import os
import platform
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.service.http.given import ADVISORY
from fallback_tier.wiring import audit_db
from tests.campaigns.load.client import Answers
from tests.campaigns.load.phases import Memory, followed, idle, saturated, steady
from tests.e2e.command import repository
from tests.service.running import Running, served
from tests.unit.audit import trails

#: No limit on requests is met, and no worker takes a fix: what is measured is the service.
CONFIG = """
[limits]
requests_per_key = "1000000/second"
requests_per_address = "1000000/second"
queued_fixes = 100000
min_free_bytes = 1152921504606846976
[repositories.app]
path = "{app}"
"""

#: The goal for the 95th percentile at half of the saturation, against the idle one.
GOAL = 3.0

LIBRARIES = ("fastapi", "starlette", "uvicorn", "h11", "pydantic")


@dataclass(frozen=True)
class Sizes:
    """How long each phase is; for CI all are short."""

    idle: int = 400
    seconds: float = 20.0
    minutes: float = 30.0
    readers: int = 500
    look_s: float = 5.0


async def campaign(place: Path, sizes: Sizes) -> dict[str, Any]:
    """Every phase, in one run; that of the memory, the long one, at a quarter of the saturation."""
    app = repository(place / "app", {"requirements.txt": "idna==3.6\n"})
    (state := place / "state").mkdir()
    with closing(SqliteAuditStore(audit_db(state))) as store:
        for number in range(20):
            for event in trails.cap_reached():
                store.append(Scope(fix_id=f"fix-{number}", gate_transition_id="gate-1"), event)
    load, began, at = os.getloadavg()[0], time.monotonic(), datetime.now(UTC)
    with served(state, CONFIG.format(app=app), as_command=True) as service:
        figures = await _phases(service, state, sizes)
        figures["server_errors_in_log"] = sum("Traceback" in line for line in service.said)
    facts = {
        "begun": at.isoformat(timespec="minutes"),
        "seconds": round(time.monotonic() - began),
        "cores": len(os.sched_getaffinity(0)),
        "nice": os.nice(0),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LIBRARIES},
    }
    return {"sizes": asdict(sizes), "machine": facts, **figures}


async def _phases(service: Running, state: Path, sizes: Sizes) -> dict[str, Any]:
    body = {"repository": "app", "advisory": ADVISORY}
    fix_id = service.post("/v1/fixes", body).json()["fix_id"]
    await idle(service, fix_id, sizes.idle // 4)  # whatever is made at the first request is made
    before = await idle(service, fix_id, sizes.idle)
    full, rate = await saturated(service, fix_id, sizes.seconds)
    half = await steady(service, fix_id, rate / 2, sizes.seconds)
    after = await idle(service, fix_id, sizes.idle)
    streams = await followed(service, state, sizes.readers)
    memory = Memory.of(service, sizes.look_s)
    long = await steady(service, fix_id, rate / 4, 60 * sizes.minutes, memory.look)
    both = Answers([*before.seconds, *after.seconds])
    return {
        "idle": _told(before),
        "idle_again": _told(after),
        "saturation": {"a_second": round(rate, 1), **_told(full)},
        "half": {"a_second": round(rate / 2, 1), **_told(half)},
        "p95_half_over_idle": round(half.percentile_ms(95) / both.percentile_ms(95), 2),
        "streams": streams,
        "memory": {
            "a_second": round(rate / 4, 1),
            "minutes": round(memory.points[-1][0] / 60, 1),
            "first_mb": round(memory.points[0][1], 1),
            "last_mb": round(memory.points[-1][1], 1),
            "most_mb": round(max(mb for _, mb in memory.points), 1),
            "slope_kb_a_minute": round(memory.slope_kb_a_minute(), 1),
            "points_mb": [round(mb, 1) for _, mb in memory.points][
                :: max(1, len(memory.points) // 40)
            ],
            **_told(long),
        },
    }


def _told(answers: Answers) -> dict[str, Any]:
    return {
        "requests": len(answers.seconds),
        "failed": answers.failed,
        "p50_ms": round(answers.percentile_ms(50), 1),
        "p95_ms": round(answers.percentile_ms(95), 1),
        "p99_ms": round(answers.percentile_ms(99), 1),
    }
