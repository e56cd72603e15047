"""The certified error of layers with arbitrary weights, whoever made them.

May import from `verify.chain` and what lies below it.
"""
