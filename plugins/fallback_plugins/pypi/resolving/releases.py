"""Which version a package is raised to: the lowest safe one that the registry still offers."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.resolving.uv_client import UvClient, UvRefusedError
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, highest_named
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import Terms, unsupported
from fallback_tier.advisory import (
    Advisory,
    compare_versions,
    fixed_versions,
    is_affected,
)
from fallback_tier.advisory.versions import is_orderable, is_prerelease
from fallback_tier.errors import RecipeError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

#: Is a version one that may be taken?
Fits = Callable[[str], bool]

#: Releases that are asked about before one is taken as it is: several in a row are hardly ever yanked.
MAX_ASKED = 5

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

#: A cutoff that excludes nothing.
_ANY_DAY = datetime(2999, 1, 1, tzinfo=UTC)

#: From so many releases on, one question serves better than one each.
_WORTH_ASKING_TOGETHER = 2


def _any(_version: str) -> bool:
    return True


def lowest_safe(advisory: Advisory, package: str, current: str, fits: Fits = _any) -> str:
    """The lowest version named as fixed above ``current`` that no advisory in hand covers.

    Raises RecipeError (NO_FIXED_VERSION); nothing is asked of a registry.
    """
    above = [
        version
        for version in fixed_versions(advisory, ECOSYSTEM, package)
        if is_orderable(ECOSYSTEM, current) and compare_versions(ECOSYSTEM, version, current) > 0
    ]
    for version in above:
        if not is_affected(advisory, ECOSYSTEM, package, version) and fits(version):
            return version
    where = f" above {current}" if fixed_versions(advisory, ECOSYSTEM, package) else ""
    ids = " and ".join(advisory.ids_affecting(ECOSYSTEM, package, current)) or advisory.id
    raise RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"{ids} names no fixed version{where} of {package}.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )


def ages_of(
    repo: RepoContext,
    clients: ClientRunner,
    path: str,
    *,
    may_ask: bool = True,
    by_lock: bool = True,
) -> Ages:
    """The rules on the age of releases for the project at ``path``. ``may_ask``: of its own registry;
    ``by_lock``: as ``Ages``."""
    uv = UvClient(clients) if may_ask and not repo.settings.offline else None

    def published_at(package: str, version: str) -> datetime | None:
        return uv.published_at(package, version) if uv is not None else None

    return Ages.of(repo, ECOSYSTEM, path, published_at, by_lock=by_lock)


def as_options(ages: Ages, *, excepting: bool = False, own: bool = False) -> tuple[str, ...]:
    """The rules of the project's own files as options of uv. ``excepting``: with a person's exceptions;
    ``own``: with ``--release-age``."""
    files = [rule for rule in ages.rules if rule.line or own]
    cutoffs = {name: rule.until for rule in files for name in rule.only}
    general = min((it for it in files if not it.only), key=lambda it: it.until, default=None)
    if general is not None:
        exempt = (name for name in general.exempt if _NAME.fullmatch(name))
        cutoffs = {**dict.fromkeys(exempt, _ANY_DAY), **cutoffs}
    if files and excepting:
        cutoffs |= dict.fromkeys(ages.exceptions, _ANY_DAY)
    packages = (f"--exclude-newer-package={it}={at.isoformat()}" for it, at in cutoffs.items())
    until = () if general is None else (f"--exclude-newer={general.until.isoformat()}",)
    return (*until, *packages)


@dataclass
class Releases:
    """Chooses versions by the record, and asks the registry about them, through uv; None: it is not asked.

    What could not be asked is said in ``notes``, once; it never stops a fix. A fault that the registry
    reports does, if no later release serves. ``only``: the version that
    somebody chose already; no other serves. ``ages``: the project's rules on the age of releases: what they
    do not admit is not chosen.
    """

    advisory: Advisory
    uv: UvClient | None
    only: str | None = None
    ages: Ages = field(default_factory=lambda: Ages(ECOSYSTEM))
    notes: list[str] = field(default_factory=list)
    _faults: dict[tuple[str, str], str | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        advisory: Advisory,
        terms: Terms,
        clients: ClientRunner,
        ages: Ages,
        *,
        may_ask: bool,
    ) -> "Releases":
        """What a resolution chooses from; ``may_ask``: the registry too."""
        only = terms.choice.version if terms.choice else None
        return cls(advisory, UvClient(clients) if may_ask else None, only, ages)

    def look_up(self, releases: Sequence[tuple[str, str]]) -> None:
        """Ask about many releases at once, each of another package, before they are chosen one by one.

        Where one of them can't be had, the halves are asked about: the others cost no question each.
        """
        if self.uv is None or len(releases) < _WORTH_ASKING_TOGETHER:
            return
        try:
            yanked = self.uv.yanked_of(releases)
        except UvRefusedError as error:
            if error.found_no_solution:
                half = len(releases) // 2
                self.look_up(releases[:half])
                self.look_up(releases[half:])
        except (RecipeError, ToolError):
            return
        else:
            self._faults |= {release: yanked.get(release) for release in releases}

    def named(self, package: str, current: str, fits: Fits = _any) -> str:
        """The lowest safe version above ``current`` that the record names. Raises RecipeError."""
        if self.only is None:
            return lowest_safe(
                self.advisory,
                package,
                current,
                lambda version: fits(version) and self.ages.admits(package, version),
            )
        higher = compare_versions(ECOSYSTEM, self.only, current) > 0
        if higher and fits(self.only):
            return self.only
        raise RecipeError(
            RefusalReason.NO_FIXED_VERSION,
            f"{package} {self.only}, which was chosen, can't replace {current}.",
            next_step="Choose another version.",
        )

    def lowest_safe(self, package: str, current: str, fits: Fits = _any) -> str:
        """As ``named``, or the next release above it if that one is yanked, unpublished, or a candidate for
        a final release. A local build (``2.5+cpu``) stays one, if the same build is published."""
        version, label = self._offered(package, current, fits), current.partition("+")[2]
        if not label or "+" in version or self.only is not None:
            return version
        build = f"{version}+{label}"
        fault = self._fault(package, build)
        if fault is None and fits(build):
            return build
        self._note(
            f"{package} {build} {fault or 'does not fit'}: {version} has no local label {label}, and may be"
            " another build."
        )
        return version

    def _offered(self, package: str, current: str, fits: Fits) -> str:
        first = version = self._first(package, current, fits)
        if self.only is not None:
            fault = self._fault(package, first)
            if fault is not None:
                raise unsupported(f"{package} {first}, which was chosen, {fault}.")
            return first
        for _ in range(MAX_ASKED):
            fault = self._fault(package, version)
            if is_prerelease(ECOSYSTEM, version) and not is_prerelease(ECOSYSTEM, current):
                fault = "is a pre-release"
            if fault is None:
                break
            following = self._next(package, version)
            if following is None:
                problem = f"{package} {version} {fault}, and no later release could be found."
                if not is_prerelease(ECOSYSTEM, version):
                    raise RecipeError(
                        RefusalReason.NO_FIXED_VERSION,
                        problem,
                        next_step="Replace the dependency, or take the advisory's workaround.",
                    )
                self._note(problem)
                return first
            self._note(f"{package} {version} {fault}: {following} is looked at in its place.")
            version = following
        unfit = is_affected(self.advisory, ECOSYSTEM, package, version) or not fits(version)
        if unfit or not self.ages.admits(package, version):
            return self._offered(package, version, fits)
        return version

    def _first(self, package: str, current: str, fits: Fits) -> str:
        """By the record; where it names no fixed version (``last_affected``), by the registry."""
        try:
            return self.named(package, current, fits)
        except RecipeError:
            if self.only is not None:
                raise
            version = highest_named(self.advisory, package, _any) or current
            for _ in range(MAX_ASKED):
                following = self._next(package, version)
                if following is None:
                    raise
                version = following
                affected = is_affected(self.advisory, ECOSYSTEM, package, version)
                if not affected and fits(version) and self.ages.admits(package, version):
                    return version
            raise

    def _fault(self, package: str, version: str) -> str | None:
        key = (package, version)
        if key not in self._faults:
            self._faults[key] = self._ask(lambda uv: uv.fault_of(package, version))
        return self._faults[key]

    def _next(self, package: str, version: str) -> str | None:
        until = self.ages.until(package)
        return self._ask(lambda uv: uv.next_release(package, version, until))

    def _ask(self, question: Callable[[UvClient], str | None]) -> str | None:
        if self.uv is None:
            return None
        try:
            return question(self.uv)
        except (RecipeError, ToolError) as error:
            self._note(f"The registry could not be asked about yanked releases. {error.problem}")
            if isinstance(error, ToolError):
                self.uv = None
            return None

    def _note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)
