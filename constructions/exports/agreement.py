"""Which form a network is exported in, and how far another program's outputs are from those that its certificate speaks of.

The difference is measured on random sequences; the tolerance is derived for the same ones
(`constructions.exports.plain_rounding`). Neither is a certificate: another program runs other operations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.errors import InputError, LemmaformerError, Refusal
from constructions.exports.forms import KEPT, PortableNetwork, fused_form, heads_form
from constructions.exports.plain_rounding import tolerance
from constructions.network.transformer import Transformer
from constructions.run.execute import run

SEQUENCES, LENGTH = 64, 24
"""Random sequences that are compared where none are given."""
Slots = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Prepared:
    """A network in its exported form, with the sequences that it is compared on, its outputs there, and what rounding may do to them."""

    network: PortableNetwork
    tokens: np.ndarray  # (batch, N, d)
    outputs: np.ndarray  # (batch, N, c)
    tolerance: np.ndarray  # (batch, N, c), infinite where a rounding inside the network is undecided

    @property
    def decided(self) -> np.ndarray:
        """Outputs that rounding cannot change much."""
        return np.isfinite(self.tolerance) & np.isfinite(self.outputs)

    def compared(self, outputs: np.ndarray) -> dict[str, object]:
        """Difference and tolerance as plain data; refused if some output differs by more than rounding can explain."""
        if not self.decided.any():
            raise Refusal("on none of these sequences is an output decided: weights cancel to more digits than floats have")
        off = np.abs(outputs.reshape(self.outputs.shape) - self.outputs)
        if not (off <= self.tolerance)[self.decided].all():
            worst = float(np.nanmax(np.where(self.decided, off, 0)))
            raise Refusal(f"outputs differ by {worst:.3g}, which is more than rounding can explain: nothing was written")
        return {
            "certified": False,
            "difference": float(off[self.decided].max(initial=0)),
            "tolerance": float(self.tolerance[self.decided].max(initial=0)),
            "decided": float(self.decided.mean()),
            "sequences": len(self.tokens),
            "length": self.tokens.shape[1],
        }


def prepared(network: Transformer, slots: Slots, tokens: np.ndarray | None = None) -> Prepared:
    """The form that keeps the network: its heads, or what they add up to where floats would lose it; refused where neither does."""
    given = sequences(network) if tokens is None else np.asarray(tokens, np.float64)
    outputs = run(network, given, form="scan").reshape(*given.shape[:2], network.outputs)
    exact = network.dtype == "exact"
    try:
        found = Prepared(heads := heads_form(network, slots), given, outputs, tolerance(network, heads, given))
    except LemmaformerError:
        if not exact:
            raise
    else:
        limits = found.tolerance[found.decided]
        if not exact or (len(limits) and limits.max() <= KEPT):
            return found
    try:
        fused = fused_form(network, slots, given)
    except InputError as error:  # neurons between layers choose: only floats have a form
        raise Refusal(f"an exact network is exported by its kernels, and {error}", {"dtype": "float64"}) from None
    return Prepared(fused, given, outputs, tolerance(network, fused, given))


def sequences(network: Transformer) -> np.ndarray:
    """Random sequences: a third of them uniform, a third of signs, a third of −1, 0 and 1; no longer than a table of positions."""
    rng = np.random.default_rng(0)
    shape = (SEQUENCES // 3 + 1, network.within(LENGTH), network.dim)
    parts = rng.uniform(-1, 1, shape), rng.integers(0, 2, shape) * 2.0 - 1, rng.integers(-1, 2, shape).astype(float)
    return np.concatenate(parts)
