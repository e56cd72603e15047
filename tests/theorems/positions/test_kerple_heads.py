"""KERPLE heads: (K.1) against the kernel itself, T heads and no fewer, both executors, and what is refused."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.kernels.l1_norms import DeliveredKernel, Powers, l1_norm
from analyzer.lemmas.kerple import extraction_error, progression
from analyzer.limits.lag_law import lag_law
from analyzer.limits.monotone_law import PowerHead
from analyzer.limits.pi_law import best_pi_bound
from analyzer.numbers.exact import UNIT, lower, working_precision
from analyzer.theorems.positions.kerple_heads import rate_of
from constructions.banks.head_banks import GUARD, weight_sum
from constructions.banks.kerple import minimal_kerple
from constructions.network.transformer import Transformer, to_exact
from constructions.run import fast, reference
from constructions.run.fused import run_exact
from constructions.theorems.positions.kerple_heads import build
from tests.depth import examples
from verify.limits.powers import audit_powers
from verify.theorems.positions.kerple_heads import verify


@pytest.mark.deep
@settings(max_examples=examples(80), deadline=None)
@given(st.integers(1, 5), st.integers(0, 2), st.sampled_from([fmpq(1, 16), fmpq(1), fmpq(5, 2)]), st.integers(2, 60), st.integers(1, 12))
def test_the_kernel_vanishes_up_to_the_heads_and_errs_by_less_than_promised(lag: int, more: int, rate: fmpq, first: int, step: int) -> None:
    heads, error = lag + more, 10.0 ** -(6 * (1 + more))
    bank = minimal_kerple((lag,), heads, rate, fmpq(first), fmpq(step), error)
    with working_precision(2000):
        offset = 1 / rate
        amplitudes = tuple(arb(w) / arb(p).zeta(arb(offset)) for w, p in zip(bank.weights[0], bank.decays, strict=True))
        kernel = DeliveredKernel(bank.residuals[0], (Powers(bank.decays, amplitudes, offset=offset),), ((lag, fmpq(1)),))
        values = kernel.values(0, heads + 1)
        assert all(abs(v) < error * 2.0**-GUARD for v in values)  # H + 1 numbers, each off by half of its grid
        promised = extraction_error(lag, progression(fmpq(first), fmpq(step), heads), rate)
        norm = l1_norm(kernel)
        assert norm.least <= promised + arb(1e-20) and norm.most.is_finite()
        naive = [
            abs(sum((a * arb(s + offset) ** -p for a, p in zip(amplitudes, map(arb, bank.decays), strict=True)), arb(0)))
            for s in range(heads + 1, heads + 40)
        ]
        assert sum(naive, arb(0)) <= norm.most


@pytest.mark.deep(keep="two")
@pytest.mark.parametrize(("lags", "readout"), [((4,), None), ((1, 3), "x0 + m1*m2"), ((12,), None)], ids=("one", "two", "long"))
def test_as_many_heads_as_the_lag_reach_the_error(lags: tuple[int, ...], readout: str | None) -> None:
    target = lf.fixed(lags=lags, readout=readout)
    net = lf.build(target, rpe="kerple")
    found = net.certificate
    assert found.theorem == "kerple-heads" and found.verdict == lf.Verdict.HOLDS
    assert found.sizes["heads"] == found.least_heads == lags[-1] == lag_law("log", lags).heads
    assert found.witness <= found.certified <= min(found.bound, 0.01)
    assert readout is not None or found.witness >= 0.99 * found.certified
    assert to_exact(net.transformer.layers[0].attention.rate)[0] == rate_of(target, None)
    tokens = np.sign(np.random.default_rng(0).standard_normal((4, 40, 1)))
    assert np.abs(net(tokens) - target.values(np)(tokens)).max() <= found.certified * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("lag", [1, 3, 4, 7, 8])
def test_the_derived_rate_is_the_largest_power_of_2_within_a_quarter(lag: int) -> None:
    rate = rate_of(lf.fixed(lags=(lag,)), None)
    assert rate * (lag + 1) <= fmpq(1, 4) < 2 * rate * (lag + 1)


def bits(**options: object) -> float:
    """log2 of the sum of all weights of a bank for lag 4 and an error of 0.01."""
    network = lf.build(lf.fixed(lags=(4,)), error=0.01, **options).transformer  # type: ignore[arg-type]
    weights = [*network.layers[0].attention.output.flat, network.embedding[1, 0]]
    return math.log2(sum(abs(float(arb(w))) for w in weights))


def test_smaller_rates_have_smaller_weights_and_lin_heads_the_smallest() -> None:
    found = [bits(), bits(rpe="kerple"), bits(rpe="log"), bits(rpe="kerple", rate=1.0)]
    assert [round(b) for b in found] == [39, 47, 60, 89]  # as the theorem's page says


@pytest.mark.deep(keep="1-float32-0.05")
@pytest.mark.parametrize(("lag", "dtype", "error"), [(1, "float32", 0.05), (2, "float64", 0.01), (4, "float64", 0.05)])
def test_floats_hold_short_lags_and_really_run(lag: int, dtype: str, error: float) -> None:
    target = lf.fixed(lags=(lag,))
    net = lf.build(target, rpe="kerple", dtype=dtype, error=error)
    found = net.certificate
    assert found.verdict == lf.Verdict.HOLDS and found.rounding > 0 and found.witness <= found.certified <= min(found.bound, error)
    tokens = np.random.default_rng(1).uniform(-1, 1, (8, 60, 1)).astype(dtype)
    assert np.abs(net(tokens) - target.values(np)(tokens.astype(float))).max() <= found.certified
    decays, rates = (to_exact(part) for part in (net.transformer.layers[0].attention.decay, net.transformer.layers[0].attention.rate))
    audit = audit_powers([PowerHead(p, r) for p, r in zip(decays, rates, strict=True)], lag, UNIT[dtype])
    assert lower(best_pi_bound(lag, UNIT[dtype])[0]) <= found.certified
    assert audit.lower <= found.certified  # no weights of these heads do better, rounding counted


def changed(network: Transformer, **arrays: object) -> Transformer:
    (layer,) = network.layers
    return replace(network, layers=(replace(layer, attention=replace(layer.attention, **arrays)),))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["exact", "float64"])
def test_changed_weights_are_caught(dtype: str) -> None:
    target = lf.fixed(lags=(1, 2))
    network = lf.build(target, rpe="kerple", dtype=dtype).transformer
    attention = network.layers[0].attention
    assert verify(network, target, "minimal", "spline").verdict == lf.Verdict.HOLDS
    larger = fmpq(1001, 1000) if dtype == "exact" else 1.001
    for part in ("output", "rate", "decay"):
        array = getattr(attention, part).copy()
        array[-1] = array[-1] * larger
        assert verify(changed(network, **{part: array}), target, "minimal", "spline").verdict == lf.Verdict.VIOLATED
    with pytest.raises(lf.LemmaformerError, match="kerple heads that see every token"):
        verify(changed(network, stride=2), target, "minimal", "spline")


@pytest.mark.deep
@pytest.mark.parametrize("powers", [(7.0, 9.0, 12.5), (1.5, 2.0, 2.5)], ids=("taps", "slow"))
@pytest.mark.parametrize("length", [30, 700])
def test_the_executors_agree(powers: tuple[float, ...], length: int) -> None:
    plain = lf.build(lf.fixed(lags=(3,)), dtype="float64").transformer
    output = np.ones_like(plain.layers[0].attention.output)
    network = changed(
        replace(plain, embedding=np.ones_like(plain.embedding), bias=plain.bias + 0.25),
        rpe=("kerple",) * 3,
        decay=np.array(powers),
        rate=np.array([0.5, 1.0, 3.0]),
        output=output,
    )
    tokens = np.random.default_rng(2).uniform(-1, 1, (2, length, 1))
    outputs = fast.forward(network, tokens)
    assert np.abs(outputs - reference.forward(network, tokens)).max() < 1e-12
    assert np.abs(outputs - run_exact(network.map(to_exact), tokens)).max() < 1e-12


@pytest.mark.deep
def test_bundles_keep_the_rate_and_others_refuse_it(tmp_path: Path) -> None:
    net = lf.build(lf.fixed(lags=(1,)), rpe="kerple", dtype="float64")
    net.save(tmp_path / "net")
    again = lf.load(tmp_path / "net")
    assert again.verify().verdict == lf.Verdict.HOLDS
    assert np.array_equal(again.transformer.layers[0].attention.rate, net.transformer.layers[0].attention.rate)
    with pytest.raises(lf.LemmaformerError, match="not there for kerple heads"):
        net.to_numpy(tmp_path / "net.py")


@pytest.mark.parametrize(
    ("lags", "options", "text"),
    [
        ((4,), {"heads": 3}, "3 heads cannot extract lag 4: by the lag law"),
        ((4,), {"depth": 2}, "leave depth and bank out"),
        ((4,), {"bank": "tuned"}, "leave depth and bank out"),
        ((4,), {"stride": 2}, "a stride goes with"),
        ((4,), {"rate": 1000.0}, "rate"),
        ((4,), {"norm": "mean-square"}, "give rpe lin or log"),
        ((9,), {"dtype": "float32"}, "by the monotone law"),
        ((3,), {"dtype": "float32", "error": 0.05}, "cannot hold lag 3"),
        ((300,), {}, "128 kerple heads are the most"),
    ],
)
def test_what_does_not_go_together_is_refused(lags: tuple[int, ...], options: dict[str, object], text: str) -> None:
    with pytest.raises(lf.LemmaformerError, match=text):
        build(lf.fixed(lags=lags), lf.Fixed(rpe="kerple", **options))  # type: ignore[arg-type]
    with pytest.raises(lf.InputError, match="goes with rpe=kerple"):
        lf.build(lf.fixed(lags=lags), rate=0.5)


@pytest.mark.deep
def test_the_ways_out_of_float32_lead_on() -> None:
    with pytest.raises(lf.Refusal) as refused:
        lf.build(lf.fixed(lags=(3,)), rpe="kerple", dtype="float32")
    offered = [way for way in refused.value.remedies if "rpe" in way or way.get("dtype") == "exact"]
    assert offered
    for way in offered:
        options = {name: value for name, value in ({"rpe": "kerple", "dtype": "float32"} | way).items() if value is not None}
        assert lf.build(lf.fixed(lags=(3,)), **options).certificate.verdict == lf.Verdict.HOLDS  # type: ignore[arg-type]


def test_the_bound_is_solved_for_exponents() -> None:
    found = lf.bound("kerple-heads", lf.fixed(lags=(2, 4)), error=1e-3, rate=0.5)
    assert found.heads == found.data["lower_bound_heads"] == 4 and 5e-4 < found.total <= 1e-3
    assert found.data["kernel_rate"] == 0.5 and sum(found.parts.values()) == pytest.approx(found.total)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6))
def test_no_sequence_beats_the_certificate(seed: int) -> None:
    """Random banks of kerple heads, right or wrong: what is certified is at least what sign sequences show."""
    rng = np.random.default_rng(seed)
    lag, heads = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    bank = minimal_kerple((min(lag, heads),), heads, fmpq(1, 1 << int(rng.integers(0, 5))), fmpq(int(rng.integers(3, 30))), fmpq(2), 1e-6)
    assert weight_sum(bank) > 1
    target = lf.fixed(lags=(lag,))
    exact = lf.build(lf.fixed(lags=(heads,)), rpe="kerple").transformer
    network = changed(exact, decay=np.array([*bank.decays], dtype=object))
    found = verify(network, target, "minimal", "spline")
    tokens = np.sign(rng.standard_normal((64, 80, 1)))
    assert np.abs(run_exact(network, tokens) - target.values(np)(tokens))[:, -1].max() <= found.certified * (1 + 1e-9)
    assert found.witness <= found.certified
