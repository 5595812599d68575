"""A grammar (GBNF) for a plan in blocks: an edit may only quote lines that the prompt shows.

It is for a llama-server that we start (ADR-0045). A small model that writes a block copies nearly, but not
exactly: another quote, a missing blank line, another path. With the grammar it only chooses the line of a
file at which to begin and when to end, so the old text is in the file, exactly once.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import Capability
from fallback_tier.answers.block_form import DIVIDER, REPLACE, SEARCH, closes, opens


class Quotable(Frozen):
    """Lines of one file, in a row and without their ends, that an edit may quote as its old text."""

    path: str
    lines: tuple[str, ...]


#: An edit begins only at a line from which at most this many lines make a unique text: otherwise repetitive
#: code would take minutes, and megabytes.
MAX_BEGINNING: Final = 8

#: The limit of lines. Each line is two rules, and the server tracks each possible beginning; a small model
#: sees some 400 lines.
MAX_LINES: Final = 1_000


_CAPABILITY: Final = " | ".join(f'"{one}"' for one in Capability)
_DECLARED: Final = f'"capabilities: " ({_CAPABILITY}) (", " ({_CAPABILITY})){{0,3}} "\\n"'

#: Citations after the first: a plan relies on a few things.
_MORE_CITATIONS: Final = 4


def _literal(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    )
    return f'"{escaped}"'


_RULES: Final = {
    "bump": '("action: dependency_bump\\n" | "action: override\\n") '
    '"package: " word "\\n" "version: " word "\\n" reasons block*',
    "edit": '"action: source_edit\\n" reasons block+',
    "refuse": '"action: refuse\\n" "reason: " text',
    "reasons": '"rationale: " text "\\n" "citations: " citations "\\n" declared',
    "citations": f'citation (", " citation){{0,{_MORE_CITATIONS}}}',
    "text": r"[!-~] [^\x00-\x1F\x7F]*",
    "word": "[@A-Za-z0-9] [A-Za-z0-9._/-]*",
    # Whole lines of code; none begins like a marker or a fence.
    "new": f'{_literal(DIVIDER)} "\\n" (line "\\n")* {_literal(REPLACE)} "\\n```\\n"',
    "line": r"([^<=>`\x00-\x08\x0A-\x1F\x7F] code* | [<=>`] ([^<=>`\x00-\x08\x0A-\x1F\x7F] code*)?)?",
    "code": r"[^\x00-\x08\x0A-\x1F\x7F]",
}


def grammar_of_blocks(
    quotable: Sequence[Quotable],
    citable: Sequence[str],
    *,
    may_bump: bool,
    may_declare: bool = False,
) -> str | None:
    """Return a grammar from ``root``, or None if nothing can be quoted or cited, or too much.

    ``citable``: ids that a plan may cite; ``may_bump``: there is a dependency to raise; ``may_declare``:
    capabilities were asked for.
    """
    runs = [run for snippet in quotable for run in _runs(snippet)]
    if sum(len(lines) for _, lines in runs) > MAX_LINES:
        return None
    shown: dict[str, str] = {}
    for path, lines in runs:
        shown[path] = "\n".join((shown.get(path, ""), *lines, ""))
    rules, blocks = dict(_RULES), []
    for number, (path, lines) in enumerate(runs):
        if run_rules := dict(_quoting(f"run{number}", lines, shown[path])):
            rules |= run_rules
            head = _literal(f"path: {path}\n```\n{SEARCH}\n")
            blocks.append(f"{head} run{number}")
    if not blocks or not citable:
        return None
    rules["declared"] = f"({_DECLARED})?" if may_declare else '""'
    rules["citation"] = " | ".join(map(_literal, citable))
    rules["block"] = " | ".join(blocks)
    rule_lines = "".join(f"{name} ::= {rule}\n" for name, rule in sorted(rules.items()))
    return f"root ::= edit | {'bump | ' * may_bump}refuse\n{rule_lines}"


def _runs(quotable: Quotable) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield consecutive lines that a block can contain."""
    run: list[str] = []
    for line in (*quotable.lines, None):
        if line is not None and not (
            opens(line) or closes(line) or line.rstrip() == DIVIDER or "\r" in line
        ):
            run.append(line)
        elif run:
            yield quotable.path, run
            run = []


def _quoting(name: str, lines: Sequence[str], shown: str) -> Iterator[tuple[str, str]]:
    """Yield rules: begin at any line from which the text is soon unique; end at any later line."""
    beginnings = []
    for at in range(len(lines)):
        if (end := _unique(lines, at, shown)) is not None:
            first = _literal("".join(f"{line}\n" for line in lines[at:end]))
            beginnings.append(f"{first} {name}-{end}")
    if not beginnings:
        return
    yield name, " | ".join(beginnings)
    for at, line in enumerate(lines):
        yield f"{name}-{at}", f"new | {_literal(line + chr(10))} {name}-{at + 1}"
    yield f"{name}-{len(lines)}", "new"


def _unique(lines: Sequence[str], at: int, shown: str) -> int | None:
    """Return the least end of lines from here whose text is unique in all that is shown of the file, or
    None if it is not within ``MAX_BEGINNING``."""
    for end in range(at + 1, min(at + MAX_BEGINNING, len(lines)) + 1):
        text = "\n".join(lines[at:end])
        if text.strip() and shown.find(text) == shown.rfind(text):
            return end
    return None
