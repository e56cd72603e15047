"""The Transformer of Wang & E as a JAX pytree.

    X⁰_t = W_E x_t + b_E [+ P_t];   U = X + Attn(X);   X ← U + FFN(U);   the last FFN has no residual: it is the read-out.
    Attn(X)_t = Σ_h W_O^h Σ_s w_h(t, s) W_V^h X_{t−s},   FFN(u) = A relu(B u + c), on some coordinates rounded ("FFN with precision")

| attention | score                          | weight                                   |
|-----------|--------------------------------|------------------------------------------|
| dp-free   | p φ(s)                         | softmax over the past                    |
| dp        | ⟨W_Q X_t, W_K X_{t−s}⟩ + p φ(s) | softmax over the past                    |
| nf        | the same                       | e^score, not normalised                  |
| tmx       | p (φ(s) − φ(w·X_t))            | e^score, not normalised                  |
| linear    | ⟨W_Q X_t, W_K X_{t−s}⟩         | score / number of tokens that t sees     |

φ(s) = −s for `lin` heads (s ≥ 0) and −log s for `log` heads (s ≥ 1), chosen per head. Layers of `table` heads have a learnt bias per
distance instead, b_h(s) in place of p φ(s), as T5 but without its buckets: they see the distances 0 ≤ s < S of their table and no
others, so their sums are finite; their p is 0, and they need a softmax (dp-free or dp). Layers of `kerple` heads have a rate r as well,
φ(s) = −log(1 + rs) for s ≥ 0. With a `stride` c the heads of a layer see the distances 0, c, 2c, … and no others, with φ(s/c) in place of
φ(s); kerple heads and strides come with dp-free attention over the whole past. `window` says what the softmax runs over:
"infinite" (the whole past; a finite array stands for the sequence that is 0 before it, and each layer carries the constant state of
those positions), "finite" (the tokens of the array up to t) or "full" (all tokens of the array, before and after t). Heads of type `none`
do not see positions: φ = 0, their p is 0, and they need a finite or full window, as linear attention does, all of whose heads are such.
For tmx a lag slot w·X_t below 1 reads as 1 in log heads.

A network may have absolute positions: a table P whose row j is added to the embedding of the j-th token of an array, j = 0, 1, …. Arrays
are then no longer than the table, and the constant state before an array is b_E, without a position.

The same classes hold exact networks: then the leaves are numpy arrays of rationals (`fmpq`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal, Remedy
from analyzer.numbers.exact import nearest, rational
from constructions.network.form import AttentionKind, Window


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Attention:
    """H heads on a residual stream of width D. `query`, `key` have no rows and `pointer` no entries where the kind does not use them."""

    decay: Any  # (H,)       p_h > 0, or 0 for heads of type none or table
    value: Any  # (H, dv, D) W_V
    output: Any  # (H, D, dv) W_O
    query: Any  # (H, dk, D) W_Q, dk = 0 unless dp or nf
    key: Any  # (H, dk, D) W_K
    pointer: Any  # (H, D) w of tmx, (0, D) otherwise
    rpe: tuple[str, ...] = field(metadata={"static": True})
    kind: AttentionKind = field(default="dp-free", metadata={"static": True})
    window: Window = field(default="infinite", metadata={"static": True})
    table: Any = None  # (H, S) b_h(s) if all heads are of type table
    rate: Any = None  # (H,) r_h > 0 if all heads are of type kerple
    stride: int = field(default=1, metadata={"static": True})

    def heads_of(self, rpe: str) -> np.ndarray:
        """Indices of the heads of one RPE type."""
        return np.array([h for h, kind in enumerate(self.rpe) if kind == rpe], dtype=int)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FeedForward:
    """A relu(B u + c), then `precision` per output coordinate: "integer" for [y], "log" for log[e^y], "none"; empty means none at all.

    [·] is the nearest integer, ties to even, and log[e^y] is log max(1, [e^y]).
    """

    inner: Any  # (m, D)   B
    bias: Any  # (m,)     c
    outer: Any  # (out, m) A
    precision: tuple[str, ...] = field(default=(), metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Layer:
    attention: Attention
    feedforward: FeedForward


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transformer:
    embedding: Any  # (D, d) W_E
    bias: Any  # (D,)   b_E
    layers: tuple[Layer, ...]
    positions: Any = None  # (P, D) a row for every token of an array, if the network has absolute positions

    @property
    def dtype(self) -> str:
        """`exact`, or the name of the float type of the leaves."""
        kind = self.embedding.dtype
        return "exact" if kind == np.dtype(object) else str(kind)

    @property
    def dim(self) -> int:
        return int(self.embedding.shape[1])

    @property
    def outputs(self) -> int:
        """Outputs per position: 1 where the theorems speak of a network, one per class in classifiers."""
        return int(self.layers[-1].feedforward.outer.shape[0])

    @property
    def longest(self) -> int | None:
        """The most tokens of an array: as many as the table of positions has rows; None if there is no such number."""
        return None if self.positions is None else len(self.positions)

    def within(self, length: int) -> int:
        """So many tokens, or as many as the network takes, if these are fewer."""
        return length if self.longest is None else min(length, self.longest)

    def sizes(self) -> dict[str, int]:
        """layers, heads (the most in a layer), width, model_dim, and parameters: the count of all stored weights; outputs, if several."""
        several = {"outputs": self.outputs} if self.outputs > 1 else {}
        return {
            "layers": len(self.layers),
            "heads": max(len(layer.attention.rpe) for layer in self.layers),
            "width": max(int(layer.feedforward.inner.shape[0]) for layer in self.layers),
            "model_dim": int(self.embedding.shape[0]),
            "parameters": sum(int(np.size(leaf)) for leaf in jax.tree.leaves(self)),
            **several,
        }

    def first(self, count: int) -> "Transformer":
        """Embedding, positions and the first `count` layers."""
        return replace(self, layers=self.layers[:count])

    def map(self, function: Callable[[Any], Any]) -> "Transformer":
        """The network with every weight array replaced."""
        return jax.tree.map(function, self)


def check_tokens(network: Transformer, tokens: Any) -> np.ndarray:
    """Tokens (N, d) or (batch, N, d) as an array; refused unless they are finite real numbers in [−1, 1]."""
    given = np.asarray(tokens)
    if given.ndim not in (2, 3) or given.shape[-1] != network.dim or given.size == 0:
        raise InputError(f"tokens have shape {given.shape}; expected (N, {network.dim}) or (batch, N, {network.dim}), not empty")
    if given.dtype.kind not in "fiu" or not np.isfinite(given).all():
        raise InputError("tokens must be finite real numbers")
    if given.max() > 1 or given.min() < -1:
        raise InputError("tokens must lie in [-1, 1]: outside it no certificate holds")
    return given


def checked_decays(attention: Attention) -> np.ndarray:
    """The decays as rationals; refused unless every head's mass is finite: p > 0 (lin), p > 1 (log, kerple); tables are finite anyway."""
    decays = to_exact(attention.decay)
    if len(decays) != len(attention.rpe):
        raise InputError(f"{len(decays)} decays for {len(attention.rpe)} heads")
    for kind, p in zip(attention.rpe, decays, strict=True):
        if kind != "table" and not p > (1 if kind in ("log", "kerple") else 0):
            raise InputError(f"a {kind} head has decay {nearest(p):.3g}: its weights over the infinite past do not add up")
    return decays


def table_weights(attention: Attention) -> list[list[arb]]:
    """e^{b(s)} / Σ e^{b} for every head of type table, at the working precision."""
    powers = [[arb(b - max(row)).exp() for b in row] for row in to_exact(attention.table)]  # e^{10³⁰} is beyond balls too
    return [[w / sum(row, arb(0)) for w in row] for row in powers]


def check_plain(attention: Attention, what: str, *remedies: Remedy) -> None:
    """Refuse kerple heads and strides where something is done that knows neither, with what would be known instead."""
    if attention.rate is not None or attention.stride > 1:
        kind = "kerple heads" if attention.rate is not None else f"heads with a stride ({attention.stride})"
        reason = f"{what} is not there for {kind}, only for lin, log and table heads that see every token"
        raise Refusal(reason, *remedies)


def check_relative(network: Transformer, what: str) -> None:
    """Refuse absolute positions and linear attention where something is done that knows neither."""
    if network.positions is not None:
        raise Refusal(f"{what} is not there for networks with a table of absolute positions")
    if any(layer.attention.kind == "linear" for layer in network.layers):
        raise Refusal(f"{what} is not there for linear attention")


def exact_array(values: Any) -> np.ndarray:
    """An array of rationals from nested lists of integers and rationals."""
    raw = np.array(values, dtype=object)
    result = np.empty(raw.shape, dtype=object)
    for index, value in np.ndenumerate(raw):
        result[index] = value if isinstance(value, fmpq) else rational(value)
    return result


def zeros(*shape: int) -> np.ndarray:
    """An array of rational zeros."""
    result = np.empty(shape, dtype=object)
    result.fill(fmpq(0))
    return result


def to_float(array: np.ndarray, dtype: str) -> np.ndarray:
    """Rationals rounded to a float type (numbers beyond its range become infinite and are refused by the caller)."""
    result = np.empty(array.shape, dtype=np.float64)
    for index, value in np.ndenumerate(array):
        result[index] = nearest(value)
    with np.errstate(over="ignore"):
        return result.astype(dtype)


def to_exact(array: Any) -> np.ndarray:
    """Floats as the rationals they are."""
    values = np.asarray(array)
    if values.dtype == object:
        return values
    result = np.empty(values.shape, dtype=object)
    for index, value in np.ndenumerate(values):
        result[index] = rational(float(value))
    return result
