"""The a-priori rounding of one softmax layer against real float runs."""

import numpy as np
import pytest

from analyzer.errors import Refusal
from analyzer.numbers.exact import upper
from constructions.run import fast
from tests.conftest import random_network
from verify.chain.softmax_rounding import softmax_layer_rounding


@pytest.mark.deep(keep="table-finite")
@pytest.mark.parametrize("window", ["infinite", "finite"])
@pytest.mark.parametrize("rpe", ["lin", "log", "table"])
def test_float32_runs_stay_within_the_rounding(rpe: str, window: str) -> None:
    rng = np.random.default_rng(5)
    network = random_network(rng, [rpe] * 2, "dp", window, dtype="float32")
    tokens = rng.uniform(-1, 1, (8, 40, 2)).astype(np.float32)
    double = fast.forward(network.map(lambda a: np.asarray(a, np.float64)), tokens.astype(np.float64))
    seen = float(np.abs(fast.forward(network, tokens) - double).max())
    bound = upper(softmax_layer_rounding(network, 40))
    assert seen <= bound < 2e-3
    assert seen > bound / 3000  # the bound is not idle
    assert upper(softmax_layer_rounding(network, 4000)) > bound or rpe == "table"


def test_other_layers_are_refused() -> None:
    with pytest.raises(Refusal, match="one layer of dp attention"):
        softmax_layer_rounding(random_network(np.random.default_rng(0), ["lin"], dtype="float32"), 8)
