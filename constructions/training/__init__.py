"""Training: recipes, the loop, networks as parameters, checkpoints, the models of published experiments.

May import from `constructions.theorems` and what lies below it.
"""
