"""Every theorem of the registry keeps the same form; a new theorem adds a row to `THEOREMS` and passes here."""

import networkx as nx
import pytest
import sympy

from analyzer.theorems import LIMITS, THEOREMS, limit


@pytest.mark.parametrize("name", sorted(THEOREMS))
@pytest.mark.parametrize("bank", ["paper", "tuned", "minimal"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_conformance(name: str, bank: str, rpe: str) -> None:
    module = THEOREMS[name]
    assert name == module.ID and module.TITLE and module.STATEMENT[rpe] and "@" in module.citation(bank, "barron")
    assert isinstance(module.expression(rpe, bank), sympy.Expr)
    for word in ("Setting.", "Statement.", "Construction.", "References."):
        assert word in module.__doc__
    graph = module.proof_graph(rpe, bank, "spline", (2, 5))
    assert nx.is_directed_acyclic_graph(graph)
    assert [node for node in graph if graph.in_degree(node) == 0] == [name]
    assert all(isinstance(data["budget"], sympy.Expr) and data["title"] for _, data in graph.nodes(data=True))


def test_formulas_and_graphs_are_the_theorems_own() -> None:
    formulas = {name: module.expression("lin", "tuned") for name, module in THEOREMS.items()}
    assert formulas["thm-3.1"] == formulas["thm-4.1"] != formulas["thm-4.4"] == formulas["prop-4.5"]
    assert THEOREMS["thm-3.1"].expression("lin", "minimal") != THEOREMS["thm-4.1"].expression("lin", "minimal")
    chain, flat = (THEOREMS[name].proof_graph("lin", "tuned", "spline", (2, 5)) for name in ("thm-4.4", "thm-4.1"))
    assert chain.has_edge("lag m2", "extraction m1") and not flat.has_edge("lag m2", "extraction m1")
    lower = THEOREMS["prop-4.2"].proof_graph("lin", "minimal", "spline", (2,))
    assert lower.nodes["(B)"]["relation"] == "≥" and lower.nodes["(A)"]["relation"] == "≤"


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_limits_have_pages_with_proofs(name: str) -> None:
    module = limit(name)
    assert name == module.ID and module.TITLE
    assert module.__doc__ is not None and "Proof" in module.__doc__ and len(module.__doc__) > 1000
