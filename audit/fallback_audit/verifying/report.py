"""The report of a verification: counts of all findings, and the first ones of each kind.

A ``VerifiedState`` is a file that the person who verifies keeps, so that the next verification hashes only
new events. It is used only if its tree has the root of a checkpoint that a trusted key signed, so a forged
one is useless. An incremental run does **not** notice an event before ``size`` that was altered or deleted
since, unless it belongs to a fix with newer events, which is read completely again; nor missing evidence of
other fixes; nor an open fix that was open before; nor damage of the database's index, by which a fix may
seem to have fewer events. Run a full verification from time to time: it notices all of these.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import Field, ValidationError, computed_field

from fallback_audit.chain import StoredRow
from fallback_audit.checkpoints.checkpoint import open_checkpoint
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.contract.table import Violation
from fallback_audit.disk_errors import blamed
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, FallbackError, TrailFault
from fallback_audit.events import CLOSING_KINDS, Digest
from fallback_audit.files import made_whole
from fallback_audit.frozen import Frozen

#: Readers refuse other versions: a state is cheap to recreate.
STATE_VERSION = 1

#: Findings of each kind that a report lists. More would be of no use, and take memory.
MAX_LISTED = 100

KEEP = (
    "Stop what writes to the store, keep a copy of it as it is, and verify it again. Only if that says the "
    "same, find out who wrote to it, and restore one that verifies."
)
COVER = "Find out where the checkpoints are; only if the record is right, `fallback-tier audit checkpoint`."
NOT_ASKED = (
    "Checkpoints were not looked at: events removed from the end, and a chain rewritten as a whole, are "
    "not detectable without them."
)

END_UNKNOWN = (
    "Nothing outside this record shows how far it went: these keys know of no checkpoint of it (it was "
    "moved, copied, or is verified by the public key alone). One that was cut short together with its "
    "checkpoints looks the same. Give one that was kept elsewhere: `fallback-tier audit verify "
    "--checkpoint FILE`."
)

_ItemT = TypeVar("_ItemT")

#: Uncovered rows whose fixes are read: far more than any policy leaves uncovered. All are counted.
_MAX_TAIL_ROWS = 10_000


class OpenFix(Frozen):
    """A gate transition without a terminal event: running, or interrupted."""

    fix_id: str
    gate_transition_id: str
    last_seq: int
    last_kind: str


class VerifiedState(Frozen):
    """The last checkpoint that was verified, the tree and the chain at that size, and the fixes then open.

    ``checkpoint``: the signed note. ``frontier``: as in ``exporting.format.Base``.
    """

    version: int = STATE_VERSION
    size: int
    tip: str
    frontier: tuple[Digest, ...]
    checkpoint: str
    open_fixes: tuple[OpenFix, ...]


def read_state(path: Path) -> VerifiedState | None:
    """Read the state in this file. Return None if there is none yet: then everything is verified.

    Raises AuditStoreError if it can't be read, AuditIntegrityError if it is not a state of this version.
    """
    try:
        state = VerifiedState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritable(path, error) from error
    except ValidationError as error:
        raise _unfit(path, "it is not the state of a verification", kind="not_a_state") from error
    if state.version != STATE_VERSION:
        raise _unfit(
            path,
            f"it has version {state.version}, this program has {STATE_VERSION}",
            kind="another_version",
        )
    return state


def write_state(path: Path, state: VerifiedState) -> None:
    """Write the state whole, or leave the old file. Raises AuditStoreError."""
    try:
        with made_whole(path.absolute(), ".state-") as file:
            file.write(f"{state.model_dump_json()}\n".encode())
    except OSError as error:
        raise _unwritable(path, error) from error


def believed(state: VerifiedState, verifiers: Sequence[Verifier]) -> Frontier:
    """Return the verified tree. Raises AuditIntegrityError unless a trusted key signed its root."""
    forged = AuditIntegrityError(
        "The state of an earlier verification is not what its checkpoint says (forged).",
        next_step="Remove the file, and verify everything once.",
        kind="forged",
    )
    try:
        frontier = Frontier(state.size, map(bytes.fromhex, state.frontier))
    except ValueError as error:
        raise forged from error
    signed = open_checkpoint(state.checkpoint.encode(), verifiers).checkpoint
    if (signed.size, signed.root) != (state.size, frontier.root()) or signed.tip not in {
        None,
        state.tip,
    }:
        raise forged
    return frontier


def _unfit(path: Path, reason: str, *, kind: str = "") -> AuditIntegrityError:
    return AuditIntegrityError(
        f"Verification state {path}: {reason}.",
        next_step="Remove the file, and verify everything once.",
        kind=kind,
    )


def _unwritable(path: Path, error: OSError) -> FallbackError:
    unusable = AuditStoreError(
        f"Verification state {path}: {error.strerror or error}.",
        next_step="Name a file in a folder that exists and that you may write to.",
    )
    return blamed(error, f"Verification state {path}", unusable)


class Problem(Frozen):
    """Something stored is not what was written. ``seq`` None: the store, or a checkpoint, as a whole."""

    seq: int | None
    fix_id: str | None
    reason: str
    next_step: str = KEEP
    #: Stays if the text changes (ADR-0130); for a broken rule its name. Not in JSON documents.
    kind: str = Field(exclude=True)

    @classmethod
    def reporting(
        cls,
        fault: TrailFault,
        *,
        seq: int | None = None,
        fix_id: str | None = None,
        next_step: str = KEEP,
    ) -> "Problem":
        """Return the finding that reports ``fault``."""
        return cls(
            seq=seq, fix_id=fix_id, reason=fault.reason, next_step=next_step, kind=fault.kind
        )


class Flag(Frozen):
    """An event that broke a rule, and was let through by a store that was told to flag, not refuse."""

    seq: int
    fix_id: str
    rule: str


class UncoveredFix(Frozen):
    """A fix with events that no checkpoint covers. ``ended``: its end is among them."""

    fix_id: str
    events: int
    ended: bool


class VerificationReport(Frozen):
    """What ``verify`` found. ``tip`` is the last leaf, ``root`` the Merkle root over all events.

    ``covered_to``: the largest checkpoint whose root is that of the events; None where nobody asked for
    checkpoints. ``end_known``: does something outside the record say how far it went, so that one cut short
    with its checkpoints is noticed (``CheckpointSource.end_known``)? None where nobody asked.
    ``since``: an incremental run, which took the events to there as verified.
    """

    events: int
    gate_transitions: int
    tip: str
    root: Digest | None
    since: int
    sealed_events: int
    redacted_events: int
    first_bad: Problem | None
    integrity_problems: tuple[Problem, ...]
    integrity_problem_count: int
    checkpoint_problems: tuple[Problem, ...]
    checkpoint_problem_count: int
    checkpoints_checked: int
    covered_to: int | None
    end_known: bool | None = None
    uncovered_events: int
    uncovered_fixes: tuple[UncoveredFix, ...]
    contract_judged: bool
    contract_violations: tuple[Violation, ...]
    contract_violation_count: int
    evidence_problems: tuple[Problem, ...]
    evidence_problem_count: int
    evidence_checked: int | None
    evidence_removed: int
    flags: tuple[Flag, ...]
    flag_count: int
    open_fixes: tuple[OpenFix, ...]
    open_fix_count: int
    notes: tuple[str, ...]
    #: What the next run may take as verified; only if nothing bad was found.
    state: VerifiedState | None = Field(default=None, exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Nothing bad was found. An open fix is not bad, nor is an event that no checkpoint covers yet."""
        return not (
            self.integrity_problem_count
            or self.checkpoint_problem_count
            or self.contract_violation_count
            or self.evidence_problem_count
        )


class Listed(Generic[_ItemT]):
    """A list that counts all items and keeps the first MAX_LISTED."""

    def __init__(self) -> None:
        self.items: list[_ItemT] = []
        self.count = 0

    def add(self, item: _ItemT) -> None:
        """Add a finding."""
        self.count += 1
        if self.count <= MAX_LISTED:
            self.items.append(item)


def first_bad(
    integrity: Listed[Problem],
    checkpoints: Listed[Problem],
    evidence: Listed[Problem],
    contract: Listed[Violation],
) -> Problem | None:
    """Return the earliest problem of the first of these kinds that has any: integrity, checkpoints, the
    rest.

    A problem without an event counts only if no problem of its kind has one.
    """
    broken_rules = [
        Problem(
            seq=v.seq,
            fix_id=v.fix_id,
            reason=f"{v.rule}: {v.detail}",
            next_step=f"Read `fallback-tier audit show {v.fix_id}`: evidence without action, or a defect.",
            kind=v.rule,
        )
        for v in contract.items
    ]
    for problems in (integrity.items, checkpoints.items, [*evidence.items, *broken_rules]):
        with_event = [problem for problem in problems if problem.seq is not None]
        if problems:
            return min(with_event or problems[:1], key=lambda problem: problem.seq or 0)
    return None


def uncovered_fixes(rows: Iterable[StoredRow]) -> tuple[UncoveredFix, ...]:
    """Return the fixes of these rows, in the order of their first events; at most MAX_LISTED."""
    fixes: dict[str, UncoveredFix] = {}
    for row in islice(rows, _MAX_TAIL_ROWS):
        try:
            header = json.loads(row.header or b"")
            fix_id, ended = str(header["fix_id"]), header["kind"] in CLOSING_KINDS
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if fix_id not in fixes and len(fixes) == MAX_LISTED:
            continue
        before = fixes.get(fix_id, UncoveredFix(fix_id=fix_id, events=0, ended=False))
        fixes[fix_id] = UncoveredFix(
            fix_id=fix_id, events=before.events + 1, ended=before.ended or ended
        )
    return tuple(fixes.values())
