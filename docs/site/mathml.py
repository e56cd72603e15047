"""Mathematics of the site as MathML, which browsers draw by themselves: no script, no font, no request."""

from typing import Any

from sphinx.application import Sphinx

from verify.report.web.mathematics import mathml


def _inline(translator: Any, node: Any) -> None:
    from docutils import nodes

    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: Any) -> None:
    from docutils import nodes

    translator.body.append(f'<div class="math">{mathml(node.astext(), display=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx asks an extension for this."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
