"""Executors: the plain O(N²) pass, the fast one, kernels fused from heads, and the stream in between.

May import from `analyzer.lemmas` and `constructions.files` and what lies below them.
"""
