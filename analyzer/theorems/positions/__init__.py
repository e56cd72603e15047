"""Theorems about heads with other relative positions: a bias per distance, KERPLE's powers, strides; their pages and formulas."""
