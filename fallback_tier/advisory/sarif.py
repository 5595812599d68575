"""SARIF 2.1.0: findings in source code (CodeQL, Semgrep …), and dependencies as scanners put them there.

SARIF has no place for "package X, version Y". osv-scanner, Trivy, Grype, Snyk and uv each write it in
words of their own into the message, the rule's texts, logical locations and property bags; it is read from
there. A result of which the rule is a database's advisory is about a dependency, whatever file it points
to: without a package it is looked up by its rule, or skipped with that reason.
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

# SARIF's own indirections: a result's rule, its texts and its places, wherever the log keeps them.


class _Result(NamedTuple):
    result: Mapping[str, Any]
    rule: Mapping[str, Any]
    locations: tuple[tuple[str, Mapping[str, Any]], ...]
    #: What the result calls its logical locations: a function, or a package.
    logical_names: tuple[str, ...]

    @property
    def message(self) -> str:
        """What the tool says of it."""
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
        """The rule of a result: by index in the driver or an extension, else by id there."""
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
        # The log outlives this, so an id() stands for one array. Of two rules, the first one counts.
        if id(rules) not in self._by_name:
            named: dict[str, Mapping[str, Any]] = {}
            for rule in mappings(rules):
                named.setdefault(text(rule.get("id")), rule)
            self._by_name[id(rules)] = named
        return self._by_name[id(rules)]


def _result_of(run: Mapping[str, Any], result: Mapping[str, Any], rules: _Rules) -> _Result:
    places = [
        place
        for location in mappings(result.get("locations"))
        for place in mappings(location.get("logicalLocations"))
    ]
    names = (text(place.get("fullyQualifiedName")) for place in places)
    return _Result(result, rules.of(result), tuple(_locations(run, result)), tuple(names))


def words(message: object) -> str:
    """A SARIF message's text; where a tool gives only Markdown, that."""
    reported = mapping(message)
    return text(reported.get("text")) or text(reported.get("markdown"))


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
    """A relative reference or a file URI as a path."""
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

#: Fixed versions of one result that count: a package has a few release lines. Without the others, a line of
#: theirs is affected.
MAX_FIXES = 64

#: A rule's help is searched once a package; osv-scanner's tables take a few thousand characters.
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

#: How Snyk's rules, and logical locations of Snyk and uv, name one.
_NAME_AT_VERSION = re.compile(r"(?:\([^()]*\) )?(?P<name>@?[^\s@]+)@(?P<version>[^\s@]+)")
_ALSO_KNOWN_AS = re.compile(r"\(also known as ([^()]*)\)")
_QUOTED = re.compile(r"'([^']+)'")

#: Fixed versions: Trivy's message and help, Grype's help; several are parted by commas.
_FIXED = re.compile(r"^Fix(?:ed)? Version: *(.+)$", re.MULTILINE)

#: Snyk's advice in a rule's help.
_UPGRADE = re.compile(
    r"\bUpgrade `?(?P<name>[^\s`]{1,214})`? to version (?P<fixes>[^\n]{1,500}?) or higher"
)

#: A row of osv-scanner's table, split at its bars: nothing, advisory, package, version, nothing.
_CELLS = 5

#: Identifiers that databases give.
_IDENTIFIER = re.compile(r"(?:CVE|GO|MAL|OSV|PYSEC|RUSTSEC)-\d{4}-\d+|GHSA(?:-[0-9a-z]{4}){3}")

#: Rules of which the whole is one: Grype appends the package's name, and Trivy once wrote ``[HIGH]`` before
#: it. ``SNYK-CC-…`` is about the configuration of infrastructure.
_ADVISORY_RULE = re.compile(
    rf"(?:\[[A-Z]+\] )?(?:{_IDENTIFIER.pattern}|SNYK-(?!CC-)[A-Z0-9]+-|[a-z]+:[^\s:]+:\d{{8}}(?:-\d+)?$)"
)
_CWE = re.compile(r"\bcwe[-/]0*(\d+)", re.IGNORECASE)

#: uv's rules about projects (archived, quarantined …).
_UV_STATUS = "uv/project-status/"

#: Results that say "no problem here", or "not any more".
_NO_FINDING = frozenset({"pass", "notApplicable", "informational"})


def read(log: Mapping[str, Any], source: str) -> Iterator[Found]:
    """Everything that the runs of a log found. Raises AdvisoryError: another version of SARIF."""
    if log.get("version") != SARIF_VERSION:
        raise AdvisoryError(
            f"The input {source!r} is SARIF {text(log.get('version'))!r}, not {SARIF_VERSION}.",
            next_step=f"Have the scanner write SARIF {SARIF_VERSION}.",
        )
    yield from unread(log.get("runs"), f"{source}: runs")
    if not log.get("runs"):
        yield Skipped(source=source, reason="It has no runs: nothing was scanned.")
    for number, run in enumerate(mappings(log.get("runs"))):
        there = f"{source}: runs[{number}]"
        if not isinstance(run.get("results"), list):
            yield Skipped(source=there, reason="The run has no results: it was not carried out.")
        yield from unread(run.get("invocations"), there)
        if any(map(_has_failed, mappings(run.get("invocations")))):
            yield Skipped(source=there, reason="The run failed, so its results may be incomplete.")
        yield from unread(run.get("results"), there)
        rules = _Rules(run)
        for place, result in enumerate(mappings(run.get("results"))):
            yield from _found(_result_of(run, result, rules), f"{there}.results[{place}]")


def _has_failed(call: Mapping[str, Any]) -> bool:
    """A run that goes on after an error reports it by a notification."""
    notifications = (
        *mappings(call.get("toolExecutionNotifications")),
        *mappings(call.get("toolConfigurationNotifications")),
    )
    failed = any(text(it.get("level")) == "error" for it in notifications)
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
    """Why the report itself does not count a result, as a clause; empty where it does."""
    kind = text(result.get("kind"))
    if kind in _NO_FINDING:
        return f"the report calls it {kind!r}"
    if text(result.get("baselineState")) == "absent":
        return "the report says that it is fixed"
    accepted = [
        it
        for it in mappings(result.get("suppressions"))
        if text(it.get("status")) not in ("underReview", "rejected")
    ]
    return "it is suppressed in the report" if accepted else ""


# --- A dependency ---------------------------------------------------------------------------------


def _package(item: _Result) -> Installed | str | None:
    """The package a result is about; a clause where it can't be told; None: it is about source."""
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
    """From a package URL, else from the message, else from properties; the ecosystem may be open."""
    bags = mapping(item.result.get("properties")), mapping(item.rule.get("properties"))
    urls = [purl for bag in bags for purl in _purls(bag)]
    named = _from_message(item.message) or _from_properties(bags[0]) or _from_names(item)
    if named is None:
        # A rule's package URLs are those of all its results: alone they tell only if there is one.
        return urls[0] if len(set(urls)) == 1 else None
    known = next(
        (
            url
            for url in urls
            if named.version == url.version
            and named.name in (url.name, url.name.rpartition("/")[2])
        ),
        None,
    )
    return known or named


def _purls(bag: Mapping[str, Any]) -> Iterator[Installed]:
    for key, value in bag.items():
        if key.lower() in ("purl", "purls", "packageurl"):
            yield from filter(None, map(from_purl, texts(value)))


def _from_message(message: str) -> Installed | None:
    for form in _MESSAGES:
        found = form.search(message)
        if found:
            groups = found.groupdict()
            ecosystem = ecosystem_of_type(groups.get("type") or "")
            return Installed(ecosystem, groups["name"], groups["version"])
    return None


def _from_names(item: _Result) -> Installed | None:
    """The package of a logical location, else of the rule's description. Without a URL, a name and a
    version are a package's only if the rule is an advisory."""
    if url := next(filter(None, map(from_purl, item.logical_names)), None):
        return url
    if not _ADVISORY_RULE.match(item.rule_id):
        return None
    names = (*item.logical_names, words(item.rule.get("fullDescription")))
    found = next(filter(None, map(_NAME_AT_VERSION.fullmatch, names)), None)
    return None if found is None else Installed("", found["name"], found["version"])


def _plain(bag: Mapping[str, Any]) -> dict[str, Any]:
    """The properties by the letters of their names alone: ``uv/fixVersions`` is ``fixversions``."""
    return {re.sub(r"[^a-z]", "", key.lower().rpartition("/")[2]): it for key, it in bag.items()}


def _from_properties(bag: Mapping[str, Any]) -> Installed | None:
    plain = {key: text(value) for key, value in _plain(bag).items()}
    name = plain.get("packagename") or plain.get("pkgname") or plain.get("package")
    version = plain.get("packageversion") or plain.get("installedversion") or plain.get("version")
    if not name or not version:
        return None
    kind = plain.get("ecosystem") or plain.get("packagetype") or ""
    return Installed(ecosystem_of_type(kind), name, version)


def _identifiers(item: _Result) -> tuple[str, ...]:
    """What the result's advisory can be looked up by: the rule's identifier, or those that Snyk's rule has
    in parentheses."""
    if identifier := _IDENTIFIER.search(item.rule_id):
        return (identifier[0],)
    if not _ADVISORY_RULE.match(item.rule_id):
        return ()
    listed, closed, _rest = words(item.rule.get("fullDescription")).partition(")")
    return tuple(_IDENTIFIER.findall(listed)) if closed else ()


def _reported(item: _Result, package: Installed) -> Reported:
    found = next((it for form in _MESSAGES if (it := form.search(item.message))), None)
    bag = _plain(mapping(item.result.get("properties")))
    stated = (found.groupdict().get("id") if found else None) or text(bag.get("displayid"))
    rule = _IDENTIFIER.search(item.rule_id)
    aliases = _ALSO_KNOWN_AS.search(item.message)
    return Reported(
        id=stated or (rule[0] if rule else item.rule_id),
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
    """Fixed versions: from the message, the rule's help, or a property; none where none is named."""
    help_of = mapping(item.rule.get("help"))
    help_text = words(help_of)[:MAX_HELP_LENGTH]
    bag = _plain(mapping(item.result.get("properties")))
    stated = [bag.get(key) for key in ("fixedversion", "fixedversions", "fixversions")]
    lines = _FIXED.findall(item.message[:MAX_HELP_LENGTH])
    fixed, advice, table = _of_help(
        help_text, text(help_of.get("markdown"))[:MAX_HELP_LENGTH], package
    )
    found = [*(lines or fixed), *advice, *(it for value in stated for it in texts(value))]
    parts = (part.strip() for it in found for part in it.split(","))
    return tuple(dict.fromkeys([*filter(None, parts), *table]))[:MAX_FIXES]


@lru_cache(maxsize=256)
def _of_help(
    help_text: str, markdown: str, package: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return what a rule's help says of fixed versions: in lines, as advice, in a table. A log may have
    thousands of results of one rule."""
    advice = (
        found["fixes"].replace("`", "")
        for found in _UPGRADE.finditer(markdown)
        if found["name"] == package
    )
    parts = (_FIXED.findall(help_text), advice, _table(help_text, package))
    fixed, advised, table = (tuple(islice(dict.fromkeys(part), MAX_FIXES)) for part in parts)
    return fixed, advised, table


def _table(help_text: str, package: str) -> Iterator[str]:
    """osv-scanner's rows of advisory, package and fixed version."""
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
    """From tags (``external/cwe/cwe-079``, ``CWE-79: …``) or from a relationship to the CWE taxonomy."""
    bag = mapping(rule.get("properties"))
    words = [*texts(bag.get("tags")), *texts(bag.get("cwe"))]
    for relation in mappings(rule.get("relationships")):
        target = mapping(relation.get("target"))
        if text(mapping(target.get("toolComponent")).get("name")).upper() == "CWE":
            words.append(f"CWE-{text(target.get('id')).upper().removeprefix('CWE-')}")
    return tuple(dict.fromkeys(f"CWE-{number}" for it in words for number in _CWE.findall(it)))
