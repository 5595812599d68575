"""Step 5 of docs/ecosystem.md: what judges a patch. Nothing here trusts the recipe."""

from dataclasses import dataclass

from almanac_plugin.files import LOCK, MANIFEST, read_lock, read_manifest
from almanac_plugin.installing import install, run

from fallback_audit.vocabulary import TESTS_GATE, FailureKind, GateStatus, ProofLevel
from fallback_tier.advisory import is_affected
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict
from fallback_tier.repo import RepoContext

TESTS = "tests/run.sh"


def build_gates() -> tuple[Gate, ...]:
    return ResolvesGate(), NotVulnerableGate(), TestsGate()


def patched(context: GateContext) -> RepoContext:
    return context.repo.laid_out(context.worktree.tree)


def verdict(gate: str, detail: str, kind: FailureKind | None = None, log: str = "") -> GateVerdict:
    status = GateStatus.PASSED if kind is None else GateStatus.FAILED
    return GateVerdict(gate=gate, status=status, detail=detail, failure_kind=kind, log=log)


@dataclass(frozen=True)
class ResolvesGate:
    """The lock holds what the manifest needs, and all of it can be had."""

    name: str = "resolves"

    def judge(self, context: GateContext) -> GateVerdict:
        tree = patched(context)
        try:
            needs = read_manifest(tree.read_text(MANIFEST))
            held = {one.name: one.version for one in read_lock(tree.read_text(LOCK))}
            install(context, tree)
        except ValueError as error:
            return verdict(self.name, str(error), FailureKind.RESOLUTION_FAILED)
        if held != needs:
            why = f"{LOCK} is not of its {MANIFEST}"
            return verdict(self.name, why, FailureKind.RESOLUTION_FAILED)
        return verdict(self.name, f"{len(held)} package(s) as locked")


@dataclass(frozen=True)
class NotVulnerableGate:
    """No affected version is locked. The name is one of those whose pass shows the flaw gone."""

    name: str = "not_vulnerable"

    def judge(self, context: GateContext) -> GateVerdict:
        for one in read_lock(patched(context).read_text(LOCK)):
            if is_affected(context.advisory, "Almanac", one.name, one.version):
                what = f"{one.name} {one.version} is affected still"
                return verdict(self.name, what, FailureKind.STILL_VULNERABLE)
        reported = verdict(self.name, "no affected version is locked")
        return reported.model_copy(update={"proof_level": ProofLevel.RESOLVED_TREE})


@dataclass(frozen=True)
class TestsGate:
    """The project's tests, in the sandbox, with what the lock names."""

    name: str = TESTS_GATE

    def judge(self, context: GateContext) -> GateVerdict:
        if not context.repo.has(TESTS):
            return GateVerdict(
                gate=self.name, status=GateStatus.SKIPPED, detail=f"there is no {TESTS}"
            )
        done = run(context, patched(context), ["sh", TESTS], None)
        kind = None if done.ok else FailureKind.TESTS_FAILED
        return verdict(self.name, f"sh {TESTS} ended with {done.exit_code}", kind, done.output)
