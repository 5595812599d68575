"""The fix of a repository from those of its projects, held against what a fix must never do."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from types import MappingProxyType
from typing import Protocol

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.identity import OTHER_LOCKS
from fallback_plugins.shared.ladder.declines import does_not_serve, refuse, whole_project_left
from fallback_plugins.shared.ladder.strategy import worse
from fallback_plugins.shared.ladder.weight import major_steps
from fallback_plugins.shared.tree import DependencyTree, cleared_paths, downgraded
from fallback_tier.advisory import (
    Advisory,
    AdvisoryBundle,
    compare_versions,
    is_affected,
)
from fallback_tier.advisory.versions import is_major_step, is_orderable
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.files.source_paths import is_lock
from fallback_tier.outcome import (
    ChangedDeclaration,
    ClearedPath,
    FileChange,
    Left,
    Move,
    RecipeResult,
    declined_by,
)
from fallback_tier.repo import RepoContext

#: The texts of no fix.
NO_TEXTS: Mapping[str, str] = MappingProxyType({})

#: What is around a declaration in its line.
_AROUND = " \t,\\"

#: Of a changed line (characters).
MAX_SHOWN = 120

#: Said in every result that was made with ``Settings.offline``.
OFFLINE_NOTE = "Offline: it is unknown whether a chosen release was yanked or deprecated."

#: Weaknesses of code that was written to do harm: embedded malicious code, Trojan horse, worm.
_MALICIOUS = frozenset({"CWE-506", "CWE-507", "CWE-509"})


@dataclass(frozen=True)
class ProjectFix:
    """What resolving did to one project: new texts by path, and the account of it.

    ``before``/``after`` are the resolved trees; None where only pins could be read. ``cleared`` is taken
    from the trees where there are two; a project without trees gives its own.
    """

    texts: Mapping[str, str]
    moves: tuple[Move, ...]
    left: tuple[Left, ...] = ()
    before: DependencyTree | None = None
    after: DependencyTree | None = None
    cleared: tuple[ClearedPath, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def proof_level(self) -> ProofLevel:
        """A client resolved it, or only declared pins could be read."""
        return ProofLevel.PINS if self.after is None else ProofLevel.RESOLVED_TREE

    @property
    def brought_in(self) -> frozenset[tuple[str, str]]:
        """The releases (package, version) that are new; without trees, those that were chosen."""
        chosen = {(it.package, it.after) for it in self.moves if it.after is not None}
        raised = {(name, at) for it in self.moves for name, _, at in map(_parted, it.raised) if at}
        if self.before is None or self.after is None:
            return frozenset(chosen | raised)
        old, new = (
            {(it.name, it.version) for it in tree.nodes.values()}
            for tree in (self.before, self.after)
        )
        return frozenset(new - old)


class Project(Protocol):
    """One set of files that a client resolves together. ``path`` names it in every message."""

    @property
    def path(self) -> str:
        """The lock, or the manifest where there is none."""
        ...

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Bring the project out of the advisory's (or bundle's) reach; None: it isn't affected.

        Package by package, cheapest step first; what can't be fixed is in ``left``. ``patched``: the texts
        of the projects that are fixed already, by path: what this one reads of them counts as it is there.
        Raises RecipeError where the project as a whole can't be read or resolved, ToolError.
        """
        ...


class _AgedProject(Project, Protocol):
    @property
    def ages(self) -> Ages: ...


@dataclass(frozen=True)
class HeldToAges:
    """A project whose fix brings in nothing that is younger than its rules allow (ADR-0110)."""

    project: _AgedProject

    @property
    def path(self) -> str:
        """The project's own."""
        return self.project.path

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """As the project's. If a safe release exists and is too new, that is why a package is left."""
        try:
            fix = self.project.resolve(advisory, patched)
        except RecipeError as error:
            behind = self.project.ages.reason_behind(error.reason, error.problem)
            if behind is None:
                raise
            raise behind from error
        if fix is None:
            return None
        ages = self.project.ages
        too_new = ages.first_problem(fix.brought_in)
        if too_new is not None:
            raise too_new
        left = tuple(map(self._explained, fix.left))
        return replace(fix, left=left, notes=(*fix.notes, *ages.notes(fix.brought_in)))

    def _explained(self, left: Left) -> Left:
        error = self.project.ages.reason_behind(left.reason, left.sentence, left.package)
        if error is None:
            return left
        why = {"reason": error.problem, "blockers": error.blockers}
        declined = (
            it.model_copy(update=why) if it.reason == left.sentence else it for it in left.declined
        )
        return left.model_copy(
            update={
                "reason": error.reason,
                "sentence": error.problem,
                "next_step": error.next_step,
                "declined": tuple(declined) or declined_by(error),
            }
        )


def combined(
    ecosystem: str, advisory: Advisory, repo: RepoContext, fixes: Sequence[ProjectFix]
) -> RecipeResult:
    """One result from the fixes of a repository's projects.

    Raises RecipeError: something is left of a single advisory, nothing was fixed, nothing changed, or a
    fix did what none may do (a downgrade, a version that is itself affected).
    """
    left = tuple(item for fix in fixes for item in fix.left)
    moves = tuple(move for fix in fixes for move in fix.moves)
    if left and (not moves or not isinstance(advisory, AdvisoryBundle)):
        refuse(left[0])
    texts = {path: text for fix in fixes for path, text in fix.texts.items()}
    changes = tuple(
        FileChange(path=path, before=before, after=after)
        for path, after in sorted(texts.items())
        if (before := repo.read_text(path)) != after
    )
    if not changes or not moves:
        raise RecipeError(
            RefusalReason.NOTHING_CHANGED,
            "The recipe changed no file, so nothing is fixed.",
            next_step="Look at what pins the package.",
        )
    for fix in fixes:
        _check(ecosystem, advisory, fix)
    pins = any(fix.proof_level is ProofLevel.PINS for fix in fixes)
    return RecipeResult(
        changes=changes,
        proof_level=ProofLevel.PINS if pins else ProofLevel.RESOLVED_TREE,
        moves=moves,
        declarations=tuple(it for change in changes for it in _declarations(change, moves)),
        cleared=tuple(path for fix in fixes for path in _cleared(ecosystem, advisory, fix)),
        left=left,
        notes=tuple(
            dict.fromkeys((*_notes(ecosystem, repo, fixes), *_unreached(advisory, repo, moves)))
        ),
        tree_before=_listing(fix.before for fix in fixes),
        tree_after=_listing(fix.after for fix in fixes),
    )


def resolve_all(
    advisory: Advisory, projects: Iterable[Project], *, nothing: Callable[[], RecipeError]
) -> list[ProjectFix]:
    """Resolve every project. A partial fix is no fix: a project that can't be resolved stops a single
    advisory, and is ``left`` for a bundle. ``nothing`` says why there was nothing to do."""
    fixes: list[ProjectFix] = []
    patched: dict[str, str] = {}
    for project in projects:
        try:
            fix = project.resolve(advisory, patched)
        except (RecipeError, RepositoryError) as error:
            if not isinstance(advisory, AdvisoryBundle):
                raise
            fix = ProjectFix(texts={}, moves=(), left=(whole_project_left(project.path, error),))
        if fix is not None:
            fixes.append(fix)
            patched |= fix.texts
    if not fixes:
        raise nothing()
    return fixes


def _declarations(change: FileChange, moves: Sequence[Move]) -> Iterator[ChangedDeclaration]:
    """The changed lines of a manifest that name a package which the moves raise."""
    if is_lock(change.path) or change.after is None:
        return
    raised = (one.rpartition(" ")[0] for move in moves for one in move.raised)
    names = tuple(dict.fromkeys((*(move.package for move in moves), *raised)))
    old, new = ((change.before or "").splitlines(), change.after.splitlines())
    for kind, start, end, first, last in SequenceMatcher(None, old, new).get_opcodes():
        if kind in {"replace", "insert"}:
            pairs = zip_longest(old[start:end], new[first:last], fillvalue="")
            for number, (before, after) in enumerate(pairs, first + 1):
                package = next((it for it in names if _names(after, it)), None)
                if package is not None:
                    short, now = _differing(before.strip(_AROUND), after.strip(_AROUND))
                    yield ChangedDeclaration(
                        package=package, file=change.path, line=number, before=short, after=now
                    )


def _names(line: str, package: str) -> bool:
    name = re.sub(r"[-_.]+", "[-_.]+", re.escape(package).replace("\\", ""))
    return re.search(rf"(?<![\w@/.-]){name}(?![\w/-])", line, re.IGNORECASE) is not None


def _differing(before: str, after: str) -> tuple[str, str]:
    """Two lines; of longer ones the part around what differs."""
    start = 0
    if max(len(before), len(after)) > MAX_SHOWN:
        same = (one == other for one, other in zip(before, after, strict=False))
        start = max(0, len([*takewhile(bool, same)]) - MAX_SHOWN // 3)
    return before[start : start + MAX_SHOWN], after[start : start + MAX_SHOWN]


def _cleared(ecosystem: str, advisory: Advisory, fix: ProjectFix) -> tuple[ClearedPath, ...]:
    if fix.before is None or fix.after is None:
        return fix.cleared
    return cleared_paths(fix.before, fix.after, advisory, ecosystem, fix.after.source)


def _check(ecosystem: str, advisory: Advisory, fix: ProjectFix) -> None:
    """Raise RecipeError if a fix does what none may, whichever step made it."""
    for move in fix.moves:
        _check_move(ecosystem, advisory, move)
    if fix.before is None or fix.after is None:
        return
    lower = downgraded(fix.before, fix.after, ecosystem)
    if lower:
        name, highest, held = lower
        raise does_not_serve(worse(fix.after, name, f"would go down from {highest} to {held}"))
    kept = {item.package for item in fix.left}
    old = {(node.name, node.version) for node in fix.before.nodes.values()}
    for node in fix.after.affected(advisory, ecosystem):
        if node.name in kept and (node.name, node.version) in old:
            continue
        ids = ", ".join(advisory.ids_affecting(ecosystem, node.name, node.version))
        raise does_not_serve(worse(fix.after, node.label, f"would stay, affected by {ids}"))


def _check_move(ecosystem: str, advisory: Advisory, move: Move) -> None:
    if move.after is None:
        return
    if is_affected(advisory, ecosystem, move.package, move.after):
        raise does_not_serve(f"{move.package} {move.after} is itself affected.")
    for version in move.before:
        comparable = is_orderable(ecosystem, version) and is_orderable(ecosystem, move.after)
        if comparable and compare_versions(ecosystem, move.after, version) <= 0:
            raise does_not_serve(f"{move.package} would go from {version} to {move.after}.")


def _notes(ecosystem: str, repo: RepoContext, fixes: Sequence[ProjectFix]) -> Iterator[str]:
    if repo.settings.offline:
        yield OFFLINE_NOTE
    if repo.settings.prefer is not None:
        yield f"A person preferred the {repo.settings.prefer.label}."
    for fix in fixes:
        for package, old, new in _major_steps(ecosystem, fix):
            yield f"{package} goes from {old} to {new}, a major step: look at what it changed."
        for move in fix.moves:
            if move.range_admits:
                yield (
                    f"{move.manifest} declared a range of {move.package} that admits safe releases too, and"
                    " no lock chooses one: now it admits no affected one."
                )
        yield from fix.notes


def _unreached(advisory: Advisory, repo: RepoContext, moves: Sequence[Move]) -> Iterator[str]:
    """What no version change reaches: what a malicious release did, and packages of other ecosystems."""
    moved = {move.package: ", ".join(move.before) for move in moves}
    for record in advisory.records:
        named = {name for ecosystem in record.ecosystems for name in record.packages(ecosystem)}
        malicious = _MALICIOUS & set(record.cwe) or any(
            it.startswith("MAL-") for it in (record.id, *record.aliases)
        )
        for package in sorted(named & moved.keys()) if malicious else ():
            yield (
                f"{record.id} is about malicious code, which may have run wherever {package}"
                f" {moved[package]} was installed: rotate the secrets that were in reach there."
            )
        for ecosystem in record.ecosystems:
            locks = OTHER_LOCKS.get(ecosystem.partition(":")[0], frozenset())
            for path in repo.tracked_files:
                if posixpath.basename(path) in locks:
                    text = repo.glimpse(path) or ""
                    for package in record.packages(ecosystem):
                        if re.search(rf"(?<![\w.-]){re.escape(package)}(?![\w-])", text):
                            yield (
                                f"{path} names {package} of {ecosystem}, which {record.id} covers too and"
                                " which is not looked at here: raise it with that ecosystem's client."
                            )


def _major_steps(ecosystem: str, fix: ProjectFix) -> Iterator[tuple[str, str, str]]:
    """What the project itself asks for and makes a major step."""
    if fix.before is not None and fix.after is not None:
        yield from major_steps(ecosystem, fix.before, fix.after)
        return
    for move in fix.moves:
        for old in move.before:
            if move.after and is_major_step(ecosystem, old, move.after):
                yield move.package, old, move.after


def _parted(label: str) -> tuple[str, str, str]:
    return label.rpartition(" ")


def _listing(trees: Iterable[DependencyTree | None]) -> str:
    return "".join(f"# {tree.source}\n{tree.listing()}" for tree in trees if tree is not None)
