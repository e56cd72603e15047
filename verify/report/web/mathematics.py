"""Formulas for pages: LaTeX becomes MathML, which browsers draw by themselves, when a page is written.

Needs the extra `pages` (latex2mathml); no script and no font leaves or enters the page.
"""

from analyzer.errors import InputError

HINT = "pages need latex2mathml: pip install 'lemmaformer[pages]'"


def mathml(latex: str, *, display: bool = False) -> str:
    """One formula as a `<math>` element; `display` puts it on a line of its own."""
    try:
        from latex2mathml.converter import convert
    except ImportError:
        raise InputError(HINT) from None
    return str(convert(latex, display="block" if display else "inline"))
