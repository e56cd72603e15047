"""All that is made for people: tables on the console, figures, pages of notebooks, spinners; nothing else formats.

It shows plain data, bounds and certificates, so it may import `analyzer` and `verify.chain.certificate` and is itself imported by
`lemmaformer` alone.
"""
