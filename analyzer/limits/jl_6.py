"""Recurrent networks beside the Transformer: what [JL] section 6 says, with floors that hold for every causal model.

Setting. Scalar tokens; targets y(t) = Σ_{s≤t} ρ(s) x(t−s), on finite sequences 0 ≤ t < τ or with an infinite past. A linear RNN with m
units is the convolution with κ(s) = cᵀW^sU. Its complexity measure [JL] is

    C_RNN = C_1 C_2,     C_1 = 1 + inf{β > 0 : e^{t/β} |ρ(t)| → 0},     C_2 = sup_t e^{t/C_1} |ρ(t)|,

and m units reach an error of order d C_RNN/m. So C_1 measures how slowly ρ forgets, C_2 how large it is at that rate. A term e^{−λt},
also times a polynomial or a wave, has C_1 = 1 + 1/λ; the slowest term of a sum decides. Power laws have C_1 = ∞: they are not in the RNN
space. A kernel of finite support, and one that falls like a Gaussian, has C_1 = 1. C_2 is finite because 1/C_1 < λ: the weighted kernel
still falls, which gives a certified tail of the supremum.

Statement. Order matters to recurrent networks (Prop 6.1) and not to the Transformer (Prop 6.2); mixing costs the former a constant and the
latter rank (Prop 6.3). Each with its proof, floors and constants below.

Prop 6.1 (order). Let p be a permutation of the positions 0..τ−1 and y(t) = Σ_{s≤t} ρ(s) x(p(t−s)) = Σ_j w(t,j) x(j). If w(t,j) ≠ 0 for
some j > t, the target is in no space of causal models: for *every* causal model, linear or not, of any size,

    sup error   ≥ max_t ½ Σ_{j>t} |w(t,j)|                                       tokens in [0, 1],                        (a)
    mean square ≥ (1/τ) Σ_t Σ_{j>t} w(t,j)²/12                                   tokens independent, uniform on [0, 1],   (b)
    mean square ≥ (b) + (1/12τ) Σ_s Σ_{t≥s} (w(t,t−s) − w̄_s)²                    linear RNNs with any biases,             (c)

w̄_s the mean of w(t,t−s) over t; and linear RNNs without biases obey the least value of a quadratic form (d), below.
Proof. (a) Two inputs that agree on the tokens up to t, and have x(j) = 1 or 0 for j > t according to the sign of w(t,j) in the first and
the other way round in the second, differ by Σ_{j>t}|w(t,j)| in y(t), while a causal model answers both alike. (b) A causal answer ŷ(t) is
a function of x(0..t), and E(y − ŷ)² ≥ E Var(y | x(0..t)) = Σ_{j>t} w(t,j)² Var x(j), with Var x(j) = 1/12. (c) A linear RNN with biases
and any initial state is ŷ(t) = d_t + Σ_s κ(s) x(t−s). Its mean square error is at least its variance, (1/12) Σ_j (w(t,j) − κ(t−j)
1{j≤t})²; summed over t each κ(s) occurs with the numbers w(t,t−s) only, and the best κ(s) is their mean. (d) Without biases E(v·x)² = Σ
v_j²/12 + (Σ v_j)²/4 for v = w(t,·) − κ(t−·): a positive definite quadratic form in κ(0..τ−1), Q = κᵀHκ − 2gᵀκ + c, whose least value is c
− gᵀH^{−1}g; the linear system is solved in ball arithmetic. ∎

Prop 6.2 (order does not matter to the Transformer). Relabelling positions multiplies the coupling matrix A (rows: queries, columns: keys)
by permutation matrices, PAQ.
Proof. P, Q are orthogonal, so PAQ has the singular values of A; hence the decay of the σ_k, and the ranks, and the complexity C_1^{(α)}
of the Transformer's rate are the same; φ_k, ψ_k are the old functions at relabelled positions, so their feed-forward complexities are,
too. ∎
*Certified.* For any U, S, V (say a numerical decomposition) with a = ‖I − UᵀU‖, b = ‖I − VᵀV‖: the singular values of U lie in [√(1−a),
√(1+a)], those of V likewise, so σ_k(USVᵀ) lies in s_k·[√((1−a)(1−b)), √((1+a)(1+b))], and σ_k(A) within ‖A − USVᵀ‖ of it (Weyl).
Frobenius norms bound all three in balls.

Prop 6.3 (mixing). Let ρ*θ be filtered with θ_0..θ_{l−1}, ‖θ‖₁ ≤ 1. Then C_1(ρ*θ) ≤ C_1(ρ), and with C_1 = C_1(ρ) *kept fixed*

    C_2(ρ*θ) ≤ e^{(l−1)/C_1} C_2(ρ).

Proof. |(ρ*θ)(t)| ≤ Σ_i |θ_i| |ρ(t−i)| ≤ Σ_i |θ_i| C_2 e^{−(t−i)/C_1} ≤ e^{(l−1)/C_1} C_2 e^{−t/C_1}. And e^{t/β}|(ρ*θ)(t)| ≤ Σ_i |θ_i|
e^{i/β} · e^{(t−i)/β}|ρ(t−i)| → 0 whenever e^{t/β}|ρ(t)| → 0. ∎
The Transformer pays. Its softmax sees log ρ(t−s) up to functions of t. For ρ = e^{−s} that is s: rank 1 after centring rows. For positive
θ, (ρ*θ)(n) = e^{−n} Σ_{i≤min(n,l−1)} θ_i e^i, so the logits are s − t + c_{t−s} with c_n constant only from n = l−1 on.
*On a block of b ≥ l+1 rows and columns the centred rank is exactly l, if every θ_i ≥ 0, θ_0 > 0 and θ_{l−1} > 0.* Proof. Rows t = b−1+i,
columns s = j, 0 ≤ i, j < b. Centring is multiplication by C = I − 11ᵀ/b from the right, so functions of t vanish, and so does the
constant c_{l−1}: what is left is 1(Cs)ᵀ + NC with N = (c_{t−s} − c_{l−1}), nonzero only for t − s ≤ l−2: a triangle in the corner, rows i
≤ l−2 and columns j ≥ i + b − l + 1, with log(1 − θ_{l−1}e^{l−1}/Σ_{i<l}θ_ie^i) ≠ 0 on its diagonal. So N has rank l−1 and its rows span
the last l−1 unit vectors; 1 is not among their combinations, so NC has rank l−1, too. Row i = b−1 of the sum is (Cs)ᵀ alone, so the row
space is that of NC plus Cs, and Cs is not in the former: s minus a combination of the last l−1 unit vectors is no constant, as it is 0
and 1 at j = 0 and 1. ∎ `mixing` certifies the numbers.

Prop 6.3, looking ahead. The filter as printed, (θ*x)(t) = Σ_{i<l} θ_i x(t+i), acts on the tokens from the other side:

    Σ_s ρ(s) (θ*x)(t−s) = Σ_{j≥0} ρ̃(j) x(t−j) + Σ_{k=1}^{l−1} ω_k x(t+k),     ρ̃(j) = Σ_i θ_i ρ(j+i),    ω_k = Σ_{i≥k} θ_i ρ(i−k).

If some ω_k ≠ 0 (ω_{l−1} = θ_{l−1} ρ(0) is one) the target reads tokens that are still to come, and by the argument of (a) no causal model
errs by less than ½ Σ_k |ω_k| on tokens in [0, 1]: it has left the RNN space, and C_RNN says nothing about it. The terms that a causal
model can keep are ρ̃, and C_2(ρ̃) ≤ C_2(ρ), C_1 = C_1(ρ) kept: nothing grows. The factor e^{(l−1)/C_1} belongs to causal filters only.
Proof. |ρ̃(t)| ≤ Σ_i |θ_i| C_2 e^{−(t+i)/C_1} ≤ C_2 e^{−t/C_1}. ∎ `look_ahead` computes both.

Repaired. The filter of Prop 6.3 is read as a causal one, for which it is true, with the constant e^{(l−1)/C_1}. That
constant, and every bound of C_RNN by an envelope |ρ(t)| ≤ e^{−t/γ}, needs C_1 to be *defined* as 1+γ, or kept, and must not be the
infimum: with C_1 = 1+γ an envelope gives C_2 ≤ 1 and C_RNN ≤ 1+γ. The bound C_RNN ≤ γ fails even without a filter: e^{−2s} has γ = 1/2 and
C_RNN = C_1 = 3/2, and whenever ρ(0) = 1, C_RNN ≥ C_1 > γ if γ is the infimum. As to the infimum: ρ(s) = e^{−s/2} for s ≤ 20 and 0 after it
has |ρ(t)| ≤ e^{−t/2}, but finite support: C_1 = 1 and C_2 = e^{10}, while with C_1 = 1+γ = 3 it is C_2 = 1 (`truncated_exponential`).
Cutting a tail off, which makes a kernel simpler, multiplies C_RNN by more than 7000.

References. [JL] Jiang & Li, Approximation Rate of the Transformer Architecture for Sequence Modeling, arXiv 2305.18475, section 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.memory_kernels import LATEST_PEAK, MemoryKernel
from analyzer.numbers.exact import lower, maximum, nearest, upper, working_precision
from analyzer.ranges import check_range
from analyzer.statements.theorem import Theorem

ID = "jl-6"
TITLE = "recurrent networks beside the Transformer: order, mixing, and floors for every causal model"

PRECISION = 192
"""Bits of the balls."""
WINDOW = 64
"""Values whose maximum is the lower end of C_2, before more are looked at."""
LONGEST = 256
"""Positions of a sequence: matrices of that size are decomposed and solved for."""


@dataclass(frozen=True)
class Complexity:
    """C_1 (None: infinite), C_2 between two floats rounded outwards."""

    c1: fmpq | None
    c2_lower: float
    c2_upper: float

    @property
    def in_rnn_space(self) -> bool:
        return self.c1 is not None

    @property
    def upper(self) -> float:
        """C_RNN, rounded up."""
        return float("inf") if self.c1 is None else upper(arb(self.c1) * arb(self.c2_upper))

    @property
    def lower(self) -> float:
        """C_RNN, rounded down."""
        return float("inf") if self.c1 is None else lower(arb(self.c1) * arb(self.c2_lower))

    def rate(self, units: int, dim: int = 1) -> float:
        """d C_RNN/m, rounded up."""
        if units < 1 or dim < 1:
            raise InputError(f"a rate needs at least one unit and one coordinate, got {units} and {dim}")
        return upper(dim * arb(self.upper) / units) if self.c1 is not None else float("inf")


def rnn_complexity(kernel: MemoryKernel) -> Complexity:
    """C_1 and C_2 of a memory kernel; refused if its slowest terms may cancel, so that C_1 is not known."""
    rate = _slowest_rate(kernel)
    if rate == 0:
        return Complexity(None, float("inf"), float("inf"))
    c1 = fmpq(1) if rate is None else 1 + 1 / rate
    with working_precision(PRECISION):
        return Complexity(c1, *_second(kernel, c1))


def complexity_of_values(values: Sequence[fmpq | arb], c1: fmpq = fmpq(1)) -> Complexity:  # noqa: B008 - a number
    """The same for a kernel given by its values, zero after them: C_1 = 1, unless another is kept fixed."""
    if not values or not c1 >= 1:
        raise InputError("a finite kernel needs a value, and C_1 of at least 1")
    with working_precision(PRECISION):
        weighted = [(arb(t) / arb(c1)).exp() * abs(arb(v)) for t, v in enumerate(values)]
        most = maximum(weighted)
        return Complexity(c1, max(0.0, lower(most)), upper(most))


def _second(kernel: MemoryKernel, c1: fmpq) -> tuple[float, float]:
    """C_2 from below, by values, and from above, with the tail."""
    most = upper(kernel.supremum("exponential", 1 / c1))
    least, start, stop = 0.0, 0, WINDOW
    while start < LATEST_PEAK:
        seen = [abs(kernel.value(t)) * (arb(t) / arb(c1)).exp() for t in range(start, stop)]
        least = max(least, lower(maximum(seen)))
        if least >= most * (1 - 2.0**-20):
            break
        start, stop = stop, 2 * stop
    return least, most


def _slowest_rate(kernel: MemoryKernel) -> fmpq | None:
    """λ of the slowest exponential; 0 for a power law, None if every term falls like a Gaussian."""
    exponential = [(c, f) for c, f in kernel.terms if f.exponent[2] == 0]
    if not exponential:
        return None
    rate = min(-f.exponent[1] for _, f in exponential)
    degree = max(f.degree for _, f in exponential if -f.exponent[1] == rate)
    leading = [(c, f) for c, f in exponential if -f.exponent[1] == rate and f.degree == degree]
    if len(leading) == 1 and all(omega != 0 for _, omega, _ in leading[0][1].waves):
        return rate
    with working_precision(PRECISION):
        amplitude = arb(0)
        for c, factors in leading:
            product = arb(c) * arb(factors.exponent[0]).exp()
            for alpha, _, q in factors.powers:
                product *= arb(alpha) ** arb(q)
            amplitude += product
        if not any(f.waves for _, f in leading) and not amplitude.contains(0):
            return rate
    raise Refusal(f"the slowest terms of the kernel {kernel.text[:60]!r} may cancel, so that C_1 is not known; simplify the expression")


@dataclass(frozen=True)
class Floor:
    """What no causal model beats on a reordered target; every number rounded down.

    `breaking`: the positions t with p(t) > t. `linear` is (c), `unbiased` (d): linear RNNs of any size with any, or with no biases.
    """

    breaking: tuple[int, ...]
    supremum: float
    mean_square: float
    linear: float
    unbiased: float


def swapped_ends(length: int, count: int) -> tuple[int, ...]:
    """The permutation that swaps the first and the last `count` of `length` positions."""
    if not 0 <= 2 * count <= length:
        raise InputError(f"cannot swap {count} positions at both ends of {length}; give 0 to {length // 2}")
    ends = range(length - count, length)
    return (*ends, *range(count, length - count), *range(count))


def coupling(values: Sequence[arb | fmpq], order: Sequence[int] | None = None) -> list[list[arb]]:
    """w(t, j) with Σ_{s≤t} ρ(s) x(p(t−s)) = Σ_j w(t,j) x(j), for ρ(0..τ−1) and a permutation p (none: the identity)."""
    length = len(values)
    check_range("length", length, 1, LONGEST)
    p = tuple(range(length)) if order is None else tuple(order)
    if sorted(p) != list(range(length)):
        raise InputError(f"the order is not a permutation of 0..{length - 1}")
    matrix = [[arb(0)] * length for _ in range(length)]
    for t in range(length):
        for s in range(t + 1):
            matrix[t][p[t - s]] = arb(values[s])
    return matrix


def causal_floor(values: Sequence[arb | fmpq], order: Sequence[int]) -> Floor:
    """Prop 6.1 for ρ(0..τ−1) and a permutation: the floors (a) to (d)."""
    with working_precision(PRECISION):
        w = coupling(values, order)
        length = len(w)
        unseen = [[w[t][j] for j in range(t + 1, length)] for t in range(length)]
        largest = maximum([sum((abs(v) for v in row), arb(0)) / 2 for row in unseen])
        squares = sum((v * v for row in unseen for v in row), arb(0))
        scatter = arb(0)
        for s in range(length):
            seen = [w[t][t - s] for t in range(s, length)]
            mean = sum(seen, arb(0)) / len(seen)
            scatter += sum(((v - mean) * (v - mean) for v in seen), arb(0))
        floors = (largest, squares / (12 * length), (squares + scatter) / (12 * length), _least_square(w))
        breaking = tuple(t for t, place in enumerate(order) if place > t)
        return Floor(breaking, *(max(0.0, lower(value)) for value in floors))


def _least_square(w: list[list[arb]]) -> arb:
    """(d): the least of (1/τ) Σ_t E(v_t·x)², v_t = w(t,·) − κ(t−·), over all κ."""
    length = len(w)
    # κ(s) meets κ(r) at the positions t ≥ max(s, r), and the variance of a token once for each t ≥ s
    gram = [[arb(length - max(s, r)) / 4 + (arb(length - s) / 12 if s == r else 0) for r in range(length)] for s in range(length)]
    right = [arb(0)] * length
    constant = arb(0)
    for t, row in enumerate(w):
        total = sum(row, arb(0))
        constant += sum((v * v for v in row), arb(0)) / 12 + total * total / 4
        for s in range(t + 1):
            right[s] += row[t - s] / 12 + total / 4
    solution = arb_mat(gram).solve(arb_mat(length, 1, right))
    return (constant - sum((right[s] * solution[s, 0] for s in range(length)), arb(0))) / length


@dataclass(frozen=True)
class SingularValue:
    """An enclosure, rounded outwards."""

    least: float
    most: float


def singular_values(matrix: Sequence[Sequence[arb | fmpq]]) -> list[SingularValue]:
    """Certified enclosures of all singular values, largest first, by Prop 6.2's argument from a float64 decomposition."""
    rows, columns = len(matrix), len(matrix[0]) if matrix else 0
    if not (1 <= rows <= LONGEST and 1 <= columns <= LONGEST) or any(len(row) != columns for row in matrix):
        raise InputError(f"a coupling matrix has 1 to {LONGEST} equal rows and columns")
    with working_precision(PRECISION):
        exact = arb_mat([[arb(v) for v in row] for row in matrix])
        middle = np.array([[float(exact[i, j].mid()) for j in range(columns)] for i in range(rows)])
        if not np.isfinite(middle).all():
            raise InputError("a coupling matrix has an entry that is not a finite number")
        u, s, vt = np.linalg.svd(middle, full_matrices=False)
        left, right = _balls(u), _balls(vt)
        skew = [_frobenius(_identity(len(s)) - gram) for gram in (left.transpose() * left, right * right.transpose())]
        diagonal = arb_mat(len(s), len(s), [float(s[i]) if i == j else 0 for i in range(len(s)) for j in range(len(s))])
        distance = _frobenius(exact - left * diagonal * right)
        if not (skew[0] < 1 and skew[1] < 1):
            raise Refusal("the numerical singular vectors of the coupling matrix are not orthogonal enough to certify anything")
        shrink = ((1 - skew[0]) * (1 - skew[1])).sqrt()
        grow = ((1 + skew[0]) * (1 + skew[1])).sqrt()
        ends = ((arb(float(v)) * shrink - distance, arb(float(v)) * grow + distance) for v in s)
        return [SingularValue(max(0.0, lower(least)), upper(most)) for least, most in ends]


def _balls(matrix: np.ndarray) -> arb_mat:
    return arb_mat([[arb(float(v)) for v in row] for row in matrix])


def _identity(size: int) -> arb_mat:
    return arb_mat(size, size, [int(i == j) for i in range(size) for j in range(size)])


def _frobenius(matrix: arb_mat) -> arb:
    # ends of balls, because the square of a ball around 0 reaches below 0 and has no root
    return sum((v.abs_upper() ** 2 for v in matrix.entries()), arb(0)).sqrt().upper()


def relabelled(matrix: Sequence[Sequence[arb]], rows: Sequence[int], columns: Sequence[int]) -> list[list[arb]]:
    """Prop 6.2: the coupling with its positions relabelled; row i is the old row rows[i], column j the old column columns[j]."""
    if sorted(rows) != list(range(len(matrix))) or sorted(columns) != list(range(len(matrix[0]))):
        raise InputError("labels must be permutations of the positions")
    return [[matrix[i][j] for j in columns] for i in rows]


def filtered(values: Sequence[arb | fmpq], theta: Sequence[fmpq]) -> list[arb]:
    """(ρ*θ)(0), …, as many values as are given."""
    if not theta or sum(abs(v) for v in theta) > 1:
        raise InputError("a filter needs a weight, and weights whose absolute values add up to at most 1")
    return [sum((arb(w) * arb(values[t - i]) for i, w in enumerate(theta) if i <= t), arb(0)) for t in range(len(values))]


@dataclass(frozen=True)
class LookAhead:
    """A filter from the other side: the kernel ρ̃ that is left for causal models, and the error that none of them beats (rounded down)."""

    kept: list[arb]
    floor: float


def look_ahead(values: Sequence[arb | fmpq], theta: Sequence[fmpq]) -> LookAhead:
    """ρ̃(j) = Σ_i θ_i ρ(j+i) for the ρ(0..) given, zero after them, and ½ Σ_k |ω_k|, ω_k = Σ_{i≥k} θ_i ρ(i−k): tokens in [0, 1]."""
    if not values or not theta or sum(abs(v) for v in theta) > 1:
        raise InputError("a filter needs a kernel, a weight, and weights whose absolute values add up to at most 1")
    with working_precision(PRECISION):
        places = [(t - i, arb(w) * arb(v)) for i, w in enumerate(theta) for t, v in enumerate(values)]
        kept, ahead = [arb(0)] * len(values), [arb(0)] * len(theta)
        for place, term in places:
            if place >= 0:
                kept[place] += term
            else:
                ahead[-place] += term
        return LookAhead(kept, max(0.0, lower(sum((abs(v) for v in ahead), arb(0)) / 2)))


def centred_logits(values: Sequence[arb]) -> list[list[arb]]:
    """log ρ(t−s) on a square block of t ≥ s, rows centred: what a softmax over s can see. Needs 2b − 1 positive values, b rows."""
    size = (len(values) + 1) // 2
    if not all(v > 0 for v in values):
        raise Refusal("weights of a softmax are positive: this kernel has no logarithm; give a kernel and a filter with positive values")
    rows = [[values[size - 1 + i - j].log() for j in range(size)] for i in range(size)]
    means = [sum(row, arb(0)) / size for row in rows]
    return [[v - mean for v in row] for row, mean in zip(rows, means, strict=True)]


@dataclass(frozen=True)
class Mixing:
    """Prop 6.3 for one kernel and filter: C_2 after filtering, what the proposition allows (C_1 fixed), singular values of the logits."""

    c2: float
    allowed: float
    before: tuple[SingularValue, ...]
    after: tuple[SingularValue, ...]

    @property
    def holds(self) -> bool:
        return self.c2 <= self.allowed

    @staticmethod
    def _rank(values: Sequence[SingularValue]) -> int:
        return sum(v.least > 0 for v in values)

    @property
    def ranks(self) -> tuple[int, int]:
        """Singular values that are certainly not 0, before and after."""
        return self._rank(self.before), self._rank(self.after)


def mixing(kernel: MemoryKernel, theta: Sequence[fmpq], block: int = 16) -> Mixing:
    """Prop 6.3 executed. C_2 of the filtered kernel is the supremum over a window, and beyond it what the majorant of ρ leaves."""
    complexity = rnn_complexity(kernel)
    if complexity.c1 is None:
        raise Refusal(f"the kernel {kernel.text[:60]!r} falls like a power law: C_1 is infinite, and Prop 6.3 says nothing")
    check_range("block", block, 2, LONGEST // 2)
    with working_precision(PRECISION):
        values = kernel.values(0, max(WINDOW, 2 * block - 1))
        mixed = filtered(values, theta)
        growth = arb((len(theta) - 1) / complexity.c1).exp()
        inside = maximum([abs(v) * (arb(t) / arb(complexity.c1)).exp() for t, v in enumerate(mixed)])
        beyond = _weighted_tail(kernel, complexity.c1, len(values) - len(theta) + 1)
        weight = sum((abs(arb(v)) * (arb(i) / arb(complexity.c1)).exp() for i, v in enumerate(theta)), arb(0))
        c2 = inside.max(weight * beyond)
        before = singular_values(centred_logits(values[: 2 * block - 1]))
        after = singular_values(centred_logits(mixed[: 2 * block - 1]))
        return Mixing(upper(c2), upper(growth * arb(complexity.c2_upper)), tuple(before), tuple(after))


def _weighted_tail(kernel: MemoryKernel, c1: fmpq, start: int) -> arb:
    """Upper bound of sup_{t≥start} e^{t/C_1}|ρ(t)|: each |ρ(t)| e^{t/C_1} is a term of a convergent sum."""
    tail = kernel.tail(start, rate=1 / c1)
    return tail.min(arb(upper(kernel.supremum("exponential", 1 / c1))))


def truncated_exponential(rate: fmpq, last: int) -> tuple[Complexity, Complexity]:
    """The remark: e^{−λs} for s ≤ last, 0 after it, with C_1 as the infimum (it is 1), and with C_1 = 1 + 1/λ."""
    if not rate > 0 or not 0 <= last <= LONGEST:
        raise InputError(f"a decay of {nearest(rate):.3g} up to s = {last}; give a positive one, and at most {LONGEST}")
    with working_precision(PRECISION):
        values = [(-arb(rate) * s).exp() for s in range(last + 1)]
    return complexity_of_values(values), complexity_of_values(values, 1 + 1 / rate)


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=25)
