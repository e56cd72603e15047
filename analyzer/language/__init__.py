"""What users write, read over a whitelist: read-outs, lags and formulas.

May import from `analyzer.numbers` and what lies below it.
"""
