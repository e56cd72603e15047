"""Chains of shifts: the law, composition, plans, float runs against certificates, restoration to letters, sabotage."""

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError, LemmaformerError, Refusal
from analyzer.numbers.exact import rational, upper, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.shift_chain import composed, least_budget, least_heads
from constructions.banks.head_banks import HeadBank
from constructions.network.transformer import FeedForward, Transformer, to_exact
from constructions.neurons.feedforward import as_network
from constructions.run import fast, reference
from constructions.run.execute import run
from constructions.run.fused import linear_map, stream_kernels
from constructions.theorems.assembly import round_network
from constructions.theorems.shift_chain import (
    Demand,
    Layout,
    Option,
    Plateaus,
    ShiftChain,
    assemble,
    build,
    chain_error,
    mixed_differences,
    plan,
    planned_chain,
    quickened,
    shift_errors,
)
from tests.conftest import random_network
from tests.depth import examples
from tests.theorems.test_thm_3_1 import chain_holds, wanted
from verify.chain.certificate import Certificate, StrangeWeights, Verdict
from verify.theorems.shift_chain import verify
from verify.theorems.shift_chain.deliveries import embedded

LETTERS = (fmpq(-1), fmpq(1))


def linear_network(rng: np.random.Generator, layers: int, heads: int) -> Transformer:
    """A random float64 network of lin heads with linear maps between its layers."""
    network = random_network(rng, ["lin"] * heads, layers=layers, dim=1, bias=False)
    inner = []
    for layer in network.layers[:-1]:
        rows, weights = rng.standard_normal((2, 3)), rng.standard_normal((3, 2))
        pairs = FeedForward(np.concatenate([rows, -rows]), np.zeros(4), np.concatenate([weights, -weights], axis=1))
        inner.append(replace(layer, feedforward=pairs))
    return replace(network, layers=(*inner, network.layers[-1]))


@pytest.mark.parametrize("layers,heads,lag", [(2, 1, 3), (3, 1, 4), (2, 2, 5), (1, 2, 3)])
def test_law(layers: int, heads: int, lag: int) -> None:
    """L·H ≤ T−1: no coordinate of the stream sees lag T better than all other lags together; equal decays (double poles) do not help."""
    for seed in range(20):
        network = linear_network(np.random.default_rng(seed), layers, heads)
        if seed % 2:
            for layer in network.layers:
                layer.attention.decay[:] = 0.7
        for row in stream_kernels(network, 2 * lag):
            values = np.array([abs(float(v)) for v in row[0].coeffs()])
            assert values[lag] <= (values[1:].sum() - values[lag]) * (1 + 1e-9)
    assert least_heads(lag, layers) > heads


def test_kernels_of_deep_networks_are_their_impulse_responses() -> None:
    network = linear_network(np.random.default_rng(3), 3, 2)
    kernels = stream_kernels(network, 30)
    final = network.layers[-1].feedforward
    for scale in (1.0, -0.5):
        stream = np.array([[scale * float(v) for v in row[0].coeffs()] for row in kernels])
        impulse = np.zeros((30, 1))
        impulse[0] = scale
        output = np.asarray(final.outer) @ np.maximum(final.inner @ stream + final.bias[:, None], 0)
        assert np.abs(fast.forward(network, impulse) - output[0]).max() < 1e-12
    assert linear_map(final) is None
    with pytest.raises(InputError, match="not linear"):
        stream_kernels(replace(network, layers=(network.layers[-1], network.layers[-1])), 5)


@pytest.mark.deep
def test_equal_layers_compile_once() -> None:
    """In the plain pass; the fast one is one program, in which they are a loop (`tests/running/test_buckets.py`)."""
    network = linear_network(np.random.default_rng(0), 2, 3)
    deep, before = replace(network, layers=(*[network.layers[0]] * 40, network.layers[1])), reference._step._cache_size()
    reference.forward(deep, np.zeros((7, 1)))
    assert reference._step._cache_size() - before == 2
    tokens = np.random.default_rng(1).uniform(-1, 1, (50, 1))
    shallow = replace(network, layers=(*[network.layers[0]] * 3, network.layers[1]))
    assert np.abs(fast.forward(shallow, tokens) - reference.forward(shallow, tokens)).max() < 1e-10


@given(st.lists(st.floats(0, 0.3), min_size=1, max_size=6))
@settings(max_examples=examples(50), deadline=None)
def test_composition(errors: list[float]) -> None:
    found = upper(composed([arb(e) for e in errors]))
    assert found == pytest.approx(math.prod(1 + e for e in errors) - 1, rel=1e-9, abs=1e-12)


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_plans_are_optimal(lag: int, seed: int) -> None:
    """Against all chains of the options, for costs on the planner's grid."""
    rng = np.random.default_rng(seed)
    budget = 0.5
    cells = 1000

    def option(shift: int) -> Option:
        bank = HeadBank("lin", (fmpq(1),) * int(rng.integers(shift, shift + 4)), (shift,), (), ())
        return Option(shift, bank, math.expm1(math.log1p(budget) * float(rng.integers(1, 700) - 0.5) / cells))

    options = [option(int(shift)) for shift in rng.integers(1, 5, 4)]
    best = None
    for count in range(1, lag + 1):
        for chain in itertools.combinations_with_replacement(options, count):
            cost = sum(math.ceil(cells * math.log1p(o.cost) / math.log1p(budget)) for o in chain)
            if sum(o.shift for o in chain) == lag and cost <= cells:
                size = (count, sum(o.bank.heads for o in chain))
                best = size if best is None else min(best, size)
    found = plan(options, lag, budget, None)
    assert (found is None) == (best is None)
    if found is not None:
        assert (len(found), sum(o.bank.heads for o in found)) == best
        assert sum(math.log1p(o.cost) for o in found) <= math.log1p(budget)


def test_plans_of_a_given_depth() -> None:
    def option(shift: int, heads: int, cost: float) -> Option:
        return Option(shift, HeadBank("lin", (fmpq(1),) * heads, (shift,), (), ()), cost)

    options = [option(2, 2, 0.1), option(2, 5, 0.01), option(3, 3, 0.1)]
    found = plan(options, 8, 0.35, 3)
    assert found is not None and [o.shift for o in found] == [3, 3, 2] and [o.bank.heads for o in found] == [3, 3, 2]
    tight = plan(options, 8, 0.24, 3)
    assert tight is not None and [o.bank.heads for o in tight] == [3, 3, 5]
    assert plan(options, 8, 0.1, 3) is None and plan(options, 8, 0.35, 2) is None and plan(options, 8, None, 4) is not None


@pytest.mark.deep(keep="lags0-4-None")
@pytest.mark.parametrize("lags,depth,formula", [((12,), 4, None), ((3, 7), 3, "x0 - m1 + 2*m2"), ((2, 5), 2, "tanh(m1*2) + m2**2")])
def test_exact_chains(lags: tuple[int, ...], depth: int, formula: str | None) -> None:
    target = FixedMemory(lags, formula=formula)
    built = build(target, depth=depth, error=1e-2, dtype="exact")
    certificate = verify(built.network, target, "minimal", "spline")
    assert chain_holds(certificate) and certificate.verdict is Verdict.HOLDS and certificate.certified <= 1e-2
    assert certificate.rounding == 0 and certificate.witness >= 0.3 * certificate.certified
    sizes, found = certificate.sizes, certificate.details["plan"]
    assert sizes["layers"] == depth and sizes["layers"] * sizes["heads"] >= lags[-1]
    assert sum(found["shifts"]) == lags[-1] and found["heads_in_all"] >= lags[-1]
    tokens = np.random.default_rng(0).uniform(-1, 1, (3, 60, 1))
    assert np.abs(run(built.network, tokens) - wanted(target, tokens)).max() <= certificate.certified
    if len(lags) == 1:  # a single affine memory: the sign sequence attains the composed error to first order
        assert certificate.witness >= 0.99 * certificate.certified


CHAINS: list[tuple[FixedMemory, dict[str, Any]]] = [
    (FixedMemory((14,)), {"dtype": "float64", "error": 1e-4}),
    (FixedMemory((3, 6)), {"dtype": "float32", "error": 0.2}),
    (FixedMemory((4, 9), 2, "x0[0] + m1[1]*m2[0]"), {"dtype": "float64", "error": 0.05, "depth": 3}),
    (FixedMemory((5,), formula="m1 + m1**2/64"), {"dtype": "float64", "error": 0.1, "ffn": "barron"}),
]


@pytest.mark.deep
@pytest.mark.parametrize("target,options", CHAINS, ids=lambda v: str(v)[:40])
def test_float_chains(target: FixedMemory, options: dict[str, Any]) -> None:
    """The certificate holds for real runs on random and adversarial sequences, on all positions of an array that starts with zeros."""
    built = build(target, **options)
    certificate = verify(built.network, target, "minimal", built.ffn)
    assert certificate.verdict is Verdict.HOLDS and certificate.certified <= options["error"] and certificate.rounding > 0
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (40, 120, target.dim))
    tokens = np.concatenate([signs, rng.uniform(-1, 1, signs.shape).astype("float32")])
    seen = np.abs(fast.forward(built.network, tokens).astype(float) - wanted(target, tokens)).max()
    assert seen <= certificate.certified and certificate.witness >= 0.2 * seen
    assert np.abs(reference.forward(built.network, tokens[:4]) - fast.forward(built.network, tokens[:4])).max() <= options["error"]


@pytest.mark.deep(keep="minimal-lags2-float64-0.001")
@pytest.mark.parametrize(
    "kind,lags,dtype,error",
    [("balanced", (5,), "float32", 1e-2), ("balanced", (4,), "float64", 1e-8), ("minimal", (2, 5), "float64", 1e-3)],
)
def test_plans_cost_what_is_certified(kind: str, lags: tuple[int, ...], dtype: str, error: float) -> None:
    """The planner's prices are those of the certificate: never below it, and not far above."""
    target = FixedMemory(lags, formula=f"m{len(lags)}")
    planned = planned_chain(Demand(target, kind, None, None, dtype, error), 1.0)
    built = build(target, bank=kind, dtype=dtype, error=error)
    certificate = verify(built.network, target, kind, "spline")
    assert certificate.verdict is Verdict.HOLDS and tuple(shift for shift, _ in planned) == built.shifts
    promised = upper(chain_error(Layout(target), planned, dtype))
    assert 0.9 * promised <= certificate.certified <= promised <= error
    assert len(built.shifts) * certificate.sizes["heads"] >= lags[-1]


@pytest.mark.deep
def test_more_heads_make_fewer_layers() -> None:
    """Balanced against minimal banks on one target, and a cap on the heads."""
    target = FixedMemory((6,))
    minimal, capped, balanced = (
        build(target, bank=kind, dtype="float32", error=2e-2, heads=most)
        for kind, most in (("minimal", None), ("balanced", 3), ("balanced", None))
    )
    assert len(minimal.shifts) > len(balanced.shifts) and len(capped.shifts) >= len(balanced.shifts)
    assert capped.network.sizes()["heads"] <= 3


def test_a_fast_head_replaces_the_residual() -> None:
    """Restoration multiplies residual weights by the plateau's rounding; with a head instead a finer alphabet is reached."""
    bank = HeadBank("lin", (fmpq(1),), (2,), ((fmpq(3),),), (fmpq(500),))
    fast_bank = quickened(bank)
    assert fast_bank.residuals == (0,) and fast_bank.weights == ((3, 500),) and fast_bank.heads == 2
    stairs = Plateaus(LETTERS)
    slow, quick = (upper(shift_errors(b, "float32", stairs)[0]) for b in (bank, fast_bank))
    plain, plain_quick = (upper(shift_errors(b, "float32", None)[0]) for b in (bank, fast_bank))
    assert quick < slow and abs(plain_quick - plain) < 1e-3


@pytest.mark.deep
@given(st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float64"]), st.integers(1, 4))
@settings(max_examples=examples(15), deadline=None)
def test_runs_of_arbitrary_chains_stay_within_the_analysis(seed: int, dtype: str, layers: int) -> None:
    """Any weights on the layout of a chain, good or bad: float runs against the same network in exact arithmetic."""
    rng = np.random.default_rng(seed)
    chain = []
    for _ in range(layers):
        decays = tuple(sorted(rational(float(np.float32(p))) for p in rng.uniform(0.2, 3, 3)))
        weights = tuple(fmpq(int(w), 16) for w in rng.integers(-40, 41, 3))
        chain.append((1, HeadBank("lin", decays, (1,), (weights,), (fmpq(int(rng.integers(-30, 31)), 16),))))
    target = FixedMemory((layers,))
    network = round_network(assemble(target, chain, _identity_readout()), dtype)
    certificate = _certified_rounding(network, target)
    tokens = rng.choice([-1.0, 1.0], (50, 1)) if seed % 2 else rng.uniform(-1, 1, (50, 1)).astype("float32").astype(float)
    kernel = stream_kernels(network, 50)[1][0].coeffs()
    with working_precision(256):
        exact = sum((k * arb(rational(float(x))) for k, x in zip(kernel, tokens[::-1, 0], strict=False)), arb(0))
        seen = abs(arb(rational(float(fast.forward(network, tokens)[-1]))) - exact)
    assert upper(seen) <= certificate.rounding


def _identity_readout() -> list[Any]:
    from analyzer.lemmas.relu_error import Neuron

    return [Neuron((fmpq(0), fmpq(s)), fmpq(0), fmpq(s)) for s in (1, -1)]


def _certified_rounding(network: Transformer, target: FixedMemory) -> Certificate:
    """The certificate, read for its rounding: shifts are looked for at 1, wherever these kernels peak."""
    from verify.theorems.shift_chain import deliveries

    peak, deliveries.peak = deliveries.peak, lambda *_: 1
    try:
        return verify(network, target, "minimal", "spline")
    finally:
        deliveries.peak = peak


ALPHABETS: list[tuple[FixedMemory, dict[str, Any]]] = [
    (FixedMemory((30,), alphabet=LETTERS), {"dtype": "float32"}),
    (FixedMemory((3, 7), formula="x0 + m1*m2 - 1", alphabet=(-1, 0, 0.5, 1)), {"dtype": "float32"}),
    (FixedMemory((2, 9), 2, "m1[0]*m2[1] + x0[1]", alphabet=LETTERS), {"dtype": "float64"}),
    (FixedMemory((11,), alphabet=(0.25, 1)), {"dtype": "float64", "depth": 3}),
]


@pytest.mark.deep
@pytest.mark.parametrize("target,options", ALPHABETS, ids=lambda v: str(v)[:60])
def test_restored_chains_are_exact(target: FixedMemory, options: dict[str, Any]) -> None:
    built = build(target, **options)
    certificate = verify(built.network, target, "minimal", "spline")
    assert certificate.verdict is Verdict.HOLDS and certificate.certified == certificate.bound == certificate.rounding == 0
    digital = certificate.details["digital"]
    assert digital["exact"] and all(group["error"] < group["room"] for group in digital["restored"])
    assert sum(group["layers"] for group in digital["restored"]) == len(built.shifts) - 1
    letters = np.array([float(arb(v)) for v in target.alphabet or ()])
    tokens = np.random.default_rng(0).choice(letters, (6, 80, target.dim))
    lag = target.lags[-1]
    assert (fast.forward(built.network, tokens)[:, lag:] == wanted(target, tokens)[:, lag:]).all()


@pytest.mark.deep(keep="None")
@pytest.mark.parametrize("alphabet", [None, LETTERS])
def test_one_layer_is_a_chain_too(alphabet: tuple[fmpq, ...] | None) -> None:
    target = FixedMemory((2,), alphabet=alphabet)
    built = build(target, dtype="float64", error=1e-2)
    certificate = verify(built.network, target, "minimal", "spline")
    assert built.shifts == (2,) and certificate.verdict is Verdict.HOLDS and certificate.certified <= 1e-2
    assert build(target if alphabet is None else FixedMemory((2,)), dtype="exact", heads=1).shifts == (1, 1)


@pytest.mark.deep
def test_values_between_layers_stay_within_the_margins() -> None:
    """The carrier of every layer of a real run, against error and room."""
    target = FixedMemory((12,), alphabet=(-1, 0, 1))
    built = build(target, dtype="float32")
    digital = verify(built.network, target, "minimal", "spline").details["digital"]
    tokens = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], (8, 60, 1))
    past, before, carrier = np.zeros(built.network.embedding.shape[0], "float32"), 0, 3
    x = (tokens @ built.network.embedding.T.astype(float)).astype("float32")
    worst = 0.0
    for shift, layer in zip(built.shifts[:-1], built.network.layers, strict=False):
        constants = fast.head_constants(layer.attention)
        attended, past_attended = fast.attend(layer.attention, constants, jax.numpy.asarray(x), jax.numpy.asarray(past))
        x, past, before = x + np.asarray(attended), past + np.asarray(past_attended), before + shift
        worst = max(worst, float(np.abs(x[:, before:, carrier] - tokens[:, :-before, 0]).max()))
        assert np.abs(x[..., carrier]).max() <= 1.01 + digital["restored"][-1]["room"]
        x, past = (np.asarray(v) for v in reference.feed(layer.feedforward, x, past, False))
    assert 0 < worst <= max(group["error"] for group in digital["restored"])


@pytest.mark.deep
def test_lag_forty_in_float32() -> None:
    """Far beyond one layer's horizon: certified to 1e-2, and not exceeded by random, periodic or searched sequences."""
    target = FixedMemory((40,))
    built = build(target, bank="balanced", dtype="float32", error=1e-2)
    certificate = verify(built.network, target, "balanced", "spline")
    sizes = certificate.sizes
    assert certificate.verdict is Verdict.HOLDS and certificate.certified <= 1e-2 and sizes["layers"] * sizes["heads"] >= 40
    rng = np.random.default_rng(0)
    waves = np.where(np.sin(rng.uniform(0.01, 3.1, (32, 1)) * np.arange(160)) < 0, -1.0, 1.0)[..., None]
    best = np.concatenate([waves, rng.choice([-1.0, 1.0], (32, 160, 1))])
    errors = np.abs(fast.forward(built.network, best) - wanted(target, best))
    worst, last = errors.max(), errors[:, -1]
    for rate in (0.2, 0.1, 0.05, 0.02, 0.01) * 4:
        other = np.where(rng.random(best.shape) < rate, -best, best)
        found = np.abs(fast.forward(built.network, other) - wanted(target, other))[:, -1]
        best, last = np.where((found > last)[:, None, None], other, best), np.maximum(found, last)
    assert 0.2 * certificate.certified < max(worst, last.max()) <= certificate.certified


@pytest.mark.deep
def test_lag_one_thousand_exactly() -> None:
    target = FixedMemory((1000,), alphabet=LETTERS)
    built = build(target, bank="balanced", dtype="float32")
    certificate = verify(built.network, target, "balanced", "spline")
    assert certificate.verdict is Verdict.HOLDS and certificate.certified == certificate.rounding == 0
    assert certificate.details["plan"]["layers"] == 250 and certificate.sizes["layers"] == 251
    tokens = np.random.default_rng(0).choice([-1.0, 1.0], (11000, 1))
    assert (fast.forward(built.network, tokens)[1000:] == tokens[:-1000, 0]).all()


@given(st.lists(st.integers(-16, 16), min_size=2, max_size=6, unique=True))
@settings(max_examples=examples(40), deadline=None)
def test_plateaus(numbers: list[int]) -> None:
    letters = tuple(sorted(fmpq(n, 16) for n in numbers))
    stairs = Plateaus(letters)

    def value(r: fmpq) -> fmpq:
        k = stairs.steepness
        ramps = zip(stairs.gaps, stairs.ramps, strict=True)
        return letters[0] + sum((gap * (max(k * (r - low), fmpq(0)) - max(k * (r - high), fmpq(0))) for gap, (low, high) in ramps), fmpq(0))

    assert stairs.room * 8 >= 3 * min(stairs.gaps)
    for letter in letters:
        assert value(letter - stairs.room) == value(letter) == value(letter + stairs.room) == letter


def test_tables() -> None:
    table = {(i, j): fmpq(i * i - 3 * i * j) for i in range(3) for j in range(2)}
    coefficients = mixed_differences(table)
    for i, j in table:
        assert sum((c for (a, b), c in coefficients.items() if a <= i and b <= j), fmpq(0)) == table[i, j]


@cache
def small(restored: bool) -> ShiftChain:
    if restored:
        return build(FixedMemory((3, 8), formula="m1 - m2", alphabet=LETTERS), dtype="float32")
    return build(FixedMemory((3, 8), formula="m1 - m2"), dtype="float64", error=1e-2, depth=4)


@cache
def honest(restored: bool) -> Certificate:
    return verify(small(restored).network, small(restored).target, "minimal", "spline")


def edited(network: Transformer, layer: int, part: str, name: str, change: Any) -> Transformer:
    """The network with one array of one layer changed in place of a copy."""
    copy = network.map(np.array)
    change(getattr(getattr(copy.layers[layer], part), name))
    return copy


def scale(index: Any, factor: float) -> Any:
    def change(array: np.ndarray) -> None:
        array[index] *= factor
        assert (array[index] != 0).all()

    return change


def put(index: Any, value: float) -> Any:
    def change(array: np.ndarray) -> None:
        array[index] = value

    return change


LINEAR_SABOTAGE = {
    "a head's weight": (1, "attention", "output", scale((0, 4, 0), 1.01)),
    "a decay": (1, "attention", "decay", scale(0, 1.01)),
    "a head reads x0": (1, "attention", "value", put((0, 0, 0), 0.5)),
    "a head writes x0": (1, "attention", "output", put((0, 0, 0), 0.5)),
    "a memory written late": (3, "attention", "output", put((0, 1, 0), 0.25)),
    "a move": (1, "feedforward", "outer", scale((3, 0), 0.99)),
    "a bias": (1, "feedforward", "bias", put(0, 1e-3)),
    "a read-out": (3, "feedforward", "outer", scale((0, 0), 1.01)),
    "a read-out of the carrier": (3, "feedforward", "inner", put((0, 4), 0.5)),
}
RESTORED_SABOTAGE = {
    "a head's weight": (1, "attention", "output", scale((0, 4, 0), 1.5)),
    "a plateau's bias": (1, "feedforward", "bias", scale(1, 0.5)),
    "a plateau's height": (1, "feedforward", "outer", scale((3, 1), 1.01)),
    "a digit's bias": (0, "feedforward", "bias", scale(7, 8.0)),
    "a digit's weight": (0, "feedforward", "outer", scale((6, 7), 0.5)),
    "the table": (-1, "feedforward", "outer", scale((0, 0), 1 + 2.0**-20)),
    "the table's neurons": (-1, "feedforward", "bias", put(0, 0.75)),
    "attention at the end": (-1, "attention", "output", put((0, 2, 0), 0.5)),
}


def caught(network: Transformer, target: FixedMemory, restored: bool) -> bool:
    try:
        found = verify(network, target, "minimal", "spline")
    except LemmaformerError:
        return True
    return found.verdict is Verdict.VIOLATED or found.certified > honest(restored).certified


@pytest.mark.parametrize("name", LINEAR_SABOTAGE)
def test_sabotaged_linear_chains(name: str) -> None:
    built = small(False)
    assert honest(False).verdict is Verdict.HOLDS
    assert caught(edited(built.network, *LINEAR_SABOTAGE[name]), built.target, False)


@pytest.mark.deep(only="a head's weight")
@pytest.mark.parametrize("name", RESTORED_SABOTAGE)
def test_sabotaged_restored_chains(name: str) -> None:
    built = small(True)
    assert honest(True).verdict is Verdict.HOLDS and honest(True).certified == 0
    assert caught(edited(built.network, *RESTORED_SABOTAGE[name]), built.target, True)


def test_digits_that_may_overflow_what_reads_them_are_refused() -> None:
    """A digit is 0 or at least 1, but not anything: neurons of the next layer are checked for values up to a headroom."""
    large = small(True).network.map(np.array)
    large.layers[0].feedforward.inner[7] *= 2.0**60
    large.layers[0].feedforward.bias[7] *= 2.0**60
    with pytest.raises(StrangeWeights, match="digit"):
        verify(large, small(True).target, "minimal", "spline")


def test_tokens_that_are_flushed_are_counted() -> None:
    """The executor may flush a subnormal token to zero: the source of the first layer is off by that much, and not by nothing."""
    chain = small(False)
    moved = embedded(chain.network, Layout(chain.target), arb(1)).moved
    assert 2.0**-1022 <= float(moved) < 1e-300
    assert embedded(chain.network.map(to_exact), Layout(chain.target), arb(1)).moved == 0


def with_neurons(network: Transformer, layer: int, *neurons: tuple[dict[int, float], float, dict[int, float]]) -> Transformer:
    """The network with neurons (what they read, bias, what they write) added to one layer."""
    ffn = network.layers[layer].feedforward
    inner, bias, outer = (np.array(a) for a in (ffn.inner, ffn.bias, ffn.outer))
    for reads, b, writes in neurons:
        row, column = np.zeros((1, inner.shape[1]), inner.dtype), np.zeros((outer.shape[0], 1), outer.dtype)
        for i, w in reads.items():
            row[0, i] = w
        for j, a in writes.items():
            column[j, 0] = a
        inner, outer = np.concatenate([inner, row]), np.concatenate([outer, column], axis=1)
        bias = np.append(bias, np.asarray(b, bias.dtype))
    layers = list(network.layers)
    layers[layer] = replace(layers[layer], feedforward=FeedForward(inner, bias, outer))
    return replace(network, layers=tuple(layers))


def test_what_cancels_on_paper_only_is_refused() -> None:
    """relu(±x0) with opposite weights, and pairs of constants, are 0 in real numbers and anything in floats."""
    linear, restored = small(False), small(True)
    cancelling = [({0: 1.0}, 0.0, {3: 1e10}), ({0: 1.0}, 0.0, {3: -1e10})]
    with pytest.raises(InputError, match="twice"):
        verify(with_neurons(linear.network, 1, *cancelling), linear.target, "minimal", "spline")
    constants = [({}, 1.0, {3: 3e7}), ({}, 1.0, {3: -3e7})]
    with pytest.raises(InputError, match="several constants"):
        verify(with_neurons(restored.network, 1, *constants), restored.target, "minimal", "spline")


def test_what_nothing_reads_must_still_be_harmless() -> None:
    """A neuron of weight 0 that overflows gives inf·0, and so does attention of another kind in the silent last layer."""
    built = small(True)
    with pytest.raises(InputError, match="overflow"):
        verify(with_neurons(built.network, 1, ({0: 3e38}, 0.0, {})), built.target, "minimal", "spline")
    last = built.network.layers[-1]
    loud = replace(last, attention=replace(last.attention, kind="tmx", pointer=np.full(last.attention.value.shape[::2], 5.3, "float32")))
    with pytest.raises(InputError, match="attention is tmx"):
        verify(replace(built.network, layers=(*built.network.layers[:-1], loud)), built.target, "minimal", "spline")


def test_memories_are_not_written_before_they_are_delivered() -> None:
    """A bump of the carrier that is the same at both ends of the alphabet would be forgotten by the next layer."""
    built = small(True)
    bump = [({4: 1.0}, 0.25, {2: 1.0}), ({4: 1.0}, 0.0, {2: -2.0}), ({4: 1.0}, -0.25, {2: 1.0})]
    with pytest.raises(InputError, match=r"before it holds a memory|not overwritten|written after"):
        verify(with_neurons(built.network, 0, *bump), built.target, "minimal", "spline")


@pytest.mark.parametrize("restored", [False, True])
def test_rounded_read_outs_are_refused(restored: bool) -> None:
    built = small(restored)
    last = built.network.layers[-1]
    rounded = replace(last, feedforward=replace(last.feedforward, precision=("integer",)))
    with pytest.raises(InputError, match="rounding"):
        verify(replace(built.network, layers=(*built.network.layers[:-1], rounded)), built.target, "minimal", "spline")


@pytest.mark.deep
def test_embeddings_do_not_mix_coordinates() -> None:
    built = build(FixedMemory((2,), dim=2, formula="m1[0] + m1[1]"), dtype="float64", error=1e-2, depth=2)
    assert verify(built.network, built.target, "minimal", "spline").verdict is Verdict.HOLDS
    embedding = np.array(built.network.embedding)
    embedding[2, 1] = 0.02
    with pytest.raises(InputError, match="mixes coordinates"):
        verify(replace(built.network, embedding=embedding), built.target, "minimal", "spline")


@pytest.mark.deep
@pytest.mark.parametrize(
    "letters,dtype,bank",
    [((fmpq(-1, 2), fmpq(1, 4), fmpq(1)), "float64", "minimal"), ((fmpq(-1), fmpq(-1, 2), fmpq(1, 16)), "float32", "balanced")],
)
def test_planned_restorations_are_certified(letters: tuple[fmpq, ...], dtype: str, bank: str) -> None:
    built = build(FixedMemory((24,), alphabet=letters), bank=bank, dtype=dtype)
    assert verify(built.network, built.target, bank, "spline").verdict is Verdict.HOLDS


@pytest.mark.deep
@pytest.mark.parametrize("restored", [False, True])
def test_swapped_and_missing_layers(restored: bool) -> None:
    built = small(restored)
    layers = built.network.layers
    for changed in ((layers[1], layers[0], *layers[2:]), layers[1:], (layers[0], *layers), (*layers[:-2], layers[-1])):
        assert caught(replace(built.network, layers=changed), built.target, restored)
    embedding = np.array(built.network.embedding)
    embedding[3, 0] += 0.25
    assert caught(replace(built.network, embedding=embedding), built.target, restored)
    other = replace(built.target, lags=(3, 9))
    assert caught(built.network, other, restored)


@pytest.mark.deep
def test_refusals() -> None:
    with pytest.raises(Refusal, match=r"3 layers are too few for lag 60 in float32.*try depth='auto', or depth="):
        build(FixedMemory((60,)), depth=3, dtype="float32")
    with pytest.raises(Refusal, match=r"float32 cannot hold lag 40 .* a shift by 1 costs .*try bank='balanced'"):
        build(FixedMemory((40,)), dtype="float32", error=1e-2)
    with pytest.raises(Refusal, match="L·H ≥ T"):
        build(FixedMemory((40,)), depth=4, heads=9)
    with pytest.raises(Refusal, match="table of at most"):
        build(FixedMemory(tuple(range(1, 7)), formula="m1*m2*m3*m4*m5*m6", alphabet=(-1, 0, 0.5, 1)))
    assert least_budget(fmpq(1, 2**24), 1) == 2.0**-23 and least_budget(fmpq(1, 2**24), 40) == 1


def test_read_outs_keep_their_width() -> None:
    """The blocks beyond the memories are not read by the last feed-forward network."""
    built = small(False)
    final = built.network.layers[-1].feedforward
    assert (to_exact(final.inner)[:, 3:] == 0).all() and as_network(_identity_readout()).inner.shape == (2, 2)
