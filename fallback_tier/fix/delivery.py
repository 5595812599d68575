"""Delivery of a proved patch to the working tree, a branch, a file, or a folder for its reviewer; and the
result of a fix for its caller."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_audit.events import PatchDelivered, SandboxDisabled
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import DeliveryPlace
from fallback_tier.advisory import Advisory
from fallback_tier.errors import ConfigurationError
from fallback_tier.execution import ClientRunner
from fallback_tier.fix.journal.holding import resumable
from fallback_tier.fix.journal.inputs import Setup
from fallback_tier.fix_result import Committed, DeliveryOutcome, OneFix, WithPatch
from fallback_tier.handover.branch import (
    branch_for,
    check_branch,
    commit_message,
    commit_to_branch,
    committed_as,
)
from fallback_tier.handover.folder import (
    OtherAdvisory,
    check_folder,
    handover_files,
    write_folder,
)
from fallback_tier.handover.working_tree import check_output, record_delivery, write_patch
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services

if TYPE_CHECKING:  # most fixes are of one advisory, and should not pay for this import
    from fallback_tier.fix.batch.outcome import AdvisoryEnd
    from fallback_tier.fix.batch.running import BatchEnd

#: A fix with a patch, and its advisory.
ProvedFix = tuple[WithPatch, Advisory]

#: Puts a patch on the working tree; or the event, if an earlier process has delivered the patch.
Deliver = Callable[[Applied, RepoContext, ClientRunner], None] | PatchDelivered


@dataclass(frozen=True)
class SeveralFixes:
    """The result of a batch: by part, by advisory, and the delivery of its patch."""

    end: "BatchEnd"
    advisories: "tuple[AdvisoryEnd, ...]"
    delivery: DeliveryOutcome


#: The result of a fix, for its caller.
Fixed = OneFix | SeveralFixes


class Delivery(Frozen):
    """The requested place of a proved patch. By default the repository's working tree, not committed.

    ``dry_run``: the repository stays as it is. ``output``: a file for the patch; ``commit``: a branch of
    this name (empty: one that is named after what is fixed); ``report``: a folder for a reviewer.
    ``into``: the repository that gets the branch, if the fix is made in a temporary clone of it.
    """

    dry_run: bool = False
    output: Path | None = None
    commit: str | None = None
    report: Path | None = None
    into: Path | None = None

    def checked(self, ids: Sequence[str], repo: RepoContext, clients: ClientRunner) -> Setup:
        """Check a delivery before the work, and return the setup of the fix. ``ids``: the requested
        advisories, which may name the branch. Raises ConfigurationError."""
        if self.commit is not None and self.dry_run:
            raise ConfigurationError(
                "--commit makes a branch, and --dry-run leaves the repository as it is.",
                next_step="Give one of them.",
                kind="two_deliveries",
            )
        if self.commit is not None:
            target = _its(repo, self.into)
            branch = self.commit or branch_for(ids, repo.fix_id, target, clients)
            check_branch(branch, target, clients)
        if self.output:
            check_output(self.output)
        if self.report:
            check_folder(self.report)
        return Setup(
            dry_run=self.dry_run,
            output=_absolute(self.output),
            commit=self.commit,
            report=_absolute(self.report),
            into=_absolute(self.into),
        )

    def instead_of(self, began: Setup) -> Setup:
        """Return the setup that a resumed fix began with, and the options given now. Raises
        ConfigurationError."""
        if self.commit is not None or self.report is not None:
            raise ConfigurationError(
                "A resumed fix is delivered as it began: another branch or report can't be chosen.",
                next_step="Leave them out; or give the advisory, and `--resume` to `fallback-tier fix`.",
            )
        if self.output:
            check_output(self.output)
        output, dry_run = _absolute(self.output) or began.output, self.dry_run or began.dry_run
        return began.model_copy(update={"output": output, "dry_run": dry_run})


def _its(repo: RepoContext, into: str | Path | None) -> RepoContext:
    """Return the repository that gets the branch."""
    return repo if into is None else repo.model_copy(update={"root": Path(into)})


def _absolute(path: Path | None) -> str | None:
    """Return the absolute path: the fix may be resumed from another folder."""
    return str(path.absolute()) if path else None


def deliver_fixes(
    fixes: Sequence[ProvedFix],
    patch: Applied,
    repo: RepoContext,
    services: Services,
    setup: Setup,
    deliver: Deliver,
    ends: "Sequence[AdvisoryEnd]" = (),
) -> DeliveryOutcome:
    """Deliver a proved patch, record that, and write the requested files.

    ``patch``: those of all fixes as one; ``ends``: how all advisories of the batch ended. A recorded
    delivery is not repeated; every other part is idempotent.
    """
    with resumable(fixes[0][0].fix_id):
        if setup.output:
            write_patch(Path(setup.output), patch.diff)
        if isinstance(deliver, PatchDelivered):
            committed = committed_as(deliver)
        elif setup.dry_run:
            committed = None
        else:
            committed = _deliver(fixes, patch, repo, services, setup, deliver)
        if setup.report is not None and not Path(setup.report).exists():
            commit = None if committed is None else committed.commit
            write_folder(Path(setup.report), _report(fixes, repo, services, commit, ends))
    delivered = isinstance(deliver, PatchDelivered) or not setup.dry_run
    return DeliveryOutcome(delivered=delivered, committed=committed, folder=setup.report)


def _deliver(
    fixes: Sequence[ProvedFix],
    patch: Applied,
    repo: RepoContext,
    services: Services,
    setup: Setup,
    deliver: Callable[[Applied, RepoContext, ClientRunner], None],
) -> Committed | None:
    """Deliver to the branch, or to the working tree if none is requested, and record it."""
    committed, reference, place = None, None, DeliveryPlace.WORKING_TREE
    if setup.commit is not None:
        target = _its(repo, setup.into)
        message, branch = commit_message(fixes), setup.commit or _branch(fixes, target, services)
        committed = commit_to_branch(patch, message, branch, target, services.clients)
        place, reference = DeliveryPlace.BRANCH, committed.reference
    else:
        deliver(patch, repo, services.clients)
    kinds = frozenset({PatchDelivered.__name__})
    for result, advisory in fixes:
        # A batch that was killed here has recorded some of them.
        if not any(services.audit.events(result.fix_id, kinds=kinds)):
            record_delivery(services.audit, result, place, reference, advisory.in_part)
    return committed


def _branch(fixes: Sequence[ProvedFix], repo: RepoContext, services: Services) -> str:
    """Return a name made of the advisories that were fixed, not of those requested; advisories fixed in
    part are used only if there is no other."""
    ids = tuple(dict.fromkeys(record.id for _, advisory in fixes for record in advisory.records))
    in_part = {name for _, advisory in fixes for name in advisory.in_part}
    whole = tuple(name for name in ids if name not in in_part)
    return branch_for(whole or ids, fixes[0][0].fix_id, repo, services.clients)


def _report(
    fixes: Sequence[ProvedFix],
    repo: RepoContext,
    services: Services,
    commit: str | None,
    ends: "Sequence[AdvisoryEnd]",
) -> dict[str, str]:
    """Return the files of a report; if there are several fixes, each has a folder, by ecosystem."""
    proof = services.configuration.proof
    texts_by_path: dict[str, str] = {}
    for result, advisory in fixes:
        files = handover_files(
            result,
            advisory,
            repo,
            tool_version=version("fallback-tier"),
            at=datetime.now(UTC),
            commit=commit,
            proof=None if proof is None else shlex.join(proof.command),
            sandboxed=_was_sandboxed(result, services),
            others=_others(ends, advisory),
            together=[
                end.id for end in ends if end.outcome in _TOGETHER and end.id not in advisory.ids
            ],
        )
        folder = f"{advisory.ecosystems[0].lower()}/" if len(fixes) > 1 else ""
        texts_by_path |= {f"{folder}{name}": text for name, text in files.items()}
    return texts_by_path


#: Outcomes of advisories that another part of the same delivery fixes as a whole.
_TOGETHER = frozenset({"fixed", "patched"})

#: Outcomes of advisories that the delivery does not fix, for the reviewer of its patch: open ones first.
_ENDS = {
    "not_fixed": "**not fixed**",
    "unknown": "**unknown**: it may be affected",
    "undecided": "**undecided**: whether it concerns this repository was not found out",
    "fixed_in_part": "**fixed in part** by another part that is delivered together with this",
    "not_affected": "not affected",
}


def _others(ends: "Sequence[AdvisoryEnd]", advisory: Advisory) -> list[OtherAdvisory]:
    """Return the outcomes of the batch's other advisories of which something stays, or may stay."""
    order = [*_ENDS]
    others = [end for end in ends if end.id not in advisory.ids and end.outcome not in _TOGETHER]
    others_with_outcome = []
    for end in sorted(others, key=lambda end: order.index(end.outcome)):
        parts = f" ({', '.join(end.fix_ids)})" if end.fix_ids else ""
        reasons = tuple(reason.sentence for reason in end.why)
        others_with_outcome.append(OtherAdvisory(end.id, _ENDS[end.outcome] + parts, reasons))
    return others_with_outcome


def _was_sandboxed(result: WithPatch, services: Services) -> bool:
    """Return whether every process ran this gate transition in a sandbox, by the audit trail."""
    waived = services.audit.events(result.fix_id, kinds=frozenset({SandboxDisabled.__name__}))
    return all(event.scope.gate_transition_id != result.gate_transition_id for event in waived)
