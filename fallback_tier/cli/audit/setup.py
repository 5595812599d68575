"""Keys, checkpoints and roles of the audit trail: ``fallback-tier audit keygen``, ``checkpoint``,
``begin-again`` (a trail that was removed on purpose) and ``init-postgres``.
"""

import argparse
from contextlib import closing
from pathlib import Path

from fallback_audit.checkpoints.checkpoint import Previous, SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring, Rotation, end_overlap, generate, rotate
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.checkpoints.writer import Checkpointer, gone_from
from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import CheckpointError
from fallback_audit.events import RecordBegunAgain, SigningKeyRotated
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE
from fallback_audit.stores.postgres_location import require_driver
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.review import Signature, check_signature
from fallback_tier.wiring.places import check_keys
from fallback_tier.wiring.trail import (
    called,
    checkpoint_dir,
    keys_dir,
    open_bare,
    open_trail,
    read_trail,
)

_FOR = {
    "writer": "what runs fixes",
    "reader": "who reads and verifies",
    "keeper": "who redacts and seals",
    "owner": "migrations only",
}


class SigningKey(Frozen):
    """What ``audit keygen --json`` prints. ``vkey``: the public key; ``said``: what was done."""

    vkey: str
    name: str
    folder: str
    said: str


class CheckpointMade(Frozen):
    """What ``audit checkpoint --json`` prints. ``size``: how many events it covers."""

    origin: str
    size: int
    root: str
    tip: str | None
    path: str
    signed_by: tuple[str, ...]


def keygen(arguments: argparse.Namespace) -> int:
    """Make the first key, or rotate it. Raises InputError, KeyringError, AuditStoreError."""
    _check(arguments)
    folder = keys_dir(record(arguments))
    if arguments.rotate:
        return _rotate(arguments, folder)
    if arguments.end_overlap:
        return _end_overlap(arguments, folder)
    existed = Keyring.load(folder).signing is not None
    if not existed:
        check_keys(record(arguments))
    keyring = generate(folder, arguments.name)
    key = keyring.signers()[0].verifier
    if existed and arguments.name not in {None, key.name}:
        raise InputError(
            f"--name {arguments.name}: the key in {folder} is named {key.name}.",
            next_step="A log keeps its name. For another log, name another folder with --keys.",
        )
    message = "this key was there already" if existed else "made a key"
    return _show(arguments, folder, key, message)


def checkpoint(arguments: argparse.Namespace) -> int:
    """Make a checkpoint over every event. Raises CheckpointError, also if there is no event."""
    signed = _checkpoint_now(arguments)
    if signed is None:
        raise CheckpointError(
            "There is no event yet, so there is nothing to sign.",
            next_step="Run this again after the first `fallback-tier fix`.",
            kind="no_event",
        )
    latest = signed.checkpoint
    path = CheckpointLog(checkpoint_dir(state_dir(arguments), record(arguments))).path(latest.size)
    document = CheckpointMade(
        origin=latest.origin,
        size=latest.size,
        root=latest.root.hex(),
        tip=latest.tip,
        path=str(path),
        signed_by=tuple(key.vkey for key in signed.signed_by),
    )
    message = f"{latest.size} events are covered by {safe(str(path))}"
    return print_result(arguments, document, message)


def _check(arguments: argparse.Namespace) -> None:
    given_options = [name for name in ("rotate", "end_overlap") if getattr(arguments, name)]
    if len(given_options) > 1 or (given_options and arguments.name):
        raise InputError(
            "--rotate, --end-overlap and --name exclude each other.",
            next_step="A rotation keeps the name; end the overlap once the new key is known.",
        )
    if bool(arguments.by and arguments.because) != bool(arguments.rotate):
        raise InputError(
            "--by and --because go with --rotate, and it needs both.",
            next_step="Say who rotates the key, and why: it goes on record.",
        )
    if arguments.rotate:
        check_signature(Signature(by=arguments.by, because=arguments.because))


def _rotate(arguments: argparse.Namespace, folder: Path) -> int:
    # Only an existing trail is opened: a wrong path makes no new record.
    read_trail(state_dir(arguments), record(arguments)).close()
    with closing(open_trail(state_dir(arguments), record(arguments))) as store:

        def announce(rotation: Rotation) -> None:
            event = SigningKeyRotated(
                old_vkey=rotation.old.vkey,
                new_vkey=rotation.new.vkey,
                by=arguments.by,
                reason=arguments.because,
            )
            store.append(MAINTENANCE, event)

        rotation = rotate(folder, announce)
    _checkpoint_now(arguments)
    message = f"both keys sign now, until --end-overlap; the one before is {rotation.old.vkey}"
    return _show(arguments, folder, rotation.new, message)


def _end_overlap(arguments: argparse.Namespace, folder: Path) -> int:
    _checkpoint_now(arguments)  # so that the latest checkpoint has the new key's signature
    retired = end_overlap(folder)
    if retired is None:
        raise InputError(
            f"No rotation overlaps in {folder}.",
            next_step="`audit keygen --rotate` begins one.",
            kind="no_overlap",
        )
    key = Keyring.load(folder).signers()[0].verifier
    message = f"this key alone signs now; retired: {retired.vkey}"
    return _show(arguments, folder, key, message)


def _show(arguments: argparse.Namespace, folder: Path, key: Verifier, message: str) -> int:
    private = safe(str(folder / "signing.skey"))
    return print_result(
        arguments,
        SigningKey(vkey=key.vkey, name=key.name, folder=str(folder), said=message),
        safe(key.vkey),
        f"  {safe(message)}",
        f"  back up {private} where no disk of this machine is; it is secret",
        "  give the line above to whoever verifies: `audit prove --check FILE --trust …`",
    )


def _checkpoint_now(arguments: argparse.Namespace) -> SignedCheckpoint | None:
    settings, folder = record(arguments), state_dir(arguments)
    with closing(read_trail(folder, settings)) as reader:
        log, keys = CheckpointLog(checkpoint_dir(folder, settings)), keys_dir(settings)
        options = called(folder, settings)
        return Checkpointer(
            reader, log, keys, segments=reader.segments, called=options
        ).checkpoint()


class BegunAgain(Frozen):
    """What ``audit begin-again --json`` prints: the events of the record that is gone, the digest of its
    last checkpoint, and the events of the new one."""

    lost_size: int
    lost_sha256: str
    size: int


def begin_again(arguments: argparse.Namespace) -> int:
    """Record in the present audit trail that the previous one is gone, forget that one, and sign.

    Makes an empty trail if there is none. Raises InputError for an empty name or reason, RequestError if
    nothing is gone.
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

        keys, options = keys_dir(settings), called(folder, settings)
        checkpointer = Checkpointer(store, log, keys, segments=store.segments, called=options)
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


class ChainRoles(Frozen):
    """The names of a chain's roles."""

    owner: str
    writer: str
    reader: str
    keeper: str


class RolesMade(Frozen):
    """What ``audit init-postgres --json`` prints."""

    roles: ChainRoles


def init_postgres(arguments: argparse.Namespace) -> int:
    """Make a chain's tables and roles in PostgreSQL, and print what to grant.

    Raises InputError without a database, AuditStoreError.
    """
    database = record(arguments).database
    if database is None:
        raise InputError(
            "No database is named.",
            next_step="Give --audit-store postgresql://ADMIN@HOST/DATABASE, or set its variable.",
        )
    require_driver()
    from fallback_audit.stores.postgres_roles import init_postgres as make

    roles = make(database.get_secret_value())._asdict()
    grants = (f"  GRANT {roles[name]} TO …;  -- {use}" for name, use in _FOR.items())
    message = "The chain is set up. Grant these roles to users:"
    return print_result(arguments, RolesMade(roles=ChainRoles(**roles)), message, *grants)
