"""A library of explicit constructions beyond the two papers: positions, induction, counting, gradient steps, arithmetic."""
