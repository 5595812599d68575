"""The one exception tree, complete: what other modules define is named with its module.

::

    FallbackError                    what is wrong, why, and the next step (fallback_audit.errors)
    ├── AuditError …                 the audit trail's branch (fallback_audit.errors)
    ├── DiskError                    a disk that fails or is full (fallback_audit.errors)
    ├── InputError                   bad input: nothing was done
    │   ├── AdvisoryError            not OSV, too large
    │   │   ├── WithdrawnError       there is nothing to fix
    │   │   ├── AdvisoryIdError      not an identifier of the database that it names
    │   │   ├── AdvisoryNotFoundError     the database has no record of it
    │   │   ├── AdvisoryUnreachableError  no answer, and none is kept
    │   │   ├── AdvisoryResponseError     an answer that can't be used
    │   │   └── NoPackageError       no record of it names a package
    │   ├── RepositoryError          not a git repository, dirty, no such path
    │   ├── AttemptHistoryError      prior attempts out of order, summary too long
    │   ├── ConfigurationError       a setting or an option that is not valid
    │   │   ├── SettingMissingError  a setting that is needed: a model, its key, a file
    │   │   ├── SettingError         a file of settings, or a key or value in one
    │   │   ├── SeveralFixesError    several fixes where one is required (fix.fixer)
    │   │   └── CassetteMismatch     traffic that differs from the recording (demo.cassette)
    │   ├── HeldError                another process has the fix in hand
    │   ├── UnansweredError          the fix waits for a person
    │   ├── CampaignError            a campaign's file, or a request to one (fleet.errors)
    │   ├── OrderError               an order that can't be carried out as it is (fleet.errors)
    │   ├── ProofError               a proof that can't show anything (gates.builtin.proof_given)
    │   ├── RequestRefusedError      the service refuses a request (service.refusals)
    │   │   ├── NotSignedInError
    │   │   ├── NotAllowedError
    │   │   ├── NotFoundError
    │   │   ├── ConflictError
    │   │   ├── NotServedError
    │   │   ├── TooManyError
    │   │   └── BusyError
    │   ├── ArchiveError             an archive that can't be read, or must not be (solved_examples)
    │   ├── NoExampleError           two releases of which no example can be made (solved_examples)
    │   └── GoldenSetError           labelled questions that can't be used (fallback_eval)
    ├── ToolError                    a client we call (git, npm, uv) is missing or failed
    │   ├── ToolMissingError
    │   └── ToolFailedError          carries the client's own output
    │       ├── NotBuiltError        no wheel came of an archive of source (pypi)
    │       │   └── NotHadError      the registry gives none that is as its listing says (pypi)
    │       └── MemberTooLargeError  a file in such an archive is larger than is read (pypi)
    ├── StoppedError                 package clients run no more: no time is left, or a person interrupted
    ├── FleetStoreError              the list of campaigns can't be read or written (fleet.errors)
    ├── EngineUnreachableError       Temporal can't be reached (engines.temporal)
    ├── DevServerError               a private Temporal server could not be started (engines.temporal)
    ├── StateFolderError             the state folder can't be written
    ├── PatchError
    │   ├── EditError                a search/replace edit that doesn't match exactly once
    │   └── PatchSyntaxError         a diff that isn't strictly what we make
    ├── RecipeError                  a recipe can't be applied; carries a RefusalReason
    │   ├── UnknownPartError         a fix brings in a release of unknown requirements (pypi.resolving)
    │   └── UvRefusedError           uv could not resolve; carries all its output (pypi.resolving)
    ├── ModelError                   the model gave no answer (transport), never a gate failure
    ├── PluginError                  a plugin's own exception, in the plugin's name
    ├── SandboxError                 no sandbox is available, and none was waived
    ├── ExampleStoreError            the store of solved examples (solved_examples)
    ├── EmbeddingError               the embedding model can't be used (solved_examples)
    │   ├── ModelMissingError
    │   ├── WrongModelError
    │   └── ModelFailedError
    ├── EvaluationError              an evaluation can't be run or believed (fallback_eval)
    ├── Refusal                      control flow: a step ends an attempt without a patch (attempt)
    └── OverBudget                   control flow: the next call would pass a cap (budget.meter)

Others are caught where they are raised, so no message has their names: LenientJsonError, UnreadableError
and DuplicateKeyError are ValueErrors (text that can't be read). AnswerTooLargeError, StatusError and
AddressError are OSErrors, like the errors of a network library. SessionOverError (a fix's process has
ended) and HostRefusedError (a client is not started, because of a host that it may not contact) are
Exceptions. Late (a fix took too long, in its worker) is a BaseException, which no code in between may
catch. A name that begins with ``_`` is control flow inside one module.
"""

from typing import TYPE_CHECKING, ClassVar

from fallback_audit.errors import FallbackError
from fallback_audit.vocabulary import ModelFailureKind, RefusalReason
from fallback_tier.limits import MAX_UNREAD_LISTED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic import ValidationError

    from fallback_audit.event_types import Blocker, StepDeclined, UnreadItem

__all__ = [
    "AdvisoryError",
    "AdvisoryIdError",
    "AdvisoryNotFoundError",
    "AdvisoryResponseError",
    "AdvisoryUnreachableError",
    "AttemptHistoryError",
    "ConfigurationError",
    "EditError",
    "FallbackError",
    "HeldError",
    "InputError",
    "ModelError",
    "NoPackageError",
    "PatchError",
    "PatchSyntaxError",
    "PluginError",
    "RecipeError",
    "RepositoryError",
    "SandboxError",
    "SettingError",
    "SettingMissingError",
    "StateFolderError",
    "StoppedError",
    "ToolError",
    "ToolFailedError",
    "ToolMissingError",
    "UnansweredError",
    "WithdrawnError",
    "first_fault",
]


class InputError(FallbackError):
    """Bad input; nothing was done."""

    code: ClassVar[str] = "input"


class HeldError(InputError):
    """Another process of this machine has the fix in hand: a temporary state."""

    code = "held"


class UnansweredError(InputError):
    """The fix waits for a person, and can't continue."""


class AdvisoryError(InputError):
    """The advisory can't be used."""

    code = "advisory"


class WithdrawnError(AdvisoryError):
    """The advisory was withdrawn: it states nothing any more, and nothing is missing without it."""


class AdvisoryIdError(AdvisoryError):
    """A text is not an identifier of the database that it names."""

    code = "advisory_id"


class AdvisoryNotFoundError(AdvisoryError):
    """A database has no record of an identifier."""

    code = "advisory_not_found"


class AdvisoryUnreachableError(AdvisoryError):
    """A database did not answer, or must not be contacted, and no earlier answer is kept.

    ``url``: the address to fetch. ``file``: where to write its answer.
    """

    code = "advisory_unreachable"

    def __init__(self, problem: str, *, next_step: str, url: str, file: "Path") -> None:
        super().__init__(problem, next_step=next_step)
        self.url = url
        self.file = file


class AdvisoryResponseError(AdvisoryError):
    """A database's answer, or a kept one, can't be used."""

    code = "advisory_response"


class NoPackageError(AdvisoryError):
    """No record of an advisory names a package, so nothing can be compared with it."""

    code = "advisory_no_package"


class RepositoryError(InputError):
    """The repository can't be used as it is."""

    code = "repository"


class AttemptHistoryError(InputError):
    """``prior_attempts`` breaks its contract (order, size of a summary)."""

    code = "attempt_history"


class ConfigurationError(InputError):
    """A setting or an option that is not valid."""

    code = "configuration"


class SettingMissingError(ConfigurationError):
    """A setting that is needed and missing: a model, its key, a file.

    It never ends a fix on record: `resume` exits with 6, and the fix can be resumed with the setting.
    """


class SettingError(ConfigurationError):
    """A file of settings or a variable can't be used, as a whole or for one key.

    ``source``: the file or the variable; ``line``: from 1, 0 if it is not about one; ``key``: dotted, empty
    if it is not about one; ``nearest``: the valid key that is likely meant. No value is in the message.
    """

    def __init__(
        self,
        problem: str,
        *,
        next_step: str,
        kind: str,
        source: str,
        line: int = 0,
        key: str = "",
        nearest: str = "",
    ) -> None:
        super().__init__(problem, next_step=next_step, kind=kind)
        self.source = source
        self.line = line
        self.key = key
        self.nearest = nearest


class ToolError(FallbackError):
    """A program that the product calls."""

    code = "tool"


class ToolMissingError(ToolError):
    """The program is not installed."""

    code = "tool_missing"


class ToolFailedError(ToolError):
    """The program failed; ``output`` is the last part of its own output, bounded."""

    code = "tool_failed"

    def __init__(self, problem: str, *, next_step: str, output: str = "", kind: str = "") -> None:
        super().__init__(problem, next_step=next_step, kind=kind)
        self.output = output


class StoppedError(FallbackError):
    """Package clients no longer run: no time is left, or a person interrupted. No client failed, so this is
    not a ToolError: what was not resolved is unknown, never refused."""

    code = "stopped"


class StateFolderError(FallbackError):
    """The state folder can't be written."""

    code = "state_folder"


class PatchError(FallbackError):
    """A patch that can't be made, read or allowed."""

    code = "patch"


class EditError(PatchError):
    """A search/replace edit whose old text is not found exactly once."""

    code = "edit"


class PatchSyntaxError(PatchError):
    """A unified diff that isn't strictly of the kind that the product makes."""

    code = "patch_syntax"


class RecipeError(FallbackError):
    """A recipe can't be applied; ``reason`` is the refusal's.

    ``unread``: the sources that were not read, if the reason is UNKNOWN. At most MAX_UNREAD_LISTED are
    kept; the problem counts the others. ``blockers``: what keeps the recipe from being applied, if it is
    known. ``declined``: the steps that did not work, each with its own blockers.
    """

    code = "recipe"

    def __init__(
        self,
        reason: RefusalReason,
        problem: str,
        *,
        next_step: str,
        unread: "Sequence[UnreadItem]" = (),
        blockers: "Sequence[Blocker]" = (),
        declined: "Sequence[StepDeclined]" = (),
        kind: str = "",
    ) -> None:
        if more := len(unread[MAX_UNREAD_LISTED:]):
            problem = f"{problem} {more} more were not read."
        super().__init__(problem, next_step=next_step, kind=kind)
        self.reason = reason
        self.unread = tuple(unread[:MAX_UNREAD_LISTED])
        self.blockers = tuple(blockers)
        self.declined = tuple(declined)


class ModelError(FallbackError):
    """The model gave no answer: unreachable, over its limits, not configured. Not a gate failure.

    Its kind is ``failure``, unless there is one that says more.
    """

    code = "model"

    def __init__(
        self,
        problem: str,
        *,
        next_step: str,
        failure: ModelFailureKind = ModelFailureKind.REJECTED,
        kind: str = "",
    ) -> None:
        super().__init__(problem, next_step=next_step, kind=kind or failure.value)
        self.failure = failure


class PluginError(FallbackError):
    """A plugin raised what it may not raise, or lacks what it must have; the message names it."""

    code = "plugin"


class SandboxError(FallbackError):
    """No sandbox is available here, and none was waived."""

    code = "sandbox"


def place_of(error: BaseException) -> str:
    """Return an error's type and where it was raised: a traceback would not help a user."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f" in {at.tb_frame.f_globals.get('__name__')}, line {at.tb_lineno}" if at else ""
    return f"{type(error).__name__}{where}"


def first_fault(error: "ValidationError", whole: str) -> str:
    """Return where the first fault is (``whole`` if in no one field) and what it is, without the input."""
    fault = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or whole}: {fault['msg']}"
