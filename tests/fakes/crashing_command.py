"""The command, killed: ``python -m tests.fakes.crashing_command before|after EVENT ARGUMENT...``."""

import sys
from pathlib import Path

from fallback_tier import wiring
from fallback_tier.cli.main import main
from tests.fakes.crashing import CrashingStore, Kill

if __name__ == "__main__":
    when, number, *arguments = sys.argv[1:]
    kill = Kill(int(number), before=when == "before")

    def store(path: Path) -> CrashingStore:
        return CrashingStore(path, kill)

    vars(wiring)["SqliteAuditStore"] = store
    sys.exit(main(arguments))
