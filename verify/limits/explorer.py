"""The table of the explorer: certified numbers at the places where its sliders rest.

* `limits`: lower ≤ E_u(T) ≤ upper over all banks of a type, any number of heads, with the bank of the upper side;
* `horizons`: the largest lag with E_u < 1/2;
* `minimal`: the best minimal bank of T heads for an arithmetic: ‖κ − 1_T‖₁ ≤ error, Σ|weights|, and error + u Σ|weights|, its price;
* `interpolation`: (3.1) and (3.2) for the banks `tuned` and `paper`, over all rates.

It takes minutes to compute and is shipped as `explorer.json`, which `python -m verify.limits.explorer` writes again.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from flint import arb, fmpq

from analyzer.errors import LemmaformerError
from analyzer.families import Rpe
from analyzer.lemmas.extraction import attention_bound, minimal_bound
from analyzer.numbers.exact import nearest, upper, working_precision
from constructions.banks.head_banks import budgeted_minimal, weight_sum
from verify.limits.certificate_files import certificate, sides
from verify.limits.pairs import RpeSet, horizon, lag_limit

BITS = (8, 11, 24, 53)
"""bfloat16, float16, float32 and float64: the unit roundoff is 2^−bits."""
LONGEST: dict[RpeSet, int] = {"lin": 12, "log": 12, "mixed": 4}
MIXED_BITS = (8, 24)
"""Pairs for both types take a minute each beyond float32."""
LONGEST_MINIMAL = {"lin": 12, "log": 8}
DECAY_BITS = 64
"""Bits of a minimal bank's decays: only the weights are priced, and in few bits neighbouring decays would be the same."""
HEADS = (8, 16, 32, 64, 128, 256, 512, 1024)
FORMAT, VERSION = "lemmaformer-explorer", 1
OUT_OF_REACH = 0.999
"""Beyond a lag with a certified lower bound above this the longer ones are left out."""


def limit_row(rpe: RpeSet, bits: int, lag: int) -> dict[str, Any]:
    """Both sides of E_u, and the bank of the upper one (none where that is the zero network)."""
    pair = lag_limit(rpe, lag, fmpq(1, 2**bits), bits)
    drawn = sides(certificate([pair], rpe, pair.unit))[0]
    found: dict[str, Any] = {"rpe": rpe, "bits": bits, "lag": lag, "lower": pair.lower, "upper": pair.upper}
    if not pair.bank.heads:
        return found
    kernel = [float(f"{v:.6g}") for v in drawn["kernel"]]
    heads = [[kind, float(f"{decay:.6g}"), float(f"{weight:.6g}")] for kind, decay, weight in drawn["heads"]]
    return {**found, "kernel": kernel, "heads": heads, "weights": upper(arb(pair.bank.weight_sum))}


def horizon_row(rpe: RpeSet, bits: int) -> dict[str, Any]:
    """The certified horizon."""
    found = horizon(rpe, fmpq(1, 2**bits), bits)
    return {"rpe": rpe, "bits": bits, "horizon": found.horizon, "upper": found.upper, "next_lower": found.next_lower}


def minimal_row(rpe: Rpe, bits: int, lag: int) -> dict[str, Any]:
    """The minimal bank of T heads that is best for an arithmetic."""
    unit = fmpq(1, 2**bits)
    bank = budgeted_minimal(rpe, (lag,), lag, unit, DECAY_BITS)
    with working_precision(512):
        error, weights = minimal_bound(rpe, lag, bank.decays), weight_sum(bank)
        total = upper(error + arb(unit) * weights)
    decays = [nearest(p) for p in bank.decays]
    return {"rpe": rpe, "bits": bits, "lag": lag, "error": upper(error), "weights": upper(weights), "total": total, "decays": decays}


def interpolation_row(rpe: Rpe, bank: str, lag: int, heads: int) -> dict[str, Any]:
    """The bound of an interpolating bank, exact weights, with the free parameters that it was evaluated at."""
    found = attention_bound(rpe, (lag,), heads, bank)
    tuning = found.tunings[0]
    row = {"rpe": rpe, "bank": bank, "lag": lag, "heads": heads, "error": upper(found.total)}
    return {**row, "alpha": nearest(tuning.alpha), "gamma": nearest(tuning.gamma)}


def _limits() -> Iterator[dict[str, Any]]:
    for rpe, longest in LONGEST.items():
        for bits in MIXED_BITS if rpe == "mixed" else BITS:
            for lag in range(1, longest + 1):
                row = limit_row(rpe, bits, lag)
                yield row
                if row["lower"] > OUT_OF_REACH:
                    break


def _interpolation() -> Iterator[dict[str, Any]]:
    ways: tuple[Rpe, ...] = ("lin", "log")
    for rpe in ways:
        for bank in ("tuned", "paper"):
            for lag in range(1, LONGEST[rpe] + 1):
                for heads in HEADS:
                    try:
                        yield interpolation_row(rpe, bank, lag, heads)
                    except LemmaformerError:  # fewer heads than any rate needs
                        continue


def computed_table() -> dict[str, Any]:
    """All rows; minutes."""
    one: tuple[Rpe, ...] = ("lin", "log")
    return {
        "format": FORMAT,
        "version": VERSION,
        "bits": list(BITS),
        "limits": list(_limits()),
        "horizons": [horizon_row(rpe, bits) for rpe in one for bits in BITS],
        "minimal": [minimal_row(rpe, bits, lag) for rpe in one for bits in BITS for lag in range(1, LONGEST_MINIMAL[rpe] + 1)],
        "interpolation": list(_interpolation()),
    }


def shipped_table() -> dict[str, Any]:
    """The table as it was written."""
    found: dict[str, Any] = json.loads(files("verify.limits").joinpath("explorer.json").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    content = json.dumps(computed_table(), ensure_ascii=False, separators=(",", ":"))
    Path(str(files("verify.limits").joinpath("explorer.json"))).write_text(content + "\n", encoding="utf-8")
