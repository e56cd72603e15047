"""Couplings of finite rank in closed form: sums of products of polynomials with sines and cosines of affine forms in u and v.

**Normal form.** Angle addition and product-to-sum formulas turn such a ρ into Σ c u^a v^b cos(αu + βv) and the same with sin, then into
Σ_ij C_ij g_i(u) h_j(v) with atoms x^a cos(wx), x^a sin(wx), w = p + qπ, p and q rational. Frequencies are kept as (p, q) with the first
non-zero of the two positive: π is irrational, so different pairs are different frequencies, none is another's negative, and the atoms are
linearly independent (x^a e^{iwx} are). Coefficients are Laurent polynomials in π over ℚ as long as nothing else turns up, balls after that.

**Singular values.** Gram matrices G = LLᵀ of the atoms come from ∫_0^1 x^a e^{iwx} dx = ₁F₁(a+1; a+2; iw)/(a+1). With g = L_g q, q
orthonormal, and h = L_h r likewise, ρ = Σ q_k (L_gᵀ C L_h)_kl r_l: the singular values are those of the matrix M = L_gᵀ C L_h. For B = MᵀM
and any V let D = VᵀBV; Ostrowski's theorem says λ_k(D) = θ_k λ_k(B) with |θ_k − 1| ≤ ‖VᵀV − 1‖, Weyl's that λ_k(D) is within the norm of
what lies off the diagonal of the k-th greatest diagonal entry. V is found by Jacobi's rotations, which do not mind multiple eigenvalues,
and σ_k = √λ_k.

**Rank.** π is transcendental, so a matrix of Laurent polynomials in π has the rank that it has over ℚ(t), and that is at most r if all
minors of size r + 1 vanish: they have at most (r + 1)·span + 1 terms, so as many rational t ≠ 0 decide. The other side is r singular
values that are certainly positive.

**Centring.** Subtracting ∫ρ(u, v')dv' replaces h_j by h_j − ∫h_j: the Gram matrix becomes G − mmᵀ and the atom 1 disappears.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, TypeVar

from flint import acb, arb, arb_mat, ctx, fmpq, fmpq_mat

from analyzer.language.formulas import Formula, Node
from analyzer.numbers.exact import working_precision

MAX_TERMS = 600
"""More than MAX_ATOMS² products of atoms, so only cancellation could bring a longer sum back."""
MAX_PRODUCTS = 1 << 14
"""Products of terms that an expansion may take: seconds, and more than polynomials of MAX_ATOMS atoms in each variable need."""
MAX_ATOMS = 24
"""Functions of one variable: Jacobi's rotations take seconds beyond this many."""
PRECISIONS = (256, 512, 1024, 2048)
"""Tried in turn until values are narrow and, where coefficients are exact, all positive ones are seen to be positive."""
SWEEPS = 40
"""Jacobi's method converges quadratically; what is left after this many sweeps widens the enclosures."""
RADIUS = 1e-20
"""Enclosures are not wider than this part of σ_1, or more bits are used."""

Frequency = tuple[fmpq, fmpq]
Scalar: TypeAlias = dict[int, fmpq] | arb
"""Σ_k c_k π^k, or a ball."""
Term = tuple[int, int, Frequency, Frequency, bool]
"""u^a v^b cos(αu + βv), or sin if the last entry says so."""
Sum = dict[Term, Scalar]
Atom = tuple[int, Frequency, bool]
"""x^a cos(wx), or sin."""

Key = TypeVar("Key")

ZERO: Frequency = (fmpq(0), fmpq(0))
ONE: Atom = (0, ZERO, False)


class _Other(Exception):
    """Not a function of this kind."""


@dataclass(frozen=True)
class FiniteSpectrum:
    """Singular values in decreasing order; if the rank is certain, only those that are not 0."""

    values: tuple[arb, ...]
    rank: int | None


def finite_spectrum(formula: Formula, *, centred: bool = False) -> FiniteSpectrum | None:
    """Singular values of a coupling in u and v, or None if it is not of this kind."""
    best = None
    for bits in PRECISIONS:
        with working_precision(bits):
            try:
                matrix = coefficients(formula)
            except _Other:
                return None
            found = _spectrum(matrix, centred)
            if found is None:
                continue
            best = found
            decided = found.rank is not None or any(isinstance(value, arb) for value in matrix.values())  # balls do not decide a rank
            if decided and all(s.rad() <= RADIUS * found.values[0] for s in found.values):
                break
    return best


def coefficients(formula: Formula) -> dict[tuple[Atom, Atom], Scalar]:
    """C_ij of ρ = Σ C_ij g_i(u) h_j(v)."""
    matrix: dict[tuple[Atom, Atom], Scalar] = {}
    for (a, b, alpha, beta, odd), value in _Expansion().expand(formula.root).items():
        pieces = [(odd, False, 1), (not odd, True, 1 if odd else -1)]  # sin = sin·cos + cos·sin, cos = cos·cos − sin·sin
        for odd_u, odd_v, sign in pieces:
            first, second = _signed(alpha, odd_u), _signed(beta, odd_v)
            if first and second:
                key = (a, first[0], odd_u), (b, second[0], odd_v)
                _add(matrix, key, _times(value, {0: fmpq(sign * first[1] * second[1])}))
    if len({g for g, _ in matrix}) > MAX_ATOMS or len({h for _, h in matrix}) > MAX_ATOMS:
        raise _Other
    return matrix


def _signed(frequency: Frequency, odd: bool) -> tuple[Frequency, int] | None:
    """The frequency with its first non-zero part positive, and the sign that sin or cos takes; None for sin 0."""
    lead = frequency[0] or frequency[1]
    if not lead:
        return None if odd else (frequency, 1)
    return (frequency, 1) if lead > 0 else ((-frequency[0], -frequency[1]), -1 if odd else 1)


def _add(total: dict[Key, Scalar], key: Key, value: Scalar) -> None:
    result = _plus(total[key], value) if key in total else value
    if result == {} or (isinstance(result, arb) and result == 0):
        total.pop(key, None)
    else:
        total[key] = result


def _ball(value: Scalar) -> arb:
    return value if isinstance(value, arb) else sum((arb(c) * arb.pi() ** k for k, c in value.items()), arb(0))


def _plus(a: Scalar, b: Scalar) -> Scalar:
    if isinstance(a, arb) or isinstance(b, arb):
        return _ball(a) + _ball(b)
    return {k: c for k in {*a, *b} if (c := a.get(k, fmpq(0)) + b.get(k, fmpq(0)))}


def _times(a: Scalar, b: Scalar) -> Scalar:
    if isinstance(a, arb) or isinstance(b, arb):
        return {} if a == {} or b == {} else _ball(a) * _ball(b)
    products: Scalar = {}
    for k, c in a.items():
        for m, d in b.items():
            products = _plus(products, {k + m: c * d})
    return products


def _constant(value: Scalar) -> Sum:
    return {} if value == {} else {(0, 0, ZERO, ZERO, False): value}


def _number(total: Sum) -> Scalar:
    """The value of a sum that does not depend on u and v."""
    if not total:
        return {}
    if total.keys() != {(0, 0, ZERO, ZERO, False)}:
        raise _Other
    return total[0, 0, ZERO, ZERO, False]


class _Expansion:
    """A formula as a sum of terms, by no more than `MAX_PRODUCTS` products of them."""

    def __init__(self) -> None:
        self.products = 0

    def expand(self, node: Node) -> Sum:
        match node:
            case ("number", value):
                return _constant({0: value} if value else {})
            case ("pi",):
                return _constant({1: fmpq(1)})
            case ("variable", index):
                return {(1 - index, index, ZERO, ZERO, False): {0: fmpq(1)}}
            case ("negative", inner):
                return self.product(_constant({0: fmpq(-1)}), self.expand(inner))
            case ("plus", left, right):
                return _total([*self.expand(left).items(), *self.expand(right).items()])
            case ("minus", left, right):
                return self.expand(("plus", left, ("negative", right)))
            case ("times", left, right):
                return self.product(self.expand(left), self.expand(right))
            case ("over", above, below):
                return self.product(self.expand(above), _constant(_inverse(_number(self.expand(below)))))
            case ("power", base, exponent) if exponent.q == 1 and exponent >= 0:
                factor = self.expand(base)
                return reduce(self.product, [factor] * int(exponent.p), _constant({0: fmpq(1)}))
            case ("sin" | "cos", argument):
                return _wave(self.expand(argument), node[0] == "sin")
        if _variables(node):
            raise _Other
        value = Formula("", (), node).at()
        if not value.is_finite():
            raise _Other
        return _constant(value)

    def product(self, left: Sum, right: Sum) -> Sum:
        self.products += len(left) * len(right)
        if self.products > MAX_PRODUCTS:
            raise _Other
        return _product(left, right)


def _variables(node: Node) -> bool:
    return node[0] == "variable" or any(_variables(part) for part in node[1:] if isinstance(part, tuple))


def _inverse(value: Scalar) -> Scalar:
    if isinstance(value, dict) and len(value) == 1:
        ((k, c),) = value.items()
        return {-k: 1 / c}
    result = 1 / _ball(value)
    if not result.is_finite():
        raise _Other
    return result


def _total(terms: Iterable[tuple[Term, Scalar]]) -> Sum:
    total: Sum = {}
    for term, value in terms:
        _add(total, term, value)
    if len(total) > MAX_TERMS:
        raise _Other
    return total


def _product(left: Sum, right: Sum) -> Sum:
    if len(left) * len(right) > 8 * MAX_TERMS:  # a bound of the work: many products of polynomials fall together, few of waves
        raise _Other
    half = {0: fmpq(1, 2)}
    terms: list[tuple[Term, Scalar]] = []
    for (a, b, alpha, beta, odd), x in left.items():
        for (c, d, gamma, delta, other), y in right.items():
            value = _times(_times(x, y), half)
            # cos·cos and sin·sin make cos of difference ± sum; mixed products make sin of sum ± difference
            sign_sum = -1 if odd and other else 1
            sign_difference = -1 if other and not odd else 1
            for direction, sign in ((1, sign_sum), (-1, sign_difference)):
                frequencies = tuple((p[0] + direction * q[0], p[1] + direction * q[1]) for p, q in ((alpha, gamma), (beta, delta)))
                terms += _term(a + c, b + d, frequencies, odd != other, _times(value, {0: fmpq(sign)}))
    return _total(terms)


def _term(a: int, b: int, frequencies: tuple[Frequency, ...], odd: bool, value: Scalar) -> list[tuple[Term, Scalar]]:
    """The term with the first non-zero part of its frequencies positive; sin 0 is no term."""
    lead = next((part for frequency in frequencies for part in frequency if part), None)
    if lead is None and odd:
        return []
    if lead is not None and lead < 0:
        frequencies = tuple((-p, -q) for p, q in frequencies)
        value = _times(value, {0: fmpq(-1)}) if odd else value
    return [((a, b, frequencies[0], frequencies[1], odd), value)]


def _wave(argument: Sum, sine: bool) -> Sum:
    """sin or cos of αu + βv + γ; α and β must be p + qπ."""
    alpha, beta, shift = ZERO, ZERO, {}  # type: Frequency, Frequency, Scalar
    for (a, b, *frequencies, odd), value in argument.items():
        if frequencies != [ZERO, ZERO] or odd or a + b > 1:
            raise _Other
        if a + b == 0:
            shift = value
            continue
        if isinstance(value, arb) or not value.keys() <= {0, 1}:
            raise _Other
        frequency = (value.get(0, fmpq(0)), value.get(1, fmpq(0)))
        alpha, beta = (frequency, beta) if a else (alpha, frequency)
    cosine_part, sine_part = _turn(shift)
    # sin(x + γ) = sin x cos γ + cos x sin γ, cos(x + γ) = cos x cos γ − sin x sin γ
    flip = sine_part if sine else _times(sine_part, {0: fmpq(-1)})
    return _total([*_term(0, 0, (alpha, beta), sine, cosine_part), *_term(0, 0, (alpha, beta), not sine, flip)])


def _turn(shift: Scalar) -> tuple[Scalar, Scalar]:
    """cos γ and sin γ: exact for multiples of π/2."""
    if isinstance(shift, dict) and shift.keys() <= {1} and (2 * shift.get(1, fmpq(0))).q == 1:
        quarter = int((2 * shift.get(1, fmpq(0))).p) % 4
        parts = [{0: fmpq(c)} if c else {} for c in ((1, 0, -1, 0)[quarter], (0, 1, 0, -1)[quarter])]
        return parts[0], parts[1]
    angle = _ball(shift)
    return angle.cos(), angle.sin()


def _spectrum(matrix: dict[tuple[Atom, Atom], Scalar], centred: bool) -> FiniteSpectrum | None:
    """Singular values at the working precision, or None if it does not suffice."""
    if centred:
        matrix = {key: value for key, value in matrix.items() if key[1] != ONE}
    if not matrix:
        return FiniteSpectrum((), 0)
    rows, columns = sorted({g for g, _ in matrix}), sorted({h for _, h in matrix})
    integral = _integrals()
    left, right = _cholesky(_gram(rows, integral, False)), _cholesky(_gram(columns, integral, centred))
    if left is None or right is None:
        return None
    middle = arb_mat([[_ball(matrix.get((g, h), {})) for h in columns] for g in rows])
    reduced = left.transpose() * middle * right
    values = singular_values(reduced if len(rows) >= len(columns) else reduced.transpose())
    if values is None:
        return None
    positive = sum(1 for value in values if value > 0)
    exact = {key: value for key, value in matrix.items() if isinstance(value, dict)}
    full = positive == min(len(rows), len(columns))
    if full or (len(exact) == len(matrix) and _rank_at_most(exact, rows, columns, positive)):
        return FiniteSpectrum(values[:positive], positive)
    return FiniteSpectrum(values, None)


def _integrals() -> Callable[[int, Frequency, bool], arb]:
    """∫_0^1 x^a cos(wx) dx, or of sin, each computed once."""
    known: dict[tuple[int, Frequency], acb] = {}

    def integral(a: int, frequency: Frequency, odd: bool) -> arb:
        key = a, frequency
        if key not in known:
            w = arb(frequency[0]) + arb(frequency[1]) * arb.pi()
            known[key] = acb(0, w).hypgeom_1f1(a + 1, a + 2) / (a + 1) if any(frequency) else acb(arb(fmpq(1, a + 1)))
        return known[key].imag if odd else known[key].real

    return integral


def _gram(atoms: list[Atom], integral: Callable[[int, Frequency, bool], arb], centred: bool) -> list[list[arb]]:
    """⟨g_i, g_j⟩, minus the products of the means if centred."""

    def inner(first: Atom, second: Atom) -> arb:
        (a, w, odd), (b, z, other) = first, second
        power, total, difference = a + b, (w[0] + z[0], w[1] + z[1]), (w[0] - z[0], w[1] - z[1])
        if odd == other:
            far = integral(power, total, False)
            return (integral(power, difference, False) + (-far if odd else far)) / 2
        near = integral(power, difference, True)
        return (integral(power, total, True) + (near if odd else -near)) / 2

    means = [integral(a, w, odd) for a, w, odd in atoms] if centred else [arb(0)] * len(atoms)
    return [[inner(g, h) - m * k for h, k in zip(atoms, means, strict=True)] for g, m in zip(atoms, means, strict=True)]


def _cholesky(gram: list[list[arb]]) -> arb_mat | None:
    """L with G = LLᵀ; None if a pivot is not certainly positive."""
    size = len(gram)
    factor = [[arb(0)] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = gram[i][j] - sum((factor[i][k] * factor[j][k] for k in range(j)), arb(0))
            if i > j:
                factor[i][j] = rest / factor[j][j]
            elif rest > 0:
                factor[i][i] = rest.sqrt()
            else:
                return None
    return arb_mat(factor)


def singular_values(matrix: arb_mat) -> tuple[arb, ...] | None:
    """Enclosures of all singular values of a matrix with at least as many rows as columns, in decreasing order."""
    square = matrix.transpose() * matrix
    basis = jacobi_vectors(square)
    diagonal = basis.transpose() * square * basis
    overlap = basis.transpose() * basis
    size = diagonal.nrows()
    pairs = [(i, j) for i in range(size) for j in range(size)]
    defect = _norm(overlap[i, j] - (i == j) for i, j in pairs)
    off = _norm(diagonal[i, j] for i, j in pairs if i != j)
    if not defect < 1:
        return None
    found = sorted((diagonal[i, i] for i in range(size)), key=lambda entry: entry.mid(), reverse=True)
    spread = off + max(entry.rad() for entry in found)  # midpoints are ordered, the entries within their radii of them
    scale = (1 / (1 + defect)).union(1 / (1 - defect))
    return tuple(_root((entry.mid() + arb(0, spread.upper())) * scale) for entry in found)


def _norm(entries: Iterable[arb]) -> arb:
    return _root(sum((entry * entry for entry in entries), arb(0)))


def _root(square: arb) -> arb:
    """√ of a number that is not negative, whatever its enclosure says."""
    return square.lower().max(arb(0)).sqrt().union(square.upper().max(arb(0)).sqrt())


def jacobi_vectors(symmetric: arb_mat) -> arb_mat:
    """Approximate eigenvectors of a symmetric matrix, as columns: rotations until nothing is left off the diagonal at this precision."""
    size = symmetric.nrows()
    a = [[symmetric[i, j].mid() for j in range(size)] for i in range(size)]
    v = [[arb(int(i == j)) for j in range(size)] for i in range(size)]
    least = arb(2) ** -ctx.prec * max((abs(a[i][i]) for i in range(size)), default=arb(0)) * size
    for _ in range(SWEEPS):
        turned = False
        for p in range(size):
            for q in range(p + 1, size):
                if not abs(a[p][q]) > least:
                    continue
                turned = True
                ratio = (a[q][q] - a[p][p]) / (2 * a[p][q])
                tangent = (1 if ratio >= 0 else -1) / (abs(ratio) + (1 + ratio**2).sqrt())
                cosine = (1 / (1 + tangent**2).sqrt()).mid()
                sine = (tangent * cosine).mid()
                for row in (*a, *v):
                    x, y = row[p], row[q]
                    row[p], row[q] = (cosine * x - sine * y).mid(), (sine * x + cosine * y).mid()
                pairs = list(zip(a[p], a[q], strict=True))
                a[p] = [(cosine * x - sine * y).mid() for x, y in pairs]
                a[q] = [(sine * x + cosine * y).mid() for x, y in pairs]
        if not turned:
            break
    return arb_mat(v)


def _rank_at_most(matrix: dict[tuple[Atom, Atom], Scalar], rows: list[Atom], columns: list[Atom], rank: int) -> bool:
    """Whether the rank over ℚ(π) is at most this."""
    exact = {key: value for key, value in matrix.items() if isinstance(value, dict)}
    powers = [k for value in exact.values() for k in value]
    span = max(powers) - min(powers)
    for t in range(1, (rank + 1) * span + 2):
        entries = [[sum((c * fmpq(t) ** k for k, c in exact.get((g, h), {}).items()), fmpq(0)) for h in columns] for g in rows]
        if fmpq_mat(len(rows), len(columns), [x for row in entries for x in row]).rank() > rank:
            return False
    return True
