"""Validity of a plan: deterministic, always checked, no model call. After an invalid plan the model is
asked again, within the limit of calls; the plan is never passed on.

It can't see whether a bump is a downgrade of *this* repository's version, or whether an overridden package
is a direct dependency. The recipe, which reads the manifests, refuses both (``EcosystemPlugin.apply``).
"""

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from fallback_tier.advisory import (
    Advisory,
    canonical_name,
    compare_versions,
    fixed_versions,
    is_affected,
)
from fallback_tier.advisory.versions import is_orderable, served
from fallback_tier.errors import EditError, RepositoryError
from fallback_tier.files.inputs import parse_toml
from fallback_tier.outcome import DependencyBump, Override, Plan, Refuse, SearchReplace, SourceEdit
from fallback_tier.patch.creation import creation_reason, text_reason
from fallback_tier.patch.edits import new_file_text, replace_in_plan
from fallback_tier.patch.judging import Judging
from fallback_tier.patch.plain_text import misread_reason
from fallback_tier.patch.policy import forbidden_reason, recipe_only_reason
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.prompt.redact import REDACTED, redact_secrets
from fallback_tier.repo import RepoContext
from fallback_tier.syntax import first_error_line

#: The limit of a plan's rationale (UTF-8 bytes): a screenful. Each of its sentences is a claim to be
#: checked.
MAX_RATIONALE_BYTES: Final = 4_096

#: The limit of a plan's citations: three times what a prompt offers.
MAX_CITATIONS: Final = 50

#: How many problems are reported at once: enough for one repair, short enough for the next prompt.
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
    """Return every problem of a plan, each a sentence to act on; empty if it is valid.

    ``snippet_ids`` (``S1`` …) and ``example_ids`` (``E1`` …) may be cited, and the advisory's ids. Never
    raises for a bad plan.
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
    """Return whether this repository is the source of the package whose version the plan raises."""
    if repo.affected is None or not repo.affected.is_own:
        return False
    own_names = {package.name for package in repo.affected.own}
    return not own_names or canonical_name(plugin.name, plan.package) in own_names


def _rationale(plan: Plan) -> Iterator[str]:
    size = len(plan.rationale.encode())
    if size > MAX_RATIONALE_BYTES:
        yield (
            f"`rationale` has {size:,} bytes; the limit is {MAX_RATIONALE_BYTES:,}: say in a few sentences"
            " what the flaw is and why the edits mend it."
        )


def _citations(plan: Plan, offered: frozenset[str]) -> Iterator[str]:
    known_ids = ", ".join(sorted(offered, key=lambda name: (len(name), name))) or "none"
    if len(plan.citations) > MAX_CITATIONS:
        yield (
            f"The plan has {len(plan.citations)} citations; the limit is {MAX_CITATIONS}: name each of"
            f" these at most once: {known_ids}."
        )
        return
    for citation in dict.fromkeys(plan.citations):
        if citation not in offered:
            yield f"Citation {quoted(citation)} does not exist; those that do: {known_ids}."


def _version(plan: DependencyBump | Override, advisory: Advisory, ecosystem: str) -> Iterator[str]:
    """Yield problems unless the advisory names the package, and the version fixes it."""
    packages = advisory.packages(ecosystem)
    if canonical_name(ecosystem, plan.package) not in packages:
        yield (
            f"Package {quoted(plan.package)} is not one that {advisory.id} names for {ecosystem}: "
            f"{', '.join(packages) or 'none'}."
        )
        return
    fixed = fixed_versions(advisory, ecosystem, plan.package)
    advice = f"use one of {', '.join(fixed)} or above" if fixed else "no fixed version is known"
    version = quoted(plan.version)
    # The version order accepts more than exact versions: of a range that includes vulnerable versions it
    # may see one end.
    exact = served(ecosystem).is_exact(plan.version)
    if not exact or not is_orderable(ecosystem, plan.version):
        yield f"Version {version} is not an exact {ecosystem} version; {advice}."
    elif is_affected(advisory, ecosystem, plan.package, plan.version):
        yield f"Version {version} of {plan.package} is affected by {advisory.id}; {advice}."
    elif not fixed or compare_versions(ecosystem, plan.version, fixed[0]) < 0:
        # Not affected because it is older than the vulnerability: that would be a downgrade.
        yield f"Version {version} of {plan.package} is below every fixed version; {advice}."


#: The limit of search/replace edits in one plan. Real fixes have a median of two or three hunks; more than
#: this is a rewrite that a person should see.
MAX_EDITS: Final = 40

#: The limit of the old and the new text of one edit, each (UTF-8 bytes): several screens of code.
MAX_EDIT_BYTES: Final = 16_384

#: The limit of all old and new texts of a plan together (UTF-8 bytes): some 16,000 tokens, more than is
#: reviewed as one fix.
MAX_EDITS_BYTES: Final = 4 * MAX_EDIT_BYTES

#: Characters of TOML that is parsed: a file written by a person has fewer.
MAX_TOML_CHARS: Final = 256 * 1024

#: Longest name, path or line that a problem quotes: enough to recognise it.
_SHOWN_CHARS: Final = 120


def quoted(text: str) -> str:
    """Return a model's text for a problem, bounded. Secrets are removed first: after ``repr`` they would
    not be recognised."""
    text, _ = redact_secrets(text)
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")


def edit_problems(
    edits: Sequence[SearchReplace],
    repo: RepoContext,
    plugin: EcosystemPlugin,
    *,
    may_make_files: bool,
) -> tuple[str, ...]:
    """Return a sentence for every problem of a plan's edits: the first problem of each edit, in order.

    If there is none, return files that parsed and no longer do, or whose new lines read as something else
    (``plain_text``). ``may_make_files``: an edit without ``old`` creates a file. Never raises.
    """
    if len(edits) > MAX_EDITS:
        return (
            f"The plan has {len(edits)} edits; the limit is {MAX_EDITS}: keep the essential ones.",
        )
    size = sum(len(edit.old.encode()) + len(edit.new.encode()) for edit in edits)
    texts = _Texts(repo, plugin, may_make_files, Judging.of(repo))
    problems = [
        f"Edit {number}: {problem}"
        for number, edit in enumerate(edits, start=1)
        if (problem := texts.apply(number, edit)) is not None
    ]
    if size > MAX_EDITS_BYTES:
        problems.append(
            f"The edits have {size:,} bytes together; the limit is {MAX_EDITS_BYTES:,}: shorten `old` and"
            " `new` to the lines that change."
        )
    return tuple(problems or texts.broken())


@dataclass
class _File:
    """An edited file. ``before`` None: it is new."""

    before: str | None
    after: str
    edits: list[int] = field(default_factory=list)


@dataclass
class _Texts:
    """The edited files in memory, each carried from one edit to the next."""

    repo: RepoContext
    plugin: EcosystemPlugin
    may_make_files: bool
    judging: Judging
    files: dict[str, _File] = field(default_factory=dict)

    def apply(self, number: int, edit: SearchReplace) -> str | None:
        """Apply one edit. Return its first problem, or None."""
        if edit.makes_file:
            return self._make(number, edit)
        if edit.path not in self.files:
            problem = self._path(edit.path)
            if problem is not None:
                return problem
            try:
                text = self.repo.read_text(edit.path)
            except RepositoryError as error:
                return str(error)
            self.files[edit.path] = _File(text, text)
        problem = _texts(edit)
        if problem is not None:
            return problem
        file = self.files[edit.path]
        if REDACTED in edit.new and (line := _redacted_line(edit.new, file.before or "")):
            return (
                f"`new` has the line {quoted(line)}, in which {REDACTED} is shown in place of a secret of"
                f" {quoted(edit.path)}: leave that line out of `old` and `new`."
            )
        try:
            file.after = replace_in_plan(file.after, edit).text
        except EditError as error:
            return str(error)
        file.edits.append(number)
        return None

    def _make(self, number: int, edit: SearchReplace) -> str | None:
        """Create a file, all of which is the plan's own code. Return its first problem, or None."""
        name = quoted(edit.path)
        if self.repo.has(edit.path) or edit.path in self.files:
            return (
                f"`old` is empty, which is for a new file, and {name} exists: copy into `old` the text that"
                " `new` replaces, or name another path."
            )
        if not self.may_make_files:
            return f"{name} may not be made: only a source_edit makes a file."
        reason = self._barred(edit.path) or creation_reason(edit.path, self.repo, [*self.files])
        if reason is None and self.repo.tree.entry(PurePosixPath(edit.path)) is not None:
            reason = "something is there that git does not track"
        if reason is None:
            reason = text_reason(edit.new)
        if reason is not None:
            return f"{name} may not be made: {reason}. Edit a file that the prompt shows instead."
        problem = _texts(edit)
        if problem is None:
            self.files[edit.path] = _File(None, new_file_text(edit), [number])
        return problem

    def broken(self) -> list[str]:
        """Return a problem for each file that the edits leave with a new syntax error, or with lines that
        don't read as they run."""
        return [
            problem
            for path, file in self.files.items()
            if (problem := _broken(path, file)) is not None
        ]

    def _path(self, path: str) -> str | None:
        """Return why this path can't be edited, or None: location, then kind, then presence."""
        reason = self._barred(path)
        if reason is not None:
            return f"{quoted(path)} may not be changed: {reason}."
        if not self.repo.has(path):
            return f"{quoted(path)} is not a tracked file: name one that the prompt shows."
        return None

    def _barred(self, path: str) -> str | None:
        return barred_reason(path, self.repo, self.plugin, self.judging)


def barred_reason(
    path: str, repo: RepoContext, plugin: EcosystemPlugin, judging: Judging
) -> str | None:
    """Return why no plan's edit may touch this path, whether or not it exists; or None."""
    reason = forbidden_reason(path) or recipe_only_reason(path)
    if reason is None and (path in repo.manifests or plugin.editable_keys(path) is not None):
        reason = "it is a dependency manifest (use dependency_bump or override)"
    return reason or judging.reason(path)


def _redacted_line(new: str, before: str) -> str | None:
    """Return a line of ``new`` that the prompt shows and the file doesn't have, or None."""
    shown = {line.strip() for line in redact_secrets(before)[0].split("\n")}
    shown -= {line.strip() for line in before.split("\n")}
    return next((line for line in map(str.strip, new.split("\n")) if line in shown), None)


def _texts(edit: SearchReplace) -> str | None:
    """Return what is wrong with an edit's texts, in any file; or None."""
    if edit.old == edit.new:
        return f"`old` and `new` are the same in {quoted(edit.path)}: leave the edit out."
    if max(len(edit.old.encode()), len(edit.new.encode())) > MAX_EDIT_BYTES:
        return (
            f"`old` or `new` is larger than {MAX_EDIT_BYTES:,} bytes: cut it into smaller edits of "
            "the lines that change."
        )
    if "\0" in edit.new:
        return "`new` has a NUL character: git would take the file for binary. Leave it out."
    return None


def _broken(path: str, file: _File) -> str | None:
    *earlier, last = file.edits
    subject = (
        f"Edits {', '.join(map(str, earlier))} and {last} leave"
        if earlier
        else f"Edit {last} leaves"
    )
    line = _error_line(file.after, path)
    if line is None or _error_line(file.before or "", path) is not None:
        why = misread_reason(path, file.before, file.after)
        return why and f"{subject} {quoted(path)} with text that does not read as it runs: {why}."
    # Redacted as a part of its file: a line alone may not show that a value in it is a secret.
    lines = redact_secrets(file.after)[0].split("\n")
    shown = lines[min(line, len(lines)) - 1].strip()
    return (
        f"{subject} {quoted(path)} with a syntax error at line {line}: {quoted(shown)}. Send code in the"
        " file's language that is complete in itself."
    )


def _error_line(text: str, path: str) -> int | None:
    """Return the line (from 1) of the first syntax error; None: it parses, or no parser here can tell."""
    suffix, text = PurePosixPath(path).suffix.lower(), text.removeprefix("\ufeff")
    try:
        if suffix == ".json":
            json.loads(text)
        elif suffix == ".toml":
            if len(text) <= MAX_TOML_CHARS:
                parse_toml(text)
        else:
            return first_error_line(text, suffix)
    except json.JSONDecodeError as error:
        return error.lineno
    except tomllib.TOMLDecodeError as error:
        # Python 3.11 reports the line only in its message ("… (at line 3, column 5)", "… (at end of
        # document)").
        line = str(error).rpartition("(at line ")[2].partition(",")[0]
        return int(line) if line.isdecimal() else text.count("\n") + 1
    except (RecursionError, ValueError):
        return None  # deeper nesting, or larger numbers, than these parsers accept: they can't tell
    return None
