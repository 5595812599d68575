"""The page of the peers: their rows beside the study's own rows of the same tasks and seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fallback_eval.document import Document, Section, Table, percent, signed
from fallback_eval.retry import run as study
from fallback_eval.retry.policies import Policy
from fallback_eval.statistics import bootstrap
from tests.campaigns.retry.peers.cases import BLOCK, SEED, Row
from tests.campaigns.retry.peers.programs import Peer

_INTRO: Final = (
    (
        "With the same model, tasks, budget and proof, how many tasks do other ways to use the model fix? "
        "Design, sample and endpoints are in `plan.md`, written before any run. All figures follow from "
        "`results.jsonl` and, for the product, from `../results.jsonl`; verdicts follow again from the "
        "patches in the rows (`--check`)."
    ),
)
_NOTES: Final = (
    (
        "*fixed*: base tests and proof pass; *stricter*: the hidden checks too, which no model sees. The "
        "product's rows need all of its gates, also those of a patch's form and capabilities."
    ),
    (
        "What differs: fresh-context sees a decoy in its first attempt, and its answers are held to a "
        "grammar; peers have neither. aider's and mini-swe-agent's prompts are their own, and longer than "
        "the study's, which was shortened for a model of this size. mini-swe-agent can read "
        "the proof's file, of which the product's model sees a summary. The bare prompt has one call: its "
        "counterpart is the product's first attempt."
    ),
    (
        "One small model (1.5 billion parameters, 4 bit), programs of one function, one seed: this says "
        "how the harnesses do with such a model, and nothing of larger ones."
    ),
)
_FIRST: Final = "product, first attempt"
_PRODUCT: Final = "product, fresh-context"


@dataclass(frozen=True)
class Result:
    """What a case gives, whoever ran it."""

    task: str
    is_fixed: bool
    is_stricter: bool
    calls: int
    tokens: int
    model_seconds: float


Results = Mapping[str, Mapping[str, Result]]


def page(rows: Sequence[Row], product: Sequence[study.Row]) -> Document:
    """Return the page. ``product``: the study's rows; those of fresh-context and the seed count."""
    by_peer = {
        peer.value: {row.task: _result(row) for row in rows if row.peer is peer} for peer in Peer
    }
    ours = [row for row in product if row.policy is Policy.FRESH_CONTEXT and row.seed == SEED]
    by_product = {
        _FIRST: {row.task: _first_result(row) for row in ours},
        _PRODUCT: {row.task: _product_result(row) for row in ours},
    }
    found = {name: results for name, results in by_peer.items() if results}
    if not found:
        return Document(
            "Peers of the retry study", _INTRO, [Section("Results", ("No peer was run yet.",))]
        )
    return Document(
        "Peers of the retry study",
        _INTRO,
        [
            _same_tasks(found, by_product),
            _each_peer(found, by_product),
            _ends(rows),
            Section("How to read this", _NOTES),
        ],
    )


def _result(row: Row) -> Result:
    return Result(
        task=row.task,
        is_fixed=row.is_fixed,
        is_stricter=row.stricter is True,
        calls=len(row.calls),
        tokens=row.input_tokens + row.output_tokens,
        model_seconds=row.model_seconds,
    )


def _product_result(row: study.Row) -> Result:
    return Result(
        task=row.task,
        is_fixed=row.fixed_at is not None,
        is_stricter=row.fixed_at is not None and row.stricter is True,
        calls=sum(one.calls for one in row.attempts),
        tokens=sum(one.input_tokens + one.output_tokens for one in row.attempts),
        model_seconds=row.model_seconds,
    )


def _first_result(row: study.Row) -> Result:
    """The first attempt alone; its seconds are not known apart from the others'."""
    first = row.attempts[:1]
    return Result(
        task=row.task,
        is_fixed=row.is_first_try,
        is_stricter=row.is_first_try and row.stricter is True,
        calls=sum(one.calls for one in first),
        tokens=sum(one.input_tokens + one.output_tokens for one in first),
        model_seconds=0.0,
    )


def _same_tasks(peers: Results, product: Results) -> Section:
    groups = {**peers, **product}
    tasks = sorted(set.intersection(*(set(results) for results in groups.values())))
    missing = [peer.value for peer in Peer if peer.value not in peers]
    text = [f"{len(tasks)} tasks have a row for each of: {', '.join(groups)}."]
    if missing:
        text.append(f"Not run: {', '.join(missing)}.")
    if len(tasks) < BLOCK:
        text.append(f"The plan's sample has {BLOCK} tasks: this one is cut short.")
    head = (
        "",
        "tasks",
        "fixed",
        "stricter",
        "calls",
        "tokens",
        "tokens per stricter fix",
        "server's seconds",
    )
    lines = [_line(name, [results[task] for task in tasks]) for name, results in groups.items()]
    return Section("On the same tasks", text, [Table(head, lines)])


def _line(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    fixed, stricter = (
        sum(one.is_fixed for one in results),
        sum(one.is_stricter for one in results),
    )
    tokens = sum(one.tokens for one in results)
    return (
        name,
        str(len(results)),
        f"{fixed} ({percent(fixed / len(results))})" if results else "0",
        str(stricter),
        str(sum(one.calls for one in results)),
        str(tokens),
        f"{tokens / stricter:.0f}" if stricter else "-",
        "-" if name == _FIRST else f"{sum(one.model_seconds for one in results):.0f}",
    )


def _each_peer(peers: Results, product: Results) -> Section:
    head = (
        "comparison",
        "tasks",
        "both fix",
        "product alone",
        "peer alone",
        "fixed: difference",
        "stricter: difference",
    )
    lines = []
    for name, results in peers.items():
        for ours in (_FIRST, _PRODUCT):
            pairs = [
                (product[ours][task], one)
                for task, one in sorted(results.items())
                if task in product[ours]
            ]
            lines.append(
                (
                    f"{ours} against {name}",
                    str(len(pairs)),
                    str(sum(mine.is_fixed and theirs.is_fixed for mine, theirs in pairs)),
                    str(sum(mine.is_fixed and not theirs.is_fixed for mine, theirs in pairs)),
                    str(sum(theirs.is_fixed and not mine.is_fixed for mine, theirs in pairs)),
                    _difference([(mine.is_fixed, theirs.is_fixed) for mine, theirs in pairs]),
                    _difference([(mine.is_stricter, theirs.is_stricter) for mine, theirs in pairs]),
                )
            )
    text = (
        "Over all tasks that the peer has a row for, with 95 % bootstrap intervals over tasks. No tests.",
    )
    return Section("Against the product", text, [Table(head, lines)])


def _difference(pairs: Sequence[tuple[bool, bool]]) -> str:
    interval = bootstrap([float(mine) - float(theirs) for mine, theirs in pairs])
    return "-" if interval is None else signed(interval)


def _ends(rows: Sequence[Row]) -> Section:
    head = ("peer", "version", "verdict", "ended by", "cases")
    keys = [(row.peer.value, row.version or "-", row.outcome, row.stopped) for row in rows]
    lines = [(*key, str(keys.count(key))) for key in sorted(set(keys))]
    text = ("`time`: the 10 minutes of this machine; `calls`, `tokens`, `context`: the budget.",)
    return Section("How cases ended", text, [Table(head, lines)])
