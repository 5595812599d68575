"""PyPI's gates: the requirements install, hold no affected version, and the tests still pass."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain

from fallback_audit.event_types import ProvedProject
from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel
from fallback_plugins.pypi.gates.checks import (
    ImportsGate,
    PyPIGate,
    TypecheckGate,
    beside_base,
    lacks_by_the_patch,
    touched_folders,
)
from fallback_plugins.pypi.gates.testing import OwnTests
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.installing.plan import is_test
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.surveying.deciding import places_in_use, project_of
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    LOCKS,
    Place,
    left_out,
    only_affected,
    survey,
)
from fallback_plugins.pypi.surveying.unread_sources import unread_sources
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import choose
from fallback_plugins.shared.gates.comparing import (
    NotVulnerable,
    ResolvingGate,
    is_left_out,
    left_aside,
    may_stay,
    still_installed,
)
from fallback_plugins.shared.gates.suites import judge_tests
from fallback_plugins.shared.gates.test_commands import own_commands, suites_of
from fallback_plugins.shared.unread import surveyed
from fallback_tier.advisory import is_affected
from fallback_tier.errors import ToolFailedError
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: Projects and files that the patch does not touch, and that are installed to see one package in them. If
#: there are more, they are proved by what they declare.
MAX_OTHERS = 8

_NO_PYTEST = "No module named 'pytest'"


def build_gates() -> tuple[Gate, ...]:
    """Return the gates in order: each relies on the environment that those before it made."""
    return (ResolvesGate(), NotVulnerableGate(), ImportsGate(), TypecheckGate(), TestsGate())


class ResolvesGate(ResolvingGate, PyPIGate):
    """The real uv installs the patched requirements, and Python starts with them in the sandbox."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Environment(context, gating.patched(context), folder)
        if not project.declares:
            return gating.without_dependencies(self.name, repr(project.folder))
        found = project.install()

        def lacks() -> bool:
            return lacks_by_the_patch(project, project.base)

        if (verdict := gating.of_installed(self.name, "uv", found, lacks)) is not None:
            return verdict
        started = project.sandboxed(["-I", "-c", "import sys"])
        if started.timed_out:
            return gating.timed_out(self.name, started, context)
        if not started.ok:
            message = (
                f"Python does not start with these packages: {gating.in_short(started.output)}"
            )
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, message, started.output)
        what = f"uv installs {', '.join(project.sources)}"
        if otherwise := project.in_another_setting():
            return gating.undecided(
                self.name, f"{what}, and not as at the base commit: {otherwise}"
            )
        base = project.base.install()
        if found.declined:
            what += f" {found.in_words}"
            what += "; so it is at the base commit" if base.absent is None else ""
        elif found.unusual:
            what += f", {', '.join(found.unusual)}"
        if found.beside:
            what += f"; beside it {', '.join(found.beside)}, which its code imports"
        return gating.beside_base(gating.passed(self.name, what, found.in_full), found, base)


class NotVulnerableGate(NotVulnerable):
    """No affected version is installed, locked or pinned."""

    ecosystem = ECOSYSTEM

    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        places, beside = surveyed(package, context.repo, repo, survey, left_out)
        if places is None:
            return gating.unread(self.name, beside)
        installed = _Installed(context, repo, package, places)
        environments = installed.versions
        held = _held(context, repo, package, places, environments)
        bad = _affected(context, package, held)
        aside = left_aside(context.application, dict(bad))
        bad = [one for one in bad if one[0] not in aside]
        held = [one for one in held if one[0] not in aside]
        if aside and not bad:
            where = ", ".join(sorted(aside))
            what = f"{package} stays affected in {where}, which is left as it is"
            # A lock may be old; a declaration is what someone wants.
            is_locked = all(kind_of(path) in LOCKS for path in aside)
            return (gating.unread if is_locked else gating.undecided)(self.name, what)
        if bad:
            messages = [f"{where} has {version}" for where, version in bad]
            if not _may_stay(context, package, bad, _held(context, repo, package, places, {})):
                return self._still_affected(package, messages)
            beside += f"; stays affected, as was planned: {', '.join(messages)}"
            held = [one for one in held if one not in bad]
            if not held:
                return gating.skipped(self.name, f"{package} is not fixed{beside}")
        if held:
            if unknown := installed.doubt(planned=[version for _, version in bad]):
                return gating.unread(self.name, f"{unknown}{beside}")
            versions = ", ".join(sorted({version for _, version in held}))
            return self._proved(f"{package} {versions}{beside}", installed.projects)
        if places:
            where = ", ".join(sorted({place.path for place in places}))
            return gating.unread(self.name, f"{where} does not say which version of {package}")
        if survey(context.repo, package):
            if unknown := installed.doubt():
                return gating.unread(self.name, f"{unknown}{beside}")
            return self._proved(f"{package} is no longer declared{beside}", installed.without)
        return gating.skipped(
            self.name, f"{package} is not a dependency of this repository{beside}"
        )

    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> dict[str, str]:
        """Return where the base commit has an affected version from a registry, in addition to the
        source."""
        return {
            place.path: place.current
            for package in packages
            for place in places_in_use(context.repo, survey(context.repo, package))
            if place.current is not None
            and is_affected(context.advisory, ECOSYSTEM, package, place.current)
        }


class _Installed:
    """Versions of a package in the environments of the projects that have it."""

    def __init__(
        self, context: GateContext, repo: RepoContext, package: str, places: Sequence[Place]
    ) -> None:
        self._context, self._repo, self._package, self._places = context, repo, package, places
        self._touched = {it: Environment(context, repo, it) for it in touched_folders(context)}
        #: Versions by folder of a touched project, if its environment is as its own client makes it.
        self.versions = {it: one.resolved(package) for it, one in self._touched.items()}

    @property
    def projects(self) -> list[ProvedProject]:
        """Return each project that has the package, with the versions seen there or declared."""
        found = []
        for one in {**self._touched, **self._others}.values():
            if versions := one.resolved(self._package):
                found.append(
                    self._project(", ".join(one.sources), ProofLevel.RESOLVED_TREE, versions)
                )
        for place in self._unseen:
            asked = place.asked.pep440 if place.asked is not None else ""
            declared = tuple(filter(None, (place.current or asked,)))
            found.append(self._project(place.path, ProofLevel.PINS, declared))
        return found

    @property
    def without(self) -> list[ProvedProject]:
        """The projects that had the package, of which no file names it any more."""
        found = []
        for one in self._touched.values():
            shown = one.base.installed(self._package) and one.is_whole
            level = ProofLevel.RESOLVED_TREE if shown else ProofLevel.PINS
            found.append(self._project(", ".join(one.sources) or one.folder, level, ()))
        return found

    def _project(self, project: str, level: ProofLevel, versions: Sequence[str]) -> ProvedProject:
        return ProvedProject(
            project=project, package=self._package, versions=tuple(versions), proof_level=level
        )

    def doubt(self, planned: Sequence[str] = ()) -> str:
        """Return why what is declared and what is installed do not show that no affected version is used,
        except those that were planned to stay; empty if they do."""
        for place in self._unseen:
            if place.current is None and (place.asked is None or place.asked.refusal):
                return f"{place.path} does not say which version of {self._package} it installs"
        for name, one in {**self._touched, **self._others}.items():
            for version in (*one.resolved(self._package), *one.unproved(self._package)):
                affected = is_affected(self._context.advisory, ECOSYSTEM, self._package, version)
                if affected and version not in planned:
                    return f"{self._package} {version} is in the environment of {name!r}"
        sources = unread_sources(self._repo, self._context.advisory, [self._package])
        counting = (
            one.error.problem
            for one in sources
            if one.names_it and not one.for_tests and not self._is_left_out(one.path)
        )
        staying = still_installed(self._context.application, self._package)
        return next(chain(counting, staying), "")

    @cached_property
    def _others(self) -> dict[str, Environment]:
        """Environments of what else installs the package, by the file or folder, made if they can make it
        whole: of a requirements file by itself, of the other projects."""
        found: dict[str, Environment] = {}
        for place in self._unseen_by(self._touched):
            folder = project_of(place)
            if place.kind is Kind.REQUIREMENTS:
                alone = Environment(self._context, self._repo, folder, only=place.path)
                found[place.path] = alone
            elif folder in self._touched:
                return {}
            else:
                found[folder] = Environment(self._context, self._repo, folder)
        if not any(self.versions.values()) or len(found) > MAX_OTHERS:
            return {}
        for one in found.values():
            with suppress(ToolFailedError):  # then nothing of it is seen
                one.install()
        return found

    @cached_property
    def _unseen(self) -> list[Place]:
        found = self._unseen_by({**self._touched, **self._others})
        return [place for place in found if not self._is_left_out(place.path)]

    def _is_left_out(self, path: str) -> bool:
        return is_left_out(self._repo, self._context.advisory, self._package, (path,))

    def _unseen_by(self, environments: Mapping[str, Environment]) -> list[Place]:
        """Places in use that none of these environments was made from, if they have the package."""
        seen = [one for one in environments.values() if one.resolved(self._package)]
        used = places_in_use(self._repo, self._places, self.versions)
        return [place for place in used if not any(one.installs(place.path) for one in seen)]


def _held(
    context: GateContext,
    repo: RepoContext,
    package: str,
    places: Sequence[Place],
    environments: Mapping[str, Sequence[str]],
) -> list[tuple[str, str]]:
    """Return each version that is installed, with its place; of a range that leads to affected versions
    only, the range."""
    reported = places_in_use(repo, places, environments)
    held = [(place.path, place.current) for place in reported if place.current is not None]
    for place in reported:
        asked = place.asked if place.current is None else None
        if asked and asked.clauses and only_affected(context.advisory, package, asked):
            held.append((place.path, asked.pep440))
    for folder, versions in environments.items():
        held += [(f"the environment of {folder!r}", version) for version in versions]
    return held


def _affected(
    context: GateContext, package: str, held: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    return [
        (where, version)
        for where, version in held
        if is_affected(context.advisory, ECOSYSTEM, package, version)
    ]


def _may_stay(
    context: GateContext,
    package: str,
    bad: Sequence[tuple[str, str]],
    in_files: Sequence[tuple[str, str]],
) -> bool:
    """Return whether what is installed stays only as the files state; those are compared with the base
    commit's."""
    now = [version for _, version in _affected(context, package, in_files)]
    base = _held(context, context.repo, package, survey(context.repo, package), {})
    before = [version for _, version in _affected(context, package, base)]
    reported = {version for _, version in bad} <= {*now}
    made = context.application
    return reported and may_stay(context.advisory, made, ECOSYSTEM, package, now, before)


class TestsGate(PyPIGate):
    """The project's own test command, the first that runs tests at the base commit; otherwise pytest or
    unittest, whichever finds tests."""

    name = "tests"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        stated = own_commands(context.repo, folder, context.repo.settings.test_commands)
        commands = suites_of(stated, folder, "python")
        if not commands and not any(is_test(path, folder) for path in context.repo.tracked_files):
            return gating.untested(self.name, "the project has no tests")

        here = Environment(context, gating.patched(context), folder)
        base = here.base
        if (otherwise := here.in_another_setting()) and base.install().absent is None:
            why = (
                f"the tests would run in two settings, so that nothing can be compared: {otherwise}"
            )
            return gating.undecided(self.name, why, kinds=["another_setting"])

        def alike() -> bool:
            return here.contents() == base.contents()

        ways = [*(OwnTests(here, group) for group in commands), OwnTests(here)]
        choice = choose(context, self.name, folder, base.contents, [one.way for one in ways])
        tests = next(one for one in ways if one.way.key == choice.way.key)

        tests = replace(tests, unserved=choice.unserved)

        def judge() -> GateVerdict:
            return judge_tests(
                *(self.name, context, folder, tests.within(context), choice.on),
                alike=alike,
                within=tests.within,
                alone=tests.alone,
                base=choice.base,
                part=tests.part,
            )

        verdict = choice.explain(beside_base(here, judge))
        if verdict.status is GateStatus.SKIPPED and _NO_PYTEST in verdict.log:
            why = "the tests need pytest, which the project does not declare"
            return gating.skipped(self.name, why, verdict.log)
        return verdict
