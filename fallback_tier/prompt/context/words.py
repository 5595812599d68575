"""The telling words of a prose, and which of them a text has."""

import re
from collections.abc import Sequence

#: Words that code is searched by: the first ones; a long advisory repeats itself.
MAX_WORDS = 60

#: Where one word of an identifier ends: ``readArchive``, ``HTTPServer``, ``read_archive``.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_$]+")
_RUN = re.compile(r"[\w$]+")
_MIN_WORD_CHARS = 3
#: A longer run is no word.
_MAX_RUN_CHARS = 200
_LETTERS = re.compile(r"[A-Za-z]{3,40}")

#: Words that every advisory has, and those that every prose has.
_COMMON = re.compile(
    r"able|about|after|all|allow|allowed|allowing|allows|also|and|any|are|attack"
    r"|attacker|attackers|because|been|before|being|but|can|cause|causes|could"
    r"|cve|did|does|due|each|earlier|even|exploit|fix|fixed|for|from|has|have"
    r"|how|however|http|https|into|issue|its|lead|leading|leads|may|might|more"
    r"|must|not|only|other|our|out|over|patch|patched|patches|prior|release"
    r"|released|should|some|such|than|that|the|their|them|then|there|these|they"
    r"|this|through|to|under|upgrade|use|used|user|users|uses|using|version"
    r"|versions|via|vulnerabilities|vulnerability|vulnerable|was|were|what|when"
    r"|where|which|while|who|will|with|without|workaround|workarounds|would|you"
    r"|your|com|github|org|impact|details|summary|references|advisory|security"
    r"|affected|description"
)

#: Memory of the automaton. 60 words take a few KiB; beyond it RE2 gives up and no word is found.
_MAX_MEMORY = 1 << 24

#: Endings that a prose adds to a word of code: "parsing", "redirects", "escaped".
_ENDING = re.compile(r"(?<=\w{4})(?:ing|ed|es|s)$")


def significant_words(text: str) -> tuple[str, ...]:
    """Words to search code by, in lower case: prose without its common words, identifiers in parts."""
    found: dict[str, None] = {}
    for run in _RUN.finditer(text):
        if not _MIN_WORD_CHARS <= len(run[0]) <= _MAX_RUN_CHARS:
            continue
        for word in _LETTERS.findall(_HUMP.sub(" ", run[0])):
            if not _COMMON.fullmatch(word.lower()):
                found.setdefault(word.lower())
        if len(found) >= MAX_WORDS:
            break
    return tuple(found)[:MAX_WORDS]


class WordSet:
    """Words and names, found in one pass over a text however many they are (RE2's automaton).

    Of ``words`` any case is found, and "parsing" also as ``parse``'s "pars"; ``names`` stand for
    themselves.
    """

    def __init__(self, words: Sequence[str], names: Sequence[str] = ()) -> None:
        import re2

        self._words = tuple(words)
        self._names = tuple(names)
        options = re2.Options()
        options.max_mem = _MAX_MEMORY
        options.log_errors = False
        options.case_sensitive = False
        self._set = re2.Set.SearchSet(options)
        for word in (*(_ENDING.sub("", word) for word in self._words), *self._names):
            self._set.Add(re2.escape(word))
        self._set.Compile()

    def __len__(self) -> int:
        return len(self._words)

    def within(self, text: str) -> tuple[frozenset[str], frozenset[str]]:
        """Those of the words, and those of the names, that the text has."""
        if not self._words and not self._names:
            return frozenset(), frozenset()
        found = self._set.Match(text) or ()
        count = len(self._words)
        names = (self._names[number - count] for number in found if number >= count)
        return (
            frozenset(self._words[number] for number in found if number < count),
            frozenset(name for name in names if name in text),
        )
