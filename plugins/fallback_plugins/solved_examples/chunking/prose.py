"""Sentences, and the words by which one limits what was said before it."""

import re

from fallback_plugins.solved_examples.chunking.units import Unit, UnitKind, joined

#: An end of a sentence: its mark, what may close after it, white space, and no small letter next.
_END = re.compile(r"""[.!?]["'\u201d\u2019)\]*_`]*\s+(?![a-z\s])|\n[^\S\n]*(?=[-*+•][^\S\n])""")

#: Ends that are none: "e.g. X", "v. 2".
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|v|ver|no|approx|resp|incl|[A-Z]))\.$", re.IGNORECASE
)

#: What stands in front of a block's first word: list and quote marks, emphasis, "[!NOTE]".
_MARKS = re.compile(r"(?:[\s>*_~#+|(\[!:-]|\d{1,9}[.)]\s)*")

#: First words that limit, or take back, what was said before.
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

#: Anywhere in a sentence: who or what a rule leaves out.
_LEAVES_OUT = re.compile(
    r"\b(?:(?:does|do|did)(?: not|n't|n\u2019t) apply|unaffected"
    r"|(?:is|are|was|were) \W{0,3}not\W{0,3} (?:\w+ )?(?:affected|vulnerable|impacted|exploitable))",
    re.IGNORECASE,
)


def limits(text: str) -> bool:
    """Whether it qualifies what stands before it: by how it begins, or by its first sentence."""
    begin = _MARKS.match(text)
    place = begin.end() if begin else 0
    if _LIMITS.match(text, place):
        return True
    end = _END.search(text, place)
    return bool(_LEAVES_OUT.search(text, place, end.end() if end else len(text)))


def sentences(text: str) -> tuple[Unit, ...]:
    """The sentences of a paragraph, each with those after it that limit it."""
    groups: list[list[Unit]] = []
    for sentence in _sentences(text):
        unit = Unit(UnitKind.SENTENCE, sentence)
        if groups and limits(sentence):
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return tuple(joined(UnitKind.RULE, group) for group in groups)


def _sentences(text: str) -> list[str]:
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        word_end = match.start() + 1
        if match[0][0] != "\n" and _ABBREVIATION.search(text, max(start, word_end - 12), word_end):
            continue
        found.append(text[start : match.end()])
        start = match.end()
    return [*found, text[start:]] if text[start:] else found
