"""Untrusted text in Markdown: shown, and nothing else.

A pull request's body is read by a renderer that turns names into notifications, numbers into references
and brackets into links. In a code span or a fenced block of CommonMark (§6.1, §4.5) none of that happens,
so that every byte that is not ours stands in one.
"""

import re

from fallback_audit.showing.describe import visible

#: One line of untrusted text: a sentence of a gate, a test's name.
MAX_INLINE_CHARS = 300

_BACKTICKS = re.compile(r"`+")


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
