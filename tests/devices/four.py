"""What tests of several devices ask: run with four virtual devices, in a process of its own, it prints what it found as JSON."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flint import arb, fmpq
from jax.sharding import PartitionSpec

import lemmaformer as lf
from analyzer.errors import LemmaformerError
from analyzer.numbers.exact import rational
from constructions.network.transformer import Transformer
from constructions.run import fast, sharded, token_by_token
from constructions.training.loop import fit, fit_ensemble, minibatches
from tests.running.test_token_by_token import BUILT, STREAMED, made
from verify.chain.device import above
from verify.chain.rounding import Arithmetic, Rounded

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FOUR = 4
LIN = (lf.fixed(lags=(2,)), {"dtype": "float32", "error": 0.1})


def held(target: Any, options: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """A built network on one device and on four, and what its certificates allow; `shape` (N,) or (batch, N)."""
    net = lf.build(target, **options)
    tokens = target.draw(np.random.default_rng(3), (1, *shape)[-2:])
    tokens = tokens[0] if len(shape) == 1 else tokens
    found = net.evaluate(tokens, devices=FOUR)
    cut = net.certificate if found.section is None else net.verify(section=found.section)
    wanted = target.values(np)(tokens.astype(np.float64))[..., target.settled :]
    return {
        "section": found.section,
        "difference": float(np.abs(found.outputs - net(tokens)).max()),
        "rounding": net.certificate.rounding,
        "cut_rounding": cut.rounding,
        "error": float(np.abs(found.outputs[..., target.settled :] - wanted).max()),
        "certified": cut.certified,
        "verdict": cut.verdict.value,
        "shape": list(found.outputs.shape),
    }


def difference(network: Transformer, tokens: np.ndarray) -> float:
    """The largest difference between four devices and one, over the size of the outputs."""
    wanted = fast.forward(network, tokens)
    return float(np.abs(sharded.forward(network, tokens, FOUR) - wanted).max() / np.abs(wanted).max())


def broken() -> dict[str, float]:
    """Differences of slow lin heads: whole, with states that are not passed on, with one power of z too few, with values not passed on."""
    slow, table = made("lin"), made("table")
    for layer in slow.layers:
        layer.attention.decay[:] = 0.05
    tokens = np.random.default_rng(5).uniform(-1, 1, (40, 2))
    ratios, found = sharded.passing_ratios, {"whole": difference(slow, tokens), "whole values": difference(table, tokens)}
    faults: dict[str, tuple[str, Callable[..., Any], Transformer]] = {
        "no states": ("_passed_states", lambda count, power, first, own: first, slow),
        "wrong power": ("passing_ratios", lambda attention, constants, steps: ratios(attention, constants, steps - 1), slow),
        "no values": ("_passed_values", lambda count, first, own: first, table),
    }
    for name, (place, fault, network) in faults.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharded, place, fault)
            sharded._sections.clear_cache()
            found[name] = difference(network, tokens)
    sharded._sections.clear_cache()
    return found


def passing_error() -> dict[str, float]:
    """States after two sections of two tokens, in float32, for many values near 1: the worst error, in units of u, beside the bounds.

    z is small, so a scan rounds hardly more than its last sum, and passing a state on adds another sum of that size.
    """
    samples, z = 1 << 14, np.float32(2.0**-6 * 1.37)
    values = (1 - np.random.default_rng(0).integers(0, 1 << 14, (8, samples, 1, 1)) * 2.0**-24).astype(np.float32)
    attention = made("lin", dtype="float32").layers[0].attention
    power = sharded.passing_ratios(attention, {"ratio": np.array([z])}, 2)

    def section(given: jax.Array) -> jax.Array:
        nothing = jnp.zeros((1, *given.shape[1:]), given.dtype)
        own, _ = token_by_token.scanned_states(jnp.full((1, 1), z), nothing, given)
        return sharded._passed_states(FOUR, jnp.asarray(power)[:, None], nothing, own)

    places = {"in_specs": PartitionSpec(sharded.AXIS), "out_specs": PartitionSpec(sharded.AXIS)}
    found = np.asarray(jax.jit(jax.shard_map(section, mesh=sharded.mesh_of(FOUR), check_vma=False, **places))(values))[2, :, 0, 0]
    weights = [rational(float(z)) ** s for s in (3, 2, 1, 0)]
    near = sum(float(w) * values[t, :, 0, 0].astype(np.float64) for t, w in enumerate(weights))
    worst = int(np.abs(found - near).argmax())
    exact = sum((w * rational(float(values[t, worst, 0, 0])) for t, w in enumerate(weights)), fmpq(0))
    arithmetic = Arithmetic("float32")
    scanned = arithmetic.state(arb(weights[2]), Rounded(arb(1), arb(0)))
    unit = arithmetic.unit
    return {
        "error": float(arb(abs(rational(float(found[worst])) - exact)) / unit),
        "scan": float(arb(above(scanned.error)) / unit),
        "passed": float(arb(above(arithmetic.passed(arb(weights[1]), scanned))) / unit),
    }


STEPS, ROWS, WIDE, RATE = 50, 64, 4, 0.1


def regression() -> dict[str, Any]:
    """Least squares on one device and on four, alone and as an ensemble; where the batches lie."""
    seen: list[Any] = []
    rng = np.random.default_rng(7)
    with jax.enable_x64(True):
        x = jnp.asarray(rng.uniform(-1, 1, (1000, WIDE)))
        data = {"x": x, "y": x @ jnp.asarray(rng.uniform(-1, 1, WIDE))}

        def loss(w: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
            jax.debug.inspect_array_sharding(batch["x"], callback=seen.append)
            return jnp.mean((batch["x"] @ w - batch["y"]) ** 2)

        options: dict[str, Any] = {"steps": STEPS, "optimiser": optax.sgd(RATE)}
        batches = minibatches(data, ROWS)
        alone = [fit(loss, jnp.zeros(WIDE), batches, seed=3, devices=count, **options) for count in (1, FOUR)]
        many = [fit_ensemble(loss, jnp.zeros((2, WIDE)), batches, seeds=(3, 4), devices=count, **options) for count in (1, FOUR)]
    return {
        "weights": float(np.abs(alone[0].parameters - alone[1].parameters).max()),
        "losses": float(np.abs(alone[0].history - alone[1].history).max()),
        "ensemble": float(np.abs(many[0].history - many[1].history).max()),
        "fell": float(alone[1].history[-1] / alone[1].history[0]),
        "devices": sorted({len({str(index) for index in s.devices_indices_map((ROWS, WIDE)).values()}) for s in seen[:2]}),
    }


def refusals() -> dict[str, str]:
    """What is said where devices cannot do what is asked."""
    exact, one = lf.build(lf.fixed(lags=(2,))), lf.build(LIN[0], **LIN[1])
    softmax = lf.train(lf.fixed(lags=(1,)), attention="dp", heads=1, width=2, steps=20, batch=4, length=4)
    asked: dict[str, Callable[[], Any]] = {
        "too many": lambda: one(np.zeros(8), devices=5),
        "none": lambda: one(np.zeros(8), devices=0),
        "exact": lambda: exact(np.zeros(8), devices=FOUR),
        "form": lambda: one(np.zeros(8), devices=FOUR, form="blocked"),
        "softmax": lambda: softmax(np.zeros(8), devices=FOUR),
        "uneven": lambda: lf.train(lf.fixed(lags=(1,)), steps=20, batch=6, length=8, devices=FOUR),
    }
    found = {}
    for name, ask in asked.items():
        try:
            found[name] = f"answered: {ask()!r}"
        except LemmaformerError as error:
            found[name] = f"{type(error).__name__}: {error}"
    spread = softmax(np.zeros((2, 8, 1)), devices=FOUR)
    with patch("constructions.network.recurrences.of_device", lambda: "blocked"):  # what suits such a device is no form that was asked for
        cut = one.evaluate(np.zeros(8), devices=FOUR)
    return {**found, "softmax, two sequences": str(spread.shape), "cut where blocks suit": f"{cut.section} {cut.form}"}


def quick() -> dict[str, Any]:
    """What is asked in every run of the tests."""
    rng = np.random.default_rng(1)
    return {
        "lin": held(*LIN, (203,)),
        "sequences": held(*LIN, (6, 40)),
        "lin and log": difference(made("lin and log"), rng.uniform(-1, 1, (37, 2))),
        "broken": broken(),
        "passing": passing_error(),
        "regression": regression(),
    }


def deep() -> dict[str, Any]:
    """The rest: all kinds of heads, types, lengths and batches."""
    rng = np.random.default_rng(2)
    shapes = [(1, 2), (5, 2), (41, 2), (3, 41, 2), (4, 9, 2), (7, 9, 2), (2, 64, 2)]
    random = {}
    for case in STREAMED:
        for dtype in ("float32", "float64"):
            network = made(case, 3, dtype)
            for layer in network.layers:
                layer.attention.decay[:] /= 1 if "log" in case else 20
            random[f"{case}, {dtype}"] = max(difference(network, rng.uniform(-1, 1, shape)) for shape in shapes)
    built = {
        f"{name}, {shape}": held(target, options, shape)
        for name, (target, options) in BUILT.items()
        for shape in ((203,), (3, 50), (6, 33))
    }
    pointer = lf.load_target(EXAMPLES / "pointer.toml")
    for score in ("dp", "tmx"):
        built[f"lags, {score}"] = held(pointer, {"dtype": "float64", "error": 0.03, "attention": score}, (61,))
    runs = [lf.train(LIN[0], steps=40, batch=16, length=24, dtype="float64", heads=3, layers=2, width=8, devices=n) for n in (1, FOUR)]
    leaves = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(net.transformer)]) for net in runs]
    return {"random": random, "built": built, "trained": float(np.abs(leaves[0] - leaves[1]).max()), "refusals": refusals()}


if __name__ == "__main__":
    assert len(jax.devices()) == FOUR
    print(json.dumps({"quick": quick, "deep": deep}[sys.argv[1]]()))
