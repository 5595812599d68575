"""The parts of a run over several advisories: how each ended, and why a proved one is not delivered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fallback_tier.advisory import Advisory
from fallback_tier.gates.result import FixResult, WithPatch
from fallback_tier.outcome import Applied


@dataclass(frozen=True)
class Part:
    """One ecosystem's patch, or that of one package which gates refused, and how its fix ended.

    ``held_back``: why a proved patch is not delivered. ``speaks_for``: those of its advisories whose end it
    is; None: all.
    """

    ecosystem: str
    advisory: Advisory
    result: FixResult
    held_back: str | None = None
    speaks_for: tuple[str, ...] | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The advisories whose end it is."""
        return self.advisory.ids if self.speaks_for is None else self.speaks_for

    @property
    def application(self) -> Applied | None:
        """The patch to deliver, if there is one."""
        return None if self.fixed is None else self.fixed[0].application

    @property
    def fixed(self) -> tuple[WithPatch, Advisory] | None:
        """The fix that is handed over with it."""
        if isinstance(self.result, WithPatch) and self.held_back is None:
            return self.result, self.advisory
        return None


def held_back(parts: Sequence[Part], *, whole: bool) -> list[Part]:
    """The parts, and of the proved ones why some may not be delivered.

    A file that two patches change was proved in neither's final form. ``whole``: the one advisory that was
    given, of two ecosystems, is delivered in both or not at all: a partial fix is no fix.
    """
    done: list[Part] = []
    for part in parts:
        done = [*done, _unless_touched(part, done)]
    return [_unless_partial(part, done) for part in done] if whole else done


def _unless_touched(part: Part, earlier: Sequence[Part]) -> Part:
    for other in earlier:
        if part.application is None or other.application is None:
            continue
        both = sorted(set(part.application.files) & set(other.application.files))
        if both:
            reason = (
                f"The {other.ecosystem} patch changes {both[0]} too; run fix again for "
                f"{part.ecosystem} once that one is committed."
            )
            return replace(part, held_back=reason)
    return part


def _unless_partial(part: Part, parts: Sequence[Part]) -> Part:
    broken = next((other for other in parts if other.application is None), None)
    if part.application is None or broken is None:
        return part
    name = part.advisory.id
    return replace(
        part,
        held_back=f"{name} is not fixed in {broken.ecosystem}, and a partial fix is not delivered.",
    )


def merged(applications: Sequence[Applied]) -> Applied | None:
    """One patch of several that touch different files, so that git applies all of it or nothing."""
    if not applications:
        return None
    files = sorted(path for application in applications for path in application.files)
    diff = "".join(application.diff for application in applications)
    return applications[0].model_copy(update={"diff": diff, "files": tuple(files)})
