"""A process that appends and says on stdout what was acknowledged: ``process.py ADDRESS NAME COUNT``."""

import sys
from contextlib import closing
from pathlib import Path

from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import AuditStore, Scope


def opened(address: str) -> AuditStore:
    if address.startswith("postgresql:"):
        from fallback_audit.stores.postgres import PostgresAuditStore

        return PostgresAuditStore(address)
    from fallback_audit.stores.sqlite import SqliteAuditStore

    return SqliteAuditStore(Path(address))


def main(address: str, name: str, count: str) -> None:
    with closing(opened(address)) as store:
        for number in range(int(count)):
            event = SandboxDisabled(reason=f"{name}/{number}")
            stored = store.append(Scope(fix_id=name, gate_transition_id="t"), event)
            sys.stdout.write(f"{stored.seq} {stored.leaf}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
