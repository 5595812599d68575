"""The report of the real proof, made from the results and from nothing else."""

from collections.abc import Iterable, Sequence

from fallback_eval.campaign import Rows
from tests.campaigns.measuring.pages import ROOT, table
from tests.campaigns.proofs.running import Result

#: Where results and report lie.
FOLDER = ROOT / "docs" / "evaluation" / "proofs"

#: Promised: that many in all, in each ecosystem, and that many with edits beyond a bump.
WANTED, WANTED_EACH, WANTED_EDITED = 25, 10, 5

_HEAD = """# Real packages, real flaws, proved

{verified} of {all} cases ended in a patch that was proved and delivered: {npm} npm, {pypi} PyPI; \
{edited} of them needed
edits beyond a bump.

A case is a small project of ours that uses a real package at a real vulnerable version; the package \
is fetched when the
case runs, and nothing of it is kept here. `fallback-tier fix` gets the advisory and a proof: a script \
of ours, written from
the advisory's facts, that fails while the flaw is there. It runs in the sandbox, without network, at \
the base commit and
with the patch. A case counts where all of this holds:

- exit code 0 and outcome `verified`; the gates `resolves`, `not_vulnerable`, `tests` and `proof` \
passed, none failed;
- the proof failed at the base commit and passed with the patch (the gate refuses a proof that does \
not fail before);
- the working tree differs from the base commit in the patch's files only, and holds another version;
- `audit verify` finds chain, evidence and trace contract intact;
- a bump came from the recipe's first attempt. Edits came from a retry in a fresh context, with \
`RagSkippedOnRetry` on record.
"""

_EDITED = """## Cases that need more than a bump

The recipe's bump is tried first and fails a gate each time: the release with the fix broke something \
that the project uses.
The edits are **scripted**: we wrote the answer that a model would have to give (`script.json`). This \
shows that chain,
gates and retry do their part with a right answer; it says nothing about a model's ability to find it.
"""


def render(results: Sequence[Result]) -> str:
    """The page, always the same for the same results."""
    rows = sorted(results, key=lambda result: result.name)
    good = [row for row in rows if row.ok]
    parts = [
        _HEAD.format(
            verified=len(good),
            all=len(rows),
            npm=sum(row.ecosystem == "npm" for row in good),
            pypi=sum(row.ecosystem == "PyPI" for row in good),
            edited=sum(bool(row.edits) for row in good),
        ),
        "## Cases that a bump mends\n",
        _bumps(row for row in good if not row.edits),
        _EDITED,
        _edits(row for row in good if row.edits),
        "## What failed\n",
        _failures(row for row in rows if not row.ok),
        "## How it was made\n",
        _made(rows),
    ]
    return "\n".join(parts)


def check(results: Sequence[Result], digests: dict[str, str]) -> list[str]:
    """What does not fit: results and cases, results and what was promised."""
    names = {result.name for result in results}
    found = [f"no result of {name}" for name in sorted(digests.keys() - names)]
    for result in results:
        if digests.get(result.name) != result.case_sha256:
            found.append(f"{result.name} is of another form of the case, or of none")
    good = [result for result in results if result.ok]
    counts = {
        "in all": (len(good), WANTED),
        "npm": (sum(row.ecosystem == "npm" for row in good), WANTED_EACH),
        "PyPI": (sum(row.ecosystem == "PyPI" for row in good), WANTED_EACH),
        "with edits": (sum(bool(row.edits) for row in good), WANTED_EDITED),
    }
    found += [
        f"{have} {what}, {want} wanted" for what, (have, want) in counts.items() if have < want
    ]
    return found


def _bumps(rows: Iterable[Result]) -> str:
    head = ("case", "advisory", "weakness", "package", "changed", "time")
    return table(
        head,
        (
            (row.name, _advisory(row), row.weakness, _versions(row), _changed(row), _time(row))
            for row in rows
        ),
    )


def _edits(rows: Iterable[Result]) -> str:
    head = ("case", "advisory", "package", "why a bump is not enough", "first attempt", "changed")
    return table(
        head,
        (
            (
                row.name,
                _advisory(row),
                _versions(row),
                row.edits,
                f"failed, {'; '.join(row.failed_first)}",
                f"attempt {row.attempts} ({row.author}): {_changed(row)}",
            )
            for row in rows
        ),
    )


def _failures(rows: Iterable[Result]) -> str:
    head = ("case", "package", "first failures", "what did not hold")
    cells = [
        (row.name, _versions(row), "; ".join(row.failed_first) or "-", "; ".join(row.problems))
        for row in rows
    ]
    return table(head, cells) if cells else "None.\n"


def _made(rows: Sequence[Result]) -> str:
    days = sorted({row.made for row in rows})
    tools = sorted({", ".join(f"{k} {v}" for k, v in row.tools.items()) for row in rows})
    published = [row.advisory for row in rows if row.advisory_is_published]
    total = sum(row.seconds for row in rows)
    return (
        f"Made {' and '.join(days) or 'never'} by `make proofs`, with {'; and '.join(tools)}.\n\n"
        f"{len(published)} of {len(rows)} advisories are the published OSV records; the others hold "
        "identifier, package and range of\nthe published one, in our words. Packages come from the "
        "registries that the clients are configured with.\nTimes are of one whole `fix` on a shared "
        f"machine ({total:,.0f} s for all), no benchmark.\n\n"
        "`results.jsonl` has a row a case, with every gate's verdict and the digest of the case's "
        "files;\n`python -m tests.campaigns.proofs --check` says whether page, results and cases still "
        "fit.\n"
    )


def _advisory(row: Result) -> str:
    return row.advisory


def _versions(row: Result) -> str:
    return f"{row.package} {row.vulnerable} → {row.resolved or '?'}"


def _changed(row: Result) -> str:
    return f"{', '.join(row.files)} (+{row.lines_added} -{row.lines_removed})"


def _time(row: Result) -> str:
    return f"{row.seconds:.0f} s"


ROWS = Rows(Result, key=lambda row: row.name, page=render, order=lambda row: row.name)
