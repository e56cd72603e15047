"""Head banks: zeros where the construction promises them, optimal nodes, exact sums."""

import math

import pytest
from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.lemmas.extraction import tuned
from analyzer.numbers.exact import upper, working_precision
from analyzer.numbers.zeta import zeta
from constructions.banks.head_banks import HeadBank, exact_minimal, interpolation_bank, minimal_lin, weight_sum


def kernel_values(bank: HeadBank, index: int, count: int) -> list[arb]:
    """κ(s) from the definition: c·1{s=0} + Σ a_h k_h(s)."""
    values = []
    for s in range(count):
        total = arb(bank.residuals[index]) if s == 0 else arb(0)
        for p, a in zip(bank.decays, bank.weights[index], strict=True):
            if bank.rpe == "lin":
                total += arb(a) * (1 - (-arb(p)).exp()) * (-arb(p) * s).exp()
            elif s:
                total += arb(a) * arb(s) ** -arb(p) / zeta(p, 2000)
        values.append(total)
    return values


@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("lags,heads", [((1,), 1), ((5,), 5), ((3, 7), 7), ((2, 4), 6)])
def test_minimal_banks_vanish_up_to_their_size(rpe: str, lags: tuple[int, ...], heads: int) -> None:
    bank = exact_minimal(rpe, lags, heads, lambda errors: all(upper(e) <= 1e-3 for e in errors), 1e-3)
    assert bank.heads == heads
    with working_precision(2000):
        for index, lag in enumerate(lags):
            for s, value in enumerate(kernel_values(bank, index, heads + 1)):
                assert abs(value - (s == lag)) < arb(2) ** -60


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_interpolation_banks_interpolate(rpe: str) -> None:
    """The certified error of T = 4, H = 256, α = γ = 0.01, lin is 0.0480; a float computation of κ confirms it here at H = 48."""
    bank = interpolation_bank(rpe, (3,), 48, tuned(rpe, 3))
    with working_precision(1000):
        values = [float(v) for v in kernel_values(bank, 0, 12)]
    assert abs(values[3] - 1) < 0.1
    assert all(abs(v) < 0.1 for s, v in enumerate(values) if s != 3)
    steps = {b - a for a, b in zip(bank.decays, bank.decays[1:], strict=False)}
    assert steps == {tuned(rpe, 3).alpha}


@pytest.mark.parametrize("lag", [1, 3, 8])
def test_the_nodes_are_the_optimal_ones(lag: int) -> None:
    """|c| + Σ|a_h|(1−z_h) = 2^{2T−1}/b^T exactly at z_h = b(1−cos(πh/T))/2, and more for any moved node."""
    top = fmpq(1, 8)
    bank = minimal_lin((lag,), lag, top, 200, 1e-3)
    with working_precision(400):
        raw = sum(
            (abs(arb(a)) * (1 - (-arb(p)).exp()) for a, p in zip(bank.weights[0], bank.decays, strict=True)), abs(arb(bank.residuals[0]))
        )
        assert float(raw) == pytest.approx(2 ** (2 * lag - 1) * 8**lag, rel=1e-9)
        assert float(weight_sum(bank)) >= float(raw)


def test_too_few_heads() -> None:
    with pytest.raises(Refusal):
        interpolation_bank("lin", (4,), 2, tuned("lin", 4))


def test_log_bank_growth() -> None:
    """The least B falls with the error's logarithm: exponents stay finite and grow when the error shrinks."""
    exponents = [exact_minimal("log", (4,), 4, lambda errors, e=e: upper(errors[0]) <= e, e).decays[0] for e in (1e-1, 1e-3, 1e-6)]
    assert exponents == sorted(exponents) and math.isfinite(float(arb(exponents[-1])))
