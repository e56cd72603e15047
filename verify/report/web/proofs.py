"""The proof graph: one box per lemma in layers under the theorem, with the budget as a formula and the certified numbers beside it."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from verify.report.web.mathematics import mathml
from verify.report.web.prose import inline
from verify.report.words import number


def proof_graph(lemmas: Sequence[dict[str, Any]]) -> str:
    """Layers from the theorem down; arrows are drawn by the page's script, and every box names what it uses."""
    layers: dict[int, list[dict[str, Any]]] = {}
    for lemma in lemmas:
        layers.setdefault(lemma["depth"], []).append(lemma)
    rows = ["".join(_box(lemma) for lemma in layers[depth]) for depth in sorted(layers)]
    inside = "\n".join(f'<div class="layer">{row}</div>' for row in rows)
    return f'<div class="proof"><svg aria-hidden="true" preserveAspectRatio="none"></svg>\n{inside}\n</div>'


def identifier(name: str) -> str:
    """An id for a lemma's box."""
    return "lemma-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def upright(latex: str) -> str:
    """Names of several letters, such as Lip and FFN, as one upright word instead of a product of letters."""
    return re.sub(r"(\\[A-Za-z]+)|(?<![A-Za-z])([A-Za-z]{2,})", lambda found: found[1] or rf"\mathrm{{{found[2]}}}", latex)


def _box(lemma: dict[str, Any]) -> str:
    parts, uses = lemma["parts"], lemma["uses"]
    mood = "" if not parts else "good" if all(part["holds"] for part in parts) else "bad"
    source = f' <span class="soft">[{escape(lemma["source"])}]</span>' if lemma["source"] else ""
    budget = f'<div class="budget">{escape(lemma["relation"])} {mathml(upright(lemma["latex"]), display=True)}</div>'
    named = ", ".join(f'<a href="#{identifier(name)}">{escape(name)}</a>' for name in uses)
    return (
        f'<article class="lemma {mood}" id="{identifier(lemma["name"])}" data-uses="{" ".join(map(identifier, uses))}">'
        f"<h3>{escape(lemma['name'])}</h3><p>{inline(lemma['title'])}{source}</p>{budget}{_numbers(lemma)}"
        f"{f'<p class=soft>uses {named}</p>' if uses else ''}</article>"
    )


def _numbers(lemma: dict[str, Any]) -> str:
    if lemma["exact"] and not lemma["parts"]:
        return "<p><strong>0</strong> <span class=soft>exactly, for all sizes</span></p>"
    if not lemma["parts"]:
        if lemma.get("value"):
            return f"<p><strong>{escape(lemma['value'])}</strong></p>"
        return "<p class=soft>a step of the proof; its number is part of those that use it</p>"
    rows = "".join(
        f"<tr><td>{escape(part['name'])}</td><td>{_shown(part['certified'])}</td><td>{_shown(part['bound'])}</td>"
        f'<td class="{"ok" if part["holds"] else "no"}">{"✓" if part["holds"] else "✗"}</td></tr>'
        for part in lemma["parts"]
    )
    head = '<tr><th></th><th scope="col">certified</th><th scope="col">bound</th><th><span class=skip>holds</span></th></tr>'
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _shown(value: float | None) -> str:
    return "∞" if value is None else number(value)
