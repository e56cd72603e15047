"""One file per theorem, its docstring is the theorem; `base` has what theorems about head banks share, `positions` those
about other relative positions.

May import from `analyzer.limits` and what lies below it.
"""
