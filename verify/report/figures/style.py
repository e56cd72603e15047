"""The one style of all figures: sizes, fonts, colours that the colour-blind tell apart, integer ticks, stems, and legends beside the data.

A figure is a function that returns a matplotlib page; `figure` makes it one that writes a file, whose suffix says what it is. Pages are
made without pyplot, so that the state of a notebook's own figures stays as it is.
"""

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from analyzer.errors import InputError

SUFFIXES = (".pdf", ".png", ".svg")
"""Kinds of files."""
DPI = 200
"""Dots per inch of PNG files: 2.5 columns of print, or a lecture hall's screen."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours, without the yellow that is lost on white."""
GREY = "#7f7f7f"
VERDICTS = {"holds": COLOURS[2], "refuted": COLOURS[1], "undecided": GREY}
"""Points by what is known of them; markers differ too (`MARKS`)."""
MARKS = {"holds": "o", "refuted": "X", "undecided": "D"}
DASHES = {"certified": "-", "bound": ":"}
"""Of one method both are drawn in one colour."""
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.hashsalt": "lemmaformer",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
}
Given = ParamSpec("Given")


def check_suffix(path: Path) -> None:
    """Refuse a file of another kind than PDF, SVG or PNG."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot draw {str(path)[:80]}: the name of a figure ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def figure(draw: Callable[Given, Any]) -> Callable[Concatenate[Path, Given], bool]:
    """`draw` as a function that writes a file, whole or not at all; it says False where matplotlib is not installed.

    What is there is replaced; the undecorated function is its attribute `__wrapped__`.
    """

    @wraps(draw)
    def written(path: Path, *args: Given.args, **kwargs: Given.kwargs) -> bool:
        check_suffix(path)
        try:
            import matplotlib
        except ImportError:
            return False
        from constructions.files.places import write_file

        kind, content = path.suffix.lower()[1:], io.BytesIO()
        with matplotlib.rc_context(STYLE):
            page = draw(*args, **kwargs)
            undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[kind]  # the same data, the same file
            page.savefig(content, format=kind, dpi=DPI, metadata=undated)
        write_file(path, content.getvalue(), overwrite=True)
        return True

    return written


def panels(rows: int = 1, columns: int = 1, size: tuple[float, float] = (6.4, 3.6), **shared: Any) -> tuple[Any, Any]:
    """A page of `size` inches with its axes, as `pyplot.subplots` returns them."""
    from matplotlib.figure import Figure

    page = Figure(figsize=size)
    return page, page.subplots(rows, columns, **shared)


def colour(k: int) -> str:
    """The k-th colour."""
    return COLOURS[k % len(COLOURS)]


def titled(axes: Any, text: str, **labels: str) -> None:
    """A title in lines that are as wide as there is room, and the names of the axes; that of a page's only axes is the page's."""
    page = axes.get_figure()
    columns = axes.get_gridspec().ncols
    lines = "\n".join(textwrap.wrap(text, max(24, int(page.get_figwidth() / columns * 10))))
    if len(page.axes) == 1:
        page.suptitle(lines, fontsize=STYLE["axes.titlesize"])
    else:
        axes.set_title(lines)
    axes.set(**labels)


def nothing(axes: Any, text: str) -> None:
    """What is said where there is nothing to draw: then there are no axes either."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)


def stems(axes: Any, values: Sequence[float], paint: str, label: str | None = None, shift: float = 0.0, mark: str = "o") -> None:
    """A kernel κ(0), κ(1), …: a function of whole numbers has stems, not a line."""
    places = [s + shift for s in range(len(values))]
    axes.vlines(places, 0, values, color=paint, linewidth=1.2)
    axes.plot(places, values, mark, color=paint, label=label)
    axes.axhline(0, color=GREY, linewidth=0.6, zorder=0)
    whole(axes.xaxis)


def whole(axis: Any) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def whole_log(axis: Any, values: Sequence[int]) -> None:
    """A logarithmic axis of whole numbers: ticks at the numbers that occur, thinned where they are many, and none between."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    found = sorted({int(v) for v in values if v > 0})
    if not found:
        return
    room = math.log(max(found[-1] / found[0], 1.0001)) / 9  # a tick takes the width of about a ninth of the axis
    kept: list[int] = []
    for value in found:
        if not kept or math.log(value / kept[-1]) >= room:
            kept.append(value)
    axis.set_major_locator(FixedLocator(kept))
    axis.set_major_formatter(FixedFormatter([str(value) if value < 100_000 else f"{value:.0e}" for value in kept]))
    axis.set_minor_locator(NullLocator())


def both_signs(axes: Any, small: float, largest: float) -> None:
    """A vertical axis that is logarithmic on both sides of ±`small`, with seven ticks at most and room for the largest values."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    low, high = math.ceil(math.log10(small)), math.ceil(math.log10(largest))
    powers = [k for k in range(low, high + 1) if (high - k) % max(1, math.ceil((high - low) / 3)) == 0 and k > low]
    axes.set_yscale("symlog", linthresh=small, linscale=0.5)
    axes.set_ylim(-(10.0 ** (high + 1)), 10.0 ** (high + 1))
    signed = [(-(10.0**k), f"$-10^{{{k}}}$") for k in reversed(powers)] + [(0.0, "0")] + [(10.0**k, f"$10^{{{k}}}$") for k in powers]
    axes.yaxis.set_major_locator(FixedLocator([place for place, _ in signed]))
    axes.yaxis.set_major_formatter(FixedFormatter([text for _, text in signed]))
    axes.yaxis.set_minor_locator(NullLocator())


def legend(axes: Any, title: str | None = None) -> None:
    """What the curves are, to the right of the axes, where it covers nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, title=title)


def legend_below(page: Any, handles: Sequence[Any] | None = None, columns: int = 4, title: str | None = None) -> None:
    """One legend for all axes, below them; each label once."""
    named: dict[str, Any] = {}
    for axes in page.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    found = list(named.values()) if handles is None else list(handles)
    texts = list(named) if handles is None else [handle.get_label() for handle in found]
    if found:
        page.legend(found, texts, loc="outside lower center", ncols=min(columns, len(found)), title=title)
