"""Selection of the code that a prompt shows: what failed, the manifests, then the source, best first.

All files are ranked first, by plain text (cheap: nothing is parsed), then the units of the best files. Both
rankings use the same evidence; each piece of evidence counts less the more files contain it. In a package's
own code every unit is ranked, because one of them contains the vulnerability.
"""

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from fallback_tier.advisory import Advisory
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.files.source_paths import SOURCE_SUFFIXES, is_beside, is_lock, is_test
from fallback_tier.outcome import TRIED_HEADING, AttemptSummary
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.prompt.context.named import (
    code_names,
    defines,
    failure_names,
    find_word,
    named_files,
    named_modules,
)
from fallback_tier.prompt.context.packing import (
    MAX_SNIPPET_BYTES,
    Snippet,
    SnippetBudget,
    Wanted,
    pack,
)
from fallback_tier.prompt.context.sources import (
    MAX_SOURCE_BYTES,
    Showable,
    Sources,
    Unit,
    scannable,
)
from fallback_tier.prompt.context.weaknesses import Sign, signs_of
from fallback_tier.repo import ProofFailure, RepoContext

#: The number of words that code is searched by: the first ones, because a long advisory repeats itself.
MAX_WORDS = 60

#: Word boundaries within an identifier: ``readArchive``, ``HTTPServer``, ``read_archive``.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_$]+")
_RUN = re.compile(r"[\w$]+")
_MIN_WORD_CHARS = 3
#: A longer run is not a word.
_MAX_RUN_CHARS = 200
_LETTERS = re.compile(r"[A-Za-z]{3,40}")

#: Words that occur in every advisory, and in prose in general.
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

#: Memory limit of the automaton. 60 words take a few KiB; above the limit RE2 gives up and finds no word.
_MAX_MEMORY = 1 << 24

#: Endings that prose adds to a word of code: "parsing", "redirects", "escaped".
_ENDING = re.compile(r"(?<=\w{4})(?:ing|ed|es|s)$")


def significant_words(text: str) -> tuple[str, ...]:
    """Return the words to search code by, in lower case, without common words; identifiers are split up."""
    words: dict[str, None] = {}
    for run in _RUN.finditer(text):
        if not _MIN_WORD_CHARS <= len(run[0]) <= _MAX_RUN_CHARS:
            continue
        for word in _LETTERS.findall(_HUMP.sub(" ", run[0])):
            if not _COMMON.fullmatch(word.lower()):
                words.setdefault(word.lower())
        if len(words) >= MAX_WORDS:
            break
    return tuple(words)[:MAX_WORDS]


class WordSet:
    """A set of words and names that one pass of RE2's automaton searches for.

    ``words`` match in any case, and without their ending ("parsing" matches ``parse`` by "pars"); ``names``
    match exactly.
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
        """Return which of the words and which of the names occur in the text."""
        if not self._words and not self._names:
            return frozenset(), frozenset()
        indexes = self._set.Match(text) or ()
        count = len(self._words)
        names = (self._names[index - count] for index in indexes if index >= count)
        return (
            frozenset(self._words[index] for index in indexes if index < count),
            frozenset(name for name in names if name in text),
        )


#: Files whose units are ranked: those with the best scores as whole files.
MAX_RANKED_FILES = 12

#: The same for a package's own code, and a limit on their characters: about two seconds.
MAX_OWN_FILES = 1_000
MAX_OWN_CHARS = 3 * 1024 * 1024

# Weights of the pieces of evidence; their order matters more than their size.
_DEFINES = 4.0
_HAS = 1.0
_NAMED_FILE = 2.0
_CALLS_PACKAGE = 2.0
_ABOUT = 3.0
_CALLS_FOUND = 1.0
_TITLE = 3.0
_TESTED = 3.0
_SIGNS = 1.0

# Weights for own code: a proof's failure first, then what the advisory marks as code, then prose
# (ADR-0120).
_FRAME = 12.0
_PROOF_IMPORTS = 4.0
_PROOF_USES = 2.0
_MARKED = 2.0

#: How many of a unit's definitions that a proof uses count: a long class has a name of every kind.
_MAX_USED = 2

#: Factors for code that is not in the ecosystem's language (a Python package's browser part), and for a
#: neighbour in the same repository.
_OTHER_LANGUAGE = 0.5
_NEIGHBOUR = 0.5

#: A unit that only has words in common needs at least this share of the best unit's score.
_LEAST_ABOUT = 0.35

#: It also needs at least this many of the words: in a small repository some unit is always the best.
_LEAST_WORDS = 3

#: An import that weighs no more than this is of the repository's own package: most of its many files have
#: it.
_OWN = 0.1

#: The number of best units whose callers are searched for.
_MAX_FOUND = 4


class Interest(NamedTuple):
    """The search terms: the advisory's ``words``, and the ``symbols`` and ``files`` that it names.

    ``imports(path, text)`` returns whether that file's text imports the vulnerable package. ``own`` is set
    only if the package's own code is searched.
    """

    words: tuple[str, ...]
    symbols: tuple[str, ...]
    files: frozenset[str]
    imports: Callable[[str, str], bool]
    own: "Own | None" = None


class Own(NamedTuple):
    """Evidence of a vulnerability in a package's own code.

    ``title``: words of the advisory's title; ``signs``: signs of its kind of weakness; ``suffixes``: file
    suffixes of the ecosystem's language; ``folders``: where the package's own manifests are
    (``packages/core/``; empty: at the root); ``proof``: how the proof fails, if there is one.
    """

    title: tuple[str, ...]
    signs: tuple[Sign, ...]
    suffixes: frozenset[str]
    folders: tuple[str, ...] = ("",)
    proof: ProofFailure = ProofFailure()

    #: Words of the titles of the proof's failing tests.
    tested: tuple[str, ...] = ()

    @property
    def wanted(self) -> frozenset[str]:
        """Identifiers that the proof's failing tests use."""
        return frozenset((*self.proof.names, *self.proof.uses))

    def of_proof(self, path: str, defined: Iterable[str], weights: dict[str, float]) -> float:
        """Return how strongly a proof points at a file, or at a unit of it, that defines these names."""
        names = frozenset(self.proof.names)
        scores = (
            weights.get(_definition(name), 0.0) * (_PROOF_IMPORTS if name in names else _PROOF_USES)
            for name in defined
        )
        is_imported = _PROOF_IMPORTS * (path in self.proof.files)
        return is_imported + math.fsum(sorted(scores, reverse=True)[:_MAX_USED])

    def frames_in(self, unit: Unit) -> list[int]:
        """Return the unit's lines (from 0) that are in the stack trace of the proof's failure."""
        return [
            frame.line - 1
            for frame in self.proof.frames
            if frame.path == unit.path and unit.start < frame.line <= unit.end
        ]


class Ranked(NamedTuple):
    """A unit, its score, and the line (from 0) that makes it worth showing."""

    unit: Unit
    score: float
    focus: int


class _File(NamedTuple):
    path: str
    imports: bool
    symbols: frozenset[str]
    words: frozenset[str]
    used: frozenset[str] = frozenset()


def ranked_units(interest: Interest, paths: Sequence[str], sources: Sources) -> list[Ranked]:
    """Return the units with any evidence, best first, tests last; of own code all units of at most
    MAX_OWN_FILES files."""
    files = _scanned(interest, paths, sources)
    weights = _weights(files)
    best = [
        file
        for file in files
        if file.imports or file.symbols or file.words or file.path in interest.files or interest.own
    ]
    if interest.own:
        weights = _where_defined(files, weights, sources)
    best.sort(key=_file_order(interest, weights, sources))
    scored: list[tuple[Unit, float, int]] = []
    remaining_chars = MAX_OWN_CHARS
    for file in best[: MAX_OWN_FILES if interest.own else MAX_RANKED_FILES]:
        remaining_chars -= len(sources.text(file.path) or "")
        if interest.own and remaining_chars < 0 and scored:
            break
        callees = _package_names(file, interest, sources) if weights[""] > _OWN else frozenset()
        for unit in sources.units(file.path):
            scored.append((unit, *_evidence(unit, file, callees, interest, weights, sources)))
    words = WordSet(interest.words)
    texts = [(f"{unit.path} {' '.join(unit.names)}", sources.body(unit)) for unit, _, _ in scored]
    about = (_bm25_whole if interest.own else _bm25)(texts, interest.words)
    if interest.own:
        titled = _bm25_whole(texts, interest.own.title)
        tested = _bm25_whole(texts, interest.own.tested)
        near = [
            _ABOUT * a + _TITLE * b + _TESTED * c
            for a, b, c in zip(about, titled, tested, strict=True)
        ]
        ranked = [
            Ranked(unit, score + _of_own(unit, prose, interest.own, sources), focus)
            for (unit, score, focus), prose in zip(scored, near, strict=True)
        ]
    else:
        ranked = [
            Ranked(unit, score + _ABOUT * near, focus)
            for (unit, score, focus), near in zip(scored, about, strict=True)
            if score or (near >= _LEAST_ABOUT and _is_about(unit, words, sources))
        ]
    ranked.sort(key=_order(interest))
    ranked = _with_callers(ranked, sources)
    ranked.sort(key=_order(interest))
    return ranked


def _scanned(interest: Interest, paths: Iterable[str], sources: Sources) -> list[_File]:
    used = interest.own.wanted if interest.own else frozenset()
    symbols = frozenset(interest.symbols)
    terms = WordSet(interest.words, tuple(dict.fromkeys((*interest.symbols, *sorted(used)))))
    files = []
    for path in paths:
        text = sources.text(path)
        if text is not None:
            words, names = terms.within(text)
            imports = interest.imports(path, text)
            files.append(_File(path, imports, names & symbols, words, names & used))
    return files


def _weights(files: Sequence[_File]) -> dict[str, float]:
    """Return a weight per word or symbol, and as "" for an import of the package: 1 if one file has it,
    down to 0 if all have."""
    counts: Counter[str] = Counter()
    for file in files:
        counts.update(file.symbols | file.words)
        counts[""] += file.imports
    largest = math.log(len(files) + 1) or 1.0
    counts[""] += 0
    return {
        name: math.log((len(files) + 1) / max(1, count)) / largest for name, count in counts.items()
    }


def _where_defined(
    files: Sequence[_File], weights: dict[str, float], sources: Sources
) -> dict[str, float]:
    """Return the weights, with those of definitions: a name that one file defines points at that file, even
    if many others use it."""
    definer_counts = Counter(
        name
        for file in files
        if not is_beside(file.path)
        for name in file.symbols | file.used
        if defines(sources.text(file.path) or "", name) is not None
    )
    return weights | {
        _definition(name): max(weights.get(name, 0.0), 1 / count)
        for name, count in definer_counts.items()
    }


def _definition(name: str) -> str:
    return f"def {name}"  # the key for the weight of a name's definition


def _of_own(unit: Unit, prose: float, own: Own, sources: Sources) -> float:
    """Return how much a unit of the package's own code is about what the advisory and the proof say."""
    body = sources.body(unit)
    signs = sum(sign.search(body) is not None for sign in own.signs)
    score = prose + _SIGNS * signs / max(1, len(own.signs))
    if not unit.path.endswith(tuple(own.suffixes)):
        score *= _OTHER_LANGUAGE
    return score if unit.path.startswith(own.folders) else score * _NEIGHBOUR


def _file_order(
    interest: Interest, weights: dict[str, float], sources: Sources
) -> Callable[[_File], tuple[bool, float, int, str]]:
    most = math.fsum(weights.get(word, 0.0) for word in interest.words) or 1.0

    def order(file: _File) -> tuple[bool, float, int, str]:
        text = sources.text(file.path) or ""
        score = math.fsum(
            _DEFINES * weights.get(_definition(name), weights[name])
            if defines(text, name) is not None
            else _HAS * weights[name]
            for name in file.symbols
        )
        score += _NAMED_FILE * (file.path in interest.files)
        if interest.own:
            score *= _MARKED
            score += _FRAME * any(frame.path == file.path for frame in interest.own.proof.frames)
            score += interest.own.of_proof(file.path, file.used, weights)
        score += _CALLS_PACKAGE * max(_OWN, weights[""]) * file.imports
        score += _ABOUT * math.fsum(weights[word] for word in file.words) / most
        return is_behind(file.path, interest), -score, file.path.count("/"), file.path

    return order


def _package_names(file: _File, interest: Interest, sources: Sources) -> frozenset[str]:
    if not file.imports or sources.is_small(file.path):
        return frozenset()
    return frozenset(
        name
        for statement in sources.structure(file.path).imports
        if interest.imports(file.path, statement.text)
        for name in statement.names
    )


def _evidence(
    unit: Unit,
    file: _File,
    callees: Iterable[str],
    interest: Interest,
    weights: dict[str, float],
    sources: Sources,
) -> tuple[float, int]:
    """Return a unit's score (names that it defines or has, calls of the package), and its focus line."""
    body = sources.body(unit)
    score, defined, used = 0.0, [], []
    for name in file.symbols:
        offset = defines(body, name)
        if name in unit.names or offset is not None:
            score += _DEFINES * weights.get(_definition(name), weights[name])
            defined.append(offset or 0)
        elif (offset := find_word(body, name)) is not None:
            score += _HAS * weights[name]
            used.append(offset)
    if file.imports:
        calls = [offset for name in callees if (offset := find_word(body, name)) is not None]
        if calls or interest.imports(file.path, body):
            score += _CALLS_PACKAGE * max(_OWN, weights[""])
            used.extend(calls)
    if file.path in interest.files:
        score += _NAMED_FILE
    focus = min(defined or used or [0])
    line = unit.start + body.count("\n", 0, focus)
    if interest.own is None:
        return score, line
    frames = interest.own.frames_in(unit)
    score = _MARKED * score + _FRAME * bool(frames)
    defining = (name for name in file.used if name in unit.names or defines(body, name) is not None)
    score += interest.own.of_proof(file.path, defining, weights)
    return score, frames[0] if frames else line


def _is_about(unit: Unit, words: WordSet, sources: Sources) -> bool:
    """Return whether a unit without a name of the advisory has enough of its words, and is not a test."""
    common, _ = words.within(sources.body(unit))
    return not is_test(unit.path) and len(common) >= min(_LEAST_WORDS, len(words))


def _with_callers(ranked: Sequence[Ranked], sources: Sources) -> list[Ranked]:
    """Return the ranking with a bonus for the direct callers of the best units' definitions."""
    names = {name for entry in ranked[:_MAX_FOUND] for name in entry.unit.names if len(name) > 3}
    return [
        entry._replace(score=entry.score + _CALLS_FOUND)
        if any(
            f"{name}(" in sources.body(entry.unit) for name in names.difference(entry.unit.names)
        )
        else entry
        for entry in ranked
    ]


def _order(interest: Interest) -> Callable[[Ranked], tuple[bool, float, int, str, int]]:
    def order(ranked: Ranked) -> tuple[bool, float, int, str, int]:
        path, start = ranked.unit.path, ranked.unit.start
        return is_behind(path, interest), -ranked.score, path.count("/"), path, start

    return order


def is_behind(path: str, interest: Interest) -> bool:
    """Return whether a path comes last: if it is outside the product, relative to the package's folder. A
    file of own code that the advisory names does not come last."""
    if interest.own is None:
        return is_beside(path)
    folders = [folder for folder in interest.own.folders if path.startswith(folder)]
    inside = path[len(max(folders, key=len, default="")) :]
    return path not in interest.files and is_beside(inside)


# BM25 scores of a few words over texts (Robertson & Zaragoza 2009), computed by SQLite's FTS5 in memory.
# FTS5 splits snake_case itself; camelCase is split before. Words and code are matched in two ways:
#
# - ``_bm25`` stems both sides (Porter), so that "parsing" in an advisory matches ``parse_value``;
# - ``_bm25_whole``, for a package's own code, weighs a whole word more than a part of an identifier, and
#   treats only inflected forms as the same word: with Porter "regular" matches ``regularized``.

# The character class comes first: such a search is quicker than one that begins with a lookbehind.
_CAMEL = re.compile(r"[A-Z](?<=[a-z0-9][A-Z])")

#: A match in a unit's names (its path, the names that it defines) counts as this many in its text.
_NAME_WEIGHT = 4.0

#: A match in a part of an identifier counts as this many matches of a whole word.
_PART_WEIGHT = 0.25

#: An identifier of several words.
_COMPOUND = re.compile(r"\b\w*(?:[a-z0-9][A-Z]|[^\W_]_+[^\W_])\w*")

_INFLECTION = re.compile(r"(?<=\w{3})(?:ing|ed|es|e|s)$")
_INFLECTED = ("", "s", "e", "es", "ed", "ing")


def _bm25(texts: Sequence[tuple[str, str]], words: Sequence[str]) -> list[float]:
    """Return for each (names, body) how well it matches, from 0 to 1 (the best of them). ``words`` contain
    letters only."""
    rows = ((_parted(name), _parted(body), "") for name, body in texts)
    return _scores(rows, len(texts), words, "porter unicode61")


def _bm25_whole(texts: Sequence[tuple[str, str]], words: Sequence[str]) -> list[float]:
    """Return the same, but prefer whole words to parts of identifiers, and match inflected forms only."""
    stems = dict.fromkeys(_INFLECTION.sub("", word) for word in words)
    forms = [f"{stem}{ending}" for stem in stems for ending in _INFLECTED]
    rows = (
        (_parted(name), _COMPOUND.sub(" ", body), _parted(" ".join(_COMPOUND.findall(body))))
        for name, body in texts
    )
    return _scores(rows, len(texts), forms, "unicode61")


def _scores(
    rows: Iterable[tuple[str, str, str]], count: int, words: Sequence[str], tokenizer: str
) -> list[float]:
    """Return the scores of rows of (names, whole words, parts of identifiers)."""
    scores = [0.0] * count
    if not words or not count:
        return scores
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.execute(
            # FTS5 keeps no copy of the texts. (With detail=column as well, bm25() is 0: SQLite 3.40.)
            "CREATE VIRTUAL TABLE unit USING "
            f"fts5(name, body, part, content='', tokenize='{tokenizer}')"
        )
        memory.execute("BEGIN")
        memory.executemany(
            "INSERT INTO unit(rowid, name, body, part) VALUES (?, ?, ?, ?)",
            ((number, *row) for number, row in enumerate(rows, start=1)),
        )
        matches = memory.execute(
            "SELECT rowid, bm25(unit, ?, 1.0, ?) FROM unit WHERE unit MATCH ?",
            (_NAME_WEIGHT, _PART_WEIGHT, " OR ".join(f'"{word}"' for word in words)),
        ).fetchall()
    best = min((score for _, score in matches), default=0.0)
    for number, score in matches:
        scores[number - 1] = score / best if best else 0.0
    return scores


def _parted(text: str) -> str:
    return _CAMEL.sub(r" \g<0>", text)


#: A root manifest up to this length is shown after a package's own code.
_SHORT_MANIFEST_CHARS = 800

#: Sections of an advisory that say nothing about the vulnerability.
_ASIDE = re.compile(
    r"^#+ *(?:patch(?:es|ed)|workarounds?|acknowledge?ments?|credits?|references|resources|mitigations?"
    r"|remediation|for more information)\b[^\n]*\n(?:(?!#)[^\n]*(?:\n|\Z))*",
    re.IGNORECASE | re.MULTILINE,
)

#: The part of the budget for the code that a failure names (one fourth), but at least two whole snippets.
_SHARE_OF_A_FAILURE = 4
MIN_FAILURE_BYTES = 2 * MAX_SNIPPET_BYTES

#: A name that more source files have does not tell where the build broke.
_MAX_FILES_OF_A_NAME = 5


def select_snippets(
    advisory: Advisory,
    repo: RepoContext,
    plugin: EcosystemPlugin,
    *,
    prior_attempts: Sequence[AttemptSummary] = (),
    secrets: frozenset[str] = frozenset(),
    own_code: bool = False,
) -> tuple[Snippet, ...]:
    """Return the snippets of an attempt's prompt.

    A first attempt gets at most MAX_SNIPPETS, together at most ``repo.settings.snippet_budget_bytes``
    (UTF-8).

    A retry gets the same code and, before it, other code that the failure names: up to a quarter of the
    budget or two whole snippets, whichever is more, and never more than the budget.

    If the vulnerability is in this repository (``own_code``), the only manifest shown is a short one at the
    root, after the code, because a plan may not change it. The code fills ``own_code_budget_bytes``.

    Ids are S1, S2 … in the order shown. A file that can't be read (binary, too large, a link) is skipped;
    the gates still see it.
    """
    summary = prior_attempts[-1].prior_failure_summary if prior_attempts else ""
    selection = _Selection(advisory, repo, plugin, own_code=own_code)
    settings = repo.settings
    budget = SnippetBudget(settings.snippet_budget_bytes)
    if own_code:
        budget = SnippetBudget.of_own(settings.own_code_budget_bytes)
    files = Showable(selection.sources, secrets)
    shown = pack(selection.wanted(), files.lines, budget, hidden=files.hidden)
    failure_budget = min(
        budget.budget, max(MIN_FAILURE_BYTES, budget.budget // _SHARE_OF_A_FAILURE)
    )
    failing = list(selection.failing(summary))
    more_snippets = pack(
        failing, files.lines, SnippetBudget.of_own(failure_budget), shown=shown, hidden=files.hidden
    )
    ordered = sorted(
        (*more_snippets, *shown), key=lambda snippet: not any(map(snippet.overlaps, failing))
    )
    return tuple(
        snippet.model_copy(update={"id": f"S{number}"})
        for number, snippet in enumerate(ordered, start=1)
    )


class _Selection:
    """The search for one prompt: its search terms and the sources that it has read."""

    def __init__(
        self, advisory: Advisory, repo: RepoContext, plugin: EcosystemPlugin, *, own_code: bool
    ) -> None:
        self._repo = repo
        self.sources = Sources(repo, MAX_SNIPPET_BYTES)
        text = _ASIDE.sub("", advisory.text[:MAX_SOURCE_BYTES])
        packages = advisory.packages(plugin.name)
        package_words = {part for name in packages for part in re.findall(r"[\w$]+", name)}
        paths = frozenset(named_files(text, repo.tracked_files))
        self._interest = Interest(
            words=significant_words(text),
            symbols=tuple(name for name in code_names(text) if name not in package_words),
            files=paths | named_modules(text, repo.tracked_files),
            imports=lambda path, code: (
                not own_code and any(plugin.mentions(name, path, code) for name in packages)
            ),
            own=_own(advisory, plugin, repo) if own_code else None,
        )
        self._paths = scannable(repo.tracked_files, self._interest.files)
        # "flask-login" is written flask_login in code and Flask.Login elsewhere (PEP 503).
        spellings = ("[-_.]+".join(map(re.escape, re.split(r"[-_.]+", p))) for p in packages)
        self._package = re.compile(rf"(?<![\w$])(?:{'|'.join(spellings) or '(?!)'})(?![\w$])")

    def failing(self, summary: str) -> Iterator[Wanted]:
        """Yield what a failure names: files at their lines, then code that has its symbols."""
        failed = summary.partition(f"\n{TRIED_HEADING}")[0]
        names = failure_names(failed)
        for path, lines in named_files(summary, self._repo.tracked_files).items():
            if self.sources.text(path) is not None:
                units = self.sources.units(path)
                for line in lines:
                    # A tool may report a line after the last one: an unexpected end of the file.
                    index = min(line, len(self.sources.lines(path))) - 1
                    yield from (
                        Wanted(*unit[:3], index) for unit in units if unit.start <= index < unit.end
                    )
                if not lines:
                    matching_units = [
                        unit for unit in units if _first(self.sources.body(unit), names) is not None
                    ]
                    for unit in matching_units or units[:1]:
                        yield Wanted(*unit[:3], unit.start)
        if names:
            yield from self._using(names)

    def wanted(self) -> Iterator[Wanted]:
        """Yield the wanted code, best first. Overlapping entries count once, for the first of them."""
        if self._interest.own:
            yield from _own_places(self._ranked(), self.sources, self._interest)
            yield from self._root_manifest()
            return
        for path in sorted(self._repo.manifests):
            text = None if is_lock(path) else self.sources.text(path)
            if text is None:
                continue
            match = self._package.search(text)
            if match or len(text) <= MAX_SNIPPET_BYTES // 2:
                line = text.count("\n", 0, match.start()) if match else 0
                yield Wanted(path, 0, len(self.sources.lines(path)), line)
        for unit, _, focus in self._ranked():
            yield Wanted(*unit[:3], focus)

    def _root_manifest(self) -> Iterator[Wanted]:
        """Yield the first short root manifest, which describes the package, if its code leaves room."""
        for path in sorted(self._repo.manifests):
            text = None if "/" in path or is_lock(path) else self.sources.text(path)
            if text is not None and len(text) <= _SHORT_MANIFEST_CHARS:
                yield Wanted(path, 0, len(self.sources.lines(path)), 0)
                return

    def _ranked(self) -> list[Ranked]:
        return ranked_units(self._interest, self._paths, self.sources)

    def _using(self, names: Sequence[str]) -> Iterator[Wanted]:
        """Yield source units, without tests, that have one of the names, if few files have that name."""
        product_paths = [path for path in self._paths if not is_beside(path)]
        for name in names:
            matching_paths = [
                path for path in product_paths if name in (self.sources.text(path) or "")
            ]
            for path in matching_paths if len(matching_paths) <= _MAX_FILES_OF_A_NAME else ():
                for unit in self.sources.units(path):
                    body = self.sources.body(unit)
                    offset = find_word(body, name)
                    if offset is not None:
                        yield Wanted(*unit[:3], unit.start + body.count("\n", 0, offset))


def _own(advisory: Advisory, plugin: EcosystemPlugin, repo: RepoContext) -> Own:
    text = advisory.text
    title = significant_words(text.strip().partition("\n")[0])
    rules = rules_of(plugin.name)
    suffixes = SOURCE_SUFFIXES if rules is None else rules.source_suffixes
    packages = repo.affected.own if repo.affected else ()
    folders = (package.manifest.rpartition("/")[0] for package in packages)
    prefixes = tuple(f"{folder}/" if folder else "" for folder in dict.fromkeys(folders)) or ("",)
    signs = signs_of(advisory.cwe, text)
    proof = repo.proof_failure or ProofFailure()
    return Own(title, signs, suffixes, prefixes, proof, significant_words("\n".join(proof.titles)))


def _first(text: str, names: Sequence[str]) -> int | None:
    return next((offset for name in names if (offset := find_word(text, name)) is not None), None)


# A package's own code, in the order in which it fills a prompt: the vulnerability is in it. A model that
# sees the vulnerable code mostly judges it right, so as much as the budget allows is shown:
#
# - the units with the best scores;
# - what they call, if the package defines it: guards, checks, escapes;
# - the rest of their files: a fix seldom stays in one function, and what it needs is imported at the top;
# - all other units, until their score drops off: code with little evidence takes as much room as the
#   vulnerable code, and hides it (ADR-0120).

#: The number of units with the best scores.
_MOST_SIGNIFICANT = 12

#: The number of files whose rest is shown, of those that contain these units.
_WHOLE_FILES = 5

#: In a larger file (characters) only its units are shown: whole, it would fill the budget alone.
_WHOLE_FILE_CHARS = 30_000

#: The number of units called by the best units that are shown. A name that more units define is ignored.
_MAX_CALLED = 8
_MAX_DEFINERS = 2

#: How many characters of a unit are searched for calls.
_CALLED_CHARS = 20_000

#: A unit's score has dropped off if it is below this share of the best score, in percent …
_FALL_OFF = 25

#: … but a package of at most this many characters is shown whole: its prompt is small.
_SMALL_PACKAGE_CHARS = 48_000

_CALLED = re.compile(r"([A-Za-z_$][\w$]{3,100})\s*\(")


def _own_places(ranked: Sequence[Ranked], sources: Sources, interest: Interest) -> Iterator[Wanted]:
    """Yield the wanted parts of ranked units, best first, and again for the rest of their files.

    Code outside the product is left out if there is other code, unless the advisory names it.
    """
    product = [entry for entry in ranked if not is_behind(entry.unit.path, interest)] or list(
        ranked
    )
    top = product[:_MOST_SIGNIFICANT]
    for unit, _, focus in top:
        yield Wanted(*unit[:3], focus)
    for unit in _called(top, product, sources):
        yield Wanted(*unit[:3], unit.start)
    paths = dict.fromkeys(entry.unit.path for entry in top)
    small = [path for path in paths if len(sources.text(path) or "") <= _WHOLE_FILE_CHARS]
    for path in small[:_WHOLE_FILES]:
        for unit in sources.units(path):
            yield Wanted(*unit[:3], unit.start, rest=True)
    least, shown = _FALL_OFF / 100 * max((entry.score for entry in product), default=0.0), 0
    for unit, score, focus in product:
        shown += len(sources.body(unit))
        if score < least and shown > _SMALL_PACKAGE_CHARS:
            return
        yield Wanted(*unit[:3], focus, rest=True)


def _called(top: Sequence[Ranked], ranked: Sequence[Ranked], sources: Sources) -> Iterator[Unit]:
    """Yield definitions in other units of what the best units call, in the order of the calls."""
    definers: dict[str, list[Unit]] = {}
    for entry in ranked:
        for name in entry.unit.names:
            definers.setdefault(name, []).append(entry.unit)
    top_units = {entry.unit for entry in top}
    names = dict.fromkeys(
        name for entry in top for name in _CALLED.findall(sources.body(entry.unit)[:_CALLED_CHARS])
    )
    called = dict.fromkeys(
        unit
        for name in names
        if len(definers.get(name, ())) <= _MAX_DEFINERS
        for unit in definers.get(name, ())
        if unit not in top_units
    )
    yield from list(called)[:_MAX_CALLED]
