"""The error of a softmax layer as a constant, a linear functional and curved terms of the coordinates (m, ξ).

m are the slots that the target reads, (x_t, memories) for fixed and kernel targets and x_t alone for adaptive ones, whose f is a constant
in every situation; ξ_h are the means of tokens that heads return. All values are affine in tokens, so values of heads are affine in ξ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.numbers.curves import ROUND, bends_of, curve
from analyzer.numbers.exact import UNIT, nearest, rational, upper
from analyzer.targets.protocol import LayerTarget, LetterReading, Target, memories_of
from constructions.network.exponential import exp
from constructions.network.transformer import Transformer, to_exact
from verify.chain.rounding import exponential_error
from verify.layers.decomposition import along
from verify.layers.functionals import unit
from verify.layers.relaxed_terms import RelaxedTerms, stacked
from verify.layers.softmax.masses import ROUNDED, Masses, position_masses
from verify.layers.softmax.tokens import TokenNodes, box_nodes, letter_nodes

WIDEST = 600
"""Logits that tokens may span: e^{−700} is still a normal number."""
SAMPLED, SINGULAR = 2048, 2.0**-20
"""Random sequences that the functionals y come from, and the least spread that one is taken to have: hints."""
SEVERAL = {2: 16, 3: 6, 4: 3, 5: 2}
"""Pieces of a coordinate of tokens of several dimensions."""
FINEST, SHORT = 256, 64
"""Pieces of a scalar token where one head reads so few positions: tables are small."""


@dataclass(frozen=True)
class Start:
    """Where the search begins: ranges of nodes (S, axes) for every position, and the constant part of −f there."""

    low: np.ndarray
    high: np.ndarray
    constant: fmpq
    slack: float = 0.0


class SoftmaxProblem:
    """Everything about a layer and a target that bounds of cells need; `length` is that of arrays in finite and full windows."""

    def __init__(self, network: Transformer, target: Target, length: int | None) -> None:
        self.network, self.target, self.length = network, target, length
        exact = network.map(to_exact)
        attention, ffn = exact.layers[0].attention, exact.layers[0].feedforward
        self.dim, self.heads = network.dim, len(attention.rpe)
        layered = target.as_layer_target
        self.slots = 1 if layered is None else layered.readout.coordinates // self.dim
        self.readings = memories_of(target).readings()
        places = _places(layered, self.readings)
        self.masses: Masses = position_masses(attention, length, places, [0] if layered is None else _kernels(layered))
        self.positions = self.masses.heads.shape[1]
        self._read_slopes(exact)
        self.nodes = self._token_nodes()
        self._read_weights()
        self._read_terms(exact, ffn, layered)
        self._common_functionals()

    def _token_nodes(self) -> TokenNodes:
        letters = self.target.letters()
        if letters is None:
            return box_nodes(self.dim, self._pieces())
        given = letters if self.network.dtype == "exact" else letters.astype(self.network.dtype).astype(float)
        stated = np.array(self.target.alphabet, dtype=object).ravel()
        if any(rational(float(v)) != letter for v, letter in zip(given.ravel(), stated, strict=True)):
            raise Refusal(f"letters of this alphabet are no numbers of {self.network.dtype}, and are rounded before a layer reads them")
        if letters.ndim == 1:
            letters = np.stack(np.meshgrid(*[letters] * self.dim, indexing="ij"), axis=-1).reshape(-1, self.dim)
        return letter_nodes(letters)

    def _read_slopes(self, exact: Transformer) -> None:
        """α_h(q) = slope0 + slope1 q."""
        attention, embedding, bias = exact.layers[0].attention, exact.embedding, exact.bias
        pairs = [(key @ embedding, query) for key, query in zip(attention.key, attention.query, strict=True)]
        shape = (self.heads, self.dim, self.dim)
        self.slope0, self.slope1 = np.zeros(shape[:2]), np.zeros(shape)
        if attention.kind == "dp":
            self.slope0 = floats([key.T @ (query @ bias) for key, query in pairs]).reshape(shape[:2])
            self.slope1 = floats([key.T @ (query @ embedding) for key, query in pairs]).reshape(shape)
        self.steepest = float((np.abs(self.slope0).sum(axis=1) + np.abs(self.slope1).sum(axis=(1, 2))).max())
        if not 2 * self.steepest < WIDEST:
            raise Refusal(f"logits of one head span {2 * self.steepest:.3g}; softmax layers are certified where they span at most {WIDEST}")

    def _pieces(self) -> int:
        """Pieces of a coordinate. Weights of scalar tokens hardly bend between nodes: (αΔ)²/8 is at most 1/32 up to |α| = 16; vectors have
        as many as make some hundreds of nodes."""
        if self.dim > 1:
            return SEVERAL.get(self.dim, 1)
        if self.heads == 1 and self.positions <= SHORT:
            return FINEST
        return next((pieces for steepest, pieces in ((2, 32), (16, 64)) if self.steepest <= steepest), 128)

    def _read_weights(self) -> None:
        """The table e^{α_h(q)·b − shift_h} (nodes of q, H, nodes of b), and how far it is off."""
        self.slopes = self.slope0 + np.einsum("hij,qj->qhi", self.slope1, self.nodes.values)
        """α at the nodes of q, (nodes, H, d)."""
        logits = np.einsum("qhi,bi->qhb", self.slopes, self.nodes.values)
        shift = np.abs(logits).max(axis=(0, 2), keepdims=True)
        self.table, self.shift = np.asarray(exp(logits - shift, np)), shift[0, :, 0]
        carried = (2 * self.dim + 8) * 2 * self.steepest * nearest(UNIT["float64"])
        self.weights_error = upper(exponential_error("float64")) * 2 + 2 * carried + ROUNDED
        """Bounds the relative error of every weight κ_h(s) e^{α_h(q)·b}."""

    def _read_terms(self, exact: Transformer, ffn: Any, layered: LayerTarget | None) -> None:
        attention, embedding, bias = exact.layers[0].attention, exact.embedding, exact.bias
        through = [out @ value for out, value in zip(attention.output, attention.value, strict=True)]
        offset = bias + sum(w @ bias for w in through)
        gains = [embedding, *(w @ embedding for w in through)]  # of q and of every ξ_h, (D, d)
        groups, constant = bends_of(ffn.inner, ffn.bias, ffn.outer[0], tuple(offset))
        size, blank = (self.slots + self.heads) * self.dim, [fmpq(0)] * ((self.slots - 1) * self.dim)
        base, curves, reaches = [fmpq(0)] * size, {}, []
        rows: list[list[fmpq]] = []
        arguments: list[list[fmpq]] = []
        bends: list[tuple[fmpq, fmpq]] = []
        for group in groups:
            parts = [list(np.array(group.direction, dtype=object) @ gain) for gain in gains]
            row = [*parts[0], *blank, *(w for part in parts[1:] for w in part)]
            reach = upper(sum((abs(arb(w)) for w in row), arb(ROUND)))
            inside = group.on(rational(reach))
            constant += inside.intercept
            base = [b + inside.slope * w for b, w in zip(base, row, strict=True)]
            bends += inside.jumps
            arguments += [[*parts[0], *(w for part in parts[1:] for w in part)]] * len(inside.jumps)
        if layered is not None:
            radii, readout = layered.radii(), layered.readout
            constant -= readout.constant
            base = [b - w for b, w in zip(base, [*readout.affine, *[fmpq(0)] * (self.heads * self.dim)], strict=True)]
            for ridge in readout.ridges:
                reach = upper(sum((abs(arb(w)) * r for w, r in zip(ridge.direction, radii, strict=True)), arb(ROUND)))
                curves[len(rows)] = curve(None, [along(ridge, fmpq(1))], reach)
                rows.append([*ridge.direction, *[fmpq(0)] * (self.heads * self.dim)])
                reaches.append(reach)
        self.constant = constant
        self.coefficients, self.base = floats(rows).reshape(len(rows), size), floats(base)
        self.arguments = floats(arguments).reshape(len(arguments), (1 + self.heads) * self.dim)
        """Of the neurons that bend, in the coordinates (q, ξ): F is affine but for Σ_n jump_n relu(v_n − kink_n)."""
        self.kinks, self.jumps = floats(bends).reshape(-1, 2).T
        self.looked = np.r_[0 : self.dim, self.slots * self.dim : size]
        """Where (q, ξ) stand among (m, ξ)."""
        self.terms = RelaxedTerms([], np.array(reaches), curves, {}, stacked(curves))
        bounds = np.ones(self.slots * self.dim) if layered is None else np.array([upper(r) for r in layered.radii()])
        self.radii = np.concatenate([bounds, np.ones(self.heads * self.dim)])
        """Bounds of |(m, ξ)|."""
        known = (self.coefficients, self.base, self.arguments, self.kinks, self.jumps, *(c.values for c in curves.values()))
        if not all(np.isfinite(a).all() for a in known):
            raise Refusal("the error of this network has no bound in double precision: its weights are too large")

    def coordinates(self, x: np.ndarray) -> np.ndarray:
        """(m, ξ) in plain floats, for tokens (C, S, d) one per block: hints and searches only."""
        slopes = self.slope0 + np.einsum("hij,cj->chi", self.slope1, x[:, 0])
        logits = np.einsum("chi,csi->chs", slopes, x)
        weights = self.masses.heads * np.exp(logits - logits.max(axis=2, keepdims=True))
        means = np.einsum("chs,csi->chi", weights / weights.sum(axis=2, keepdims=True), x)
        read = np.einsum("ks,csi->cki", self.masses.memories, x)
        return np.concatenate([read.reshape(len(x), -1), means.reshape(len(x), -1)], axis=1)

    def errors(self, x: np.ndarray, constant: float) -> np.ndarray:
        """E at tokens (C, S, d) in plain floats: hints and searches only."""
        seen = self.coordinates(x)
        ridges = sum((self.terms.curves[u](seen @ row) for u, row in enumerate(self.coefficients)), np.zeros(len(x)))
        bent = np.maximum(seen[:, self.looked] @ self.arguments.T - self.kinks, 0) @ self.jumps
        return np.asarray(constant + seen @ self.base + ridges + bent)

    def _common_functionals(self) -> None:
        """y = R(q, ξ): principal functionals of the neurons' arguments, each divided by its spread on random sequences, the most telling
        first.

        R is square and invertible; R and its inverse are rounded, and what that moves is counted where they are used."""
        rng = np.random.default_rng(0)
        usual = self.nodes.values if self.nodes.continuous else self.nodes.values[:-1]
        seen = self.coordinates(usual[rng.integers(len(usual), size=(SAMPLED, self.positions))])[:, self.looked]
        covariance = seen.T @ seen / SAMPLED
        root = np.linalg.cholesky(covariance + SINGULAR * max(np.trace(covariance), SINGULAR) * np.eye(len(covariance)))
        scales = np.abs(self.jumps)[:, None]
        weighted = (scales * self.arguments) @ root
        _, _, right = np.linalg.svd(np.concatenate([weighted, SINGULAR * np.eye(len(root))]), full_matrices=False)
        self.common = right @ np.linalg.inv(root)
        self.inverse = root @ right.T
        self.importance = (scales * np.abs(self.arguments @ self.inverse)).sum(axis=0)
        """How much neurons may vary with every y."""

    @cached_property
    def starts(self) -> list[Start]:
        """Cells to begin with: slabs of x_t, its letters, or the situations of an adaptive target."""
        nodes, last = self.nodes, self.nodes.last
        low = np.zeros((self.positions, nodes.axes), dtype=int)
        if nodes.continuous:
            high = np.full_like(low, last)
            return [Start(*self._slab(low, high, piece), self.constant) for piece in _slabs(last, nodes.axes)]
        high = np.full_like(low, last - 1)  # the last node is the zero token, which stands before arrays only
        if self.length is None:
            high[[k for k, start in enumerate(self.masses.edges[:-1]) if start > self.target.settled]] = last
        if self.readings is not None:
            return self._situations(self.readings, low, high)
        return [Start(*self._fixed(low, high, {0: letter}), self.constant) for letter in range(last)]

    def _slab(self, low: np.ndarray, high: np.ndarray, piece: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        low, high = low.copy(), high.copy()
        low[0], high[0] = zip(*piece, strict=True)
        return low, high

    def _fixed(self, low: np.ndarray, high: np.ndarray, letters: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
        low, high = low.copy(), high.copy()
        for place, letter in letters.items():
            row = self.masses.edges.index(place)
            low[row] = high[row] = letter
        return low, high

    def _situations(self, readings: Sequence[LetterReading], low: np.ndarray, high: np.ndarray) -> list[Start]:
        starts = {}
        for reading in readings:
            middle = rational(float(reading.value))
            slack = upper(abs(reading.value - arb(middle)))
            where = self._fixed(low, high, reading.letters)
            starts[tuple(sorted(reading.letters.items()))] = Start(*where, self.constant - middle, slack)
        return list(starts.values())


def floats(values: Any) -> np.ndarray:
    """Rationals in double precision."""
    array = np.array(values, dtype=object)
    return np.array([nearest(v) for v in array.ravel()], dtype=float).reshape(array.shape)


def _places(target: LayerTarget | None, readings: Sequence[LetterReading] | None) -> tuple[int, ...]:
    """Distances of single tokens that f reads, increasing from 0."""
    if readings is not None:
        return tuple(sorted({place for reading in readings for place in reading.letters}))
    assert target is not None  # targets with memories are convolutions, or have readings
    return target.places


def _kernels(target: LayerTarget) -> list[Any]:
    """What every slot is: a lag, or a kernel."""
    found: list[Any] = []
    for slot in range(target.readout.coordinates // target.dim):
        spikes, kernels = target.wanted(unit(slot * target.dim, target.readout.coordinates), 0)
        found.append(next(iter(kernels), None) if kernels else next(iter(spikes)))
    return found


def _slabs(last: int, axes: int) -> list[list[tuple[int, int]]]:
    """Boxes of x_t, so narrow that the curvature of weights in it is small: sixteen, or four per coordinate."""
    count = min(last, 16 if axes == 1 else 4 if axes == 2 else 2)
    cuts = np.linspace(0, last, count + 1).round().astype(int)
    line = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    boxes: list[list[tuple[int, int]]] = [[]]
    for _ in range(axes):
        boxes = [[*box, piece] for box in boxes for piece in line]
    return boxes
