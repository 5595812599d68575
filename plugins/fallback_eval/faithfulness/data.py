"""From references to plans and contexts: what a judge of the golden set is shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, JsonValue, ValidationError

from fallback_eval.faithfulness.golden import EditRef, FaithfulnessSet, PlanRef
from fallback_eval.retrieval.data import FILE
from fallback_eval.retrieval.golden import Fault, ensure
from fallback_plugins.solved_examples.sources.dataset import Hunk
from fallback_plugins.solved_examples.sources.dataset import hunks as hunks_of
from fallback_plugins.solved_examples.store.records import lines, not_valid
from fallback_tier.errors import InputError
from fallback_tier.grounding.support import Claim, claims_of
from fallback_tier.llm.judging import JudgeContext
from fallback_tier.outcome import DependencyBump, Plan, SearchReplace, SourceEdit
from fallback_tier.prompt.context import Snippet
from fallback_tier.retrieval import edit_line

#: Of an example's advisory text: its first sentences say what was wrong.
MAX_EXAMPLE_TEXT_CHARS = 320

#: An example's edit is shown if it is as short as this: four of them then fit a small model's context.
MAX_EXAMPLE_EDIT_CHARS = 700

#: Unchanged lines kept on either side of an edit's change.
_CONTEXT_LINES = 2


class _Row(BaseModel):
    id: str
    packages: tuple[str, ...]
    affected: tuple[dict[str, JsonValue], ...] = ()
    cwe_ids: tuple[str, ...] = ()
    summary: str | None = None
    details: str | None = None
    diff: str = ""


@dataclass(frozen=True)
class Case:
    """A plan with its claims, and the context with all its examples."""

    ref: PlanRef
    plan: Plan
    claims: tuple[Claim, ...]
    context: JudgeContext

    def context_with(self, examples: int) -> JudgeContext:
        """As if only the first so many had been retrieved."""
        return self.context.model_copy(update={"examples": self.context.examples[:examples]})


def load_cases(golden: FaithfulnessSet, folder: Path) -> tuple[Case, ...]:
    """Every plan of the set over the data set in ``folder``, in the set's order.

    Raises InputError where there is no data set, GoldenSetError where a reference leads nowhere or the
    product reads other claims out of a plan than were labelled.
    """
    records = _Records(folder)
    wrong: list[Fault] = []
    cases: list[Case] = []
    for ref in golden.plans.values():
        try:
            case = _case(ref, golden, records)
        except (KeyError, IndexError) as error:
            wrong.append(Fault(ref.plan, f"the data set has no {error}"))
            continue
        cases.append(case)
        wrong += _faults(case, golden)
    ensure(iter(wrong))
    return tuple(cases)


class _Records:
    """The data set's records that are asked for."""

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        if not path.is_file():
            raise InputError(
                f"There is no {FILE} in {str(folder)!r}.",
                next_step="Give the folder of the data set with --data.",
            )
        self._rows: Mapping[str, _Row] = {
            row.id: row for row in (_row(line, place) for place, line in lines(path))
        }

    def row(self, record: str) -> _Row:
        """Raises KeyError."""
        return self._rows[record]

    def hunks(self, record: str) -> tuple[Hunk, ...]:
        """The hunks of a fix that are edits, in the diff's order. Raises KeyError."""
        return _hunks(self.row(record).diff)

    def advisory(self, record: str) -> str:
        """As a prompt shows it: ids, packages with fixed versions, weakness, text."""
        row = self.row(record)
        fixed = ", ".join(_fixed(row)) or "no version named"
        head = [f"id: {row.id}", *(f"package: {name}; fixed in: {fixed}" for name in row.packages)]
        if row.cwe_ids:
            head.append(f"weakness: {', '.join(row.cwe_ids)}")
        return "\n".join((*head, "", _text(row)))

    def example(self, record: str) -> str:
        """As a prompt shows a solved example, cut so that four fit."""
        row = self.row(record)
        text = " ".join(_text(row).split())
        if len(text) > MAX_EXAMPLE_TEXT_CHARS:
            text = text[:MAX_EXAMPLE_TEXT_CHARS].rpartition(" ")[0] + " […]"
        edits = (_trimmed(hunk.edit) for hunk in self.hunks(record))
        short = [line for line in map(edit_line, edits) if len(line) <= MAX_EXAMPLE_EDIT_CHARS]
        # The largest that fits: the first one of a fix is its import as a rule.
        shown = max(short, key=len, default=None)
        return "\n".join(
            (
                f"example {record}, package {', '.join(row.packages)}",
                text,
                *(["an edit that fixed it:", shown] if shown else []),
            )
        )


def _case(ref: PlanRef, golden: FaithfulnessSet, records: _Records) -> Case:
    """Raises KeyError or IndexError for what the data set has not."""
    hunks = records.hunks(ref.record)
    snippets = tuple(
        Snippet(
            id=f"S{number}",
            path=hunks[index].edit.path,
            start_line=max(1, hunks[index].line),
            text=hunks[index].edit.old,
        )
        for number, index in enumerate(ref.hunks, 1)
    )
    plan = _plan(ref, golden, records)
    context = JudgeContext(
        advisory=records.advisory(ref.record),
        snippets=snippets,
        examples=tuple(records.example(record) for record in ref.examples),
    )
    return Case(ref, plan, claims_of(plan), context)


def _plan(ref: PlanRef, golden: FaithfulnessSet, records: _Records) -> Plan:
    rationale = " ".join(one.text for one in golden.claims[ref.plan] if one.text is not None)
    if ref.version is not None:
        package = records.row(ref.record).packages[0]
        return DependencyBump(package=package, version=ref.version, rationale=rationale)
    assert ref.edit is not None  # noqa: S101 (the set was checked: a version or an edit)
    edit = _edit(ref.edit, records)
    if ref.path is not None:
        edit = edit.model_copy(update={"path": ref.path})
    return SourceEdit(edits=(edit,), rationale=rationale)


def _edit(ref: EditRef, records: _Records) -> SearchReplace:
    return _trimmed(records.hunks(ref.record)[ref.edit].edit)


def _faults(case: Case, golden: FaithfulnessSet) -> Iterator[Fault]:
    """The product reads the claims out of the plan that were labelled."""
    labelled = golden.claims[case.ref.plan]
    if len(case.claims) != len(labelled):
        yield Fault(
            case.ref.plan, f"{len(labelled)} claims are labelled, the plan has {len(case.claims)}"
        )
    for claim, label in zip(case.claims, labelled, strict=False):
        if label.text is not None and claim.text != label.text:
            yield Fault(case.ref.plan, f"{label.claim} is read as {claim.text!r}")


@lru_cache(maxsize=256)
def _hunks(diff: str) -> tuple[Hunk, ...]:
    return tuple(part for part in hunks_of(diff) if isinstance(part, Hunk))


def _trimmed(edit: SearchReplace) -> SearchReplace:
    """Two lines of what didn't change on either side: a diff has more."""
    old, new = edit.old.splitlines(keepends=True), edit.new.splitlines(keepends=True)
    head = max(0, _same(old, new) - _CONTEXT_LINES)
    old, new = old[head:], new[head:]
    tail = max(0, _same(old[::-1], new[::-1]) - _CONTEXT_LINES)
    tail = min(tail, len(old) - 1, len(new))
    return SearchReplace(
        path=edit.path,
        old="".join(old[: len(old) - tail]),
        new="".join(new[: len(new) - tail]),
    )


def _same(first: list[str], second: list[str]) -> int:
    """How many lines both begin with."""
    pairs = zip(first, second, strict=False)
    return next(
        (at for at, (one, other) in enumerate(pairs) if one != other),
        min(map(len, (first, second))),
    )


def _text(row: _Row) -> str:
    return "\n".join(part for part in (row.summary, row.details) if part)


def _fixed(row: _Row) -> Iterator[str]:
    """Fixed versions in either of the data set's forms: OSV events, or one range."""
    for entry in row.affected:
        if isinstance(simple := entry.get("fixed_version"), str):
            yield simple.lstrip(">=^~ ")
        for span in _dicts(entry.get("ranges")):
            for event in _dicts(span.get("events")):
                if isinstance(fixed := event.get("fixed"), str):
                    yield fixed


def _dicts(value: JsonValue) -> Iterator[dict[str, JsonValue]]:
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _row(line: bytes, place: str) -> _Row:
    try:
        return _Row.model_validate_json(line)
    except ValidationError as error:
        raise not_valid(place, "a fix of a data set", error) from error
