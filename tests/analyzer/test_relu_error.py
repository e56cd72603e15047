"""The certificate of the feed-forward part against dense sampling, and its sharpness for splines."""

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.lemmas.feedforward import plan_barron, plan_spline
from analyzer.lemmas.relu_error import Neuron, readout_error, spline_bound
from analyzer.numbers.exact import rational, upper, working_precision
from analyzer.targets.readout import ReadOut, read_out
from constructions.neurons.feedforward import barron, spline
from tests.depth import examples

TEXTS = ["m1*m2", "x0 + m1*m2 - 0.5*(m1 + 2*m2)**3", "2*exp(x0/2) + tanh(m1 - m2)", "relu(m1 - 0.3) + abs(m2) + sin(2*x0)", "x0*m1*m2 + 1"]
RADII = [arb(1), arb("1.01"), arb("1.01")]


def network(neurons: list[Neuron], points: np.ndarray) -> np.ndarray:
    rows = np.array([[float(arb(w)) for w in n.row] for n in neurons])
    bias, outer = (np.array([float(arb(getattr(n, name))) for n in neurons]) for name in ("bias", "outer"))
    return np.maximum(points @ rows.T + bias, 0) @ outer


def target(readout: ReadOut, points: np.ndarray) -> np.ndarray:
    return np.array([float(readout([arb(float(v)) for v in p])) for p in points])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("error", [1e-1, 1e-3])
def test_splines_keep_their_promise(text: str, error: float) -> None:
    readout = read_out(text, ("m1", "m2"), 1)
    plan = plan_spline(readout, RADII, None, error)
    neurons = spline(readout, plan, RADII)
    with working_precision(256):
        certified, bound = upper(readout_error(readout, neurons, RADII)), upper(spline_bound(readout, neurons, RADII) + arb(2) ** -90)
    assert len(neurons) <= plan.width
    assert certified <= bound <= error * (1 + 1e-9)
    points = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    seen = np.abs(network(neurons, points) - target(readout, points)).max()
    assert seen <= certified * (1 + 1e-9)
    assert seen >= certified / 12


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(40), deadline=None)
def test_random_neurons_never_beat_the_certificate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    readout = read_out(TEXTS[seed % len(TEXTS)], ("m1", "m2"), 1)
    directions = [r.direction for r in readout.ridges] + [tuple(rational(float(v)) for v in rng.standard_normal(3))]
    neurons = []
    for _ in range(12):
        row = directions[rng.integers(len(directions))]
        sign = fmpq(int(rng.choice([-1, 1])))
        neurons.append(Neuron(tuple(sign * w for w in row), rational(float(rng.normal())), rational(float(rng.normal()))))
    neurons.append(Neuron((fmpq(0),) * 3, fmpq(1), fmpq(1, 2)))
    with working_precision(128):
        certified = upper(readout_error(readout, neurons, RADII))
    points = np.concatenate([rng.uniform(-1, 1, (500, 3)), rng.choice([-1.0, 1.0], (8, 3))])
    assert np.abs(network(neurons, points) - target(readout, points)).max() <= certified * (1 + 1e-9)


def test_barron_draws_meet_the_bound_and_follow_the_seed() -> None:
    readout = read_out("tanh(m1) + m2**2/4", ("m1", "m2"), 1)
    plan = plan_barron(readout, RADII, 300, None)
    first, draws = barron(readout, plan, RADII, seed=3)
    again, _ = barron(readout, plan, RADII, seed=3)
    other, _ = barron(readout, plan, RADII, seed=4)
    assert first == again and first != other and draws >= 1
    with working_precision(256):
        assert upper(readout_error(readout, first, RADII)) <= upper(plan.error)


@pytest.mark.parametrize("field", ["bias", "outer"])
def test_a_changed_neuron_is_seen(field: str) -> None:
    from dataclasses import replace

    readout = read_out("m1*m2", ("m1", "m2"), 1)
    neurons = spline(readout, plan_spline(readout, RADII, None, 1e-3), RADII)
    middle = len(neurons) // 2
    neurons[middle] = replace(neurons[middle], **{field: getattr(neurons[middle], field) + fmpq(1, 10)})
    with working_precision(256):
        assert upper(readout_error(readout, neurons, RADII)) > 5 * upper(
            spline_bound(readout, spline(readout, plan_spline(readout, RADII, None, 1e-3), RADII), RADII)
        )


def test_kinks_just_outside_the_box_are_not_forgotten() -> None:
    """Neurons that bend outside [−1, 1] but differ from the read-out inside it."""
    row, a, k1, k2 = (fmpq(0), fmpq(1)), fmpq(-9, 10), fmpq(-11, 10), fmpq(-21, 20)
    first = fmpq(1000)
    second = -first * (a - k1) / (a - k2)
    neurons = [
        Neuron(row, -k1, first),
        Neuron(row, -k2, second),
        Neuron(row, -a, -(first + second)),
        Neuron(row, fmpq(-1, 2), fmpq(1, 1000)),
    ]
    readout = read_out("0.001*relu(m1 - 0.5)", ("m1",), 1)
    assert upper(readout_error(readout, neurons, [arb(1), arb(1)])) >= 33


def test_a_box_of_radius_zero() -> None:
    readout = read_out("m1", ("m1",), 1)
    assert upper(readout_error(readout, [Neuron((fmpq(0), fmpq(1)), fmpq(0), fmpq(1))], [arb(0), arb(0)])) < 1e-15
