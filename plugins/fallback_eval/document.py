"""A report before it is Markdown or HTML: one content, two shapes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    # numpy comes with the extra `eval`; a report without intervals needs none.
    from fallback_eval.statistics import Interval


#: Stands where a figure is not defined.
_NOTHING = "-"


@dataclass(frozen=True)
class Table:
    """Rows of plain text under a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, tables and at most one plot (its name)."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    plot: str = ""


@dataclass(frozen=True)
class Document:
    """A whole page."""

    title: str
    intro: Sequence[str]
    sections: Sequence[Section]


def markdown(document: Document) -> str:
    """For reading in a repository; plots are files beside it."""
    return _environment().get_template("report.md.j2").render(page=document)


def html(document: Document, plots: Mapping[str, str]) -> str:
    """For a browser: one file with its plots (name → SVG) inside, no script, nothing fetched."""
    return _environment().get_template("report.html.j2").render(page=document, plots=plots)


def number(value: float | None) -> str:
    """Three digits, as the intervals deserve; a dash where nothing is defined."""
    return _NOTHING if value is None else f"{value:.3f}"


def p_value(value: float) -> str:
    """As ``number``, but never 0: no test of so many resamples can say so."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def mean_of(value: "Interval | None") -> float | None:
    """An interval's middle."""
    return None if value is None else value.mean


def percent(value: float | None) -> str:
    """A share in per cent."""
    return _NOTHING if value is None else f"{value * 100:.0f} %"


def with_interval(value: "Interval | None") -> str:
    """``0.812 [0.750, 0.869]``."""
    return _NOTHING if value is None else f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def signed(value: "Interval") -> str:
    """As ``with_interval``, for a difference."""
    return f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("fallback_eval"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = _cell
    environment.filters["inline"] = _inline
    return environment


def _cell(text: str) -> str:
    """A text inside a Markdown table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def _inline(text: str) -> "Markup":
    """A paragraph's `code` in HTML; everything else escaped."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704
