"""Weights of the library of constructions (`analyzer.theorems.library`)."""
