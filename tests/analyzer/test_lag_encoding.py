"""Lag encodings against their definition: interpolation, staircases, samples, margins, and the range of neurons under noise."""

import itertools
import math

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.lemmas.lag_encoding import LagEncoding, encode, rounding_distance, rounding_margin, slot_form, slot_value
from analyzer.lemmas.relu_error import Neuron, local_range
from analyzer.numbers.exact import upper
from constructions.neurons.lag_encoding import exact_encoding, sampled_encoding, staircase
from constructions.theorems.thm_4_4 import parent_points
from tests.analyzer.test_adaptive import target
from tests.depth import examples


def value(neurons: list[Neuron], point: list[fmpq]) -> fmpq:
    total = fmpq(0)
    for n in neurons:
        total += n.outer * max(sum((w * x for w, x in zip(n.row, point, strict=True)), n.bias), fmpq(0))
    return total


TARGETS = [
    target({"m1": "(3 - x0)/2", "m2": "(3 - m1)/2"}),
    target({"m1": "2 + x0", "m2": "3 + x0 - m1", "m3": "3 + x0*m1*m2"}),
    target({"m1": ([1, 4, 2], "x0"), "m2": "3 + x0 + m1"}, [[-1], [0], [1]]),
    target({"m1": "1 + 2*x0[1]", "m2": "2 + m1[1]*x0[0]"}, [[-1, 0], [1, 0], [-1, 1], [1, 1]]),
    target({"m1": "7"}),
]


@pytest.mark.parametrize("chosen", TARGETS, ids=lambda t: ",".join(map(str, t.names)))
@pytest.mark.parametrize("form", ["lag", "log"])
def test_exact_encodings_and_staircases_hit_every_lag(chosen, form) -> None:  # type: ignore[no-untyped-def]
    for k in range(len(chosen.memories)):
        encoding = encode(chosen, k)
        values = encoding.values(form)
        exact, stairs = exact_encoding(encoding, values), staircase(encoding, values)
        assert len(exact) <= len(encoding.places) and len(stairs) == 2 * len(encoding.steps()) + 1
        for point, lag in parent_points(chosen, k):
            wanted = slot_value(form, lag)
            assert value(exact, point) == wanted == value(stairs, point)
            assert rounding_distance(form, lag, wanted, fmpq(0)) < fmpq(1, 2**50)


def test_staircases_are_flat_around_every_token() -> None:
    chosen = TARGETS[1]
    for k in range(3):
        encoding = encode(chosen, k)
        half_width = encoding.plateau()
        assert half_width is not None
        noise = [half_width / sum(abs(w) for w in encoding.direction)] * len(encoding.direction)
        for point, lag in parent_points(chosen, k):
            assert local_range(staircase(encoding, encoding.values("lag")), point, noise) == (lag, 0)
            assert local_range(staircase(encoding, encoding.values("lag")), point, [3 * n for n in noise])[1] > 0


def test_directions_keep_the_gain_small() -> None:
    """g = 3 + x0 + m1 is affine: along (1, 1) one neuron and gain 1, where a mixed radix would need more of both."""
    encoding = encode(TARGETS[2], 1)
    assert encoding.direction[:2] in ((1, 1), (2, 2)) and encoding.noise_gain("lag", range(1, 2)) == 1
    assert len(exact_encoding(encoding, encoding.values("lag"))) <= 3


def test_barron_norms_by_hand() -> None:
    """g = (3 − x)/2 from the right end: 1 + (1/2) relu(1 − x), norm 1 + (1/2)(1 + 1)."""
    encoding = LagEncoding(0, (fmpq(1),), (fmpq(-1), fmpq(1)), (2, 1))
    assert encoding.barron_norm("lag") == 2
    assert upper(arb(encoding.barron_norm("log"))) == pytest.approx(math.log(2))
    assert encoding.barron_norm("lag", fmpq(3)) == 1 + fmpq(1, 2) * (3 + 1)
    assert encoding.sampling_width("lag", rounding_margin("lag", 2)) == 16 * 4 * 2 * 4


def test_samples_are_unbiased_and_their_error_falls() -> None:
    encoding = encode(TARGETS[2], 0)
    values = encoding.values("lag")
    points = parent_points(TARGETS[2], 0)

    def worst(draws: int, seed: int) -> float:
        sample = sampled_encoding(encoding, values, fmpq(1), draws, np.random.default_rng(seed))
        assert len(sample) == draws
        norm = sum(abs(n.outer) * encoding.reach(n.bias, fmpq(1)) if any(n.row) else abs(n.outer) for n in sample)
        assert norm == encoding.barron_norm("lag")
        return max(abs(float(arb(value(sample, p) - lag))) for p, lag in points)

    errors = [np.mean([worst(m, seed) for seed in range(20)]) for m in (16, 256, 4096)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    bound = 4 * float(arb(encoding.barron_norm("lag"))) * math.sqrt(2 / 4096)
    assert errors[2] <= bound
    mean = np.mean(
        [float(arb(value(sampled_encoding(encoding, values, fmpq(1), 64, np.random.default_rng(s)), points[0][0]))) for s in range(200)]
    )
    assert mean == pytest.approx(points[0][1], abs=4 * float(arb(encoding.barron_norm("lag"))) / math.sqrt(64 * 200))


def test_rounding_margins() -> None:
    assert slot_form("log", "dp") == "log" and slot_form("log", "tmx") == slot_form("lin", "dp") == "lag"
    for lag in (1, 2, 7):
        margin = rounding_margin("log", lag)
        inside = arb(lag).log() + margin * arb(fmpq(999, 1000))
        assert abs(inside.exp() - lag) < arb(1) / 2 < abs((arb(lag).log() + margin * arb(fmpq(1001, 1000))).exp() - lag)
    assert rounding_distance("lag", 3, fmpq(13, 4), fmpq(1, 8)) == fmpq(3, 8)
    assert (
        rounding_distance("log", 3, slot_value("log", 3), fmpq(1, 5))
        > fmpq(1, 2)
        > rounding_distance("log", 3, slot_value("log", 3), fmpq(1, 10))
    )


small = st.integers(-6, 6).map(lambda n: fmpq(n, 4))


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.tuples(small, small), small, small), min_size=1, max_size=7),
    st.tuples(small, small),
    st.tuples(small.map(abs), small.map(abs)),
)
def test_local_range_contains_every_point_nearby(neurons, point, noise) -> None:  # type: ignore[no-untyped-def]
    built = [Neuron(row, bias, outer) for row, bias, outer in neurons]
    y, moved = local_range(built, point, noise)
    assert y == value(built, list(point))
    for s, t in itertools.product([fmpq(k, 4) for k in range(-4, 5)], repeat=2):
        assert abs(value(built, [point[0] + s * noise[0], point[1] + t * noise[1]]) - y) <= moved


def test_local_range_is_sharp_along_one_direction() -> None:
    identity = [Neuron((fmpq(1),), fmpq(0), fmpq(1)), Neuron((fmpq(-1),), fmpq(0), fmpq(-1))]
    assert local_range(identity, [fmpq(0)], [fmpq(1, 3)]) == (0, fmpq(1, 3))
