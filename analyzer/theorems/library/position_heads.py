"""One softmax head for a lag of any size: heads that find a token by its absolute position.

Setting. Arrays of at most N tokens, each with its position in the residual stream: a table adds j − c and (j − c)² to two slots of the
j-th token, j = 0 … N−1, c = ⌊N/2⌋, and the bias a constant 1 to a third. Targets are fixed memories x_{t−g} of tokens in [−1, 1]^d or of
letters (`analyzer.targets.fixed`), or adaptive ones of letters, whose lags g are functions of tokens that are already known, with any
dependencies without cycles (`analyzer.targets.adaptive`). Layers of ordinary softmax attention over the tokens of the array up to t,
without any relative position. Positions t ≥ g count, those whose lags lie inside the array.

Statement. Let β > 0, keys (j−c, (j−c)²) and queries (2β(t−c−g), −β). A head that is so asked delivers x_{t−g} to within

    e ≤ D r/(1+r),     r ≤ 2 Σ_{k≥1} e^{−βk²} ≤ 2 e^{−β}/(1 − e^{−3β}),                                                        (P.1)

coordinate by coordinate, D ≤ 2 being the largest difference of two letters there; tokens at one end of the alphabet around one at the
other end attain D r/(1+r) with the r of the array. So **one head serves a lag of any size**, β grows like log(1/e), and

    |||H − TF||| ≤ E_FFN + Σ_k Lip_k(f) e_k                                                                                    (P.2)

for M fixed lags with one layer of M heads, for adaptive memories with one head each in λ + 1 layers, λ the number of levels, if the noise
at every lag that is read off memories stays below 1/2.

*Precision.* With β a power of 2 all queries, keys and scores are whole multiples of β, and none exceeds 3βP² on the way, P = ⌊N/2⌋ being
the largest |j − c|. A type of p bits computes them *without any rounding* if

    3P² ≤ 2^p:      N ≤ 2⌊√(2^p/3)⌋ + 1 = 19, 53, 4729, 109588317 for bfloat16, float16, float32, float64,                       (P.3)

and then a memory is off by (2b + 4 + d)u more at most, b the number of weights above u² of the largest: neither this nor (P.1) depends
on N.

Proof. The score of token j is 2β(t−c−g)(j−c) − β(j−c)² = β(t−c−g)² − β(j − (t−g))²: the token wanted has the largest, and one k places away
is βk² below. There are at most two of them for every k ≥ 1, so by the hard-attention lemma (`analyzer.lemmas.hard_attention`) the others
share r/(1+r) with r ≤ 2 Σ e^{−βk²}, and k² ≥ 1 + 3(k−1) for k ≥ 1 sums it as a geometric series. The mean moves by that share of D at most,
and by all of it if every other token is D away. *(P.2)* as in Theorem 3.1 of Wang & E. Adaptive: by induction over the levels the memories
that g_k reads are within e; the neurons that write g_k are then off by less than 1/2, and rounding makes the slot the lag, a whole
number: queries are the same as with a fixed lag. *(P.3).* 2(t−c−g), j−c, (j−c)² and all their products are whole, each sum of absolute
values on the way is at most 2P² + P², and a type of p bits holds all whole numbers up to 2^p, whatever the order of sums; a power of 2
changes exponents only. The weights are then those of the exact differences −βk², each e^x rounded; of a sum in which b terms are large,
at most b − 1 additions join two parts with a large term, and an addition to a part of small terms alone errs by no more than that part,
for the other summand is a number of the type itself. So sums err by (b+1)u and the quotient by 2(b+1)u + u of the largest value. ∎

Remarks. Wang & E's heads (Theorem 4.4) subtract the lag inside a score that is linear in the distance, −p(s − g) = −ps + pg: there the
weights must not be normalised, for softmax ignores pg. A square does not cancel: −β(s − g)² = −βs² + 2βgs − βg². By the lag law one dp-free
layer needs T heads of one type for lag T, and by the π-law about 4.5 bits of weights per unit of lag; here it is one head and
2 log₂ T + O(1) bits of logits, and the price is a position for every token, and arrays that end. Centred positions reach twice as
far as those that count from 0: |j − c| ≤ N/2.

Construction. `constructions.theorems.library.position_heads`. Stream: x_t; the memories; for adaptive memories their lags; `place`,
`square`, `constant`. Adaptive: layer 1 does not attend, its FFN writes the lags of level 1; layer l + 1 extracts the memories of level l,
its FFN writes the lags of the next level, rounded to whole numbers; the last FFN is f.

References. Positions in the stream are those of Vaswani et al., arXiv 1706.03762, tables of them those of GPT-2 (Radford et al. 2019); the
targets are those of Wang & E, arXiv 2402.00522, Theorems 3.1 and 4.4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal, finer, larger_error
from analyzer.families import DEFAULT_ERROR, LEAST_ERROR, Dtype
from analyzer.lemmas import feedforward as ff
from analyzer.lemmas.hard_attention import share
from analyzer.lemmas.lag_encoding import encode
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.numbers.formula_values import evaluate
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base, thm_4_4

if TYPE_CHECKING:
    import networkx as nx

ID = "position-heads"
TITLE = "lags of any size with one softmax head each, by absolute positions"
_TEXT = "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e,  e = 2r/(1+r),  r = 2e^{−β}/(1−e^{−3β}),  one head per memory"
STATEMENT = {"lin": _TEXT, "log": _TEXT}
beta = sympy.Symbol("beta", positive=True)
MASS: sympy.Expr = 2 * sympy.exp(-beta) / (1 - sympy.exp(-3 * beta))
ERROR: sympy.Expr = 4 * sympy.exp(-beta) / (1 + 2 * sympy.exp(-beta) - sympy.exp(-3 * beta))
"""(P.1) for tokens in [−1, 1]: 2r/(1+r)."""
BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""p: bits of a float type, the hidden one included; u = 2^{−p}."""
MAX_LENGTH = 5000
"""Tokens of an array that is built for: beyond the horizon of float32; N² weights are enclosed in seconds."""
LEAST_LENGTH = 64
MARGIN_SHARE = 4
"""Memories may use up one part in this many of the margin 1/2 at the lags that read them, all together."""
MOST_BITS = 256
"""Bits of a type that is thought of."""
SHARPEST = 128
"""Powers of 2 up to this are tried for β: e^{−128} is below the least error that is built."""
GPT2 = """@techreport{radford2019language,
  title       = {Language Models are Unsupervised Multitask Learners},
  author      = {Radford, Alec and Wu, Jeffrey and Child, Rewon and Luan, David and Amodei, Dario and Sutskever, Ilya},
  institution = {OpenAI},
  year        = {2019}
}
"""

Memories = FixedMemory | AdaptiveMemory


def fixed_part(target: Memories) -> FixedMemory | None:
    """The target, if its lags are fixed."""
    return cast("FixedMemory | None", target.as_layer_target)


def adaptive_part(target: Memories) -> AdaptiveMemory | None:
    """The target, if its lags are functions of tokens."""
    return target if target.as_layer_target is None else None


@dataclass(frozen=True)
class PositionHeads(Options):
    """Fixed or adaptive memories in arrays of at most `length` tokens, by heads that read absolute positions.

    >>> from analyzer.theorems.library.position_heads import PositionHeads
    >>> PositionHeads(length=256).dtype
    'exact'
    """

    length: int | None = option(
        None, "tokens of the longest array", least=2, most=MAX_LENGTH, shown="the power of 2 from twice the longest lag on, 64 at least"
    )
    error: float | None = option(None, "total worst-case error, certified", least=LEAST_ERROR, shown=str(DEFAULT_ERROR))
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")


@dataclass(frozen=True)
class PositionBound(Options):
    """(P.1) and (P.3) at a sharpness, or at the least power of 2 that reaches an error."""

    sharpness: float | None = option(None, "β of the scores -β(distance to the lag)²", above=0, most=2.0**10, shown="solved for the error")
    error: float | None = option(
        None, "error of all memories together", least=LEAST_ERROR, shown=f"{DEFAULT_ERROR} unless sharpness is given"
    )


def extraction_error(sharpness: arb, spread: arb) -> arb:
    """(P.1)."""
    return spread * share(evaluate(MASS, {beta: sharpness}))


def least_sharpness(error: float) -> int:
    """The least power of 2, from 1 on, for which (P.1) with D = 2 is at most e: a power of 2 costs no bit of the logits."""
    with working_precision(256):
        for exponent in range(SHARPEST.bit_length()):
            if upper(extraction_error(arb(2**exponent), arb(2))) <= error:
                return 2**exponent
    raise Refusal(f"an error of {error:.3g} is below what position heads are built for", *larger_error(LEAST_ERROR))


def large_weights(sharpness: float, bits: int) -> int:
    """b: weights e^{−βk²} above u²."""
    return 1 + 2 * math.isqrt(math.floor(2 * bits * math.log(2) / sharpness))


def memory_rounding(sharpness: float, dim: int, bits: int | None) -> arb:
    """What floats of so many bits add to (P.1): (2b + 4 + d)u, with one part in 100 for products of roundings; 0 for exact networks."""
    return arb(0) if bits is None else arb(2 * large_weights(sharpness, bits) + 4 + dim) * arb(2) ** -bits * fmpq(101, 100)


def longest(bits: int) -> int:
    """(P.3): the longest array whose scores a type of so many bits computes without rounding."""
    return 2 * math.isqrt(2**bits // 3) + 1


def delivers(bits: int, error: float, dim: int = 1) -> bool:
    """Whether (P.1) and the roundings of a type come to at most `error` for some β."""
    both = (extraction_error(arb(2**k), arb(2)) + memory_rounding(2**k, dim, bits) for k in range(SHARPEST.bit_length()))
    return any(upper(total) <= error for total in both)


def horizon(dtype: str, error: float, dim: int = 1) -> int:
    """The longest array in which a type is certified to deliver a token at any lag to within `error`; 0 if it is for none.

    >>> from analyzer.theorems.library.position_heads import horizon
    >>> [horizon(dtype, 1e-4) for dtype in ("bfloat16", "float32", "float64")]
    [0, 4729, 109588317]
    """
    if dtype not in BITS:
        raise InputError(f"dtype is {str(dtype)[:40]!r}; choose from {', '.join(BITS)}")
    return longest(BITS[dtype]) if delivers(BITS[dtype], error, dim) else 0


def least_bits(length: int, error: float) -> int:
    """The least p, from bfloat16's 8 on, with which arrays of `length` tokens are within the horizon of `error`.

    >>> from analyzer.theorems.library.position_heads import least_bits
    >>> [least_bits(length, 0.5) for length in (16, 256, 4096)]
    [8, 16, 24]
    """
    p = BITS["bfloat16"]
    while longest(p) < length or not delivers(p, error):
        p += 1
        if p > MOST_BITS:
            raise Refusal(f"no type of at most {MOST_BITS} bits resolves {length} tokens to within {error:g}", *larger_error(2 * error))
    return p


def centre(length: int) -> int:
    """c, the position that counts as 0."""
    return length // 2


def length_of(target: Memories, options: PositionHeads) -> int:
    """N."""
    return options.length or max(LEAST_LENGTH, 1 << (2 * target.settled).bit_length())


def allowed_error(target: Memories, error: float) -> tuple[base.Shares, float]:
    """The shares of an error, and what every memory may err by: Σ_k Lip_k e is within that of the attention, and noise at lags that are
    read off memories is a part of their margin 1/2."""
    shares = base.shares(target.readout, [arb(1)] * target.readout.coordinates, target.dim, error)
    least = min(0.5, error, shares.attention / max(1.0, sum(shares.lipschitz)))
    adaptive = adaptive_part(target)
    if adaptive is not None:
        for k in range(len(adaptive.memories)):
            gain = encode(adaptive, k).noise_gain("lag", range(target.dim, (len(target.names) + 1) * target.dim))
            if gain != 0:
                least = min(least, lower(arb(1) / (2 * MARGIN_SHARE * arb(gain))))
    return shares, least


def sharpness_for(target: Memories, error: float, dtype: str) -> int:
    """β for an error of the network; in floats half of what a memory may err by is left to rounding; refused where that is too little."""
    _, least = allowed_error(target, error)
    if dtype == "exact":
        return least_sharpness(least)
    sharpness = least_sharpness(least / 2)
    rounding = upper(memory_rounding(sharpness, target.dim, BITS[dtype]))
    if rounding > least / 2:
        reason = f"{dtype} delivers a memory to within {rounding:.3g} at best, this target and error leave {least / 2:.3g}"
        raise Refusal(reason, *finer(dtype))
    return sharpness


def check(target: Memories, options: PositionHeads) -> None:
    """Refuse what such a network cannot be, before anything is built."""
    length, dtype = length_of(target, options), options.dtype
    if length <= target.settled:
        raise Refusal(f"arrays of {length} tokens are shorter than lag {target.settled}", {"length": target.settled + 1})
    if length > MAX_LENGTH:
        raise Refusal(f"lag {target.settled} needs arrays of more than {target.settled} tokens; {MAX_LENGTH} is the most that we build for")
    if dtype != "exact" and length > longest(BITS[dtype]):
        most = longest(BITS[dtype])
        shorter = ({"length": most},) if most > target.settled else ()
        raise Refusal(
            f"scores of arrays of {length} tokens need {(3 * centre(length) ** 2).bit_length()} bits (3P² ≤ 2^p, P = {centre(length)}); "
            f"{dtype} has {BITS[dtype]}, which resolve {most} tokens",
            *finer(dtype),
            *shorter,
        )
    check_letters(target, dtype)


def check_letters(target: Memories, dtype: str) -> None:
    """Refuse letters that a float type cannot hold: the network would see others."""
    adaptive, fixed = adaptive_part(target), fixed_part(target)
    if adaptive is not None:
        thm_4_4.check_alphabet(adaptive, dtype)
    letters = () if fixed is None or fixed.alphabet is None else fixed.alphabet
    strange = [] if dtype == "exact" else [letter for letter in letters if not thm_4_4.fits(letter, dtype)]
    if strange:
        raise InputError(f"the letter {strange[0]} is no {dtype} number; give dtype exact, or an alphabet of dyadic numbers")


def expression(rpe: str, bank: str = "minimal") -> sympy.Expr:
    """The extraction error of one memory."""
    return ERROR


def target_graph(target: Memories, ffn: str = "spline") -> "nx.DiGraph":
    """The proof for a target, parents first."""
    adaptive = adaptive_part(target)
    order = [target.names[k] for group in schedule_of(target) for k in group]
    return _graph({name: None if adaptive is None else adaptive.parents[name] for name in order}, ffn)


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof for fixed lags."""
    return _graph(dict.fromkeys(f"m{k}" for k in range(1, len(lags) + 1)), ffn)


def _graph(parents: Mapping[str, tuple[str, ...] | None], ffn: str) -> "nx.DiGraph":
    """A memory uses its lag, if that depends on tokens; a lag uses the memories that it reads."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "squares", "scores fall with the squared distance to the lag: what all other tokens weigh together", MASS)
    lemma(graph, "hard attention", "the mean moves by the losers' share of the spread", ERROR, ("squares",))
    rounded = "sums of few large weights; scores are computed without rounding (3P² ≤ 2^p)"
    lemma(graph, "rounding", rounded, sympy.Symbol("rho", nonnegative=True))
    for name, above in parents.items():
        below: tuple[str, ...] = ("hard attention", "rounding")
        if above is not None:
            noisy = tuple(thm_4_4.extraction_lemma(parent) for parent in above if parent != "x0")
            held = "encoding error plus noise of its parents, before rounding"
            lemma(graph, thm_4_4.lag_lemma(name), held, sympy.Rational(1, 2), noisy, measured=True)
            below = (thm_4_4.lag_lemma(name), *below)
        lemma(graph, thm_4_4.extraction_lemma(name), f"worst case of {name} over positions, lags and tokens", ERROR, below, measured=True)
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE, measured=True)
    budgets = [sympy.Symbol(f"Lip_{k}", nonnegative=True) * ERROR for k in range(1, len(parents) + 1)]
    used = (base.READ_OUT, *(thm_4_4.extraction_lemma(name) for name in parents))
    lemma(graph, ID, TITLE, sympy.Add(sympy.Symbol("E_FFN"), *budgets, evaluate=False), used)
    return graph


def schedule_of(target: Memories) -> tuple[tuple[int, ...], ...]:
    """Memories by attending layer: all of them, or level by level."""
    adaptive = adaptive_part(target)
    return (tuple(range(len(target.names))),) if adaptive is None else adaptive.schedule(deep=False)


def layers_of(target: Memories) -> int:
    """One layer for fixed lags, λ + 1 for adaptive ones."""
    return len(schedule_of(target)) + (adaptive_part(target) is not None)


def bound(target: Memories, options: PositionBound) -> Bound:
    """(P.1), added up over the memories: at a sharpness, or at the least power of 2 that reaches the error; beside it (P.3)."""
    names = target.names
    error = DEFAULT_ERROR if options.error is None else options.error
    sharpness = options.sharpness or float(least_sharpness(error / len(names)))
    with working_precision(128):
        each = extraction_error(arb(sharpness), arb(2))
        total = upper(len(names) * each)
    data: dict[str, Any] = {
        "longest_lag": target.settled,
        "sharpness": sharpness,
        "heads": max(map(len, schedule_of(target))),
        "layers": layers_of(target),
        "attention": total,
        "horizon": {dtype: longest(bits) for dtype, bits in BITS.items()},
    }
    parts = {thm_4_4.extraction_lemma(name): upper(each) for name in names}
    return Bound(ID, total, parts, len(names) * ERROR, {}, data, claim="attention error")


def designs(target: Memories, dtype: str) -> list[Design]:
    """None: what `plan` sets side by side holds for arrays of any length, and these end."""
    return []


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=PositionHeads,
    others={"adaptive": PositionHeads},
    bound_options=PositionBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: "\n".join([GPT2, base.citation("minimal", ffn, "the setting of Theorem 4.4")]),
    check=check,
    build="constructions.theorems.library.position_heads:build",
    verify="verify.theorems.library.position_heads:verify",
    absolute=True,
    designs=designs,
    applies=lambda target, options: isinstance(options, PositionHeads),
    cases=(
        Case({"kind": "fixed", "lags": [2, 20], "readout": "x0 + m1*m2"}, {"length": 32, "error": 0.05}, {"error": 1e-3}),
        Case(thm_4_4.NESTED, {"length": 24, "dtype": "float32"}, {"sharpness": 8}),
    ),
    shelf=10,
)
