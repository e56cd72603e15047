"""LaTeX of our formulas.

Sympy's own printer loads the units of physics when it meets a product (a tenth of a second); ours writes a product as one fraction.
"""

from collections.abc import Mapping

import sympy
from sympy.printing.latex import LatexPrinter

from analyzer.statements.symbols import Quantity


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


MEANINGS = {
    "T": "the lag",
    "H": "the number of heads",
    "n": "any rate, a whole number from 1 on",
    "alpha": "a free parameter of the proof, the spacing of the decays",
    "gamma": "a free parameter of the proof, the slowest decay",
    "beta": "the rate at which the kernel falls, or a score with the squared distance to the lag",
    "B()": "the total variation of the n-th derivative of the bump exp(-1/(1-u^2))",
    "V()": "the total variation of the n-th derivative of the kernel's bumps",
    "S()": "the largest n-th derivative of the kernel's bumps",
    "b": "the right end of the interval of nodes, U_k the Chebyshev polynomials of the second kind",
    "eta": "the spacing of the exponents",
    "B": "the least exponent",
    "A": "1/r, the reciprocal of the rate",
    "z()": "the ratio of head n",
    "q()": "the n-th ratio of two lags that occur",
    "tau": "the shift of a layer",
    "p": "a head's decay",
    "L": "the number of layers",
    "ell": "the length of an interval on which a function is interpolated",
    "psi2": "the largest second derivative of a ridge",
    "m": "the number of neurons, or of query and key coordinates",
    "barron": "the Barron norm of the read-out",
    "D": "the dimension of the residual stream",
    "Lip_F": "the Lipschitz constant of F",
    "norm_f": "the largest |f|",
    "osc_f": "the largest value of a component of f minus the least",
    "I_rho": "what interpolating the coupling leaves, modulo functions of the query",
    "I_f": "what interpolating a component of f leaves",
    "I_F": "the error of the spline of F",
    "M": "the pieces of the splines of the factors",
    "N": "the pieces of the spline of F",
    "T()": "the tail of the coupling after m terms",
    "D2_rho": "the largest second derivatives of the coupling, added",
    "D2_f": "the largest second derivative of f",
    "v": "the variance of a token",
    "beta()": "the coefficients of the Blaschke product of the heads' ratios",
    "P()": "the share of the memory's squared norm that the heads span",
    "u": "the unit roundoff, 0 in exact arithmetic",
    "Q": "the changes of slope of the table, added",
    "K": "the largest code",
    "delta": "how far stored values move a code",
    "epsilon_F": "how far the table is from F, 0 where F is rational",
    "F_0": "the value at the least code",
    "D2_F": "the largest second derivative of F",
}
"""Every symbol of a bound in words, unless it says so itself (`Quantity`); functions carry brackets."""


def statement(expression: sympy.Expr, constants: Mapping[str, sympy.Expr] | None = None) -> str:
    """e ≤ … in LaTeX with every symbol defined; symbols in `constants` (alpha also stands for alpha_1, …) get their values."""
    values = {s: (constants or {})[_stem(s)] for s in expression.free_symbols if _stem(s) in (constants or {})}
    bound = expression.subs(values)
    applied = {f.func for f in bound.atoms(sympy.core.function.AppliedUndef)}
    names = {_stem(s): _symbol(s) for s in sorted(bound.free_symbols, key=str)}
    names |= {f"{f.__name__}()": f.__name__ for f in sorted(applied, key=str)}
    meanings = MEANINGS | {str(s): s.meaning for s in bound.free_symbols if isinstance(s, Quantity)}
    words = ", ".join(f"${_indexed(symbol, bound)}$ {meanings[name]}" for name, symbol in names.items())
    fixed = ", ".join(f"${latex(symbol)} = {latex(value)}$" for symbol, value in sorted(values.items(), key=str))
    return f"$$e \\le {latex(bound)}$$ where {words}" + (f"; the paper's {fixed}" if fixed else "")


def _stem(symbol: sympy.Symbol) -> str:
    """The name without the number of a memory: T_1 is a T."""
    name, _, index = str(symbol).rpartition("_")
    return name if index.isdigit() and name in MEANINGS else str(symbol)


def _symbol(symbol: sympy.Symbol) -> str:
    return latex(sympy.Symbol(_stem(symbol)))


def _indexed(symbol: str, bound: sympy.Expr) -> str:
    several = any(str(s).endswith("_1") and _symbol(s) == symbol for s in bound.free_symbols)
    return f"{symbol}_k" if several else symbol
