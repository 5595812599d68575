"""Which units of the source are worth showing, best first.

First every file by plain text (cheap: nothing is parsed), then the units of the best files. Both are
scored by the same evidence, of which each piece counts the less the more files have it. Of a package's own
code every unit is ranked: the flaw is in one of them.
"""

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

from fallback_tier.files.source_paths import is_beside, is_test
from fallback_tier.prompt.context.named import defines, find_word
from fallback_tier.prompt.context.sources import Sources
from fallback_tier.prompt.context.units import Unit
from fallback_tier.prompt.context.weaknesses import Sign
from fallback_tier.prompt.context.words import WordSet
from fallback_tier.repo import ProofFailure

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
    """Units of the given files that have something of what is looked for, best first, tests last.

    Of own code all units, of at most MAX_OWN_FILES.
    """
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
    """What the file calls the vulnerable package and its parts."""
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
    """Does it come after all else: what lies beside the product, by its path below the package's folder?

    Of own code, what the advisory names does not.
    """
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
    """Return for each (names, body) how well it matches, from 0 (not at all) to 1 (the best of them).

    ``words`` are letters only.
    """
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
