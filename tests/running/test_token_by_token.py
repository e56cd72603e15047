"""Networks token by token: the outputs of the fast pass, at any length, with a memory of fixed size."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.errors import InputError, Refusal
from constructions.network.precision import with_x64
from constructions.network.transformer import Transformer
from constructions.run import fast, token_by_token
from constructions.run.token_by_token import LARGEST, TokenByToken, pieces
from tests.conftest import random_network
from tests.depth import examples

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
STREAMED: dict[str, dict[str, Any]] = {
    "lin": {"rpe": ["lin", "lin"], "layers": 2},
    "lin and log": {"rpe": ["log", "lin", "log"], "layers": 3},
    "table": {"rpe": ["table"] * 3, "layers": 2},
    "deep": {"rpe": ["lin"], "layers": 6},
}


def made(case: str, seed: int = 0, dtype: str = "float64") -> Transformer:
    network = random_network(np.random.default_rng(seed), **STREAMED[case], dtype=dtype)
    if "log" in case:  # fast enough to run as taps
        for layer in network.layers:
            layer.attention.decay[:] += 12
    return network


def difference(network: Transformer, tokens: np.ndarray, cuts: list[int]) -> float:
    """The largest difference between the stream, fed in parts, and the fast pass, over the size of its outputs."""
    stream = TokenByToken(network)
    memory, found = stream.start(None if tokens.ndim == 2 else len(tokens)), []
    for part in np.split(tokens, cuts, axis=-2):
        if part.shape[-2]:
            memory, outputs = stream.feed(memory, part)
            found.append(outputs)
    wanted = fast.forward(network, tokens)
    return float(np.abs(np.concatenate(found, axis=-1) - wanted).max() / np.abs(wanted).max())


@pytest.mark.deep
@pytest.mark.parametrize("case", STREAMED)
@pytest.mark.parametrize("batch", [None, 1, 3])
def test_parts_add_up_to_the_whole(case: str, batch: int | None) -> None:
    """A bias makes the past before the array count: a stream that began with zeros would be another function."""
    tokens = np.random.default_rng(1).uniform(-1, 1, (40, 2) if batch is None else (batch, 40, 2))
    for cuts in ([], [1, 2, 3, 17], [39]):
        assert difference(made(case), tokens, cuts) < 1e-13


def test_a_wrong_beginning_is_seen() -> None:
    network = made("lin")
    stream = TokenByToken(network)
    tokens = np.random.default_rng(1).uniform(-1, 1, (12, 2))
    forgetful = jax.tree.map(np.zeros_like, stream.start())
    found, right = (stream.feed(memory, tokens)[1] for memory in (forgetful, stream.start()))
    assert np.abs(found - right).max() > 1e-3 and right == pytest.approx(fast.forward(network, tokens), rel=1e-12)


@pytest.mark.deep
@settings(max_examples=examples(40))
@given(st.sampled_from(list(STREAMED)), st.integers(0, 100), st.lists(st.integers(0, 30), max_size=4))
def test_any_network_in_any_parts(case: str, seed: int, cuts: list[int]) -> None:
    tokens = np.random.default_rng(seed).uniform(-1, 1, (30, 2))
    assert difference(made(case, seed), tokens, sorted(cuts)) < 1e-12
    assert difference(made(case, seed, "float32"), tokens, sorted(cuts)) < 1e-4


BUILT = {
    "kerple": (lf.fixed(lags=(1, 3)), {"rpe": "kerple", "dtype": "float64", "error": 0.1}),
    "stride": (lf.fixed(lags=(6,)), {"stride": 3, "dtype": "float64", "error": 0.05}),
    "chain": (lf.fixed(lags=(4,)), {"depth": 2, "dtype": "float64", "error": 0.1}),
    "table": (lf.fixed(lags=(2, 30), readout="m1*m2"), {"rpe": "table", "dtype": "float32", "error": 0.05}),
}


@pytest.mark.deep(keep="stride")
@pytest.mark.parametrize("case", BUILT)
def test_built_networks_keep_their_certificates(case: str) -> None:
    target, options = BUILT[case]
    net = lf.build(target, **options)
    tokens = target.draw(np.random.default_rng(2), (3, 200))
    memory, first = net.feed(net.start(3), tokens[:, :77])
    for t in range(77, 85):
        memory, output = net.step(memory, tokens[:, t])
        first = np.concatenate([first, output[:, None]], axis=1)
    memory, rest = net.feed(memory, tokens[:, 85:])
    found = np.concatenate([first, rest], axis=1)
    certificate = net.certificate
    assert np.abs(found - net(tokens)).max() <= 2 * certificate.rounding
    wanted = target.values(np)(tokens.astype(np.float64))
    assert np.abs(found - wanted).max() <= certificate.certified


@pytest.mark.deep
@pytest.mark.parametrize("score", ["dp", "tmx"])
def test_heads_that_read_a_lag(score: str) -> None:
    target = lf.load_target(EXAMPLES / "pointer.toml")
    net = lf.build(target, dtype="float64", error=0.03, attention=score)
    tokens = target.draw(np.random.default_rng(4), (2, 60))
    memory, first = net.feed(net.start(2), tokens[:, :31])
    memory, rest = net.feed(memory, tokens[:, 31:])
    assert np.abs(np.concatenate([first, rest], axis=1) - net(tokens)).max() <= 2 * net.certificate.rounding
    assert len(net.transformer.layers) == 2 and net.certificate.rounding < net.certificate.certified <= 0.03


def test_the_memory_does_not_grow_and_is_not_changed() -> None:
    stream = TokenByToken(made("lin"))
    before = stream.start()
    sizes = [leaf.nbytes for leaf in jax.tree.leaves(before)]
    tokens = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    after, _ = stream.feed(before, tokens)
    assert [leaf.nbytes for leaf in jax.tree.leaves(after)] == sizes and sum(sizes) < 500
    again, _ = stream.feed(before, tokens)  # a memory may be gone on with twice
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(again), strict=True))


@pytest.mark.deep
def test_lengths_share_a_few_programs() -> None:
    assert [(piece.start, piece.stop) for piece in pieces(11)] == [(0, 8), (8, 10), (10, 11)]
    assert [piece.stop - piece.start for piece in pieces(2 * LARGEST + 3)] == [LARGEST, LARGEST, 2, 1]
    stream = TokenByToken(random_network(np.random.default_rng(5), ["lin"], width=5))
    memory, tokens = stream.start(), np.zeros((64, 2))
    known = token_by_token._advanced._cache_size()
    for length in (*range(1, 65), 33, 47):
        stream.feed(memory, tokens[:length])
    assert token_by_token._advanced._cache_size() - known == 7


@pytest.mark.deep
def test_a_million_tokens_stay_within_the_certificate() -> None:
    net = lf.build(lf.fixed(lags=(1, 2), readout="x0 + m1*m2"), dtype="float32", error=0.2)
    tokens = np.random.default_rng(3).choice([-1.0, 1.0, 0.5], (1 << 20, 1)).astype(np.float32)
    memory, outputs = net.start(), []
    for part in np.split(tokens, 16):
        memory, found = net.feed(memory, part)
        outputs.append(found)
    assert np.abs(np.concatenate(outputs) - net(tokens)).max() <= 2 * net.certificate.rounding
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(memory)) < 1000


@pytest.mark.deep
@pytest.mark.parametrize("case", STREAMED)
@pytest.mark.parametrize("batch", [None, 1, 3])
def test_long_arrays_run_by_blocks(case: str, batch: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks, the last one filled up; a bias makes the past before the array count."""
    monkeypatch.setattr(token_by_token, "LEAST", 1)
    monkeypatch.setattr(token_by_token, "BLOCK", 8)
    network = made(case)
    for length in (16, 37, 100):
        tokens = np.random.default_rng(1).uniform(-1, 1, (length, 2) if batch is None else (batch, length, 2))
        known = token_by_token.compiled(network)._cache_size()
        found, wanted = token_by_token.forward(network, tokens), fast.forward(network, tokens)
        assert token_by_token.compiled(network)._cache_size() == known + 1
        assert found.shape == wanted.shape and np.abs(found - wanted).max() < 1e-13 * np.abs(wanted).max()


def test_a_state_that_does_not_pass_between_blocks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_by_token, "LEAST", 1)
    monkeypatch.setattr(token_by_token, "BLOCK", 4)
    network, tokens = made("lin", seed=7), np.random.default_rng(1).uniform(-1, 1, (24, 2))
    advance = token_by_token._layers
    monkeypatch.setattr(token_by_token, "_layers", lambda n, c, memory, x: (memory, advance(n, c, memory, x)[1]))
    found, wanted = token_by_token.forward(network, tokens), fast.forward(network, tokens)
    assert np.abs(found - wanted)[:16].max() < 1e-12 and np.abs(found - wanted)[16:].max() > 1e-3
    token_by_token.compiled(network).clear_cache()


def test_new_lengths_do_not_compile() -> None:
    net = lf.build(lf.fixed(lags=(1, 2), readout="x0 + m1*m2"), dtype="float32", error=0.2)
    tokens = np.random.default_rng(0).uniform(-1, 1, (8192, 1)).astype(np.float32)
    whole, known = net(tokens), token_by_token.compiled(net.transformer)._cache_size()
    for length in (4097, 5000, 6001, 8191):
        assert (net(tokens[:length]) == whole[:length]).all()
    assert token_by_token.compiled(net.transformer)._cache_size() == known
    wanted = net.target.values(np)(tokens.astype(np.float64))
    assert np.abs(whole - wanted).max() <= net.certificate.certified


@pytest.mark.deep(keep="finite window")
@pytest.mark.parametrize(
    "network",
    [
        random_network(np.random.default_rng(0), rpe=["lin"], kind="dp"),
        random_network(np.random.default_rng(0), rpe=["lin"], window="finite"),
        random_network(np.random.default_rng(0), rpe=["lin", "log"]),
    ],
    ids=["dp", "finite window", "long log heads"],
)
def test_others_run_whole(network: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_by_token, "LEAST", 1)
    monkeypatch.setattr(token_by_token, "BLOCK", 8)
    tokens, known = np.random.default_rng(1).uniform(-1, 1, (2, 9, 2)), token_by_token.compiled(network)._cache_size()
    assert (token_by_token.forward(network, tokens) == fast.forward(network, tokens)).all()
    assert token_by_token.compiled(network)._cache_size() == known


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"rpe": ["lin"], "kind": "dp"}, "dp heads score every token again"),
        ({"rpe": ["lin"], "window": "finite"}, "a softmax over a finite window"),
        ({"rpe": ["lin", "log"]}, "more than 512 taps"),
    ],
)
def test_others_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        TokenByToken(random_network(np.random.default_rng(0), **arguments))


def test_exact_networks_are_refused_with_a_way_out() -> None:
    net = lf.build(lf.fixed(lags=(2,)))
    with pytest.raises(Refusal, match="streams run in floats") as refused:
        net.start()
    assert {"dtype": "float64"} in refused.value.remedies
    assert lf.build(lf.fixed(lags=(2,)), dtype="float64").start()


@pytest.mark.deep
def test_bad_tokens_are_refused() -> None:
    net = lf.build(lf.fixed(lags=(2,)), dtype="float64")
    memory, many = net.start(), net.start(2)
    for bad in (2.0, np.nan, [0.1, 0.2]):
        with pytest.raises(InputError):
            net.step(memory, bad)
    with pytest.raises(InputError, match="this memory is of 2 sequences"):
        net.feed(many, [[0.0] * 3] * 3)
    with pytest.raises(InputError, match="this memory is of one sequence"):
        net.feed(memory, [[[0.0]] * 3] * 3)
    with pytest.raises(InputError, match="batch"):
        net.start(0)
    assert net.step(memory, [0.5])[1].shape == () and net.step(many, [0.5, 0.25])[1].shape == (2,)


@pytest.mark.deep
def test_nothing_is_computed_in_more_bits_than_the_network_has() -> None:
    stream = TokenByToken(made("lin", dtype="float32"))
    memory, output = stream.step(stream.start(), np.zeros(2))
    assert output.dtype == np.float32 and all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(memory))
    with with_x64("float64"):
        assert TokenByToken(made("lin")).start()[0].states.dtype == np.float64
