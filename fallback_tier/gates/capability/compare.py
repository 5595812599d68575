"""Compares the capability uses of changed files with what they did before: new is what is used more
often."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fallback_audit.vocabulary import Capability, FailureKind
from fallback_tier.gate_ports import GateVerdict, failed, passed, skipped
from fallback_tier.gates.capability.project import About, Project, Question, answered, stems
from fallback_tier.gates.capability.reader import CapabilityUse, capability_uses
from fallback_tier.outcome import FileChange
from fallback_tier.patch.policy import recipe_only_reason
from fallback_tier.syntax import grammar_of_text

#: Places of one new use that a verdict names.
_SHOWN_PLACES = 3

#: Problems that the log has. With the way to declare in front, a retry's summary holds them all.
_LOGGED = 8


def compare(
    changes: Iterable[FileChange],
    declared: frozenset[Capability],
    *,
    gate: str,
    project: Project | None = None,
) -> GateVerdict:
    """The verdict on these changes, where the plan declared so much. ``project``: at the base commit."""
    compared = _Compared(project or Project())
    for change in changes:
        compared.add(change)
    return compared.verdict(gate, declared)


@dataclass
class _Compared:
    project: Project
    before: Counter[CapabilityUse] = field(default_factory=Counter)
    after: Counter[CapabilityUse] = field(default_factory=Counter)
    places: dict[CapabilityUse, list[str]] = field(default_factory=dict)
    questions: dict[CapabilityUse, Question] = field(default_factory=dict)
    old_texts: list[str] = field(default_factory=list)
    new_texts: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    read: int = 0

    def add(self, change: FileChange) -> None:
        """Read one file as it was and as it is. One that was not there used nothing."""
        grammar = grammar_of_text(change.path, change.after or "", change.before or "")
        if not grammar:
            if recipe_only_reason(change.path) is None:
                self.unknown.append(change.path)
            return
        before, after = (
            capability_uses(text or "", grammar, change.path)
            for text in (change.before, change.after)
        )
        if before is None and after is None:
            self.unknown.append(change.path)  # a table or bundle that a program wrote
            return
        self.read += 1
        if after is None or (after.is_broken and not (before and before.is_broken)):
            self.unreadable.append(change.path)
        if after is None:
            return
        self.old_texts.append(change.before or "")
        self.new_texts.append(change.after or "")
        self.made.append(change.path)
        was = Counter(before.counts if before else {})
        self.before += was
        self.after += Counter(after.counts)
        self.questions |= after.questions
        for use, lines in after.lines.items():
            if len(lines) > was[use]:
                self.places.setdefault(use, []).extend(f"{change.path} line {n}" for n in lines)

    def _new(self) -> list[CapabilityUse]:
        """What is used more often, without what the project has, or the patch defines."""
        new = self.after - self.before
        asked = {self.questions[use] for use in new if use in self.questions}
        known = answered(asked, self.old_texts)
        known |= answered(asked - known, self.new_texts, defined=True)
        known |= {one for one in asked if one.about is About.FILE and one.name in stems(self.made)}
        known |= self.project.known(asked - known)
        return sorted(use for use in new if self.questions.get(use) not in known)

    def verdict(self, gate: str, declared: frozenset[Capability]) -> GateVerdict:
        new = self._new()
        replaced = self._replaced()
        excused = declared | replaced
        undeclared = [use for use in new if use.capability not in excused]
        problems = [f"{path!r} could not be read as its language" for path in self.unreadable]
        problems += [f"new {self._described(use)}" for use in undeclared]
        if problems:
            log = "\n".join([*_how_to_declare(undeclared), *problems[:_LOGGED]])
            return failed(
                gate,
                FailureKind.UNDECLARED_CAPABILITY,
                problems[0] if len(problems) == 1 else f"{len(problems)} problems: {problems[0]}",
                log,
            )
        if self.unknown and not self.read:
            what = f"no changed file is in a language that is read ({_shown(self.unknown)})"
            return skipped(gate, what)
        return passed(gate, "; ".join([*self._passed(new, declared), *self._unread()]))

    def _replaced(self) -> frozenset[Capability]:
        """Return the kinds of which no more is used than before, so that a usual fix (``exec`` becomes
        ``execFile``) is not new. An imported module counts with its call."""
        gone, come = self._calls(self.before - self.after), self._calls(self.after - self.before)
        gone.pop(Capability.UNKNOWN, None)  # of two unknown uses nobody knows which can do more
        return frozenset(kind for kind in gone if come[kind] <= gone[kind])

    def _calls(self, uses: Counter[CapabilityUse]) -> Counter[Capability]:
        """How often each kind is used, without modules of which more particular uses are there."""
        callees = {use.callee for use in (*self.before, *self.after)}
        counts: Counter[Capability] = Counter()
        for use, times in uses.items():
            if not any(callee.startswith(f"{use.callee}.") for callee in callees):
                counts[use.capability] += times
        return counts

    def _passed(self, new: list[CapabilityUse], declared: frozenset[Capability]) -> Iterator[str]:
        for use in new:
            how = "declared" if use.capability in declared else "in another's place:"
            yield f"{how} {self._described(use)}"
        if not new:
            yield (
                f"{self.read} source file(s) changed, none starts a process, opens a connection, runs "
                "made-up code or reaches for anything unknown that did not before"
                if self.read
                else "no source file changed"
            )

    def _unread(self) -> Iterator[str]:
        if self.unknown:
            yield f"not read: {_shown(self.unknown)}"

    def _described(self, use: CapabilityUse) -> str:
        kind = use.capability.value.replace("_", " ")
        return f"{kind} use of {use.callee} ({_shown(self.places.get(use, []))})"


def _how_to_declare(undeclared: list[CapabilityUse]) -> Iterator[str]:
    """The retry reads this: what to write where, or to do without."""
    if undeclared:
        kinds = ", ".join(f'"{kind.value}"' for kind in sorted({use[0] for use in undeclared}))
        yield (
            f'Do without, or declare it: add "capabilities": [{kinds}] to the plan, beside "action", and '
            'say in one sentence of "rationale" why the fix needs that.'
        )


def _shown(places: list[str]) -> str:
    more = ", ..." if len(places) > _SHOWN_PLACES else ""
    return ", ".join(places[:_SHOWN_PLACES]) + more
