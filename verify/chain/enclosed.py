"""Midpoints and radii: numbers that contain both the exact function of a network's weights and what the executor computes.

An `Enclosed` array has a midpoint m and a radius r, in double precision, such that at every stage

    |exact − m| ≤ r   and   |computed − m| ≤ r,

where *exact* is the value in real arithmetic with the stored weights, and *computed* the value that `constructions.run.fast` obtains in
the network's own type, whatever the order of its sums. For exact networks only the first is claimed, and the unit u of the network is 0.

Dot products. For inputs in m ± r, weights in W ± R, n terms, and both kinds of rounding, those of the network and those with which the
midpoint itself is formed in double precision (u' = u + 2^{−53}, γ = nu'/(1 − nu')),

    |W x − fl(W m)| ≤ |W| r + R (|m| + r) + γ (|W| + R)(|m| + r) + 4 n η (1 + |W| + R + |m| + r),

η being the least normal number: results below it may be flushed. Relu is 1-Lipschitz. Rounding to integers is monotone: it is exact where
m ± r lies in one cell, and otherwise the radius is half the distance of the cells at its ends.

Softmax. Let d_s be the midpoints of the logits less their maximum, p_s ∝ e^{d_s}, and let exact and computed logits be within η_s of d_s,
after a shift that is common to all s. Then either softmax is p_s e^{δ_s}/Σ p e^{δ} with |δ_s| ≤ η_s. With Z = Σ p_s e^{η_s}, Cauchy and
Schwarz give Σ p e^{−η} ≥ 1/Z, so it lies between p_s/(e^{η_s}Z) and p_s e^{η_s} Z, and with G_s = e^{η_s} Z − 1 its distance from p_s is at
most p_s G_s. For values in v_s ± r_s with mean m = Σ p_s v_s,

    |mean − m| ≤ Σ_s p_s ((1 + G_s) r_s + G_s |v_s − m|),     and in any case ≤ max_s (|v_s − m| + r_s).

η_s collects the radius of the logit, the subtraction of the maximum, u'|d_s|, and both exponentials (`exponential_error`). Logits below −X
count as −X in an exponential: such weights are off by at most e^{−X + 2 max r} each, and n of them move the mean by 2.1 n times that, times
max(|v_s − m| + r_s); it stays a mean of the values. Sums and quotient add (1 + u')(1 + γ)/(1 − γ) − 1 of the largest value.

*Rest.* Many positions at once, all that lie before the ones that are listed, enter as one more token: its logit is the logarithm of
their mass plus a score in the range of their keys, its value any mean of their values, both in boxes. Nothing else changes. In a finite
window there may be fewer of them, or none: the rest is *open*, its mass anything up to that. It then moves the mean of the listed ones by
σ = ρ/(1 + ρ) times its distance from them at most, ρ being the largest mass of the rest over the least of the others.

Radii are themselves computed in double precision: sums of fewer than 2^{20} terms that are not negative, so that the factor 1 + 2^{−30}
after every step covers their rounding.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.errors import Refusal, finer
from analyzer.numbers.exact import UNIT, nearest, rational, upper
from constructions.network.exponential import DEEPEST, exp
from constructions.network.precision import SMALLEST
from verify.chain.rounding import exponential_error

OUTWARD = 1 + 2.0**-30
DOUBLE = 2.0**-53


@dataclass(frozen=True)
class Enclosed:
    """m ± r, elementwise."""

    mid: np.ndarray
    rad: np.ndarray

    def __getitem__(self, index: Any) -> "Enclosed":
        return Enclosed(self.mid[index], self.rad[index])

    def reshape(self, *shape: int) -> "Enclosed":
        return Enclosed(self.mid.reshape(shape), self.rad.reshape(shape))

    @property
    def size(self) -> np.ndarray:
        """Upper bounds of absolute values."""
        return np.abs(self.mid) + self.rad

    @property
    def largest(self) -> float:
        return float(self.size.max(initial=0.0))


def stored(weights: np.ndarray) -> Enclosed:
    """Weights as they are stored: floats exactly, rationals rounded to double precision."""
    if weights.dtype != object:
        mid = weights.astype(np.float64)
        return Enclosed(mid, np.zeros_like(mid))
    mid = np.array([nearest(w) for w in weights.flat]).reshape(weights.shape)
    if not np.isfinite(mid).all():
        raise Refusal("a weight of this network is beyond double precision")
    exact = np.array([rational(float(m)) == w for m, w in zip(mid.flat, weights.flat, strict=True)], bool).reshape(weights.shape)
    return Enclosed(mid, np.where(exact, 0.0, 2 * DOUBLE * np.abs(mid) + 2.0**-1000))


def stacked(parts: list[Enclosed], axis: int) -> Enclosed:
    return Enclosed(np.concatenate([p.mid for p in parts], axis), np.concatenate([p.rad for p in parts], axis))


def hull(parts: list[Enclosed]) -> Enclosed:
    """The least box that contains all rows of all parts, (D,) from (…, D)."""
    low = np.min([(p.mid - p.rad * OUTWARD).reshape(-1, p.mid.shape[-1]).min(axis=0) for p in parts], axis=0)
    high = np.max([(p.mid + p.rad * OUTWARD).reshape(-1, p.mid.shape[-1]).max(axis=0) for p in parts], axis=0)
    mid = (low + high) / 2
    return Enclosed(mid, np.maximum(high - mid, mid - low) * OUTWARD + 4 * DOUBLE * np.abs(mid))


def growth(eta: np.ndarray) -> np.ndarray:
    """An upper bound of e^η − 1 for η ≥ 0: η + η² up to 1, the exponential of our own beyond, infinite where that ends."""
    far = exp(np.minimum(eta, 600.0), np) * OUTWARD
    return np.where(eta <= 1, (eta + eta**2) * OUTWARD, np.where(eta < 600, far, np.inf))


class EnclosedArithmetic:
    """Steps of a network in one float type, or of an exact one."""

    def __init__(self, dtype: str) -> None:
        executed = dtype in UNIT
        self.dtype = dtype
        self.unit = (nearest(UNIT[dtype]) if executed else 0.0) + DOUBLE
        self.tiny = nearest(SMALLEST[dtype if executed else "float64"])
        self.deepest = float(DEEPEST[dtype if executed else "float64"])
        self.slip = 1.01 * ((upper(exponential_error(dtype)) if executed else 0.0) + upper(exponential_error("float64")))
        self.most = float(np.finfo(dtype if executed else "float64").max)

    def gamma(self, terms: int) -> float:
        return terms * self.unit / (1 - terms * self.unit) * OUTWARD

    def checked(self, value: Enclosed, largest: float | None = None) -> Enclosed:
        """Refuse what may overflow, or has no finite radius; `largest` bounds what arises on the way."""
        size = value.largest if largest is None else largest
        if not size < self.most / 4 or not np.isfinite(value.rad).all():
            raise Refusal(
                f"{self.dtype} may overflow, or lose all accuracy, in this network: a value of {size:.3g} arises", *finer(self.dtype)
            )
        return value

    def linear(self, weights: Enclosed, x: Enclosed, bias: Enclosed | None = None) -> Enclosed:
        """W x + b on the last axis, (out, in) weights."""
        terms = weights.mid.shape[1] + (bias is not None)
        reach, size = weights.size, x.size
        mid = x.mid @ weights.mid.T
        rad = (x.rad + self.gamma(terms) * size) @ reach.T
        if weights.rad.any():
            rad = rad + size @ weights.rad.T
        passing = size.max(initial=0.0) * reach.sum(axis=1).max(initial=0.0)
        if bias is not None:
            mid, rad = mid + bias.mid, rad + bias.rad + self.gamma(terms) * bias.size
            passing += bias.largest
        flushed = 4 * terms * self.tiny * (1 + reach.max(initial=0.0) + size.max(initial=0.0))
        return self.checked(Enclosed(mid, rad * OUTWARD + flushed), float(passing))

    def plus(self, a: Enclosed, b: Enclosed) -> Enclosed:
        mid = a.mid + b.mid
        return self.checked(Enclosed(mid, (a.rad + b.rad + self.unit * (a.size + b.size)) * OUTWARD + 2 * self.tiny))

    def times(self, a: Enclosed, b: Enclosed) -> Enclosed:
        """A product, element by element."""
        rad = a.size * b.rad + a.rad * np.abs(b.mid) + self.unit * a.size * b.size
        return self.checked(Enclosed(a.mid * b.mid, rad * OUTWARD + 4 * self.tiny))

    def relu(self, x: Enclosed) -> Enclosed:
        return Enclosed(np.maximum(x.mid, 0), np.where(x.mid <= -x.rad, 0.0, x.rad))

    def integer(self, x: Enclosed) -> Enclosed:
        """The nearest integer, ties to even: monotone, so the ends of m ± r say where it lies."""
        low = np.rint(np.nextafter(x.mid - x.rad * OUTWARD, -np.inf))
        high = np.rint(np.nextafter(x.mid + x.rad * OUTWARD, np.inf))
        mid = (low + high) / 2
        return Enclosed(mid, np.where(low == high, 0.0, (high - low) / 2 * OUTWARD + DOUBLE * np.abs(mid)))

    def scores(self, query: Enclosed, keys: Enclosed) -> Enclosed:
        """⟨q, k_s⟩ of queries (B, H, k) and keys (B, S, H, k): (B, H, S)."""
        terms = query.mid.shape[-1]
        mid = np.einsum("bhk,bshk->bhs", query.mid, keys.mid)
        size = keys.size
        rad = np.einsum("bhk,bshk->bhs", query.size, keys.rad + self.gamma(terms + 1) * size)
        if query.rad.any():
            rad += np.einsum("bhk,bshk->bhs", query.rad, np.abs(keys.mid))
        flushed = 4 * (terms + 1) * self.tiny * (1 + query.largest + float(size.max(initial=0.0)))
        return self.checked(Enclosed(mid, rad * OUTWARD + flushed), query.largest * float(size.max(initial=0.0)) * terms)

    def linear_mean(self, query: Enclosed, keys: Enclosed, values: Enclosed) -> Enclosed:
        """Σ_s ⟨q, k_s⟩ v_s / S of queries (B, H, k), keys (B, S, H, k) and values (B, S, H, v): (B, H, v).

        It is Σ_s Σ_i q_i k_si v_s / S in any order, each term a product of three that is added at most S + k times and divided once:
        (S + k + 4)u' of |q||k||v| each, and a flushed product at most 4η (1 + |q|)(1 + |k|)(1 + |v|).
        """
        count, coordinates = keys.mid.shape[1], query.mid.shape[-1]
        mid = np.einsum("bhk,bshk,bshv->bhv", query.mid, keys.mid, values.mid, optimize=True) / count
        sizes = query.size, keys.size, values.size
        whole = np.einsum("bhk,bshk,bshv->bhv", *sizes, optimize=True)
        parts = (query.rad, sizes[1], sizes[2]), (np.abs(query.mid), keys.rad, sizes[2]), (np.abs(query.mid), np.abs(keys.mid), values.rad)
        moved = sum(np.einsum("bhk,bshk,bshv->bhv", *part, optimize=True) for part in parts)
        rad = (moved + self.gamma(count + coordinates + 4) * whole) / count
        most = (1 + query.largest) * (1 + keys.largest) * (1 + values.largest)
        flushed = 4 * (count * coordinates + 1) * self.tiny * most
        return self.checked(Enclosed(mid, rad * OUTWARD + flushed), count * (1 + coordinates) * most)

    def logits(self, scores: Enclosed, biases: Enclosed) -> Enclosed:
        """Scores (B, H, S) plus biases (H, S), whose radius counts their own rounding; −∞ stays where a head does not look."""
        sizes = scores.size.max(axis=-1, keepdims=True)
        seen = np.isfinite(biases.mid)
        known = np.where(seen, np.abs(biases.mid), 0)
        rad = scores.rad + biases.rad + self.unit * (5 * sizes + 2 * known)
        return Enclosed(scores.mid + biases.mid, np.where(seen, rad * OUTWARD, 0.0))

    def open_mean(self, logits: Enclosed, values: Enclosed, terms: int) -> Enclosed:
        """`softmax_mean` where the last column is an open rest."""
        listed = self.softmax_mean(logits[..., :-1], values[:, :-1], terms)
        rest, seen = values[:, -1], np.isfinite(logits.mid[..., :-1])
        top = np.where(seen, logits.mid[..., :-1], -np.inf).max(axis=-1, initial=-np.inf)
        nobody = ~np.isfinite(top)
        shift = np.where(nobody, 0.0, top)
        off = (logits.rad + 4 * self.slip + 4 * self.unit * self.deepest) * OUTWARD
        below = np.where(seen, logits.mid[..., :-1] - shift[..., None] - off[..., :-1], -700.0)
        least = np.where(seen, exp(below, np), 0.0).sum(axis=-1) / OUTWARD
        above = np.where(np.isfinite(logits.mid[..., -1]), logits.mid[..., -1] - shift + off[..., -1], -700.0)
        clipped = 2.1 * terms * math.exp(-self.deepest)
        ratio = (exp(above, np) + clipped) * OUTWARD / np.where(least > 0, least, 1.0)
        share = np.where(nobody | (off.max(axis=-1) > 300) | (above > 600), 1.0, ratio / (1 + ratio) * OUTWARD)[..., None]
        away = np.abs(rest.mid - listed.mid) + rest.rad + listed.rad
        rad = listed.rad + share * away + self.gamma(2 * terms + 4) * rest.size
        return self.checked(Enclosed(listed.mid, rad * OUTWARD + 8 * terms * self.tiny * (1 + rest.size)), terms * values.largest)

    def softmax_mean(self, logits: Enclosed, values: Enclosed, terms: int) -> Enclosed:
        """Σ_s softmax(a)(s) v_s for logits (B, H, S) and values (B, S, H, v), where the executor adds `terms` terms: (B, H, v)."""
        seen = np.isfinite(logits.mid)
        top = logits.mid.max(axis=-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        d = np.where(seen, logits.mid - top, -np.inf)
        weights = np.where(seen, exp(np.where(seen, d, 0.0), np), 0.0)
        total = weights.sum(axis=-1, keepdims=True)
        share = weights / np.where(total > 0, total, 1)
        mid = np.einsum("bhs,bshv->bhv", share, values.mid)
        worst = logits.rad.max(axis=-1, keepdims=True, initial=0.0)
        eta = logits.rad + self.unit * (np.where(seen, np.abs(d), 0.0) + logits.rad + worst) + self.slip
        more = growth(np.where(seen, eta * OUTWARD, 0.0))
        mean = np.where(share > 0, share * np.where(share > 0, more, 0), 0).sum(axis=-1, keepdims=True)
        with np.errstate(over="ignore", invalid="ignore"):
            excess = np.where(share > 0, share * (more + mean + more * mean), 0)  # p_s G_s
            off = np.abs(values.mid - mid[:, None])
            moved = np.einsum("bhs,bshv->bhv", share + excess, values.rad) + np.einsum("bhs,bshv->bhv", excess, off)
        furthest = (off + values.rad).max(axis=1, initial=0.0)
        clipped = 2.1 * terms * (exp(np.minimum(2 * worst - self.deepest, 0.0), np) * OUTWARD + 1e-300) * furthest
        moved = np.where(np.isfinite(moved), np.minimum(moved + clipped, furthest), furthest)
        gamma, largest = self.gamma(terms), values.size.max(axis=1, initial=0.0)
        sums = (1 + self.unit) * (1 + gamma) / (1 - gamma) - 1 + 4 * DOUBLE
        rad = (moved + sums * largest) * OUTWARD + 8 * terms * self.tiny * (1 + largest)
        return self.checked(Enclosed(mid, np.where(total > 0, rad, 0.0)), terms * values.largest)

    def exponential(self, x: Enclosed, many: np.ndarray | int = 1) -> Enclosed:
        """e^x with relative errors; refused where it leaves the type upwards, 0 for −∞. A column may be the sum of `many` exponentials."""
        seen = np.isfinite(x.mid)
        if not (np.where(seen, x.mid, 0.0) + x.rad < self.deepest - 1).all():
            raise Refusal(f"a score may exceed {self.deepest:.0f}, where e^x leaves {self.dtype}", *finer(self.dtype))
        mid = np.where(seen, exp(np.where(seen, x.mid, 0.0), np), 0.0)
        # Below −X the executor has e^{−X} instead of less, for each of them.
        rad = mid * growth((x.rad + self.slip) * OUTWARD) + 2.1 * many * math.exp(-self.deepest) * (1 + growth(x.rad))
        return self.checked(Enclosed(mid, np.where(seen, rad * OUTWARD, 0.0)))

    def weighted_sum(self, weights: Enclosed, values: Enclosed, terms: int) -> Enclosed:
        """Σ_s w_s v_s for weights (B or 1, H, S) and values (B, S, H, v), where the executor adds `terms` terms: (B, H, v)."""
        size = values.size
        weights_size = weights.size
        mid = np.einsum("bhs,bshv->bhv", np.broadcast_to(weights.mid, (len(values.mid), *weights.mid.shape[1:])), values.mid)
        spread = [np.broadcast_to(w, (len(values.mid), *w.shape[1:])) for w in (weights_size, weights.rad)]
        gamma = self.gamma(terms + 4)
        rad = np.einsum("bhs,bshv->bhv", spread[0], values.rad + gamma * size) + np.einsum("bhs,bshv->bhv", spread[1], size)
        largest = float(size.max(initial=0.0))
        passing = float(weights_size.sum(axis=-1).max(initial=0.0)) * largest
        flushed = 4 * (terms + 4) * self.tiny * (1 + float(weights_size.max(initial=0.0)) + largest)
        return self.checked(Enclosed(mid, rad * OUTWARD + flushed), passing)
