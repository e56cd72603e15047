"""The certificate of Theorem 3.1: from stored weights to witness ≤ certified ≤ bound.

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

from analyzer.errors import InputError, OptionValue, Refusal
from analyzer.exact import UNIT, lower, maximum, rational, upper, working_precision
from analyzer.extraction import LayerRpe, Rpe
from analyzer.feedforward import least_width, plan_barron
from analyzer.gauss import mixed_bound
from analyzer.kernels import Norm, l1_norm
from analyzer.readout import ReadOut
from analyzer.relu_error import Neuron, neurons_of, readout_error, spline_bound
from analyzer.target import LayerTarget
from analyzer.targets import FixedMemory
from analyzer.theorems import THEOREMS
from analyzer.theorems import thm_3_1 as theorem
from analyzer.theorems.lag_law import lag_law
from constructions import fast
from constructions.feedforward import STORAGE
from constructions.fused import FusedLayer, fuse
from constructions.thm_3_1 import BOX_SHARE
from constructions.transformer import Transformer, to_exact
from verify.certificate import Certificate, better_than_constant, matched
from verify.rounding import evaluation_error

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
                self.known[key] = l1_norm(self.layer.kernel(row, column, spikes, memories))
            result.append(self.known[key])
        return result

    def total(self, row: tuple[fmpq, ...], error: bool = True) -> arb:
        """Upper bound of the norm, added up over the input coordinates."""
        return sum((n.most for n in self.norms(row, error)), arb(0))

    def attained(self, row: tuple[fmpq, ...]) -> arb:
        """Lower bound of the same norm of w·(κ − 1): the error at the sign sequence."""
        return sum((n.least for n in self.norms(row)), arb(0))


@dataclass(frozen=True)
class Rules:
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


def verify(network: Transformer, target: FixedMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network against Theorem 3.1 for a target; `bank` and `ffn` say which lemmas it claims to follow."""
    return certify(network, target, bank, ffn, RULES)


def certify(network: Transformer, target: LayerTarget, bank: str, ffn: str, rules: Rules) -> Certificate:
    """The chain of a network with one dp-free layer, from its stored weights."""
    start = time.perf_counter()
    _check_layout(network, target, rules.theorem)
    layer = fuse(network)
    readout, dtype = target.readout, network.dtype
    rpe: Rpe = "lin" if layer.rpe[0] == "lin" else "log"
    faults: list[str] = []
    reach = target.radii()
    with working_precision(layer.bits):
        directions = _Directions(target, layer)
        units = [tuple(fmpq(int(i == j)) for i in range(readout.coordinates)) for j in range(readout.coordinates)]
        offsets = [abs(arb(o)) for o in layer.offset]
        errors = [directions.total(u) + o for u, o in zip(units, offsets, strict=True)]
        norms = [directions.total(u, error=False) + o for u, o in zip(units, offsets, strict=True)]
        stream = [norm.upper().min((r + e).upper()) for norm, e, r in zip(norms, errors, reach, strict=True)]
        memory_errors = [maximum([errors[j] for j in readout.slot(k)]) for k in range(len(readout.slots))]
        budgets = rules.budgets(layer, target, bank, rpe, dtype, faults)
    if dtype == "exact":
        readout_rounding, slack = arb(0), [arb(0)] * len(stream)
    else:
        with working_precision(FFN_BITS):
            readout_rounding, slack = evaluation_error(network, layer, stream)
    with working_precision(FFN_BITS):
        box = [(r + s).upper().max(SMALLEST_RADIUS) for r, s in zip(stream, slack, strict=True)]
        hull = [b.max(r) for b, r in zip(box, reach, strict=True)]
        neurons = _neurons(network)
        readout_certified = readout_error(readout, neurons, box)
        drawn_for = [(r + e * (1 + BOX_SHARE) + s).upper().max(b) for r, e, s, b in zip(reach, errors, slack, box, strict=True)]
        promised_readout = readout_bound(ffn, readout, neurons, box, drawn_for, dtype)
        lipschitz = readout.lipschitz(hull)
        rounding = readout_rounding
        for k, lip in enumerate(lipschitz):
            rounding += lip * maximum([slack[j] for j in readout.slot(k)])
        slotwise = sum((lip * e for lip, e in zip(lipschitz, memory_errors, strict=True)), arb(0))
        ridgewise = _ridgewise(readout, directions, hull, offsets, layer)
        certified = readout_certified + slotwise.min(ridgewise) + rounding
        promised_hull = hull[: target.dim] + [(reach[j] + b).max(hull[j]) for k, b in enumerate(budgets, 1) for j in readout.slot(k)]
        promised_lipschitz = [a.max(b) for a, b in zip(readout.lipschitz(promised_hull), lipschitz, strict=True)]
        bound = theorem.total_budget(promised_readout + rounding, promised_lipschitz[1:], budgets)
        bound += lipschitz[0] * memory_errors[0]
        measured = dict(zip(rules.parts(target), zip(memory_errors[1:], budgets, strict=True), strict=True))
        measured[theorem.READ_OUT] = readout_certified, promised_readout
        parts = matched(THEOREMS[rules.theorem].proof(rpe, bank, ffn, target.served), measured)
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
        parts=parts,
        sizes=network.sizes(),
        dtype=dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(faults),
        remedies=better_than_constant(upper(bound), trivial, **_better(bank, ffn, rules)),
    )


def _better(bank: str, ffn: str, rules: Rules) -> dict[str, OptionValue]:
    """Sizes follow from the error; the bank is the best one, unless the bank has no rate to be bad at."""
    options: dict[str, OptionValue] = {"heads": None}
    if ffn == "barron":
        options["width"] = None
    if bank in ("paper", "tuned"):
        options["bank"] = rules.best_bank
    return options


def _check_layout(network: Transformer, target: LayerTarget, name: str) -> None:
    expected = (target.readout.coordinates, target.dim)
    if tuple(network.embedding.shape) != expected:
        raise InputError(f"the embedding has shape {tuple(network.embedding.shape)}; {name} for this target has {expected}")
    if any(p != "none" for layer in network.layers for p in layer.feedforward.precision):
        raise InputError("the read-out of one dp-free layer is not rounded: this network's is")
    if len(network.layers) != 1 or network.layers[0].feedforward.outer.shape[0] != 1:
        raise InputError(f"{name} speaks of one layer with a scalar read-out")


def _extraction_budgets(layer: FusedLayer, target: FixedMemory, bank: str, rpe: Rpe, dtype: str, faults: list[str]) -> list[arb]:
    """What the lemma promises for every memory at the stored decays, plus the budget for storing its weights."""
    budgets = []
    for k, lag in enumerate(target.lags, start=1):
        row = target.readout.slot(k)[0]
        whole = bank in ("minimal", "balanced")
        heads = list(range(len(layer.rpe))) if whole else bank_of(layer, k, row, len(target.lags))
        try:
            promised = _promise(layer, target, bank, rpe, row, lag, heads)
        except (InputError, Refusal) as error:
            faults.append(f"{theorem.extraction_lemma(lag)}: {error}")
            promised = arb.pos_inf()
        weights = [layer.gains[h, row, 0] for h in heads]
        budgets.append(promised + storage(layer, heads, [*weights, layer.embedding[row, 0]], dtype))
    return budgets


def _promise(layer: FusedLayer, target: FixedMemory, bank: str, rpe: Rpe, row: int, lag: int, heads: list[int]) -> arb:
    """The lemma at the stored decays; a balanced bank promises its own norm with ideal heads, since no theorem gives a rate."""
    kinds = [layer.rpe[h] for h in heads]
    if bank == "balanced" and len(set(kinds)) == 1:
        return own_error(layer, target, row)
    if len(set(kinds)) > 1:
        if bank != "minimal" or kinds.count("log") != 1 or lag // 2 != kinds.count("lin"):
            raise InputError("a layer with both RPE types is a bank of theorem 3.1 only as one log and n lin heads for lag 2n or 2n + 1")
        fastest = max(layer.decays[h] for h in heads if layer.rpe[h] == "lin")
        return mixed_bound(lag, layer.decays[heads[kinds.index("log")]], fastest)
    return theorem.extraction_budget(bank, rpe, lag, [layer.decays[h] for h in heads])


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
    Floats: u(|c| + Σ|a_h|) as in `analyzer.theorems.budgeted_error`, with the rounded ratio, gain or taps of every head added.

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


RULES = Rules(
    theorem.ID,
    parts=lambda target: [theorem.extraction_lemma(lag) for lag in target.lags],
    budgets=_extraction_budgets,
    least_heads=lambda kind, target, error: lag_law(kind, target.lags, error).heads,
    best_bank="minimal",
)


def _neurons(network: Transformer) -> list[Neuron]:
    ffn = network.layers[0].feedforward
    return neurons_of(to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[0])


def readout_bound(ffn: str, readout: ReadOut, neurons: list[Neuron], box: list[arb], drawn_for: list[arb], dtype: str) -> arb:
    """The spline or Barron estimate at the stored size, plus the storage budget of the neurons: u on outer weight, row and bias.

    Knots say themselves where they lie; Barron neurons were drawn for the box of radii 1 + e, which may be larger than `box`.
    """
    if ffn == "spline":
        promised = spline_bound(readout, neurons, box)
    else:
        promised = plan_barron(readout, drawn_for, max(len(neurons), least_width(readout) + 1), None).error
    unit = arb(STORAGE if dtype == "exact" else UNIT[dtype])
    storage = arb(0)
    for neuron in neurons:
        reach = sum((abs(arb(w)) * r for w, r in zip(neuron.row, box, strict=True)), abs(arb(neuron.bias)))
        storage += abs(arb(neuron.outer)) * reach
    return promised + 4 * unit * storage


def _ridgewise(readout: ReadOut, directions: _Directions, hull: list[arb], offsets: list[arb], layer: FusedLayer) -> arb:
    """Σ over the affine part and the ridges of (slope) · ‖error kernel in its direction‖₁."""
    with working_precision(layer.bits):
        shift = [sum((abs(arb(w)) * o for w, o in zip(row, offsets, strict=True)), arb(0)) for row in _rows(readout)]
        norms = [directions.total(row) + s for row, s in zip(_rows(readout), shift, strict=True)]
    slopes = [arb(1), *(abs(arb(r.scale)) * r.profile.slope(*r.span(hull)) for r in readout.ridges)]
    return sum((slope * norm for slope, norm in zip(slopes, norms, strict=True)), arb(0))


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


def _exact_witness(
    target: LayerTarget, layer: FusedLayer, directions: _Directions, neurons: list[Neuron], candidates: list[np.ndarray]
) -> float:
    """The largest |F(û) − f(u)| over the candidates, in ball arithmetic."""
    readout = target.readout
    with working_precision(layer.bits):
        units = [tuple(fmpq(int(i == j)) for i in range(readout.coordinates)) for j in range(readout.coordinates)]
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
        output = arb(0)
        for neuron in neurons:
            before = sum((arb(w) * u for w, u in zip(neuron.row, stream, strict=True) if w != 0), arb(neuron.bias))
            output += arb(neuron.outer) * before.max(arb(0))
        best = max(best, lower(abs(output - _wanted(target, tokens))))
    return best
