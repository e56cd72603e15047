"""The layers of a network as ONNX nodes: the operations of the fast pass (`constructions.run.fast`), one for one and in its order.

The stream is (batch, length, D), the constant state of the positions before the array (1, D): it runs through the same operations, inside
the graph, so that no constant is stored that another machine would compute differently. Every other constant is a stored weight or one
that the fast pass computes outside XLA, correctly rounded.

A tap is added as one product of matrices, [total, v]·[1, tap]ᵀ: 1·total is exact, so whoever forms the second product with one rounding
(as XLA and onnxruntime do where the machine has fused multiply-add) gets the bits of the fast pass.

Linear heads over the tokens so far are the one exception to the order: the fast pass keeps running sums of keys times values, the graph
multiplies queries with keys first. Their rounding is known for every order (`verify.chain.enclosed`).
"""

from collections.abc import Mapping

import numpy as np

from analyzer.numbers.exact import nearest
from constructions.exports.onnx_nodes import GraphWriter, element
from constructions.network.exponential import DEEPEST, constants, power_of_two
from constructions.network.transformer import Attention, FeedForward
from constructions.run.fast import kernel_heads

Constants = Mapping[str, np.ndarray]


def matrix(writer: GraphWriter, name: str, weights: np.ndarray) -> str:
    """A stored weight as the matrix that rows are multiplied with from the left: (out, in) → (in, out), and heads side by side."""
    array = np.asarray(weights)
    stored = writer.constant(array, name or None)
    if name.endswith(".output"):
        stored = writer.once("Transpose", stored, perm=[0, 2, 1])
        return writer.once("Reshape", stored, writer.integers(array.shape[0] * array.shape[2], array.shape[1]))
    if array.ndim == 3:
        stored = writer.once("Reshape", stored, writer.integers(array.shape[0] * array.shape[1], array.shape[2]))
    return writer.once("Transpose", stored, perm=[1, 0])


LANES = 4
"""float64 numbers that XLA multiplies at a time where a product has a single column."""


def product(writer: GraphWriter, x: str, name: str, weights: np.ndarray) -> str:
    """x W, the rows of x times a stored weight.

    A single column of n ≥ 4 float64 numbers is added up as XLA does on processors with four lanes: lane j has the terms i ≡ j mod 4, a
    fifth the last n mod 4, and (0 + 2) + (1 + 3) + rest is the sum. That is a product with five columns, whose zeros add nothing.
    """
    right = matrix(writer, name, weights)
    array = np.asarray(weights)
    inputs = array.shape[-1] if not name.endswith(".output") else array.shape[0] * array.shape[2]
    if array.size != inputs or inputs < LANES or writer.dtype != "float64":
        return writer.node("MatMul", x, right)
    places = np.arange(inputs)
    lane = np.where(places < inputs // LANES * LANES, places % LANES, LANES)
    spread = writer.once("Mul", right, writer.constant(lane[:, None] == np.arange(LANES + 1), as_numbers=True))
    sums = writer.node("MatMul", x, spread)
    halves = writer.node("Add", *(writer.taken(sums, pair, -1) for pair in ((0, 1), (2, 3))))
    total = writer.node("Add", *(writer.taken(halves, [lane], -1) for lane in (0, 1)))
    return writer.node("Add", total, writer.taken(sums, [LANES], -1))


def fed(writer: GraphWriter, name: str, ffn: FeedForward, u: str) -> str:
    """A relu(B u + c), rounded where the network says so: Round is to the nearest integer, ties to even, as the definition asks."""
    if not len(ffn.inner):  # no neurons: zero
        return writer.node("MatMul", u, writer.constant(np.zeros((ffn.inner.shape[1], len(ffn.outer)))))
    hidden = product(writer, u, f"{name}.inner", ffn.inner)
    hidden = writer.node("Relu", writer.node("Add", hidden, writer.constant(ffn.bias, f"{name}.bias")))
    output = product(writer, hidden, f"{name}.outer", ffn.outer)
    if "integer" in ffn.precision:
        chosen = writer.constant(np.array([p == "integer" for p in ffn.precision]))
        output = writer.node("Where", chosen, writer.node("Round", output), output)
    if "log" in ffn.precision:
        chosen = writer.constant(np.array([p == "log" for p in ffn.precision]))
        lag = writer.node("Round", writer.node("Exp", writer.node("Where", chosen, output, writer.constant(0.0))))
        output = writer.node("Where", chosen, writer.node("Log", writer.node("Max", lag, writer.constant(1.0))), output)
    return output


def attended(writer: GraphWriter, name: str, attention: Attention, constants: Constants, x: str, past: str | None) -> str:
    """What attention adds to the stream; `past` is the constant state before the array, None where nobody looks there."""
    if not attention.value.shape[1]:  # heads without values add nothing
        return writer.node("Mul", x, writer.constant(0.0))
    if "factor" in constants:
        return _by_lag(writer, name, attention, constants, x, past)
    if attention.kind == "linear":
        return _linear(writer, name, attention, x)
    if attention.window == "full":
        return _all_tokens(writer, name, attention, x)
    if attention.kind in ("dp", "nf"):
        return _scored(writer, name, attention, constants, x, past)
    return _by_position(writer, name, attention, constants, x, past)


def attended_past(writer: GraphWriter, name: str, attention: Attention, constants: Constants, past: str) -> str | None:
    """What attention adds to the constant state itself; None for nothing, in a finite or full window."""
    if attention.window != "infinite" or not attention.value.shape[1]:
        return None
    value = _before(writer, name, attention, past)
    if "factor" in constants:
        held = writer.reshaped(_factor(writer, name, constants, past), -1, 1)
        value = writer.node("Mul", held, _mass(writer, name, attention, constants, value))
    elif attention.kind == "tmx":
        value = writer.node("Mul", _column(writer, constants["whole"], f"{name}.whole"), value)
        value = writer.node("Mul", writer.reshaped(_stretch(writer, name, attention, past), -1, 1), value)
    elif attention.kind == "nf":
        parts = (_projected(writer, f"{name}.{part}", getattr(attention, part), past, past=True) for part in ("query", "key"))
        query, key = (writer.node("Unsqueeze", part, writer.integers(axis)) for part, axis in zip(parts, (1, 2), strict=True))
        score = writer.reshaped(writer.node("MatMul", query, key), -1, 1)
        score = writer.node("Add", _column(writer, constants["whole"], f"{name}.whole"), score)
        value = writer.node("Mul", _exp(writer, score), value)
    return _joined(writer, name, attention, value, past=True)


def _projected(writer: GraphWriter, name: str, weights: np.ndarray, x: str, past: bool = False) -> str:
    """W x by heads: (batch, length, H, k), or (H, k) for the constant state."""
    heads, rank, width = weights.shape
    if not rank:  # products with nothing are 0: one coordinate that is
        return _projected(writer, "", np.zeros((heads, 1, width)), x, past)
    return writer.reshaped(product(writer, x, name, weights), *([heads, rank] if past else [0, 0, heads, rank]))


def _before(writer: GraphWriter, name: str, attention: Attention, past: str | None) -> str:
    """W_V of the constant state, (H, dv); zeros where that is not carried."""
    if past is None:
        return writer.constant(np.zeros(attention.value.shape[:2]))
    return _projected(writer, f"{name}.value", attention.value, past, past=True)


def _joined(writer: GraphWriter, name: str, attention: Attention, mixed: str, past: bool = False) -> str:
    """Σ_h W_O^h m_h of (batch, length, H, dv), or of (H, dv)."""
    flat = writer.reshaped(mixed, *([1, -1] if past else [0, 0, -1]))
    return product(writer, flat, f"{name}.output", attention.output)


def _column(writer: GraphWriter, values: np.ndarray, name: str | None = None) -> str:
    """(H,) as (H, 1)."""
    return writer.constant(np.asarray(values)[:, None], name)


def _states(writer: GraphWriter, ratio: str, start: str, values: str) -> str:
    """S_t = z S_{t−1} + v_t along the second axis of (batch, length, H, dv), from a start (H, dv): a Scan."""
    body = writer.body()
    state, value = body.fresh("state"), body.fresh("value")
    fresh = body.node("Add", body.node("Mul", ratio, state), value)
    seen = body.node("Identity", fresh)
    kind = writer.dtype
    graph = body.finished_body(writer.fresh("recurrence"), [(state, kind), (value, kind)], [(fresh, kind), (seen, kind)])
    heads = writer.node("Shape", values, start=2, end=4)
    first = writer.node("Expand", start, writer.node("Concat", writer.shape(values, 0), heads, axis=0))
    last, states = writer.fresh("last"), writer.fresh("states")
    writer.nodes.append(
        _several("Scan", [first, values], [last, states], body=graph, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])
    )
    return states


def _several(kind: str, inputs: list[str], outputs: list[str], **attributes: object) -> object:
    from constructions.exports.onnx_nodes import onnx_package

    return onnx_package().helper.make_node(kind, inputs, outputs, name=outputs[-1], **attributes)


def _tap_sum(writer: GraphWriter, taps: str, count: str, values: str, past: str) -> str:
    """Σ_s taps_s v_{t−s} for s < count, tap by tap from s = 0; values (batch, length, H, dv), taps (H, S), past (H, dv) before the array.

    Heads come first, so that a tap is one product of matrices per head.
    """
    byhead = writer.transposed(values, 2, 0, 1, 3)
    batch, length = writer.shape(byhead, 1), writer.shape(byhead, 2)
    before = writer.node("Unsqueeze", past, writer.integers(1, 2))
    wide = writer.node("Concat", writer.shape(byhead, 0), batch, count, writer.shape(byhead, 3), axis=0)
    padded = writer.node("Concat", writer.node("Expand", before, wide), byhead, axis=2)
    body = writer.body()
    step, going, total = body.fresh("tap"), body.fresh("going"), body.fresh("total")
    start = body.node("Sub", count, step)
    shifted = body.node("Slice", padded, start, body.node("Add", start, length), writer.integers(2))
    heads = body.node("Concat", body.shape(byhead, 0), body.integers(-1, 1), axis=0)
    pair = body.node("Concat", total, body.node("Reshape", shifted, heads), axis=2)
    tap = body.node("Reshape", body.node("Gather", taps, step, axis=1), body.integers(-1, 1, 1))
    one = body.node("Add", body.node("Mul", tap, body.constant(0.0)), body.constant(1.0))
    added = body.node("MatMul", pair, body.node("Concat", one, tap, axis=1))
    still = body.node("Identity", going)
    ends = [(step, "int64"), (going, "bool"), (total, writer.dtype)], [(still, "bool"), (added, writer.dtype)]
    graph = body.finished_body(writer.fresh("taps"), *ends)
    nothing = writer.node("Mul", byhead, writer.constant(0.0))
    flat = writer.node("Concat", writer.shape(byhead, 0), writer.integers(-1, 1), axis=0)
    trips = writer.node("Squeeze", count)
    found = writer.fresh("sum")
    inputs = [trips, writer.constant(np.array(True)), writer.node("Reshape", nothing, flat)]
    writer.nodes.append(_several("Loop", inputs, [found], body=graph))
    return writer.transposed(writer.node("Reshape", found, writer.node("Shape", byhead)), 1, 2, 0, 3)


def _by_position(writer: GraphWriter, name: str, attention: Attention, constants: Constants, x: str, past: str | None) -> str:
    """Heads whose weights read positions only: scans, taps, or all weights of arrays up to a length; for tmx times what their slots say."""
    values = _projected(writer, f"{name}.value", attention.value, x)
    past_value = _before(writer, name, attention, past)
    weighted = kernel_heads(attention, dict(constants)) if "weights" in constants else np.zeros(0, int)
    lin, log, table = (np.setdiff1d(attention.heads_of(kind), weighted) for kind in ("lin", "log", "table"))
    tapped = np.concatenate([log, table])
    parts, order = [], []
    for heads, mix in ((weighted, _weighed), (lin, _scanned), (tapped, _tapped)):
        if len(heads):
            whole = len(heads) == len(attention.rpe)
            chosen = values if whole else writer.taken(values, heads.tolist(), 2)
            before = past_value if whole else writer.taken(past_value, heads.tolist(), 0)
            parts.append(mix(writer, name, attention, constants, chosen, before))
            order.append(heads)
    mixed = parts[0]
    if len(parts) > 1:
        mixed = writer.taken(writer.node("Concat", *parts, axis=2), np.argsort(np.concatenate(order)).tolist(), 2)
    if attention.kind == "tmx":
        mixed = writer.node("Mul", writer.node("Unsqueeze", _stretch(writer, name, attention, x), writer.integers(-1)), mixed)
    return _joined(writer, name, attention, mixed)


def _weighed(writer: GraphWriter, name: str, attention: Attention, constants: Constants, values: str, past: str) -> str:
    """All weights of an array no longer than they were computed for: Σ_s w(s) v_{t−s}, and the past's share, or divided by the mass."""
    weights = writer.constant(constants["weights"], f"{name}.weights")
    length = writer.shape(values, 1)
    nothing = writer.node("Mul", past, writer.constant(0.0))
    total = _tap_sum(writer, weights, length, values, nothing)
    kind = "beyond" if "beyond" in constants else "mass"
    share = writer.constant(np.ascontiguousarray(constants[kind].T)[:, :, None], f"{name}.{kind}")
    share = writer.node("Slice", share, writer.integers(0), length, writer.integers(0))
    if kind == "mass":
        return writer.node("Div", total, share)
    return writer.node("Add", total, writer.node("Mul", share, past))


def _scanned(writer: GraphWriter, name: str, attention: Attention, constants: Constants, values: str, past: str) -> str:
    """lin heads: gain times the states of the recurrence, which starts at past/gain."""
    gain = _column(writer, constants["gain"], f"{name}.gain")
    states = _states(writer, _column(writer, constants["ratio"], f"{name}.ratio"), writer.node("Div", past, gain), values)
    return states if attention.kind == "tmx" else writer.node("Mul", gain, states)


def _tapped(writer: GraphWriter, name: str, attention: Attention, constants: Constants, values: str, past: str) -> str:
    taps = constants["taps"]
    return _tap_sum(writer, writer.constant(taps, f"{name}.taps"), writer.integers(taps.shape[1]), values, past)


def _stretch(writer: GraphWriter, name: str, attention: Attention, x: str) -> str:
    """e^{p y} or y^p for the slots y = w·x of tmx heads, (batch, length, H) or (1, H)."""
    slot = product(writer, x, f"{name}.pointer", attention.pointer)
    is_lin = np.array([kind == "lin" for kind in attention.rpe])
    if not is_lin.all():
        log = writer.node("Log", writer.node("Max", slot, writer.constant(1.0)))
        slot = writer.node("Where", writer.constant(is_lin), slot, log)
    return _exp(writer, writer.node("Mul", writer.constant(attention.decay, f"{name}.decay"), slot))


def _exp(writer: GraphWriter, x: str) -> str:
    """The project's own exponential: additions and products only; 2ⁿ is looked up."""
    dtype = writer.dtype
    inverse, high, low, coefficients = constants(dtype)
    deepest = DEEPEST[dtype]
    number = {value: writer.constant(nearest(value)) for value in (inverse, high, low, *coefficients)}
    x = writer.node("Clip", x, writer.constant(-float(deepest)), writer.constant(float(deepest)))
    n = writer.node("Round", writer.node("Mul", x, number[inverse]))
    r = writer.node("Sub", writer.node("Sub", x, writer.node("Mul", n, number[high])), writer.node("Mul", n, number[low]))
    result = writer.node("Add", writer.node("Mul", r, number[coefficients[-1]]), number[coefficients[-2]])
    for coefficient in reversed(coefficients[:-2]):
        result = writer.node("Add", writer.node("Mul", result, r), number[coefficient])
    most = int(deepest / 0.69) + 1
    powers = power_of_two(np.arange(-most, most + 1).astype(dtype), np)
    place = writer.node("Cast", writer.node("Add", n, writer.constant(float(most))), to=7)
    return writer.node("Mul", result, writer.node("Gather", writer.constant(powers), place, axis=0))


def _all_tokens(writer: GraphWriter, name: str, attention: Attention, x: str) -> str:
    """Softmax of the dot products over all tokens."""
    q, k, v = (_projected(writer, f"{name}.{part}", getattr(attention, part), x) for part in ("query", "key", "value"))
    logits = writer.node("MatMul", writer.transposed(q, 0, 2, 1, 3), writer.transposed(k, 0, 2, 3, 1))
    weights = _exp(writer, writer.node("Sub", logits, writer.node("ReduceMax", logits, axes=[-1], keepdims=1)))
    mixed = writer.node("MatMul", weights, writer.transposed(v, 0, 2, 1, 3))
    mixed = writer.node("Div", mixed, writer.node("ReduceSum", weights, writer.integers(-1), keepdims=1))
    return _joined(writer, name, attention, writer.transposed(mixed, 0, 2, 1, 3))


def _linear(writer: GraphWriter, name: str, attention: Attention, x: str) -> str:
    """Σ_s ⟨q_t, k_s⟩ v_s / n over the n tokens that t sees: all of them, where keys and values are multiplied first, or those up to t."""
    q, k, v = (_projected(writer, f"{name}.{part}", getattr(attention, part), x) for part in ("query", "key", "value"))
    q, v, keys = writer.transposed(q, 0, 2, 1, 3), writer.transposed(v, 0, 2, 1, 3), writer.transposed(k, 0, 2, 3, 1)
    length = writer.shape(x, 1)
    if attention.window == "full":
        total, count = writer.node("MatMul", q, writer.node("MatMul", keys, v)), length
    else:
        later = writer.node("Less", _distances(writer, length), writer.integers(0))
        weights = writer.node("Where", later, writer.constant(0.0), writer.node("MatMul", q, keys))
        total = writer.node("MatMul", weights, v)
        count = writer.node("Unsqueeze", writer.node("Add", _steps(writer, length), writer.integers(1)), writer.integers(1))
    mixed = writer.node("Div", total, writer.node("Cast", count, to=element(writer.dtype)))
    return _joined(writer, name, attention, writer.transposed(mixed, 0, 2, 1, 3))


def _power(writer: GraphWriter, score: str) -> str:
    """e^score, 0 where nobody looks."""
    nobody = writer.node("Equal", score, writer.constant(-np.inf))
    return writer.node("Where", nobody, writer.constant(0.0), _exp(writer, score))


def _steps(writer: GraphWriter, length: str) -> str:
    """0, 1, …, length − 1."""
    scalar = writer.node("Squeeze", length)
    return writer.node("Range", writer.constant(np.array(0)), scalar, writer.constant(np.array(1)))


def _distances(writer: GraphWriter, length: str) -> str:
    """t − s for all pairs, (length, length)."""
    steps = _steps(writer, length)
    column, row = (writer.node("Unsqueeze", steps, writer.integers(axis)) for axis in (1, 0))
    return writer.node("Sub", column, row)


def position_rows(writer: GraphWriter, positions: np.ndarray, x: str) -> str:
    """The rows of the table for the tokens of x (batch, length, D); a runtime refuses to look up those of arrays that are longer.

    Max(j, 0) is j. Without it onnxruntime makes a Slice of the whole, and a table of a single row would be added to all tokens.
    """
    place = writer.node("Max", _steps(writer, writer.shape(x, 1)), writer.integers(0))
    return writer.node("Gather", writer.constant(positions, "positions"), place, axis=0)


def _biases(writer: GraphWriter, name: str, constants: Constants, length: str) -> str:
    """p φ(t − s) or b(t − s) for all pairs, −∞ for s > t: (H, length, length)."""
    bias = np.asarray(constants["bias"])
    most = bias.shape[1]
    table = writer.constant(np.concatenate([bias, np.full((len(bias), 1), -np.inf)], axis=1), f"{name}.biases")
    distance = _distances(writer, length)
    later = writer.node("Less", distance, writer.integers(0))
    return writer.node("Gather", table, writer.node("Where", later, writer.integers(most), distance), axis=1)


def _scored(writer: GraphWriter, name: str, attention: Attention, constants: Constants, x: str, past: str | None) -> str:
    """dp and nf heads: scores, the constant past as one more column with its closed mass, softmax or plain exponentials."""
    q, k, v = (_projected(writer, f"{name}.{part}", getattr(attention, part), x) for part in ("query", "key", "value"))
    q, v = writer.transposed(q, 0, 2, 1, 3), writer.transposed(v, 0, 2, 1, 3)
    scores = writer.node("MatMul", q, writer.transposed(k, 0, 2, 3, 1))
    length = writer.shape(x, 1)
    inside = writer.node("Add", _biases(writer, name, constants, length), scores)
    before = past_value = past_key = ""
    if past is not None and attention.window == "infinite":
        past_value = _projected(writer, f"{name}.value", attention.value, past, past=True)
        past_key = writer.node("Unsqueeze", _projected(writer, f"{name}.key", attention.key, past, past=True), writer.integers(2))
        beyond = writer.constant(np.asarray(constants["beyond"])[:, :, None], f"{name}.beyond")
        beyond = writer.node("Slice", beyond, writer.integers(0), length, writer.integers(1))
        before = writer.node("Add", beyond, writer.node("MatMul", q, past_key))
    total = ""
    if attention.kind == "dp":
        top = writer.node("ReduceMax", inside, axes=[-1], keepdims=1)
        top = writer.node("Max", top, before) if before else top
        blind = writer.node("Equal", top, writer.constant(-np.inf))
        top = writer.node("Where", blind, writer.constant(0.0), top)
        inside, before = writer.node("Sub", inside, top), before and writer.node("Sub", before, top)
    weights, past_weight = _power(writer, inside), before and _power(writer, before)
    mixed = writer.node("MatMul", weights, v)
    if before:
        mixed = writer.node("Add", mixed, writer.node("Mul", past_weight, writer.node("Unsqueeze", past_value, writer.integers(1))))
    if attention.kind == "dp":
        total = writer.node("ReduceSum", weights, writer.integers(-1), keepdims=1)
        total = writer.node("Add", total, past_weight) if before else total
        seen = writer.node("Greater", total, writer.constant(0.0))
        mixed = writer.node("Div", mixed, writer.node("Where", seen, total, writer.constant(1.0)))
    return _joined(writer, name, attention, writer.transposed(mixed, 0, 2, 1, 3))


def _factor(writer: GraphWriter, name: str, constants: Constants, x: str) -> str:
    """The factor of every head for the lag in its slot, (batch, length, H) or (1, H)."""
    factor = np.asarray(constants["factor"])
    heads, count = factor.shape
    held = writer.node("Gather", x, writer.constant(np.asarray(constants["slot"], np.int64)), axis=-1)
    lag = writer.node("Clip", held, writer.constant(0.0), writer.constant(float(count - 1)))
    place = writer.node("Add", writer.node("Cast", lag, to=7), writer.constant(np.arange(heads, dtype=np.int64) * count))
    return writer.node("Gather", writer.constant(factor.ravel(), f"{name}.factor"), place, axis=0)


def _by_lag(writer: GraphWriter, name: str, attention: Attention, constants: Constants, x: str, past: str | None) -> str:
    """Heads that read lag slots: the scan or the taps without gain, times the factor of the position's lag."""
    values = _projected(writer, f"{name}.value", attention.value, x)
    before = _before(writer, name, attention, past)
    if attention.rpe[0] == "lin":
        ratio = _column(writer, constants["ratio"], f"{name}.ratio")
        states = _states(writer, ratio, _mass(writer, name, attention, constants, before), values)
    else:
        taps = writer.constant(constants["taps"], f"{name}.taps")
        states = _tap_sum(writer, taps, writer.integers(constants["taps"].shape[1]), values, before)
    factor = writer.node("Unsqueeze", _factor(writer, name, constants, x), writer.integers(-1))
    return _joined(writer, name, attention, writer.node("Mul", factor, states))


def _mass(writer: GraphWriter, name: str, attention: Attention, constants: Constants, before: str) -> str:
    """The constant past, weighed as a head with a lag slot weighs it."""
    if attention.rpe[0] == "lin":
        ratio = _column(writer, constants["ratio"], f"{name}.ratio")
        return writer.node("Div", before, writer.node("Sub", writer.constant(1.0), ratio))
    taps = writer.constant(constants["taps"], f"{name}.taps")
    return writer.node("Mul", before, writer.node("ReduceSum", taps, writer.integers(1), keepdims=1))
