"""Singular values of couplings: exact ones by sympy, known spectra, and what happens when a certificate is tampered with."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
import sympy
from flint import arb, arb_mat, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError, Refusal
from analyzer.language.formulas import parse_formula
from analyzer.lemmas import finite_rank
from analyzer.lemmas.finite_rank import finite_spectrum, singular_values
from analyzer.lemmas.pod import (
    Pod,
    certified_values,
    decay_constant,
    fit_decay,
    gauss_panels,
    interpolation_error,
    nystrom,
    pod,
    product_defect,
    sampled_matrix,
)
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.targets.coupling import FormulaCoupling, SineCoupling, parse_coupling
from tests.depth import examples

U, V, PI = sympy.Symbol("u"), sympy.Symbol("v"), sympy.pi
DIGITS = 40
SEPARATED = {
    "u*v": [(U, V)],
    "u+v": [(U, 1), (1, V)],
    "(u-v)**2": [(U**2, 1), (-2 * U, V), (1, V**2)],
    "1+u*v+u**2*v**2": [(1, 1), (U, V), (U**2, V**2)],
    "sin(2*pi*(u+v))": [(sympy.sin(2 * PI * U), sympy.cos(2 * PI * V)), (sympy.cos(2 * PI * U), sympy.sin(2 * PI * V))],
    "cos(2*pi*(u-v)) + u*v": [
        (sympy.cos(2 * PI * U), sympy.cos(2 * PI * V)),
        (sympy.sin(2 * PI * U), sympy.sin(2 * PI * V)),
        (U, V),
    ],
    "u*sin(3*u)*v**2/pi - cos(pi*v + u)": [
        (U * sympy.sin(3 * U) / PI, V**2),
        (-sympy.cos(U), sympy.cos(PI * V)),
        (sympy.sin(U), sympy.sin(PI * V)),
    ],
}


@cache
def sympy_values(text: str, centred: bool) -> list[mpmath.mpf]:
    """ρ = Σ g_i h_i has σ² = eigenvalues of G_g G_h."""
    pairs = [(sympy.sympify(g), sympy.sympify(h)) for g, h in SEPARATED[text]]
    assert sympy.simplify(sympy.expand_trig(sympy.sympify(text) - sum(g * h for g, h in pairs))) == 0
    if centred:
        pairs = [(g, h - sympy.integrate(h, (V, 0, 1))) for g, h in pairs]
    grams = [
        sympy.Matrix(len(pairs), len(pairs), lambda i, j, s=side, x=x: sympy.integrate(sympy.expand(pairs[i][s] * pairs[j][s]), (x, 0, 1)))
        for side, x in ((0, U), (1, V))
    ]
    with mpmath.workdps(2 * DIGITS):
        product = mpmath.matrix((grams[0] * grams[1]).evalf(2 * DIGITS).tolist())
        eigenvalues, _ = mpmath.eig(product)
        roots = sorted((mpmath.sqrt(abs(mpmath.re(x))) for x in eigenvalues), reverse=True)
        return [x for x in roots if x > mpmath.mpf(10) ** -DIGITS]


def holds(ball: arb, value: mpmath.mpf) -> bool:
    """Whether the ball meets the value, known to DIGITS digits; a ball narrower than that meets what is known of it."""
    with working_precision(256):
        return bool(ball.overlaps(arb(mpmath.nstr(value, DIGITS), arb(10) ** (2 - DIGITS))))


@pytest.mark.deep(
    only=(
        "cos(2*pi*(u-v)) + u*v-False",
        "cos(2*pi*(u-v)) + u*v-True",
        "(u-v)**2-False",
        "sin(2*pi*(u+v))-True",
        "u*sin(3*u)*v**2/pi - cos(pi*v + u)-False",
        "u*sin(3*u)*v**2/pi - cos(pi*v + u)-True",
    )
)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("text", SEPARATED)
def test_exact_and_quadrature_contain_sympys_values(text: str, centred: bool) -> None:
    coupling, wanted = parse_coupling(text), sympy_values(text, centred)
    exact, sampled = pod(coupling, centred=centred), nystrom(coupling, centred=centred)
    assert exact.method == "exact" and exact.rank == len(exact.values) == len(wanted) and exact.tail == 0
    assert sampled.method == "nystrom" and len(sampled.values) == len(wanted) and sampled.tail < 1e-13
    for value, ball, bar in zip(wanted, exact.values, sampled.values, strict=True):
        assert holds(ball, value) and ball.rad() < 1e-30
        assert holds(bar, value) and bar.rad() < 1e-12
    for m in range(len(wanted) + 1):
        with mpmath.workdps(2 * DIGITS):
            energy = sum((x**2 for x in wanted[m:]), mpmath.mpf(0))
        for found in (exact, sampled):
            assert holds(found.tail_energy(m), energy) and found.tail_energy(m).rad() < 1e-12


def test_centring_takes_one_rank_of_a_square_and_all_of_a_function_of_the_query() -> None:
    square = parse_coupling("(u-v)**2")
    assert pod(square).rank == 3 and pod(square, centred=True).rank == 2
    alone = pod(parse_coupling("u**2"), centred=True)
    assert alone.values == () and alone.rank == 0 and alone.energy == 0
    sampled = nystrom(parse_coupling("u**2"), centred=True)
    assert sampled.values[0].contains(0) and sampled.values[0].abs_upper() < 1e-13 and sampled.rank is None


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("(1+u)*(1+v)", 1),
        ("sin(u)*cos(v) - sin(u-v)", 1),
        ("cos(2*pi*(u-v)) + cos(4*pi*(u-v))", 4),
        ("(u+v)**3 - (u-v)**3", 2),
        ("pi*u*v + u**2*v/pi - (pi*u + u**2/pi)*v", 0),
        ("(pi*u + u**2/pi)*(v - pi)", 1),
        ("2 - 2", 0),
    ],
)
def test_rank_is_exact_even_where_atoms_are_dependent(text: str, rank: int) -> None:
    found = pod(parse_coupling(text))
    assert found.rank == rank == len(found.values) and found.left.shape == (len(found.nodes), rank)


def test_rank_is_left_open_where_balls_do_not_decide_it() -> None:
    found = pod(parse_coupling("sin(2*pi*u+1)*sin(2*pi*v+1)"))  # sin 1 and cos 1 are balls
    assert found.rank is None and len(found.values) == 1 and found.values[0].contains(fmpq(1, 2)) and found.tail < 1e-30


@pytest.mark.parametrize("text", ["exp(u*v)", "abs(u-v)", "sin(u*v)", "1/(1+u)", "u**0.5", "sin(u**2)", "(u+v)**30"])
def test_other_couplings_have_no_closed_form(text: str) -> None:
    assert finite_spectrum(parse_formula(text, ("u", "v"), "rho")) is None


SMOOTH = ["exp(-(u-v)**2)", "1/(1+u+v)", "sin(2*pi*u*v)"]


@pytest.mark.parametrize("text", SMOOTH)
def test_smooth_couplings_reach_rounding(text: str) -> None:
    coupling = parse_coupling(text)
    found = pod(coupling)
    assert found.method == "nystrom" and found.error < 1e-12 and len(found.values) >= 9
    u, v = (np.polynomial.legendre.leggauss(60)[0] + 1) / 2, np.polynomial.legendre.leggauss(60)[1] / 2
    rough = np.sqrt(v)[:, None] * coupling.compiled(np)(u[:, None], u[None, :]) * np.sqrt(v)
    for ball, value in zip(found.values, np.linalg.svd(rough, compute_uv=False), strict=False):
        assert abs(float(ball) - value) < 1e-13
    assert abs(float(found.energy) - float(np.sum(rough**2))) < 1e-13 and found.energy.rad() < 1e-12
    exact = {"1/(1+u+v)": lambda: sympy.log(4) - sympy.log(3)}.get(text)  # ∫∫(1+u+v)^{−2} = log(4/3)
    assert exact is None or holds(found.energy, mpmath.mpf(exact().evalf(DIGITS)))


def distance_spectrum(count: int) -> list[mpmath.mpf]:
    """|u − v|: λf'' = 2f, f'(0) = −f'(1) and f(0) + f(1) = f'(1).

    With x = u − 1/2: cosh(2tx) needs t tanh t = 1 and cos(2tx) needs t tan t = −1, σ = 1/(2t²); sin(2tx) needs cos t = 0, σ = 1/(2t²).
    """
    with mpmath.workdps(2 * DIGITS):
        positive = mpmath.findroot(lambda t: t * mpmath.tanh(t) - 1, 1.2)
        even = [
            mpmath.findroot(lambda t: t * mpmath.sin(t) + mpmath.cos(t), ((m - 0.5) * math.pi, m * math.pi), solver="anderson")
            for m in range(1, count)
        ]
        odd = [(m + mpmath.mpf(1) / 2) * mpmath.pi for m in range(count)]
        return sorted((1 / (2 * t**2) for t in (positive, *even, *odd)), reverse=True)[:count]


@pytest.fixture(scope="module")
def distance() -> Pod:
    return pod(parse_coupling("abs(u-v)"))


@pytest.mark.deep
def test_distance_has_its_known_spectrum(distance: Pod) -> None:
    wanted = distance_spectrum(40)
    assert len(distance.values) >= 15 and distance.error < 1e-3 and distance.rank is None
    assert all(holds(ball, value) for ball, value in zip(distance.values, wanted, strict=False))
    assert distance.tail >= arb(mpmath.nstr(wanted[len(distance.values)], DIGITS))
    squares = [mpmath.mpf(1) / 6 - sum(s**2 for s in wanted[:m]) for m in range(10)]  # ∫∫(u−v)² = 1/6
    assert all(distance.tail_energy(m).contains(arb(mpmath.nstr(square, 12))) for m, square in enumerate(squares))


@pytest.mark.deep
def test_least_of_two_numbers_has_its_known_spectrum() -> None:
    found = nystrom(parse_coupling("(u+v-abs(u-v))/2"))
    with mpmath.workdps(2 * DIGITS):
        wanted = [1 / ((k - mpmath.mpf(1) / 2) * mpmath.pi) ** 2 for k in range(1, len(found.values) + 1)]
    assert len(wanted) >= 10 and all(holds(ball, value) for ball, value in zip(found.values, wanted, strict=True))
    used = [k for k, s in enumerate(found.values, start=1) if s.mid() > 2 * s.rad()]
    slope, _ = np.polyfit(np.log(used), [float(mpmath.log(wanted[k - 1])) for k in used], 1)
    decay = fit_decay(found.values)
    assert abs(decay.alpha + slope) < 0.01 and decay.count == len(wanted) > len(used) > 5


factor = st.sampled_from(["u", "v", "(u-v)", "sin(2*pi*u)", "cos(3*v)", "sin(pi*(u+2*v))", "cos(u-v+1)", "v**3", "(1+u*v)"])
term = st.tuples(st.integers(-3, 3), st.lists(factor, min_size=1, max_size=3)).map(lambda t: "*".join([f"({t[0]}/2)", *t[1]]))
texts = st.lists(term, min_size=1, max_size=3).map(" + ".join)


@given(texts, st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_exact_and_quadrature_agree(text: str, centred: bool) -> None:
    coupling = parse_coupling(text)
    exact, sampled = pod(coupling, centred=centred), nystrom(coupling, centred=centred)
    assert exact.method == "exact" and sampled.error < 1e-11
    for k, bar in enumerate(sampled.values):
        assert bar.overlaps(exact.values[k] if k < len(exact.values) else arb(0).union(exact.tail))
    assert all(lower(s) <= upper(sampled.tail) for s in exact.values[len(sampled.values) :])
    x, w = np.polynomial.legendre.leggauss(24)
    x, w = (x + 1) / 2, w / 2
    values = np.broadcast_to(coupling.compiled(np)(x[:, None], x[None, :]), (24, 24))
    values = values - (values @ w)[:, None] if centred else values
    assert abs(float(exact.energy) - float(w @ values**2 @ w)) < 1e-9 * (1 + float(exact.energy))  # 24 Gauss nodes, entire functions


def test_given_decompositions_are_taken_as_they_are() -> None:
    coupling = SineCoupling(parse_formula("k**(-0.55)", ("k",), "sigma"), 5)
    found = pod(coupling, centred=True)
    assert found.method == "given" and found.rank == 5 and found.values == coupling.sigmas and found.error == 0 and found.tail == 0
    assert found.tail_energy(5) == 0 and found.tail_energy(4).overlaps(coupling.sigmas[4] ** 2)
    decay = fit_decay(found.values)
    assert abs(decay.alpha - 0.55) < 1e-12 and decay.standard_error < 1e-12 and abs(decay.constant - 1) < 1e-12
    sampled = nystrom(SineCoupling(coupling.sigma, 2), menu=((8, 16),))
    assert all(bar.overlaps(sigma) for bar, sigma in zip(sampled.values, coupling.sigmas, strict=False))
    assert np.allclose(found.functions(np.array([0.125]))[0][0], math.sqrt(2) * np.sin(np.pi * np.arange(1, 6) / 4))


def test_decay_needs_two_values_and_its_constant_covers_them() -> None:
    with pytest.raises(InputError, match="at least two"):
        fit_decay(pod(parse_coupling("u*v")).values)
    values = [arb(1), arb("0.3"), arb("0.25")]
    assert math.isnan(fit_decay(values[:2]).standard_error)
    decay = fit_decay(values)
    assert all(lower(s * arb(k) ** arb(decay.alpha)) <= upper(decay.constant) for k, s in enumerate(values, start=1))
    assert decay_constant(values, arb(1)).contains(arb(1)) and decay_constant([], arb(1)) == 0


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("text", ["exp(-(u-v)**2)*(1+v)", "(u-v)**2 + u"])
def test_functions_rebuild_the_coupling(text: str, centred: bool) -> None:
    coupling = parse_coupling(text)
    found = pod(coupling, centred=centred)
    xs = np.linspace(0, 1, 41)
    kept = min(6, len(found.values))
    left, right = (f[:, :kept] for f in found.functions(xs))
    wanted = coupling.compiled(np)(xs[:, None], xs[None, :])
    if centred:
        wanted = wanted - (coupling.compiled(np)(xs[:, None], found.nodes[None, :]) @ found.weights)[:, None]
        assert np.abs(found.weights @ found.right[:, :kept]).max() < 1e-9
    assert np.abs((left * [float(s) for s in found.values[:kept]]) @ right.T - wanted).max() < 1e-4  # σ_7 of the first is 2e-6
    for f, at_nodes in zip(found.functions(found.nodes), (found.left, found.right), strict=True):
        assert np.abs((f - at_nodes)[:, :kept]).max() < 1e-7
        assert np.abs((at_nodes[:, :kept].T * found.weights) @ at_nodes[:, :kept] - np.eye(kept)).max() < 1e-12


@pytest.mark.parametrize(("panels", "order"), [(1, 1), (1, 3), (2, 2), (4, 1), (8, 2), (2, 5)])
@pytest.mark.parametrize(
    ("text", "loss"), [("exp(u*v)", 20), ("exp(3*v)*(1+u/10)", 20), ("exp(3*u)*(1+v/10)", 20), ("abs(u-v)*(1+u)", 100)]
)
def test_interpolation_errors_are_bounded_and_not_by_far(text: str, loss: float, panels: int, order: int) -> None:
    """‖ρ − ρ_N‖ sampled with 400 midpoints a side; the bound loses by intervals and triangle inequalities, and more at kinks."""
    coupling, rule = parse_coupling(text), gauss_panels(panels, order)
    nodes, xs = rule.points, (np.arange(400) + 0.5) / 400
    lagrange = np.zeros((400, panels * order))
    for i, node in enumerate(nodes):
        panel = nodes[i // order * order : (i // order + 1) * order]
        inside = (xs * panels).astype(int) == i // order
        lagrange[inside, i] = np.prod([(xs[inside] - z) / (node - z) for z in panel if z != node], axis=0) if order > 1 else 1.0
    function = coupling.compiled(np)
    rest = function(xs[:, None], xs[None, :]) - lagrange @ function(nodes[:, None], nodes[None, :]) @ lagrange.T
    sampled, bound = float(np.sqrt(np.mean(rest**2))), float(interpolation_error(coupling, panels, order))
    assert 0.999 * sampled <= bound <= loss * sampled


def test_coarse_rules_are_honest() -> None:
    coupling = parse_coupling("exp(-(u-v)**2)")
    fine = nystrom(coupling)
    for rule in ((1, 2), (2, 2), (4, 3)):
        coarse = nystrom(coupling, menu=(rule,))
        wrong = max(abs(float(a) - float(b)) for a, b in zip(coarse.computed, fine.values, strict=False))
        assert 1e-9 < wrong <= coarse.error
        assert all(bar.overlaps(value) for bar, value in zip(coarse.values, fine.values, strict=False))


def decomposed() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    matrix, _ = sampled_matrix(parse_coupling("exp(-(u-v)**2)"), gauss_panels(4, 4), False)
    left, values, right = np.linalg.svd(matrix)
    return matrix, left, values, right.T


def test_a_changed_entry_or_value_widens_the_bar() -> None:
    matrix, left, values, right = decomposed()
    _, good = certified_values(matrix, left, values, right)
    assert good < 1e-14
    changed = matrix.copy()
    changed[3, 5] += 1e-3
    assert certified_values(changed, left, values, right)[1] >= arb("0.000999")
    shifted = values + np.where(np.arange(len(values)) == 1, 1e-6, 0)
    assert certified_values(matrix, left, shifted, right)[1] >= arb("0.000000999")


def test_vectors_that_are_not_orthonormal_widen_or_are_refused() -> None:
    matrix, left, values, right = decomposed()
    true = certified_values(matrix, left, values, right)[0]
    stretch = np.where(np.arange(len(values)) == 0, 1.01, 1.0)  # U S Vᵀ is the same: only the defect of U can tell
    computed, residual = certified_values(matrix, left * stretch, values / stretch, right)
    assert residual < 1e-14 and computed[0].overlaps(true[0]) and computed[0].rad() > 0.005
    doubled = left.copy()
    doubled[:, 1] = doubled[:, 0]
    with pytest.raises(Refusal, match="independent"):
        certified_values(matrix, doubled, values, right)
    with pytest.raises(Refusal, match="finite"):
        certified_values(matrix, left, values * math.nan, right)


def test_a_changed_rule_is_refused() -> None:
    coupling, rule = parse_coupling("exp(u*v)"), gauss_panels(4, 6)
    rule.check()
    for k in (2, 15):
        weights, nodes = list(rule.weights), list(rule.nodes)
        with working_precision(96):
            weights[k] *= 1 + arb(2) ** -60
            nodes[k] += arb(2) ** -60
        for broken in (replace(rule, weights=tuple(weights)), replace(rule, nodes=tuple(nodes))):
            with pytest.raises(Refusal, match="not Gauss's"):
                sampled_matrix(coupling, broken, False)


@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(1e-12, 1e12))
@settings(max_examples=examples(25), deadline=None)
def test_defects_of_products_are_bounded(seed: int, size: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((3, size)) * scale, rng.standard_normal((size, 4))
    goal = x @ y
    rest = [Fraction(goal[i, j]) - sum(Fraction(x[i, k]) * Fraction(y[k, j]) for k in range(size)) for i in range(3) for j in range(4)]
    square = sum((d * d for d in rest), Fraction(0))
    bound = product_defect(goal, x, y)
    with working_precision(256):
        assert bound * bound >= arb(fmpq(square.numerator, square.denominator))
    assert float(bound) <= 2 * math.sqrt(float(square)) + 1e-22 * size * scale * 100


@pytest.mark.parametrize("damage", [0.0, 1e-3, 0.3])
def test_bad_eigenvectors_widen_exact_values(monkeypatch: pytest.MonkeyPatch, damage: float) -> None:
    with working_precision(256):
        matrix = arb_mat([[2, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
        true = [arb(5).sqrt(), arb(1), arb(1)]
        turned = arb_mat([[1, damage, 0], [0, 1, 0], [damage, 0, 1]])
        monkeypatch.setattr(finite_rank, "jacobi_vectors", lambda square: turned)
        found = singular_values(matrix)
        assert found is not None and all(a.overlaps(b) for a, b in zip(found, true, strict=True))
        assert (found[0].rad() > damage / 10) if damage else (found[0].rad() < 1e-60)


def test_a_wrong_basis_is_no_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite_rank, "jacobi_vectors", lambda square: square * 0)
    assert singular_values(arb_mat([[2, 1], [1, 3]])) is None


def test_large_couplings_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="range of floats"):
        nystrom(parse_coupling("exp(600*(u+v))"))
    with pytest.raises(InputError, match="float"):
        pod(parse_coupling("(1e99*(u+v))**4"))
    with pytest.raises(InputError, match="power of two"):
        interpolation_error(parse_coupling("exp(u*v)"), 3, 2)


def test_series_are_as_long_as_they_are_asked_for() -> None:
    coupling = parse_coupling("1/(1+u+v)")
    coupling.taylor(0, 3, arb(0), arb(0))
    assert [int(c.unique_fmpz()) for c in coupling.taylor(0, 12, arb(0), arb(0))] == [(-1) ** j for j in range(13)]


def test_odd_powers_are_finite_around_zero() -> None:
    cube = FormulaCoupling(parse_formula("(u-v)**3", ("u", "v"), "rho")).at(arb(0, 1), arb(0, 1))
    assert cube.is_finite() and cube.contains(8) and cube.contains(-8) and cube.abs_upper() < 8.1
