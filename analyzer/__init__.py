"""Symbols, exact numbers and promises, never JAX; at its root errors, ranges and options.

May import nothing else of the project.
"""
