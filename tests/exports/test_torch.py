"""PyTorch: every network of the gallery agrees within its tolerance, hook points have TransformerLens' names, folders load without us."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from constructions.exports.agreement import prepared
from constructions.exports.plain_rounding import tolerance
from constructions.exports.torch_modules import to_torch
from constructions.run.execute import run as evaluate
from tests.exports.gallery import GALLERY, KINDS, SLOTS, built, random_one, tokens_of

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]

SEQUENCES, TOGETHER = 1000, 100


def outputs_of(module: Any, tokens: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(tokens)))


REFUSED = {
    "kerple-heads-1": "not there for kerple heads",
    "kerple-heads-2": "not there for kerple heads",
    "stride-heads-1": "not there for heads with a stride",
    "table-lags-0": "need linear maps between them",
}
"""Float networks of these heads, and exact ones that choose, have no export."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_export_is_refused_with_a_way_out(name: str) -> None:
    with pytest.raises(lf.Refusal, match=REFUSED[name]) as refused:
        built(name).to_torch()
    (way,) = refused.value.remedies
    options = {"rpe": "table"} if name.startswith("table") else {"rpe": "kerple"} if name.startswith("kerple") else {"stride": 4}
    again = lf.build(built(name).target, **options, **way).to_torch()  # type: ignore[arg-type]
    assert again.difference <= again.tolerance


@pytest.mark.parametrize("name", [name for name in GALLERY if name not in REFUSED])
def test_every_network_of_the_gallery_agrees_on_a_thousand_sequences(name: str) -> None:
    net = built(name)
    module = net.to_torch()
    assert module.certified is False and module.difference <= module.tolerance and module.slots == net.slots
    exported = prepared(net.transformer, net.slots, tokens_of(net, 64, seed=0)).network
    tokens = tokens_of(net, SEQUENCES)
    settled = min(net.target.settled, tokens.shape[1] - 1)  # type: ignore[union-attr]
    decided = 0
    for start in range(0, SEQUENCES, TOGETHER):
        part = tokens[start : start + TOGETHER]
        off = np.abs(outputs_of(module, part) - evaluate(net.transformer, part))
        limit = tolerance(net.transformer, exported, part)[..., 0]
        assert (off <= limit).all()
        decided += int(np.isfinite(limit[:, settled:]).sum())
    assert decided > 0.9 * SEQUENCES * (tokens.shape[1] - settled)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("rpe", "kind", "window"), KINDS)
def test_every_kind_of_layer_agrees(rpe: str, kind: str, window: str, dtype: str) -> None:
    network, tokens = random_one(rpe, kind, window, dtype), np.random.default_rng(2).uniform(-1, 1, (SEQUENCES // 10, 24, 2))
    module = to_torch(network, SLOTS, tokens)
    assert module.difference <= module.tolerance < (1e-12 if dtype == "float64" else 1e-4)
    assert outputs_of(module, tokens[0]).shape == (24, 2)[: 2 if rpe == "lin" else 1]


@pytest.mark.parametrize("name", ["contrast", "nested", "jl-4.2-1", "thm-3.1-1"])
def test_a_changed_weight_is_seen(name: str) -> None:
    """A relative change far above the tolerance, in any array that the output depends on."""
    import torch

    net = built(name)
    module, tokens = net.to_torch(), tokens_of(net, 64, seed=0)
    ready = prepared(net.transformer, net.slots, tokens)
    seen = 0
    for key, weight in module.named_parameters():
        if not weight.numel() or not weight.abs().max() > 0:
            continue
        place = tuple(int(i) for i in np.unravel_index(int(weight.abs().argmax()), weight.shape))
        with torch.no_grad():
            kept = weight[place].clone()
            weight[place] = kept * (1 + 1e3 * module.tolerance + 0.1)
            off = np.abs(outputs_of(module, tokens) - ready.outputs[..., 0])
            weight[place] = kept
        seen += bool((off > ready.tolerance[..., 0])[ready.decided[..., 0]].any())
        if key.endswith(("W_V", "W_O", "mlp.W_out")) and key.startswith(f"blocks.{len(module.blocks) - 1}."):
            assert (off > ready.tolerance[..., 0])[ready.decided[..., 0]].any(), key
    assert seen >= 3


def test_hook_points_have_the_names_of_transformer_lens() -> None:
    import torch

    net = built("nested")
    module, tokens = net.to_torch(), tokens_of(net, 3)
    outputs, cache = module.run_with_cache(torch.from_numpy(tokens))
    block = ["hook_resid_pre", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z"]
    block += ["hook_attn_out", "hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out"]
    for index in range(3):
        assert {f"blocks.{index}.{name}" for name in block} <= set(cache)
    assert {"hook_embed", "hook_readout", "blocks.0.hook_resid_post"} <= set(cache) and "blocks.2.hook_resid_post" not in cache
    length = tokens.shape[1]
    assert cache["blocks.1.attn.hook_pattern"].shape == (3, 3, length, length + 1)  # the whole past is the first column
    assert cache["blocks.1.attn.hook_q"].shape == (3, length, 3, 1)
    np.testing.assert_array_equal(cache["hook_readout"][..., 0].detach(), outputs.detach())
    mid = cache["blocks.1.hook_resid_pre"] + cache["blocks.1.hook_attn_out"]
    np.testing.assert_array_equal(cache["blocks.1.hook_resid_mid"].detach(), mid.detach())


def test_the_cache_has_the_named_slots() -> None:
    import torch

    net = built("nested")
    tokens, settled = tokens_of(net, 3), net.target.settled  # type: ignore[union-attr]
    _, cache = net.to_torch().run_with_cache(torch.from_numpy(tokens))
    for number, slots in enumerate(net.trace(tokens).values()):
        if number < 3:
            for name, held in slots.items():
                found = np.asarray(cache[f"blocks.{number}.slots.hook_{name}"].detach())
                np.testing.assert_allclose(found[:, settled:, 0], held[:, settled:], atol=1e-6)


def test_hooks_change_what_follows() -> None:
    """A slot that is overwritten changes the output as the read-out says: y = x0 m1 m2."""
    import torch

    net = built("nested")
    module, tokens = net.to_torch(), torch.from_numpy(tokens_of(net, 2))
    plain = module(tokens)
    turned = module.run_with_hooks(tokens, fwd_hooks=[("blocks.2.slots.hook_m2", lambda held, hook: -held)])
    settled = net.target.settled  # type: ignore[union-attr]
    np.testing.assert_allclose(turned.detach()[:, settled:], -plain.detach()[:, settled:], atol=0.05)
    assert (plain[:, settled:].abs() > 0.9).all()


def test_patterns_are_the_networks_own() -> None:
    import torch

    net = lf.build(lf.fixed(lags=(2,)))
    tokens = tokens_of(net, 2)
    _, cache = net.to_torch().run_with_cache(torch.from_numpy(tokens))
    found = np.asarray(cache["blocks.0.attn.hook_pattern"].detach())
    np.testing.assert_allclose(found[..., 1:], net.patterns(tokens)["layer 1"], atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-12)


ALONE = """
import sys, json
for name in ("lemmaformer", "constructions", "analyzer", "verify", "jax", *sys.argv[2:]):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import numpy as np, torch
from model import load
model = load()
seen = []
model.get_submodule("blocks.0.hook_resid_mid").register_forward_hook(lambda module, args, out: seen.append(out.shape))
outputs = model(torch.from_numpy(np.load(sys.argv[1] + "/../tokens.npy"))).detach().numpy()
np.save(sys.argv[1] + "/../outputs.npy", outputs)
print(json.dumps([str(type(model).__mro__[1].__name__), len(seen), model.certified, model.tolerance]))
"""


@pytest.mark.parametrize(("name", "lens"), [("contrast", False), ("product", True), ("pair", False), ("shift-chain-1", False)])
def test_folders_load_without_us(name: str, lens: bool, tmp_path: Path) -> None:
    """In a process that cannot import lemmaformer or JAX, with TransformerLens and without."""
    net = built(name)
    found = lf.export(net, to="torch", out=tmp_path / "net")
    assert sorted(file.name for file in (tmp_path / "net").iterdir()) == ["README.md", "config.json", "model.py", "weights.safetensors"]
    tokens = tokens_of(net, 20)
    np.save(tmp_path / "tokens.npy", tokens)
    call = [sys.executable, "-c", ALONE, str(tmp_path / "net"), *([] if lens else ["transformer_lens"])]
    shown = json.loads(subprocess.run(call, check=True, capture_output=True, text=True, cwd=tmp_path).stdout)
    assert shown == ["HookedRootModule" if lens else "Module", 1, False, found.tolerance]
    exported = prepared(net.transformer, net.slots, tokens_of(net, 64, seed=0)).network
    limit = tolerance(net.transformer, exported, tokens)[..., 0]
    assert (np.abs(np.load(tmp_path / "outputs.npy") - net(tokens)) <= limit).all()


def test_the_command_writes_a_folder_once(run: Callable[..., Any], tmp_path: Path) -> None:
    built("contrast").save(tmp_path / "net")
    line = ["export", tmp_path / "net", "--to", "torch", "--out", tmp_path / "out"]
    first = run(*line, "--json").json
    assert first["certified"] is False and first["difference"] <= first["tolerance"] and first["form"] == "heads"
    again = run(*line)
    assert again.code == 2 and len(again.err.splitlines()) == 1
    (tmp_path / "out" / "config.json").write_text("{}")
    assert run(*line, "--force").code == 2 and (tmp_path / "out" / "config.json").read_text() == "{}"  # not ours any more
    assert run(*line[:-1], tmp_path / "new").code == 0
    assert run(*line[:-1], tmp_path / "new", "--force").code == 0
