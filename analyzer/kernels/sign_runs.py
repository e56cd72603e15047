"""ℓ¹ norms of head banks exactly, by counting zeros.

A sum Σ_h A_h e^{−ω_h y} with distinct real ω_h has at most as many real zeros, counted with multiplicity, as its coefficients
have sign changes when ordered by ω_h (Laguerre's form of Descartes' rule; Pólya & Szegő, Problems and Theorems in Analysis II, V.77).
The kernel of a bank is such a sum, in y = s with ω_h = p_h (lin) or in y = log s (log). If as many sign changes are *seen* at certified
sample points, no other zero exists: the kernel keeps its sign between neighbouring samples of one sign, and

    Σ_{s=A}^{B−1} |κ(s)| = |Σ_{s=A}^{B−1} κ(s)|,   Σ z^s = (z^A − z^B)/(1−z),   Σ s^{−p} = ζ(p, A) − ζ(p, B),

so the infinite tail costs as many closed sums as the kernel has runs, however slowly it decays. Samples are taken at half-integers, because
good kernels vanish at integers.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import mul

from flint import arb, arb_mat, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import interval

GROWTH = 32
"""Samples beyond the first few stand at ratio 1 + 1/GROWTH, in s (lin) or in log s (log), the scales on which kernels turn; a zero
that is missed shows in the count."""
FARTHEST = 4096
"""Samples end at 2^FARTHEST (log) or much earlier (lin): a log head with p = 1 + 1/256 has lost all but 2^-16 of its mass there."""
ONE_BY_ONE = 64
"""Places around a zero that are added one by one where their sign is open; more of them are so close, relatively, that one ball serves."""


@dataclass(frozen=True)
class SignedBank:
    """Σ_h A_h z_h^s (lin) or Σ_h A_h s^{−p_h} (log), for real s > 0; decays p_h distinct."""

    rpe: str
    decays: tuple[fmpq, ...]
    amplitudes: tuple[arb, ...]

    def terms(self, s: arb) -> list[arb]:
        base = s if self.rpe == "lin" else s.log()
        return [a * (-arb(p) * base).exp() for a, p in zip(self.amplitudes, self.decays, strict=True)]

    def value(self, s: arb) -> arb:
        return sum(self.terms(s), arb(0))

    def values(self, count: int) -> list[arb]:
        """κ(s) for 0 ≤ s < count; log heads do not see s = 0."""
        if self.rpe == "log":
            columns = [[a * v for v in _powers(p, count)] for a, p in zip(self.amplitudes, self.decays, strict=True)]
            return [sum(row, arb(0)) for row in zip(*columns, strict=True)]
        block = math.isqrt(count) + 1
        far, near = ([(-arb(p) * step).exp() for p in self.decays] for step in (block, 1))
        left = arb_mat(geometric(list(self.amplitudes), far, -(-count // block)))
        right = arb_mat(geometric([arb(1)] * len(near), near, block)).transpose()
        return (left * right).entries()[:count]

    def rest(self, start: int) -> arb:
        """Σ_{s≥start} κ(s), start ≥ 1."""
        if self.rpe == "lin":
            terms = (a * (-arb(p) * start).exp() / (1 - (-arb(p)).exp()) for a, p in zip(self.amplitudes, self.decays, strict=True))
        else:
            terms = (a * arb(p).zeta(arb(start)) for a, p in zip(self.amplitudes, self.decays, strict=True))
        return sum(terms, arb(0))

    def descartes(self) -> int:
        """Sign changes of the amplitudes in the order of the decays; all that are possible if a sign is in doubt."""
        pairs = sorted(zip(self.decays, self.amplitudes, strict=True), key=lambda pair: pair[0])
        if any(p == q for (p, _), (q, _) in pairwise(pairs)):
            raise InputError("the decays of a bank must differ")
        signs = [_sign(amplitude) for _, amplitude in pairs]
        return len(signs) - 1 if 0 in signs else sum(a != b for a, b in pairwise(signs))


def geometric(first: list[arb], ratios: list[arb], count: int) -> list[list[arb]]:
    """Row j: first_h · ratio_h^j. Two of them multiplied as matrices give z^{jB+k} for all j, k at once."""
    rows = [first]
    for _ in range(count - 1):
        rows.append(list(map(mul, rows[-1], ratios)))
    return rows


def _powers(decay: fmpq, count: int) -> list[arb]:
    """s^{−p} for 1 ≤ s < count, and 0 for s = 0: powers of primes, and products of what came before."""
    found, p = [arb(0), arb(1)], -arb(decay)
    for s, factor in enumerate(factors(count)[2:], start=2):
        found.append(found[factor] * found[s // factor] if factor else (p * arb(s).log()).exp())
    return found[:count]


@lru_cache(maxsize=8)
def factors(count: int) -> list[int]:
    """A factor of every s < count, 0 where there is none but 1 and s."""
    found = [0] * count
    for s in range(2, math.isqrt(count) + 1):
        if not found[s]:
            found[s * s :: s] = [s] * len(range(s * s, count, s))
    return found


def _sign(value: arb) -> int:
    """1, −1, or 0 if the ball does not say."""
    return 1 if value > 0 else -1 if value < 0 else 0


def crude_tail(bank: SignedBank, start: int) -> arb:
    """Upper bound of Σ_{s≥start} |κ(s)| by the triangle inequality."""
    return SignedBank(bank.rpe, bank.decays, tuple(abs(a) for a in bank.amplitudes)).rest(start)


def tail(bank: SignedBank, start: int) -> arb | None:
    """Enclosure of Σ_{s≥start} |κ(s)|, start ≥ 1; None if the zeros that Descartes allows were not all seen."""
    samples = _samples(bank)
    if samples is None:
        return None
    total, begin = arb(0), start
    for (left, sign), (right, after) in pairwise(samples):
        if sign == after or right < 2 * start:
            continue
        last, first = _turn(bank, left, right, sign)
        doubt = max(last + 1, begin)
        total += abs(bank.rest(begin) - bank.rest(doubt))
        if first - doubt <= ONE_BY_ONE:
            total += sum((abs(bank.value(arb(s))) for s in range(doubt, first)), arb(0))
        else:
            total += (first - doubt) * abs(bank.value(interval(arb(doubt), arb(first))))
        begin = max(first, begin)
    return total + abs(bank.rest(begin))


def _samples(bank: SignedBank) -> list[tuple[int, int]] | None:
    """Places s = n/2, n odd, with certified signs (n, sign), until all the changes that Descartes allows are seen.

    None if they are not seen before the slowest head outweighs all others, after which there are none, or before 2^FARTHEST.
    """
    allowed, seen = bank.descartes(), 0
    samples: list[tuple[int, int]] = []
    s = 0
    while s.bit_length() <= FARTHEST:
        terms = bank.terms(arb(2 * s + 1) / 2)
        sign = _sign(sum(terms, arb(0)))
        if sign:
            seen += bool(samples) and samples[-1][1] != sign
            samples.append((2 * s + 1, sign))
        if samples and seen == allowed:
            return samples
        slowest = min(range(len(terms)), key=lambda h: bank.decays[h])
        if abs(terms[slowest]) > sum((abs(t) for h, t in enumerate(terms) if h != slowest), arb(0)):
            return None
        s += max(1, s // GROWTH if bank.rpe == "lin" else s * s.bit_length() // (2 * GROWTH))
    return None


def _turn(bank: SignedBank, left: int, right: int, sign: int) -> tuple[int, int]:
    """(last integer that surely has the old sign, first that surely has the new one) around the zero between left/2 and right/2."""
    low, high = left, right  # the zero is looked for here; signs are sure at left and right
    while high - low > 1:
        middle = (low + high) // 2
        found = _sign(bank.value(arb(middle) / 2))
        if found == sign:
            left = low = middle
        elif found:
            right = high = middle
        else:  # in doubt: close in from both sides
            return _edge(bank, left, middle, sign), _edge(bank, right, middle, -sign)
    return left // 2, (right + 1) // 2


def _edge(bank: SignedBank, sure: int, doubtful: int, sign: int) -> int:
    """The integer nearest to `doubtful`/2, from the side of `sure`/2, that has the sign for sure."""
    while abs(doubtful - sure) > 1:
        middle = (sure + doubtful) // 2
        sure, doubtful = (middle, doubtful) if _sign(bank.value(arb(middle) / 2)) == sign else (sure, middle)
    return sure // 2 if sure <= doubtful else (sure + 1) // 2
