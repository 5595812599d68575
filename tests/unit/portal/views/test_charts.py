from decimal import Decimal

from fallback_tier.portal.pages.overview import DAYS, HEIGHT, days_to, stacked


def test_bars_stand_on_each_other_and_none_is_taller_than_the_picture() -> None:
    days = days_to("2026-03-01")
    assert (len(days), days[0], days[-1]) == (DAYS, "2026-02-16", "2026-03-01")
    one = [0] * (DAYS - 1) + [3]
    other = [0] * (DAYS - 2) + [2, 1]
    chart = stacked("x", days, {("a", "s-a"): one, ("b", "s-b"): other})
    assert [(bar.tone, round(bar.y), round(bar.height)) for bar in chart.bars] == [
        ("s-b", HEIGHT // 2, HEIGHT // 2),
        ("s-a", HEIGHT // 4, HEIGHT * 3 // 4),
        ("s-b", 0, HEIGHT // 4),
    ]
    assert chart.rows == (("2026-02-28", ("0", "2")), ("2026-03-01", ("3", "1")))
    assert (chart.top, chart.total) == ("4", "6")


def test_dollars_and_days_without_anything() -> None:
    days = days_to("2026-03-01")
    chart = stacked("x", days, {("a", "s-a"): [Decimal("0.0123")] + [Decimal(0)] * (DAYS - 1)}, "$")
    assert chart.total == "$0.0123"
    assert stacked("x", days, {("a", "s-a"): [0] * DAYS}).is_empty
