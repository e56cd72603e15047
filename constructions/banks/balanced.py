"""Balanced banks: the decays and weights that are best for an arithmetic, by linear programming in multi-precision.

For unit roundoff u the budgeted error (`analyzer.limits.budgeted_error`) is

    min over decays, a, c of ‖κ − 1_T‖_ℓ¹ + u(|c| + Σ_h |a_h|),

for given decays an ℓ¹ fit of the kernels' columns. Rows are the places s = 0, 1, 2, … one by one and then, in geometric blocks, their sums:
|Σ_block κ| ≤ Σ_block |κ| keeps the programme a relaxation, so that its multipliers are a dual sequence that is constant on blocks.
`constructions.banks.priced_fit` solves it in doubles, exactly at the end, though weights are of size 1/u. Decays come from column
generation: start with few, look for the peaks of |F(p)| on a fine scale (`constructions.banks.fit_columns`), take those that exceed u for
decays that are far from one. Where no bank is better than the zero bank this ends as well, with a sequence that shows it. Nothing here is
trusted: the bank and the dual sequence are certified afterwards.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from flint import arb, arb_mat, fmpq

from analyzer.errors import Refusal
from analyzer.families import Rpe
from analyzer.limits.budgeted_error import FAMILIES, Dual, PricedBank, RpeSet, extraction_error, working_bits
from analyzer.numbers.exact import dyadic, magnitude, to_grid, working_precision
from analyzer.numbers.search import golden
from constructions.banks.fit_columns import LEAST, RESIDUAL, TOP, TURNS, Head, Rows, Scale, rows_for
from constructions.banks.head_banks import HeadBank
from constructions.banks.priced_fit import BalancedSolution, Programme, doubles, factors

TOLERANCE = 2.0**-8
"""Column generation ends when |F| ≤ (1 + TOLERANCE)u on the grid."""
IDLE = 0.8
"""Decays with |F| below this share of u are not near a peak, and leave the programme."""
MAX_ROUNDS = 32
NOTHING = 1 - 1e-6
"""From this value on the zero bank is as good: its error is 1."""
ONE = fmpq(1)


def solve(rows: Rows, goal: list[arb], heads: list[Head], price: Callable[[Head], arb]) -> BalancedSolution:
    """The programme for given heads, each of which is charged for what the rows do not hold as well."""
    prices = [price(head) + rows.beyond(head) for head in heads]
    return Programme([rows.column(head) for head in heads], goal, prices).solve()


class Balance:
    """Banks and dual sequences for one set of head types and one unit roundoff, any lag; what is found is remembered."""

    def __init__(self, rpe: RpeSet, unit: fmpq) -> None:
        self.rpe, self.unit = rpe, unit
        self.bits = -magnitude(arb(unit)) + 1
        self.precision = working_bits(unit)
        self._heads: list[Head] | None = None
        self._duals: dict[int, Dual] = {}
        self._rows: dict[tuple[int, ...], Rows] = {}
        self.borrowed = False
        """Whether it began with what somebody else found: heads that serve one lag may be too few for others."""

    def _price(self, _: Head) -> arb:
        return arb(self.unit)

    def rows(self, lag: int) -> Rows:
        """The places for a lag."""
        edges = rows_for(lag, TOP[self.rpe], 1 if self.rpe == "log" else 0, self.rpe != "log", TURNS[self.rpe == "lin"]).edges
        return self._rows.setdefault(edges, Rows(edges))

    @cached_property
    def limits(self) -> list[Head]:
        """Heads at the ends of the range of decays, and the residual."""
        ends = {"lin": [RESIDUAL], "log": [Head("log", None, 1)]}
        return [h for family in FAMILIES[self.rpe] for h in ends[family]] + [Head("lin", None, -1)]

    @cached_property
    def scales(self) -> list[Scale]:
        """The decays among which those that are missing are looked for."""
        return [Scale.of(family, self.bits) for family in FAMILIES[self.rpe]]

    def dual(self, lag: int) -> Dual:
        """The dual sequence of a lag; where no bank is better than the zero bank it shows that, about."""
        first = 1 if self.rpe == "lin" else 2  # a log head with p → ∞ sees the last token only: lag 1 costs u and shows nothing
        if max(lag, first) not in self._duals:
            self._generate(max(lag, first))
        return self._duals[max(lag, first)]

    def known_duals(self, lag: int) -> list[Dual]:
        """Dual sequences found so far, for any lag; at least one. In all cases seen they serve every lag as well as its own."""
        return list(self._duals.values()) or [self.dual(lag)]

    @property
    def begun(self) -> bool:
        """Whether anything is known of any lag."""
        return bool(self._duals)

    def begin(self, lag: int, dual: Dual, bank: PricedBank) -> None:
        """Begin with a sequence and a bank, not the zero one, that somebody else found for a lag."""
        self._duals[lag], self._heads, self.borrowed = dual, [Head(rpe, p) for rpe, p in bank.heads], True

    def _generate(self, lag: int) -> None:
        """Column generation; leaves the dual sequence and, unless the zero bank is best, the heads found."""
        with working_precision(self.precision):
            rows = self.rows(lag)
            goal = [arb(int(e == lag)) for e in rows.edges]
            heads = list(dict.fromkeys([*(self._heads or ()), *self.limits, *(head for scale in self.scales for head in scale.coarse())]))
            columns, unit = [scale.columns(rows) for scale in self.scales], float(arb(self.unit))
            programme = Programme([rows.column(head) for head in heads], goal, [self._price(head) for head in heads])
            for _ in range(MAX_ROUNDS):
                solution = programme.solve()
                used = [h for h, a in zip(heads, solution.weights, strict=True) if h in self.limits or not a.is_zero()]
                self._heads = used if solution.value < NOTHING else self._heads
                seen = zip(self.scales, columns, strict=True)
                found = (head for scale, table in seen for head in scale.peaks(table, solution.dual, unit, TOLERANCE))
                fresh = [head for head in dict.fromkeys(found) if head not in heads]
                if not fresh:
                    break
                idle = set(np.flatnonzero(np.abs(solution.reduced) < IDLE).tolist())
                stay = programme.exchange(idle, [rows.column(head) for head in fresh], [self._price(head) for head in fresh])
                heads = [*(heads[k] for k in stay), *fresh]
            self._duals[lag] = Dual(rows.edges, tuple(to_grid(v, self.bits + STORED) for v in solution.dual)).merged()

    def bank(self, lag: int, decay_bits: int) -> PricedBank:
        """The bank for a lag at the decays found, rounded to `decay_bits`; the zero bank where nothing is better."""
        if self.rpe != "lin" and lag == 1:
            return PricedBank((("log", fmpq(self.bits + 16)),), (fmpq(1),), fmpq(0))
        self.known_duals(lag)
        if self._heads is None:
            self.dual(lag)  # a longer lag may have left none, where nothing is better
        nothing = PricedBank((), (), fmpq(0))
        if self._heads is None:
            return nothing
        with working_precision(self.precision):
            rows = self.rows(lag)
            found = (_rounded(h, decay_bits, self.bits) for h in self._heads if h.decay is not None or h.rpe == "log")
            real = (head for head in found if head.decay and head.decay > LEAST[head.rpe])
            heads = list(dict.fromkeys([*([] if self.rpe == "log" else [RESIDUAL]), *real]))
            goal, finite = [arb(int(e == lag)) for e in rows.edges[:-1]], Rows(rows.edges, ends=True)
            solution = solve(finite, goal, heads, self._price)
            if not solution.value < NOTHING:
                return nothing
            kept = _without_trifles(heads, solution)
            if len(kept) < len(heads):
                heads, solution = kept, solve(finite, goal, kept, self._price)
            depth = self.bits + STORED + 16
            stored = {head: to_grid(a, depth) for head, a in zip(heads, solution.weights, strict=True)}
            residual = stored.pop(RESIDUAL, fmpq(0))
            used = sorted((h for h, a in stored.items() if a != 0), key=lambda h: (h.rpe, h.decay))
            return PricedBank(tuple((h.rpe, h.decay) for h in used), tuple(stored[h] for h in used), residual)


def _without_trifles(heads: list[Head], solution: BalancedSolution) -> list[Head]:
    """The heads less those of the smallest weights, which together move the error by less than a share 2^-12 of the value."""
    weights = dict(zip(heads, solution.weights, strict=True))
    kept, spent = list(heads), arb(0)
    for head in sorted(heads, key=lambda h: (magnitude(weights[h]), float(abs(weights[h])))):
        spent += abs(weights[head])
        if not spent <= solution.value * arb(2) ** -12:
            break
        kept.remove(head)
    return kept


STORED = 24
"""Bits below u to which dual values are stored: they move F by a share 2^-24 of u at most."""


def _rounded(head: Head, bits: int, unit_bits: int) -> Head:
    """The head with its decay rounded; the limit p → ∞ of log heads becomes 2^{−p} ≤ 2^-16 u."""
    if head.decay is None:
        return Head("log", fmpq(unit_bits + 16))
    return Head(head.rpe, dyadic(arb(head.decay), bits))


def fixed_decays(heads: Sequence[tuple[str, fmpq]], lag: int, unit: fmpq) -> tuple[PricedBank, Dual]:
    """The best weights of given heads for a lag, and the dual sequence of the same programme."""
    slowest = min((p for rpe, p in heads if rpe == "lin"), default=fmpq(1))
    top = max(TOP["lin"], 64 * math.ceil(float(1 / arb(slowest))))
    stored, dual = fixed_heads([Head(rpe, p) for rpe, p in heads], rows_for(lag, top, 0, True), lag, unit)
    residual = stored.pop(RESIDUAL, fmpq(0))
    return PricedBank(tuple((h.rpe, h.decay) for h in stored if h.decay is not None), tuple(stored.values()), residual), dual


def fixed_heads(heads: Sequence[Head], rows: Rows, lag: int, unit: fmpq, residual: bool = True) -> tuple[dict[Head, fmpq], Dual]:
    """(the weights that are not zero, the residual among them if there is one; the dual sequence) of the programme for given heads."""
    with working_precision(working_bits(unit)):
        columns = [*([RESIDUAL] if residual else []), *dict.fromkeys(heads)]
        solution = solve(rows, [arb(int(e == lag)) for e in rows.edges], columns, lambda _: arb(unit))
        depth = -magnitude(arb(unit)) + STORED
        dual = Dual(rows.edges, tuple(to_grid(v, depth) for v in solution.dual))
        stored = {head: to_grid(a, depth + 16) for head, a in zip(columns, solution.weights, strict=True)}
    return {head: a for head, a in stored.items() if a != 0}, dual


def orthogonal_guess(heads: Sequence[tuple[str, fmpq]], lag: int) -> tuple[list[fmpq], list[int]]:
    """(δ on s = 1..2T−1 with δ_T = 1, the places to solve for), nearly orthogonal to the heads and with its other entries as small as can
    be.

    What the lag law promises for fewer heads than it asks for; `analyzer.limits.lag_law.orthogonal_input` turns it into a certificate.
    """
    from scipy.linalg import qr
    from scipy.optimize import linprog

    places = 2 * lag - 1
    with working_precision(256 + 64 * len(heads)):
        rows = Rows(tuple(range(1, places + 2)))
        columns = [rows.column(Head(rpe, p))[:places] for rpe, p in heads]
        matrix = arb_mat(places, len(heads), [columns[j][i].mid() for i in range(places) for j in range(len(heads))])
        orthogonal = doubles(factors(matrix, [2.0**-200] * len(heads)).orthogonal)
    bound = np.hstack([orthogonal.T, np.zeros((len(heads), 1))])
    box = np.vstack([np.hstack([sign * np.eye(places), -np.ones((places, 1))]) for sign in (1, -1)])
    box[[lag - 1, places + lag - 1], -1] = 0
    limit = np.zeros(2 * places)
    limit[[lag - 1, places + lag - 1]] = (1, -1)
    goal = np.append(np.zeros(places), 1.0)
    free = [(None, None)] * (places + 1)
    found = linprog(goal, A_ub=box, b_ub=limit, A_eq=bound, b_eq=np.zeros(len(heads)), bounds=free, method="highs")
    if found.status != 0:
        raise Refusal(f"no input that {len(heads)} heads cannot see was found for lag {lag}")
    guess = [dyadic(arb(float(v)), 40) for v in found.x[:places]]
    guess[lag - 1] = fmpq(1)
    others = [i for i in range(places) if i != lag - 1]
    _, _, order = qr(orthogonal[others].T, pivoting=True)
    return guess, [others[k] + 1 for k in order[: len(heads)]]


PROPOSALS = {"lin": 18, "log": 72}
"""Programmes that the search for decays solves for one lag: 18 for a parameter, and log has two, twice."""
MAX_SEARCHED = 64
"""Lags times heads of a programme for which decays are fitted to all lags."""
MAX_WORK = 1 << 13
"""Programmes times heads that the search for a bank may cost: a dozen seconds."""


def searched_lags(rpe: Rpe, lags: Sequence[int], heads: int) -> Sequence[int]:
    """The lags that decays are fitted to: all of them, or where that is much work the longest, which costs most of the error."""
    return lags if rpe == "lin" and len(lags) * heads <= MAX_SEARCHED else lags[-1:]


def work(rpe: Rpe, lags: Sequence[int], heads: int) -> int:
    """Programmes times heads that `balanced_bank` solves."""
    return (PROPOSALS[rpe] * len(searched_lags(rpe, lags, heads)) + len(lags)) * heads


def balanced_bank(
    rpe: Rpe, lags: Sequence[int], price: Callable[[fmpq], float], heads: int, decay_bits: int, slowest: fmpq = ONE
) -> HeadBank:
    """A bank of the given number of heads for several lags, with a price on every unit of weight that may depend on the decay.

    Minimises Σ_k ‖κ_k − 1_{T_k}‖₁ + Σ_h price(p_h)|a_kh| + price(p_1)|c_k|, p_1 the fastest head, over the weights and over decays of a
    family that follows the optimum of all decays closely: lin z_j = tanh²(jθ/2), the extrema of the extremal F, with one parameter θ; log
    p_j = b + e^{α − βj}, with two; no log head is slower than b = `slowest` ≥ 1. With twice as many heads as the longest lag a lin bank is
    within a few per cent of that optimum.
    """
    cheapest = min(price(fmpq(1)), price(fmpq(8)))
    unit_bits = max(4, math.ceil(-math.log2(cheapest)))
    half_period = math.pi**2 / (2 * unit_bits * math.log(2))
    with working_precision(128 + 3 * unit_bits):
        top = TOP[rpe] if rpe == "lin" or slowest <= 1 else min(TOP[rpe], 1 << math.ceil(unit_bits / float(arb(slowest - 1))))
        rows = Rows(rows_for(max(lags), top, 1 if rpe == "log" else 0, rpe == "lin").edges, ends=True)

        def decays(first: float, second: float) -> list[fmpq]:
            if rpe == "lin":
                return [dyadic(-2 * (arb(first) * j / 2).tanh().log(), decay_bits) for j in range(1, heads + 1)]
            found = (dyadic(slowest + arb(first - second * j).exp(), decay_bits) for j in range(heads))
            return [p for p in found if p > LEAST[rpe]]

        def fit(chosen: list[fmpq], lags: Sequence[int] = lags) -> list[tuple[list[Head], BalancedSolution]]:
            fastest = price(max(chosen))
            given = [*([RESIDUAL] if rpe == "lin" else []), *(Head(rpe, p) for p in dict.fromkeys(chosen))]
            prices = {head: arb(fastest if head.decay is None else price(head.decay)) for head in given}
            return [(given, solve(rows, [arb(int(e == lag)) for e in rows.edges[:-1]], given, prices.__getitem__)) for lag in lags]

        def cost(first: float, second: float) -> float:
            return math.log(sum(float(solution.value) for _, solution in fit(decays(first, second), searched)))

        searched = searched_lags(rpe, lags, heads)
        if rpe == "lin":
            low, high = math.log(half_period / 12), math.log(1.3 * half_period)
            best = decays(math.exp(least_of_samples(lambda v: cost(math.exp(v), 0.0), low, high)), 0.0)
        else:
            first, second = math.log(unit_bits / 4), 8.0 / (heads + 1)
            for _ in range(2):
                second = least_of_samples(lambda v, first=first: cost(first, v), 0.1, 4.0)  # type: ignore[misc]
                first = least_of_samples(lambda v, second=second: cost(v, second), 0.0, math.log(2 * unit_bits))  # type: ignore[misc]
            best = decays(first, second)
        best = sorted(set(best))
        rounding = unit_bits + STORED + 16
        weights, residuals = [], []
        for used, solution in fit(best):
            found = {head: to_grid(a, rounding) for head, a in zip(used, solution.weights, strict=True)}
            weights.append(tuple(found.get(Head(rpe, p), fmpq(0)) for p in best))
            residuals.append(found.get(RESIDUAL, fmpq(0)))
        return HeadBank(rpe, tuple(best), tuple(lags), tuple(weights), tuple(residuals))


def as_priced(bank: HeadBank, k: int) -> PricedBank:
    """Memory k of a head bank as the budgeted error sees it."""
    pairs = [((str(bank.rpe), p), a) for p, a in zip(bank.decays, bank.weights[k], strict=True) if a != 0]
    return PricedBank(tuple(head for head, _ in pairs), tuple(a for _, a in pairs), bank.residuals[k])


def fitted_error(bank: HeadBank, k: int) -> arb:
    """Upper bound of ‖κ_k − 1_{T_k}‖₁ of memory k; call it with bits for the weights and for the error."""
    return extraction_error(as_priced(bank, k), bank.lags[k])


def weight_sums(bank: HeadBank) -> list[fmpq]:
    """|c_k| + Σ_h |a_kh| for every memory."""
    return [as_priced(bank, k).weight_sum for k in range(len(bank.lags))]


def least_of_samples(function: Callable[[float], float], low: float, high: float) -> float:
    """A minimum by a few samples and golden sections around the best of them."""
    step = (high - low) / 7
    places = [low + step * k for k in range(8)]
    best = min(places, key=function)
    return golden(function, max(low, best - step), min(high, best + step), 8)
