"""The planner of a campaign's list: which advisories may concern which repository, and in which order.

No checkout is made, and no package client runs: a repository's manifests are read at its commit. A pair is
left out only if no manifest or lock names any of the advisory's packages. The order follows the advisories'
severity, FIRST's EPSS scores and CISA's list of exploited vulnerabilities; these feeds are local files.
"""

import csv
import gzip
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fallback_tier.advisory import Advisory, load_advisories
from fallback_tier.advisory.vulnerability import cvss_rating
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.errors import FallbackError
from fallback_tier.files.entries import say_nothing
from fallback_tier.files.inputs import open_named, parse_json
from fallback_tier.fleet.campaign_file import Campaign, CampaignRepository, ProofTable
from fallback_tier.fleet.campaign_list import FleetFix, LeftOut, Risk
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.scheduling import Candidate, in_order, priority
from fallback_tier.fleet.store.store import Planned, PlannedFix, PlannedRepository
from fallback_tier.gates.builtin.proof_given import Proof
from fallback_tier.planning.concern import narrowed
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import new_id
from fallback_tier.workers.checkouts import Checkouts
from fallback_tier.workers.tables import RepositorySettings

#: Largest feed: EPSS has some 350,000 lines (20 MB) and grows; KEV is 2 MB.
MAX_FEED_BYTES = 256 * 1024 * 1024

_GET_EPSS = "Give FIRST's daily file epss_scores-DATE.csv, or its .gz."
_GET_KEV = "Give CISA's known_exploited_vulnerabilities.json."


@dataclass(frozen=True)
class Feeds:
    """Feeds by CVE id. ``epss``: probabilities; ``kev``: known exploited vulnerabilities."""

    epss: Mapping[str, float] = field(default_factory=dict)
    kev: frozenset[str] = frozenset()

    def risk(self, advisory: Advisory) -> Risk:
        """Return the risk of an advisory: the highest values of all its names."""
        names = [name.upper() for name in (*advisory.ids, *advisory.aliases)]
        scores = [self.epss[name] for name in names if name in self.epss]
        return Risk(
            severity=severity(advisory),
            epss=max(scores, default=None),
            kev=any(name in self.kev for name in names),
        )


def read_feeds(epss: Path | None, kev: Path | None) -> Feeds:
    """Return the feeds. Raises CampaignError naming the file."""
    return Feeds(
        epss={} if epss is None else dict(_epss(epss)),
        kev=frozenset() if kev is None else frozenset(_kev(kev)),
    )


def severity(advisory: Advisory) -> float | None:
    """Return the highest base score of its CVSS vectors, or None if it has no readable one."""
    ratings = (cvss_rating(entry.score) for entry in advisory.severity)
    return max((rating.score for rating in ratings if rating is not None), default=None)


def _epss(path: Path) -> Iterator[tuple[str, float]]:
    lines = io.StringIO(_text(path, _GET_EPSS))
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    if not {"cve", "epss"} <= set(rows.fieldnames or ()):
        raise CampaignError(
            f"The EPSS feed {path} has no columns cve and epss.",
            next_step=_GET_EPSS,
            kind="no_epss",
        )
    for number, row in enumerate(rows, start=1):
        try:
            score = float(row["epss"])
        except (TypeError, ValueError):
            score = math.nan
        if not 0 <= score <= 1:
            raise CampaignError(
                f"The EPSS feed {path}: row {number} has no probability.",
                next_step=_GET_EPSS,
                kind="no_epss",
            )
        yield str(row["cve"]).upper(), score


def _kev(path: Path) -> Iterator[str]:
    try:
        document: Any = parse_json(_text(path, _GET_KEV))
        for entry in document["vulnerabilities"]:
            yield str(entry["cveID"]).upper()
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CampaignError(
            f"The KEV feed {path} is not CISA's list of vulnerabilities.",
            next_step=_GET_KEV,
            kind="no_kev",
        ) from error


def _text(path: Path, next_step: str) -> str:
    try:
        with open_named(path) as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            data = file.read(MAX_FEED_BYTES + 1)
        if len(data) <= MAX_FEED_BYTES:
            return data.decode("utf-8-sig")
        reason = f"it is larger than {MAX_FEED_BYTES:,} bytes"
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not gzip"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    raise CampaignError(
        f"The feed {path} can't be read: {reason}.", next_step=next_step, kind="unreadable"
    )


#: Largest list: one with more fixes is a mistake, or several campaigns.
MAX_FIXES = 1_000_000

_PROOF = TypeAdapter(Proof)

#: The pattern of ``RepositoryName``.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")

#: Consequence of a manifest that was not read.
_UNREAD = "An advisory whose package nothing else names is not in the list."


@dataclass(frozen=True)
class Planner:
    """Plans campaigns with these clients and plugins. ``report`` is called with what is looked at."""

    checkouts: Checkouts
    plugins: Mapping[str, EcosystemPlugin]
    report: Callable[[str], None] = say_nothing

    def plan(self, campaign: Campaign) -> Planned:
        """Return a plan of everything that the file names, without repositories that can't be read.

        Raises AdvisoryError for the file's own inputs, CampaignError if nothing is left.
        """
        feeds = read_feeds(campaign.priority.epss, campaign.priority.kev)
        proofs = [(table, _PROOF.dump_json(table.read()).decode()) for table in campaign.proofs]
        left_out: list[LeftOut] = []
        common = self._advisories(campaign.advisories, left_out)
        repositories: list[PlannedRepository] = []
        advisory_by_candidate: dict[Candidate, Advisory] = {}
        unnamed = 0
        for name, repository in _repositories(campaign, left_out):
            self.report(f"looking at {name}")
            try:
                advisories = [*common, *self._advisories(repository.advisories, left_out)]
                reading = self._reading(name, repository)
                max_manifests = campaign.limits.manifests_per_repository
                pairs = self._pairs(reading, advisories, max_manifests)
            except FallbackError as error:
                left_out.append(LeftOut(what=f"repository {name}", why=error.problem))
                continue
            concerned = {advisory.id for _, advisory in pairs}
            unnamed += sum(advisory.id not in concerned for advisory in advisories)
            left_out += reading.left_out
            for ecosystem, advisory in pairs:
                points = priority(feeds.risk(advisory))
                advisory_by_candidate.setdefault(
                    Candidate(name, advisory.id, ecosystem, points), advisory
                )
            if pairs:
                repositories.append(_planned(name, repository, reading.commit))
            _check_size(len(advisory_by_candidate))
        _check_some(campaign, advisory_by_candidate, left_out)
        chosen = _chosen(proofs, advisory_by_candidate, left_out)
        return Planned(
            campaign=campaign.name,
            digest=campaign.digest,
            settings=campaign.model_dump_json(),
            cap=campaign.cap,
            fix_cap=campaign.fix_cap,
            repositories=tuple(repositories),
            fixes=tuple(_fixes(campaign, advisory_by_candidate, feeds, chosen)),
            left_out=tuple(left_out),
            unnamed=unnamed,
        )

    def _reading(self, name: str, repository: RepositorySettings) -> "_Reading":
        commit = self.checkouts.commit_of(name, repository)
        return _Reading(self.checkouts, name, repository, commit)

    def _pairs(
        self, reading: "_Reading", advisories: Sequence[Advisory], max_manifests: int
    ) -> list[tuple[str, Advisory]]:
        """Return (ecosystem, advisory narrowed to it) for each advisory whose package a manifest names."""
        tracked = self.checkouts.tracked(reading.name, reading.repository, reading.commit)
        packages_by_ecosystem: dict[str, set[str]] = {}
        for ecosystem in dict.fromkeys(
            name for advisory in advisories for name in advisory.ecosystems
        ):
            if (plugin := self.plugins.get(ecosystem)) is not None:
                wanted = {name for advisory in advisories for name in advisory.packages(ecosystem)}
                paths = reading.some(ecosystem, plugin.manifests(tracked), max_manifests)
                packages_by_ecosystem[ecosystem] = reading.named(ecosystem, paths, wanted)
        return [
            (ecosystem, narrowed(advisory, ecosystem))
            for advisory in advisories
            for ecosystem in advisory.ecosystems
            if not packages_by_ecosystem.get(ecosystem, set()).isdisjoint(
                advisory.packages(ecosystem)
            )
        ]

    def _advisories(self, paths: Sequence[Path], left_out: list[LeftOut]) -> tuple[Advisory, ...]:
        if not paths:
            return ()
        advisory_set = load_advisories(list(paths))
        left_out += [LeftOut(what=entry.source, why=entry.reason) for entry in advisory_set.skipped]
        left_out += [
            LeftOut(what=finding.path, why=finding.sentence) for finding in advisory_set.findings
        ]
        for advisory in advisory_set.advisories:
            if not any(name in self.plugins for name in advisory.ecosystems):
                names = ", ".join(advisory.ecosystems)
                left_out.append(LeftOut(what=advisory.id, why=f"No plugin serves {names}."))
        return advisory_set.advisories


def _repositories(
    campaign: Campaign, left_out: list[LeftOut]
) -> Iterator[tuple[str, CampaignRepository]]:
    yield from sorted(campaign.repositories.items())
    names = set(campaign.repositories)
    for folder in campaign.checkouts:
        try:
            checkouts = sorted(path for path in folder.iterdir() if (path / ".git").exists())
        except OSError as error:
            raise CampaignError(
                f"checkouts: {folder}: {error.strerror}.",
                next_step="Name a folder of checkouts.",
                kind="unreadable",
            ) from error
        for checkout in checkouts:
            if checkout.name in names or not _NAME.fullmatch(checkout.name):
                why = (
                    "Another repository has this name: give it one of its own in [repositories]."
                    if checkout.name in names
                    else "Its folder's name can't name a repository: name it in [repositories]."
                )
                left_out.append(LeftOut(what=str(checkout), why=why))
                continue
            names.add(checkout.name)
            yield checkout.name, CampaignRepository(path=checkout)


def _planned(name: str, repository: CampaignRepository, commit: str) -> PlannedRepository:
    source = RepositorySettings.model_validate(repository.model_dump(exclude={"advisories"}))
    return PlannedRepository(repository=name, source=source.model_dump_json(), base_commit=commit)


def _fixes(
    campaign: Campaign,
    advisory_by_candidate: Mapping[Candidate, Advisory],
    feeds: Feeds,
    proofs: Mapping[Candidate, str],
) -> Iterator[PlannedFix]:
    for number, candidate in enumerate(in_order(advisory_by_candidate)):
        advisory = advisory_by_candidate[candidate]
        fix = FleetFix(
            campaign=campaign.name,
            fix_id=new_id("fix"),
            number=number,
            repository=candidate.repository,
            advisory_id=candidate.advisory_id,
            ecosystem=candidate.ecosystem,
            risk=feeds.risk(advisory),
            priority=candidate.priority,
        )
        record = advisory.model_dump_json(exclude_none=True)
        yield PlannedFix(fix=fix, advisory=record, proof=proofs.get(candidate))


def _chosen(
    proofs: Sequence[tuple[ProofTable, str]],
    advisory_by_candidate: Mapping[Candidate, Advisory],
    left_out: list[LeftOut],
) -> dict[Candidate, str]:
    """Return the proof (JSON) of each fix that has one. A proof that fits no fix is left out."""
    proof_by_candidate: dict[Candidate, str] = {}
    for proof, content in proofs:
        candidates = [
            candidate
            for candidate, advisory in advisory_by_candidate.items()
            if _is_about(proof, candidate, advisory)
        ]
        proof_by_candidate |= dict.fromkeys(candidates, content)
        if not candidates:
            why = "No fix of the list is of this repository and advisory (and ecosystem)."
            left_out.append(LeftOut(what=proof.name, why=why))
    return proof_by_candidate


def _is_about(proof: ProofTable, candidate: Candidate, advisory: Advisory) -> bool:
    return (
        proof.repository == candidate.repository
        and proof.advisory in (advisory.id, *advisory.aliases)
        and proof.ecosystem in (None, candidate.ecosystem)
    )


def _check_size(fixes: int) -> None:
    if fixes > MAX_FIXES:
        raise CampaignError(
            f"These are more than {MAX_FIXES:,} fixes.",
            next_step="Make several campaigns, or give each repository its own scanner's report.",
            kind="too_many",
        )


def _check_some(
    campaign: Campaign, candidates: Mapping[Candidate, Advisory], left_out: Sequence[LeftOut]
) -> None:
    if candidates:
        return
    first = f" {left_out[0].what}: {left_out[0].why}" if left_out else ""
    raise CampaignError(
        f"Campaign {campaign.name!r} has nothing to fix: no repository names a package that an advisory "
        f"is about.{first}",
        next_step="Look at `repositories`, `checkouts` and `advisories`.",
        kind="nothing_to_fix",
    )


@dataclass(frozen=True)
class _Reading:
    checkouts: Checkouts
    name: str
    repository: RepositorySettings
    commit: str
    left_out: list[LeftOut] = field(default_factory=list)

    def some(self, ecosystem: str, paths: Collection[str], limit: int) -> list[str]:
        """Return up to ``limit`` paths, those closest to the root first; report how many others there
        are.
        """
        if len(paths) > limit:
            self._say(
                f"{len(paths) - limit:,} of its {len(paths):,} manifests of {ecosystem} were not read "
                "(limits.manifests_per_repository)."
            )
        return sorted(paths, key=lambda it: (it.count("/"), it))[:limit]

    def named(self, ecosystem: str, paths: Sequence[str], wanted: Iterable[str]) -> set[str]:
        """Return those of the ``wanted`` packages that these files name."""
        rules, names = rules_of(ecosystem), set[str]()
        for read in self.checkouts.texts(self.name, self.repository, self.commit, paths):
            text = read.text if rules is None else rules.canonical_text(read.text)
            names |= {name for name in wanted if name in text}
            if read.cut is not None:
                self._say(f"{read.cut} is too large to be read to its end.")
        return names

    def _say(self, sentence: str) -> None:
        self.left_out.append(LeftOut(what=f"repository {self.name}", why=f"{sentence} {_UNREAD}"))
