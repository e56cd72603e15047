"""Proposition 4.2: three heads against every dp-free attention layer."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.theorems import prop_4_2
from constructions.network.transformer import Layer
from constructions.run.execute import run
from constructions.theorems.prop_4_2 import build
from tests.depth import examples
from verify.theorems.prop_4_2 import verify


def test_the_certificate_is_checked() -> None:
    assert prop_4_2.lower_bound() == 1
    weights = dict(prop_4_2.CERTIFICATE)
    for point in weights:
        for change in (fmpq(1, 100), -2 * weights[point]):
            sabotaged = [(p, w + (change if p == point else 0)) for p, w in weights.items()]
            with pytest.raises(InputError, match="annihilate"):
                prop_4_2.lower_bound(sabotaged)
    for s, pair in enumerate(
        [((1, 0, 0), (0, 0, 0)), ((0, 1, 0), (0, 0, 0)), ((0, 0, 1), (0, 0, 0))]
    ):  # constants are annihilated, x_{t−s} is not
        with pytest.raises(InputError, match=rf"annihilate x_\(t-{s}\)"):
            prop_4_2.lower_bound([(pair[0], fmpq(1, 2)), (pair[1], fmpq(-1, 2))])
    with pytest.raises(InputError, match="alphabet"):
        prop_4_2.lower_bound([((0, 2, -1), fmpq(1, 4)), *prop_4_2.CERTIFICATE[1:]])
    with pytest.raises(InputError, match="annihilate"):
        prop_4_2.lower_bound([])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.fractions(-2, 2), min_size=4, max_size=4))
def test_no_affine_functional_does_better(coefficients) -> None:  # type: ignore[no-untyped-def]
    """Brute force over the alphabet: the worst error of c + Σ a_s x_{t−s} is at least 1."""
    c, *a = coefficients
    inputs = itertools.product(prop_4_2.ALPHABET, repeat=3)
    assert max(abs(c + sum(w * x for w, x in zip(a, tokens, strict=True)) - prop_4_2.wanted(tokens)) for tokens in inputs) >= 1


@pytest.mark.parametrize("error", [0.5, 1e-3, 1e-12, 1e-25])
def test_three_heads_reach_every_error(error: float) -> None:
    network = build(error)
    reached = verify(network)
    assert reached.heads == 3 and reached.witness <= reached.certified <= reached.bound <= error
    assert reached.witness > 0.99 * reached.certified
    tokens = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], size=(20, 60, 1))
    x = tokens[..., 0]
    wanted = np.take_along_axis(x, np.maximum(np.arange(60) - x.astype(int) - 1, 0), 1)
    assert np.abs(run(network, tokens) - wanted)[:, 2:].max() <= reached.certified + 1e-14


def test_sabotage() -> None:
    network = build(1e-3)
    layer = network.layers[0]

    def with_layer(attention=layer.attention, feedforward=layer.feedforward):  # type: ignore[no-untyped-def]
        return replace(network, layers=(Layer(attention, feedforward),))

    weights = layer.attention.output.copy()
    weights[0, 1, 0] += fmpq(1, 50)
    worse = verify(with_layer(replace(layer.attention, output=weights)))
    assert worse.certified > worse.bound
    for changed in (
        replace(network, bias=network.bias + fmpq(1)),
        replace(network, embedding=network.embedding * fmpq(2)),
        with_layer(feedforward=replace(layer.feedforward, bias=layer.feedforward.bias + fmpq(1))),
        with_layer(feedforward=replace(layer.feedforward, precision=("log",))),
        with_layer(replace(layer.attention, value=layer.attention.value[:, :, ::-1])),
        with_layer(replace(layer.attention, decay=-layer.attention.decay)),
        replace(network, layers=(layer, layer)),
    ):
        with pytest.raises(InputError):
            verify(changed)
