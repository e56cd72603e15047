"""Formulas compared on whole boxes of real sizes: ball arithmetic with subdivision, beside what sympy knows of signs and limits.

May import from `analyzer.lemmas` and what lies below them.
"""
