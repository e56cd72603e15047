"""Section 6 of [JL]: complexities, floors for causal models, spectra under relabelling, filters."""

import math

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError, Refusal
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.limits import jl_6
from analyzer.limits.jl_6 import (
    causal_floor,
    centred_logits,
    complexity_of_values,
    coupling,
    filtered,
    look_ahead,
    mixing,
    relabelled,
    rnn_complexity,
    singular_values,
    swapped_ends,
    truncated_exponential,
)
from tests.depth import examples
from verify.report.limits import show_rnn_limits

EXPONENTIAL = parse_kernel("exp(-s)")
SWAP = swapped_ends(32, 10)


@pytest.mark.parametrize(
    ("text", "c1", "c2"),
    [
        ("exp(-s)", 2, 1.0),
        ("3*exp(-s/4)", 5, 3.0),
        ("2*exp(-s/3) - exp(-s)", 4, max(math.exp(t / 4) * (2 * math.exp(-t / 3) - math.exp(-t)) for t in range(50))),
        ("s*exp(-s/5)", 6, max(t * math.exp(t / 6 - t / 5) for t in range(200))),
        ("s*exp(-s/50)", 51, max(t * math.exp(t / 51 - t / 50) for t in range(20000))),
        ("exp(-s/2)*sin(s)", 3, max(abs(math.sin(t)) * math.exp(-t / 6) for t in range(50))),
        ("exp(-s**2)", 1, 1.0),
    ],
)
def test_complexities_are_the_closed_forms(text: str, c1: int, c2: float) -> None:
    found = rnn_complexity(parse_kernel(text))
    assert found.c1 == c1 and found.c2_lower <= found.c2_upper
    assert found.c2_upper == pytest.approx(c2, rel=1e-9)
    assert found.c2_lower == pytest.approx(c2, rel=1e-9)
    assert found.lower <= c1 * c2 * (1 + 1e-12) and c1 * c2 * (1 - 1e-12) <= found.upper
    assert found.rate(64, 2) == pytest.approx(2 * c1 * c2 / 64, rel=1e-9)


@pytest.mark.parametrize(("degree", "rate"), [(1, 64), (3, 50)])
def test_weighted_kernels_may_peak_late(degree: int, rate: int) -> None:
    """Peaks at 4160 and 7650: beyond what is looked at value by value."""
    found = rnn_complexity(parse_kernel(f"s**{degree}*exp(-s/{rate})"))
    true = max(degree * math.log(t) + t / (rate + 1) - t / rate for t in range(1, 20000))
    assert found.c2_lower <= math.exp(true) <= found.c2_upper * (1 + 1e-12) < math.inf


def test_power_laws_are_not_in_the_rnn_space() -> None:
    found = rnn_complexity(parse_kernel("exp(-s) + (s+1)**-2"))
    assert not found.in_rnn_space and found.upper == found.rate(10**6) == math.inf


def test_terms_that_may_cancel_are_refused() -> None:
    with pytest.raises(Refusal, match="may cancel"):
        rnn_complexity(parse_kernel("(s+1)**2*exp(-s) - s**2*exp(-s)"))
    with pytest.raises(InputError, match="at least one unit"):
        rnn_complexity(EXPONENTIAL).rate(0)


def test_the_counterexample_to_the_printed_constant() -> None:
    infimum, kept = truncated_exponential(fmpq(1, 2), 20)
    assert infimum.c1 == 1 and infimum.c2_lower <= math.exp(10) <= infimum.c2_upper
    assert kept.c1 == 3 and kept.c2_lower == kept.c2_upper == 1
    assert infimum.lower > 7000 * kept.upper / 3 > 7000 * rnn_complexity(parse_kernel("exp(-s/2)")).upper / 4
    assert complexity_of_values([fmpq(1), fmpq(-2)]).c2_upper == pytest.approx(2 * math.e)
    with pytest.raises(InputError, match="a finite kernel needs a value"):
        complexity_of_values([])


def test_the_floor_of_the_reordered_exponential() -> None:
    floor = causal_floor(EXPONENTIAL.values(0, 32), SWAP)
    weights = np.exp(-np.arange(32.0))
    matrix = np.zeros((32, 32))
    for t in range(32):
        for s in range(t + 1):
            matrix[t, SWAP[t - s]] = weights[s]
    unseen = np.triu(matrix, 1)
    assert floor.breaking == tuple(range(10))
    assert floor.supremum == pytest.approx(unseen.sum(axis=1).max() / 2, rel=1e-12)
    assert floor.mean_square == pytest.approx((unseen**2).sum() / 12 / 32, rel=1e-12)
    assert 0.0301 < floor.mean_square < 3.57e-2, "[JL] print 3.57e-2 for a trained RNN: the floor explains its order"
    assert floor.mean_square < floor.linear < floor.unbiased


def test_the_floors_of_linear_models_are_least_squares() -> None:
    rng = np.random.default_rng(0)
    length, order = 6, tuple(int(v) for v in rng.permutation(6))
    values = [fmpq(int(v), 7) for v in rng.integers(1, 9, length)]
    floor = causal_floor(values, order)
    w = np.array([[float(v) for v in row] for row in coupling(values, order)])
    design = np.zeros((length, length, length))  # (t, lag, token)
    for t in range(length):
        for s in range(t + 1):
            design[t, s, t - s] = 1
    root = np.linalg.cholesky(np.eye(length) / 12 + 0.25)
    stacked, wanted = np.concatenate([(d @ root).T for d in design]), np.concatenate([root.T @ row for row in w])
    residual = wanted - stacked @ np.linalg.lstsq(stacked, wanted)[0]
    assert floor.unbiased == pytest.approx(residual @ residual / length, rel=1e-9)
    free, target = np.concatenate([d.T for d in design]), np.concatenate(list(w))
    rest = target - free @ np.linalg.lstsq(free, target)[0]
    assert floor.linear == pytest.approx(rest @ rest / 12 / length, rel=1e-9)


@settings(max_examples=examples(25))
@given(st.permutations(range(8)), st.integers(0, 2**32 - 1))
def test_no_causal_table_beats_the_floor(order: list[int], seed: int) -> None:
    """The best causal predictor of a linear target knows the seen tokens and the mean of the others: it attains (b)."""
    rng = np.random.default_rng(seed)
    values = [fmpq(int(v), 16) for v in rng.integers(-16, 17, 8)]
    floor = causal_floor(values, order)
    w = np.array([[float(v) for v in row] for row in coupling(values, order)])
    attained = sum((w[t, t + 1 :] ** 2).sum() / 12 for t in range(8)) / 8
    assert floor.mean_square == pytest.approx(attained, rel=1e-12)
    assert floor.mean_square <= floor.linear * (1 + 1e-12) and floor.linear <= floor.unbiased * (1 + 1e-12)
    causal = all(p <= t for t, p in enumerate(order))
    assert (floor.breaking == ()) == causal and (not causal or floor.supremum == 0)


def test_orders_must_be_permutations() -> None:
    with pytest.raises(InputError, match="not a permutation"):
        causal_floor([fmpq(1)] * 3, (0, 1, 1))
    with pytest.raises(InputError, match="give 0 to 4"):
        swapped_ends(8, 5)
    assert swapped_ends(5, 2) == (3, 4, 2, 0, 1)


def test_relabelling_keeps_the_spectrum_and_other_changes_do_not() -> None:
    matrix = coupling(EXPONENTIAL.values(0, 16))
    rng = np.random.default_rng(3)
    moved = relabelled(matrix, rng.permutation(16).tolist(), rng.permutation(16).tolist())
    before, after = singular_values(matrix), singular_values(moved)
    assert all(a.least <= b.most and b.least <= a.most and a.most - a.least < 1e-12 for a, b in zip(before, after, strict=True))
    moved[2][3] += arb(1e-6)
    changed = singular_values(moved)
    assert any(a.most < b.least or b.most < a.least for a, b in zip(before, changed, strict=True))
    with pytest.raises(InputError, match="permutations of the positions"):
        relabelled(matrix, range(15), range(16))


def test_enclosures_contain_exact_singular_values() -> None:
    """Hadamard's matrix has singular values 2, and diag(3, 1/3) padded with zeros has 3, 1/3."""
    hadamard = [[fmpq((-1) ** bin(i & j).count("1")) for j in range(4)] for i in range(4)]
    assert all(v.least <= 2 <= v.most and v.most - v.least < 1e-13 for v in singular_values(hadamard))
    wide = [[fmpq(3), fmpq(0), fmpq(0)], [fmpq(0), fmpq(1, 3), fmpq(0)]]
    first, second = singular_values(wide)
    assert first.least <= 3 <= first.most and second.least <= 1 / 3 <= second.most
    blurred = singular_values([[arb(0, 1e-60), arb(1)], [arb(0), arb(0, 1e-50)]])
    assert blurred[0].least <= 1 <= blurred[0].most < 1 + 1e-12 and blurred[1].most < 1e-49, "entries that are balls around 0"
    with pytest.raises(InputError, match="not a finite number"):
        singular_values([[arb("nan")]])
    with pytest.raises(InputError, match="equal rows"):
        singular_values([[fmpq(1)], [fmpq(1), fmpq(2)]])


@settings(max_examples=examples(10))
@given(st.lists(st.integers(1, 20), min_size=2, max_size=6))
def test_positive_filters_raise_the_rank_to_their_length(weights: list[int]) -> None:
    theta = [fmpq(w, sum(weights)) for w in weights]
    result = mixing(EXPONENTIAL, theta, block=9)
    assert result.holds and result.ranks == (1, len(theta))
    assert all(v.most < 1e-12 for v in result.before[1:])


def test_the_filtered_complexity_is_the_closed_form() -> None:
    kernel, theta = parse_kernel("exp(-s/3)"), [fmpq(1, 2), fmpq(1, 4), fmpq(1, 4)]
    found = mixing(kernel, theta, block=6)
    values = [math.exp(-t / 3) for t in range(200)]
    mixed = np.convolve(values, [0.5, 0.25, 0.25])[:200]
    assert found.c2 == pytest.approx(max(abs(v) * math.exp(t / 4) for t, v in enumerate(mixed)), rel=1e-9)
    assert found.allowed == pytest.approx(math.exp(2 / 4), rel=1e-9)
    with pytest.raises(InputError, match="at most 1"):
        filtered([fmpq(1)], [fmpq(2)])
    with pytest.raises(Refusal, match="positive"):
        mixing(kernel, [fmpq(1, 2), fmpq(-1, 2)])
    with pytest.raises(Refusal, match="power law"):
        mixing(parse_kernel("(s+1)**-2"), theta)


@settings(max_examples=examples(20))
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=5).filter(any), st.integers(1, 12), st.integers(1, 6))
def test_a_filter_that_looks_ahead(weights: list[int], last: int, rate: int) -> None:
    """Its kept terms never grow, its future terms are the floor, both by running the filter on unit impulses."""
    theta = [fmpq(w, sum(map(abs, weights))) for w in weights]
    values = [(-arb(s) / rate).exp() for s in range(last + 1)]
    found = look_ahead(values, theta)
    c1 = 1 + fmpq(rate)
    assert complexity_of_values(found.kept, c1).c2_lower <= complexity_of_values(values, c1).c2_upper
    now, coefficients = 20, []
    for impulse in range(40):
        ahead = [sum(float(arb(w)) for i, w in enumerate(theta) if t + i == impulse) for t in range(now + 1)]
        coefficients.append(sum(float(v) * ahead[now - s] for s, v in enumerate(values)))
    assert [float(v) for v in found.kept] == pytest.approx([coefficients[now - j] for j in range(last + 1)], abs=1e-12)
    assert found.floor == pytest.approx(sum(abs(v) for v in coefficients[now + 1 :]) / 2, abs=1e-12)
    assert (found.floor > 0) >= (len(theta) > 1 and theta[-1] != 0)


def test_constants_of_envelopes() -> None:
    """C_RNN ≤ γ fails for e^{−2s} (γ = 1/2, C_RNN = 3/2); a cut-off kernel has C_2 = e^{10} with the infimum, 1 with C_1 = 1 + γ."""
    steep = rnn_complexity(parse_kernel("exp(-2*s)"))
    assert steep.c1 == fmpq(3, 2) and steep.lower <= 1.5 <= steep.upper < 1.5 + 1e-9
    infimum, kept = truncated_exponential(fmpq(1, 2), 20)
    assert infimum.c1 == 1 and infimum.c2_lower <= math.exp(10) <= infimum.c2_upper * (1 + 1e-12)
    assert kept.c1 == 3 and kept.c2_upper == pytest.approx(1)
    grown = complexity_of_values(filtered([(-arb(s) / 2).exp() for s in range(21)], [fmpq(0), fmpq(0), fmpq(1)]), fmpq(3))
    assert 1.9 < grown.c2_lower <= math.exp(2 / 3) * (1 + 1e-12), "a delay attains the factor of causal filters"
    with pytest.raises(InputError, match="at most 1"):
        look_ahead([fmpq(1)], [fmpq(2)])


def test_softmax_does_not_see_functions_of_t() -> None:
    logits = centred_logits(EXPONENTIAL.values(0, 9))
    assert all(abs(v - w) < 1e-12 for v, w in zip(logits[0], logits[3], strict=True))


def test_shown_floors_are_true(capsys: pytest.CaptureFixture[str]) -> None:
    """1.9999999 is no floor of 2: digits are rounded down."""
    floor = {"breaking": [], "supremum": 1.9999999, "mean_square": 0.0, "linear": 0.12345678, "unbiased": 1e-9}
    result = {"kernel": "exp(-s)", "length": 4, "swapped": 1, "floor": floor, "constructed": {"refused": "no"}}
    show_rnn_limits({**result, "complexity": {"c1": None, "c2": None, "c_rnn": None}})
    shown = capsys.readouterr().out
    assert "1.99999 " in shown and "0.123456 " in shown


def test_the_page_states_and_proves() -> None:
    page = jl_6.__doc__ or ""
    assert all(word in page for word in ("Prop 6.1", "Prop 6.2", "Prop 6.3", "Proof", "Repaired"))
