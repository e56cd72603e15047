"""A coupling between its two sides: certified singular values, the best that any rank allows, and the complexities of Theorem 4.2."""

from typing import Any

from flint import arb

from analyzer.errors import InputError
from analyzer.lemmas.low_rank import Pod, check_rank, complexities, spectrum
from analyzer.lemmas.pod import fit_decay
from analyzer.limits.coupling_rank import ID, best_error
from analyzer.numbers.exact import lower, upper
from analyzer.targets.coupling import CouplingTarget
from verify.chain.certificate import finite

SHOWN = 32
"""Singular values in the output."""


def coupling_limits(target: CouplingTarget, rank: int, alpha: float | None = None) -> dict[str, Any]:
    """Spectra of ρ and of ρ modulo functions of u, best errors for m_h = 1..rank, and complexities."""
    check_rank(rank)
    if alpha is not None and not 0.5 < alpha < 64:
        raise InputError(f"alpha is {alpha}; C_1 needs an exponent above 1/2 (and below 64)")
    plain, centred = spectrum(target.coupling, "pod"), spectrum(target.coupling, "centred")
    decay = _decay(plain)
    exponent = alpha if alpha is not None else decay["alpha"] if decay is not None else None
    result: dict[str, Any] = {
        "theorem": ID,
        "coupling": target.coupling.name,
        "method": plain.method,
        "error_bar": upper(plain.error),
        "singular_values": _pairs(plain),
        "centred_singular_values": _pairs(centred),
        "rank": plain.rank,
        "centred_rank": centred.rank,
        "decay": decay,
        "rows": [_row(target, m) for m in range(1, rank + 1)],
    }
    if exponent is not None and exponent > 0.5 and plain.values:
        found = complexities(target, min(rank, len(plain.values)), exponent)
        numbers = {
            "c0": finite(upper(found.c0)),
            "c1": finite(upper(found.c1)),
            "c2": None if found.c2 is None else finite(upper(found.c2)),
        }
        result["complexities"] = {"alpha": exponent, **numbers, "values_known": len(plain.values)}
    return result


def _pairs(found: Pod) -> list[list[float]]:
    return [[lower(v), upper(v)] for v in found.values[:SHOWN]]


def _row(target: CouplingTarget, m: int) -> dict[str, Any]:
    best, plain = best_error(target.coupling, m), best_error(target.coupling, m, "pod")
    return {
        "rank": m,
        "lower": lower(best),
        "upper": upper(best),
        "log_odds": lower(best * arb(2).sqrt()),
        "plain_lower": lower(plain),
        "plain_upper": upper(plain),
    }


def _decay(found: Pod) -> dict[str, Any] | None:
    """Fitted exponent of the singular values; None for fewer than three of them. Given decompositions are fitted like others."""
    if len(found.values) < 3:
        return None
    fitted = fit_decay(found.values)
    return {
        "alpha": fitted.alpha,
        "standard_error": finite(fitted.standard_error),
        "c1": upper(fitted.constant),
        "values": len(found.values),
    }
