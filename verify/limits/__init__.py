"""Limits as pairs lower ≤ optimum ≤ upper, and certificate files that are checked without a solver; those of standard limits are shipped.

May import from `verify.theorems` and what lies below it.
"""
