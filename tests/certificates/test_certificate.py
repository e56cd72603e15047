"""Certificates and proofs speak of the same lemmas, theorem by theorem; verdicts say what the numbers say."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
import sympy
from flint import arb, fmpq

from analyzer.errors import LemmaformerError
from analyzer.families import Adaptive, Fixed
from analyzer.statements.proof import lemma, measured_lemmas
from analyzer.statements.registry import THEOREMS
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.coupling import CouplingTarget
from analyzer.targets.examples import centre_of_mass
from analyzer.targets.files import target_from_dict, target_of_kind
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.targets.sequence import SequenceTarget
from analyzer.theorems import base, shift_chain, thm_4_4, thm_5_1
from analyzer.theorems.library import position_heads as position_theorem
from analyzer.theorems.positions import table_lags as table_lag_theorem
from analyzer.toml import read_toml
from constructions.theorems import jl_4_1 as representation
from constructions.theorems import jl_4_2 as coupling
from constructions.theorems import jl_points as points
from constructions.theorems import least_squares
from constructions.theorems import shift_chain as chain
from constructions.theorems import thm_3_1 as fixed
from constructions.theorems import thm_4_4 as adaptive
from constructions.theorems import thm_5_1 as kernels
from constructions.theorems.positions import kerple_heads, stride_heads, table_heads, table_lags
from verify.bundles.claims import _false_claims
from verify.chain.certificate import Certificate, Part, Unmatched, Verdict, gathered, matched
from verify.theorems import jl_4_1 as representation_certificate
from verify.theorems import jl_4_2 as coupling_certificate
from verify.theorems import jl_points as points_certificate
from verify.theorems import least_squares as least_squares_certificate
from verify.theorems import shift_chain as chain_certificate
from verify.theorems import thm_3_1 as fixed_certificate
from verify.theorems import thm_4_4 as adaptive_certificate
from verify.theorems import thm_5_1 as kernel_certificate
from verify.theorems.library import adaptive_kernels, addition, copying, first, in_context_gd, induction, k_hop, parity
from verify.theorems.positions import kerple_heads as kerple_certificate
from verify.theorems.positions import stride_heads as stride_certificate
from verify.theorems.positions import table_heads as table_certificate
from verify.theorems.positions import table_lags as choice_certificate

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def example(name: str) -> AdaptiveMemory:
    return target_of_kind(read_toml(EXAMPLES / f"{name}.toml"), name, AdaptiveMemory)


class Case(NamedTuple):
    """A small network of a theorem, its certificate, and where the certificate takes its proof from."""

    theorem: str
    build: Callable[[], Any]
    verify: Callable[..., Certificate]
    graph: tuple[Any, str]
    parts: list[str]


LETTERS = (fmpq(-1, 2), fmpq(1, 2))
BLOCKS = ["extraction lag 1", "extraction lag 2", "blocks", "logits", "choice", "read-out"]
LIBRARY: dict[str, tuple[Any, list[str]]] = {
    "adaptive-kernels": ((adaptive_kernels, "proof_graph"), ["lag", "kernel"]),
    "addition": ((addition, "proof_graph"), ["gap", "digits"]),
    "copying": ((vars(copying.RULES), "proof"), BLOCKS),
    "first": ((first, "proof_graph"), ["share", "plateau"]),
    "in-context-gd": ((in_context_gd, "proof_graph"), ["step"]),
    "induction": ((vars(induction.RULES), "proof"), BLOCKS),
    "k-hop": ((k_hop, "target_graph"), ["previous letter", "find 1", "find 2", "find 3", "read-out"]),
    "parity": ((parity, "proof_graph"), ["indicator", "margin", "plateau"]),
    "position-heads": ((position_theorem, "target_graph"), ["extraction m1", "extraction m2", "read-out"]),
}
"""Where the certificate of every construction of the library takes its proof from, and the lemmas that it measures."""


def of_library(name: str, place: Any, parts: list[str]) -> Case:
    """The first case of the theorem's own row of the conformance table."""
    theorem = THEOREMS[name]
    case = theorem.cases[0]

    def build() -> Any:
        target = target_from_dict(dict(case.target), name)
        options = theorem.options_for(target.kind)
        assert options is not None
        return theorem.built_by()(target, options.read(dict(case.options)))

    return Case(name, build, theorem.verified_by(), place, parts)


CASES = {
    "fixed": Case(
        "thm-3.1", lambda: fixed.build(FixedMemory((1, 3)), error=0.1), fixed_certificate.verify, (vars(THEOREMS["thm-3.1"]), "lemmas"),
        ["extraction lag 1", "extraction lag 3", "read-out"],
    ),
    "kernel": Case(
        "thm-5.1", lambda: kernels.build(KernelMemory(("exp(-s)",)), error=0.1), kernel_certificate.verify,
        (vars(THEOREMS["thm-5.1"]), "lemmas"), ["kernel k1", "read-out"],
    ),
    "token lags": Case(
        "thm-4.1", lambda: adaptive.build(example("pointer"), attention="dp"), adaptive_certificate.verify, (thm_4_4, "target_graph"),
        ["lag found", "extraction found", "read-out"],
    ),
    "token lags, tmx": Case(
        "prop-4.3", lambda: adaptive.build(example("pointer"), attention="tmx"), adaptive_certificate.verify, (thm_4_4, "target_graph"),
        ["lag found", "extraction found", "read-out"],
    ),
    "nested lags": Case(
        "thm-4.4", lambda: adaptive.build(example("nested")), adaptive_certificate.verify, (thm_4_4, "target_graph"),
        ["lag m1", "extraction m1", "lag m2", "extraction m2", "read-out"],
    ),
    "one memory per layer": Case(
        "prop-4.5", lambda: adaptive.build(example("pair"), layers="deep"), adaptive_certificate.verify, (thm_4_4, "target_graph"),
        ["lag m1", "extraction m1", "lag m2", "extraction m2", "read-out"],
    ),
    "chain": Case(
        "shift-chain", lambda: chain.build(FixedMemory((6,)), error=0.1, depth=2, dtype="float64"), chain_certificate.verify,
        (shift_chain, "proof_graph"),
        ["shift 3 with 3 heads ×2", "extraction lag 6", "read-out"],
    ),
    "restored chain": Case(
        "shift-chain", lambda: chain.build(FixedMemory((6,), alphabet=LETTERS), depth=2, dtype="float64"), chain_certificate.verify,
        (shift_chain, "restored_graph"),
        ["shift 3 with 3 heads ×2", "restoration after shift 3 ×1", "plateaus at the letters", "read-out table"],
    ),
    "one restored shift": Case(
        "shift-chain", lambda: chain.build(FixedMemory((3,), alphabet=LETTERS), depth=1, dtype="float64"), chain_certificate.verify,
        (shift_chain, "restored_graph"), ["shift 3 with 3 heads ×1", "read-out table"],
    ),
    "best weights": Case(
        "least-squares", lambda: least_squares.build(FixedMemory((1, 3)), Fixed(norm="mean-square", decays=(0.5, 1.0, 2.0))),
        least_squares_certificate.verify, (vars(THEOREMS["least-squares"]), "lemmas"), ["memory 1", "memory 2", "read-out"],
    ),
    "biases": Case(
        "table-heads", lambda: table_heads.build(FixedMemory((1, 3)), Fixed(rpe="table")), table_certificate.verify,
        (vars(THEOREMS["table-heads"]), "lemmas"), ["extraction lag 1", "extraction lag 3", "read-out"],
    ),
    "choices": Case(
        "table-lags", lambda: table_lags.build(example("nested"), Adaptive(rpe="table")), choice_certificate.verify,
        (table_lag_theorem, "target_graph"),
        ["extraction lag 1", "extraction lag 2", "lag m1", "extraction m1", "lag m2", "extraction m2", "read-out"],
    ),
    "kerple": Case(
        "kerple-heads", lambda: kerple_heads.build(FixedMemory((1, 3)), Fixed(rpe="kerple")), kerple_certificate.verify,
        (vars(THEOREMS["kerple-heads"]), "lemmas"), ["extraction lag 1", "extraction lag 3", "read-out"],
    ),
    "stride": Case(
        "stride-heads", lambda: stride_heads.build(FixedMemory((2, 6)), Fixed(stride=2)), stride_certificate.verify,
        (vars(THEOREMS["stride-heads"]), "lemmas"), ["extraction lag 2", "extraction lag 6", "read-out"],
    ),
    "coupling": Case(
        "jl-4.2", lambda: coupling.build(target_of_kind({"kind": "coupling", "length": 4, "rho": "u*v/2"}, "", CouplingTarget), error=0.2),
        coupling_certificate.verify, (coupling_certificate, "proof_graph"), ["coupling", "values", "read-out"],
    ),
    "words": Case(
        "jl-4.1",
        lambda: representation.build(
            target_of_kind({"kind": "sequence", "formula": "x1 - x1*x2", "alphabet": [0, 1], "length": 2}, "", SequenceTarget)
        ),
        representation_certificate.verify, (representation_certificate, "proof_graph"), ["code", "table"],
    ),
    **{name: of_library(name, place, parts) for name, (place, parts) in LIBRARY.items()},
    "points": Case(
        "jl-points", lambda: points.build(centre_of_mass(3), error=0.2), points_certificate.verify, (points_certificate, "proof_graph"),
        ["coupling", "values", "read-out"],
    ),
}  # fmt: skip


@cache
def network(name: str) -> Any:
    return CASES[name].build()


def certify(name: str) -> Certificate:
    built = network(name)
    return CASES[name].verify(built.network, built.target, built.bank, built.ffn)


@pytest.mark.deep(
    keep=(
        "best weights",
        "biases",
        "fixed",
        "kernel",
        "kerple",
        "nested lags",
        "one memory per layer",
        "points",
        "stride",
        "token lags",
        "token lags, tmx",
        "words",
    )
)
@pytest.mark.parametrize("name", sorted(CASES))
def test_every_measured_lemma_has_its_part_and_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts and their order; then a lemma renamed, one no longer measured, and one that nobody measures."""
    monkeypatch.setattr("verify.theorems.jl_4_2.search", lambda error, length, pairs: np.random.default_rng(0).random((4, length)))
    case = CASES[name]
    place, key = case.graph
    holder = place if isinstance(place, dict) else vars(place)
    honest, graphs = holder[key], []

    def kept(*arguments: Any) -> nx.DiGraph:
        graphs.append(honest(*arguments))
        return graphs[-1]

    monkeypatch.setitem(holder, key, kept)
    found = certify(name)
    assert found.theorem == case.theorem and found.verdict is not Verdict.VIOLATED, found.advice
    assert [part.name for part in found.parts] == case.parts
    lemmas = measured_lemmas(graphs[-1])
    assert lemmas and graphs[-1].number_of_nodes() > len(lemmas)
    for lost in lemmas:
        for change in (lambda g, lost=lost: nx.relabel_nodes(g, {lost: "renamed"}), lambda g, lost=lost: unmeasured(g, lost)):
            monkeypatch.setitem(holder, key, lambda *arguments, change=change: change(honest(*arguments)))
            with pytest.raises(Unmatched, match=lost):
                certify(name)
    monkeypatch.setitem(holder, key, lambda *arguments: more(honest(*arguments)))
    with pytest.raises(Unmatched, match="a lemma more"):
        certify(name)


def unmeasured(graph: nx.DiGraph, name: str) -> nx.DiGraph:
    graph.nodes[name]["measured"] = False
    return graph


def more(graph: nx.DiGraph) -> nx.DiGraph:
    lemma(graph, "a lemma more", "measured by nobody", sympy.Integer(1), measured=True)
    return graph


def test_the_cases_cover_every_theorem_that_is_built() -> None:
    """Proposition 4.2 is two numbers about one network, without a bundle."""
    built = {theorem.id for theorem in THEOREMS.values() if theorem.build is not None and theorem.shelf < 1000}
    assert built == {case.theorem for case in CASES.values()}
    assert all(measured_lemmas(THEOREMS[name].proof("lin", "minimal", "spline", (2, 5))) for name in built)


@pytest.mark.parametrize(
    "module,constant", [(base, "extraction_lemma"), (thm_5_1, "kernel_lemma"), (thm_4_4, "lag_lemma"), (thm_4_4, "extraction_lemma")]
)
def test_a_lemma_is_renamed_in_one_place(module: Any, constant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proof and certificate take the name from one function: renaming it renames both, and nothing is lost."""
    name = {base: "fixed", thm_5_1: "kernel", thm_4_4: "nested lags"}[module]
    before = certify(name).parts
    honest = getattr(module, constant)
    monkeypatch.setattr(module, constant, lambda argument: f"new {honest(argument)}")
    after = certify(name).parts
    assert len(after) == len(before) and any(part.name.startswith("new ") for part in after)
    assert [(p.certified, p.bound) for p in after] == [(p.certified, p.bound) for p in before]


def test_matching_is_exact() -> None:
    graph = nx.DiGraph()
    lemma(graph, "unmeasured", "", sympy.Integer(0))
    lemma(graph, "first", "", sympy.Integer(1), measured=True)
    lemma(graph, "second", "", sympy.Integer(1), ("first",), measured=True)
    pair = arb(1) / 3, arb(1) / 2
    assert [part.name for part in matched(graph, {"second": pair, "first": pair})] == ["first", "second"]
    assert matched(graph, {"second": pair, "first": pair})[0].certified > 1 / 3  # rounded up
    for wrong in ({"first": pair}, {"first": pair, "second": pair, "third": pair}, {"first": pair, "second": pair, "unmeasured": pair}):
        with pytest.raises(Unmatched):
            matched(graph, wrong)
    several = {"first": [Part("first, twice", 1, 2), Part("first, again", 1, 2)], "second": [Part("second", 1, 2)]}
    assert [part.name for part in gathered(graph, several)] == ["first, twice", "first, again", "second"]
    with pytest.raises(Unmatched, match="second"):
        gathered(graph, several | {"second": []})
    assert not issubclass(Unmatched, LemmaformerError)  # our own mistake: never shown as bad input
    with pytest.raises(KeyError, match="already"):
        lemma(graph, "first", "", sympy.Integer(1))


CHAIN = Certificate(
    theorem="thm-3.1", witness=0.1, witness_input="", certified=0.2, bound=0.3, rounding=0.0, trivial=1.0, least_heads=None, parts=(),
    sizes={"heads": 1}, dtype="exact", seconds=0.0,
)  # fmt: skip
SAMPLED = replace(CHAIN, theorem="measured", certified=math.inf, bound=math.inf, details={"uncertified": "three layers", "arithmetic": ""})


@pytest.mark.parametrize(
    "certificate,verdict,bound_vacuous",
    [
        (CHAIN, "holds", False),
        (replace(CHAIN, bound=1.0), "holds", True),
        (replace(CHAIN, bound=math.inf), "holds", True),
        (replace(CHAIN, certified=0.999, bound=1.0), "holds", True),
        (replace(CHAIN, certified=1.0, bound=1.0), "vacuous", True),
        (replace(CHAIN, certified=math.inf, bound=math.inf), "vacuous", True),
        (SAMPLED, "measured", False),
        (replace(SAMPLED, faults=("the card lies",)), "violated", False),
        (replace(CHAIN, bound=0.15), "violated", False),
        (replace(CHAIN, witness=0.25), "violated", False),
        (replace(CHAIN, bound=2.0, parts=(Part("read-out", 2, 1),)), "violated", True),
        (replace(CHAIN, faults=("the card lies",)), "violated", False),
    ],
)
def test_verdicts(certificate: Certificate, verdict: str, bound_vacuous: bool) -> None:
    found = certificate.as_dict()
    assert found["verdict"] == certificate.chain()["verdict"] == verdict and found["bound_vacuous"] is bound_vacuous
    assert "bound_vacuous" not in certificate.chain()  # what a card claims is as it was
    assert verdict in repr(certificate) and "\n" not in repr(certificate)


def test_one_line() -> None:
    chain = replace(CHAIN, witness=0.009499, certified=0.0095001, bound=0.0096999)
    assert repr(chain) == "<Certificate thm-3.1: holds, witness 0.00949 ≤ certified 0.00951 ≤ bound 0.0097>"
    assert repr(SAMPLED) == "<Certificate: measured, witness 0.1, nothing certified>"
    assert "certified 0.2 ≤ bound ∞" in repr(replace(CHAIN, bound=math.inf)).replace("0.201", "0.2")


def test_advice_names_options_as_the_caller_writes_them() -> None:
    vague = replace(CHAIN, bound=1.5, remedies=({"bank": "minimal", "heads": None}, {"error": 0.5}))
    assert vague.advice.endswith("no better than a constant output (1), though the network is certified to 0.2; "
                                 "try bank minimal, no heads, or error 0.5")  # fmt: skip
    assert vague.text(lambda option, value: f"<{option}={value}>").endswith("; try <bank=minimal>, <heads=None>, or <error=0.5>")
    assert "remedies" not in vague.as_dict()
    assert replace(vague, faults=("the card lies",)).advice == "the card lies"


@pytest.mark.parametrize(
    "claimed,certificate,accepted",
    [
        ("holds", CHAIN, True),
        ("vacuous", CHAIN, False),
        ("measured", CHAIN, False),
        ("vacuous", replace(CHAIN, bound=2.0), True),  # the old word for a bound that says nothing
        ("holds", replace(CHAIN, bound=2.0), True),
        ("measured", replace(CHAIN, bound=2.0), False),
        ("vacuous", SAMPLED, True),  # and for an error that is only sampled
        ("measured", SAMPLED, True),
        ("holds", SAMPLED, False),
        ("holds", replace(CHAIN, certified=1.0, bound=2.0), False),
        ("vacuous", replace(CHAIN, certified=1.0, bound=2.0), True),
        ("vacuous", replace(CHAIN, bound=2.0, faults=("broken",)), False),
        ("vacuous", replace(CHAIN, witness=0.25, bound=2.0), False),
    ],
)
def test_the_old_word_on_a_card(claimed: str, certificate: Certificate, accepted: bool) -> None:
    card = {"theorem": certificate.theorem, "sizes": certificate.sizes, "chain": {**certificate.chain(), "verdict": claimed}}
    faults = _false_claims(card, certificate)
    assert (faults == []) is accepted and all("claims the verdict" in fault for fault in faults)
