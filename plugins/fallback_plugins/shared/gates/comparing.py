"""Gates that judge each project which a patch touches, and that compare a check with the base commit's.

Of a check (types, build, imports), only what is new counts: what fails at the base commit too is not
caused by the patch. The base commit is checked if the check fails with the patch, and once per commit.
Another gate shows by versions that a vulnerability is gone.

Whether modules can still be imported is reported by an ecosystem's probe, which imports each by itself.
It prints ``cannot import NAME: WORDS`` for each that fails, and ``no time left for NAME, NAME`` at the
end of its time; its exit code is 1 if one failed.
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
    """A command that says with its exit code whether a tree is in order.

    ``run`` gets the tree and returns an output with relative paths, or why the tree's dependencies are not
    installed. ``findings`` reads the complaints in an output; a check without any (a build) is compared by
    its exit code alone. ``blocked``: it stopped early, so what it does not complain of may be out of order
    too. ``label`` and ``inputs`` (further input of the command) identify a check. ``on``: what it runs on
    at the base commit (``place_of``).
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
    ours: CommandResult | NotInstalled | None = None,
) -> GateVerdict:
    """Return passed if the check passes, or complains of nothing new; failed if it does.

    Skipped if it fails at the base commit too, so that it shows nothing; undecided if it fails and can't be
    run there. ``ours``: the run over the patched tree, if there was one: at the base commit less may be
    checked, only what fails here. Raises what ``run`` raises.
    """
    ours = check.run(gating.patched(context)) if ours is None else ours
    if isinstance(ours, NotInstalled):
        why = f"{check.label}: the dependencies could not be installed: {ours.why}"
        return gating.skipped(gate, why)
    if ours.ok:
        return gating.passed(gate, f"{check.label}: in order", ours.output)
    base = _at_base(gate, context, folder, check)
    if isinstance(base, NotInstalled):
        why = f"{check.label} fails here, and the base commit's dependencies could not be installed"
        return gating.undecided(gate, f"{why}: {base.why}", ours.output)
    if ours.timed_out and base.exit_code is not None:
        return gating.timed_out(gate, ours, context)
    if base.exit_code == 0:
        return _failed(gate, f"{check.label} fails", ours.output)
    found, blocked = check.findings(ours.output), ours.truncated or check.blocked(ours)
    new = _beyond(found, base.keys)
    if ours.timed_out or base.is_cut or (base.blocked and not blocked):
        return _is_inconclusive(gate, check, ours)
    if new:
        message = f"{check.label}: {len(new)} new problem(s), beside those of the base commit"
        return _failed(gate, message, "\n".join(finding.text for finding in new))
    if base.keys and ours.exit_code != base.exit_code:
        return _failed(gate, f"{check.label} fails otherwise than at the base commit", ours.output)
    if not found or blocked:
        return _is_inconclusive(gate, check, ours)
    what = f"{check.label}: nothing new; {len(found)} problem(s) as at the base commit"
    return gating.passed(gate, what, ours.output, kinds=["nothing_new"])


@dataclass(frozen=True)
class _Base:
    exit_code: int | None
    keys: Sequence[str]
    blocked: bool
    #: Its log was too long to be kept whole: what it leaves out may be what is new here.
    is_cut: bool


def _at_base(gate: str, context: GateContext, folder: str, check: Check) -> _Base | NotInstalled:
    place = place_of(context, gate, folder, check.on(), check.label, check.inputs)
    before: dict[str, Any] | None = kept(place)
    if before is not None:
        return _Base(**before)
    result = run_at_base(context, check.run)
    if isinstance(result, NotInstalled):
        return result
    keys = [finding.key for finding in check.findings(result.output)]
    # What it did not come to may be out of order there too.
    blocked = result.timed_out or check.blocked(result)
    base = _Base(result.exit_code, keys, blocked, result.truncated)
    if not result.timed_out:  # else perhaps for a passing reason: asked again next time
        keep(place, asdict(base))
    return base


def _beyond(found: Sequence[Finding], base: Sequence[str]) -> list[Finding]:
    """Return the findings that the base commit lacks, or has less often."""
    left = Counter(base)
    new = []
    for finding in found:
        if left[finding.key] > 0:
            left[finding.key] -= 1
        else:
            new.append(finding)
    return new


def _is_inconclusive(gate: str, check: Check, ours: CommandResult) -> GateVerdict:
    why = f"{check.label} fails at the base commit too, so this shows nothing"
    return gating.skipped(gate, why, ours.output)


def _failed(gate: str, detail: str, log: str) -> GateVerdict:
    return gating.failed(gate, FailureKind.BUILD_FAILED, detail, log)


def together(gate: str, verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Return one verdict over several checks; a pass says what it leaves out."""
    verdict = gating.combined(gate, verdicts)
    left = [one for one in verdicts if one.status is GateStatus.SKIPPED]
    if verdict.status is not GateStatus.PASSED or not left:
        return verdict
    message = f"{verdict.detail}; not checked: {'; '.join(one.detail for one in left)}"
    kinds = verdict.kinds.union(*(one.kinds for one in left))
    return verdict.model_copy(update={"detail": message, "kinds": kinds})


#: Wall clock of one import. What needs longer starts something, and no check should wait for that.
IMPORT_TIMEOUT_S = 30.0

#: Wall clock of all imports of one project in one tree; most projects take a tenth of it. Half of a gate's
#: own (``GateContext.timeout_s``) where that is less. A verdict names what there was no time for.
IMPORTS_TIMEOUT_S = 240.0

#: Of an error's own words.
_MESSAGE_CHARS = 300

_FAILED = "cannot import "
_NO_TIME = re.compile(r"^no time left for (.+)\n?", re.MULTILINE)

#: Where a file lies: each tree and each environment lies elsewhere.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/'\"():,]+/)+")

#: A pattern, and what stands for what it matches.
Rewriting = tuple[re.Pattern[str], str]

#: What differs from run to run (temporary files, addresses in memory), and lines, which an edit moves.
#: Other numbers stay: "needs left<2, and 1.4 is installed" is another sentence with 2.1, and another
#: failure. What could not be imported before and fails otherwise now fails the gate.
_VARYING: tuple[Rewriting, ...] = (
    (re.compile(r"/tmp/[^\s'\"():,]+|\btmp[a-z0-9_]{8}\b"), "…"),  # noqa: S108 (a pattern)
    (_FOLDERS, "…/"),
    (re.compile(r"\b0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"\bline \d+|(?<=\.py):\d+"), "line …"),
)


@dataclass(frozen=True)
class Loading:
    """What to import, by names that the probe repeats, and how: ``run`` imports some of them in any tree.

    ``on``: what it runs on at the base commit (``place_of``). ``varying``: what more makes no new failure.
    ``excused``: whether what the probe reports of a name is not a failure.
    """

    names: Sequence[str]
    run: Callable[[RepoContext, Sequence[str]], CommandResult | NotInstalled]
    on: Callable[[], str]
    varying: Sequence[Rewriting] = ()
    excused: Callable[[str, str], bool] = lambda _name, _said: False


def limits(context: GateContext) -> tuple[str, str]:
    """Return the seconds for one import and for all of them, as a probe's arguments."""
    return str(IMPORT_TIMEOUT_S), str(min(IMPORTS_TIMEOUT_S, context.timeout_s / 2))


def judge_loading(gate: str, context: GateContext, folder: str, asked: Loading) -> GateVerdict:
    """As ``judge_check``. The base commit is asked only for what fails with the patch."""
    ours = asked.run(gating.patched(context), asked.names)
    if isinstance(ours, NotInstalled):
        return gating.skipped(gate, f"the dependencies could not be installed: {ours.why}")
    no_time = _NO_TIME.search(ours.output)
    if no_time is not None and no_time[1].split(", ")[0] == asked.names[0]:
        return gating.skipped(gate, f"no time was left to import {no_time[1]}")
    # What there was no time for is no complaint, and left out of the comparison.
    ours = ours.model_copy(update={"output": _NO_TIME.sub("", ours.output)})
    found = failures(ours.output, asked)
    failing = tuple(found) or tuple(asked.names)
    if (
        ours.exit_code == 1 and not found and _probe_messages(ours.output, asked.names)
    ):  # all is excused
        ours = ours.model_copy(update={"exit_code": 0})
    check = Check(
        f"import of {', '.join(failing[:3])}{' …' if len(failing) > 3 else ''}",
        lambda tree: asked.run(tree, failing),
        lambda output: tuple(failures(output, asked).values()),
        lambda result: _NO_TIME.search(result.output) is not None,
        inputs=failing,
        on=asked.on,
    )
    verdict = judge_check(gate, context, folder, check, ours)
    if no_time is None or verdict.status is not GateStatus.PASSED:
        return verdict
    message = f"{verdict.detail}; no time was left to import {no_time[1]}"
    return verdict.model_copy(update={"detail": message})


def failures(output: str, asked: Loading) -> dict[str, Finding]:
    """Return what the probe reports of each module that could not be imported, by name.

    The key is the same in both trees if the error is the same, in type and text.
    """
    return {
        name: _finding(name, message, asked.varying)
        for name, message in _probe_messages(output, asked.names).items()
        if not asked.excused(name, message)
    }


def _probe_messages(output: str, names: Sequence[str]) -> dict[str, str]:
    """Return the probe's output by name, of names that it was given: modules print, too."""
    lines = [line.removeprefix(_FAILED) for line in output.split("\n") if line.startswith(_FAILED)]
    reported = dict(line.split(": ", 1) for line in lines if ": " in line)
    return {name: message for name, message in reported.items() if name in names}


def _finding(name: str, message: str, varying: Sequence[Rewriting]) -> Finding:
    steady = message
    for pattern, instead in (*varying, *_VARYING):
        steady = pattern.sub(instead, steady)
    shown = _FOLDERS.sub("…/", message)
    return Finding(
        f"{name}: {steady[:_MESSAGE_CHARS]}", f"{_FAILED}{name}: {shown[:_MESSAGE_CHARS]}"
    )


class ProjectGate(ABC):
    """One verdict over every touched project; a pass says which of them were not checked."""

    name: str

    def judge(self, context: GateContext) -> GateVerdict:
        """Judge one project after the other. Raises SandboxError, ToolError."""
        return together(self.name, self._verdicts(context))

    def _verdicts(self, context: GateContext) -> list[GateVerdict]:
        is_of_tests = self.name == TESTS_GATE
        context = patient(context) if is_of_tests else context
        found = []
        for folder in self._touched(context):
            for verdict in self._checks(context, folder):
                is_silent = is_of_tests and verdict.tests_level is None
                found.append(gating.unjudged(verdict, folder) if is_silent else verdict)
        return found

    def _checks(self, context: GateContext, folder: str) -> Iterable[GateVerdict]:
        return [self._project(context, folder)]

    @abstractmethod
    def _touched(self, context: GateContext) -> Iterable[str]:
        """Folders of the projects that the patch touched."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        raise NotImplementedError


class ResolvingGate(ProjectGate):
    """The real client installs each touched project, outside the sandbox."""

    name = "resolves"

    def judge(self, context: GateContext) -> GateVerdict:
        """As every gate on projects; one that can't be read or resolved fails. Raises ToolError,
        SandboxError."""
        try:
            verdicts = self._verdicts(context)
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        return gating.combined(self.name, verdicts)


class NotVulnerable(ABC):
    """One verdict over the packages of an advisory; of a repository's own packages no version tells.

    ``ecosystem``: OSV's name of it.
    """

    ecosystem: ClassVar[str]
    name: str = "not_vulnerable"

    def judge(self, context: GateContext) -> GateVerdict:
        """Read manifests, locks, and what a client says that it installed; nothing runs."""
        repo = gating.patched(context)
        packages = context.advisory.packages(self.ecosystem)
        affected = context.repo.affected
        own = gating.own_names(affected, packages)
        try:
            others = [self._package(context, repo, one) for one in packages if one not in own]
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        if affected is None or not affected.is_own:
            return gating.of_versions(self.name, others)
        return gating.of_own_code(
            self.name, affected, lambda: self._affected_copies(context, own), others
        )

    @abstractmethod
    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        """The verdict on one package in the patched tree."""

    @abstractmethod
    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> Mapping[str, str]:
        """What the base commit has from a registry that is affected, beside the source: place → version."""

    def _proved(self, what: str, projects: Sequence[ProvedProject]) -> GateVerdict:
        """A pass with the lowest of the projects' levels."""
        levels = {one.proof_level for one in projects}
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
    made: Applied,
    ecosystem: str,
    package: str,
    now: Sequence[str],
    before: Sequence[str],
) -> bool:
    """Return whether these affected versions of a package may stay, one entry per copy.

    ``before``: those of the base commit, found in the same way. Only if every advisory that covers one lets
    it stay, if no version has more copies than before, and if each that the recipe raised has fewer.
    """
    remediation = made.remediation
    if remediation is None or not is_planned(advisory, made, ecosystem, package, now):
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
    advisory: Advisory, made: Applied, ecosystem: str, package: str, now: Iterable[str]
) -> bool:
    """Return whether every advisory that covers one of these versions lets it stay."""
    covering = [advisory.ids_affecting(ecosystem, package, version) for version in now]
    return made.remediation is not None and all(
        lets_stay(advisory, ecosystem, package, ids) for ids in covering
    )


def is_left_out(repo: RepoContext, advisory: Advisory, package: str, files: Iterable[str]) -> bool:
    """Return whether a project of these files is outside of the folders that the fix is limited to, and its
    copies of a package stay, as was planned: then what is unknown of it is no doubt about the others. The
    fix is one in part, whatever gates find (ADR-0143)."""
    if repo.selects(files):
        return False
    return all(lets_stay(advisory, it, package) for it in advisory.ecosystems)


def still_installed(made: Applied, package: str) -> Iterator[str]:
    """Yield what the recipe found of commands that install an affected version and that no fix changes."""
    for item in made.remediation.unread if made.remediation else ():
        if STILL_INSTALLED in item.reason and f" {package} " in item.reason:
            yield item.reason.rstrip(".")


def left_aside(made: Applied, bad: Mapping[str, str]) -> dict[str, str]:
    """Return the affected places (with their versions) in projects among tests and examples that the recipe
    could not fix and the patch does not touch."""
    items = made.remediation.unread if made.remediation else ()
    folders = {str(PurePosixPath(item.path).parent) for item in items if is_aside(item.path)}
    touched = {str(PurePosixPath(path).parent) for path in made.files}
    left = tuple(f"{folder}/" for folder in folders - touched)
    return {place: version for place, version in bad.items() if place.startswith(left)}
