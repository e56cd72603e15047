"""Midpoints and radii contain what really runs, and the exact function of the weights, in balls."""

from dataclasses import replace

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import Refusal
from analyzer.numbers.exact import rational, working_precision
from constructions.network.transformer import Attention, Transformer, to_exact
from constructions.run.execute import run
from tests.conftest import random_network
from tests.depth import examples
from verify.chain import enclosed
from verify.chain.enclosed import Enclosed, EnclosedArithmetic, hull
from verify.chain.enclosed_layers import enclosed_pass

Vector = list[arb]


def _apply(matrix: np.ndarray, x: Vector) -> Vector:
    return [sum((arb(w) * v for w, v in zip(row, x, strict=True)), arb(0)) for row in matrix]


def _power(attention: Attention, h: int, s: int) -> arb:
    """e^{pφ(s)} or e^{b(s)}."""
    if attention.table is not None:
        return arb(attention.table[h, s]).exp() if s < attention.table.shape[1] else arb(0)
    if attention.rpe[h] == "log":
        return arb(s) ** -arb(attention.decay[h]) if s else arb(0)
    return (-arb(attention.decay[h]) * s).exp()


def _mass(attention: Attention, h: int, after: int) -> arb:
    """Σ_{s>after} e^{pφ(s)} from the definition."""
    if attention.table is not None:
        return sum((_power(attention, h, s) for s in range(after + 1, attention.table.shape[1])), arb(0))
    p = arb(attention.decay[h])
    return p.zeta(arb(max(after + 1, 1))) if attention.rpe[h] == "log" else (-p * (after + 1)).exp() / (1 - (-p).exp())


def _attended(attention: Attention, x: list[Vector], t: int | None, past: Vector) -> Vector:
    """W_O Σ w v at position t of the array, or at a position before it (None)."""
    infinite, total = attention.window == "infinite", [arb(0)] * len(past)
    here = past if t is None else x[t]
    for h in range(len(attention.rpe)):
        terms = (
            [] if t is None else [(_power(attention, h, abs(t - s)), x[s]) for s in range(len(x) if attention.window == "full" else t + 1)]
        )
        if infinite:
            terms.append((_mass(attention, h, -1 if t is None else t), past))
        scored = []
        for weight, state in terms:
            if attention.kind in ("dp", "nf"):
                pairs = zip(_apply(attention.query[h], here), _apply(attention.key[h], state), strict=True)
                weight = weight * sum((a * b for a, b in pairs), arb(0)).exp()
            if attention.kind == "tmx":
                weight = weight * (arb(attention.decay[h]) * _apply(attention.pointer[h : h + 1], here)[0]).exp()
            scored.append((weight, _apply(attention.value[h], state)))
        whole = sum((w for w, _ in scored), arb(0)) if attention.kind in ("dp", "dp-free") else arb(1)
        if not scored or (whole == 0):
            continue
        mixed = [sum((w * v[i] for w, v in scored), arb(0)) / whole for i in range(attention.value.shape[1])]
        total = [a + b for a, b in zip(total, _apply(attention.output[h], mixed), strict=True)]
    return total


def in_balls(network: Transformer, tokens: np.ndarray) -> list[arb]:
    """The outputs at all tokens (N, d), from the definition."""
    exact = network.map(to_exact)
    bias = [arb(b) for b in exact.bias]
    x = [[a + b for a, b in zip(_apply(exact.embedding, [arb(rational(float(v))) for v in token]), bias, strict=True)] for token in tokens]
    past = bias
    for index, layer in enumerate(exact.layers):
        between = [
            [a + b for a, b in zip(state, _attended(layer.attention, x, t, past), strict=True)]
            for t, state in [*enumerate(x), (None, past)]
        ]
        fed = []
        for state in between:
            ffn = layer.feedforward
            hidden = [(v + arb(c)).max(arb(0)) for v, c in zip(_apply(ffn.inner, state), ffn.bias, strict=True)]
            change = _apply(ffn.outer, hidden)
            last = index == len(exact.layers) - 1
            fed.append(change if last else [a + b for a, b in zip(state, change, strict=True)])
        x, past = fed[:-1], fed[-1]
    return [state[0] for state in x]


def _network(seed: int, kind: str, window: str, rpe: str, dtype: str, scale: float = 1.0) -> Transformer:
    rng = np.random.default_rng(seed)
    blind = window == "full"
    network = random_network(rng, [rpe] * 2, kind, window, layers=2, dtype=dtype, reach=4)

    def changed(attention: Attention) -> Attention:
        decay = attention.decay * 0 if blind else attention.decay
        return replace(attention, query=(scale * attention.query).astype(dtype), decay=decay, rpe=("none",) * 2 if blind else attention.rpe)

    return replace(network, layers=tuple(replace(layer, attention=changed(layer.attention)) for layer in network.layers))


FORMS = [
    ("dp", "infinite", "table"), ("dp", "infinite", "lin"), ("dp", "infinite", "log"), ("dp", "finite", "table"), ("dp", "full", "lin"),
    ("dp-free", "infinite", "lin"), ("dp-free", "infinite", "log"), ("dp-free", "infinite", "table"), ("dp-free", "finite", "log"),
    ("nf", "infinite", "lin"), ("nf", "finite", "log"), ("tmx", "infinite", "lin"), ("tmx", "finite", "lin"),
]  # fmt: skip


@pytest.mark.deep
@given(st.integers(0, 2**32 - 1), st.sampled_from(FORMS), st.sampled_from(["float32", "float64"]), st.sampled_from([1.0, 30.0]))
@settings(max_examples=examples(120, quick=6), deadline=None)
def test_runs_and_balls_lie_inside(seed: int, form: tuple[str, str, str], dtype: str, scale: float) -> None:
    """Scale 30 makes logits of some tens: nearly one-hot softmax, also beyond the exponential's range in float32."""
    network = _network(seed, *form, dtype, scale if form[0] == "dp" else 1.0)
    tokens = np.random.default_rng(seed).choice([-1.0, 0.25, 1.0], (3, 6, 2))
    found = enclosed_pass(network, tokens)
    last = enclosed_pass(network, tokens, first=-1)
    assert (last.mid[:, 0] == found.mid[:, -1]).all() and (last.rad[:, 0] == found.rad[:, -1]).all()
    computed = run(network, tokens).astype(np.float64)
    assert (np.abs(computed - found.mid) <= found.rad).all()
    with working_precision(200):
        for t, value in enumerate(in_balls(network, tokens[0])):
            assert abs(value - arb(float(found.mid[0, t]))) <= arb(float(found.rad[0, t]))
    if form[0] in ("dp", "dp-free"):  # weights that are not normalised can be of any size, and what they sum cancels
        assert found.rad.max() < (0.1 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("form", [("dp", "infinite", "table"), ("dp-free", "infinite", "lin"), ("dp", "finite", "log")])
def test_exact_networks_lie_inside(form: tuple[str, str, str]) -> None:
    network = _network(7, *form, "float64").map(lambda w: to_exact(w) / 3)
    tokens = np.random.default_rng(8).uniform(-1, 1, (2, 5, 2))
    if form[2] == "log" and form[1] == "infinite":
        return
    found = enclosed_pass(network, tokens)
    with working_precision(200):
        for t, value in enumerate(in_balls(network, tokens[1])):
            assert abs(value - arb(float(found.mid[1, t]))) <= arb(float(found.rad[1, t]))
    assert 0 < found.rad.max() < 1e-12


def test_an_exponential_that_is_taken_for_exact_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """If e^x were off by a thousandth, runs would leave the radius that counts with our own exponential."""
    network = _network(3, "dp", "infinite", "table", "float32")
    tokens = np.random.default_rng(4).choice([-1.0, 1.0], (3, 6, 2))
    computed, found = run(network, tokens).astype(np.float64), enclosed_pass(network, tokens)
    assert (np.abs(computed - found.mid) <= found.rad).all()
    monkeypatch.setattr(enclosed, "exp", lambda x, xp: np.exp(x * 1.001))
    assert not (np.abs(computed - enclosed_pass(network, tokens).mid) <= found.rad).all()


def test_integers_are_exact_inside_a_cell() -> None:
    arithmetic = EnclosedArithmetic("float32")
    found = arithmetic.integer(Enclosed(np.array([2.2, 2.5, -0.49]), np.array([0.1, 0.1, 0.02])))
    assert found.mid.tolist() == [2.0, 2.5, -0.5] and found.rad[0] == 0 and found.rad[1] >= 0.5 and found.rad[2] >= 0.5


def test_boxes_contain_their_rows() -> None:
    rng = np.random.default_rng(0)
    parts = [Enclosed(rng.standard_normal((n, 3)), rng.random((n, 3))) for n in (1, 5)]
    box = hull(parts)
    assert all((np.abs(p.mid + sign * p.rad - box.mid) <= box.rad).all() for p in parts for sign in (-1, 1))


@pytest.mark.parametrize(
    ("form", "text"),
    [(("tmx", "finite", "log"), "logarithm of a slot"), (("nf", "infinite", "lin"), "leaves float32")],
)
def test_unknown_roundings_are_refused(form: tuple[str, str, str], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        enclosed_pass(_network(0, *form, "float32", 1e4), np.ones((1, 3, 2)))
