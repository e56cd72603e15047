"""Networks as ONNX files (opset 17): the operations of the executor that `run` uses, written node by node.

    float networks                       layer by layer (`constructions.exports.onnx_layers`)
    exact, comparing tokens or with      the same, with weights rounded to float64, as `run` rounds them
    absolute positions
    exact, dp-free                       their stream is a convolution: kernels from balls, rounded once, summed tap by tap
    exact, lag slots                     kernels κ(s; n) from balls for every lag n, looked up by the lag in the slot, summed tap by tap

Inputs: `tokens` (batch, length, d). Outputs: `y` (batch, length), or (batch, length, c) if there are several, and what every slot holds
after every attention, `layer 1.x0`, …. What the file says of itself, and what of the network the graph does not read, is in
`metadata_props`: enough to rebuild the network, and so the file (`constructions.exports.onnx_files`).
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors.numpy import save as save_safetensors

from analyzer.errors import InputError, Refusal
from constructions.exports.exact_parts import MAX_KERNEL, columns_read, lag_kernels, memories, neurons_in_float64, reach_of
from constructions.exports.onnx_layers import attended, attended_past, fed, position_rows, product
from constructions.exports.onnx_nodes import IR_VERSION, OPSET, GraphWriter, element, onnx_package
from constructions.exports.onnx_runs import measured
from constructions.files.bundle import arrays_of, encode, structure_of
from constructions.files.places import check_place, write_file
from constructions.network.transformer import Transformer, check_plain, to_float
from constructions.run.execute import runs_rounded
from constructions.run.fast import network_constants
from constructions.run.fused import stream_table
from constructions.run.lagged import LaggedLayer, lagged_layers
from constructions.run.positions import MAX_TAPS
from constructions.run.stream import is_fused

FORMAT, VERSION = "lemmaformer-onnx", 1
HYPOTHESES = (
    "if onnxruntime's processor provider forms sums, products, quotients and products of matrices by IEEE operations of this type, "
    "in any order, fused or not; it promises none of this, directed operands confirm it"
)
EXACT = "the certificate is one of exact arithmetic; the graph computes in float64, with kernels or weights rounded once"
LIBRARIES = "the graph calls exp or log, whose rounding no library specifies"
MAX_FILE = 1 << 25
"""Bytes of a file. Messages of two bytes take a hundred in memory: this bounds what a hostile file can do."""

MAX_KERNELS = 1 << 28
"""Bytes of an exact network's kernels, if they were all of full length."""

Slots = Mapping[str, Sequence[int]]
Card = Mapping[str, object]


def write(network: Transformer, slots: Slots, place: Path, *, overwrite: bool, card: Card | None = None) -> dict[str, object]:
    """Write a network as an ONNX file, run it on random sequences beside `run`, and say what was found, as plain data.

    With the card of its bundle the file can be certified (`verify FILE.onnx`); sequences are then those of the card's target.
    """
    if place.suffix != ".onnx":
        raise InputError(f"{str(place)[:80]} is no name of an ONNX file; let it end in .onnx")
    check_place(place, overwrite)
    model = model_of(network, slots, card)
    content = model.SerializeToString(deterministic=True)
    found = measured(network, content, card)
    if not float(cast(float, found["share"] or 0)) <= 1:
        raise Refusal(f"outputs differ by {found['difference']:.3g}, which is more than rounding can explain: nothing was written")
    write_file(place, content, overwrite)
    longest = {prop.key: prop.value for prop in model.metadata_props}["longest"]
    return {
        "format": "onnx",
        "place": str(place),
        "opset": OPSET,
        "dtype": network.dtype,
        "bytes": len(content),
        "nodes": len(model.graph.node),
        "longest": None if longest == "any" else int(longest),
        "outputs": [output.name for output in model.graph.output],
        "certified": False,
        **coverage(network, model),
        **found,
    }


def coverage(network: Transformer, model: Any) -> dict[str, object]:
    """Whether the rounding analysis of certificates covers onnxruntime on this graph (docs/onnx.md), and why not, or under what."""
    if network.dtype == "exact":
        return {"covered": False, "why": EXACT}
    if any(node.op_type in ("Exp", "Log") for node in model.graph.node):
        return {"covered": False, "why": LIBRARIES}
    return {"covered": True, "why": HYPOTHESES}


def model_of(network: Transformer, slots: Slots, card: Card | None = None) -> Any:
    """The whole file as a ModelProto; the same network, slots and card give the same bytes."""
    width = int(network.embedding.shape[0])
    for name, places in slots.items():
        if not places or not all(0 <= j < width for j in places):
            raise InputError(f"the slot {name[:40]!r} has coordinates {list(places)[:4]}; the stream has those from 0 to {width - 1}")
    writer = GraphWriter("float64" if network.dtype == "exact" else network.dtype)
    longest = _network(writer, network, slots, reach_of(card))
    onnx = onnx_package()
    graph = onnx.helper.make_graph(writer.nodes, "lemmaformer", _inputs(writer, network), _outputs(writer, network, slots))
    for name, array in writer.initialisers.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="lemmaformer"
    )
    properties = _properties(network, slots, card, longest, writer.initialisers)
    onnx.helper.set_model_props(model, properties)
    whole = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    onnx.helper.set_model_props(model, {**properties, "integrity": whole})
    if model.ByteSize() > MAX_FILE:
        raise Refusal(f"this network makes an ONNX file of {model.ByteSize()} bytes, {MAX_FILE} is the most; a bundle holds it")
    return model


def _network(writer: GraphWriter, network: Transformer, slots: Slots, reach: int) -> int | None:
    """All nodes; returns the longest array that the constants are for, None if any."""
    if network.dtype != "exact":
        return _float_network(writer, network, slots)
    if is_fused(network):
        return _convolution(writer, network, slots)
    if runs_rounded(network):
        return _float_network(writer, network.map(lambda weights: to_float(weights, "float64")), slots)
    if all(layer.attention.kind in ("nf", "tmx") and layer.attention.window == "infinite" for layer in network.layers):
        return _lagged_network(writer, network, slots, reach)
    raise Refusal("an exact network of this kind is not run, so it has no graph", {"dtype": "float64"})


def _float_network(writer: GraphWriter, network: Transformer, slots: Slots) -> int | None:
    for layer in network.layers:
        check_plain(layer.attention, "a graph of float heads", {"dtype": "exact"})
    found = network_constants(network, MAX_TAPS)
    bias = writer.constant(network.bias, "bias")
    x = writer.node("Add", product(writer, "tokens", "embedding", network.embedding), bias)
    if network.positions is not None:
        x = writer.node("Add", x, position_rows(writer, network.positions, x))
    reads = [layer.attention.window == "infinite" for layer in network.layers]
    past = writer.reshaped(bias, 1, -1) if any(reads) else None
    for index, layer in enumerate(network.layers):
        writer.place, name = f"layer {index + 1}/", f"layers.{index}"
        past = past if any(reads[index:]) else None
        change = attended(writer, f"{name}.attention", layer.attention, found[index], x, past)
        last = index == len(network.layers) - 1
        x = writer.node("Add", x, change)
        _held(writer, index, slots, x)
        change = fed(writer, f"{name}.feedforward", layer.feedforward, x)
        if last:
            _answer(writer, change, network.outputs)
            break
        if past is not None and any(reads[index + 1 :]):
            added = attended_past(writer, f"{name}.attention", layer.attention, found[index], past)
            past = past if added is None else writer.node("Add", past, added)
            past = writer.node("Add", past, fed(writer, f"{name}.feedforward", layer.feedforward, past))
        x = writer.node("Add", x, change)
    by_length = any("bias" in constants or "weights" in constants for constants in found)
    return network.within(MAX_TAPS) if by_length else network.longest


def _held(writer: GraphWriter, index: int, slots: Slots, stream: str) -> None:
    """What the slots hold, as outputs."""
    for name, places in slots.items():
        chosen = np.array(places[0] if len(places) == 1 else list(places), np.int64)
        writer.node("Gather", stream, writer.constant(chosen), axis=2, name=_slot_name(index, name))


def _slot_name(index: int, slot: str) -> str:
    return f"layer {index + 1}.{slot}"


def _answer(writer: GraphWriter, read: str, outputs: int) -> None:
    if outputs == 1:
        writer.node("Squeeze", read, writer.integers(2), name="y")
    else:
        writer.node("Identity", read, name="y")


def _inputs(writer: GraphWriter, network: Transformer) -> list[Any]:
    return [onnx_package().helper.make_tensor_value_info("tokens", element(writer.dtype), ["batch", "length", network.dim])]


def _outputs(writer: GraphWriter, network: Transformer, slots: Slots) -> list[Any]:
    helper, kind = onnx_package().helper, element(writer.dtype)
    several = [network.outputs] if network.outputs > 1 else []
    found = [helper.make_tensor_value_info("y", kind, ["batch", "length", *several])]
    for index in range(len(network.layers)):
        for name, places in slots.items():
            sizes = ["batch", "length", *([len(places)] if len(places) > 1 else [])]
            found.append(helper.make_tensor_value_info(_slot_name(index, name), kind, sizes))
    return found


def _convolution(writer: GraphWriter, network: Transformer, slots: Slots) -> int | None:
    """Exact dp-free layers: the stream after every attention is a convolution of the tokens."""
    longest: int | None = None
    stream = ""
    _check_room(network.embedding.size * len(network.layers))
    for index in range(len(network.layers)):
        writer.place = f"layer {index + 1}/"
        kernels, offset = stream_table(network.first(index + 1), MAX_KERNEL)
        longest = MAX_KERNEL if kernels.shape[-1] == MAX_KERNEL else longest
        table = writer.constant(np.moveaxis(kernels, -1, 0).transpose(0, 2, 1), f"layers.{index}.kernels")
        total = _summed(writer, table, kernels.shape[-1], "tokens", None)
        stream = writer.node("Add", total, writer.constant(offset, f"layers.{index}.offset"))
        _held(writer, index, slots, stream)
    ffn = network.layers[-1].feedforward
    _answer(writer, fed(writer, f"layers.{len(network.layers) - 1}.readout", neurons_in_float64(ffn), stream), network.outputs)
    return longest


def _check_room(kernels: int) -> None:
    """Refuse kernels that would not fit into a file, before they are computed."""
    if kernels * MAX_KERNEL * 8 > MAX_KERNELS:
        raise Refusal(f"this exact network has {kernels} kernels, more than a file holds", {"dtype": "float64"})


def _summed(writer: GraphWriter, table: str, taps: int, values: str, place: str | None) -> str:
    """Σ_s κ_s v_{t−s} from s = 0 up to what the array holds; values (batch, length, C), table (S, C, J).

    With `place` (batch, length), whole numbers n, the table is (S, L, C, J) and κ_s that of n.
    """
    length = writer.shape(values, 1)
    count = writer.node("Min", length, writer.integers(taps))
    batch, width = writer.shape(values, 0), writer.shape(values, 2)
    nothing = writer.node("Concat", batch, count, width, axis=0)
    zero = writer.constant(np.zeros(1))
    padded = writer.node("Concat", writer.node("Expand", zero, nothing), values, axis=1)
    body = writer.body()
    step, going, total = body.fresh("tap"), body.fresh("going"), body.fresh("total")
    start = body.node("Sub", count, step)
    shifted = body.node("Slice", padded, start, body.node("Add", start, length), writer.integers(1))
    kernel = body.node("Gather", table, step, axis=0)
    if place is None:
        share = body.node("MatMul", shifted, kernel)
    else:
        chosen = body.node("Gather", kernel, place, axis=0)
        column = body.node("Unsqueeze", shifted, writer.integers(3))
        share = body.node("ReduceSum", body.node("Mul", column, chosen), writer.integers(2), keepdims=0)
    added, still = body.node("Add", total, share), body.node("Identity", going)
    kind = writer.dtype
    graph = body.finished_body(writer.fresh("taps"), [(step, "int64"), (going, "bool"), (total, kind)], [(still, "bool"), (added, kind)])
    sizes = writer.node("Concat", batch, length, writer.node("Shape", table, start=-1), axis=0)
    found = writer.fresh("sum")
    inputs = [writer.node("Squeeze", count), writer.constant(np.array(True)), writer.node("Expand", zero, sizes)]
    writer.nodes.append(onnx_package().helper.make_node("Loop", inputs, [found], name=found, body=graph))
    return found


def _lagged_network(writer: GraphWriter, network: Transformer, slots: Slots, reach: int) -> int | None:
    """Exact layers with lag slots, as `constructions.run.lagged.ExactRunner` runs them."""
    layers, longest = lagged_layers(network), None
    bias = writer.constant(to_float(network.bias, "float64"), "bias")
    x = writer.node("Add", product(writer, "tokens", "embedding", to_float(network.embedding, "float64")), bias)
    for index, layer in enumerate(network.layers):
        writer.place = f"layer {index + 1}/"
        for slot, rows in memories(layers[index]).items():
            columns = columns_read(layers[index], rows)
            _check_room((reach + 2) * len(rows) * len(columns))
            table = lag_kernels(layers[index], rows, columns, reach)
            longest = MAX_KERNEL if len(table) == MAX_KERNEL else longest
            name = writer.constant(table, f"layers.{index}.kernels of {slot}")
            read = writer.taken(x, columns, 2)
            found = _summed(writer, name, len(table), read, _lag(writer, layers[index], slot, x, reach))
            spread = np.zeros((len(rows), network.embedding.shape[0]))
            spread[np.arange(len(rows)), rows] = 1
            x = _written(writer, x, found, spread)
        _held(writer, index, slots, x)
        change = fed(writer, f"layers.{index}.feedforward", neurons_in_float64(layer.feedforward), x)
        if index == len(network.layers) - 1:
            _answer(writer, change, network.outputs)
        else:
            x = writer.node("Add", x, change)
    return longest


def _written(writer: GraphWriter, x: str, found: str, spread: np.ndarray) -> str:
    """The stream with memories added in their rows; not by a product, in which NaN at one memory would reach all rows."""
    rows = np.argmax(spread, axis=1)
    zero = writer.node("Mul", writer.node("Slice", found, writer.integers(0), writer.integers(1), writer.integers(2)), writer.constant(0.0))
    zero = writer.node("Where", writer.node("IsNaN", zero), writer.constant(0.0), zero)
    places = np.full(spread.shape[1], len(rows), np.int64)
    places[rows] = np.arange(len(rows))
    wide = writer.node("Gather", writer.node("Concat", found, zero, axis=2), writer.constant(places), axis=2)
    return writer.node("Add", x, wide)


def _lag(writer: GraphWriter, layer: LaggedLayer, slot: int, x: str, reach: int) -> str:
    """The lag in a slot, from 0 or 1 to reach + 1, (batch, length)."""
    held = writer.node("Gather", x, writer.constant(np.array(slot)), axis=2)
    held = writer.node("Where", writer.node("IsNaN", held), writer.constant(1.0), held)
    if layer.form == "log":
        held = writer.node("Exp", writer.node("Min", held, writer.constant(40.0)))
    least = 1.0 if "log" in layer.rpe else 0.0
    lag = writer.node("Clip", writer.node("Round", held), writer.constant(least), writer.constant(reach + 1.0))
    return writer.node("Cast", lag, to=7)


def weights_hash(network: Transformer) -> str:
    """SHA-256 of the weights as a bundle stores them."""
    return hashlib.sha256(encode(network)).hexdigest()


def _properties(
    network: Transformer, slots: Slots, card: Card | None, longest: int | None, initialisers: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """What the file says of itself, as text."""
    arrays = arrays_of(network)
    unread = {name: array for name, array in arrays.items() if name not in initialisers}
    exact = network.dtype == "exact"
    stored = encode(network) if exact else base64.b64encode(save_safetensors({n: np.ascontiguousarray(a) for n, a in unread.items()}))
    return {
        "format": FORMAT,
        "version": str(VERSION),
        "theorem": str((card or {}).get("theorem") or "none"),
        "dtype": network.dtype,
        "sha256": weights_hash(network),
        "slots": json.dumps({name: list(places) for name, places in slots.items()}, ensure_ascii=False),
        "structure": json.dumps(structure_of(network)),
        "longest": "any" if longest is None else str(longest),
        "card": json.dumps(dict(card or {}), sort_keys=True, ensure_ascii=False),
        "weights": stored.decode(),
    }
