"""The question to the memory: an advisory's text about the vulnerability alone.

Versions, links, credits and the product's description find records of the same product or author; a
precedent is a record of the same kind of vulnerability (ADR-0019 has the figures of each rule).
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from fallback_plugins.solved_examples.interfaces import Question

if TYPE_CHECKING:
    from fallback_tier.advisory import Advisory

#: Language of the edits that an ecosystem's packages mostly take.
LANGUAGES: Mapping[str, str] = MappingProxyType({"PyPI": "python", "npm": "javascript"})

#: Languages whose edits can be adapted to each other line by line.
_DIALECTS: Mapping[str, str] = MappingProxyType({"typescript": "javascript"})

#: Characters of an advisory that are read: after them are proofs of concept and logs.
MAX_CHARS = 20_000

#: A package's name of fewer letters is an English word too often (``it``, ``is``).
_MIN_NAME = 3

#: Ids, links, trailers of a commit message, messages of a merge.
_MARKS = re.compile(
    r"https?://\S+|\(?\b(?:CVE|GHSA|PYSEC|SNYK|OSV)-[\w-]+\)?"
    r"|\bmerge (?:pull request|commit|branch)\b[^\n]*"
    r"|^\s*(?:co-authored|signed-off|reviewed|reported)-by\b[^\n]*",
    re.IGNORECASE | re.MULTILINE,
)

#: "Prior to version 1.2.3", "from 2.0 up to and including 2.3.x", "v4.5.6 and earlier".
_VERSIONS = re.compile(
    r"(?:\b(?:in|before|prior to|through|until|up to|from|starting (?:in|with)|and|versions?"
    r"|releases?|including)\s+){0,5}\bv?\d+(?:\.(?:\d+|x)){1,4}[\w.+-]{0,20}"
    r"(?:\s+(?:and|or) (?:below|earlier|prior|later|older))?",
    re.IGNORECASE,
)

#: Sections, up to the next heading, on what to do now and whom to thank.
_SECTIONS = re.compile(
    r"^#+\s*(?:credits?|references?|for more information|acknowledge?ments?|patch(?:es)?|resources"
    r"|work-?arounds?|timeline|mitigations?|remediation|affected versions?|severity|cvss)\b[^\n]*"
    r"(?:\n(?!#)[^\n]*)*",
    re.IGNORECASE | re.MULTILINE,
)

#: Sentences of the same kind.
_SENTENCES = re.compile(
    r"\b(?:this (?:issue|vulnerability|problem) (?:has been|is|was) (?:patched|fixed|addressed|resolved)"
    r"|(?:all )?users (?:are advised|should|are encouraged|are recommended)"
    r"|there are no known workarounds|an? (?:patch|fix) (?:is|has|was)|upgrade to|patched in"
    r"|fixed in)\b[^.\n]*\.?",
    re.IGNORECASE,
)

#: Headings that every advisory has.
_HEADINGS = re.compile(
    r"^#+\s*(?:summary|details?|impact|poc|description|proof of concept)\s*:?\s*$",
    re.IGNORECASE | re.MULTILINE,
)

#: "X is a framework for Y." at the beginning says what the product is.
_INTRODUCTION = re.compile(
    r"\A\W{0,3}[\w@./` -]{2,60}\b(?:is|are|provides?) (?:an?|the|one)\b[^.\n]{10,300}\.\s"
)
_FLAW = re.compile(r"vulnerab|attack|inject|allow|flaw|bypass|weakness", re.IGNORECASE)

#: Characters that must remain if an introduction is removed.
_MIN_REST = 60


def question_of(advisory: "Advisory") -> Question:
    """Return the question for an advisory. Its text may be empty."""
    ecosystems = advisory.ecosystems
    packages = tuple(name for item in ecosystems for name in advisory.packages(item))
    languages = {LANGUAGES[item] for item in ecosystems if item in LANGUAGES}
    return Question(
        text=flaw_text(advisory.text, packages),
        ecosystems=ecosystems,
        packages=packages,
        cwe=advisory.cwe,
        language=languages.pop() if len(languages) == 1 else "",
    )


def flaw_text(text: str, packages: Iterable[str] = ()) -> str:
    """Return a text without boilerplate, versions and these packages' names."""
    text = text[:MAX_CHARS]
    for rule in (_MARKS, _SECTIONS, _SENTENCES, _HEADINGS, _VERSIONS):
        text = rule.sub(" ", text)
    text = _without_names(text.strip(), packages)
    introduction = _INTRODUCTION.match(text)
    if (
        introduction
        and len(text) - introduction.end() >= _MIN_REST
        and not _FLAW.search(introduction[0])
    ):
        text = text[introduction.end() :]
    return re.sub(r"[ \t]+", " ", text).strip()


def same_language(left: str, right: str) -> bool:
    """Return whether an edit in one language can be adapted to the other; unknown ones never match."""
    return bool(left) and _DIALECTS.get(left, left) == _DIALECTS.get(right, right)


def _without_names(text: str, packages: Iterable[str]) -> str:
    spellings = {
        spelling
        for package in packages
        for name in (package, package.rpartition("/")[2])
        for spelling in (name, *(name.replace("-", separator) for separator in ("_", " ", "")))
        if len(spelling) >= _MIN_NAME
    }
    if not spellings:
        return text
    names = "|".join(re.escape(name) for name in sorted(spellings, key=len, reverse=True))
    return re.sub(
        rf"(?<![A-Za-z0-9])(?:{names})(?:\.js|\.io)?(?![A-Za-z0-9])",
        "it",
        text,
        flags=re.IGNORECASE,
    )
