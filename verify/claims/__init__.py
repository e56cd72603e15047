"""Claims of a user: quantities enclosed at a point of a grid, the verdict there, rates, and counterexamples that can be run.

May import from `analyzer.claims`, `verify.bundles`, `verify.limits` and what lies below them.
"""
