"""Manifests and locks that can't be read: which of them a fix can do without, and the notes on them.

The content of such a file is unknown, so nothing is called clean because of it. But one broken fixture
does not prevent a fix of another project. A project is left out, by name, if nothing shows that it is
affected: no other file of it names the package, nor does the visible part of the unreadable file. In
tests, examples and the like that visible part does not count: nothing is installed from it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.ladder import (
    NO_TEXTS,
    Project,
    ProjectFix,
    error_of,
    whole_project_left,
)
from fallback_tier.advisory import Advisory, AdvisoryBundle
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.limits import MAX_UNREAD_LISTED
from fallback_tier.outcome import Blocker, Left, UnreadItem
from fallback_tier.repo import RepoContext

#: The errors of a file that can't be read, or can't be parsed.
Unreadable = RecipeError | RepositoryError

#: Files left out that a fix names one by one; a repository of test data can have thousands.
_NAMED = 5


_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Unread:
    """A file that can't be read, and why. ``may_hold``: whether it may contain the package, as far as is
    known."""

    path: str
    error: Unreadable
    may_hold: bool

    @property
    def items(self) -> tuple[UnreadItem, ...]:
        """The unread files as results list them: the error's own list, if it has one."""
        reason, step = self.error.problem, self.error.next_step
        listed = self.error.unread if isinstance(self.error, RecipeError) else ()
        return listed or (UnreadItem(path=self.path, reason=reason, next_step=step),)

    def unknown(self, others: Iterable["Unread"], sentence: str = "") -> RecipeError:
        """Return the refusal to call a project clean that can't be read."""
        return RecipeError(
            RefusalReason.UNKNOWN,
            sentence or self.error.problem,
            next_step=self.error.next_step,
            unread=[item for unread in (self, *others) for item in unread.items],
            blockers=self.blockers,
        )

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """Return the error's blockers, or this file as one."""
        blockers = self.error.blockers if isinstance(self.error, RecipeError) else ()
        why, kind = self.error.problem.rstrip("."), BlockerKind.UNREADABLE
        return blockers or (Blocker(kind=kind, constraint=why, file=self.path),)


@dataclass(frozen=True)
class Reader:
    """Finder of the files of a repository that can't be read, in a search for these packages.

    ``kind``: the kind of a path, None if it is not a manifest; ``naming``: whether a text names a package.
    ``parse`` raises RecipeError for a text (of a path) that its client could not read either.
    """

    repo: RepoContext
    packages: Sequence[str]
    kind: Callable[[str], object]
    naming: Callable[[str, Sequence[str]], bool]
    parse: Callable[[str, str], object]

    def names(self, text: str) -> bool:
        """Return whether a text names one of the packages."""
        return self.naming(text, self.packages)

    def look(self, paths: Iterable[str]) -> tuple[list[Unread], bool]:
        """Return a project's files that can't be read, and whether it is affected, as far as can be
        seen."""
        unreadable: list[Unread] = []
        affected = False
        for path in paths:
            try:
                text = self.repo.read_text(path)
                self.parse(path, text)
            except (RecipeError, RepositoryError) as error:
                unreadable.append(Unread(path, error, self.may_hold(path)))
                if not affected and not is_aside(path) and self.repo.leads_to(path) is None:
                    seen = self.repo.glimpse(path)
                    affected = seen is not None and self.names(seen)
            else:
                affected = affected or self.names(text)
        return unreadable, affected

    def may_hold(self, path: str) -> bool:
        """Return whether a file that can't be read may bring in one of the packages, which it need not name
        for that. A link to a readable manifest adds nothing; of a file for tests or examples, only the
        visible part counts."""
        seen = self.repo.glimpse(path)
        if seen is None:
            return True
        led_to = self.repo.leads_to(path)
        if led_to is not None and self.kind(led_to) is not None:
            return False
        return not is_aside(path) or self.names(seen)


@dataclass(frozen=True)
class LeftOut:
    """The files that were left out of the projects."""

    reader: Reader
    found: dict[str, Unread] = field(default_factory=dict)
    #: Projects among tests and examples that can't be fixed, by path: they stop no fix of another.
    aside: dict[str, Unread] = field(default_factory=dict)
    #: Refusals by a client of tests and examples, by path: they install nothing, and are named in notes.
    refused: dict[str, Unreadable] = field(default_factory=dict)

    def refusal(self, paths: Iterable[str], error: Unreadable) -> Unreadable | None:
        """Return the refusal of the project of these files, which failed with ``error``: by the file that
        can't be read, if there is one. Return None if the project is left out, which is recorded here."""
        unreadable, affected = self.reader.look(paths)
        if not unreadable:
            return error
        if affected:
            first, *others = unreadable
            return first.unknown(others)
        self.found.update({unread.path: unread for unread in unreadable if unread.may_hold})
        return None

    def set_aside(self, path: str, error: Unreadable) -> bool:
        """Record that a project can't be fixed. Return False if it is not among tests or examples."""
        if is_aside(path):
            self.aside[path] = Unread(path, error, may_hold=True)
        return path in self.aside

    def note(self, path: str, error: Unreadable) -> None:
        """Record a file that is left as it is for another reason, and may contain anything."""
        self.found[path] = Unread(path, error, may_hold=True)

    def check(self, paths: Iterable[str]) -> None:
        """Raise RecipeError, RepositoryError for a file of an affected project that can't be read."""
        unreadable, _ = self.reader.look(paths)
        if unreadable:
            raise unreadable[0].error

    def left(
        self,
        project: str,
        files: Sequence[str],
        error: Unreadable,
        advisory: Advisory,
        ecosystem: str,
    ) -> Left | None:
        """Return the ``refusal`` as something left of the project; for a bundle, with the members whose
        packages the project's files name."""
        refusal = self.refusal(files, error)
        if refusal is None:
            return None
        left = whole_project_left(project, refusal)
        if refusal is error or not isinstance(advisory, AdvisoryBundle):
            return left
        ids = [
            member.id
            for member in advisory.members
            if replace(self.reader, packages=member.packages(ecosystem)).look(files)[1]
        ]
        return left.model_copy(update={"advisory_ids": tuple(ids)})

    @property
    def clause(self) -> str:
        """A clause for a verdict's sentence; empty if all was read."""
        names = ", ".join([*self.found][:_NAMED])
        return f"; can't be read here, as at the base commit: {names}" if names else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for a fix of other projects."""
        notes = [
            f"Left as it is, and not judged: {unread.error.problem} What it would install is unknown."
            for unread in [*self.found.values()][:_NAMED]
        ]
        if more := len(self.found) - len(notes):
            notes.append(f"{more} more manifests or locks could not be read.")
        aside = [*self.aside.values()][:_NAMED]
        notes += [f"{unread.path} is left as it is. {unread.error.problem}" for unread in aside]
        for error in [*self.refused.values()][:_NAMED]:
            notes.append(f"Left as it is, and not judged: {error.problem}")
        return tuple(notes)

    def noted(self, fixes: Sequence[ProjectFix]) -> list[ProjectFix]:
        """Return the fixes of other projects, with the notes."""
        first, *rest = fixes
        return [replace(first, notes=(*first.notes, *self.notes)), *rest]

    def or_else(self, nothing: RecipeError) -> RecipeError:
        """Return ``nothing`` if all was read; otherwise the refusal that lists what was not, as unknown is
        not absent. If no other project is fixed, a project among tests that can't be fixed is refused."""
        for unread in self.aside.values():
            return unread.error if isinstance(unread.error, RecipeError) else unread.unknown(())
        if not self.found:
            return nothing
        first, *others = self.found.values()
        return first.unknown(
            others,
            f"{first.error.problem} Whether it requires an affected version is unknown; nothing else "
            "here does.",
        )

    @property
    def items(self) -> tuple[UnreadItem, ...]:
        """Return what was left out, as results list it."""
        items = (
            item for unread in (*self.aside.values(), *self.found.values()) for item in unread.items
        )
        return tuple(items)[:MAX_UNREAD_LISTED]


@dataclass(frozen=True)
class Lenient:
    """A project that is left out, not refused, if it can't be read and nothing shows it affected, or if it
    can't be fixed and is among tests or examples."""

    project: Project
    files: Sequence[str]
    left_out: LeftOut

    @property
    def path(self) -> str:
        """The project's path."""
        return self.project.path

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Resolve the project. Return None also if it is left out. If a file can't be read, it is reported
        as the reason for what can't be fixed: any other reason only follows from it."""
        try:
            fix = self.project.resolve(advisory, patched)
            if fix is not None and any(item.is_not_resolved for item in fix.left):
                return fix  # not all steps were tried, so this is no reason to leave it out
            if fix is not None and fix.left:
                self.left_out.check(self.files)
        except (RecipeError, RepositoryError) as error:
            refusal = self.left_out.refusal(self.files, error)
            if refusal is not None and not self.left_out.set_aside(self.path, refusal):
                raise refusal from error
            return None
        if fix is not None and fix.left:
            return None if self.left_out.set_aside(self.path, error_of(fix.left[0])) else fix
        return fix


def surveyed(
    package: str,
    base: RepoContext,
    patched: RepoContext,
    survey: Callable[[RepoContext, str, LeftOut], _Found],
    left_out: Callable[[Sequence[str], RepoContext], LeftOut],
) -> tuple[_Found | None, str]:
    """Return the result of a survey of a package in a patched tree, and a clause on what was left out.

    Return None and a reason if it is unknown, as at the base commit. Raises RecipeError, RepositoryError if
    the base commit's files can be read and the patched ones can't: that is caused by the patch.
    """
    unread = left_out((package,), patched)
    before = left_out((package,), base)
    try:
        result = survey(patched, package, unread)
    except (RecipeError, RepositoryError) as error:
        try:
            survey(base, package, before)
        except (RecipeError, RepositoryError):
            return None, error.problem
        raise
    if unread.found:
        survey(base, package, before)
        for path in unread.found.keys() - before.found.keys():
            raise unread.found[path].error
    return result, unread.clause
