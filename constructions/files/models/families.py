"""The families that are read, by the `model_type` of their configuration.

| model_type | position part | dot products |
|---|---|---|
| bloom | ALiBi's slopes, also for head counts that are no powers of two | one array, interleaved; 1/√d_k |
| mpt | ALiBi's slopes up to `alibi_bias_max` | one array, stacked; `softmax_scale`, `clip_qkv` |
| falcon | ALiBi's slopes in bfloat16, divided by √d_k with the logits; without `alibi` rotations | one array, grouped; 1/√d_k |
| t5, mt5 | learnt biases of buckets, one table for all layers of a stack | arrays apart, no factor |
| umt5 | learnt biases of buckets, a table for every layer | arrays apart, no factor |
| rwkv | RWKV-4: e^{−(s−1)e^w} for the stored `time_decay` w of every channel | none |
| minimax | `slope_rate` of the lightning layers; the others rotate | one array, interleaved, after silu; the others 1/√d_k |
| retnet | γ = 1 − 2^{−5−h} | arrays apart, 1/√d_k, before the rotation |
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from analyzer.errors import InputError
from constructions.files.models import layouts, slopes
from constructions.files.models.folder import CONFIG, Folder
from constructions.files.models.parts import Logits, ModelRead, PositionPart
from constructions.files.models.settings import MAX_MODEL_HEADS, MAX_WIDTH, Settings
from constructions.files.scores import Scores

HIDDEN, LAYERS, HEADS = (
    ("hidden_size", "n_embed", "d_model"),
    ("num_hidden_layers", "n_layer", "n_layers"),
    ("num_attention_heads", "n_head"),
)
ROTATED = "dot products are those before the rotation by position"
FASTEST, SLOWEST = 2.0**20, 2.0**-126
"""Decays beyond these are refused: no published model comes near them."""
MAX_RETNET_HEADS = 20
"""1 − 2^{−5−h} is 1 in float32 from h = 20 on."""


def read_model(path: Path) -> ModelRead:
    """What a folder says of its model; sizes and shapes are checked, arrays of dot products are read when they are asked for."""
    folder = Folder(path)
    kind = folder.config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise InputError(f"{folder.name}/{CONFIG}: model_type is {str(kind)[:40]!r}; the models that are read: {', '.join(FAMILIES)}")
    return FAMILIES[kind](folder, Settings(folder.config, f"{folder.name}/{CONFIG}"))


def _chosen(layers: Sequence[int], chosen: int | None) -> Sequence[int]:
    return layers if chosen is None else [layer for layer in layers if layer == chosen]


def _bloom(folder: Folder, said: Settings) -> ModelRead:
    width, layers, heads = said.sizes(HIDDEN, LAYERS, ("n_head", "num_attention_heads"))
    dim, every = width // heads, tuple(range(layers))
    for layer in every:
        folder.check(f"h.{layer}.self_attention.query_key_value.weight", (3 * width, width))

    def logits(chosen: int | None) -> Iterator[Logits]:
        for layer in _chosen(every, chosen):
            stem = f"h.{layer}.self_attention.query_key_value"
            yield Logits(layer, "", layouts.grouped(folder, stem, heads, heads, width, dim, True), 1 / math.sqrt(dim))

    part = PositionPart("lin", every, "ALiBi", decays=slopes.alibi(heads))
    return ModelRead("bloom", str(folder.path), layers, heads, width, (part,), logits)


def _mpt(folder: Folder, said: Settings) -> ModelRead:
    width, layers, heads = said.sizes(("d_model", "hidden_size"), ("n_layers", "num_hidden_layers"), ("n_heads", "num_attention_heads"))
    attention, dim, every = said.table("attn_config"), width // heads, tuple(range(layers))
    keys = 1 if attention.values.get("attn_type") == "multiquery_attention" else heads
    keys = attention.whole("kv_n_heads", most=heads, default=keys)
    if heads % keys:
        raise InputError(f"{attention.source}: {keys} keys cannot be shared by {heads} heads")
    if attention.flag("qk_ln", False):
        raise InputError(f"{attention.source}: qk_ln normalises queries and keys, which is not read")
    if not attention.flag("alibi", True):
        parts: tuple[PositionPart, ...] = (PositionPart("none", every, "learnt positions: alibi is false"),)
        remarks: tuple[str, ...] = ()
    else:
        highest = attention.number("alibi_bias_max", 8.0) or 8.0
        if highest > 64:
            raise InputError(f"{attention.source}: alibi_bias_max is {highest:.6g}; 64 is the most")
        parts = (PositionPart("lin", every, "ALiBi", decays=slopes.mpt(heads, highest)),)
        remarks = () if highest == 8 else ("transformers' own class takes alibi_bias_max to be 8, whatever the configuration says",)
    for layer in every:
        folder.check(f"blocks.{layer}.attn.Wqkv.weight", ((heads + 2 * keys) * dim, width))
    scale, clip = attention.number("softmax_scale", None) or 1 / math.sqrt(dim), attention.number("clip_qkv", None)

    def logits(chosen: int | None) -> Iterator[Logits]:
        for layer in _chosen(every, chosen):
            stem = f"blocks.{layer}.attn.Wqkv"
            biased = folder.find(f"{stem}.bias") is not None
            yield Logits(layer, "", layouts.stacked(folder, stem, heads, keys, width, dim, biased), scale, clip)

    return ModelRead("mpt", str(folder.path), layers, heads, width, parts, logits, remarks)


def _falcon(folder: Folder, said: Settings) -> ModelRead:
    width, layers, heads = said.sizes(HIDDEN, LAYERS, HEADS)
    dim, every = width // heads, tuple(range(layers))
    if said.flag("new_decoder_architecture", False):
        keys = said.whole("num_kv_heads", "n_head_kv", most=heads, default=heads)
    else:
        keys = 1 if said.flag("multi_query", True) else heads
    if heads % keys:
        raise InputError(f"{said.source}: {keys} keys cannot be shared by {heads} heads")
    biased, sloped = said.flag("bias", False), said.flag("alibi", False)
    for layer in every:
        folder.check(f"h.{layer}.self_attention.query_key_value.weight", ((heads + 2 * keys) * dim, width))

    def logits(chosen: int | None) -> Iterator[Logits]:
        for layer in _chosen(every, chosen):
            stem = f"h.{layer}.self_attention.query_key_value"
            yield Logits(layer, "", layouts.grouped(folder, stem, heads, keys, width, dim, biased), 1 / math.sqrt(dim))

    if not sloped:
        rotated = PositionPart("none", every, "rotations: alibi is false")
        return ModelRead("falcon", str(folder.path), layers, heads, width, (rotated,), logits, logit_remarks=(ROTATED,))
    part = PositionPart("lin", every, "ALiBi in bfloat16, divided by √d_k", decays=slopes.falcon(heads, dim))
    remark = (
        "Falcon also rounds slope times position to bfloat16, which bends its lines (from position 3 on, or 257 where slopes are powers "
        "of two): not modelled"
    )
    return ModelRead("falcon", str(folder.path), layers, heads, width, (part,), logits, (remark,))


def _t5(folder: Folder, said: Settings) -> ModelRead:
    """T5 and its kin: an encoder, a decoder or both, whichever the folder has."""
    width, heads = said.whole("d_model", most=MAX_WIDTH), said.whole("num_heads", most=MAX_MODEL_HEADS)
    dim = said.whole("d_kv", most=MAX_WIDTH, default=64)
    layers = said.whole("num_layers", most=1024)
    depths = {"encoder": layers, "decoder": said.whole("num_decoder_layers", most=1024, default=layers)}
    buckets = said.whole("relative_attention_num_buckets", most=128, default=32, least=4)
    distance = said.whole("relative_attention_max_distance", most=1 << 16, default=128, least=buckets // 2 + 1)
    shared = said.values["model_type"] != "umt5"
    first = "{}.block.0.layer.0.SelfAttention.q.weight"
    stacks = [stack for stack in depths if folder.find(first.format(stack)) is not None]
    if not stacks:
        raise InputError(f"{folder.name} has no array {first.format('encoder')!r}, nor that of a decoder")
    parts = []
    for stack in stacks:
        for layer in range(depths[stack]):
            folder.check(f"{stack}.block.{layer}.layer.0.SelfAttention.q.weight", (heads * dim, width))
        for layer in [0] if shared else range(depths[stack]):
            name = f"{stack}.block.{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
            biases, sharing = folder.read(name, (buckets, heads)), tuple(range(depths[stack])) if shared else (layer,)
            about = f"{buckets} buckets, distance {distance}" + (", both sides" if stack == "encoder" else "")
            two_sided = stack == "encoder"
            parts.append(PositionPart("buckets", sharing, about, stack, (), biases, distance, two_sided))

    def logits(chosen: int | None) -> Iterator[Logits]:
        for stack in stacks:
            for layer in _chosen(range(depths[stack]), chosen):
                stem = f"{stack}.block.{layer}.layer.0.SelfAttention"
                yield Logits(layer, stack, layouts.apart(folder, f"{stem}.q.weight", f"{stem}.k.weight", heads, heads, width, dim))

    depth = max(depths[stack] for stack in stacks)
    return ModelRead(str(said.values["model_type"]), str(folder.path), depth, heads, width, tuple(parts), logits)


def _rwkv(folder: Folder, said: Settings) -> ModelRead:
    width, layers = said.whole("hidden_size", most=MAX_WIDTH), said.whole("num_hidden_layers", most=1024)
    channels = said.whole("attention_hidden_size", most=MAX_WIDTH, default=width)
    names = [f"blocks.{layer}.attention.time_decay" for layer in range(layers)]
    for name in names:
        folder.check(name, (channels,))
    parts = []
    for layer, name in enumerate(names):
        with np.errstate(over="ignore"):
            decays = np.exp(folder.read(name, (channels,)))
        parts.append(PositionPart("shifted", (layer,), "time_decay", decays=_in_range(decays, f"{folder.name}: {name}")))

    def logits(chosen: int | None) -> Iterator[Logits]:
        raise InputError(f"{folder.name} is RWKV-4: its keys meet no queries, so there are no logits with a spectrum")

    remarks = (
        "RWKV-4 weighs the current token by time_first, which may be any weight here, and mixes each token with the one before (token "
        "shift), which is not part of the audit",
    )
    return ModelRead("rwkv", str(folder.path), layers, channels, width, tuple(parts), logits, remarks)


def _in_range(decays: np.ndarray, source: str) -> tuple[float, ...]:
    if not ((decays > SLOWEST) & (decays < FASTEST)).all():
        raise InputError(f"{source} holds decays outside ({SLOWEST:.1e}, {FASTEST:.1e}), which no model has")
    return tuple(map(float, decays.ravel()))


def _minimax(folder: Folder, said: Settings) -> ModelRead:
    width, layers = said.whole("hidden_size", most=MAX_WIDTH), said.whole("num_hidden_layers", most=1024)
    heads = said.whole("num_attention_heads", most=MAX_MODEL_HEADS)
    keys = said.whole("num_key_value_heads", most=heads, default=heads)
    dim = said.whole("head_dim", most=MAX_WIDTH, default=width // heads)
    if heads % keys or not dim:
        raise InputError(f"{said.source}: {heads} heads with {keys} keys of dimension {dim} do not go together")
    if said.values.get("hidden_act", "silu") != "silu":
        raise InputError(f"{said.source}: hidden_act is {str(said.values['hidden_act'])[:40]!r}; silu is read")
    fused = [folder.find(f"layers.{layer}.self_attn.qkv_proj.weight") is not None for layer in range(layers)]
    kinds = said.values.get("layer_types") or ["linear_attention" if found else "full_attention" for found in fused]
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in ("full_attention", "linear_attention") for kind in kinds):
        raise InputError(f"{said.source}: layer_types must say full_attention or linear_attention for each of {layers} layers")
    parts = []
    for layer, kind in enumerate(kinds):
        stem = f"layers.{layer}.self_attn"
        if kind == "full_attention":
            folder.check(f"{stem}.q_proj.weight", (heads * dim, width))
            parts.append(PositionPart("none", (layer,), "rotations"))
            continue
        folder.check(f"{stem}.qkv_proj.weight", (3 * heads * dim, width))
        stored = folder.find(f"{stem}.slope_rate") is not None
        found = folder.read(f"{stem}.slope_rate", (heads, 1, 1), (heads,)) if stored else np.array(slopes.minimax(heads, layer, layers))
        about = "slope_rate, stored" if stored else "slope_rate, by its formula"
        parts.append(PositionPart("lin", (layer,), about, decays=_in_range(found, f"{folder.name}: {stem}.slope_rate")))

    def logits(chosen: int | None) -> Iterator[Logits]:
        for layer in _chosen(range(layers), chosen):
            stem = f"layers.{layer}.self_attn"
            if kinds[layer] == "linear_attention":
                scores = layouts.grouped(folder, f"{stem}.qkv_proj", heads, heads, width, dim, False)
                yield Logits(layer, "", scores, activation="silu")
            else:
                scores = layouts.apart(folder, f"{stem}.q_proj.weight", f"{stem}.k_proj.weight", heads, keys, width, dim)
                yield Logits(layer, "", scores, 1 / math.sqrt(dim))

    remarks = ("lightning attention is not normalised: weights are those of kernels of mass 1, what scales them is in the output weights",)
    rotated = (f"layers with full attention: {ROTATED}",) if "full_attention" in kinds else ()
    plain = ("lightning layers have no normaliser: there the plain logits count",) if "linear_attention" in kinds else ()
    return ModelRead("minimax", str(folder.path), layers, heads, width, tuple(parts), logits, remarks, (*rotated, *plain))


def _retnet(folder: Folder, said: Settings) -> ModelRead:
    width, layers, heads = said.sizes(
        ("decoder_embed_dim", "hidden_size"), ("decoder_layers", "num_layers"), ("decoder_retention_heads", "num_heads")
    )
    if heads > MAX_RETNET_HEADS:
        raise InputError(f"{said.source}: {heads} heads; decays of more than {MAX_RETNET_HEADS} are 1 in float32")
    dim, every = width // heads, tuple(range(layers))
    for layer in every:
        folder.check(f"layers.{layer}.retention.q_proj.weight", (width, width))
    stored = folder.find("retnet_rel_pos.decay") is not None
    language = said.flag("use_lm_decay", False)
    decays = -folder.read("retnet_rel_pos.decay", (heads,)) if stored else np.array(slopes.retnet(heads, language))
    about = "γ, stored" if stored else "γ from 1/32 to 1/512" if language else "γ = 1 − 2^(−5−h)"
    part = PositionPart("lin", every, about, decays=_in_range(decays, f"{folder.name}: the decays"))

    def logits(chosen: int | None) -> Iterator[Logits]:
        for layer in _chosen(every, chosen):
            stem = f"layers.{layer}.retention"
            scores: Scores = layouts.apart(folder, f"{stem}.q_proj.weight", f"{stem}.k_proj.weight", heads, heads, width, dim)
            yield Logits(layer, "", scores, 1 / math.sqrt(dim))

    remarks = ("retention is normalised after the sum: weights are those of kernels of mass 1, what scales them is in the output weights",)
    plain = (ROTATED, "retention has no softmax: the plain logits count")
    return ModelRead("retnet", str(folder.path), layers, heads, width, (part,), logits, remarks, plain)


FAMILIES: dict[str, Callable[[Folder, Settings], ModelRead]] = {
    "bloom": _bloom,
    "mpt": _mpt,
    "falcon": _falcon,
    "t5": _t5,
    "mt5": _t5,
    "umt5": _t5,
    "rwkv": _rwkv,
    "minimax": _minimax,
    "retnet": _retnet,
}
