"""PyTorch: a module with a hook point at every activation, in this process or as a folder that needs PyTorch and safetensors only.

The folder holds `model.py`, which is `constructions.exports.portable.torch_model` as it stands, `config.json`, `weights.safetensors` and a
`README.md`. Both run the same code, in float64.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analyzer.errors import InputError
from constructions.exports.agreement import Prepared, prepared
from constructions.files.places import is_empty, place_of, put_folder, staging, write_through
from constructions.network.transformer import Transformer

if TYPE_CHECKING:
    from torch import nn

HINT = "PyTorch is not installed: pip install 'lemmaformer[torch]'"
MODEL = Path(__file__).parent / "portable" / "torch_model.py"
NAMES = ("model.py", "config.json", "weights.safetensors", "README.md")
MARK = "lemmaformer torch export"


def to_torch(network: Transformer, slots: Mapping[str, Sequence[int]], tokens: np.ndarray | None = None) -> "nn.Module":
    """The network as a module with `form`, `slots`, `certified` (False), `difference` (measured) and `tolerance` (derived on tokens)."""
    return _compared(prepared(network, slots, tokens))[0]


def _compared(ready: Prepared) -> "tuple[nn.Module, dict[str, Any]]":
    try:
        import torch
    except ImportError:
        raise InputError(HINT) from None
    from constructions.exports.portable.torch_model import HookedNetwork

    weights = {name: torch.from_numpy(array.copy()) for name, array in ready.network.arrays.items()}
    module = HookedNetwork(ready.network.described(), weights)
    with torch.no_grad():
        found = ready.compared(module(torch.from_numpy(ready.tokens)).numpy())
    module.config |= found
    module.difference, module.tolerance = found["difference"], found["tolerance"]
    return module, {"form": ready.network.form, **found}


def write(
    network: Transformer, slots: Mapping[str, Sequence[int]], place: Path, *, overwrite: bool = False, tokens: np.ndarray | None = None
) -> dict[str, object]:
    """Write the folder; what was measured and derived as plain data."""
    target = checked(place, overwrite)
    ready = prepared(network, slots, tokens)
    module, found = _compared(ready)
    from safetensors.numpy import save

    contents = {
        "model.py": MODEL.read_bytes(),
        "config.json": json.dumps({"made_by": MARK, **module.config}, ensure_ascii=False, indent=1).encode(),
        "weights.safetensors": save(ready.network.arrays),
        "README.md": _readme(ready, found).encode(),
    }
    try:
        with staging(target, NAMES) as folder:
            fresh = folder / "new"
            fresh.mkdir()
            for name in NAMES:
                write_through(fresh / name, contents[name])
            put_folder(fresh, target, overwrite)
    except OSError as error:
        raise InputError(f"cannot write {str(place)[:80]}: {error.strerror}") from None
    return {"format": "torch", "place": str(place), **found}


def checked(place: Path, overwrite: bool) -> Path:
    """Where the folder goes; refused if something is there, unless it is such a folder and may be replaced."""
    target = place_of(place)
    if not target.parent.is_dir():
        raise InputError(f"cannot write {str(place)[:80]}: not a folder in an existing folder")
    if target.exists() and not is_empty(target):
        config = target / "config.json"
        ours = target.is_dir() and {entry.name for entry in target.iterdir()} <= {*NAMES, "__pycache__"}
        if not (ours and config.is_file() and MARK in config.read_text(errors="replace")[:200]):
            raise InputError(f"{str(place)[:80]} exists and is no such export; choose another place")
        if not overwrite:
            raise InputError(f"{str(place)[:80]} exists; choose another place, or overwrite it")
    return target


def _readme(ready: Prepared, found: Mapping[str, Any]) -> str:
    shape = f"(batch, N, {ready.tokens.shape[-1]})"
    slots = "\n".join(f"* `{name}`: coordinates {', '.join(map(str, places))}" for name, places in ready.network.slots.items())
    return f"""# A network in PyTorch

    import sys; sys.path.insert(0, "FOLDER")
    from model import load
    model = load()                                   # torch and safetensors are all it needs
    outputs = model(tokens)                          # tokens {shape} in [-1, 1]
    outputs, cache = model.run_with_cache(tokens)    # with TransformerLens installed

Every activation is a hook point under TransformerLens' names; slots of the residual stream after attention are hook points of their own,
such as `blocks.0.slots.hook_{next(iter(ready.network.slots), "r0")}`:

{slots}

Not certified: this is another evaluation order than the one that the network's certificate covers. On {found["sequences"]} random
sequences of {found["length"]} tokens the outputs differ by at most {found["difference"]:.3g} (measured), where rounding explains
{found["tolerance"]:.3g} (derived), at the {100 * found["decided"]:.0f} % of positions where it can change no rounding inside the network.
"""
