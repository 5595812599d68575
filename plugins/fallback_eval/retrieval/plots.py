"""The plots of a report, as SVG. Needs the extra ``eval`` (matplotlib).

The same figures draw the same bytes (fixed ids, no date), so that a plot changes in a commit only
where a figure did.
"""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from fallback_eval.retrieval.abstention import Routed, operating_curve
from fallback_eval.retrieval.analysis import PRIMARY, Analysis, K
from fallback_eval.retrieval.results import DEFAULT, DEPTH

if TYPE_CHECKING:  # half a second, which only who draws needs
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Inches.
_WIDTH, _ROW, _HEIGHT = 8.0, 0.22, 4.0
#: The variants that a plot of curves shows: more lines can't be told apart.
_LINES = 4

QUALITY, CURVE, ABSTENTION, LATENCY = "quality", "quality-against-k", "abstention", "latency"


def plots(
    analysis: Analysis, routed: Mapping[str, Sequence[Routed]], shown: Sequence[str]
) -> dict[str, str]:
    """Name → SVG. ``shown``: the variants that curves are drawn for, most important first."""
    lines = [name for name in shown if name in analysis.summaries][:_LINES]
    return {
        QUALITY: _quality(analysis),
        CURVE: _curve(analysis, lines),
        ABSTENTION: _abstention({name: routed[name] for name in lines}),
        LATENCY: _latency(analysis, lines),
    }


def _quality(analysis: Analysis) -> str:
    names = list(reversed(list(analysis.summaries)))
    figure, axes = new_figure(1 + _ROW * len(names))
    for row, name in enumerate(names):
        value = analysis.summaries[name].figures[PRIMARY]
        if value is not None:
            colour = "tab:red" if name == DEFAULT else "tab:blue"
            axes.plot([value.low, value.high], [row, row], color=colour, linewidth=1.5)
            axes.plot(value.mean, row, "o", color=colour, markersize=4)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xlabel(f"{PRIMARY}, mean and 95 % bootstrap interval over queries")
    axes.grid(axis="x", alpha=0.3)
    return svg_of(figure)


def _curve(analysis: Analysis, lines: Sequence[str]) -> str:
    figure, axes = new_figure()
    for colour, name in enumerate(lines):
        for style, metric in (("-", "nDCG"), ("--", "hit-rate"), (":", "precision")):
            values = [float("nan") if one is None else one for one in analysis.curves[name][metric]]
            label = f"{name}: {metric}"
            axes.plot(range(1, DEPTH + 1), values, style, color=f"C{colour}", label=label)
    axes.axvline(K, color="grey", linewidth=0.8)
    axes.set_xlabel("k")
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    return svg_of(figure)


def _abstention(routed: Mapping[str, Sequence[Routed]]) -> str:
    figure, axes = new_figure()
    for name, ones in routed.items():
        curve = operating_curve(ones)
        axes.step(
            [one.wrongly for one in curve], [one.rightly for one in curve], where="post", label=name
        )
    axes.set_xlabel("answerable queries wrongly missed")
    axes.set_ylabel("nothing-here queries rightly missed")
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    return svg_of(figure)


def _latency(analysis: Analysis, named: Sequence[str]) -> str:
    figure, axes = new_figure()
    for name, summary in analysis.summaries.items():
        value = summary.figures[PRIMARY]
        if summary.timing is not None and value is not None and summary.timing.median > 0:
            colour = "tab:red" if name == DEFAULT else "tab:blue"
            axes.plot(summary.timing.median, value.mean, "o", color=colour, markersize=4)
            if name in named:
                axes.annotate(name, (summary.timing.median, value.mean), fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("median milliseconds a query")
    axes.set_ylabel(PRIMARY)
    axes.grid(alpha=0.3)
    return svg_of(figure)


def new_figure(height: float = _HEIGHT) -> "tuple[Figure, Axes]":
    """An empty plot of the report's width; ``height`` in inches."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def legend_below(figure: "Figure", axes: "Axes") -> None:
    """Below the axes: inside it would hide curves."""
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize=7, loc="outside lower center", ncols=3)


def svg_of(figure: "Figure") -> str:
    """The same figure gives the same bytes."""
    import matplotlib as mpl

    out = StringIO()
    with mpl.rc_context():
        mpl.rcParams["svg.fonttype"] = "none"  # text stays text: smaller, and searchable
        mpl.rcParams["svg.hashsalt"] = "fallback-tier"  # ids don't change from run to run
        figure.savefig(out, format="svg", metadata={"Date": None})
    # The prologue names a DTD on the network; inside a page it has no place either.
    return out.getvalue().partition("?>")[2].partition('.dtd">')[2].strip() + "\n"
