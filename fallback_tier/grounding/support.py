"""Support of a plan: its claims, and which of them the context supports (ADR-0022)."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final

from pydantic import Field, TypeAdapter

from fallback_audit.frozen import Frozen
from fallback_tier.outcome import DependencyBump, Override, Plan, Refuse, SearchReplace

#: Code counts as one word, whatever it contains. Spans without a closing mark are prose.
_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)

#: The end of a sentence: stops, closing marks, citations that follow (`. [S1][E2] `). It begins only at a
#: run's first stop, because a model that is caught in a loop writes thousands of dots. The dots of a
#: version are not followed by white space, so they end nothing.
_STOP: Final = re.compile(
    r"(?<![.!?])[.!?]+[\"')\]*_`]{0,8}(?:[ \t]{0,3}\[[A-Z]\d{1,3}\][,;.]?){0,8}(?=\s)"
)

#: An empty line, or a line that begins a list item or a heading.
_BREAK: Final = re.compile(r"\n[ \t]*\n\s*|\n(?=[ \t]*(?:[-*+•#]+|\d{1,2}[.)])[ \t])")

#: A list item's mark is not part of the item's text.
_MARK: Final = re.compile(r"^(?:[-*+•#]+|\d{1,2}[.)])\s+")

#: Words before a stop after which a sentence always continues.
_NEVER_LAST: Final = frozenset(
    {
        "e.g",
        "i.e",
        "eg",
        "ie",
        "cf",
        "vs",
        "viz",
        "resp",
        "approx",
        "ca",
        "incl",
        "esp",
        "no",
        "nos",
    }
    | {"fig", "sec", "ch", "p", "pp", "ver", "v", "vol", "dr", "mr", "mrs", "ms", "st"}
)

#: The same, unless a capital letter follows.
_SELDOM_LAST: Final = frozenset({"etc", "al", "inc", "ltd", "co", "corp"})

_LAST_WORD: Final = re.compile(r"[\w.]*\Z")

#: "No." is an abbreviation only before a number.
_BEFORE_NUMBER: Final = frozenset({"no", "nos", "p", "pp", "v", "ver", "st"})


def sentences(text: str) -> tuple[str, ...]:
    """Return the sentences, each on one line, without list marks.

    Code spans, abbreviations, initials and version numbers are not cut, and nothing else is lost. Linear in
    the text's length.
    """
    masked = _CODE.sub(lambda match: "x" * len(match.group()), text)
    cuts = {0, len(text)}
    cuts.update(match.end() for match in _BREAK.finditer(masked))
    cuts.update(match.end() for match in _STOP.finditer(masked) if _ends_sentence(masked, match))
    pieces = (" ".join(text[start:end].split()) for start, end in pairwise(sorted(cuts)))
    return tuple(
        sentence for piece in pieces if (sentence := _MARK.sub("", piece)).strip("-*+•#_. ")
    )


def _ends_sentence(masked: str, stop: re.Match[str]) -> bool:
    """Return whether this stop ends a sentence, not an abbreviation, an initial or a list number."""
    if masked[stop.start()] != "." or stop.group().startswith(".."):
        return True
    preceding = masked[max(0, stop.start() - 40) : stop.start()]
    match = _LAST_WORD.search(preceding)
    word = match.group().lower().strip("_") if match else ""
    following = masked[stop.end() : stop.end() + 8].lstrip()[:1]
    if word in _BEFORE_NUMBER:
        return not following.isdigit()
    if word in _NEVER_LAST:
        return False
    if word in _SELDOM_LAST:
        return following.isupper()
    line = preceding[: len(preceding) - len(word)].rpartition("\n")[2]
    if word.isdigit() and not line.strip():
        return False  # "1. First": a list number
    return not (len(word) == 1 and word.isalpha() and match is not None and match.group().isupper())


#: Sentences of a rationale that are separate claims; the last one includes all that follows. A judge grades
#: each, and a rationale with more of them is an essay.
MAX_SENTENCES: Final = 20

#: One claim, as a judge and a reviewer read it: a long sentence. A longer text is shown by its two ends.
MAX_CLAIM_CHARS: Final = 600

#: How much of its old and new text an edit's claim quotes; the judge also sees the whole edit.
MAX_QUOTED_CHARS: Final = 100

#: How much a problem quotes of an answer, which may be anything.
_SHOWN_ID_CHARS: Final = 20


class Claim(Frozen):
    """One checkable statement of a plan: a sentence of its rationale, or what an edit asserts."""

    id: str
    text: str


class Graded(Frozen):
    """A judge's word on one claim. The reason comes first: a server that enforces the schema then has
    the model say why before it says whether."""

    id: str
    reason: str = ""
    supported: bool


class Verdicts(Frozen):
    """What a judge answers: every claim once."""

    claims: Annotated[tuple[Graded, ...], Field(min_length=1)]


verdicts_adapter: TypeAdapter[Verdicts] = TypeAdapter(Verdicts)


class Judgement(Frozen):
    """Every claim with its grade."""

    claims: tuple[Claim, ...]
    graded: tuple[Graded, ...]

    @property
    def supported(self) -> bool:
        """Whether all claims are supported."""
        return all(grade.supported for grade in self.graded)

    @property
    def faithfulness_score(self) -> float:
        """The share of claims that are supported, 0 to 1."""
        return sum(grade.supported for grade in self.graded) / len(self.graded)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The unsupported claims, one sentence each, with the judge's reason."""
        texts = {claim.id: claim.text for claim in self.claims}
        return tuple(
            f"{texts[grade.id]} ({grade.reason or 'no reason given'})"
            for grade in self.graded
            if not grade.supported
        )


def claims_of(plan: Plan) -> tuple[Claim, ...]:
    """Return the claims of a plan (C1, C2 …), empty for a refusal: sentences of the rationale, a bump's or
    override's claim about the version, one claim per edit."""
    if isinstance(plan, Refuse):
        return ()
    texts = _claim_sentences(plan.rationale)
    if isinstance(plan, DependencyBump | Override):
        texts.append(_version_claim(plan))
    texts += [_edit_claim(number, edit) for number, edit in enumerate(plan.edits, 1)]
    return tuple(
        Claim(id=f"C{number}", text=_ends(text, MAX_CLAIM_CHARS))
        for number, text in enumerate(texts, 1)
    )


def has_cut_claims(plan: Plan) -> bool:
    """Return whether a part of the rationale is in no claim, so that grades of all claims would not grade
    the plan."""
    return any(len(text) > MAX_CLAIM_CHARS for text in _claim_sentences(plan.rationale))


def read_verdicts(graded: Sequence[Graded], claims: Sequence[Claim]) -> Judgement | str:
    """Return a judgement in the order of the claims, or why the answer is not one (a claim left out, graded
    twice, invented)."""
    if not claims:
        return "The plan makes no claim, so there is nothing to judge."
    grades_by_id = Counter(grade.id for grade in graded)
    claim_ids = [claim.id for claim in claims]
    names_by_fault = {
        "claims that the plan does not make": [
            name for name in grades_by_id if name not in claim_ids
        ],
        "a claim more than once": [name for name in claim_ids if grades_by_id[name] > 1],
        "nothing about a claim": [name for name in claim_ids if not grades_by_id[name]],
    }
    for fault, names in names_by_fault.items():
        if names:
            shown = ", ".join(_ends(name, _SHOWN_ID_CHARS) for name in names[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return f"The judge's answer says {fault}: {shown}{more}."
    by_id = {grade.id: grade for grade in graded}
    return Judgement(claims=tuple(claims), graded=tuple(by_id[name] for name in claim_ids))


def _claim_sentences(rationale: str) -> list[str]:
    claims = list(sentences(rationale))
    if len(claims) > MAX_SENTENCES:
        claims[MAX_SENTENCES - 1 :] = [" ".join(claims[MAX_SENTENCES - 1 :])]
    return claims


def _version_claim(plan: DependencyBump | Override) -> str:
    verb = "Raising" if isinstance(plan, DependencyBump) else "Forcing"
    return f"{verb} {plan.package} to {plan.version} clears the advisory."


def _edit_claim(number: int, edit: SearchReplace) -> str:
    if edit.makes_file:
        action = f"makes the new file {edit.path} with {_quoted(edit.new)}"
        return f"Edit {number} {action}; the advisory and the code shown call for it."
    change = (
        f"replaces {_quoted(edit.old)} in {edit.path} by {_quoted(edit.new)}"
        if edit.new
        else f"removes {_quoted(edit.old)} from {edit.path}"
    )
    return f"Edit {number} {change}; the advisory and the code shown call for it."


def _quoted(code: str) -> str:
    return f"`{_ends(' '.join(code.split()), MAX_QUOTED_CHARS)}`"


def _ends(text: str, max_chars: int) -> str:
    """Return the text, or its two ends if it is too long: both identify it."""
    if len(text) <= max_chars:
        return text
    half = (max_chars - 3) // 2
    return f"{text[:half]} … {text[-half:]}"
