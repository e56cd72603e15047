"""numpy: one file to be read, with the weights as literals and a forward pass, for teaching; it imports numpy only.

The functions are those of `constructions.exports.portable.numpy_model` that the network's form needs, as they stand there, and the literals
are what `repr` writes: they are read back as the same floats.
"""

import inspect
import pprint
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from analyzer.errors import Refusal
from constructions.exports.agreement import Prepared, prepared
from constructions.exports.portable import numpy_model
from constructions.files.places import check_place, write_file
from constructions.network.transformer import Transformer

MAX_LITERALS = 1 << 18
"""Numbers beyond which nobody reads a file."""
WIDTH = 120
_READ_OUT = ("neurons", "rounded", "after_neurons")
FUNCTIONS = {
    "heads": (
        "part_of", "embedded", "log_hurwitz", "stored_weights", "positions", "masses", "read_scores", "attention", *_READ_OUT,
        "forward_by_heads",
    ),
    "kernels": ("part_of", "causal_sums", *_READ_OUT, "forward_by_kernels"),
    "lags": ("part_of", "causal_sums", "read_by_lag", *_READ_OUT, "forward_by_lags"),
}  # fmt: skip
ABOUT = {
    "heads": "Heads give the token s steps back the weight e^{-ps} (lin), s^{-p} (log) or e^{b(s)} (table), normalised or not, times\n"
    "e^<q, k> where they compare tokens; linear heads <q, k> / n, n being the number of tokens that they see.",
    "kernels": "The weights of the heads cancel to more digits than floats have: they were added up exactly, into one kernel per slot.",
    "lags": "The weights of the heads cancel to more digits than floats have: they were added up exactly, into one kernel for every lag.",
}


def write(
    network: Transformer, slots: Mapping[str, Sequence[int]], place: Path, *, overwrite: bool = False, tokens: np.ndarray | None = None
) -> dict[str, object]:
    """Write the file; what was measured and derived as plain data."""
    check_place(place, overwrite)
    ready = prepared(network, slots, tokens)
    count = sum(array.size for array in ready.network.arrays.values())
    if count > MAX_LITERALS:
        raise Refusal(f"a file with {count} numbers is not for reading; export the network to torch or jax instead")
    forward = getattr(numpy_model, FUNCTIONS[ready.network.form][-1])
    found = ready.compared(forward(list(ready.network.layers), ready.network.arrays, ready.tokens)[0])
    write_file(place, source(ready, found).encode(), overwrite)
    return {"format": "numpy", "place": str(place), "form": ready.network.form, **found}


def source(ready: Prepared, found: Mapping[str, object]) -> str:
    """The text of the file."""
    form, dim, longest = ready.network.form, ready.tokens.shape[-1], ready.network.longest
    row = " + W_pos[t]" if "pos_embed.W_pos" in ready.network.arrays else ""
    names = "\n".join(f"    {name:12} coordinates {', '.join(map(str, places))}" for name, places in ready.network.slots.items())
    functions = "\n\n".join(inspect.getsource(getattr(numpy_model, name)) for name in FUNCTIONS[form])
    return f'''"""A Transformer in plain numpy, to be read: weights, then the forward pass, function by function.

    outputs, stream = forward(tokens)      tokens (N, {dim}) or (batch, N, {dim}) in [-1, 1]

    X0 = W_E x + b_E{row};   U = X + Attn(X);   X = U + FFN(U);   the last FFN has no residual: it is the read-out

{ABOUT[form]}
`stream[i]` is U of layer i; these of its coordinates have names:

{names}

Not certified: this is another evaluation order than the one that the network's certificate covers. On {found["sequences"]} random
sequences of {found["length"]} tokens the outputs differ by at most {found["difference"]:.3g} (measured); rounding explains
{found["tolerance"]:.3g} (derived).
"""

import math
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Words = dict[str, Any]

SLOTS = {_literal(ready.network.slots)}

LAYERS = {_literal(list(ready.network.layers))}

WEIGHTS = {{
{_weights(ready.network.arrays)}}}


{functions}

def forward(tokens: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Outputs, (N,) or (batch, N) where there is one per token, and the stream after every attention."""
    outputs, stream = {FUNCTIONS[form][-1]}(LAYERS, WEIGHTS, np.asarray(tokens, float))
    return (outputs[..., 0] if outputs.shape[-1] == 1 else outputs), stream


if __name__ == "__main__":
    tokens = np.random.default_rng(0).choice([-1.0, 1.0], ({min(8, longest or 8)}, {dim}))
    outputs, stream = forward(tokens)
    for name, places in SLOTS.items():
        for layer, held in enumerate(stream):
            print(f"layer {{layer + 1}}, slot {{name}}:", held[:, places].round(3).tolist())
    print("outputs:", outputs.round(3).tolist())
'''


def _literal(value: object) -> str:
    return pprint.pformat(value, width=WIDTH, sort_dicts=False)


def _weights(arrays: Mapping[str, np.ndarray]) -> str:
    """Every array as a literal, one line where it is short."""
    lines = []
    for name, array in arrays.items():
        rows = pprint.pformat(array.tolist(), width=WIDTH, compact=True)
        shape = "" if array.size else f".reshape{array.shape}"
        text = rows.replace("\n", "\n        ")
        lines.append(f"    {name!r}: np.array(  # {array.shape}\n        {text}, float){shape},\n")
    return "".join(lines)
