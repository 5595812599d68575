"""The command, killed: ``python -m tests.fakes.crashing_command before|after EVENT ARGUMENT...``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from fallback_audit.checkpoints.note import Verifier
from fallback_audit.ports import AppendGuard
from fallback_tier.cli.main import main
from fallback_tier.wiring import trail
from tests.fakes.crashing import CrashingStore, Kill

if __name__ == "__main__":
    when, number, *arguments = sys.argv[1:]
    kill = Kill(int(number), before=when == "before")

    def store(
        path: Path, *, guard: AppendGuard | None = None, verifiers: Sequence[Verifier] = ()
    ) -> CrashingStore:
        return CrashingStore(path, kill, guard=guard, verifiers=verifiers)

    vars(trail)["SqliteAuditStore"] = store
    sys.exit(main(arguments))
