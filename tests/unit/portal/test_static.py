"""What is vendored is what was published, and the pages can be read: contrast from the style itself."""

import hashlib
import re
from importlib.resources import files

import pytest

STATIC = files("fallback_tier.portal") / "static"

#: htmx.org 4.0.1, dist/htmx.min.js of its npm package.
HTMX_SHA256 = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"

#: Text, and what it stands on, as portal.css pairs them.
PAIRS = [
    *((text, ground) for text in ("ink", "dim") for ground in ("paper", "card", "quiet")),
    *(("accent", ground) for ground in ("paper", "card", "quiet")),
    ("on-accent", "accent"),
    *((name, f"{name}-soft") for name in ("good", "bad", "warn", "fresh")),
    *((name, ground) for name in ("good", "bad", "warn") for ground in ("card", "paper")),
    ("bad", "card"),
    *((text, ground) for text in ("ink", "dim") for ground in ("add", "del")),
]


def test_htmx_is_what_was_published() -> None:
    assert hashlib.sha256((STATIC / "htmx.min.js").read_bytes()).hexdigest() == HTMX_SHA256
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE.txt").read_text()


def colours(css: str) -> tuple[dict[str, str], dict[str, str]]:
    """Light and dark."""
    light, dark = css.split("@media (prefers-color-scheme: dark)", 1)
    found = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in (light, dark)]
    return found[0], {**found[0], **found[1]}


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_can_be_read(text: str, ground: str, scheme: int) -> None:
    found = colours((STATIC / "portal.css").read_text())[scheme]
    assert contrast(found[text], found[ground]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["card", "add", "del"])
def test_code_can_be_read(ground: str, scheme: int) -> None:
    grounds = colours((STATIC / "portal.css").read_text())[scheme]
    parts = (STATIC / "code.css").read_text().split("@media (prefers-color-scheme: dark)", 1)
    for colour in re.findall(r"color: (#[0-9a-f]{6})", parts[scheme]):
        assert contrast(colour, grounds[ground]) >= 4.5, colour


def test_colours_stand_in_one_place() -> None:
    rules = (STATIC / "portal.css").read_text().split("*, ::before", 1)[1]
    assert re.findall(r"#[0-9a-f]{3,6}\b", rules) == []


@pytest.mark.parametrize("name", ["portal.css", "code.css"])
def test_dark_is_other_colours_and_nothing_else(name: str) -> None:
    """Whatever else a page is asked is asked of it in one scheme (``tests/browser/axe.py``)."""
    css = (STATIC / name).read_text()
    dark = css.split("@media (prefers-color-scheme: dark) {\n", 1)[1].split("\n}", 1)[0]
    rules = re.findall(r"\{([^{}]*)\}", dark)
    said = [one.strip() for rule in rules for one in rule.split(";") if one.strip()]
    assert said
    assert [one for one in said if not re.fullmatch(r"(--[a-z-]+|color): #[0-9a-f]{6}", one)] == []
    assert css.count("prefers-color-scheme") == 1


def test_a_contrast_that_is_known() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
