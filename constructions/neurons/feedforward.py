"""Feed-forward networks for read-outs: ridge splines and Barron sampling, with exact weights.

Both write f(u) = affine·u + constant + Σ_i outer_i relu(±w_r·u + bias_i). Knots right of the middle of a ridge's range use
relu(v − τ), knots left of it relu(τ − v), so activations stay small; the affine part is relu(a·u) − relu(−a·u), exact everywhere.
A spline also stores its two end knots, with weight 0: they bend nothing, but tell a verifier where the interpolation ends.
"""

from bisect import bisect_right

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.lemmas.feedforward import FeedForwardPlan, plan_feedforward
from analyzer.lemmas.relu_error import Neuron, oriented, readout_error
from analyzer.numbers.exact import dyadic, rational, upper, working_precision
from analyzer.numbers.profiles import Ridge
from analyzer.targets.readout import ReadOut
from constructions.network.transformer import FeedForward, exact_array

VALUE_BITS = 128
"""Bits to which profile values are rounded; `STORAGE` bounds the effect in units of the weights."""
STORAGE = fmpq(1, 2**100)
MAX_DRAWS = 64
"""Draws of Barron neurons tried before giving up: the bound holds for the mean of the supremum, so a draw meets twice the bound with
probability 1/2 at least, and in practice the first one meets the bound."""


class _Assembler:
    """Collects curved neurons and one affine function."""

    def __init__(self, readout: ReadOut) -> None:
        self.affine = list(readout.affine)
        self.constant = readout.constant
        self.neurons: list[Neuron] = []

    def bend(self, ridge: Ridge, knot: fmpq, jump: fmpq, right: bool) -> None:
        """Add scale · jump · relu(±(v − knot)), v = w·u + b."""
        sign = 1 if right else -1
        row = tuple(sign * w for w in ridge.direction)
        self.neurons.append(Neuron(row, sign * (ridge.offset - knot), ridge.scale * jump))

    def line(self, ridge: Ridge, slope: fmpq, intercept: fmpq) -> None:
        """Add scale · (slope·v + intercept)."""
        self.affine = [a + ridge.scale * slope * w for a, w in zip(self.affine, ridge.direction, strict=True)]
        self.constant += ridge.scale * (slope * ridge.offset + intercept)

    def all_neurons(self) -> list[Neuron]:
        merged: dict[tuple[tuple[fmpq, ...], fmpq], fmpq] = {}
        for neuron in self.neurons:
            merged[neuron.row, neuron.bias] = merged.get((neuron.row, neuron.bias), fmpq(0)) + neuron.outer
        neurons = [Neuron(row, bias, outer) for (row, bias), outer in merged.items()]
        if any(a != 0 for a in self.affine):
            row = tuple(self.affine)
            neurons += [Neuron(row, fmpq(0), fmpq(1)), Neuron(tuple(-a for a in row), fmpq(0), fmpq(-1))]
        if self.constant != 0 or not neurons:
            neurons.append(Neuron((fmpq(0),) * len(self.affine), fmpq(1), self.constant))
        return neurons


def as_network(neurons: list[Neuron]) -> FeedForward:
    """Weight arrays of a list of neurons."""
    return FeedForward(
        exact_array([list(n.row) for n in neurons]),
        exact_array([n.bias for n in neurons]),
        exact_array([[n.outer for n in neurons]]),
    )


def read_out_neurons(
    ffn: str, readout: ReadOut, radii: list[arb], width: int | None, error: float | None, seed: int
) -> tuple[list[Neuron], int]:
    """(neurons of a spline or a Barron sample by width or by error, draws that it took)."""
    plan = plan_feedforward(ffn, readout, radii, width, error)
    return (spline(readout, plan, radii), 1) if ffn == "spline" else barron(readout, plan, radii, seed)


def spline(readout: ReadOut, plan: FeedForwardPlan, radii: list[arb]) -> list[Neuron]:
    """Every ridge replaced by its piecewise linear interpolant; ridges along one direction share their knots."""
    parts = _Assembler(readout)
    groups: dict[tuple[fmpq, ...], list[tuple[Ridge, int]]] = {}
    for ridge, pieces in zip(readout.ridges, plan.pieces, strict=True):
        groups.setdefault(oriented(ridge.direction)[0], []).append((ridge, pieces))
    with working_precision(2 * VALUE_BITS):
        for members in groups.values():
            ridges = [ridge for ridge, _ in members]
            knots = _knots(ridges, max(pieces for _, pieces in members), radii)
            for ridge in ridges:
                _add_spline(parts, ridge, knots)
    return parts.all_neurons()


def _reach(ridge: Ridge, radii: list[arb]) -> fmpq:
    """A rational a little above sup |w·u| on the box."""
    reach = sum((abs(arb(w)) * r for w, r in zip(ridge.direction, radii, strict=True)), arb(0)).upper()
    return dyadic(reach * (1 + arb(2) ** -32), 40)


def _knots(ridges: list[Ridge], pieces: int, radii: list[arb]) -> list[fmpq]:
    """Knots in v = (oriented direction)·u: equal intervals over the range, and the kinks of the ridges."""
    reach = _reach(ridges[0], radii)
    knots = {-reach + 2 * reach * k / pieces for k in range(pieces + 1)}
    kinks = {-oriented(ridge.direction)[1] * ridge.offset for ridge in ridges if ridge.profile.kink}
    return sorted(knots | {kink for kink in kinks if -reach < kink < reach})


def _add_spline(parts: _Assembler, ridge: Ridge, knots: list[fmpq]) -> None:
    sign = oriented(ridge.direction)[1]
    ordered = sorted(sign * knot + ridge.offset for knot in knots)
    values = [dyadic(ridge.profile.value(arb(v)), VALUE_BITS) for v in ordered]
    slopes = [(values[i + 1] - values[i]) / (ordered[i + 1] - ordered[i]) for i in range(len(ordered) - 1)]
    centre = min(len(slopes) - 1, bisect_right(ordered, ridge.offset) - 1)
    parts.line(ridge, slopes[centre], values[centre] - slopes[centre] * ordered[centre])
    for i in range(1, len(slopes)):
        parts.bend(ridge, ordered[i], slopes[i] - slopes[i - 1], right=i > centre)
    if not ridge.profile.kink:
        parts.bend(ridge, ordered[0], fmpq(0), right=False)
        parts.bend(ridge, ordered[-1], fmpq(0), right=True)


def barron(readout: ReadOut, plan: FeedForwardPlan, radii: list[arb], seed: int) -> tuple[list[Neuron], int]:
    """Neurons drawn from the curvature measure until the certified error meets the theorem's bound; (neurons, draws it took)."""
    rng = np.random.default_rng(seed)
    allowed = upper(plan.error)
    with working_precision(2 * VALUE_BITS):
        for attempt in range(1, MAX_DRAWS + 1):
            neurons = _draw(readout, plan.draws, radii, rng)
            if not plan.draws or upper(readout_error(readout, neurons, radii)) <= allowed:  # without draws only storage is off
                return neurons, attempt
    raise Refusal(f"{MAX_DRAWS} draws of {plan.draws} Barron neurons all missed the bound {allowed:.3g}", {"ffn": "spline"})


CELLS = 256
"""Cells of the proposal density per ridge; the neuron's weight corrects for the proposal, so any number keeps the draw unbiased."""


def _draw(readout: ReadOut, draws: int, radii: list[arb], rng: np.random.Generator) -> list[Neuron]:
    parts = _Assembler(readout)
    cells: list[tuple[Ridge, fmpq, fmpq, fmpq]] = []  # ridge, left end, length, middle of the ridge's range
    masses: list[float] = []
    for ridge in readout.ridges:
        if ridge.profile.kink:
            _add_spline(parts, ridge, _knots([ridge], 1, radii))
            continue
        low, high, middle = ridge.offset - _reach(ridge, radii), ridge.offset + _reach(ridge, radii), ridge.offset
        slope, height = (dyadic(g(arb(middle)), VALUE_BITS) for g in (ridge.profile.first, ridge.profile.value))
        parts.line(ridge, slope, height - slope * middle)
        reach = float(sum((abs(arb(w)) for w in ridge.direction), arb(0)) * radii[-1])
        for k in range(CELLS):
            left, length = low + (high - low) * k / CELLS, (high - low) / CELLS
            centre = left + length / 2
            bend = abs(float(arb(ridge.scale) * ridge.profile.second(arb(centre))))
            cells.append((ridge, left, length, middle))
            masses.append(bend * (reach + abs(float(arb(centre - ridge.offset)))) * float(arb(length)))
    total = sum(masses)
    if not draws or total == 0:
        return parts.all_neurons()
    odds = np.array(masses) / total
    for cell in rng.choice(len(cells), size=draws, p=odds):
        ridge, left, length, middle = cells[cell]
        knot = left + length * rational(float(rng.random()))
        second = dyadic(ridge.profile.second(arb(knot)), VALUE_BITS)
        weight = second * length / (draws * rational(float(odds[cell])))
        if weight != 0:
            parts.bend(ridge, knot, dyadic(arb(weight), VALUE_BITS), right=knot >= middle)
    return parts.all_neurons()
