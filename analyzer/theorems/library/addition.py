"""Addition: one ALiBi head and five neurons, or two, add any two n-digit numbers, right for all B^{2n} pairs of them.

Setting. Digits in base B arrive in pairs (a_t, b_t), the least significant ones first; d_t = a_t + b_t ∈ {0, …, 2B−2}. The carries are
c_0 = 0, c_{t+1} = 1{d_t + c_t ≥ B}, and the digits of the sum are y_t = d_t + c_t − B c_{t+1}, t = 0, …, n. Network: two layers, the first
with one dp-free lin head over the infinite past, weights (1−z)z^s with z = e^{−p}, the second without attention.

Statement. *A carry is a comparison of prefix sums.* With f_t = Σ_{s≥0} B^{−s} d_{t−s},

    c_{t+1} = 1{f_t ≥ B},   c_t = 1{f_t − d_t ≥ 1},   where sums without a carry stay B^{−t} below these thresholds.             (1)

So p = ln B, and the network's outputs are the digits, exactly, for all inputs. *The ratio 1/B is the best one.* No other ratio has as
large a gap between prefix sums with and without a carry; and whatever weights a head, or a bank of heads, gives to the t + 1 sums that it
has seen, if a threshold of Σ_s w_s d_{t−s} decides c_{t+1}, its gap is at most

    w_0 B^{−t}.                                                                                                             (2)

*Floats.* With unit roundoff u, and decay, weights and scan rounded, prefix sums are off by less than 32Bu. Both networks below stay right,
with outputs that are integers without any error, while twice that is at most 3/4 of the gap,

    B^{n+1} ≤ 3/(256u).                                                                                                     (3)

In base 10 this is n ≤ 4 in float32 and n ≤ 13 in float64. By (2) any single threshold has a horizon of this order, n ≈ log_B 1/u.

Proof. *(1).* B^t f_t = Σ_{j≤t} B^j d_j is the sum of the two numbers up to digit t, a whole number; c_{t+1} = 1 iff it is at least B^{t+1},
and otherwise it is at most B^{t+1} − 1. Likewise f_t − d_t = f_{t−1}/B. *(2).* Let Δ be the gap, and 0 ≤ k ≤ t. Take d = B−1 at all
distances s < k, so that a carry goes through; d = B at distance k and 0 beyond makes one; d = B−1 at distance k and beyond makes none.
Hence w_k − (B−1)Σ_{s>k} w_s ≥ Δ. For k = t, t−1, …, 0 in turn: w_t ≥ Δ, w_{t−1} ≥ Δ + (B−1)Δ = BΔ, …, w_0 ≥ B^t Δ. With equality in
the last all are equalities, w_s = B^{t−s}Δ, which for w_s = z^s is z = 1/B. *(3).* In units of d: stored decay and ratio move z by
(1 + ln B)u/B; a step of the scan rounds zS twice and zS + v once, |S| ≤ 2B, so its error is at most (2B + 4 + 2 ln B)uB/(B−1); gain, output
and their products move f by 2B(4 + ln B/(B−1))u; what reads it rounds at most three terms, of size 4B in all, and has a rounded
threshold. The sum is largest for B = 2, below 31.5Bu, which leaves Bu/2 for terms in u². Plateaus afford 3/8 of the gap on either side,
roundings to integers one half of it. ∎

Construction. `constructions.theorems.library.addition`. *plateaus*: q = relu(K(θ − x)), K ≥ 8/gap, is 0 where there is a carry and at
least 1 where there is none, and relu(1 − q) is the carry itself: a plateau on both sides, so that nothing is left of the errors of x. Two
layers deep, as a difference relu(r) − relu(r − 1) of steep ramps would leave an error of u·K. *integers*: one slot, two neurons, and
feed-forward networks with precision as in [WE], [·] the nearest integer. The residual connection adds d to whatever the head writes
anyway, so let the slot hold û = (d + (P−B)f/B)/P, P > B. With e = d + c and h = f − e ∈ [0, 1 − B^{−t}],

    û + 1/P = e/B + ((P−B)h/B + 1 − c)/P ∈ [e/B, (e+1)/B − 2δ],     2δ = B^{−t}(P−B)/(PB),

so c_{t+1} = [relu(û + 1/P + δ − 1/2)], then û ← û − c_{t+1}, and y_t = e − B c_{t+1} = [relu(B(û + 1/P + δ) − 1/2)].

Remarks. *How few parameters?* Counted are all numbers that are stored, zeros included; what is fixed is the architecture: shapes, window,
ReLU, and where [·] rounds. The integers network has 13, of which 11 are not zero (W_E 2, decay, W_V, W_O, and two neurons with a weight, a
bias and a weight each): the smallest that is certified here. The plateaus network, ReLUs only, has 58, of which 20 are not zero.
Hand-made adders with few parameters are usually tested on samples; here all inputs are certified, from the stored weights. *Exact
networks* have a decay of as many bits as n asks for, and no horizon; `run` evaluates them in float64, whose horizon is (3).

References. Press, Smith & Lewis, Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation, arXiv
2108.12409 (ICLR 2022), for the head; Wang & E (NeurIPS 2024), eq. 15, for feed-forward networks with precision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import sympy
from flint import fmpq

from analyzer.errors import Refusal, finer
from analyzer.families import LEAST_ERROR, Dtype
from analyzer.numbers.exact import UNIT, nearest
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Proven
from analyzer.statements.theorem import Case, Theorem

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.tasks.addition import AdditionTarget

ID = "addition"
TITLE = "sums of n-digit numbers by one ALiBi head: a carry is a comparison of prefix sums"
_TEXT = "Ŷ = Y for all pairs of n-digit numbers in base B, in floats while B^{n+1} ≤ 3/(256u); 13 parameters are enough"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""The head is lin; the statement is the same whatever the relative positions are elsewhere."""
BIBTEX = """@inproceedings{press2022train,
  title     = {Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation},
  author    = {Press, Ofir and Smith, Noah A. and Lewis, Mike},
  booktitle = {International Conference on Learning Representations},
  year      = {2022},
  note      = {arXiv:2108.12409; ALiBi, the head that forms prefix sums}
}
"""
B, n, u = sympy.symbols("B n u", positive=True)
NOISE = 32 * B * u
"""What roundings move a prefix sum by, at most."""
LOST = 2 * NOISE * B**n
"""(3): the share of the gap B^{−n} that this takes from both sides together; 3/4 are affordable."""
AFFORDABLE = fmpq(3, 4)
EXACT_LOSS = fmpq(1, 8)
"""The share of the gap that the decay of an exact network may take: it has the bits for that."""
GAP_LEMMA, DIGIT_LEMMA = "gap", "digits"
"""The lemmas of which a certificate shows numbers."""
_DTYPE = "arithmetic of the network"


@dataclass(frozen=True)
class Adder(Options):
    """Networks that add (addition).

    >>> from analyzer.theorems.library.addition import Adder
    >>> Adder(restore="integers").bank
    'integers'
    """

    restore: Literal["plateaus", "integers"] = option(
        "plateaus", "how carries become 0 or 1: ReLUs with plateaus, or feed-forward networks that round to integers (fewest weights)"
    )
    error: float | None = option(None, "the error to be certified", least=LEAST_ERROR, shown="0: digits are exact")
    dtype: Dtype = option("exact", _DTYPE)

    @property
    def bank(self) -> str:
        """What cards call it."""
        return self.restore


@dataclass(frozen=True)
class AdderBound(Options):
    """The gap, the noise and the horizon of an arithmetic.

    >>> import lemmaformer as lf
    >>> lf.bound("addition", lf.task("addition", digits=10), dtype="float64").data["horizon"]
    13
    """

    dtype: Dtype = option("exact", _DTYPE)


def horizon(base: int, dtype: str) -> int | None:
    """The largest n with B^{n+1} ≤ 3/(256u); None in exact arithmetic, which has no horizon."""
    if dtype == "exact":
        return None
    digits = 0
    while lost(base, digits + 1, dtype) <= AFFORDABLE:
        digits += 1
    return digits


def lost(base: int, digits: int, dtype: str) -> fmpq:
    """The share of the gap that is promised to be lost at most: 64 B^{n+1} u, in exact networks 1/8."""
    return EXACT_LOSS if dtype == "exact" else 64 * fmpq(base) ** (digits + 1) * UNIT[dtype]


def gap(base: int, weights: Sequence[fmpq]) -> fmpq:
    """The least Σ_s w_s d_{t−s} with c_{t+1} = 1 minus the largest with c_{t+1} = 0, for weights w_0, …, w_t ≥ 0; negative if they overlap.

    A dynamic programme from the oldest sum to the newest: extreme values by the carry that they leave behind.
    """
    ends: dict[int, tuple[fmpq, fmpq]] = {0: (fmpq(0), fmpq(0))}
    for weight in reversed(weights):
        found: dict[int, list[fmpq]] = {0: [], 1: []}
        for carry, (low, high) in ends.items():
            for total in range(2 * base - 1):
                found[int(total + carry >= base)] += [low + weight * total, high + weight * total]
        ends = {carry: (min(values), max(values)) for carry, values in found.items()}
    return ends[1][0] - ends[0][1]


def check(target: "AdditionTarget", options: Adder) -> None:
    """Refuse digits beyond the horizon."""
    most = horizon(target.base, options.dtype)
    if most is None or target.digits <= most:
        return
    ways = [way for way in finer(options.dtype) if (horizon(target.base, str(way["dtype"])) or target.digits) >= target.digits]
    noise = nearest(32 * target.base * UNIT[options.dtype])
    raise Refusal(
        f"carries of {target.digits} digits in base {target.base} are decided by a gap of {target.base}^-{target.digits} between prefix "
        f"sums, which roundings of {options.dtype} move by up to {noise:.2g} (32Bu): B^(n+1) <= 3/(256u) holds up to {most} digits",
        *ways,
    )


def expression(rpe: str, bank: str) -> sympy.Expr:
    """The error: digits are exact."""
    return sympy.Integer(0)


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return BIBTEX


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, GAP_LEMMA, "the share of the gap B^{−t} between prefix sums with and without a carry that is lost", LOST, measured=True)
    lemma(graph, DIGIT_LEMMA, "digits from carries, restored exactly", sympy.Integer(0), (GAP_LEMMA,), measured=True)
    lemma(graph, ID, TITLE, sympy.Integer(0), (DIGIT_LEMMA,))
    return graph


def bound(target: "AdditionTarget", options: AdderBound) -> Bound:
    """Error 0, and what it rests on: the gap, the share of it that is lost, the horizon."""
    check(target, Adder(dtype=options.dtype))
    share = lost(target.base, target.digits, options.dtype)
    data = {
        "heads": 1,
        "digits": target.digits,
        "base": target.base,
        "dtype": options.dtype,
        "gap": str(gap(target.base, [fmpq(1, target.base) ** s for s in range(target.length)])),
        "lost": nearest(share),
        "affordable": nearest(AFFORDABLE),
        "horizon": horizon(target.base, options.dtype),
        "inputs": str(target.base ** (2 * target.digits)),
        "worst_case": 0.0,
    }
    return Bound(ID, 0.0, {GAP_LEMMA: nearest(share), DIGIT_LEMMA: 0.0}, expression("lin", "plateaus"), {}, data, claim="worst-case error")


def proven(target: "AdditionTarget", options: Adder) -> Proven:
    """Two layers, one head; three neurons in the read-out, or one."""
    return Proven(2, 1, 3 if options.restore == "plateaus" else 1)


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="addition",
    options=Adder,
    bound_options=AdderBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    check=check,
    build="constructions.theorems.library.addition:build",
    verify="verify.theorems.library.addition:verify",
    proven=proven,
    cases=(
        Case({"kind": "addition", "digits": 10, "base": 10}, {"dtype": "float64"}, {"dtype": "float64"}),
        Case({"kind": "addition", "digits": 3, "base": 4}, {"restore": "integers"}, {"dtype": "exact"}),
    ),
    shelf=15,
)
