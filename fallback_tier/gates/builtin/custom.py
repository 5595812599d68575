"""A gate of the user's own: a command that must end well on the patched files.

Where it stands, in the base commit or in a file of the person's, decides nothing of how it is run: always
in the sandbox, without network, over files that no earlier command has touched. So a base commit that
nobody trusts can at worst judge its own fix wrongly, and say so in the record.
"""

from dataclasses import dataclass

from fallback_audit.vocabulary import FailureKind
from fallback_tier.configured import GateSettings
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict, TargetRun, failed, passed, skipped
from fallback_tier.gates.builtin.proof import fresh_files
from fallback_tier.ports import EcosystemPlugin

#: POSIX.1-2017, XCU 2.8.2: a command that was not found.
_NOT_FOUND = 127


@dataclass(frozen=True)
class CustomGate:
    """Runs one configured command, with the tree's dependencies installed."""

    settings: GateSettings
    plugin: EcosystemPlugin

    @property
    def name(self) -> str:
        """As it was configured."""
        return self.settings.name

    def judge(self, context: GateContext) -> GateVerdict:
        """Passed where the command ends with 0. Skipped where it can't tell: no dependencies, a command
        that fails at the base commit too, a failure that is not required. Raises SandboxError, ToolError.
        """
        ran = self._run(context, patched=True)
        if (ours := ran.result) is None:
            why = f"nothing could be installed, so it did not run: {ran.installed}"
            return skipped(self.name, why)
        if ours.ok:
            return passed(self.name, f"{self._command} ends well", ours.output)
        what = self._failure(ours)
        kinds = ["program_missing"] if ours.exit_code == _NOT_FOUND else []
        if self.settings.compare_base:
            base = self._run(context, patched=False).result
            if base is not None and not base.ok:
                what += ", and at the base commit too"
                return skipped(self.name, what, ours.output, kinds=kinds)
        if not self.settings.required:
            return skipped(self.name, f"{what} (not required)", ours.output, kinds=kinds)
        kind = FailureKind.GATE_TIMEOUT if ours.timed_out else FailureKind.CUSTOM_GATE_FAILED
        return failed(self.name, kind, what, ours.output)

    def _run(self, context: GateContext, *, patched: bool) -> TargetRun:
        command, timeout_s = self.settings.command, self.settings.timeout_s
        with fresh_files(context, patched=patched) as files:
            return self.plugin.run(context, files, command, timeout_s)

    def _failure(self, result: CommandResult) -> str:
        if result.timed_out:
            return f"{self._command} did not end within {self.settings.timeout_s:.0f} s"
        if result.exit_code == _NOT_FOUND:
            return f"{self._command} can't be run: a program is not there"
        return f"{self._command} ends with exit code {result.exit_code}"

    @property
    def _command(self) -> str:
        return " ".join(self.settings.command[:3])
