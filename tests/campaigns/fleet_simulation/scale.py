"""From one worker to a thousand, and a million fixes: where does a fleet saturate?

``python -m tests.campaigns.fleet_simulation.scale FOLDER`` writes scale.json and scale.svg. What is
assumed stands below as constants; docs/evaluation/fleet.md says where each comes from.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaigns.fleet_simulation.simulation import Fix, Phase, simulate

#: A worker's seconds for the gates of one attempt: it installs, and runs the tests twice.
GATES_S = 60.0

#: One call of a model: seconds, tokens read, tokens written.
CALL_S, TOKENS_IN, TOKENS_OUT = 20.0, 15_000, 2_000

#: Events of an attempt with its gates, and of one call besides.
EVENTS, EVENTS_OF_CALL = 9, 3

#: Seconds that one event takes on a chain in PostgreSQL, with a contract and checkpoints:
#: docs/benchmarks.md, ``audit-postgres``, on an idle machine.
EVENT_S = 0.0021

#: Of a namespace of Temporal Cloud, as published. Of an attempt: its steps, and a heartbeat every half
#: minute.
ACTIONS_A_SECOND = 500
ACTIONS = 9

#: Dollars: a million tokens read and written, an hour of a worker, a million actions.
PRICES = {"in": 3.0, "out": 15.0, "worker": 0.05, "actions": 50.0}


@dataclass(frozen=True)
class Tier:
    """What a provider allows in a minute."""

    requests: int
    tokens_in: int
    tokens_out: int


TIERS = {
    "start": Tier(1_000, 500_000, 100_000),
    "scale": Tier(4_000, 4_000_000, 800_000),
}

WORKERS = (1, 10, 100, 300, 1_000)
FIXES = 1_000_000


def kinds(tier: Tier, chains: int) -> Sequence[Fix]:
    """Twenty fixes, as often as each is assumed: a recipe alone 12, a model at once 5, a failed recipe and
    a model 2, four failed attempts and a person 1."""
    event = EVENT_S / chains
    call = Phase(
        pause=CALL_S,
        lines={
            "requests": 60 / tier.requests,
            "tokens read": 60 * TOKENS_IN / tier.tokens_in,
            "tokens written": 60 * TOKENS_OUT / tier.tokens_out,
            "record": EVENTS_OF_CALL * event,
        },
    )
    gates = Phase(
        pause=GATES_S, lines={"record": EVENTS * event, "temporal": ACTIONS / ACTIONS_A_SECOND}
    )
    return (
        *([(gates,)] * 12),
        *([(call, gates)] * 5),
        *([(gates, call, gates)] * 2),
        (gates, call, gates, call, gates, call, gates),
    )


def cost_a_fix(shapes: Sequence[Fix], worker_s: float) -> Mapping[str, float]:
    """Dollars, the mean of all kinds. ``worker_s``: what a worker spent on one, waiting among it."""
    calls = sum(phase.pause == CALL_S for fix in shapes for phase in fix) / len(shapes)
    judged = sum(phase.pause == GATES_S for fix in shapes for phase in fix) / len(shapes)
    return {
        "model": calls * (TOKENS_IN * PRICES["in"] + TOKENS_OUT * PRICES["out"]) / 1e6,
        "workers": worker_s / 3_600 * PRICES["worker"],
        "temporal": judged * ACTIONS * PRICES["actions"] / 1e6,
    }


def rows() -> list[dict[str, Any]]:
    """By tier and number of workers."""
    found = []
    for name, tier in TIERS.items():
        shapes = kinds(tier, chains=1)
        for workers in WORKERS:
            came = simulate(shapes, FIXES, workers)
            costs = cost_a_fix(shapes, came.seconds * workers / FIXES)
            line, share = max(came.busy.items(), key=lambda one: one[1])
            found.append(
                {
                    "tier": name,
                    "workers": workers,
                    "days": round(came.seconds / 86_400, 2),
                    "fixes_an_hour": round(came.per_hour),
                    "saturated": line if share > 0.97 else "workers",
                    "busy": {key: round(value, 3) for key, value in came.busy.items()},
                    "dollars_a_fix": {key: round(value, 4) for key, value in costs.items()},
                }
            )
            print(json.dumps(found[-1]), flush=True)
    return found


def draw(found: Sequence[Mapping[str, Any]], place: Path) -> None:
    """Fixes an hour, and how busy what is shared is, by the number of workers."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fleet"
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for name in TIERS:
        of = [row for row in found if row["tier"] == name]
        left.plot(
            [row["workers"] for row in of],
            [row["fixes_an_hour"] for row in of],
            marker="o",
            label=f"provider's tier: {name}",
        )
    for line in found[0]["busy"]:
        of = [row for row in found if row["tier"] == "scale"]
        right.plot(
            [row["workers"] for row in of],
            [row["busy"][line] for row in of],
            marker="o",
            label=line,
        )
    left.set(xscale="log", yscale="log", xlabel="workers", ylabel="fixes an hour")
    right.set(
        xscale="log", xlabel="workers", ylabel="share of the time (tier: scale)", ylim=(0, 1.05)
    )
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(place, metadata={"Date": None})


def main() -> None:
    folder = Path(sys.argv[1])
    found = rows()
    (folder / "scale.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, folder / "scale.svg")


if __name__ == "__main__":
    main()
