"""A process that appends and says on stdout what was acknowledged: ``writer.py STORE NAME COUNT``."""

import sys
from pathlib import Path

from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore


def main(path: str, name: str, count: str) -> None:
    store = SqliteAuditStore(Path(path))
    for number in range(int(count)):
        event = SandboxDisabled(reason=f"{name}/{number}")
        stored = store.append(Scope(fix_id=name, gate_transition_id="t"), event)
        sys.stdout.write(f"{stored.seq} {stored.leaf}\n")
        sys.stdout.flush()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
