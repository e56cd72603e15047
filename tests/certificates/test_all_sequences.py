"""All sequences of letters: the certificate is the maximum over them, whoever computes it, and sabotage is seen."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from flint import fmpq

from analyzer.errors import Refusal
from analyzer.targets.adaptive import AdaptiveMemory, Memory
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.protocol import Target
from constructions.files.bundle import Bundle
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, to_exact
from constructions.run.execute import run as run_network
from tests.conftest import random_network
from verify.chain import enclosed
from verify.compare.side_by_side import ComparisonProtocol, compare
from verify.layers import words
from verify.layers.all_sequences import sequence_error

POINTER = AdaptiveMemory(((-1,), (1,)), (Memory("m1", "(3 - x0)/2"), Memory("m2", "(3 - m1)/2")), "x0*m1*m2")
THREE = FixedMemory((1, 3), 1, "x0*m1 + m2", (-1, 0, 1))
TWO = FixedMemory((2,), 1, "x0*m1", (-1, 1))


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def plainly(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """Outputs (B, N) of table heads from the definition in numpy: zeros are padded in front, as far as all layers look."""
    pad = 1 + sum(layer.attention.table.shape[1] for layer in network.layers)
    padded = np.concatenate([np.zeros((len(tokens), pad, tokens.shape[2])), tokens], axis=1)
    x = padded @ network.embedding.T + network.bias
    distance = np.arange(x.shape[1])[:, None] - np.arange(x.shape[1])[None, :]
    for index, layer in enumerate(network.layers):
        attention, attended = layer.attention, np.zeros_like(x)
        for h, table in enumerate(attention.table):
            scores = np.where((distance >= 0) & (distance < len(table)), table[np.clip(distance, 0, len(table) - 1)], -np.inf)[None]
            if attention.kind == "dp":
                scores = scores + (x @ attention.query[h].T) @ np.swapaxes(x @ attention.key[h].T, 1, 2)
            attended += softmax(scores) @ (x @ attention.value[h].T) @ attention.output[h].T
        u = x + attended
        change = np.maximum(u @ layer.feedforward.inner.T + layer.feedforward.bias, 0) @ layer.feedforward.outer.T
        x = change if index == len(network.layers) - 1 else u + change
    return x[:, pad:, 0]


def brute_force(network: Transformer, target: Target, longest: int, output: Callable[..., np.ndarray] = plainly) -> float:
    """The largest error at positions whose lags lie inside the array, over all arrays of so many letters."""
    letters = np.asarray(target.letters()).reshape(-1)
    tokens = np.array(list(product(letters, repeat=longest)))[..., None]
    errors = np.abs(output(network, tokens) - target.values(np)(tokens))
    return float(errors[:, target.settled :].max())


def table_network(seed: int, reach: int, layers: int, kind: str = "dp", window: str = "infinite", dtype: str = "float64") -> Transformer:
    return random_network(np.random.default_rng(seed), ["table"] * 2, kind, window, layers=layers, dim=1, reach=reach, dtype=dtype)


@pytest.mark.deep(keep="target5-7-1-dp")
@pytest.mark.parametrize(
    ("target", "reach", "layers", "kind"),
    [
        (TWO, 12, 1, "dp"), (TWO, 2, 1, "dp"), (TWO, 4, 2, "dp"), (TWO, 5, 2, "dp-free"), (POINTER, 3, 2, "dp"),
        (THREE, 7, 1, "dp"), (THREE, 3, 2, "dp"), (THREE, 2, 3, "dp"),
    ],
)  # fmt: skip
def test_the_certificate_is_the_maximum(target: Target, reach: int, layers: int, kind: str) -> None:
    network = table_network(layers + reach, reach, layers, kind)
    found = sequence_error(network, target)
    longest = max(1 + layers * (reach - 1), target.settled + 1)
    worst = brute_force(network, target, longest)
    assert found.whole and worst <= found.certified <= worst + 1e-11
    assert worst - 1e-11 <= found.witness <= found.certified
    assert 0 < found.rounding < 1e-11 and found.sequences >= len(target.alphabet) ** longest


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_runs_stay_below_their_certificate(dtype: str) -> None:
    network = table_network(4, 4, 2, dtype=dtype)
    found = sequence_error(network, TWO)
    tokens = TWO.draw(np.random.default_rng(0), (400, 40))
    errors = np.abs(run_network(network, tokens).astype(float) - TWO.values(np)(tokens))[:, TWO.settled :]
    assert found.certified * 0.5 < errors.max() <= found.certified
    assert found.rounding < (1e-3 if dtype == "float32" else 1e-11)


@pytest.mark.deep
def test_exact_networks() -> None:
    network = table_network(5, 3, 2)
    found, exact = sequence_error(network, POINTER), sequence_error(network.map(to_exact), POINTER)
    assert exact.arithmetic == "exact" and exact.witness <= exact.certified
    assert exact.certified == pytest.approx(found.certified, rel=1e-10) and exact.witness == pytest.approx(found.witness, rel=1e-10)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["dp", "nf", "dp-free"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_finite_windows_at_the_last_token(rpe: str, kind: str) -> None:
    network = random_network(np.random.default_rng(6), [rpe] * 2, kind, "finite", layers=2, dim=1)
    found = sequence_error(network, TWO, length=9)
    tokens = np.array(list(product([-1.0, 1.0], repeat=9)))[..., None]
    worst = float(np.abs(run_network(network, tokens) - TWO.values(np)(tokens))[:, -1].max())
    assert found.whole and found.over.endswith("the last of 9 tokens")
    assert worst <= found.certified <= worst + 1e-10 and found.witness == pytest.approx(worst, abs=1e-10)


@pytest.mark.deep
def test_finite_tables_hold_at_every_token() -> None:
    network = table_network(8, 3, 2, window="finite")
    found = sequence_error(network, TWO, length=40)
    worst = brute_force(network, TWO, 8, run_network)
    assert found.whole and worst <= found.certified <= worst + 1e-11


def full_network(seed: int, dtype: str = "float64") -> Transformer:
    network = random_network(np.random.default_rng(seed), ["lin"] * 2, "dp", "full", layers=2, dim=1, dtype=dtype)

    def blind(attention: Attention) -> Attention:
        return replace(attention, rpe=("none",) * 2, decay=attention.decay * 0)

    return replace(network, layers=tuple(replace(layer, attention=blind(layer.attention)) for layer in network.layers))


def test_full_windows() -> None:
    network = full_network(9)
    found = sequence_error(network, TWO, length=7)
    tokens = np.array(list(product([-1.0, 1.0], repeat=7)))[..., None]
    worst = float(np.abs(run_network(network, tokens) - TWO.values(np)(tokens))[:, -1].max())
    assert worst <= found.certified <= worst + 1e-10 and found.sequences == 2**7


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["dp", "dp-free", "nf"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("layers", [1, 2])
def test_heads_that_look_back_for_ever(rpe: str, kind: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before the listed letters is confined: no array, however long, shows more; heads that forget fast lose little."""
    monkeypatch.setattr("verify.layers.all_sequences.MAX_CUT", 2**9)
    network = random_network(np.random.default_rng(11), [rpe] * 2, kind, layers=layers, dim=1)
    for layer in network.layers:
        layer.attention.decay[:] += 1.0 if rpe == "lin" else 4.0
    found = sequence_error(network, TWO)
    rng = np.random.default_rng(12)
    tokens = np.concatenate(
        [TWO.draw(rng, (2000, 30)), np.repeat(TWO.draw(rng, (50, 15)), 2, axis=1), np.ones((1, 30, 1)), -np.ones((1, 30, 1))]
    )
    seen = float(np.abs(run_network(network, tokens) - TWO.values(np)(tokens))[:, TWO.settled :].max())
    assert not found.whole and found.witness <= found.certified and seen <= found.certified
    assert found.certified <= (1.02 if rpe == "lin" else 1.3) * max(seen, found.witness)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["dp", "dp-free", "nf", "tmx"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_long_finite_windows_with_open_rests(rpe: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of any length up to 24 tokens, of which the nine latest are listed."""
    if (rpe, kind) == ("log", "tmx"):
        return
    monkeypatch.setattr("verify.layers.all_sequences.MAX_CUT", 2**9)
    network = random_network(np.random.default_rng(13), [rpe] * 2, kind, "finite", layers=2, dim=1)
    for layer in network.layers:
        layer.attention.decay[:] += 1.5 if rpe == "lin" else 5.0
    found = sequence_error(network, TWO, length=24)
    rng = np.random.default_rng(14)
    tokens = np.concatenate(
        [TWO.draw(rng, (2000, 24)), np.repeat(TWO.draw(rng, (50, 12)), 2, axis=1), np.ones((1, 24, 1)), -np.ones((1, 24, 1))]
    )
    seen = float(np.abs(run_network(network, tokens) - TWO.values(np)(tokens))[:, TWO.settled :].max())
    assert not found.whole and found.over.endswith("at most 24 tokens")
    assert max(seen, found.witness) <= found.certified <= (1.1 if rpe == "lin" else 1.5) * max(seen, found.witness)


def test_a_tail_left_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow heads, few letters: without the rest, runs exceed the certificate."""
    monkeypatch.setattr("verify.layers.all_sequences.MAX_CUT", 2**4)
    network = random_network(np.random.default_rng(3), ["lin"] * 2, "dp", dim=1)
    network.layers[0].attention.decay[:] = 0.05
    tokens = np.concatenate([np.ones((1, 60, 1)), -np.ones((1, 60, 1)), TWO.draw(np.random.default_rng(0), (200, 60))])
    errors = np.abs(run_network(network, tokens) - TWO.values(np)(tokens))[:, TWO.settled :]
    assert errors.max() <= sequence_error(network, TWO).certified
    honest = words._Step.__init__

    def forgetful(step: words._Step, *arguments: object) -> None:
        honest(step, *arguments)  # type: ignore[arg-type]
        step.box = step.projected[0]  # what lies before is taken for the constant past

    monkeypatch.setattr(words._Step, "__init__", forgetful)
    assert errors.max() > sequence_error(network, TWO).certified


@pytest.mark.deep
def test_a_skipped_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    network = table_network(4, 4, 2)
    worst = brute_force(network, TWO, 7)
    monkeypatch.setattr(words, "CELLS", 1 << 9)
    assert sequence_error(network, TWO).certified >= worst
    whole, honest = [], words.Words.outputs

    def batches(*arguments: object) -> object:
        found = list(honest(*arguments))  # type: ignore[arg-type]
        whole.append(len(found))
        value = TWO.values(np)
        letters = np.array([-1.0, 1.0])

        def error(entry: tuple[int, int, enclosed.Enclosed]) -> float:
            j, first, out = entry
            places = 2 ** np.arange(j - 1, -1, -1)
            tokens = letters[np.arange(first, first + len(out.mid))[:, None] // places % 2][..., None]
            return float(np.abs(out.mid - value(tokens)[:, -1]).max())

        return iter(sorted(found, key=error)[:-1])

    monkeypatch.setattr(words.Words, "outputs", batches)
    assert whole == [] and sequence_error(network, TWO).certified < worst and whole[0] > 2


def test_rounding_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the exponential's error the radius is smaller: it is counted."""
    network = table_network(4, 3, 1, dtype="float32")
    honest = sequence_error(network, TWO)
    monkeypatch.setattr(enclosed, "exponential_error", lambda dtype: 0 * honest_error(dtype))
    assert sequence_error(network, TWO).rounding < honest.rounding


honest_error = enclosed.exponential_error


@pytest.mark.parametrize(
    ("network", "target", "options", "text"),
    [
        (table_network(0, 3, 1), FixedMemory((1,)), {}, "no finite alphabet"),
        (table_network(0, 40, 1), TWO, {"cut": False}, "too many to go through"),
        (random_network(np.random.default_rng(0), ["lin"], "dp", "finite", dim=1), TWO, {}, "give it"),
        (random_network(np.random.default_rng(0), ["lin"], "dp", "finite", dim=1), TWO, {"length": 2}, "shorter than the target's lags"),
        (full_network(0), TWO, {"length": 40}, "too many to go through"),
        (random_network(np.random.default_rng(0), ["log"], "tmx", dim=1), TWO, {}, "logarithm of a slot"),
    ],
)
def test_refusals(network: Transformer, target: Target, options: dict[str, int], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        sequence_error(network, target, **options)  # type: ignore[arg-type]


@pytest.mark.deep
def test_comparisons_show_certified_numbers() -> None:
    """Columns of trained networks with several layers on letters: certified, with samples held against it where it speaks of them."""
    network = table_network(4, 3, 2, dtype="float32")
    card = {"origin": "trained", "theorem": None, "training": {"recipe": {"length": 9}}}
    finite = random_network(np.random.default_rng(6), ["lin"] * 2, "dp", "finite", layers=2, dim=1, dtype="float32")
    protocol = ComparisonProtocol(40, 20, POINTER.settled, 0, "letters")
    found = compare([("tables", Bundle(network, card)), ("finite", Bundle(finite, card))], POINTER, protocol)["networks"]
    assert [column["certificate"]["by"] for column in found] == ["all sequences"] * 2 and found[0]["faults"] == found[1]["faults"] == []
    for column in found:
        assert 0 < column["certificate"]["witness"] <= column["certificate"]["certified"]
    assert found[0]["sampled"]["overall"]["max"] <= found[0]["certificate"]["certified"]
    assert found[1]["certificate"]["over"].endswith("the last of 9 tokens")


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(16))
def test_no_counterexample(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random kinds, windows, decays and sizes of logits, few letters listed: no array of twelve letters shows more than is certified."""
    monkeypatch.setattr("verify.layers.all_sequences.MAX_CUT", 2**7)
    rng = np.random.default_rng(seed)
    kind, window, dtype = rng.choice(["dp", "dp-free", "nf", "tmx"]), rng.choice(["infinite", "finite"]), rng.choice(["float32", "float64"])
    rpe = rng.choice(["lin", "log", "table"] if kind.startswith("dp") else ["lin"])
    layers, reach = (int(n) for n in rng.integers(1, (3, 9)))
    network = random_network(rng, [str(rpe)] * 2, str(kind), str(window), layers=layers, dim=1, dtype=str(dtype), reach=reach)
    for layer in network.layers:
        layer.attention.query[...] *= rng.choice([1, 5, 20]) if kind == "dp" else 1
        if rpe != "table":
            slow = layer.attention.decay * rng.choice([0.2, 1, 3])
            layer.attention.decay[:] = np.maximum(slow, 1.05 if rpe == "log" else 0.02)
    try:
        found = sequence_error(network, TWO, length=12 if window == "finite" else None)
    except Refusal as refusal:
        assert "leaves" in str(refusal) or "lose all accuracy" in str(refusal)
        return
    tokens = np.array(list(product([-1.0, 1.0], repeat=12)))[..., None]
    errors = np.abs(run_network(network, tokens).astype(float) - TWO.values(np)(tokens))[:, TWO.settled :]
    seen = errors[:, -1:] if found.over.endswith("the last of 12 tokens") else errors
    assert max(float(seen.max()), found.witness) <= found.certified


def one_head(kind: str, window: str, decay: float, table: object = None, **weights: object) -> Transformer:
    """One float32 head on the stream (x, 1), read by one neuron."""
    given = {name: np.array(value, "float32") for name, value in weights.items()}
    nothing = np.zeros((1, 0, 2), "float32")
    attention = Attention(
        np.array([decay], "float32"), given["value"], given["output"], given.get("query", nothing), given.get("key", nothing),
        np.zeros((0, 2), "float32"), ("lin" if table is None else "table",), kind, window,  # type: ignore[arg-type]
        None if table is None else np.array(table, "float32"),
    )  # fmt: skip
    ffn = FeedForward(given["inner"], given["bias"], given["outer"])
    return Transformer(np.array([[1], [0]], "float32"), given["stream"], (Layer(attention, ffn),))


def test_every_clipped_position_of_the_rest_counts() -> None:
    """nf scores below −80 weigh e^{−80} each in float32: hundreds of positions together, which one column stands for."""
    network = one_head(
        "nf", "infinite", 0.001, query=[[[0, -100]]], key=[[[0, 1]]], value=[[[0, 1e20]]], output=[[[0], [1e13]]],
        inner=[[0, 1]], bias=[-1], outer=[[1]], stream=[0, 1],
    )  # fmt: skip
    target = FixedMemory((1,), 1, "0.001*m1", (-1, 1))
    found = sequence_error(network, target)
    worst = abs(float(run_network(network, np.ones((1, 512, 1)))[0, -1]))
    assert not found.whole and worst > 9 and found.witness <= found.certified and worst <= found.certified


@pytest.mark.deep
def test_tables_in_finite_windows_run_by_fft_in_long_arrays() -> None:
    """There letters of size 1 spoil those of size 2^−20, which no certificate covers: it must not speak of such arrays."""
    small = 2.0**-20
    target = FixedMemory((1,), 1, f"relu(2-{2**20}*m1)", (fmpq(1, 2**20), 1))
    tokens = np.random.default_rng(0).choice([small, 1.0], size=(4, 600, 1))
    for window, endless in (("finite", False), ("infinite", True)):
        network = one_head(
            "dp-free", window, 0, [[-80, 0]], value=[[[1, 0]]], output=[[[0], [1]]],
            inner=[[0, -1]], bias=[2 * small], outer=[[1 / small]], stream=[0, 0],
        )  # fmt: skip
        found = sequence_error(network, target)
        short, long = (
            np.abs(run_network(network, tokens[:, :n]).astype(float) - target.values(np)(tokens[:, :n]))[:, 1:].max() for n in (512, 600)
        )
        assert found.over == "letters of the alphabet" + ("" if endless else ", arrays of at most 512 tokens")
        assert short <= found.certified and (long <= found.certified if endless else long > 0.01)
        exact = sequence_error(network.map(to_exact), target)
        assert exact.over == "letters of the alphabet"


@pytest.mark.deep
def test_letters_that_a_type_cannot_tell_apart_are_refused() -> None:
    """0.5 and 0.5 + 2^−30 are one number in float32, and f is −1 at the one, 1 at the other."""
    target = FixedMemory((1,), 1, f"abs({2**30}*x0 - {2**29})*2 - 1", (fmpq(1, 2), fmpq(1, 2) + fmpq(1, 2**30)))
    with pytest.raises(Refusal, match="same number in float32"):
        sequence_error(table_network(0, 2, 1, dtype="float32"), target)
    assert sequence_error(table_network(0, 2, 1), target).certified > 0
