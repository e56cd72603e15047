"""Checkpoints: a training run after some steps, as one file.

A safetensors file with the arrays `parameters.<place>`, `memory.<place>` (leaves of the network and of the optimiser's memory, in the
order of the pytree) and `history` (the loss of every step so far). Its metadata hold format, version, the steps between two saves, the
fingerprint of the run (start weights, target, recipe: SHA-256) and the SHA-256 of all arrays. A file is written beside its place and
renamed into it, so an interruption leaves the last whole one.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_safetensors

from analyzer.errors import InputError
from constructions.training import Saved
from constructions.transformer import Transformer

FORMAT = "lemmaformer-checkpoint"
VERSION = "1"


def fingerprint(network: Transformer, target: dict[str, Any], recipe: dict[str, Any]) -> str:
    """What a run is a function of: the network at the start, the target and the recipe, as plain data."""
    digest = hashlib.sha256(json.dumps([target, recipe, str(jax.tree.structure(network))], sort_keys=True).encode())
    for leaf in jax.tree.leaves(network):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def write(path: Path, saved: Saved, run: str) -> None:
    """Save a run in its place, atomically."""
    arrays = {"history": np.asarray(saved.history)}
    for part, tree in zip(("parameters", "memory"), saved.learnt, strict=True):
        arrays |= {f"{part}.{place:05}": np.asarray(leaf) for place, leaf in enumerate(jax.tree.leaves(tree))}
    metadata = {"format": FORMAT, "version": VERSION, "run": run, "chunk": str(saved.chunk), "integrity": _digest(arrays)}
    staging = path.with_name(f".{path.name}.part")
    try:
        staging.write_bytes(save_safetensors({name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}, metadata))
        os.replace(staging, path)
    except OSError as error:
        staging.unlink(missing_ok=True)
        raise InputError(f"cannot write the checkpoint {path}: {error.strerror}") from None


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def read(path: Path, like: tuple[Any, Any], run: str) -> Saved:
    """A saved run; `like` is what its (parameters, memory) look like, `run` the fingerprint that it must have."""
    metadata, arrays = _contents(path)
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path} is not a checkpoint of a training run")
    if metadata.get("version") != VERSION:
        raise InputError(f"{path} has checkpoint version {str(metadata.get('version'))[:20]!r}; this program reads version {VERSION}")
    if metadata.get("integrity") != _digest(arrays):
        raise InputError(f"{path} fails its integrity check: it was changed or damaged after it was written")
    if metadata.get("run") != run:
        raise InputError(f"{path} belongs to another run: its start, target or recipe differ from what is asked for now")
    expected = {"history"}
    learnt = []
    for part, tree in zip(("parameters", "memory"), like, strict=True):
        leaves, structure = jax.tree.flatten(tree)
        names = [f"{part}.{place:05}" for place in range(len(leaves))]
        expected |= set(names)
        for name, leaf in zip(names, leaves, strict=True):
            found = arrays.get(name)
            if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
                wrong = "is missing" if found is None else f"has shape {found.shape} and type {found.dtype}"
                raise InputError(f"{path}: {name} {wrong}; expected {leaf.shape}, {leaf.dtype}")
        learnt.append(jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in names]))
    if set(arrays) != expected:
        raise InputError(f"{path} holds {sorted(set(arrays) ^ expected)[0]!r}, which does not belong to this run, or lacks it")
    chunk = metadata.get("chunk", "")
    if not chunk.isdecimal() or int(chunk) < 1 or arrays["history"].ndim != 1 or not np.isfinite(arrays["history"]).all():
        raise InputError(f"{path}: its losses or its chunk are not what a run writes")
    return Saved((learnt[0], learnt[1]), arrays["history"], int(chunk))


def _contents(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    try:
        with safe_open(path, framework="numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged, cut short or no safetensors file"
        raise InputError(f"cannot read the checkpoint {str(path)[:80]}: {reason}") from None
