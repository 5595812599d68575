"""A pull request's body: what changed, what was seen, what to look at, how to check it.

It is written for a reviewer who was not there. A renderer turns names into notifications, numbers into
references and brackets into links. In a code span or a fenced block of CommonMark (§6.1, §4.5) none of that
happens, so everything that is not ours (the advisory's text, names of tests, a plan's claims) is in one.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fallback_audit.showing.describe import tests_lines, visible
from fallback_audit.vocabulary import GateStatus, Tier
from fallback_tier.advisory import Advisory
from fallback_tier.budget.listed_prices import listed_prices_as_of
from fallback_tier.budget.prices import PRICES_AS_OF
from fallback_tier.configured import entry_for
from fallback_tier.fix_result import (
    Patched,
    WithPatch,
    notes_of,
    projects_of,
    tests_level_of,
    tests_of,
)
from fallback_tier.handover.headline import headline, proof_of
from fallback_tier.handover.signals import signals
from fallback_tier.outcome import AttemptSummary
from fallback_tier.patch.diff import new_files

if TYPE_CHECKING:
    from jinja2 import Template


#: One line of untrusted text: a sentence of a gate, a test's name.
MAX_INLINE_CHARS = 300

_BACKTICKS = re.compile(r"`+")

#: What the largest forge takes of a body (GitHub: 65,536 characters).
MAX_BODY_CHARS = 65_536

#: Of a failed attempt's summary: enough to see why it failed; the audit trail has all of it.
_SUMMARY_CHARS = 1_500

_CUT = "\n\n*(cut: the audit trail has all of it)*\n"


def inline(text: str) -> str:
    """One line, as a code span. Its fence is longer than any run of backticks inside."""
    flat = " ".join(visible(text, lines=True).split())
    if len(flat) > MAX_INLINE_CHARS:
        flat = f"{flat[:MAX_INLINE_CHARS]}…"
    if not flat:
        return "(nothing)"
    fence = "`" * (_longest(flat) + 1)
    # One space is taken off each side by the renderer, where both are there.
    return (
        f"{fence} {flat} {fence}" if flat[0] == "`" or flat[-1] == "`" else f"{fence}{flat}{fence}"
    )


def block(text: str, language: str = "") -> str:
    """Several lines, as a fenced block."""
    shown = visible(text, lines=True)
    fence = "`" * max(3, _longest(shown) + 1)
    return f"{fence}{language}\n{shown.rstrip()}\n{fence}"


def _longest(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


@dataclass(frozen=True)
class Subject:
    """What a body is about. ``proof``: the command line of the proof test, where one was given.
    ``sandboxed``: all gates ran in a sandbox."""

    result: WithPatch
    advisory: Advisory
    base_commit: str
    proof: str | None = None
    sandboxed: bool = True


def pull_request_body(subject: Subject) -> str:
    """Markdown of at most MAX_BODY_CHARS characters."""
    result = subject.result
    remediation = result.application.remediation
    of_recipe = remediation.notes if remediation is not None else ()
    text = _template().render(
        subject=subject,
        result=result,
        application=result.application,
        new_files=new_files(result.application.diff),
        signals=signals(result),
        headline=headline(result),
        shown=not isinstance(result, Patched),
        untested=[
            (lines, entry_for(one.command or "YOUR TEST COMMAND", one.project))
            for one in tests_of(result.verdicts)
            if (lines := tests_lines(one))
        ],
        tests_level=tests_level_of(result.verdicts),
        projects=[proof_of(project) for project in projects_of(result.verdicts)],
        notes=tuple(dict.fromkeys((*of_recipe, *notes_of(result.verdicts)))),
        gates=[(verdict, _mark(verdict.status)) for verdict in result.verdicts],
        failures=[(summary, _failure_message(summary)) for summary in result.prior_attempts],
        by_model=result.application.tier is Tier.LLM,
        prices_as_of=PRICES_AS_OF,
        listed_prices_as_of=listed_prices_as_of(),
    )
    if len(text) <= MAX_BODY_CHARS:
        return text
    return text[: MAX_BODY_CHARS - len(_CUT)] + _CUT


def _mark(status: GateStatus) -> str:
    return {GateStatus.PASSED: "passed", GateStatus.FAILED: "failed"}.get(status, "not judged")


def _failure_message(summary: AttemptSummary) -> str:
    return block(summary.prior_failure_summary[:_SUMMARY_CHARS], "text")


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined,
        # Markdown, not HTML: what is not ours goes through the filter `code`.
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = inline
    environment.filters["block"] = block
    source = files("fallback_tier.handover") / "templates" / "pull-request.md"
    return environment.from_string(source.read_text(encoding="utf-8"))
