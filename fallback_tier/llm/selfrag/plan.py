"""Segments as a plan: one at a time, each where it may stand."""

from collections.abc import Hashable, Sequence

from fallback_tier.answers.segment import (
    DoneSegment,
    EditSegment,
    RaiseSegment,
    RefuseSegment,
    Segment,
)
from fallback_tier.outcome import (
    DependencyBump,
    Override,
    Plan,
    Refuse,
    SearchReplace,
    SourceEdit,
)
from fallback_tier.patch.edits import merge_edits
from fallback_tier.patch.normalise import edit_digest
from fallback_tier.repo import RepoContext


def misplaced(segment: Segment, before: Sequence[Segment]) -> str | None:
    """Why the segment can't follow these; None where it can."""
    if isinstance(segment, DoneSegment):
        return "Nothing is added." if before else "A plan begins with an edit, a bump or a refusal."
    if before and not isinstance(segment, EditSegment):
        return f"`{segment.action}` can only be the first segment: add one edit."
    return None


def plan_of(segments: Sequence[Segment]) -> Plan:
    """The plan that well-placed segments make up (at least one)."""
    first = segments[0]
    rationale = " ".join(one.rationale for one in segments if one.rationale)
    citations = tuple(dict.fromkeys(name for one in segments for name in one.citations))
    if isinstance(first, RefuseSegment):
        return Refuse(reason=first.reason, rationale=rationale, citations=citations)
    edits = tuple(
        SearchReplace(path=one.path, old=one.old, new=one.new)
        for one in segments
        if isinstance(one, EditSegment)
    )
    if isinstance(first, RaiseSegment):
        kind = DependencyBump if first.action == "dependency_bump" else Override
        return kind(
            package=first.package,
            version=first.version,
            edits=edits,
            rationale=rationale,
            citations=citations,
        )
    return SourceEdit(edits=edits, rationale=rationale, citations=citations)


def plan_key(plan: Plan, repo: RepoContext) -> Hashable:
    """What makes two plans the same path: the action, and the normalised outcome of the edits.

    Raises EditError and RepositoryError for edits that were not checked, or that change nothing.
    """
    if isinstance(plan, Refuse):
        return plan.action
    raised = () if isinstance(plan, SourceEdit) else (plan.package, plan.version)
    changes = merge_edits(repo, (), plan.edits).changes if plan.edits else ()
    return (plan.action, *raised, edit_digest(changes))
