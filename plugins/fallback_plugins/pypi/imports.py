"""PyPI's gate on imports: the project's modules and its direct dependencies' can still be imported."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from fallback_audit.vocabulary import GateStatus
from fallback_plugins import gating
from fallback_plugins.comparing import Check, Finding, judge_run, together
from fallback_plugins.installed import NotInstalled
from fallback_plugins.pypi.checks import PythonRun, not_installed
from fallback_plugins.pypi.dependencies import dependency_modules
from fallback_plugins.pypi.environment import Environment
from fallback_plugins.pypi.touched import modules, touched_folders
from fallback_tier.gate_ports import GateContext, GateVerdict

#: Own modules imported in one project; those that the patch touched come first.
MAX_MODULES = 25

#: Wall clock of one import. What needs longer starts something, and no check should wait for that.
IMPORT_TIMEOUT_S = 30.0

#: Wall clock of all imports of one project in one tree; most projects take a tenth of it. Half of a gate's
#: own (``GateContext.timeout_s``) where that is less. A verdict names what there was no time for.
IMPORTS_TIMEOUT_S = 240.0

#: Of an error's own words.
_SAID_CHARS = 300

_NO_TIME = re.compile(r"^no time left for (.+)\n?", re.MULTILINE)

#: Where a file lies: each tree and each environment lies elsewhere.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/'\"():,]+/)+")

#: What differs from run to run (temporary files, addresses in memory), and lines, which an edit moves.
#: Other numbers stay: "needs left<2, and 1.4 is installed" is another sentence with 2.1, and another
#: failure. What could not be imported before and fails otherwise now fails the gate.
_VARYING = (
    (re.compile(r"/tmp/[^\s'\"():,]+|\btmp[a-z0-9_]{8}\b"), "…"),  # noqa: S108 (a pattern)
    (_FOLDERS, "…/"),
    (re.compile(r"\b0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"\bline \d+|(?<=\.py):\d+"), "line …"),
)


@dataclass(frozen=True)
class ImportsGate:
    """What the patch touched, the project's own packages and its direct dependencies can be imported.

    Dependencies are asked for where the patch changes what is installed.
    """

    name: str = "imports"

    def judge(self, context: GateContext) -> GateVerdict:
        """Import each by itself, in the sandbox. Raises SandboxError, ToolError."""
        folders = touched_folders(context)
        return together(self.name, [self._project(context, folder) for folder in folders])

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Environment(context, gating.patched(context), folder)
        own = modules(context, folder)[:MAX_MODULES]
        if not own and not project.declares:
            why = f"{folder!r} has no module of its own to import, and declares no dependencies"
            return gating.skipped(self.name, why)
        if (missing := not_installed(project)) is not None:
            return gating.skipped(self.name, missing)
        names = tuple(dict.fromkeys((*own, *dependency_modules(context, folder))))
        if not names:
            why = f"{folder!r} has no module of its own to import, and no dependency of it moves"
            return gating.skipped(self.name, why)
        return self._compared(context, folder, names)

    def _compared(self, context: GateContext, folder: str, names: Sequence[str]) -> GateVerdict:
        ours = _run(context, folder, names)(gating.patched(context))
        if isinstance(ours, NotInstalled):
            return gating.skipped(self.name, ours.why)
        no_time = _NO_TIME.search(ours.output)
        if no_time is not None and no_time[1].split(", ")[0] == names[0]:
            return gating.skipped(self.name, f"no time was left to import {no_time[1]}")
        # What there was no time for is no complaint, and left out of the comparison.
        ours = ours.model_copy(update={"output": _NO_TIME.sub("", ours.output)})
        failing = tuple(failures(ours.output, names)) or tuple(names)
        run = _run(context, folder, failing)
        check = Check(
            f"import of {', '.join(failing[:3])}{' …' if len(failing) > 3 else ''}",
            run,
            lambda output: tuple(failures(output, names).values()),
            lambda result: _NO_TIME.search(result.output) is not None,
            inputs=failing,
            on=run.at_base,
        )
        verdict = judge_run(self.name, context, folder, check, ours)
        if no_time is None or verdict.status is not GateStatus.PASSED:
            return verdict
        said = f"{verdict.detail}; no time was left to import {no_time[1]}"
        return verdict.model_copy(update={"detail": said})


def failures(output: str, names: Sequence[str]) -> dict[str, Finding]:
    """What the probe says of each module that it was asked for and could not import: modules print, too.

    The same key in both trees where the error is the same, in type and words.
    """
    found = re.finditer(r"^cannot import ([\w.]+): (.+)$", output, re.MULTILINE)
    return {
        name: _finding(name, said) for name, said in map(re.Match.groups, found) if name in names
    }


def _finding(name: str, said: str) -> Finding:
    steady = said
    for pattern, instead in _VARYING:
        steady = pattern.sub(instead, steady)
    shown = _FOLDERS.sub("…/", said)
    return Finding(
        f"{name}: {steady[:_SAID_CHARS]}", f"cannot import {name}: {shown[:_SAID_CHARS]}"
    )


def _run(context: GateContext, folder: str, names: Sequence[str]) -> PythonRun:
    source = files("fallback_plugins.pypi").joinpath("import_probe.py").read_text("utf-8")
    limits = (IMPORT_TIMEOUT_S, min(IMPORTS_TIMEOUT_S, context.timeout_s / 2))
    return PythonRun(context, folder, ["-c", source, *map(str, limits), *names])
