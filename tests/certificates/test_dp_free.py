"""The worst-case error of arbitrary dp-free layers: no counterexample, sharp where it can be, moved by sabotage."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq, fmpq_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import zeta

from analyzer.errors import InputError, Refusal
from analyzer.numbers import curves
from analyzer.numbers.curves import bends_of, curve
from analyzer.numbers.exact import nearest, rational
from analyzer.numbers.profiles import FUNCTIONS, Ridge
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, to_exact, to_float, zeros
from constructions.run import fast, reference
from constructions.run.fused import fuse
from constructions.theorems.thm_3_1 import build
from constructions.theorems.thm_5_1 import build as build_kernel
from tests.conftest import random_network
from tests.depth import examples
from verify.layers import cells, confinement, dp_free
from verify.layers.cells import Cover
from verify.layers.decomposition import ErrorDecomposition
from verify.layers.dp_free import LayerError, layer_error
from verify.layers.witness import WitnessSearch
from verify.theorems.thm_3_1 import verify
from verify.theorems.thm_5_1 import verify as verify_kernel

LENGTH = 160
LONG = 700
"""Tokens after which the heads and kernels of linear networks hold nothing that counts."""
KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp(-s/3)": lambda s: np.exp(-s / 3),
    "(s+1)**-3": lambda s: (s + 1.0) ** -3,
    "cos(s)*exp(-s/2)": lambda s: np.cos(s) * np.exp(-s / 2),
}
TARGETS: list[FixedMemory | KernelMemory] = [
    FixedMemory((1, 3), 1, "x0*m1 + relu(m2 - 0.2)"),
    FixedMemory((2,)),
    FixedMemory((1, 2), 1, "abs(x0 - m1) + tanh(2*m2) - 0.3"),
    FixedMemory((2,), 2, "x0[0]*m1[1] - m1[0]**3"),
    FixedMemory((140,), 1, "exp(m1/2) - sin(x0 + 0.3)"),
    KernelMemory(("exp(-s/3)",), 1, "k1*x0"),
    KernelMemory(("(s+1)**-3", "cos(s)*exp(-s/2)"), 1, "relu(k1 + k2) + k1**2"),
    KernelMemory(("exp(-s/3)",), 2, "k1[0] - 0.5*k1[1]"),
]


@pytest.fixture(autouse=True)
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates of a second: any amount of work is sound."""
    monkeypatch.setattr(cells, "WORK", 1 << 28)


def wanted(target: FixedMemory | KernelMemory, recent: np.ndarray) -> np.ndarray:
    """f in float64 for tokens (batch, N, d), the current one first."""
    if isinstance(target, FixedMemory):
        slots = [recent[:, lag] for lag in (0, *target.lags)]
    else:
        ages = np.arange(recent.shape[1])
        slots = [recent[:, 0], *(np.einsum("s,bsd->bd", KERNELS[text](ages), recent) for text in target.kernels)]
    memories = np.concatenate(slots, axis=1)
    readout = target.readout
    value = memories @ np.array([nearest(w) for w in readout.affine]) + nearest(readout.constant)
    functions = {"relu": lambda v: np.maximum(v, 0), "abs": np.abs, "exp": np.exp, "sin": np.sin, "cos": np.cos, "tanh": np.tanh}
    for ridge in readout.ridges:
        v = memories @ np.array([nearest(w) for w in ridge.direction]) + nearest(ridge.offset)
        value = value + nearest(ridge.scale) * (v**ridge.profile.degree if ridge.profile.degree else functions[ridge.profile.name](v))
    return value


def outputs(network: Transformer, recent: np.ndarray) -> np.ndarray:
    """The network in float64 from its definition, for tokens (batch, N, d), the current one first, zeros before them."""
    attention, ffn = network.layers[0].attention, network.layers[0].feedforward
    arrays = (attention.decay, attention.value, attention.output, network.embedding, network.bias, ffn.inner, ffn.bias, ffn.outer)
    decay, value, output, embedding, bias, inner, shift, outer = (to_float(to_exact(a), "float64") for a in arrays)
    ages = np.arange(recent.shape[1])
    stream = recent[:, 0] @ embedding.T + bias
    for h, (p, kind, v, o) in enumerate(zip(decay, attention.rpe, value, output, strict=True)):
        if kind == "table":
            biases = np.exp(to_float(to_exact(attention.table[h]), "float64"))
            kernel = np.concatenate([biases / biases.sum(), np.zeros(len(ages))])[: len(ages)]
        elif kind == "lin":
            kernel = np.exp(-p * ages) * (1 - math.exp(-p))
        else:
            kernel = np.concatenate([[0.0], ages[1:] ** -p]) / zeta(p)
        stream = stream + (np.einsum("s,bsd->bd", kernel, recent) @ embedding.T + bias) @ (o @ v).T
    return np.maximum(stream @ inner.T + shift, 0) @ outer[0]


def seen(network: Transformer, target: FixedMemory | KernelMemory, recent: np.ndarray) -> np.ndarray:
    return np.abs(outputs(network, recent) - wanted(target, recent))


def attacked(network: Transformer, target: FixedMemory | KernelMemory, rng: np.random.Generator) -> float:
    """The largest error over random sequences, and after flips of single tokens of the worst ones."""
    shape = (200, LENGTH, target.dim)
    sequences = np.concatenate(
        [rng.choice([-1.0, 1.0], shape), rng.uniform(-1, 1, shape), np.ones((1, *shape[1:])), np.zeros((1, *shape[1:]))]
    )
    errors = seen(network, target, sequences)
    for x in sequences[np.argsort(-errors)[:4]]:
        x = x.copy()
        for s, i in [(s, i) for s in (*range(12), *target.places) for i in range(target.dim)]:
            trials = np.repeat(x[None], 5, axis=0)
            trials[:, s, i] = (x[s, i], -1, 1, 0, -x[s, i])
            x = trials[seen(network, target, trials).argmax()]
        errors = np.append(errors, seen(network, target, x[None]))
    return float(errors.max())


def holds(result: LayerError, error: float) -> bool:
    """`error` is measured in float64."""
    return 0 <= result.witness <= result.certified and error <= result.certified * (1 + 1e-9) + 1e-9


@st.composite
def problems(draw: st.DrawFn) -> tuple[Transformer, FixedMemory | KernelMemory, int]:
    target = draw(st.sampled_from(TARGETS))
    seed = draw(st.integers(0, 2**32 - 1))
    rpe = draw(st.sampled_from([["lin", "lin", "lin"], ["log", "log"], ["lin", "log"], ["table", "table"]]))
    dtype = draw(st.sampled_from(["exact", "exact", "exact", "float32", "float64"]))
    rng = np.random.default_rng(seed)
    width, neurons = draw(st.sampled_from([(1, 3), (3, 8), (6, 20)])) if dtype == "exact" else (3, 8)
    network = random_network(
        rng, rpe, width=width, dim=target.dim, neurons=neurons, dtype="float64" if dtype == "exact" else dtype, bias=dtype == "exact"
    )
    fast_heads = dtype != "exact" or draw(st.booleans())  # log heads with a few taps
    decay = network.layers[0].attention.decay
    decay += (np.array(rpe) == "log").astype(decay.dtype) * (8 if fast_heads else 0)
    return (network.map(to_exact) if dtype == "exact" else network), target, seed


@given(problems())
@settings(max_examples=examples(40), deadline=None)
def test_no_counterexample(problem: tuple[Transformer, FixedMemory | KernelMemory, int]) -> None:
    """Random weights of all kinds against random and adversarial sequences, with few cells and without."""
    network, target, seed = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "WORK", 1 << 26 if seed % 2 else 0)
        patch.setattr(confinement, "MAX_COMMON", (12, 1, 0)[seed % 3])
        result = layer_error(network, target, seed=seed)
    assert holds(result, attacked(network, target, np.random.default_rng(seed))), result
    assert result.arithmetic == network.dtype and result.rounding is not None
    assert (result.rounding > 0) == (network.dtype != "exact")


@pytest.mark.deep(keep="float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_runs_stay_below_their_certificate(dtype: str) -> None:
    """Thousands of inputs through both executors in real arithmetic."""
    target = FixedMemory((1, 3), 1, "x0*m1 + relu(m2 - 0.2)")
    network = random_network(np.random.default_rng(5), ["lin", "lin", "lin"], dim=1, width=3, neurons=8, dtype=dtype, bias=False)
    result = layer_error(network, target)
    rng = np.random.default_rng(0)
    tokens = np.concatenate([rng.choice([-1.0, 1.0], (2000, 40, 1)), rng.uniform(-1, 1, (2000, 40, 1))]).astype(np.float32)
    for executor in (fast.forward, reference.forward):
        error = np.abs(executor(network, tokens)[:, -1].astype(float) - wanted(target, tokens[:, ::-1].astype(float)))
        assert error.max() <= result.certified
    assert result.witness >= 0.94 * result.certified and result.rounding is not None and 0 < result.rounding < 1e-3


def test_rounding_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-out that rounds by 1 and a stream that rounds by 1 in its second coordinate, whose slope in relu(head) is 1."""
    network, target = one_head("lin", fmpq(1, 2)).map(lambda weights: to_float(weights, "float64")), FixedMemory((1,))
    before = layer_error(network, target)
    monkeypatch.setattr(dp_free, "evaluation_error", lambda *_: (arb(1), [arb(0), arb(1)]))
    after = layer_error(network, target)
    assert after.rounding == 2 and after.certified == pytest.approx(before.certified + 2, abs=1e-6)


def linear_network(rng: np.random.Generator, rpe: list[str], dim: int, width: int = 4) -> Transformer:
    """Neurons in pairs a (relu(w·u + c) − relu(−w·u − c)), scaled differently, and a constant one."""
    network = random_network(rng, rpe, dim=dim, width=width, neurons=3).map(to_exact)
    layer = network.layers[0]
    ffn, two = layer.feedforward, fmpq(2)
    paired = replace(
        ffn,
        inner=np.concatenate([ffn.inner, -ffn.inner * two, ffn.inner[:1] * fmpq(0)]),
        bias=np.concatenate([ffn.bias, -ffn.bias * two, [fmpq(1)]]),
        outer=np.concatenate([ffn.outer, -ffn.outer / two, [[fmpq(1, 3)]]], axis=1),
    )
    return replace(network, layers=(replace(layer, feedforward=paired),))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rpe", [["lin", "lin", "lin"], ["log", "log"], ["lin", "log"], ["table", "table"]])
@pytest.mark.parametrize("target", [FixedMemory((2, 5), 1, "m1 - 2*m2 + 0.25"), FixedMemory((3,), 2), KernelMemory(("exp(-s/3)",), 1)])
def test_linear_networks_are_certified_exactly(target: FixedMemory | KernelMemory, rpe: list[str], seed: int) -> None:
    """certified is |constant| + ‖κ‖₁, summed here from the definition."""
    network = linear_network(np.random.default_rng(seed), rpe, target.dim)
    decay = network.layers[0].attention.decay
    decay += np.array([fmpq(3) if kind == "log" else fmpq(0) for kind in rpe], dtype=object)  # the rest beyond LONG below 1e-9
    result = layer_error(network, target)
    basis = np.zeros((LONG * target.dim + 1, LONG, target.dim))
    basis[1:].reshape(-1, LONG * target.dim)[:] = np.eye(LONG * target.dim)
    answers = outputs(network, basis) - wanted(target, basis)
    expected = abs(answers[0]) + np.abs(answers[1:] - answers[0]).sum()
    assert result.certified == pytest.approx(expected, rel=1e-6)
    assert result.cells == 1 and result.rounding == 0 and result.witness >= (1 - 1e-3) * result.certified


@pytest.mark.deep(only=("lags4-tanh(m1)-options4", "lags6-m1*x0 + relu(2*m1 - 0.25)-options6"))
@pytest.mark.parametrize(
    "lags,formula,options",
    [
        ((4,), None, {"error": 1e-2}),
        ((2, 5), "m1 - m2", {"error": 1e-1, "rpe": "log"}),
        ((2, 5), "x0*m1", {"error": 1e-2}),
        ((2,), "tanh(m1)", {"error": 1e-3}),
        ((2,), "tanh(m1)", {"error": 0.1, "dtype": "float64"}),
        ((1, 2), "abs(x0 - m1) + m2", {"error": 0.05}),
        ((3,), "m1*x0 + relu(2*m1 - 0.25)", {"rpe": "log", "dtype": "float32", "error": 3.0, "width": 15}),
        ((1,), "0.5*m1*m1", {"error": 0.1, "ffn": "barron", "width": 24}),
    ],
)
def test_constructed_networks_agree_with_their_theorem(lags: tuple[int, ...], formula: str | None, options: dict[str, Any]) -> None:
    """Above the theorem's witness, and not above its certificate but for rounding, which passes through the network's slopes."""
    target = FixedMemory(lags, 1, formula)
    built = build(target, **options)
    theirs, mine = verify(built.network, target, built.bank, built.ffn), layer_error(built.network, target)
    assert mine.rounding is not None
    assert theirs.witness <= mine.certified <= 1.1 * theirs.certified and mine.witness <= theirs.certified
    assert mine.witness >= 0.9 * (mine.certified - mine.rounding)


@pytest.mark.deep
def test_kernel_memories_agree_with_their_theorem() -> None:
    target = KernelMemory(("exp(-s/3) + (s+1)**-3",), 1, "k1*x0")
    built = build_kernel(target, heads=6)
    theirs, mine = verify_kernel(built.network, target, built.bank, built.ffn), layer_error(built.network, target)
    assert theirs.witness <= mine.certified <= 1.05 * theirs.certified and mine.witness <= theirs.certified
    assert mine.witness >= 0.5 * mine.certified


def in_basis(network: Transformer, basis: fmpq_mat) -> Transformer:
    """The same function with its residual stream in another basis."""
    there = exact_array(basis.table())
    back = exact_array(basis.inv().table())
    layer = network.layers[0]
    attention = replace(
        layer.attention,
        value=np.array([v @ back for v in layer.attention.value]),
        output=np.array([there @ o for o in layer.attention.output]),
        query=np.zeros((len(layer.attention.rpe), 0, len(there)), dtype=object),
        key=np.zeros((len(layer.attention.rpe), 0, len(there)), dtype=object),
    )
    ffn = replace(layer.feedforward, inner=layer.feedforward.inner @ back)
    return Transformer(there @ network.embedding, there @ network.bias, (replace(layer, attention=attention, feedforward=ffn),))


@pytest.mark.parametrize("formula", [None, "x0*m1 + m2"])
def test_the_basis_of_the_stream_does_not_matter(formula: str | None) -> None:
    """A constructed network whose slots are mixed up: the theorem's certificate cannot read it, this one sees no difference."""
    target = FixedMemory((1, 3), 1, formula)
    built = build(target, error=1e-2)
    mixed = in_basis(built.network, fmpq_mat(3, 3, [2, 1, -1, 0, 1, 3, 1, 0, fmpq(1, 2)]))
    before, after = layer_error(built.network, target), layer_error(mixed, target)
    assert after.certified == pytest.approx(before.certified, rel=1e-3) and after.certified < 0.1
    assert after.witness == pytest.approx(before.witness, rel=1e-2)


@pytest.mark.parametrize("what", ["decay", "value", "output", "embedding", "inner", "bias", "outer"])
def test_sabotage_moves_the_certificate(what: str) -> None:
    """One weight of an accurate network changed: certified rises above the error that is really there."""
    target = FixedMemory((2,), 1, "abs(x0 + m1)")
    network = build(target, error=1e-2).network
    honest = layer_error(network, target)
    assert honest.certified <= 2e-2
    layer = network.layers[0]
    attention, ffn, embedding = layer.attention, layer.feedforward, network.embedding
    changed = {"decay": attention.decay, "value": attention.value, "output": attention.output, "embedding": embedding}
    changed |= {"inner": ffn.inner, "bias": ffn.bias, "outer": ffn.outer}
    array = changed[what].copy()
    place = max(np.ndindex(array.shape), key=lambda index: abs(array[index]))
    array[place] += fmpq(1, 4)
    if what in ("decay", "value", "output"):
        network = replace(network, layers=(replace(layer, attention=replace(attention, **{what: array})),))
    elif what == "embedding":
        network = replace(network, embedding=array)
    else:
        network = replace(network, layers=(replace(layer, feedforward=replace(ffn, **{what: array})),))
    spoilt = layer_error(network, target)
    assert holds(spoilt, attacked(network, target, np.random.default_rng(0)))
    assert spoilt.witness > 1.5 * honest.certified


def fitted_network(target: FixedMemory, neurons: int) -> Transformer:
    """Heads of the construction; random neurons whose outer weights are fitted by least squares, as training would."""
    rng = np.random.default_rng(0)
    network = build(target, error=1e-2).network
    inner, bias = rng.standard_normal((neurons, 2)), rng.uniform(-1, 1, neurons)
    memories = rng.uniform(-1, 1, (2000, 2))
    outer = np.linalg.lstsq(np.maximum(memories @ inner.T + bias, 0), wanted(target, memories[:, :, None]), rcond=None)[0]
    layer = network.layers[0]
    ffn = replace(layer.feedforward, inner=to_exact(inner), bias=to_exact(bias), outer=to_exact(outer[None]))
    return replace(network, layers=(replace(layer, feedforward=ffn),))


def test_cells_sharpen_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fitted read-out whose neurons cancel: uncut far from its witness, cut within CLOSE of it."""
    target = FixedMemory((1,), 1, "x0*m1")
    network = fitted_network(target, 24)
    sharp = layer_error(network, target)
    monkeypatch.setattr(cells, "WORK", 0)
    crude = layer_error(network, target)
    assert crude.cells == 2 < sharp.cells and sharp.certified < 0.5 * crude.certified
    assert holds(sharp, attacked(network, target, np.random.default_rng(0)))
    assert cells.CLOSE * (1 + 1e-9) * sharp.witness >= sharp.certified


@pytest.mark.deep(keep="kernels")
@pytest.mark.parametrize("case", ["pointwise", "kernels", "paired"])
def test_every_cell_bounds_the_errors_inside_it(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of each sign cover all sequences; those in a cell keep to its ranges and to its bound."""
    monkeypatch.setattr(cells, "CLOSE", 1.0)
    monkeypatch.setattr(confinement, "MAX_COMMON", 1)
    target = {"pointwise": TARGETS[0], "kernels": TARGETS[6], "paired": FixedMemory((2,), 1, "tanh(m1)")}[case]
    rng = np.random.default_rng(3)
    random = random_network(rng, ["lin", "log"], width=3, dim=1, neurons=8).map(to_exact)
    network = build(target, error=1e-2).network if case == "paired" else random
    problem = ErrorDecomposition(network, target, fuse(network))
    search = WitnessSearch(problem, 0)
    cover = Cover(problem, search)
    assert cover.count > 100 and (cover.terms.mean_values or case != "paired")
    functionals = [*problem.kernels.memories, *cover.terms.functionals]
    table, known = problem.kernels.table(functionals).window, cover.confinement
    shape = (300, table.shape[1])
    sequences = np.concatenate([rng.choice([-1.0, 1.0], shape), rng.uniform(-1, 1, shape), cover.maximisers()])
    memories, terms = np.split(sequences @ table.T, [len(problem.kernels.memories)], axis=1)
    common = sequences @ known.table.window[known.terms + 1 :].T
    places, room = np.concatenate([memories, common, terms], axis=1), 1e-12 * known.box
    low, high, side, value = (getattr(cover.cells, name)[: cover.count] for name in ("low", "high", "side", "value"))
    ranges, beside = known.ranges(low, high), 1e-12 * cover.terms.reaches
    for place, error in zip(places, search.error(sequences), strict=True):
        inside, own = ((low - room <= place) & (place <= high + room)).all(axis=1), place[-known.terms :]
        assert (ranges.left[inside] - beside <= own).all() and (own <= ranges.right[inside] + beside).all()
        for sign in (1, -1):
            assert sign * error <= value[inside & (side == sign)].min(initial=math.inf) < math.inf


def test_slow_log_heads_are_certified_without_rounding() -> None:
    network = random_network(np.random.default_rng(1), ["log", "lin"], dim=1, dtype="float32", bias=False)
    target = FixedMemory((1,), 1, "relu(m1)")
    result = layer_error(network, target)
    assert result.arithmetic == "exact weights; rounding not counted" and result.rounding is None
    assert holds(result, attacked(network, target, np.random.default_rng(0)))
    assert result == replace(
        layer_error(network.map(to_exact), target), arithmetic=result.arithmetic, rounding=None, seconds=result.seconds
    )


def one_head(kind: str, decay: fmpq) -> Transformer:
    """relu of one head alone."""
    one, nothing = exact_array([[[1, 0]]]), exact_array([[[0], [1]]])
    attention = Attention(exact_array([decay]), one, nothing, zeros(1, 0, 2), zeros(1, 0, 2), zeros(0, 2), (kind,))
    return Transformer(
        exact_array([[1], [0]]), zeros(2), (Layer(attention, FeedForward(exact_array([[0, 1]]), zeros(1), exact_array([[1]]))),)
    )


@pytest.mark.deep(keep="0-lin-decay2")
@pytest.mark.parametrize("kind,decay", [("lin", fmpq(1, 8192)), ("log", fmpq(21, 20)), ("lin", fmpq(1, 100))])
@pytest.mark.parametrize("common", [0, 12])
def test_what_lies_beyond_the_window_counts(kind: str, decay: fmpq, common: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """relu(head) against m1: the worst past is 1 but for the lag, over more tokens than anyone sums; the error is 2 − 2k(1)."""
    monkeypatch.setattr(confinement, "MAX_COMMON", common)
    p = nearest(decay)
    at_lag = math.exp(-p) * -math.expm1(-p) if kind == "lin" else 1 / zeta(p)
    result = layer_error(one_head(kind, decay), FixedMemory((1,)))
    assert 2 - 2 * at_lag <= result.certified * (1 + 1e-12) and result.certified <= (2 - 2 * at_lag) * 1.02


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_ridges_between_their_nodes(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few nodes the bends carry the bound: −E is 2 cos(3·0) + 1 + 3 where the head is below 0."""
    monkeypatch.setattr(curves, "GRID", pieces)
    monkeypatch.setattr(cells, "WORK", 1 << 24)
    network = one_head("lin", fmpq(1, 2))
    result = layer_error(network, FixedMemory((1,), 1, "2*cos(3*m1) - x0 + 3"))
    assert result.certified >= 6 and result.witness <= result.certified


@pytest.mark.deep
def test_what_a_memory_holds_beyond_the_window_counts() -> None:
    """relu(head) against relu(k1) with a slow kernel: k1 can be ζ(1.2), almost half of it beyond the window, while the head is 0."""
    result = layer_error(one_head("log", fmpq(6, 5)), KernelMemory(("2*(s+1)**-1.2",), 1, "relu(k1 + 0.1*x0)"))
    least = 2 * zeta(1.2) + 0.1 - 1
    assert least <= result.certified <= 1.2 * (least + 1)


@pytest.mark.deep(keep=("rpe0-9-target1", "rpe3-5-target2", "rpe4-20-target2"))
@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[3], TARGETS[6]])
@pytest.mark.parametrize(
    "rpe,length", [(["lin", "lin"], 9), (["log", "lin"], 9), (["log", "none"], 140), (["table"] * 2, 5), (["table"] * 2, 20)]
)
def test_finite_windows(rpe: list[str], length: int, target: FixedMemory | KernelMemory) -> None:
    """The reference pass on arrays of that length, among them log heads that no infinite window could hold, and a bias."""
    rng = np.random.default_rng(length)
    network = random_network(rng, rpe, window="finite", dim=target.dim)
    network.layers[0].attention.decay[:] = np.where(np.isin(rpe, ["none", "table"]), 0.0, 0.5)
    result = layer_error(network, target, length=length)
    recent = rng.choice([-1.0, 1.0, 0.3], (1000, length, target.dim))
    error = np.abs(reference.forward(network, recent[:, ::-1])[:, -1] - wanted(target, recent))
    assert holds(result, float(error.max()))
    assert result.rounding is None and result.witness >= 0.9 * result.certified


def test_finite_linear_networks_are_certified_exactly() -> None:
    target, length = KernelMemory(("exp(-s/3)",), 1), 12
    infinite = linear_network(np.random.default_rng(0), ["lin", "log"], 1)
    layer = infinite.layers[0]
    network = replace(infinite, layers=(replace(layer, attention=replace(layer.attention, window="finite")),))
    basis = np.concatenate([np.zeros((1, length)), np.eye(length)])[:, :, None]
    floats = network.map(lambda weights: to_float(weights, "float64"))
    answers = reference.forward(floats, basis[:, ::-1])[:, -1] - wanted(target, basis)
    expected = abs(answers[0]) + np.abs(answers[1:] - answers[0]).sum()
    result = layer_error(network, target, length=length)
    assert result.certified == pytest.approx(expected, rel=1e-9) == result.witness


@pytest.mark.parametrize("formula,expected", [("x0*m1", 1), ("relu(x0) + 3", 4), ("m1 + 3", 4)])
def test_a_network_of_zeros(formula: str, expected: float) -> None:
    """No neuron is left: the error is the largest |f|."""
    zero = one_head("lin", fmpq(1, 2)).map(lambda weights: weights * fmpq(0))
    layer = zero.layers[0]
    network = replace(zero, layers=(replace(layer, attention=replace(layer.attention, decay=exact_array([1]))),))
    result = layer_error(network, FixedMemory((3000,), 1, formula))
    assert expected <= result.certified * (1 + 1e-12) and result.certified <= 1.05 * expected and result.witness >= 0.95 * expected


def test_the_same_seed_gives_the_same_result() -> None:
    network = random_network(np.random.default_rng(2), ["lin", "log"], dim=1).map(to_exact)
    first, second = (layer_error(network, FixedMemory((2,), 1, "m1*x0"), seed=4) for _ in range(2))
    assert first == replace(second, seconds=first.seconds)


def refused(network: Transformer, target: Any, error: type[Exception], match: str, length: int | None = None) -> None:
    with pytest.raises(error, match=match) as caught:
        layer_error(network, target, length=length)
    assert "\n" not in str(caught.value)


def test_refusals() -> None:
    rng, target = np.random.default_rng(0), FixedMemory((2,))
    refused(random_network(rng, ["lin"], "dp", dim=1), target, Refusal, "attention is dp;")
    refused(random_network(rng, ["lin"], dim=1, layers=2), target, Refusal, "has 2 layers")
    refused(random_network(rng, ["lin"], dim=2), target, InputError, "tokens of dimension 2, the target has dimension 1")
    refused(random_network(rng, ["lin"], dim=1), target, InputError, "embedding bias")
    broken = random_network(rng, ["lin"], dim=1, bias=False)
    broken.layers[0].feedforward.inner[0, 0] = np.nan
    refused(broken, target, InputError, "not a finite number")
    stuck = random_network(rng, ["lin"], dim=1, bias=False)
    stuck.layers[0].attention.decay[0] = 0
    refused(stuck, target, InputError, "a lin head has decay 0")
    far = random_network(rng, ["lin"], dim=1, bias=False)
    refused(far, FixedMemory((10**6,)), Refusal, "lag 1000000 is not certified")
    layer = far.layers[0]
    rounded = replace(far, layers=(replace(layer, feedforward=replace(layer.feedforward, precision=("integer",))),))
    refused(rounded, target, Refusal, "rounded")
    finite = random_network(rng, ["lin"], window="finite", dim=1, bias=False)
    refused(finite, target, Refusal, "window is finite; give the length")
    refused(finite, target, Refusal, "arrays of 2 tokens", length=2)
    refused(far, target, Refusal, "window is infinite", length=20)
    refused(random_network(rng, ["lin"], window="full", dim=1), target, Refusal, "window is full")


RATIONALS = st.integers(-12, 12).map(lambda n: fmpq(n, 4))


@given(st.lists(st.tuples(st.tuples(RATIONALS, RATIONALS), RATIONALS, RATIONALS), min_size=1, max_size=9), st.tuples(RATIONALS, RATIONALS))
@settings(max_examples=examples(100), deadline=None)
def test_neurons_by_direction(neurons: Sequence[Any], offset: tuple[fmpq, fmpq]) -> None:
    """Groups add up to the neurons, on the line and on a range, and their Lipschitz constants hold."""
    rows, bias, outer = zip(*neurons, strict=True)
    groups, constant = bends_of(rows, bias, outer, offset)
    for u in ((fmpq(1, 3), fmpq(-2)), (fmpq(0), fmpq(5, 7)), offset):
        expected = sum((a * max(r[0] * u[0] + r[1] * u[1] + c, fmpq(0)) for r, c, a in neurons), fmpq(0))
        found, inside = constant, constant
        for group in groups:
            v = sum((w * (x - o) for w, x, o in zip(group.direction, u, offset, strict=True)), fmpq(0))
            found += group(v)
            inside += group.on(abs(v) + fmpq(1, 9))(v)
            assert abs(group(v + 3) - group(v)) <= 3 * group.lipschitz
        assert found == expected == inside


@pytest.mark.parametrize("name", ["tanh", "exp", "sin", "relu", "abs"])
def test_curves_enclose_the_function(name: str) -> None:
    """Random points between the nodes, against the exact values."""
    groups, _ = bends_of(
        [(fmpq(1),), (fmpq(-1),), (fmpq(1),)], [fmpq(1, 3), fmpq(1, 7), fmpq(-1, 2)], [fmpq(2), fmpq(-1), fmpq(1)], (fmpq(0),)
    )
    ridge = Ridge(FUNCTIONS[name], fmpq(3, 2), (fmpq(-2),), fmpq(1, 5))
    found = curve(groups[0], [ridge], 1.5)
    for v in np.random.default_rng(0).uniform(-1.5, 1.5, 400).tolist():
        exact = nearest(groups[0](rational(v))) - 1.5 * float(ridge.profile.value(arb(-2 * rational(v) + fmpq(1, 5))))
        piece = np.searchsorted(found.nodes, v) - 1
        chord, slack = float(found(np.array(v))), found.slack + 1e-12
        assert chord - found.below[piece] - slack <= exact <= chord + found.above[piece] + slack
    assert max(found.below.max(), found.above.max()) <= (2e-2 if name in ("tanh", "exp", "sin") else 0)


def two_coordinates(inner: Any, bias: Any, outer: Any, gain: fmpq | int = 1, decay: fmpq | int = 1, kind: str = "lin") -> Transformer:
    """The current token and one head in the stream, these neurons on it."""
    attention = Attention(
        exact_array([decay]), exact_array([[[1, 0]]]), exact_array([[[0], [gain]]]), zeros(1, 0, 2), zeros(1, 0, 2), zeros(0, 2), (kind,)
    )
    return Transformer(
        exact_array([[1], [0]]), zeros(2), (Layer(attention, FeedForward(exact_array(inner), exact_array(bias), exact_array([outer]))),)
    )


@pytest.mark.parametrize("seed", [28, 33])
def test_numbers_below_the_normal_floats_are_certified(seed: int) -> None:
    """Slopes of neurons that are rounded to multiples of 2^−1074, on a range of 10⁹ to 10¹¹."""
    rng = np.random.default_rng(0)
    for _ in range(seed + 1):
        scale, gain = fmpq(1, 10) ** int(rng.integers(308, 324)), fmpq(10) ** int(rng.integers(0, 12))
        inner, bias, outer = to_exact(rng.standard_normal((6, 2))), to_exact(rng.standard_normal(6)), to_exact(rng.standard_normal(6))
    result = layer_error(two_coordinates(inner, bias, outer * scale, gain), FixedMemory((1,), 1, "1e-99*1e-99*1e-99*1e-30*m1"))
    assert 0 < result.witness <= result.certified < 1e-300


def test_kinks_beside_each_other_cost_nothing() -> None:
    """Kinks at 0 and 10⁻³⁰: the slope between them would be rounding over 10⁻³⁰."""
    target, tiny = FixedMemory((1,), 1, "relu(m1)"), fmpq(1, 10) ** 30
    apart, together = (layer_error(two_coordinates([[0, 1]] * 3, [0, c, fmpq(1, 3)], [1, 1, 3]), target).certified for c in (tiny, fmpq(0)))
    assert apart == pytest.approx(together, rel=1e-6)
    nodes = curve(bends_of([(fmpq(1),)] * 3, [-fmpq(1), -1 - tiny, -1 + tiny], [fmpq(1)] * 3, (fmpq(0),))[0][0], [], 1.0).nodes
    assert nodes.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(
    "inner,bias,outer,formula",
    [
        ([[0, 10**400], [0, -(10**400)], [1, 1]], [0, 0, 0], [1, -1, 1], "relu(m1)"),
        ([[0, 10**400], [0, -(10**400)]], [0, 0], [1, -1], "m1"),
        ([[0, 0], [1, 1]], [10**400, 0], [1, 1], "relu(m1)"),
        ([[0, 10**400], [1, 1]], [0, 0], [1, 1], "m1"),
        ([[0, 1]], [0], [1], "exp(900*m1)"),
    ],
)
def test_numbers_beyond_double_precision_are_refused(inner: Any, bias: Any, outer: Any, formula: str) -> None:
    """A Refusal, as `verify.theorems.no_theorem` then measures; and no warning, here or below."""
    with pytest.raises(Refusal, match="no bound in double precision"):
        layer_error(two_coordinates(inner, bias, outer), FixedMemory((1,), 1, formula))


@pytest.mark.parametrize("options", [{"gain": fmpq(10) ** 300}, {"decay": fmpq(5 * 10**5)}, {"gain": fmpq(1, 10) ** 400}])
def test_extreme_weights_give_no_warning(options: dict[str, fmpq]) -> None:
    result = layer_error(two_coordinates([[0, 1], [1, -1]], [0, 0], [1, 1], **options), KernelMemory(("exp(-s)",), 1, "k1*x0"))
    assert 1 < result.witness <= result.certified < math.inf


def test_log_heads_see_nothing_of_one_token() -> None:
    network = two_coordinates([[0, 1]], [0], [1], kind="log")
    layer = network.layers[0]
    finite = replace(network, layers=(replace(layer, attention=replace(layer.attention, window="finite")),))
    with pytest.raises(Refusal, match="two tokens at least"):
        layer_error(finite, KernelMemory(("exp(-s)",)), length=1)


@pytest.mark.parametrize("length", [None, 4])
def test_biases_beyond_their_exponential_are_certified(length: int | None) -> None:
    """Tables of ±10³⁰⁸ choose one distance: what the head holds is x_{t−1}, as with biases of ±10³."""
    results = []
    for size in (1e3, 1e308):
        window = "infinite" if length is None else "finite"
        network = random_network(np.random.default_rng(0), ["table"], window=window, dim=1, reach=3, bias=False)
        network.layers[0].attention.table[0] = -size, size, -size
        results.append(layer_error(network, FixedMemory((1,), 1, "relu(m1)"), length=length))
    assert results[0].certified == results[1].certified < 10 and results[1].witness <= results[1].certified
