"""The dashboard and the alerts ask for metrics that there are, by labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from fallback_tier.observing.metrics import Families
from tests.unit.observing.expressions import ITS_OWN, names_in, problems, samples

DOCS = Path(__file__).parents[3] / "docs"
ALERTS = DOCS / "observability" / "alerts.yml"
DASHBOARD = DOCS / "observability" / "dashboard.json"


@pytest.fixture
def known() -> dict[str, frozenset[str]]:
    return real()


def real() -> dict[str, frozenset[str]]:
    registry = CollectorRegistry()
    Families(registry)
    return samples(registry)


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def targets() -> Iterator[tuple[str, str]]:
    """Expression and legend."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]
    for annotation in dashboard()["annotations"]["list"]:
        yield annotation["expr"], annotation["titleFormat"]


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [expression for expression, _ in targets()]


def test_every_expression_names_what_there_is(known: dict[str, frozenset[str]]) -> None:
    assert len(expressions()) > 50
    assert [message for one in expressions() for message in problems(one, known)] == []


@pytest.mark.parametrize(
    "gone", sorted({name for one in expressions() for name in names_in(one)} - ITS_OWN)
)
def test_a_metric_that_is_taken_away_is_missed(known: dict[str, frozenset[str]], gone: str) -> None:
    del known[gone]
    assert f"no metric {gone}" in [
        message for one in expressions() for message in problems(one, known)
    ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("sum(no_such_metric)", "no metric no_such_metric"),
        ("llm_tokens_total{kind='input'}", "no label kind of llm_tokens_total"),
        ("sum by (model) (llm_tokens_total)", "no label model in"),
        ("up * on (model) fallback_tier_ready", "no label model in"),
        ("up * on (job) group_left (model) fallback_tier_ready", "no label model in"),
        ('llm_calls_total{outcome="lost"}', "no value lost of outcome"),
        ('llm_calls_total{outcome=~"failed|lost"}', "no value failed|lost of outcome"),
        ('llm_tokens_total{direction="input"}', "nobody says which values direction"),
        ("rag_phase_duration_seconds", "no metric rag_phase_duration_seconds"),
    ],
)
def test_what_is_wrong_would_be_found(
    known: dict[str, frozenset[str]], wrong: str, says: str
) -> None:
    assert any(message.startswith(says) for message in problems(wrong, known))


def test_what_is_no_expression_would_be_found(known: dict[str, frozenset[str]]) -> None:
    with pytest.raises(ValueError):
        list(problems("sum by (", known))


def test_every_metric_is_shown_or_alerted_on(known: dict[str, frozenset[str]]) -> None:
    used = {name for one in expressions() for name in names_in(one)}
    histograms = {name.removesuffix("_bucket") for name in known if name.endswith("_bucket")}
    wanted = {
        name
        for name in known
        if not name.endswith(("_sum", "_count")) or name.rpartition("_")[0] not in histograms
    }
    assert wanted - used == set()


def test_each_alert_is_whole() -> None:
    assert len(rules()) == 15
    assert len({rule["alert"] for rule in rules()}) == 15
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule
        assert rule["annotations"]["summary"].endswith("."), rule
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule


def test_each_legend_names_labels_of_its_metrics(known: dict[str, frozenset[str]]) -> None:
    for expression, legend in targets():
        own = set().union(*(known[name] for name in names_in(expression)))
        assert set(re.findall(r"{{(\w+)}}", legend)) <= own, (expression, legend)


def test_the_panels_stand_side_by_side() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
