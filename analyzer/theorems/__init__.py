"""One file per theorem; its docstring is the theorem. `THEOREMS` maps ids to what is built, `limits` to what nothing can beat."""

from importlib import import_module
from types import ModuleType

from analyzer.theorems import jl_4_2, prop_4_2, prop_4_3, prop_4_5, shift_chain, thm_3_1, thm_4_1, thm_4_4, thm_5_1

_ALL = (thm_3_1, thm_4_1, prop_4_2, prop_4_3, thm_4_4, prop_4_5, thm_5_1, shift_chain, jl_4_2)
THEOREMS: dict[str, ModuleType] = {module.ID: module for module in _ALL}
LIMITS = {
    "lag-law": "lag_law",
    "budgeted-error": "budgeted_error",
    "pi-law": "pi_law",
    "hankel": "hankel",
    "coupling-rank": "coupling_rank",
    "jl-6": "rnn",
}
"""Ids of limits and the files that prove them; loaded when asked for, so that evaluating a bound does not wait for them."""


def limit(name: str) -> ModuleType:
    """The page of a limit."""
    return import_module(f"analyzer.theorems.{LIMITS[name]}")
