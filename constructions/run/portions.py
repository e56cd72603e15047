"""How the heads of one layer share a memory kernel, and the kernels of adaptive memories by letter: values from ball arithmetic.

One dp-free layer writes κ_j(s) = e_j 1{s=0} + Σ_h g_{h,j} k_h(s) into coordinate j of the stream (`fused`): the portion of head h is
g_{h,j} k_h(s), that of the embedding e_j. Weights that single out one token cancel, so each value is computed in balls at the
layer's working precision and rounded once at the end.
"""

from collections.abc import Mapping, Sequence

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import DeliveredKernel
from analyzer.lemmas.lag_encoding import slot_ball
from analyzer.numbers.exact import working_precision
from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer
from constructions.run.fused import FusedLayer, fuse
from constructions.run.lagged import lagged_layers

MAX_HEADS = 12
"""Heads with a portion of their own; the others are added up."""
SHOWN = 48
"""Distances that are computed."""


def is_shared(network: Transformer) -> bool:
    """Whether a network is one layer that reads positions only, so that its heads share kernels."""
    first = network.layers[0].attention
    return len(network.layers) == 1 and (first.kind, first.window) == ("dp-free", "infinite")


def portions(network: Transformer, slots: Mapping[str, Sequence[int]], length: int = SHOWN) -> dict[str, dict[str, object]]:
    """Of every slot that heads write: {"heads": {"head 1": values, …, "embedding": values}, "sum": values}, s < length."""
    layer = fuse(network)
    found: dict[str, dict[str, object]] = {}
    with working_precision(layer.bits):
        for name, coordinates in slots.items():
            row = tuple(fmpq(int(j == coordinates[0])) for j in range(len(layer.embedding)))
            for column in range(layer.embedding.shape[1]):
                residual, gains = layer.functional(row, column)
                if any(gains):
                    found[name] = {
                        "heads": _by_head(layer, gains, length) | _embedded(residual, length),
                        "sum": _values(layer, residual, gains, length),
                    }
                    break
    return found


def _by_head(layer: FusedLayer, gains: Sequence[fmpq], length: int) -> dict[str, list[float]]:
    """The heads with the largest gains one by one, and the others together."""
    heads = sorted((h for h, gain in enumerate(gains) if gain), key=lambda h: (-abs(gains[h]), h))
    named = {f"head {h + 1}": [h] for h in sorted(heads[:MAX_HEADS])}
    if len(heads) > MAX_HEADS:
        named[f"{len(heads) - MAX_HEADS} other heads"] = heads[MAX_HEADS:]
    return {
        name: _values(layer, fmpq(0), [gain if h in of else fmpq(0) for h, gain in enumerate(gains)], length) for name, of in named.items()
    }


def _embedded(residual: fmpq, length: int) -> dict[str, list[float]]:
    """What the embedding itself writes into the slot: a share at s = 0."""
    return {"embedding": [float(arb(residual)), *(0.0 for _ in range(1, length))]} if residual else {}


def _values(layer: FusedLayer, residual: fmpq, gains: list[fmpq], length: int) -> list[float]:
    kernel = DeliveredKernel(residual, layer.groups(gains))
    return [float(value) for value in kernel.values(0, length)]


def kernels_by_letter(
    network: Transformer, target: Target, slots: Mapping[str, Sequence[int]], length: int = SHOWN
) -> dict[str, dict[str, object]]:
    """Of every memory whose lag a letter decides: {"parent": name, "kernels": [{"letter", "lag", "values"}]}.

    The kernel of a letter is that of the lag which the target gives it; the certificate is what says that the lag slot holds it.
    """
    layers, found = lagged_layers(network), dict[str, dict[str, object]]()
    for memory in target.describe().get("memory", ()):
        name, lags, parent = memory["name"], memory["lag"], memory.get("parent", "x0")
        if not isinstance(lags, list):
            continue
        row = slots[name][0]
        layer = next((layer for layer in layers if layer.writers(row)), None)
        if layer is None:
            continue
        column = next(int(c) for h in layer.writers(row) for c in range(layer.gains.shape[2]) if layer.gains[h, row, c])
        kernels = []
        for letter, lag in zip(target.describe()["alphabet"], lags, strict=True):
            ball = slot_ball(layer.form, int(lag))
            with working_precision(layer.bits(ball)):
                values = [float(value) for value in layer.kernel(row, column, ball).values(0, length)]
            spelt = ", ".join(map(str, letter)) if isinstance(letter, list) else str(letter)
            kernels.append({"letter": spelt, "lag": int(lag), "values": values})
        found[name] = {"parent": parent, "kernels": kernels}
    if not found:
        raise InputError("no letter decides a lag of this network by a table")
    return found
