"""What no network of a class can do: one file per law, its docstring is the law.

May import from `analyzer.lemmas` and `analyzer.statements` and what lies below them.
"""
