"""Head banks: decays and weights that turn positions into memories, minimal, interpolating, balanced, mixed, fitted.

May import from `analyzer.limits` and what lies below it.
"""
