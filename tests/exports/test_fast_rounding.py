"""Running error bounds against evaluations in a wider type, and what exports say where a package is missing."""

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError
from constructions.exports.fast_rounding import Approximate, Bounds, difference_bound, fed_bound
from constructions.exports.onnx_graphs import write
from constructions.network.precision import with_x64
from constructions.network.transformer import FeedForward, Transformer
from constructions.run import fast, reference
from tests.conftest import random_network


def wider(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """The float32 network with the constants of its own type, evaluated in float64: its exact value but for 2^−29 of the roundings."""
    constants = fast.network_constants(network, tokens.shape[1])
    with with_x64("float64"):

        def step(index: int, layer: Any, x: Any, past: Any, last: bool) -> Any:
            wide = {n: jnp.asarray(a, jnp.float64) if a.dtype == np.float32 else a for n, a in constants[index].items()}
            attended, past_attended = fast.attend(layer.attention, wide, x, past)
            return reference.feed(layer.feedforward, x + attended, past + past_attended, last)

        floats = network.map(lambda a: np.asarray(a, np.float64))
        return np.asarray(reference.run_layers(floats, jnp.asarray(tokens, jnp.float64), step))


@pytest.mark.deep(keep=("lin-log-dp-free", "dp"))
@pytest.mark.parametrize(
    ("rpe", "kind", "window"),
    [("lin log", "dp-free", "infinite"), ("table", "dp-free", "finite"), ("lin log", "dp", "infinite"), ("none", "dp", "full"),
     ("lin log", "nf", "infinite"), ("lin", "tmx", "infinite")],
    ids=["lin-log-dp-free", "table", "dp", "full", "nf", "tmx"],
)  # fmt: skip
def test_bounds_hold_and_are_of_use(rpe: str, kind: str, window: str) -> None:
    rng = np.random.default_rng(5)
    network = random_network(rng, rpe.split() * 2, kind, window, layers=2, dtype="float32")
    tokens = rng.uniform(-1, 1, (4, 12, 2)).astype(np.float32)
    error = np.abs(fast.forward(network, tokens).astype(np.float64) - wider(network, tokens))
    bound = difference_bound(network, tokens) / 2
    assert (error <= bound).all() and error.max() > 0
    assert bound.max() < 1e-3


def test_a_number_near_a_tie_has_no_bound() -> None:
    ffn = FeedForward(np.eye(2), np.zeros(2), np.eye(2), ("integer", "none"))
    given = Approximate(np.array([[2.4999999, 1.0], [2.4, 1.0]]), np.array([[1e-6, 0.0], [1e-6, 0.0]]))
    found = fed_bound(Bounds("float32"), ffn, given)
    assert found.error[0, 0] > 1e50 and found.error[1, 0] == 0 and found.value[1, 0] == 2


def test_without_the_extra_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any) -> None:
    net = lf.build(lf.fixed(lags=(1,)))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"lemmaformer\[onnx\]"):
        write(net.transformer, net.slots, tmp_path / "c.onnx", overwrite=False)
    (tmp_path / "d.onnx").write_bytes(b"")
    said = run("verify", tmp_path / "d.onnx")
    assert said.code == 2 and said.err.count("\n") == 1 and "lemmaformer[onnx]" in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["d.onnx"]
