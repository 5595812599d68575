"""Gates that judge each project which a patch touches, and that compare a check with the base commit's.

Of a check (types, build, imports), only new findings count: what fails at the base commit too is not
caused by the patch. The base commit is checked only if the check fails with the patch, once per commit.
Another gate shows by versions that a vulnerability is gone.

Whether modules can still be imported is reported by an ecosystem's probe, which imports each separately.
It prints ``cannot import NAME: MESSAGE`` for each that fails, and ``no time left for NAME, NAME`` if its
time runs out; its exit code is 1 if one failed.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar

from fallback_audit.event_types import ProvedProject
from fallback_audit.vocabulary import TESTS_GATE, FailureKind, GateStatus, ProofLevel
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import keep, kept, patient, place_of, run_at_base
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.installation import NotInstalled
from fallback_plugins.shared.resolution import STILL_INSTALLED
from fallback_tier.advisory import Advisory, canonical_name, lets_stay
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class Finding:
    """One complaint. ``key``: without a line number, since an edit moves lines; ``text``: as printed."""

    key: str
    text: str


@dataclass(frozen=True)
class Check:
    """A command whose exit code says whether a tree is in order.

    ``run`` gets the tree and returns an output with relative paths, or why the tree's dependencies are not
    installed. ``findings`` reads the complaints in an output; a check without any (a build) is compared by
    its exit code alone. ``blocked``: whether it stopped early, so that it can have missed complaints.
    ``label`` and ``inputs`` (further input of the command) identify a check. ``on``: what it runs on at the
    base commit (``place_of``).
    """

    label: str
    run: Callable[[RepoContext], CommandResult | NotInstalled]
    findings: Callable[[str], Sequence[Finding]] = lambda _: ()
    blocked: Callable[[CommandResult], bool] = lambda _: False
    inputs: Sequence[str] = ()
    on: Callable[[], str] = str


def judge_check(
    gate: str,
    context: GateContext,
    folder: str,
    check: Check,
    patched: CommandResult | NotInstalled | None = None,
) -> GateVerdict:
    """Return passed if the check passes, or has no new complaint; failed if it has one.

    Return skipped if it fails at the base commit too, so that it shows nothing; undecided if it fails and
    can't be run there. ``patched``: the result for the patched tree, if it has run; the check may be run
    at the base commit only for what fails here. Raises what ``run`` raises.
    """
    patched = check.run(gating.patched(context)) if patched is None else patched
    if isinstance(patched, NotInstalled):
        why = f"{check.label}: the dependencies could not be installed: {patched.why}"
        return gating.skipped(gate, why)
    if patched.ok:
        return gating.passed(gate, f"{check.label}: in order", patched.output)
    base = _at_base(gate, context, folder, check)
    if isinstance(base, NotInstalled):
        why = f"{check.label} fails here, and the base commit's dependencies could not be installed"
        return gating.undecided(gate, f"{why}: {base.why}", patched.output)
    if patched.timed_out and base.exit_code is not None:
        return gating.timed_out(gate, patched, context)
    if base.exit_code == 0:
        return _failed(gate, f"{check.label} fails", patched.output)
    findings, blocked = check.findings(patched.output), patched.truncated or check.blocked(patched)
    new = _beyond(findings, base.keys)
    if patched.timed_out or base.is_cut or (base.blocked and not blocked):
        return _is_inconclusive(gate, check, patched)
    if new:
        detail = f"{check.label}: {len(new)} new problem(s), beside those of the base commit"
        return _failed(gate, detail, "\n".join(finding.text for finding in new))
    if base.keys and patched.exit_code != base.exit_code:
        return _failed(
            gate, f"{check.label} fails otherwise than at the base commit", patched.output
        )
    if not findings or blocked:
        return _is_inconclusive(gate, check, patched)
    what = f"{check.label}: nothing new; {len(findings)} problem(s) as at the base commit"
    return gating.passed(gate, what, patched.output, kinds=["nothing_new"])


@dataclass(frozen=True)
class _Base:
    exit_code: int | None
    keys: Sequence[str]
    blocked: bool
    #: Whether its log was too long to be kept whole: a complaint that is cut off would seem new.
    is_cut: bool


def _at_base(gate: str, context: GateContext, folder: str, check: Check) -> _Base | NotInstalled:
    path = place_of(context, gate, folder, check.on(), check.label, check.inputs)
    before: dict[str, Any] | None = kept(path)
    if before is not None:
        return _Base(**before)
    result = run_at_base(context, check.run)
    if isinstance(result, NotInstalled):
        return result
    keys = [finding.key for finding in check.findings(result.output)]
    # A run that did not finish may have missed complaints.
    blocked = result.timed_out or check.blocked(result)
    base = _Base(result.exit_code, keys, blocked, result.truncated)
    if not result.timed_out:  # the reason may be temporary: run again next time
        keep(path, asdict(base))
    return base


def _beyond(findings: Sequence[Finding], base: Sequence[str]) -> list[Finding]:
    """Return the findings that the base commit lacks, or has less often."""
    remaining = Counter(base)
    new = []
    for finding in findings:
        if remaining[finding.key] > 0:
            remaining[finding.key] -= 1
        else:
            new.append(finding)
    return new


def _is_inconclusive(gate: str, check: Check, patched: CommandResult) -> GateVerdict:
    why = f"{check.label} fails at the base commit too, so this shows nothing"
    return gating.skipped(gate, why, patched.output)


def _failed(gate: str, detail: str, log: str) -> GateVerdict:
    return gating.failed(gate, FailureKind.BUILD_FAILED, detail, log)


def together(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Return one verdict over several checks; if it is a pass, its detail says what was not checked."""
    verdict = gating.combined(gate, verdicts)
    skipped = [verdict for verdict in verdicts if verdict.status is GateStatus.SKIPPED]
    if verdict.status is not GateStatus.PASSED or not skipped:
        return verdict
    detail = f"{verdict.detail}; not checked: {'; '.join(verdict.detail for verdict in skipped)}"
    kinds = verdict.kinds.union(*(verdict.kinds for verdict in skipped))
    return verdict.model_copy(update={"detail": detail, "kinds": kinds})


#: Time limit of one import. If it takes longer, it starts something, and no check should wait for that.
IMPORT_TIMEOUT_S = 30.0

#: Time limit of all imports of one project in one tree; most projects take a tenth of it. Half of a gate's
#: time (``GateContext.timeout_s``) if that is less. A verdict names what there was no time for.
IMPORTS_TIMEOUT_S = 240.0

#: Characters of an error's message.
_MESSAGE_CHARS = 300

_FAILED = "cannot import "
_NO_TIME = re.compile(r"^no time left for (.+)\n?", re.MULTILINE)

#: Folders of a path, which differ between trees and environments.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/'\"():,]+/)+")

#: A pattern, and the replacement of its matches.
Rewriting = tuple[re.Pattern[str], str]

#: Text that differs from run to run (temporary files, addresses in memory), and lines, which an edit moves.
#: Other numbers stay: "needs left<2, and 1.4 is installed" is another message with 2.1, and another
#: failure. A module that could not be imported before fails the gate if its error is another one now.
_VARYING: tuple[Rewriting, ...] = (
    (re.compile(r"/tmp/[^\s'\"():,]+|\btmp[a-z0-9_]{8}\b"), "…"),  # noqa: S108 (a pattern)
    (_FOLDERS, "…/"),
    (re.compile(r"\b0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"\bline \d+|(?<=\.py):\d+"), "line …"),
)


@dataclass(frozen=True)
class Loading:
    """The modules to import, by names that the probe repeats, and how: ``run`` imports some of them in any
    tree.

    ``on``: what it runs on at the base commit (``place_of``). ``varying``: further text whose change
    makes no new failure. ``excused``: whether a message of the probe on a name is not a failure.
    """

    names: Sequence[str]
    run: Callable[[RepoContext, Sequence[str]], CommandResult | NotInstalled]
    on: Callable[[], str]
    varying: Sequence[Rewriting] = ()
    excused: Callable[[str, str], bool] = lambda _name, _said: False


def limits(context: GateContext) -> tuple[str, str]:
    """Return the time limits of one import and of all imports, in seconds, as arguments of a probe."""
    return str(IMPORT_TIMEOUT_S), str(min(IMPORTS_TIMEOUT_S, context.timeout_s / 2))


def judge_loading(gate: str, context: GateContext, folder: str, loading: Loading) -> GateVerdict:
    """As ``judge_check``. At the base commit only what fails with the patch is imported."""
    patched = loading.run(gating.patched(context), loading.names)
    if isinstance(patched, NotInstalled):
        return gating.skipped(gate, f"the dependencies could not be installed: {patched.why}")
    no_time = _NO_TIME.search(patched.output)
    if no_time is not None and no_time[1].split(", ")[0] == loading.names[0]:
        return gating.skipped(gate, f"no time was left to import {no_time[1]}")
    # What there was no time for is not a complaint: leave it out of the comparison.
    patched = patched.model_copy(update={"output": _NO_TIME.sub("", patched.output)})
    findings = failures(patched.output, loading)
    failing = tuple(findings) or tuple(loading.names)
    if (
        patched.exit_code == 1 and not findings and _probe_messages(patched.output, loading.names)
    ):  # all is excused
        patched = patched.model_copy(update={"exit_code": 0})
    check = Check(
        f"import of {', '.join(failing[:3])}{' …' if len(failing) > 3 else ''}",
        lambda tree: loading.run(tree, failing),
        lambda output: tuple(failures(output, loading).values()),
        lambda result: _NO_TIME.search(result.output) is not None,
        inputs=failing,
        on=loading.on,
    )
    verdict = judge_check(gate, context, folder, check, patched)
    if no_time is None or verdict.status is not GateStatus.PASSED:
        return verdict
    detail = f"{verdict.detail}; no time was left to import {no_time[1]}"
    return verdict.model_copy(update={"detail": detail})


def failures(output: str, loading: Loading) -> dict[str, Finding]:
    """Return a finding for each module that the probe could not import, by name.

    The key is the same in both trees if the error is the same, in type and text.
    """
    return {
        name: _finding(name, message, loading.varying)
        for name, message in _probe_messages(output, loading.names).items()
        if not loading.excused(name, message)
    }


def _probe_messages(output: str, names: Sequence[str]) -> dict[str, str]:
    """Return the probe's messages by name. Names that it was not given are output of modules."""
    lines = [line.removeprefix(_FAILED) for line in output.split("\n") if line.startswith(_FAILED)]
    messages = dict(line.split(": ", 1) for line in lines if ": " in line)
    return {name: message for name, message in messages.items() if name in names}


def _finding(name: str, message: str, varying: Sequence[Rewriting]) -> Finding:
    steady = message
    for pattern, replacement in (*varying, *_VARYING):
        steady = pattern.sub(replacement, steady)
    shown = _FOLDERS.sub("…/", message)
    return Finding(
        f"{name}: {steady[:_MESSAGE_CHARS]}", f"{_FAILED}{name}: {shown[:_MESSAGE_CHARS]}"
    )


class ProjectGate(ABC):
    """A gate with one verdict over every touched project; a pass says which of them were not checked."""

    name: str

    def judge(self, context: GateContext) -> GateVerdict:
        """Judge one project after the other. Raises SandboxError, ToolError."""
        return together(self.name, self._verdicts(context))

    def _verdicts(self, context: GateContext) -> list[GateVerdict]:
        is_of_tests = self.name == TESTS_GATE
        context = patient(context) if is_of_tests else context
        verdicts = []
        for folder in self._touched(context):
            for verdict in self._checks(context, folder):
                is_silent = is_of_tests and verdict.tests_level is None
                verdicts.append(gating.unjudged(verdict, folder) if is_silent else verdict)
        return verdicts

    def _checks(self, context: GateContext, folder: str) -> Iterable[GateVerdict]:
        return [self._project(context, folder)]

    @abstractmethod
    def _touched(self, context: GateContext) -> Iterable[str]:
        """Return the folders of the projects that the patch touched."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        raise NotImplementedError


class ResolvingGate(ProjectGate):
    """A gate that installs each touched project with the real client, outside of the sandbox."""

    name = "resolves"

    def judge(self, context: GateContext) -> GateVerdict:
        """As every gate on projects; a project that can't be read or resolved fails. Raises ToolError,
        SandboxError."""
        try:
            verdicts = self._verdicts(context)
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        return gating.combined(self.name, verdicts)


class NotVulnerable(ABC):
    """A gate with one verdict over the packages of an advisory. No version shows whether the repository's
    own packages are fixed.

    ``ecosystem``: its name in OSV.
    """

    ecosystem: ClassVar[str]
    name: str = "not_vulnerable"

    def judge(self, context: GateContext) -> GateVerdict:
        """Read manifests, locks, and what a client reports as installed; nothing is run."""
        repo = gating.patched(context)
        packages = context.advisory.packages(self.ecosystem)
        affected = context.repo.affected
        own_packages = gating.own_names(affected, packages)
        try:
            verdicts = [
                self._package(context, repo, package)
                for package in packages
                if package not in own_packages
            ]
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        if affected is None or not affected.is_own:
            return gating.of_versions(self.name, verdicts)
        return gating.of_own_code(
            self.name, affected, lambda: self._affected_copies(context, own_packages), verdicts
        )

    @abstractmethod
    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        """Return the verdict on one package in the patched tree."""

    @abstractmethod
    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> Mapping[str, str]:
        """Return the affected copies that the base commit has from a registry, next to the source:
        place → version."""

    def _proved(self, what: str, projects: Sequence[ProvedProject]) -> GateVerdict:
        """Return a pass with the lowest of the projects' levels."""
        levels = {project.proof_level for project in projects}
        level = (
            ProofLevel.RESOLVED_TREE if levels == {ProofLevel.RESOLVED_TREE} else ProofLevel.PINS
        )
        what = f"{level.replace('_', ' ')}: {what}"
        verdict = gating.passed(self.name, what, proof_level=level)
        return verdict.model_copy(update={"projects": tuple(projects)})

    def _still_affected(self, package: str, messages: Sequence[str]) -> GateVerdict:
        what = f"{package} is still affected: {', '.join(messages[:3])}"
        return gating.failed(self.name, FailureKind.STILL_VULNERABLE, what, "\n".join(messages))


def may_stay(
    advisory: Advisory,
    application: Applied,
    ecosystem: str,
    package: str,
    now: Sequence[str],
    before: Sequence[str],
) -> bool:
    """Return whether these affected versions of a package may stay. ``now``: one entry per copy.

    ``before``: those of the base commit, found in the same way. They may stay only if every advisory that
    covers one lets it stay, no version has more copies than before, and each version that the recipe raised
    has fewer.
    """
    remediation = application.remediation
    if remediation is None or not is_planned(advisory, application, ecosystem, package, now):
        return False
    raised = {
        version
        for move in remediation.moves
        if canonical_name(ecosystem, move.package) == package
        for version in move.before
    }
    copies, earlier = Counter(now), Counter(before)
    return all(copies[version] < earlier[version] + (version not in raised) for version in copies)


def is_planned(
    advisory: Advisory, application: Applied, ecosystem: str, package: str, now: Iterable[str]
) -> bool:
    """Return whether every advisory that covers one of these versions lets it stay."""
    covering = [advisory.ids_affecting(ecosystem, package, version) for version in now]
    return application.remediation is not None and all(
        lets_stay(advisory, ecosystem, package, ids) for ids in covering
    )


def is_left_out(repo: RepoContext, advisory: Advisory, package: str, files: Iterable[str]) -> bool:
    """Return whether a project of these files is outside of the folders that the fix is limited to, and its
    copies of a package stay, as was planned: then what is unknown about it puts no doubt on the others. The
    fix is partial, whatever gates find (ADR-0143)."""
    if repo.selects(files):
        return False
    return all(lets_stay(advisory, ecosystem, package) for ecosystem in advisory.ecosystems)


def still_installed(application: Applied, package: str) -> Iterator[str]:
    """Yield the recipe's reasons for commands that install an affected version and that no fix changes."""
    for item in application.remediation.unread if application.remediation else ():
        if STILL_INSTALLED in item.reason and f" {package} " in item.reason:
            yield item.reason.rstrip(".")


def left_aside(application: Applied, bad: Mapping[str, str]) -> dict[str, str]:
    """Return the affected places (with their versions) in projects for tests and examples that the recipe
    could not fix and the patch does not touch."""
    items = application.remediation.unread if application.remediation else ()
    folders = {str(PurePosixPath(item.path).parent) for item in items if is_aside(item.path)}
    touched = {str(PurePosixPath(path).parent) for path in application.files}
    folder_prefixes = tuple(f"{folder}/" for folder in folders - touched)
    return {place: version for place, version in bad.items() if place.startswith(folder_prefixes)}
