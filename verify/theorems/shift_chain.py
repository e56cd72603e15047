"""The certificate of a chain of shifts: from stored weights to witness ≤ certified ≤ bound.

The network is read layer by layer. Before a layer the stream is E v for the value v that the source holds, besides coordinates that
nobody reads there; the heads turn it into κ * v, coordinate by coordinate, and the feed-forward network makes the next E and v of it.
Whatever is written where the layout has no place for it is refused. Shifts are read off the kernels: τ_l is where the carrier's kernel is
largest.

Linear chains. e_l = ‖κ_l − 1_{τ_l}‖₁ with the constants of the executor and the infinite tail; memories have Π(1 + e) − 1. Rounding: what
heads read is the source as it was computed, Ŝ, so its error δ_S passes through κ as a whole, and only what is rounded between Ŝ and the
new carrier is multiplied by single weights:

    ε_l ≤ ‖κ_l‖₁ (ε_{l−1} + δ_S) + fresh,   the carrier found being c Ŝ up to |c| δ_S + δ_R.

δ_S, δ_R and fresh are computed for values of size 1; they are homogeneous but for flushing, so for size ρ ≥ 1 they are at most ρ times
that. The read-out is certified as in `verify.theorems.thm_3_1`, with one Lipschitz constant per memory.

Restored chains. Staircases are read off the neurons as piecewise linear functions in rational arithmetic: they must be constant near
every letter, the room being the distance to the nearest kink. ω_l = ρ e_l + ν + fresh must fit into it, ν the error of the letters that
the layer is given, and so must whatever else the carrier holds, before the array too: no carrier exceeds ρ by more than the room. Digits
must come out as exactly 0 or at least 1, so the table's neurons are exactly 0 or 1, and their sum is exact if all partial sums lie on a
grid that the type holds. Positions count whose lags all lie inside the array; what comes before it only has to stay in [v_1, v_n].

The bound is Π(1 + ê_l) − 1, ê_l what is promised at the stored decays (`_promised`) plus the budget for storing the bank; restored chains
are promised the storage of their table. The witness of a linear chain is the sign sequence of the composed error kernel, that of a
restored one random tokens.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from flint import arb, arb_poly, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import l1_norm
from analyzer.lemmas.relu_error import neurons_of, readout_error
from analyzer.numbers.exact import UNIT, lower, maximum, rational, upper, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.readout import ReadOut
from analyzer.theorems import base
from analyzer.theorems import shift_chain as theorem
from constructions.network.precision import MANTISSA
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, to_exact, to_float, zeros
from constructions.run import fast
from constructions.run.fused import FusedLayer, fuse_layer, linear_map, stream_kernels
from constructions.theorems.shift_chain import Layout, mixed_differences, readout_table
from verify.chain.certificate import Certificate, Part, StrangeWeights, better_than_constant, gathered
from verify.chain.layer import FFN_BITS, SMALLEST_RADIUS, readout_bound, storage
from verify.chain.rounding import ONE, Arithmetic, Rounded, attended, readout_rounding

MAX_SHIFT = 4096
"""Where the largest value of a carrier's kernel is looked for."""
WITNESS_TAIL = 128
"""Tokens beyond twice the lag in a linear chain's witness."""
MAX_WITNESS = 2048
"""Tokens of a witness at most."""
WITNESS_ROWS = 8
"""Random sequences that are run through a restored network, and tokens of each beyond the lag."""
WITNESS_TOKENS = 256


@dataclass(frozen=True)
class Delivery:
    """A block that a layer writes: the shift wanted of it, its extraction error, kernel norm, promise, and rounding per unit of size."""

    shift: int
    error: arb
    norm: arb
    promised: arb
    fresh: arb


@dataclass(frozen=True)
class Step:
    """One layer of a chain: what happens to the carrier (None in the last layer) and to the memories that it delivers."""

    heads: int
    carrier: Delivery | None
    memories: dict[int, Delivery]
    moved: arb
    """Rounding of the source that the heads read, per unit of size."""

    @property
    def longest(self) -> Delivery:
        return self.carrier or max(self.memories.values(), key=lambda d: d.shift)


@dataclass(frozen=True)
class Given:
    """What a layer finds: the stream as a multiple of the value, the rounding of its rows (None: exact) and of the source. In restored
    chains also how far letters are off, and a bound of the constant state before the array (None: it is 0)."""

    found: np.ndarray
    noise: dict[int, arb] | None
    moved: arb = field(default_factory=lambda: arb(0))
    letter_error: arb = field(default_factory=lambda: arb(0))
    past: arb | None = None


@dataclass(frozen=True)
class Restoration:
    """A staircase: how far the values given to it are off and the room for that; how far its letters are off and what storage explains."""

    off: arb
    room: fmpq
    uneven: arb
    storage: arb


@dataclass
class _Reader:
    """Reads layers, equal ones once."""

    target: FixedMemory
    bank: str
    dtype: str
    faults: list[str] = field(default_factory=list)
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout(self.target)


def verify(network: Transformer, target: FixedMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network as a chain of shifts for a target, restored if the target has an alphabet."""
    start = time.perf_counter()
    reader = _Reader(target, bank, network.dtype)
    _check_embedding(network, reader.layout)
    for layer in network.layers:
        _check_layer(layer, network.dtype)
    found = _linear(network, reader, ffn) if target.alphabet is None else _restored(network, reader)
    steps: list[Step] = found.pop("steps")
    sizes, lag = network.sizes(), target.lags[-1]
    shifts = [step.longest.shift for step in steps]
    heads = [step.heads for step in steps]
    plan = {
        "shifts": shifts, "heads": heads, "layers": len(steps), "heads_in_all": sum(heads),
        "law": {"layers_times_heads": len(steps) * max(heads), "least": lag}, "objective": theorem.OBJECTIVE,
    }  # fmt: skip
    return Certificate(
        theorem=theorem.ID,
        least_heads=theorem.least_heads(lag, len(steps)),
        sizes=sizes,
        dtype=network.dtype,
        faults=tuple(reader.faults),
        seconds=time.perf_counter() - start,
        details={"plan": plan, **found.pop("details", {})},
        remedies=better_than_constant(found["bound"], found["trivial"], heads=None),
        **found,
    )


def _check_embedding(network: Transformer, layout: Layout) -> None:
    d, embedding = layout.dim, to_exact(network.embedding)
    if embedding.shape != (layout.width, d) or any(b != 0 for b in to_exact(network.bias)):
        raise InputError(f"the embedding is not that of a chain of shifts for this target: {layout.width} rows without bias")
    for block in (layout.memory(0), layout.source):
        if (embedding[list(block)] != _identity(d)).any():
            raise StrangeWeights("the embedding does not put the token into x0 and source: not a chain of shifts")
    if any(embedding[j, i] != 0 and j % d != i for j in range(layout.width) for i in range(d)):
        raise StrangeWeights("the embedding mixes coordinates: not a chain of shifts")
    if (embedding[layout.slots + 2 * d :] != 0).any():
        raise StrangeWeights("the embedding writes into digits: not a chain of shifts")
    if network.layers[-1].feedforward.outer.shape[0] != 1:
        raise InputError("a chain of shifts ends with a scalar read-out")


def _check_layer(layer: Layer, dtype: str) -> None:
    """What no part of the analysis looks at later: the kind of attention, rounding, and neurons that might overflow, read or not.

    Streams of chains stay below `HEADROOM`, which is checked where they are followed.
    """
    if layer.attention.kind != "dp-free" or layer.attention.window != "infinite":
        raise InputError(f"attention is {layer.attention.kind}, {layer.attention.window}: not a chain of shifts")
    if any(p != "none" for p in layer.feedforward.precision):
        raise InputError("a chain of shifts has no rounding in its feed-forward networks")
    if dtype == "exact":
        return
    inner, bias, outer = (to_exact(a) for a in (layer.feedforward.inner, layer.feedforward.bias, layer.feedforward.outer))
    hidden = [sum((abs(w) for w in row), fmpq(0)) * HEADROOM + abs(b) for row, b in zip(inner, bias, strict=True)]
    sums = [sum((abs(a) * h for a, h in zip(row, hidden, strict=True)), fmpq(0)) for row in outer]
    if not all(arb(v) * 2 < Arithmetic(dtype).largest for v in (*hidden, *sums)):
        raise StrangeWeights(f"a neuron of this chain may overflow {dtype}")


def _identity(size: int) -> np.ndarray:
    result = zeros(size, size)
    for i in range(size):
        result[i, i] = fmpq(1)
    return result


def _bytes(array: Any) -> Any:
    values = np.asarray(array)
    return tuple(values.flat) if values.dtype == object else values.tobytes()


def _key(layer: Layer) -> tuple[Any, ...]:
    attention, ffn = layer.attention, layer.feedforward
    arrays = (attention.decay, attention.value, attention.output, ffn.inner, ffn.bias, ffn.outer)
    return (attention.rpe, attention.kind, attention.window, ffn.precision, *map(_bytes, arrays))


def _check_heads(attention: Attention, layout: Layout, writable: set[int]) -> None:
    """Heads read the source and write into the given rows only, without mixing coordinates."""
    value, output = to_exact(attention.value), to_exact(attention.output)
    if set(attention.rpe) != {"lin"}:
        raise InputError("a chain of shifts has lin heads")
    others = [j for j in range(layout.width) if j not in layout.source]
    if (
        value.shape[1] != layout.dim
        or (value[:, :, list(layout.source)] != _identity(layout.dim)).any()
        or (value[:, :, others] != 0).any()
    ):
        raise StrangeWeights("a head of a chain of shifts reads something other than the source")
    for j in range(layout.width):
        for i in range(layout.dim):
            if (output[:, j, i] != 0).any() and (j not in writable or j % layout.dim != i):
                raise StrangeWeights(f"a head writes coordinate {i} of the source into coordinate {j}, where nothing is expected")


def _deliver(
    reader: _Reader, attention: Attention, fused: FusedLayer, row: int, lag: int | None, size: arb, stream: Sequence[Rounded], given: Given
) -> Delivery:
    """What a layer does to one row: `lag` is wanted of it, or read off the kernel if None; values of the source are of the given size."""
    unit = [fmpq(int(j == row)) for j in range(reader.layout.width)]
    column = row % reader.layout.dim
    if lag is None:
        lag = _peak(fused, unit, column)
    error = l1_norm(fused.kernel(unit, column, {lag: fmpq(1)})).most
    norm = l1_norm(fused.kernel(unit, column)).most.min((1 + error).upper())
    promised = _promised(reader, fused, row, column, lag)
    fresh = arb(0)
    if given.noise is not None:
        fresh = attended(Arithmetic(reader.dtype), attention, fused, stream, {row: norm * size}, given.past)[row].error
    return Delivery(lag, error, norm, promised, fresh)


def _peak(fused: FusedLayer, unit: list[fmpq], column: int) -> int:
    """Where a kernel is largest; at least 1."""
    values = [abs(float(v)) for v in fused.kernel(unit, column).values(0, min(MAX_SHIFT, 4 * len(fused.rpe) + 4))]
    return max(range(1, len(values)), key=lambda s: values[s])


def _promised(reader: _Reader, fused: FusedLayer, row: int, column: int, lag: int) -> arb:
    """What the lemma promises at these decays, and the budget for storing the bank; the residual weight is stored next to 1.

    Minimal banks: (3.3). Balanced banks have no closed form: they are promised the ℓ¹ error of their weights on the ideal kernels, in exact
    arithmetic, and u(|c| + Σ|a_h|) and more (`verify.chain.layer.storage`) for what storing ratios, gains and weights may add to it.
    """
    heads = list(range(len(fused.rpe)))
    if reader.bank == "minimal":
        try:
            promised = base.extraction_budget(reader.bank, "lin", lag, [fused.decays[h] for h in heads])
        except (InputError, Refusal) as error:
            reader.faults.append(f"shift {lag}: {error}")
            promised = arb.pos_inf()
    else:
        unit = [fmpq(int(j == row)) for j in range(reader.layout.width)]
        promised = l1_norm(replace(fused, constants=None).kernel(unit, column, {lag: fmpq(1)})).most
    residual = fused.embedding[row, column]
    promised += storage(fused, heads, [*(fused.gains[h, row, column] for h in heads), residual], reader.dtype)
    return promised if reader.dtype == "exact" else promised + 3 * arb(UNIT[reader.dtype]) * (1 + abs(arb(residual)))


def _worst(deliveries: Sequence[Delivery]) -> Delivery:
    """One delivery that bounds those of all coordinates of a block."""
    if len({d.shift for d in deliveries}) > 1:
        raise StrangeWeights("the coordinates of one block are shifted differently: not a chain of shifts")
    columns = [maximum([getattr(d, name) for d in deliveries]) for name in ("error", "norm", "promised", "fresh")]
    return Delivery(deliveries[0].shift, *columns)


def _wanted(layout: Layout, attention: Attention, found: np.ndarray, before: int, done: Sequence[int]) -> dict[int, int]:
    """Memories that a layer delivers, and the shift that each wants of it: those whose rows the stream or the heads fill."""
    output, wanted = to_exact(attention.output), {}
    for k, lag in enumerate(layout.target.lags, start=1):
        rows = list(layout.memory(k))
        if (found[rows] != 0).any() or (output[:, rows] != 0).any():
            if k in done or lag <= before:
                raise StrangeWeights(f"memory m{k} is written after it was delivered, or too late: not a chain of shifts for this target")
            wanted[k] = lag - before
    return wanted


def _read_heads(reader: _Reader, attention: Attention, given: Given, wanted: dict[int, int], last: bool, size: arb) -> Step:
    """The deliveries of one layer for source values of the given size."""
    layout, found = reader.layout, given.found
    blocks: dict[int | None, tuple[Sequence[int], int | None]] = {k: (layout.memory(k), lag) for k, lag in wanted.items()}
    if not last:
        blocks[None] = layout.carrier, None
    writable = {row for rows, _ in blocks.values() for row in rows}
    _check_heads(attention, layout, writable)
    fused = fuse_layer(attention, found, zeros(layout.width))
    stream = [Rounded(size, arb(0))] * layout.width
    for row in writable:
        stream[row] = Rounded(size * abs(arb(found[row, row % layout.dim])), (given.noise or {}).get(row, arb(0)))
    with working_precision(fused.bits):
        delivered = {
            k: _worst([_deliver(reader, attention, fused, row, lag, size, stream, given) for row in rows])
            for k, (rows, lag) in blocks.items()
        }
    carrier = delivered.pop(None, None)
    return Step(len(attention.rpe), carrier, {k: d for k, d in delivered.items() if k is not None}, given.moved)


def _first_noise(network: Transformer, layout: Layout, size: arb) -> dict[int, arb] | None:
    """Rounding of the embedding, for tokens of the given size."""
    if network.dtype == "exact":
        return None
    arithmetic, tokens = Arithmetic(network.dtype, HEADROOM), [Rounded(size, arb(0))] * layout.dim
    return {row: arithmetic.dot(list(weights), tokens).error for row, weights in enumerate(to_exact(network.embedding))}


HEADROOM = 1 << 20
"""Values of a linear chain may grow by this factor: its layers are analysed for values of size 1."""
SLIGHTLY = 1 + arb(2) ** -10
"""A source that was rounded exceeds the value that it holds by this factor at most; checked."""


def _linear(network: Transformer, reader: _Reader, ffn: str) -> dict[str, Any]:
    """The chain of a network without restoration."""
    target, layout = reader.target, reader.layout
    given = Given(to_exact(network.embedding), _first_noise(network, layout, arb(1)))
    steps: list[Step] = []
    before, exact_error, promise, rounding, size = 0, arb(0), arb(0), arb(0), arb(1)
    memories: dict[int, tuple[arb, arb, arb]] = {}  # exact error, promise, rounding
    previous: tuple[Any, ...] = ()
    for index, layer in enumerate(network.layers):
        last = index == len(network.layers) - 1
        wanted = _wanted(layout, layer.attention, given.found, before, list(memories))
        key = (previous, _key(layer), tuple(sorted(wanted.items())), tuple(memories), tuple(given.found.flat), last)
        if key not in reader.known:
            step = _read_heads(reader, layer.attention, given, wanted, last, arb(1))
            reader.known[key] = step, None if last else _linear_move(reader, layer.feedforward, [*memories, *wanted])
        step, then = reader.known[key]
        steps.append(step)
        moved, source = given.moved, size * (1 + given.moved)
        for k, delivery in step.memories.items():
            composed = [theorem.composed(pair) for pair in ([exact_error, delivery.error], [promise, delivery.promised])]
            memories[k] = (*composed, delivery.norm * (rounding + moved * size) + delivery.fresh * source)
        if step.carrier is not None and then is not None:
            here = step.carrier
            before += here.shift
            rounding = here.norm * (rounding + moved * size) + here.fresh * source
            exact_error, promise = theorem.composed([exact_error, here.error]), theorem.composed([promise, here.promised])
            size = size.max((1 + exact_error + rounding).upper())
            given = then
        previous = _key(layer)
    if set(memories) != set(range(1, len(target.lags) + 1)):
        raise StrangeWeights("a memory is never delivered: not a chain of shifts for this target")
    if not size < HEADROOM:
        reader.faults.append(f"errors grow to {upper(size):.3g} along this chain")  # nothing beyond the shifts is measured
        return {
            "steps": steps, "witness": 0.0, "witness_input": "none: the chain is broken", "certified": math.inf, "bound": math.inf,
            "rounding": upper(rounding), "trivial": target.constant_error(), "parts": tuple(_shift_parts(steps)),
        }  # fmt: skip
    return {"steps": steps, **_read_out(network, reader, ffn, steps, [memories[k] for k in sorted(memories)])}


def _linear_move(reader: _Reader, ffn: FeedForward, done: Sequence[int]) -> Given:
    """What an inner feed-forward network leaves to the next layer, roundings per unit of size."""
    layout = reader.layout
    matrix = linear_map(ffn)
    if matrix is None or any(sorted(abs(w) for w in row if w != 0) != [1] for row in to_exact(ffn.inner)):
        raise StrangeWeights("an inner feed-forward network is not made of pairs relu(u) - relu(-u): not a linear chain of shifts")
    if len({tuple(row) for row in to_exact(ffn.inner)}) < len(ffn.inner):
        raise StrangeWeights("an inner feed-forward network holds a neuron twice: not a linear chain of shifts")
    whole = matrix + _identity(layout.width)
    found = whole[:, list(layout.carrier)]
    rest = _identity(layout.width)
    rest[list(layout.source)] *= 0
    keep = [j for j in range(layout.width) if j not in layout.carrier]
    if (whole[:, keep] != rest[:, keep]).any():
        raise StrangeWeights("an inner feed-forward network changes coordinates that must stay as they are: not a chain of shifts")
    allowed = {
        *layout.source,
        *layout.carrier,
        *(j for k in range(1, len(layout.target.lags) + 1) if k not in done for j in layout.memory(k)),
    }
    for j, row in enumerate(found):
        if any(w != 0 and (j not in allowed or j % layout.dim != i) for i, w in enumerate(row)):
            raise StrangeWeights(f"an inner feed-forward network writes the carrier into coordinate {j}, where nothing is expected")
    if (found[list(layout.source)] != _identity(layout.dim)).any():
        raise StrangeWeights("an inner feed-forward network does not put the carrier into the source: not a chain of shifts")
    if reader.dtype == "exact":
        return Given(found, None)
    arithmetic = Arithmetic(reader.dtype, HEADROOM)
    held = {**{j: Rounded(SLIGHTLY, arb(0)) for j in layout.source}, **{j: Rounded(arb(1), arb(0)) for j in layout.carrier}}

    def written(j: int) -> arb:
        inputs = [i for i in held if matrix[j, i] != 0]
        if not inputs:
            return arb(0)
        change = arithmetic.dot([matrix[j, i] for i in inputs], [held[i] for i in inputs], count=layout.width)
        return arithmetic.plus(held.get(j, Rounded(arb(0), arb(0))), change, abs(arb(found[j, j % layout.dim]))).error

    moved = maximum([written(j) for j in layout.source])
    if not 1 + moved < SLIGHTLY:
        raise Refusal(f"{reader.dtype} is too coarse to move a value from carrier to source")
    noise = {j: written(j) + abs(arb(found[j, j % layout.dim])) * moved for j in allowed if j not in layout.source}
    return Given(found, noise, moved)


def _groups(steps: Sequence[Step]) -> list[tuple[Step, int]]:
    """Equal neighbours and others gathered: (a step, how many of them)."""
    counts: dict[tuple[Any, ...], list[Any]] = {}
    for step in steps:
        here = step.longest
        key = (here.shift, step.heads, upper(here.error), upper(here.promised))
        counts.setdefault(key, [step, 0])[1] += 1
    return [(step, count) for step, count in counts.values()]


def _shift_parts(steps: Sequence[Step]) -> list[Part]:
    parts = []
    for step, count in _groups(steps):
        here = step.longest
        parts.append(Part(f"shift {here.shift} with {step.heads} heads ×{count}", upper(here.error), upper(here.promised)))
    return parts


def _read_out(
    network: Transformer, reader: _Reader, ffn: str, steps: Sequence[Step], memories: list[tuple[arb, arb, arb]]
) -> dict[str, Any]:
    """The chain's end: read-out and totals, as in `verify.theorems.thm_3_1` with one Lipschitz constant per memory."""
    target, layout, dtype = reader.target, reader.layout, reader.dtype
    readout, final = target.readout, network.layers[-1].feedforward
    inner = to_exact(final.inner)
    if (inner[:, layout.slots :] != 0).any():
        raise StrangeWeights("the read-out reads the source or the carrier: not a chain of shifts")
    neurons = neurons_of(inner[:, : layout.slots], to_exact(final.bias), to_exact(final.outer)[0])
    errors, promises, roundings = (list(column) for column in zip((arb(0),) * 3, *memories, strict=True))
    each = [k for k in range(len(readout.slots)) for _ in range(target.dim)]
    with working_precision(FFN_BITS):
        stream, slack = [1 + errors[k] for k in each], [roundings[k] for k in each]
        box = [(r + s).upper().max(SMALLEST_RADIUS) for r, s in zip(stream, slack, strict=True)]
        lipschitz = readout.lipschitz(box)
        rounding = sum((lip * r for lip, r in zip(lipschitz, roundings, strict=True)), arb(0))
        if dtype != "exact":
            others = [Rounded(box[-1], arb(0))] * (layout.width - layout.slots)
            residual = [*(Rounded(r, s) for r, s in zip(stream, slack, strict=True)), *others]
            rounding += readout_rounding(Arithmetic(dtype), final, residual)
        certified_readout = readout_error(readout, neurons, box)
        promised_readout = readout_bound(ffn, readout, neurons, box, [b.max(arb(2)) for b in box], dtype)
        certified = base.total_budget(certified_readout + rounding, lipschitz[1:], errors[1:])
        hull = [b.max(1 + promises[k]) for b, k in zip(box, each, strict=True)]
        bound = base.total_budget(promised_readout + rounding, readout.lipschitz(hull)[1:], promises[1:])
        measured = {
            theorem.SHIFT: _shift_parts(steps),
            theorem.COMPOSITION: [
                Part(base.extraction_lemma(lag), upper(e), upper(promise))
                for lag, e, promise in zip(target.lags, errors[1:], promises[1:], strict=True)
            ],
            base.READ_OUT: [Part(base.READ_OUT, upper(certified_readout), upper(promised_readout))],
        }
        witness, description = _sign_witness(network, target)
        return {
            "witness": witness, "witness_input": description, "certified": upper(certified), "bound": upper(bound),
            "rounding": upper(rounding), "trivial": target.constant_error(),
            "parts": gathered(theorem.proof_graph("lin", reader.bank, ffn, target.lags), measured),
        }  # fmt: skip


def _sign_witness(network: Transformer, target: FixedMemory) -> tuple[float, str]:
    """The error at the sign sequences of the composed error kernels: run in the float type, or in ball arithmetic."""
    readout, d = target.readout, target.dim
    length = min(MAX_WITNESS, 2 * target.lags[-1] + WITNESS_TAIL)
    length = max(length, target.lags[-1] + 1)
    rows = [[_values(p, length) for p in row] for row in stream_kernels(network, length)[: readout.coordinates]]
    candidates = []
    for direction in [readout.affine, *(ridge.direction for ridge in readout.ridges)]:
        if all(w == 0 for w in direction):
            continue
        signs = np.ones((length, d))
        for i, s in product(range(d), range(length)):
            value = sum((arb(w) * rows[j][i][s] for j, w in enumerate(direction) if w != 0), arb(0))
            for k, lag in enumerate((0, *target.lags)):
                value -= arb(direction[k * d + i] if s == lag else 0)
            signs[s, i] = -1 if value.mid() < 0 else 1
        candidates += [signs, -signs]
    if network.dtype == "exact":
        return max(_in_balls(network, target, rows, c) for c in candidates), "sign sequence of the composed kernel, in ball arithmetic"
    outputs = fast.forward(network, np.stack([c[::-1] for c in candidates]))[:, -1]
    errors = [lower(abs(arb(rational(float(y))) - _target_value(target, c))) for y, c in zip(outputs, candidates, strict=True)]
    return max(errors), f"sign sequence of the composed kernel, run in {network.dtype}"


def _target_value(target: FixedMemory, recent: np.ndarray) -> arb:
    """f at the last position; recent[s] is the token s positions back."""
    return target.readout([arb(rational(float(v))) for lag in (0, *target.lags) for v in recent[lag]])


def _in_balls(network: Transformer, target: FixedMemory, rows: list[list[list[arb]]], recent: np.ndarray) -> float:
    return max(0.0, lower(abs(_output(network, rows, recent) - _target_value(target, recent))))


def _output(network: Transformer, rows: list[list[list[arb]]], recent: np.ndarray) -> arb:
    """The read-out of the stream whose kernels' first values are `rows`; recent[s] is the token s positions back."""
    tokens = [[arb(rational(float(v))) for v in column] for column in recent.T]
    stream = [sum((k * x for column, xs in zip(row, tokens, strict=True) for k, x in zip(column, xs, strict=True)), arb(0)) for row in rows]
    final = network.layers[-1].feedforward
    output = arb(0)
    for row, bias, outer in zip(final.inner, final.bias, final.outer[0], strict=True):
        before = sum((arb(w) * u for w, u in zip(row, stream, strict=False) if w != 0), arb(bias))
        output += arb(outer) * before.max(arb(0))
    return output


def output_at(network: Transformer, target: FixedMemory, tokens: np.ndarray, t: int) -> arb:
    """The output of an exact linear chain at token t of (N, d), in balls; tokens before them are zero."""
    tokens = tokens[: t + 1]
    with working_precision(FFN_BITS):
        kernels = stream_kernels(network, len(tokens))[: target.readout.coordinates]
        return _output(network, [[_values(p, len(tokens)) for p in row] for row in kernels], tokens[::-1])


def _values(polynomial: arb_poly, length: int) -> list[arb]:
    """The first values of a kernel that is given as a polynomial."""
    return [*polynomial.coeffs(), *[arb(0)] * (length - len(polynomial.coeffs()))]


@dataclass(frozen=True)
class Staircase:
    """r ↦ slope·r + constant + Σ outer relu(w r + b), in rationals."""

    slope: fmpq
    constant: fmpq
    neurons: tuple[tuple[fmpq, fmpq, fmpq], ...]  # w, b, outer

    def __call__(self, r: fmpq) -> fmpq:
        return self.slope * r + self.constant + sum((a * max(w * r + b, fmpq(0)) for w, b, a in self.neurons), fmpq(0))

    @property
    def kinks(self) -> list[fmpq]:
        """Where it bends."""
        bends: dict[fmpq, fmpq] = {}
        for w, b, a in self.neurons:
            bends[-b / w] = bends.get(-b / w, fmpq(0)) + a * abs(w)
        return sorted(kink for kink, bend in bends.items() if bend != 0)

    def is_bounded(self) -> bool:
        """Constant far out on both sides."""
        return all(self.slope + sum((a * w for w, _, a in self.neurons if w * sign > 0), fmpq(0)) == 0 for sign in (1, -1))

    def room(self, letter: fmpq) -> fmpq:
        """How far around a letter it is constant."""
        slope = self.slope + sum((a * w for w, b, a in self.neurons if w * letter + b > 0), fmpq(0))
        return fmpq(0) if slope != 0 else min((abs(kink - letter) for kink in self.kinks), default=fmpq(1))

    def extremes(self) -> list[fmpq]:
        return [self(kink) for kink in self.kinks] or [self(fmpq(0))]


@dataclass(frozen=True)
class _Written:
    """What a feed-forward network adds to one row: a constant, multiples of coordinates, and neurons on single coordinates."""

    constant: fmpq
    linear: dict[int, fmpq]
    neurons: dict[int, list[tuple[fmpq, fmpq, fmpq]]]

    def staircase(self, coordinate: int, kept: bool) -> Staircase:
        slope = self.linear.get(coordinate, fmpq(0)) + int(kept)
        return Staircase(slope, self.constant, tuple(self.neurons.get(coordinate, ())))


def _rows(ffn: FeedForward) -> dict[int, _Written]:
    """Every output row that is written, neuron by neuron; pairs relu(u) − relu(−u) are put together."""
    inner, bias, outer = (to_exact(a) for a in (ffn.inner, ffn.bias, ffn.outer))
    if ffn.precision:
        raise InputError("a chain of shifts has no rounding in its feed-forward networks")
    result = {}
    for j, weights in enumerate(outer):
        if not (weights != 0).any():
            continue
        constant, constants, neurons = fmpq(0), 0, dict[int, list[tuple[fmpq, fmpq, fmpq]]]()
        for row, b, a in zip(inner, bias, weights, strict=True):
            inputs = np.nonzero(row)[0]
            if a == 0:
                continue
            if len(inputs) > 1:
                raise StrangeWeights("a neuron between two layers reads several coordinates: not a restored chain of shifts")
            if len(inputs) == 0:
                constant, constants = a * max(b, fmpq(0)), constants + 1
            else:
                neurons.setdefault(int(inputs[0]), []).append((row[inputs[0]], b, a))
        if constants > 1:
            raise StrangeWeights("several constants are added up in one coordinate: not a restored chain of shifts")
        linear: dict[int, fmpq] = {}
        for i, found in neurons.items():
            pair = [n for n in found if n[1] == 0 and abs(n[0]) == 1]
            if len(pair) == 2 and pair[0][0] == -pair[1][0] and pair[0][2] == -pair[1][2]:
                linear[i] = pair[0][0] * pair[0][2]
                neurons[i] = [n for n in found if n not in pair]
        result[j] = _Written(constant, linear, {i: found for i, found in neurons.items() if found})
    return result


def _restored(network: Transformer, reader: _Reader) -> dict[str, Any]:
    """The chain of a network whose values are reset to letters."""
    target, layout = reader.target, reader.layout
    letters = target.alphabet
    assert letters is not None
    if network.dtype == "exact" or len(network.layers) < 2:
        raise InputError("a restored chain of shifts is a float network of two layers at least")
    if any(to_exact(to_float(np.array(letters, dtype=object), reader.dtype)) != np.array(letters, dtype=object)):
        raise InputError(f"{reader.dtype} cannot hold the letters of this target exactly")
    size = arb(max(abs(letters[0]), abs(letters[-1]))) * SLIGHTLY
    steps: list[Step] = []
    restorations: list[tuple[int, Restoration]] = []
    given = Given(to_exact(network.embedding), _first_noise(network, layout, size))
    before, previous = 0, ()
    sure: set[int] = set()  # digits that are exactly 0 or at least 1
    done: list[int] = []
    for index, layer in enumerate(network.layers[:-1]):
        last = index == len(network.layers) - 2
        wanted = _wanted(layout, layer.attention, given.found, before, done)
        done += list(wanted)
        key = (previous, _key(layer), tuple(sorted(wanted.items())), tuple(done), tuple(given.found.flat), last, index == 0)
        if key not in reader.known:
            reader.known[key] = _read_restoring(reader, layer, given, wanted, last, size, done, index == 0)
        step, then, restoration, digits = reader.known[key]
        sure |= digits
        steps.append(step)
        before += step.longest.shift
        if then is not None:
            restorations.append((step.longest.shift, restoration))
            given = then
        previous = _key(layer)
    if set(done) != set(range(1, len(target.lags) + 1)):
        raise StrangeWeights("a memory is never delivered: not a chain of shifts for this target")
    return {"steps": steps, **_table_certificate(network, reader, steps, restorations, sure)}


def _read_restoring(
    reader: _Reader, layer: Layer, given: Given, wanted: dict[int, int], last: bool, size: arb, done: Sequence[int], first: bool
) -> tuple[Step, Given | None, Restoration | None, set[int]]:
    """(the step, what the next layer finds, how it was restored, digits that are sure) of one layer."""
    layout = reader.layout
    step = _read_heads(reader, layer.attention, given, wanted, last, size)
    with working_precision(FFN_BITS):

        def off(delivery: Delivery) -> arb:
            return size * delivery.error + given.letter_error + delivery.fresh

        written = _rows(layer.feedforward)
        places = {row: arb(0) for row in layout.memory(0)} if first else {}
        places |= {row: off(delivery) for k, delivery in step.memories.items() for row in layout.memory(k)}
        sure, digit_rows = _digits(reader, written, places, size)
        rest = {j: row for j, row in written.items() if j not in digit_rows}
        if step.carrier is None:
            if rest:
                raise StrangeWeights("the last shift of a restored chain is followed by more than digits")
            return step, None, None, sure
        worst = off(step.carrier).max(step.carrier.norm * size + step.carrier.fresh - size)
        if given.past is not None:
            worst = worst.max(_past_reach(reader, layer.attention, given, size) - size)
        return step, *_restoring_move(reader, rest, done, size, worst), sure


def _past_reach(reader: _Reader, attention: Attention, given: Given, size: arb) -> arb:
    """Bound of the carrier at the positions before the array, where attention returns Σ_h a_h times the constant state."""
    arithmetic, output, reach = Arithmetic(reader.dtype), to_exact(attention.output), arb(0)
    for i, row in enumerate(reader.layout.carrier):
        weights = [fmpq(w) for w in output[:, row, i]]
        total = abs(arb(given.found[row, i] + sum(weights, fmpq(0)))) * size
        heads = arithmetic.dot(weights, [Rounded(size, arb(0))] * len(weights))
        reach = reach.max(total + arithmetic.plus(Rounded(arb(0), (given.noise or {}).get(row, arb(0))), heads, total).error)
    return reach.upper()


def _digits(reader: _Reader, written: dict[int, _Written], places: dict[int, arb], size: arb) -> tuple[set[int], set[int]]:
    """(digits that come out as exactly 0 or at least 1, rows of all digits written) of the coordinates delivered, each off by so much."""
    layout, letters, arithmetic = reader.layout, reader.target.alphabet, Arithmetic(reader.dtype)
    assert letters is not None
    sure, rows = set(), set()
    for coordinate, off in places.items():
        for j, row in enumerate(layout.digits(coordinate)):
            if row not in written:
                continue
            rows.add(row)
            entry = written[row]
            neurons = entry.neurons.get(coordinate, [])
            if entry.constant != 0 or entry.linear or set(entry.neurons) != {coordinate} or len(neurons) != 1 or neurons[0][2] != 1:
                raise StrangeWeights(f"coordinate {row} holds something other than a digit: not a restored chain of shifts")
            w, b, _ = neurons[0]
            value = size + off
            rounding = arithmetic.dot([w, b], [Rounded(value, arb(0)), ONE]).error
            above, below = arb(w) * (arb(letters[j + 1]) - off) + arb(b), arb(w) * (arb(letters[j]) + off) + arb(b)
            if w < 0 and above + rounding <= 0 and below - rounding >= 1:
                sure.add(row)
    return sure, rows


def _restoring_move(reader: _Reader, written: dict[int, _Written], done: Sequence[int], size: arb, off: arb) -> tuple[Given, Restoration]:
    """Read the staircases of source, carrier and memories to come; carriers are `off` by so much.

    Roundings are those of carriers that exceed `size` by the room at most, which is checked. Storing a staircase may move its letters by u
    for every outer weight times 1 + |bias| of its neuron.
    """
    layout, letters, arithmetic = reader.layout, reader.target.alphabet, Arithmetic(reader.dtype)
    assert letters is not None
    coming = [j for k in range(1, len(layout.target.lags) + 1) if k not in done for j in layout.memory(k)]
    if set(written) - {*layout.source, *layout.carrier, *coming}:
        raise StrangeWeights("an inner feed-forward network writes where nothing is expected: not a restored chain of shifts")
    columns = []
    for i, (source, carrier) in enumerate(zip(layout.source, layout.carrier, strict=True)):
        stairs: dict[int, Staircase] = {}
        for row in [source, carrier, *(j for j in coming if j % layout.dim == i)]:
            entry = written.get(row, _Written(fmpq(0), {}, {}))
            own = {source: {source: fmpq(-1)}, carrier: {carrier: fmpq(-1)}}.get(row, {})
            if entry.linear != own or set(entry.neurons) - {carrier}:
                raise StrangeWeights(f"coordinate {row} is not overwritten with a staircase of the carrier: not a restored chain of shifts")
            stairs[row] = entry.staircase(carrier, kept=row == carrier)
            if not stairs[row].is_bounded():
                raise StrangeWeights(f"the staircase of coordinate {row} is not bounded: not a restored chain of shifts")
        if not stairs[source].kinks or not maximum([abs(arb(v)) for v in stairs[source].extremes()]) < size:
            raise StrangeWeights("a staircase leaves the alphabet's range, or has no steps: not a restored chain of shifts")
        columns.append(stairs)
    room = min(stair.room(letter) for stairs in columns for stair in stairs.values() for letter in letters)
    found, noise = zeros(layout.width, layout.dim), dict[int, arb]()
    moved, uneven, storage_budget = arb(0), arb(0), arb(0)
    for i, (source, carrier) in enumerate(zip(layout.source, layout.carrier, strict=True)):
        stairs, values = columns[i], columns[i][source]
        knots = sorted({kink for stair in stairs.values() for kink in stair.kinks})
        rounded = {row: _stair_rounding(arithmetic, written.get(row), row, source, carrier, size, size + arb(room)) for row in stairs}
        uneven = uneven.max(maximum([abs(arb(values(v) - v)) for v in letters]))
        explained = sum((abs(a) * (1 + abs(b)) for _, b, a in values.neurons), abs(values.constant))
        storage_budget = storage_budget.max(2 * arithmetic.unit * arb(explained))
        moved = moved.max(rounded[source])
        if not maximum([abs(arb(v)) for v in values.extremes()]) + moved < size:
            raise Refusal(f"{reader.dtype} is too coarse to restore these letters")
        found[source, i] = fmpq(1)
        span = values(letters[-1]) - values(letters[0])
        for row, stair in stairs.items():
            if row == source:
                continue
            if span == 0:
                raise StrangeWeights("a staircase does not tell the letters apart: not a restored chain of shifts")
            c = (stair(letters[-1]) - stair(letters[0])) / span
            if c == 0 and row in coming and row in written:
                raise StrangeWeights(f"coordinate {row} is written before it holds a memory: not a restored chain of shifts")
            found[row, i] = c
            mismatch = maximum([abs(arb(stair(r) - c * values(r))) for r in knots])
            noise[row] = mismatch + rounded[row] + abs(arb(c)) * rounded[source]
    return Given(found, noise, moved, uneven + moved, size), Restoration(off, room, uneven, storage_budget)


def _stair_rounding(arithmetic: Arithmetic, entry: _Written | None, row: int, source: int, carrier: int, size: arb, reach: arb) -> arb:
    """Rounding of row + staircase(carrier), carriers up to `reach`, the source's old value up to `size`."""
    if entry is None:
        return arb(0)
    weights, inputs = [entry.constant], [ONE]
    for i, weight in entry.linear.items():
        weights.append(weight)
        inputs.append(Rounded(size if i == source else reach, arb(0)))
    for w, b, a in entry.neurons.get(carrier, []):
        weights.append(a)
        hidden = arithmetic.dot([w, b], [Rounded(reach, arb(0)), ONE])
        inputs.append(Rounded((abs(arb(w)) * reach + arb(b)).max(arb(0)), hidden.error))
    old = {source: size, carrier: reach}.get(row, arb(0))
    change = arithmetic.dot(weights, inputs)
    return arithmetic.plus(Rounded(old, arb(0)), change, change.magnitude).error


def _table_certificate(
    network: Transformer, reader: _Reader, steps: list[Step], restorations: list[tuple[int, Restoration]], sure: set[int]
) -> dict[str, Any]:
    """Restoration layer by layer, and the table that ends the chain."""
    target, dtype = reader.target, reader.dtype
    with working_precision(FFN_BITS):
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        measured = {theorem.SHIFT: _shift_parts(steps)}
        for shift, stairs in restorations:
            here = {"shift": shift, "error": upper(stairs.off), "room": lower(arb(stairs.room))}
            groups.setdefault(tuple(here.values()), {**here, "margin": lower(arb(stairs.room) - stairs.off), "layers": 0})["layers"] += 1
        if restorations:
            measured[theorem.RESTORATION] = [
                Part(f"restoration after shift {group['shift']} ×{group['layers']}", group["error"], group["room"])
                for group in groups.values()
            ]
            worst = max((stairs for _, stairs in restorations), key=lambda stairs: upper(stairs.uneven - stairs.storage))
            measured[theorem.PLATEAUS] = [Part("plateaus at the letters", upper(worst.uneven), upper(worst.storage))]
        holds = all(group["margin"] > 0 for group in groups.values())
        certified, promised, rounding = _table(network.layers[-1], reader, sure)
        if not holds:
            reader.faults.append("a shift is off by more than the room around the letters: errors are not reset")
            certified = arb.pos_inf()
        measured[theorem.TABLE] = [Part("read-out table", upper(certified), upper(promised))]
        digital = {
            "letters": [str(v) for v in target.alphabet or ()], "restored": list(groups.values()), "exact": upper(certified) == 0,
            "positions": f"t >= {target.lags[-1]}: all lags inside the array",
        }  # fmt: skip
        witness = _random_witness(network, target)
        return {
            "witness": witness, "witness_input": f"random tokens of the alphabet, run in {dtype}", "certified": upper(certified),
            "bound": upper(promised), "rounding": upper(rounding), "trivial": _letter_spread(target),
            "parts": gathered(theorem.restored_graph("lin", reader.bank, target.lags[-1], len(steps) > 1), measured),
            "details": {"digital": digital},
        }  # fmt: skip


def _table(layer: Layer, reader: _Reader, sure: set[int]) -> tuple[arb, arb, arb]:
    """(error of the table, what storing it may cost, rounding of its sum): neurons relu(1 − Σ digits) are exactly 0 or 1."""
    target, layout, dtype = reader.target, reader.layout, reader.dtype
    letters = target.alphabet
    assert letters is not None
    inner, bias, outer = (to_exact(a) for a in (layer.feedforward.inner, layer.feedforward.bias, layer.feedforward.outer))
    if any((to_exact(a) != 0).any() for a in (layer.attention.output, layer.attention.value)):
        raise StrangeWeights("the last layer of a restored chain attends to something")
    terms: list[tuple[frozenset[int], fmpq]] = []
    for row, b, a in zip(inner, bias, outer[0], strict=True):
        used = [int(j) for j in np.nonzero(row)[0]]
        if b != 1 or any(row[j] != -1 for j in used):
            raise StrangeWeights("a neuron of the table is not relu(1 - digits): not a restored chain of shifts")
        if not set(used) <= sure:
            reader.faults.append("the table reads a digit that is not certain to be 0 or at least 1")
            return arb.pos_inf(), arb.pos_inf(), arb(0)
        terms.append((frozenset(used), a))
    total = sum((abs(a) for _, a in terms), fmpq(0))
    grid = max((int(a.q) for _, a in terms), default=1)
    exact_sum = total * grid <= 2 ** MANTISSA[dtype] and grid <= 2**100
    rounding = arb(0) if exact_sum else Arithmetic(dtype).dot([a for _, a in terms], [ONE] * len(terms)).error
    variables, table = readout_table(target)
    fixed = [j for j in range(layout.slots) if j not in variables]
    worst = arb(0)
    for choice in table:
        zero = {d for v, index in zip(variables, choice, strict=True) for d in layout.digits(v)[:index]}
        stray = {d for v in fixed for d in layout.digits(v)}
        value = sum((a for digits, a in terms if digits <= zero), fmpq(0))
        loose = sum((abs(a) for digits, a in terms if digits & stray and digits - stray <= zero), fmpq(0))
        worst = worst.max(abs(arb(value) - _value_at(target, variables, choice)) + arb(loose))
    unit, promised = arb(UNIT[dtype]), arb(0)
    for coefficient in mixed_differences(table).values():
        stored = to_exact(to_float(np.array([coefficient], dtype=object), dtype))[0]
        promised += arb(0) if stored == coefficient else unit * abs(arb(coefficient)) + arb(2) ** -90
    return worst + rounding, promised + rounding, rounding


def _value_at(target: FixedMemory, variables: Sequence[int], choice: Sequence[int]) -> arb:
    """f at a choice of letters: exact for polynomials, a ball otherwise."""
    readout, letters = target.readout, target.alphabet
    assert letters is not None
    u = [letters[0]] * readout.coordinates
    for j, index in zip(variables, choice, strict=True):
        u[j] = letters[index]
    if readout.plain:
        return readout([arb(v) for v in u])
    return arb(_polynomial(readout, u))


def _polynomial(readout: ReadOut, u: Sequence[fmpq]) -> fmpq:
    value = sum((w * x for w, x in zip(readout.affine, u, strict=True)), readout.constant)
    for monomial, coefficient in readout.polynomial:
        for x, exponent in zip(u, monomial, strict=True):
            coefficient = coefficient * x**exponent
        value += coefficient
    return value


def _letter_spread(target: FixedMemory) -> float:
    """Error of the best constant output on the alphabet."""
    variables, table = readout_table(target)
    values = [_value_at(target, variables, choice) for choice in table]
    return lower((maximum(values) + maximum([-v for v in values])) / 2)


def _random_witness(network: Transformer, target: FixedMemory) -> float:
    """The largest error that random tokens show, at positions whose lags lie inside the array."""
    letters, lag = target.alphabet, target.lags[-1]
    assert letters is not None
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(letters), (WITNESS_ROWS, lag + WITNESS_TOKENS, target.dim))
    outputs = fast.forward(network, np.array([float(arb(v)) for v in letters])[chosen])
    variables = theorem.readout_variables(target)
    lags, worst, known = (0, *target.lags), 0.0, dict[tuple[float, tuple[int, ...]], float]()
    for row, t in product(range(WITNESS_ROWS), range(lag, lag + WITNESS_TOKENS)):
        choice = tuple(int(chosen[row, t - lags[j // target.dim], j % target.dim]) for j in variables)
        output = float(outputs[row, t])
        if (output, choice) not in known:
            known[output, choice] = lower(abs(arb(rational(output)) - _value_at(target, variables, choice)))
        worst = max(worst, known[output, choice])
    return worst
