"""A page per theorem and limit from its docstring: the text with subscripts set, the bound as a formula with every symbol defined, the
proof as a graph and as a table of budgets."""

import re

import networkx as nx

from analyzer.statements.latex import latex, statement
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Theorem
from docs.site.graphs import svg_of

GROUPS = {"Theorems": False, "Limits": True}
SHELF = "theorems"


def pages() -> dict[str, str]:
    """Every page by its name, and a table of contents."""
    found = {f"{SHELF}/{name}.md": page_of(theorem) for name, theorem in THEOREMS.items()}
    lines = [
        "# Theorems and limits",
        "",
        "Every page is the docstring of the file that implements it (`lemmaformer theorems ID` prints it).",
        "",
    ]
    for title, limit in GROUPS.items():
        chosen = [(name, theorem) for name, theorem in THEOREMS.items() if theorem.is_limit == limit]
        lines += [f"## {title}", "", "| id | about |", "|---|---|"]
        lines += [f"| [{name}]({name}.md) | {theorem.title.replace('|', chr(92) + '|')} |" for name, theorem in chosen]
        lines += ["", "```{toctree}", ":hidden:", "", *(name for name, _ in chosen), "```", ""]
    return {**found, f"{SHELF}/index.md": "\n".join(lines)}


def page_of(theorem: Theorem) -> str:
    """One page."""
    head, *rest = theorem.page.strip().split("\n\n")
    parts = [f"# {theorem.id}: {theorem.title}", set_text(head), *map(set_text, rest)]
    if theorem.expression is not None:
        parts.append("## The bound")
        for rpe in ("lin", "log"):
            formula, meaning = _statement(theorem, rpe)
            parts += [f"With {rpe} heads and tuned constants:", f"```{{math}}\n{formula}\n```", meaning]
    if theorem.lemmas is not None:
        parts += ["## The proof as a graph", *_graph(theorem)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _statement(theorem: Theorem, rpe: str) -> tuple[str, str]:
    """The formula, and what its symbols mean, as Markdown."""
    assert theorem.expression is not None
    text = statement(theorem.expression(rpe, "tuned"))
    formula, _, meaning = text.strip().removeprefix("$$").partition("$$")
    return formula.strip(), re.sub(r"\s+", " ", meaning).strip()


def _graph(theorem: Theorem) -> list[str]:
    """The picture, and a table of lemmas with their budgets as formulas."""
    proof = theorem.proof("lin", "tuned", "spline", (4,) if theorem.id == "thm-3.1" else (2, 4))
    labels = {name: f"{name}\n{_flat(data['title'])}" for name, data in proof.nodes(data=True)}
    marked = frozenset(name for name, data in proof.nodes(data=True) if data["measured"])
    picture = svg_of(nx.DiGraph(proof.edges) if proof.number_of_edges() else proof, labels, f"proof of {theorem.id}", marked)
    rows = ["| lemma | says | budget |", "|---|---|---|"]
    for name, data in proof.nodes(data=True):
        budget = f"{{math}}`{latex(data['budget'])}`".replace("|", r"\vert ")
        rows.append(f"| {plain(name)} | {plain(data['title'])} | {data['relation']} {budget} |")
    about = (
        "An arrow leads from a lemma to one that it uses; of those with a thick border a certificate shows the number beside the budget."
    )
    return [f"{about} Shown for lin heads, tuned constants and {'lag 4' if theorem.id == 'thm-3.1' else 'lags 2 and 4'}.",
            f"```{{raw}} html\n{picture}\n```", "\n".join(rows)]  # fmt: skip


def _flat(text: str) -> str:
    """A label of a picture, where scripts stay in line."""
    return re.sub(r"([_^])\{([^{}]*)\}", r"\1\2", text)


def plain(text: str) -> str:
    """Text that stands in a cell of a table."""
    return set_text(text).replace("\n", " ")


_OPENING = re.compile(r"^([A-Z][a-z]+(?: [a-z]+){0,4})\. ")
"""The word or words that open a part of a page: Setting, Statement, Proof of the lower bound, …"""
_SCRIPT = re.compile(r"(?<=[^\s*])([_^])(\{|\([\w+−-]+\)|[-−]?[A-Za-z0-9α-ωΑ-Ω∞]+)")


def set_text(paragraph: str) -> str:
    """A paragraph of a docstring as Markdown; formulas on lines of their own keep their places."""
    lines = paragraph.splitlines()
    first = next((k for k, line in enumerate(lines) if line.startswith("    ")), None)
    if first is not None:
        before = [set_text("\n".join(lines[:first]))] if first else []
        formulas = "\n".join(line.removeprefix("    ").rstrip() or "&#8203;" for line in lines[first:])
        return "\n\n".join([*before, f'```{{raw}} html\n<pre class="formula">{scripted(_html(formulas))}</pre>\n```'])
    pieces = re.split(r"(`[^`]*`)", _OPENING.sub(r"**\1.** ", paragraph))
    return "".join(piece if piece.startswith("`") else scripted(_markdown(piece)) for piece in pieces)


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("&amp;#8203;", "&#8203;")


def _markdown(text: str) -> str:
    """What Markdown would take for its own, escaped."""
    text = re.sub(r"([<$\[\]|]|(?<=\w)\*(?=\w))", r"\\\1", text)
    return re.sub(r"^(#|\d+[.)]|[-+])(?=\s)", r"\\\1", text, flags=re.MULTILINE)


def scripted(text: str) -> str:
    """Text with x_k and e^{−ps} as sub- and superscripts, scripts of scripts too.

    >>> scripted("x_{t−T_1} ≤ T_k^{n+1}")
    'x<sub>t−T<sub>1</sub></sub> ≤ T<sub>k</sub><sup>n+1</sup>'
    """
    found, at = [], 0
    while (script := _SCRIPT.search(text, at)) is not None:
        end = script.end()
        inner = script[2]
        if inner == "{":
            end = _closing(text, script.end())
            if end is None:
                break
            inner = text[script.end() : end - 1]
        tag = "sub" if script[1] == "_" else "sup"
        found.append(f"{text[at : script.start()]}<{tag}>{scripted(inner)}</{tag}>")
        at = end
    return "".join(found) + text[at:]


def _closing(text: str, start: int) -> int | None:
    """Where the brace that was opened before `start` is closed."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return None
