"""``measure`` small fixes, ``predict`` a thousand from them, ``run`` the thousand, and say the error.

Each writes JSON into ``--folder``. The prediction is made, and committed, before the run.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.campaigns.fleet_simulation import small_fixes
from tests.campaigns.fleet_simulation.simulation import Fix, Machine, Phase, simulate

#: At most so many fixes feed the simulation.
MEASURED = 80
PREDICTED = 1_000
WORKERS = (1, 2, 4)
CORES = 2


def measure(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        (folder / "measured.json").write_text(json.dumps(small_fixes.run(Path(place), MEASURED, 1)))


def as_kind(fix: dict[str, Any]) -> Fix:
    """A fix that was measured, as phases. The model's pause is known; what a step took beyond its cores'
    work, the record and that pause was waiting for a core, which is the machine's and no phase's."""
    return [
        Phase(
            cpu=max(0.0, step["cpu"]),
            pause=small_fixes.MODEL_S if step["step"] == "2 attempt" else 0.0,
            lines={"record": step["record"]},
        )
        for step in fix["steps"]
    ]


def others(found: dict[str, Any]) -> float:
    """How many others wanted a core while it was measured, from how long its own work took."""
    wall: float = sum(
        step["wall"] - step["record"] for fix in found["fixes"] for step in fix["steps"]
    )
    cpu: float = sum(step["cpu"] for fix in found["fixes"] for step in fix["steps"])
    waited = wall - small_fixes.MODEL_S * len(found["fixes"])
    return max(0.0, CORES * waited / cpu - 1)


def predict(folder: Path) -> None:
    found = json.loads((folder / "measured.json").read_text())
    kinds, machine = [as_kind(fix) for fix in found["fixes"]], Machine(CORES, others(found))
    made = {
        "from_fixes": len(kinds),
        "others_that_want_a_core": round(machine.others, 2),
        "load": found["load"],
        "seconds_a_fix": round(statistics.mean(seconds(fix) for fix in found["fixes"]), 3),
        "cores_seconds_a_fix": round(
            statistics.mean(sum(step["cpu"] for step in fix["steps"]) for fix in found["fixes"]), 3
        ),
        "predictions": [
            {
                "workers": workers,
                "seconds": round(simulate(kinds, PREDICTED, workers, machine).seconds, 1),
            }
            for workers in WORKERS
        ],
    }
    (folder / "prediction.json").write_text(json.dumps(made, indent=1) + "\n")
    print(json.dumps(made, indent=1))


def seconds(fix: dict[str, Any]) -> float:
    return float(sum(step["wall"] for step in fix["steps"]))


def ran(folder: Path, workers: int, budget_s: float) -> None:
    """The error is of the seconds a fix: a run that its budget ended has made fewer than were predicted."""
    with tempfile.TemporaryDirectory() as place:
        found = small_fixes.run(Path(place), PREDICTED, workers, budget_s)
    said = json.loads((folder / "prediction.json").read_text())
    promised = next(one["seconds"] for one in said["predictions"] if one["workers"] == workers)
    took = found["seconds"] / found["count"]
    cores = [sum(step["cpu"] for step in fix["steps"]) for fix in found["fixes"]]
    row = {
        "workers": workers,
        "fixes": found["count"],
        "seconds": round(found["seconds"], 1),
        "predicted_ms_a_fix": round(promised),
        "ms_a_fix": round(took * 1_000),
        "error": round(promised / PREDICTED / took - 1, 3),
        "load": found["load"],
        "cores_seconds_a_fix": round(statistics.mean(cores), 3),
    }
    (folder / f"run-{workers}.json").write_text(json.dumps(row, indent=1) + "\n")
    print(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["measure", "predict", "run"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, choices=WORKERS, default=1)
    parser.add_argument("--seconds", type=float, default=small_fixes.TIMEOUT_S, help="of a run")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    match given.what:
        case "measure":
            measure(given.folder)
        case "predict":
            predict(given.folder)
        case _:
            ran(given.folder, given.workers, given.seconds)


if __name__ == "__main__":
    main()
