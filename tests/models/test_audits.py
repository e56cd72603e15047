"""Both sides of the audit of a model's position part: against the audit of given slopes, closed forms, and weights drawn at random."""

from pathlib import Path

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.numbers.exact import rational
from constructions.files.models import slopes
from constructions.files.models.parts import PositionPart
from tests.depth import examples
from verify.limits import models
from verify.limits.pairs import audit
from verify.report.words import runs

UNIT = fmpq(1, 2**24)
FLOAT = 2.0**-24


def fastest_first(decays: list[float]) -> list[fmpq]:
    return sorted({rational(p) for p in decays}, reverse=True)


@pytest.mark.parametrize("decays", [[8.0, 4.0, 2.0, 1.0], [0.5, 0.25, 0.125], [3.0]], ids=str)
def test_few_heads_are_audited_as_given_slopes_are(decays: list[float]) -> None:
    for lag in (1, 2, 3):
        theirs = audit([("lin", rational(p)) for p in decays], lag, UNIT)
        lower, upper = models.audit_decays(fastest_first(decays), lag, UNIT, False)
        assert theirs.lower * (1 - 1e-12) <= lower <= upper <= theirs.upper * (1 + 1e-12)


def lin_error(decays: np.ndarray, weights: np.ndarray, residual: float, lag: int, first: int) -> float:
    """‖κ − 1_T‖₁ + u(|c| + Σ|a|) of kernels that begin at the place `first`, added up over 4000 places: not more than the true one."""
    s, z = np.arange(4000), np.exp(-decays)
    kernels = np.where(s >= first, (1 - z[:, None]) * np.power(z[:, None], np.maximum(s - first, 0)), 0)
    kappa = weights @ kernels
    kappa[0] += residual
    kappa[lag] -= 1
    return float(np.abs(kappa).sum() + FLOAT * (abs(residual) + np.abs(weights).sum()))


@pytest.mark.parametrize("shifted", [False, True])
@settings(max_examples=examples(120, 6))
@given(seed=st.integers(0, 2**32))
def test_no_weights_do_better_than_the_lower_side(shifted: bool, seed: int) -> None:
    """Least squares, a good start, and random weights near it: none is below the certified lower side; the current token is free."""
    rng = np.random.default_rng(seed)
    decays = np.exp(rng.uniform(-2, 2, size=rng.integers(1, 5)))
    lag = int(rng.integers(1, 4))
    lower, upper = models.audit_decays(fastest_first(list(decays)), lag, UNIT, shifted)
    assert 0 < lower <= upper <= 1
    s, z = np.arange(400), np.exp(-decays)
    columns = np.where(s >= shifted, (1 - z[:, None]) * np.power(z[:, None], np.maximum(s - shifted, 0)), 0)
    table = np.vstack([columns, (s == 0).astype(float)])
    best = np.linalg.lstsq(table.T, (s == lag).astype(float), rcond=None)[0]
    for _ in range(8):
        guess = best * rng.uniform(0, 1.5) + rng.normal(size=len(best)) * rng.choice([0, 1e-3, 1])
        error = lin_error(decays, guess[:-1], float(guess[-1]), lag, int(shifted))
        assert error >= lower * (1 - 1e-9)
        if shifted:  # a share g of every head's mass at the current token: the weights beyond shrink
            share = rng.uniform(0, 0.9, size=len(decays))
            spread = lin_error(decays, guess[:-1] * (1 - share), float(guess[-1] + guess[:-1] @ share), lag, 1)
            price = FLOAT * (np.abs(guess).sum() - np.abs(guess[:-1] * (1 - share)).sum() - abs(guess[-1] + guess[:-1] @ share))
            assert spread + price >= lower * (1 - 1e-9)


def test_the_upper_side_is_reached() -> None:
    """The weights of the programme, run in floats, have the certified error."""
    decays = [8.0, 4.0, 2.0, 1.0]
    bank, _ = models._shifted_bank(fastest_first(decays), 1, UNIT)
    found = {float(p.p) / float(p.q): float(a.p) / float(a.q) for (_, p), a in zip(bank.heads, bank.weights, strict=True)}
    error = lin_error(np.array(list(found)), np.array(list(found.values())), 0.0, 2, 1)
    _, upper = models.audit_decays(fastest_first(decays), 2, UNIT, True)
    assert error == pytest.approx(upper, rel=1e-6)


def test_many_channels_have_both_sides() -> None:
    """More decays than one programme takes: more channels never do worse, and the pair stays close enough to decide."""
    decays = list(np.exp(np.linspace(-4, 3, 60)))
    for lag in (1, 2, 3):
        lower, upper = models.audit_decays(fastest_first(decays), lag, UNIT, True)
        some, _ = models.audit_decays(fastest_first(decays[::6]), lag, UNIT, True)
        assert lower <= upper < 0.5 and lower <= some * (1 + 1e-9)


def test_slow_heads_count_below() -> None:
    """MiniMax' last layer has slopes of 10⁻⁶; slopes under 2^−40 are not used above, and the lower side is that of all of them."""
    decays = fastest_first([3e-6, 1e-7, 5e-8, 1e-13])
    for lag in (1, 2):
        lower, upper = models.audit_decays(decays, lag, UNIT, False)
        assert lower > 0.99 and upper == 1


def bias_error(biases: np.ndarray, weights: np.ndarray, residual: float, lag: int, window: int, part: PositionPart) -> float:
    """The error over the places of the window, one by one."""
    buckets = models.buckets_of(part)
    ahead = [buckets.count + buckets.of(s) for s in range(1, window)] if part.two_sided else []
    places = [*(buckets.of(s) for s in range(window)), *ahead]
    exponents = np.exp(biases[places])
    kappa = (exponents / exponents.sum(axis=0)) @ weights
    kappa[0] += residual
    kappa[lag] -= 1
    return float(np.abs(kappa).sum() + FLOAT * (abs(residual) + np.abs(weights).sum()))


@pytest.mark.parametrize("two_sided", [False, True])
@settings(max_examples=examples(120, 6))
@given(seed=st.integers(0, 2**32))
def test_biases(two_sided: bool, seed: int) -> None:
    """Random weights of learnt biases never beat the lower side; one head alone has its closed form."""
    rng, window = np.random.default_rng(seed), 24
    biases = rng.normal(size=(16, int(rng.integers(1, 4)))) * rng.choice([1, 4])
    part = PositionPart("buckets", (0,), "", biases=biases, distance=32, two_sided=two_sided)
    cells = list(models.cells_of(part, 3, UNIT, window, lambda _: None))
    for cell in cells:
        assert 0 < cell.lower <= cell.upper <= 1
        for _ in range(6):
            weights, residual = rng.normal(size=biases.shape[1]) * 10 ** rng.uniform(-2, 2), float(rng.normal())
            assert bias_error(biases, weights, residual, cell.lag, window, part) >= cell.lower * (1 - 1e-9)
    single = PositionPart("buckets", (0,), "", biases=biases[:, :1], distance=32, two_sided=two_sided)
    resolved = [cell.lag for cell in models.cells_of(single, 3, UNIT, window, lambda _: None) if cell.verdict == "resolved"]
    assert resolved == list(models.alone(single, 3, UNIT, window))


@settings(max_examples=examples(120, 6))
@given(decay=st.floats(0.05, 12), shifted=st.booleans())
def test_one_head_alone(decay: float, shifted: bool) -> None:
    """The closed form decides as the linear programme does, and no second lag is resolved by one head."""
    part = PositionPart("shifted" if shifted else "lin", (0,), "", decays=(decay,))
    cells = list(models.cells_of(part, 2, UNIT, 8, lambda _: None))
    assert [cell.lag for cell in cells if cell.verdict == "resolved"] == list(models.alone(part, 2, UNIT, 8))
    z = np.exp(-decay)
    closed = (z + FLOAT) / (1 - z) if shifted else z / (1 - z) + FLOAT * (2 - z) / ((1 - z) * z)
    assert cells[0].upper == pytest.approx(min(1.0, closed), rel=1e-6)


def test_a_changed_dual_sequence_shows_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: the solver's sequence is only a hint. Turned over at one place it shows less, never more."""
    decays = fastest_first([4.0, 2.0, 1.0])
    honest, _ = models.audit_decays(decays, 2, UNIT, True)
    solved = models._shifted_bank

    def spoilt(*args: object) -> object:
        bank, dual = solved(*args)  # type: ignore[arg-type]
        return bank, models.Dual(dual.edges, (-dual.values[0], *dual.values[1:]))

    monkeypatch.setattr(models, "_shifted_bank", spoilt)
    assert models.audit_decays(decays, 2, UNIT, True)[0] < honest


@pytest.mark.parametrize("shifted", [False, True])
def test_spoilt_weights_are_paid_for(shifted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: weights that the solver got wrong raise the upper side."""
    decays, name = fastest_first([4.0, 2.0, 1.0]), "_shifted_bank" if shifted else "fixed_decays"
    _, honest = models.audit_decays(decays, 2, UNIT, shifted)
    solved = getattr(models, name)

    def spoilt(*args: object) -> object:
        bank, dual = solved(*args)
        return models.PricedBank(bank.heads, (bank.weights[0] * fmpq(11, 10), *bank.weights[1:]), bank.residual), dual

    monkeypatch.setattr(models, name, spoilt)
    assert models.audit_decays(decays, 2, UNIT, shifted)[1] > honest


SIZES = {
    "`bloom`, 8 heads": slopes.alibi(8),
    "`bloom`, 16 heads": slopes.alibi(16),
    "`bloom`, 32 heads": slopes.alibi(32),
    "`bloom`, 112 heads": slopes.alibi(112),
    "`mpt`, 32 heads": slopes.mpt(32, 8),
    "`falcon`, 32 heads of dimension 64": slopes.falcon(32, 64),
    "`retnet`, 8 heads": slopes.retnet(8, False),
    "`minimax`, 64 heads, layer 0 of 80": slopes.minimax(64, 0, 80),
    "`minimax`, 64 heads, layer 40 of 80": slopes.minimax(64, 40, 80),
}


@pytest.mark.deep(keep="`bloom`, 8 heads")
@pytest.mark.parametrize("name", SIZES)
def test_the_table_of_the_manual(name: str) -> None:
    """Every lag is decided, and the manual says how."""
    cells = list(models.cells_of(PositionPart("lin", (0,), "", decays=SIZES[name]), 24, UNIT, 8, lambda _: None))
    said = runs([cell.lag for cell in cells if cell.verdict == "resolved"]) or "none"
    assert all(cell.verdict != "undecided" for cell in cells)
    assert f"| {name} | {said} |" in (Path(__file__).parent.parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
