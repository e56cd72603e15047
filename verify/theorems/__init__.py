"""The certificate of each theorem, one file each, and of networks that no theorem built.

May import from `constructions.training` and `verify.layers` and what lies below them.
"""
