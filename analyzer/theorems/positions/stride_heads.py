"""Strides: heads that see every c-th token serve a lag T = cq with q heads.

Setting. Tokens x_t ∈ [−1, 1]^d, target y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}). One layer with dp-free heads that see the distances 0, c, 2c,
… and no others: k_h(cj) = e^{p_h φ(j)} / Σ_i e^{p_h φ(i)}, φ(j) = −j (lin) or −log j (log).

Statement. If c divides every lag, T_k = c q_k, the same layer of heads as for the lags q_k without a stride, with the same weights, has the
same errors: everything that Theorem 3.1 (`analyzer.theorems.thm_3_1`) promises for the lags q_k holds for the lags T_k. In particular

    T_M/c heads of one type reach every error, ⌊T_M/2c⌋ + 1 of both types do for one lag,                                   (S.1)

no fewer reach an error below 1, and what floats hold of the lag q they hold of cq. **A lag that c does not divide is not seen at all:
every network of this class errs by at least 1 there** (bucket law).

Proof. The output at t is a function of x_t, x_{t−c}, x_{t−2c}, …: the network without the stride reads them as the sequence x'_j =
x_{t−c(n−j)}, j ≤ n, and is asked for y_t = f(x'_n, x'_{n−q_1}, …) at its last token. These sequences range over all of [−1, 1]^d as x
does: the worst cases are equal, κ_c(cs) = κ(s). The executors run the c interleaved sequences side by side, by the same operations, so
roundings have the same bounds. (S.1) is the lag law with its banks, for the lag q. For c ∤ T the tokens x_{t−T} = ±1, all others 0, give
the same output and ask for 1 and −1. ∎

Remarks. ALiBi's slope p with a stride is p' = cp per step, and (cj)^{−p} is j^{−p} after normalisation: on the distances that are seen
these are the same families of heads. With c = T one head serves the lag T. What a stride costs is the other lags.

Construction. `constructions.theorems.positions.stride_heads`: the network of Theorem 3.1 for the lags q_k, its attention with the stride c.

References. Child, Gray, Radford & Sutskever, Generating Long Sequences with Sparse Transformers, arXiv 1904.10509 (strided attention); the
setting is that of Wang & E, arXiv 2402.00522, Theorem 3.1.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sympy

from analyzer.errors import InputError, Refusal, Remedy
from analyzer.families import DEFAULT_ERROR, Fixed, FixedBound, StrideBound
from analyzer.lemmas import extraction as ex
from analyzer.limits.lag_law import lag_law
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base, thm_3_1

if TYPE_CHECKING:
    import networkx as nx

ID = "stride-heads"
TITLE = "strides: a lag T = cq costs what lag q costs"
_TEXT = "|||H − TF||| for the lags c q_k with stride c is that of Theorem 3.1 for the lags q_k: T_M/c heads reach every error"
STATEMENT = {"lin": _TEXT, "log": _TEXT}
MOST_DESIGNS = 6
"""Strides that a plan sets side by side, the smallest common divisors of the lags."""
CHILD = """@article{child2019generating,
  title   = {Generating Long Sequences with Sparse Transformers},
  author  = {Child, Rewon and Gray, Scott and Radford, Alec and Sutskever, Ilya},
  journal = {arXiv preprint arXiv:1904.10509},
  year    = {2019}
}
"""


def in_steps(target: FixedMemory, stride: int) -> FixedMemory:
    """The target in steps of the stride; refused with the bucket law where the stride does not divide a lag."""
    unseen = [lag for lag in target.lags if lag % stride]
    if unseen:
        common = math.gcd(*target.lags)
        ways: list[Remedy] = [{"stride": common}] if common > 1 else [{"stride": None}]
        raise Refusal(
            f"stride {stride} does not divide lag {unseen[0]}: heads see the distances 0, {stride}, {2 * stride}, … and no others, so "
            "by the bucket law every network of this kind errs by at least 1 there",
            *ways,
        )
    return replace(target, lags=tuple(lag // stride for lag in target.lags))


def without_stride(options: Fixed) -> Fixed:
    """The same options for Theorem 3.1."""
    return replace(options, stride=1)


@contextmanager
def in_tokens(stride: int) -> Iterator[None]:
    """A refusal of Theorem 3.1 speaks of steps; a chain of shifts, if it proposes one, has no stride."""
    try:
        yield
    except Refusal as refusal:
        ways = [{**way, "stride": None} if "depth" in way else way for way in refusal.remedies]
        raise Refusal(f"lags in steps of the stride {stride}: {refusal.reason}", *ways) from None


def expression(rpe: ex.Rpe, bank: str) -> sympy.Expr:
    """The extraction error of one memory, T counted in steps."""
    return base.expression(rpe, bank)


def proof_graph(rpe: ex.Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof: that of Theorem 3.1 with lags counted in tokens, and the stride above it."""
    from analyzer.statements.proof import lemma

    graph = thm_3_1.proof_graph(rpe, bank, ffn, lags)
    below = thm_3_1.ID
    lemma(graph, ID, TITLE, graph.nodes[below]["budget"], (below,))
    return graph


def bound(target: FixedMemory, options: StrideBound) -> Bound:
    """The bound of Theorem 3.1 in steps of the stride; a minimal bank has as many heads as the longest lag has steps."""
    steps = in_steps(target, options.stride)
    shared: dict[str, Any] = {"lags": list(target.lags), "stride": options.stride, "steps": list(steps.lags)}
    if options.bank != "minimal":
        found = thm_3_1.bound(steps, FixedBound(rpe=options.rpe, bank=options.bank, heads=options.heads, error=options.error))
        parts = {base.extraction_lemma(lag): part for lag, part in zip(target.lags, found.parts.values(), strict=True)}
        return replace(found, theorem=ID, parts=parts, data={**found.data, **shared})
    error = DEFAULT_ERROR if options.error is None else options.error
    law = lag_law(options.rpe, steps.lags, error)
    each = error / len(steps.lags)
    data = {**shared, "rpe": options.rpe, "tuning": options.bank, "heads": steps.lags[-1], "attention": error}
    data |= {"lower_bound_heads": law.heads, "lower_bound_status": law.status}
    parts = {base.extraction_lemma(lag): each for lag in target.lags}
    return Bound(ID, error, parts, expression(options.rpe, "minimal"), {}, data, claim="attention error")


def check(target: FixedMemory, options: Fixed) -> None:
    """Refuse what such a layer cannot be, before anything is built."""
    if options.stride == 1:
        raise InputError(f"{ID} is about heads with a stride of 2 or more; without one it is thm-3.1")
    steps = in_steps(target, options.stride)
    with in_tokens(options.stride):
        thm_3_1.check(steps, without_stride(options))


def designs(target: FixedMemory, dtype: str) -> list[Design]:
    """Minimal banks of lin heads for the common divisors of the lags."""
    common = math.gcd(*target.lags)
    strides = [c for c in range(2, common + 1) if common % c == 0][:MOST_DESIGNS]
    ways = base.read_out_ways(target.readout)[:1] if target.alphabet is None else ()
    return product_of(stride=tuple(strides), ffn=ways)


def proven(target: FixedMemory, options: Fixed) -> Proven:
    """What Theorem 3.1 asks for, in steps of the stride."""
    return thm_3_1.proven(in_steps(target, options.stride), without_stride(options))


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=Fixed,
    bound_options=StrideBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: "\n".join([CHILD, base.citation(bank, ffn)]),
    check=check,
    build="constructions.theorems.positions.stride_heads:build",
    verify="verify.theorems.positions.stride_heads:verify",
    designs=designs,
    proven=proven,
    applies=lambda target, options: options.stride > 1,
    cases=(
        Case({"kind": "fixed", "lags": [4, 8], "readout": "x0 + m1*m2"}, {"stride": 4, "error": 0.05}, {"stride": 4, "error": 0.1}),
        Case(
            {"kind": "fixed", "lags": [12]}, {"stride": 4, "dtype": "float64", "error": 0.05}, {"stride": 4, "bank": "tuned", "heads": 256}
        ),
        Case({"kind": "fixed", "lags": [6], "dim": 2}, {"stride": 3, "rpe": "log", "error": 0.05}, {"stride": 3, "rpe": "log"}),
    ),
    shelf=8.9,
)
