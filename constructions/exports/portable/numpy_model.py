"""The forward pass in plain numpy, function by function, to be read; exported files copy those that their network needs.

`words` says what a layer is (kind, window, rpe, …), `weights` holds its arrays by name; x is the residual stream (N, D) or (batch, N, D),
and `past` the one constant state (D,) of all positions before the array, where the tokens are 0.
"""

import math
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Words = dict[str, Any]


def part_of(weights: Arrays, prefix: str) -> Arrays:
    """Weights whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix + "."): array for name, array in weights.items() if name.startswith(prefix + ".")}


def log_hurwitz(p: float, q: np.ndarray) -> np.ndarray:
    """log ζ(p, q) = log Σ_{k≥0} (q+k)^{−p} for p > 1, q ≥ 1: twelve terms, and Euler and Maclaurin's formula for the rest."""
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
    end, corrections = q + 12, np.zeros_like(q)
    for j in range(8, 0, -1):
        corrections = bernoulli[j - 1] / math.factorial(2 * j) + (p + 2 * j - 1) / end * (p + 2 * j) / end * corrections
    rest = end / (p - 1) + 0.5 + p / end * corrections
    terms = sum(np.exp(-p * np.log1p(k / q)) for k in range(12))
    return np.log(terms + np.exp(-p * np.log1p(12 / q)) * rest) - p * np.log(q)


def stored_weights(weights: Arrays, length: int) -> np.ndarray:
    """w(s) for s = 0, …, N−1, (heads, N): g z^s in lin heads with the stored ratio z and gain g, the stored taps in all others."""
    taps = np.pad(weights["taps"], ((0, 0), (0, length)))[:, :length]
    return taps + weights["gain"][:, None] * weights["ratio"][:, None] ** np.arange(length)


def positions(words: Words, weights: Arrays, length: int) -> np.ndarray:
    """What position t adds to its score for position s, (heads, N, N): −p(t−s) in lin heads, −p log(t−s) in log heads, b(t−s) in table
    heads; −∞ where a head does not look. Where weights are stored, g z^{t−s} or taps, their logarithms."""
    steps = np.arange(length)
    distance = steps[:, None] - steps
    if words["stored"]:
        with np.errstate(divide="ignore"):
            by_distance = np.log(stored_weights(weights, length))
        return np.where(distance >= 0, by_distance[:, np.maximum(distance, 0)], -np.inf)
    rows = []
    for h, (kind, p) in enumerate(zip(words["rpe"], weights["decay"].astype(float), strict=True)):
        if kind == "table":
            table = weights["table"][h].astype(float)
            rows.append(np.where((distance >= 0) & (distance < len(table)), table[np.clip(distance, 0, len(table) - 1)], -np.inf))
            continue
        stretched = {"lin": distance, "log": np.log(np.maximum(distance, 1)), "none": 0.0 * distance}[kind]
        sees = distance >= (kind == "log") if words["window"] != "full" else np.full(distance.shape, True)
        rows.append(np.where(sees, -p * stretched, -np.inf))
    return np.array(rows)


def masses(words: Words, weights: Arrays, length: int) -> np.ndarray:
    """Logarithms of the weight of everything that lies before the array, seen from t = −1, 0, …, N−1, (heads, N+1); closed sums:
    Σ_{s>t} e^{−ps} = e^{−p(t+1)}/(1−e^{−p}), Σ_{s>t} s^{−p} = ζ(p, t+1)."""
    t = np.arange(-1.0, length)
    if words["stored"]:
        tails = np.cumsum(weights["taps"][:, ::-1], axis=1)[:, ::-1]
        tails = np.pad(tails, ((0, 0), (0, length + 1)))[:, : length + 1]
        ratio = weights["ratio"][:, None]
        with np.errstate(divide="ignore"):
            return np.where(ratio > 0, (t + 1) * np.log(np.where(ratio > 0, ratio, 1)), np.log(tails))
    rows = []
    for h, (kind, p) in enumerate(zip(words["rpe"], weights["decay"].astype(float), strict=True)):
        if kind == "lin":
            rows.append(-p * (t + 1) - np.log(-np.expm1(-p)))
        elif kind == "log":
            rows.append(log_hurwitz(p, np.maximum(t + 1, 1)))
        else:
            tails = np.append(np.logaddexp.accumulate(weights["table"][h][::-1].astype(float))[::-1], -np.inf)
            rows.append(tails[np.minimum(np.arange(length + 1), len(tails) - 1)])
    return np.array(rows)


def read_scores(words: Words, weights: Arrays, x: np.ndarray, seen: np.ndarray) -> Any:
    """The part of the scores that reads the stream: ⟨W_Q x, W_K x'⟩, or for tmx p·w·x (lin) and p·log(w·x) (log); else 0."""
    if words["kind"] == "dp-free":
        return 0.0
    if words["kind"] == "tmx":
        slot = np.moveaxis(x @ weights["pointer"].T, -1, -2)
        lin = np.array([kind == "lin" for kind in words["rpe"]])[:, None]
        return (weights["decay"][:, None] * np.where(lin, slot, np.log(np.maximum(slot, 1))))[..., None]
    queries = np.einsum("hdk,...td->...htk", weights["W_Q"], x)
    keys = np.einsum("hdk,...sd->...hsk", weights["W_K"], seen)
    return queries @ np.swapaxes(keys, -1, -2)


def attention(words: Words, weights: Arrays, x: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attn(X)_t = Σ_h W_O^h Σ_s w_h(t, s) W_V^h X_s, and the same before the array."""
    infinite, length, dtype = words["window"] == "infinite", x.shape[-2], x.dtype
    by_position = positions(words, weights, length).astype(dtype)
    scores = by_position + read_scores(words, weights, x, x)
    values = np.einsum("hdv,...sd->...hsv", weights["W_V"], x)
    past_value = np.einsum("hdv,d->hv", weights["W_V"], past)
    if infinite:  # one more column: the whole past
        before = masses(words, weights, length).astype(dtype)[:, 1:, None] + read_scores(words, weights, x, past[None])
        scores = np.concatenate([np.broadcast_to(before, (*scores.shape[:-1], 1)), scores], axis=-1)
        values = np.concatenate([np.broadcast_to(past_value[:, None], (*values.shape[:-2], 1, values.shape[-1])), values], axis=-2)
    if words["stored"] or words["kind"] in ("nf", "tmx"):
        pattern = np.exp(scores)
    elif words["kind"] == "linear":  # the scores themselves, over the number of tokens that t sees
        seen = np.isfinite(by_position)
        pattern = np.where(seen, scores, 0) / seen.sum(axis=-1, keepdims=True)
    else:
        top = scores.max(axis=-1, keepdims=True)
        pattern = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = pattern.sum(axis=-1, keepdims=True)
        pattern = pattern / np.where(total > 0, total, 1)
    attended = np.einsum("hvd,...htv->...td", weights["W_O"], pattern @ values)
    if not infinite:
        return attended, np.zeros_like(past)
    if words["kind"] in ("nf", "tmx"):
        score = masses(words, weights, 0).astype(dtype)[:, 0] + read_scores(words, weights, past[None], past[None])[:, 0, 0]
        past_value = np.exp(score)[:, None] * past_value
    return attended, np.einsum("hvd,hv->d", weights["W_O"], past_value)


def causal_sums(kernel: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ_{s≤t} K(s) x_{t−s} for kernels (out, in, S) and x (…, N, in)."""
    total = np.zeros((*x.shape[:-1], len(kernel)), x.dtype)
    for s in range(min(kernel.shape[-1], x.shape[-2])):
        total[..., s:, :] += x[..., : x.shape[-2] - s, :] @ kernel[..., s].T
    return total


def read_by_lag(words: Words, weights: Arrays, x: np.ndarray) -> np.ndarray:
    """Σ_s K(s; n_t) X_{t−s} with n_t the lag in a slot: one kernel for every lag, larger lags read as the largest."""
    attended = np.zeros_like(x)
    for j, group in enumerate(words["groups"]):
        held = x[..., group["slot"]]
        lag = np.rint(np.exp(np.minimum(held, 40)) if group["logarithm"] else held)
        kernels = weights[f"lags.{j}"]
        place = np.clip(lag - group["least"], 0, len(kernels) - 1)
        for n, kernel in enumerate(kernels):
            found = causal_sums(kernel, x[..., group["columns"]])
            attended[..., group["rows"]] += np.where((place == n)[..., None], found, 0)
    return attended


def neurons(words: Words, weights: Arrays, u: np.ndarray) -> np.ndarray:
    """W_out relu(W_in u + b_in)."""
    return np.maximum(u @ weights["W_in"] + weights["b_in"], 0) @ weights["W_out"]


def rounded(words: Words, y: np.ndarray) -> np.ndarray:
    """Coordinates marked "integer" as [y], those marked "log" as log max(1, [e^y])."""
    y = y.copy()
    for j, kind in enumerate(words["precision"]):
        if kind == "integer":
            y[..., j] = np.rint(y[..., j])
        elif kind == "log":
            y[..., j] = np.log(np.maximum(np.rint(np.exp(y[..., j])), 1))
    return y


def after_neurons(words: Words, weights: Arrays, u: np.ndarray, last: bool) -> np.ndarray:
    """The stream after the feed-forward network: X = U + FFN(U); the last one has no residual, it is the read-out."""
    change = rounded(words, neurons(words, weights, u))
    return change if last else u + change


def embedded(weights: Arrays, tokens: np.ndarray) -> np.ndarray:
    """W_E x + b_E and, where there is a table of positions, its row for every token."""
    x = tokens @ weights["embed.W_E"] + weights["embed.b_E"]
    if "pos_embed.W_pos" not in weights:
        return x
    table, length = weights["pos_embed.W_pos"], tokens.shape[-2]
    if length > len(table):
        raise ValueError(f"{length} tokens are more than the {len(table)} that this network has positions for")
    return x + table[:length]


def forward_by_heads(layers: list[Words], weights: Arrays, tokens: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Outputs (…, N, c) for tokens (…, N, d), and the residual stream (…, N, D) after every attention."""
    x, past = embedded(weights, tokens), weights["embed.b_E"]
    stream = []
    for i, words in enumerate(layers):
        heads, ffn = part_of(weights, f"blocks.{i}.attn"), part_of(weights, f"blocks.{i}.mlp")
        attended, past_attended = attention(words, heads, x, past)
        stream.append(x + attended)
        last = i == len(layers) - 1
        x, past = after_neurons(words, ffn, x + attended, last), after_neurons(words, ffn, past + past_attended, last)
    return x, stream


def forward_by_kernels(layers: list[Words], weights: Arrays, tokens: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Outputs (…, N, c) for tokens (…, N, d), and the stream (…, N, D) after every attention: U_t = offset + Σ_s K(s) x_{t−s}."""
    parts = [part_of(weights, f"blocks.{i}.attn") for i in range(len(layers))]
    stream = [part["offset"] + causal_sums(part["kernel"], tokens) for part in parts]
    return after_neurons(layers[-1], part_of(weights, f"blocks.{len(layers) - 1}.mlp"), stream[-1], True), stream


def forward_by_lags(layers: list[Words], weights: Arrays, tokens: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Outputs (…, N, c) for tokens (…, N, d), and the residual stream (…, N, D) after every attention."""
    x, stream = tokens @ weights["embed.W_E"] + weights["embed.b_E"], []
    for i, words in enumerate(layers):
        u = x + read_by_lag(words, part_of(weights, f"blocks.{i}.attn"), x)
        stream.append(u)
        x = after_neurons(words, part_of(weights, f"blocks.{i}.mlp"), u, i == len(layers) - 1)
    return x, stream
