"""docs/evaluation/tests-judged: the page that is made from the rows."""

from collections import Counter
from collections.abc import Mapping, Sequence

from fallback_eval.campaign import Half, Rows
from tests.campaigns.measuring.pages import ROOT, Share, in_label_order, made_of, table
from tests.campaigns.tests_judged.results import COMPARED, NOT_JUDGED, RAN, Row

FOLDER = ROOT / "docs" / "evaluation" / "tests-judged"

_HEAD = """# Are a project's tests compared?

`make tests-judged DATA=../shared/data` runs `fix` over 30 public repositories with old locks, with all gates and
without a model, and asks how far the project's own tests were judged. For each fix whose tests were compared it then
breaks one function in addition (its body begins with an error) and puts both to the same tests gate: it must fail.
How the repositories were drawn, what a level means, and what counts as caught:
[tests/campaigns/tests_judged](../../../tests/campaigns/tests_judged/README.md). Made from `results.jsonl`; don't edit.
"""  # noqa: E501 (Markdown)


def page(rows: Sequence[Row]) -> str:
    """Return the page."""
    parts = [_HEAD, "## Compared\n", _levels(rows), "## A broken function\n", _broken(rows)]
    for label in in_label_order(row.label for row in rows):
        mine = [row for row in rows if row.label == label]
        parts += [f"## Cases: {label}\n", _cases(mine), _causes(mine)]
    return "\n".join([*parts, "## How the rows were made\n", made_of(rows), ""])


def _groups(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    found = []
    for label in in_label_order(row.label for row in rows):
        for half in Half:
            mine = [row for row in rows if row.label == label and row.half is half]
            found += [(label, str(half), mine)] if mine else []
    return found


def _levels(rows: Sequence[Row]) -> str:
    lines = []
    for label, half, mine in _groups(rows):
        counts = Counter(row.level for row in mine)
        shares = [str(Share(counts[level], len(mine))) for level in (COMPARED, RAN, NOT_JUDGED)]
        fixed = [row for row in mine if row.outcome == "fixed" and not row.is_compared]
        lines.append([label, half, *shares, str(Share(len(fixed), len(mine)))])
    head = ["build", "half", "compared", "ran", "not judged", "exit 0 without a comparison"]
    return table(head, lines) + "\nGoal: 85 % compared.\n"


def _broken(rows: Sequence[Row]) -> str:
    lines = []
    for label, half, mine in _groups(rows):
        found = [row.breaking for row in mine if row.breaking is not None]
        lines.append(
            [
                label,
                half,
                str(Share(sum(one.is_caught for one in found), len(found))),
                str(sum(one.is_missed for one in found)),
                str(sum(one.is_false_as_before for one in found)),
                str(sum(one.status != "failed" and not one.is_missed for one in found)),
                str(sum(row.is_compared and row.breaking is None for row in mine)),
            ]
        )
    head = [
        "build",
        "half",
        "caught",
        "missed",
        'false "as before"',
        "none that a bare run fails",
        "not tried",
    ]
    return (
        table(head, lines)
        + '\nGoal: all caught on the seen half, 90 % on the other, no false "as before".\n'
    )


def _cases(rows: Sequence[Row]) -> str:
    lines = [
        [
            row.name,
            str(row.half),
            ", ".join(row.has) or "-",
            row.outcome,
            row.level,
            "-" if row.tests is None else f"{row.tests:,}",
            row.command or "-",
            row.cause or "-",
            break_of(row),
            f"{row.fix_seconds:,.0f}",
            "-" if row.load is None else f"{row.load:.0f}",
        ]
        for row in rows
    ]
    head = [
        "case",
        "half",
        "has",
        "fix",
        "tests",
        "count",
        "command",
        "cause",
        "broken function",
        "seconds",
        "load",
    ]
    return table(head, lines)


def break_of(row: Row) -> str:
    """Return what came of a broken function, for a reader."""
    one = row.breaking
    if one is None:
        return row.no_breaking or "-"
    if one.is_caught:
        return f"caught: {one.function}"
    if one.is_missed:
        return f"missed: {', '.join(one.passed_over)}"
    return f"{one.status}; {one.why_bare or 'a bare run does not fail, either'}"


def _causes(rows: Sequence[Row]) -> str:
    left = [row for row in rows if not row.is_compared]
    counts = Counter(row.cause for row in left)
    lines = [
        [cause, str(count), ", ".join(row.name for row in left if row.cause == cause)]
        for cause, count in counts.most_common()
    ]
    said = "".join(f"- {row.name}: {row.detail or row.headline}\n" for row in left)
    return (
        "\nNot compared, by cause:\n\n" + table(["cause", "cases", "which"], lines) + f"\n{said}"
        if left
        else ""
    )


def check(rows: Sequence[Row], due: Mapping[str, Half]) -> list[str]:
    """Return what doesn't fit: a row of no case or of another half."""
    found = [f"{row.name}: no such case" for row in rows if row.name not in due]
    return found + [
        f"{row.name}: is {due[row.name]}"
        for row in rows
        if due.get(row.name, row.half) is not row.half
    ]


def _key(row: Row) -> tuple[str, str]:
    return row.label, row.name


ROWS = Rows(Row, _key, page, order=_key)
