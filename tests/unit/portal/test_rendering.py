"""Filters of the templates: what they let through."""

import pytest

from fallback_tier.portal.routing import code


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run `audit verify`, then go on.", "Run <code>audit verify</code>, then go on."),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
        ("one ` alone", "one ` alone"),
        ("plain", "plain"),
        ("`<b>` <script>", "<code>&lt;b&gt;</code> &lt;script&gt;"),
        ("`\u202e`", "<code>\\u202e</code>"),
    ],
)
def test_backticks_are_code_and_all_of_it_is_data(text: str, shown: str) -> None:
    assert code(text) == shown
