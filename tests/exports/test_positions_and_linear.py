"""Exports of absolute positions and of linear attention: they agree, a changed row or a dropped 1/n is seen, long arrays are refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export

import lemmaformer as lf
from constructions.exports import jax_programs, numpy_files
from constructions.exports.agreement import Prepared, prepared, sequences
from constructions.exports.fast_rounding import difference_bound
from constructions.exports.plain_rounding import Analysis, Running, _linear_mean
from constructions.exports.portable import numpy_model
from constructions.files import bundle
from constructions.network.transformer import Transformer, to_exact
from constructions.run import fast, reference
from constructions.run.execute import run as evaluate
from tests.conftest import random_network
from tests.exports.gallery import SLOTS
from tests.exports.test_numpy_files import alone
from tests.running.test_positions_and_linear import KINDS, LENGTH, blind

CASES = [(kind, window, dtype) for kind, window in KINDS for dtype in ("float64", "float32", "exact")]
LINEAR = [(kind, window) for kind, window in KINDS if kind == "linear"]


def network_of(kind: str, window: str, dtype: str) -> Transformer:
    return blind(kind, window).map(to_exact) if dtype == "exact" else blind(kind, window, dtype)


def by_numpy(ready: Prepared, **arrays: np.ndarray) -> np.ndarray:
    return numpy_model.forward_by_heads(list(ready.network.layers), ready.network.arrays | arrays, ready.tokens)[0]


@pytest.mark.deep(keep="linear-full-exact")
@pytest.mark.parametrize(("kind", "window", "dtype"), CASES)
def test_heads_agree_within_a_tolerance_of_use(kind: str, window: str, dtype: str) -> None:
    network = network_of(kind, window, dtype)
    tokens = np.random.default_rng(4).uniform(-1, 1, (20, LENGTH, 2))
    ready = prepared(network, SLOTS, tokens)
    off = np.abs(by_numpy(ready) - ready.outputs)
    assert ready.network.form == "heads" and ready.network.longest == LENGTH and ready.decided.all()
    assert (off <= ready.tolerance).all() and off.max() > 0
    assert ready.tolerance.max() < (1e-2 if dtype == "float32" else 1e-11)


@pytest.mark.deep(keep="linear-finite-float64")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("kind", "window"), KINDS)
def test_a_changed_row_leaves_the_tolerance(kind: str, window: str, dtype: str) -> None:
    """Every row but the last of a causal network is read by several outputs; the last one by its own."""
    ready = prepared(network_of(kind, window, dtype), SLOTS)
    table = ready.network.arrays["pos_embed.W_pos"]
    for row in (0, LENGTH // 2, LENGTH - 1):
        changed = table.copy()
        changed[row] += 0.05 if dtype == "float32" else 1e-9
        off = np.abs(by_numpy(ready, **{"pos_embed.W_pos": changed}) - ready.outputs)
        assert (off > ready.tolerance)[:, row].any()


@pytest.mark.deep(keep="linear-finite")
@pytest.mark.parametrize(("kind", "window"), LINEAR)
def test_a_dropped_count_leaves_the_tolerance(kind: str, window: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Attn(X)_t is linear in its weights: without 1/n it is n times as large. The writer refuses that, and writes nothing."""
    network, real = blind(kind, window), numpy_model.attention
    count = np.full(LENGTH, LENGTH) if window == "full" else np.arange(1, LENGTH + 1)

    def without(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        attended, past = real(*given)
        return attended * count[:, None], past

    monkeypatch.setattr(numpy_model, "attention", without)
    with pytest.raises(lf.Refusal, match="more than rounding can explain"):
        numpy_files.write(network, SLOTS, tmp_path / "net.py")
    assert not (tmp_path / "net.py").exists()


@pytest.mark.parametrize("causal", [True, False])
def test_the_bound_of_linear_heads_holds_in_every_order(causal: bool) -> None:
    rng = np.random.default_rng(6)
    q, k, v = (rng.uniform(0.5, 2, (2, 3, 40, size)).astype(np.float32) for size in (5, 5, 4))
    seen = np.tril(np.ones((40, 40), bool)) if causal else np.ones((40, 40), bool)
    count = seen.sum(axis=-1).astype(np.float32)[:, None]
    exact = np.einsum("bhtk,bhsk,ts,bhsv->bhtv", *(a.astype(float) for a in (q, k)), seen / count.astype(float), v.astype(float))
    weights = np.where(seen, q @ np.swapaxes(k, -1, -2), np.float32(0))
    products = np.einsum("bhsk,bhsv->bhskv", k, v)
    running = np.cumsum(products, axis=2) if causal else np.broadcast_to(products.sum(axis=2, keepdims=True), products.shape)
    orders = [(weights / count) @ v, (weights @ v) / count, np.einsum("bhtk,bhtkv->bhtv", q, running) / count]
    still = [Running(a.astype(float), np.zeros(a.shape)) for a in (q, k, v)]
    bound = _linear_mean(Analysis("float32", certified=True), *still, seen).error
    for found in orders:
        off = np.abs(found - exact)
        assert found.dtype == np.float32 and (off <= bound).all() and bound.max() < 200 * off.max()
    moved = [Running(a.value + 1e-3, np.full(a.value.shape, 1e-3)) for a in still]  # all are off, by all that they may
    whole = _linear_mean(Analysis("float32", certified=True), *moved, seen)
    off = np.abs(orders[0] - whole.value)
    assert (off <= whole.error).all()
    for part in range(3):
        sure = [a if place != part else Running(a.value, 0 * a.error) for place, a in enumerate(moved)]
        assert (off > _linear_mean(Analysis("float32", certified=True), *sure, seen).error).all()


@pytest.mark.deep(keep="12")
@pytest.mark.parametrize("longest", [3, LENGTH, 40])
def test_random_sequences_are_no_longer_than_the_table(longest: int) -> None:
    network = blind("linear", "finite")
    network = replace(network, positions=np.resize(network.positions, (longest, 3)))
    assert sequences(network).shape[1] == min(longest, 24)
    assert prepared(network, SLOTS).tolerance.shape[1] == min(longest, 24)


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "window"), KINDS, ids=["-".join(case) for case in KINDS])
def test_numpy_files_run_without_us_and_know_how_long_they_are(kind: str, window: str, tmp_path: Path) -> None:
    network, tokens = blind(kind, window), np.random.default_rng(5).uniform(-1, 1, (6, 7, 2))
    numpy_files.write(network, SLOTS, tmp_path / "net.py")
    ready = prepared(network, SLOTS, tokens)
    assert (np.abs(alone(tmp_path, tokens)["outputs"] - ready.outputs[..., 0]) <= ready.tolerance[..., 0]).all()
    text = (tmp_path / "net.py").read_text()
    assert "X0 = W_E x + b_E + W_pos[t];" in text
    with pytest.raises(ValueError, match="13 tokens are more than the 12 that this network has positions for"):
        numpy_model.embedded(ready.network.arrays, np.zeros((LENGTH + 1, 2)))


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "window", "dtype"), CASES, ids=["-".join(case) for case in CASES])
def test_jax_programs(kind: str, window: str, dtype: str, tmp_path: Path) -> None:
    network = network_of(kind, window, dtype)
    found: dict[str, Any] = jax_programs.write(network, SLOTS, tmp_path / "net.jax", length=8)
    assert found["difference"] <= found["tolerance"] and found["form"] == "heads" and found["shape"] == ["batch", 8, 2]
    tokens = np.random.default_rng(5).uniform(-1, 1, (6, 8, 2)).astype("float32" if dtype == "float32" else "float64")
    with jax.enable_x64(dtype != "float32"):
        outputs = np.asarray(export.deserialize(bytearray((tmp_path / "net.jax").read_bytes())).call(jax.numpy.asarray(tokens)))
    ready = jax_programs._ready(network, SLOTS, tokens)
    assert (np.abs(outputs - ready.outputs[..., 0]) <= ready.tolerance[..., 0]).all()


@pytest.mark.deep
def test_jax_programs_of_other_rows_and_of_too_many_tokens_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = blind("linear", "finite")
    for window in ("finite", "full"):
        with pytest.raises(lf.InputError, match="length is 13; this network has positions for 12 tokens"):
            jax_programs.write(blind("linear", window), SLOTS, tmp_path / "net.jax", length=LENGTH + 1)
    moved = replace(network, positions=network.positions + 1e-9 * np.eye(LENGTH, 3))
    monkeypatch.setattr(jax_programs, "_floats", lambda given: moved)
    with pytest.raises(lf.Refusal, match="more than rounding can explain"):
        jax_programs.write(network, SLOTS, tmp_path / "net.jax")
    assert not (tmp_path / "net.jax").exists()


@pytest.mark.deep
def test_heads_of_the_infinite_past_read_a_table_too() -> None:
    """Every kind of attention may come with a table; the constant state before the array has no row."""
    for rpe, kind, layers in (("lin", "dp-free", 2), ("lin", "nf", 1)):
        rng = np.random.default_rng(8)
        network = random_network(rng, [rpe] * 2, kind, layers=layers)
        network = replace(network, positions=0.4 * rng.standard_normal((LENGTH, 3)))
        ready = prepared(network, SLOTS)
        assert (np.abs(by_numpy(ready) - ready.outputs) <= ready.tolerance).all() and ready.tolerance.max() < 1e-10
        slow, quick = reference.forward(network, ready.tokens), fast.forward(network, ready.tokens)
        assert np.abs(slow - quick).max() < 1e-12 * max(1, np.abs(slow).max())


def test_the_command_exports_a_bundle(run: Callable[..., Any], tmp_path: Path) -> None:
    bundle.write(tmp_path / "net", blind("linear", "finite"), {}, "")
    said = run("export", tmp_path / "net", "--to", "numpy", "--out", tmp_path / "net.py", "--json").json
    assert said["length"] == LENGTH and said["difference"] <= said["tolerance"] < 1e-11
    long = run("export", tmp_path / "net", "--to", "jax", "--length", LENGTH + 1, "--out", tmp_path / "net.jax")
    assert long.code == 2 and "positions for 12 tokens" in long.err and long.err.count("\n") == 1


@pytest.mark.reach
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "window", "dtype"), CASES)
def test_torch_has_the_names_of_transformer_lens(kind: str, window: str, dtype: str) -> None:
    import torch

    from constructions.exports.torch_modules import to_torch

    network = network_of(kind, window, dtype)
    module = to_torch(network, SLOTS)
    assert module.difference <= module.tolerance < (1e-2 if dtype == "float32" else 1e-11)
    tokens = np.random.default_rng(5).uniform(-1, 1, (6, 7, 2))
    given = torch.from_numpy(tokens)
    outputs, cache = module.run_with_cache(given)
    ready = prepared(network, SLOTS, tokens)
    assert (np.abs(outputs.detach().numpy() - ready.outputs[..., 0]) <= ready.tolerance[..., 0]).all()
    assert module.pos_embed.W_pos.shape == (LENGTH, 3) and cache["hook_pos_embed"].shape == (6, 7, 3)
    first = cache["hook_embed"] + cache["hook_pos_embed"]
    assert torch.equal(cache["blocks.0.hook_resid_pre"], first)
    wanted = reference.patterns_of(blind(kind, window), tokens)[0][0]
    np.testing.assert_allclose(cache["blocks.0.attn.hook_pattern"].detach(), wanted, atol=1e-12 if dtype != "float32" else 1e-4)
    if kind == "linear":
        scores = torch.einsum("bthk,bshk->bhts", cache["blocks.0.attn.hook_q"], cache["blocks.0.attn.hook_k"])
        seen = torch.full((7,), 7) if window == "full" else torch.arange(1, 8)
        mean = scores / seen[:, None] if window == "full" else torch.tril(scores) / seen[:, None]
        np.testing.assert_allclose(cache["blocks.0.attn.hook_pattern"].detach(), mean.detach(), atol=1e-12)


@pytest.mark.reach
@pytest.mark.filterwarnings("ignore")
def test_torch_sees_a_changed_row_and_a_dropped_count_and_refuses_longer_arrays() -> None:
    import torch

    from constructions.exports.torch_modules import to_torch

    network = blind("linear", "finite")
    module, ready = to_torch(network, SLOTS), prepared(network, SLOTS)
    tokens = torch.from_numpy(ready.tokens)

    def seen(**hooks: Callable[..., Any]) -> bool:
        named = [(name.replace("__", "."), hook) for name, hook in hooks.items()]
        outputs = module.run_with_hooks(tokens, fwd_hooks=named).detach().numpy()
        return bool((np.abs(outputs - ready.outputs[..., 0]) > ready.tolerance[..., 0]).any())

    count = torch.arange(1, LENGTH + 1)[:, None]
    assert not seen(hook_pos_embed=lambda held, hook: held)
    assert seen(hook_pos_embed=lambda held, hook: held + 1e-9 * torch.eye(LENGTH, 3))
    assert not seen(blocks__0__attn__hook_pattern=lambda held, hook: held)
    assert seen(blocks__0__attn__hook_pattern=lambda held, hook: held * count)
    with pytest.raises(ValueError, match="13 tokens are more than the 12 that this network has positions for"):
        module(torch.zeros(1, LENGTH + 1, 2))
    module(tokens).sum().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in module.parameters() if weight.grad is not None)
    assert module.pos_embed.W_pos.grad.abs().min() >= 0 and module.pos_embed.W_pos.grad.abs().max() > 0


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "window"), KINDS, ids=["-".join(case) for case in KINDS])
def test_the_bound_of_the_fast_pass_holds_and_is_of_use(kind: str, window: str) -> None:
    """The float32 network against the same numbers in float64; in float64 a changed row leaves the bound."""
    tokens = np.random.default_rng(4).uniform(-1, 1, (6, LENGTH, 2)).astype(np.float32)
    network = blind(kind, window, "float32")
    bound = difference_bound(network, tokens) / 2
    off = np.abs(evaluate(network, tokens) - reference.forward(network.map(lambda w: w.astype(np.float64)), tokens))
    assert (off <= bound).all() and off.max() > 0 and bound.max() < 1e-2
    network = blind(kind, window)
    moved = replace(network, positions=network.positions + 1e-9 * np.eye(LENGTH, 3))
    assert (np.abs(evaluate(moved, tokens) - evaluate(network, tokens)) > difference_bound(network, tokens)).any()


@pytest.mark.reach
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "window", "dtype"), CASES)
def test_onnx_graphs_agree_and_are_read_back(kind: str, window: str, dtype: str, tmp_path: Path) -> None:
    import onnx

    from constructions.exports import onnx_files, onnx_graphs
    from constructions.exports.onnx_runs import session

    network, place = network_of(kind, window, dtype), tmp_path / "net.onnx"
    said: dict[str, Any] = onnx_graphs.write(network, SLOTS, place, overwrite=False)
    assert said["longest"] == LENGTH and said["known"] == 1 and said["share"] <= 1
    assert said["tolerance"] < (1e-2 if dtype == "float32" else 1e-11) and said["covered"] is (dtype != "exact")
    model = onnx.load(place)
    onnx.checker.check_model(model, full_check=True)
    (table,) = [tensor for tensor in model.graph.initializer if tensor.name == "positions"]
    assert list(table.dims) == [LENGTH, 3]
    again = onnx_files.read(place)
    assert again.difference is None and again.bundle.network.positions.tolist() == network.positions.tolist()
    running, given = session(place.read_bytes()), "float32" if dtype == "float32" else "float64"
    for shape in ((5, LENGTH, 2), (1, 1, 2), (2, 7, 2)):
        tokens = np.random.default_rng(9).uniform(-1, 1, shape).astype(given)
        off = np.abs(running.run(["y"], {"tokens": tokens})[0].astype(float) - evaluate(network, tokens))
        assert (off <= difference_bound(network, tokens)).all()
    with pytest.raises(Exception, match="out of data bounds"):
        running.run(["y"], {"tokens": np.zeros((1, LENGTH + 1, 2), given)})


@pytest.mark.reach
@pytest.mark.filterwarnings("ignore")
def test_onnx_tables_of_one_row_are_for_one_token() -> None:
    from constructions.exports.onnx_graphs import model_of
    from constructions.exports.onnx_runs import session

    network = replace(blind("linear", "full"), positions=np.ones((1, 3)))
    running = session(model_of(network, {}).SerializeToString())
    assert running.run(["y"], {"tokens": np.zeros((2, 1, 2))})[0].shape == (2, 1)
    with pytest.raises(Exception, match="out of data bounds"):
        running.run(["y"], {"tokens": np.zeros((2, 2, 2))})


@pytest.mark.reach
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "window"), KINDS)
def test_onnx_files_with_another_row_or_without_the_count_are_not_this_networks(kind: str, window: str, tmp_path: Path) -> None:
    """A changed row is another network, whose hash differs; a graph without its last quotient is named, and leaves the tolerance."""
    from constructions.exports import onnx_files, onnx_graphs
    from constructions.exports.onnx_runs import session

    network, place = blind(kind, window), tmp_path / "net.onnx"
    tokens = np.random.default_rng(9).uniform(-1, 1, (5, LENGTH, 2))
    wanted, limit = evaluate(network, tokens), difference_bound(network, tokens)

    def changed(change: Callable[[Any], None]) -> tuple[str | None, bool]:
        model = onnx_graphs.model_of(network, SLOTS)
        change(model)
        place.write_bytes(model.SerializeToString(deterministic=True))
        outputs = session(place.read_bytes()).run(["y"], {"tokens": tokens})[0]
        return onnx_files.read(place).difference, bool((np.abs(outputs - wanted) > limit).any())

    def another_row(model: Any) -> None:
        (table,) = [tensor for tensor in model.graph.initializer if tensor.name == "positions"]
        table.raw_data = (network.positions + 1e-9 * np.eye(LENGTH, 3)).tobytes()

    def no_count(model: Any) -> None:
        quotient = next(node for node in model.graph.node if node.op_type == "Div")
        quotient.op_type = "Identity"
        del quotient.input[1]

    assert changed(lambda model: None) == (None, False)
    said, seen = changed(another_row)
    assert seen and said is not None and "sha256" in said
    said, seen = changed(no_count)
    assert seen and said is not None and "'Identity' for Div" in said


def position_heads(dtype: str) -> lf.Network:
    return lf.build(lf.fixed(lags=(2,)), theorem="position-heads", length=9, dtype=dtype, error=0.05)


@pytest.mark.deep
@pytest.mark.parametrize("to", ["numpy", pytest.param("jax", marks=pytest.mark.deep)])
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_a_network_that_finds_tokens_by_position_is_exported(to: str, dtype: str, tmp_path: Path) -> None:
    found: dict[str, Any] = lf.export(position_heads(dtype), to=to, out=tmp_path / "net").as_dict()
    assert found["form"] == "heads" and found["length"] == 9 and found["decided"] == 1
    assert found["difference"] <= found["tolerance"] < (1e-2 if dtype == "float32" else 1e-11)


@pytest.mark.deep
def test_a_changed_row_of_such_a_network_is_seen() -> None:
    """Keys and queries read it: another token is found."""
    net = position_heads("exact")
    ready = prepared(net.transformer, net.slots)
    changed = ready.network.arrays["pos_embed.W_pos"].copy()
    changed[6] *= 1 + 2.0**-20
    assert (np.abs(by_numpy(ready, **{"pos_embed.W_pos": changed}) - ready.outputs) > ready.tolerance).any()


@pytest.mark.reach
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["exact", "float64"])
def test_onnx_files_of_such_networks_are_certified_and_changed_rows_violated(dtype: str, tmp_path: Path) -> None:
    from constructions.exports import onnx_graphs

    net, place = position_heads(dtype), tmp_path / "net.onnx"
    assert net.to_torch().pos_embed.W_pos.shape[0] == 9
    onnx_graphs.write(net.transformer, net.slots, place, overwrite=False, card=net.card)
    found = lf.verify(place)
    assert (found.verdict.value, found.certified) == ("holds", net.certificate.certified)
    table = net.transformer.positions.copy()
    table[6] = table[6] * 2
    model = onnx_graphs.model_of(replace(net.transformer, positions=table), net.slots, net.card)
    place.write_bytes(model.SerializeToString(deterministic=True))
    assert lf.verify(place).verdict.value == "violated"
