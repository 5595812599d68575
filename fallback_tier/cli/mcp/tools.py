"""The tools: their arguments, the command that each runs, and its answer, typed and bounded.

A tool is a command with ``--json``. What an agent may decide is an argument of the tool; what only the user
may decide (models, budgets, hosts, the sandbox, answers to reviews) is not an argument of any.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, JsonValue, StringConstraints, ValidationError

from fallback_audit.event_types import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.showing.describe import FixSummary
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel, TestsLevel
from fallback_tier.advisory import AdvisorySource
from fallback_tier.advisory.identifiers import identifier
from fallback_tier.cli.options import checkout_of
from fallback_tier.errors import ConfigurationError, InputError, first_fault
from fallback_tier.fix.batch.outcome import AdvisoryEnd
from fallback_tier.fix.journal.questions import Question, Review
from fallback_tier.limits import MAX_PATHS_GIVEN
from fallback_tier.planning import Remaining, RemediationPlan
from fallback_tier.scan.document import ScanResult

#: Most bytes of one answer as JSON. It is sent twice, as an object and as text for older clients, and an
#: agent has to read it: this is about 16,000 tokens.
MAX_ANSWER_BYTES = 65_536

#: Most items of a list and characters of a text, tried in this order until the answer fits.
_BOUNDS = ((1_000, 40_000), (200, 16_000), (50, 4_000), (20, 1_000), (5, 300), (1, 200))

#: Most cuts that are named.
_MAX_CUTS = 20

#: Most advisories of one call: a scan of a neglected repository shows some hundred.
MAX_ADVISORIES = 500

#: Never read as an option or a path.
FixId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]

_Text = Annotated[str, StringConstraints(min_length=1, max_length=4_096)]

Repository = Annotated[
    _Text,
    Field(description="Path of a git checkout under a root of the server, or of a folder in one."),
]
Advisories = Annotated[
    tuple[_Text, ...],
    Field(
        min_length=1,
        max_length=MAX_ADVISORIES,
        description="Identifiers (GHSA-…, CVE-…, PYSEC-…, MAL-…), or paths under a root of files with "
        "OSV records or a scanner's report.",
    ),
]
Paths = Annotated[
    tuple[_Text, ...],
    Field(
        max_length=MAX_PATHS_GIVEN,
        description="Folders, relative to the repository's root: only projects with a file in one of them. "
        "What the others hold is left, by name. Empty: all of it, or as the settings say.",
    ),
]
Resolve = Annotated[
    bool,
    Field(description="False: predict from the files alone, without running package clients."),
]

_InputT = TypeVar("_InputT", bound=Frozen)


class Cut(Frozen):
    """A list or a text that is not whole in this answer: where it is, and how many items or characters it
    has. Of a patch nothing is shown: a part of one could be taken for the whole."""

    field: str
    shown: int
    total: int


class Answer(Frozen):
    """``exit_code``: as the command's own (``fallback-tier --help`` lists them). ``cut``: what was left out
    to keep the answer small, patches first; ``cuts_not_named``: how many more there are."""

    exit_code: int
    cut: tuple[Cut, ...] = ()
    cuts_not_named: int = 0


class ScanAnswer(ScanResult, Answer):
    """What is vulnerable."""


class PlanAnswer(RemediationPlan, Answer):
    """What a fix would do by recipe."""

    schema_version: int = 1
    advisory_sources: tuple[AdvisorySource, ...] = ()


class GateAnswer(Frozen):
    """A gate's verdict on the last patch."""

    gate: str
    status: GateStatus
    detail: str
    failure_kind: FailureKind | None = None


class FixAnswer(Frozen):
    """One fix on record. ``advisory_ids``: what it is about. ``reason`` and ``sentence``: why there is no
    patch, or what a person is asked. ``patch`` is a diff against the base commit. ``held_back``: why a
    proved patch is not delivered; such a fix is not called fixed."""

    fix_id: str
    advisory_ids: tuple[str, ...]
    outcome: Literal["verified", "patched", "refused", "escalated"]
    headline: str = ""
    held_back: str | None = None
    delivered: bool = False
    proof_level: ProofLevel | None = None
    tests_level: TestsLevel | None = None
    attempts: int
    reason: str = ""
    sentence: str = ""
    files: tuple[str, ...] = ()
    patch: str = ""
    patch_sha256: Digest | None = None
    gates: tuple[GateAnswer, ...] = ()
    notes: tuple[str, ...] = ()


class FixesAnswer(Answer):
    """How a call of ``fix`` ended, in the same form for one advisory and for several.

    ``delivered``: the patches are on the working tree, not committed. ``advisories``: the end of each one,
    if several were planned together; ``left``: what of them no recipe fixes, with the reason.
    """

    delivered: bool
    fixes: tuple[FixAnswer, ...] = ()
    advisories: tuple[AdvisoryEnd, ...] = ()
    not_affected: tuple[str, ...] = ()
    left: tuple[Remaining, ...] = ()
    next_steps: tuple[str, ...] = ()
    advisory_sources: tuple[AdvisorySource, ...] = ()


class QuestionsAnswer(Answer):
    """Escalated fixes, newest first."""

    questions: tuple[Question, ...]


class ReviewAnswer(Review, Answer):
    """One question, with what a person needs to decide."""


class LogAnswer(Answer):
    """The gate transitions on record, newest first. One whose ``outcome`` is ``open`` was interrupted, or
    another process is at it."""

    fixes: tuple[FixSummary, ...]


class TrailAnswer(Answer):
    """One fix: its gate transitions, and every event as it is stored."""

    transitions: tuple[FixSummary, ...]
    events: tuple[dict[str, JsonValue], ...]
    retrievals: tuple[dict[str, JsonValue], ...] = ()


class VerifyAnswer(VerificationReport, Answer):
    """What a verification of the audit trail found."""


def fixes_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``fix --json`` printed, for one advisory or several, as FixesAnswer's fields."""
    fields = ("advisories", "not_affected", "left", "next_steps", "advisory_sources")
    more = {name: document[name] for name in fields if name in document}
    answer = FixesAnswer(
        exit_code=document["exit_code"],
        delivered=document["delivered"],
        fixes=tuple(_fix_answer(part) for part in document["fixes"]),
        **more,
    )
    return answer.model_dump(mode="json")


def _fix_answer(part: Mapping[str, Any]) -> FixAnswer:
    application = part.get("application") or {}
    gates = [
        {name: verdict[name] for name in GateAnswer.model_fields} for verdict in part["verdicts"]
    ]
    facts = {
        "fix_id": part["fix_id"],
        "advisory_ids": part["advisory_ids"],
        "outcome": part["outcome"],
        "attempts": part["attempts"],
        "headline": part.get("headline", ""),
        "proof_level": part.get("proof_level"),
        "tests_level": part.get("tests_level"),
        "reason": part.get("reason", ""),
        "sentence": part.get("sentence") or part.get("question") or "",
        "held_back": part["held_back"],
        "delivered": part["delivered"] and not part["held_back"],
        "files": application.get("files", ()),
        "patch": application.get("diff", ""),
        "patch_sha256": application.get("patch_sha256"),
        "gates": gates,
        "notes": part.get("gate_notes", ()),
    }
    return FixAnswer.model_validate(facts)


def _newest_first(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``audit log --json`` printed, newest first, so that the oldest is cut."""
    return {**document, "fixes": document["fixes"][::-1]}


def bounded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an encodable document if it fits; otherwise with lists and texts cut, each named in ``cut``.
    Raises InputError if even that does not fit."""
    if _size(document) <= MAX_ANSWER_BYTES:
        return {**document, "cut": [], "cuts_not_named": 0}
    for items, chars in _BOUNDS:
        cuts: list[Cut] = []
        shorter = {
            name: _shorter(value, name, items, chars, cuts) for name, value in document.items()
        }
        cuts.sort(key=lambda cut: not _is_patch(cut.field))
        shorter["cut"] = [cut.model_dump() for cut in cuts[:_MAX_CUTS]]
        shorter["cuts_not_named"] = len(cuts[_MAX_CUTS:])
        if _size(shorter) <= MAX_ANSWER_BYTES:
            return shorter
    raise InputError(
        f"The answer is larger than {MAX_ANSWER_BYTES} bytes.",
        next_step="Ask for less, or give the same command with --json in a shell.",
        kind="answer_too_large",
    )


def encodable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without halves of surrogate pairs, which JSON can escape and UTF-8 can't hold."""
    result = json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
    assert isinstance(result, dict)  # noqa: S101 (as it was)
    return result


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, ensure_ascii=False).encode())


def _is_patch(field: str) -> bool:
    return field.rpartition(".")[2] in ("patch", "diff")


def _shorter(value: Any, field: str, items: int, chars: int, cuts: list[Cut]) -> Any:
    match value:
        case str() if len(value) > chars:
            shown = 0 if _is_patch(field) else chars
            cuts.append(Cut(field=field, shown=shown, total=len(value)))
            return value[:shown]
        case list():
            if len(value) > items:
                cuts.append(Cut(field=field, shown=items, total=len(value)))
            return [
                _shorter(item, f"{field}.{number}", items, chars, cuts)
                for number, item in enumerate(value[:items])
            ]
        case dict():
            return {
                name: _shorter(item, f"{field}.{name}", items, chars, cuts)
                for name, item in value.items()
            }
        case _:
            return value


class Nothing(Frozen):
    """No argument."""


class ScanInput(Frozen):
    """Arguments of ``scan``."""

    repository: Repository
    severity: Literal["none", "low", "medium", "high", "critical"] | None = Field(
        default=None,
        description="Leave out what is known to be below it. `none` shows all, whatever the settings say.",
    )
    production: bool | None = Field(
        default=None,
        description="true: leave out what is installed for development alone; false: show it, whatever "
        "the settings say.",
    )
    paths: Paths = ()
    resolve: Resolve = True


class PlanInput(Frozen):
    """Arguments of ``plan``."""

    repository: Repository
    advisories: Advisories
    paths: Paths = ()
    resolve: Resolve = True


class FixInput(Frozen):
    """Arguments of ``fix``."""

    repository: Repository
    advisories: Advisories
    paths: Paths = ()
    apply: bool = Field(
        default=False,
        description="Put the proved patch on the working tree, not committed. Refused unless the user "
        "started the server with --allow-writes.",
    )
    resume: FixId | None = Field(
        default=None,
        description="A fix of one advisory that is open (audit_log): continue it. A call with several "
        "advisories continues by itself.",
    )


class QuestionsInput(Frozen):
    """Arguments of ``review_list``."""

    answered: bool = Field(default=False, description="Also those that a person has answered.")


class OneFixInput(Frozen):
    """A fix on record."""

    fix_id: FixId


@dataclass(frozen=True)
class Permissions:
    """The user's permissions from the start. ``looking``: options for scan, plan and fix; ``state``,
    ``record``: location options of the audit trail."""

    roots: tuple[Path, ...]
    allow_writes: bool = False
    looking: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    record: tuple[str, ...] = ()

    def path(self, name: str) -> Path:
        """Return the real path, a relative one from the first root. Raises ConfigurationError if it is
        under no root, also by a link."""
        try:
            path = (self.roots[0] / name).resolve()
        except (OSError, ValueError) as error:  # a loop of links; a NUL
            raise InputError(
                f"{name!r} is not a path.",
                next_step="Give the path of a checkout.",
                kind="no_path",
            ) from error
        if not any(path.is_relative_to(root) for root in self.roots):
            roots = ", ".join(map(str, self.roots))
            raise ConfigurationError(
                f"{name} is not under a root of this server ({roots}).",
                next_step="Name one that is, or ask the user to start the server with --root.",
                kind="outside_roots",
            )
        return path

    def repository(self, name: str) -> str:
        """Return the checkout of a path. It may be above the named folder, and must be under a root as
        well."""
        return str(self.path(str(checkout_of(self.path(name)))))

    def advisory(self, reference: str) -> str:
        """Return an identifier, or a file's real path. Raises AdvisoryIdError, ConfigurationError."""
        return f"--advisory={identifier(reference) or self.path(reference)}"

    def delivery(self, *, apply: bool) -> list[str]:
        """Return the options for a fix's delivery. Raises ConfigurationError if it is not allowed."""
        if apply and not self.allow_writes:
            raise ConfigurationError(
                "The user did not allow writes to repositories.",
                next_step="Leave out `apply` for a dry run, or ask the user to start the server with "
                "--allow-writes.",
                kind="writes_not_allowed",
            )
        return [] if apply else ["--dry-run"]


@dataclass(frozen=True)
class Tool(Generic[_InputT]):
    """A tool. ``words`` makes the command; ``answer`` converts its document to ``gives``. ``writes``: it
    adds to the audit trail. ``asks``: it uses the network."""

    name: str
    title: str
    about: str
    takes: type[_InputT]
    gives: type[Answer]
    words: Callable[[_InputT, Permissions], Sequence[str]]
    answer: Callable[[Mapping[str, Any]], dict[str, Any]] = field(default=dict)
    writes: bool = False
    asks: bool = False

    def command(self, arguments: Mapping[str, Any], permissions: Permissions) -> list[str]:
        """Return the command as a list of arguments. Raises InputError for arguments that don't match the
        schema, and ConfigurationError for something that the user did not allow."""
        try:
            inputs = self.takes.model_validate(dict(arguments))
        except ValidationError as error:
            raise InputError(
                f"Arguments of {self.name}: {first_fault(error, 'the whole')}.",
                next_step="Give them as the tool's input schema describes.",
                kind="arguments",
            ) from error
        return [*self.words(inputs, permissions), "--json"]


def _scan(inputs: ScanInput, allowed: Permissions) -> list[str]:
    rules = [f"--severity={inputs.severity}"] if inputs.severity else []
    if inputs.production is not None:
        rules.append("--production" if inputs.production else "--no-production")
    return [
        *("scan", allowed.repository(inputs.repository), *rules, *_below(inputs.paths)),
        *_unresolved(inputs.resolve),
        *(*allowed.looking, *allowed.state),
    ]


def _plan(inputs: PlanInput, allowed: Permissions) -> list[str]:
    return [
        *("plan", allowed.repository(inputs.repository), *map(allowed.advisory, inputs.advisories)),
        *(*_below(inputs.paths), *_unresolved(inputs.resolve), *allowed.looking, *allowed.state),
    ]


def _fix(inputs: FixInput, allowed: Permissions) -> list[str]:
    resume = [f"--resume={inputs.resume}"] if inputs.resume else []
    return [
        *("fix", allowed.repository(inputs.repository), *map(allowed.advisory, inputs.advisories)),
        *(*_below(inputs.paths), *resume, *allowed.delivery(apply=inputs.apply)),
        *(*allowed.looking, *allowed.record),
    ]


def _below(paths: tuple[str, ...]) -> list[str]:
    return [f"--path={path}" for path in paths]


def _unresolved(resolve: bool) -> list[str]:
    return [] if resolve else ["--no-resolve"]


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "scan",
        "Find vulnerable dependencies",
        "Show which installed packages of a repository have known vulnerabilities, how each comes in, "
        "and the step that fixes it. An OSV database is asked. Nothing is changed. Call it first if no "
        "advisory is given. `exit_code` 0: nothing to show; 11: findings; 9: something could not be read "
        "(`unread`). Not known to be clean if `unread`, `ignored` or `outside` is not empty, or `below` "
        "or `development` is not 0: settings, the repository's too, leave findings out (`rules`).",
        ScanInput,
        ScanAnswer,
        _scan,
        asks=True,
    ),
    Tool(
        "plan",
        "Plan a fix",
        "Show what `fix` would do by recipe for these advisories, and what can't be fixed and why. "
        "Package clients run; nothing is changed. It works with uncommitted changes.",
        PlanInput,
        PlanAnswer,
        _plan,
        asks=True,
    ),
    Tool(
        "fix",
        "Fix vulnerabilities, with a proof",
        "Make a patch for these advisories and prove it in a sandbox: versions, build, tests. It takes "
        "minutes. The checkout must be clean. By default nothing is written to it, and the patch is in "
        "the answer; with `apply` it is put on the working tree, not committed. Read `headline`: fixed "
        "only if a gate saw the vulnerability gone. `escalated`: a person must decide (review_show). If "
        "the call is cancelled, the repository stays as it was; audit_log names the open fix for `resume`.",
        FixInput,
        FixesAnswer,
        _fix,
        fixes_document,
        writes=True,
        asks=True,
    ),
    Tool(
        "review_list",
        "List open questions",
        "List fixes that wait for a person's decision.",
        QuestionsInput,
        QuestionsAnswer,
        lambda inputs, allowed: [
            *("review", "list", *(["--all"] if inputs.answered else []), *allowed.record)
        ],
    ),
    Tool(
        "review_show",
        "Show a question",
        "Show one question with its attempts, the last failure, the patch that is not proved, and the "
        "commands that answer it. Show them to the user: only a person answers.",
        OneFixInput,
        ReviewAnswer,
        lambda inputs, allowed: ["review", "show", inputs.fix_id, *allowed.record],
    ),
    Tool(
        "audit_log",
        "List fixes on record",
        "List the fixes in the audit trail, newest first: advisory, repository, attempts, outcome.",
        Nothing,
        LogAnswer,
        lambda _, allowed: ["audit", "log", *allowed.record],
        _newest_first,
    ),
    Tool(
        "audit_show",
        "Show a fix on record",
        "Show every event of one fix as the audit trail has it.",
        OneFixInput,
        TrailAnswer,
        lambda inputs, allowed: ["audit", "show", inputs.fix_id, *allowed.record],
    ),
    Tool(
        "audit_verify",
        "Verify the audit trail",
        "Check that the audit trail and its evidence are as they were written. `ok` is the result.",
        Nothing,
        VerifyAnswer,
        lambda _, allowed: ["audit", "verify", *allowed.record],
    ),
)
