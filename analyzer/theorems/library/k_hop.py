"""k-hop induction in ⌈log₂k⌉ + 2 layers: pointers are whole numbers, and a layer composes two of them.

Setting. Sequences of at most N letters of an alphabet of A, N, A ≥ 2, position 0 first. find_1(t) is the largest j with 1 ≤ j ≤ t and
x_{j−1} = x_t, or 0 if there is none; find_n is its n-th iterate; y_t = x_{find_k(t)}, or 0 where find_k(t) = 0. As find_1(0) = 0,
undefined stays undefined (`analyzer.targets.tasks.k_hop`). Network: causal softmax attention over the tokens of the array, with a table
of absolute positions; hidden feed-forward networks restore what heads deliver to whole numbers, by rounding ([WE]'s "FFN with
precision") or by staircases of relu neurons. Letters are the numbers 1 … A, and 0 stands for none.

Statement. There are networks of ⌈log₂k⌉ + 2 layers with at most two heads each (`doubling`), and of k + 1 layers with one head each
(`chain`), that compute y exactly, at every position of every such sequence. With m = 2A neurons in the read-out

    |y_t − ŷ_t| = 0 in exact arithmetic,      |y_t − ŷ_t| ≤ 16 m² u in floats of unit roundoff u,                            (K.1)

the latter as long as N < 1/(8√u) and the noise that is derived below stays within the tolerance of the restoration.

| k | 1 | 2 | 3 | 4 | 5 | 8 | 16 | 1000 |
|---|---|---|---|---|---|---|---|---|
| layers by doubling, ⌈log₂k⌉ + 2 | 2 | 3 | 4 | 4 | 5 | 5 | 6 | 12 |
| layers one jump at a time, k + 1 | 2 | 3 | 4 | 5 | 6 | 9 | 17 | 1001 |

Proof. By induction over the layers: a slot holds a whole number at every position of every sequence; the next layer's heads deliver
another one to within less than 1/4; the feed-forward network restores it, and writes it into a slot of its own. In positions and in
numbers of letters, let δ = 2^{−8} be what heads may err by in exact arithmetic, and V = max(N − 1, A), which no two values exceed in
distance.

*(1) The letter before.* Position table: j and (j − c)², c = ⌊N/2⌋. The query (2β(t−1−c), −β) against the keys (j − c, (j − c)²) is
−β(j − (t−1))² plus what does not depend on j: the winner is t − 1, and a position at distance d from it lies βd² below. As
d² ≥ 1 + 3(d−1), the others weigh at most r ≤ 2Σ_{d≥1} e^{−βd²} ≤ 2e^{−β}/(1 − e^{−3β}) relative to it, and by the hard-attention lemma
what arrives is at most rV away. The neurons write one-hot vectors of x_t and of x_{t−1}; the latter is 0 at t = 0.

*(2) find_1.* The query (B·onehot(x_t), p, B/2) against the keys (onehot(x_{j−1}), j, 1{j = 0}): a match has the logit B + pj, position 0
has B/2, everything else pj. With B = 2(p(N−1) + g) the last match wins, or position 0 if there is none, and what is neither the winner
nor an earlier match lies g below. Earlier matches lie pd below at distance d, with values that differ by d (positions) or A (letters):

    error ≤ max(A, 1/(1−e^{−p})) e^{−p}/(1−e^{−p}) + (N−1) V e^{−g}.                                                         (K.2)

*(3) Composition.* find_{a+b}(t) = find_b(find_a(t)): the query is the pointer itself, 2β(find_a(t) − c), the keys are those of (1), the
values are find_b(j) and the letter there. As find_a(t) ≤ t, the winner is seen. So one layer composes any two pointers: a = b doubles,
and a second head adds the binary digits of k one by one, find_{k mod 2^{i+1}} = find_{2^i} ∘ find_{k mod 2^i}. The largest power of 2
below or at k takes ⌊log₂k⌋ layers after the first two, and one more composes it with the rest of k, if there is one: ⌈log₂k⌉ + 2 in all.
With b = 1 in each layer it is k + 1. The last layer brings the letter only, and the read-out is a staircase that takes the number a
to the a-th letter: on its plateaus the slope is 0, so the noise is gone. ∎

*Constants.* β, p, g are the least whole numbers for which (1), (2) and (3) err by at most δ/2, with a factor e left to the noise of
logits in (2). As max(A, 1/(1−e^{−p}))/(1−e^{−p}) ≤ 2A for p ≥ 1, p ≥ 1 + log(8A/δ) and g ≥ 1 + log(4(N−1)V/δ) do for (K.2), with δ/4 for
each term; β is found from Ve^{2η}·2e^{−β′}/(1 − e^{−3β′}) ≤ δ/2, where η = 0 and β′ = β in exact arithmetic.

*Floats.* Rounding by rounding, a logit of a position head is off by η ≤ 32uβN²: it is a sum of products that add up to ¾βN² in absolute
value. So β(1 − 64uN²) must be positive: **a float type resolves N < 1/(8√u) positions**, 511 in float32, 10⁷ in float64. A logit of
(2) is off by at most 192(A+1)uB, as the one-hot vectors are by a multiple of (A+1)u; the factor e allows for 1/2. Staircases of at most
V steps return a whole number to within ρ = 16V³u, rounding to integers to within 0, and a pointer off by ρ leaves β′ = β(1 − 2ρ). Means
add 4NVu. So what is restored is off by at most δ + 4NVu + ρ; we ask for half the tolerance. A type that cannot keep these is refused;
the certificate counts all of them again, from the stored weights. In float32 498 tokens of 2 letters are left, 396 of 4, 106 of 16; with
staircases 50 of 4.

Construction. `constructions.theorems.library.k_hop`: every pointer has a slot of its own, find 1, find 2, find 4, …, for the steps of an
addition chain that ends in k.

References. Sanford, Hsu & Telgarsky, Transformers, Parallel Computation, and Logarithmic Depth, arXiv 2402.09268 (ICML 2024), for the task
and depth O(log k); the construction and its constants are derived here. Wang & E, arXiv 2402.00522, for the FFN with precision.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import sympy

from analyzer.errors import InputError, Refusal, finer
from analyzer.families import Dtype
from analyzer.numbers.exact import UNIT, nearest
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.tasks.k_hop import KHopTarget

if TYPE_CHECKING:
    import networkx as nx

ID = "k-hop"
TITLE = "k jumps back in logarithmic depth, by pointer doubling"
_TEXT = "Ĥ = H on all sequences of N letters, in ⌈log₂k⌉ + 2 layers of two heads, or k + 1 layers of one; 16 m² u in floats"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""Positions are absolute: the statement is the same whatever the relative positions are elsewhere."""
BIBTEX = """@inproceedings{sanford2024transformers,
  title     = {Transformers, Parallel Computation, and Logarithmic Depth},
  author    = {Sanford, Clayton and Hsu, Daniel and Telgarsky, Matus},
  booktitle = {International Conference on Machine Learning},
  year      = {2024},
  note      = {arXiv:2402.09268}
}
"""
Depth = Literal["doubling", "chain"]
Rounding = Literal["ideal", "relu"]
DELTA = 2.0**-8
"""δ: what a lookup may err by in exact arithmetic, in positions and in numbers of letters."""
TOLERANCE = 0.25
"""What staircases of slope 2 restore."""
MOST_CHAINED = 64
"""Jumps that are made one layer each."""
SHARPEST = 256
"""β is searched up to this: where noise grows as fast as the gap, no β is enough."""
u, m = sympy.symbols("u m", nonnegative=True)
EXPRESSION = 16 * u * m**2
"""(K.1)."""
PREVIOUS, READ_OUT = "previous letter", "read-out"
"""Lemmas of which a certificate shows numbers, beside `find n` for every step of the chain."""


@dataclass(frozen=True)
class KHop(Options):
    """Networks of k-hop induction.

    >>> from analyzer.theorems.library.k_hop import KHop
    >>> KHop(layers="chain").bank
    'chain'
    """

    layers: Depth = option("doubling", "pointer doubling in about log2 k layers, or a chain of k jumps, one per layer")
    rounding: Rounding = option("ideal", "how pointers become integers: [.], or staircases of relu neurons")
    error: float | None = option(None, "total worst-case error, certified", least=1e-30, shown="0.01")
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")

    @property
    def bank(self) -> str:
        """What cards call it."""
        return self.layers


@dataclass(frozen=True)
class KHopBound(Options):
    """The sizes of k-hop networks.

    >>> import lemmaformer as lf
    >>> lf.bound("k-hop", lf.task("k-hop", hops=16)).data["layers"]
    6
    """

    layers: Depth = option("doubling", "pointer doubling in about log2 k layers, or a chain of k jumps, one per layer")


@dataclass(frozen=True)
class Composition:
    """find_n = find_value ∘ find_query, n = query + value."""

    query: int
    value: int

    @property
    def n(self) -> int:
        return self.query + self.value


def addition_chain(hops: int, layers: Depth) -> list[list[Composition]]:
    """The compositions of every layer from the third on; the last one has one, which ends in k."""
    if layers == "chain":
        return [[Composition(n, 1)] for n in range(1, hops)]
    found = []
    for bit in range(hops.bit_length() - 1):
        power, low = 1 << bit, hops & ((1 << bit) - 1)
        adding = [Composition(low, power)] if low and hops >> bit & 1 else []
        found.append([Composition(power, power), *adding])
    top = 1 << (hops.bit_length() - 1)
    return found if hops == top else [*found, [Composition(hops - top, top)]]


def depth(hops: int, layers: Depth) -> int:
    """⌈log₂k⌉ + 2, or k + 1.

    >>> [depth(k, "doubling") for k in (1, 2, 4, 8, 16)], [depth(k, "chain") for k in (1, 2, 4, 8, 16)]
    ([2, 3, 4, 5, 6], [2, 3, 5, 9, 17])
    """
    return hops + 1 if layers == "chain" else (hops - 1).bit_length() + 2


def depth_table(hops: Iterable[int]) -> list[dict[str, int]]:
    """Depth against k, both ways."""
    return [{"hops": k, "doubling": depth(k, "doubling"), "chain": depth(k, "chain")} for k in hops]


@dataclass(frozen=True)
class Scales:
    """The whole numbers of which all weights are made: β of position heads, p and B of the head that finds the last match."""

    sharpness: int
    recency: int
    match: int


def budgets(target: KHopTarget, dtype: str, rounding: str) -> tuple[float, float]:
    """(ρ, what a lookup may err by: δ + 4NVu + ρ)."""
    unit = 0.0 if dtype == "exact" else nearest(UNIT[dtype])
    spread = max(target.length, target.size)
    restored = 16 * spread**3 * unit if rounding == "relu" else 0.0
    return restored, DELTA + 4 * target.length * spread * unit + restored


def horizon(dtype: str) -> int:
    """The most positions that a float type resolves: N < 1/(8√u)."""
    return math.ceil(1 / (8 * math.sqrt(nearest(UNIT[dtype])))) - 1


def scales(target: KHopTarget, dtype: str, rounding: str) -> Scales:
    """β, p and B for a target, or a refusal with the reason that no such numbers exist."""
    length, spread = target.length, max(target.length - 1, target.size)
    unit = 0.0 if dtype == "exact" else nearest(UNIT[dtype])
    restored, budget = budgets(target, dtype, rounding)
    if dtype != "exact" and length > horizon(dtype):
        raise Refusal(f"{dtype} resolves N < 1/(8 sqrt(u)) positions, that is {horizon(dtype)}, and {length} are asked for", *finer(dtype))
    if not budget < TOLERANCE / 2:
        how = "staircases of relu neurons" if rounding == "relu" else "means"
        ways = [{"rounding": "ideal"}] if rounding == "relu" else []
        raise Refusal(
            f"{how} over {length} positions are off by up to {budget:.2g} in {dtype}; less than 1/8 is needed", *ways, *finer(dtype)
        )
    recency = math.ceil(1 + math.log(8 * target.size / DELTA))
    match = 2 * (recency * (length - 1) + math.ceil(1 + math.log(4 * (length - 1) * spread / DELTA)))
    noise = 192 * unit * (target.size + 1) * match
    if not noise <= 0.5:
        reason = f"logits of B = {match} are off by up to 192(A+1)uB = {noise:.2g} in {dtype}; at most 1/2 is needed"
        raise Refusal(reason, *finer(dtype))
    for sharpness in range(1, SHARPEST):
        gap = sharpness * (1 - 2 * restored)
        if spread * math.exp(64 * unit * sharpness * length**2) * 2 * math.exp(-gap) / (1 - math.exp(-3 * gap)) <= DELTA / 2:
            return Scales(sharpness, recency, match)
    raise Refusal(f"the noise of logits leaves no gap between {length} positions in {dtype}", *finer(dtype))


def check(target: KHopTarget, options: KHop) -> None:
    """Refuse what cannot be built, before anything is."""
    if options.layers == "chain" and target.hops > MOST_CHAINED:
        raise InputError(f"a chain of {target.hops} jumps is {target.hops + 1} layers; chains are built up to {MOST_CHAINED} jumps")
    scales(target, options.dtype, options.rounding)


def expression(rpe: str, bank: str) -> sympy.Expr:
    """(K.1)."""
    return EXPRESSION


def find_lemma(n: int) -> str:
    return f"find {n}"


def target_graph(hops: int, layers: Depth) -> "nx.DiGraph":
    """The proof for k jumps: a lemma for every pointer of the chain."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    beta, p, g, length, size, spread = sympy.symbols("beta p g N A V", positive=True)
    lookup = spread * 2 * sympy.exp(-beta) / (1 - sympy.exp(-3 * beta))
    graph = nx.DiGraph()
    lemma(graph, "hard attention", "a softmax with gaps is nearly a choice", sympy.exp(-beta), source="analyzer.lemmas.hard_attention")
    lemma(graph, PREVIOUS, "the letter before, before it is restored", lookup, ("hard attention",), measured=True)
    last = 2 * size * sympy.exp(-p) + (length - 1) * spread * sympy.exp(-g)
    lemma(graph, find_lemma(1), "the last match, or position 0, before it is restored", last, (PREVIOUS,), "(K.2)", measured=True)
    for step in (step for group in addition_chain(hops, layers) for step in group):
        used = tuple(dict.fromkeys((find_lemma(step.query), find_lemma(step.value))))
        lemma(graph, find_lemma(step.n), f"{step.n} jumps: {step.value} after {step.query}", lookup, used, measured=True)
    lemma(graph, READ_OUT, "a staircase that takes the number of a letter to the letter", EXPRESSION, (), measured=True)
    lemma(graph, ID, TITLE, EXPRESSION, (find_lemma(hops), READ_OUT), "Sanford, Hsu & Telgarsky")
    return graph


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof for as many jumps as the largest number given."""
    return target_graph(max(lags, default=4), "chain" if bank == "chain" else "doubling")


def sizes(target: KHopTarget, layers: Depth, rounding: Rounding = "ideal") -> dict[str, int]:
    """Layers, the most heads in a layer, and neurons of the widest feed-forward network."""
    groups = addition_chain(target.hops, layers)
    each = 2 if rounding == "ideal" else 2 * (target.length - 1) + 2 * target.size
    restored = max((len(group) for group in groups[:-1]), default=int(bool(groups)))  # pointers per layer; with k = 1 there is none
    heads = max((len(group) for group in groups), default=1)
    return {"layers": depth(target.hops, layers), "heads": heads, "width": max(3 * target.size + 1, each * restored)}


def bound(target: KHopTarget, options: KHopBound) -> Bound:
    """The sizes; the error is that of exact arithmetic. Beside them the depth both ways, for k and the powers of 2 below it."""
    powers = [1 << bit for bit in range(target.hops.bit_length())]
    data: dict[str, Any] = {
        **{name: getattr(target, name) for name in ("hops", "size", "length")},
        **sizes(target, options.layers),
        "chain": [step.n for group in addition_chain(target.hops, options.layers) for step in group],
        "depths": depth_table(sorted({*powers, target.hops})),
        "horizon": {dtype: horizon(dtype) for dtype in UNIT},
        "worst_case": 0.0,
    }
    return Bound(ID, 0.0, {READ_OUT: 0.0}, EXPRESSION, {}, data, claim="worst-case error in exact arithmetic")


def designs(target: KHopTarget, dtype: str) -> list[Design]:
    """Both depths, as far as they are built."""
    return product_of(layers=("doubling", "chain") if target.hops <= MOST_CHAINED else ("doubling",))


def proven(target: KHopTarget, options: KHop) -> Proven:
    """The sizes of the statement."""
    found = sizes(target, options.layers, options.rounding)
    return Proven(found["layers"], found["heads"], found["width"], width_for="restoration")


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="k-hop",
    options=KHop,
    bound_options=KHopBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: BIBTEX,
    check=check,
    build="constructions.theorems.library.k_hop:build",
    verify="verify.theorems.library.k_hop:verify",
    absolute=True,
    designs=designs,
    proven=proven,
    cases=(
        Case({"kind": "k-hop", "hops": 3, "size": 3, "length": 12}, {"dtype": "float64"}, {"layers": "doubling"}),
        Case({"kind": "k-hop", "hops": 2, "size": 2, "length": 8}, {"layers": "chain", "rounding": "relu"}, {"layers": "chain"}),
    ),
    shelf=12,
)
