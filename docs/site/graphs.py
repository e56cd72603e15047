"""Graphs as SVG: boxes in rows, those that use others above them, drawn without any tool.

Rows are longest paths from the top; an edge over several rows bends at a point in each of them; within rows nodes are put near those that
they are joined to (barycentres, as Sugiyama does it).
"""

import textwrap
from collections.abc import Hashable, Mapping
from html import escape
from itertools import pairwise
from typing import Any

import networkx as nx

LETTER, LINE, PAD, GAP, BETWEEN = 6.6, 15, 8, 18, 44
"""Pixels: a letter's width, a line's height, the space inside a box, between boxes, and between rows."""
SWEEPS = 12


def svg_of(graph: nx.DiGraph, labels: Mapping[Any, str], title: str, marked: frozenset[Any] = frozenset(), wide: int = 26) -> str:
    """The graph as one `<svg>` element; `marked` nodes have a thick border, labels are wrapped to `wide` letters."""
    lines = {node: [part for row in labels[node].split("\n") for part in (textwrap.wrap(row, wide) or [""])] for node in graph}
    sizes = {node: (max(map(len, rows)) * LETTER + 2 * PAD, len(rows) * LINE + 2 * PAD) for node, rows in lines.items()}
    rows, paths = _rows(graph)
    places, width, height = _places(rows, sizes)
    body = [_edge([places[step] for step in path], sizes[path[0]], sizes[path[-1]]) for path in paths]
    body += [_box(places[node], sizes[node], lines[node], node in marked) for node in graph]
    return (
        f'<svg class="graph" role="img" viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(body)}</svg>'
    )


def _rows(graph: nx.DiGraph) -> tuple[list[list[Hashable]], list[list[Hashable]]]:
    """Nodes and bends by row, ordered so that few edges cross, and every edge as the path of its bends."""
    depth: dict[Hashable, int] = {}
    for node in nx.topological_sort(graph):
        depth[node] = max((depth[above] + 1 for above in graph.predecessors(node)), default=0)
    rows: list[list[Hashable]] = [[] for _ in range(max(depth.values()) + 1)]
    for node, row in depth.items():
        rows[row].append(node)
    paths, joined = [], nx.Graph()
    for a, b in graph.edges:
        bends: list[Hashable] = [(a, b, row) for row in range(depth[a] + 1, depth[b])]
        for bend, row in zip(bends, range(depth[a] + 1, depth[b]), strict=True):
            rows[row].append(bend)
        paths.append([a, *bends, b])
        joined.add_edges_from(pairwise(paths[-1]))
    for sweep in range(SWEEPS):
        order = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        for row in order:
            beside = rows[row - 1] if sweep % 2 == 0 else rows[row + 1]
            at = {node: k / max(1, len(beside) - 1) for k, node in enumerate(beside)}
            known = {node: [at[other] for other in joined[node] if other in at] if node in joined else [] for node in rows[row]}
            now = {node: k / max(1, len(rows[row]) - 1) for k, node in enumerate(rows[row])}
            rows[row].sort(key=lambda node: sum(known[node]) / len(known[node]) if known[node] else now[node])
    return rows, paths


Place = tuple[float, float]


def _places(rows: list[list[Hashable]], sizes: Mapping[Any, Place]) -> tuple[dict[Hashable, Place], float, float]:
    """The centre of every node and bend, and the size of the whole."""
    widths = [sum(sizes.get(node, (0, 0))[0] for node in row) + GAP * (len(row) - 1) for row in rows]
    width = max(widths) + 2 * GAP
    places: dict[Hashable, Place] = {}
    top = float(GAP)
    for row, wide in zip(rows, widths, strict=True):
        high = max(sizes.get(node, (0, 0))[1] for node in row)
        spare = (width - 2 * GAP - wide) / (len(row) + 1)
        left = GAP + spare
        for node in row:
            own = sizes.get(node, (0, 0))[0]
            places[node] = (left + own / 2, top + high / 2)
            left += own + GAP + spare
        top += high + BETWEEN
    return places, width, top - BETWEEN + GAP


def _edge(path: list[Place], first: Place, last: Place) -> str:
    """A curve from the foot of the first box through the bends to the head of the last one, with a tip."""
    points = list(path)
    points[0] = (points[0][0], points[0][1] + first[1] / 2)
    points[-1] = (points[-1][0], points[-1][1] - last[1] / 2 - 5)
    steps = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        steps.append(f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}")
    x, y = points[-1]
    tip = f'<path class="tip" d="M{x - 4:.1f} {y - 3:.1f}L{x:.1f} {y + 5:.1f}L{x + 4:.1f} {y - 3:.1f}z"/>'
    return f'<path class="edge" d="{"".join(steps)}"/>{tip}'


def _box(place: Place, size: Place, lines: list[str], marked: bool) -> str:
    (x, y), (wide, high) = place, size
    rows = "".join(
        f'<text x="{x:.1f}" y="{y - high / 2 + PAD + LINE * (k + 0.75):.1f}"{" class=name" if k == 0 else ""}>{escape(line)}</text>'
        for k, line in enumerate(lines)
    ).replace(" class=name", ' class="name"')
    kind = "box marked" if marked else "box"
    return f'<rect class="{kind}" x="{x - wide / 2:.1f}" y="{y - high / 2:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="4"/>{rows}'
