"""The selection as a whole: what failed, the manifests, then the source."""

import re
from collections.abc import Iterator, Sequence

from fallback_tier.advisory import Advisory
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.files.source_paths import SOURCE_SUFFIXES, is_beside, is_lock
from fallback_tier.outcome import TRIED_HEADING, AttemptSummary
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.prompt.context.files import MAX_SOURCE_BYTES, scannable
from fallback_tier.prompt.context.named import (
    code_names,
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
from fallback_tier.prompt.context.ranking import Interest, Own, Ranked, is_behind, ranked_units
from fallback_tier.prompt.context.sources import Showable, Sources
from fallback_tier.prompt.context.units import Unit
from fallback_tier.prompt.context.weaknesses import signs_of
from fallback_tier.prompt.context.words import significant_words
from fallback_tier.repo import ProofFailure, RepoContext

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
                yield from self._failing(path, lines, names)
        if names:
            yield from self._using(names)

    def wanted(self) -> Iterator[Wanted]:
        """Places, best first. They may overlap; the first one counts."""
        if self._interest.own:
            yield from _own_places(self._ranked(), self.sources, self._interest)
            yield from self._root_manifest()
            return
        yield from self._manifests()
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

    def _failing(self, path: str, lines: Sequence[int], names: Sequence[str]) -> Iterator[Wanted]:
        """The units at the lines that a tool gave; without lines those that have its names."""
        units = self.sources.units(path)
        for line in lines:
            # A tool may count a line more than there are: an unexpected end of the file.
            at = min(line, len(self.sources.lines(path))) - 1
            yield from (Wanted(*unit[:3], at) for unit in units if unit.start <= at < unit.end)
        if not lines:
            having = [unit for unit in units if _first(self.sources.body(unit), names) is not None]
            for unit in having or units[:1]:
                yield Wanted(*unit[:3], unit.start)

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

    def _manifests(self) -> Iterator[Wanted]:
        for path in sorted(self._repo.manifests):
            text = None if is_lock(path) else self.sources.text(path)
            if text is None:
                continue
            match = self._package.search(text)
            if match or len(text) <= MAX_SNIPPET_BYTES // 2:
                line = text.count("\n", 0, match.start()) if match else 0
                yield Wanted(path, 0, len(self.sources.lines(path)), line)


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
    """The places of ranked units, best first; what is shown already is wanted again, for its rest.

    What lies beside the product is left out where there is anything else, unless the advisory names it.
    """
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
