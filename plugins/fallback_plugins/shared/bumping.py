"""Refusals and notes that every recipe shares, and a version that was chosen before the ladder."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fallback_audit.vocabulary import BlockerKind, LadderStep, RefusalReason
from fallback_tier.advisory import Advisory, canonical_name, compare_versions, is_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.ecosystem_rules import base_ecosystem
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker, Selected

#: The next step if a message names something that no recipe changes.
ADAPT = "Make the change that this needs, commit it, then run this again."

#: Parameter of a selection: the one step that is to serve.
_STEP_PARAMETER = "rung"


@dataclass(frozen=True)
class Choice:
    """A version that a model chose: no other may be taken.

    ``forced``: by an override, for a package that the project does not require itself.
    """

    package: str
    version: str
    forced: bool = False


@dataclass(frozen=True)
class Terms:
    """The terms of a resolution: a choice (None: the ladder chooses), and the steps that are excluded."""

    choice: Choice | None = None
    left_out: tuple[LadderStep, ...] = ()


#: The ladder chooses, from all of its steps.
FREE = Terms()


def terms_of(selection: Selected) -> Terms:
    """Return the terms that a selection sets."""
    version, choice = selection.parameters.get("version"), None
    if version is not None:
        choice = Choice(selection.parameters["package"], version, _is_override(selection))
    return Terms(choice, selection.left_out)


def about(advisory: Advisory, ecosystem: str, package: str) -> Advisory:
    """Return the part of the advisory about one package: a model's choice raises nothing else."""
    entries = tuple(
        entry
        for entry in advisory.affected
        if entry.package is not None
        and base_ecosystem(entry.package.ecosystem) == ecosystem
        and canonical_name(ecosystem, entry.package.name) == package
    )
    return type(advisory).model_validate(dict(advisory) | {"affected": entries})


#: Refusals of a bump to which a model can respond with another plan.
_MODELS_TURN = frozenset({RefusalReason.BLOCKED_BY_CONSTRAINT, RefusalReason.RECIPE_UNSUPPORTED})
_OTHERWISE = "Use override where only others bring it in; else edit the source, or refuse."


def override(recipe: str, package: str, version: str) -> Selected:
    """Return the selection that forces a transitive package to a version, by the ladder's override step
    alone."""
    parameters = {
        "package": package,
        "version": version,
        _STEP_PARAMETER: LadderStep.OVERRIDE.value,
    }
    return Selected(recipe=recipe, parameters=parameters)


def _is_override(selection: Selected) -> bool:
    return selection.parameters.get(_STEP_PARAMETER) == LadderStep.OVERRIDE


@contextmanager
def reason_for_a_model(selection: Selected) -> Iterator[None]:
    """Give the refusal of a model's bump a next step for the model, not for a person."""
    try:
        yield
    except RecipeError as error:
        if error.reason not in _MODELS_TURN or not selection.parameters or _is_override(selection):
            raise
        raise RecipeError(
            error.reason, error.problem, next_step=_OTHERWISE, kind=error.kind
        ) from error


def use_bump(package: str, where: str) -> RecipeError:
    """Return the refusal to override a direct dependency: the project's own requirement is raised
    instead."""
    return RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED,
        f"{package} is a direct dependency ({where}): an override is for what others bring in.",
        next_step="Use dependency_bump.",
        kind="direct_dependency",
    )


def no_override(problem: str, *, kind: str = "") -> RecipeError:
    """Return the refusal if there is no place for an override, or it can't serve."""
    return RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED,
        problem,
        next_step="Use dependency_bump for the package that brings it in, or refuse.",
        kind=kind,
    )


def unneeded_override(where: str, package: str) -> str:
    """Return the note on an override (``where``: its place) without which the same versions would be
    installed."""
    return (
        f"{where} is no longer needed: whatever requires {package} admits the fixed version by itself."
        " Remove it, unless it is there for another reason."
    )


def check_target(
    ecosystem: str, advisory: Advisory, package: str, version: str, current: str | None
) -> None:
    """Raise RecipeError if a version that a model chose is not a version, is affected, or is a downgrade.

    ``current`` None: only a resolver can tell what is installed.
    """
    if not is_orderable(ecosystem, version):
        raise unsupported(f"{version!r} is not a version of {package}.", kind="not_a_version")
    if is_affected(advisory, ecosystem, package, version):
        raise unsupported(
            f"{package} {version} is itself affected by {advisory.id}.", kind="affected"
        )
    if current is not None and compare_versions(ecosystem, version, current) <= 0:
        raise unsupported(
            f"{package} {version} would be a downgrade from {current}.", kind="downgrade"
        )


def unsupported(
    problem: str, next_step: str = ADAPT, *blockers: Blocker, kind: str = ""
) -> RecipeError:
    """Return the refusal of what no recipe changes or reads, with what blocks, if that is a package."""
    reason = RefusalReason.RECIPE_UNSUPPORTED
    return RecipeError(reason, problem, next_step=next_step, blockers=blockers, kind=kind)


def unreadable(path: str, why: str, next_step: str, *, kind: str = "") -> RecipeError:
    """Return the refusal of a file that could not be read. ``why``: a clause that follows the path."""
    blocker = Blocker(kind=BlockerKind.UNREADABLE, constraint=why, file=path)
    return unsupported(f"{path!r} {why}.", next_step, blocker, kind=kind)
