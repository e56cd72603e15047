"""The frame of a page: one HTML file with style, script and data inside, and a policy that forbids every request."""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def asset(name: str) -> str:
    """A style sheet or script of this room."""
    return files("verify.report.web").joinpath(name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """JSON that cannot end the script element that it stands in, nor open another."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def section(title: str, *parts: str, id: str = "") -> str:
    """A heading and what stands under it; parts are HTML."""
    named = f' id="{escape(id)}"' if id else ""
    return f"<section{named}>\n<h2>{escape(title)}</h2>\n{''.join(parts)}\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """Plain text as a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Cells are plain text; the first of every row names it."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{_lines(row[0])}</th>' + "".join(f"<td>{_lines(cell)}</td>" for cell in row[1:]) + "</tr>" for row in rows
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"<table>{said}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or "table")}">{inside}</div>'


def _lines(cell: str) -> str:
    return "<br>".join(escape(line) for line in str(cell).split("\n"))


def page(title: str, subtitle: str, sections: Sequence[str], data: Any, scripts: Sequence[str]) -> str:
    """The whole file; `sections` and `subtitle` are HTML, `data` is what the scripts read."""
    code = "\n".join(asset(name) for name in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">to the content</a>
<header><h1>{escape(title)}</h1>
{subtitle}</header>
<main id="main" tabindex="-1">
{chr(10).join(sections)}
</main>
<footer><p>Written by lemmaformer. This file needs no network: everything that it shows is inside it.</p></footer>
<script type="application/json" id="data">{embedded(data)}</script>
<script>
{code}</script>
</body>
</html>
"""
