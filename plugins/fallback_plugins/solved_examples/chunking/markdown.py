"""The units of an advisory's text: Markdown, and text that looks like it.

Most advisories are plain paragraphs; some are reStructuredText or HTML. Blocks are found by
markdown-it (CommonMark with tables); what belongs together is decided here:

1. a heading, or the title in the first line, goes with what follows it;
2. a list, table, code block or quotation goes with the paragraph right before it, and anything goes
   with a lead-in (a text that ends in a colon);
3. what limits a rule goes with the rule (``limits``), also in the next block.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from fallback_plugins.solved_examples.chunking.units import (
    Unit,
    UnitKind,
    joined,
    lines_of,
    one_line_end,
    paragraph_ranges,
    spans,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode


#: Larger texts (an OSV record seldom has 20,000 characters) are split at blank lines.
MAX_PARSED_CHARS = 256 * 1024

#: Cells that tables can have. A row of one character gets as many as the header has (each costs 25 µs),
#: so that 2 KB of hostile text cost seconds; real advisories have hundreds.
MAX_TABLE_CELLS = 50_000

_KINDS = {
    "heading": UnitKind.HEADING,
    "table": UnitKind.TABLE,
    "tr": UnitKind.ROW,
    "bullet_list": UnitKind.LIST,
    "ordered_list": UnitKind.LIST,
    "list_item": UnitKind.ITEM,
    "blockquote": UnitKind.QUOTE,
    "fence": UnitKind.FENCE,
    "code_block": UnitKind.FENCE,
    "html_block": UnitKind.HTML,
}

#: A first line of at most this many characters, without a sentence's end, is the title.
_MAX_TITLE = 200

#: An underline of reStructuredText that Markdown takes for something else (tildes: a fence). It is at
#: least as long as its heading; three tildes are more likely a fence's end.
_UNDERLINE = re.compile(r"([~^\"'+.:#*])\1{3,}[^\S\n]*\n?")

#: HTML that runs on over blank lines, where Markdown sees a new block.
_CONTAINER = re.compile(r"\s{0,3}<(table|ul|ol|dl|pre|details|blockquote)\b", re.IGNORECASE)
_CLOSING = re.compile(r"</(table|ul|ol|dl|pre|details|blockquote)\s*>", re.IGNORECASE)

#: Kinds whose text can limit the block before them.
_PROSE = (UnitKind.PARAGRAPH, UnitKind.HEADING, UnitKind.LIST, UnitKind.ITEM, UnitKind.QUOTE)

#: Characters that may close a heading, or underline it. They are stripped, not searched for: a search from
#: each character of a long run is quadratic.
_HEADING_ENDS = " \n\t#=~^\"'`+*-"


def advisory_units(text: str) -> tuple[Unit, ...]:
    """Return the text's units, in order: together they are the text, with ``\\n`` line ends.

    Never raises for odd text; linear in its length.
    """
    return tuple(_with_context(_grouped(_blocks(one_line_end(text)))))


def _blocks(text: str) -> list[Unit]:
    """Return the blocks of the outermost level, each with its trailing blank lines."""
    from markdown_it.tree import SyntaxTreeNode

    lines = lines_of(text)
    if len(text) > MAX_PARSED_CHARS:
        paragraphs = ("".join(lines[start:stop]) for start, stop in paragraph_ranges(lines))
        return [_paragraph(paragraph) for paragraph in paragraphs]
    widest = max((line.count("|") for line in lines), default=0)
    parser = _parser(tables=widest * len(lines) <= MAX_TABLE_CELLS)
    tree = SyntaxTreeNode(parser.parse("".join(_readable(lines))))
    blocks = list(_parts(tree, lines, 0, len(lines)))
    if not blocks:
        return [_paragraph(text)] if text else []
    if blocks[0].kind is UnitKind.PARAGRAPH and len(blocks) > 1 and _is_title(blocks[0].text):
        blocks[0] = Unit(UnitKind.HEADING, blocks[0].text)
    # Join blocks of HTML that a blank line had split.
    stops = _container_stops(blocks)
    joined_blocks: list[Unit] = []
    index = 0
    while index < len(blocks):
        joined_blocks.append(joined(UnitKind.HTML, blocks[index : stops[index]]))
        index = stops[index]
    return joined_blocks


@cache
def _parser(*, tables: bool) -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    if tables:
        parser.enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _readable(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, with underlines of reStructuredText headings as Markdown writes them."""
    for number, line in enumerate(lines):
        title = lines[number - 1].strip() if number else ""
        stands_alone = number < 2 or not lines[number - 2].strip()
        if title and stands_alone and len(title) <= len(line) and _UNDERLINE.fullmatch(line):
            yield re.sub(r"\S", "-", line)
        else:
            yield line


def _parts(node: "SyntaxTreeNode", lines: Sequence[str], begin: int, end: int) -> Iterator[Unit]:
    """Yield the parts of a block. Recursion ends where markdown-it's ``maxNesting`` (20) does."""
    placed = {child.map[0]: child for child in reversed(_children(node)) if child.map}
    starts = sorted(placed)
    if starts:
        for number, (start, stop) in enumerate(spans(starts, begin, end)):
            yield _unit(placed[start if number else starts[0]], lines, start, stop)


def _children(node: "SyntaxTreeNode") -> list["SyntaxTreeNode"]:
    """Return the child blocks; of a table its rows, whichever part of it they are in."""
    if node.type == "table":
        return [row for part in node.children for row in part.children]
    return [child for child in node.children if child.type != "inline"]


def _unit(node: "SyntaxTreeNode", lines: Sequence[str], start: int, stop: int) -> Unit:
    text = "".join(lines[start:stop])
    kind = _KINDS.get(node.type, UnitKind.PARAGRAPH)
    if kind in (UnitKind.FENCE, UnitKind.HTML, UnitKind.ROW):
        parts = tuple(Unit(UnitKind.FRAGMENT, line) for line in lines[start:stop])
        header = lines[start] if node.type == "fence" else ""
        return Unit(kind, text, parts if len(parts) > 1 else (), header)
    if kind is UnitKind.TABLE:
        rows = tuple(_parts(node, lines, start, stop))
        return Unit(kind, text, rows if len(rows) > 1 else (), rows[0].text if rows else "")
    if kind in (UnitKind.LIST, UnitKind.ITEM, UnitKind.QUOTE):
        parts = tuple(_grouped(list(_parts(node, lines, start, stop))))
        if len(parts) == 1:
            # An item of one paragraph is made of sentences.
            parts = parts[0].parts
        return Unit(kind, text, parts)
    if kind is UnitKind.HEADING:
        return Unit(kind, text)
    return _paragraph(text)


def _paragraph(text: str) -> Unit:
    parts = sentences(text)
    return Unit(UnitKind.PARAGRAPH, text, parts if len(parts) > 1 else parts[0].parts)


def _is_title(text: str) -> bool:
    title = text.strip()
    return "\n" not in title and len(title) <= _MAX_TITLE and not title.endswith((".", ":", "!"))


def _container_stops(blocks: Sequence[Unit]) -> list[int]:
    """Return for each block the end of the container that it opens, or the next block."""
    closings: dict[str, int] = {}
    stops: list[int] = []
    for index in reversed(range(len(blocks))):
        block = blocks[index]
        if block.kind is not UnitKind.FENCE:
            closings |= dict.fromkeys(map(str.lower, _CLOSING.findall(block.text)), index + 1)
        match = _CONTAINER.match(block.text) if block.kind is UnitKind.HTML else None
        stops.append(closings.get(match[1].lower(), index + 1) if match else index + 1)
    return stops[::-1]


def _grouped(blocks: Sequence[Unit]) -> Iterator[Unit]:
    """Yield blocks that belong together as one unit. Headings bind to the next block, others to the
    last one."""
    headings: list[Unit] = []
    runs: list[list[Unit]] = []  # a rule, then what limits it: each a run of blocks
    for block in blocks:
        heading = block.kind is UnitKind.HEADING
        if runs and block.kind in _PROSE and limits(block.text):
            runs.append([block])
        elif runs and not heading and _leads_in(runs[-1][-1], block):
            runs[-1].append(block)
        else:
            if runs:
                yield _section(headings, runs)
                headings, runs = [], []
            if heading:
                headings.append(block)
            else:
                runs.append([block])
    if headings or runs:
        yield _section(headings, runs)


def _leads_in(last: Unit, block: Unit) -> bool:
    """Return whether ``block`` goes with the block before it (rule 2 of the module)."""
    if last.kind is UnitKind.HEADING:
        return True
    if last.kind is UnitKind.PARAGRAPH and block.kind is not UnitKind.PARAGRAPH:
        return True
    return last.text.rstrip("*_ \n").endswith(":")


def _section(headings: Sequence[Unit], runs: Sequence[Sequence[Unit]]) -> Unit:
    """Return one unit, as flat as its meaning allows: section, rule, run, block."""
    lead = runs[0][0].text if runs and runs[0][0].kind is UnitKind.PARAGRAPH else ""
    rule = [joined(UnitKind.SECTION, run, header=lead * (run is runs[0])) for run in runs]
    body = [joined(UnitKind.RULE, rule, header=lead)] if rule else []
    header = "".join(heading.text for heading in headings)
    return joined(UnitKind.SECTION, [*headings, *body], header=header)


def _with_context(units: Iterator[Unit]) -> Iterator[Unit]:
    """Yield each unit with the headings above it, outermost first."""
    above: list[tuple[int, str]] = []
    for number, unit in enumerate(units):
        headings = [part for part in (unit, *unit.parts) if part.kind is UnitKind.HEADING]
        levels = [(_level(heading.text, number == 0), heading) for heading in headings]
        if levels:
            above = [entry for entry in above if entry[0] < levels[0][0]]
        context = " > ".join(title for _, title in above)
        for level, heading in levels:
            above = [entry for entry in above if entry[0] < level]
            title = heading.text.strip().lstrip("# \t").rstrip(_HEADING_ENDS).strip()
            above.append((level, title))
        yield replace(unit, context=context)


def _level(heading: str, title: bool) -> int:
    """Return 1 to 6; 0 for a title, which is above all."""
    marks = len(heading.lstrip()) - len(heading.lstrip().lstrip("#"))
    if marks:
        return marks
    if heading.rstrip().endswith("="):
        return 1
    return 0 if title else 2


#: An end of a sentence: its mark, what may close after it, white space, and no small letter next.
_END = re.compile(r"""[.!?]["'\u201d\u2019)\]*_`]*\s+(?![a-z\s])|\n[^\S\n]*(?=[-*+•][^\S\n])""")

#: Abbreviations, whose mark does not end a sentence: "e.g. X", "v. 2".
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|v|ver|no|approx|resp|incl|[A-Z]))\.$", re.IGNORECASE
)

#: Marks in front of a block's first word: list and quote marks, emphasis, "[!NOTE]".
_MARKS = re.compile(r"(?:[\s>*_~#+|(\[!:-]|\d{1,9}[.)]\s)*")

#: First words that limit, or take back, what was stated before.
_LIMITS = re.compile(
    r"(?:unless|except(?:ing|ions?)?|however|but|yet|otherwise|nevertheless|nonetheless|conversely"
    r"|note|nb|n\.b\.|caution|caveats?|warning|important|limitations?"
    r"|only (?:if|when|where)|provided(?: that)?|as long as|even (?:then|so|if)|that said|if not"
    r"|apart from|aside from|in (?:that|this|such|these|those|either|which) cases?"
    r"|with (?:the|one) exception|(?:the|an|one) (?:only |sole )?exceptions?"
    r"|(?:this|these|it|that) (?:does|do|is|are|was|were|will|can)(?: not|n't|n\u2019t)"
    r"|not (?:affected|vulnerable|impacted))\b",
    re.IGNORECASE,
)

#: Words anywhere in a sentence that state who or what a rule leaves out.
_LEAVES_OUT = re.compile(
    r"\b(?:(?:does|do|did)(?: not|n't|n\u2019t) apply|unaffected"
    r"|(?:is|are|was|were) \W{0,3}not\W{0,3} (?:\w+ )?(?:affected|vulnerable|impacted|exploitable))",
    re.IGNORECASE,
)


def limits(text: str) -> bool:
    """Return whether a text qualifies what is before it: by its beginning, or by its first sentence."""
    begin = _MARKS.match(text)
    start = begin.end() if begin else 0
    if _LIMITS.match(text, start):
        return True
    end = _END.search(text, start)
    return bool(_LEAVES_OUT.search(text, start, end.end() if end else len(text)))


def sentences(text: str) -> tuple[Unit, ...]:
    """Return the sentences of a paragraph, each with those after it that limit it."""
    groups: list[list[Unit]] = []
    for sentence in _sentences(text):
        unit = Unit(UnitKind.SENTENCE, sentence)
        if groups and limits(sentence):
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return tuple(joined(UnitKind.RULE, group) for group in groups)


def _sentences(text: str) -> list[str]:
    parts: list[str] = []
    start = 0
    for match in _END.finditer(text):
        word_end = match.start() + 1
        if match[0][0] != "\n" and _ABBREVIATION.search(text, max(start, word_end - 12), word_end):
            continue
        parts.append(text[start : match.end()])
        start = match.end()
    return [*parts, text[start:]] if text[start:] else parts
