"""The explorer: sliders over lags, heads, bits, relative positions and banks, with a table of certified numbers inside."""

from collections.abc import Sequence
from typing import Any

from analyzer.statements.theorem import Theorem
from verify.report.web.layout import page, paragraph, section
from verify.report.web.prose import prose, with_formulas

SCRIPTS = ("engine.js", "charts.js", "explorer.js")


def explorer_page(table: dict[str, Any], law: Theorem, formulas: Sequence[str]) -> str:
    """`formulas` are texts with LaTeX: the errors of the banks."""
    said = paragraph(
        "What does it cost one dp-free layer to look T tokens back? Move the sliders: certified numbers where they rest on the table of "
        "this page, numbers computed in this page, and labelled so, between."
    )
    figures = "".join(f'<figure id="{name}"></figure>' for name in ("kernel", "weights", "curve"))
    live = f'<div id="controls"></div><p role="status" id="said" class="soft"></p><dl class="sizes" id="facts"></dl>{figures}'
    about = paragraph(
        "minimal: as few heads as the lag law allows, weights as small as the arithmetic asks for; tuned and paper: the theorem's "
        "interpolating banks with the best and the printed free parameters, in exact arithmetic; best found: the bank of the table for an "
        "arithmetic, any number of heads. u·Σ|weights| is the price of storing weights with unit roundoff u."
    )
    return page(
        "Explorer: lag, heads, bits",
        said,
        [
            section("Sliders", live, id="sliders"),
            section("What is computed", about, *map(with_formulas, formulas), id="formulas"),
            section("The law", prose(law.statement), id="law"),
        ],
        table,
        SCRIPTS,
    )
