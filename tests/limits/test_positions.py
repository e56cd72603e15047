"""Positions: T5's buckets against an independent reading, laws against random heads, audits against brute force, and tampering."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import zeta

import lemmaformer as lf
from analyzer.limits.bucket_law import Buckets, own_class
from analyzer.limits.budgeted_error import Dual
from analyzer.limits.monotone_law import PowerHead, powers_of
from analyzer.numbers.exact import nearest, upper, working_precision
from tests.depth import examples
from verify.limits import positions
from verify.limits.pairs import audit, lag_limit
from verify.limits.positions import Audits, LagCell, PositionsGiven, float_buckets, float_differs
from verify.limits.powers import PowerBank, audit_powers, power_error, power_lower, power_upper

UNIT = fmpq(1, 2**24)
COARSE = fmpq(1, 2**8)
SIZES = st.tuples(st.integers(2, 48), st.integers(1, 400)).map(lambda pair: (pair[0], pair[0] // 2 + pair[1]))


def plain_bucket(s: int, count: int, distance: int) -> int:
    """The published formula in doubles, with a nudge upwards where the logarithms are equal."""
    exact = count // 2
    if s < exact:
        return s
    return min(count - 1, exact + int(math.log(s / exact) / math.log(distance / exact) * (count - exact) + 1e-9))


def test_the_published_buckets() -> None:
    starts = [next(s for s in range(600) if Buckets().of(s) == k) for k in range(32)]
    assert starts == [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    assert all(Buckets().partner(s, 512) is None for s in range(1, 16)) and all(Buckets().partner(s, 512) for s in range(16, 512))


@given(SIZES, st.integers(0, 3000))
@settings(max_examples=examples(800), deadline=None)
def test_buckets_are_those_of_the_formula(sizes: tuple[int, int], s: int) -> None:
    assert Buckets(*sizes).of(s) == plain_bucket(s, *sizes)


@given(SIZES, st.integers(2, 300))
@settings(max_examples=examples(80), deadline=None)
def test_partners_are_all_that_share(sizes: tuple[int, int], window: int) -> None:
    """A bucket holds neighbours, so that looking at two of them is enough."""
    buckets = Buckets(*sizes)
    places = [buckets.of(s) for s in range(window)]
    for lag in range(1, window):
        shares = any(places[s] == places[lag] for s in range(1, window) if s != lag)
        assert (buckets.partner(lag, window) is not None) == shares


def test_float_logarithms_are_compared() -> None:
    assert float_differs(Buckets(), 512) == [] and float_buckets(Buckets(), range(512)) == [plain_bucket(s, 32, 128) for s in range(512)]
    assert float_differs(Buckets(32, 300), 512, np.float16), "a coarser logarithm is seen"


def best_with_buckets(bucket: Callable[[int], int], lag: int, window: int) -> float:
    """The least ‖κ − 1_T‖₁ over all κ that are constant on buckets from 1 on, by linear programming: what any heads could reach."""
    places = range(1, window)
    names = sorted({bucket(s) for s in places})
    columns = np.array([[float(bucket(s) == name) for name in names] for s in places])
    goal = np.array([float(s == lag) for s in places])
    table = np.block([[columns, -np.eye(window - 1)], [-columns, -np.eye(window - 1)]])
    cost = np.concatenate([np.zeros(len(names)), np.ones(window - 1)])
    bounds = [(None, None)] * len(names) + [(0, None)] * (window - 1)
    return float(linprog(cost, A_ub=table, b_ub=np.concatenate([goal, -goal]), bounds=bounds, method="highs").fun)


def contradictions(cells: Sequence[LagCell], bucket: Callable[[int], int], window: int) -> list[int]:
    """Lags whose sides are not around the brute force; prices are within u(1 + tiny)."""
    found = []
    for cell in cells:
        least = best_with_buckets(bucket, cell.lag, window) if cell.lag < window else 1.0
        if not cell.lower - 2.0**-20 <= least <= cell.upper + 1e-9:
            found.append(cell.lag)
    return found


@pytest.mark.parametrize(("count", "distance", "window"), [(8, 16, 30), (7, 20, 12), (12, 8, 20), (2, 3, 5)])
def test_t5_agrees_with_brute_force_and_wrong_buckets_are_caught(count: int, distance: int, window: int) -> None:
    cells = Audits(PositionsGiven(window + 1, 24, buckets=Buckets(count, distance), window=window), ["t5"]).rows()[0].cells
    assert contradictions(cells, lambda s: plain_bucket(s, count, distance), window) == []
    assert contradictions(cells, lambda s: plain_bucket(s, count + 2, distance + 40), window), "other buckets do not pass"


@given(st.data())
@settings(max_examples=examples(120), deadline=None)
def test_no_heads_with_biases_beat_the_bucket_law(data: st.DataObject) -> None:
    buckets, window = Buckets(8, 16), 24
    heads = data.draw(st.integers(1, 5))
    biases = np.array([[data.draw(st.floats(-30, 30)) for _ in range(8)] for _ in range(heads)])
    weights = np.array([data.draw(st.floats(-4, 4)) for _ in range(heads)])
    raw = np.exp(biases[:, [buckets.of(s) for s in range(window)]])
    kernel = weights @ (raw / raw.sum(axis=1, keepdims=True))
    cells = Audits(PositionsGiven(window, 24, buckets=buckets, window=window), ["t5"]).rows()[0].cells
    for cell in cells[: window - 1]:
        error = abs(1 - kernel[cell.lag]) + sum(abs(kernel[s]) for s in range(1, window) if s != cell.lag)
        assert error + 2.0**-24 * abs(weights).sum() >= cell.lower * (1 - 1e-12)


def test_one_bias_serves_a_lag_of_its_own() -> None:
    least, most = own_class(512, UNIT)
    kernel = np.exp(np.where(np.arange(512) == 7, 0.0, -64.0))
    kernel /= kernel.sum()
    error = math.fsum([1 - kernel[7], *np.delete(kernel, 7)])
    assert least == arb(UNIT) and 0 <= error + 2.0**-24 <= upper(most) < 2.0**-24 * (1 + 1e-15)
    assert upper(own_class(512, fmpq(1, 2**53))[1]) < 2.0**-53 * (1 + 1e-8)


def floats(heads: Sequence[PowerHead]) -> list[tuple[float, float]]:
    return [(nearest(head.exponent), nearest(head.offset)) for head in heads]


def truncated(heads: Sequence[PowerHead], count: int) -> np.ndarray:
    """Normalised kernels on 0 ≤ s < count."""
    places = np.arange(count)
    return np.array([(places + offset) ** -p / zeta(p, offset) for p, offset in floats(heads)])


def brute_force(heads: Sequence[PowerHead], lag: int, count: int) -> float:
    """The programme on a window; what lies beyond it is left out, so that it is a little below."""
    columns = np.vstack([np.eye(1, count), truncated(heads, count)])
    goal = np.eye(1, count, lag)[0]
    table = np.block([[columns.T, -columns.T, -np.eye(count)], [-columns.T, columns.T, -np.eye(count)]])
    cost = np.concatenate([np.full(2 * len(columns), 2.0**-24), np.ones(count)])
    return float(linprog(cost, A_ub=table, b_ub=np.concatenate([goal, -goal]), bounds=(0, None), method="highs").fun)


@pytest.mark.parametrize("text", ["4:1,8:1", "20:0.5,10:1,6:2,4:1", "5"])
@pytest.mark.parametrize("lag", [1, 2])
def test_kerple_agrees_with_brute_force(text: str, lag: int) -> None:
    found = audit_powers(powers_of(text), lag, UNIT)
    least = brute_force(powers_of(text), lag, 200)
    assert found.lower <= found.upper <= found.lower * 1.01 + 1e-6
    assert found.lower * 0.99 - 1e-6 <= least <= found.upper + 1e-6  # what 200 places leave out is 200^-3 of weights below 100


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_errors_of_power_banks_are_above_their_sums(data: st.DataObject) -> None:
    """Σ over 3000 places is below the certified norm, and near it: what is left out is below the mass beyond."""
    numbers = st.integers(17, 96).map(lambda k: fmpq(k, 8))
    heads = [
        PowerHead(p, fmpq(data.draw(st.integers(1, 32)), 8)) for p in data.draw(st.lists(numbers, min_size=1, max_size=4, unique=True))
    ]
    weights = tuple(fmpq(data.draw(st.integers(-64, 64).filter(bool)), 16) for _ in heads)
    residual, lag = fmpq(data.draw(st.integers(-8, 8)), 8), data.draw(st.integers(1, 4))
    with working_precision(128):
        certified = upper(power_error(PowerBank(tuple(heads), weights, residual), lag))
    kernel = np.array([nearest(w) for w in weights]) @ truncated(heads, 3000)
    kernel[0] += nearest(residual)
    kernel[lag] -= 1
    seen = float(np.abs(kernel).sum())
    beyond = sum(abs(nearest(w)) * zeta(p, offset + 3000) / zeta(p, offset) for w, (p, offset) in zip(weights, floats(heads), strict=True))
    assert seen * (1 - 1e-9) <= certified <= seen * (1 + 1e-9) + beyond + 0.02 * abs(seen)


@given(st.lists(st.tuples(st.integers(17, 400), st.integers(1, 64)), min_size=1, max_size=5, unique=True), st.integers(1, 2))
@settings(max_examples=examples(40), deadline=None)
def test_no_kerple_heads_beat_lin_heads(pairs: list[tuple[int, int]], lag: int) -> None:
    """monotone-law, 1: the best weights of any heads are certified above what lin heads of all decays cannot beat."""
    heads = [PowerHead(fmpq(p, 8), fmpq(r, 16)) for p, r in pairs]
    found, free = audit_powers(heads, lag, COARSE), lag_limit("lin", lag, COARSE, 8)
    assert found.lower <= found.upper and free.lower <= found.upper
    assert found.bank.weight_sum == sum((abs(w) for w in found.bank.weights), abs(found.bank.residual))


@given(st.lists(st.integers(1, 96), min_size=1, max_size=4, unique=True), st.integers(1, 4))
@settings(max_examples=examples(40), deadline=None)
def test_given_lin_heads_never_do_better_on_longer_lags(sixteenths: list[int], lag: int) -> None:
    """monotone-law, 4: on audits of both lags, each certified by itself."""
    heads = [("lin", fmpq(p, 16)) for p in sixteenths]
    assert audit(heads, lag, UNIT).lower <= audit(heads, lag + 1, UNIT).upper


def test_kerple_comes_close_to_lin_heads() -> None:
    """monotone-law, 3: p = λ/r with a small r for the decays of a lin bank."""
    pair = lag_limit("lin", 1, COARSE, 8)
    heads = [PowerHead(decay * 256, fmpq(1, 256)) for _, decay in pair.bank.heads if decay * 256 > fmpq(17, 16)]
    assert pair.lower <= audit_powers(heads, 1, COARSE).upper <= pair.upper * 1.2


@pytest.mark.deep
@pytest.mark.parametrize("lag", [2, 3])
def test_log_heads_are_at_most_one_lag_ahead(lag: int) -> None:
    """monotone-law, 2, on sides that do not use it."""
    assert lag_limit("log", lag, COARSE, 8).upper >= lag_limit("lin", lag - 1, COARSE, 8).lower


def test_tampered_audits_are_caught() -> None:
    heads = powers_of("8:1,6:1,4:1,3:1,2:1")
    found = audit_powers(heads, 2, UNIT)
    assert power_upper(found.bank, 2, UNIT) < 0.16 and power_lower(heads, found.dual, 2, UNIT) > 0.15
    wrong = PowerBank(found.bank.heads, (found.bank.weights[0] * fmpq(11, 10), *found.bank.weights[1:]), found.bank.residual)
    assert power_upper(wrong, 2, UNIT) > 0.2
    louder = Dual(found.dual.edges, tuple(fmpq(1) if e == 2 else -v for e, v in zip(found.dual.edges, found.dual.values, strict=True)))
    assert power_lower(heads, louder, 2, UNIT) < 0.01, "a sequence that heads can see shows nothing"
    assert power_lower((*heads, PowerHead(fmpq(3, 2), fmpq(1))), found.dual, 2, UNIT) < found.lower, "one more head was not thought of"


def test_verdicts() -> None:
    assert [LagCell(1, *sides).verdict for sides in ((0.1, 0.49), (0.5, 1.0), (0.4, 0.5), (math.nan, math.nan))] == [
        "resolved",
        "unresolved",
        "undecided",
        "undecided",
    ]


def test_the_table_of_a_coarse_arithmetic() -> None:
    found = lf.limits.positions(["alibi", "t5", "kerple", "table", "stride", "lin"], longest=20, dtype="bfloat16", reach=18, stride=3)
    assert found.resolved == {
        "alibi": [], "t5": list(range(1, 16)), "kerple": [1], "table": list(range(1, 18)), "stride": [3], "lin": [1],
    }  # fmt: skip
    assert not found.undecided and found.data["float32_differs"] == []
    firsts = {str(row["scheme"]): row["first_unresolved"] for row in found.schemes}
    assert firsts["t5"] == {"lag": 16, "lower": 1.0} and firsts["table"] == {"lag": 18, "lower": 1.0}
    for row in found.schemes:
        sides = [(cell["lower"], cell["upper"]) for cell in row["rows"]]  # type: ignore[index, attr-defined]
        assert len(sides) == 20 and all(0 <= low <= high <= 1 for low, high in sides)


@pytest.mark.deep(keep="bfloat16-resolved0-0.8592")
@pytest.mark.parametrize(("dtype", "resolved", "lower"), [("bfloat16", [1], 0.8592), ("float32", [1, 2], 0.70655)])
def test_given_heads_are_audited(dtype: str, resolved: list[int], lower: float) -> None:
    found = lf.limits.positions("kerple", kerple="20:0.5,10:1,6:2,4:1,2:0.1", longest=4, dtype=dtype)
    first = {"lag": len(resolved) + 1, "lower": lower}
    assert found.resolved == {"kerple": resolved} and found.schemes[0]["first_unresolved"] == pytest.approx(first, abs=1e-4)
    assert lf.limits.positions("alibi", heads=3, longest=3, dtype=dtype).resolved == {"alibi": []}


@pytest.mark.deep
@pytest.mark.parametrize(("dtype", "lin", "log", "mixed"), [("bfloat16", 1, 2, 2), ("float32", 5, 4, 5)])
def test_horizons_of_free_decays(dtype: str, lin: int, log: int, mixed: int) -> None:
    found = lf.limits.positions(["lin", "log", "mixed"], dtype=dtype, longest=12)
    assert found.resolved == {"lin": list(range(1, lin + 1)), "log": list(range(1, log + 1)), "mixed": list(range(1, mixed + 1))}
    assert not found.undecided


def test_a_search_that_fails_leaves_a_lag_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(*_: object) -> float:
        raise lf.Refusal("not found")

    monkeypatch.setattr(positions, "least_known", lambda *_: 0.1)
    monkeypatch.setattr(positions, "best_known", lambda *_: 0.9)
    monkeypatch.setattr(positions, "least_beyond", gives_up)
    found = lf.limits.positions("log", dtype="bfloat16", longest=4)
    assert found.undecided and found.schemes[0]["undecided"] == [1, 2] and found.resolved == {"log": []}
