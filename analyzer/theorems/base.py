"""What theorems about head banks have in common: the formulas of an extraction, its lemmas, the width of a read-out, citations."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.families import ReadOutBy
from analyzer.lemmas import extraction as ex
from analyzer.lemmas import feedforward as ff
from analyzer.lemmas.bump import RATES
from analyzer.numbers.exact import nearest, upper
from analyzer.numbers.search import least_whole
from analyzer.statements.bounds import Bound
from analyzer.targets.tokens import TOKEN_LAWS

if TYPE_CHECKING:
    import networkx as nx

MAX_SLOPE = 1e12
"""Steeper read-outs would need extraction errors near the least one offered."""
BIBTEX = """@inproceedings{wang2024understanding,
  title     = {Understanding the Expressive Power and Mechanisms of Transformer for Sequence Modeling},
  author    = {Wang, Mingze and E, Weinan},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2024},
  note      = {arXiv:2402.00522; Theorem 3.1}
}
"""
TREFETHEN = """@book{trefethen2013approximation,
  title     = {Approximation Theory and Approximation Practice},
  author    = {Trefethen, Lloyd N.},
  publisher = {SIAM},
  year      = {2013},
  note      = {Theorem 7.2}
}
"""
BARRON_BIBTEX = """@article{e2022barron,
  title   = {The {Barron} space and the flow-induced function spaces for neural network models},
  author  = {E, Weinan and Ma, Chao and Wu, Lei},
  journal = {Constructive Approximation},
  year    = {2022}
}
"""


def citation(bank: str, ffn: str, result: str = "Theorem 3.1") -> str:
    """What a network with this bank and read-out rests on; `result` of Wang & E is named."""
    return "\n".join(
        [
            BIBTEX.replace("Theorem 3.1", result),
            *([TREFETHEN] if bank in ("paper", "tuned") else []),
            *([BARRON_BIBTEX] if ffn == "barron" else []),
        ]
    )


def expression(rpe: ex.Rpe, bank: str) -> sympy.Expr:
    """The extraction error of one memory."""
    return ex.minimal_expression(rpe) if bank == "minimal" else ex.EXTRACTION[rpe]


def attention_expression(rpe: ex.Rpe, lags: Sequence[int]) -> sympy.Expr:
    """Σ_k of (3.1) or (3.2): in T, H, α, γ for one lag, in T_k, H_k, α_k, γ_k for several."""
    return sympy.Add(*per_lag(ex.EXTRACTION[rpe], lags))


def per_lag(formula: sympy.Expr, lags: Sequence[int]) -> list[sympy.Expr]:
    """The formula in T, H, α, γ for one lag, one in T_k, H_k, α_k, γ_k for each of several."""
    if len(lags) == 1:
        return [formula]
    terms = []
    for k in range(1, len(lags) + 1):
        names = sympy.symbols(f"T_{k} H_{k} alpha_{k} gamma_{k}", positive=True)
        terms.append(formula.subs(dict(zip((ex.T, ex.H, ex.alpha, ex.gamma), names, strict=True))))
    return terms


def extraction_budget(bank: str, rpe: ex.Rpe, lag: int, decays: Sequence[fmpq]) -> arb:
    """What the lemma promises for a bank with these decays: (3.1)/(3.2) at the best rate, or (3.3)/(3.4)."""
    if bank == "minimal":
        return ex.minimal_bound(rpe, lag, decays)
    if len(decays) < 3:
        raise InputError(f"{len(decays)} heads serve lag {lag}: a {bank} bank has 3 at least")
    tuning = ex.Tuning(decays[1] - decays[0], decays[0] - (0 if rpe == "lin" else 1))
    if tuning.alpha <= 0 or tuning.gamma <= 0 or any(b - a != tuning.alpha for a, b in itertools.pairwise(decays)):
        raise InputError(f"the decays stored for lag {lag} are no progression γ + αk: not a {bank} bank")
    return min((ex.extraction_bound(rpe, lag, len(decays), rate, tuning) for rate in RATES), key=upper)


def total_budget(readout_error: arb, lipschitz: Sequence[arb], errors: Sequence[arb]) -> arb:
    """E_FFN + Σ_k Lip_k e_k, k over the memories."""
    return sum((lip * e for lip, e in zip(lipschitz, errors, strict=True)), readout_error)


def fewest_heads(total: Callable[[int], arb], error: float) -> int:
    """The fewest heads from which on a bound is at most `error`; too few heads for a bound are refused by `total`."""

    def holds(heads: int) -> bool:
        try:
            return upper(total(heads)) <= error
        except Refusal:
            return False

    high = 2
    while not holds(high):
        high *= 2
        if high > 2**200:
            raise Refusal(f"no number of heads below 2^200 brings the bound to {error:g}")
    return least_whole(holds, high // 2, high)


def mean_square_total(rpe: ex.Rpe, errors: Sequence[arb], slowest: Sequence[fmpq], variance: fmpq) -> arb:
    """v (Σ_k e_k ‖w_k‖₂/‖w_k‖₁)²: (3.11) for the sum of the memories, by Minkowski's inequality."""
    roots = [e * ex.mean_square_share(rpe, g).sqrt() for e, g in zip(errors, slowest, strict=True)]
    total = sum(roots[1:], roots[0])
    return arb(variance) * total * total


def in_mean_square(
    worst: Bound, rpe: ex.Rpe, errors: Sequence[arb], slowest: Sequence[fmpq], tokens: str, terms: Sequence[sympy.Expr]
) -> Bound:
    """A bound of the worst case turned into one of the mean square; `terms` are the formulas whose sum is the root of it, per √v."""
    law = TOKEN_LAWS[tokens]
    total = upper(mean_square_total(rpe, errors, slowest, law.variance))
    parts = {name: upper(mean_square_total(rpe, [e], [g], law.variance)) for name, e, g in zip(worst.parts, errors, slowest, strict=True)}
    hidden = ("closed_form", "lower_bound_heads", "lower_bound_status")
    data = {name: value for name, value in worst.data.items() if name not in hidden}
    data |= {"attention": total, "worst_case": worst.total, "norm": "mean-square", "tokens": law.name, "variance": nearest(law.variance)}
    formula = sympy.Symbol("v", positive=True) * sympy.Add(*terms) ** 2
    claim = f"mean square of the attention error ({law.name} tokens)"
    return replace(worst, total=total, parts=parts, expression=formula, data=data, claim=claim)


READ_OUT = "read-out"
"""The lemma on the feed-forward network that reads the memories."""


def extraction_lemma(lag: int) -> str:
    """The lemma on the memory of a lag."""
    return f"extraction lag {lag}"


def extraction_lemmas(graph: "nx.DiGraph", rpe: ex.Rpe, bank: str, zeros: str, source: str = "Wang & E, Lemma F.1/F.4") -> tuple[str, ...]:
    """Add what an extraction error rests on (`zeros` says it for a minimal bank), and name it."""
    from analyzer.statements.proof import lemma

    if bank == "minimal":
        lemma(graph, "zeros", zeros, sympy.Integer(0))
        return ("zeros",)
    height = sympy.exp(1 + ex.gamma * ex.T) if rpe == "lin" else sympy.E * ex.T ** (1 + ex.gamma)
    mass = 1 / (1 - sympy.exp(-ex.gamma)) if rpe == "lin" else sympy.zeta(1 + ex.gamma)
    lemma(graph, "bump", "the bump is 1{s=T} on the integers", sympy.Integer(0), source=source)
    lemma(graph, "variation", "TV of its n-th derivative on [−1, 1]", ex.B(ex.n) * height / (2 * ex.SIGMA[rpe]) ** ex.n)
    estimate = 4 * sympy.Symbol("V", positive=True) / (sympy.pi * ex.n * (ex.H - 1 - ex.n) ** ex.n)
    lemma(graph, "interpolation", "Chebyshev interpolation in H points", estimate, ("variation",), "Trefethen, Thm 7.2")
    lemma(graph, "mass", "Σ_s of the slowest kernel", mass)
    return ("bump", "interpolation", "mass")


BALANCED = "a balanced bank is fitted to a float type, no bound asks for its heads"
"""Why nothing is proved about the number of its heads."""
PAPER = {"alpha": sympy.Rational(1, 100), "gamma": sympy.Rational(1, 100)}
"""The free parameters as printed."""


def check_slopes(lipschitz: Sequence[arb]) -> None:
    """Refuse a read-out that no extraction error is small enough for."""
    if not all(upper(lip) < MAX_SLOPE for lip in lipschitz):
        raise Refusal(f"the read-out is steeper than {MAX_SLOPE:g} on its box; scale it down")


@dataclass(frozen=True)
class Shares:
    """How E_FFN + Σ_k Lip_k e_k ≤ E is shared out: a curved read-out takes half of E, an affine one nothing."""

    attention: float
    """What Σ_k Lip_k e_k may be."""
    lipschitz: list[float]
    """Lip_k on the box of memories that err by at most min(1, E)."""
    radii: list[arb]
    """The box on which the read-out has to hold."""

    @property
    def steepest(self) -> float:
        return max(1.0, *self.lipschitz)

    def width(self, ffn: str, readout: Any, error: float) -> int:
        """Neurons with E_FFN ≤ E/2 on the box, by the budget of `analyzer.lemmas.feedforward`."""
        return ff.asked_width(ffn, readout, self.radii, error / 2)


def shares(readout: Any, radii: Sequence[arb], dim: int, error: float) -> Shares:
    """The shares of an error for a read-out of (x0, memories), which are at most `radii` in size."""
    box = [r + (arb(min(1.0, error)) if j >= dim else 0) for j, r in enumerate(radii)]
    lipschitz = readout.lipschitz(box)[1:]
    check_slopes(lipschitz)
    return Shares(error / 2 if readout.ridges else error, [upper(lip) for lip in lipschitz], box)


def read_out_ways(readout: Any) -> tuple[ReadOutBy, ...]:
    """Splines and Barron samples; of an affine read-out there is nothing to sample."""
    return ("spline", "barron") if readout.ridges else ("spline",)


def width_bound(theorem: str, target: Any, ffn: str, error: float | None, data: dict[str, Any]) -> Bound:
    """The width for a read-out error on the paper's domain [−2, 2]^D."""
    radii = [arb(2)] * target.readout.coordinates
    plan = ff.plan_feedforward(ffn, target.readout, radii, None, error)
    data |= {
        "ffn": ffn,
        "width": plan.width,
        "readout": target.readout.text,
        "readout_error": upper(plan.error),
        "domain": "[-2, 2]^D",
        "barron_norm": upper(target.readout.barron_norm(radii)),
        "lipschitz": [upper(v) for v in target.readout.lipschitz(radii)],
    }
    expression = ff.SPLINE if ffn == "spline" else ff.BARRON
    return Bound(theorem, upper(plan.error), {READ_OUT: upper(plan.error)}, expression, {}, data, claim="read-out error")
