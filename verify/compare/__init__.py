"""Networks side by side, and the spectra of their logits.

May import from `verify.bundles` and what lies below it.
"""
