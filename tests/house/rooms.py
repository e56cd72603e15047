"""The table of rooms: which room may import which. The test of import directions and the picture in docs/architecture.md both come from it.

A room may import from every room that its arrows lead to, directly or through others; within a room everything may import everything, as
long as no two modules import each other. `python -m tests.house.rooms` writes the picture again (`make docs` does).
"""

import ast
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "architecture.md"

ARROWS: dict[str, tuple[str, ...]] = {
    "analyzer": (),
    "analyzer.numbers": ("analyzer",),
    "analyzer.language": ("analyzer.numbers",),
    "analyzer.kernels": ("analyzer.language",),
    "analyzer.targets": ("analyzer.kernels",),
    "analyzer.lemmas": ("analyzer.targets",),
    "analyzer.statements": ("analyzer.targets",),
    "analyzer.claims": ("analyzer.lemmas",),
    "analyzer.limits": ("analyzer.lemmas", "analyzer.statements"),
    "analyzer.theorems": ("analyzer.limits",),
    "constructions.network": ("analyzer.numbers",),
    "constructions.files": ("analyzer.targets", "constructions.network"),
    "constructions.run": ("analyzer.lemmas", "constructions.files"),
    "constructions.exports": ("constructions.run",),
    "constructions.banks": ("analyzer.limits",),
    "constructions.neurons": ("analyzer.lemmas", "constructions.network"),
    "constructions.theorems": ("analyzer.theorems", "constructions.banks", "constructions.neurons", "constructions.run"),
    "constructions.training": ("constructions.theorems",),
    "verify.chain": ("constructions.theorems",),
    "verify.report": ("verify.chain",),
    "verify.layers": ("verify.chain",),
    "verify.theorems": ("constructions.training", "verify.layers"),
    "verify.limits": ("verify.theorems",),
    "verify.bundles": ("constructions.exports", "verify.theorems"),
    "verify.compare": ("verify.bundles", "verify.limits"),
    "verify.experiments": ("verify.compare",),
    "verify.claims": ("analyzer.claims", "verify.bundles", "verify.limits"),
    "lemmaformer.sweeps": ("verify.report",),
    "lemmaformer": ("lemmaformer.sweeps", "verify.claims", "verify.experiments"),
    "lemmaformer.commands": ("lemmaformer",),
    "cli": ("lemmaformer.commands",),
}
"""Room → the rooms directly below it."""
TOPS = ("analyzer", "constructions", "verify", "lemmaformer")


@cache
def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name; a package's name stands for its `__init__`."""
    found = {"cli": ROOT / "cli.py"}
    for top in TOPS:
        for file in sorted((ROOT / top).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def tree_of(file: Path) -> ast.Module:
    """A file as a syntax tree; parsing all of them takes seconds."""
    return ast.parse(file.read_text())


def room_of(module: str) -> str:
    """The nearest room of the table that a module lives in."""
    while module not in ARROWS:
        module = module.rpartition(".")[0]
    return module


def imports_of(tree: ast.AST, known: dict[str, Path]) -> set[str]:
    """Modules of the project that a file imports anywhere: at its head, inside functions, for types only."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute here"
            whole = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in whole.values()}
    return found & set(known)


@cache
def import_graph() -> nx.DiGraph:
    """Who imports whom, lazy imports included."""
    graph = nx.DiGraph()
    for module, file in modules().items():
        graph.add_node(module)
        graph.add_edges_from((module, other) for other in imports_of(tree_of(file), modules()) if other != module)
    return graph


def holds(room: str) -> str:
    """What lives in a room: the first sentence of its docstring."""
    text = ast.get_docstring(tree_of(modules()[room])) or ""
    return " ".join(text.split("\n\n")[0].split())


def picture() -> str:
    """The table as a picture: arrows lead from a room to those that it may import."""
    lines = ["```mermaid", "flowchart BT"]
    for top in TOPS:
        inside = [room for room in ARROWS if room.split(".")[0] == top]
        names = [f'{room.replace(".", "_")}["{room.rpartition(".")[2]}"]' for room in inside]
        lines += [f"  subgraph {top.upper()}[{top}]", f"    {'; '.join(names)}", "  end"]
    lines += [f"  {room.replace('.', '_')} --> {' & '.join(b.replace('.', '_') for b in below)}" for room, below in ARROWS.items() if below]
    return "\n".join([*lines, "```"])


def contents() -> str:
    """The rooms as a table of contents."""
    rows = [f"| `{room.replace('.', '/')}{'.py' if room == 'cli' else '/'}` | {holds(room)} |" for room in ARROWS]
    return "\n".join(["| room | holds |", "|---|---|", *rows])


def drawn(page: str) -> str:
    """The page with its picture and its table of contents as they should be."""
    for name, text in (("picture", picture()), ("rooms", contents())):
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(start)
        page = f"{before}{start}\n{text}\n\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
