"""Banks and dual sequences as plain data: exact numbers as text, read back only where they are of moderate size.

    primal {"heads": [["lin", "5*2^-3"], …], "weights": ["-3*2^-7", …], "residual": "0"}
    dual   {"edges": ["0", "1", …], "values": ["1*2^-30", …]}

Whoever reads them certifies what they show; nothing that is read here is believed.
"""

from collections.abc import Sequence
from typing import Any

from flint import fmpq

from analyzer.errors import InputError
from analyzer.limits import budgeted_error as theorem
from analyzer.limits.budgeted_error import Dual, PricedBank
from analyzer.numbers.exact import from_text, to_text

MAX_EDGES, MAX_HEADS, EDGE_DIGITS = 4096, 128, 617
"""Sizes beyond which a file is taken for damage: edges are below 2^2050."""
LARGEST = fmpq(2) ** 192
FINEST = 4096
"""Numbers of a certificate are at most 2^192, with denominators of at most so many bits."""


def heads_as_data(heads: Sequence[tuple[str, fmpq]]) -> list[list[str]]:
    """Heads as pairs of a type and a decay."""
    return [[rpe, to_text(decay)] for rpe, decay in heads]


def bank_as_data(bank: PricedBank) -> dict[str, Any]:
    """The primal side."""
    return {"heads": heads_as_data(bank.heads), "weights": [to_text(w) for w in bank.weights], "residual": to_text(bank.residual)}


def dual_as_data(dual: Dual) -> dict[str, Any]:
    """The dual side."""
    return {"edges": [str(e) for e in dual.edges], "values": [to_text(v) for v in dual.values]}


def read_exact(text: Any) -> fmpq:
    """An exact number of moderate size."""
    value = from_text(text)
    if abs(value) > LARGEST or value.q.bit_length() > FINEST:
        raise InputError(f"{str(text)[:20]!r}… is absurdly large or fine for a certificate")
    return value


def read_heads(data: Any, rpe: str) -> tuple[tuple[str, fmpq], ...]:
    """Heads of the types that `rpe` has, with decays in range."""
    if not isinstance(data, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in data):
        raise InputError("heads are pairs of a type and a decay")
    heads = tuple((str(kind), read_exact(decay)) for kind, decay in data)
    if len(heads) > MAX_HEADS:
        raise InputError(f"a certificate has at most {MAX_HEADS} heads")
    for kind, decay in heads:
        least = 1 if kind == "log" else 0
        if kind not in theorem.FAMILIES[rpe] or (decay - least) * (1 << 40) < 1 or decay > 1 << 20:
            raise InputError(f"a head of the certificate is not of the type {rpe}, or its decay is out of range")
    return heads


def read_bank(data: Any, rpe: str) -> PricedBank:
    """The primal side back from data."""
    if not isinstance(data, dict) or set(data) != {"heads", "weights", "residual"} or not isinstance(data["weights"], list):
        raise InputError("the primal side has heads, weights and a residual")
    return PricedBank(read_heads(data["heads"], rpe), tuple(read_exact(w) for w in data["weights"]), read_exact(data["residual"]))


def read_dual(data: Any) -> Dual:
    """The dual side back from data."""
    if not isinstance(data, dict) or set(data) != {"edges", "values"} or not all(isinstance(v, list) for v in data.values()):
        raise InputError("the dual side has edges and values")
    if len(data["edges"]) > MAX_EDGES:
        raise InputError(f"a dual sequence has at most {MAX_EDGES} edges")
    if not all(isinstance(e, str) and e.isascii() and e.isdigit() and len(e) <= EDGE_DIGITS for e in data["edges"]):
        raise InputError("the edges of a dual sequence are whole numbers, not absurdly large")
    return Dual(tuple(map(int, data["edges"])), tuple(read_exact(v) for v in data["values"]))
