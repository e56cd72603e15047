"""The networks of the theorems, one file each; `assembly` puts banks and neurons together.

May import from `analyzer.theorems`, `constructions.banks`, `constructions.neurons` and `constructions.run` and what lies below them.
"""
