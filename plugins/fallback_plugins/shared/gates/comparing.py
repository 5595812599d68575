"""Judges a check of the patched tree (types, build, imports) beside the same check of the base commit.

What fails there too tells nothing about the patch: only what is new counts. The base commit is asked
where the check fails with the patch, and once a commit.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import keep, kept, place_of, run_at_base
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class Finding:
    """One complaint. ``key`` has no line number, since an edit moves lines; ``text`` is as printed."""

    key: str
    text: str


@dataclass(frozen=True)
class Check:
    """A command that says with its exit code whether a tree is in order.

    ``run`` gets the tree and returns an output with relative paths, or why the tree's dependencies
    could not be had. ``findings`` reads the complaints out of an output; a check without
    any (a build) is compared by its exit code alone. ``blocked``: it stopped before it had looked at
    everything, so what it does not complain of may be out of order too. ``label`` names the check, and
    with ``inputs`` (what the command is told beyond that) says which checks are the same. ``on``: what it
    runs on at the base commit (``place_of``).
    """

    label: str
    run: Callable[[RepoContext], CommandResult | NotInstalled]
    findings: Callable[[str], Sequence[Finding]] = lambda _: ()
    blocked: Callable[[CommandResult], bool] = lambda _: False
    inputs: Sequence[str] = ()
    on: Callable[[], str] = str


def judge_check(gate: str, context: GateContext, folder: str, check: Check) -> GateVerdict:
    """Passed where the check passes, or complains of nothing new; failed where it does.

    Skipped where nothing can be told, since it fails at the base commit too; undecided where it fails and
    what it does there can't be had. Raises what ``run`` raises.
    """
    return judge_run(gate, context, folder, check, check.run(gating.patched(context)))


def judge_run(
    gate: str,
    context: GateContext,
    folder: str,
    check: Check,
    ours: CommandResult | NotInstalled,
) -> GateVerdict:
    """The same, where the check was run over the patched tree already: at the base commit it may ask less,
    only what fails here."""
    if isinstance(ours, NotInstalled):
        why = f"{check.label}: the dependencies could not be installed: {ours.why}"
        return gating.skipped(gate, why)
    if ours.ok:
        return gating.passed(gate, f"{check.label}: in order", ours.output)
    base = _at_base(gate, context, folder, check)
    if isinstance(base, NotInstalled):
        why = f"{check.label} fails here, and the base commit's dependencies could not be installed"
        return gating.undecided(gate, f"{why}: {base.why}", ours.output)
    if ours.timed_out and base.exit_code is not None:
        return gating.timed_out(gate, ours, context)
    if base.exit_code == 0:
        return _failed(gate, f"{check.label} fails", ours.output)
    found, blocked = check.findings(ours.output), ours.truncated or check.blocked(ours)
    new = _beyond(found, base.keys)
    if ours.timed_out or base.is_cut or (base.blocked and not blocked):
        return _is_inconclusive(gate, check, ours)
    if new:
        message = f"{check.label}: {len(new)} new problem(s), beside those of the base commit"
        return _failed(gate, message, "\n".join(finding.text for finding in new))
    if base.keys and ours.exit_code != base.exit_code:
        return _failed(gate, f"{check.label} fails otherwise than at the base commit", ours.output)
    if not found or blocked:
        return _is_inconclusive(gate, check, ours)
    what = f"{check.label}: nothing new; {len(found)} problem(s) as at the base commit"
    return gating.passed(gate, what, ours.output)


@dataclass(frozen=True)
class _Base:
    exit_code: int | None
    keys: Sequence[str]
    blocked: bool
    #: Its log was too long to be kept whole: what it leaves out may be what is new here.
    is_cut: bool


def _at_base(gate: str, context: GateContext, folder: str, check: Check) -> _Base | NotInstalled:
    """How the check ends at the base commit."""
    place = place_of(context, gate, folder, check.on(), check.label, check.inputs)
    before: dict[str, Any] | None = kept(place)
    if before is not None:
        return _Base(**before)
    result = run_at_base(context, check.run)
    if isinstance(result, NotInstalled):
        return result
    keys = [finding.key for finding in check.findings(result.output)]
    # What it did not come to may be out of order there too.
    blocked = result.timed_out or check.blocked(result)
    base = _Base(result.exit_code, keys, blocked, result.truncated)
    if not result.timed_out:  # else perhaps for a passing reason: asked again next time
        keep(place, asdict(base))
    return base


def _beyond(found: Sequence[Finding], base: Sequence[str]) -> list[Finding]:
    """Those that the base commit has not, or has less often."""
    left = Counter(base)
    new = []
    for finding in found:
        if left[finding.key] > 0:
            left[finding.key] -= 1
        else:
            new.append(finding)
    return new


def _is_inconclusive(gate: str, check: Check, ours: CommandResult) -> GateVerdict:
    why = f"{check.label} fails at the base commit too, so this shows nothing"
    return gating.skipped(gate, why, ours.output)


def _failed(gate: str, detail: str, log: str) -> GateVerdict:
    return gating.failed(gate, FailureKind.BUILD_FAILED, detail, log)


def together(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """One verdict over several checks; a pass says what it leaves out."""
    verdict = gating.combined(gate, verdicts)
    left = [one.detail for one in verdicts if one.status is GateStatus.SKIPPED]
    if verdict.status is not GateStatus.PASSED or not left:
        return verdict
    message = f"{verdict.detail}; not checked: {'; '.join(left)}"
    return verdict.model_copy(update={"detail": message})
