"""Pages of theorems as HTML: paragraphs with sub- and superscripts, indented formulas, and LaTeX formulas as MathML."""

import re
from html import escape

from verify.report.web.mathematics import mathml

_BRACED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_INDEX = re.compile(rf"(?<=\S)([_^])(?:{_BRACED}|(\*|−?[A-Za-z0-9∞ℓ¹²]+))")


def inline(text: str) -> str:
    """One paragraph: `code`, *emphasis*, **strong**, x_{t−s} and e^{−ps}."""
    parts = re.split(r"`([^`]*)`", text)
    return "".join(f"<code>{escape(part)}</code>" if k % 2 else _marked(part) for k, part in enumerate(parts))


def _marked(text: str) -> str:
    plain = indexed(escape(text, quote=False))
    plain = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", plain, flags=re.DOTALL)
    return re.sub(r"(?<![\w*])\*(\S(?:.*?\S)?)\*(?!\w)", r"<em>\1</em>", plain, flags=re.DOTALL)


def indexed(text: str) -> str:
    """Indices and exponents of plain mathematics, in text that is escaped already."""

    def raised(found: re.Match[str]) -> str:
        tag = "sub" if found[1] == "_" else "sup"
        return f"<{tag}>{indexed(found[2] if found[2] is not None else found[3])}</{tag}>"

    return _INDEX.sub(raised, text)


def prose(text: str) -> str:
    """Paragraphs and indented formulas of a theorem's page."""
    found = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if all(line.startswith("    ") for line in block.splitlines()):
            found.append(f"<pre>{indexed(escape(re.sub('^    ', '', block, flags=re.MULTILINE), quote=False))}</pre>")
        else:
            found.append(f"<p>{inline(' '.join(block.split()))}</p>")
    return "\n".join(found)


def with_formulas(text: str) -> str:
    """Text with $$display$$ and $inline$ LaTeX in it, as HTML with MathML."""
    parts = re.split(r"\$\$(.+?)\$\$|\$(.+?)\$", text, flags=re.DOTALL)
    found, before = [], ""
    for plain, display, within in zip(parts[::3], [*parts[1::3], None], [*parts[2::3], None], strict=True):
        before += escape(plain)
        if within is not None:
            before += mathml(within)
        if display is not None:
            found += [f"<p>{before}</p>"] if before.strip() else []
            found.append(f'<div class="scroll" tabindex="0" role="region" aria-label="formula">{mathml(display, display=True)}</div>')
            before = ""
    return "\n".join([*found, f"<p>{before}</p>"] if before.strip() else found)
