"""A bias per distance: one head per lag, its error in closed form, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.limits.bucket_law import Buckets
from analyzer.theorems.positions.table_heads import extraction_error, least_bias
from constructions.network.transformer import Transformer
from tests.depth import examples
from verify.theorems.positions.table_heads import verify


def kernel(a: float, c: float, biases: np.ndarray) -> np.ndarray:
    weights = np.exp(biases - biases.max())
    found = a * weights / weights.sum()
    found[0] += c
    return found


@settings(max_examples=examples(200))
@given(st.integers(2, 300), st.data())
def test_the_error_is_the_closed_form_and_no_weights_do_better(reach: int, data: st.DataObject) -> None:
    lag, bias = data.draw(st.integers(1, reach - 1)), data.draw(st.integers(1, 12))
    biases = np.zeros(reach)
    biases[lag] = bias
    wanted = np.eye(1, reach, lag)[0]
    small = np.exp(-bias)
    error = np.abs(kernel(1 + (reach - 1) * small, -small, biases) - wanted).sum()
    assert error == pytest.approx(float(extraction_error(reach, arb(bias))), rel=1e-9, abs=1e-12)
    others = np.array(data.draw(st.lists(st.floats(0, bias), min_size=reach, max_size=reach)))
    a, c = data.draw(st.floats(-5, 5)), data.draw(st.floats(-5, 5))
    assert np.abs(kernel(a, c, others) - wanted).sum() >= min(1, error) - 1e-9


@pytest.mark.parametrize("error", [0.5, 1e-3, 1e-20])
@pytest.mark.parametrize("reach", [2, 3, 200])
def test_the_least_bias(reach: int, error: float) -> None:
    bias = least_bias(reach, error)
    assert extraction_error(reach, arb(bias)) <= error
    assert bias == 1 or extraction_error(reach, arb(bias - 1)) > error


@pytest.mark.deep(keep="two")
@pytest.mark.parametrize(
    ("lags", "readout", "options"),
    [
        ((200,), None, {"dtype": "float32"}),
        ((1,), None, {}),
        ((3, 90), "x0*m1 - m2", {"error": 0.05, "reach": 128}),
        ((1, 2, 3, 4), None, {"error": 0.04, "dtype": "float64"}),
    ],
    ids=("long", "last", "two", "all"),
)
def test_long_lags_are_held_by_one_head_each(lags: tuple[int, ...], readout: str | None, options: dict[str, object]) -> None:
    target = lf.fixed(lags=lags, readout=readout)
    net = lf.build(target, rpe="table", **options)  # type: ignore[arg-type]
    found = net.certificate
    assert found.theorem == "table-heads" and found.verdict == lf.Verdict.HOLDS and found.sizes["heads"] == len(lags)
    assert found.certified <= options.get("error", 0.01) and found.witness <= found.certified <= found.bound  # type: ignore[operator]
    assert readout is not None or found.witness >= 0.99 * found.certified
    tokens = np.sign(np.random.default_rng(0).standard_normal((4, 2 * lags[-1] + 2, 1)))
    assert np.abs(net(tokens) - target.values(np)(tokens))[:, lags[-1] :].max() <= found.certified * (1 + 1e-9) + 1e-12


def changed(network: Transformer, **arrays: np.ndarray) -> Transformer:
    (layer,) = network.layers
    return replace(network, layers=(replace(layer, attention=replace(layer.attention, **arrays)),))


@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_changed_weights_are_caught(dtype: str) -> None:
    target = lf.fixed(lags=(2, 9))
    net = lf.build(target, rpe="table", dtype=dtype)
    network = net.transformer
    attention = network.layers[0].attention
    assert verify(network, target, "minimal", "spline").verdict == lf.Verdict.HOLDS
    larger = fmpq(101, 100) if dtype == "exact" else np.float32(1.01)
    output = attention.output.copy()
    output[0] = output[0] * larger
    table = attention.table.copy()
    table[1, 9] = table[1, 9] + (fmpq(1) if dtype == "exact" else np.float32(1))
    moved = attention.table.copy()
    moved[1] = np.roll(moved[1], 1)
    assert moved.shape[1] == 10  # lag 9 is the last distance, and now the first
    for broken in (changed(network, output=output), changed(network, table=table), changed(network, table=moved)):
        assert verify(broken, target, "minimal", "spline").verdict == lf.Verdict.VIOLATED


def test_buckets_are_held_by_the_law() -> None:
    net = lf.build(lf.fixed(lags=(15,)), rpe="t5", dtype="float32")
    assert net.certificate.verdict == lf.Verdict.HOLDS
    biases = net.transformer.layers[0].attention.table[0]
    assert len(biases) == 128
    for bucket in range(32):
        assert len({float(biases[s]) for s in range(128) if Buckets().of(s) == bucket}) <= 1
    with pytest.raises(lf.Refusal, match="lag 16 shares its bucket of biases with 17: by the bucket law") as refused:
        lf.build(lf.fixed(lags=(16,)), rpe="t5")
    (way,) = refused.value.remedies
    assert lf.build(lf.fixed(lags=(16,)), **way).certificate.verdict == lf.Verdict.HOLDS


@pytest.mark.parametrize(
    ("lags", "options", "text"),
    [
        ((4,), {"rpe": "table", "reach": 4}, "lag 4 is not seen"),
        ((4,), {"rpe": "lin", "reach": 9}, "goes with rpe table or t5"),
        ((4,), {"rpe": "table", "depth": 2}, "leave depth and bank out"),
        ((4,), {"rpe": "table", "bank": "tuned"}, "leave depth and bank out"),
        ((4,), {"rpe": "table", "norm": "mean-square"}, "give rpe lin or log"),
        ((4,), {"rpe": "table", "heads": 3}, "one head serves one lag"),
        ((700,), {"rpe": "table", "dtype": "float32"}, "at most 512 distances"),
        ((4,), {"rpe": "tables"}, "rpe is 'tables'"),
    ],
)
def test_what_does_not_go_together_is_refused(lags: tuple[int, ...], options: dict[str, object], text: str) -> None:
    with pytest.raises(lf.LemmaformerError, match=text):
        lf.build(lf.fixed(lags=lags), **options)  # type: ignore[arg-type]


def test_the_bound_is_solved_for_the_bias() -> None:
    found = lf.bound("table-heads", lf.fixed(lags=(4, 200)), error=0.01)
    assert found.heads == 2 and found.total <= 0.01 and found.data["bias"] == least_bias(201, 0.005)
    assert lf.bound("table-heads", lf.fixed(lags=(4,)), bias=7, reach=50).total == pytest.approx(48 * np.exp(-7))
    with pytest.raises(lf.InputError, match="not both"):
        lf.bound("table-heads", lf.fixed(lags=(4,)), bias=7, error=0.1)
