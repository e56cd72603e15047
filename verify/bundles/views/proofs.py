"""The proof of a network's theorem as rows and numbers: every lemma with its budget, and beside it what was certified."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analyzer.errors import LemmaformerError
from analyzer.statements.latex import latex
from analyzer.statements.registry import THEOREMS
from analyzer.targets.protocol import Target
from analyzer.theorems import shift_chain, thm_4_4
from analyzer.theorems.library import position_heads
from analyzer.theorems.positions import table_lags
from verify.chain.certificate import Certificate, Part, finite

if TYPE_CHECKING:
    import networkx as nx


def proof_of(certificate: Certificate, target: Target | None, rpe: str, bank: str, ffn: str) -> list[dict[str, Any]]:
    """Lemmas, those that others rest on last; empty where no theorem speaks of the network, or its page has the proof as text.

    `depth` is the longest way from the theorem; a lemma's `parts` are the certificate's numbers for it.
    """
    graph = _graph(certificate, target, rpe, bank, ffn)
    if graph is None:
        return []
    parts = _assigned(graph, certificate.parts)
    depth = _depths(graph)
    product = certificate.details.get("plan", {}).get("law", {}).get("layers_times_heads")
    rows = []
    for name, data in graph.nodes(data=True):
        numbers = [{"name": p.name, "certified": finite(p.certified), "bound": finite(p.bound), "holds": p.holds} for p in parts[name]]
        if depth[name] == 0 and not numbers:
            chain = {"certified": finite(certificate.certified), "bound": finite(certificate.bound)}
            numbers = [{"name": "total", **chain, "holds": certificate.certified <= certificate.bound}]
        kept = {key: str(data[key]) for key in ("title", "source", "relation")}
        exact = bool(data["budget"].is_zero)
        value = f"layers × heads = {product}" if product is not None and name in ("law", "Hankel") else ""
        row = {"name": name, "value": value, **kept, "latex": latex(data["budget"]), "exact": exact, "parts": numbers, "depth": depth[name]}
        rows.append({**row, "uses": list(graph.successors(name))})
    return sorted(rows, key=lambda row: row["depth"])


def _graph(certificate: Certificate, target: Target | None, rpe: str, bank: str, ffn: str) -> "nx.DiGraph | None":
    if certificate.theorem not in THEOREMS or target is None:
        return None
    theorem = THEOREMS[certificate.theorem]
    if theorem.lemmas is None:
        return None
    layer, memories = target.as_layer_target, target.as_memory_target
    try:
        if theorem.id == shift_chain.ID and "digital" in certificate.details and layer is not None:
            several = any(part.name.startswith(shift_chain.RESTORATION) for part in certificate.parts)
            several = several or any(part.name.startswith(shift_chain.PLATEAUS) for part in certificate.parts)
            return shift_chain.restored_graph("lin", bank, layer.bank_labels[-1], several)
        if theorem.id == table_lags.ID:
            return table_lags.target_graph(target, ffn)  # type: ignore[arg-type]
        if theorem.id == position_heads.ID:
            return position_heads.target_graph(target, ffn)  # type: ignore[arg-type]
        if layer is None and memories is not None:
            return thm_4_4.target_graph(target, rpe, bank, ffn, theorem.id, theorem.title)  # type: ignore[arg-type]
        return theorem.proof(rpe, bank, ffn, () if layer is None else layer.bank_labels)
    except LemmaformerError:
        return None


def _assigned(graph: "nx.DiGraph", parts: Sequence[Part]) -> dict[str, list[Part]]:
    """Parts by lemma: of the same name, of a name that begins with the lemma's, else of the first measured lemma that has none."""
    from analyzer.statements.proof import measured_lemmas

    lemmas = measured_lemmas(graph)
    found: dict[str, list[Part]] = {name: [] for name in graph}
    rest = []
    for part in parts:
        home = part.name if part.name in lemmas else next((name for name in lemmas if part.name.startswith(f"{name} ")), None)
        if home is None:
            rest.append(part)
        else:
            found[home].append(part)
    silent = next((name for name in lemmas if not found[name]), None)
    if silent is not None:
        found[silent] = rest
    return found


def _depths(graph: "nx.DiGraph") -> dict[str, int]:
    import networkx as nx

    depth: dict[str, int] = {}
    for name in nx.topological_sort(graph):
        depth[name] = max((depth[user] + 1 for user in graph.predecessors(name)), default=0)
    return depth
