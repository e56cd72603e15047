"""Folders changed at random: whatever is in them, the answer is a model or an InputError, never another exception."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from constructions.files.models.families import FAMILIES, read_model
from tests.depth import examples
from tests.models import folders

CONFIGS: dict[str, dict[str, Any]] = {
    "bloom": folders.bloom_config(),
    "falcon": {"model_type": "falcon", "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 6, "alibi": True,
               "new_decoder_architecture": True, "num_kv_heads": 2, "multi_query": True, "bias": False},
    "mpt": {"model_type": "mpt", "d_model": 12, "n_layers": 2, "n_heads": 6,
            "attn_config": {"alibi": True, "alibi_bias_max": 8, "softmax_scale": None, "clip_qkv": 1.0, "kv_n_heads": 2}},
    "t5": {"model_type": "t5", "d_model": 8, "d_kv": 2, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 2,
           "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    "rwkv": {"model_type": "rwkv", "hidden_size": 4, "num_hidden_layers": 2, "attention_hidden_size": 4},
    "minimax": {"model_type": "minimax", "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3,
                "head_dim": 4, "hidden_act": "silu", "layer_types": ["linear_attention", "full_attention"]},
    "retnet": {"model_type": "retnet", "decoder_embed_dim": 12, "decoder_layers": 2, "decoder_retention_heads": 3, "use_lm_decay": False},
}  # fmt: skip


def arrays_of(family: str) -> dict[str, np.ndarray]:
    """Arrays that fit the configuration."""
    rng = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(2):
        shapes |= {
            "bloom": {f"h.{layer}.self_attention.query_key_value.{part}": shape for part, shape in (("weight", (36, 12)), ("bias", (36,)))},
            "falcon": {f"h.{layer}.self_attention.query_key_value.weight": (20, 12)},
            "mpt": {f"blocks.{layer}.attn.Wqkv.weight": (20, 12)},
            "t5": {f"decoder.block.{layer}.layer.0.SelfAttention.{part}.weight": (8, 8) for part in "qk"},
            "rwkv": {f"blocks.{layer}.attention.time_decay": (4,)},
            "minimax": {f"layers.{layer}.self_attn.{part}.weight": (36 if part == "qkv_proj" else 12, 12)
                        for part in (("q_proj", "k_proj") if layer else ("qkv_proj",))},
            "retnet": {f"layers.{layer}.retention.{part}.weight": (12, 12) for part in ("q_proj", "k_proj")},
        }[family]  # fmt: skip
    if family == "t5":
        shapes["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (32, 4)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def read_all(folder: Path) -> int:
    """The position parts, and the queries of every layer; how many layers have logits."""
    model = read_model(folder)
    return sum(logits.factors(0, np.ones((2, model.width)))[0].shape[0] == 2 for logits in model.logits(None))


@pytest.mark.parametrize("family", CONFIGS)
def test_the_folders_are_good_as_long_as_nothing_is_changed(family: str, tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "m", CONFIGS[family], arrays_of(family))
    if family == "rwkv":
        assert len(read_model(folder).positions) == 2
    else:
        assert read_all(folder) == 2
    assert set(CONFIGS) | {"mt5", "umt5"} == set(FAMILIES)


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 20), st.sampled_from([10**9, 10**40, -(10**40), 1 << 63]), st.floats(), st.text(max_size=8),
    st.lists(st.integers(-1, 3), max_size=3), st.dictionaries(st.sampled_from(["alibi", "kv_n_heads"]), st.integers(-1, 3), max_size=2),
    st.just(["full_attention", "full_attention"]), st.just([[], {}]),
)  # fmt: skip


@pytest.mark.parametrize("family", CONFIGS)
@settings(max_examples=examples(300, 12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_odd_values_in_a_configuration(family: str, data: st.DataObject, tmp_path: Path) -> None:
    folder, config = tmp_path / "m", json.loads(json.dumps(CONFIGS[family]))
    if not folder.exists():
        folders.write(folder, config, arrays_of(family))
    for key in data.draw(st.lists(st.sampled_from([*config, "kv_n_heads", "layer_types", "qk_ln"]), min_size=1, max_size=2)):
        table = (
            config["attn_config"] if family == "mpt" and isinstance(config["attn_config"], dict) and data.draw(st.booleans()) else config
        )
        table[key] = data.draw(ODD)
    (folder / "config.json").write_text(json.dumps(config))
    try:
        read_all(folder)
    except InputError as error:
        assert len(str(error)) < 400 and "\n" not in str(error)


@settings(max_examples=examples(400, 40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.integers(0, 700), min_size=1, max_size=4), values=st.binary(min_size=4, max_size=4))
def test_bytes_of_a_header_changed(places: list[int], values: bytes, tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "m", CONFIGS["bloom"], arrays_of("bloom"))
    content = bytearray((folder / "model.safetensors").read_bytes())
    for place, value in zip(places, values, strict=False):
        content[place % len(content)] = value
    (folder / "model.safetensors").write_bytes(content)
    try:
        read_all(folder)
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.deep
def test_a_header_of_very_many_arrays(tmp_path: Path) -> None:
    """A hundred thousand empty arrays beside those that are needed."""
    folder = folders.write(tmp_path / "m", CONFIGS["bloom"], arrays_of("bloom"))
    file = folder / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header |= {f"x{k}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(100_000)}
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    assert read_all(folder) == 2
