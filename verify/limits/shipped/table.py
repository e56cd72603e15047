"""The shipped certificates as hints: a bank and a dual sequence for every lag of the standard table, and what proves the horizons.

One file per type of heads and arithmetic. It is a certificate file (`verify.limits.certificate_files`; `verify` re-checks it) with one
more part for the horizon T, the largest lag with E_u(T) < 1/2:

    "horizon": {"lag": T, "primal": bank with E_u(T) < 1/2, "duals": [δ, …], "beyond": [what shows E_u ≥ 1/2 at T + 1, T + 2, …]}

with δ by its place in `duals`, {"difference": n} for the central difference of order 2n, or null where the closed form of the π-law does.

Whatever is read here is a hint. `verify.limits.pairs` recomputes both sides from the exact numbers in ball arithmetic and solves anew where
they show too little; so a damaged file costs time and nothing else, and what cannot be read counts as missing.
"""

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from flint import fmpq

from analyzer.errors import LemmaformerError
from analyzer.limits.budgeted_error import MAX_ORDER, Dual, PricedBank, RpeSet
from verify.limits.exact_parts import read_bank, read_dual, read_exact

SIZES = (8, 24, 53)
"""bfloat16, float32, float64: the unit roundoff is 2^−bits, and decays have so many bits."""
LONGEST = 256
"""Lags of a table, and lags that a horizon's proof settles one by one, at most."""
DAMAGE = (LemmaformerError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError, OSError)
"""What reading a damaged file may raise."""

Witness = Dual | int | None
"""What shows a lower bound: a sequence, the central difference of order 2n by n, or None for the closed form of the π-law."""


@dataclass(frozen=True)
class LagHint:
    """A bank and a sequence for one lag, and the two sides that the file claims for them."""

    bank: PricedBank
    dual: Dual
    lower: float
    upper: float


@dataclass(frozen=True)
class HorizonHint:
    """A lag, a bank that serves it, and what shows that lags beyond are out of reach, one after the other."""

    lag: int
    bank: PricedBank
    beyond: tuple[Witness, ...]


def place(rpe: RpeSet, bits: int) -> str:
    """The name of a file of the table."""
    return f"{rpe}_{bits}.json"


def text_of(rpe: RpeSet, bits: int) -> str:
    """The file as it is."""
    return files("verify.limits.shipped").joinpath(place(rpe, bits)).read_text(encoding="utf-8")


@lru_cache(maxsize=16)
def _content(rpe: RpeSet, bits: int) -> dict[str, Any]:
    """The file's content; nothing if it cannot be read, or is about something else."""
    try:
        data = json.loads(text_of(rpe, bits))
        return data if data["rpe"] == rpe and read_exact(data["unit"]) == fmpq(1, 2**bits) else {}
    except DAMAGE:
        return {}


def forget() -> None:
    """Read the files anew."""
    _content.cache_clear()


def bits_of(unit: fmpq, decay_bits: int) -> int | None:
    """The arithmetic of the table with this unit roundoff and decays of so many bits."""
    return decay_bits if decay_bits in SIZES and unit == fmpq(1, 2**decay_bits) else None


def lag_hint(rpe: RpeSet, bits: int, lag: int) -> LagHint | None:
    """What the table has for a lag."""
    try:
        entry = next((entry for entry in _content(rpe, bits).get("entries", ()) if entry["lag"] == lag), None)
        return None if entry is None else read_hint(entry, rpe)
    except DAMAGE:
        return None


def read_hint(entry: dict[str, Any], rpe: RpeSet) -> LagHint | None:
    """An entry of a certificate file; None if its sides are no numbers."""
    least, most = (float(entry[name]) for name in ("lower", "upper"))
    return LagHint(read_bank(entry["primal"], rpe), read_dual(entry["dual"]), least, most) if math.isfinite(least + most) else None


def horizon_hint(rpe: RpeSet, bits: int) -> HorizonHint | None:
    """What the table has for a horizon."""
    try:
        data = _content(rpe, bits).get("horizon")
        if data is None or type(data["lag"]) is not int or not 1 <= data["lag"] <= LONGEST or len(data["beyond"]) > LONGEST:
            return None
        duals = [read_dual(dual) for dual in data["duals"]]
        return HorizonHint(data["lag"], read_bank(data["primal"], rpe), tuple(_witness(shown, duals) for shown in data["beyond"]))
    except DAMAGE:
        return None


def _witness(shown: Any, duals: list[Dual]) -> Witness:
    if shown is None:
        return None
    if isinstance(shown, dict):
        return range(MAX_ORDER + 1)[shown["difference"]]
    return duals[shown]
