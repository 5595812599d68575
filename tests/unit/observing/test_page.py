"""docs/observability.md names every metric as it really is; a test that fails prints the table."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from fallback_tier.observing.metrics import Families

PAGE = Path(__file__).parents[3] / "docs" / "observability.md"


def table() -> str:
    rows = ["| metric | kind | labels | what |", "|---|---|---|---|"]
    registry = CollectorRegistry()
    for metric in Families(registry).all:
        (family,) = metric.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(rows)


def test_the_page_has_every_metric() -> None:
    text = PAGE.read_text()
    assert text.partition("<!-- metrics -->\n")[2].partition("\n<!-- end -->")[0] == table(), (
        table()
    )
