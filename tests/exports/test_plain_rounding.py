"""The derived tolerance: it grows with what is rounded, says where a rounding inside the network is undecided, and is not far too large."""

from dataclasses import replace

import numpy as np
import pytest

from constructions.exports.agreement import prepared
from constructions.exports.forms import heads_form
from constructions.exports.plain_rounding import tolerance
from constructions.exports.portable import numpy_model
from constructions.network.transformer import Transformer
from constructions.run.execute import run
from tests.exports.gallery import SLOTS, built, random_one, tokens_of


def rounded_first_coordinate(network: Transformer) -> Transformer:
    """The network whose first layer writes integers into its first coordinate."""
    first, *others = network.layers
    ffn = replace(first.feedforward, precision=("integer", "none", "none"))
    return Transformer(network.embedding, network.bias, (replace(first, feedforward=ffn), *others))


def test_a_rounding_that_hangs_on_the_last_bit_is_undecided() -> None:
    """The first neuron's output weight is scaled until the first coordinate is 1/2 at one position."""
    network = random_one("lin", "dp", "finite")
    tokens = np.random.default_rng(0).uniform(-1, 1, (1, 6, 2))
    outer = network.layers[0].feedforward.outer.copy()
    plain = Transformer(network.embedding, network.bias, network.layers[:1])
    value = run(plain, tokens)[0, 0, 0]
    outer[0] *= 0.5 / value
    changed = replace(network.layers[0], feedforward=replace(network.layers[0].feedforward, outer=outer))
    tied = rounded_first_coordinate(Transformer(network.embedding, network.bias, (changed, *network.layers[1:])))
    assert np.isinf(tolerance(tied, heads_form(tied, SLOTS), tokens)[0, 0]).all()
    outer = outer * 1.01
    changed = replace(network.layers[0], feedforward=replace(network.layers[0].feedforward, outer=outer))
    clear = rounded_first_coordinate(Transformer(network.embedding, network.bias, (changed, *network.layers[1:])))
    assert (tolerance(clear, heads_form(clear, SLOTS), tokens)[0, 0] < 1e-12).all()


@pytest.mark.deep
def test_it_covers_float32_and_is_not_far_too_large() -> None:
    tokens = np.random.default_rng(0).uniform(-1, 1, (50, 20, 2))
    for dtype, unit in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        network = random_one("log", "dp", "infinite", dtype)
        form = heads_form(network, SLOTS)
        limit = tolerance(network, form, tokens)
        off = np.abs(numpy_model.forward_by_heads(list(form.layers), form.arrays, tokens)[0][..., 0] - run(network, tokens))
        assert (off <= limit[..., 0]).all() and unit / 8 < off.max() < limit.max() < 2000 * off.max()


@pytest.mark.deep
def test_exact_networks_are_heads_only_where_floats_keep_them() -> None:
    forms = {
        name: prepared(built(name).transformer, built(name).slots, tokens_of(built(name), 8)).network.form
        for name in ("contrast", "product", "pair")
    }
    assert forms == {"contrast": "heads", "product": "kernels", "pair": "lags"}


@pytest.mark.deep(keep="1e-06")
@pytest.mark.parametrize("change", [1e-9, 1e-6])
def test_a_changed_weight_leaves_the_tolerance(change: float) -> None:
    network, tokens = random_one("table", "dp", "finite"), np.random.default_rng(0).uniform(-1, 1, (20, 12, 2))
    ready = prepared(network, SLOTS, tokens)
    arrays = ready.network.arrays | {"blocks.1.attn.W_O": ready.network.arrays["blocks.1.attn.W_O"] * (1 + change)}
    outputs = numpy_model.forward_by_heads(list(ready.network.layers), arrays, tokens)[0]
    assert (np.abs(outputs - ready.outputs) > ready.tolerance).any()
