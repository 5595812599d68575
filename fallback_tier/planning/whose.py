"""Whose code is affected: decided once per advisory, before recipes, locks and surveys (ADR-0037).

A copy of the package in an example or below a dev dependency decides nothing: the vulnerability is in the
source.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from fallback_audit.vocabulary import AffectedCode, DecidedBy, RefusalReason
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.affected import Affected, OwnPackage
from fallback_tier.outcome import NotApplicable
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

#: Characters of a registry's links that a sentence shows.
_SHOWN = 100

#: The options by which a person decides.
_SAY_SO = "--own-code says that it is this source, --dependency that it is not"

#: Parts of forges' host names. Other links are pages about a project, and differ from one to the next.
_FORGES = ("git", "bitbucket", "codeberg", "sr.ht")

#: ``owner/name`` without a host, which npm takes for GitHub's.
_SHORT_LINK = re.compile(r"(?:github:|gitlab:|bitbucket:)?[\w.-]+/([\w.-]+?)(?:\.git)?")


def whose_code(
    plugin: EcosystemPlugin, advisory: Advisory, repo: RepoContext, *, ask_registry: bool = True
) -> Affected:
    """Decide whose code is affected. A person's option counts first; the registry is queried only if names
    are equal, never offline. ``advisory``: one record of the plugin's ecosystem."""
    own_packages = plugin.own_packages(repo, frozenset(advisory.packages(plugin.name)))
    users_word = repo.settings.whose_code
    if users_word is not None:
        own = own_packages if users_word is AffectedCode.OWN else ()
        text = {
            AffectedCode.OWN: "A person said that this repository's own code is affected (--own-code).",
            AffectedCode.DEPENDENCY: "A person said that a dependency is affected (--dependency).",
        }[users_word]
        return Affected(code=users_word, decided_by=DecidedBy.PERSON, own=own, sentence=text)
    if not own_packages:
        return Affected(code=AffectedCode.DEPENDENCY, decided_by=DecidedBy.MANIFEST)
    witness = _Witness(plugin, may_ask=ask_registry and not repo.settings.offline)
    certain = tuple(
        package for package in own_packages if not package.doubt and not package.asks_for_itself
    )
    if certain:
        return _own_or_unclear(certain, witness)
    return _doubted(own_packages, witness)


#: Returns the tags that a base commit contains: which releases are in it.
Tags = Callable[[], Sequence[str]]


def no_tags() -> tuple[str, ...]:
    """Return no tag: the releases in the base commit are unknown."""
    return ()


def settled(
    advisory: Advisory,
    ecosystem: str,
    affected: Affected,
    *,
    tags: Tags = no_tags,
    believe_version: bool = True,
) -> NotApplicable | None:
    """Return why no recipe is to be asked, or None if a dependency is affected. ``believe_version`` False:
    the version in the manifest decides nothing, since a proof shows whether the code is affected."""
    match affected.code:
        case AffectedCode.DEPENDENCY:
            return None
        case AffectedCode.UNCLEAR:
            return NotApplicable(
                reason=RefusalReason.WHOSE_CODE_UNCLEAR, sentence=affected.sentence
            )
        case AffectedCode.OWN:
            is_by_person = affected.decided_by is DecidedBy.PERSON
            doubted = is_by_person or not believe_version
            if not doubted and _is_fixed(advisory, ecosystem, affected.own, tags):
                return _fixed(advisory, affected.own)
            return NotApplicable(reason=RefusalReason.OWN_CODE, sentence=affected.sentence)


@dataclass
class _Witness:
    """The registry's link to a package's source, to compare with the one in the repository's manifest."""

    plugin: EcosystemPlugin
    may_ask: bool
    theirs: frozenset[str] = frozenset()

    def agrees(self, package: OwnPackage) -> bool | None:
        """Return whether both links name one source, or None if one of them is missing or the registry may
        not be queried."""
        manifest_sources = _sources(package.links)
        if not (manifest_sources and self.may_ask):
            return None
        self.theirs = _sources(self.plugin.source_links(package.name))
        return not manifest_sources.isdisjoint(self.theirs) if self.theirs else None

    @property
    def decided_by(self) -> DecidedBy:
        return DecidedBy.REGISTRY if self.theirs else DecidedBy.MANIFEST


def _own_or_unclear(own: tuple[OwnPackage, ...], witness: _Witness) -> Affected:
    """Return that the repository's own code is affected, unless the registry links another source."""
    for package in own:
        if witness.agrees(package) is False:
            linked = ", ".join(sorted(_sources(package.links)))[:_SHOWN]
            registered = ", ".join(sorted(witness.theirs))[:_SHOWN]
            why = f"its source is {linked}, and that of the registry's package of the name is {registered}"
            return _unclear(own, witness, why)
    names = ", ".join(package.label for package in own)
    text = f"This repository is {names} itself: its own source is affected, no dependency is to be raised."
    return Affected(code=AffectedCode.OWN, decided_by=witness.decided_by, own=own, sentence=text)


def _doubted(packages: tuple[OwnPackage, ...], witness: _Witness) -> Affected:
    """Decide about a package of the affected name that may be another package: only if the registry's link
    and the manifest's agree."""
    for package in packages:
        agrees = witness.agrees(package)
        if agrees and not package.doubt:
            return _own_or_unclear((package,), witness)
        shares_its_name = package.asks_for_itself and (agrees is False or package.doubt)
        if not shares_its_name:
            why = package.doubt or "it installs a package of its own name"
            return _unclear(packages, witness, why)
    names = ", ".join(package.label for package in packages)
    text = f"This repository calls itself {names} and installs a package of that name: another one."
    return Affected(
        code=AffectedCode.DEPENDENCY, decided_by=witness.decided_by, own=(), sentence=text
    )


def _unclear(packages: tuple[OwnPackage, ...], witness: _Witness, why: str) -> Affected:
    names = ", ".join(package.label for package in packages)
    text = f"{names} is called like the affected package, and {why}. State whose code is affected: "
    return Affected(
        code=AffectedCode.UNCLEAR,
        decided_by=witness.decided_by,
        own=packages,
        sentence=f"{text}{_SAY_SO}.",
    )


def _is_fixed(advisory: Advisory, ecosystem: str, own: Sequence[OwnPackage], tags: Tags) -> bool:
    """Return whether the advisory names no version here as affected, and each was released in a commit that
    the base commit contains. Projects raise the number before they release. In a clone without tags it is
    unknown, so False."""

    def is_clear(package: OwnPackage) -> bool:
        return (
            package.version is not None
            and not advisory.says_nothing_of(ecosystem, package.name)
            and not is_affected(advisory, ecosystem, package.name, package.version)
        )

    if not own or not all(map(is_clear, own)):
        return False
    released = frozenset(tags())
    return all(not released.isdisjoint(_release_tags(package)) for package in own)


def _release_tags(package: OwnPackage) -> Iterator[str]:
    """Yield the tags that a release of this version may have: with the package's name, or without it."""
    short = package.name.rpartition("/")[2]
    for version in (f"v{package.version}", package.version):
        yield from (f"{package.name}@{version}", f"{short}@{version}", f"{short}-{version}")
        yield from (f"{version}", f"release-{version}", f"release/{version}", f"rel-{version}")


def _fixed(advisory: Advisory, own: Iterable[OwnPackage]) -> NotApplicable:
    names = ", ".join(package.label for package in own)
    return NotApplicable(
        reason=RefusalReason.NOT_AFFECTED,
        sentence=(
            f"This repository is {names}, and {advisory.id} does not name that version as affected. If its "
            "source has the flaw all the same, say so (--own-code) or show it (--proof)."
        ),
    )


def _sources(links: Iterable[str]) -> frozenset[str]:
    """Return the repository names of links, without owner and host: they stay if a source moves."""
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
