"""Feed-forward networks of a chain of shifts, collected neuron by neuron.

Every row of the stream is a sum of neurons, row += outer · relu(inputs · u + bias); neurons that read the same are stored once.
"""

from collections.abc import Sequence

from flint import fmpq

from constructions.network.transformer import FeedForward, zeros
from constructions.theorems.shift_chain.plateaus import Plateaus


class NeuronRows:
    """What a feed-forward network adds to every row of a stream of the given width."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.neurons: dict[tuple[tuple[tuple[int, fmpq], ...], fmpq], dict[int, fmpq]] = {}

    def add(self, row: int, inputs: Sequence[tuple[int, fmpq]], bias: fmpq, outer: fmpq) -> None:
        """row += outer · relu(inputs · u + bias)."""
        if outer != 0:
            written = self.neurons.setdefault((tuple(inputs), bias), {})
            written[row] = written.get(row, fmpq(0)) + outer

    def linear(self, row: int, coordinate: int, weight: fmpq) -> None:
        """row += weight · u."""
        for sign in (1, -1):
            self.add(row, [(coordinate, fmpq(sign))], fmpq(0), sign * weight)

    def plateau(self, row: int, coordinate: int, weight: fmpq, plateaus: Plateaus) -> None:
        """row += weight · plateau(u)."""
        k = plateaus.steepness
        self.add(row, [], fmpq(1), weight * plateaus.letters[0])
        for gap, (low, high) in zip(plateaus.gaps, plateaus.ramps, strict=True):
            self.add(row, [(coordinate, k)], -k * low, weight * gap)
            self.add(row, [(coordinate, k)], -k * high, -weight * gap)

    def digits(self, rows: range, coordinate: int, plateaus: Plateaus) -> None:
        """row_j += relu(k(θ_j − u))."""
        k = plateaus.steepness
        for row, (_, high) in zip(rows, plateaus.ramps, strict=True):
            self.add(row, [(coordinate, -k)], k * high, fmpq(1))

    def network(self, outputs: int) -> FeedForward:
        """The neurons as arrays, for that many rows."""
        count = max(1, len(self.neurons))
        inner, bias, outer = zeros(count, self.width), zeros(count), zeros(outputs, count)
        for index, ((inputs, offset), written) in enumerate(self.neurons.items()):
            bias[index] = offset
            for coordinate, weight in inputs:
                inner[index, coordinate] = weight
            for row, weight in written.items():
                outer[row, index] = weight
        return FeedForward(inner, bias, outer)
