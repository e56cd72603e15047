"""LaTeX of our formulas.

Sympy's own printer loads the units of physics when it meets a product (a tenth of a second); ours writes a product as one fraction.
"""

import sympy
from sympy.printing.latex import LatexPrinter


class _FormulaPrinter(LatexPrinter):
    def _print_Mul(self, product: sympy.Mul) -> str:
        numerator, denominator = sympy.fraction(product)
        if denominator != 1:
            return rf"\frac{{{self._print(numerator)}}}{{{self._print(denominator)}}}"
        if product.could_extract_minus_sign():
            return f"- {self.parenthesize(-product, sympy.printing.precedence.PRECEDENCE['Mul'])}"
        factors = product.as_ordered_factors()
        return " ".join(self.parenthesize(factor, sympy.printing.precedence.PRECEDENCE["Mul"]) for factor in factors)


def latex(expression: sympy.Expr) -> str:
    """The expression in LaTeX."""
    return str(_FormulaPrinter().doprint(expression))
