"""The chain of a network that no theorem built: trained here, or imported.

For one dp-free layer over the infinite past and a target of fixed or kernel memories the worst case is certified (`verify.layers.dp_free`),
from whatever weights there are; with a finite window, at the last of as many tokens as it was trained on. No theorem promises anything for
such a network, so its bound is the certified error itself: what its card claims, it must reach again.

For all other networks nothing is certified: certified and bound are infinite (null in JSON), and the witness is the largest error among
seeded random sequences and their sign versions, at the last position, where the target is evaluated in exact arithmetic.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import lower, rational
from analyzer.targets.files import target_from_dict
from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer
from constructions.run.execute import run
from constructions.training.recipes import MAX_LENGTH, TrainingRecipe
from verify.chain.certificate import Certificate, Part
from verify.layers.dp_free import layer_error

ORIGINS = ("trained", "imported")
DP_FREE, MEASURED = "dp-free layer", "measured"
"""What stands in a theorem's place: which certificate, or none."""
SEQUENCES = 512
"""Random sequences for the witness of a network without a certificate."""
LENGTH = 128
"""Their tokens, unless lags reach further back: long enough for a few half-lives of most heads."""
CANDIDATES = 3
"""Worst sequences that are measured again in exact arithmetic."""


def verify_learnt(network: Transformer, target: Target, length: int | None = None, seed: int = 0) -> Certificate:
    """The chain of any network on a target; `length` is that of the sequences it is measured on, where it is only measured."""
    if network.dim != target.dim:
        raise InputError(f"the network reads tokens of dimension {network.dim}, the target has {target.dim}")
    start = time.perf_counter()
    common: dict[str, Any] = {"least_heads": None, "sizes": network.sizes(), "dtype": network.dtype}
    layered = target.as_layer_target
    if layered is None:
        return _measured(network, target, f"no certificate is known for trained networks on {target.kind} targets", length, seed, common)
    try:
        finite = network.layers[0].attention.window == "finite"
        found = layer_error(network, layered, seed=seed, length=length if finite else None)
    except Refusal as refusal:
        return _measured(network, target, str(refusal), length, seed, common)
    witness, witness_input = found.witness, found.witness_input
    if target.alphabet is not None:  # the certificate holds on [−1, 1], a witness is made of letters
        witness, witness_input, _ = _sampled_witness(network, target, length, seed)
    return Certificate(
        theorem=DP_FREE,
        witness=witness,
        witness_input=witness_input,
        certified=found.certified,
        bound=found.certified,
        rounding=found.rounding or 0.0,
        trivial=found.trivial,
        parts=(Part("one dp-free layer", found.certified, found.certified),),
        seconds=time.perf_counter() - start,
        details={"arithmetic": found.arithmetic, "cells": found.cells},
        **common,
    )


def _measured(network: Transformer, target: Target, reason: str, length: int | None, seed: int, common: dict[str, Any]) -> Certificate:
    start = time.perf_counter()
    witness, witness_input, tokens = _sampled_witness(network, target, length, seed)
    return Certificate(
        theorem=MEASURED,
        witness=witness,
        witness_input=witness_input,
        certified=float("inf"),
        bound=float("inf"),
        rounding=0.0,
        trivial=target.constant_error(tokens),
        parts=(),
        seconds=time.perf_counter() - start,
        details={"arithmetic": network.dtype, "uncertified": reason},
        **common,
    )


def _sampled_witness(network: Transformer, target: Target, length: int | None, seed: int) -> tuple[float, str, np.ndarray]:
    """(largest error seen, rounded down; where; the random sequences)."""
    length = target.length or length or max(LENGTH, 2 * target.settled)
    tokens = target.draw(np.random.default_rng(seed), (SEQUENCES, length))
    if target.signed:
        tokens = np.concatenate([tokens, np.sign(tokens)])
    if network.dtype != "exact":
        tokens = tokens.astype(network.dtype).astype(np.float64)  # tokens count as given in the network's type
    outputs = run(network, tokens)[:, -1].astype(np.float64)
    if not np.isfinite(outputs).all():
        raise Refusal("the network's outputs are not finite numbers on random tokens: there is nothing to measure")
    errors = np.abs(outputs - target.values(np)(tokens)[:, -1])
    worst = np.argsort(errors)[::-1][:CANDIDATES]
    exact = [lower(abs(arb(rational(float(outputs[i]))) - target.exact_value(tokens[i]))) for i in worst]
    return max(0.0, *exact), f"the worst of {len(tokens)} random sequences of {length} tokens, at the last one", tokens


def target_of(card: Mapping[str, Any]) -> Target:
    """The target that a trained or imported network's card names."""
    if card.get("target") is None:
        raise InputError("the card names no target, so there is nothing to verify; import the weights again with a [target] in the config")
    return target_from_dict(card["target"], "card.json")


def trained_length(card: Mapping[str, Any]) -> int | None:
    """The length of the sequences that a network was trained on."""
    training = card.get("training")
    recipe = training.get("recipe") if isinstance(training, dict) else None
    length = recipe.get("length") if isinstance(recipe, dict) else None
    return length if type(length) is int and 1 <= length <= MAX_LENGTH else None


def trained_card(
    network: Transformer, target: Target, recipe: TrainingRecipe, run: dict[str, Any], certificate: Certificate
) -> dict[str, Any]:
    """The card of a network that was just trained; `run`: how it went."""
    return {
        "origin": "trained",
        "theorem": None,
        "target": target.describe(),
        "sizes": network.sizes(),
        "certificate": certificate.theorem,
        "chain": certificate.chain(),
        "training": {"recipe": asdict(recipe), **run},
        "seeds": {"training": recipe.seed},
        "versions": {name: version(name) for name in ("lemmaformer", "jax", "numpy", "optax", "python-flint")},
    }
