"""Devices that are not there: float32 in numpy, every operation made of a few that a device may do otherwise."""

import numpy as np

from analyzer.numbers.exact import nearest
from constructions.network.exponential import DEEPEST, constants, power_of_two

TINY = np.finfo(np.float32).tiny


class Ieee:
    """Rounds to nearest, one operation at a time, and keeps subnormal numbers."""

    dtype = "float32"

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.returned(np.float32(self.taken(a)) + np.float32(self.taken(b)))

    def subtract(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.add(a, -b)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.returned(np.float32(self.taken(a)) * np.float32(self.taken(b)))

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.returned(np.float32(self.taken(a)) / np.float32(self.taken(b)))

    def multiply_add(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return self.add(self.multiply(a, b), c)

    def taken(self, a: np.ndarray) -> np.ndarray:
        """Operands as they are read."""
        return a

    def returned(self, a: np.ndarray) -> np.ndarray:
        """Results as they are written."""
        return a

    def contract(self, form: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.summed(*aligned(form, a, b))

    def summed(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Σ_i a_i b_i along the last axis, from left to right."""
        total = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1], np.float32)
        for i in range(a.shape[-1]):
            total = self.multiply_add(a[..., i], b[..., i], total)
        return total

    def total(self, a: np.ndarray) -> np.ndarray:
        return self.summed(a, np.ones_like(a))

    def recur(self, ratio: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray) -> np.ndarray:
        state, found = self.divide(past, gain[:, None]), []
        for value in values:
            state = self.multiply_add(ratio[:, None], state, value)
            found.append(self.multiply(gain[:, None], state))
        return np.stack(found)

    def recur_by_blocks(
        self, powers: np.ndarray, doubled: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        size, given = len(powers) - 1, self.subtract(values, past)
        distance = np.arange(size)[:, None] - np.arange(size)
        within = np.where(distance[..., None] >= 0, powers[np.maximum(distance, 0)], np.float32(0))
        blocks = [given[first : first + size] for first in range(0, len(given), size)]
        own = [self.contract("ijh,jhv->ihv", within[: len(block), : len(block)], block) for block in blocks]
        ends = [np.zeros_like(past), *self.windows(doubled, np.stack([part[-1] for part in own]))]
        found = [self.multiply_add(powers[1 : len(part) + 1, :, None], end, part) for part, end in zip(own, ends, strict=False)]
        return self.add(self.multiply(gain[:, None], np.concatenate(found)), np.broadcast_to(past, values.shape))

    def recur_by_doubling(self, doubled: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray) -> np.ndarray:
        windows = self.windows(doubled, self.subtract(values, past))
        return self.add(self.multiply(gain[:, None], windows), np.broadcast_to(past, values.shape))

    def windows(self, doubled: np.ndarray, values: np.ndarray) -> np.ndarray:
        for level, power in enumerate(doubled):
            shifted = np.concatenate([np.zeros_like(values[: 1 << level]), values])[: len(values)]
            values = self.multiply_add(power[:, None], shifted, values)
        return values

    def tap(self, taps: np.ndarray, values: np.ndarray, past: np.ndarray) -> np.ndarray:
        count, length = taps.shape[1], len(values)
        padded = np.concatenate([np.broadcast_to(past, (count, *past.shape)), values])
        total = np.zeros_like(values)
        for s in range(count):
            total = self.multiply_add(taps[:, s][:, None], padded[count - s : count - s + length], total)
        return total

    def reduced(self, x: np.ndarray, n: np.ndarray) -> np.ndarray:
        """x − n ln 2."""
        _, high, low, _ = constants(self.dtype)
        return self.multiply_add(-n, np.float32(nearest(low)), self.multiply_add(-n, np.float32(nearest(high)), x))

    def exponential(self, x: np.ndarray) -> np.ndarray:
        inverse, _, _, coefficients = constants(self.dtype)
        x = self.clip(x, -DEEPEST[self.dtype], DEEPEST[self.dtype])
        n = self.whole(self.multiply(x, np.float32(nearest(inverse))))
        r = self.reduced(x, n)
        result = np.full_like(x, nearest(coefficients[-1]))
        for coefficient in reversed(coefficients[:-1]):
            result = self.multiply_add(result, r, np.float32(nearest(coefficient)))
        return self.multiply(result, self.power_of_two(n))

    def mean(self, logits: np.ndarray, values: np.ndarray) -> np.ndarray:
        weights = self.exponential(self.subtract(logits, self.largest(logits)[..., None]))
        return self.divide(self.contract("...hts,...hsv->...htv", weights, values), self.total(weights)[..., None])

    def power_of_two(self, n: np.ndarray) -> np.ndarray:
        return power_of_two(n, np)

    def largest(self, a: np.ndarray) -> np.ndarray:
        return a.max(axis=-1)

    def relu(self, a: np.ndarray) -> np.ndarray:
        return np.maximum(a, 0)

    def clip(self, a: np.ndarray, low: float, high: float) -> np.ndarray:
        return np.clip(a, low, high)

    def whole(self, a: np.ndarray) -> np.ndarray:
        return np.rint(a)

    def index(self, a: np.ndarray) -> np.ndarray:
        return a.astype(np.int32)


def aligned(form: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both operands over the axes of the output, the terms of its sums along one more."""
    given, out = form.replace("...", "z").split("->")
    summed = [c for c in given.split(",")[0] if c in given.split(",")[1] and c not in out]
    found = []
    for letters, array in zip(given.split(","), (a, b), strict=True):
        length = dict(zip(letters, array.shape, strict=True))
        order = [letters.index(c) for c in [*(c for c in out if c in letters), *summed]]
        found.append(array.transpose(order).reshape([*(length.get(c, 1) for c in out), -1]))
    return found[0], found[1]


class Fusing(Ieee):
    """ab + c with one rounding: the product is exact in float64, and what the sum loses there is less than u² of it."""

    def multiply_add(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return self.returned((np.float64(self.taken(a)) * np.float64(self.taken(b)) + np.float64(self.taken(c))).astype(np.float32))


class Flushing(Ieee):
    """Operands and results below η become 0."""

    least = TINY

    def taken(self, a: np.ndarray) -> np.ndarray:
        return np.where(np.abs(a) < self.least, np.float32(0), a)

    def returned(self, a: np.ndarray) -> np.ndarray:
        return np.where(np.abs(a) < self.least, np.float32(0), a)


class FlushingNormal(Flushing):
    """Flushes numbers that are normal, too."""

    least = np.float32(2.0**-100)


class FlushingOperands(Flushing):
    """Reads numbers below η as 0, but returns them."""

    def returned(self, a: np.ndarray) -> np.ndarray:
        return a


class Truncating(Ieee):
    """Rounds towards zero: up to 2u."""

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return towards_zero(np.float64(a) + np.float64(b))

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return towards_zero(np.float64(a) * np.float64(b))

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return towards_zero(np.float64(a) / np.float64(b))


def towards_zero(x: np.ndarray) -> np.ndarray:
    near = x.astype(np.float32)
    return np.where(np.abs(np.float64(near)) > np.abs(x), np.nextafter(near, np.float32(0)), near)


class FewBits(Ieee):
    """Products of matrices of operands with 10 bits behind the point, added up in float32."""

    bits = 10

    def contract(self, form: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return super().contract(form, self.short(a), self.short(b))

    def short(self, a: np.ndarray) -> np.ndarray:
        mantissa, exponent = np.frexp(a)
        return np.ldexp(np.rint(mantissa * 2 ** (self.bits + 1)), exponent - self.bits - 1).astype(np.float32)


class FusingWithTruncation(Fusing):
    """Sums of products in one step: terms are aligned to the largest of them, and what lies below its last bit is cut off."""

    def summed(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        products = np.float64(a) * np.float64(b)
        _, exponent = np.frexp(np.abs(products).max(axis=-1, keepdims=True))
        last = np.ldexp(1.0, exponent - 24)
        return towards_zero((np.trunc(products / last) * last).sum(axis=-1))


class Reassociating(Fusing):
    """Takes (x − n·hi) − n·lo for x − n(hi + lo)."""

    def reduced(self, x: np.ndarray, n: np.ndarray) -> np.ndarray:
        _, high, low, _ = constants(self.dtype)
        return self.subtract(x, self.multiply(n, np.float32(nearest(high + low))))


class NearlyOne(Ieee):
    """An exponential with e^0 = 1 − u: within its relative error, and wrong."""

    def exponential(self, x: np.ndarray) -> np.ndarray:
        found = super().exponential(x)
        return np.where(x == 0, np.nextafter(np.float32(1), np.float32(0)), found)


class HalvesUp(Ieee):
    """Rounds ties upwards."""

    def whole(self, a: np.ndarray) -> np.ndarray:
        return np.floor(np.float64(a) + 0.5).astype(np.float32)


class Reciprocals(Ieee):
    """Divides by multiplying with a rounded reciprocal."""

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.multiply(a, np.float32(1) / b)


class NoNumbers(Ieee):
    """Returns no numbers from sums of weights."""

    def total(self, a: np.ndarray) -> np.ndarray:
        return super().total(a) * np.float32(np.nan)
