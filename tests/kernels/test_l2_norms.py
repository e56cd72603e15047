"""Squared ℓ² norms: closed forms against sums in high precision, tails included."""

import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Powers, Taps, l1_norm
from analyzer.kernels.l2_norms import l2_square, split_memory
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.numbers.exact import working_precision
from tests.depth import examples

TERMS = 3000
FAST = ("exp(-s/5)", "cos(s)*exp(-s/3)", "(s+1)**2*exp(-s)", "exp(-s*s/50)", "exp(-s) - 2*exp(-s/4)")
SLOW = ("(s+1)**-2", "s**-1.5", "(s+2)**-1.1 + exp(-s/5) + s**-2")


def summed(kernel: DeliveredKernel, terms: int = TERMS) -> arb:
    """The first terms, one by one."""
    return sum((v * v for v in kernel.values(0, terms)), arb(0))


@given(data=st.data())
@settings(max_examples=examples(80))
def test_exponentials_taps_spikes_and_memories_against_sums(data: st.DataObject) -> None:
    number = st.fractions(-3, 3, max_denominator=8).map(lambda v: fmpq(v.numerator, v.denominator))
    ratios = data.draw(st.lists(st.integers(0, 14), min_size=0, max_size=4, unique=True))
    heads = Exponentials(tuple(arb(fmpq(k, 16)) for k in ratios), tuple(arb(data.draw(number)) for _ in ratios))
    taps = Taps(tuple(arb(data.draw(number)) for _ in range(data.draw(st.integers(0, 3)))))
    spikes = tuple((lag, data.draw(number)) for lag in sorted(data.draw(st.sets(st.integers(0, 9), max_size=2))))
    memories = tuple((data.draw(number), parse_kernel(text)) for text in data.draw(st.sets(st.sampled_from(FAST), max_size=2)))
    with working_precision(256):
        kernel = DeliveredKernel(data.draw(number), (heads, taps), spikes, memories)
        found, direct = l2_square(kernel), summed(kernel, 500)
        assert found.least <= direct + arb(2) ** -60 and direct <= found.most + arb(2) ** -60
        assert found.most - found.least <= arb(2) ** -30 * (1 + found.most)


@pytest.mark.parametrize("text", SLOW)
@pytest.mark.parametrize("both", [False, True])
def test_powers_and_slow_memories_against_sums_and_tails(text: str, both: bool) -> None:
    """Beyond the sum κ(s)² ≤ (Σ|B_k| s^{−p_k} + |ρ(s)|)², at most 16 s^{−2.2} here."""
    with working_precision(256):
        powers = Powers((fmpq(6, 5), fmpq(3)), (arb(1), arb(-2)))
        lin = (Exponentials((arb(fmpq(1, 2)),), (arb(3),)),) if both else ()
        kernel = DeliveredKernel(fmpq(1, 3), (powers, *lin), ((2, fmpq(1)),), ((fmpq(1, 2), parse_kernel(text)),))
        found, direct = l2_square(kernel), summed(kernel)
        rest = 16 * arb(fmpq(11, 5)).zeta(arb(TERMS))
        assert direct <= found.most and found.least <= direct + rest
        assert found.most - found.least <= arb(2) ** -20 * found.most


def test_a_progression_is_squared_as_a_polynomial() -> None:
    with working_precision(512):
        ratios = tuple((-arb(fmpq(k, 8))).exp() for k in range(1, 13))
        amplitudes = tuple(arb((-1) ** k * (k + 1)) for k in range(12))
        plain, poly = (DeliveredKernel(fmpq(2), (Exponentials(ratios, amplitudes, p),), ((3, fmpq(1)),)) for p in (False, True))
        assert abs(l2_square(plain).most - l2_square(poly).most) <= arb(2) ** -400
        assert abs(l2_square(poly).least - summed(poly)) <= arb(2) ** -400
        exponents = tuple(fmpq(5, 4) + fmpq(k, 3) for k in range(6))
        logs = [DeliveredKernel(fmpq(0), (Powers(exponents, amplitudes[:6], p),)) for p in (False, True)]
        assert abs(l2_square(logs[0]).most - l2_square(logs[1]).most) <= arb(2) ** -400


def test_the_norm_is_at_most_that_of_the_sum() -> None:
    with working_precision(256):
        kernel = DeliveredKernel(
            fmpq(1), (Exponentials((arb(fmpq(3, 4)),), (arb(1),)),), ((4, fmpq(1)),), ((fmpq(1), parse_kernel("(s+1)**-3")),)
        )
        assert l2_square(kernel).most <= l1_norm(kernel).most ** 2


def test_pure_terms_of_a_memory_are_told_apart() -> None:
    exponentials, powers, rest = split_memory(parse_kernel("exp(-s/5) + 2*s**-2 + (s+1)**-2"))
    assert len(exponentials) == len(powers) == 1 and rest is not None and len(rest.terms) == 1
    assert split_memory(parse_kernel("exp(-s)"))[2] is None
