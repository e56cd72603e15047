"""Networks side by side, and the spectra of their logits.

May import from `verify.bundles` and `verify.limits` and what lies below them.
"""
