"""One file per theorem; its docstring is the theorem. `THEOREMS` maps ids to modules."""

from types import ModuleType

from analyzer.theorems import thm_3_1

THEOREMS: dict[str, ModuleType] = {thm_3_1.ID: thm_3_1}
