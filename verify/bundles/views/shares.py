"""How heads make a kernel: each head's share of it, from the exact weights.

A memory that heads deliver is Σ_s κ(s) x_{t−s} with κ(s) = c·1{s=0} + Σ_h a_h k_h(s); the share of head h is a_h k_h(s). Shares are far
larger than their sum: weights alternate and cancel. They are computed in balls and given as pairs of float64 numbers, high + low, off by
at most 2^{−106} of their size; added up in such pairs, n of them are off by at most n 2^{−102} Σ_h |a_h k_h(s)|. They are given where that
stays below 10^{−6} for all heads; elsewhere the sums over the first heads are given, each rounded once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import LemmaformerError
from analyzer.kernels.l1_norms import DeliveredKernel
from analyzer.lemmas.lag_encoding import slot_ball
from analyzer.numbers.exact import nearest, working_precision
from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer
from constructions.run.fused import FusedLayer, fuse, linear_map
from constructions.run.lagged import LaggedLayer, lagged_layers
from constructions.run.stream import Slots, attended
from verify.bundles.views.targets import wanted_kernel

MOST_HEADS = 32
"""Heads of a memory that are listed one by one."""
LARGEST_SHARE = 2.0**102 * 1e-6 / MOST_HEADS
"""Sum of absolute shares beyond which a sum of pairs may be off by 10^{−6}."""
MOST_LAYERS = 32
"""Layers of a chain whose responses are shown."""
MOST_LAGS = 12
"""Lags whose kernels are shown."""
MOST_SUMS = 24
"""Partial sums that are given where heads are not."""

Panel = dict[str, Any]


def panels(network: Transformer, target: Target | None, slots: Slots, distances: int) -> list[Panel]:
    """One panel per memory: its kernel at the distances s < `distances` and the heads' shares; none where heads read tokens."""
    try:
        if len(network.layers) == 1 and network.layers[0].attention.kind == "dp-free":
            return _fused(fuse(network), target, slots, distances)
        if all(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
            return _lagged(network, slots, distances, MOST_LAGS if target is None else max(1, min(target.settled, MOST_LAGS)))
        if _is_linear(network):
            return _responses(network, slots, distances)
    except LemmaformerError:  # windows and scores that have no kernels
        pass
    return []


def _is_linear(network: Transformer) -> bool:
    """Whether the stream is a convolution of the tokens, layer after layer."""
    free = all(layer.attention.kind == "dp-free" and layer.attention.window == "infinite" for layer in network.layers)
    return free and len(network.layers) <= MOST_LAYERS and all(linear_map(layer.feedforward) is not None for layer in network.layers[:-1])


def _responses(network: Transformer, slots: Slots, distances: int) -> list[Panel]:
    """Of linear chains what every slot holds after each attention, s tokens after a single 1: measured in float64, not certified."""
    tokens = np.zeros((2, distances, network.dim))
    tokens[0, 0, 0] = 1
    streams = [held[0] - held[1] for held in attended(network, tokens, 0)]
    found = []
    for name, places in slots.items():
        responses = [held[:, places[0]].tolist() for held in streams]
        if any(any(values[1:]) for values in responses):
            blank: dict[str, Any] = {"wanted": None, "residual": [0.0, 0.0], "heads": [], "shares": [], "sums": None}
            choices = [{"label": f"after layer {k}", "total": values, **blank} for k, values in enumerate(responses, start=1)]
            found.append({"name": name, "choices": choices[::-1]})
    return found


def _fused(layer: FusedLayer, target: Target | None, slots: Slots, distances: int) -> list[Panel]:
    found, size = [], len(layer.embedding)
    for name, places in slots.items():
        row = tuple(fmpq(int(j == places[0])) for j in range(size))
        column = next((c for c in range(layer.embedding.shape[1]) if any(layer.functional(row, c)[1])), None)
        if column is None:
            continue
        residual, gains = layer.functional(row, column)
        used = sorted((h for h, gain in enumerate(gains) if gain != 0), key=lambda h: layer.decays[h])
        with working_precision(layer.bits):
            shares = [_values(_alone(layer, gains, h), distances) for h in used]
            total = _values(layer.kernel(row, column), distances)
            wanted = _wanted(target, row, column, distances)
        labels = [_label(h, layer.rpe[h], layer.decays[h], gains[h]) for h in used]
        with working_precision(layer.bits):
            choice = _choice(name, total, wanted, shares, labels, arb(residual))
        found.append({"name": name, "choices": [choice]})
    return found


def _alone(layer: FusedLayer, gains: Sequence[fmpq], h: int) -> DeliveredKernel:
    only = [gain if k == h else fmpq(0) for k, gain in enumerate(gains)]
    return DeliveredKernel(fmpq(0), layer.groups(only))


def _values(kernel: DeliveredKernel, distances: int) -> list[arb]:
    return kernel.values(0, distances)


def _wanted(target: Target | None, row: tuple[fmpq, ...], column: int, distances: int) -> list[float] | None:
    """What the memory should be; None for streams whose coordinates are not the target's memories."""
    known = None if target is None else target.as_layer_target
    return None if known is None or len(row) != known.readout.coordinates else wanted_kernel(known, row, column, distances)


def _label(h: int, rpe: str, decay: fmpq, gain: fmpq) -> dict[str, Any]:
    return {"head": h + 1, "rpe": rpe, "decay": nearest(decay), "weight": nearest(gain)}


def _choice(
    name: str, total: list[arb], wanted: list[float] | None, shares: list[list[arb]], labels: list[dict[str, Any]], residual: arb
) -> dict[str, Any]:
    """One kernel with its shares, or with sums over the first heads where rounded shares would not add up to it."""
    found: dict[str, Any] = {
        "label": name,
        "total": [float(v) for v in total],
        "wanted": wanted,
        "residual": _pair(residual),
        "heads": labels,
    }
    sizes = [float(sum((abs(v) for v in column), arb(0)).upper()) for column in zip(*shares, strict=True)]
    if len(shares) <= MOST_HEADS and max(sizes, default=0.0) <= LARGEST_SHARE:
        return found | {"shares": [[_pair(v) for v in share] for share in shares], "sums": None}
    counts = sorted({round(k) for k in np.linspace(1, len(shares), min(MOST_SUMS, len(shares)))})
    sums, running = [], [arb(0)] * len(total)
    for count, share in enumerate(shares, start=1):
        running = [a + b for a, b in zip(running, share, strict=True)]
        if count in counts:
            sums.append({"count": count, "values": [float(v) for v in running]})
    kept = labels if len(labels) <= MOST_HEADS else []
    return found | {"heads": kept, "shares": None, "sums": sums}


def _pair(value: arb) -> list[float]:
    high = float(value)
    return [high, float(value - arb(high))]


def _lagged(network: Transformer, slots: Slots, distances: int, longest: int) -> list[Panel]:
    """Per memory one kernel for every lag up to the longest that occurs: a bank does not serve longer ones."""
    found = []
    names = {places[0]: name for name, places in slots.items()}
    for layer in lagged_layers(network):
        for row in (row for row in range(layer.gains.shape[1]) if layer.writers(row) and row in names):
            column = next(int(c) for c in np.nonzero(layer.gains[:, row].any(axis=0))[0])
            choices = [_at_lag(layer, row, column, lag, distances) for lag in range(1, longest + 1)]
            found.append({"name": names[row], "choices": choices})
    return found


def _at_lag(layer: LaggedLayer, row: int, column: int, lag: int, distances: int) -> dict[str, Any]:
    value = slot_ball(layer.form, lag)
    heads = sorted((h for h in layer.writers(row) if layer.gains[h, row, column] != 0), key=lambda h: layer.decays[h])
    slot = layer.slot(layer.writers(row))
    with working_precision(layer.bits(value)):
        shares = []
        for h in heads:
            amplitude = arb(layer.gains[h, row, column]) * layer.amplitude(h, slot, value)
            shares.append([amplitude * _power(layer.rpe[h], arb(layer.decays[h]), s) for s in range(distances)])
        total = layer.kernel(row, column, value).values(0, distances)
        wanted = [float(s == lag) for s in range(distances)]
        labels = [_label(h, layer.rpe[h], layer.decays[h], layer.gains[h, row, column]) for h in heads]
        return _choice(f"lag {lag}", total, wanted, shares, labels, arb(0))


def _power(rpe: str, decay: arb, s: int) -> arb:
    if rpe == "log":
        return arb(s) ** -decay if s else arb(0)
    return (-decay * s).exp()
