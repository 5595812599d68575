"""A folder with everything about a verified fix, for its merger: written whole, or not at all."""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fallback_audit.disk_errors import blamed
from fallback_audit.showing.describe import tests_lines, visible
from fallback_audit.vocabulary import GateStatus, Tier
from fallback_tier.advisory import Advisory
from fallback_tier.budget.listed_prices import listed_prices_as_of
from fallback_tier.budget.prices import PRICES_AS_OF
from fallback_tier.configured import entry_for
from fallback_tier.errors import ConfigurationError, PatchError
from fallback_tier.fix_result import (
    Patched,
    WithPatch,
    notes_of,
    projects_of,
    tests_level_of,
    tests_of,
)
from fallback_tier.handover.headline import headline, proof_of, signals
from fallback_tier.handover.vex import Statement, cyclonedx, openvex, product_of
from fallback_tier.patch.diff import new_files
from fallback_tier.repo import RepoContext

if TYPE_CHECKING:
    from jinja2 import Template


#: Most characters of one line of untrusted text: a sentence of a gate, a test's name.
MAX_INLINE_CHARS = 300

_BACKTICKS = re.compile(r"`+")

#: Most characters of a body: the limit of the largest forge (GitHub: 65,536).
MAX_BODY_CHARS = 65_536

#: Characters of a failed attempt's summary: enough to see why it failed; the audit trail has all of it.
_SUMMARY_CHARS = 1_500

#: Characters of one list of a body. All lists fit together, so that none pushes another section out.
_LIST_CHARS = 3_000

#: Characters of the gates' list, and of that of a run's other advisories.
_LONG_LIST_CHARS = 6_000

#: Most reasons that are shown of an advisory that is not part of a change.
_MAX_REASONS = 2

#: Most files, and advisories that are delivered together, that are named.
_MAX_NAMED = 10

#: Most projects whose tests were not judged, each with its last output and a setting that would judge it.
_MAX_UNJUDGED = 3

_CUT = "\n\n*(cut: the audit trail has all of it)*\n"


def inline(text: str) -> str:
    """Return text as one line, a code span. Its fence is longer than any run of backticks inside."""
    flat = " ".join(visible(text, lines=True).split())
    if len(flat) > MAX_INLINE_CHARS:
        flat = f"{flat[:MAX_INLINE_CHARS]}…"
    if not flat:
        return "(nothing)"
    fence = "`" * (_longest(flat) + 1)
    # The renderer strips one space from each side, if both are there.
    return (
        f"{fence} {flat} {fence}" if flat[0] == "`" or flat[-1] == "`" else f"{fence}{flat}{fence}"
    )


def block(text: str, language: str = "") -> str:
    """Return several lines as a fenced block."""
    shown = visible(text, lines=True)
    fence = "`" * max(3, _longest(shown) + 1)
    return f"{fence}{language}\n{shown.rstrip()}\n{fence}"


def cut_list(lines: str, rest: str, limit: int = _LIST_CHARS) -> str:
    """Return a list's first lines, at most ``limit`` characters, then how many more there are. ``rest``:
    where they are."""
    every = lines.splitlines(keepends=True)
    ends = accumulate(map(len, every))
    fitting = sum(end <= limit for end in ends)
    if fitting == len(every):
        return lines
    return f"{''.join(every[:fitting])}- and {len(every) - fitting} more: {rest}\n"


def _longest(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


class OtherAdvisory(NamedTuple):
    """An advisory of the same run that a patch is not about. ``end``: how it ended, in the product's words;
    ``reasons``: why, in sentences that quote foreign text."""

    id: str
    end: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """The subject of a body. ``proof``: the command line of the proof test, if one was given.
    ``sandboxed``: all gates ran in a sandbox. ``others``: advisories of the run that its delivery does not
    fix; ``together``: those that another part of its delivery fixes."""

    result: WithPatch
    advisory: Advisory
    base_commit: str
    proof: str | None = None
    sandboxed: bool = True
    others: Sequence[OtherAdvisory] = ()
    together: Sequence[str] = ()


def _some(texts: Sequence[str], most: int = _MAX_NAMED, separator: str = ", ") -> str:
    """Return the first texts, and how many more there are."""
    more = len(texts) - most
    return separator.join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def _other_line(other: OtherAdvisory) -> str:
    reasons = _some([*map(inline, other.reasons)], _MAX_REASONS, "; ")
    return f"{inline(other.id)}: {other.end}" + (f", {reasons}" if reasons else "")


def pull_request_body(subject: Subject) -> str:
    """Return the body: Markdown of at most MAX_BODY_CHARS characters."""
    result = subject.result
    remediation = result.application.remediation
    recipe_notes = remediation.notes if remediation is not None else ()
    new = new_files(result.application.diff)
    unjudged = [
        (lines, entry_for(tests.command or "YOUR TEST COMMAND", tests.project))
        for tests in tests_of(result.verdicts)
        if (lines := tests_lines(tests))
    ]
    text = _template().render(
        subject=subject,
        others=map(_other_line, subject.others),
        together=_some([*map(inline, subject.together)]),
        result=result,
        application=result.application,
        files=_some(
            [
                f"{inline(path)}{' (new)' if path in new else ''}"
                for path in result.application.files
            ]
        ),
        signals=signals(result),
        headline=headline(result),
        shown=not isinstance(result, Patched),
        unjudged=unjudged[:_MAX_UNJUDGED],
        more_unjudged=max(0, len(unjudged) - _MAX_UNJUDGED),
        trail=f"`fallback-tier audit show {result.fix_id}`",
        tests_level=tests_level_of(result.verdicts),
        projects=[proof_of(project) for project in projects_of(result.verdicts)],
        notes=tuple(dict.fromkeys((*recipe_notes, *notes_of(result.verdicts)))),
        gates=[
            (
                verdict,
                {GateStatus.PASSED: "passed", GateStatus.FAILED: "failed"}.get(
                    verdict.status, "not judged"
                ),
            )
            # What a long list cuts off at its end has passed.
            for verdict in sorted(
                result.verdicts, key=lambda verdict: verdict.status is GateStatus.PASSED
            )
        ],
        failures=[
            (
                summary,
                block(visible(summary.prior_failure_summary, lines=True)[:_SUMMARY_CHARS], "text"),
            )
            for summary in result.prior_attempts
        ],
        by_model=result.application.tier is Tier.LLM,
        prices_as_of=PRICES_AS_OF,
        listed_prices_as_of=listed_prices_as_of(),
    )
    if len(text) <= MAX_BODY_CHARS:
        return text
    return text[: MAX_BODY_CHARS - len(_CUT)] + _CUT


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined,
        # Markdown, not HTML: foreign text goes through the filter `code`.
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = inline
    environment.filters["block"] = block
    environment.filters["cut_list"] = cut_list
    environment.filters["cut_long_list"] = partial(cut_list, limit=_LONG_LIST_CHARS)
    source = files("fallback_tier.handover") / "templates" / "pull-request.md"
    return environment.from_string(source.read_text(encoding="utf-8"))


PATCH, BODY, OPENVEX, CYCLONEDX = (
    "patch.diff", "pull-request.md", "openvex.json", "cyclonedx.json",
)  # fmt: skip


def handover_files(
    result: WithPatch,
    advisory: Advisory,
    repo: RepoContext,
    *,
    tool_version: str,
    at: datetime,
    commit: str | None = None,
    proof: str | None = None,
    sandboxed: bool = True,
    others: Sequence[OtherAdvisory] = (),
    together: Sequence[str] = (),
) -> dict[str, str]:
    """Return the files by name: patch, pull request's body, VEX in both formats. ``commit``: the patch's;
    ``proof``: its command line; ``at``: UTC; ``sandboxed``: all gates ran in a sandbox; ``others``:
    advisories of the same run that the body names, since its delivery does not fix them; ``together``:
    those that another part of its delivery fixes."""
    product = product_of(
        result.application,
        repository=repo.root.name,
        base_commit=repo.base_commit,
        ecosystem=advisory.ecosystems[0],
        commit=commit,
    )
    statement = Statement(result, advisory, product, tool_version, at, sandboxed)
    return {
        PATCH: result.application.diff,
        BODY: pull_request_body(
            Subject(result, advisory, repo.base_commit, proof, sandboxed, others, together)
        ),
        OPENVEX: _json(openvex(statement)),
        CYCLONEDX: _json(cyclonedx(statement)),
    }


def check_folder(folder: Path) -> None:
    """Check, before the work, that a folder can be made here. Raises ConfigurationError."""
    if os.path.lexists(folder):
        problem, step = "it is there already, and nothing is overwritten", "Name a new folder."
        kind = "exists"
    elif not folder.absolute().parent.is_dir():
        problem, step = f"there is no folder {folder.parent}", "Make it first."
        kind = "no_parent"
    elif not os.access(folder.absolute().parent, os.W_OK):
        problem, step = f"{folder.parent} is not writable", "Name a place that you can write to."
        kind = "not_writable"
    else:
        return
    raise ConfigurationError(f"--report {folder}: {problem}.", next_step=step, kind=kind)


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write the folder with these files (``name`` or ``folder/name``). If that fails, raise PatchError
    naming the folder and leave none."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        partial.mkdir()
        for name, text in files.items():
            path = partial / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        unwritable = PatchError(
            f"The report can't be written to {folder}: {error.strerror}.",
            next_step="Name a new folder in a writable place with --report.",
        )
        raise blamed(error, f"The report can't be written to {folder}", unwritable) from error


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
