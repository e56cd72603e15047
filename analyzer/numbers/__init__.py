"""Exact numbers, balls and functions of one variable: the arithmetic under everything.

May import from `analyzer` and what lies below it.
"""
