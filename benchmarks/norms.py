"""Rigorous ℓ¹ norms of error kernels against the same sums in mpmath, in one run.

    python -m benchmarks.norms [--repeats 3] [--keep]

Rows are banks: ‖κ − 1_T‖_ℓ¹ with its infinite tail, from the exact decays and weights on, in as many bits as certificates take. Ours is
`analyzer.kernels.l1_norms.l1_norm`: it adds up terms until what follows is below a share 2^-12, and bounds that. The peer adds up the same
terms with as many bits, by the same recurrences, and bounds the tail by the same sums, twice: in mpmath's plain numbers, as quick as mpmath
can be and without any rigour, and in its intervals, which bound every rounding as our balls do and know no zeta function. Sums must lie in
our enclosure up to its tail, or the run ends there. Processor time, ours the least of several turns.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
from flint import arb, fmpq

from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Powers, l1_norm
from analyzer.numbers.exact import lower, magnitude, upper, working_precision
from benchmarks.ratios import guard
from constructions.banks.head_banks import HeadBank
from constructions.run.fused import GUARD

Number = Any
"""A number of mpmath."""


@dataclass(frozen=True)
class Case:
    """A bank for one lag."""

    name: str
    bank: HeadBank

    @property
    def bits(self) -> int:
        """What certificates compute its kernel with (`constructions.run.fused`)."""
        return GUARD + max(0, *(magnitude(arb(a)) for a in self.bank.weights[0]))


def cases() -> list[Case]:
    """Minimal banks, banks that are fitted to float64, and tuned ones, of both types."""
    from analyzer.lemmas.extraction import tuned
    from constructions.banks.balanced import balanced_bank
    from constructions.banks.head_banks import exact_minimal, interpolation_bank, minimal_lin

    lin, log = (balanced_bank(rpe, (lag,), lambda _: 2.0**-53, heads, 53) for rpe, lag, heads in (("lin", 8, 20), ("log", 4, 12)))
    minimal = minimal_lin((16,), 16, fmpq(1, 64), 96, 1e-3)
    return [
        Case("minimal lin, lag 16, 16 heads", minimal),
        Case("balanced lin, lag 8, 20 heads", lin),
        Case("tuned lin, lag 4, 128 heads", interpolation_bank("lin", (4,), 128, tuned("lin", 4))),
        Case("minimal log, lag 6, 6 heads", exact_minimal("log", (6,), 6, lambda found: bool(found[0] <= 1e-3), 1e-3)),
        Case("balanced log, lag 4, 12 heads", log),
    ]


def kernel_of(bank: HeadBank) -> DeliveredKernel:
    """κ − 1_T."""
    decays, weights = [arb(p) for p in bank.decays], [arb(a) for a in bank.weights[0]]
    if bank.rpe == "lin":
        ratios = tuple((-p).exp() for p in decays)
        group: Exponentials | Powers = Exponentials(ratios, tuple(a * (1 - z) for a, z in zip(weights, ratios, strict=True)))
    else:
        group = Powers(bank.decays, tuple(a / p.zeta() for a, p in zip(weights, decays, strict=True)))
    return DeliveredKernel(bank.residuals[0], (group,), ((bank.lags[0], fmpq(1)),))


def by_mpmath(bank: HeadBank, count: int, numbers: Any) -> tuple[Number, Number]:
    """(Σ_{s<count} |κ(s) − 1_T(s)|, a bound of the tail) in mpmath's plain numbers or intervals."""
    decays, weights = ([numbers.mpf(int(v.p)) / int(v.q) for v in values] for values in (bank.decays, bank.weights[0]))
    residual, lag = numbers.mpf(int(bank.residuals[0].p)) / int(bank.residuals[0].q), bank.lags[0]
    total = numbers.mpf(0)
    if bank.rpe == "lin":
        ratios = [numbers.exp(-p) for p in decays]
        terms = [a * (1 - z) for a, z in zip(weights, ratios, strict=True)]
        for s in range(count):
            total += abs(sum(terms) + (residual if s == 0 else 0) - (s == lag))
            terms = [term * z for term, z in zip(terms, ratios, strict=True)]
        return total, sum(abs(term) / (1 - z) for term, z in zip(terms, ratios, strict=True))
    amplitudes = [a / numbers.zeta(p) for a, p in zip(weights, decays, strict=True)]
    for s in range(count):
        value = sum(a * numbers.mpf(s) ** -p for a, p in zip(amplitudes, decays, strict=True)) if s else numbers.mpf(0)
        total += abs(value + (residual if s == 0 else 0) - (s == lag))
    return total, sum(abs(a) * numbers.zeta(p, count) for a, p in zip(amplitudes, decays, strict=True))


def least_seconds(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """(the least processor time of several turns, what came out)."""
    best, found = float("inf"), None
    for _ in range(repeats):
        begin = time.process_time()
        found = work()
        best = min(best, time.process_time() - begin)
    return best, found


def measured(case: Case, repeats: int) -> tuple[float, float, dict[str, float]]:
    """(the norm, our seconds, the seconds of either peer)."""
    mpmath.iv.prec = case.bits
    with working_precision(case.bits), mpmath.workprec(case.bits):
        ours, norm = least_seconds(lambda: l1_norm(kernel_of(case.bank)), repeats)
        peers = {}
        for name in ("plain", "intervals") if case.bank.rpe == "lin" else ("plain",):
            numbers = mpmath.iv if name == "intervals" else mpmath.mp
            peers[name], (total, tail) = least_seconds(lambda numbers=numbers: by_mpmath(case.bank, len(norm.window), numbers), 1)  # type: ignore[misc]
            if not (lower(norm.least) <= total + tail and total <= upper(norm.most)):
                sys.exit(f"the two norms of {case.name} differ: {norm.enclosure} and {total}")
        return upper(norm.most), ours, peers


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="turns of which the quickest counts")
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run")
    asked, ratios = parser.parse_args(words), {}
    print(f"{'bank':30} {'bits':>5} {'norm':>11} {'ours, ms':>9} {'plain, ms':>10} {'ratio':>6} {'intervals':>10} {'ratio':>6}")
    for case in cases():
        norm, ours, peers = measured(case, asked.repeats)
        ratios |= {f"{case.name}, {name}": theirs / ours for name, theirs in peers.items()}
        cells = [f"{1e3 * theirs:10.1f} {theirs / ours:6.1f}" for theirs in peers.values()]
        print(f"{case.name:30} {case.bits:5} {norm:11.4e} {1e3 * ours:9.2f} {' '.join(cells)}", flush=True)
    guard("norms", ratios, asked.keep)


if __name__ == "__main__":
    main()
