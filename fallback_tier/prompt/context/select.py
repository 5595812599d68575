"""The code that a prompt shows: what failed, the manifests, then the source, best first.

Every file is ranked first, by plain text (cheap: nothing is parsed), then the units of the best files. Both
are scored by the same evidence, of which each piece counts the less the more files have it. Of a package's
own code every unit is ranked: the flaw is in one of them.
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
    """Words and names, found in one pass of RE2's automaton. ``words`` in any case, "parsing" also as
    ``parse``'s "pars"; ``names`` as they are."""

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


#: Files whose units are ranked: those with the best score as a whole.
MAX_RANKED_FILES = 12

#: … of a package's own code, and characters of them: about two seconds.
MAX_OWN_FILES = 1_000
MAX_OWN_CHARS = 3 * 1024 * 1024

# What each piece of evidence counts; their order matters more than their size.
_DEFINES = 4.0
_HAS = 1.0
_NAMED_FILE = 2.0
_CALLS_PACKAGE = 2.0
_ABOUT = 3.0
_CALLS_FOUND = 1.0
_TITLE = 3.0
_TESTED = 3.0
_SIGNS = 1.0

# … of own code: a proof's failure first, then what the advisory marks as code, then prose (ADR-0120).
_FRAME = 12.0
_PROOF_IMPORTS = 4.0
_PROOF_USES = 2.0
_MARKED = 2.0

#: Definitions of a unit that a proof uses, and that count: a long class has a name of every kind.
_MAX_USED = 2

#: What code counts that is not in the ecosystem's language (a Python package's browser part), and of a
#: neighbour in the same repository.
_OTHER_LANGUAGE = 0.5
_NEIGHBOUR = 0.5

#: A unit that only talks about the same things must do so at least this well, against the best one.
_LEAST_ABOUT = 0.35

#: … and have so many of the words: in a small repository something is always the best.
_LEAST_WORDS = 3

#: An import that weighs no more is one of the repository's own package: in most of its many files.
_OWN = 0.1

#: Best units whose callers are looked for.
_MAX_FOUND = 4


class Interest(NamedTuple):
    """What is looked for: ``words`` of a prose, ``symbols`` that it names, ``files`` that it names.

    ``imports(path, text)`` tells whether a text of that file imports the vulnerable package.
    ``own``: only where the package's own code is looked through.
    """

    words: tuple[str, ...]
    symbols: tuple[str, ...]
    files: frozenset[str]
    imports: Callable[[str, str], bool]
    own: "Own | None" = None


class Own(NamedTuple):
    """What tells of a flaw in a package's own code: the ``title`` of its advisory, in words, and ``signs``
    of its kind of weakness. ``suffixes``: of the ecosystem's language; ``folders``: where the package's own
    manifests are (``packages/core/``; empty: at the root). ``proof``: how the proof fails, if there is one.
    """

    title: tuple[str, ...]
    signs: tuple[Sign, ...]
    suffixes: frozenset[str]
    folders: tuple[str, ...] = ("",)
    proof: ProofFailure = ProofFailure()

    #: What the proof's failing tests are called, in words.
    tested: tuple[str, ...] = ()

    @property
    def wanted(self) -> frozenset[str]:
        """Identifiers that the proof's failing tests use."""
        return frozenset((*self.proof.names, *self.proof.uses))

    def of_proof(self, path: str, defined: Iterable[str], weights: dict[str, float]) -> float:
        """Return how much a proof points at a file, or a unit of it, that defines these names."""
        names = frozenset(self.proof.names)
        found = (
            weights.get(_definition(name), 0.0) * (_PROOF_IMPORTS if name in names else _PROOF_USES)
            for name in defined
        )
        is_imported = _PROOF_IMPORTS * (path in self.proof.files)
        return is_imported + math.fsum(sorted(found, reverse=True)[:_MAX_USED])

    def frames_in(self, unit: Unit) -> list[int]:
        """Return the lines (from 0) of the unit that the proof's failure ran through."""
        return [
            frame.line - 1
            for frame in self.proof.frames
            if frame.path == unit.path and unit.start < frame.line <= unit.end
        ]


class Ranked(NamedTuple):
    """A unit, and the line (from 0) that makes it worth showing."""

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
    """Return the units that have something of what is looked for, best first, tests last; of own code all,
    of at most MAX_OWN_FILES."""
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
    found: list[tuple[Unit, float, int]] = []
    left = MAX_OWN_CHARS
    for file in best[: MAX_OWN_FILES if interest.own else MAX_RANKED_FILES]:
        left -= len(sources.text(file.path) or "")
        if interest.own and left < 0 and found:
            break
        callees = _package_names(file, interest, sources) if weights[""] > _OWN else frozenset()
        for unit in sources.units(file.path):
            found.append((unit, *_evidence(unit, file, callees, interest, weights, sources)))
    words = WordSet(interest.words)
    texts = [(f"{unit.path} {' '.join(unit.names)}", sources.body(unit)) for unit, _, _ in found]
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
            for (unit, score, focus), prose in zip(found, near, strict=True)
        ]
    else:
        ranked = [
            Ranked(unit, score + _ABOUT * near, focus)
            for (unit, score, focus), near in zip(found, about, strict=True)
            if score or (near >= _LEAST_ABOUT and _is_about(unit, words, sources))
        ]
    ranked.sort(key=_order(interest))
    ranked = _with_callers(ranked, sources)
    ranked.sort(key=_order(interest))
    return ranked


def _scanned(interest: Interest, paths: Iterable[str], sources: Sources) -> list[_File]:
    used = interest.own.wanted if interest.own else frozenset()
    symbols = frozenset(interest.symbols)
    looked_for = WordSet(interest.words, tuple(dict.fromkeys((*interest.symbols, *sorted(used)))))
    found = []
    for path in paths:
        text = sources.text(path)
        if text is not None:
            words, names = looked_for.within(text)
            imports = interest.imports(path, text)
            found.append(_File(path, imports, names & symbols, words, names & used))
    return found


def _weights(files: Sequence[_File]) -> dict[str, float]:
    """For each word or symbol, and "" for an import of the package, 1 where one file has it … 0 all."""
    having: Counter[str] = Counter()
    for file in files:
        having.update(file.symbols | file.words)
        having[""] += file.imports
    most = math.log(len(files) + 1) or 1.0
    having[""] += 0
    return {
        name: math.log((len(files) + 1) / max(1, count)) / most for name, count in having.items()
    }


def _where_defined(
    files: Sequence[_File], weights: dict[str, float], sources: Sources
) -> dict[str, float]:
    """A name that one file defines tells of that file, however many others have it."""
    definers = Counter(
        name
        for file in files
        if not is_beside(file.path)
        for name in file.symbols | file.used
        if defines(sources.text(file.path) or "", name) is not None
    )
    return weights | {
        _definition(name): max(weights.get(name, 0.0), 1 / count)
        for name, count in definers.items()
    }


def _definition(name: str) -> str:
    return f"def {name}"  # under which the weight of a name's definition is kept


def _of_own(unit: Unit, prose: float, own: Own, sources: Sources) -> float:
    """How much a unit of the package's own code is about what advisory and proof say."""
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
        for found in sources.structure(file.path).imports
        if interest.imports(file.path, found.text)
        for name in found.names
    )


def _evidence(
    unit: Unit,
    file: _File,
    callees: Iterable[str],
    interest: Interest,
    weights: dict[str, float],
    sources: Sources,
) -> tuple[float, int]:
    """Return a unit's score (names that it defines or has, calls of the package) and its first line."""
    body = sources.body(unit)
    score, defined, used = 0.0, [], []
    for name in file.symbols:
        at = defines(body, name)
        if name in unit.names or at is not None:
            score += _DEFINES * weights.get(_definition(name), weights[name])
            defined.append(at or 0)
        elif (at := find_word(body, name)) is not None:
            score += _HAS * weights[name]
            used.append(at)
    if file.imports:
        calls = [at for name in callees if (at := find_word(body, name)) is not None]
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
    """Without any name in common: enough words in common, and something that may be edited."""
    found, _ = words.within(sources.body(unit))
    return not is_test(unit.path) and len(found) >= min(_LEAST_WORDS, len(words))


def _with_callers(ranked: Sequence[Ranked], sources: Sources) -> list[Ranked]:
    """Callers of the best units' definitions, one step up, count a little more."""
    names = {name for found in ranked[:_MAX_FOUND] for name in found.unit.names if len(name) > 3}
    return [
        found._replace(score=found.score + _CALLS_FOUND)
        if any(
            f"{name}(" in sources.body(found.unit) for name in names.difference(found.unit.names)
        )
        else found
        for found in ranked
    ]


def _order(interest: Interest) -> Callable[[Ranked], tuple[bool, float, int, str, int]]:
    def order(ranked: Ranked) -> tuple[bool, float, int, str, int]:
        path, start = ranked.unit.path, ranked.unit.start
        return is_behind(path, interest), -ranked.score, path.count("/"), path, start

    return order


def is_behind(path: str, interest: Interest) -> bool:
    """Return whether a path comes last: what is beside the product, below the package's folder. Of own
    code, not what the advisory names."""
    if interest.own is None:
        return is_beside(path)
    folders = [one for one in interest.own.folders if path.startswith(one)]
    inside = path[len(max(folders, key=len, default="")) :]
    return path not in interest.files and is_beside(inside)


# BM25 of a few words over texts (Robertson & Zaragoza 2009), by SQLite's FTS5 in memory. FTS5 parts
# snake_case by itself, and camelCase is parted before. Words and code meet in two ways:
#
# - ``_bm25`` stems both sides (Porter), so that "parsing" in an advisory finds ``parse_value``;
# - ``_bm25_whole``, for a package's own code, takes a word that stands alone for more than a part of an
#   identifier, and only inflected forms for the same word: by Porter "regular" finds ``regularized``.

# A set of letters comes first: a search for it is quicker than one that begins by looking back.
_CAMEL = re.compile(r"[A-Z](?<=[a-z0-9][A-Z])")

#: A match in what a unit is called (its path, the names that it defines) counts for so many in its text.
_NAME_WEIGHT = 4.0

#: … and one in a part of an identifier for so many of a whole word.
_PART_WEIGHT = 0.25

#: An identifier of several words.
_COMPOUND = re.compile(r"\b\w*(?:[a-z0-9][A-Z]|[^\W_]_+[^\W_])\w*")

_INFLECTION = re.compile(r"(?<=\w{3})(?:ing|ed|es|e|s)$")
_INFLECTED = ("", "s", "e", "es", "ed", "ing")


def _bm25(texts: Sequence[tuple[str, str]], words: Sequence[str]) -> list[float]:
    """Return for each (names, body) how well it matches, from 0 to 1 (the best of them). ``words`` are
    letters only."""
    rows = ((_parted(name), _parted(body), "") for name, body in texts)
    return _scores(rows, len(texts), words, "porter unicode61")


def _bm25_whole(texts: Sequence[tuple[str, str]], words: Sequence[str]) -> list[float]:
    """Return the same of whole words before parts of identifiers, each in its inflected forms alone."""
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
    """Of rows of (names, whole words, parts of identifiers)."""
    scores = [0.0] * count
    if not words or not count:
        return scores
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.execute(
            # No copy of the texts is kept. (With detail=column besides, bm25() is 0: SQLite 3.40.)
            "CREATE VIRTUAL TABLE unit USING "
            f"fts5(name, body, part, content='', tokenize='{tokenizer}')"
        )
        memory.execute("BEGIN")
        memory.executemany(
            "INSERT INTO unit(rowid, name, body, part) VALUES (?, ?, ?, ?)",
            ((number, *row) for number, row in enumerate(rows, start=1)),
        )
        found = memory.execute(
            "SELECT rowid, bm25(unit, ?, 1.0, ?) FROM unit WHERE unit MATCH ?",
            (_NAME_WEIGHT, _PART_WEIGHT, " OR ".join(f'"{word}"' for word in words)),
        ).fetchall()
    best = min((score for _, score in found), default=0.0)
    for number, score in found:
        scores[number - 1] = score / best if best else 0.0
    return scores


def _parted(text: str) -> str:
    return _CAMEL.sub(r" \g<0>", text)


#: A root manifest that is shown beside a package's own code.
_SHORT_MANIFEST_CHARS = 800

#: Parts of an advisory that tell nothing of the flaw.
_ASIDE = re.compile(
    r"^#+ *(?:patch(?:es|ed)|workarounds?|acknowledge?ments?|credits?|references|resources|mitigations?"
    r"|remediation|for more information)\b[^\n]*\n(?:(?!#)[^\n]*(?:\n|\Z))*",
    re.IGNORECASE | re.MULTILINE,
)

#: The code that a failure names may take this part of the budget (one fourth); at least two whole snippets.
_SHARE_OF_A_FAILURE = 4
MIN_FAILURE_BYTES = 2 * MAX_SNIPPET_BYTES

#: A name that more of the source files have tells nothing about where the build broke.
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
    """A first attempt's: at most MAX_SNIPPETS, together ``repo.settings.snippet_budget_bytes`` (UTF-8).

    A retry shows the same code, and before it other code that the failure names: up to a quarter of the
    budget or two whole snippets, whichever is more, and never more than the budget.

    ``own_code``: the flaw is in this repository. Then no manifest is shown but a short one at the root,
    behind the code: a plan may not touch it. The code fills ``own_code_budget_bytes``.

    Ids are S1, S2 … in the order shown. A file that can't be read (binary, too large, a link) is
    skipped: what the prompt lacks, the gates don't.
    """
    summary = prior_attempts[-1].prior_failure_summary if prior_attempts else ""
    selection = _Selection(advisory, repo, plugin, own_code=own_code)
    settings = repo.settings
    budget = SnippetBudget(settings.snippet_budget_bytes)
    if own_code:
        budget = SnippetBudget.of_own(settings.own_code_budget_bytes)
    files = Showable(selection.sources, secrets)
    shown = pack(selection.wanted(), files.lines, budget, hidden=files.hidden)
    more = min(budget.budget, max(MIN_FAILURE_BYTES, budget.budget // _SHARE_OF_A_FAILURE))
    failing = list(selection.failing(summary))
    besides = pack(
        failing, files.lines, SnippetBudget.of_own(more), shown=shown, hidden=files.hidden
    )
    ordered = sorted(
        (*besides, *shown), key=lambda snippet: not any(map(snippet.overlaps, failing))
    )
    return tuple(
        snippet.model_copy(update={"id": f"S{number}"})
        for number, snippet in enumerate(ordered, start=1)
    )


class _Selection:
    """One prompt's search: what it looks for and what it has read."""

    def __init__(
        self, advisory: Advisory, repo: RepoContext, plugin: EcosystemPlugin, *, own_code: bool
    ) -> None:
        self._repo = repo
        self.sources = Sources(repo, MAX_SNIPPET_BYTES)
        text = _ASIDE.sub("", advisory.text[:MAX_SOURCE_BYTES])
        packages = advisory.packages(plugin.name)
        own = {part for name in packages for part in re.findall(r"[\w$]+", name)}
        named = frozenset(named_files(text, repo.tracked_files))
        self._interest = Interest(
            words=significant_words(text),
            symbols=tuple(name for name in code_names(text) if name not in own),
            files=named | named_modules(text, repo.tracked_files),
            imports=lambda path, code: (
                not own_code and any(plugin.mentions(name, path, code) for name in packages)
            ),
            own=_own(advisory, plugin, repo) if own_code else None,
        )
        self._paths = scannable(repo.tracked_files, self._interest.files)
        # "flask-login" is written flask_login in code and Flask.Login elsewhere (PEP 503).
        spelled = ("[-_.]+".join(map(re.escape, re.split(r"[-_.]+", p))) for p in packages)
        self._package = re.compile(rf"(?<![\w$])(?:{'|'.join(spelled) or '(?!)'})(?![\w$])")

    def failing(self, summary: str) -> Iterator[Wanted]:
        """What a failure names: files at their lines, then code that has its symbols."""
        failed = summary.partition(f"\n{TRIED_HEADING}")[0]
        names = failure_names(failed)
        for path, lines in named_files(summary, self._repo.tracked_files).items():
            if self.sources.text(path) is not None:
                units = self.sources.units(path)
                for line in lines:
                    # A tool may count a line more than there are: an unexpected end of the file.
                    at = min(line, len(self.sources.lines(path))) - 1
                    yield from (
                        Wanted(*unit[:3], at) for unit in units if unit.start <= at < unit.end
                    )
                if not lines:
                    having = [
                        unit for unit in units if _first(self.sources.body(unit), names) is not None
                    ]
                    for unit in having or units[:1]:
                        yield Wanted(*unit[:3], unit.start)
        if names:
            yield from self._using(names)

    def wanted(self) -> Iterator[Wanted]:
        """Places, best first. They may overlap; the first one counts."""
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
        """What the package is, where that is said in few words and there is room behind its code."""
        for path in sorted(self._repo.manifests):
            text = None if "/" in path or is_lock(path) else self.sources.text(path)
            if text is not None and len(text) <= _SHORT_MANIFEST_CHARS:
                yield Wanted(path, 0, len(self.sources.lines(path)), 0)
                return

    def _ranked(self) -> list[Ranked]:
        return ranked_units(self._interest, self._paths, self.sources)

    def _using(self, names: Sequence[str]) -> Iterator[Wanted]:
        """Source, no tests, that has a rare one of the names."""
        ours = [path for path in self._paths if not is_beside(path)]
        for name in names:
            having = [path for path in ours if name in (self.sources.text(path) or "")]
            for path in having if len(having) <= _MAX_FILES_OF_A_NAME else ():
                for unit in self.sources.units(path):
                    body = self.sources.body(unit)
                    at = find_word(body, name)
                    if at is not None:
                        yield Wanted(*unit[:3], unit.start + body.count("\n", 0, at))


def _own(advisory: Advisory, plugin: EcosystemPlugin, repo: RepoContext) -> Own:
    text = advisory.text
    title = significant_words(text.strip().partition("\n")[0])
    rules = rules_of(plugin.name)
    suffixes = SOURCE_SUFFIXES if rules is None else rules.source_suffixes
    packages = repo.affected.own if repo.affected else ()
    folders = (package.manifest.rpartition("/")[0] for package in packages)
    places = tuple(f"{folder}/" if folder else "" for folder in dict.fromkeys(folders)) or ("",)
    signs = signs_of(advisory.cwe, text)
    proof = repo.proof_failure or ProofFailure()
    return Own(title, signs, suffixes, places, proof, significant_words("\n".join(proof.titles)))


def _first(text: str, names: Sequence[str]) -> int | None:
    return next((at for name in names if (at := find_word(text, name)) is not None), None)


# A package's own code, in the order in which it fills a prompt: the vulnerability is in it. A model that
# sees the place of a vulnerability is mostly right about it, so what there is room for is shown:
#
# - the units that tell most;
# - what they call, where the package defines it: guards, checks, escapes;
# - the rest of their files: a fix seldom keeps to one function, and what it needs is imported above;
# - all other units, until their rank falls off: code that has little of what is looked for costs as much
#   as the place of the vulnerability, and hides it (ADR-0120).

#: Units that tell most.
_MOST_SIGNIFICANT = 12

#: Files whose rest is shown, of those that the most telling units are in.
_WHOLE_FILES = 5

#: A larger file's units stand for themselves: it would fill the room alone (characters).
_WHOLE_FILE_CHARS = 30_000

#: What the most telling units call, at most; a name that more units define tells nothing.
_MAX_CALLED = 8
_MAX_DEFINERS = 2

#: … looked for in so many characters of a unit.
_CALLED_CHARS = 20_000

#: The rank has fallen off if a unit has less than this of the best one's score, in percent …
_FALL_OFF = 25

#: … but a package of so many characters is shown whole: a prompt of it is small.
_SMALL_PACKAGE_CHARS = 48_000

_CALLED = re.compile(r"([A-Za-z_$][\w$]{3,100})\s*\(")


def _own_places(ranked: Sequence[Ranked], sources: Sources, interest: Interest) -> Iterator[Wanted]:
    """Yield the places of ranked units, best first; shown ones again, for their rest. What is beside the
    product is left out if there is more, unless the advisory names it."""
    product = [found for found in ranked if not is_behind(found.unit.path, interest)] or list(
        ranked
    )
    top = product[:_MOST_SIGNIFICANT]
    for unit, _, focus in top:
        yield Wanted(*unit[:3], focus)
    for unit in _called(top, product, sources):
        yield Wanted(*unit[:3], unit.start)
    paths = dict.fromkeys(found.unit.path for found in top)
    small = [path for path in paths if len(sources.text(path) or "") <= _WHOLE_FILE_CHARS]
    for path in small[:_WHOLE_FILES]:
        for unit in sources.units(path):
            yield Wanted(*unit[:3], unit.start, rest=True)
    least, shown = _FALL_OFF / 100 * max((found.score for found in product), default=0.0), 0
    for unit, score, focus in product:
        shown += len(sources.body(unit))
        if score < least and shown > _SMALL_PACKAGE_CHARS:
            return
        yield Wanted(*unit[:3], focus, rest=True)


def _called(top: Sequence[Ranked], every: Sequence[Ranked], sources: Sources) -> Iterator[Unit]:
    """Definitions in other units of what the best units call, in the order of the calls."""
    definers: dict[str, list[Unit]] = {}
    for found in every:
        for name in found.unit.names:
            definers.setdefault(name, []).append(found.unit)
    known = {found.unit for found in top}
    names = dict.fromkeys(
        name for found in top for name in _CALLED.findall(sources.body(found.unit)[:_CALLED_CHARS])
    )
    called = dict.fromkeys(
        unit
        for name in names
        if len(definers.get(name, ())) <= _MAX_DEFINERS
        for unit in definers.get(name, ())
        if unit not in known
    )
    yield from list(called)[:_MAX_CALLED]
