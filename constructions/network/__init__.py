"""The Transformer as a JAX pytree, its float types, its exponential, the form of its arrays.

May import from `analyzer.numbers` and what lies below it.
"""
