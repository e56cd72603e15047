"""Proofs as graphs: lemmas are nodes with a symbolic budget, an edge says which lemma uses which."""

from typing import Any

import networkx as nx
import sympy


def lemma(
    graph: nx.DiGraph,
    name: str,
    title: str,
    budget: sympy.Expr,
    uses: tuple[str, ...] = (),
    source: str = "",
    relation: str = "≤",
    measured: bool = False,
) -> None:
    """Add a lemma that uses lemmas already in the graph; what it speaks of is ≤ its budget, or ≥ for a lower bound.

    Of a `measured` lemma a certificate must show the number found in the weights beside what is promised (`measured_lemmas`).
    """
    if name in graph:
        raise KeyError(f"lemma {name} is in the graph already")
    missing = [u for u in uses if u not in graph]
    if missing:
        raise KeyError(f"lemma {name} uses {missing[0]}, which is not in the graph")
    graph.add_node(name, title=title, budget=budget, source=source, relation=relation, measured=measured)
    graph.add_edges_from((name, used) for used in uses)


def measured_lemmas(graph: nx.DiGraph) -> list[str]:
    """The lemmas of which a certificate must show numbers, in the order of the proof."""
    return [name for name, data in graph.nodes(data=True) if data["measured"]]


def tree_lines(graph: nx.DiGraph) -> list[str]:
    """The graph as an indented text tree from its root (the lemma that nobody uses); what was shown before is only named."""
    roots = [name for name in graph if graph.in_degree(name) == 0]
    lines: list[str] = []
    shown: set[str] = set()

    def walk(name: str, indent: int) -> None:
        if name in shown:
            lines.append(f"{'  ' * indent}{name}: see above")
            return
        shown.add(name)
        data: dict[str, Any] = graph.nodes[name]
        source = f"  [{data['source']}]" if data["source"] else ""
        lines.append(f"{'  ' * indent}{name}: {data['title']}{source}")
        lines.append(f"{'  ' * indent}    {data['relation']} {sympy.sstr(data['budget'])}")
        for used in graph.successors(name):
            walk(used, indent + 1)

    for root in roots:
        walk(root, 0)
    return lines


def dot(graph: nx.DiGraph) -> str:
    """The graph in Graphviz's language."""
    lines = ["digraph proof {", "  rankdir=TB; node [shape=box];"]
    for name, data in graph.nodes(data=True):
        label = f"{name}\\n{data['title']}\\n{data['relation']} {sympy.sstr(data['budget'])}".replace('"', "'")
        lines.append(f'  "{name}" [label="{label}"];')
    lines += [f'  "{a}" -> "{b}";' for a, b in graph.edges]
    return "\n".join([*lines, "}"])
