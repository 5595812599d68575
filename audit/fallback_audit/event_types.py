"""The base of all events, and the field types that they share."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_audit.metrics import Move
from fallback_audit.vocabulary import BlockerKind, LadderStep, ProofLevel, TestsLevel

#: Longest excerpt of untrusted text in an event: enough to triage, too short to leak a file. The whole text
#: is evidence.
MAX_EXCERPT_CHARS = 600


class _FreeText:
    """A mark on members of an event with text of a person, a model or a target.

    They may name a person or contain a secret, and can be redacted (``retention.redact``). Other members
    can't be redacted: the trace contract depends on them.
    """


FREE_TEXT: Final = _FreeText()


class _StructuralText:
    """A mark on text that rules, readers or a resumed run depend on, chosen by our programs or a registry.

    It is never redacted. Each text of an event has this mark or the other, or a pattern.
    """


STRUCTURAL: Final = _StructuralText()

Structural = Annotated[str, STRUCTURAL]
Prose = Annotated[str, FREE_TEXT]
Excerpt = Annotated[str, Field(max_length=MAX_EXCERPT_CHARS), FREE_TEXT]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Attempt = Annotated[int, Field(ge=1)]
Call = Annotated[int, Field(ge=1)]
#: Dollars as a decimal string: an estimate from a dated price table.
Dollars = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]


class Role(Enum):
    """The role of an event in its gate transition."""

    #: Part of the fix, between its beginning and its end.
    STEP = auto()
    #: The end of the fix; for a budget until BudgetRaised.
    END = auto()
    #: May follow the end: a patch is delivered, a person answers.
    AFTER_THE_END = auto()
    #: Recorded by a process that resumes a fix: neither a verdict nor an answer to one.
    RESUMING = auto()
    #: A person ends an unfinished fix, at any point: no rule about its steps sees it.
    ABANDONING = auto()
    #: About other events of this trail, at any point: no rule about the fix itself sees it.
    NOTE = auto()


class Badge(NamedTuple):
    """How an event is highlighted.

    ``tone``: its class on the portal's pages (good, bad, warn, fresh, person). ``style``: its rich style on
    a terminal. ``warns``: its log line has level warning. ``routine``: several in a row are folded.
    """

    tone: str = ""
    style: str = ""
    warns: bool = False
    routine: bool = False


class Event(Frozen):
    """The base of all events. A subclass declares one kind of evidence: fields, texts, badge and metrics.

    A subclass with its own ``kind`` is an event; one without is what events share. The chapters of
    ``fallback_audit.events`` have them all, and every list of kinds is derived from those. The rules on an
    event are in the chapter of the same name of ``fallback_audit.contract``.

    ``since``: the schema version that introduced it; a larger one than the current becomes the current one.
    Kinds of versions 2 to 9 also have 1.
    """

    role: ClassVar[Role] = Role.STEP
    since: ClassVar[int] = 1
    BADGE: ClassVar[Badge] = Badge()

    if TYPE_CHECKING:
        kind: str

    def in_words(self) -> str:
        """Return what happened, in one line. Text is not neutralised (``showing.describe`` does that)."""
        raise NotImplementedError

    def excerpt(self) -> str | None:
        """Return the lines to show below it: a summary, a gate's detail, problems. Not neutralised."""
        return None

    def moves(self) -> Iterator[Move]:
        """Yield the changes of metrics by this event."""
        yield from ()

    @property
    def badge(self) -> Badge:
        """Return this event's badge, usually its kind's."""
        return self.BADGE


class UnreadItem(Frozen):
    """A source that was not read or resolved: its path, the reason, and what to do so that it is."""

    path: str
    reason: str
    next_step: str = ""


#: All texts of an item can be redacted: they quote a target's files and its clients' output.
Unread = Annotated[UnreadItem, FREE_TEXT]


class AgeException(Frozen):
    """A package that a person exempts from rules on the age of releases, for one fix, and why."""

    package: str
    reason: str


#: Both texts are a person's, and can be redacted.
Excepted = Annotated[AgeException, FREE_TEXT]


class Blocker(Frozen):
    """What kept a step from working. Empty members are unknown, or don't apply to the kind.

    ``package``: what blocks, with its version if known: the parent that requires ``constraint``; or the
    release that is missing, of a constraint that ``required_by`` has. ``file``: the file that declares it.
    ``host`` and ``setting``: of a registry, and what names it; ``status``: its HTTP status.
    """

    kind: BlockerKind
    package: str = ""
    constraint: str = ""
    required_by: str = ""
    file: str = ""
    host: str = ""
    setting: str = ""
    status: int | None = None


class StepDeclined(Frozen):
    """A step of the ladder that did not work, why, in one sentence, and what blocked it. ``step`` None: no
    step began."""

    step: LadderStep | None
    reason: str
    #: Not written if empty.
    blockers: tuple[Blocker, ...] = Field(default=(), exclude_if=lambda it: not it)


#: Its texts can be redacted: they quote a target's files and its clients' output.
Declined = Annotated[StepDeclined, FREE_TEXT]


class ProvedProject(Frozen):
    """What a project has of a package, and how that is known.

    ``project``: the files that one install command reads, the first of them first. ``versions``: those that
    are installed, or declared if ``proof_level`` is ``pins``; empty: none any more.
    """

    project: str
    package: str
    versions: tuple[str, ...] = ()
    proof_level: ProofLevel


class JudgedTests(Frozen):
    """How far the tests of one project were judged, and by which command. Empty texts are unknown.

    ``project``: its folder, "." is the root; with two entries if only a part of its tests was compared.
    ``reason``: what kept them from being compared test by test; of such a part, and if CI tests in other
    ways too, which one it is; empty if all were. ``command``: the line; ``source``: what names it, for
    people. ``last_line``: the last line of its output that tells anything. ``exit_code``: the command's;
    ``output``: the lines of its output that look like the error. Gates leave both out of tests that were
    compared, though no rule holds that, and if unknown. Since schema version 19.
    """

    project: str
    tests_level: TestsLevel
    reason: str = ""
    command: str = ""
    source: str = ""
    last_line: str = ""
    exit_code: int | None = Field(default=None, exclude_if=lambda it: it is None)
    output: str = Field(default="", max_length=MAX_EXCERPT_CHARS, exclude_if=lambda it: not it)


#: Its texts can be redacted: they quote a target's files and output.
Tested = Annotated[JudgedTests, FREE_TEXT]


class StartedOn(Frozen):
    """Fields of an event with which a process begins its part of a fix: who keeps its evidence.

    ``machine``: host name, for people. ``evidence_store``: the store's id (``FileEvidenceStore.identify``).
    None if one machine alone can write the audit trail (SQLite), and before schema version 13.
    """

    machine: Prose | None = None
    evidence_store: Structural | None = None
