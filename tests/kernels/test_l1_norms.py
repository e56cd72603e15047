"""ℓ¹ norms with infinite tails, against brute force and closed forms."""

from dataclasses import replace

import mpmath
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Norm, Powers, Taps, l1_norm, with_spikes
from analyzer.numbers.exact import lower, upper, working_precision
from tests.depth import examples


@given(st.lists(st.tuples(st.integers(1, 95), st.integers(-50, 50)), min_size=1, max_size=5, unique_by=lambda t: t[0]), st.integers(0, 9))
@settings(max_examples=examples(60), deadline=None)
def test_exponential_sums_against_brute_force(heads: list[tuple[int, int]], lag: int) -> None:
    """Ratios up to 0.95: 2000 terms leave a tail below 1e-40."""
    kernel = DeliveredKernel(
        fmpq(1, 3), (Exponentials(tuple(arb(fmpq(z, 100)) for z, _ in heads), tuple(arb(a) for _, a in heads)),), ((lag, fmpq(1)),)
    )
    with working_precision(128):
        norm = l1_norm(kernel).enclosure
        total = sum(
            abs(sum(a * mpmath.mpf(z) ** s / mpmath.mpf(100) ** s for z, a in heads) + (mpmath.mpf(1) / 3 if s == 0 else 0) - (s == lag))
            for s in range(2000)
        )
    assert lower(norm) <= float(total) * (1 + 1e-12) and upper(norm) >= float(total) * (1 - 1e-12)
    assert upper(norm) <= lower(norm) * (1 + 2**-11) + 1e-12


def test_one_head_in_closed_form() -> None:
    z = fmpq(1, 4)
    norm = l1_norm(DeliveredKernel(fmpq(0), (Exponentials((arb(z),), (arb(3),)),))).enclosure
    assert norm.overlaps(arb(4))  # 3/(1 − 1/4)
    with working_precision(128):
        power = l1_norm(DeliveredKernel(fmpq(0), (Powers((fmpq(3),), (arb(1),)),))).enclosure
        assert lower(power) <= float(mpmath.zeta(3)) <= upper(power)


@pytest.mark.parametrize("base,step", [(fmpq(101, 100), fmpq(1, 100)), (fmpq(3, 2), fmpq(1, 2)), (fmpq(5, 4), fmpq(1, 1))])
def test_slow_tail_against_exact_sums(base: fmpq, step: fmpq) -> None:
    """Positive amplitudes: the tail is Σ A_h ζ(p_h, S), exactly; with sign changes it is compared cell by cell below."""
    exponents = tuple(base + step * h for h in range(5))
    amplitudes = (arb(1), arb(2), arb(0), arb(3), arb(1))
    with working_precision(128):
        powers = Powers(exponents, amplitudes, progression=True)
        exact = sum(a * arb(p).zeta(arb(1000)) for a, p in zip(amplitudes, exponents, strict=True))
        found = powers.slow_tail(1000)
        assert found.overlaps(exact)
        assert upper(found) <= float(exact) * 1.02


@pytest.mark.parametrize("roots", [(0.2,), (0.3, 0.6), (0.1, 0.4, 0.7)])
def test_slow_tail_with_sign_changes(roots: tuple[float, ...]) -> None:
    """κ(s) = s^{−2} Π(s^{−1/2}/x_S − r): between sign changes the sum is exact by Hurwitz zeta functions."""
    start, step = 1000, fmpq(1, 2)
    with working_precision(256):
        edge = arb(start) ** -arb(step)
        zeros = [edge * arb(r) for r in roots]
        from flint import arb_poly

        coefficients = arb_poly.from_roots(zeros).coeffs()
        exponents = tuple(fmpq(2) + step * h for h in range(len(coefficients)))
        cuts = sorted(int((z**-2).floor().unique_fmpz()) for z in zeros)
        bounds = [start, *(c + 1 for c in cuts)]
        total = arb(0)
        for k, low in enumerate(bounds):
            high = bounds[k + 1] if k + 1 < len(bounds) else None
            part = sum(
                a * (arb(p).zeta(arb(low)) - (arb(p).zeta(arb(high)) if high else 0)) for a, p in zip(coefficients, exponents, strict=True)
            )
            total += abs(part)
        found = Powers(exponents, tuple(coefficients), progression=True).slow_tail(start)
    assert found.overlaps(total)
    assert upper(found) <= float(total) * 1.05


@pytest.mark.deep
def test_a_tail_that_is_left_out_would_be_noticed() -> None:
    """The norm of s^{−1.01} is ζ(1.01) ≈ 100.6, nearly all of it tail."""
    with working_precision(128):
        kernel = DeliveredKernel(
            fmpq(0), (Powers((fmpq(101, 100), fmpq(102, 100), fmpq(103, 100)), (arb(1), arb(0), arb(0)), progression=True),)
        )
        norm = l1_norm(kernel).enclosure
    exact = float(mpmath.zeta(mpmath.mpf("1.01")))
    assert lower(norm) <= exact <= upper(norm)
    assert upper(norm) / lower(norm) < 1.01


def test_taps() -> None:
    norm = l1_norm(DeliveredKernel(fmpq(-1), (Taps((arb(0), arb(2), arb(-3))),), ((2, fmpq(1)),))).enclosure
    assert norm == 1 + 2 + 4


@pytest.mark.deep
@pytest.mark.parametrize("powers", [False, True])
def test_a_crude_tail_is_no_lower_bound(powers: bool) -> None:
    """Two slow heads that nearly cancel: the triangle inequality bounds the norm from above, never from below."""
    with working_precision(256):
        if powers:
            group: Powers | Exponentials = Powers((fmpq(101, 100), fmpq(102, 100)), (arb(1) / arb("1.01").zeta(), -1 / arb("1.02").zeta()))
            truth = 0.5
        else:
            z = [(-arb(p)).exp() for p in ("1e-6", "1.1e-6")]
            group, truth = Exponentials(tuple(z), (1 - z[0], z[1] - 1)), 0.0701
        norm = l1_norm(DeliveredKernel(fmpq(0), (group,)))
    assert lower(norm.least) <= truth <= upper(norm.most)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(-50, 50)), min_size=1, max_size=4, unique_by=lambda t: t[0]), st.integers(0, 60))
@settings(max_examples=examples(40), deadline=None)
def test_a_spike_changes_the_window_only(heads: list[tuple[int, int]], lag: int) -> None:
    group = Exponentials(tuple(arb(fmpq(z, 100)) for z, _ in heads), tuple(arb(a) for _, a in heads))
    kernel = DeliveredKernel(fmpq(1, 3), (group,), ((lag, fmpq(3, 2)),))
    with working_precision(128):
        found, plain = with_spikes(l1_norm(kernel), {lag: fmpq(3, 2)}), l1_norm(replace(kernel, spikes=()))
        assert found is not None and found.enclosure.overlaps(plain.enclosure)
        size = sum((abs(v) for v in kernel.values(0, 64)), arb(0))
        assert found.most - found.least <= (plain.most + size) * arb(2) ** -11
        assert with_spikes(l1_norm(kernel), {len(found.window): fmpq(1)}) is None


def test_a_wrong_spike_is_seen() -> None:
    """Sabotage: the spike of another lag, and one of another weight, are other norms."""
    kernel = DeliveredKernel(fmpq(0), (Exponentials((arb(fmpq(1, 2)),), (arb(1),)),), ((3, fmpq(1)),))
    plain = l1_norm(replace(kernel, spikes=())).enclosure
    for spikes in ({4: fmpq(1)}, {3: fmpq(1, 2)}, {3: fmpq(-1)}):
        found = with_spikes(l1_norm(kernel), spikes)
        assert found is not None and not found.enclosure.overlaps(plain)


def test_what_lies_beyond_the_window_stays() -> None:
    norm = Norm(arb(5), arb(6), (arb(2), arb(-1)))  # 2 to 3 beyond
    found = with_spikes(norm, {1: fmpq(4)})
    assert found is not None and found.window[1] == 3 and found.enclosure.overlaps(arb(7)) and found.enclosure.overlaps(arb(8))
    assert not found.least > 7 and not found.most < 8


def test_masses_do_not_depend_on_what_was_asked_before() -> None:
    powers = Powers((fmpq(3, 2), fmpq(5, 2)), (arb(1), arb(-2)))
    with working_precision(64):
        before = powers.tail(10)
    with working_precision(512):
        after, wanted = powers.tail(10), arb(fmpq(3, 2)).zeta(arb(10)) + 2 * arb(fmpq(5, 2)).zeta(arb(10))
    assert before.mid() == after.mid() and after.overlaps(wanted) and after.rad() < arb(2) ** -150
