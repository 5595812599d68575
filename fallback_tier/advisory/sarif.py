"""SARIF 2.1.0: findings in source code (CodeQL, Semgrep …), and dependencies as scanners write them there.

SARIF has no field for "package X, version Y". osv-scanner, Trivy, Grype, Snyk and uv each write it in their
own way into the message, the rule's texts, logical locations and property bags; it is read from there. If a
result's rule is a database's advisory, the result is about a dependency, whatever file it points to:
without a package it is looked up by its rule, or skipped with that reason.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from fallback_tier.advisory.found import (
    MAX_MESSAGE_LENGTH,
    CodeFinding,
    Found,
    Named,
    Reported,
    Skipped,
    mapping,
    mappings,
    records,
    text,
    texts,
    unread,
)
from fallback_tier.advisory.packages import (
    Installed,
    ecosystem_of_file,
    ecosystem_of_type,
    from_purl,
)
from fallback_tier.errors import AdvisoryError

# SARIF's own indirections: a result's rule, its texts and its locations, wherever the log has them.


class _Result(NamedTuple):
    result: Mapping[str, Any]
    rule: Mapping[str, Any]
    locations: tuple[tuple[str, Mapping[str, Any]], ...]
    #: Names of the result's logical locations: of a function, or of a package.
    logical_names: tuple[str, ...]

    @property
    def message(self) -> str:
        """The tool's message about the result."""
        return words(self.result.get("message"))

    @property
    def rule_id(self) -> str:
        """The rule's identifier; for scanners of dependencies often an advisory's."""
        return text(self.result.get("ruleId")) or text(self.rule.get("id"))


class _Rules:
    """The rules of a run, indexed once: a log may have as many as it has results."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._tool = mapping(run.get("tool"))
        self._by_name: dict[int, dict[str, Mapping[str, Any]]] = {}

    def of(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a result's rule: by index in the driver or an extension, otherwise by id there."""
        reference = mapping(result.get("rule"))
        component = mapping(self._tool.get("driver"))
        extension = mapping(reference.get("toolComponent")).get("index")
        if isinstance(extension, int):
            component = _at(self._tool.get("extensions"), extension)
        rules = component.get("rules")
        index = reference.get("index", result.get("ruleIndex"))
        name = text(result.get("ruleId")) or text(reference.get("id"))
        chosen = _at(rules, index)
        if chosen and (not name or text(chosen.get("id")) == name):
            return chosen
        return self._named(rules).get(name, chosen)

    def _named(self, rules: object) -> Mapping[str, Mapping[str, Any]]:
        # The log outlives this object, so an id() identifies one array. Of two rules with one id, the first
        # counts.
        if id(rules) not in self._by_name:
            by_id: dict[str, Mapping[str, Any]] = {}
            for rule in mappings(rules):
                by_id.setdefault(text(rule.get("id")), rule)
            self._by_name[id(rules)] = by_id
        return self._by_name[id(rules)]


def _result_of(run: Mapping[str, Any], result: Mapping[str, Any], rules: _Rules) -> _Result:
    logical_locations = [
        logical
        for location in mappings(result.get("locations"))
        for logical in mappings(location.get("logicalLocations"))
    ]
    names = (text(logical.get("fullyQualifiedName")) for logical in logical_locations)
    return _Result(result, rules.of(result), tuple(_locations(run, result)), tuple(names))


def words(message: object) -> str:
    """Return a SARIF message's text, or its Markdown if it has no text."""
    message_object = mapping(message)
    return text(message_object.get("text")) or text(message_object.get("markdown"))


def _locations(
    run: Mapping[str, Any], result: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for location in mappings(result.get("locations")):
        physical = mapping(location.get("physicalLocation"))
        artifact = mapping(physical.get("artifactLocation"))
        if "uri" not in artifact:
            artifact = mapping(_at(run.get("artifacts"), artifact.get("index")).get("location"))
        yield _path(text(artifact.get("uri"))), mapping(physical.get("region"))


def _path(uri: str) -> str:
    """Return a relative reference or a file URI as a path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    path = parts.path if parts.scheme == "file" else uri
    return unquote(path).removeprefix("./")


def _at(items: object, index: object) -> Mapping[str, Any]:
    if isinstance(items, list) and isinstance(index, int) and 0 <= index < len(items):
        return mapping(items[index])
    return {}


SARIF_VERSION = "2.1.0"

#: Most fixed versions of one result that are read: a package has a few release lines. Release lines of any
#: further ones count as affected.
MAX_FIXES = 64

#: A rule's help is searched once per package; osv-scanner's tables take a few thousand characters.
MAX_HELP_LENGTH = 65_536

#: How osv-scanner, Trivy, Grype and an older Grype (0.34) name a package in a result's message.
_MESSAGES = (
    re.compile(r"Package '(?P<name>[^']+)@(?P<version>[^'@]+)' is vulnerable to '(?P<id>[^']+)'"),
    re.compile(
        r"Package: (?P<name>\S+)\nInstalled Version: (?P<version>\S+)\nVulnerability (?P<id>\S+)"
    ),
    re.compile(
        r"vulnerability in (?P<type>\S+) package: (?P<name>\S+), version (?P<version>\S+) was found"
    ),
    re.compile(
        r" reports (?P<name>\S+) at version (?P<version>\S+) +which (?:is|would result in) "
        r"a vulnerable \((?P<type>[^()]+)\) package"
    ),
)

#: How Snyk's rules, and logical locations of Snyk and uv, name a package.
_NAME_AT_VERSION = re.compile(r"(?:\([^()]*\) )?(?P<name>@?[^\s@]+)@(?P<version>[^\s@]+)")
_ALSO_KNOWN_AS = re.compile(r"\(also known as ([^()]*)\)")
_QUOTED = re.compile(r"'([^']+)'")

#: Fixed versions in Trivy's message and help and in Grype's help, separated by commas.
_FIXED = re.compile(r"^Fix(?:ed)? Version: *(.+)$", re.MULTILINE)

#: Snyk's advice in a rule's help.
_UPGRADE = re.compile(
    r"\bUpgrade `?(?P<name>[^\s`]{1,214})`? to version (?P<fixes>[^\n]{1,500}?) or higher"
)

#: Cells of a row of osv-scanner's table, split at its bars: empty, advisory, package, version, empty.
_CELLS = 5

#: Identifiers that vulnerability databases assign.
_IDENTIFIER = re.compile(r"(?:CVE|GO|MAL|OSV|PYSEC|RUSTSEC)-\d{4}-\d+|GHSA(?:-[0-9a-z]{4}){3}")

#: Rule ids that name an advisory: Grype appends the package's name, and Trivy once wrote ``[HIGH]`` before
#: it. ``SNYK-CC-…`` is about the configuration of infrastructure.
_ADVISORY_RULE = re.compile(
    rf"(?:\[[A-Z]+\] )?(?:{_IDENTIFIER.pattern}|SNYK-(?!CC-)[A-Z0-9]+-|[a-z]+:[^\s:]+:\d{{8}}(?:-\d+)?$)"
)
_CWE = re.compile(r"\bcwe[-/]0*(\d+)", re.IGNORECASE)

#: uv's rules about projects (archived, quarantined …).
_UV_STATUS = "uv/project-status/"

#: Kinds of results that mean "no problem here", or "no longer".
_NO_FINDING = frozenset({"pass", "notApplicable", "informational"})


def read(log: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Yield everything that the runs of a log found. Raises AdvisoryError for another version of SARIF."""
    if log.get("version") != SARIF_VERSION:
        raise AdvisoryError(
            f"The input {source!r} is SARIF {text(log.get('version'))!r}, not {SARIF_VERSION}.",
            next_step=f"Have the scanner write SARIF {SARIF_VERSION}.",
        )
    yield from unread(log.get("runs"), f"{source}: runs")
    if not log.get("runs"):
        yield Skipped(source=source, reason="It has no runs: nothing was scanned.")
    for number, run in enumerate(mappings(log.get("runs"))):
        where = f"{source}: runs[{number}]"
        if not isinstance(run.get("results"), list):
            yield Skipped(source=where, reason="The run has no results: it was not carried out.")
        yield from unread(run.get("invocations"), where)
        if any(map(_has_failed, mappings(run.get("invocations")))):
            yield Skipped(source=where, reason="The run failed, so its results may be incomplete.")
        yield from unread(run.get("results"), where)
        rules = _Rules(run)
        for index, result in enumerate(mappings(run.get("results"))):
            yield from _found(_result_of(run, result, rules), f"{where}.results[{index}]")


def _has_failed(call: Mapping[str, Any]) -> bool:
    """Return whether a run failed. One that continues after an error reports it by a notification."""
    notifications = (
        *mappings(call.get("toolExecutionNotifications")),
        *mappings(call.get("toolConfigurationNotifications")),
    )
    failed = any(text(notification.get("level")) == "error" for notification in notifications)
    return failed or call.get("executionSuccessful") is False


def _found(item: _Result, where: str) -> Iterator[Found]:
    set_aside = _set_aside(item.result)
    package = _package(item)
    if set_aside:
        yield Skipped(source=where, reason=f"{item.rule_id or 'A result'}: {set_aside}.")
    elif item.rule_id.startswith(_UV_STATUS):
        reason = f"{item.message or item.rule_id}, which is not a vulnerability."
        yield Skipped(source=where, reason=reason, unknown=False)
    elif isinstance(package, Installed):
        yield from records(iter((_reported(item, package),)), where)
    elif isinstance(package, str) and (ids := _identifiers(item)):
        yield Named(ids, where, lacks=package)
    elif isinstance(package, str):
        yield Skipped(source=where, reason=f"{item.rule_id or 'A result'}: {package}.")
    else:
        yield _code_finding(item, where)


def _set_aside(result: Mapping[str, Any]) -> str:
    """Return, as a clause, why the report itself does not count a result; empty if it counts it."""
    kind = text(result.get("kind"))
    if kind in _NO_FINDING:
        return f"the report calls it {kind!r}"
    if text(result.get("baselineState")) == "absent":
        return "the report says that it is fixed"
    accepted = [
        suppression
        for suppression in mappings(result.get("suppressions"))
        if text(suppression.get("status")) not in ("underReview", "rejected")
    ]
    return "it is suppressed in the report" if accepted else ""


# --- A dependency ---------------------------------------------------------------------------------


def _package(item: _Result) -> Installed | str | None:
    """Return the package that a result is about, a clause if it can't be determined, or None for a finding
    in source code."""
    stated = _stated(item)
    files = [path for path, _region in item.locations]
    by_file = next(filter(None, map(ecosystem_of_file, files)), "")
    if stated is None and by_file:
        return "it points into a dependency file and names no package"
    if stated is None:
        is_advisory = _ADVISORY_RULE.match(item.rule_id)
        return "its rule is an advisory, and it names no package" if is_advisory else None
    tags = texts(mapping(item.rule.get("properties")).get("tags"))
    ecosystem = stated.ecosystem or by_file or next(filter(None, map(ecosystem_of_type, tags)), "")
    if not ecosystem:
        return f"the ecosystem of {stated.name} {stated.version} can't be determined from it"
    return stated._replace(ecosystem=ecosystem)


def _stated(item: _Result) -> Installed | None:
    """Return the package that the message, the properties or names state, or the package URL that matches
    it. If they state none, return the only package URL. The ecosystem may be empty."""
    bags = mapping(item.result.get("properties")), mapping(item.rule.get("properties"))
    urls = [purl for bag in bags for purl in _purls(bag)]
    stated = _from_message(item.message) or _from_properties(bags[0]) or _from_names(item)
    if stated is None:
        # A rule's package URLs are those of all its results: a single one is this result's.
        return urls[0] if len(set(urls)) == 1 else None
    matching = next(
        (
            url
            for url in urls
            if stated.version == url.version
            and stated.name in (url.name, url.name.rpartition("/")[2])
        ),
        None,
    )
    return matching or stated


def _purls(bag: Mapping[str, Any]) -> Iterator[Installed]:
    for key, value in bag.items():
        if key.lower() in ("purl", "purls", "packageurl"):
            yield from filter(None, map(from_purl, texts(value)))


def _from_message(message: str) -> Installed | None:
    for form in _MESSAGES:
        match = form.search(message)
        if match:
            groups = match.groupdict()
            ecosystem = ecosystem_of_type(groups.get("type") or "")
            return Installed(ecosystem, groups["name"], groups["version"])
    return None


def _from_names(item: _Result) -> Installed | None:
    """Return the package of a logical location, otherwise of the rule's description. Without a URL, a name
    and a version are a package's only if the rule is an advisory."""
    if url := next(filter(None, map(from_purl, item.logical_names)), None):
        return url
    if not _ADVISORY_RULE.match(item.rule_id):
        return None
    names = (*item.logical_names, words(item.rule.get("fullDescription")))
    match = next(filter(None, map(_NAME_AT_VERSION.fullmatch, names)), None)
    return None if match is None else Installed("", match["name"], match["version"])


def _plain(bag: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties by the letters of their names alone: ``uv/fixVersions`` becomes ``fixversions``."""
    return {
        re.sub(r"[^a-z]", "", key.lower().rpartition("/")[2]): value for key, value in bag.items()
    }


def _from_properties(bag: Mapping[str, Any]) -> Installed | None:
    plain = {key: text(value) for key, value in _plain(bag).items()}
    name = plain.get("packagename") or plain.get("pkgname") or plain.get("package")
    version = plain.get("packageversion") or plain.get("installedversion") or plain.get("version")
    if not name or not version:
        return None
    kind = plain.get("ecosystem") or plain.get("packagetype") or ""
    return Installed(ecosystem_of_type(kind), name, version)


def _identifiers(item: _Result) -> tuple[str, ...]:
    """Return the identifiers to look up the result's advisory by: that in the rule's id, or those that
    Snyk's rule has in parentheses."""
    if identifier := _IDENTIFIER.search(item.rule_id):
        return (identifier[0],)
    if not _ADVISORY_RULE.match(item.rule_id):
        return ()
    listed, closed, _rest = words(item.rule.get("fullDescription")).partition(")")
    return tuple(_IDENTIFIER.findall(listed)) if closed else ()


def _reported(item: _Result, package: Installed) -> Reported:
    match = next((hit for form in _MESSAGES if (hit := form.search(item.message))), None)
    bag = _plain(mapping(item.result.get("properties")))
    identifier = (match.groupdict().get("id") if match else None) or text(bag.get("displayid"))
    rule = _IDENTIFIER.search(item.rule_id)
    aliases = _ALSO_KNOWN_AS.search(item.message)
    return Reported(
        id=identifier or (rule[0] if rule else item.rule_id),
        ecosystem=package.ecosystem,
        package=package.name,
        versions=(package.version,),
        fixes=_fixes(item, package.name),
        aliases=(
            *(_QUOTED.findall(aliases[1]) if aliases else ()),
            *_identifiers(item),
            *texts(bag.get("aliases")),
        ),
        summary=words(item.rule.get("shortDescription")),
        details=words(item.rule.get("fullDescription")),
        cwe=_cwe(item.rule),
        url=text(item.rule.get("helpUri")),
    )


def _fixes(item: _Result, package: str) -> tuple[str, ...]:
    """Return fixed versions from the message or the rule's help, and from properties; maybe none."""
    help_of = mapping(item.rule.get("help"))
    help_text = words(help_of)[:MAX_HELP_LENGTH]
    bag = _plain(mapping(item.result.get("properties")))
    stated = [bag.get(key) for key in ("fixedversion", "fixedversions", "fixversions")]
    lines = _FIXED.findall(item.message[:MAX_HELP_LENGTH])
    fixed, advice, table = _of_help(
        help_text, text(help_of.get("markdown"))[:MAX_HELP_LENGTH], package
    )
    statements = [
        *(lines or fixed),
        *advice,
        *(version for value in stated for version in texts(value)),
    ]
    parts = (part.strip() for statement in statements for part in statement.split(","))
    return tuple(dict.fromkeys([*filter(None, parts), *table]))[:MAX_FIXES]


@lru_cache(maxsize=256)
def _of_help(
    help_text: str, markdown: str, package: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return what a rule's help says of fixed versions: in lines, as advice, in a table. Cached, since a
    log may have thousands of results of one rule."""
    advice = (
        match["fixes"].replace("`", "")
        for match in _UPGRADE.finditer(markdown)
        if match["name"] == package
    )
    parts = (_FIXED.findall(help_text), advice, _table(help_text, package))
    fixed, advised, table = (tuple(islice(dict.fromkeys(part), MAX_FIXES)) for part in parts)
    return fixed, advised, table


def _table(help_text: str, package: str) -> Iterator[str]:
    """Yield a package's fixed versions from osv-scanner's table of advisory, package and fixed version."""
    _, _, table = help_text.partition("Fixed Version")
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == _CELLS and cells[2] == package and cells[3]:
            yield cells[3]


# --- Source code ----------------------------------------------------------------------------------


def _code_finding(item: _Result, where: str) -> Found:
    rule = item.rule_id or "A result"
    for path, region in item.locations:
        start = region.get("startLine")
        if not isinstance(start, int) or start < 1:
            continue
        if not path or ".." in PurePosixPath(path).parts:
            return Skipped(source=where, reason=f"{rule}: its path {path!r} leaves the repository.")
        end = region.get("endLine")
        return CodeFinding(
            path=path,
            start_line=start,
            end_line=end if isinstance(end, int) and end >= start else start,
            rule_id=rule,
            message=item.message[:MAX_MESSAGE_LENGTH],
            cwe=_cwe(item.rule),
        )
    return Skipped(source=where, reason=f"{rule}: it names neither a package nor a line of a file.")


def _cwe(rule: Mapping[str, Any]) -> tuple[str, ...]:
    """Return CWE identifiers from tags (``external/cwe/cwe-079``, ``CWE-79: …``) and relationships to the
    CWE taxonomy."""
    bag = mapping(rule.get("properties"))
    labels = [*texts(bag.get("tags")), *texts(bag.get("cwe"))]
    for relation in mappings(rule.get("relationships")):
        target = mapping(relation.get("target"))
        if text(mapping(target.get("toolComponent")).get("name")).upper() == "CWE":
            labels.append(f"CWE-{text(target.get('id')).upper().removeprefix('CWE-')}")
    return tuple(
        dict.fromkeys(f"CWE-{number}" for label in labels for number in _CWE.findall(label))
    )
