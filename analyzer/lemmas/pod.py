"""Certified singular values of a coupling (its POD): ρ(u, v) = Σ_k σ_k φ_k(u) ψ_k(v) on [0, 1]², σ_1 ≥ σ_2 ≥ … ≥ 0.

*Exact* where ρ is a polynomial, a trigonometric polynomial or a sum of products of both (`analyzer.lemmas.finite_rank`), *given* where the
decomposition is the definition of ρ, and otherwise by quadrature (*nystrom*), which is an interpolation in disguise:

**Interpolant.** On a panel of length h let x_i, w_i be n Gauss nodes and weights and l_i the Lagrange polynomials. l_i l_j has degree
2n − 2 ≤ 2n − 1, so the rule is exact for it: ∫ l_i l_j = w_i δ_ij. With P panels l_i(u) l_j(v)/√(w_i w_j) are orthonormal, so the
singular values of A_ij = √w_i ρ(x_i, x_j) √w_j are exactly those of the piecewise interpolant ρ_N = I_u I_v ρ, and by Weyl

    |σ_k(ρ) − σ_k(A)| ≤ ‖ρ − ρ_N‖ ≤ ‖ρ − I_u ρ‖ + ‖I_u(ρ − I_v ρ)‖   (Hilbert–Schmidt norm = norm of L²).                  (W)

(Σ_{k>m} σ_k²)^{1/2} is the distance from the operators of rank m (Eckart–Young), so it moves by no more either.

**One variable.** ω_j(x) = Π(x − Gauss nodes of order j) is the monic Legendre polynomial of the panel. P_j has norm² 2/(2j+1) on [−1, 1]
and leading coefficient (2j)!/(2^j j!²); scaled by h/2,

    ‖ω_j‖ = κ_j = h^{j+1/2} j!²/((2j)! √(2j+1)).

Newton's remainder f − I f = f[x_1, …, x_n, ·] ω_n gives ‖f − I f‖ ≤ κ_n sup|f^(n)/n!|. For j < n and f^(j)/j! ∈ [c − M, c + M] let p be
cx^j plus the interpolant of order j of f − cx^j, and g = f − p. I p = p, so f − I f = g − I g, where |g| ≤ |ω_j| M and ‖I g‖² =
Σ w_i g(x_i)² ≤ M² Σ w_i ω_j(x_i)² = M² κ_j², because the rule is exact for ω_j². So ‖f − I f‖ ≤ 2 κ_j M. For j = 1 a Lipschitz function
with slopes in that interval will do (p = cx plus a constant), and for j = 0 half the oscillation of f is M. The least of these bounds is
taken, cell by cell.

**Two variables.** On a cell of side h the first term of (W) is at most √h times the bound for ρ(·, v), v in the cell. The second is
Σ_i w_i ‖ρ(x_i, ·) − I_v ρ(x_i, ·)‖², positive weights that add up to h: at most √h times the bound for ρ(u, ·), u in the cell. Cells add up
in squares. Derivatives are enclosed on boxes of cells, and the boxes that contribute most are cut first.

**Matrix.** Floats Ã ≈ A with ‖A − Ã‖ ≤ ε, and whatever U, s, V a float SVD returns: with a ≥ ‖UᵀU − 1‖, b ≥ ‖VᵀV − 1‖ the singular
values of U lie in [√(1−a), √(1+a)], and σ_k(XY) lies between σ_min(X) σ_k(Y) and ‖X‖ σ_k(Y), so

    σ_k(U S Vᵀ) ∈ s_k [√((1−a)(1−b)), √((1+a)(1+b))],    |σ_k(A) − σ_k(U S Vᵀ)| ≤ ε + ‖Ã − U S Vᵀ‖.

Defects are products of floats. X = X' + X'' with X' on so coarse a grid that X'Y' is computed without rounding; the rest is small, and
there |fl(XY) − XY| ≤ γ_n |X||Y| in any order of summation, γ_n = n2⁻⁵³/(1 − n2⁻⁵³).

**Centring.** Softmax over keys v does not see functions of u alone. ρ − ∫ρ dv' is ρ times an orthogonal projection, so (W) bounds its
distance from ρ_N − ∫ρ_N dv' too, and there the rule is exact: the matrix is A(1 − s sᵀ), s = √w.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.finite_rank import FiniteSpectrum, finite_spectrum
from analyzer.numbers.exact import maximum, upper, working_precision
from analyzer.targets.coupling import BITS, MAX_POINTS, Coupling, FormulaCoupling, SineCoupling

MENU = ((4, 16), (8, 16), (16, 12), (16, 16), (32, 16), (256, 2))
"""(panels, nodes on each), in the order in which they are tried: easy couplings, steep ones, and those whose derivatives fail."""
BOXES = 4000
"""Boxes on which derivatives are enclosed, for one entry of the menu: tenths of a second."""
MAX_ENCLOSED = 16 * BOXES
"""Operations on series in all these boxes: formulas of more than sixteen operations get fewer."""
FLOAT_NOISE = 2.0**-50
"""Interpolation errors below this part of ρ are lost in the rounding of the matrix."""
AGREEMENT = 1e-10
"""Float singular values this near to the exact ones, as part of σ_1, come with singular functions that are good enough to look at."""
UNIT = 2.0**-53
TINY = 2.0**-960
"""More than all underflows of one sum of products, flushed to zero or not."""

Functions = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Pod:
    """Singular values with rigorous bars, singular functions as floats without."""

    values: tuple[arb, ...]
    """Enclosures of σ_1 ≥ σ_2 ≥ …: those certainly positive, or one that may be 0; none if the rank is 0."""
    tail: arb
    """Bound of every further σ_k; 0 if there is none."""
    computed: tuple[arb, ...]
    """Enclosures of *all* singular values of an operator within `error` of ρ."""
    error: arb
    """Bar of Weyl's inequality; 0 for exact and given decompositions."""
    rank: int | None
    """Where it is certain; infinite or undecided otherwise."""
    method: str
    """exact · given · nystrom."""
    nodes: np.ndarray
    weights: np.ndarray
    left: np.ndarray
    """φ_k(x_i), shape (nodes, values)."""
    right: np.ndarray
    evaluate: Functions

    @property
    def energy(self) -> arb:
        """‖ρ‖² = Σ σ_k²."""
        return self.tail_energy(0)

    def tail_energy(self, m: int) -> arb:
        """Σ_{k>m} σ_k²: the squared distance from the couplings of rank m."""
        with working_precision(BITS):
            low, high = (sum((end * end for end in ends), arb(0)).sqrt() for ends in _ends(self.computed[m:]))
            low, high = (low - self.error).max(arb(0)), high + self.error
            return (low * low).union(high * high)

    def functions(self, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """φ_k and ψ_k at any points, (points, values) each; floats without a bound."""
        return self.evaluate(np.asarray(xs, dtype=float))


def _ends(balls: Sequence[arb]) -> tuple[list[arb], list[arb]]:
    """Lower ends, at least 0, and upper ends."""
    return [ball.lower().max(arb(0)) for ball in balls], [ball.upper() for ball in balls]


def pod(coupling: Coupling, *, centred: bool = False) -> Pod:
    """Singular values of ρ, or of ρ(u, v) − ∫ρ(u, v')dv'."""
    if isinstance(coupling, SineCoupling):
        return _given(coupling)
    spectrum = finite_spectrum(coupling.formula, centred=centred)
    return nystrom(coupling, centred=centred) if spectrum is None else _exact(coupling, spectrum, centred)


def _exact(coupling: Coupling, spectrum: FiniteSpectrum, centred: bool) -> Pod:
    """Values in closed form; functions in floats, from the first rule whose values agree with them."""
    sure = sum(1 for s in spectrum.values if s > 0)
    exact = np.array([float(s) for s in spectrum.values[:sure]])
    for panels, order in MENU:
        rule = gauss_panels(panels, order)
        matrix = _centre(_weighted(_floats(coupling, rule.points, rule.points), rule), rule, centred)
        left, found, right = _svd(coupling, matrix)
        if np.all(np.abs(found[:sure] - exact) <= AGREEMENT * np.max(exact, initial=0.0)):
            break
    phi, psi, evaluate = _singular_functions(coupling, rule, left[:, :sure], exact, right[:sure].T, centred)
    tail = arb(0) if spectrum.rank is not None else spectrum.values[sure].upper()
    return Pod(
        spectrum.values[:sure], tail, spectrum.values, arb(0), spectrum.rank, "exact", rule.points, rule.floats, phi, psi, evaluate
    )  # fmt: skip


def _given(coupling: SineCoupling) -> Pod:
    """σ_k as they are given; sines of whole periods have integral 0, so centring changes nothing. Eight nodes a period, if there are."""
    rule = gauss_panels(*next((entry for entry in MENU if math.prod(entry) >= 8 * coupling.rank), max(MENU, key=math.prod)))
    frequencies = 2 * np.pi * np.arange(1, coupling.rank + 1)

    def evaluate(xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        basis = math.sqrt(2) * np.sin(frequencies * xs[:, None])
        return basis, basis

    left, right = evaluate(rule.points)
    sigma = coupling.sigmas
    return Pod(sigma, arb(0), sigma, arb(0), coupling.rank, "given", rule.points, rule.floats, left, right, evaluate)


@dataclass(frozen=True, eq=False)
class PanelRule:
    """Gauss nodes and weights on equal panels of [0, 1]."""

    panels: int
    order: int
    nodes: tuple[arb, ...]
    weights: tuple[arb, ...]

    @property
    def points(self) -> np.ndarray:
        return np.array([float(x) for x in self.nodes])

    @property
    def floats(self) -> np.ndarray:
        return np.array([float(w) for w in self.weights])

    def check(self) -> None:
        """The rule integrates 1, x, …, x^{2n−1} on its first panel, scaled to [0, 1], and repeats on the others."""
        n, scale = self.order, self.panels
        for k in range(2 * n):
            moment = sum((w * scale * (x * scale) ** k for x, w in zip(self.nodes[:n], self.weights[:n], strict=True)), arb(0))
            if not moment.overlaps(arb(fmpq(1, k + 1))):
                raise Refusal(f"the quadrature rule is not Gauss's: moment {k} is {float(moment):.17g} instead of 1/{k + 1}")
        for i in range(n, len(self.nodes)):
            shifted = self.nodes[i] - fmpq(i // n, scale)
            if not shifted.overlaps(self.nodes[i % n]) or not self.weights[i].overlaps(self.weights[i % n]):
                raise Refusal(f"the quadrature rule is not Gauss's: node {i} does not repeat node {i % n}")


def gauss_panels(panels: int, order: int) -> PanelRule:
    """n Gauss–Legendre nodes on each of P panels."""
    with working_precision(BITS):
        roots = [arb.legendre_p_root(order, order - 1 - k, weight=True) for k in range(order)]
        nodes = tuple((2 * p + 1 + x) / (2 * panels) for p in range(panels) for x, _ in roots)
        return PanelRule(panels, order, nodes, tuple(w / (2 * panels) for _ in range(panels) for _, w in roots))


def interpolation_error(coupling: Coupling, panels: int, order: int, *, boxes: int = BOXES, enough: float = 0.0) -> arb:
    """Bound of ‖ρ − ρ_N‖; refinement stops at `enough`."""
    if panels & (panels - 1):
        raise InputError(f"{panels} panels cannot be halved down to one; take a power of two")
    with working_precision(BITS):
        side = arb(fmpq(1, panels))
        scales = [side.sqrt() * 2] + [(2 - (j == order)) * _kappa(side, j) for j in range(1, order + 1)]

        def bounds(i: int, j: int, cells: int) -> tuple[float, float]:
            """Both terms, squared and added up over a box of cells × cells cells."""
            u, v = (arb(fmpq(k, panels)).union(arb(fmpq(k + cells, panels))) for k in (i, j))
            value = coupling.at(u, v)
            across, along = (_least(scales, [value, *coupling.taylor(index, order, u, v)[1:]]) for index in (0, 1))
            return upper(cells**2 * side * across * across), upper(cells**2 * side * along * along)

        first = bounds(0, 0, panels)
        queue, used = [(-max(first), 0, 0, panels, first)] if panels > 1 else [], 1
        cells_done: list[tuple[float, float]] = [] if panels > 1 else [first]
        while queue and used < boxes and -queue[0][0] * (len(queue) + len(cells_done)) > enough * enough / 4:
            _, i, j, cells, _ = heapq.heappop(queue)
            half = cells // 2
            for k, m in ((i, j), (i + half, j), (i, j + half), (i + half, j + half)):
                part, used = bounds(k, m, half), used + 1
                if half > 1:
                    heapq.heappush(queue, (-max(part), k, m, half, part))
                else:
                    cells_done.append(part)
        parts = cells_done + [entry[-1] for entry in queue]
        return sum((sum((arb(part[index]) for part in parts), arb(0)).sqrt() for index in (0, 1)), arb(0)).upper()


def _kappa(side: arb, j: int) -> arb:
    """‖ω_j‖ on a panel of this length."""
    return side**j * side.sqrt() * arb(j).fac() ** 2 / (arb(2 * j).fac() * arb(2 * j + 1).sqrt())


def _least(scales: list[arb], taylor: list[arb]) -> arb:
    """The least of the bounds of all orders: half the oscillation of the j-th coefficient counts, but the size of the last."""
    sizes = [*(c.rad() for c in taylor[:-1]), taylor[-1].abs_upper()]
    bounds = [scale * size for scale, size, c in zip(scales, sizes, taylor, strict=True) if c.is_finite()]
    return min(bounds, key=lambda bound: float(bound), default=arb.pos_inf())


def nystrom(coupling: Coupling, *, centred: bool = False, menu: Sequence[tuple[int, int]] = MENU) -> Pod:
    """The decomposition from the first rule of the menu whose interpolation error is lost in rounding, or from the best."""
    sample = np.linspace(0, 1, 17)
    size = float(np.max(np.abs(_floats(coupling, sample, sample)), initial=0.0))  # only to choose a rule
    chosen, error = menu[0], arb.pos_inf()
    operations = coupling.formula.cost if isinstance(coupling, FormulaCoupling) else coupling.rank
    boxes = max(1, min(BOXES, MAX_ENCLOSED // operations))
    for panels, order in menu:
        if (panels * order) ** 2 * operations > MAX_POINTS:
            continue
        found = interpolation_error(coupling, panels, order, boxes=boxes, enough=FLOAT_NOISE * size)
        if not found >= error:
            chosen, error = (panels, order), found
        if error <= FLOAT_NOISE * size:
            break
    if not error.is_finite():
        raise InputError(f"rho {coupling.name[:60]!r} has no finite bound on small cells of [0, 1]^2: it is too steep or too large")
    rule = gauss_panels(*chosen)
    with np.errstate(all="ignore"), working_precision(BITS):
        matrix, rounding = sampled_matrix(coupling, rule, centred)
        left, values, right = _svd(coupling, matrix)
        computed, defect = certified_values(matrix, left, values, right.T)
        bar = (error + rounding + defect).upper()
        if not bar.is_finite():
            raise InputError(f"rho {coupling.name[:60]!r} is too large for floats")
        bars = [s + arb(0, bar) for s in computed]
        sure = max(1, sum(1 for s in bars if s > 0))
        tail = bars[sure].upper() if sure < len(bars) else bar
    phi, psi, evaluate = _singular_functions(coupling, rule, left[:, :sure], values[:sure], right[:sure].T, centred)
    return Pod(tuple(bars[:sure]), tail, computed, bar, None, "nystrom", rule.points, rule.floats, phi, psi, evaluate)


def sampled_matrix(coupling: Coupling, rule: PanelRule, centred: bool) -> tuple[np.ndarray, arb]:
    """A (centred if asked for) in floats, and a bound of its distance from A in the Frobenius norm.

    Entries: ρ is off by e, and Σ w_i w_j = 1, so that is e in norm; each √w is off by at most 2 units of rounding (two in w, halved, and
    one in √), and two products round: 6 units of ‖A‖, counted as 8. Centring: A s is off by γ_N ‖A‖; s, twice, the outer product and the
    difference add 7 units, counted as 16.
    """
    with working_precision(BITS):
        rule.check()
        values, error = coupling.grid(rule.nodes, rule.nodes)
        matrix = _weighted(values, rule)
        bound = arb(error) * (1 + arb(8 * UNIT)) + 8 * UNIT * _norm(matrix)
        if centred:
            bound += (len(matrix) + 16) * UNIT * _norm(matrix)
        bound = bound * (1 + arb(2.0**-40)) + matrix.size * TINY  # products of the roundings above
        return _centre(matrix, rule, centred), bound.upper()


def _svd(coupling: Coupling, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not np.isfinite(matrix).all():
        raise InputError(f"rho {coupling.name[:60]!r} is not a finite float at some node of the quadrature")
    return np.linalg.svd(matrix)


def _weighted(values: np.ndarray, rule: PanelRule) -> np.ndarray:
    root = np.sqrt(rule.floats)
    return root[:, None] * values * root


def _centre(matrix: np.ndarray, rule: PanelRule, centred: bool) -> np.ndarray:
    """A(1 − s sᵀ)."""
    root = np.sqrt(rule.floats)
    return matrix - np.outer(matrix @ root, root) if centred else matrix


def certified_values(matrix: np.ndarray, left: np.ndarray, values: np.ndarray, right: np.ndarray) -> tuple[tuple[arb, ...], arb]:
    """Enclosures of the singular values of U S Vᵀ, and a bound of ‖Ã − U S Vᵀ‖, from whatever U (n, r), s (r,), V (n, r) were found."""
    if not (np.isfinite(left).all() and np.isfinite(right).all() and np.isfinite(values).all() and (values >= 0).all()):
        raise Refusal("the float singular value decomposition is not finite")
    one = np.eye(len(values))
    with working_precision(BITS):
        a, b = product_defect(one, left.T, left), product_defect(one, right.T, right)
        if not (a < 1 and b < 1):
            raise Refusal("the float singular vectors are not independent: no certificate")
        scaled = left * values  # one rounding for each entry
        residual = product_defect(matrix, scaled, right.T) + UNIT * _norm(scaled) * _norm(right)
        factor = ((1 - a) * (1 - b)).sqrt().union(((1 + a) * (1 + b)).sqrt())
        return tuple(arb(float(s)) * factor for s in np.sort(values)[::-1]), residual.upper()


def product_defect(goal: np.ndarray, x: np.ndarray, y: np.ndarray) -> arb:
    """Bound of ‖goal − XY‖ in the Frobenius norm."""
    terms = x.shape[1]
    bits = (53 - math.ceil(math.log2(max(terms, 2)))) // 2  # sums of `terms` products of numbers of `bits` bits fit into 53
    (x_high, x_low), (y_high, y_low) = _split(x, bits), _split(y, bits)
    rounding, gamma = arb(0), arb(terms * UNIT) / (1 - arb(terms * UNIT))
    rest = goal
    for first, second, exact in ((x_high, y_high, True), (x_high, y_low, False), (x_low, y_high, False), (x_low, y_low, False)):
        rest = rest - first @ second
        rounding += UNIT * _norm(rest)
        if not exact:
            rounding += gamma * _norm(first) * _norm(second)
    return (_norm(rest) + rounding * (1 + arb(2.0**-40)) + goal.size * TINY).upper()


def _split(x: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """X = X' + X'' without rounding: X' is a multiple of 2^{−bits} times a power of two that no entry exceeds."""
    _, exponent = np.frexp(np.max(np.abs(x), initial=0.0))
    grid = 2.0 ** max(int(exponent) - bits, -900)
    high = np.round(x / grid) * grid
    return high, x - high


def _norm(x: np.ndarray) -> arb:
    """Upper bound of the Frobenius norm: n products and sums, and a root, each rounded."""
    square = arb(float(np.sum(x * x))) * (1 + (x.size + 2) * arb(2.0**-52)) + x.size * TINY
    return square.sqrt()


def _floats(coupling: Coupling, us: np.ndarray, vs: np.ndarray) -> np.ndarray:
    """ρ(u_i, v_j) in floats, without a bound."""
    with np.errstate(all="ignore"):
        values = np.broadcast_to(coupling.compiled(np)(us[:, None], vs[None, :]), (len(us), len(vs))) + 0.0
    if not np.isfinite(values).all():  # infinite values would stop the SVD
        raise InputError(f"rho {coupling.name[:60]!r} leaves the range of floats when it is computed; divide it by its size")
    return values


def _singular_functions(
    coupling: Coupling, rule: PanelRule, left: np.ndarray, values: np.ndarray, right: np.ndarray, centred: bool
) -> tuple[np.ndarray, np.ndarray, Functions]:
    """φ_k and ψ_k at the nodes, and Nyström's extension φ_k(x) = σ_k^{−1} Σ_j w_j ρ(x, y_j) ψ_k(y_j); likewise ψ_k, centred if asked."""
    root = np.sqrt(rule.floats)[:, None]
    phi, psi = left / root, right / root
    points, weights = rule.points, rule.floats[:, None]
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)

    def evaluate(xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = _floats(coupling, xs, points), _floats(coupling, points, xs)
        if centred:
            rows = rows - rows @ weights
            columns = columns - _floats(coupling, points, points) @ weights
        return rows @ (weights * psi) * inverse, columns.T @ (weights * phi) * inverse

    return phi, psi, evaluate


@dataclass(frozen=True)
class Decay:
    """σ_k ≈ c k^{−α}: least squares of log σ_k on log k, and the least C with σ_k ≤ C k^{−α} for the leading K values."""

    alpha: float
    standard_error: float
    """Of α; NaN with fewer than three values."""
    constant: arb
    """C_1^{(α)} over the leading K; beyond them only `Pod.tail` holds."""
    count: int
    """K."""


def fit_decay(values: Sequence[arb]) -> Decay:
    """The fitted α is a float and a description, the constant for that α is certified."""
    sure = [(k, s.mid()) for k, s in enumerate(values, start=1) if s.mid() > 2 * s.rad()]  # the log is off by less than log 2
    used = [(math.log(k), float(middle.log())) for k, middle in sure]
    if len(used) < 2:
        raise InputError(f"{len(used)} singular value(s) lie above their error bar; a decay needs at least two")
    x, y = np.array(used).T
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    rest = y - slope * x
    error = math.sqrt(float(rest @ rest) / (len(used) - 2) / float(x @ x)) if len(used) > 2 else math.nan
    return Decay(-slope, error, decay_constant(values, arb(-slope)), len(values))


def decay_constant(values: Sequence[arb], alpha: arb) -> arb:
    """C_1^{(α)} = max σ_k k^α over the values given; σ beyond them is not looked at."""
    with working_precision(BITS):
        return maximum([s * arb(k) ** alpha for k, s in enumerate(values, start=1)]) if values else arb(0)
