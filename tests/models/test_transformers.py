"""Eight families as `transformers` writes them: slopes, biases, queries and keys are compared with its own modules.

Weights are stored in float32 and the modules then run in float64, so that queries and keys agree to a few units of 2^−53 per product; the
tolerance 10⁻¹² leaves room for sums of 48 products of size 1. Attention weights come out of a softmax in float32 (BLOOM, MPT): their
logarithms are within 2^−21 of those of exact weights, four roundings of 2^−23 each.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from constructions.files.models import slopes
from constructions.files.models.families import FAMILIES, read_model
from constructions.files.models.parts import ModelRead
from verify.limits.models import buckets_of

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]
Run = Callable[..., Any]
HALF_LOG = 2**-21

SIZES = {"vocab_size": 32}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
FALCON = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
MINIMAX = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_local_experts": 2, "block_size": 8,
}  # fmt: skip
MPT = {"d_model": 48, "n_layers": 2, "max_seq_len": 16}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("Bloom", {"hidden_size": 48, "n_layer": 2, "n_head": 6}),
    "bloom 16": ("Bloom", {"hidden_size": 48, "n_layer": 1, "n_head": 16}),
    "bloom 3": ("Bloom", {"hidden_size": 48, "n_layer": 1, "n_head": 3}),
    "mpt": ("Mpt", MPT | {"n_heads": 6}),
    "mpt 8": ("Mpt", MPT | {"n_heads": 8, "attn_config": {"clip_qkv": 0.05, "softmax_scale": 0.5}}),
    "falcon": ("Falcon", FALCON | {"alibi": True, "multi_query": True, "bias": True}),
    "falcon with all keys": ("Falcon", FALCON | {"alibi": True, "multi_query": False}),
    "falcon with two keys": ("Falcon", FALCON | {"alibi": True, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    "falcon that rotates": ("Falcon", FALCON | {"alibi": False}),
    "t5": ("T5", T5),
    "t5 of few buckets": ("T5", T5 | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}),
    "mt5": ("MT5", T5),
    "umt5": ("UMT5", T5),
    "rwkv": ("Rwkv", {"hidden_size": 16, "num_hidden_layers": 2, "context_length": 16, "attention_hidden_size": 24}),
    "minimax": ("MiniMax", MINIMAX),
    "minimax with heads of their own": ("MiniMax", MINIMAX | {"head_dim": 6, "layer_types": ["linear_attention"] * 4}),
}


def make(name: str, kind: str = "Model") -> Any:
    """A random model; layers are not all alike."""
    import torch
    import transformers

    family, sizes = MODELS[name]
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**SIZES, **sizes)
    model = getattr(transformers, family + kind)(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn_like(weight)
    return model


def written(name: str, folder: Path, kind: str = "Model", **options: Any) -> tuple[Any, ModelRead]:
    """The module, in float64, and what was read of the folder that it wrote."""
    model = make(name, kind)
    model.save_pretrained(folder, **options)
    return model.double(), read_model(folder)


def tokens(width: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=(11, width))


def _pairs(model: Any, x: Any) -> Iterator[tuple[Any, Any]]:
    """Queries and keys (H, N, d_k) of every layer by the module's own projections and splits, its factor in the queries."""
    import torch

    family = model.config.model_type
    stacks = [model.encoder, model.decoder] if family.endswith("t5") else [model]
    for layer in (layer for stack in stacks for layer in getattr(stack, BLOCKS.get(family, "block"))):
        match family:
            case "bloom":
                module = layer.self_attention
                query, key, _ = (part[0] for part in module._reshape(module.query_key_value(x)))
                yield query * module.inv_norm_factor, key
            case "falcon":
                module = layer.self_attention
                query, key, _ = (part[0].transpose(0, 1) for part in module._split_heads(module.query_key_value(x)))
                yield query * module.inv_norm_factor, key.expand_as(query)
            case "mpt":
                module = layer.attn
                mixed = module.Wqkv(x)
                mixed = mixed.clamp(-module.clip_qkv, module.clip_qkv) if module.clip_qkv else mixed
                query, key, _ = (part[0].reshape(x.shape[1], module.n_heads, -1).transpose(0, 1) for part in mixed.chunk(3, dim=2))
                yield query * module.softmax_scale, key
            case "minimax":
                module = layer.self_attn
                if hasattr(module, "qkv_proj"):
                    mixed = module.act_fn(module.qkv_proj(x)).reshape(x.shape[1], module.num_attention_heads, 3 * module.head_dim)
                    query, key, _ = (part.transpose(0, 1) for part in torch.split(mixed, module.head_dim, dim=2))
                    yield query, key
                else:
                    parts = (part(x)[0].reshape(x.shape[1], -1, module.head_dim) for part in (module.q_proj, module.k_proj))
                    query, key = (part.transpose(0, 1) for part in parts)
                    yield query * module.scaling, key.repeat_interleave(module.num_key_value_groups, dim=0)
            case _:
                module = layer.layer[0].SelfAttention
                query, key = (part(x)[0].reshape(x.shape[1], module.n_heads, -1).transpose(0, 1) for part in (module.q, module.k))
                yield query, key


BLOCKS = {"bloom": "h", "falcon": "h", "mpt": "blocks", "minimax": "layers"}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "rwkv"])
def test_queries_and_keys_are_the_modules_own(name: str, tmp_path: Path) -> None:
    import torch

    model, found = written(name, tmp_path)
    x = tokens(found.width)
    with torch.no_grad():
        theirs = [(query.numpy(), key.numpy()) for query, key in _pairs(model, torch.from_numpy(x)[None])]
    ours = list(found.logits(None))
    assert len(ours) == len(theirs) and len({(one.stack, one.layer) for one in ours}) == len(ours)
    for logits, (queries, keys) in zip(ours, theirs, strict=True):
        for head in range(found.heads):
            query, key = logits.factors(head, x)
            np.testing.assert_allclose(query, queries[head], rtol=0, atol=1e-12)
            np.testing.assert_allclose(key, keys[head], rtol=0, atol=1e-12)
            assert np.abs(query).max() > 1e-3 < np.abs(key).max()


@pytest.mark.parametrize("name", [name for name in MODELS if name.split()[0] in ("bloom", "mpt")])
def test_slopes_are_those_of_the_attention_weights(name: str, tmp_path: Path) -> None:
    """With queries of zero the module's attention weights are the position part: their logarithms fall by p from token to token."""
    import torch

    model, found = written(name, tmp_path)
    (part,) = found.positions
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "query_key_value" in key or "Wqkv" in key:
                weight.zero_()
        weights = model(torch.arange(10)[None], output_attentions=True).attentions
    assert part.layers == tuple(range(len(weights)))
    for layer in weights:
        logs = np.log(layer[0, :, -1].double().numpy())
        for head, p in enumerate(part.decays):
            np.testing.assert_allclose(logs[head, -1] - logs[head], p * np.arange(9, -1, -1), rtol=2**-22, atol=HALF_LOG)


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("falcon") and "rotates" not in name])
def test_slopes_of_falcon_are_those_of_its_bias(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the module adds to the scaled logits, by its usual way through torch's attention.

    Its other way (`eager`) adds the bias twice in transformers 5.23: once with the mask, once by itself.
    """
    import torch
    from torch.nn import functional

    model, found = written(name, tmp_path)
    (part,) = found.positions
    seen: list[np.ndarray] = []
    usual = functional.scaled_dot_product_attention

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["attn_mask"][0, :, -1].double().numpy())
        return usual(*args, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    with torch.no_grad():
        model(torch.arange(10)[None])
    assert len(seen) == 2
    for bias in seen:
        np.testing.assert_allclose(bias[:, -1:] - bias, np.outer(part.decays, np.arange(9, -1, -1)), rtol=2**-50, atol=2**-50)


@pytest.mark.parametrize("heads", [1, 3, 4, 6, 8, 12, 16, 20, 32, 71, 112])
def test_slopes_by_the_functions_of_transformers(heads: int) -> None:
    """Within 2^−23, what float32 powers differ by; bit for bit where slopes are powers of two."""
    import torch
    from transformers.models.bloom import modeling_bloom
    from transformers.models.falcon import modeling_falcon
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    mask = torch.ones((1, 2), dtype=torch.int64)
    bloom = modeling_bloom.build_alibi_tensor(mask, heads, torch.float32)[:, 0, 1].double().numpy()
    np.testing.assert_allclose(slopes.alibi(heads), bloom, rtol=2**-23)
    falcon = modeling_falcon.build_alibi_tensor(mask, heads, torch.float32)[:, 0, 1].double().numpy()
    np.testing.assert_allclose(np.array(slopes.falcon(heads, 16)) * 4, falcon, rtol=2**-8 if heads > 8 else 0)
    for most in (8, 16):
        mpt = -build_mpt_alibi_tensor(heads, 2, most)[:, 0, 0].double().numpy()
        np.testing.assert_allclose(slopes.mpt(heads, most), mpt, rtol=2**-22)
    if heads in (4, 8):
        assert list(bloom) == list(slopes.alibi(heads)) and list(mpt) == list(slopes.mpt(heads, 16))


@pytest.mark.parametrize("name", [name for name in MODELS if "t5" in name])
def test_biases_are_those_of_the_buckets(name: str, tmp_path: Path) -> None:
    """The module's bias at every distance is the table's at our bucket of it, on either side in an encoder."""
    model, found = written(name, tmp_path)
    assert [part.stack for part in found.positions] == ["encoder"] * (1 + (name == "umt5")) + ["decoder"] * (1 + (name == "umt5"))
    for part in found.positions:
        buckets = buckets_of(part)
        module = getattr(model, part.stack).block[part.layers[0]].layer[0].SelfAttention
        theirs = module.compute_bias(200, 200)[0].detach().double().numpy()
        assert part.biases is not None and part.two_sided == (part.stack == "encoder")
        for s in range(200):
            np.testing.assert_array_equal(theirs[:, 199, 199 - s], part.biases[buckets.of(s)])
            if part.two_sided and s:
                np.testing.assert_array_equal(theirs[:, 0, s], part.biases[buckets.count + buckets.of(s)])


def test_rwkv_decays_are_those_of_its_attention(tmp_path: Path) -> None:
    """At keys of zero the weights of the tokens before the current one fall by e^{−p} per token, channel by channel."""
    import torch
    from transformers.models.rwkv.modeling_rwkv import rwkv_linear_attention_cpu

    model, found = written("rwkv", tmp_path, "ForCausalLM")
    assert found.heads == 24 and [part.layers for part in found.positions] == [(0,), (1,)]
    for part, block in zip(found.positions, model.rwkv.blocks, strict=True):
        module, length = block.attention, 4
        assert part.kind == "shifted"
        weights = []
        for place in range(length):
            value = torch.zeros((1, length, 24), dtype=torch.float64)
            value[0, place] = 1
            with torch.no_grad():
                weights.append(rwkv_linear_attention_cpu(module.time_decay, module.time_first, 0 * value, value)[0][0, -1])
        fall = torch.log(weights[2] / weights[1]).numpy()  # lags 1 and 2; the module's states are float32
        slow = np.array(part.decays) < 10
        assert slow.sum() > 12
        np.testing.assert_allclose(fall[slow], np.array(part.decays)[slow], rtol=1e-5, atol=1e-6)


def test_minimax_slopes_are_stored_or_computed(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    model, found = written("minimax", tmp_path, "ForCausalLM")
    assert [part.kind for part in found.positions] == ["none", "lin", "none", "lin"]
    file = tmp_path / "model.safetensors"
    save_file({key: array for key, array in load_file(file).items() if "slope_rate" not in key}, file)
    said = json.loads((tmp_path / "config.json").read_text())
    del said["layer_types"]  # known from the names of arrays, too
    (tmp_path / "config.json").write_text(json.dumps(said))
    computed = read_model(tmp_path)
    for layer in (1, 3):
        rate = model.model.layers[layer].self_attn.get_slope_rate().ravel().double().numpy()
        np.testing.assert_array_equal(found.positions[layer].decays, rate)
        np.testing.assert_allclose(computed.positions[layer].decays, rate, rtol=2**-22)
        assert "stored" in found.positions[layer].about and "formula" in computed.positions[layer].about


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon", "t5", "mt5", "umt5", "rwkv", "minimax"])
def test_eight_families_from_the_command_line(name: str, run: Run, tmp_path: Path) -> None:
    """With and without a head on top, in one file or in several, in float32 or bfloat16; a missing shard is refused."""
    kind = "ForConditionalGeneration" if "t5" in name else "ForCausalLM"
    make(name, kind).save_pretrained(tmp_path / "whole")
    make(name).bfloat16().save_pretrained(tmp_path / "parts", max_shard_size="5KB")
    shards = sorted((tmp_path / "parts").glob("*.safetensors"))
    assert len(shards) > 1
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        found = run("limits", "slopes", "--model", folder, "--lags", 3, "--json").json
        assert found["family"] == name and found["groups"] and all(len(group["rows"]) == 3 for group in found["groups"])
        assert all(row["lower"] <= row["upper"] for group in found["groups"] for row in group["rows"])
        answer = run("spectrum", folder, "--layer", 1, "--tokens", 12, "--json")
        assert answer.code == (2 if name == "rwkv" else 0)
        if name != "rwkv":
            assert {head["layer"] for head in answer.json["heads"]} == {1} and "random" in answer.json["note"]
    shards[-1].unlink()
    refused = run("limits", "slopes", "--model", tmp_path / "parts")
    assert refused.code == 2 and f"lacks {shards[-1].name!r}" in refused.err and refused.err.count("\n") == 1


def test_rotations_have_no_slopes(run: Run, tmp_path: Path) -> None:
    _, found = written("falcon that rotates", tmp_path)
    refused = run("limits", "slopes", "--model", tmp_path)
    assert refused.code == 2 and "alibi is false" in refused.err
    assert "before the rotation" in run("spectrum", tmp_path, "--tokens", 3, "--json").json["note"]
    assert math.isclose(next(iter(found.logits(0))).scale, 8**-0.5)


def test_all_families_are_tried() -> None:
    import transformers

    assert {getattr(transformers, f"{family}Config").model_type for family, _ in MODELS.values()} == set(FAMILIES) - {"retnet"}
