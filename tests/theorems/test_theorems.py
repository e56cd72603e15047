"""The conformance table: every theorem that the registry finds keeps the same form, and its own cases are bounded, built and certified.

A new theorem needs no row here: its `THEOREM` carries its cases, and this file goes through them.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import sympy

import lemmaformer as lf
from analyzer.statements.latex import statement
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Case, Theorem, sections
from analyzer.targets.files import target_from_dict

RESULTS = [theorem for theorem in THEOREMS.values() if not theorem.is_limit]
LIMITS = [theorem for theorem in THEOREMS.values() if theorem.is_limit]
BUILT = [theorem for theorem in RESULTS if theorem.build is not None]
CASES = [(theorem, case) for theorem in BUILT for case in theorem.cases]


def _name(value: object) -> str:
    return value.id if isinstance(value, Theorem) else ""


@pytest.mark.parametrize("theorem", RESULTS, ids=_name)
@pytest.mark.parametrize("bank", ["paper", "tuned", "minimal"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_form(theorem: Theorem, bank: str, rpe: str) -> None:
    assert theorem.title and theorem.formulas[rpe]
    assert theorem.citation is not None and "@" in theorem.citation(bank, "barron")
    assert theorem.expression is not None and isinstance(theorem.expression(rpe, bank), sympy.Expr)
    for word in ("Setting.", "Statement.", "References."):
        assert word in theorem.page
    assert "Statement. " in theorem.statement and "References." not in theorem.statement
    assert theorem.lemmas is not None
    graph = theorem.lemmas(rpe, bank, "spline", (2, 5))
    assert nx.is_directed_acyclic_graph(graph)
    assert [node for node in graph if graph.in_degree(node) == 0] == [theorem.id]
    assert all(isinstance(data["budget"], sympy.Expr) and data["title"] for _, data in graph.nodes(data=True))
    assert "where" in statement(theorem.expression(rpe, bank)) or not theorem.expression(rpe, bank).free_symbols


def test_every_theorem_that_builds_networks_has_cases() -> None:
    assert {theorem.id for theorem in BUILT} == {theorem.id for theorem, _ in CASES}
    assert {"thm-3.1", "thm-4.1", "prop-4.3", "thm-4.4", "prop-4.5", "thm-5.1", "shift-chain", "jl-4.2"} <= {t.id for t in BUILT}


@pytest.mark.deep(
    keep=(
        "thm-3.1-2",
        "thm-4.1-",
        "prop-4.3-",
        "thm-4.4-0",
        "prop-4.5-",
        "thm-5.1-0",
        "shift-chain-0",
        "jl-4.1-1",
        "least-squares-0",
        "table-heads-0",
        "kerple-heads-0",
        "table-lags-0",
        "stride-heads-2",
        "jl-4.2-0",
        "jl-points-0",
        "position-heads-0",
        "induction-0",
        "k-hop-1",
        "parity-0",
        "first-0",
        "in-context-gd-1",
        "addition-1",
        "copying-",
        "adaptive-kernels-1",
    )
)
@pytest.mark.parametrize(("theorem", "case"), CASES, ids=_name)
def test_cases_are_bounded_built_certified_and_sabotaged(theorem: Theorem, case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = target_from_dict(case.target, "case")
    if theorem.bound is not None and case.bound:
        promised = lf.bound(theorem.id, target, **case.bound)
        assert promised.theorem == theorem.id and promised.total >= 0 and json.dumps(promised.as_dict())
        assert "\\le" in promised._repr_latex_()
    net = lf.build(target, theorem=theorem.id, **case.options)
    certificate = net.verify()
    assert certificate.theorem == theorem.id and certificate.verdict.value == "holds"
    assert 0 <= certificate.witness <= certificate.certified <= certificate.bound
    for name in ("theorem", "verdict", "bound_vacuous", "witness", "certified", "bound", "parts", "sizes", "dtype", "rounding", "seconds"):
        assert name in certificate.as_dict()
    place = tmp_path_factory.mktemp("case") / "net"
    net.save(place)
    assert lf.verify(place).certified == certificate.certified
    tokens = target.draw(np.random.default_rng(0), (2, 24 if target.length is None else target.length))
    wanted = target.values(np)(tokens)
    settled = min(target.settled, tokens.shape[1] - 1)
    worst = certificate if certificate.norm == "sup" else net.verify(norm="sup")
    assert np.abs(net(tokens) - wanted)[:, settled:].max() <= worst.certified * (1 + 1e-9) + 1e-12
    changed, _, after = net.broken("output", by=0.01)
    assert after.verdict.value == "violated" and changed.verify().verdict.value == "violated"


def test_formulas_and_graphs_are_the_theorems_own() -> None:
    formulas = {theorem.id: theorem.expression("lin", "tuned") for theorem in RESULTS if theorem.expression is not None}
    assert formulas["thm-3.1"] == formulas["thm-4.1"] != formulas["thm-4.4"] == formulas["prop-4.5"]
    first, second = (THEOREMS[name].expression for name in ("thm-3.1", "thm-4.1"))
    assert first is not None and second is not None and first("lin", "minimal") != second("lin", "minimal")
    graphs = {theorem.id: theorem.lemmas("lin", "tuned", "spline", (2, 5)) for theorem in RESULTS if theorem.lemmas is not None}
    chain, flat, lower = graphs["thm-4.4"], graphs["thm-4.1"], graphs["prop-4.2"]
    assert chain.has_edge("lag m2", "extraction m1") and not flat.has_edge("lag m2", "extraction m1")
    assert lower.nodes["(B)"]["relation"] == "≥" and lower.nodes["(A)"]["relation"] == "≤"


@pytest.mark.parametrize("theorem", LIMITS, ids=_name)
def test_limits_have_pages_with_proofs(theorem: Theorem) -> None:
    assert theorem.title and "Proof" in theorem.page and len(theorem.page) > 1000
    with pytest.raises(lf.InputError, match="builds no network"):
        theorem.built_by()


def test_unknown_ids_are_errors() -> None:
    with pytest.raises(lf.InputError, match=r"unknown theorem 'thm-9\.9'; known: thm-3\.1"):
        lf.theorems["thm-9.9"]
    assert "thm-9.9" not in lf.theorems and "thm_3_1" not in lf.theorems and lf.theorems.get("nothing") is None


@pytest.mark.parametrize("name", list(THEOREMS))
def test_pages_have_hypotheses_statement_and_proof(name: str) -> None:
    """And what is repaired, if the statement is a paper's."""
    parts = sections(THEOREMS[name].page)
    assert {"Setting", "Statement"} <= set(parts) and all(len(parts[part]) > 40 for part in ("Setting", "Statement"))
    assert re.search(r"^(\*?Proof|Proof of [^.]*)\b.*\.", THEOREMS[name].page, re.MULTILINE)
    if name.startswith(("thm-", "prop-", "jl-")):
        assert parts["Repaired"]


@pytest.mark.deep(only="bound jl-4.2 --rho u*v/2 --length 6-rank")
@pytest.mark.parametrize(
    "command,size",
    [
        ("bound thm-3.1 --lags 4", "heads"),
        ("bound thm-4.4 --lags 2,4", "heads"),
        ("bound thm-5.1 --kernel exp(-s)", "heads"),
        ("bound thm-5.1 --rpe log --kernel (s+1)**-2.5", "heads"),
        ("bound jl-4.2 --rho u*v/2 --length 6", "rank"),
    ],
)
def test_sizes_that_are_left_out_are_solved_for_the_error_of_a_build(command: str, size: str, run: Callable[..., Any]) -> None:
    found, asked = run(*command.split(), "--json"), run(*command.split(), "--error", "0.01", "--json")
    assert found.code == 0, found.err
    assert found.json == asked.json and found.json[size] >= 1
    assert found.json.get("attention", found.json.get("total", 0)) <= 0.01
