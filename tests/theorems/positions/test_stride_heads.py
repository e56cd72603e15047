"""Strides: a lag cq costs what lag q costs, in every arithmetic; lags between the steps are refused with the bucket law."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Powers, Strided, l1_norm
from analyzer.kernels.l2_norms import l2_square
from analyzer.numbers.exact import working_precision
from constructions.network.transformer import to_exact
from constructions.run import fast, reference
from constructions.run.fused import run_exact
from constructions.theorems.positions.stride_heads import with_stride
from tests.depth import examples
from verify.layers.dp_free import layer_error
from verify.theorems.positions.stride_heads import verify


def test_heads_of_lag_12_by_stride() -> None:
    """The comparison: 12, 6, 4, 3, 2 and 1 heads, each certified and none fewer by the lag law."""
    found = lf.plan(lf.fixed(lags=(12,)), error=0.05, theorem="stride-heads")
    rows = {row.options["stride"]: row for row in found.rows}
    assert {c: row.built[1] for c, row in rows.items() if row.built is not None} == {2: 6, 3: 4, 4: 3, 6: 2, 12: 1}
    for row in rows.values():
        assert row.network is not None
        certificate = row.network.certificate
        assert certificate.verdict == lf.Verdict.HOLDS and certificate.least_heads == certificate.sizes["heads"] == row.proven.heads
        assert certificate.witness <= certificate.certified <= 0.05
    assert lf.build(lf.fixed(lags=(12,)), error=0.05).sizes["heads"] == 12


@pytest.mark.deep(keep=("1e-06", "mixed"))
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32", "error": 0.25},
        {"dtype": "float64"},
        {"rpe": "log", "dtype": "float64"},
        {"error": 1e-6},
        {"rpe": "mixed"},
        {"dtype": "float64", "bank": "balanced"},
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
def test_a_lag_with_a_stride_is_certified_as_the_lag_in_steps(options: dict[str, object]) -> None:
    far, near = lf.fixed(lags=(12,)), lf.fixed(lags=(3,))
    strided, plain = lf.build(far, stride=4, **options), lf.build(near, **options)  # type: ignore[arg-type]
    a, b = strided.certificate, plain.certificate
    assert a.verdict == b.verdict == lf.Verdict.HOLDS and a.theorem == "stride-heads"
    assert (a.certified, a.bound, a.rounding, a.sizes, a.least_heads) == (b.certified, b.bound, b.rounding, b.sizes, b.least_heads)
    assert a.witness == pytest.approx(b.witness, abs=2 * (a.rounding or 0) + 1e-12)
    tokens = np.random.default_rng(0).uniform(-1, 1, (4, 50, 1)).astype(np.float32).astype(float)
    assert np.abs(strided(tokens) - far.values(np)(tokens)).max() <= a.certified + 1e-12


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("length", [1, 11, 700])
def test_the_executors_agree(rpe: str, length: int) -> None:
    network = lf.build(lf.fixed(lags=(2,)), dtype="float64").transformer
    (layer,) = network.layers
    decay = np.array([1.5, 6.0]) if rpe == "log" else np.array([0.2, 1.5])  # a slow log head: weights for the array, or an FFT
    attention = replace(layer.attention, rpe=(rpe,) * 2, decay=decay, output=np.ones_like(layer.attention.output))
    ones = np.ones_like(network.embedding)
    network = replace(network, embedding=ones, bias=network.bias + 0.25, layers=(replace(layer, attention=attention),))
    tokens = np.random.default_rng(1).uniform(-1, 1, (3, length, 1))
    for stride in (1, 2, 5):
        strided = with_stride(network, stride)
        outputs = fast.forward(strided, tokens)
        assert np.abs(outputs - reference.forward(strided, tokens)).max() < 1e-12
        assert np.abs(outputs - run_exact(strided.map(to_exact), tokens)).max() < 1e-12
        apart = np.concatenate([fast.forward(network, tokens[:, j::stride]) for j in range(min(stride, length))], axis=1)
        order = np.concatenate([np.arange(length)[j::stride] for j in range(min(stride, length))])
        assert np.abs(outputs[:, order] - apart).max() < 1e-12


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(-8, 8), min_size=2, max_size=2), st.booleans(), st.integers(1, 30))
def test_norms_of_strided_kernels(stride: int, weights: list[int], log: bool, lag: int) -> None:
    with working_precision(256):
        amplitudes = tuple(arb(w) for w in weights)
        group = Powers((fmpq(3), fmpq(5)), amplitudes) if log else Exponentials((arb(fmpq(1, 2)), arb(fmpq(1, 4))), amplitudes)
        kernel = DeliveredKernel(fmpq(1), (Strided(group, stride),), ((lag, fmpq(1)),))
        values = kernel.values(0, 400)
        inner = group.values(0, 400)
        wanted = [inner[s // stride] if s % stride == 0 else arb(0) for s in range(400)]
        wanted[0] += 1
        wanted[lag] -= 1
        assert all((a - b).contains(0) for a, b in zip(values, wanted, strict=True))
        norm, partial = l1_norm(kernel), sum((abs(v) for v in wanted), arb(0))
        assert norm.least <= partial + kernel.tail(400) and partial <= norm.most + arb(1e-30)
        square = l2_square(kernel)
        squares = sum((v * v for v in wanted), arb(0))
        assert square.least <= squares + kernel.tail(400) and squares <= square.most + arb(1e-30)


@pytest.mark.deep(keep="exact")
@pytest.mark.parametrize("dtype", ["exact", "float64"])
def test_changed_networks_are_caught(dtype: str) -> None:
    target = lf.fixed(lags=(3, 6))
    network = lf.build(target, stride=3, dtype=dtype).transformer
    (layer,) = network.layers
    assert verify(network, target, "minimal", "spline").verdict == lf.Verdict.HOLDS
    output = layer.attention.output.copy()
    output[0] = output[0] * (fmpq(101, 100) if dtype == "exact" else 1.01)
    broken = replace(network, layers=(replace(layer, attention=replace(layer.attention, output=output)),))
    for wrong in (broken, with_stride(network, 2), with_stride(network, 6)):
        found = verify(wrong, target, "minimal", "spline")
        assert found.verdict == lf.Verdict.VIOLATED and found.certified > 0.9 * min(1, found.witness)
    with pytest.raises(lf.LemmaformerError, match="with a stride"):
        verify(with_stride(network, 1), target, "minimal", "spline")


def test_a_lag_that_the_stride_does_not_divide_is_refused_with_the_law() -> None:
    with pytest.raises(
        lf.Refusal, match=r"stride 5 does not divide lag 12: .* bucket law every network of this kind errs by at least 1"
    ) as no:
        lf.build(lf.fixed(lags=(12,)), stride=5)
    (way,) = no.value.remedies
    assert lf.build(lf.fixed(lags=(12,)), **way).certificate.verdict == lf.Verdict.HOLDS
    with pytest.raises(lf.Refusal, match="does not divide lag 12"):
        lf.bound("stride-heads", lf.fixed(lags=(12,)), stride=5)
    network = with_stride(lf.build(lf.fixed(lags=(12,))).transformer, 5)
    assert layer_error(network, lf.fixed(lags=(12,))).witness >= 1  # the law itself, at the network that would be built
    with pytest.raises(lf.Refusal) as mixed:
        lf.build(lf.fixed(lags=(4, 9)), stride=2)
    assert mixed.value.remedies == ({"stride": None},)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"depth": 2}, "a stride goes with one layer"),
        ({"rpe": "table"}, "a stride goes with one layer"),
        ({"norm": "mean-square"}, "a stride goes with one layer"),
        ({"heads": 2}, "steps of the stride 4: 2 heads cannot extract lag 3"),
        ({"stride": 0}, "stride"),
        ({"dtype": "float32", "error": 1e-3}, "steps of the stride 4: float32 cannot hold lag 3"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(lf.LemmaformerError, match=text):
        lf.build(lf.fixed(lags=(12,)), **{"stride": 4, **options})  # type: ignore[arg-type]


@pytest.mark.deep
def test_bundles_keep_the_stride_and_comparisons_read_it(tmp_path: Path) -> None:
    target = lf.fixed(lags=(6,))
    net = lf.build(target, stride=3, dtype="float64")
    net.save(tmp_path / "net")
    again = lf.load(tmp_path / "net")
    assert again.transformer.layers[0].attention.stride == 3 and again.verify().verdict == lf.Verdict.HOLDS
    with pytest.raises(lf.LemmaformerError, match="not there for heads with a stride"):
        net.to_numpy(tmp_path / "net.py")
    exact = lf.build(target, stride=3)
    assert exact.to_numpy(tmp_path / "exact.py") is not None  # by kernels
    other = lf.build(target, rpe="kerple")
    with pytest.raises(lf.LemmaformerError, match=r"thm-3.1 is about lin and log heads that see every token"):
        lf.theorems["thm-3.1"].verified_by()(net.transformer, target, "minimal", "spline")
    columns = lf.compare(exact, other, lf.build(target), sequences=8).networks
    assert [column["sizes"]["heads"] for column in columns] == [2, 6, 6]
    assert all(column["certificate"]["certified"] <= 0.01 for column in columns)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6))
def test_no_sequence_beats_the_certificate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stride, steps = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    target = lf.fixed(lags=(stride * steps,))
    network = lf.build(target, stride=stride, dtype="float64").transformer
    (layer,) = network.layers
    output = layer.attention.output * (1 + 1e-6 * rng.standard_normal(layer.attention.output.shape))
    broken = replace(network, layers=(replace(layer, attention=replace(layer.attention, output=output)),))
    found = verify(broken, target, "minimal", "spline")
    tokens = np.sign(rng.standard_normal((256, 60, 1)))
    assert np.abs(fast.forward(broken, tokens) - target.values(np)(tokens))[:, -1].max() <= found.certified
