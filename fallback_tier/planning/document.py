"""The plan as a document: what ``fallback-tier plan --json`` prints. Its names are an interface."""

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import ProofLevel
from fallback_tier.advisory import Advisory, CodeFinding, Skipped
from fallback_tier.outcome import ChangedDeclaration, ClearedPath, Left, Move, OwnTests, UnreadItem


class PlannedMove(Move):
    """A move, and the advisories that it clears."""

    advisory_ids: tuple[str, ...]


class Remaining(Left):
    """What can't be fixed. ``advisory_ids``: those that it keeps open."""

    ecosystem: str


class EcosystemPlan(Frozen):
    """What one gate transition would fix; ``in_part``: those of which something stays, as ``left`` says.
    ``proof_level``: how the versions are known, from a client's resolution (``resolved_tree``) or from what
    is declared; None: nothing was resolved. What a fix proves is only known once it is installed.
    ``tests``: the commands that a fix would try, project by project, in their order; of a project without
    any, runners look for tests by themselves.

    ``advisory`` is all of it as one record, for the tier; it stands in no document.
    """

    ecosystem: str
    advisory_ids: tuple[str, ...]
    proof_level: ProofLevel | None
    files: tuple[str, ...]
    moves: tuple[PlannedMove, ...]
    declarations: tuple[ChangedDeclaration, ...] = ()
    cleared: tuple[ClearedPath, ...] = ()
    notes: tuple[str, ...] = ()
    in_part: tuple[str, ...] = ()
    unread: tuple[UnreadItem, ...] = ()
    tests: tuple[OwnTests, ...] = ()
    advisory: Advisory = Field(exclude=True, repr=False)


class RemediationPlan(Frozen):
    """The whole plan: every advisory is in ``fixes``, ``left``, ``not_affected`` or ``undecided``; in both
    of the first where only something of it can be fixed.

    ``resolved`` False: predicted from the files alone, no client ran; whether an ``undecided`` advisory
    concerns what isn't locked, only resolving tells. ``skipped`` are inputs that gave no
    advisory, ``findings`` a scanner's findings in source code, which no recipe fixes. ``unread``: what may
    hold an affected version and was not read or resolved, at most MAX_UNREAD_LISTED. ``notes``: on what
    shows that the ``not_affected`` are, if no client ran. ``uncommitted``: tracked files that differ from
    the base commit and were read as they are in the working tree; a fix starts only without such.
    """

    repository: str
    base_commit: str
    resolved: bool
    offline: bool
    fixes: tuple[EcosystemPlan, ...] = ()
    left: tuple[Remaining, ...] = ()
    not_affected: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    findings: tuple[CodeFinding, ...] = ()
    unread: tuple[UnreadItem, ...] = ()
    notes: tuple[str, ...] = ()
    uncommitted: tuple[str, ...] = ()
