"""Weights that are a construction's own, entry by entry: for theorems whose weights are whole numbers and a few parameters.

A certificate reads the parameters off the stored weights, has the construction write them, and holds every stored entry against that. What
it then proves, it proves of the stored weights; any other weight is a fault, whether it does harm or not. Witnesses are sequences that
are run (`errors_at`).
"""

from collections.abc import Sequence

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import lower, maximum, nearest
from constructions.files.bundle import arrays_of, structure_of
from constructions.network.transformer import Transformer, to_exact
from constructions.run.execute import run
from verify.chain.certificate import StrangeWeights
from verify.chain.enclosed_layers import enclosed_pass


def check_written(network: Transformer, written: Transformer) -> None:
    """Refuse weights that differ from those of an exact network, which every type must hold as they are."""
    if structure_of(network) != structure_of(written):
        raise StrangeWeights("kinds and windows of attention are not those of the construction")
    stored, wanted = arrays_of(network), arrays_of(written)
    if {name: array.shape for name, array in stored.items()} != {name: array.shape for name, array in wanted.items()}:
        raise StrangeWeights("the shapes of the weights are not those of the construction")
    for name, array in wanted.items():
        found = to_exact(stored[name])
        places = np.argwhere(found != array)
        if len(places):
            place = tuple(int(i) for i in places[0])
            raise StrangeWeights(f"{name}{list(place)} is {_shown(found[place])}, and the construction writes {_shown(array[place])} there")


def _shown(value: fmpq) -> str:
    return f"{nearest(value):.8g}"


def errors_at(network: Transformer, tokens: np.ndarray, values: Sequence[arb]) -> list[float]:
    """The largest |output − value| of every sequence (batch, N, d) over its positions, from below; exact networks are enclosed."""
    if network.dtype == "exact":
        found = enclosed_pass(network, tokens)
        mids, radii = found.mid, found.rad
    else:
        mids = run(network, tokens).astype(float)
        radii = np.zeros_like(mids)
    rows = ([abs(arb(float(m)) - y) - float(r) for m, r in zip(*pair, strict=True)] for *pair, y in zip(mids, radii, values, strict=True))
    return [max(0.0, lower(maximum(row))) for row in rows]
