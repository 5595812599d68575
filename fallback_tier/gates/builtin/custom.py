"""A gate configured by the user: a command that must exit with 0 on the patched files.

It runs the same whether the base commit or a person's file configures it: always in the sandbox, without
network, over files that no earlier command has touched. So an untrusted base commit can at worst judge its
own fix wrongly, and the record says so.
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
        """The configured name."""
        return self.settings.name

    def judge(self, context: GateContext) -> GateVerdict:
        """Pass if the command exits with 0. Skip if it proves nothing: no dependencies, a command that also
        fails at the base commit (if it is compared), a failure that is not required. Raises SandboxError,
        ToolError."""
        ran = self._run(context, patched=True)
        if (patched_result := ran.result) is None:
            why = f"nothing could be installed, so it did not run: {ran.installed}"
            return skipped(self.name, why)
        if patched_result.ok:
            return passed(self.name, f"{self._command} ends well", patched_result.output)
        failure = self._failure(patched_result)
        kinds = ["program_missing"] if patched_result.exit_code == _NOT_FOUND else []
        if self.settings.compare_base:
            base = self._run(context, patched=False).result
            if base is not None and not base.ok:
                failure += ", and at the base commit too"
                return skipped(self.name, failure, patched_result.output, kinds=kinds)
        if not self.settings.required:
            return skipped(
                self.name, f"{failure} (not required)", patched_result.output, kinds=kinds
            )
        kind = (
            FailureKind.GATE_TIMEOUT if patched_result.timed_out else FailureKind.CUSTOM_GATE_FAILED
        )
        return failed(self.name, kind, failure, patched_result.output)

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
