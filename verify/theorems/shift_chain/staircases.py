"""Staircases: what the feed-forward network between two layers writes, as piecewise linear functions in rational arithmetic.

A *staircase* is a bounded function r ↦ slope·r + constant + Σ outer relu(w r + b) of one coordinate; its *kinks* are where it bends, its
*room* at a letter is how far around the letter it is constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from constructions.network.transformer import FeedForward, to_exact
from verify.chain.certificate import StrangeWeights
from verify.chain.rounding import ONE, Arithmetic, Rounded


class ScalarNeuron(NamedTuple):
    """outer · relu(weight · r + bias), weight ≠ 0."""

    weight: fmpq
    bias: fmpq
    outer: fmpq

    @property
    def kink(self) -> fmpq:
        return -self.bias / self.weight

    def at(self, r: fmpq) -> fmpq:
        return self.outer * max(self.weight * r + self.bias, fmpq(0))

    def computed(self, arithmetic: Arithmetic, reach: arb) -> Rounded:
        """relu(weight · r + bias) in floats, for |r| ≤ reach as given."""
        hidden = arithmetic.dot([self.weight, self.bias], [Rounded(reach, arb(0)), ONE])
        return Rounded((abs(arb(self.weight)) * reach + arb(self.bias)).max(arb(0)), hidden.error)


@dataclass(frozen=True)
class Staircase:
    """r ↦ slope·r + constant + Σ neurons."""

    slope: fmpq
    constant: fmpq
    neurons: tuple[ScalarNeuron, ...]

    def __call__(self, r: fmpq) -> fmpq:
        return self.slope * r + self.constant + sum((neuron.at(r) for neuron in self.neurons), fmpq(0))

    @cached_property
    def kinks(self) -> list[fmpq]:
        """Where it bends."""
        bends: dict[fmpq, fmpq] = {}
        for neuron in self.neurons:
            bends[neuron.kink] = bends.get(neuron.kink, fmpq(0)) + neuron.outer * abs(neuron.weight)
        return sorted(kink for kink, bend in bends.items() if bend != 0)

    def slope_with(self, active: Sequence[ScalarNeuron]) -> fmpq:
        """The slope where these neurons are positive and the others are 0."""
        return self.slope + sum((neuron.outer * neuron.weight for neuron in active), fmpq(0))

    def is_bounded(self) -> bool:
        """Constant far out on both sides."""
        rising, falling = ([neuron for neuron in self.neurons if neuron.weight * sign > 0] for sign in (1, -1))
        return self.slope_with(rising) == 0 and self.slope_with(falling) == 0

    def room(self, letter: fmpq) -> fmpq:
        """How far around a letter it is constant; 1 if it never bends."""
        slope = self.slope_with([neuron for neuron in self.neurons if neuron.weight * letter + neuron.bias > 0])
        return fmpq(0) if slope != 0 else min((abs(kink - letter) for kink in self.kinks), default=fmpq(1))

    def extremes(self) -> list[fmpq]:
        """Values among which its largest and smallest are, if it is bounded."""
        return [self(kink) for kink in self.kinks] or [self(fmpq(0))]


@dataclass(frozen=True)
class RowUpdate:
    """What a feed-forward network adds to one row: a constant, multiples of coordinates, and neurons on single coordinates."""

    constant: fmpq = field(default_factory=lambda: fmpq(0))
    linear: dict[int, fmpq] = field(default_factory=dict)
    neurons: dict[int, list[ScalarNeuron]] = field(default_factory=dict)

    def staircase(self, coordinate: int, kept: bool) -> Staircase:
        """The row afterwards as a function of a coordinate; `kept`: the row is that coordinate, and held it before."""
        slope = self.linear.get(coordinate, fmpq(0)) + int(kept)
        return Staircase(slope, self.constant, tuple(self.neurons.get(coordinate, ())))

    def computed(self, arithmetic: Arithmetic, held: dict[int, arb]) -> Rounded:
        """What is added, in floats; coordinates that are read hold at most this much, as given."""
        weights, inputs = [self.constant], [ONE]
        for coordinate, weight in self.linear.items():
            weights.append(weight)
            inputs.append(Rounded(held[coordinate], arb(0)))
        for coordinate, neurons in self.neurons.items():
            for neuron in neurons:
                weights.append(neuron.outer)
                inputs.append(neuron.computed(arithmetic, held[coordinate]))
        return arithmetic.dot(weights, inputs)


def row_updates(ffn: FeedForward) -> dict[int, RowUpdate]:
    """Every output row that is written, neuron by neuron."""
    if ffn.precision:
        raise InputError("a chain of shifts has no rounding in its feed-forward networks")
    outer = to_exact(ffn.outer)
    inner, bias = to_exact(ffn.inner), to_exact(ffn.bias)
    return {row: _row_update(inner, bias, weights) for row, weights in enumerate(outer) if (weights != 0).any()}


def _row_update(inner: np.ndarray, bias: np.ndarray, outer: np.ndarray) -> RowUpdate:
    """One row: constants, neurons on single coordinates, and pairs relu(u) − relu(−u) put together."""
    constants: list[fmpq] = []
    neurons: dict[int, list[ScalarNeuron]] = {}
    for row, b, a in zip(inner, bias, outer, strict=True):
        if a == 0:
            continue
        inputs = [int(i) for i in np.nonzero(row)[0]]
        if len(inputs) > 1:
            raise StrangeWeights("a neuron between two layers reads several coordinates: not a restored chain of shifts")
        if inputs:
            neurons.setdefault(inputs[0], []).append(ScalarNeuron(row[inputs[0]], b, a))
        else:
            constants.append(a * max(b, fmpq(0)))
    if len(constants) > 1:
        raise StrangeWeights("several constants are added up in one coordinate: not a restored chain of shifts")
    linear: dict[int, fmpq] = {}
    for coordinate, found in neurons.items():
        pair = [neuron for neuron in found if neuron.bias == 0 and abs(neuron.weight) == 1]
        if len(pair) == 2 and pair[0].weight == -pair[1].weight and pair[0].outer == -pair[1].outer:
            linear[coordinate] = pair[0].weight * pair[0].outer
            neurons[coordinate] = [neuron for neuron in found if neuron not in pair]
    return RowUpdate(sum(constants, fmpq(0)), linear, {coordinate: found for coordinate, found in neurons.items() if found})
