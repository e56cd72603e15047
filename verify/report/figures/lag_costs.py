"""What a lag costs by relative and by absolute positions, as a figure."""

from typing import Any

from verify.report.figures.style import GREY, colour, figure, legend_below, panels, titled, whole_log


@figure
def costs(result: dict[str, Any]) -> Any:
    """Heads times layers on the left, bits on the right, both against the lag; float types are dotted lines."""
    page, (heads, bits) = panels(1, 2, size=(8.4, 3.8))
    rows = result["rows"]
    lags = [row["lag"] for row in rows]
    curves = [
        ("relative, one layer", "relative_heads", "relative_bits", "o-"),
        ("relative, lin and log mixed", "mixed_heads", None, "s-"),
        ("relative, one head in T layers", "deep_layers", "deep_bits", "^--"),
        ("absolute, one head", "absolute_heads", "absolute_bits", "D-"),
    ]
    for k, (label, count, precision, style) in enumerate(curves):
        heads.loglog(lags, [row[count] for row in rows], style, color=colour(k), label=label)
        if precision is not None:
            bits.loglog(lags, [row[precision] for row in rows], style, color=colour(k), label=label)
    for name, size in result["dtypes"].items():
        bits.axhline(size, color=GREY, linewidth=0.8, linestyle=":")
        bits.annotate(name, (lags[-1], size), color=GREY, fontsize=7, va="bottom", ha="right")
    for axes in (heads, bits):
        whole_log(axes.xaxis, lags)
    titled(heads, "heads in all layers", xlabel="lag T", ylabel="heads")
    titled(bits, f"bits for an error below {result['error']:g}: needed (relative), enough (absolute)", xlabel="lag T", ylabel="bits")
    legend_below(page)
    return page
