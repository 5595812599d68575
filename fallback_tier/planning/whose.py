"""Whose code is affected: decided once for an advisory, before recipes, locks and surveys (ADR-0037).

A copy of the package in an example or below a dev dependency says nothing: the flaw is where the source is.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from fallback_audit.vocabulary import AffectedCode, DecidedBy, RefusalReason
from fallback_tier.advisory import Advisory, is_affected, sort_key
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.affected import Affected, OwnPackage
from fallback_tier.outcome import NotApplicable
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

#: How a person settles it.
_SAY_SO = "--own-code says that it is this source, --dependency that it is not"

#: Words in the host of a forge. Other links are pages about a project, and differ from one to the next.
_FORGES = ("git", "bitbucket", "codeberg", "sr.ht")

#: ``owner/name`` without a host, as npm takes it for GitHub's.
_SHORT_LINK = re.compile(r"(?:github:|gitlab:|bitbucket:)?[\w.-]+/([\w.-]+?)(?:\.git)?")


def whose_code(plugin: EcosystemPlugin, advisory: Advisory, repo: RepoContext) -> Affected:
    """The fact. A person's word stands above all; the registry is asked only where names are the same.

    ``advisory``: narrowed to the plugin's ecosystem, one record.
    """
    named = set(advisory.packages(plugin.name))
    called = tuple(package for package in plugin.own_packages(repo) if package.name in named)
    told = repo.settings.whose_code
    if told is not None:
        return _as_told(told, called)
    own = tuple(package for package in called if not package.asks_for_itself)
    if not own:
        return Affected(
            code=AffectedCode.DEPENDENCY,
            decided_by=DecidedBy.MANIFEST,
            sentence=_shares_its_name(called) if called else "",
        )
    return _witnessed(plugin, own, offline=repo.settings.offline)


#: The tags that a base commit contains: which releases are in it.
Tags = Callable[[], Sequence[str]]


def no_tags() -> tuple[str, ...]:
    """Nobody can tell."""
    return ()


def settled(
    advisory: Advisory,
    ecosystem: str,
    affected: Affected,
    *,
    tags: Tags = no_tags,
    believe_version: bool = True,
) -> NotApplicable | None:
    """Why no recipe is to be asked; None where it is about a dependency.

    ``believe_version`` False: something else (a proof that fails here) will tell whether the flaw is here.
    """
    match affected.code:
        case AffectedCode.DEPENDENCY:
            return None
        case AffectedCode.UNCLEAR:
            return NotApplicable(
                reason=RefusalReason.WHOSE_CODE_UNCLEAR, sentence=affected.sentence
            )
        case AffectedCode.OWN:
            person = affected.decided_by is DecidedBy.PERSON
            doubted = person or not believe_version
            if not doubted and _is_mended(advisory, ecosystem, affected.own, tags):
                return _mended(advisory, affected.own)
            return NotApplicable(reason=RefusalReason.OWN_CODE, sentence=affected.sentence)


def _as_told(told: AffectedCode, called: tuple[OwnPackage, ...]) -> Affected:
    own = called if told is AffectedCode.OWN else ()
    said = {
        AffectedCode.OWN: "A person said that this repository's own code is affected (--own-code).",
        AffectedCode.DEPENDENCY: "A person said that a dependency is affected (--dependency).",
    }[told]
    return Affected(code=told, decided_by=DecidedBy.PERSON, own=own, sentence=said)


def _witnessed(plugin: EcosystemPlugin, own: tuple[OwnPackage, ...], *, offline: bool) -> Affected:
    """The names say that it is this source: does the registry's link to the source contradict them?"""
    decided = DecidedBy.MANIFEST
    for package in () if offline else own:
        ours = _sources(package.links)
        theirs = _sources(plugin.source_links(package.name)) if ours else frozenset()
        if ours and theirs:
            decided = DecidedBy.REGISTRY
            if ours.isdisjoint(theirs):
                return Affected(
                    code=AffectedCode.UNCLEAR,
                    decided_by=decided,
                    own=own,
                    sentence=(
                        f"This repository calls itself {package.label} and names its source as "
                        f"{', '.join(sorted(ours))}; the registry's {package.name} comes from "
                        f"{', '.join(sorted(theirs))}. Whose code is affected must be said: {_SAY_SO}."
                    ),
                )
    names = ", ".join(package.label for package in own)
    said = f"This repository is {names} itself: its own source is affected, no dependency is to be raised."
    return Affected(code=AffectedCode.OWN, decided_by=decided, own=own, sentence=said)


def _shares_its_name(called: Iterable[OwnPackage]) -> str:
    names = ", ".join(package.label for package in called)
    return f"This repository calls itself {names} and installs a package of that name: another one."


def _is_mended(advisory: Advisory, ecosystem: str, own: Sequence[OwnPackage], tags: Tags) -> bool:
    """The record names no version here as affected, neither a manifest's nor that of the newest release in
    the base commit. Projects raise the number before they release; a clone without tags tells nothing.
    """

    def clear(name: str, version: str | None) -> bool:
        return (
            version is not None
            and not advisory.says_nothing_of(ecosystem, name)
            and not is_affected(advisory, ecosystem, name, version)
        )

    if not own or not all(clear(package.name, package.version) for package in own):
        return False
    released = tags()
    return all(clear(package.name, _newest(released, ecosystem, package.name)) for package in own)


def _newest(tags: Sequence[str], ecosystem: str, name: str) -> str | None:
    """The highest version among the tags that are a release of this package."""
    short = re.escape(name.rpartition("/")[2])
    release = re.compile(
        rf"(?:(?:@?[\w.-]+/)?{short}[@/_-]|rel(?:ease)?[/_-])?v?(?P<version>\d+(?:\.\d+)+\S*)",
        re.IGNORECASE,
    )
    found = (match["version"] for tag in tags if (match := release.fullmatch(tag)))
    orderable = [version for version in found if is_orderable(ecosystem, version)]
    return max(orderable, key=lambda version: sort_key(ecosystem, version), default=None)


def _mended(advisory: Advisory, own: Iterable[OwnPackage]) -> NotApplicable:
    names = ", ".join(package.label for package in own)
    return NotApplicable(
        reason=RefusalReason.NOT_AFFECTED,
        sentence=(
            f"This repository is {names}, and {advisory.id} does not name that version as affected. If its "
            "source has the flaw all the same, say so (--own-code) or show it (--proof)."
        ),
    )


def _sources(links: Iterable[str]) -> frozenset[str]:
    """What identifies a source wherever it moved: the repository's own name, without its owner and host."""
    return frozenset(filter(None, map(_source, links)))


def _source(link: str) -> str:
    link = link.strip().removeprefix("git+")
    if short := _SHORT_LINK.fullmatch(link):
        return short[1].lower()
    if ":" in link and "//" not in link:  # scp-like: git@host:owner/name.git
        link = f"ssh://{link.replace(':', '/', 1)}"
    try:
        parts = urlsplit(link)
    except ValueError:
        return ""
    path = [part for part in parts.path.split("/") if part]
    # owner/name, then perhaps issues, tree/main/packages/x …
    if len(path) < 2 or not any(word in parts.netloc.lower() for word in _FORGES):
        return ""
    return path[1].removesuffix(".git").lower()
