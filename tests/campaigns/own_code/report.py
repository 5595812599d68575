"""The report of the own-code cases, made from the rows (and how the cases were drawn) alone."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fallback_eval.campaign import Half, Rows
from tests.campaigns.measuring.pages import (
    ROOT,
    in_label_order,
    made_of,
    table,
)
from tests.campaigns.own_code.cases import HERE
from tests.campaigns.own_code.ends import Stop
from tests.campaigns.own_code.figures import FIGURES, TOKENS, false_fixed, tokens
from tests.campaigns.own_code.results import Result

#: Where results and report lie.
FOLDER = ROOT / "docs" / "evaluation" / "own-code"

#: About the output tokens that one answer may have (``Settings.max_output_tokens``): a real model could
#: not have given a longer plan whole.
_LONG_PLAN_BYTES = 8_192

#: What became of each record that was looked at for a case.
DRAW = HERE / "draw.jsonl"

_HEAD = """# Packages mended in their own repository

A case is a real repository at the commit before a published fix, its advisory as OSV, and a proof: \
upstream's test of the
flaw, or one of ours. `fallback-tier fix` runs as a user would run it. No model is asked: a server on \
loopback gives answers
that are known beforehand, so the figures say what the tool does with them, not how good a model is.

- **(a)** The answer is upstream's fix as a plan. It should end as fixed and proved, with exit code 0 \
and the proof passed.
- **(b)** In these runs the base commit's tests, and the proof, should really run.
- **(c)** The prompt should show the place of the fix: the lines that it removes, or, of an insertion, \
the lines around it.
- **(d)** Wrong answers (a change of another file, a comment, half of the fix, a statement beside it or \
elsewhere) must never
be called fixed. Without a proof nothing shows the flaw gone, so there no answer may be, not even the \
true one.
"""

#: Kinds of which the report says more: which gate, which question, which reason.
_NAMED = frozenset({Stop.GATE, Stop.PERSON, Stop.NO_PLAN, Stop.REFUSED, Stop.TOOL})


def labels_of(rows: Iterable[Result]) -> list[str]:
    """The oldest first."""
    return in_label_order(row.label for row in rows)


def render(results: Sequence[Result], drawn: Sequence[Mapping[str, object]] = ()) -> str:
    """The page, always the same for the same rows."""
    rows = sorted(results, key=lambda row: (row.name, row.label))
    parts = [_HEAD]
    for half in Half:
        if found := [row for row in rows if row.half is half]:
            parts += [f"## The half {half}\n" if half is Half.SEEN else "## The half set aside\n"]
            parts += _looked_at_again(found) if half is Half.SET_ASIDE else ()
            parts += _half(found)
    parts += ["## How the cases were drawn\n", _drawn(drawn), "## How it was made\n", _made(rows)]
    return "\n".join(parts)


def _looked_at_again(rows: Sequence[Result]) -> Iterator[str]:
    """Where what was seen in this half may have been mended since."""
    if again := [row.name for row in rows if row.looks > 1]:
        yield (
            f"Looked at more than once, and mended in between: {', '.join(again)}. What they show now is "
            "no blind figure.\n"
        )


def _half(rows: Sequence[Result]) -> Iterator[str]:
    yield _figures(rows)
    yield "### By ecosystem\n"
    yield _by(rows, lambda row: row.ecosystem)
    yield "### By what installs it\n"
    yield _by(rows, lambda row: f"{row.ecosystem}, {row.installs_by}")
    yield "### What stopped a perfect answer\n"
    yield _stops(rows)
    yield "### Case by case\n"
    yield _cases(rows)
    yield "### In the tool's own words\n"
    yield _words(rows)
    yield "### Wrong answers\n"
    yield _wrong(rows)


def _figures(rows: Sequence[Result]) -> str:
    labels = labels_of(rows)
    cells = [
        (one.name, one.goal, *(str(one.share(_of(rows, label))) for label in labels))
        for one in FIGURES
    ]
    last = max(at for at, cell in enumerate(cells) if cell[0].startswith("(c) first prompt"))
    cells.insert(last + 1, (TOKENS, "", *(tokens(_of(rows, label)) for label in labels)))
    return table(("figure", "goal", *labels), cells)


def _by(rows: Sequence[Result], group: Callable[[Result], str]) -> str:
    chosen = [one for one in FIGURES if one.goal]
    head = ("", "", *(one.name for one in chosen))
    cells = [
        (name, label, *(str(one.share(found)) for one in chosen))
        for name in sorted(set(map(group, rows)))
        for label in labels_of(rows)
        if (found := [row for row in _of(rows, label) if group(row) == name])
    ]
    return table(head, cells)


def _stops(rows: Sequence[Result]) -> str:
    labels = labels_of(rows)
    counts = {label: Counter(map(_kind, _of(rows, label))) for label in labels}
    kinds = sorted({kind for count in counts.values() for kind in count})
    return table(
        ("what stopped it", *labels),
        ((kind, *(str(counts[label][kind]) for label in labels)) for kind in kinds),
    )


def _kind(row: Result) -> str:
    if row.stopped is None:
        return "nothing: proved"
    return (
        f"{row.stopped.stop}: {row.stopped.what}"
        if row.stopped.stop in _NAMED
        else row.stopped.stop
    )


def _cases(rows: Sequence[Result]) -> str:
    labels = labels_of(rows)
    head = ("case", "advisory", "installed by", *labels)
    return table(head, (_case(name, rows, labels) for name in sorted({row.name for row in rows})))


def _case(name: str, rows: Sequence[Result], labels: Sequence[str]) -> tuple[str, ...]:
    found = {row.label: row for row in rows if row.name == name}
    one = next(iter(found.values()))
    reported = (_told(found[label]) if label in found else "-" for label in labels)
    return (name, one.record, f"{one.ecosystem}, {one.installs_by}", *reported)


def _told(row: Result) -> str:
    """One cell: (a), (b), (c), (d) in short."""
    messages = ["**proved**" if row.proved else _kind(row)]
    messages.append(f"tests {'ran' if row.tests.ran else 'not run'}")
    messages.append(f"proof {'ran' if row.proof.ran else 'not run'}")
    seen = row.first
    messages.append(f"shown {seen.lines_shown}/{seen.lines}" if seen else "no prompt")
    if row.false_fixed:
        messages.append(f"**{row.false_fixed} false fixed**")
    return "; ".join(messages)


def _words(rows: Sequence[Result]) -> str:
    cells = []
    for row in rows:
        if row.stopped is not None and row.stopped.said:
            cells.append((row.name, row.label, "perfect answer", row.stopped.said))
        if not row.tests.ran:
            cells.append((row.name, row.label, "tests not run", row.tests.detail))
        if not row.proof.ran and (row.stopped is None or row.proof.detail != row.stopped.said):
            cells.append((row.name, row.label, "proof not run", row.proof.detail))
        if row.plan.left_out:
            left = ", ".join(row.plan.left_out)
            cells.append((row.name, row.label, "left out of the plan", left))
    return table(("case", "label", "what", "words"), cells) if cells else "None.\n"


def _wrong(rows: Sequence[Result]) -> str:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for row in rows:
        for one in row.wrong:
            how = "with the proof" if one.with_proof else "without"
            end = "**false fixed**" if one.is_false else one.outcome
            if one.says_fixed and not one.is_false:
                end = "fixed, and the proof passes"
            counts[(row.label, how, str(one.kind), end)] += 1
    cells = ((*key, str(count)) for key, count in sorted(counts.items()))
    return table(("label", "", "plan", "end", "how often"), cells) + (
        "\n`failed`: a gate stopped it, and the next attempt followed. `never asked`: the run ended "
        "before a plan was asked for.\n"
    )


def _drawn(drawn: Sequence[Mapping[str, object]]) -> str:
    if not drawn:
        return "Not told.\n"
    key = next(
        (key for key in ("outcome", "result", "why", "reason") if key in drawn[0]), "outcome"
    )
    counts = Counter(str(one.get(key, "?")) for one in drawn)
    head = f"{len(drawn)} records were looked at, in an order that was fixed beforehand:\n\n"
    return head + table(
        ("what became of it", "records"),
        ((message, str(count)) for message, count in counts.most_common()),
    )


def _made(rows: Sequence[Result]) -> str:
    absent = sorted({row.name for row in rows if row.absent})
    long = sorted({row.name for row in rows if row.plan.bytes > _LONG_PLAN_BYTES})
    inexact = sorted({row.name for row in rows if row.plan.exact is False})
    message = f"not so in {', '.join(inexact)}" if inexact else "so in every case"
    return (
        made_of(rows)
        + _apart(rows)
        + (
            "\n\nThat the edits leave upstream's files to the byte is checked where the fix's commit is "
            f"at hand: {message}.\nPlans of more than {_LONG_PLAN_BYTES:,} bytes, which no answer of 2,048 "
            f"tokens can hold: {', '.join(long) or 'none'}.\nMeasured without files that the clone lacks: "
            f"{', '.join(absent) or 'none'}.\n`results.jsonl` has a row a case and label; "
            "`python -m tests.campaigns.own_code --check` says whether page, rows and cases\nstill fit.\n"
        )
    )


def _apart(rows: Sequence[Result]) -> str:
    """Rows of which the true fix was run without the wrong answers."""
    earlier = [f"{row.name} ({row.made}; {row.wrong_of})" for row in rows if row.wrong_of]
    latest = _of(rows, labels_of(rows)[-1])
    none = [row.name for row in latest if row.wrong_skipped and not row.wrong]
    messages = []
    if earlier:
        messages.append(
            "Two runs, of the true fix and, earlier, of the wrong answers, whose ends and retry prompts "
            f"those are: {', '.join(earlier)}."
        )
    if none:
        messages.append(f"No wrong answers were given: {', '.join(none)}.")
    return "".join(f"\n\n{message}" for message in messages)


def check(results: Sequence[Result], digests: Mapping[str, tuple[str, Half]]) -> list[str]:
    """What does not fit: rows and cases. ``digests``: name → digest, half."""
    found = []
    for row in results:
        if row.name not in digests or digests[row.name][0] != row.case_sha256:
            found.append(f"{row.name} ({row.label}) is of another form of the case, or of none")
    for label in labels_of(results):
        halves = {row.half for row in _of(results, label)}
        wanted = {name for name, (_, half) in digests.items() if half in halves}
        missing = wanted - {row.name for row in _of(results, label)}
        found += [f"no result of {name} ({label})" for name in sorted(missing)]
    if number := false_fixed(_of(results, "now")):
        found.append(f"{number} ends say fixed where nothing shows the flaw gone")
    return found


def read_drawn(place: Path = DRAW) -> tuple[Mapping[str, object], ...]:
    """How the cases were drawn, a record each; none without the file."""
    lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    return tuple(json.loads(line) for line in lines)


def _of(rows: Iterable[Result], label: str) -> list[Result]:
    return [row for row in rows if row.label == label]


def _key(row: Result) -> tuple[str, str]:
    return row.label, row.name


ROWS = Rows(Result, _key, page=lambda rows: render(rows, read_drawn()), order=_key)
