"""Readers of JSON reports: each format that is read, how it is recognised, and what it states.

A format is recognised by content that no other format has, never by a file's name. Four kinds of statement
are read:

- whole records (OSV, GitHub's advisories): ranges as the database has them;
- ranges (npm audit), maybe of the installed release lines alone;
- an installed version and fixed ones (pip-audit, uv audit, Trivy, Grype, SARIF);
- identifiers (CycloneDX, an OSV batch answer, SARIF without a package), which the caller looks up
(``Named``).

The second and third kinds say nothing of other release lines: these count as affected unless the database's
record is found (``found.unstated``).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from fallback_tier.advisory import sarif
from fallback_tier.advisory.found import (
    Found,
    FoundAdvisory,
    Named,
    Reported,
    Skipped,
    in_part,
    mapping,
    mappings,
    records,
    text,
    texts,
    unread,
)
from fallback_tier.advisory.npm_ranges import NPM, osv_ranges
from fallback_tier.advisory.osv import advisory_from
from fallback_tier.advisory.packages import Installed, ecosystem_of_type, from_purl
from fallback_tier.advisory.ranges import is_affected
from fallback_tier.advisory.versions import is_orderable, served, sort_key, successor
from fallback_tier.ecosystem_rules import base_ecosystem, ecosystems, rules_of
from fallback_tier.errors import AdvisoryError

#: pip-audit and uv audit read this ecosystem alone.
PYPI = "PyPI"

_GHSA = re.compile(r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")

Reader = Callable[[Mapping[str, Any], str], Iterator[Found]]


class Format(NamedTuple):
    """A format of JSON objects. ``name``: as users know it."""

    name: str
    is_it: Callable[[Mapping[str, Any]], bool]
    read: Reader


def supported() -> str:
    """Return the names of all formats, as text for messages."""
    names = dict.fromkeys(report_format.name for report_format in (*FORMATS, OSV_RECORD))
    return ", ".join(sorted(names, key=str.lower))


def read(document: object, source: str) -> Iterator[Found] | None:
    """Return the statements of a JSON document, or None if it is in none of the formats."""
    if isinstance(document, list):
        return array(document, source)
    report = mapping(document)
    for report_format in (*FORMATS, OSV_RECORD):
        if report_format.is_it(report):
            return report_format.read(report, source)
    return None


def array(items: Sequence[object], source: str) -> Iterator[Found]:
    """Return the statements of a JSON array, or of JSON lines: OSV records, GitHub's objects, pages of
    either, or a report of an older pip-audit, an older Trivy or of yarn."""
    if items and all(isinstance(page, list) for page in items):
        items = [item for page in items if isinstance(page, list) for item in page]
    audited = [
        mapping(item).keys() & {"vulns", "skip_reason"} and "name" in mapping(item)
        for item in items
    ]
    if audited and all(audited):
        return pip_audit({"dependencies": items}, source)
    objects = [mapping(item) for item in items]
    if objects and all(isinstance(result.get("Target"), str) for result in objects):
        return trivy({"Results": items}, source)
    if any(map(_is_yarn_audit, objects)):
        return yarn_audit(items, source)
    if objects and all(map(_is_berry_audit, objects)):
        return berry_audit(objects, source)
    return _each(items, source)


def _each(items: Sequence[object], source: str) -> Iterator[Found]:
    for index, item in enumerate(items):
        document, where = mapping(item), f"{source}[{index}]"
        if _is_alert(document):
            yield from github_alert(document, where)
        elif _is_github_advisory(document):
            yield from github_advisory(document, where)
        else:
            yield from _osv_record(item, where)


def osv_records(items: object, source: str) -> Iterator[Found]:
    """Yield the statements of an array of OSV records. Each record may be unusable on its own."""
    yield from unread(items, source, (object,))
    for index, item in enumerate(items if isinstance(items, list) else ()):
        yield from _osv_record(item, f"{source}[{index}]")


def _osv_record(item: object, where: str) -> Iterator[Found]:
    """Yield the statement of one of several records, or of its identifier alone, as in OSV's batch
    answers."""
    document = mapping(item)
    if document.keys() <= {"id", "modified"} and text(document.get("id")):
        yield Named((text(document["id"]),), where)
        return
    try:
        yield FoundAdvisory(advisory_from(item, where))
    except AdvisoryError as error:
        yield Skipped.because(where, error)


def osv_answer(answer: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the statements of an OSV API's answer to a query: ``vulns``, maybe with a further page."""
    yield from osv_records(answer.get("vulns"), source)
    if answer.keys() & {"code", "error", "errors"}:
        yield Skipped(source=source, reason="It has an error, so it may be incomplete.")
    if answer.get("next_page_token"):
        yield Skipped(source=source, reason="The answer has a further page, which is not here.")


#: Keys of an osv-scanner report and of an OSV batch answer; other tools have ``results``, too.
_OSV_SCANNER = frozenset(
    {
        "experimental_config",
        "experimental_generic_findings",
        "image_metadata",
        "license_summary",
        "results",
    }
)


#: Keys that osv-scanner adds to a package that it looked up and found something about.
_SCANNED = frozenset({"groups", "license_violations", "licenses", "vulnerabilities"})


def osv_scanner(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the statements of osv-scanner's ``results`` (whole records per package), or of an OSV batch
    answer."""
    if report.get("errors"):
        yield Skipped(source=source, reason="It has errors, so its results may be incomplete.")
    elif not report["results"] and not report.keys() <= _OSV_SCANNER:
        yield Skipped(source=source, reason="It is neither osv-scanner's nor an OSV answer.")
    for number, item in enumerate(report["results"]):
        where = f"{source}: results[{number}]"
        result = mapping(item)
        # Other tools have `results` too; in a batch answer, an empty result means "nothing known".
        if item != {} and not _is_osv_result(result, is_report="experimental_config" in report):
            yield Skipped(source=where, reason="It is neither osv-scanner's nor an OSV answer.")
        yield from osv_answer(result, where)
        yield from unread(result.get("packages"), where)
        for package in mappings(result.get("packages")):
            name = text(mapping(package.get("package")).get("name"))
            yield from _osv_scanner_flaws(package, f"{where} {name}")
            yield from _osv_scanner_groups(package, f"{where} {name}")


def _is_osv_result(result: Mapping[str, Any], *, is_report: bool) -> bool:
    """Return whether ``result`` is an OSV answer, or a source in osv-scanner's report. Prisma Cloud lists
    an image's vulnerabilities next to its packages, and osv-scanner's own input lists packages alone, none
    of them looked up."""
    packages = [*mappings(result.get("packages"))]
    has_findings = any(not _SCANNED.isdisjoint(package) for package in packages)
    is_scanned = is_report or has_findings or not packages
    is_source = "packages" in result and all(
        isinstance(package.get("package"), dict) for package in packages
    )
    return "vulns" in result or (is_source and is_scanned and "vulnerabilities" not in result)


def _osv_scanner_flaws(package: Mapping[str, Any], where: str) -> Iterator[Found]:
    """Yield the records of a package. If one does not cover the installed version, or can't be used, that
    version is stated, too."""
    flaws = package.get("vulnerabilities")
    yield from unread(flaws, where, (object,))
    installed = _osv_scanner_installed(package)
    for index, item in enumerate(flaws if isinstance(flaws, list) else ()):
        source, flaw = f"{where}[{index}]", mapping(item)
        ids = tuple(filter(None, (text(flaw.get("id")), *texts(flaw.get("aliases")))))
        for statement in _osv_record(item, source):
            is_withdrawn = isinstance(statement, Skipped) and not statement.unknown
            if installed is None or not ids or is_withdrawn:
                yield statement
            elif not isinstance(statement, FoundAdvisory):
                stated = _osv_scanner_stated(installed, ids)
                yield Named(ids, source, stated, lacks="its record can't be used")
            else:
                yield statement
                if not is_affected(statement.advisory, *installed):
                    yield from _osv_scanner_stated(installed, ids)


def _osv_scanner_installed(package: Mapping[str, Any]) -> Installed | None:
    """Return the package, if it has a version and its ecosystem is served."""
    coordinates = mapping(package.get("package"))
    ecosystem = base_ecosystem(text(coordinates.get("ecosystem")))
    name, version = text(coordinates.get("name")), text(coordinates.get("version"))
    is_served = rules_of(ecosystem) is not None
    return Installed(ecosystem, name, version) if is_served and name and version else None


def _osv_scanner_stated(installed: Installed, ids: Sequence[str]) -> tuple[FoundAdvisory, ...]:
    package_report = Reported(
        id=ids[0],
        ecosystem=installed.ecosystem,
        package=installed.name,
        versions=(installed.version,),
        aliases=ids[1:],
    )
    statements = records(iter((package_report,)), ids[0])
    return tuple(statement for statement in statements if isinstance(statement, FoundAdvisory))


def _osv_scanner_groups(package: Mapping[str, Any], where: str) -> Iterator[Found]:
    """Yield the identifiers of those groups of a package for which the report has no record."""
    yield from unread(package.get("groups"), where)
    installed = _osv_scanner_installed(package)
    recorded_ids = {text(record.get("id")) for record in mappings(package.get("vulnerabilities"))}
    for group in mappings(package.get("groups")):
        ids = texts(group.get("ids"))
        if not ids:
            yield Skipped(source=where, reason="A group of vulnerabilities has no identifiers.")
        elif not recorded_ids.issuperset(ids):
            yield Named(ids, where, _osv_scanner_stated(installed, ids) if installed else ())


def pip_audit(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield versions and the versions that fix them; a package that was not audited is unknown."""
    if not report["dependencies"]:
        yield Skipped(source=source, reason="It names no package: nothing was audited.")
    for number, item in enumerate(report["dependencies"]):
        dependency = mapping(item)
        name = text(dependency.get("name")) or f"dependencies[{number}]"
        where = f"{source}: {name}"
        if isinstance(dependency.get("vulns"), list):
            yield from unread(dependency["vulns"], where)
            yield from records(_pip_audit(dependency), where)
        else:
            skip_reason = text(dependency.get("skip_reason")) or "it does not say why"
            yield Skipped(source=where, reason=f"pip-audit skipped {name}: {skip_reason}.")


def _pip_audit(dependency: Mapping[str, Any]) -> Iterator[Reported]:
    version = text(dependency.get("version"))
    for flaw in mappings(dependency.get("vulns")):
        yield Reported(
            id=text(flaw.get("id")),
            ecosystem=PYPI,
            package=text(dependency.get("name")),
            versions=(version,),
            fixes=texts(flaw.get("fix_versions")),
            aliases=texts(flaw.get("aliases")),
            details=text(flaw.get("description")),
        )


def npm_audit(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the statements of npm 7 and later. Packages that only *depend on* an affected one have none."""
    entries = mapping(report.get("vulnerabilities"))
    for name, entry in entries.items():
        where = f"{source}: {text(name)}"
        via = mapping(entry).get("via")
        yield from unread(via or False, where, (dict, str))
        for advisory in mappings(via):
            yield from _npm_advisory(advisory, text(advisory.get("name")) or text(name), where)
        absent = sorted(cause for cause in texts(via) if cause not in entries)
        if isinstance(via, list) and absent:
            reason = f"It is affected through {absent[0]!r}, which the report does not hold."
            yield Skipped(source=where, reason=reason)
    yield from _npm_uncounted(report, source, entries)
    for name in sorted(_npm_without_advisory(entries)):
        reason = "It is affected, and no advisory of the report says through what."
        yield Skipped(source=f"{source}: {name}", reason=reason)


def _npm_without_advisory(entries: Mapping[str, Any]) -> set[str]:
    """Return the packages of npm's report whose ``via`` leads to no advisory, as packages on a cycle."""
    dependents: dict[str, list[str]] = {}
    waiting = []
    for name, entry in entries.items():
        via = mapping(entry).get("via")
        if next(mappings(via), None) is not None:
            waiting.append(name)
        for cause in texts(via):
            dependents.setdefault(cause, []).append(name)
    unexplained = {*entries} - {*waiting}
    while waiting:
        for name in dependents.pop(waiting.pop(), ()):
            if name in unexplained:
                unexplained.remove(name)
                waiting.append(name)
    return unexplained


#: Keys that npm 6, npm 7 and later, pnpm or yarn have next to their findings.
_NPM_AUDIT = frozenset({"actions", "auditReportVersion", "metadata", "muted", "runId"})


def _npm_uncounted(
    report: Mapping[str, Any], source: str, entries: Mapping[str, Any]
) -> Iterator[Skipped]:
    """Yield what makes npm's report incomplete. A report that counts vulnerabilities must hold some, one
    with an error may hold fewer, and an empty object may be another tool's, or a part of a report."""
    if not entries and report.keys().isdisjoint(_NPM_AUDIT):
        yield Skipped(source=source, reason="Nothing in it says that it is npm's report.")
    if report.get("error"):
        yield Skipped(source=source, reason="It has an error, so it may be incomplete.")
    counts = mapping(mapping(report.get("metadata")).get("vulnerabilities")).values()
    if not entries and any(isinstance(count, int) and count > 0 for count in counts):
        yield Skipped(source=source, reason="It counts vulnerabilities, and holds none.")
    audited = mapping(report.get("metadata")).get("dependencies")
    if mapping(audited).get("total", audited) == 0 and not entries:
        yield Skipped(source=source, reason="It counts no audited package: nothing was audited.")


def npm6_audit(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the statements of npm 6 and pnpm: one advisory per key."""
    yield from _npm_uncounted(report, source, mapping(report.get("advisories")))
    for number, advisory in mapping(report.get("advisories")).items():
        entry = mapping(advisory)
        yield from _npm_advisory(entry, text(entry.get("module_name")), f"{source}: {number}")


def _npm_advisory(advisory: Mapping[str, Any], package: str, where: str) -> Iterator[Found]:
    stated = text(advisory.get("range")) or text(advisory.get("vulnerable_versions"))
    try:
        # In npm, an advisory without a range covers every version.
        ranges = osv_ranges(stated or "*")
    except AdvisoryError as error:
        yield Skipped(source=where, reason=error.problem)
        return
    link = text(advisory.get("url"))
    ids = (text(advisory.get("github_advisory_id")) or _ghsa(link), *texts(advisory.get("cves")))
    if not package and any(ids):
        yield Named(tuple(filter(None, ids)), where, lacks="it names no package")
        return
    number = advisory.get("source") or advisory.get("id")
    package_report = Reported(
        id=ids[0] or f"npm-advisory-{number}",
        ecosystem=NPM,
        package=package,
        ranges=ranges,
        versions=_versions_found(advisory),
        aliases=ids[1:],
        summary=text(advisory.get("title")),
        details=text(advisory.get("overview")),
        cwe=texts(advisory.get("cwe")),
        url=link,
        cvss=text(mapping(advisory.get("cvss")).get("vectorString")),
    )
    yield from records(iter((package_report,)), where)


def yarn_audit(items: Sequence[object], source: str) -> Iterator[Found]:
    """Yield the statements of yarn 1's lines: an advisory per path to it, in npm 6's form, then the
    counts."""
    advisories, counted, failed = {}, False, False
    yield from unread(items, source)
    for line in mappings(items):
        kind, data = text(line.get("type")), mapping(line.get("data"))
        if kind == "auditAdvisory":
            advisory = mapping(data.get("advisory"))
            key = json.dumps(advisory, sort_keys=True)
            advisories[key] = advisory
        counted = counted or kind == "auditSummary"
        failed = failed or kind == "error"
        if kind == "auditSummary":
            yield from _npm_uncounted({"metadata": data}, source, advisories)
    if failed or not counted:
        yield Skipped(source=source, reason="It has an error or no summary: it may be incomplete.")
    for advisory in advisories.values():
        where = f"{source}: {advisory.get('id')}"
        yield from _npm_advisory(advisory, text(advisory.get("module_name")), where)


def berry_audit(lines: Sequence[Mapping[str, Any]], source: str) -> Iterator[Found]:
    """Yield the statements of yarn 4's lines (`yarn npm audit --json`): one advisory or deprecated release
    each."""
    for line in lines:
        package, flaw = text(line.get("value")), mapping(line.get("children"))
        where = f"{source}: {package}"
        if text(flaw.get("ID")).endswith("(deprecation)"):
            reason = f"{package} is deprecated, which is not a vulnerability."
            yield Skipped(source=where, reason=reason, unknown=False)
            continue
        advisory = {
            "id": flaw.get("ID"),
            "range": flaw.get("Vulnerable Versions"),
            "title": flaw.get("Issue"),
            "url": flaw.get("URL"),
            "findings": [{"version": version} for version in texts(flaw.get("Tree Versions"))],
        }
        yield from _npm_advisory(advisory, package, where)


def _ghsa(link: str) -> str:
    match = _GHSA.search(link)
    return match[0] if match else ""


def _versions_found(advisory: Mapping[str, Any]) -> tuple[str, ...]:
    findings = mappings(advisory.get("findings"))
    return tuple(version for finding in findings if (version := text(finding.get("version"))))


# --- uv audit -------------------------------------------------------------------------------------


def uv_audit(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the statements of one report, or of one for each tool (`uv tool audit`). A project's status is
    not a vulnerability."""
    yield from unread(report.get("tools"), source)
    bodies = (report, *mappings(report.get("tools")))
    if not any(mapping(body.get("summary")).get("audited_packages") for body in bodies):
        yield Skipped(source=source, reason="It counts no audited package: nothing was audited.")
    for body in bodies:
        yield from unread(body.get("vulnerabilities"), source)
        for flaw in mappings(body.get("vulnerabilities")):
            dependency = mapping(flaw.get("dependency"))
            name, version = text(dependency.get("name")), text(dependency.get("version"))
            package_report = Reported(
                id=text(flaw.get("display_id")) or text(flaw.get("id")),
                ecosystem=PYPI,
                package=name,
                versions=(version,) if version else (),
                fixes=texts(flaw.get("fix_versions")),
                aliases=(*texts(flaw.get("id")), *texts(flaw.get("aliases"))),
                summary=text(flaw.get("summary")),
                details=text(flaw.get("description")),
                url=text(flaw.get("link")),
            )
            yield from records(iter((package_report,)), f"{source}: {name}")
        for status in mappings(body.get("adverse_statuses")):
            name, reported_status = text(status.get("name")), text(status.get("status"))
            reason = f"uv reports the project as {reported_status!r}, which is not a vulnerability."
            yield Skipped(source=f"{source}: {name}", reason=reason, unknown=False)


# --- GitHub ---------------------------------------------------------------------------------------

#: OSV's names of the ecosystems that GitHub names differently and no plugin serves.
_GITHUB_ECOSYSTEMS = {
    "actions": "GitHub Actions",
    "composer": "Packagist",
    "erlang": "Hex",
    "go": "Go",
    "maven": "Maven",
    "nuget": "NuGet",
    "pub": "Pub",
    "rubygems": "RubyGems",
    "rust": "crates.io",
    "swift": "SwiftURL",
}

#: States of an alert that a person, or a person's rule, dismissed. A *fixed* alert is fixed on the default
#: branch, which may not be what is checked out, so it is read.
_DISMISSED = frozenset({"dismissed", "auto_dismissed"})

_BOUND = re.compile(r"(?P<operator>[<>]=?|=)\s*(?P<version>[^\s,<>=]+)")


def github_alert(alert: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the whole advisory of a Dependabot alert, and the package that it was raised for."""
    state = text(alert.get("state"))
    advisory = mapping(alert.get("security_advisory"))
    if state in _DISMISSED:
        name = text(advisory.get("ghsa_id")) or "The alert"
        yield Skipped(source=source, reason=f"{name}: the alert's state is {state!r}.")
        return
    stated = alert.get("security_vulnerability")
    listed = advisory.get("vulnerabilities")
    entries = [*(listed if isinstance(listed, list) else ())]
    is_added = isinstance(stated, dict) and stated not in entries
    if is_added:
        entries.append(stated)
    yield from unread(listed, source)
    for statement in github_advisory({**advisory, "vulnerabilities": entries}, source):
        # Without the list, or if it lacks this range, the alert has only the range that it was raised for,
        # and maybe not the others.
        if isinstance(statement, FoundAdvisory) and (is_added or not isinstance(listed, list)):
            yield in_part(statement)
        else:
            yield statement


def github_advisory(advisory: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the OSV record equal to an advisory of GitHub's REST API, global or of a repository."""
    yield from unread(advisory.get("vulnerabilities"), source)
    affected = []
    for entry in mappings(advisory.get("vulnerabilities")):
        try:
            affected.append(_github_affected(entry))
        except AdvisoryError as error:
            yield Skipped.because(source, error)
    names = [text(advisory.get("ghsa_id")), text(advisory.get("cve_id"))]
    names += [text(identifier.get("value")) for identifier in mappings(advisory.get("identifiers"))]
    ids = tuple(dict.fromkeys(filter(None, names)))
    if not affected and ids and not advisory.get("withdrawn_at"):
        yield Named(ids, source)
        return
    vectors = mapping(advisory.get("cvss_severities"))
    scores = {
        "CVSS_V3": text(mapping(vectors.get("cvss_v3")).get("vector_string"))
        or text(mapping(advisory.get("cvss")).get("vector_string")),
        "CVSS_V4": text(mapping(vectors.get("cvss_v4")).get("vector_string")),
    }
    links = [
        text(reference) or text(mapping(reference).get("url"))
        for reference in (advisory.get("html_url"), *_listed(advisory.get("references")))
    ]
    document = {
        "id": ids[0] if ids else "",
        "aliases": ids[1:],
        "summary": text(advisory.get("summary")),
        "details": text(advisory.get("description")),
        "affected": affected,
        "severity": [{"type": kind, "score": score} for kind, score in scores.items() if score],
        "references": [{"type": "ADVISORY", "url": link} for link in dict.fromkeys(links) if link],
        "database_specific": {
            "cwe_ids": [text(weakness.get("cwe_id")) for weakness in mappings(advisory.get("cwes"))]
        },
        "modified": text(advisory.get("updated_at")),
        "withdrawn": text(advisory.get("withdrawn_at")) or None,
    }
    try:
        yield FoundAdvisory(advisory_from(document, source))
    except AdvisoryError as error:
        yield Skipped.because(source, error)


def _github_affected(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a package and its range as OSV's ``affected``. Raises AdvisoryError if it can't be read."""
    package = mapping(entry.get("package"))
    kind, name = text(package.get("ecosystem")).lower(), text(package.get("name"))
    ecosystem = ecosystem_of_type(kind) or _GITHUB_ECOSYSTEMS.get(kind, "")
    if not ecosystem or not name:
        raise AdvisoryError(
            f"The advisory's package {name!r} is of the ecosystem {kind!r}, which is not known.",
            next_step="Give an OSV record of it.",
        )
    patched = entry.get("first_patched_version") or entry.get("patched_versions")
    fixed = text(mapping(patched).get("identifier")) or text(patched)
    stated = text(entry.get("vulnerable_version_range"))
    return {
        "package": {"ecosystem": ecosystem, "name": name},
        "ranges": [_github_range(ecosystem, stated, fixed)],
    }


def _github_range(ecosystem: str, stated: str, fixed: str) -> dict[str, Any]:
    """Return a range such as ``>= 1.0, < 1.2`` as an OSV range. As in GitHub's own OSV export, ``<= 1.1``
    ends at the first patched version: versions in between are not called safe. Raises AdvisoryError if the
    range can't be read."""
    is_served = bool(ecosystem_of_type(ecosystem))
    low, high, closed = "", "", False
    for part in filter(None, (constraint.strip() for constraint in stated.split(","))):
        bound = _BOUND.fullmatch(part)
        operator, version = bound.group("operator", "version") if bound else ("", "")
        is_lower, is_upper = operator in (">", ">=", "="), operator in ("<", "<=", "=")
        # Two bounds of one side are two ranges, and the report doesn't say which bounds belong together.
        is_again = (is_lower and low) or (is_upper and high)
        if not bound or is_again or (is_served and not is_orderable(ecosystem, version)):
            raise AdvisoryError(
                f"The range {stated[:200]!r} of an advisory can't be read.",
                next_step="Give an OSV record of it.",
            )
        if is_lower:
            # A version that can't be compared stays affected: rather more is called affected than less.
            is_above = operator == ">" and is_served
            low = successor(ecosystem, version) if is_above else version
        if is_upper:
            high, closed = version, operator != "<"
    events = [{"introduced": low or "0"}]
    can_end_later = closed and is_served and is_orderable(ecosystem, fixed)
    if can_end_later and sort_key(ecosystem, fixed) > sort_key(ecosystem, high):
        high, closed = fixed, False
    if high:
        events.append({"last_affected" if closed else "fixed": high})
    kind = served(ecosystem).range_type if is_served else "ECOSYSTEM"
    return {"type": kind, "events": events}


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_alert(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("security_advisory"), dict)


def _is_github_advisory(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("ghsa_id"), str)


# --- Trivy and Grype ------------------------------------------------------------------------------


def trivy(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the vulnerabilities of Trivy's results. A report without a target of a served ecosystem is
    *unknown*: Trivy may have scanned for other things, or found no lock."""
    yield from unread(report.get("Results"), source)
    if not any(map(_has_packages, mappings(report.get("Results")))):
        served = " or ".join(ecosystems())
        yield Skipped(source=source, reason=f"It names no target that has packages of {served}.")
    for result in mappings(report.get("Results")):
        where = f"{source}: {text(result.get('Target'))}"
        yield from unread(result.get("Vulnerabilities"), where)
        yield from _trivy_ignored(result, where)
        for flaw in mappings(result.get("Vulnerabilities")):
            purl = text(mapping(flaw.get("PkgIdentifier")).get("PURL"))
            stated = Installed(
                ecosystem_of_type(text(result.get("Type"))),
                text(flaw.get("PkgName")),
                text(flaw.get("InstalledVersion")),
            )
            yield from _of_package(
                from_purl(purl) or stated,
                where,
                ids=(text(flaw.get("VulnerabilityID")), *texts(flaw.get("VendorIDs"))),
                fixes=text(flaw.get("FixedVersion")).split(","),
                summary=text(flaw.get("Title")),
                details=text(flaw.get("Description")),
                cwe=texts(flaw.get("CweIDs")),
                url=text(flaw.get("PrimaryURL")),
                cvss=_trivy_cvss(mapping(flaw.get("CVSS"))),
            )


def _has_packages(result: Mapping[str, Any]) -> bool:
    """Return whether a target has packages of a served ecosystem, or vulnerabilities, which are named one
    by one. Targets of old reports have no class."""
    is_packages = text(result.get("Class")) in ("", "lang-pkgs")
    is_served = is_packages and bool(ecosystem_of_type(text(result.get("Type"))))
    return is_served or bool(result.get("Vulnerabilities"))


def _trivy_ignored(result: Mapping[str, Any], where: str) -> Iterator[Skipped]:
    """Yield what a rule or a statement (VEX) removed from the results."""
    yield from unread(result.get("ExperimentalModifiedFindings"), where)
    for ignored in mappings(result.get("ExperimentalModifiedFindings")):
        kind = text(ignored.get("Type"))
        if kind in ("", "vulnerability"):
            name = text(mapping(ignored.get("Finding")).get("VulnerabilityID")) or "A vulnerability"
            status = text(ignored.get("Status")) or "modified"
            yield Skipped(source=where, reason=f"{name}: it is {status!r} in the report.")


def _trivy_cvss(by_source: Mapping[str, Any]) -> str:
    vectors = {name: text(mapping(rating).get("V3Vector")) for name, rating in by_source.items()}
    preferred = (vectors.get("ghsa"), vectors.get("nvd"), *vectors.values())
    return next(filter(None, preferred), "")


def grype(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield Grype's matches. Those that its own rules ignore (``ignoredMatches``) are skipped by name."""
    yield from unread(report.get("matches"), source)
    yield from unread(report.get("ignoredMatches"), source)
    for match in mappings(report.get("matches")):
        artifact, flaw = mapping(match.get("artifact")), mapping(match.get("vulnerability"))
        stated = Installed(
            ecosystem_of_type(text(artifact.get("type"))),
            text(artifact.get("name")),
            text(artifact.get("version")),
        )
        related = [
            text(vulnerability.get("id"))
            for vulnerability in mappings(match.get("relatedVulnerabilities"))
        ]
        vectors = (
            rating
            for rating in mappings(flaw.get("cvss"))
            if text(rating.get("version")).startswith("3")
        )
        yield from _of_package(
            from_purl(text(artifact.get("purl"))) or stated,
            source,
            ids=(text(flaw.get("id")), *related),
            fixes=texts(mapping(flaw.get("fix")).get("versions")),
            summary="",
            details=text(flaw.get("description")),
            cwe=tuple(text(weakness.get("cwe")) for weakness in mappings(flaw.get("cwes"))),
            url=text(flaw.get("dataSource")),
            cvss=next((text(rating.get("vector")) for rating in vectors), ""),
        )
    for match in mappings(report.get("ignoredMatches")):
        name = text(mapping(match.get("vulnerability")).get("id")) or "A match"
        yield Skipped(source=source, reason=f"{name}: it is ignored in the report.")


def _of_package(
    package: Installed,
    where: str,
    *,
    ids: Sequence[str],
    fixes: Sequence[str],
    summary: str,
    details: str,
    cwe: Sequence[str],
    url: str,
    cvss: str,
) -> Iterator[Found]:
    name = ids[0] or "A vulnerability"
    if not package.ecosystem or not package.version:
        reason = f"{name}: {package.name or 'its package'} is of no ecosystem that is served."
        yield Skipped(source=where, reason=reason)
        return
    fixed_versions = [
        version for fix in fixes if (version := fix.strip().removeprefix(">=").strip())
    ]
    package_report = Reported(
        id=ids[0],
        ecosystem=package.ecosystem,
        package=package.name,
        versions=(package.version,),
        fixes=fixed_versions,
        aliases=[identifier for identifier in dict.fromkeys(ids) if identifier],
        summary=summary,
        details=details,
        cwe=[weakness for weakness in cwe if weakness],
        url=url,
        cvss=cvss,
    )
    yield from records(iter((package_report,)), where)


# --- CycloneDX ------------------------------------------------------------------------------------

#: States of CycloneDX's analysis by which nothing needs to be fixed.
_SETTLED = frozenset({"not_affected", "false_positive", "resolved", "resolved_with_pedigree"})


def cyclonedx(bom: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield the vulnerabilities of a CycloneDX document, each to be looked up by its id. A document without
    any is *unknown*: it lists components, or Trivy ran without the vulnerability scanner."""
    if bom.get("vulnerabilities") in (None, []):
        reason = "It lists components and no `vulnerabilities`: have a scanner add them."
        yield Skipped(source=source, reason=reason)
        return
    yield from unread(bom["vulnerabilities"], source)
    components = dict(_components(bom))
    for number, flaw in enumerate(mappings(bom["vulnerabilities"])):
        where = f"{source}: vulnerabilities[{number}]"
        related = (text(reference.get("id")) for reference in mappings(flaw.get("references")))
        ids = tuple(dict.fromkeys(filter(None, (text(flaw.get("id")), *related))))
        state = text(mapping(flaw.get("analysis")).get("state"))
        if state in _SETTLED:
            name = ids[0] if ids else "A vulnerability"
            yield Skipped(source=where, reason=f"{name}: its analysis says {state!r}.")
            continue
        statements = list(_cyclonedx_affected(flaw, ids, components, where))
        yield from (statement for statement in statements if isinstance(statement, Skipped))
        affects = [*mappings(flaw.get("affects"))]
        if affects and all(map(_is_unaffected, affects)):
            continue
        found_advisories = tuple(
            statement for statement in statements if isinstance(statement, FoundAdvisory)
        )
        if ids:
            yield Named(ids, where, found_advisories)
        else:
            yield Skipped(source=where, reason="It has no identifier.")


def _cyclonedx_affected(
    flaw: Mapping[str, Any], ids: Sequence[str], components: Mapping[str, str], where: str
) -> Iterator[Found]:
    yield from unread(flaw.get("affects"), where)
    for affects in mappings(flaw.get("affects")):
        # A reference may lead to another document (BOM-Link): the part after # is the component there.
        ref = text(affects.get("ref"))
        local = unquote(ref.rpartition("#")[2]) if ref.startswith("urn:cdx:") else ref
        package = from_purl(components.get(local, "")) or from_purl(local)
        if _is_unaffected(affects):
            name = ids[0] if ids else "A vulnerability"
            reason = f"{name}: the document calls {ref[:200]!r} unaffected."
            yield Skipped(source=where, reason=reason)
            continue
        if package is None:
            continue
        yield from _of_package(
            package,
            where,
            ids=ids or ("",),
            fixes=(),
            summary=text(flaw.get("description")),
            details=text(flaw.get("detail")),
            cwe=[
                f"CWE-{number}" for number in _listed(flaw.get("cwes")) if isinstance(number, int)
            ],
            url=text(mapping(flaw.get("source")).get("url")),
            cvss=_cyclonedx_cvss(flaw),
        )


def _is_unaffected(affects: Mapping[str, Any]) -> bool:
    """Return whether the document calls all versions of a component that it lists unaffected."""
    states = {text(version.get("status")) for version in mappings(affects.get("versions"))}
    return states == {"unaffected"}


def _cyclonedx_cvss(flaw: Mapping[str, Any]) -> str:
    ratings = mappings(flaw.get("ratings"))
    vectors = (
        text(rating.get("vector")) for rating in ratings if "CVSSv3" in text(rating.get("method"))
    )
    return next(filter(None, vectors), "")


def _components(bom: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each component's reference and package URL, nested ones included."""
    waiting = [
        mapping(mapping(bom.get("metadata")).get("component")),
        *mappings(bom.get("components")),
    ]
    while waiting:
        component = waiting.pop()
        yield text(component.get("bom-ref")), text(component.get("purl"))
        waiting += mappings(component.get("components"))


# --- The table ------------------------------------------------------------------------------------


def _has(key: str, kind: type) -> Callable[[Mapping[str, Any]], bool]:
    return lambda document: isinstance(document.get(key), kind)


def _is_uv_audit(document: Mapping[str, Any]) -> bool:
    is_report = isinstance(document.get("vulnerabilities"), list) and "audited_packages" in mapping(
        document.get("summary")
    )
    return is_report or ("schema" in document and isinstance(document.get("tools"), list))


def _is_trivy(document: Mapping[str, Any]) -> bool:
    # Without results, Trivy omits the list.
    return isinstance(document.get("Results"), list) or {"SchemaVersion", "ArtifactName"} <= set(
        document
    )


def _is_npm6_audit(document: Mapping[str, Any]) -> bool:
    # Composer has one list of advisories per package.
    advisories = document.get("advisories")
    return isinstance(advisories, dict) and not any(
        isinstance(entry, list) for entry in advisories.values()
    )


def _is_yarn_audit(line: Mapping[str, Any]) -> bool:
    return text(line.get("type")) in ("auditAdvisory", "auditSummary") and "data" in line


def _is_berry_audit(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("value"), str) and {"ID", "Vulnerable Versions"} <= set(
        mapping(line.get("children"))
    )


def _is_grype(document: Mapping[str, Any]) -> bool:
    # Xeol, which looks for packages that are no longer maintained, writes Grype's format.
    name = mapping(document.get("descriptor")).get("name", "grype")
    return isinstance(document.get("matches"), list) and name == "grype"


def _webhook(event: Mapping[str, Any], source: str) -> Iterator[Found]:
    return github_alert(mapping(event.get("alert")), source)


def _one_osv_record(document: Mapping[str, Any], source: str) -> Iterator[Found]:
    return iter((FoundAdvisory(advisory_from(document, source)),))


#: The order matters: CycloneDX has `dependencies` and `vulnerabilities` too; elsewhere these are lists.
FORMATS: tuple[Format, ...] = (
    Format("SARIF 2.1.0", _has("runs", list), sarif.read),
    Format("CycloneDX", lambda it: it.get("bomFormat") == "CycloneDX", cyclonedx),
    Format("Dependabot alerts", _is_alert, github_alert),
    Format("Dependabot alerts", lambda it: _is_alert(mapping(it.get("alert"))), _webhook),
    Format("GitHub advisories", _is_github_advisory, github_advisory),
    Format("Trivy JSON", _is_trivy, trivy),
    Format("Grype JSON", _is_grype, grype),
    Format("uv audit JSON", _is_uv_audit, uv_audit),
    Format("npm audit JSON", _has("vulnerabilities", dict), npm_audit),
    Format("npm audit JSON", _is_npm6_audit, npm6_audit),
    Format("yarn audit JSON", _is_yarn_audit, lambda it, source: yarn_audit([it], source)),
    Format("yarn audit JSON", _is_berry_audit, lambda it, source: berry_audit([it], source)),
    Format("pip-audit JSON", _has("dependencies", list), pip_audit),
    Format("osv-scanner JSON", _has("results", list), osv_scanner),
    Format(
        "OSV (a record, an array, JSON lines, an API's answer)", _has("vulns", list), osv_answer
    ),
)

#: Tried last: other formats have an `id` too. Only this format refuses its document as a whole.
OSV_RECORD = Format(
    "OSV (a record, an array, JSON lines, an API's answer)", lambda it: "id" in it, _one_osv_record
)
