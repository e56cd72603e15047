"""The worst-case error of arbitrary dp-free layers: no counterexample, sharp where it can be, moved by sabotage."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import zeta

from analyzer.curves import bends_of, curve
from analyzer.errors import InputError, Refusal
from analyzer.exact import nearest, rational
from analyzer.profiles import FUNCTIONS, Ridge
from analyzer.targets import FixedMemory, KernelMemory
from constructions import fast, reference
from constructions.thm_3_1 import build
from constructions.thm_5_1 import build as build_kernel
from constructions.transformer import Transformer, exact_array, to_exact, to_float
from tests.conftest import random_network
from verify import dp_free
from verify.dp_free import LayerError, layer_error
from verify.thm_3_1 import verify
from verify.thm_5_1 import verify as verify_kernel

LENGTH = 160
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
    for p, kind, v, o in zip(decay, attention.rpe, value, output, strict=True):
        powers = np.concatenate([[0.0], ages[1:] ** -p]) / zeta(p)
        kernel = np.exp(-p * ages) * (1 - math.exp(-p)) if kind == "lin" else powers
        stream = stream + (np.einsum("s,bsd->bd", kernel, recent) @ embedding.T + bias) @ (o @ v).T
    return np.maximum(stream @ inner.T + shift, 0) @ outer[0]


def seen(network: Transformer, target: FixedMemory | KernelMemory, recent: np.ndarray) -> np.ndarray:
    return np.abs(outputs(network, recent) - wanted(target, recent))


def attacked(network: Transformer, target: FixedMemory | KernelMemory, rng: np.random.Generator) -> float:
    """The largest error over random sequences, and after flips of single tokens of the worst ones."""
    shape = (200, LENGTH, target.dim)
    sequences = np.concatenate([rng.choice([-1.0, 1.0], shape), rng.uniform(-1, 1, shape), np.ones((1, *shape[1:])), np.zeros((1, *shape[1:]))])
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
    rpe = draw(st.sampled_from([["lin", "lin", "lin"], ["log", "log"], ["lin", "log"]]))
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
@settings(max_examples=50, deadline=None)
def test_no_counterexample(problem: tuple[Transformer, FixedMemory | KernelMemory, int]) -> None:
    """Random weights of all kinds against random and adversarial sequences, with few cells and without."""
    network, target, seed = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dp_free, "WORK", 1 << 26 if seed % 2 else 0)
        result = layer_error(network, target, seed=seed)
    assert holds(result, attacked(network, target, np.random.default_rng(seed))), result
    assert result.arithmetic == network.dtype and result.rounding is not None
    assert (result.rounding > 0) == (network.dtype != "exact")
