"""Projects outside of the folders that a person limits a fix to (``--path``, ADR-0143)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix
from fallback_plugins.shared.resolution import Resolution
from fallback_plugins.shared.unread import Unread
from fallback_tier.advisory import Advisory, AdvisoryBundle
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.outcome import OUTSIDE, Left, Outline, UnreadItem


@dataclass(frozen=True)
class LeftAsItIs:
    """A project for which no step is tried. What is affected in it (``found``), or unknown, is listed as
    left, so that the repository is called neither fixed nor unaffected."""

    path: str
    ecosystem: str
    found: Callable[[Advisory], Iterable[Left]]

    def resolve(
        self, advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Return what is left; None if nothing in the project is affected. Raises ToolError.

        A project that can't be read or resolved doesn't prevent a fix of the others: it is left.
        """
        try:
            left = tuple(self.found(advisory))
        except (RecipeError, RepositoryError) as error:
            packages = advisory.packages(self.ecosystem)
            items = Unread(self.path, error, may_hold=True).items
            left = tuple(_unknown(self.path, self.ecosystem, advisory, packages, items))
        return ProjectFix(texts={}, moves=(), left=left) if left else None


def left_of(resolution: Resolution, path: str, advisory: Advisory) -> Iterator[Left]:
    """Yield the affected packages that a project installs, and those of which that is unknown."""
    ecosystem = resolution.ecosystem
    copies = {(package.name, package.version) for package in resolution.affected(advisory)}
    yield from outside(path, ecosystem, advisory, copies)
    covered = {*advisory.packages(ecosystem)}
    for part in resolution.unresolved:
        packages = sorted(covered & part.names if part.names else covered)
        item = UnreadItem(path=path, reason=part.reason, next_step=part.next_step)
        yield from _unknown(path, ecosystem, advisory, packages, (item,))


def outside(
    path: str, ecosystem: str, advisory: Advisory, copies: Collection[tuple[str, str]]
) -> Iterator[Left]:
    """Yield affected copies (package, version) of a project outside of the folders as something left."""
    for package, version in sorted(copies):
        ids = advisory.ids_affecting(ecosystem, package, version)
        yield _left(path, package, version, ids)


def left_as_it_is(outline: Outline) -> Outline:
    """Return the outline of such a project, with each step that would be tried as something left."""
    moves = (_left(move.manifest, move.package, ", ".join(move.before)) for move in outline.moves)
    return outline.model_copy(update={"moves": (), "left": (*outline.left, *moves)})


def _left(path: str, package: str, versions: str, ids: tuple[str, ...] = ()) -> Left:
    folder = str(PurePosixPath(path).parent)
    step = "Fix it without --path." if folder == "." else f"Fix it with `--path {folder}`."
    return Left(
        package=package,
        manifest=path,
        advisory_ids=ids,
        reason=RefusalReason.OUTSIDE_PATHS,
        sentence=f"{path} holds {package} {versions}, outside of the folders of --path.",
        next_step=step,
        kind=OUTSIDE,
    )


def _unknown(
    path: str,
    ecosystem: str,
    advisory: Advisory,
    packages: Iterable[str],
    unread: tuple[UnreadItem, ...],
) -> Iterator[Left]:
    members = advisory.members if isinstance(advisory, AdvisoryBundle) else (advisory,)
    for package in packages:
        yield Left(
            package=package,
            manifest=path,
            advisory_ids=tuple(
                member.id for member in members if package in member.packages(ecosystem)
            ),
            reason=RefusalReason.UNKNOWN,
            sentence=f"Whether {path}, outside of the folders of --path, installs {package} is unknown: "
            f"{unread[0].reason}",
            next_step=unread[0].next_step,
            unread=unread,
            kind=OUTSIDE,
        )
