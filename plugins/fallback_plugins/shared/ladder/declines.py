"""Why a strategy did not serve, and what becomes of a package that none served."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.outcome import Left, NotApplicable, StepDeclined, UnreadItem

#: What names the cause: who holds a package back, or that nothing safe is known.
_SIGNIFICANT = frozenset({RefusalReason.BLOCKED_BY_CONSTRAINT, RefusalReason.NO_FIXED_VERSION})


@dataclass
class Tried:
    """Collects the steps that did not serve, in order and each reason once."""

    steps: list[StepDeclined] = field(default_factory=list)
    errors: list[tuple[LadderStep, RecipeError]] = field(default_factory=list)

    def no(self, step: LadderStep, error: RecipeError | str) -> None:
        """This step did not serve."""
        message = error.problem if isinstance(error, RecipeError) else error
        declined = StepDeclined(step=step, reason=message)
        if declined in self.steps:
            return
        if isinstance(error, RecipeError):
            self.errors.append((step, error))
        self.steps.append(declined)

    @property
    def declined(self) -> tuple[StepDeclined, ...]:
        """For ``Move.declined`` and ``Left.declined``."""
        return tuple(self.steps)

    @property
    def refusal(self) -> RecipeError:
        """The most telling of what was said: the first that names a cause, else the last.

        That the project's own word keeps the lock from being refreshed tells nothing any more where that
        word was raised, and something else was in the way.
        """
        raised = any(step is LadderStep.DIRECT_BUMP for step, _ in self.errors)
        errors = [
            error for step, error in self.errors if not (raised and step is LadderStep.LOCK_REFRESH)
        ]
        named = [error for error in errors if error.reason in _SIGNIFICANT]
        if errors:
            return (named or errors[-1:])[0]
        message = self.steps[-1].reason if self.steps else "No step of the ladder fixes it."
        return does_not_serve(message)


def left_behind(
    advisory: Advisory,
    ecosystem: str,
    package: str,
    versions: Iterable[str],
    *,
    manifest: str,
    error: RecipeError,
    tried: Tried | None = None,
) -> Left:
    """What no step could fix, with the steps that were tried; None: no step was."""
    ids = {
        found: None
        for version in versions
        for found in advisory.ids_affecting(ecosystem, package, version)
    }
    return Left(
        package=package,
        manifest=manifest,
        advisory_ids=tuple(ids),
        reason=error.reason,
        sentence=error.problem,
        next_step=error.next_step,
        declined=tried.declined if tried else (),
    )


def whole_project_left(path: str, error: RecipeError | RepositoryError) -> Left:
    """A project that could not be read or resolved, as something left; ``path`` empty: all of them."""
    why = NotApplicable.of(error)
    return Left(
        package="",
        manifest=path or None,
        reason=why.reason,
        sentence=error.problem,
        next_step=error.next_step,
        unread=why.unread,
    )


def refuse(left: Left) -> NoReturn:
    """What is left of a single advisory is its refusal."""
    raise error_of(left)


def error_of(left: Left) -> RecipeError:
    """Return the refusal to fix what is left."""
    return RecipeError(left.reason, left.sentence, next_step=left.next_step, unread=left.unread)


def blocked(package: str, version: str, *, parent: str, spec: str, where: str) -> RecipeError:
    """The typed refusal that names the constraint and the parent that make it."""
    return RecipeError(
        RefusalReason.BLOCKED_BY_CONSTRAINT,
        f"{parent} in {where} asks for {package} {spec}, which does not admit {version}.",
        next_step=f"Raise or replace {parent}, or let a model propose the change.",
    )


def unknown(path: str, problem: str, *, next_step: str) -> RecipeError:
    """Return the refusal to call a project clean: whether it is affected can't be decided, since the source
    at ``path`` was not read or resolved."""
    item = UnreadItem(path=path, reason=problem, next_step=next_step)
    return RecipeError(RefusalReason.UNKNOWN, problem, next_step=next_step, unread=(item,))


def does_not_serve(problem: str) -> RecipeError:
    """The typed refusal of a result: a client resolved it, and it is not what a fix may be."""
    return RecipeError(
        RefusalReason.RESOLVER_FAILED,
        problem,
        next_step="Resolve it by hand with the package client.",
    )
