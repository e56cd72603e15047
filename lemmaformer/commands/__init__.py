"""The command line: one file per group of commands, which spells options as flags.

May import from `lemmaformer` and what lies below it.
"""
