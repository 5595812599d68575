"""Scanner reports other than SARIF: osv-scanner, pip-audit, npm audit (pnpm writes npm 6's form)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fallback_tier.advisory.found import (
    Found,
    FoundAdvisory,
    Reported,
    Skipped,
    mapping,
    mappings,
    ranges_up_to,
    records,
    text,
    texts,
    unread,
)
from fallback_tier.advisory.npm_ranges import NPM, osv_ranges
from fallback_tier.advisory.osv import advisory_from
from fallback_tier.errors import AdvisoryError

#: pip-audit reads this ecosystem alone.
PYPI = "PyPI"

_GHSA = re.compile(r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")


Reader = Callable[[Mapping[str, Any], str], Iterator[Found]]


def reader_of(document: Mapping[str, Any]) -> Reader | None:
    """Who reads this JSON object, by what its form alone has; None: it is no report."""
    forms: tuple[tuple[str, type, Reader], ...] = (
        ("vulnerabilities", dict, npm_audit),
        ("advisories", dict, npm6_audit),
        ("dependencies", list, pip_audit),
        ("results", list, osv_scanner),
        ("vulns", list, osv_answer),
    )
    return next((read for key, kind, read in forms if isinstance(document.get(key), kind)), None)


def array(items: Sequence[object], source: str) -> Iterator[Found]:
    """A JSON array, or JSON lines: OSV records, or the report of an older pip-audit."""
    audited = [
        mapping(it).keys() & {"vulns", "skip_reason"} and "name" in mapping(it) for it in items
    ]
    if audited and all(audited):
        return pip_audit({"dependencies": items}, source)
    return osv_records(items, source)


def osv_records(items: object, source: str) -> Iterator[Found]:
    """An array of OSV records, each of which may be unusable by itself."""
    yield from unread(items, source, (object,))
    for place, item in enumerate(items if isinstance(items, list) else ()):
        where = f"{source}[{place}]"
        if isinstance(item, dict) and item.keys() <= {"id", "modified"}:
            reason = "only the record's id is here, not the record: fetch it by its id"
            yield Skipped(source=where, reason=f"{text(item.get('id'))!r}: {reason}.")
            continue
        try:
            advisory = advisory_from(item, where)
        except AdvisoryError as error:
            yield Skipped.because(where, error)
        else:
            yield FoundAdvisory(advisory)


def osv_answer(answer: Mapping[str, Any], source: str) -> Iterator[Found]:
    """What an OSV API answers to a query: ``vulns``, maybe with a further page."""
    yield from osv_records(answer.get("vulns"), source)
    if answer.get("next_page_token"):
        yield Skipped(source=source, reason="The answer has a further page, which is not here.")


def osv_scanner(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """``results`` of osv-scanner (whole OSV records per package), or of an OSV batch answer."""
    for number, item in enumerate(report["results"]):
        where = f"{source}: results[{number}]"
        result = mapping(item)
        # Other tools have `results` too; an empty one is a batch answer's "nothing known".
        if item != {} and result.keys().isdisjoint({"packages", "vulns"}):
            yield Skipped(source=where, reason="It is neither osv-scanner's nor an OSV answer.")
        yield from osv_answer(result, where)
        yield from unread(result.get("packages"), where)
        for package in mappings(result.get("packages")):
            name = text(mapping(package.get("package")).get("name"))
            yield from osv_records(package.get("vulnerabilities"), f"{where} {name}")


def pip_audit(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Versions and the versions that fix them; a package that was not audited is unknown."""
    for number, item in enumerate(report["dependencies"]):
        dependency = mapping(item)
        name = text(dependency.get("name")) or f"dependencies[{number}]"
        where = f"{source}: {name}"
        if isinstance(dependency.get("vulns"), list):
            yield from unread(dependency["vulns"], where)
            yield from records(_pip_audit(dependency), where)
        else:
            message = text(dependency.get("skip_reason")) or "it does not say why"
            yield Skipped(source=where, reason=f"pip-audit skipped {name}: {message}.")


def _pip_audit(dependency: Mapping[str, Any]) -> Iterator[Reported]:
    version = text(dependency.get("version"))
    for flaw in mappings(dependency.get("vulns")):
        yield Reported(
            id=text(flaw.get("id")),
            ecosystem=PYPI,
            package=text(dependency.get("name")),
            ranges=ranges_up_to(PYPI, version, texts(flaw.get("fix_versions"))),
            versions=(version,),
            aliases=texts(flaw.get("aliases")),
            details=text(flaw.get("description")),
        )


def npm_audit(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """npm 7 and later. A package that is only *built on* an affected one is no advisory of its own."""
    found = mapping(report.get("vulnerabilities"))
    for name, entry in found.items():
        where = f"{source}: {text(name)}"
        via = mapping(entry).get("via")
        yield from unread(via or False, where, (dict, str))
        for advisory in mappings(via):
            yield from _npm_advisory(advisory, text(advisory.get("name")) or text(name), where)
        absent = sorted(it for it in texts(via) if it not in found)
        if isinstance(via, list) and absent:
            reason = f"It is affected through {absent[0]!r}, which the report does not hold."
            yield Skipped(source=where, reason=reason)


def npm6_audit(report: Mapping[str, Any], source: str) -> Iterator[Found]:
    """npm 6, and pnpm: one advisory a key."""
    for number, advisory in mapping(report.get("advisories")).items():
        entry = mapping(advisory)
        yield from _npm_advisory(entry, text(entry.get("module_name")), f"{source}: {number}")


def _npm_advisory(advisory: Mapping[str, Any], package: str, where: str) -> Iterator[Found]:
    stated = text(advisory.get("range")) or text(advisory.get("vulnerable_versions"))
    try:
        # npm: an advisory without a range is about every version.
        ranges = osv_ranges(stated or "*")
    except AdvisoryError as error:
        yield Skipped(source=where, reason=error.problem)
        return
    link = text(advisory.get("url"))
    ghsa = text(advisory.get("github_advisory_id")) or _ghsa(link)
    number = advisory.get("source") or advisory.get("id")
    reported = Reported(
        id=ghsa or f"npm-advisory-{number}",
        ecosystem=NPM,
        package=package,
        ranges=ranges,
        versions=_versions_found(advisory),
        aliases=texts(advisory.get("cves")),
        summary=text(advisory.get("title")),
        details=text(advisory.get("overview")),
        cwe=texts(advisory.get("cwe")),
        url=link,
        cvss=text(mapping(advisory.get("cvss")).get("vectorString")),
    )
    yield from records(iter((reported,)), where)


def _ghsa(link: str) -> str:
    found = _GHSA.search(link)
    return found[0] if found else ""


def _versions_found(advisory: Mapping[str, Any]) -> tuple[str, ...]:
    found = mappings(advisory.get("findings"))
    return tuple(version for it in found if (version := text(it.get("version"))))
