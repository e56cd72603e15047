"""Functions of the distance s: kernels that are wanted, kernels that heads deliver, their ℓ¹ norms with the infinite tail.

May import from `analyzer.language` and what lies below it.
"""
