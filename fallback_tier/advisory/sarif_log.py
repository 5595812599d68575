"""SARIF's own indirections: a result's rule, its texts and its places, wherever the log keeps them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from fallback_tier.advisory.found import mapping, mappings, text


class Result(NamedTuple):
    """A result with the rule that it refers to, and where it points."""

    result: Mapping[str, Any]
    rule: Mapping[str, Any]
    locations: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def message(self) -> str:
        """What the tool says of it."""
        return words(self.result.get("message"))

    @property
    def rule_id(self) -> str:
        """The rule's identifier; for scanners of dependencies often an advisory's."""
        return text(self.result.get("ruleId")) or text(self.rule.get("id"))


class Rules:
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


def result_of(run: Mapping[str, Any], result: Mapping[str, Any], rules: Rules) -> Result:
    """A result of a run, with everything that it refers to."""
    return Result(result, rules.of(result), tuple(_locations(run, result)))


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
