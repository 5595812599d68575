"""Scripted fixes that every engine runs: the trails that they leave are compared event by event.

An engine is a function that takes a fix's steps to its end. What it must not change is in ``trail_of``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_tier.advisory import parse_advisory
from fallback_tier.errors import ToolFailedError
from fallback_tier.fix.open_fix import OpenFix
from fallback_tier.fix.parts import FixParts
from fallback_tier.gate_ports import Gate, GateContext
from fallback_tier.limits import MAX_RETRIES
from fallback_tier.outcome import NotApplicable, RecipeSelection, Selected
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from tests.fakes.audit import MemoryAudit
from tests.fakes.gates import RuleGate, SkippedGate
from tests.fakes.repository import commit_all, write
from tests.fixtures.fallback_tier_callable import (
    ADVISORY,
    FILES,
    NO_RECIPE,
    OTHER_PLAN,
    PLAN,
    FallbackTierCallable,
)

if TYPE_CHECKING:
    from tests.engines.in_process import TemporalHere

BUMP = Selected(recipe="direct-bump", parameters={"package": "vulnerable", "version": "1.0.1"})

#: Of an event: when it took place, how long it took, and where its repository lies.
APART = frozenset({"duration_ms", "base_commit", "inputs_sha256"})


def plan(line: str) -> dict[str, Any]:
    """A plan of its own kind: puts ``line`` before the vulnerable one."""
    old = "    return open('data/' + name).read()"
    return {**PLAN, "edits": [{"path": "app.py", "old": old, "new": f"    {line}\n{old}"}]}


def contains(text: str) -> Callable[[], Gate]:
    return lambda: RuleGate(
        lambda context: text in context.worktree.tree.locate("app.py").read_text()
    )


def fails_attempt(number: int) -> Gate:
    return RuleGate(lambda c: c.application.attempt != number, name=f"g{number}")


class BrokenGate:
    """Its client can't do its work."""

    name = "resolves"

    def judge(self, context: GateContext) -> Any:
        raise ToolFailedError("The registry can't be reached.", next_step="Check the network.")


@dataclass(frozen=True)
class Script:
    """What the model answers, what the gates judge, and how it must end."""

    ends: str
    answers: Sequence[Any] = ()
    gates: Sequence[Callable[[], Gate]] = ()
    selection: RecipeSelection = NO_RECIPE
    with_model: bool = True


SCRIPTS = {
    "a recipe that passes": Script("FixVerified", gates=[contains("import")], selection=BUMP),
    "a recipe that fails, then the model": Script(
        "FixVerified", [plan("check(name)")], [contains("check(name)")], BUMP
    ),
    "each retry from the base commit": Script(
        "FixVerified", [plan("one"), plan("two")], [contains("two")]
    ),
    "the cap": Script(
        "FixEscalated",
        [plan(f"n{n}") for n in range(9)],
        [lambda n=n: fails_attempt(n) for n in range(1, MAX_RETRIES + 2)],  # type: ignore[misc]
    ),
    "three identical failures": Script(
        "FixEscalated", [plan(f"n{n}") for n in range(9)], [contains("never")]
    ),
    "a repeated edit set": Script("FixEscalated", [PLAN] * 10, [contains("never")]),
    "an unusable answer": Script(
        "FixVerified", ["?", "?", "?", OTHER_PLAN], [contains("ValueError")]
    ),
    "no answer": Script("FixEscalated", gates=[contains("x")]),
    "no fixed version": Script(
        "FixRefused",
        gates=[contains("x")],
        selection=NotApplicable(reason=RefusalReason.NO_FIXED_VERSION, sentence="None is fixed."),
    ),
    "a failed recipe and no model": Script(
        "FixEscalated", gates=[contains("never")], selection=BUMP, with_model=False
    ),
    "nothing that proves it": Script("FixEscalated", [PLAN], [SkippedGate]),
    "a client that can't work": Script("FixEscalated", [PLAN], [BrokenGate]),
}


@dataclass
class ScriptedFix:
    """A fix of a script over real git and a real worktree, as an engine gets it in hand."""

    root: Path
    script: Script
    audit: MemoryAudit = field(default_factory=MemoryAudit)
    opened: int = 0

    @contextmanager
    def open(self, fix_id: str) -> "Iterator[OpenFix]":
        """Begin it; an engine opens it once, where nothing dies."""
        self.opened += 1
        assert self.opened == 1
        repo_root = self.root / "repo"
        repo_root.mkdir(parents=True)
        write(repo_root, FILES)
        commit = commit_all(repo_root)
        case = FallbackTierCallable(repo_root, audit=self.audit, with_model=self.script.with_model)
        tier = case.build(ScriptedModel(self.script.answers))
        parts = FixParts(
            tier=tier,
            gates=[make() for make in self.script.gates],
            sandbox=UnsandboxedRunner(),
            clients=SubprocessClients(),
            audit=self.audit,
            evidence=case.evidence,
            workspace=self.root / "state",
            tool_version="0",
        )
        repo = RepoContext(
            root=repo_root,
            base_commit=commit,
            tracked_files=tuple(sorted(FILES)),
            manifests=("deps.txt",),
            fix_id=fix_id,
            gate_transition_id="gate-1",
        )
        advisory = parse_advisory(ADVISORY, "test")
        with closing(OpenFix(parts, advisory, repo, self.script.selection)) as fix:
            fix.begin()
            yield fix

    @property
    def trail(self) -> list[dict[str, Any]]:
        """The events in order, times and places apart."""
        return [
            event.model_dump(mode="json", exclude=set(APART)) | {"kind": event.kind}
            for event in self.audit.payloads
        ]


#: Takes the steps of the fix of this name to its end.
Engine = Callable[[ScriptedFix, str], None]


def by_loop(fix: ScriptedFix, fix_id: str) -> None:
    with fix.open(fix_id) as steps:
        while (key := steps.next()) is not None:
            steps.step(key)


def by_langgraph(fix: ScriptedFix, fix_id: str) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    from fallback_tier.engines.langgraph.fix import FixGraph

    with FixGraph(fix.open, fix.audit, InMemorySaver()) as graph:
        end = graph.run(fix_id)
    assert end.waits == (end.outcome == "escalated")


def by_temporal(here: "TemporalHere", fix: ScriptedFix, fix_id: str) -> None:
    """On a real server, by a worker in this process (``tests/engines``)."""
    found = here.run(lambda _workflow: fix.open(fix_id))
    waits = fix.trail[-1]["kind"] == "FixEscalated"
    assert found.phase == ("waiting" if waits else "ended"), found


ENGINES: dict[str, Engine] = {"langgraph": by_langgraph}

#: Engines that need something started once for many fixes: the fixture that has it.
SERVED = {"temporal": "temporal_here"}
