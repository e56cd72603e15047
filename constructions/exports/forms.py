"""A network as plain arrays and words, in floats: what the forward passes of other programs read.

Float networks are exported as they are: *heads*, in float64, which holds every float32. Where the weights of heads read positions only and
the softmax runs over the infinite past, they are those of the pass that certificates speak of (`constructions.run.fast`), with its own
constants: g z^s with the stored ratio z and gain g in lin heads, the stored taps in others. Other scores read the stored decays or tables.

Exact networks have weights of any size that cancel, and floats may lose them. They are exported as heads rounded to float64 wherever the
derived tolerance of that (`constructions.exports.plain_rounding`) stays below `KEPT`, because heads have queries, patterns and values to
look at. Else heads are added up in ball arithmetic before anything is rounded:

* *kernels*, where layers are dp-free: the stream after a layer's attention is U_t = offset + Σ_{s≤t} K(s) x_{t−s}, K(s) a (D, d) matrix;
  the embedding is part of it, as it is as large as the heads that cancel it;
* *lags*, where heads read lag slots: Attn(X)_t = Σ_s K(s; n_t) X_{t−s} with n_t the integer in the slot, one kernel for every lag up to the
  largest that occurs on the sequences given; larger ones are read as that.

Arrays have the names and axes that TransformerLens gives them:

    embed.W_E (d, D)   embed.b_E (D,)   pos_embed.W_pos (P, D), where the network has absolute positions
    blocks.i.attn.  W_Q, W_K (H, D, k)   W_V (H, D, v)   W_O (H, v, D)   decay (H,)   pointer (H, D)   table (H, S)
                    ratio, gain (H,)   taps (H, S): stored weights, 0 where a head has none
                    kernel (D, d, S)   offset (D,)   lags.j (lags, rows, columns, S)
    blocks.i.mlp.   W_in (D, m)   b_in (m,)   W_out (m, D), the last one (m, c)
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from analyzer.errors import InputError
from constructions.network.transformer import Attention, Transformer, check_plain
from constructions.run.fast import head_constants, kernel_heads
from constructions.run.fused import stream_table
from constructions.run.lagged import ExactRunner, lagged_layers
from constructions.run.stream import as_float64, is_fused

KEPT = 1e-3
"""Exact networks are exported as heads where their derived tolerance is at most this: a tenth of the error that networks are built for."""
MAX_KERNEL = 1024
"""Tokens that kernels are kept for, where they do not end before."""


@dataclass(frozen=True)
class PortableNetwork:
    """Arrays by name, and for every layer the words that say how they are used."""

    arrays: dict[str, np.ndarray]
    layers: tuple[dict[str, Any], ...]
    slots: dict[str, list[int]]
    form: str  # heads, kernels or lags

    @property
    def longest(self) -> int | None:
        """The most tokens that it runs with; None if there is no such number."""
        found = [layer["longest"] for layer in self.layers if layer.get("longest") is not None]
        found += [len(array) for name, array in self.arrays.items() if name == "pos_embed.W_pos"]
        return min(found, default=None)

    def described(self) -> dict[str, object]:
        """What is not an array, as plain data."""
        return {"format": 1, "form": self.form, "layers": list(self.layers), "slots": self.slots}


def heads_form(network: Transformer, slots: Mapping[str, Sequence[int]]) -> PortableNetwork:
    """The network head by head; exact weights are rounded to float64, and refused if they do not fit."""
    for layer in network.layers:
        check_plain(layer.attention, "an export head by head", {"dtype": "exact"})
    floats = as_float64(network)
    arrays, layers = _shared(floats), []
    arrays |= {} if floats.positions is None else {"pos_embed.W_pos": floats.positions}
    for index, layer in enumerate(floats.layers):
        attention, prefix = layer.attention, f"blocks.{index}.attn"
        arrays |= {
            f"{prefix}.W_V": np.swapaxes(attention.value, 1, 2),
            f"{prefix}.W_O": np.swapaxes(attention.output, 1, 2),
            f"{prefix}.decay": attention.decay,
        }
        if attention.kind in ("dp", "nf", "linear"):
            arrays |= {f"{prefix}.W_Q": np.swapaxes(attention.query, 1, 2), f"{prefix}.W_K": np.swapaxes(attention.key, 1, 2)}
        if attention.kind == "tmx":
            arrays[f"{prefix}.pointer"] = attention.pointer
        if attention.table is not None:
            arrays[f"{prefix}.table"] = attention.table
        constants = {} if network.dtype == "exact" else _stored(network.layers[index].attention)
        arrays |= {f"{prefix}.{name}": array for name, array in constants.items()}
        words = {"kind": attention.kind, "window": attention.window, "rpe": list(attention.rpe), "stored": bool(constants)}
        layers.append(words | {"precision": list(layer.feedforward.precision)})
    return _made(arrays, layers, slots, "heads")


def _stored(attention: Attention) -> dict[str, np.ndarray]:
    """Ratio, gain and taps of every head of a float layer, if its weights read positions only and are stored; else nothing."""
    if attention.kind != "dp-free" or attention.window != "infinite":
        return {}
    constants = head_constants(attention)
    if len(kernel_heads(attention, constants)):
        return {}
    lin = attention.heads_of("lin")
    others = np.setdiff1d(np.arange(len(attention.rpe)), lin)
    ratio, gain = np.zeros((2, len(attention.rpe)))
    taps = np.zeros((len(attention.rpe), max(constants["taps"].shape[-1], 1)))
    ratio[lin], gain[lin] = constants["ratio"], constants["gain"]
    if len(others):
        taps[others] = constants["taps"]
    return {"ratio": ratio, "gain": gain, "taps": taps}


def lag_tables(network: Transformer) -> list[dict[str, np.ndarray]]:
    """The slots and the reach of the tables that `run` looks factors up in, for every layer of a float network that has them."""
    lagged = all(layer.attention.kind in ("nf", "tmx") and layer.attention.window == "infinite" for layer in network.layers)
    if lagged and network.dtype != "exact" and network.positions is None:
        with suppress(InputError):
            return [layer.constants or {} for layer in lagged_layers(network)]
    return [{}] * len(network.layers)


def fused_form(network: Transformer, slots: Mapping[str, Sequence[int]], tokens: np.ndarray) -> PortableNetwork:
    """An exact network whose heads are added up in ball arithmetic: kernels, or one kernel for every lag that occurs on the tokens."""
    if is_fused(network):
        return _kernels(network, slots)
    if network.positions is not None or any(layer.attention.kind not in ("nf", "tmx") for layer in network.layers):
        raise InputError("exact weights of these layers cannot be added up before they are rounded; build the network in float64")
    return _lags(network, slots, tokens)


def _kernels(network: Transformer, slots: Mapping[str, Sequence[int]]) -> PortableNetwork:
    arrays, layers = _shared(_rounded_outside(network)), []
    for index, layer in enumerate(network.layers):
        kernel, offset = stream_table(network.first(index + 1), MAX_KERNEL)
        arrays |= {f"blocks.{index}.attn.kernel": kernel, f"blocks.{index}.attn.offset": offset}
        longest = MAX_KERNEL if kernel.shape[-1] == MAX_KERNEL else None
        layers.append({"kind": "fused", "longest": longest, "precision": list(layer.feedforward.precision)})
    return _made(arrays, layers, slots, "kernels")


def _lags(network: Transformer, slots: Mapping[str, Sequence[int]], tokens: np.ndarray) -> PortableNetwork:
    runner = ExactRunner(network)
    read = runner.stream(tokens)
    arrays, layers = _shared(_rounded_outside(network)), []
    for index, layer in enumerate(network.layers):
        groups = []
        for number, memory in enumerate(runner.memories(index)):
            if index == 0:
                raise InputError("the first layer reads lag slots before anything has written them")
            largest = int(memory.lags(read[index - 1]).max())
            kernels = runner.kernels(index, memory, range(memory.least, largest + 1), MAX_KERNEL)
            arrays[f"blocks.{index}.attn.lags.{number}"] = kernels
            groups.append(asdict(memory))
        longest = max((arrays[f"blocks.{index}.attn.lags.{n}"].shape[-1] for n in range(len(groups))), default=0)
        words = {"kind": "lags", "groups": groups, "longest": MAX_KERNEL if longest == MAX_KERNEL else None}
        layers.append(words | {"precision": list(layer.feedforward.precision)})
    return _made(arrays, layers, slots, "lags")


def _rounded_outside(network: Transformer) -> Transformer:
    """Embedding and feed-forward networks in float64; heads are left out, as they may be out of range."""

    def bare(attention: Attention) -> Attention:
        none = np.zeros(0)
        return replace(attention, decay=none, value=none, output=none, query=none, key=none, pointer=none, table=None, rate=None)

    kept = Transformer(network.embedding, network.bias, tuple(replace(layer, attention=bare(layer.attention)) for layer in network.layers))
    return as_float64(kept)


def _shared(network: Transformer) -> dict[str, np.ndarray]:
    """Embedding and feed-forward networks."""
    arrays = {"embed.W_E": network.embedding.T, "embed.b_E": network.bias}
    for index, layer in enumerate(network.layers):
        ffn = layer.feedforward
        arrays |= {
            f"blocks.{index}.mlp.W_in": ffn.inner.T,
            f"blocks.{index}.mlp.b_in": ffn.bias,
            f"blocks.{index}.mlp.W_out": ffn.outer.T,
        }
    return arrays


def _made(arrays: dict[str, Any], layers: list[dict[str, Any]], slots: Mapping[str, Sequence[int]], form: str) -> PortableNetwork:
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return PortableNetwork(plain, tuple(layers), {name: list(places) for name, places in slots.items()}, form)
