"""The chain of one dp-free layer that delivers memories: from stored weights to witness ≤ certified ≤ bound.

Let û = U be the residual stream after attention, u = (x_t, x_{t−T_1}, …) what it should be, F the feed-forward network. Then

    |F(û) − f(u)| ≤ sup_box |F − f| + min( Σ_r |scale_r| sup|ψ_r'| ‖w_r·(κ − 1)‖₁ ,  Σ_k Lip_k e_k )                (certified)

where the first sum runs over the ridges of f (its affine part is one of them, with ψ' = 1) and ‖w·(κ − 1)‖₁ is the ℓ¹ norm of the
error kernel in that direction: exact for affine read-outs. The box is that of the kernels' norms, e_k = ‖κ_k − 1_{T_k}‖₁, all with
their infinite tails. Float networks are certified with the constants that the executor uses, and the rounding of the evaluation is
added: δ_j on the residual stream, which f passes on with its Lipschitz constants (the box contains û + δ), and that of the
feed-forward network itself.

The bound is the theorem's formula at the decays, knots and sizes found in the weights, plus the budget for storing the weights;
float networks add the budget of their evaluation.

The witness is the error at an explicit input: the sign sequence of a direction's error kernel, both signs, run through the network
(float networks really run; exact ones are evaluated in ball arithmetic). For affine read-outs of exact networks it is the sign
sequence over the infinite past.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, OptionValue
from analyzer.kernels.l1_norms import Norm, l1_norm, with_spikes
from analyzer.lemmas.extraction import LayerRpe, Rpe
from analyzer.lemmas.feedforward import least_width, plan_barron
from analyzer.lemmas.relu_error import Neuron, neurons_of, readout_error, spline_bound
from analyzer.numbers.exact import UNIT, lower, maximum, rational, upper, working_precision
from analyzer.statements.registry import THEOREMS
from analyzer.targets.protocol import LayerTarget
from analyzer.targets.readout import ReadOut
from analyzer.theorems import base
from constructions.network.transformer import Transformer, to_exact
from constructions.neurons.feedforward import STORAGE
from constructions.run import fast
from constructions.run.fused import FusedLayer, fuse
from constructions.theorems.assembly import BOX_SHARE
from verify.chain.certificate import Certificate, better_than_constant, matched
from verify.chain.rounding import evaluation_error

FFN_BITS = 256
SMALLEST_RADIUS = arb(2) ** -40
"""Boxes are widened to this: a memory that is delivered as zero still has a box."""
MAX_CORNERS = 64
MAX_WITNESS_WORK = 200_000
"""Neurons times candidate inputs evaluated in ball arithmetic while looking for a witness."""
MAX_WITNESS = 4096
"""Tokens of a witness that is run through a float network or a curved read-out; longer tails are left at zero."""


@dataclass(frozen=True)
class _Directions:
    """ℓ¹ norms of kernels of linear functionals of the residual stream; equal kernels are computed once."""

    target: LayerTarget
    layer: FusedLayer
    known: dict[tuple[object, ...], Norm] = field(default_factory=dict)

    def norms(self, row: tuple[fmpq, ...], error: bool = True) -> list[Norm]:
        """One norm per input coordinate, of w·(κ − 1) or of w·κ."""
        result = []
        for column in range(self.target.dim):
            spikes, memories = self.target.wanted(row, column) if error else ({}, {})
            residual, gains = self.layer.functional(row, column)
            key = (residual, tuple(gains), tuple(sorted(spikes.items())), tuple(memories.items()))
            if key not in self.known:
                spared = None if error else self._from_error(row, column, key)
                self.known[key] = spared or l1_norm(self.layer.kernel(row, column, spikes, memories))
            result.append(self.known[key])
        return result

    def _from_error(self, row: tuple[fmpq, ...], column: int, key: tuple[object, ...]) -> Norm | None:
        """‖w·κ‖ from ‖w·(κ − 1)‖, which is smaller, so that its tail was looked at more closely; None where that is not known."""
        spikes, memories = self.target.wanted(row, column)
        known = self.known.get((*key[:2], tuple(sorted(spikes.items())), ()))
        return None if known is None or memories else with_spikes(known, spikes)

    def total(self, row: tuple[fmpq, ...], error: bool = True) -> arb:
        """Upper bound of the norm, added up over the input coordinates."""
        return sum((n.most for n in self.norms(row, error)), arb(0))

    def attained(self, row: tuple[fmpq, ...]) -> arb:
        """Lower bound of the same norm of w·(κ − 1): the error at the sign sequence."""
        return sum((n.least for n in self.norms(row)), arb(0))


@dataclass(frozen=True)
class LayerRules:
    """What a theorem about one dp-free layer says beyond the common chain."""

    theorem: str
    parts: Callable[[Any], list[str]]
    """The lemma of every memory, by the name that the theorem's proof gives it."""
    budgets: Callable[[FusedLayer, Any, str, Rpe, str, list[str]], list[arb]]
    """What is promised for every memory at the stored decays, plus the budget for storing its weights; faults are appended."""
    least_heads: Callable[[LayerRpe, Any, float], int | None]
    """The fewest heads that can reach an error, where that is known."""
    best_bank: str
    """The bank with the fewest heads for its bound."""


@dataclass(frozen=True)
class DeliveredStream:
    """The residual stream û after attention, coordinate by coordinate."""

    errors: list[arb]
    """sup |û_j − u_j|."""
    sizes: list[arb]
    """sup |û_j|."""
    slack: list[arb]
    """How far rounding may move û_j."""
    readout_rounding: arb
    """What the rounding of the feed-forward network adds to the output."""

    def box(self) -> list[arb]:
        """Radii of a box that contains û as it is computed."""
        return [(size + slack).upper().max(SMALLEST_RADIUS) for size, slack in zip(self.sizes, self.slack, strict=True)]

    def drawn_box(self, reach: list[arb]) -> list[arb]:
        """Radii of the box for which Barron neurons were drawn: what memories can be (`reach`), errors with a share to spare, rounding."""
        spared = [r + e * (1 + BOX_SHARE) + s for r, e, s in zip(reach, self.errors, self.slack, strict=True)]
        return [radius.upper().max(b) for radius, b in zip(spared, self.box(), strict=True)]


def _delivered(network: Transformer, target: LayerTarget, directions: _Directions) -> DeliveredStream:
    """The stream from the kernels' norms, and what the executor's rounding does to it."""
    layer, reach = directions.layer, target.radii()
    with working_precision(layer.bits):
        offsets = [abs(arb(o)) for o in layer.offset]
        units = _units(target)
        errors = [directions.total(u) + o for u, o in zip(units, offsets, strict=True)]
        norms = [directions.total(u, error=False) + o for u, o in zip(units, offsets, strict=True)]
        sizes = [norm.upper().min((r + e).upper()) for norm, e, r in zip(norms, errors, reach, strict=True)]
    if network.dtype == "exact":
        return DeliveredStream(errors, sizes, [arb(0)] * len(sizes), arb(0))
    with working_precision(FFN_BITS):
        readout_rounding, slack = evaluation_error(network, layer, sizes)
    return DeliveredStream(errors, sizes, slack, readout_rounding)


def _units(target: LayerTarget) -> list[tuple[fmpq, ...]]:
    """The coordinates of the stream, as linear functionals."""
    width = target.readout.coordinates
    return [tuple(fmpq(int(i == j)) for i in range(width)) for j in range(width)]


def certify(network: Transformer, target: LayerTarget, bank: str, ffn: str, rules: LayerRules) -> Certificate:
    """The chain of a network with one dp-free layer, from its stored weights."""
    start = time.perf_counter()
    check_layout(network, target, rules.theorem)
    layer, readout = fuse(network), target.readout
    rpe: Rpe = "lin" if layer.rpe[0] == "lin" else "log"
    faults: list[str] = []
    directions, reach = _Directions(target, layer), target.radii()
    stream = _delivered(network, target, directions)
    with working_precision(layer.bits):
        budgets = rules.budgets(layer, target, bank, rpe, network.dtype, faults)
    with working_precision(FFN_BITS):
        memory_errors = [maximum([stream.errors[j] for j in readout.slot(k)]) for k in range(len(readout.slots))]
        box, neurons = stream.box(), _neurons(network)
        readout_certified = readout_error(readout, neurons, box)
        readout_promised = readout_bound(ffn, readout, neurons, box, stream.drawn_box(reach), network.dtype)
        hull = [b.max(r) for b, r in zip(box, reach, strict=True)]
        lipschitz = readout.lipschitz(hull)
        moved = [lip * maximum([stream.slack[j] for j in readout.slot(k)]) for k, lip in enumerate(lipschitz)]
        rounding = sum(moved, stream.readout_rounding)
        slotwise = sum((lip * e for lip, e in zip(lipschitz, memory_errors, strict=True)), arb(0))
        certified = readout_certified + slotwise.min(_ridgewise(readout, directions, hull)) + rounding
        promised_hull = hull[: target.dim] + [(reach[j] + b).max(hull[j]) for k, b in enumerate(budgets, 1) for j in readout.slot(k)]
        promised_lipschitz = [a.max(b) for a, b in zip(readout.lipschitz(promised_hull), lipschitz, strict=True)]
        bound = base.total_budget(readout_promised + rounding, promised_lipschitz[1:], budgets) + lipschitz[0] * memory_errors[0]
        measured = dict(zip(rules.parts(target), zip(memory_errors[1:], budgets, strict=True), strict=True))
        measured[base.READ_OUT] = readout_certified, readout_promised
        witness, description = _witness(network, target, layer, directions, neurons, readout_certified)
        trivial = target.constant_error()
    return Certificate(
        theorem=rules.theorem,
        witness=max(0.0, witness),
        witness_input=description,
        certified=upper(certified),
        bound=upper(bound),
        rounding=upper(rounding),
        trivial=trivial,
        least_heads=rules.least_heads(rpe if len(set(layer.rpe)) == 1 else "mixed", target, upper(certified)),
        parts=matched(THEOREMS[rules.theorem].proof(rpe, bank, ffn, target.bank_labels), measured),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(faults),
        remedies=better_than_constant(upper(bound), trivial, **_better(bank, ffn, rules)),
    )


@dataclass(frozen=True)
class ReadOutSteps:
    """What moves the output, tokens in [−1, 1]: it is off by at most `readout` + `rounding` + Σ slope |direction·(û − u)|, and as well by
    `readout` + `rounding` + Σ_k lipschitz_k max_{j in slot k} |û_j − u_j|."""

    readout: arb
    """sup |F − f| on the box of what is delivered."""
    rounding: arb
    slopes: list[tuple[arb, tuple[fmpq, ...]]]
    """Slope and direction of the affine part and of every ridge."""
    lipschitz: list[arb]


def read_out_steps(network: Transformer, target: LayerTarget, name: str) -> ReadOutSteps:
    """The steps from the stream to the output of a network with one dp-free layer, as theorem `name` writes it."""
    check_layout(network, target, name)
    readout, directions = target.readout, _Directions(target, fuse(network))
    stream = _delivered(network, target, directions)
    with working_precision(FFN_BITS):
        box = stream.box()
        hull = [b.max(r) for b, r in zip(box, target.radii(), strict=True)]
        lipschitz = readout.lipschitz(hull)
        moved = [lip * maximum([stream.slack[j] for j in readout.slot(k)]) for k, lip in enumerate(lipschitz)]
        slopes = list(zip(_slopes(readout, hull), _rows(readout), strict=True))
        return ReadOutSteps(readout_error(readout, _neurons(network), box), sum(moved, stream.readout_rounding), slopes, lipschitz)


def delivered_stream(network: Transformer, target: LayerTarget, name: str) -> tuple[FusedLayer, DeliveredStream]:
    """The fused layer of a network with one dp-free layer, and the stream that it delivers."""
    check_layout(network, target, name)
    layer = fuse(network)
    return layer, _delivered(network, target, _Directions(target, layer))


def _slopes(readout: ReadOut, hull: list[arb]) -> list[arb]:
    """The largest slopes on the hull, along the rows."""
    return [arb(1), *(abs(arb(r.scale)) * r.profile.slope(*r.span(hull)) for r in readout.ridges)]


def _better(bank: str, ffn: str, rules: LayerRules) -> dict[str, OptionValue]:
    """Sizes follow from the error; the bank is the best one, unless the bank has no rate to be bad at."""
    options: dict[str, OptionValue] = {"heads": None}
    if ffn == "barron":
        options["width"] = None
    if bank in ("paper", "tuned"):
        options["bank"] = rules.best_bank
    return options


def check_layout(network: Transformer, target: LayerTarget, name: str) -> None:
    """Refuse networks whose stream is not (x0, memories), or that have more than one layer or output."""
    expected = (target.readout.coordinates, target.dim)
    if tuple(network.embedding.shape) != expected:
        raise InputError(f"the embedding has shape {tuple(network.embedding.shape)}; {name} for this target has {expected}")
    if any(p != "none" for layer in network.layers for p in layer.feedforward.precision):
        raise InputError("the read-out of one dp-free layer is not rounded: this network's is")
    if len(network.layers) != 1 or network.layers[0].feedforward.outer.shape[0] != 1:
        raise InputError(f"{name} speaks of one layer with a scalar read-out")


BALL_SHARE = arb(2) ** -40
"""Radii of balls have 30 bits, and a tail is at most 2^-12 of a norm: two ways to compute it agree to this share."""


def own_error(layer: FusedLayer, target: LayerTarget, row: int) -> arb:
    """‖κ − wanted‖₁ of the stored bank with ideal heads, in exact arithmetic."""
    unit = [fmpq(int(j == row)) for j in range(target.readout.coordinates)]
    ideal = replace(layer, constants=None)
    return l1_norm(ideal.kernel(unit, 0, *target.wanted(unit, 0))).most * (1 + BALL_SHARE)


def bank_of(layer: FusedLayer, k: int, row: int, memories: int) -> list[int]:
    """The heads that serve memory k: those of its gains, or the k-th bank if the interpolant is zero and has no gains."""
    banks = layer.banks()
    return layer.serving(list(layer.gains[:, row, 0])) or (banks[k - 1] if len(banks) == memories else banks[0])


def storage(layer: FusedLayer, heads: Sequence[int], weights: Sequence[fmpq], dtype: str) -> arb:
    """Effect of storing a bank. Exact numbers lie on a grid of spacing 2^{−k}, which the largest denominator shows: H + 1 times that.
    Floats: u(|c| + Σ|a_h|) as in `analyzer.limits.budgeted_error`, with the rounded ratio, gain or taps of every head added.

    A relative change of at most u in z moves (1−z)z^s by at most u z/(1−z) in ℓ¹, one of u in the gain or in every tap by u; taps
    that are left out hold at most u/2. Second-order terms are below one hundredth of that.
    """
    *amplitudes, residual = [abs(arb(w)) for w in weights]
    if dtype == "exact":
        return len(weights) / max(arb(w.q) for w in weights)
    unit, total = arb(UNIT[dtype]), residual
    for h, amplitude in zip(heads, amplitudes, strict=True):
        z = (-arb(layer.decays[h])).exp()
        total += amplitude * (2 + z / (1 - z) if layer.rpe[h] == "lin" else arb(3))
    return unit * total * arb(fmpq(101, 100))


def _neurons(network: Transformer) -> list[Neuron]:
    ffn = network.layers[0].feedforward
    return neurons_of(to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[0])


def readout_bound(ffn: str, readout: ReadOut, neurons: list[Neuron], box: list[arb], drawn_box: list[arb], dtype: str) -> arb:
    """The spline or Barron estimate at the stored size, plus the storage budget of the neurons: u on outer weight, row and bias.

    Knots say themselves where they lie, so splines are judged on `box`, where the stream is. Barron neurons do not show for which box they
    were drawn, and the estimate is that of `drawn_box`, which the construction took and which may be larger.
    """
    if ffn == "spline":
        promised = spline_bound(readout, neurons, box)
    else:
        promised = plan_barron(readout, drawn_box, max(len(neurons), least_width(readout) + 1), None).error
    unit = arb(STORAGE if dtype == "exact" else UNIT[dtype])
    storage = arb(0)
    for neuron in neurons:
        reach = sum((abs(arb(w)) * r for w, r in zip(neuron.row, box, strict=True)), abs(arb(neuron.bias)))
        storage += abs(arb(neuron.outer)) * reach
    return promised + 4 * unit * storage


def _ridgewise(readout: ReadOut, directions: _Directions, hull: list[arb]) -> arb:
    """Σ over the affine part and the ridges of (slope) · ‖error kernel in its direction‖₁."""
    layer = directions.layer
    with working_precision(layer.bits):
        offsets = [abs(arb(o)) for o in layer.offset]
        shift = [sum((abs(arb(w)) * o for w, o in zip(row, offsets, strict=True)), arb(0)) for row in _rows(readout)]
        norms = [directions.total(row) + s for row, s in zip(_rows(readout), shift, strict=True)]
    return sum((slope * norm for slope, norm in zip(_slopes(readout, hull), norms, strict=True)), arb(0))


def _rows(readout: ReadOut) -> list[tuple[fmpq, ...]]:
    return [readout.affine, *(ridge.direction for ridge in readout.ridges)]


def _witness(
    network: Transformer,
    target: LayerTarget,
    layer: FusedLayer,
    directions: _Directions,
    neurons: list[Neuron],
    readout_certified: arb,
) -> tuple[float, str]:
    """(error at an explicit input, rounded down; what the input is)."""
    readout = target.readout
    if network.dtype == "exact" and not readout.ridges:
        with working_precision(layer.bits):
            infinite = directions.attained(readout.affine) - readout_certified
        return lower(infinite), "sign sequence of the error kernel, infinite past"
    candidates = _candidates(target, layer, directions)
    if network.dtype != "exact":
        errors = [_measured(network, target, tokens) for tokens in candidates]
        return max(errors), "sign sequence of an error kernel, run in " + network.dtype
    return _exact_witness(target, layer, directions, neurons, candidates), "sign sequence of an error kernel, in ball arithmetic"


def _candidates(target: LayerTarget, layer: FusedLayer, directions: _Directions) -> list[np.ndarray]:
    """Token arrays (N, d): for every direction the signs of its error kernel and, for curved read-outs, corner values at the lags."""
    readout, result = target.readout, []
    for row in _rows(readout):
        if all(w == 0 for w in row):
            continue
        with working_precision(layer.bits):
            norms = directions.norms(row)
        length = min(MAX_WITNESS, max(len(n.window) for n in norms))
        signs = np.array([[_sign(n.window[s]) if s < len(n.window) else 1 for n in norms] for s in range(length)], dtype=float)
        signs = np.concatenate([signs, np.ones((max(0, target.places[-1] + 1 - length), target.dim))])
        result += [signs[::-1], -signs[::-1]]
        if not readout.ridges:
            continue
        places = list(target.places)
        for corner in itertools.islice(itertools.product((-1.0, 1.0), repeat=len(places)), MAX_CORNERS):
            for flip in (signs, -signs):
                changed = flip.copy()
                changed[places] = np.array(corner)[:, None]
                result.append(changed[::-1])
    return result[: 4 * MAX_CORNERS]


def sign_sequences(network: Transformer, target: LayerTarget) -> list[np.ndarray]:
    """Token arrays (N, d) at which a witness is looked for; for affine read-outs the first attains the norm, but for tokens before it."""
    layer = fuse(network)
    return _candidates(target, layer, _Directions(target, layer))


def _sign(value: arb) -> int:
    return -1 if value.mid() < 0 else 1


def _recent(tokens: np.ndarray) -> list[list[arb]]:
    """The tokens of an array, the last one first."""
    return [[arb(rational(float(v))) for v in token] for token in tokens[::-1]]


def _wanted(target: LayerTarget, tokens: np.ndarray) -> arb:
    """f at the last position of a token array."""
    return target.readout(target.memories(_recent(tokens)))


def _measured(network: Transformer, target: LayerTarget, tokens: np.ndarray) -> float:
    """|network − f| at the last token, as the float network really computes it."""
    output = float(fast.forward(network, tokens)[-1])
    return lower(abs(arb(rational(output)) - _wanted(target, tokens)))


def read_out_in_balls(inner: Sequence[Sequence[fmpq]], bias: Sequence[fmpq], outer: Sequence[fmpq], stream: Sequence[arb]) -> arb:
    """Σ_n a_n relu(b_n·U + c_n), for exact weights; coordinates of the stream beyond those given are not read."""
    output = arb(0)
    for row, constant, weight in zip(inner, bias, outer, strict=True):
        before = sum((arb(w) * u for w, u in zip(row, stream, strict=False) if w != 0), arb(constant))
        output += arb(weight) * before.max(arb(0))
    return output


def _exact_witness(
    target: LayerTarget, layer: FusedLayer, directions: _Directions, neurons: list[Neuron], candidates: list[np.ndarray]
) -> float:
    """The largest |F(û) − f(u)| over the candidates, in ball arithmetic."""
    with working_precision(layer.bits):
        units = _units(target)
        windows = [[n.window for n in directions.norms(u)] for u in units]
    best = 0.0
    for tokens in candidates[: max(2, MAX_WITNESS_WORK // len(neurons))]:
        recent, stream = _recent(tokens), []
        for j, (columns, memory) in enumerate(zip(windows, target.memories(recent), strict=True)):
            value = memory + arb(layer.offset[j])
            for column, window in enumerate(columns):
                beyond = arb(0)
                if len(recent) > len(window):  # the kernel beyond its window, against tokens of size at most 1
                    beyond = directions.norms(units[j])[column].most - sum((abs(v) for v in window), arb(0))
                value += sum((window[s] * recent[s][column] for s in range(min(len(window), len(recent)))), arb(0))
                value += arb(0, beyond.abs_upper())
            stream.append(value)
        output = read_out_in_balls([neuron.row for neuron in neurons], [n.bias for n in neurons], [n.outer for n in neurons], stream)
        best = max(best, lower(abs(output - _wanted(target, tokens))))
    return best
