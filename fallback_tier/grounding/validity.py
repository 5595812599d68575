"""Validity of a plan: deterministic, always checked, no model call. An invalid plan is asked again
within the call ceiling and never handed on.

What it can't see: whether a bump is a downgrade of *this* repository's version, and whether an overridden
package is a direct dependency. The recipe, which reads the manifests, refuses both
(``EcosystemPlugin.apply``).
"""

from collections.abc import Iterator
from typing import Final

from fallback_tier.advisory import (
    Advisory,
    canonical_name,
    compare_versions,
    fixed_versions,
    is_affected,
)
from fallback_tier.advisory.versions import is_orderable, served
from fallback_tier.grounding.edit_checks import edit_problems, quoted
from fallback_tier.outcome import DependencyBump, Override, Plan, Refuse, SourceEdit
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

#: A plan's rationale (UTF-8 bytes). Each of its sentences is a claim to be checked: a screenful.
MAX_RATIONALE_BYTES: Final = 4_096

#: Citations of one plan: three times what a prompt offers.
MAX_CITATIONS: Final = 50

#: Problems told at once: enough for one repair, short enough for the next prompt.
MAX_PROBLEMS: Final = 10

_OWN_CODE: Final = (
    "This repository is the affected package itself, so no version of it can be raised here: mend its "
    "source with source_edit."
)


def check_plan(
    plan: Plan,
    *,
    advisory: Advisory,
    repo: RepoContext,
    plugin: EcosystemPlugin,
    snippet_ids: frozenset[str],
    example_ids: frozenset[str],
) -> tuple[str, ...]:
    """Every problem of a plan, one sentence each that a model can act on; empty: the plan is valid.

    ``snippet_ids`` (``S1`` …) and ``example_ids`` (``E1`` …) are what the prompt offered for
    citation, beside the advisory's own id and its aliases. Never raises for a bad plan.
    """
    offered = snippet_ids | example_ids | {advisory.id, *advisory.aliases}
    problems = [*_citations(plan, offered), *_rationale(plan)]
    if isinstance(plan, Refuse):
        if not plan.reason.strip():
            problems.append("`reason` is empty: say in one sentence why no safe fix can be made.")
        return tuple(problems)
    if isinstance(plan, DependencyBump | Override) and _is_own(plan, repo, plugin):
        problems.append(_OWN_CODE)
    elif isinstance(plan, DependencyBump | Override):
        problems += _version(plan, advisory, plugin.name)
    may_make_files = isinstance(plan, SourceEdit)
    problems += edit_problems(plan.edits, repo, plugin, may_make_files=may_make_files)
    if len(problems) > MAX_PROBLEMS:
        more = len(problems) - MAX_PROBLEMS
        problems[MAX_PROBLEMS:] = [f"There are {more} more problems of these kinds."]
    return tuple(problems)


def _is_own(plan: DependencyBump | Override, repo: RepoContext, plugin: EcosystemPlugin) -> bool:
    """Is the package that it raises one that this repository is the source of?"""
    if repo.affected is None or not repo.affected.is_own:
        return False
    own = {package.name for package in repo.affected.own}
    return not own or canonical_name(plugin.name, plan.package) in own


def _rationale(plan: Plan) -> Iterator[str]:
    size = len(plan.rationale.encode())
    if size > MAX_RATIONALE_BYTES:
        yield (
            f"`rationale` has {size:,} bytes; the limit is {MAX_RATIONALE_BYTES:,}: say in a few sentences"
            " what the flaw is and why the edits mend it."
        )


def _citations(plan: Plan, offered: frozenset[str]) -> Iterator[str]:
    known = ", ".join(sorted(offered, key=lambda name: (len(name), name))) or "none"
    if len(plan.citations) > MAX_CITATIONS:
        yield (
            f"The plan has {len(plan.citations)} citations; the limit is {MAX_CITATIONS}: name each of"
            f" these at most once: {known}."
        )
        return
    for citation in dict.fromkeys(plan.citations):
        if citation not in offered:
            yield f"Citation {quoted(citation)} does not exist; those that do: {known}."


def _version(plan: DependencyBump | Override, advisory: Advisory, ecosystem: str) -> Iterator[str]:
    """The package is one the advisory names, the version one that it fixes."""
    named = advisory.packages(ecosystem)
    if canonical_name(ecosystem, plan.package) not in named:
        yield (
            f"Package {quoted(plan.package)} is not one that {advisory.id} names for {ecosystem}: "
            f"{', '.join(named) or 'none'}."
        )
        return
    fixed = fixed_versions(advisory, ecosystem, plan.package)
    wanted = f"use one of {', '.join(fixed)} or above" if fixed else "no fixed version is known"
    version = quoted(plan.version)
    # What orders versions reads more than one: of a range that admits the flaw it may see one end.
    exact = served(ecosystem).is_exact(plan.version)
    if not exact or not is_orderable(ecosystem, plan.version):
        yield f"Version {version} is not an exact {ecosystem} version; {wanted}."
    elif is_affected(advisory, ecosystem, plan.package, plan.version):
        yield f"Version {version} of {plan.package} is affected by {advisory.id}; {wanted}."
    elif not fixed or compare_versions(ecosystem, plan.version, fixed[0]) < 0:
        # Not affected because it is older than the flaw: going there would be a downgrade.
        yield f"Version {version} of {plan.package} is below every fixed version; {wanted}."
