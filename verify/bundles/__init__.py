"""A bundle's claims against its weights, broken bundles, and ways out of a refusal that were tried.

May import from `constructions.exports`, `verify.theorems` and what lies below it.
"""
