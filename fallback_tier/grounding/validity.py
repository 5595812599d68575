"""Validity of a plan: deterministic, always checked, no model call. An invalid plan is asked again
within the call ceiling and never handed on.

What it can't see: whether a bump is a downgrade of *this* repository's version. The recipe, which
reads that version, refuses it (``EcosystemPlugin.apply``).
"""

from collections.abc import Iterator, Sequence

from fallback_tier.advisory import (
    Advisory,
    canonical_name,
    compare_versions,
    fixed_versions,
    is_affected,
)
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import EditError, RepositoryError
from fallback_tier.outcome import DependencyBump, Override, Plan, Refuse, SearchReplace
from fallback_tier.patch.edits import replace_once
from fallback_tier.patch.policy import forbidden_reason, recipe_only_reason
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

#: Search/replace edits of one plan. Real fixes have a median of two or three hunks; what needs more
#: than this is a rewrite that a person should see.
MAX_EDITS = 40

#: Old and new text of one edit, each (UTF-8 bytes): several screens of code.
MAX_EDIT_BYTES = 16_384

#: Longest name or path that a problem quotes back: enough to recognise what was meant.
_SHOWN_CHARS = 120


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
    citation, beside the advisory's own id. Never raises for a bad plan.
    """
    problems = list(_citations(plan, snippet_ids | example_ids | {advisory.id}))
    if isinstance(plan, Refuse):
        if not plan.reason.strip():
            problems.append("`reason` is empty: say in one sentence why no safe fix can be made.")
        return tuple(problems)
    if isinstance(plan, Override):
        problems.append(
            "`override` is not supported: raise the dependency itself with `dependency_bump`, edit "
            "the source with `source_edit`, or `refuse`."
        )
    elif isinstance(plan, DependencyBump):
        problems += _bump(plan, advisory, plugin.name)
    problems += _edits(plan.edits, repo, plugin)
    return tuple(problems)


def _citations(plan: Plan, offered: frozenset[str]) -> Iterator[str]:
    for citation in dict.fromkeys(plan.citations):
        if citation not in offered:
            known = ", ".join(sorted(offered, key=lambda name: (len(name), name))) or "none"
            yield f"Citation {_quoted(citation)} does not exist; those that do: {known}."


def _bump(plan: DependencyBump, advisory: Advisory, ecosystem: str) -> Iterator[str]:
    """The package is one the advisory names, the version one that it fixes."""
    named = advisory.packages(ecosystem)
    if canonical_name(ecosystem, plan.package) not in named:
        yield (
            f"Package {_quoted(plan.package)} is not one that {advisory.id} names for {ecosystem}: "
            f"{', '.join(named) or 'none'}."
        )
        return
    fixed = fixed_versions(advisory, ecosystem, plan.package)
    wanted = f"use one of {', '.join(fixed)} or above" if fixed else "no fixed version is known"
    version = _quoted(plan.version)
    if not is_orderable(ecosystem, plan.version):
        yield f"Version {version} is not an exact {ecosystem} version; {wanted}."
    elif is_affected(advisory, ecosystem, plan.package, plan.version):
        yield f"Version {version} of {plan.package} is affected by {advisory.id}; {wanted}."
    elif not fixed or compare_versions(ecosystem, plan.version, fixed[0]) < 0:
        # Not affected because it is older than the flaw: going there would be a downgrade.
        yield f"Version {version} of {plan.package} is below every fixed version; {wanted}."


def _edits(
    edits: Sequence[SearchReplace], repo: RepoContext, plugin: EcosystemPlugin
) -> Iterator[str]:
    if len(edits) > MAX_EDITS:
        yield f"The plan has {len(edits)} edits; the limit is {MAX_EDITS}: keep the essential ones."
        return
    texts: dict[str, str] = {}
    for number, edit in enumerate(edits, start=1):
        problem = _edit(edit, texts, repo, plugin)
        if problem is not None:
            yield f"Edit {number}: {problem}"


def _edit(
    edit: SearchReplace, texts: dict[str, str], repo: RepoContext, plugin: EcosystemPlugin
) -> str | None:
    """The first problem of one edit. ``texts`` carries each file from one edit to the next."""
    if edit.path not in texts:
        problem = _path(edit.path, repo, plugin)
        if problem is not None:
            return problem
        try:
            texts[edit.path] = repo.read_text(edit.path)
        except RepositoryError as error:
            return str(error)
    if edit.old == edit.new:
        return f"`old` and `new` are the same in {_quoted(edit.path)}: leave the edit out."
    if max(len(edit.old.encode()), len(edit.new.encode())) > MAX_EDIT_BYTES:
        return (
            f"`old` or `new` is larger than {MAX_EDIT_BYTES:,} bytes: cut it into smaller edits of "
            "the lines that change."
        )
    if "\0" in edit.new:
        return "`new` has a NUL character: git would take the file for binary. Leave it out."
    try:
        texts[edit.path] = replace_once(texts[edit.path], edit)
    except EditError as error:
        return str(error)
    return None


def _path(path: str, repo: RepoContext, plugin: EcosystemPlugin) -> str | None:
    """Why this path can't be edited: place, then kind, then presence."""
    reason = forbidden_reason(path)
    if reason is not None:
        return f"{_quoted(path)} may not be changed: {reason}."
    reason = recipe_only_reason(path)
    if reason is None and (path in repo.manifests or plugin.editable_keys(path) is not None):
        reason = "it is a dependency manifest (use dependency_bump)"
    if reason is not None:
        return f"{_quoted(path)} may not be changed: {reason}."
    if not repo.has(path):
        return f"{_quoted(path)} is not a tracked file: name one that the prompt shows."
    return None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")
