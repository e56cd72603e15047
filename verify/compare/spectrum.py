"""The spectrum of an attention head's logits on data.

A head scores a pair of tokens by ρ(u, v) = ⟨W_Q u, W_K v⟩. With the tokens of an array as an empirical distribution μ, ρ is the kernel of
the operator f ↦ ∫ρ(·, v) f(v) dμ(v) on L²(μ), and its singular values are those of the logit matrix divided by √(rows · columns): that
division makes numbers from arrays of different length estimates of the same σ_k. Sequences of a batch are stacked, so rows and columns run
over all their tokens, whoever attends to whom. By Eckart and Young, √Σ_{k>m} σ_k² is the least mean-square error of a head of dimension m
that replaces this one.

The matrix is never formed. Q (N × d_k) and K (N × d_k) are factored as U_Q R_Q and U_K R_K; the singular values are those of R_Q R_Kᵀ, and
all of it costs O(N d_k²).

**Centred logits.** Softmax does not see a function of the query alone: ρ and ρ(u, v) − g(u) give the same attention. Among all g the mean
over keys, g(u) = ∫ρ(u, v) dμ(v), makes *every* singular value least: what remains is ρP with P the projection off the constants, and
(ρ − g ⊗ 1)P = ρP whatever g is. So the spectrum of the centred logits is that of the coupling as softmax sees it, and
σ_{k+1}(ρ) ≤ σ_k(ρP) ≤ σ_k(ρ).
Heads without a normaliser (`nf`) do see g; for them the plain logits count.

**Summaries** of σ_1 ≥ σ_2 ≥ …, with shares q_k = σ_k²/Σσ²: the effective rank exp(−Σ q_k log q_k); how many values hold 99 % of Σσ²; the
decay exponent α of σ_k ≈ c k^{−α}, a least-squares line through (log k, log σ_k) for k up to the numerical rank, with the standard error of
its slope (as if deviations from the line were independent, which those of ordered values are not); the tail shares Σ_{k>m} q_k for
m = 1, 2, …: the relative squared error of the best head of dimension m.

Everything here is computed in float64 from samples: it describes the data at hand and encloses nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analyzer.errors import InputError
from constructions.files.models.parts import Logits
from constructions.files.scores import Scores

ENERGY = 0.99
"""The share of Σσ² that `values_for_99_percent` counts to."""
MAX_OPERATIONS = 1 << 38
"""Multiplications for the queries, keys, factors and singular values of a layer: about a minute on one core."""
SVD_COST = 10
"""Multiplications per n³ for the singular values of two n × n matrices, a customary estimate."""
LEAST_POINTS = 3
"""Two points always lie on a line: no standard error below three."""


@dataclass(frozen=True)
class PowerLaw:
    """y ≈ e^{intercept} x^{exponent}, fitted in logarithms, with the standard error of the exponent."""

    exponent: float
    error: float
    intercept: float


@dataclass(frozen=True)
class LogitSpectrum:
    """Singular values, largest first (0 where they drown in rounding), and their summaries."""

    singular_values: tuple[float, ...]
    numerical_rank: int
    effective_rank: float
    values_for_99_percent: int
    decay_exponent: float | None
    decay_error: float | None
    tail_shares: tuple[float, ...]


@dataclass(frozen=True)
class HeadSpectrum:
    """One head: its logits as they are, and as softmax sees them."""

    layer: int
    head: int
    name: str
    dk: int
    tokens: int
    plain: LogitSpectrum
    centred: LogitSpectrum

    def as_dict(self) -> dict[str, Any]:
        place = {"layer": self.layer, "head": self.head, "name": self.name, "dk": self.dk, "tokens": self.tokens}
        return {**place, **asdict(self.plain), "centred": asdict(self.centred)}


def power_law(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> PowerLaw | None:
    """Least squares in logarithms; None unless there are three points, two of them apart, and all are positive and finite."""
    points, values = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(points) < LEAST_POINTS or not (np.isfinite(values).all() and (values > 0).all() and (points > 0).all()):
        return None
    u, v = np.log(points), np.log(values)
    spread = float(((u - u.mean()) ** 2).sum())
    if spread == 0:
        return None
    slope = float(((u - u.mean()) * (v - v.mean())).sum()) / spread
    rest = v - v.mean() - slope * (u - u.mean())
    error = float(np.sqrt((rest**2).sum() / (len(points) - 2) / spread))
    return PowerLaw(slope, error, float(v.mean() - slope * u.mean()))


def summarise(values: np.ndarray) -> LogitSpectrum:
    """The summaries of singular values in descending order; zeros at the end are beyond the numerical rank."""
    rank = int(np.count_nonzero(values))
    if rank == 0:
        return LogitSpectrum(tuple(map(float, values)), 0, 0.0, 0, None, None, (0.0,) * len(values))
    energy = (values / values[0]) ** 2
    share = energy / energy.sum()
    used = share[share > 0]
    # the tail is added from its small end: 1 − cumulated share would be all rounding there
    tail = np.append(np.cumsum(share[::-1])[::-1][1:], 0.0)
    fitted = power_law(np.arange(1, rank + 1), values[:rank])
    return LogitSpectrum(
        singular_values=tuple(map(float, values)),
        numerical_rank=rank,
        effective_rank=float(np.exp(-(used * np.log(used)).sum())),
        values_for_99_percent=int(np.argmax(tail <= 1 - ENERGY)) + 1,
        decay_exponent=None if fitted is None else -fitted.exponent,
        decay_error=None if fitted is None else fitted.error,
        tail_shares=tuple(map(float, tail)),
    )


def _triangular(factor: np.ndarray) -> np.ndarray:
    """R of factor/√rows = U R."""
    return np.asarray(np.linalg.qr(factor / np.sqrt(len(factor)), mode="r"))


def coupling_spectra(queries: np.ndarray, keys: np.ndarray) -> tuple[LogitSpectrum, LogitSpectrum]:
    """Spectra of the logits ⟨q_i, k_j⟩/√(rows · columns), plain and with each row's mean over the keys removed.

    queries (N, d_k) and keys (N', d_k) give min(N, N', d_k) values. Those below max(N, N', d_k) · 2⁻⁵² ‖Q‖ ‖K‖, the customary size of
    what rounding leaves, are set to 0; ‖K‖ is that of the keys before centring, which is where the rounding comes from.
    """
    rows, columns = len(queries), len(keys)
    with np.errstate(over="ignore", invalid="ignore"):
        left, right, centred = (_triangular(factor) for factor in (queries, keys, keys - keys.mean(axis=0)))
        products = (left @ right.T, left @ centred.T)
        scale = np.linalg.norm(left) * np.linalg.norm(right)
    if not (all(np.isfinite(product).all() for product in products) and np.isfinite(scale)):
        raise InputError("the logits are not finite numbers in float64: weights or inputs are too large")
    noise = max(rows, columns, queries.shape[1]) * np.finfo(np.float64).eps * scale
    found = []
    for product in products:
        values = np.linalg.svd(product, compute_uv=False) if product.size else np.zeros(0)
        found.append(summarise(np.where(values > noise, values, 0.0)))
    return found[0], found[1]


def spectra(scores: Scores, layer: int, inputs: np.ndarray) -> list[HeadSpectrum]:
    """The heads of one layer on what it reads, inputs (N, D) or (batch, N, D); tokens that are not finite are left out."""

    def factors(head: int, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        queries = tokens @ scores.query[head].T + scores.query_bias[head]
        return queries, tokens @ scores.key[head].T + scores.key_bias[head]

    return _spectra(scores, layer, inputs, factors)


def model_spectra(logits: Logits, inputs: np.ndarray) -> list[HeadSpectrum]:
    """The heads of a layer of a published model, with its factor and whatever it does to queries and keys, on what the layer reads."""
    return _spectra(logits.scores, logits.layer, inputs, logits.factors)


def _spectra(
    scores: Scores, layer: int, inputs: np.ndarray, factors: Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> list[HeadSpectrum]:
    heads, dk, width = scores.query.shape
    name = scores.name[:60]
    if inputs.ndim not in (2, 3) or inputs.shape[-1] != width:
        raise InputError(f"{name} reads arrays of shape (N, {width}) or (batch, N, {width}); the input has shape {inputs.shape}")
    tokens = np.asarray(inputs, dtype=np.float64).reshape(-1, width)
    tokens = tokens[np.isfinite(tokens).all(axis=1)]
    if not len(tokens):
        raise InputError(f"what {name} reads is not finite in float64 at any token")
    if heads * (len(tokens) * dk * (width + dk) + SVD_COST * min(len(tokens), dk) ** 3) > MAX_OPERATIONS:
        size = f"{heads} heads of dimension {dk} that read {width} numbers"
        raise InputError(f"{name}: {len(tokens)} tokens are too many for {size}; give fewer, or split arrays into heads")
    result = []
    for head in range(heads):
        with np.errstate(over="ignore", invalid="ignore"):
            queries, keys = factors(head, tokens)
        if not (np.isfinite(queries).all() and np.isfinite(keys).all()):
            raise InputError(f"{name}, head {head}: queries or keys are not finite numbers in float64")
        plain, centred = coupling_spectra(queries, keys)
        result.append(HeadSpectrum(layer, head, scores.name, dk, len(tokens), plain, centred))
    return result


def describe(source: str, found: Sequence[HeadSpectrum], given: int, note: str, tokens: str = "the given tokens") -> dict[str, Any]:
    """The findings as data; `given`: tokens in the input, some of which a network may have made infinite."""
    lost = given - min(head.tokens for head in found)
    remarks = [f"sampled: computed in float64 from {tokens}, not certified", note]
    if lost:
        remarks.append(f"{lost} tokens at which the stream is not finite are left out")
    return {"source": source, "tokens": given, "note": "; ".join(filter(None, remarks)), "heads": [head.as_dict() for head in found]}
