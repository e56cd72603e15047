"""Tiny models written by hand in the published layouts: for RetNet, of which `transformers` has no class, and for quick tests."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

WIDTH, HEADS, LAYERS = 12, 6, 2


def write(folder: Path, config: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """A folder with one weights file."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / "model.safetensors")
    return folder


def bloom_config(**changes: Any) -> dict[str, Any]:
    return {"model_type": "bloom", "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS} | changes


def bloom_arrays(prefix: str = "transformer.") -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(1), {}
    for layer in range(LAYERS):
        stem = f"{prefix}h.{layer}.self_attention.query_key_value"
        found[f"{stem}.weight"] = rng.normal(size=(3 * WIDTH, WIDTH)).astype(np.float32)
        found[f"{stem}.bias"] = rng.normal(size=3 * WIDTH).astype(np.float32)
    return found


def bloom(folder: Path, prefix: str = "transformer.", **changes: Any) -> Path:
    return write(folder, bloom_config(**changes), bloom_arrays(prefix))


def sharded(folder: Path) -> Path:
    """BLOOM with a file for every layer, and their index."""
    arrays = bloom_arrays()
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(bloom_config()))
    places = {name: f"model-0000{int(name.split('.')[2]) + 1}-of-00002.safetensors" for name in arrays}
    for file in set(places.values()):
        save_file({name: array for name, array in arrays.items() if places[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def rwkv(folder: Path, decays: np.ndarray) -> Path:
    """RWKV-4 with decays w (layers, channels), stored as they are: weights e^{−e^w (s−1)}."""
    config = {"model_type": "rwkv", "hidden_size": decays.shape[1], "num_hidden_layers": len(decays)}
    arrays = {f"rwkv.blocks.{layer}.attention.time_decay": row.astype(np.float32) for layer, row in enumerate(decays)}
    return write(folder, config, arrays)


def t5(folder: Path, biases: np.ndarray, **changes: Any) -> Path:
    """The decoder of T5 with given biases (buckets, heads)."""
    buckets, heads = biases.shape
    config = {"model_type": "t5", "d_model": 8, "d_kv": 2, "num_heads": heads, "num_layers": 2, "relative_attention_num_buckets": buckets}
    rng, arrays = np.random.default_rng(2), {}
    for layer in range(2):
        for part in ("q", "k"):
            arrays[f"decoder.block.{layer}.layer.0.SelfAttention.{part}.weight"] = rng.normal(size=(2 * heads, 8)).astype(np.float32)
    arrays["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = biases.astype(np.float32)
    return write(folder, config | changes, arrays)


def retnet(folder: Path, prefix: str = "model.", stored: bool = False, **changes: Any) -> Path:
    """RetNet as torchscale names it."""
    config = {"model_type": "retnet", "decoder_embed_dim": WIDTH, "decoder_layers": LAYERS, "decoder_retention_heads": 3} | changes
    rng, arrays = np.random.default_rng(3), {}
    for layer in range(LAYERS):
        for part in ("q_proj", "k_proj"):
            arrays[f"{prefix}layers.{layer}.retention.{part}.weight"] = rng.normal(size=(WIDTH, WIDTH)).astype(np.float32)
    if stored:
        arrays[f"{prefix}retnet_rel_pos.decay"] = np.log(np.array([0.25, 0.5, 0.75], dtype=np.float32))
    return write(folder, config, arrays)
