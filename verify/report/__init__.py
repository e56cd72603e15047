"""Everything printed or drawn for people, and nothing else: tables, figures, pages, progress.

May import from `verify.chain` and what lies below it.
"""
