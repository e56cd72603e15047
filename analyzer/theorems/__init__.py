"""One file per theorem; its docstring is the theorem. `THEOREMS` maps ids to modules."""

from types import ModuleType

from analyzer.theorems import prop_4_2, prop_4_3, prop_4_5, shift_chain, thm_3_1, thm_4_1, thm_4_4, thm_5_1

_ALL = (thm_3_1, thm_4_1, prop_4_2, prop_4_3, thm_4_4, prop_4_5, thm_5_1, shift_chain)
THEOREMS: dict[str, ModuleType] = {module.ID: module for module in _ALL}
