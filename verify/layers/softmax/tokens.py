"""What a single token can be: nodes of a box, or letters, and ranges of them.

A range of nodes is a pair of indices per axis. A box [−1, 1]^d has one axis per coordinate, its nodes are equally spaced, and two ranges
that are cut apart share the node between them. Letters have one axis, in the order of the alphabet, and are cut between two of them.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzer.errors import Refusal

MAX_DIM = 8
"""Coordinates of tokens in a box: 2^8 corners are nodes at least."""
MAX_LETTERS = 512
"""Letters of whole tokens; tables hold the square of their number, for every head."""


@dataclass(frozen=True)
class TokenNodes:
    """Nodes (n, d) with their indices (n, axes); `step` is the distance of neighbours on every axis, 0 for letters."""

    values: np.ndarray
    index: np.ndarray
    step: float

    @property
    def continuous(self) -> bool:
        return self.step > 0

    @property
    def axes(self) -> int:
        return self.index.shape[1]

    @property
    def dim(self) -> int:
        return self.values.shape[1]

    @property
    def last(self) -> int:
        """The largest index of an axis."""
        return int(self.index.max())

    @cached_property
    def _extremes(self) -> np.ndarray:
        """Least and largest coordinates (2, k, k, d) of the letters from one index to another."""
        count = len(self.values)
        result = np.zeros((2, count, count, self.dim))
        for i, j in itertools.combinations_with_replacement(range(count), 2):
            result[:, i, j] = self.values[i : j + 1].min(axis=0), self.values[i : j + 1].max(axis=0)
        return result

    def ends(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest coordinates (…, d) of ranges (…, axes)."""
        if self.continuous:
            line = np.linspace(-1.0, 1.0, self.last + 1)
            return line[low], line[high]
        least, largest = self._extremes[:, low[..., 0], high[..., 0]]
        return least, largest

    def inside(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Which nodes (…, n) lie in ranges (…, axes)."""
        return np.asarray(((self.index >= low[..., None, :]) & (self.index <= high[..., None, :])).all(axis=-1))

    def corners(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Numbers of the nodes (…, corners) at the corners of ranges: for letters the first of the range."""
        if not self.continuous:
            return low
        places = [np.where(np.array(choice, dtype=bool), high, low) for choice in itertools.product((0, 1), repeat=self.axes)]
        strides = (self.last + 1) ** np.arange(self.axes)[::-1]
        return np.asarray(np.stack(places, axis=-2) @ strides)

    def halves(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the first half of index ranges ends and the second begins."""
        middle = (low + high) // 2
        return middle, middle if self.continuous else middle + 1


def box_nodes(dim: int, pieces: int) -> TokenNodes:
    """Nodes of [−1, 1]^d, with so many pieces between them on every coordinate."""
    if dim > MAX_DIM:
        raise Refusal(f"tokens have {dim} coordinates; softmax layers are certified on boxes of up to {MAX_DIM}")
    index = np.array(list(itertools.product(range(pieces + 1), repeat=dim)))
    return TokenNodes(np.linspace(-1.0, 1.0, pieces + 1)[index], index, 2.0 / pieces)


def letter_nodes(letters: np.ndarray) -> TokenNodes:
    """The letters (k, d), and the zero token of positions before an array."""
    if len(letters) > MAX_LETTERS:
        raise Refusal(f"there are {len(letters)} letters; softmax layers are certified on alphabets of up to {MAX_LETTERS}")
    values = np.concatenate([letters, np.zeros((1, letters.shape[1]))])
    return TokenNodes(values, np.arange(len(values))[:, None], 0.0)
