"""What a direct bump decides in every ecosystem: which package, to which version, or why not.

Ecosystem plugins don't see each other; what they share over ports and models stands here.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import (
    Advisory,
    compare_versions,
    fixed_versions,
    is_affected,
    lowest_fixed_version,
)
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError


class Finding(Protocol):
    """A place that holds an affected version; ``problem``: why a direct bump can't mend it."""

    @property
    def problem(self) -> RecipeError | None:
        """The typed refusal, if there is one."""
        ...


FindingT = TypeVar("FindingT", bound=Finding)


def choose_bump(
    ecosystem: str,
    advisory: Advisory,
    *,
    find: Callable[[str], tuple[FindingT, ...]],
    highest: Callable[[tuple[FindingT, ...]], str],
    nothing: Callable[[tuple[str, ...]], RecipeError],
) -> tuple[str, str, tuple[FindingT, ...]]:
    """The package to raise, the lowest fixed version that serves every place, and the places.

    ``highest`` is the version that the bump must not go below. Raises RecipeError: nothing to bump
    (``nothing`` says why), several packages at once, no fixed version, or a place's own problem.
    """
    names = advisory.packages(ecosystem)
    found = {name: hits for name in names if (hits := find(name))}
    if not found:
        raise nothing(names)
    if len(found) > 1:
        raise unsupported(f"{advisory.id} affects {' and '.join(found)} here, not one package.")
    (package, hits), *_ = found.items()
    if not fixed_versions(advisory, ecosystem, package):
        raise _no_fix(advisory, package, "names no fixed version of")
    raise_first_problem(hits)
    current = highest(hits)
    version = lowest_fixed_version(advisory, ecosystem, package, current)
    if version is None:
        raise _no_fix(advisory, package, f"names no fixed version above {current} of")
    return package, version, hits


def check_target(
    ecosystem: str, advisory: Advisory, package: str, version: str, current: str
) -> None:
    """A version that somebody else chose (a model): real, not affected, no downgrade. Or RecipeError."""
    if not is_orderable(ecosystem, version):
        raise unsupported(f"{version!r} is not a version of {package}.")
    if is_affected(advisory, ecosystem, package, version):
        raise unsupported(f"{package} {version} is itself affected by {advisory.id}.")
    if compare_versions(ecosystem, version, current) <= 0:
        raise unsupported(f"{package} {version} would be a downgrade from {current}.")


def raise_first_problem(hits: Sequence[Finding]) -> None:
    """The first place that a direct bump can't mend stops it: half a fix is none."""
    for hit in hits:
        if hit.problem:
            raise hit.problem


def unsupported(problem: str) -> RecipeError:
    """The typed refusal for what the direct bump doesn't do."""
    return RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED,
        problem,
        next_step="Change it by hand, or let a model propose the change.",
    )


def own_code(names: Sequence[str]) -> RecipeError:
    """The repository is the affected package: there is nothing to bump, its source is to be edited."""
    return RecipeError(
        RefusalReason.OWN_CODE,
        f"This repository is {', '.join(names)} itself: its own source is affected.",
        next_step="A model can propose an edit; no dependency is to be raised.",
    )


def _no_fix(advisory: Advisory, package: str, what: str) -> RecipeError:
    return RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"{advisory.id} {what} {package}.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )
