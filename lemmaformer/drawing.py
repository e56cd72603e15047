"""What the figures of networks and bounds show: computed here, drawn by `verify.report.figures`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analyzer.errors import InputError, LemmaformerError
from analyzer.statements.bounds import Bound
from lemmaformer.results.base import Plain
from verify.report import figures

if TYPE_CHECKING:
    from analyzer.targets.protocol import Target
    from constructions.network.transformer import Transformer

Slots = Mapping[str, Sequence[int]]
Traced = Mapping[str, Mapping[str, np.ndarray]]

MAX_LENGTH = 512
"""Positions of a stream that are drawn."""
MAX_MEMORIES = 6
"""Memories with panels of their own."""


def draw_mechanism(path: Path, network: "Transformer", target: "Target | None", slots: Slots) -> bool:
    """How the heads of one layer share each kernel, or the kernels of adaptive memories by letter; False without matplotlib."""
    figures.check_suffix(path)
    from constructions.run.portions import is_shared, kernels_by_letter, portions

    if is_shared(network):
        shared = dict(list(portions(network, slots).items())[:MAX_MEMORIES])
        if not shared:
            raise InputError("no head of this network writes into its stream")
        return figures.shares(path, {"slots": shared})
    if target is None or not any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        raise InputError("kernels are drawn of one layer that reads positions, or of adaptive memories; give tokens to draw the stream")
    found = dict(list(kernels_by_letter(network, target, slots).items())[:MAX_MEMORIES])
    return figures.letters(path, {"memories": found})


def draw_stream(path: Path, name: str, tokens: np.ndarray, trace: "Callable[[np.ndarray], Traced]") -> bool:
    """The residual stream of one sequence, or of the first of several, as a coloured table; False without matplotlib."""
    figures.check_suffix(path)
    sequence = tokens[0] if tokens.ndim == 3 else tokens
    if len(sequence) > MAX_LENGTH:
        raise InputError(f"the sequence has {len(sequence)} tokens; a stream is drawn up to {MAX_LENGTH}")
    rows = _lines("tokens", {"x": sequence})
    for layer, held in trace(sequence).items():
        rows += _lines(layer, held)
    return figures.stream(path, {"network": name.strip("<>"), "rows": rows})


def _lines(where: str, held: Mapping[str, np.ndarray]) -> list[Plain]:
    """One line per coordinate of every slot."""
    found: list[Plain] = []
    for slot, values in held.items():
        columns = np.asarray(values, dtype=float).reshape(len(values), -1).T
        for j, column in enumerate(columns):
            place = "" if len(columns) == 1 else f"[{j}]"
            found.append({"name": f"{where}: {slot}{place}", "values": column.tolist()})
    return found


def draw_rate(path: Path, found: Bound, target: "Target", again: "Callable[[int], Bound]") -> bool:
    """What a theorem promises against the number of heads, around those of `found`; False without matplotlib.

    `again` evaluates the same bound at other numbers of heads; those that it refuses are left out.
    """
    figures.check_suffix(path)
    if found.heads is None:
        raise InputError(f"{found.theorem} does not speak of heads: there is no rate to draw")
    points = []
    for heads in sorted({max(1, round(found.heads * 2.0**k)) for k in range(-4, 5)}):
        try:
            points.append((heads, again(heads).total))
        except LemmaformerError:
            continue
    if len(points) < 2:
        raise InputError(f"{found.theorem} has its bound at {len(points)} of the heads around {found.heads}: there is no rate to draw")
    least = found.data.get("lower_bound_heads")
    data: Plain = {"theorem": found.theorem, "target": target.description, "claim": found.claim, "least_heads": least}
    return figures.rate(path, data | {"curves": {str(found.data.get("tuning", found.theorem)): points}})
