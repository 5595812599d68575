"""Verifying the export of one fix: event by event, each by its own proof.

The proofs show that each event is in the log at the position it names. They can't show that no event of the
fix was left out; the trace contract notices gaps that leave evidence without its action.

Anyone with an export can add forged events to its checkpoint. So an event at a position that the checkpoint
covers needs its proof, and a fix does not verify if no event of it, or not its end, is proved.
"""

from collections.abc import Collection, Iterator, Sequence

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow, broken_bytes, misnumbered
from fallback_audit.checkpoints.checkpoint import Checkpoint, Span
from fallback_audit.checkpoints.merkle import inclusion_holds, leaf_hash
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError, TrailFault
from fallback_audit.exporting.spool import Spool
from fallback_audit.statements import open_segment
from fallback_audit.verifying.report import (
    COVER,
    Listed,
    Problem,
    VerificationReport,
    uncovered_fixes,
)
from fallback_audit.verifying.sources import CheckpointSource
from fallback_audit.verifying.trails import EvidenceCheck, Trails
from fallback_audit.verifying.walk import MAX_RANGES, Interruptions, signed_later

_ONE_FIX = (
    "One fix: each event is proved to stand in the log; that none was left out is not proved, but for "
    "what the trace contract asks."
)


def verify_fix(
    spool: Spool, checkpoints: CheckpointSource, *, with_evidence: bool = True
) -> VerificationReport:
    """Check the export of one fix, with its evidence. Problems are reported, not raised."""
    integrity, signed_problems = Listed[Problem](), Listed[Problem]()
    for reason in spool.schema_problems():
        integrity.add(Problem.reporting(TrailFault("schema", reason)))
    verifiers = tuple(checkpoints.verifiers())
    trees: dict[int, Checkpoint] = {}
    for checkpoint in checkpoints.checked():
        if checkpoint.fault is not None:
            signed_problems.add(Problem.reporting(checkpoint.fault))
        if checkpoint.signed is not None:
            trees[checkpoint.size] = checkpoint.signed.checkpoint
    covered_to = max(trees, default=0)
    last: StoredRow | None = None
    events = 0
    uncovered: list[StoredRow] = []
    covered: list[int] = []
    for row in spool.rows():
        events, last = events + 1, row
        fault = broken_bytes(row, verifiers) or misnumbered(row)
        if fault is None and row.seq > covered_to:
            uncovered.append(row)
        elif fault is None:
            covered.append(row.seq)
            fault = _unproved(spool, row, trees)
        if fault is not None:
            integrity.add(Problem.reporting(fault, seq=row.seq, fix_id=spool.head.fix_id))
    if not trees:
        missing = TrailFault("no_checkpoint", "there is no valid checkpoint")
        signed_problems.add(Problem.reporting(missing, next_step=COVER))
    unsigned = uncovered_fixes(uncovered)
    if trees and (len(uncovered) == events or any(fix.ended for fix in unsigned)):
        what = "its end" if len(uncovered) < events else "any of its events"
        signed_problems.add(_unsigned(uncovered[0].seq if uncovered else None, what))
    evidence = None
    if with_evidence and spool.has_evidence:
        evidence = EvidenceCheck(spool.evidence, (), complete=False)
    base = _sealed_to(spool, verifiers, integrity)
    found, silent = _written_by(covered, trees.values())
    interruptions = Interruptions([Span(seq, seq) for seq in found])
    trails = Trails(
        integrity, base=base, verifiers=verifiers, evidence=evidence, interruptions=interruptions
    )
    trails.judge(spool.rows_by_trail())
    return trails.report(
        signed_problems,
        events=events,
        tip=last.leaf or GENESIS if last is not None else GENESIS,
        root=None,
        since=0,
        sealed_events=base,
        checkpoints_checked=len(trees),
        covered_to=covered_to,
        uncovered_events=len(uncovered),
        uncovered_fixes=unsigned,
        contract_judged=True,
        notes=(_ONE_FIX, *_who_wrote(found, silent, interruptions), *spool.remarks()),
    )


def _written_by(
    covered: Sequence[int], checkpoints: Collection[Checkpoint]
) -> tuple[list[int], list[int]]:
    """Return the events that the signer of their first checkpoint found (ADR-0059), and those whose first
    checkpoint is not in the export."""
    found, silent = list[int](), list[int]()
    for seq in covered:
        first_covering = (checkpoint for checkpoint in checkpoints if checkpoint.is_new_in(seq))
        first = min(first_covering, key=lambda checkpoint: checkpoint.size, default=None)
        if first is None:
            silent.append(seq)
        elif any(span.first <= seq <= span.last for span in first.found):
            found.append(seq)
    return found, silent


def _who_wrote(
    found: Sequence[int], silent: Sequence[int], interruptions: Interruptions
) -> Iterator[str]:
    if found:
        events = f"{len(found):,} of its events ({_in_short(found)})"
        yield signed_later(events, len(found), interruptions)
    if silent:
        yield (
            f"Of {len(silent):,} of its events ({_in_short(silent)}) the export does not show whether "
            "the run that signed them had written them."
        )


def _in_short(seqs: Sequence[int]) -> str:
    return ", ".join(f"{seq:,}" for seq in seqs[:MAX_RANGES]) + ", …" * (len(seqs) > MAX_RANGES)


def _sealed_to(spool: Spool, verifiers: Sequence[Verifier], problems: Listed[Problem]) -> int:
    """Return the number of the last sealed event: the fix may have begun before it."""
    statements = spool.segments()
    try:
        return open_segment(statements[-1], verifiers).last_seq if statements else 0
    except AuditIntegrityError as error:
        problems.add(Problem.reporting(TrailFault.of(error)))
        return 0


def _unsigned(seq: int | None, what: str) -> Problem:
    """Return the problem that no checkpoint covers ``what``: anyone can forge events after a checkpoint."""
    return Problem.reporting(
        TrailFault(
            "uncovered", f"no checkpoint covers {what}, so nothing shows that the log has it"
        ),
        seq=seq,
        next_step="Ask for an export that was made after `fallback-tier audit checkpoint`.",
    )


def _unproved(spool: Spool, row: StoredRow, trees: dict[int, Checkpoint]) -> TrailFault | None:
    proof = spool.proof(row.seq)
    if proof is None:
        return TrailFault(
            "no_proof", "a checkpoint covers its place, and no proof says that it stands there"
        )
    tree = trees.get(proof.tree_size)
    if tree is None:
        return TrailFault(
            "no_checkpoint_of_the_proof",
            "there is no checkpoint of the size that its proof is about",
        )
    holds = inclusion_holds(
        leaf_hash(row.header or b""),
        index=row.seq - 1,
        size=tree.size,
        path=tuple(map(bytes.fromhex, proof.path)),
        root=tree.root,
    )
    if holds:
        return None
    return TrailFault("another_root", "its proof does not lead to the root that was signed")
