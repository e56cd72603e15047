"""Networks as files: cards, bundles, foreign weights, published models, one weight changed, places that are filled whole or not at all.

May import from `analyzer.targets` and `constructions.network` and what lies below them.
"""
