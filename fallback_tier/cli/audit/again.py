"""``fallback-tier audit begin-again``: a record that was removed on purpose, said and on record."""

import argparse
from contextlib import closing

from fallback_audit.checkpoints.checkpoint import Previous
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.writer import Checkpointer, gone_from
from fallback_audit.contract.guard import ContractGuard
from fallback_audit.events import RecordBegunAgain
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.gates.journal.review import Signature, check_signature
from fallback_tier.wiring.trail import called, checkpoint_dir, keys_dir, open_bare


class BegunAgain(Frozen):
    """What ``audit begin-again --json`` prints: the events of the record that is gone, the digest of its
    last checkpoint, and the events of the new one."""

    lost_size: int
    lost_sha256: str
    size: int


def begin_again(arguments: argparse.Namespace) -> int:
    """Say it in the record that is there now, an empty one if need be; forget the old one; sign.

    Raises InputError for a name or a reason of no words, RequestError where nothing is gone.
    """
    check_signature(Signature(by=arguments.by, because=arguments.because))
    folder, settings = state_dir(arguments), record(arguments)
    log = CheckpointLog(checkpoint_dir(folder, settings))
    gone_from(log, Keyring.load(keys_dir(settings)))  # before a store is made at a wrong path
    lost: list[Previous] = []
    guard = ContractGuard()
    with closing(open_bare(folder, settings, guard=guard)) as store:

        def announce(gone: Previous) -> None:
            event = RecordBegunAgain(
                lost_size=gone.size,
                lost_sha256=gone.sha256,
                by=arguments.by,
                reason=arguments.because,
            )
            store.append(MAINTENANCE, event)
            lost.append(gone)

        keys, named = keys_dir(settings), called(folder, settings)
        checkpointer = Checkpointer(store, log, keys, segments=store.segments, called=named)
        checkpointer.begin_again(announce)
        signed = checkpointer.checkpoint(guard.written.spans())
    size = signed.checkpoint.size if signed is not None else 0
    return print_result(
        arguments,
        BegunAgain(lost_size=lost[0].size, lost_sha256=lost[0].sha256, size=size),
        f"a record of {lost[0].size} events is gone, confirmed to be on purpose",
        f"  {size} event(s) on record now, covered by {safe(str(log.path(size)))}",
        f"  `fallback-tier audit show {MAINTENANCE.fix_id}` shows it",
    )
