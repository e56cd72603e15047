"""A bundle's claims against its weights, broken bundles, and ways out of a refusal that were tried.

May import from `verify.theorems` and what lies below it.
"""
