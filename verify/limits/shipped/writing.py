"""The shipped certificates, written again: every lag and every horizon of the standard table solved afresh.

It takes minutes. `python -m verify.limits.shipped.writing` writes all files, with names such as `lin_24` those files only.
"""

import json
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from flint import fmpq

from analyzer.limits.budgeted_error import Dual, RpeSet
from verify.limits.certificate_files import certificate
from verify.limits.exact_parts import bank_as_data, dual_as_data
from verify.limits.pairs import CertifiedHorizon, Pair, forget, horizon, lag_limit, longest_searched
from verify.limits.shipped.table import SIZES, Witness, place


def solved_pairs(rpe: RpeSet, bits: int) -> list[Pair]:
    """The pairs of all lags for which banks are looked for, each as it is found when nothing else was asked before."""
    found, unit = [], fmpq(1, 2**bits)
    for lag in range(1, longest_searched(unit) + 1):
        forget()
        found.append(lag_limit(rpe, lag, unit, bits, fresh=True))
    return found


def horizon_as_data(found: CertifiedHorizon) -> dict[str, Any]:
    """What proves a horizon; sequences that serve several lags are written once."""
    duals = list(dict.fromkeys(witness for witness in found.beyond if isinstance(witness, Dual)))
    beyond = [_shown(witness, duals) for witness in found.beyond]
    return {"lag": found.horizon, "primal": bank_as_data(found.bank), "duals": [dual_as_data(dual) for dual in duals], "beyond": beyond}


def _shown(witness: Witness, duals: Sequence[Dual]) -> Any:
    return {"difference": witness} if isinstance(witness, int) else None if witness is None else duals.index(witness)


def written(rpe: RpeSet, bits: int) -> str:
    """The text of one file."""
    unit = fmpq(1, 2**bits)
    data = certificate(solved_pairs(rpe, bits), rpe, unit)
    forget()
    data["horizon"] = horizon_as_data(horizon(rpe, unit, bits, fresh=True))
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def main(names: Sequence[str]) -> None:
    for rpe in get_args(RpeSet):
        for bits in SIZES:
            if not names or f"{rpe}_{bits}" in names:
                Path(str(files("verify.limits.shipped").joinpath(place(rpe, bits)))).write_text(written(rpe, bits), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
