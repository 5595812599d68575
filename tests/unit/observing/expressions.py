"""What a PromQL expression names, held against the metrics that there really are."""

import re
from collections.abc import Iterator

import promql_parser
from prometheus_client import CollectorRegistry
from promql_parser import AggregateExpr, BinaryExpr, MatchOp, VectorSelector

from fallback_audit.events.attempt import TIER_OUTCOMES
from fallback_audit.vocabulary import BudgetLimit, CallType, Tier
from fallback_tier.service.queue import OrderState

#: What Prometheus adds to every series, and the metric that it makes of each scrape.
SCRAPED = frozenset({"job", "instance"})
ITS_OWN = frozenset({"up"})

#: Variables of Grafana's that stand for a time.
_INTERVAL = re.compile(r"\$__(rate_)?interval")

#: Label of a metric → the values that it may have, where they are closed.
VALUES: dict[tuple[str, str], frozenset[str]] = {
    ("fallback_tier_fixes_ended_total", "outcome"): frozenset(
        {"verified", "patched", "refused", "unknown", "escalated", "abandoned"}
    ),
    ("fallback_tier_tier_outcomes_total", "outcome"): frozenset(
        outcome for _, outcome in TIER_OUTCOMES.zeros
    ),
    ("fallback_tier_tier_outcomes_total", "tier"): frozenset(Tier),
    ("fallback_tier_budget_refusals_total", "limit"): frozenset(BudgetLimit),
    ("fallback_tier_queue_depth", "state"): frozenset(OrderState),
    ("llm_calls_total", "call_type"): frozenset(CallType),
    ("llm_calls_total", "outcome"): frozenset({"answered", "failed", "reused"}),
    ("http_request_duration_seconds_bucket", "method"): frozenset({"GET", "POST"}),
    ("http_requests_total", "status"): frozenset({"200", "404", "500", "503"}),
}


def samples(registry: CollectorRegistry) -> dict[str, frozenset[str]]:
    """The name of each sample that a scrape may have, and its labels."""
    found = {}
    for collector in registry._collector_to_names:
        own = frozenset(getattr(collector, "_labelnames", ()))
        for family in collector.describe():
            match family.type:
                case "counter":
                    found[f"{family.name}_total"] = own
                case "histogram":
                    found[f"{family.name}_bucket"] = own | {"le"}
                    found |= dict.fromkeys((f"{family.name}_sum", f"{family.name}_count"), own)
                case _:
                    found[family.name] = own
    return found


def parsed(expression: str) -> list[promql_parser.Expr]:
    """Every part of it. Raises ValueError."""
    parts: list[promql_parser.Expr] = []
    promql_parser.walk(promql_parser.parse(_INTERVAL.sub("5m", expression)), parts.append)
    return parts


def names_in(expression: str) -> set[str]:
    """The metrics that it names."""
    return {part.name for part in parsed(expression) if isinstance(part, VectorSelector)}


def problems(expression: str, known: dict[str, frozenset[str]]) -> Iterator[str]:
    """What it names that is not there: a metric, a label, a label's value."""
    parts = parsed(expression)
    labels: set[str] = set(SCRAPED)
    for part in parts:
        if isinstance(part, VectorSelector):
            if part.name in ITS_OWN:
                continue
            if part.name not in known:
                yield f"no metric {part.name}"
                continue
            labels |= known[part.name]
            yield from _matchers(part, known[part.name])
    for part in parts:
        for label in _grouped_by(part):
            if label not in labels:
                yield f"no label {label} in {expression}"


def _matchers(part: VectorSelector, own: frozenset[str]) -> Iterator[str]:
    for matcher in part.matchers.matchers:
        if matcher.name not in own | SCRAPED:
            yield f"no label {matcher.name} of {part.name}"
        values = VALUES.get((part.name, matcher.name))
        if values is None:
            if matcher.name in own:
                yield f"nobody says which values {matcher.name} of {part.name} has"
        elif not all(
            any(_matches(matcher.op, one, value) for value in values)
            for one in _alternatives(matcher.op, matcher.value)
        ):
            yield f"no value {matcher.value} of {matcher.name} of {part.name}"


def _alternatives(how: MatchOp, value: str) -> list[str]:
    return value.split("|") if how == MatchOp.Re else [value]


def _matches(how: MatchOp, wanted: str, value: str) -> bool:
    return re.fullmatch(wanted, value) is not None if how == MatchOp.Re else wanted == value


def _grouped_by(part: promql_parser.Expr) -> list[str]:
    if isinstance(part, AggregateExpr) and part.modifier is not None:
        return list(part.modifier.labels)
    if isinstance(part, BinaryExpr) and part.modifier is not None:
        matching = part.modifier.matching
        return [*(matching.labels if matching else ()), *(part.modifier.group_labels or ())]
    return []
