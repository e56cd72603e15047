"""Fig. 5 of Jiang & Li with constructed networks: error against m_h for couplings with given singular values.

Targets: τ = 16 tokens in [0, 1], ρ = Σ_{k≤R} k^{−α} 2 sin(2πku) sin(2πkv), f(x) = x, F(y) = y, α = 0.55 and 1. Networks: those of
Theorem 4.2 with m_h = 1..16, really run. R = 16 is the published set-up: the error vanishes (up to the splines) at m_h = R. R = 256
keeps the tail close to a power law over the whole range of m_h.

Which exponent? For errors ~ m_h^{−e} the theorem as printed claims e = 2α−1 for the L¹ error, its proof gives α − 1/2 there and 2α−1
for the mean square, both without the diagonal s = t. Slopes are least squares of log error on log m_h over m_h < 16 (and < R), with
the standard error of the fit; sampling adds less, which a bootstrap over sequences shows. A claim is an upper bound: it is refuted
where the error falls more slowly, by more than two standard errors. The same slopes without self-attention (softmax over s ≠ t,
computed by the formula) show what the diagonal does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.errors import InputError
from analyzer.language.formulas import parse_formula
from analyzer.lemmas.low_rank import averages, budget, factors, hull_knots, uniform_knots
from analyzer.numbers.exact import upper
from analyzer.ranges import check_range
from analyzer.targets.coupling import CouplingTarget, SineCoupling
from constructions.theorems.jl_4_2 import assemble
from verify.compare.spectrum import power_law
from verify.theorems.jl_4_2 import outputs, random_tokens, wanted

LENGTH = 16
ALPHAS = ("0.55", "1")
RANKS = (16, 256)
LARGEST = 16
KNOTS = 1024
"""Pieces of the splines: their error stays an order of magnitude below the smallest tail shown, that of one term."""
SPLINE_ERROR = 1e-9
"""Asked of F̂, which is affine here and exact."""
RESAMPLES = 200
LEAST_SEQUENCES = 16
MAX_SEQUENCES = 100_000


@dataclass(frozen=True)
class RankCurve:
    """Sampled errors of one target: means per sequence, (m_h, sequences) each."""

    alpha: str
    rank: int
    l1: np.ndarray
    square: np.ndarray
    l1_without_self: np.ndarray
    bound: np.ndarray
    tail: np.ndarray


def fig_5(sequences: int = 2000, seed: int = 0, report: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The table and its slopes as plain data."""
    start = time.perf_counter()
    check_sequences(sequences)
    curves = [measure(alpha, rank, sequences, seed, report) for rank in RANKS for alpha in ALPHAS]
    rows = [row for curve in curves for row in _rows(curve)]
    slopes = [summary for curve in curves for summary in _slopes(curve, seed)]
    return {
        "experiment": "jl-fig-5",
        "sequences": sequences,
        "seed": seed,
        "rows": rows,
        "slopes": slopes,
        "findings": _findings(slopes, rows),
        "seconds": time.perf_counter() - start,
    }


def check_sequences(sequences: int) -> None:
    check_range("sequences", sequences, LEAST_SEQUENCES, MAX_SEQUENCES)


def target_of(alpha: str, rank: int) -> CouplingTarget:
    coupling = SineCoupling(parse_formula(f"k**-{alpha}", ("k",), "sigma"), rank)
    return CouplingTarget(LENGTH, coupling, parse_formula("x", ("x",), "f"), parse_formula("y", ("y",), "F"))


def measure(alpha: str, rank: int, sequences: int, seed: int, report: Callable[[str], None]) -> RankCurve:
    """Run the networks for m_h = 1..16 on the same random sequences."""
    target, us = target_of(alpha, rank), uniform_knots(KNOTS)
    found = factors(target.coupling, us, "pod")
    sigma = found.sigma
    tokens = random_tokens(target, sequences, "exact", seed)
    report(f"α = {alpha}, rank {rank}: the target")
    goal, alone = wanted(target, tokens), without_self(sigma, tokens)
    l1, square, l1_alone, bound, tail = [], [], [], [], []
    for m in range(1, LARGEST + 1):
        report(f"α = {alpha}, rank {rank}: m_h = {m}")
        network = assemble(target, found.left[:, :m], found.right[:, :m], us, LARGEST, SPLINE_ERROR)  # padded: compiles once
        errors = np.abs(outputs(network, tokens) - goal)
        l1.append(errors.mean(axis=1))
        square.append((errors**2).mean(axis=1))
        l1_alone.append(np.abs(without_self(sigma[:m], tokens) - alone).mean(axis=1))
        promised = budget(target, "pod", m, us, hull_knots(target, 1), "exact")
        bound.append(upper(averages(target, promised, "pod", m, us).l1))
        tail.append(float(np.sqrt((sigma[m:] ** 2).sum())))
    return RankCurve(alpha, rank, *(np.array(part) for part in (l1, square, l1_alone, bound, tail)))


def without_self(sigma: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """H for the given singular values where no token attends to itself, from the formula alone."""
    results = []
    for x in np.array_split(tokens, max(1, len(tokens) * len(sigma) // 2**16)):
        basis = np.sqrt(2) * np.sin(2 * np.pi * x[..., None] * np.arange(1, len(sigma) + 1))
        logits = np.einsum("ntk,nsk->nts", basis * sigma, basis)
        logits[:, np.arange(LENGTH), np.arange(LENGTH)] = -np.inf
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        results.append(np.einsum("nts,ns->nt", weights, x) / weights.sum(axis=-1))
    return np.concatenate(results)


def _rows(curve: RankCurve) -> list[dict[str, Any]]:
    count = np.sqrt(curve.l1.shape[1])
    return [
        {
            "alpha": float(curve.alpha),
            "rank": curve.rank,
            "m_h": m + 1,
            "l1": float(curve.l1[m].mean()),
            "l1_standard_error": float(curve.l1[m].std() / count),
            "mean_square": float(curve.square[m].mean()),
            "l1_without_self": float(curve.l1_without_self[m].mean()),
            "tail": float(curve.tail[m]),
            "l1_bound": float(curve.bound[m]),
        }
        for m in range(LARGEST)
    ]


def slope(errors: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Least squares of log error on log m, m = 1, 2, …: slope and its standard error."""
    found = power_law(np.arange(1, len(errors) + 1), errors)
    if found is None:
        raise InputError("an error is 0, so it has no power law: give more sequences")
    return found.exponent, found.error


def _slopes(curve: RankCurve, seed: int) -> list[dict[str, Any]]:
    """One line per norm: what is measured, what is claimed, and which claim the data refute."""
    alpha, last = float(curve.alpha), min(LARGEST, curve.rank) - 1
    rng = np.random.default_rng(seed)
    picks = rng.integers(curve.l1.shape[1], size=(RESAMPLES, curve.l1.shape[1]))
    claims = {"printed": 2 * alpha - 1, "repaired for s ≠ t": alpha - 0.5}
    result = []
    for norm, errors, claimed in (
        ("L1", curve.l1, claims),
        ("L1 without s = t", curve.l1_without_self, claims),
        ("mean square", curve.square, {"repaired for s ≠ t": 2 * alpha - 1}),
    ):
        value, fit = slope(errors[:last].mean(axis=1))
        sampling = float(np.std([slope(errors[:last, chosen].mean(axis=1))[0] for chosen in picks]))
        error = float(np.hypot(fit, sampling))
        refuted = {name: value - 2 * error > -exponent for name, exponent in claimed.items()}
        result.append(
            {
                "alpha": alpha,
                "rank": curve.rank,
                "norm": norm,
                "slope": value,
                "standard_error": error,
                "sampling_error": sampling,
                "claims": {name: -exponent for name, exponent in claimed.items()},
                "refuted": refuted,
            }
        )
    return result


def _findings(slopes: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    """What the numbers say, in sentences made from them."""
    result = []
    for entry in slopes:
        for name in (name for name, refuted in entry["refuted"].items() if refuted):
            where = f"α = {entry['alpha']:g}, rank {entry['rank']}, {entry['norm']}"
            measured = f"{entry['slope']:+.2f} ± {entry['standard_error']:.2f}"
            result.append(f"{where}: slope {measured} refutes the exponent {entry['claims'][name]:+.2f} ({name})")
    fast = [entry for entry in slopes if not any(entry["refuted"].values())]
    result.append(f"in {len(fast)} of {len(slopes)} lines the error falls at least as fast as every claim")
    for alpha in sorted({row["alpha"] for row in rows}):
        reached = next(row for row in rows if row["alpha"] == alpha and row["rank"] == LARGEST and row["m_h"] == LARGEST)
        before = next(row for row in rows if row["alpha"] == alpha and row["rank"] == LARGEST and row["m_h"] == LARGEST - 1)
        numbers = f"{before['l1']:.2g} at m_h = {LARGEST - 1} and {reached['l1']:.2g} at m_h = {LARGEST}, where only the splines are left"
        result.append(f"α = {alpha:g}, rank {LARGEST}: the error is {numbers}")
    return result
