"""Absolute positions and linear attention: both executors, bundles, enclosures, roles, and who refuses them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError, LemmaformerError, Refusal
from constructions.files import bundle
from constructions.files.card import read_files
from constructions.network.transformer import Attention, Layer, Transformer, to_exact
from constructions.run import fast, reference
from constructions.run.execute import run
from constructions.run.fused import fuse
from constructions.run.mechanism import mechanism
from constructions.run.stream import patterns, plain_slots, trace
from constructions.run.token_by_token import TokenByToken
from tests.conftest import random_network
from verify.chain.enclosed_layers import EnclosedNetwork, enclosed_pass, stored
from verify.layers.all_sequences import sequence_error

LENGTH = 12


def blind(kind: str, window: str, dtype: str = "float64", seed: int = 3) -> Transformer:
    """Two random layers without relative positions, and a table of absolute ones."""
    rng = np.random.default_rng(seed)
    found = random_network(rng, ["lin"] * 3, "dp", "finite", layers=2)

    def without(attention: Attention) -> Attention:
        return replace(attention, decay=attention.decay * 0, rpe=("none",) * 3, kind=kind, window=window)

    layers = tuple(Layer(without(layer.attention), layer.feedforward) for layer in found.layers)
    network = replace(found, layers=layers, positions=rng.normal(size=(LENGTH, found.embedding.shape[0])))
    return network.map(lambda weights: np.asarray(weights).astype(dtype))


KINDS = [("dp", "finite"), ("dp", "full"), ("linear", "finite"), ("linear", "full")]


@pytest.mark.deep(keep="linear-full")
@pytest.mark.parametrize(("kind", "window"), KINDS)
def test_both_executors_agree(kind: str, window: str) -> None:
    network, tokens = blind(kind, window), np.random.default_rng(0).uniform(-1, 1, (3, LENGTH, 2))
    slow, quick = reference.forward(network, tokens), fast.forward(network, tokens)
    assert np.abs(slow - quick).max() < 1e-12 * max(1, np.abs(slow).max())
    assert np.abs(run(network.map(to_exact), tokens) - quick).max() < 1e-12 * max(1, np.abs(slow).max())


def test_linear_attention_is_the_mean_of_products_by_hand() -> None:
    network, tokens = blind("linear", "finite"), np.random.default_rng(1).uniform(-1, 1, (LENGTH, 2))
    one = replace(network, layers=network.layers[:1])
    layer, x = one.layers[0], tokens @ one.embedding.T + one.bias + one.positions
    attention = layer.attention
    q, k, v = (np.einsum("hkd,td->htk", w, x) for w in (attention.query, attention.key, attention.value))
    mixed = np.array([[(q[h, t] @ k[h, : t + 1].T) @ v[h, : t + 1] / (t + 1) for t in range(LENGTH)] for h in range(3)])
    u = x + np.einsum("hdv,htv->td", attention.output, mixed)
    ffn = layer.feedforward
    wanted = np.maximum(u @ ffn.inner.T + ffn.bias, 0) @ ffn.outer.T
    assert np.abs(fast.step(layer, {}, x, one.bias, True)[0] - wanted).max() < 1e-5  # outside x64: float32
    assert np.abs(reference.layer_inputs(one, tokens, 1)[0] - x).max() < 1e-14


@pytest.mark.deep(keep="linear")
@pytest.mark.parametrize("kind", ["dp", "linear"])
def test_rows_of_the_table_are_what_they_are_added_to(kind: str) -> None:
    network, tokens = blind(kind, "full"), np.random.default_rng(1).uniform(-1, 1, (1, LENGTH, 2))
    moved = replace(network, positions=network.positions[::-1].copy())
    assert np.abs(fast.forward(moved, tokens[:, ::-1])[:, ::-1] - fast.forward(network, tokens)).max() < 1e-12
    assert np.abs(fast.forward(moved, tokens) - fast.forward(network, tokens)).max() > 1e-3


@pytest.mark.parametrize("run_it", [fast.forward, reference.forward, enclosed_pass])
def test_arrays_longer_than_the_table_are_refused(run_it: object) -> None:
    with pytest.raises(InputError, match="positions for 12 tokens; the array has 13"):
        run_it(blind("dp", "finite"), np.zeros((1, LENGTH + 1, 2)))  # type: ignore[operator]


@pytest.mark.deep(keep=("dp-full-float64", "linear-full-float64"))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "window"), KINDS)
def test_enclosures_contain_what_runs_and_the_exact_function(kind: str, window: str, dtype: str) -> None:
    network, tokens = blind(kind, window, dtype), np.random.default_rng(2).uniform(-1, 1, (4, LENGTH, 2)).astype(np.float32)
    found = enclosed_pass(network, tokens)
    wide = np.longdouble(found.rad) * (1 + 1e-12)
    assert (np.abs(run(network, tokens) - found.mid) <= wide).all()
    exact = reference.forward(network.map(lambda w: np.asarray(w).astype("float64")), tokens)
    assert (np.abs(exact - found.mid) <= wide + 1e-12 * np.abs(exact).max()).all()
    assert found.rad.max() < (1e-2 if dtype == "float32" else 1e-10) * np.abs(exact).max()


def test_an_enclosure_with_too_small_a_radius_is_caught() -> None:
    """Had linear sums no rounding, float32 would leave the enclosure."""
    network, tokens = blind("linear", "full", "float32"), np.random.default_rng(2).uniform(-1, 1, (4, LENGTH, 2)).astype(np.float32)
    exact = enclosed_pass(network.map(lambda w: np.asarray(w).astype("float64")), tokens)
    assert (np.abs(run(network, tokens) - exact.mid) > exact.rad).any()


def test_states_without_a_place_are_refused() -> None:
    with pytest.raises(Refusal, match="absolute positions"):
        EnclosedNetwork(blind("dp", "finite"), LENGTH).embed(stored(np.zeros((1, 2))))


def test_bundles_keep_the_table(tmp_path: Path) -> None:
    network = blind("linear", "finite")
    for stored_as in (network, network.map(to_exact)):
        place = tmp_path / stored_as.dtype
        bundle.write(place, stored_as, {}, "")
        again = bundle.load(read_files(place)).network
        assert again.positions.tolist() == stored_as.positions.tolist() and again.layers[0].attention.kind == "linear"


def test_linear_attention_over_the_infinite_past_is_no_network(tmp_path: Path) -> None:
    network = blind("linear", "finite")
    attention = replace(network.layers[0].attention, window="infinite")
    bundle.write(tmp_path / "net", replace(network, layers=(Layer(attention, network.layers[0].feedforward),)), {}, "")
    with pytest.raises(InputError, match="linear attention needs heads of type none in a finite or full"):
        bundle.load(read_files(tmp_path / "net"))


@pytest.mark.deep
def test_roles_trace_and_patterns() -> None:
    network, tokens = blind("linear", "finite"), np.random.default_rng(0).uniform(-1, 1, (LENGTH, 2))
    assert {head["role"] for layer in mechanism(network, plain_slots(network)) for head in layer["heads"]} == {"correlate"}
    assert trace(network, tokens, plain_slots(network))["layer 1"]["r0"].shape == (LENGTH,)
    assert patterns(network, tokens)[0].weights.shape == (3, LENGTH, LENGTH)


@pytest.mark.deep
def test_who_knows_neither_refuses_them() -> None:
    target = lf.fixed(lags=(1,), alphabet=(-1, 1), dim=2)
    for network in (blind("dp", "finite"), replace(blind("linear", "finite"), positions=None)):
        for ask in (
            lambda n: fuse(n.first(1)),
            TokenByToken,
            lambda n: sequence_error(n, target, length=3),
            _claimed_by_another_theorem,
        ):
            with pytest.raises(LemmaformerError, match=r"absolute positions|linear attention"):
                ask(network)


def _claimed_by_another_theorem(network: Transformer) -> object:
    """A card of thm-3.1 beside weights with a table of positions."""
    net = lf.build(lf.fixed(lags=(1,)), dtype="float64")
    positions = None if network.positions is None else np.zeros((LENGTH, net.transformer.embedding.shape[0]))
    layers = net.transformer.layers
    if positions is None:
        layers = (Layer(replace(layers[0].attention, kind="linear"), layers[0].feedforward),)
    return lf.verify(lf.Network(replace(net.transformer, positions=positions, layers=layers), net.card, net.target))
