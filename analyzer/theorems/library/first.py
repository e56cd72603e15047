"""Does a sequence begin with a 1? One softmax head, and what fixed logits cost as sequences grow.

Setting. Bits x_0, …, x_{N−1} ∈ {0, 1} at the positions 0, …, N − 1, for every N from 1 to L; y = x_0 at every position. Network: a table of
positions with the rows 1{i = 0}, one softmax head over all tokens with the logit β at position 0 and 0 elsewhere, whose values are the
bits. u is the unit roundoff of the weights' type, 2^p = 1/u, and 0 in exact arithmetic.

Statement. Let r = (N−1)e^{−β}. The head's mean m is within r/(1+r) of x_0, and this is attained; with the plateau
relu(1 − relu(3/2 − 2m)), which is 1 for m ≥ 3/4 and 0 for m ≤ 1/4, the output is

    y exactly                                   for all sequences with N ≤ 1 + e^β/3,                                         (F.1)
    on the wrong side of 1/2                    for 0 1 1 … 1 with N > 1 + e^β, and 1 where N ≥ 1 + 3e^β:                     (F.2)

a fixed β has a horizon, and β has to grow like log N: β ≥ log(3(L−1)) holds all lengths up to L. In floats (F.1) is true, all roundings
included, for the N that `horizon` gives, of the order min(e^β/3, 2^p/8).

Proof. Position 0 weighs 1/(1+r), all others together r/(1+r); the mean is at most that far from x_0, and exactly so if all others differ
from it. The plateau asks for r/(1+r) ≤ 1/4, which is r ≤ 1/3. For 0 1 … 1 the mean is r/(1+r): above 1/2 if r > 1, and 3/4 or more if
r ≥ 3. *Roundings.* Differences of logits are 0 and −β, exactly; e^0 = 1, and e^{−β} is off by s = 7u of itself at most. Bits are exact, so
numerator and denominator are sums of at most N terms that are not negative, each off by the factor 1 ± γ_N and weights by 1 ± s; the
quotient adds u. So the computed mean is between (1−u)(1−s)(1−γ_N)/((1+s)(1+γ_N)) and (1+u)(1+s)(1+γ_N)/((1−s)(1−γ_N)) times m. For
x_0 = 1 it is smallest where m = 1/(1+r), for x_0 = 0 largest where m = r/(1+r). 2m̂ is exact, and subtracting from 3/2 is monotone: for
m̂ ≥ 3/4 the inner ReLU is 0, for m̂ ≤ 1/4 it is at least 1, and the output is 1 or 0 exactly. All of this is monotone in N. ∎

Construction. `constructions.theorems.library.first`: two layers, one head, one neuron in each. β is the least eighth for which the page's
inequality holds at N = L, unless it is given.

Remarks. Chiang & Cholak let logits grow with the length, multiplying them by log n; here the table ends at L and the network may know it.
What their theorem says remains: with bounded logits no length is safe for ever.

References. Chiang & Cholak, Overcoming a Theoretical Limitation of Self-Attention, arXiv 2202.12172 (ACL 2022), section 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.families import LEAST_ERROR, Dtype
from analyzer.numbers.exact import UNIT, nearest, rational, upper, working_precision
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven
from analyzer.statements.theorem import Case, Theorem
from analyzer.theorems.library.parity import BIBTEX, BITS, SLIP, gamma, unit_of

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.tasks.first import FirstTarget

ID = "first"
TITLE = "the first bit at every length"
_TEXT = "output = x_0 exactly for N ≤ 1 + e^β/3, wrong at 0 1 1 … 1 for N > 1 + e^β"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""Positions are absolute: the statement is the same whatever relative positions are elsewhere."""
SHARE, PLATEAU = "share", "plateau"
"""The lemmas of which a certificate shows numbers."""
STEPS = 8
"""β is a multiple of 1/STEPS unless it is given."""
MOST_BETA = 64
"""e^64 is beyond every length; float32 has exponentials down to e^{−80}."""
N, beta = sympy.symbols("N beta", nonnegative=True)
OTHERS = (N - 1) * sympy.exp(-beta) / (1 + (N - 1) * sympy.exp(-beta))
"""What all tokens but the first weigh."""

_BETA = "the logit of the first position"


@dataclass(frozen=True)
class First(Options):
    """Networks for the first bit.

    >>> from analyzer.theorems.library.first import First
    >>> First(beta=4).dtype
    'exact'
    """

    beta: float | None = option(None, _BETA, above=0, most=MOST_BETA, shown="the least that holds all lengths")
    error: float | None = option(None, "total worst-case error, certified", least=LEAST_ERROR, shown="0.01")
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")


@dataclass(frozen=True)
class FirstBound(Options):
    """The logit that all lengths ask for, or the horizon of a given one."""

    beta: float | None = option(None, _BETA, above=0, most=MOST_BETA, shown="the least that holds all lengths")
    dtype: Dtype = option("exact", "arithmetic of the weights")


def distance(tokens: int, logit: fmpq, unit: arb) -> arb:
    """|m̂ − x_0|, from above, for all sequences of at most so many bits; 1 where N u is no longer small."""
    if not 4 * tokens * unit <= 1:
        return arb(1)
    added, slip = gamma(tokens, unit), SLIP * unit
    ratio = (tokens - 1) * (-arb(logit)).exp()
    above, below = (1 + slip) * (1 + added), (1 - slip) * (1 - added)
    largest = (1 + unit) * above / below * ratio / (1 + ratio)
    least = (1 - unit) * below / above / (1 + ratio)
    return largest.max(1 - least)


def reaches(tokens: int, logit: fmpq, dtype: str) -> bool:
    """Whether the plateau is reached at every length up to this one."""
    with working_precision(BITS):
        return bool(4 * distance(tokens, logit, unit_of(dtype)) <= 1)


def least_logit(longest: int, dtype: str) -> fmpq | None:
    """β: the least multiple of 1/8 that holds all lengths up to the longest; None if none does."""
    for eighths in range(1, STEPS * MOST_BETA + 1):
        if reaches(longest, fmpq(eighths, STEPS), dtype):
            return fmpq(eighths, STEPS)
    return None


def horizon(logit: fmpq, dtype: str) -> int:
    """The largest N up to which a logit holds all lengths: by bisection, as the inequality is monotone.

    >>> from analyzer.theorems.library.first import horizon
    >>> from flint import fmpq
    >>> [horizon(fmpq(beta), "exact") for beta in (2, 4, 8, 16)], horizon(fmpq(64), "float32")
    ([3, 19, 994, 2962037], 2097146)
    """
    low, high = 1, 2
    while reaches(high, logit, dtype):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reaches(middle, logit, dtype) else (low, middle)
    return low


def wrong_from(logit: fmpq) -> int:
    """The least N for which 0 1 … 1 is certainly on the wrong side of 1/2: N > 1 + e^β."""
    with working_precision(BITS):
        return int((1 + arb(logit).exp()).upper().floor().fmpz()) + 1


def expression(rpe: str, bank: str) -> sympy.Expr:
    """The error where the horizon is kept: 0."""
    return sympy.Integer(0)


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return BIBTEX


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    source = "Chiang & Cholak, section 4"
    lemma(graph, "others", "what all tokens but the first weigh", OTHERS, source=source)
    lemma(
        graph, SHARE, "the computed mean against the first bit, at the longest sequences", sympy.Rational(1, 4), ("others",), measured=True
    )
    lemma(graph, PLATEAU, "the bit from a mean within 1/4 of it", sympy.Integer(0), measured=True)
    lemma(graph, ID, TITLE, sympy.Integer(0), (SHARE, PLATEAU), source)
    return graph


def bound(target: "FirstTarget", options: FirstBound) -> Bound:
    """The least logit for all lengths up to the longest, or a given one, with its horizon."""
    logit = rational(options.beta) if options.beta is not None else least_logit(target.longest, options.dtype)
    if logit is None:
        raise InputError(f"no logit holds {target.longest} bits in {options.dtype}")
    with working_precision(BITS):
        away = upper(distance(target.longest, logit, unit_of(options.dtype)))
    total = 0.0 if reaches(target.longest, logit, options.dtype) else 1.0
    data: dict[str, Any] = {
        "heads": 1,
        "layers": 2,
        "longest": target.longest,
        "beta": nearest(logit),
        "share": away,
        "worst_case": total,
        "horizon": horizon(logit, options.dtype),
        "wrong_from": wrong_from(logit),
        "horizons": {str(value): {dtype: horizon(fmpq(value), dtype) for dtype in ("exact", *UNIT)} for value in (2, 4, 8, 16, 32)},
    }
    return Bound(ID, total, {SHARE: away, PLATEAU: 0.0}, expression("none", ""), {}, data, claim="worst-case error")


def designs(target: "FirstTarget", dtype: str) -> list[Design]:
    """One design."""
    return [{}]


def proven(target: "FirstTarget", options: First) -> Proven:
    """The sizes do not depend on the length."""
    return Proven(2, 1, 1)


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="first",
    options=First,
    bound_options=FirstBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    build="constructions.theorems.library.first:build",
    verify="verify.theorems.library.first:verify",
    designs=designs,
    proven=proven,
    absolute=True,
    cases=(
        Case({"kind": "first", "longest": 40}, {"dtype": "float32"}, {"beta": 8.0}),
        Case({"kind": "first", "longest": 24}, {"beta": 5.0}, {"beta": 5.0}),
    ),
    shelf=13.5,
)
