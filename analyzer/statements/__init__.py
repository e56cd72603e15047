"""What a theorem is to the program: page, bound, proof graph, citation, and the registry that finds them.

May import from `analyzer.targets` and what lies below it.
"""
