"""Certificates in mean square: witness ≤ certified ≤ bound for E|error|² over independent tokens (`verify.chain.mean_square`).

What is certified depends on the network.

* One dp-free layer, read-out and target affine: (M.1), from both sides. The witness is the lower end of the closed form.
* One dp-free layer of a theorem with a curved read-out, bounded tokens: (M.2) from above. The other side is sampled and called so: the
  witness lies five standard errors below the mean over random sequences.
* One dp-free layer with any other weights, bounded tokens: the square of its worst case (`verify.layers.dp_free`) from above, sampled from
  below as before.
* Anything else is sampled only: verdict `measured`.

The bound of a theorem's network follows from that in the worst case. Let A be the share of the attention in it and R the rest, the
read-out and the rounding: the worst case is at most R + A, and since ‖·‖₂ ≤ ‖·‖₁ for every error kernel, Minkowski gives

    E|error|² ≤ (R + √v A)²,      and E|û_j − u_j|² ≤ v e_k² for the coordinates of a memory that is promised to e_k.      (M.3)

Curved read-outs of tokens of dimension d have min(1, √(vd)) in the place of √v: the slotwise part of (M.2) adds up d coordinates, and
the worst case bounds the mean. (M.3) holds for Gaussian tokens as well where the read-out is affine: R then bounds Σ_j |δ_j| ‖κ_j‖₁ +
|δ_0| for the difference δ·u + δ_0 of read-out and target, and the root mean square of a coordinate of the stream is at most its ‖κ_j‖₁.

`floor` is what no network of the class can beat, null where nothing is said about it.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l2_norms import square
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.targets.protocol import LayerTarget, Target
from analyzer.targets.tokens import TOKEN_LAWS, TokenLaw
from constructions.network.transformer import Transformer, to_exact
from constructions.run.execute import evaluated
from constructions.run.fused import FusedLayer, fuse
from verify.chain.certificate import Certificate, Part
from verify.chain.layer import FFN_BITS
from verify.chain.mean_square import Curved, MeanSquare, affine_mean_square, coordinate_mean_square, curved_mean_square, variance_of
from verify.layers.dp_free import layer_error
from verify.layers.finite_windows import array_layer
from verify.layers.functionals import LATEST
from verify.theorems.floors import infinite_floor

DP_FREE, MEASURED = "dp-free layer", "measured"
"""What stands in a theorem's place: the names of `verify.theorems.no_theorem`."""
NORM = "mean-square"
SEQUENCES = 4096
"""Random sequences of a sampled mean: its standard error is 1/64 of the spread of |error|²."""
LENGTH = 128
"""Their tokens, unless lags reach further back."""
STANDARD_ERRORS = 5
"""A sampled mean is off by more than so many standard errors once in a million runs."""
NOISE = 2.0**-40
"""Exact networks are sampled in float64: by this share of the largest output a root mean square may be rounding."""
BELOW = arb(1) - arb(2) ** -40
"""Numbers that were rounded up by an ulp, taken from below."""
NOT_COVERED = "rounding is not covered: it has no bound over Gaussian tokens; the mean is that of the exact function"
NOT_COUNTED = "rounding is not covered: the mean is that of the exact function of the stored weights"


def verify_mean_square(
    network: Transformer,
    target: Target,
    tokens: str = "uniform",
    promised: Certificate | None = None,
    length: int | None = None,
    seed: int = 0,
) -> Certificate:
    """The certificate in mean square; `promised` is that of the worst case, if a theorem promises it, `length` that of finite windows."""
    start = time.perf_counter()
    law = TOKEN_LAWS[tokens]
    layered = _layered(network, target, law)
    length = None if network.layers[0].attention.window == "infinite" else length
    try:
        found, layer = _mean_square(network, layered, law, promised, length)
    except Refusal as refusal:
        return _measured(network, target, law, str(refusal), length, seed, start)
    details = mean_square_details(law, network, target, affine=found.closed, length=length)
    if found.rounding is None:
        details["not_covered"] = NOT_COUNTED if law.bounded else NOT_COVERED
    if found.closed:
        past = "infinite past" if length is None else f"the last of {length} tokens"
        witness, trivial, said = lower(found.witness), lower(variance_of(layered, law)), f"lower end of the closed form, {past}"
    else:
        details["sampled"] = sample(network, target, law, length, seed)
        witness, trivial, said = _sampled_sides(network, details["sampled"])
    most = found.certified if promised is None or found.closed else found.certified.min(square(arb(promised.certified)))
    certified = upper(most)
    chain: dict[str, Any] = {"theorem": DP_FREE, "bound": certified, "parts": (Part("one dp-free layer", certified, certified),)}
    if promised is None:
        details["arithmetic"] = network.dtype if found.rounding is not None else "exact weights; rounding not counted"
    else:
        chain = _promised(promised, layered, layer, law)
    return Certificate(
        **chain,
        witness=witness,
        witness_input=said,
        certified=certified,
        rounding=0.0 if found.exact else upper((most - found.most).max(arb(0))),
        trivial=trivial,
        least_heads=None,
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start + (0.0 if promised is None else promised.seconds),
        details=details,
    )


def mean_square_details(
    law: TokenLaw, network: Transformer, target: Target, *, affine: bool = False, length: int | None = None
) -> dict[str, Any]:
    """What a certificate says about its norm; `floor` is what no decays and weights of so many heads can beat, where that is known."""
    floor = infinite_floor(network, target, law, affine).value if length is None else None
    return {"norm": NORM, "tokens": law.name, "variance": lower(arb(law.variance)), "floor": floor}


def _layered(network: Transformer, target: Target, law: TokenLaw) -> LayerTarget:
    """The target as a layer's; refused where random tokens of this law are none of its tokens."""
    if network.dim != target.dim:
        raise InputError(f"the network reads tokens of dimension {network.dim}, the target has {target.dim}")
    if network.outputs != 1:
        raise InputError(f"a network of {network.outputs} outputs decides between values; mean squares are for one output")
    layered = target.as_layer_target
    if layered is None:
        raise InputError(f"mean squares are for fixed and kernel memories of independent tokens; this target is {target.kind}")
    if target.alphabet is not None and not (law.name == "signs" and set(target.alphabet) == {-1, 1}):
        raise InputError("the target's tokens are letters; mean squares over them are for letters -1, 1 and tokens=signs")
    return layered


def _mean_square(
    network: Transformer, target: LayerTarget, law: TokenLaw, promised: Certificate | None, length: int | None
) -> tuple[MeanSquare, FusedLayer]:
    layer = _layer_of(network, target, length)
    try:
        return affine_mean_square(network, target, layer, law), layer
    except Curved as curved:
        if promised is None or length is not None:
            return _from_the_worst_case(network, target, law, length, str(curved)), layer
    except Refusal:  # rounding of this float network is not certified
        if network.dtype == "exact":
            raise
        exact = network.map(to_exact)
        return replace(affine_mean_square(exact, target, fuse(exact), law), rounding=None), fuse(exact)
    return curved_mean_square(network, target, layer, law, promised.theorem), layer


def _from_the_worst_case(network: Transformer, target: LayerTarget, law: TokenLaw, length: int | None, reason: str) -> MeanSquare:
    """The square of the worst case, which is certified for any weights where tokens are bounded."""
    if not law.bounded:
        raise Refusal(f"{reason}: there is no closed form")
    found = layer_error(network, target, length=length)
    return MeanSquare(arb(0), square(arb(found.certified)), None if found.rounding is None else arb(0), closed=False)


def _layer_of(network: Transformer, target: LayerTarget, length: int | None) -> FusedLayer:
    """The kernels of the layer: as the executor has them, or where that is refused those of the exact weights."""
    if len(network.layers) != 1 or network.layers[0].attention.kind != "dp-free":
        kinds = ", ".join(sorted({layer.attention.kind for layer in network.layers}))
        raise Refusal(f"mean squares are certified for one dp-free layer; this network has {len(network.layers)}, attention {kinds}")
    attention = network.layers[0].attention
    if any(p != "none" for p in network.layers[0].feedforward.precision) or attention.window == "full":
        raise Refusal("mean squares are certified for real read-outs, and windows that do not look ahead")
    if attention.window == "finite":
        if length is None or not target.places[-1] < length <= LATEST:
            raise Refusal(f"the window is finite; its arrays need a length above lag {target.places[-1]} and at most {LATEST}")
        return array_layer(network.map(to_exact), length)
    try:
        return fuse(network)
    except InputError:  # a float network with an embedding bias
        return fuse(network.map(to_exact))


def _promised(worst: Certificate, target: LayerTarget, layer: FusedLayer, law: TokenLaw) -> dict[str, Any]:
    """(M.3): theorem, bound and parts from the certificate of the worst case."""
    *memories, readout = worst.parts
    with working_precision(FFN_BITS):
        variance = arb(law.variance)
        rest = arb(readout.bound) + (arb(worst.rounding) if law.bounded else 0)
        attention = (arb(worst.bound) - (arb(readout.bound) + arb(worst.rounding)) * BELOW).max(arb(0))
        share = arb(1).min((variance * target.dim).sqrt()) if target.readout.ridges else variance.sqrt()
        bound = square(rest + share * attention)

        def promise(error: float) -> float:
            return upper(variance * square(arb(error)))

        parts = [
            Part(part.name, max(upper(coordinate_mean_square(target, layer, j, law)) for j in target.readout.slot(k)), promise(part.bound))
            for k, part in enumerate(memories, start=1)
        ]
        parts.append(Part(readout.name, upper(square(arb(readout.certified))), upper(square(arb(readout.bound)))))
    return {"theorem": worst.theorem, "bound": upper(bound), "parts": tuple(parts), "faults": worst.faults}


def sample(network: Transformer, target: Target, law: TokenLaw, length: int | None, seed: int) -> dict[str, Any]:
    """|network − f|² and the variance of f at the last of random tokens: means with their standard errors, of floats as they run."""
    length = length or max(LENGTH, 2 * target.settled)
    drawn = law.draw(np.random.default_rng(seed), (SEQUENCES, length, target.dim))
    if network.dtype != "exact":
        drawn = drawn.astype(network.dtype).astype(np.float64)
    outputs, wanted = evaluated(network, drawn)[:, -1].astype(np.float64), target.values(np)(drawn)[:, -1]
    if not np.isfinite(outputs).all():
        raise Refusal("the network's outputs are not finite numbers on random tokens: there is nothing to measure")
    squares, spread = (outputs - wanted) ** 2, (wanted - wanted.mean()) ** 2
    return {
        "mean": float(squares.mean()),
        "standard_error": float(squares.std(ddof=1) / np.sqrt(SEQUENCES)),
        "variance": float(spread.mean()),
        "variance_error": float(spread.std(ddof=1) / np.sqrt(SEQUENCES)),
        "largest": float(np.abs(wanted).max()),
        "sequences": SEQUENCES,
        "length": length,
        "seed": seed,
    }


def _sampled_sides(network: Transformer, sampled: dict[str, Any]) -> tuple[float, float, str]:
    """(mean square from below, variance of the target from below, what that is): sampled, not certified."""
    mean, spread = (max(0.0, sampled[a] - STANDARD_ERRORS * sampled[b]) for a, b in _PAIRS)
    if network.dtype == "exact":
        mean = max(0.0, mean**0.5 - NOISE * sampled["largest"]) ** 2
    said = f"sampled: {STANDARD_ERRORS} standard errors below the mean over {SEQUENCES} random sequences, seed {sampled['seed']}"
    return mean, spread, said


_PAIRS = (("mean", "standard_error"), ("variance", "variance_error"))


def _measured(network: Transformer, target: Target, law: TokenLaw, reason: str, length: int | None, seed: int, start: float) -> Certificate:
    sampled = sample(network, target, law, length, seed)
    witness, trivial, said = _sampled_sides(network, sampled)
    return Certificate(
        theorem=MEASURED,
        witness=witness,
        witness_input=said,
        certified=float("inf"),
        bound=float("inf"),
        rounding=0.0,
        trivial=trivial,
        least_heads=None,
        parts=(),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        details={
            **mean_square_details(law, network, target, length=length),
            "sampled": sampled,
            "arithmetic": network.dtype,
            "uncertified": reason,
        },
    )
