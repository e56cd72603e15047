"""Neurons that write a lag into its slot: all atoms of the interpolant, a sample, or a staircase (see `analyzer.lemmas.lag_encoding`)."""

from collections.abc import Sequence

import numpy as np
from flint import arb, fmpq

from analyzer.lemmas.lag_encoding import LagEncoding
from analyzer.lemmas.relu_error import Neuron


def _neuron(encoding: LagEncoding, sign: int, place: fmpq, weight: fmpq) -> Neuron:
    """weight · relu(sign·(v − place))."""
    return Neuron(tuple(sign * w for w in encoding.direction), -sign * place, weight)


def _constant(encoding: LagEncoding, weight: fmpq) -> Neuron:
    return Neuron((fmpq(0),) * len(encoding.direction), fmpq(1), weight)


def exact_encoding(encoding: LagEncoding, values: Sequence[fmpq]) -> list[Neuron]:
    """The interpolant itself: one neuron per change of slope, and the constant."""
    base = len(values) // 2
    neurons = [_neuron(encoding, *atom) for atom in encoding.atoms(values, base)]
    return [*neurons, _constant(encoding, values[base])]


def sampled_encoding(encoding: LagEncoding, values: Sequence[fmpq], radius: fmpq, draws: int, rng: np.random.Generator) -> list[Neuron]:
    """`draws` atoms, drawn in proportion to |weight| · reach: the mean of the sample is the interpolant.

    Every drawn atom gets the weight ±‖y‖_B/(m · reach), so the sample's own Barron norm is ‖y‖_B.
    """
    base = encoding.best_base(values, radius)
    norm = encoding.norm_from(values, base, radius)
    if norm == 0:
        return [_constant(encoding, fmpq(0))]
    neurons, masses = [], []
    if values[base] != 0:
        neurons.append(_constant(encoding, (norm if values[base] > 0 else -norm) / draws))
        masses.append(abs(values[base]))
    for sign, place, weight in encoding.atoms(values, base):
        reach = encoding.reach(place, radius)
        neurons.append(_neuron(encoding, sign, place, (norm if weight > 0 else -norm) / (draws * reach)))
        masses.append(abs(weight) * reach)
    odds = np.array([float(arb(mass / norm)) for mass in masses])
    return [neurons[k] for k in rng.choice(len(neurons), size=draws, p=odds / odds.sum())]


def staircase(encoding: LagEncoding, values: Sequence[fmpq]) -> list[Neuron]:
    """Plateaus: in every gap with a step the first and the last third are flat, the middle third is the ramp."""
    neurons = []
    for j in encoding.steps():
        gap = encoding.places[j + 1] - encoding.places[j]
        slope = (values[j + 1] - values[j]) / (gap / 3)
        neurons.append(_neuron(encoding, 1, encoding.places[j] + gap / 3, slope))
        neurons.append(_neuron(encoding, 1, encoding.places[j] + 2 * gap / 3, -slope))
    return [*neurons, _constant(encoding, values[0])]
