"""One formula never exceeds another on a box of real sizes: proved, refuted at a point, or undecided on named sub-boxes.

The claim small ≤ large is f ≥ 0 for one of these forms,

    f = large − small,     and     f = log large − log small     where both sides are shown to be positive,

and for the numerator of the last one over a common denominator, where the sign of that is shown. The logarithm is expanded over products,
powers and exponentials of parts that are shown to be positive, so that common factors cancel and what does not matter drops out. An
unbounded size x is 1/y with y in (0, 1/low]; by continuity f ≥ 0 may be shown on the closed interval. A sub-box (cell) is proved as soon
as one form is, by one of

    value      f(cell) in ball arithmetic is not below 0;
    monotone   ∂f/∂x has a sign on the cell, which is shown in the same ways: f is least where x is at one end; at y = 0, where f may have
               no value, this is the limit that sympy finds;
    mean       f(m) + Σ ∂_x f(cell) (x − m), m the middle;
    touching   one variable is left, f'(c) = 0 and f(c) = 0 exactly for a number c that sympy finds, and f'' > 0 on the cell: then
               f ≥ f(c) + f'(c)(x − c) = 0. No enclosure of f could show that, however small the cell.

A cell that is not proved is tried at points: a point where f < 0 for sure refutes the claim. Otherwise it is cut, in ratio where its ends
are far apart. What is left when the work is used up is undecided. A strict inequality is proved where f > 0 on the closed interval.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy
from flint import arb, fmpq

from analyzer.claims.symbolic import Meaning, Need, Variables, meaning
from analyzer.errors import InputError
from analyzer.language.claims import Claim, ClaimVerdict
from analyzer.numbers.exact import interval, nearest, rational, working_precision
from analyzer.numbers.formula_values import evaluate

PRECISION = 128
"""Bits: four times what cells of relative width 2^-30 need."""
CELLS = 1500
"""Cells that are looked at for one inequality."""
CELLS_OF_PART = 200
"""For one condition or factor."""
OPERATIONS = 1 << 22
"""Operations in ball arithmetic for the same: half a minute, in which formulas with long derivatives do not get through all cells."""
NARROW = fmpq(1, 2**30)
"""Cells of this relative width are not cut, nor those that end below this at y = 0."""
FAR = 4
"""Ends whose ratio is more than this are cut at their geometric mean."""
DEEP = 2
"""Slopes of slopes: how often a sign is looked for in the signs of derivatives."""
DEEP_OPERATIONS = 60
"""In expressions of up to so many operations."""
MAX_OPERATIONS = 400
"""Expressions of more operations are not rewritten by sympy, which may take minutes over them."""
MAX_DEGREE, MAX_TERMS = 60, 1000
"""Nor are those of a larger degree or with more terms when they are multiplied out: few operations can stand for many."""
MAX_UNKNOWNS, MAX_SOLVED = 2, 8
"""Equations for touching points are solved in so many functions of the variable, up to this degree in the variable itself."""
LARGEST_EXACT, LARGEST_EXPONENT = 1000, 1 << 12
"""Whole numbers at which powers such as T**T are computed exactly, and their largest exponent."""
SMALLEST_END, LARGEST_END = fmpq(1, 10**100), fmpq(10**100)
"""Ends of boxes: numbers between them, and products of two of these, are numbers of float64, in which cells are cut."""
LARGEST_SIDE = arb(2) ** 1000
"""Sides that are shown are numbers of float64."""
EASY = 20
"""Cells before touching points are looked for, which takes sympy a second."""
SHOWN = 20
"""Undecided cells that a result holds."""

Ends = tuple[fmpq, fmpq | None]
"""[low, high] of a size; None is ∞."""
Cell = tuple[tuple[fmpq, fmpq], ...]
"""A sub-box in the variables of the proof."""
Point = tuple[fmpq, ...]


@dataclass(frozen=True)
class BoxProof:
    """What is known of one claim on one box."""

    verdict: ClaimVerdict
    cells: int
    """Cells that were looked at."""
    point: dict[str, str] | None = None
    """Where it is refuted."""
    sides: tuple[float, ...] | None = None
    """The sides there, rounded; None where one of them is no number of float64."""
    undecided: tuple[dict[str, tuple[float, float]], ...] = ()
    touching: tuple[str, ...] = ()
    """Where both sides are equal and touch."""
    reason: str | None = None
    """What would decide it, or why it is refuted."""


def prove(claim: Claim, box: Mapping[str, Ends], given: Mapping[str, fmpq], rpe: str = "lin") -> BoxProof:
    """The claim on a box; `given` are the values of the other sizes."""
    _check_box(claim, box)
    unbounded = frozenset(name for name, (_, high) in box.items() if high is None)
    variables = Variables(tuple(box), unbounded, given, "log" if rpe == "log" else "lin")
    whole: Cell = tuple((fmpq(0), 1 / low) if high is None else (low, high) for low, high in box.values())
    with working_precision(PRECISION):
        sides = [meaning(side, variables) for side in claim.sides]
        space = Space(tuple(variables.symbols.values()), unbounded, variables.constants, whole)
        for side in sides:
            unknown = _undefined(side, space)
            if unknown is not None:
                return BoxProof(ClaimVerdict.UNDECIDED, space.looked, reason=unknown)
        found = []
        for (left, right), relation in zip(itertools.pairwise(sides), claim.relations, strict=True):
            small, large = (left, right) if relation[0] == "<" else (right, left)
            found.append(_inequality(small.expression, large.expression, len(relation) == 1, space))
        return _described(found, sides, space)


def _check_box(claim: Claim, box: Mapping[str, Ends]) -> None:
    for name, (low, high) in box.items():
        if low <= 0 or (high is not None and high < low):
            top = "oo" if high is None else _text(high)
            raise InputError(f"the box of {name} is {_text(low)}:{top}; sizes are positive, and the lower end comes first")
        if low < SMALLEST_END or (high is not None and high > LARGEST_END):
            raise InputError(f"the box of {name} has an end below 10^-100 or above 10^100; oo is an upper end that is none")
        if name not in claim.sizes and not (claim.quantities and name in ("T", "H")):
            raise InputError(f"{name} has a box but does not occur in the claim")


@dataclass(frozen=True)
class Outcome:
    """Of one inequality: a point, or a size at an exact number, that refutes it, or the cells that are left."""

    verdict: ClaimVerdict
    point: Point | None = None
    root: tuple[str, str] | None = None
    undecided: tuple[Cell, ...] = ()
    touching: tuple[tuple[str, str], ...] = ()
    """Sizes and exact numbers at which both sides are equal."""


class Space:
    """The variables, which of them are 1 over a size, constants and the whole box; counts cells that are looked at, and operations."""

    def __init__(
        self, symbols: tuple[sympy.Symbol, ...], unbounded: frozenset[str], constants: Mapping[sympy.Basic, arb], whole: Cell
    ) -> None:
        self.symbols, self.constants, self.whole = symbols, constants, whole
        self.looked, self.operations = 0, 0
        self.inverted = [symbol.name in unbounded for symbol in symbols]
        self._forms: dict[sympy.Expr, Form] = {}
        self._signs: dict[sympy.Expr, int] = {}

    def at(self, expression: sympy.Expr, values: Mapping[sympy.Basic, arb]) -> arb:
        """An enclosure; not finite where there is none."""
        try:
            return evaluate(expression, {**self.constants, **values})
        except (TypeError, ValueError, OverflowError, ZeroDivisionError):
            return arb.nan()

    def form(self, expression: sympy.Expr) -> "Form":
        if expression not in self._forms:
            self._forms[expression] = Form(expression, self)
        return self._forms[expression]

    def sign(self, expression: sympy.Expr) -> int:
        """1 or −1 for an expression that is shown to be positive or negative wherever the variables are, 0 if neither is shown."""
        if expression not in self._signs:
            self._signs[expression] = self._by_parts(expression) or self._by_cells(expression)
        return self._signs[expression]

    def positive(self, expression: sympy.Expr) -> bool:
        return self.sign(expression) > 0

    def _by_parts(self, expression: sympy.Expr) -> int:
        """From what sympy knows of positive variables, and from factors and bases."""
        if rewritable(expression, DEEP_OPERATIONS) and (expression.is_positive or expression.is_negative):
            return 1 if expression.is_positive else -1
        if expression.is_Mul:
            return math.prod(self.sign(factor) for factor in expression.args)
        if expression.is_Pow and self.positive(expression.base):
            return 1
        factored = factors(expression)
        return 0 if factored is None else self.sign(factored)

    def _by_cells(self, expression: sympy.Expr) -> int:
        for side in (1, -1):
            if search((self.form(side * expression),), self, strict=True, work=CELLS_OF_PART).verdict is ClaimVerdict.HOLDS:
                return side
        return 0

    def written(self, expression: sympy.Expr) -> str:
        """An expression in the sizes, for people."""
        turned = {symbol: 1 / symbol for symbol, inverted in zip(self.symbols, self.inverted, strict=True) if inverted}
        return str(expression.subs(turned, simultaneous=True))[:60]

    def named(self, point: Point) -> dict[str, str]:
        """A point in the sizes."""
        sizes = (1 / x if turned else x for x, turned in zip(point, self.inverted, strict=True))
        return {symbol.name: _text(x) for symbol, x in zip(self.symbols, sizes, strict=True)}

    def rooted(self, k: int, root: sympy.Expr) -> tuple[str, str]:
        """A size and the exact number that it is where its variable is at a root."""
        return self.symbols[k].name, str(1 / root if self.inverted[k] else root)

    def sized(self, cell: Cell) -> dict[str, tuple[float, float]]:
        """A cell in the sizes, rounded."""
        found = {}
        for symbol, turned, (low, high) in zip(self.symbols, self.inverted, cell, strict=True):
            ends = (1 / high, None if low == 0 else 1 / low) if turned else (low, high)
            found[symbol.name] = (nearest(ends[0]), float("inf") if ends[1] is None else nearest(ends[1]))
        return found


def rewritable(expression: sympy.Expr, operations: int = MAX_OPERATIONS) -> bool:
    """Whether sympy may work on it: few operations, and neither many terms nor a large degree if it were multiplied out."""
    if sympy.count_ops(expression) > operations:
        return False
    degree, terms = _multiplied_out(expression)
    return degree <= MAX_DEGREE and terms <= MAX_TERMS


def _multiplied_out(expression: sympy.Expr) -> tuple[int, int]:
    """(degree, terms), from above; functions count as variables, and their arguments for themselves."""
    if not expression.args:
        return int(expression.is_Symbol), 1
    degrees, terms = zip(*map(_multiplied_out, expression.args), strict=True)
    if expression.is_Add:
        return max(degrees), sum(terms)
    if expression.is_Mul:
        return sum(degrees), math.prod(terms)
    if expression.is_Pow and expression.exp.is_Rational:
        power = math.ceil(abs(expression.exp))
        return power * degrees[0], math.comb(power + terms[0] - 1, power) if power <= MAX_DEGREE else terms[0]
    return max(1, *degrees), max(terms)


def factors(expression: sympy.Expr) -> sympy.Expr | None:
    """A sum as a product, where sympy finds one."""
    if not expression.is_Add or not rewritable(expression):
        return None
    found = sympy.factor(sympy.together(sympy.expand(expression)))
    return found if found.is_Mul or found.is_Pow else None


class Form:
    """A function on the box with its slopes and its limits, made when they are asked for."""

    def __init__(self, expression: sympy.Expr, space: Space) -> None:
        self.expression, self.space = expression, space
        self.free = [k for k, symbol in enumerate(space.symbols) if expression.has(symbol)]
        self.size = int(sympy.count_ops(expression))
        self.small = rewritable(expression)
        self._slopes: dict[int, Form] = {}

    def over(self, cell: Cell) -> arb:
        """An enclosure of its values on a cell."""
        values = {}
        self.space.operations += self.size
        for k in self.free:
            low, high = cell[k]
            values[self.space.symbols[k]] = arb(low) if low == high else interval(arb(low), arb(high))
        return self.space.at(self.expression, values)

    def at(self, point: Point) -> arb:
        """Its value at a point; 0 exactly, if sympy says so."""
        found = self.over(tuple((x, x) for x in point))
        if not found.contains(0) or not self.small or not self._exact(point):
            return found
        numbers = {self.space.symbols[k]: sympy.Rational(int(point[k].p), int(point[k].q)) for k in self.free}
        return arb(0) if self.expression.subs(numbers, simultaneous=True) == 0 else found

    def _exact(self, point: Point) -> bool:
        """Whether its value there is worth computing without rounding: rational, or whole numbers with exponents of moderate size."""
        if self.rational:
            return True
        values = {self.space.symbols[k]: arb(point[k]) for k in self.free}
        exponents = (self.space.at(exponent, values) for exponent in self.exponents)
        return all(x.q == 1 and x <= LARGEST_EXACT for x in point) and all(abs(x) <= LARGEST_EXPONENT for x in exponents)

    def slope(self, k: int) -> "Form":
        if k not in self._slopes:
            # term by term: sympy asks for the zeros of a derivative, and would multiply out a sum of large powers for that
            found = sympy.Add(*(sympy.diff(term, self.space.symbols[k]) for term in sympy.Add.make_args(self.expression)))
            self._slopes[k] = self.space.form(sympy.together(found) if self.small and self.rational else found)
        return self._slopes[k]

    @cached_property
    def exponents(self) -> set[sympy.Expr]:
        return {power.exp for power in self.expression.atoms(sympy.Pow)}

    @cached_property
    def rational(self) -> bool:
        return bool(self.expression.is_rational_function(*self.space.symbols))

    @cached_property
    def sign(self) -> int:
        """What sympy knows of its sign for positive variables."""
        if not self.small or self.size > DEEP_OPERATIONS:
            return 0
        return 1 if self.expression.is_nonnegative else -1 if self.expression.is_nonpositive else 0

    @cached_property
    def limits(self) -> "dict[int, Form]":
        """For variables → 0, where sympy finds finite ones."""
        found: dict[int, Form] = {}
        for k in self.free if self.small else ():
            symbol = self.space.symbols[k]
            try:
                value = sympy.limit(self.expression, symbol, 0, "+")
            except (NotImplementedError, ValueError, TypeError, RecursionError):
                continue
            if not value.has(sympy.oo, -sympy.oo, sympy.zoo, sympy.nan, sympy.AccumBounds, sympy.Limit, symbol):
                found[k] = self.space.form(value)
        return found

    @cached_property
    def touching(self) -> tuple[sympy.Expr, ...]:
        """Numbers c with f(c) = f'(c) = 0, of a function of one variable."""
        if len(self.free) != 1 or not self.small or self.size > DEEP_OPERATIONS:
            return ()
        symbol = self.space.symbols[self.free[0]]
        try:
            slope, scale = _primitive(self.slope(self.free[0]).expression)
            solved = sympy.solve(slope, symbol) if _solvable(slope, symbol) else ()
            low, high = self.space.whole[self.free[0]]
            numbers = [c for c in solved if c.is_number and c.is_real and interval(arb(low), arb(high)).overlaps(self.space.at(c, {}))]
            return tuple(c for c in numbers if all(sympy.simplify(g.subs(symbol, c)) == 0 for g in (self.expression / scale, slope)))
        except (NotImplementedError, ValueError, TypeError, RecursionError):
            return ()


def _solvable(equation: sympy.Expr, symbol: sympy.Symbol) -> bool:
    """Whether sympy is asked to solve an equation: others may take it hours.

    It is a polynomial of small degree in the variable, or one in few functions of it, or a product of these and of sums r + c g, r a
    polynomial, g such a function and c a number.
    """
    above = sympy.numer(sympy.together(equation))
    if not above.has(symbol):
        return False
    try:
        polynomial = sympy.Poly(above)
        unknowns = [part for part in polynomial.gens if part.has(symbol)]
        if len(unknowns) > MAX_UNKNOWNS or max(map(polynomial.degree, unknowns)) > MAX_DEGREE:
            return False
        if symbol not in unknowns:
            return True
        parts = [part.as_expr() for part, _ in polynomial.factor_list()[1]]
    except sympy.polys.polyerrors.BasePolynomialError:
        return False
    functions = [part for part in unknowns if part != symbol]
    return polynomial.degree(symbol) <= MAX_SOLVED and all(_plain(part, symbol, g) for part in parts for g in functions)


def _plain(part: sympy.Expr, symbol: sympy.Symbol, function: sympy.Expr) -> bool:
    """Whether a factor is without the function, or without the variable but for it, or a multiple of it and a polynomial."""
    by_function = sympy.Poly(part, function)
    alone = not any(c.has(symbol) for c in by_function.all_coeffs())
    return alone or by_function.degree() == 0 or (by_function.degree() == 1 and by_function.LC().is_number)


def _primitive(expression: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """r + c_1 log g_1 + … with numbers c_i, divided by their common divisor and with one logarithm, which sympy can solve; the divisor."""
    plain = sympy.expand(sympy.cancel(sympy.together(expression)))
    shares = [plain.coeff(part) for part in plain.atoms(sympy.log)]
    scale = sympy.gcd_list(shares) if shares and all(share.is_Rational and share != 0 for share in shares) else sympy.Integer(1)
    return sympy.logcombine(sympy.expand(plain / scale), force=True), scale


def lowest(form: Form, cell: Cell, deep: int = DEEP) -> arb:
    """A number below the values of the form on a cell; not finite if none is found."""
    wide = [k for k in form.free if cell[k][0] != cell[k][1]]
    found = form.over(cell).lower() if wide else form.at(tuple(low for low, _ in cell)).lower()
    if found > 0 or not wide:
        return found if found.is_finite() else _at_limit(form, cell)
    slopes = {k: form.slope(k).over(cell) for k in wide}
    signs = {k: sign(form.slope(k), cell, slopes[k], deep) for k in wide}
    moved = tuple(ends if signs.get(k, 0) == 0 else (ends[0],) * 2 if signs[k] > 0 else (ends[1],) * 2 for k, ends in enumerate(cell))
    if moved != cell:
        return better(found, lowest(form, moved, deep))
    middle = tuple((low + high) / 2 for low, high in cell)
    spread = sum((slopes[k].abs_upper() * arb((cell[k][1] - cell[k][0]) / 2) for k in wide), arb(0))
    return better(found, (form.at(middle) - spread).lower())


def _at_limit(form: Form, cell: Cell) -> arb:
    """Where variables are 0 and the form has no value: its limit."""
    k = next((k for k in form.free if cell[k] == (0, 0)), None)
    return arb.nan() if k is None or k not in form.limits else lowest(form.limits[k], cell)


def sign(slope: Form, cell: Cell, value: arb, deep: int) -> int:
    """1 or −1 if a form is not negative or not positive on a cell, 0 if that is not known."""
    known = slope.sign
    if value >= 0 or known > 0:
        return 1
    if value <= 0 or known < 0:
        return -1
    if deep == 0 or slope.size > DEEP_OPERATIONS:
        return 0
    if lowest(slope, cell, deep - 1) >= 0:
        return 1
    return -1 if lowest(slope.space.form(-slope.expression), cell, deep - 1) >= 0 else 0


def better(one: arb, other: arb) -> arb:
    """The larger of two lower bounds, of which one may be no number."""
    if not one.is_finite():
        return other
    return one.max(other) if other.is_finite() else one


def search(forms: tuple[Form, ...], space: Space, *, strict: bool, work: int) -> Outcome:
    """Whether one of the forms is ≥ 0 (strict: > 0) in every cell; the forms have the same sign everywhere."""
    forms = tuple(sorted(forms, key=lambda form: (len(form.free), form.size)))
    order, hard, most = itertools.count(), work - EASY, space.operations + OPERATIONS
    heap: list[tuple[float, int, Cell]] = [(0.0, next(order), space.whole)]
    left: list[Cell] = []
    touched: list[tuple[str, str]] = []
    while heap:
        _, _, cell = heapq.heappop(heap)
        if work == 0 or space.operations > most:
            left.append(cell)
            continue
        work, space.looked = work - 1, space.looked + 1
        bounds = list(_bounds(forms, cell, strict))
        if bounds[-1] > 0 or (bounds[-1] >= 0 and not strict):
            continue
        touching = _touching(forms[0], cell) if work < hard else None
        if touching is not None:
            if strict:
                return Outcome(ClaimVerdict.REFUTED, root=touching)
            touched.append(touching)
            continue
        point = next((p for p in _points(cell) if _fails(forms, p, strict)), None)
        if point is not None:
            return Outcome(ClaimVerdict.REFUTED, point)
        halves = _cut(forms, cell)
        if not halves:
            left.append(cell)
        rank = max((float(low) for low in bounds if low.is_finite()), default=-1e308)
        for half in halves:
            heapq.heappush(heap, (rank, next(order), half))
    verdict = ClaimVerdict.UNDECIDED if left else ClaimVerdict.HOLDS
    return Outcome(verdict, undecided=tuple(left), touching=tuple(dict.fromkeys(touched)))


def _bounds(forms: tuple[Form, ...], cell: Cell, strict: bool) -> Iterator[arb]:
    """Lower bounds of the forms in turn, up to the first that proves the cell."""
    for form in forms:
        low = lowest(form, cell)
        yield low
        if low > 0 or (low >= 0 and not strict):
            return


def _touching(form: Form, cell: Cell) -> tuple[str, str] | None:
    """The touching point in a cell on which the form is strictly convex: a size and its value."""
    if len(form.free) != 1 or not form.slope(form.free[0]).slope(form.free[0]).over(cell) > 0:
        return None
    low, high = cell[form.free[0]]
    values = ((c, form.space.at(c, {})) for c in form.touching)
    return next((form.space.rooted(form.free[0], c) for c, value in values if value > 0 and value >= arb(low) and value <= arb(high)), None)


def _points(cell: Cell) -> list[Point]:
    """The middle and the corners; an open end at 0 is taken a little inside."""
    ends = [(high / 16 if low == 0 else low, high) for low, high in cell]
    corners = itertools.product(*(dict.fromkeys(pair) for pair in ends)) if len(ends) <= 4 else iter(())
    return [tuple((low + high) / 2 for low, high in ends), *corners]


def _fails(forms: tuple[Form, ...], point: Point, strict: bool) -> bool:
    values = [form.at(point) for form in forms]
    return any((value <= 0) if strict else (value < 0) for value in values)


def _cut(forms: tuple[Form, ...], cell: Cell) -> list[Cell]:
    """Halves along the variable whose ends are farthest apart in ratio, of those that the simplest form has."""
    free = forms[0].free
    wide = [k for k in free if cell[k][1] - cell[k][0] > NARROW * (cell[k][0] or 1)]
    if not wide:
        return []
    k = max(wide, key=lambda k: nearest(cell[k][1] / cell[k][0]) if cell[k][0] else float("inf"))
    low, high = cell[k]
    if low == 0:
        middle = high / FAR
    elif high > FAR * low:
        middle = fmpq(*float(arb(low * high).sqrt()).as_integer_ratio())
    else:
        middle = (low + high) / 2
    return [(*cell[:k], ends, *cell[k + 1 :]) for ends in ((low, middle), (middle, high))]


def _inequality(small: sympy.Expr, large: sympy.Expr, strict: bool, space: Space) -> Outcome:
    """small ≤ large on the box, by all forms that there are."""
    forms = [large - small]
    if all(sympy.count_ops(side) <= MAX_OPERATIONS and space.positive(side) for side in (small, large)):
        logs = logarithm(large, space) - logarithm(small, space)
        forms.append(sympy.expand(logs) if rewritable(logs) else logs)
    return search(_with_numerator(forms, space), space, strict=strict, work=CELLS)


def _with_numerator(expressions: list[sympy.Expr], space: Space) -> "tuple[Form, ...]":
    """The forms, and the numerator of the last one over a common denominator of a sign that is shown."""
    found = list(expressions)
    if rewritable(found[-1]):
        above, below = sympy.fraction(sympy.together(found[-1]))
        if below != 1 and space.sign(below):
            found.append(space.sign(below) * above)
    return tuple(space.form(expression) for expression in dict.fromkeys(found))


def logarithm(expression: sympy.Expr, space: Space) -> sympy.Expr:
    """log of a positive expression, expanded over parts that are shown to be positive."""
    if isinstance(expression, sympy.exp):
        logs = [part for part in expression.args[0].atoms(sympy.log) if space.positive(part.args[0])]
        return expression.args[0].xreplace({part: logarithm(part.args[0], space) for part in logs})
    if expression.is_Mul and all(space.sign(factor) for factor in expression.args):
        return sympy.Add(*(logarithm(space.sign(factor) * factor, space) for factor in expression.args))
    if expression.is_Pow and space.positive(expression.base):
        return expression.exp * logarithm(expression.base, space)
    factored = factors(expression)
    return sympy.log(expression) if factored is None else logarithm(factored, space)


def _undefined(side: Meaning, space: Space) -> str | None:
    """Why a side is not shown to be defined on the box; a place where it surely is not is bad input."""
    said = {"positive": "positive", "not negative": "at least 0", "not zero": "of one sign"}
    for place, argument, need in side.needs:
        fault = _need(argument, need, space)
        if fault is None:
            continue
        if fault.point is not None and need != "not zero":
            where = ", ".join(f"{name} = {x}" for name, x in space.named(fault.point).items())
            raise InputError(f"{side.text[:60]!r} has the {place} {space.written(argument)}, which is not {said[need]} at {where}")
        return f"{side.text[:60]!r} has the {place} {space.written(argument)}, which is not shown to be {said[need]} on the whole box"
    return None


def _need(argument: sympy.Expr, need: Need, space: Space) -> Outcome | None:
    """The search that failed, if it did."""
    if need != "not negative" and (space.positive(argument) or (need == "not zero" and space.sign(argument))):
        return None
    found = search(_with_numerator([argument], space), space, strict=need != "not negative", work=CELLS_OF_PART)
    return None if found.verdict is ClaimVerdict.HOLDS else found


def _described(found: list[Outcome], sides: list[Meaning], space: Space) -> BoxProof:
    refuted = next((one for one in found if one.verdict is ClaimVerdict.REFUTED), None)
    if refuted is not None:
        if refuted.root is not None:
            return BoxProof(ClaimVerdict.REFUTED, space.looked, dict([refuted.root]), reason="both sides are equal there")
        assert refuted.point is not None  # a refuted inequality has a point or a root
        balls = [space.form(side.expression).at(refuted.point) for side in sides]
        values = tuple(map(float, balls)) if all(ball.abs_upper() < LARGEST_SIDE for ball in balls) else None
        return BoxProof(ClaimVerdict.REFUTED, space.looked, space.named(refuted.point), values)
    touching = tuple(dict.fromkeys(f"{size} = {root}" for one in found for size, root in one.touching))
    left = [cell for one in found for cell in one.undecided]
    if not left:
        return BoxProof(ClaimVerdict.HOLDS, space.looked, touching=touching)
    reason = f"{len(left)} sub-boxes are left after {space.looked} cells; a smaller box or a simpler form would decide it"
    return BoxProof(ClaimVerdict.UNDECIDED, space.looked, undecided=tuple(map(space.sized, left[:SHOWN])), touching=touching, reason=reason)


def _text(value: fmpq) -> str:
    """A number exactly: as a float where it is one, else as a fraction."""
    near = nearest(value)
    return repr(near) if value.q >= 10**6 and math.isfinite(near) and rational(near) == value else str(value)
