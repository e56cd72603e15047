"""The certificate of in-context gradient descent: how far a stored network is from L steps, for all examples and queries of the box.

The network is a polynomial of high degree in N(d + 1) + d numbers, but it differs from gradient descent by little things only, and these
are followed through the layers: |computed − ideal| for every slot, from the stored weights and from the roundings of the executor (none in
exact networks), where *ideal* is the theorem's own network in exact arithmetic. Nothing is assumed about a weight but the shapes of its
array: one that is not the theorem's is one more difference, so that a changed network gets a larger certified error.

In a layer let q̂, k̂, v̂ be computed from the states and ŵ_ts = ⟨q̂_t, k̂_s⟩, with ideal w_ts = ⟨x_t, x_s⟩ (0 for s the query), v_s = r_s:

    m̂_t − m_t = (1/n) Σ_s (ŵ_ts − w_ts) v̂_s + (1/n) Σ_s w_ts (v̂_s − r̂_s) + (N/n) (G (r̂ − r))_t + roundings.

The last but one term is kept together with r̂ − r: (I − ηG)(r̂ − r), a contraction up to ρ in root mean square over the examples. All others
are bounded token by token, with |w_ts| ≤ d, (1/N) Σ_i |v̂_i| ≤ rms(v̂), rms(r) ≤ ρ^k and |p| ≤ ηd Σ_{j<k} ρ^j, by Cauchy and Schwarz.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, fmpq

from analyzer.errors import Refusal
from analyzer.numbers.exact import lower, maximum, upper, working_precision
from analyzer.targets.tasks.in_context_gd import InContextTarget
from analyzer.theorems.library.in_context_gd import ID, STEP_LEMMA, promised, proof_graph
from constructions.network.transformer import Attention, Transformer, to_exact
from constructions.run.execute import run
from constructions.theorems.library.in_context_gd import assemble
from verify.chain.certificate import Certificate, StrangeWeights, matched
from verify.chain.rounding import ONE, Arithmetic, Rounded
from verify.theorems.library.nearby import ZERO, ExactArithmetic, applied, arithmetic_of, slot_readout

BITS = 512
TRIED = 24
"""Regressions that are run for the witness."""


@dataclass(frozen=True)
class Drift:
    """|computed − ideal| of a stream: `plain` for the slots of example and query (sup over tokens), `residual` in root mean square over the
    examples, `asked` for the query's residual, `prediction` (sup over tokens); and the largest error `step` that a layer added, as a share
    of ρ^k."""

    plain: tuple[arb, ...]
    residual: arb
    asked: arb
    prediction: arb
    step: arb = ZERO


@dataclass(frozen=True)
class Following:
    """A stored network beside the theorem's own, in one arithmetic."""

    network: Transformer
    target: InContextTarget
    arithmetic: Arithmetic

    def applied(self, weights: np.ndarray, ideal: np.ndarray, inputs: Sequence[Rounded], size: arb) -> Rounded:
        return applied(self.arithmetic, list(weights), list(ideal), inputs, size)

    def sizes(self, k: int) -> tuple[arb, arb]:
        """(ρ^k, ηd Σ_{j<k} ρ^j): bounds of residuals in root mean square and of predictions after k steps."""
        growth = arb(self.target.growth)
        return growth**k, arb(self.target.rate * self.target.features) * sum((growth**j for j in range(k)), ZERO)

    def stream(self, drift: Drift, k: int) -> list[Rounded]:
        """Every slot at any token: the bound of its ideal value and of its error."""
        rms, predicted = self.sizes(k)
        many = arb(self.target.examples).sqrt()
        held = Rounded((many * rms).max(predicted), (many * drift.residual).max(drift.asked))
        return [*(Rounded(arb(1), error) for error in drift.plain), held, Rounded(predicted, drift.prediction)]

    def embedded(self, ideal: Transformer) -> Drift:
        """The drift before the first layer."""
        given = [ONE] * (self.target.dim + 1)
        stored, own = (np.column_stack([to_exact(one.embedding), to_exact(one.bias)]) for one in (self.network, ideal))
        errors = [self.applied(a, b, given, arb(1)).error for a, b in zip(stored, own, strict=True)]
        return Drift(tuple(errors[:-2]), errors[-2], errors[-2], errors[-1])

    def mean(self, attention: Attention, own: Attention, before: Drift, k: int) -> arb:
        """|m̂_t − m_t − (N/n)(G (r̂ − r))_t|: what is wrong about the mean beyond the residuals themselves."""
        arithmetic, target, slots = self.arithmetic, self.target, self.stream(before, k)
        d, N, n = target.features, target.examples, target.length
        rms, predicted = self.sizes(k)
        query, key = (
            [self.applied(a, b, slots, arb(1)).error for a, b in zip(to_exact(one)[0], to_exact(other)[0], strict=True)]
            for one, other in ((attention.query, own.query), (attention.key, own.key))
        )
        pairs = list(zip(query, key, strict=True))
        skewed = sum((a + b + a * b for a, b in pairs), ZERO)  # |⟨q̂, k̂⟩ − ⟨q, k⟩| for the key of an example …
        strange = sum(((1 + a) * b for a, b in pairs), ZERO)  # … and for that of the query, which is ideally 0
        reader, picked, held = to_exact(attention.value)[0, 0], to_exact(own.value)[0, 0], slots[2 * d]
        off = abs(arb(reader[2 * d] - 1)) - abs(arb(reader[2 * d]))
        misread = self.applied(reader, picked, slots, held.magnitude).error + off * held.error  # |v̂ − r̂|
        values = rms + before.residual + misread  # rms of v̂ over the examples
        asked = (predicted + before.asked + misread) / n  # the query's share of the mean, for a product of 1
        share = arb(fmpq(N, n))
        whole = share * (d + skewed) * values + strange * asked  # Σ |q̂ k̂ v̂| / n
        flushed = 4 * (n * d + 1) * arithmetic.tiny * (2 + d + skewed) ** 2 * (1 + held.magnitude + held.error + misread)
        arithmetic.checked(Rounded(n * whole, n * flushed))
        moved = share * (skewed * values + d * misread) + strange * asked
        return moved + arithmetic.gamma(n + d + 4) * whole + flushed

    def layer(self, attention: Attention, own: Attention, before: Drift, k: int) -> Drift:
        """The drift after layer k + 1 (its attention; there are no neurons before the read-out)."""
        target, fresh = self.target, self.mean(attention, own, before, k)
        step, scale = abs(arb(to_exact(own.output)[0, -1, 0])), arb(fmpq(target.examples * target.features, target.length))
        rms, shifted = self.sizes(k)[0], scale * before.residual  # |(N/n)(G (r̂ − r))_t| ≤ shifted, |m_t| ≤ scale · rms
        outputs = (to_exact(one.output)[0, :, 0] for one in (attention, own))
        added = [self._written(a, b, fresh, scale * rms + shifted + fresh) for a, b in zip(*outputs, strict=True)]
        size, further = self.sizes(k + 1)
        return Drift(
            tuple(self._sum(error, more, arb(1)) for error, more in zip(before.plain, added[:-2], strict=True)),
            self._sum(arb(target.growth) * before.residual, added[-2], size),
            self._sum(before.asked + step * shifted, added[-2], further),
            self._sum(before.prediction + step * shifted, added[-1], further),
            before.step.max(maximum(added) / rms),
        )

    def _written(self, weight: fmpq, ideal: fmpq, fresh: arb, size: arb) -> arb:
        """|ŵ m̂ − w m − w (N/n)(G (r̂ − r))| for an entry w of W_O: what is new in this layer; `size` bounds |m̂|."""
        if weight == 0 and ideal == 0:
            return ZERO
        stored = abs(arb(weight))
        rounded = self.arithmetic.gamma(1) * stored * size + 4 * self.arithmetic.tiny * (1 + stored + size)
        return abs(arb(ideal)) * fresh + abs(arb(weight - ideal)) * size + rounded

    def _sum(self, error: arb, more: arb, size: arb) -> arb:
        """The error of a slot of this size after something with an error of its own is added, which rounds once, unless it is 0."""
        if more == 0:
            return error + self.arithmetic.tiny
        total = Rounded(size, error + more + self.arithmetic.unit * (size + error + more) + self.arithmetic.tiny)
        return self.arithmetic.checked(total).error

    def followed(self) -> tuple[arb, arb]:
        """(the error of the output, the largest share that one layer adds)."""
        ideal = assemble(self.target)
        drift = self.embedded(ideal)
        for k, (layer, own) in enumerate(zip(self.network.layers, ideal.layers, strict=True)):
            drift = self.layer(layer.attention, own.attention, drift, k)
        stored, meant = (one.layers[-1].feedforward for one in (self.network, ideal))
        stream = self.stream(drift, self.target.steps)
        return slot_readout(self.arithmetic, stored, meant, stream, len(stream) - 1).upper(), drift.step.upper()


def check_shapes(network: Transformer, target: InContextTarget) -> None:
    """Refuse what is not of the theorem's shape: one head of linear attention over all tokens per step, no neurons but the read-out's."""
    ideal, wrong = assemble(target), []
    if len(network.layers) != target.steps:
        raise StrangeWeights(f"not a network of {ID}: {len(network.layers)} layers for {target.steps} steps")
    if network.positions is not None:
        wrong.append("a table of positions")
    for k, (layer, own) in enumerate(zip(network.layers, ideal.layers, strict=True), start=1):
        if (layer.attention.kind, layer.attention.window, layer.attention.rpe) != ("linear", "full", ("none",)):
            wrong.append(f"layer {k} has {layer.attention.kind} attention over a {layer.attention.window} window")
        parts = [(getattr(layer.attention, name), getattr(own.attention, name)) for name in ("query", "key", "value", "output")]
        parts += [(getattr(layer.feedforward, name), getattr(own.feedforward, name)) for name in ("inner", "bias", "outer")]
        if any(np.shape(a) != np.shape(b) for a, b in parts) or layer.feedforward.precision:
            wrong.append(f"layer {k} has other shapes")
    if np.shape(network.embedding) != ideal.embedding.shape:
        wrong.append(f"tokens of {network.dim} coordinates")
    if wrong:
        raise StrangeWeights(f"not a network of {ID}: {wrong[0]}")


def verify(network: Transformer, target: InContextTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network against L steps of gradient descent."""
    start = time.perf_counter()
    check_shapes(network, target)
    with working_precision(BITS):
        exact, _ = Following(network, target, ExactArithmetic()).followed()
        certified, step = Following(network, target, arithmetic_of(network.dtype)).followed()
        bound, step_bound = promised(target, network.dtype)
        witness, worst = _witness(network, target)
        return Certificate(
            theorem=ID,
            witness=witness,
            witness_input=worst,
            certified=upper(certified),
            bound=upper(bound),
            rounding=upper((certified - exact).upper()) if network.dtype != "exact" else 0.0,
            trivial=target.constant_error(),
            least_heads=None,
            parts=matched(proof_graph("none", bank, ffn, ()), {STEP_LEMMA: (step, step_bound)}),
            sizes=network.sizes(),
            dtype=network.dtype,
            seconds=time.perf_counter() - start,
            details={"growth": upper(arb(target.growth)), "steps": target.steps},
        )


def in_balls(network: Transformer, tokens: np.ndarray) -> list[arb]:
    """The outputs of a network of linear attention at all tokens (n, 2d + 1), as the exact function of its weights."""

    def matrix(array: np.ndarray) -> arb_mat:
        return arb_mat([[arb(value) for value in row] for row in to_exact(array)])

    bias = matrix(np.asarray(network.bias)[:, None])
    count = len(tokens)
    stream = matrix(network.embedding) * matrix(np.asarray(tokens, dtype=float).T) + bias * arb_mat([[1] * count])
    for layer in network.layers:
        one = layer.attention
        query, key, value = (matrix(part[0]) * stream for part in (one.query, one.key, one.value))
        stream = stream + matrix(one.output[0]) * (value * (key.transpose() * query)) * (arb(1) / count)
    ffn = network.layers[-1].feedforward
    hidden = matrix(ffn.inner) * stream + matrix(np.asarray(ffn.bias)[:, None]) * arb_mat([[1] * count])
    outer = to_exact(ffn.outer)[0]
    return [sum((arb(a) * hidden[i, t].max(ZERO) for i, a in enumerate(outer)), ZERO) for t in range(count)]


def _witness(network: Transformer, target: InContextTarget) -> tuple[float, str]:
    """The largest error at the query of some regressions: run in floats, or evaluated in balls."""
    rng = np.random.default_rng(0)
    ones = target.tokens(np.ones((1, target.examples, target.features)), np.ones((1, target.examples)), np.ones((1, target.features)))
    tried = 1 if network.dtype == "exact" else TRIED
    tokens = np.concatenate([ones, *(target.draw(rng, (tried, target.length), signs) for signs in (False, True))])
    if network.dtype == "exact":
        outputs = [in_balls(network, sequence)[-1] for sequence in tokens]
    else:
        tokens = tokens.astype(network.dtype).astype(float)
        computed = run(network, tokens)[:, -1]
        if not np.isfinite(computed).all():
            raise Refusal(f"{network.dtype} overflows in this network: its outputs are not finite numbers", {"dtype": "exact"})
        outputs = [arb(float(y)) for y in computed]
    errors = [lower(abs(y - target.exact_value(sequence))) for y, sequence in zip(outputs, tokens, strict=True)]
    worst = int(np.argmax(errors))
    names = ["all ones"] + [f"regression {i + 1} of {kind}" for kind in ("uniform numbers", "signs") for i in range(tried)]
    return max(0.0, errors[worst]), f"{names[worst]}, at the query"
