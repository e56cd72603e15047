"""Neurons: read-outs as splines or samples, lags written into slots.

May import from `analyzer.lemmas` and `constructions.network` and what lies below them.
"""
