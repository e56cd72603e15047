"""What the theorems rest on: extraction errors, feed-forward budgets, lag encodings, quadrature, decompositions of couplings.

May import from `analyzer.targets` and what lies below it.
"""
