"""The certificate, the rounding of float networks, and the chain of one dp-free layer that several theorems share.

May import from `constructions.theorems` and what lies below it.
"""
