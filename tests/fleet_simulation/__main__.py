"""``measure`` small fixes, ``predict`` a thousand from them, ``run`` the thousand, and say the error.

Each writes JSON into ``--folder``. The prediction is made, and committed, before the run.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.fleet_simulation import small_fixes
from tests.fleet_simulation.simulation import Fix, Machine, Phase, simulate

#: At most so many fixes feed the simulation.
MEASURED = 80
PREDICTED = 1_000
WORKERS = (1, 2, 4)
CORES = 2


def measured(folder: Path) -> None:
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
    wall = sum(step["wall"] - step["record"] for fix in found["fixes"] for step in fix["steps"])
    cpu = sum(step["cpu"] for fix in found["fixes"] for step in fix["steps"])
    waited = wall - small_fixes.MODEL_S * len(found["fixes"])
    return max(0.0, CORES * waited / cpu - 1)


def predicted(folder: Path) -> None:
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


def ran(folder: Path, workers: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = small_fixes.run(Path(place), PREDICTED, workers)
    said = json.loads((folder / "prediction.json").read_text())
    promised = next(one["seconds"] for one in said["predictions"] if one["workers"] == workers)
    halves = [found["fixes"][: PREDICTED // 2], found["fixes"][PREDICTED // 2 :]]
    row = {
        "workers": workers,
        "predicted_s": promised,
        "seconds": round(found["seconds"], 1),
        "error": round(promised / found["seconds"] - 1, 3),
        "load": found["load"],
        "peak_kib_first_half": max(fix["peak_kib"] for fix in halves[0]),
        "peak_kib": max(fix["peak_kib"] for fix in found["fixes"]),
        "cores_seconds_a_fix": round(
            statistics.mean(sum(s["cpu"] for s in fix["steps"]) for fix in found["fixes"]), 3
        ),
        "others_that_wanted_a_core": None if workers > 1 else round(others(found), 2),
    }
    (folder / f"run-{workers}.json").write_text(json.dumps(row, indent=1) + "\n")
    print(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["measure", "predict", "run"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, choices=WORKERS, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    match given.what:
        case "measure":
            measured(given.folder)
        case "predict":
            predicted(given.folder)
        case _:
            ran(given.folder, given.workers)


if __name__ == "__main__":
    main()
