"""Adaptive kernels, after a remark of Wang & E: lin heads shift a kernel with the token, log heads stretch it, at no cost in heads.

Setting. Tokens of a finite alphabet in [−1, 1], g a function of a token with whole values 1 ≤ g ≤ T. The target is, summed over s ≥ 0,
y_t = Σ ρ(s − g(x_t)) x_{t−s} (shift) or, summed over s ≥ 1, y_t = Σ ρ(s/g(x_t)) x_{t−s} (stretch). ρ is a formula that is summable, with a
value at every point that is read: whole numbers from −T on, or the quotients s/g. Nothing is cut off at s = g: what stands nearer than g is
weighed by ρ of negative numbers. Network: the two layers of Theorem 4.1, with H normalisation-free lin heads, or H log heads of "t minus x"
attention.

Statement. On s ≥ 1 let R(s) = ρ(s − T − 1) (shift), or R(s) = ρ(s/q) with q the least common multiple of the values of g (stretch).
Every bank κ(s) = Σ_h b_h e^{−p_h s} or Σ_h b_h s^{−p_h}, moved by g, errs by at most its distance from this one kernel:

    |||H − TF||| ≤ max|x| Σ_{s≥1} |κ(s) − R(s)|,                                                                              (K.1)

for all values of g at once; with the proof's banks the right-hand side is at most (5.1) and (5.2) of Theorem 5.1 for R and H heads. If ρ is
a sum of H exponentials (shift) or H powers (stretch), H heads are exact, for every g: e^{−p(s−g)} is one lin head, (s/g)^{−p} one log head.

Proof. Layer 1 has no attention, and its feed-forward network writes g(x_t), rounded to a whole number: the slot is exact. In layer 2 head h
has the score −p_h (s − g) or −p_h log(s/g) and the weight a_h = b_h e^{−p_h(T+1)} or b_h q^{−p_h}, so that together

    Σ_h a_h e^{−p_h(s−g)} = κ(s − g + T + 1)        or        Σ_h a_h (s/g)^{−p_h} = κ(s q/g).

For s ≥ 0 the numbers s − g + T + 1 are different whole numbers ≥ 1, and there R(s − g + T + 1) = ρ(s − g); for s ≥ 1 the numbers sq/g are
different whole numbers ≥ 1, and R(sq/g) = ρ(s/g). So the error of the kernel is a part of Σ_{s≥1} |κ − R|, and tokens are at most max|x|.
The point s = 0 of κ is never read: banks need no residual weight, which could not move with g. ∎

Construction. `constructions.theorems.library.adaptive_kernels`: `fitted` banks have decays and weights of least ℓ¹ distance from R, found
by a search and certified as they are stored; where ρ is a sum of heads itself they are exact. `tuned` banks are the proof's.

Repaired. The remark has no statement to repair. What it leaves open is what happens nearer than g: a bank that is shifted by g < T shows
its values at T − g, T − g + 1, …, so a kernel that is cut at 0 would need zeros there that move with g. A formula on all whole numbers from
−T on is what a shift can follow.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), section 5, Theorems 4.1 and 5.1, Lemmas F.2, F.3, F.5, F.6.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import sympy

from analyzer.families import LEAST_ERROR, MAX_BOUND_HEADS, MAX_HEADS, Dtype, sizes_given
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.theorems import base, thm_5_1

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.kernels.memory_kernels import MemoryKernel
    from analyzer.lemmas.extraction import Rpe
    from analyzer.targets.tasks.adaptive_kernels import MovingKernel

ID = "adaptive-kernels"
TITLE = "kernels that move with the token: lin heads shift them, log heads stretch them"
STATEMENT = {
    "lin": "|||H − TF||| ≤ max|x| Σ_{s≥1} |κ(s) − ρ(s−T−1)| for y_t = Σ_s ρ(s − g(x_t)) x_{t−s}: one bank for all shifts",
    "log": "|||H − TF||| ≤ max|x| Σ_{s≥1} |κ(s) − ρ(s/q)| for y_t = Σ_s ρ(s/g(x_t)) x_{t−s}: one bank for all scales",
}
LAG_LEMMA, KERNEL_LEMMA = "lag", "kernel"
"""The lemmas of which a certificate shows numbers."""


@dataclass(frozen=True)
class MovingBank(Options):
    """Networks of adaptive-kernels: by heads, or for an error."""

    bank: Literal["fitted", "tuned"] = option("fitted", "heads: least distance from the kernel, or those of the proof")
    heads: int | None = option(None, "heads of the second layer", least=1, most=MAX_HEADS)
    error: float | None = option(None, "total worst-case error, certified", least=LEAST_ERROR, shown="0.01 unless heads are given")
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")


@dataclass(frozen=True)
class MovingBound(Options):
    """The bound of adaptive-kernels with the proof's banks: for some heads, or solved for an error."""

    heads: int | None = option(None, "heads of the second layer", least=1, most=MAX_BOUND_HEADS)
    error: float | None = option(
        None, "solve for the fewest heads that reach this error", least=LEAST_ERROR, shown="0.01 unless heads are given"
    )

    def check(self) -> None:
        object.__setattr__(self, "error", sizes_given(self.heads, self.error, None))


def rpe_of(target: "MovingKernel") -> "Rpe":
    """The heads that follow a motion."""
    return "lin" if target.motion == "shift" else "log"


def reference_lag(target: "MovingKernel") -> int:
    """T + 1 or q: the value of g at which the moved kernel is R."""
    return target.longest + 1 if target.motion == "shift" else math.lcm(*target.lags)


def reference(target: "MovingKernel") -> "MemoryKernel":
    """R, on s ≥ 1."""
    return target.moved(reference_lag(target), beyond=True)


def expression(rpe: "Rpe", bank: str) -> sympy.Expr:
    """(5.1) and (5.2), for R."""
    return thm_5_1.expression(rpe, bank)


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return base.citation(bank, ffn, "section 5, Theorems 4.1 and 5.1")


def proof_graph(rpe: "Rpe", bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    budget = sympy.Symbol("e", nonnegative=True) if bank == "fitted" else expression(rpe, bank)
    lemma(graph, LAG_LEMMA, "the lag before it is rounded, against g", sympy.Rational(1, 2), source="Wang & E, Theorem 4.1", measured=True)
    lemma(graph, "reference", "one bank against R, which has every moved kernel in it", budget, source="Wang & E, Lemmas F.3 and F.6")
    lemma(graph, KERNEL_LEMMA, "κ moved by g against ρ moved by g, the worst g", budget, ("reference", LAG_LEMMA), measured=True)
    lemma(graph, ID, TITLE, budget, (KERNEL_LEMMA,), "Wang & E, section 5")
    return graph


def bound(target: "MovingKernel", options: MovingBound) -> Bound:
    """(K.1) with (5.1) or (5.2) for R."""
    from flint import arb

    from analyzer.numbers.exact import rational, upper

    rpe, kernel, size = rpe_of(target), reference(target), arb(rational(target.size))
    if options.heads is None:
        assert options.error is not None
        found = thm_5_1.solve_heads(rpe, [kernel], options.error / target.size)
    else:
        found = thm_5_1.attention_bound(rpe, [kernel], options.heads)
    total = upper(size * found.total)
    data = {"heads": sum(found.heads), "rate": found.rates[0], "layers": 2, "reference": kernel.text, "total": total}
    return Bound(ID, total, {KERNEL_LEMMA: total}, expression(rpe, "tuned"), {}, data)


def designs(target: "MovingKernel", dtype: str) -> list[Design]:
    """Both banks."""
    return product_of(bank=("fitted", "tuned"))


def proven(target: "MovingKernel", options: MovingBank) -> Proven:
    """What the proof's banks ask for; fitted ones follow no rate."""
    heads = bound(target, MovingBound(error=options.error)).heads
    return Proven(2, heads, max(2, len(target.alphabet)), work=0.0 if heads is None else thm_5_1.interpolation_work(rpe_of(target), heads))


_SHIFT = {"kind": ID, "alphabet": [-1.0, 0.5, 1.0], "lags": [1, 3, 2], "rho": "exp(-s/2)", "motion": "shift"}
_STRETCH = {"kind": ID, "alphabet": [-1.0, 1.0], "lags": [2, 3], "rho": "s**-3 - s**-5/2", "motion": "stretch"}

THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target=ID,
    options=MovingBank,
    bound_options=MovingBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    build="constructions.theorems.library.adaptive_kernels:build",
    verify="verify.theorems.library.adaptive_kernels:verify",
    designs=designs,
    proven=proven,
    cases=(Case(_SHIFT, {"dtype": "float64"}, {"error": 0.1}), Case(_STRETCH, {})),
    shelf=17.0,
)
