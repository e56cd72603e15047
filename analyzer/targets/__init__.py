"""What is to be remembered: fixed, adaptive and fading memories, couplings, and the protocol they share.

May import from `analyzer.kernels` and what lies below it.
"""
