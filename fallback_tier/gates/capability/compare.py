"""Comparison of changed files' capability uses with the base commit's: more frequent uses are new."""

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

#: How many locations of one new use a verdict names.
_SHOWN_PLACES = 3

#: How many problems the log has. With the explanation of how to declare, they all fit into a retry's
#: summary.
_LOGGED = 8


def compare(
    changes: Iterable[FileChange],
    declared: frozenset[Capability],
    *,
    gate: str,
    project: Project | None = None,
) -> GateVerdict:
    """Return the verdict on these changes, given the declared capabilities and the base commit's
    project."""
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
        """Read one file before and after the change. A new file had no uses before."""
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
        counts_before = Counter(before.counts if before else {})
        self.before += counts_before
        self.after += Counter(after.counts)
        self.questions |= after.questions
        for use, lines in after.lines.items():
            if len(lines) > counts_before[use]:
                self.places.setdefault(use, []).extend(
                    f"{change.path} line {number}" for number in lines
                )

    def _new(self) -> list[CapabilityUse]:
        """Return the uses that are more frequent, except what the project has, or the patch defines."""
        new = self.after - self.before
        questions = {self.questions[use] for use in new if use in self.questions}
        known = answered(questions, self.old_texts)
        known |= answered(questions - known, self.new_texts, defined=True)
        known |= {
            question
            for question in questions
            if question.about is About.FILE and question.name in stems(self.made)
        }
        known |= self.project.known(questions - known)
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
            detail = f"no changed file is in a language that is read ({_shown(self.unknown)})"
            return skipped(gate, detail)
        return passed(gate, "; ".join([*self._passed(new, declared), *self._unread()]))

    def _replaced(self) -> frozenset[Capability]:
        """Return the kinds of which a use was removed, and that are not used more than before: a usual fix
        (``exec`` becomes ``execFile``) is not new. An imported module counts with its call."""
        removed, added = (
            self._calls(self.before - self.after),
            self._calls(self.after - self.before),
        )
        # Of two unknown uses it is not known which one can do more.
        removed.pop(Capability.UNKNOWN, None)
        return frozenset(kind for kind in removed if added[kind] <= removed[kind])

    def _calls(self, uses: Counter[CapabilityUse]) -> Counter[Capability]:
        """Return how often each kind is used, without modules of which more specific uses exist."""
        callees = {use.callee for use in (*self.before, *self.after)}
        counts: Counter[Capability] = Counter()
        for use, times in uses.items():
            if not any(callee.startswith(f"{use.callee}.") for callee in callees):
                counts[use.capability] += times
        return counts

    def _passed(self, new: list[CapabilityUse], declared: frozenset[Capability]) -> Iterator[str]:
        for use in new:
            reason = "declared" if use.capability in declared else "in another's place:"
            yield f"{reason} {self._described(use)}"
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
    """Yield the advice for the retry: what to write, or to do without."""
    if undeclared:
        kinds = ", ".join(f'"{kind.value}"' for kind in sorted({use[0] for use in undeclared}))
        yield (
            f'Do without, or declare it: add "capabilities": [{kinds}] to the plan, beside "action", and '
            'say in one sentence of "rationale" why the fix needs that.'
        )


def _shown(locations: list[str]) -> str:
    more = ", ..." if len(locations) > _SHOWN_PLACES else ""
    return ", ".join(locations[:_SHOWN_PLACES]) + more
