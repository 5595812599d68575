"""The report of the whole runs, made from the rows and from nothing else."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fallback_eval.campaign import Half, Rows
from tests.campaigns.eval_repos.cases import DRAWS
from tests.campaigns.eval_repos.figures import FIGURES, agreeing, compared, outcome, right
from tests.campaigns.eval_repos.results import Result
from tests.campaigns.measuring.pages import (
    ROOT,
    in_label_order,
    made_of,
    table,
)

#: Where results and report lie.
FOLDER = ROOT / "docs" / "evaluation" / "repos"

#: The label of what the only look at the half set aside gave: later runs of it are no surprise any more.
FIRST_LOOK = "first look"

_HEAD = """# Whole repositories, from advisory to proved patch

A case is a repository of a stated kind: a few texts of ours whose lock a real client of a stated version \
made when the case
ran, or a public repository at a stated commit. `fallback-tier plan` and `fallback-tier fix` run on it as \
a user would run
them, with all gates and without a model. A judge that shares no code with the tool then installs what is \
there with the
project's own client, reads which versions that gives, asks the application (a script that passes at the \
base), counts the
diff's lines, and holds all of it against the end that was \
[committed](../../../tests/campaigns/eval_repos/cases) before the case first
ran. Peers get the same base, and the same judge.
"""

_PEERS = """*Serves*: no affected copy is left, and everything installs and works as before. Where both \
serve, fewer lines win.
Else it is a *win* where the tool ended rightly and the peer does not serve, and a *loss* where the peer \
serves and the tool did
not end rightly. npm's own commands are run by the installed npm, and told to keep the lock's version.
"""

_ROWS = "Of the newest row of each case, by the builds that stand under *How it was made*.\n"

_MARKS = {1: "win", 0: "-", -1: "**loss**"}


def render(results: Sequence[Result]) -> str:
    """The page, always the same for the same rows."""
    rows = sorted(results, key=lambda row: (row.name, row.label))
    parts = [_HEAD]
    if now := _of(rows, "now"):
        parts += [f"## All {len(now)} cases\n", _goals(now), _ROWS]
    for part in (*Half, *DRAWS):
        if found := [row for row in rows if row.part == part]:
            parts += [
                _drawn(part, found) if part in DRAWS else f"## The half {part}\n",
                *_part(found),
            ]
    return "\n".join([*parts, "## How it was made\n", _made(rows)])


def _drawn(seed: str, rows: Sequence[Result]) -> str:
    """Return the heading of the repositories of a draw, with their first figure."""
    first = _of(rows, FIRST_LOOK) or rows
    title = "a seed" if seed == DRAWS[0] else f"the seed `{seed}`"
    return (
        f"## The repositories that {title} drew\n\n"
        f"`tests/campaigns/eval_repos/drawing.py` drew them, and an advisory for each, with the seed "
        f"`{seed}`. At their first run {right(first)} ended rightly,\nand in "
        f"{agreeing(first)} `fix` first applied what `plan` said; that is *{FIRST_LOOK}*, "
        "before anything was mended.\n"
    )


def _part(rows: Sequence[Result]) -> Iterator[str]:
    yield _figures(rows)
    yield "### By kind\n"
    yield _kinds(rows)
    yield "### Case by case\n"
    yield _cases(rows)
    yield "### What was wrong\n"
    yield _wrong(rows)
    yield "### Beside peers\n"
    yield _PEERS
    for label in in_label_order(row.label for row in rows):
        yield _compared([row for row in rows if row.label == label], label)
    yield "### Peers, case by case\n"
    yield _peers(rows)


def _goals(now: Sequence[Result]) -> str:
    """Both halves together, each figure beside its goal."""
    return table(
        ("figure", "goal", "now", "met"),
        (
            (one.name, one.goal, one.value(now), "yes" if one.met(now) else "**no**")
            for one in FIGURES
        ),
    )


def _figures(rows: Sequence[Result]) -> str:
    labels = in_label_order(row.label for row in rows)
    return table(
        ("figure", "goal", *labels),
        (
            (one.name, one.goal, *(one.value(_of(rows, label)) for label in labels))
            for one in FIGURES
        ),
    )


def _kinds(rows: Sequence[Result]) -> str:
    labels = in_label_order(row.label for row in rows)
    kinds = sorted({(row.ecosystem, kind) for row in rows for kind in row.kinds})
    return table(
        ("", "ended rightly: kind", *labels),
        (
            (
                ecosystem,
                kind,
                *(str(right(_of_kind(_of(rows, label), ecosystem, kind))) for label in labels),
            )
            for ecosystem, kind in kinds
        ),
    )


def _of_kind(rows: Sequence[Result], ecosystem: str, kind: str) -> list[Result]:
    return [row for row in rows if row.ecosystem == ecosystem and kind in row.kinds]


def _cases(rows: Sequence[Result]) -> str:
    head = ("case", "label", "affected at the base", "expected", "ended", "judged", "lines")
    return table(
        head,
        (
            (
                row.name,
                row.label,
                ", ".join(row.base.affected)
                or ("none" if row.base.installs else "not installable"),
                row.expected + (f" (changed {row.changes} times)" if row.changes else ""),
                _ended(row),
                _judged(row),
                str(row.lines),
            )
            for row in rows
        ),
    )


def _ended(row: Result) -> str:
    reasons = f" ({', '.join(row.told.reasons)})" if row.told.reasons else ""
    return f"{row.told.outcome}{reasons}"


def _judged(row: Result) -> str:
    if row.is_false_fixed:
        return "**false fixed**"
    kinds = dict.fromkeys(one.kind for one in row.verdict.problems)
    message = "right" if row.is_right else ", ".join(kinds)
    return f"{message}; plan differs" if row.unlike else message


def _wrong(rows: Sequence[Result]) -> str:
    cells: list[tuple[str, ...]] = []
    for row in rows:
        cells += [(row.name, row.label, one.kind, one.detail) for one in row.verdict.problems]
        cells += [(row.name, row.label, "plan and fix differ", message) for message in row.unlike]
        if not row.is_right and row.told.words:
            cells.append((row.name, row.label, "the tool's words", row.told.words))
        if not row.is_right and row.told.first_said:
            failed = f"first attempt: {', '.join(row.told.first_failed)}"
            cells.append((row.name, row.label, failed, row.told.first_said))
    return table(("case", "label", "what", "words"), cells) if cells else "Nothing.\n"


def _compared(rows: Sequence[Result], label: str) -> str:
    head = (f"{label}, beside", "cases", "peer serves", "peer breaks", "wins", "losses", "neither")
    return table(
        head,
        (
            (
                one.peer,
                *map(str, (one.cases, one.serves, one.broke, one.wins, one.losses, one.ties)),
            )
            for one in compared(rows)
        ),
    )


def _peers(rows: Sequence[Result]) -> str:
    head = ("case", "label", "peer", "clears", "works", "lines (ours)", "", "the peer's words")
    return table(
        head,
        (
            (
                row.name,
                row.label,
                end.peer,
                "yes" if end.cleared else "no",
                "yes" if end.works else "**no**",
                f"{end.lines} ({row.lines})",
                _MARKS[outcome(row, end)],
                end.said,
            )
            for row in rows
            for end in row.peers
        ),
    )


def _made(rows: Sequence[Result]) -> str:
    changed = {row.name: row.changes for row in rows if row.changes}
    message = (
        ", ".join(f"{name} ({count} times)" for name, count in sorted(changed.items())) or "none"
    )
    return (
        f"{made_of(rows)}\n{_again(rows)}{_builds(rows)}"
        "\nThe expected ends of every case were committed before its first run; "
        "`tests/campaigns/eval_repos/expected.jsonl` has the digest of\nevery form that they had. Changed "
        f"after a run, each time with a reason: {message}.\n`results.jsonl` has a row a case and label; "
        "`python -m tests.campaigns.eval_repos --check` says whether page, rows and cases still fit.\n"
    )


def _again(rows: Sequence[Result]) -> str:
    """Which rows of now are newer than the first look at the half set aside; the others are its copies."""
    first = {row.name: row for row in rows if row.label == FIRST_LOOK and row.half}
    if not first:
        return ""
    now = [row for row in rows if row.label == "now" and row.name in first]
    newer = [row.name for row in now if row != first[row.name].model_copy(update={"label": "now"})]
    return (
        f"- The half set aside was looked at once, which is *{FIRST_LOOK}*. Of its {len(now)} rows of "
        f"*now*, {len(newer)} were measured again since its misses were mended: "
        f"{', '.join(newer) or 'none'}. The others are the first look's own.\n"
    )


def _builds(rows: Sequence[Result]) -> str:
    """Which rows of now are of the last day's builds, by build; the others are of older ones."""
    now = [row for row in rows if row.label == "now"]
    last = max((row.made for row in now), default="")
    new: dict[str, list[str]] = {}
    for row in now:
        if row.made == last:
            new.setdefault(row.tool, []).append(row.name)
    message = "; ".join(f"{tool}: {', '.join(names)}" for tool, names in sorted(new.items()))
    older = len(now) - sum(map(len, new.values()))
    return f"- Rows of *now* made on {last}: {message or 'none'}. The other {older} are of older builds.\n"


def check(
    results: Sequence[Result],
    digests: Mapping[str, tuple[str, str]],
    stated: Iterable[tuple[str, str]],
) -> list[str]:
    """What does not fit: rows and cases. ``digests``: name → digest, half or draw;
    ``stated``: every (name, digest) of expected ends that was ever committed."""
    found, known = [], set(stated)
    for row in results:
        if row.name not in digests or digests[row.name][0] != row.case_sha256:
            found.append(f"{row.name} ({row.label}) is of another form of the case, or of none")
        if (row.name, row.expected_sha256) not in known:
            found.append(f"{row.name} ({row.label}): what was expected was never stated")
    for label in in_label_order(row.label for row in results):
        parts = {row.part for row in _of(results, label)}
        wanted = {name for name, (_, part) in digests.items() if part in parts}
        missing = wanted - {row.name for row in _of(results, label)}
        found += [f"no result of {name} ({label})" for name in sorted(missing)]
    return found


def missed(results: Sequence[Result]) -> list[str]:
    """What must never be, and is: the rows fit, the tool does not."""
    now = _of(results, "now")
    found = [f"{row.name}: says fixed, and is not" for row in now if row.is_false_fixed]
    return [*found, *(f"{row.name}: a traceback" for row in now if row.told.traceback)]


def _of(rows: Iterable[Result], label: str) -> list[Result]:
    return [row for row in rows if row.label == label]


def _key(row: Result) -> tuple[str, str]:
    return row.label, row.name


ROWS = Rows(Result, _key, page=render, order=_key)
