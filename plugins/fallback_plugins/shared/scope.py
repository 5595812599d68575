"""Projects outside of the folders that a person limits a fix to (``--path``, ADR-0143)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix, unknown, whole_project_left
from fallback_plugins.shared.resolution import Resolution
from fallback_tier.advisory import Advisory
from fallback_tier.outcome import Left, Outline


@dataclass(frozen=True)
class LeftAsItIs:
    """A project that no step is tried for. What of it is affected (``found``) is left by name, so that
    nobody calls the repository fixed, or not affected."""

    path: str
    found: Callable[[Advisory], Iterable[Left]]

    def resolve(
        self, advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Return what is left; None: nothing of it is affected. Raises as ``Project.resolve``."""
        left = tuple(self.found(advisory))
        return ProjectFix(texts={}, moves=(), left=left) if left else None


def left_of(resolution: Resolution, path: str, advisory: Advisory) -> Iterator[Left]:
    """Yield what is affected of all that a project installs, and what of that is unknown."""
    ecosystem = resolution.ecosystem
    packages = {*advisory.packages(ecosystem)}
    held = {(one.name, one.version) for one in resolution.affected(advisory)}
    yield from outside(path, ecosystem, advisory, held)
    for part in resolution.unresolved:
        if not part.names or part.names & packages:
            step, blockers = part.next_step, part.blockers
            why = unknown(path, part.reason, next_step=step, blockers=blockers)
            yield whole_project_left(path, why)


def outside(
    path: str, ecosystem: str, advisory: Advisory, copies: Collection[tuple[str, str]]
) -> Iterator[Left]:
    """Yield affected copies (package, version) of a project outside of the folders as something left."""
    for package, version in sorted(copies):
        ids = advisory.ids_affecting(ecosystem, package, version)
        yield _left(path, package, version, ids)


def left_as_it_is(outline: Outline) -> Outline:
    """Return the outline of such a project: each step that would be tried is something left."""
    moves = (_left(it.manifest, it.package, ", ".join(it.before)) for it in outline.moves)
    return outline.model_copy(update={"moves": (), "left": (*outline.left, *moves)})


def _left(path: str, package: str, versions: str, ids: tuple[str, ...] = ()) -> Left:
    return Left(
        package=package,
        manifest=path,
        advisory_ids=ids,
        reason=RefusalReason.OUTSIDE_PATHS,
        sentence=f"{path} holds {package} {versions}, outside of the folders of --path.",
        next_step=f"Fix it with `--path {PurePosixPath(path).parent}`, or without --path.",
    )
