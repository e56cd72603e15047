"""Weights from proofs, and networks that run."""
