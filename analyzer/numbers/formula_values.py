"""Formulas in ball arithmetic: the sympy expression that a person reads is what is certified."""

from collections.abc import Callable, Mapping
from typing import Any

import sympy
from flint import arb, fmpq

from analyzer.numbers.exact import maximum

_FUNCTIONS: dict[Any, Callable[..., arb]] = {
    sympy.exp: lambda x: x.exp(),
    sympy.log: lambda x: x.log(),
    sympy.zeta: lambda s, a=None: s.zeta() if a is None else s.zeta(a),
    sympy.sqrt: lambda x: x.sqrt(),
    sympy.chebyshevu: lambda n, x: x.chebyshev_u(int(n.unique_fmpz())),
    sympy.sin: lambda x: x.sin(),
    sympy.cos: lambda x: x.cos(),
    sympy.tanh: lambda x: x.lower().tanh().union(x.upper().tanh()) if x.is_finite() else arb.nan(),
    sympy.Abs: lambda x: abs(x),
    sympy.sign: lambda x: arb(1) if x > 0 else arb(-1) if x < 0 else arb(-1).union(arb(1)),
    sympy.Heaviside: lambda x, _: arb(1) if x > 0 else arb(0) if x < 0 else arb(0).union(arb(1)),
    sympy.floor: lambda x: x.floor(),
    sympy.ceiling: lambda x: x.ceil(),
    sympy.gamma: lambda x: x.gamma(),
    sympy.polygamma: lambda k, x: x.digamma() if k == 0 else arb.nan(),
    sympy.Min: lambda *values: -maximum([-value for value in values]),
    sympy.Max: lambda *values: maximum(list(values)),
}


def evaluate(expression: sympy.Expr, values: Mapping[sympy.Basic, arb | fmpq | int]) -> arb:
    """The expression in ball arithmetic; `values` gives symbols and applied functions such as B(n)."""
    if expression in values:
        return arb(values[expression])
    if expression.is_Rational:
        return arb(fmpq(int(expression.p), int(expression.q)))
    if expression is sympy.pi:
        return arb.pi()
    if expression is sympy.E:
        return arb(1).exp()
    if isinstance(expression, sympy.Product):
        index, first, last = expression.limits[0]
        ends = [evaluate(end, values).unique_fmpz() for end in (first, last)]
        result = arb(1)
        for k in range(int(ends[0]), int(ends[1]) + 1):
            result *= evaluate(expression.function, {**values, index: k})
        return result
    arguments = [evaluate(argument, values) for argument in expression.args]
    if expression.is_Add:
        return sum(arguments[1:], arguments[0])
    if expression.is_Mul:
        product = arguments[0]
        for argument in arguments[1:]:
            product = product * argument
        return product
    if expression.is_Pow:
        base, exponent = arguments
        integer = exponent.unique_fmpz()
        return base**integer if integer is not None and exponent.is_exact() else base**exponent
    if expression.func in _FUNCTIONS:
        return _FUNCTIONS[expression.func](*arguments)
    raise TypeError(f"no ball arithmetic for {expression.func}")
