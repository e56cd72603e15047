"""The chain of a network that no theorem built: trained here, or imported.

No theorem promises anything for such a network, so its bound is the certified error itself: what its card claims, it must reach again.
Which certificate there is depends on the target's tokens:

* letters of a finite alphabet: all sequences are gone through, whatever the kinds and the number of layers, if they are not too many
  (`verify.layers.all_sequences`); otherwise, or where heads look back for ever, the most recent letters are, and what lies before is
  confined layer by layer;
* tokens in [−1, 1]: one dp-free layer over the infinite past on fixed or kernel memories (`verify.layers.dp_free`), or with a finite
  window, at the last of as many tokens as it was trained on; fixed memories of letters have this certificate where there are too many
  sequences. One layer that compares tokens has another (`verify.layers.softmax`), which knows letters, too.

For all other networks nothing is certified: certified and bound are infinite (null in JSON), and the witness is the largest error among
seeded random sequences and their sign versions, at the last position, where the target is evaluated in exact arithmetic. The error of a
network of several outputs, one per value of the target, is that of the value which it decides for (`analyzer.targets.decisions`).
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import lower, rational
from analyzer.targets.decisions import decision_of
from analyzer.targets.files import target_from_dict
from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer
from constructions.run.execute import run
from constructions.training.recipes import MAX_LENGTH, TrainingRecipe
from verify.chain.certificate import Certificate, Part
from verify.layers import dp_free
from verify.layers.all_sequences import SequenceError, sequence_error
from verify.layers.dp_free import LayerError
from verify.layers.softmax.certificate import RUN, SECONDS, softmax_error
from verify.layers.softmax.cover import Watch

ORIGINS = ("trained", "imported")
DP_FREE, SOFTMAX, ALL_SEQUENCES, LAYER_BY_LAYER = "dp-free layer", "softmax layer", "all sequences", "layer by layer"
MEASURED = "measured"
"""What stands in a theorem's place: which certificate, or none."""
SEQUENCES = 512
"""Random sequences for the witness of a network without a certificate."""
LENGTH = 128
"""Their tokens, unless lags reach further back: long enough for a few half-lives of most heads."""
CANDIDATES = 3
"""Worst sequences that are measured again in exact arithmetic."""


@dataclass(frozen=True)
class LearntError:
    """witness ≤ worst-case error ≤ certified of weights that no theorem built, and by which certificate.

    `witness` None: its tokens need not be letters. `rounding` None: not counted. `over`: which tokens and positions.
    """

    by: str
    part: str
    over: str
    witness: float | None
    witness_input: str | None
    certified: float
    rounding: float | None
    arithmetic: str
    trivial: float
    details: dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much work a search is granted, in seconds of one core (work is counted, not time), and who watches it."""

    seconds: float = SECONDS
    watch: Watch | None = None


USUAL = Effort()


def whole_error(network: Transformer, target: Target, length: int | None = None, seed: int = 0, effort: Effort = USUAL) -> LearntError:
    """The certificate that leaves nothing out: all sequences of letters, or one layer with a softmax; refused with a reason."""
    if target.alphabet is not None:
        try:
            return _by_sequences(network, target, length, seed, cut=False)
        except Refusal as refusal:
            if len(network.layers) > 1:
                raise refusal
    layered = target.as_layer_target
    if layered is None or len(network.layers) > 1 or network.layers[0].attention.kind == "dp":
        return _by_cells(network, target, length, seed, effort)
    finite = network.layers[0].attention.window == "finite"
    found = dp_free.layer_error(network, layered, seed=seed, length=length if finite else None)
    over = "tokens in [-1, 1]" if not finite else f"tokens in [-1, 1], at the last of {length}"
    learnt = _learnt(found, DP_FREE, "one dp-free layer", over, {"cells": found.cells})
    return learnt if target.alphabet is None else replace(learnt, witness=None, witness_input=None)


def _learnt(found: LayerError | SequenceError, by: str, part: str, over: str, details: dict[str, Any]) -> LearntError:
    return LearntError(
        by=by,
        part=part,
        over=over,
        witness=found.witness,
        witness_input=found.witness_input,
        certified=found.certified,
        rounding=found.rounding,
        arithmetic=found.arithmetic,
        trivial=found.trivial,
        details={"arithmetic": found.arithmetic, **details},
    )


def _by_cells(network: Transformer, target: Target, length: int | None, seed: int, effort: Effort) -> LearntError:
    windowed = network.layers[0].attention.window != "infinite"
    found = softmax_error(network, target, length=length if windowed else None, seconds=effort.seconds, seed=seed, watch=effort.watch)
    where = f", at the last of {length}" if windowed else f", roundings for up to {RUN} tokens" if found.rounding else ""
    return _learnt(found, SOFTMAX, "one softmax layer", target.tokens_text + where, {"cells": found.cells})


def learnt_error(network: Transformer, target: Target, length: int | None = None, seed: int = 0, effort: Effort = USUAL) -> LearntError:
    """`whole_error`, or layer by layer with what lies before the recent letters confined; refused with a reason."""
    try:
        return whole_error(network, target, length, seed, effort)
    except Refusal as refusal:
        if target.alphabet is None:
            raise refusal
    return _by_sequences(network, target, length, seed, cut=True)


def _by_sequences(network: Transformer, target: Target, length: int | None, seed: int, cut: bool) -> LearntError:
    found = sequence_error(network, target, length=length, seed=seed, cut=cut)
    by, part = (ALL_SEQUENCES, "all words of letters") if found.whole else (LAYER_BY_LAYER, "words of recent letters, and what lies before")
    return _learnt(found, by, part, found.over, {"sequences": found.sequences, "over": found.over})


def verify_learnt(network: Transformer, target: Target, length: int | None = None, seed: int = 0, effort: Effort = USUAL) -> Certificate:
    """The chain of any network on a target; `length` is that of its arrays where windows are finite or full, and of the sequences it is
    measured on, where it is only measured."""
    if network.dim != target.dim:
        raise InputError(f"the network reads tokens of dimension {network.dim}, the target has {target.dim}")
    start = time.perf_counter()
    common: dict[str, Any] = {"least_heads": None, "sizes": network.sizes(), "dtype": network.dtype}
    if network.outputs != 1:
        reason = f"a network of {network.outputs} outputs decides between values: its decisions have a margin, which can be certified"
        return _measured(network, target, reason, length, seed, common)
    try:
        found = learnt_error(network, target, length, seed, effort)
    except Refusal as refusal:
        return _measured(network, target, str(refusal), length, seed, common)
    witness, witness_input = found.witness, found.witness_input
    if witness is None or witness_input is None:  # the certificate holds on [−1, 1], a witness is made of letters
        witness, witness_input, _ = _sampled_witness(network, target, length, seed)
    return Certificate(
        theorem=found.by,
        witness=witness,
        witness_input=witness_input,
        certified=found.certified,
        bound=found.certified,
        rounding=found.rounding,
        trivial=found.trivial,
        parts=(Part(found.part, found.certified, found.certified),),
        seconds=time.perf_counter() - start,
        details=found.details,
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
    """(largest error seen, rounded down; where; the random sequences), at a position whose lags lie inside the array."""
    length = target.length or max(length or max(LENGTH, 2 * target.settled), target.settled + 1)
    tokens = target.draw(np.random.default_rng(seed), (SEQUENCES, length))
    if target.signed:
        tokens = np.concatenate([tokens, np.sign(tokens)])
    if network.dtype != "exact":
        tokens = tokens.astype(network.dtype).astype(np.float64)  # tokens count as given in the network's type
    outputs = run(network, tokens)[:, -1].astype(np.float64)
    if not np.isfinite(outputs).all():
        raise Refusal("the network's outputs are not finite numbers on random tokens: there is nothing to measure")
    if network.outputs == 1:
        errors = np.abs(outputs - target.values(np)(tokens)[:, -1])
        worst = np.argsort(errors)[::-1][:CANDIDATES]
        exact = [lower(abs(arb(rational(float(outputs[i]))) - target.exact_value(tokens[i]))) for i in worst]
    else:
        values = decision_of(target, network.outputs).values
        pairs = set(zip(outputs.argmax(axis=1).tolist(), values.indices(tokens).tolist(), strict=True))
        exact = [lower(abs(values.numbers[decided] - values.numbers[right])) for decided, right in pairs]
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
