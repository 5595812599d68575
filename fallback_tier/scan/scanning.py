"""Scan of a repository for vulnerabilities: packages, OSV's answer, its records, and a plan.

OSV decides which packages are affected. If the ranges of its records call more affected than its answer,
that counts as well; if they call less affected, the finding reports it (``disputed``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from fallback_tier.advisory import (
    Advisory,
    AdvisorySet,
    OsvLookup,
    Skipped,
    fixed_versions,
    is_affected,
    sort_key,
)
from fallback_tier.advisory.bundles import one_per_flaw
from fallback_tier.advisory.found import FoundAdvisory
from fallback_tier.advisory.identifiers import identifier_or_none
from fallback_tier.advisory.query import PackageVersion, affecting
from fallback_tier.advisory.versions import canonical_name
from fallback_tier.advisory.vulnerability import cvss_rating
from fallback_tier.configured import Ignored
from fallback_tier.errors import (
    AdvisoryNotFoundError,
    NoPackageError,
    RepositoryError,
    WithdrawnError,
)
from fallback_tier.execution import StoppableClients
from fallback_tier.files.entries import say_nothing
from fallback_tier.inspection import look_at, tags_of
from fallback_tier.installed_plugins import InstalledPlugins
from fallback_tier.inventory import InstalledPackage
from fallback_tier.outcome import UnreadItem
from fallback_tier.planning import Remaining, RemediationPlan, divisible_plan
from fallback_tier.ports import EcosystemPlugin, ListsPackages
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.scan.document import (
    Finding,
    FixStep,
    IgnoredFinding,
    Level,
    ScanResult,
    ScanRules,
    Stopped,
)
from fallback_tier.wiring.places import check_caches

#: Severity names of databases: CVSS's, and GitHub's "moderate".
_WORDS = {str(level): level for level in Level if level is not Level.UNKNOWN}
_WORDS["moderate"] = Level.MEDIUM

#: Most paths that a finding names, in JSON too.
MAX_PATHS = 20

#: Time limit in seconds for the steps of all findings, unless the user gives another one.
STEPS_LIMIT_S = 300.0


@dataclass(frozen=True)
class Scanned:
    """A scan's result, and ``to_fix``: the records, as fetched, of the advisories that it shows and that a
    fix can take. A record whose ranges cover nothing that is installed, or that has none, is not among
    them: a fix would call it "not affected", although the database lists it. ``interrupt``: the
    KeyboardInterrupt that was raised while steps were searched; the caller raises it once the result is
    shown."""

    result: ScanResult
    to_fix: tuple[Advisory, ...]
    interrupt: KeyboardInterrupt | None = None


@dataclass(frozen=True)
class Scanner:
    """Scanner of repositories, by one OSV API. ``resolve`` False: steps are predicted from the files alone.
    ``limit_s``: seconds for all steps; those that are not found until then are marked as not resolved.
    ``found``: called with the findings that the rules show, without steps, before the search for steps."""

    lookup: OsvLookup
    settings: Settings
    rules: ScanRules
    today: date
    resolve: bool = True
    limit_s: float = STEPS_LIMIT_S
    observe: Callable[[str], None] = say_nothing
    found: Callable[[ScanResult], None] = lambda _result: None

    def scan(self, repository: Path) -> ScanResult:
        """Return the vulnerabilities of a clean git checkout; nothing is written to it. Raises as
        ``scan_with_records``, and KeyboardInterrupt."""
        scanned = self.scan_with_records(repository)
        if scanned.interrupt is not None:
            raise scanned.interrupt
        return scanned.result

    def scan_with_records(self, repository: Path) -> Scanned:
        """Do the same as ``scan``, and return the records of what is shown.

        Raises RepositoryError; StateFolderError if a client can't write its cache; ToolError; and the
        errors of ``query.affecting`` and ``OsvLookup.find`` if the database gives no answer.
        """
        clients = SubprocessClients(allow_hosts=self.settings.allow_hosts)
        stoppable = StoppableClients(clients)
        plugins = InstalledPlugins(stoppable)
        repo = look_at(repository, clients, self.settings)
        repo_plugins = {
            name: plugins[name] for name in plugins if plugins[name].manifests(repo.tracked_files)
        }
        if self.resolve and not repo.settings.offline:
            check_caches(clients, [*repo_plugins], offline=False)
        # 1. List what is installed.
        installed, unread, outside = self._inventory(repo, repo_plugins)
        # 2. Ask the database what of it is affected, and fetch the records.
        self.observe(f"asking {self.lookup.base_url} about {len(installed)} packages")
        queried = sorted({form for key in installed for form in _forms(key)})
        answer = affecting(self.lookup, queried)
        by_form = dict(zip(queried, answer.ids, strict=True))
        listed = {
            key: [advisory_id for form in _forms(key) for advisory_id in by_form[form]]
            for key in installed
        }
        records, skipped = self._records({name for ids in answer.ids for name in ids})
        advisories = one_per_flaw(records)
        findings = [
            finding
            for advisory in advisories
            for finding in _findings(advisory, installed, listed, _level(advisory, records))
        ]
        result = ScanResult(
            repository=repo.root.name,
            base_commit=repo.base_commit,
            packages=len(installed),
            unread=tuple(dict.fromkeys(unread)),
            paths=repo.settings.paths,
            outside=tuple(sorted(outside)),
            skipped=tuple(skipped),
            resolved=self.resolve,
            asked=answer,
            advisory_sources=tuple(self.lookup.sources),
        )
        if not advisories:
            return Scanned(self._ruled(findings, result), ())
        if self.resolve:
            self.found(self._ruled(findings, result))
        # 3. Plan what can be done about it.
        planned, stopped, interrupt = self._planned(advisories, repo, plugins, stoppable)
        why = {
            None: "",
            Stopped.TIME_LIMIT: f"Not resolved within {self.limit_s:g} s",
            Stopped.INTERRUPTED: "Not resolved before the interruption",
        }[stopped]
        findings = [_with_steps(finding, planned, why) for finding in findings]
        if planned is not None:
            unread += planned.unread
            unread += _beyond(planned, findings)
        update = {"unread": tuple(dict.fromkeys(unread)), "stopped": stopped}
        result = self._ruled(findings, result.model_copy(update=update))
        shown = {finding.id for finding in result.findings}
        if planned is not None:
            shown -= {*planned.not_affected}
        to_fix = tuple(
            advisory
            for advisory in advisories
            if advisory.id in shown and not advisory.says_nothing
        )
        return Scanned(result, to_fix, interrupt)

    def _planned(
        self,
        advisories: tuple[Advisory, ...],
        repo: RepoContext,
        plugins: Mapping[str, EcosystemPlugin],
        clients: StoppableClients,
    ) -> tuple[RemediationPlan | None, Stopped | None, KeyboardInterrupt | None]:
        """Return the plan, why it is not complete (None: it is), and the interruption, if that is why. The
        plan is None if it was interrupted before anything of it was known."""
        clients.begin(self.limit_s)
        try:
            plan = divisible_plan(
                AdvisorySet(advisories=advisories),
                repo,
                plugins,
                resolve=self.resolve,
                tags=tags_of(repo, clients),
                observe=self.observe,
            ).plan
        except KeyboardInterrupt as interrupt:
            return None, Stopped.INTERRUPTED, interrupt
        stopped = clients.stopped
        return plan, None if stopped is None else Stopped(stopped.kind), clients.interrupt

    def _inventory(
        self, repo: RepoContext, plugins: Mapping[str, EcosystemPlugin]
    ) -> tuple[dict[PackageVersion, list[InstalledPackage]], list[UnreadItem], list[str]]:
        installed: dict[PackageVersion, list[InstalledPackage]] = {}
        unread, inside, outside = [], list[str](), list[str]()
        if not plugins:
            unread.append(
                UnreadItem(
                    path=".",
                    reason="No manifest or lock of an ecosystem that is known is tracked here.",
                    next_step="Name the folder of a checkout that has one.",
                )
            )
        for name, plugin in sorted(plugins.items()):
            if not isinstance(plugin, ListsPackages):
                reason = f"The plugin of {name} does not list what is installed."
                next_step = f"Use a newer plugin of {name}, or give advisories to `plan`."
                unread.append(UnreadItem(path=".", reason=reason, next_step=next_step))
                continue
            self.observe(f"{name}: reading what is installed")
            plugin_repo = repo.model_copy(
                update={"manifests": plugin.manifests(repo.tracked_files)}
            )
            inventory = plugin.inventory(plugin_repo)
            unread += inventory.unread
            inside += inventory.inside
            outside += inventory.outside
            for package in inventory.packages:
                key = PackageVersion(name, canonical_name(name, package.name), package.version)
                installed.setdefault(key, []).append(package)
        if outside and not inside:
            raise RepositoryError(
                f"--path {', '.join(repo.settings.paths)}: no project has a file there.",
                next_step=f"Name the folder of a project, as of {min(outside)}.",
                kind="no_project_below",
            )
        return installed, unread, outside

    def _records(self, names: Iterable[str]) -> tuple[list[Advisory], list[Skipped]]:
        in_order = sorted(names)
        self.lookup.request(in_order)
        records, skipped = [], []
        for name in in_order:
            try:
                for item in self.lookup.find((name,)):
                    if isinstance(item, FoundAdvisory):
                        records.append(item.advisory)
                    elif isinstance(item, Skipped):
                        skipped.append(item)
            except (WithdrawnError, NoPackageError, AdvisoryNotFoundError) as error:
                skipped.append(Skipped.because(name, error))
        return records, [*dict.fromkeys(skipped)]

    def _ruled(self, findings: Sequence[Finding], result: ScanResult) -> ScanResult:
        shown, ignored = [], []
        expired: dict[str, None] = {}
        used: set[Ignored] = set()
        below = development = 0
        for finding in findings:
            names = {_spelt(name) for name in (finding.id, *finding.aliases)}
            rules = [rule for rule in self.rules.ignore if _spelt(rule.id) in names]
            used |= {*rules}
            rule = next((rule for rule in rules if rule.holds_on(self.today)), None)
            if rule is not None:
                ignored.append(
                    IgnoredFinding(
                        finding=finding,
                        reason=rule.reason,
                        until=rule.until,
                        where=self.rules.where("ignore"),
                    )
                )
                continue
            expired |= dict.fromkeys(rule.id for rule in rules)
            if self.rules.production and finding.development:
                development += 1
            elif self.rules.severity and finding.severity.rank < self.rules.severity.rank:
                below += 1
            else:
                shown.append(finding)
        return result.model_copy(
            update={
                "findings": tuple(sorted(shown, key=_worst_first)),
                "ignored": tuple(ignored),
                "expired": tuple(expired),
                "unmatched": tuple(rule.id for rule in self.rules.ignore if rule not in used),
                "below": below,
                "development": development,
                "rules": self.rules.settings,
            }
        )


def _forms(key: PackageVersion) -> tuple[PackageVersion, ...]:
    """Return the version as installed, and without build metadata or a local part (``2.5.1+cpu``).
    Databases list releases, and a rebuilt one has the same vulnerabilities."""
    return tuple(dict.fromkeys((key, key._replace(version=key.version.partition("+")[0]))))


def _findings(
    advisory: Advisory,
    installed: Mapping[PackageVersion, Sequence[InstalledPackage]],
    listed: Mapping[PackageVersion, Sequence[str]],
    severity: Level,
) -> Iterator[Finding]:
    """Yield an advisory's findings, without steps."""
    ids = {advisory.id, *advisory.aliases}
    by_package: dict[tuple[str, str], list[PackageVersion]] = {}
    disputed: set[PackageVersion] = set()
    for key in installed:
        is_listed = not ids.isdisjoint(listed[key])
        covers = is_affected(advisory, *key)
        if is_listed or covers:
            by_package.setdefault((key.ecosystem, key.name), []).append(key)
        if is_listed and not covers:
            disputed.add(key)
    for (ecosystem, name), keys in by_package.items():
        keys.sort(key=lambda key: sort_key(key.ecosystem, key.version))
        copies = [copy for key in keys for copy in installed[key]]
        yield Finding(
            id=advisory.id,
            aliases=advisory.aliases,
            summary=advisory.summary,
            ecosystem=ecosystem,
            package=name,
            versions=tuple(key.version for key in keys),
            severity=severity,
            sources=tuple(dict.fromkeys(copy.source for copy in copies)),
            paths=tuple(dict.fromkeys(copy.path for copy in copies))[:MAX_PATHS],
            direct=any(copy.direct for copy in copies),
            development=all(copy.development for copy in copies),
            fixed=fixed_versions(advisory, ecosystem, name),
            disputed=tuple(key.version for key in keys if key in disputed),
        )


def _with_steps(finding: Finding, planned: RemediationPlan | None, stopped: str) -> Finding:
    """Return a finding with its steps, and why there is none, or not one for each of its sources.
    ``stopped``: a clause on why the plan is not complete; empty if it is."""
    ecosystem, package = finding.ecosystem, finding.package
    steps = tuple(
        FixStep(
            manifest=move.manifest,
            step=move.step,
            before=move.before,
            after=move.after,
            raised=move.raised,
        )
        for fix in (planned.fixes if planned is not None else ())
        if fix.ecosystem == ecosystem
        for move in fix.moves
        if finding.id in move.advisory_ids and canonical_name(ecosystem, move.package) == package
    )
    left_items = [
        item
        for item in (planned.left if planned is not None else ())
        if finding.id in item.advisory_ids
        and (not item.package or canonical_name(ecosystem, item.package) == package)
    ]
    refused = next((item for item in left_items if not item.is_not_resolved), None)
    missing = [path for path in finding.sources if path not in {step.manifest for step in steps}]
    is_settled = refused is not None or finding.id in (planned.not_affected if planned else ())
    is_open = any(item.is_not_resolved for item in left_items) or bool(missing and not is_settled)
    if stopped and is_open:
        where = f" in {', '.join(missing)}" if steps and missing else ""
        why_not = f"{stopped}{where}: `fallback-tier plan REPO --advisory {finding.id}` goes on."
    elif refused is not None:
        why_not = _why_not(refused)
    else:
        why_not = "" if steps else "The plan has no step for it."
    return finding.model_copy(
        update={"steps": steps, "why_not": why_not, "not_resolved": bool(stopped) and is_open}
    )


def _why_not(item: Remaining) -> str:
    """Return what stops the cheapest step, then what stops the last one, then what to do."""
    first = item.declined[0].reason if item.declined else ""
    if first in item.sentence:
        first = ""
    return " ".join(filter(None, (first[:1].upper() + first[1:], item.sentence, item.next_step)))


def _beyond(planned: RemediationPlan, findings: Sequence[Finding]) -> Iterator[UnreadItem]:
    """Yield what a plan calls affected or unknown and no finding names, such as an install command that no
    lock covers."""
    found_packages = {(finding.id, finding.package) for finding in findings}
    found_packages |= {(finding.id, "") for finding in findings}
    for item in planned.left:
        package = canonical_name(item.ecosystem, item.package) if item.package else ""
        if any((name, package) not in found_packages for name in item.advisory_ids):
            path = item.manifest or "."
            yield UnreadItem(path=path, reason=item.sentence, next_step=item.next_step)
    for fix in planned.fixes:
        for move in fix.moves:
            package = canonical_name(fix.ecosystem, move.package)
            if any((name, package) not in found_packages for name in move.advisory_ids):
                yield UnreadItem(
                    path=move.manifest,
                    reason=f"It holds {move.package} {', '.join(move.before)} by the plan, and no lock or "
                    f"resolution lists that: {', '.join(move.advisory_ids)}.",
                    next_step="Give these advisories to `plan`.",
                )


def _level(advisory: Advisory, records: Sequence[Advisory]) -> Level:
    ids = {advisory.id, *advisory.aliases}
    stated = [level for record in records if record.id in ids for level in _levels(record)]
    return max(stated, key=lambda level: level.rank, default=Level.UNKNOWN)


def _levels(record: Advisory) -> Iterator[Level]:
    for severity in record.severity:
        rating = cvss_rating(severity.score)
        if rating is not None and rating.level in _WORDS:
            yield _WORDS[rating.level]
    word = record.database_specific.severity.lower()
    if word in _WORDS:
        yield _WORDS[word]


def _spelt(name: str) -> str:
    return identifier_or_none(name) or name


def _worst_first(finding: Finding) -> tuple[bool, int, str, str]:
    """Return a sort key. Findings of unknown severity come last: more is known of the others."""
    is_unknown = finding.severity is Level.UNKNOWN
    return is_unknown, -finding.severity.rank, finding.package, finding.id
