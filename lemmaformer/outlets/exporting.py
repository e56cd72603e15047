"""Networks for other programs: what `lemmaformer.api.export`, `Network.to_torch` and its like call.

A format is a pointer to a writer `write(network, slots, place, *, overwrite) -> plain data`, loaded when it is asked for. ONNX files also
carry the card of the bundle, so that they can be verified.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from analyzer.errors import InputError
from analyzer.targets.protocol import Target
from constructions.files.bundle import Bundle
from constructions.network.transformer import Transformer
from lemmaformer.options import Export
from lemmaformer.results.base import Result

FORMATS = {
    "torch": "constructions.exports.torch_modules:write",
    "onnx": "constructions.exports.onnx_graphs:write",
    "jax": "constructions.exports.jax_programs:write",
    "numpy": "constructions.exports.numpy_files:write",
}
DRAWN = ("torch", "jax", "numpy")
"""Formats whose writers compare outputs on sequences that are given: those of the target."""
SEQUENCES, BEYOND = 64, 16
"""Random sequences that are compared, and how many tokens they have after the target has settled."""


class Exported(Result):
    """What was written for another program: where, and how its outputs compare with those that the certificate covers.

    >>> import lemmaformer as lf
    >>> found = lf.export(lf.build(lf.fixed(lags=(2,))), to="numpy", out="net.py")
    >>> found.certified, found.difference <= found.tolerance < 1e-3
    (False, True)
    """

    shown_by = "networks:show_exported"

    @property
    def place(self) -> Path:
        """The file or folder."""
        return Path(cast(str, self.data["place"]))

    @property
    def certified(self) -> bool:
        """Whether the network's certificate covers that program's outputs; False for another evaluation order."""
        return bool(self.data["certified"])

    @property
    def difference(self) -> float | None:
        """The largest difference of outputs on random sequences: measured; None where no output has a tolerance."""
        return self._number("difference")

    @property
    def tolerance(self) -> float | None:
        """What rounding can explain on the same sequences: derived."""
        return self._number("tolerance")

    def _brief(self) -> str:
        known = "not compared" if self.difference is None else f"difference {self.difference:.3g} ≤ {self.tolerance:.3g}"
        return f" {self.data['format']} {self.data['place']}: {known}"


def check_place(out: Path, overwrite: bool) -> None:
    """Refuse a place at once, before anything is loaded; the writers look again."""
    from constructions.files.places import is_empty, place_of

    place = place_of(out)
    if not place.parent.is_dir():
        raise InputError(f"cannot write {str(out)[:80]}: not in an existing folder")
    if place.exists() and not overwrite and not is_empty(place):
        raise InputError(f"{str(out)[:80]} exists; choose another place, or overwrite it")


def exported(
    bundle: Bundle, slots: Mapping[str, Sequence[int]], target: Target | None, options: Export, out: Path, overwrite: bool
) -> Exported:
    """Write a network in the format that the options say."""
    check_place(out, overwrite)
    extra: dict[str, Any] = {}
    if options.to == "onnx":
        extra["card"] = bundle.card
    if options.to in DRAWN:
        extra["tokens"] = drawn(target, bundle.network)
    if options.length is not None:
        extra["length"] = options.length
    module, _, name = FORMATS[options.to].partition(":")
    return Exported(getattr(import_module(module), name)(bundle.network, slots, out, overwrite=overwrite, **extra))


def drawn(target: Target | None, network: Transformer) -> np.ndarray | None:
    """Random sequences of a target, (batch, N, d), no longer than its network takes where the target does not say how long they are."""
    if target is None:
        return None
    length = target.length or network.within(target.settled + BEYOND)
    return target.draw(np.random.default_rng(0), (SEQUENCES, length))
