"""Checkpoints: a training run after some steps, as one file. No JAX here, so damaged files are refused at once.

A safetensors file with the arrays `parameters.<place>`, `memory.<place>` (leaves of the network and of the optimiser's memory, in the
order of the pytree) and `history` (the loss of every step so far). Its metadata hold format, version, the steps between two saves, the
fingerprint of the run (start weights, target, recipe: SHA-256) and the SHA-256 of all arrays. A file is written beside its place and
renamed into it, so an interruption leaves the last whole one.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_safetensors

from analyzer.errors import InputError

FORMAT = "lemmaformer-checkpoint"
VERSION = "1"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds; `run` is the fingerprint, `chunk` the steps between two saves."""

    arrays: dict[str, np.ndarray]
    chunk: int
    run: str


def fingerprint(weights: Iterable[Any], *plain: Any) -> str:
    """What a run is a function of: the weights at the start, and structure, target and recipe as plain data."""
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for leaf in weights:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Save a run in its place, atomically."""
    arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in checkpoint.arrays.items()}  # numpy makes scalars vectors
    metadata = {"format": FORMAT, "version": VERSION, "run": checkpoint.run, "chunk": str(checkpoint.chunk), "integrity": _digest(arrays)}
    staging = path.with_name(f".{path.name}.part")
    try:
        staging.write_bytes(save_safetensors(arrays, metadata))
        os.replace(staging, path)
    except OSError as error:
        staging.unlink(missing_ok=True)
        raise InputError(f"cannot write the checkpoint {path}: {error.strerror}") from None


def read(path: Path) -> Checkpoint:
    """The content of a file, with format, version, integrity and losses checked."""
    metadata, arrays = _contents(path)
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path} is not a checkpoint of a training run")
    if metadata.get("version") != VERSION:
        raise InputError(f"{path} has checkpoint version {str(metadata.get('version'))[:20]!r}; this program reads version {VERSION}")
    if metadata.get("integrity") != _digest(arrays):
        raise InputError(f"{path} fails its integrity check: it was changed or damaged after it was written")
    chunk, history = metadata.get("chunk", ""), arrays.get("history")
    if not chunk.isdecimal() or int(chunk) < 1 or history is None or history.ndim != 1 or not np.isfinite(history).all():
        raise InputError(f"{path}: its losses or its chunk are not what a run writes")
    return Checkpoint(arrays, int(chunk), metadata.get("run", ""))


def _contents(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    try:
        with safe_open(path, framework="numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in list(file.keys())}
    except (OSError, SafetensorError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged, cut short or no safetensors file"
        raise InputError(f"cannot read the checkpoint {str(path)[:80]}: {reason}") from None
