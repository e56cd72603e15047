"""The certificate of `constructions.theorems.positional_sums`: y = A x for all tokens in [0, 1], from the stored weights.

What layer 1 writes is piecewise linear in the token x at every position, and affine where no neuron bends inside (0, 1), which is
checked. Logits must not depend on x; then the weights of the head are constants, enclosed in balls, and every neuron of the read-out is
affine in x_1, …, x_τ. On the box [0, 1]^τ its range is known exactly: it is linear where it is not negative, 0 where it is not
positive, and otherwise anything between 0 and its largest value. So the output at t is b_t + Σ_s w_ts x_s up to such slack, and

    sup |y_t − Ĥ_t| ≤ max( b_t + Σ_s max(w_ts − A_ts, 0), −b_t − Σ_s min(w_ts − A_ts, 0) ) + slack,

attained at a corner where there is no slack: the witness. Rounding of float networks is added, operation by operation
(`verify.chain.rounding`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import lower, upper, working_precision
from constructions.network.transformer import Transformer, to_exact
from constructions.run.execute import run
from verify.chain.rounding import ONE, Arithmetic, readout_rounding

BITS = 256
ZERO = fmpq(0)


@dataclass(frozen=True)
class PositionalCertificate:
    """witness ≤ worst error ≤ certified, of which `rounding` is the floating-point share; `position` and the tokens of the witness."""

    witness: float
    certified: float
    rounding: float
    position: int
    tokens: tuple[float, ...]


@dataclass(frozen=True)
class _Affine:
    """Σ constant + slope·x, coordinate by coordinate."""

    constant: list[fmpq]
    slope: list[fmpq]


def with_positions(tokens: np.ndarray) -> np.ndarray:
    """Scalars (…, τ) as tokens (…, τ, 2) with their positions."""
    length = tokens.shape[-1]
    places = np.arange(1, length + 1) / (1 << (length - 1).bit_length())
    return np.stack([np.broadcast_to(places, tokens.shape), tokens], axis=-1)


def certify(network: Transformer, matrix: Sequence[Sequence[arb]]) -> PositionalCertificate:
    """Certify a stored network against a matrix of balls."""
    length = len(matrix)
    with working_precision(BITS):
        stream = _stream(network, length)
        rows, slack = _outputs(network, stream)
        worst, place, corner = arb(-1), 0, np.zeros(length)
        for t, (constant, slopes) in enumerate(rows):
            gaps = [w - a for w, a in zip(slopes, matrix[t], strict=True)]
            for sign in (1, -1):
                error = sign * constant + sum(((sign * gap).max(arb(0)) for gap in gaps), arb(0)) + slack[t]
                if not error.upper() <= worst:
                    worst, place = error.upper(), t
                    corner = np.array([float(sign * gap.mid() > 0) for gap in gaps])
        rounding = arb(0) if network.dtype == "exact" else _rounding(network, stream, length)
        witness = _witness(network, rows[place], slack[place], matrix[place], corner, place)
        return PositionalCertificate(witness, upper(worst + rounding), upper(rounding), place, tuple(map(float, corner)))


def _witness(network: Transformer, row: tuple[arb, list[arb]], slack: arb, wanted: Sequence[arb], corner: np.ndarray, place: int) -> float:
    """The error at a corner: in balls for exact networks, of what was run for float ones."""
    y = sum((a for a, x in zip(wanted, corner, strict=True) if x > 0), arb(0))
    if network.dtype == "exact":
        output = row[0] + sum((w for w, x in zip(row[1], corner, strict=True) if x > 0), arb(0)) + arb(0, slack)
    else:
        output = arb(float(run(network, with_positions(corner).astype(network.dtype))[place]))
    return max(0.0, lower(abs(output - y)))


def _stream(network: Transformer, length: int) -> list[_Affine]:
    """The residual stream after layer 1 at every position, as a function of the token there."""
    attentions = [layer.attention for layer in network.layers]
    whole = [one.kind == "dp" and one.window == "full" and one.rpe == ("none",) for one in attentions]
    silenced = (attentions[0].value, attentions[0].output, attentions[0].query, attentions[0].key)
    off = not any(np.any(to_exact(part)) for part in silenced)  # one zero factor does not silence floats: 0 times infinity is not 0
    if (
        len(attentions) != 2
        or not all(whole)
        or not off
        or network.dim != 2
        or any(layer.feedforward.precision for layer in network.layers)
    ):
        raise InputError("not a head with positions: two layers, the first without attention, tokens of a position and a number")
    embedding, shift, ffn = to_exact(network.embedding), to_exact(network.bias), network.layers[0].feedforward
    inner, bias, outer = to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)
    scale = 1 << (length - 1).bit_length()
    found = []
    for s in range(1, length + 1):
        constant = [row[0] * fmpq(s, scale) + b for row, b in zip(embedding, shift, strict=True)]
        slope = [row[1] for row in embedding]
        given = (tuple(constant), tuple(slope))
        for n, row in enumerate(inner):
            start, growth = _dot(row, given[0], bias[n]), _dot(row, given[1])
            if (start > 0 and start + growth < 0) or (start < 0 and start + growth > 0):
                raise InputError(f"neuron {n} of the first layer bends inside [0, 1]: its values are not affine in the token")
            if start > 0 or start + growth > 0:
                for j in np.nonzero(outer[:, n])[0]:
                    constant[j], slope[j] = constant[j] + outer[j, n] * start, slope[j] + outer[j, n] * growth
        found.append(_Affine(constant, slope))
    return found


def _dot(left: Sequence[fmpq], right: Sequence[fmpq], start: fmpq = ZERO) -> fmpq:
    return sum((a * b for a, b in zip(left, right, strict=True) if a != 0 and b != 0), start)


def _outputs(network: Transformer, stream: list[_Affine]) -> tuple[list[tuple[arb, list[arb]]], list[arb]]:
    """(b_t, w_t) of every position, and the slack of neurons that are neither on nor off on the whole box."""
    attention, ffn = network.layers[1].attention, network.layers[1].feedforward
    query, key, value, output = (to_exact(part)[0] for part in (attention.query, attention.key, attention.value, attention.output))
    if any(_dot(row, token.slope) != 0 for row in (*query, *key) for token in stream):
        raise InputError("scores depend on the numbers, not on positions alone: the weights of the head are no constants")
    logits = [[_dot([_dot(q, t.constant) for q in query], [_dot(k, s.constant) for k in key]) for s in stream] for t in stream]
    inner, bias, outer = to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[0]
    seen = [[_dot(row, column) for column in output.T] for row in inner]  # B_n W_O
    held = [([_dot(row, token.constant) for row in value], [_dot(row, token.slope) for row in value]) for token in stream]
    constants = [[_dot(row, token[0]) for token in held] for row in seen]
    slopes = [[_dot(row, token[1]) for token in held] for row in seen]
    rows, slack = [], []
    for t, token in enumerate(stream):
        powers = [arb(a - max(logits[t])).exp() for a in logits[t]]
        total = sum(powers, arb(0))
        shares = [power / total for power in powers]
        base, growth, loose = arb(0), [arb(0)] * len(stream), arb(0)
        for n, weight in enumerate(outer):
            start = arb(_dot(inner[n], token.constant, bias[n]))
            start += sum((share * arb(c) for share, c in zip(shares, constants[n], strict=True) if c != 0), arb(0))
            moves = [share * arb(c) if c != 0 else arb(0) for share, c in zip(shares, slopes[n], strict=True)]
            moves[t] = moves[t] + arb(_dot(inner[n], token.slope))
            least = start + sum((m.min(arb(0)) for m in moves), arb(0))
            most = start + sum((m.max(arb(0)) for m in moves), arb(0))
            if least >= 0:
                base, growth = base + arb(weight) * start, [g + arb(weight) * m for g, m in zip(growth, moves, strict=True)]
            elif not most <= 0:
                loose += abs(arb(weight)) * most.max(arb(0))
        rows.append((base, growth))
        slack.append(loose.upper())
    return rows, slack


def _rounding(network: Transformer, stream: list[_Affine], length: int) -> arb:
    """Rounding of the fast executor, for tokens in [0, 1]."""
    arithmetic = Arithmetic(network.dtype)
    first, second = network.layers
    embedded = [
        arithmetic.dot([*row, b], [ONE] * (len(row) + 1))
        for row, b in zip(to_exact(network.embedding), to_exact(network.bias), strict=True)
    ]
    inner, bias = to_exact(first.feedforward.inner), to_exact(first.feedforward.bias)
    hidden = [arithmetic.dot([*row, c], [*embedded, ONE]) for row, c in zip(inner, bias, strict=True)]
    slots = []
    for j, (outer, given) in enumerate(zip(to_exact(first.feedforward.outer), embedded, strict=True)):
        size = arb(max(max(abs(token.constant[j]), abs(token.constant[j] + token.slope[j])) for token in stream))
        slots.append(arithmetic.plus(given, arithmetic.dot(list(outer), hidden), size) if np.any(outer) else given)
    attention = second.attention
    query, key, value = (
        [arithmetic.dot(list(row), slots) for row in to_exact(part)[0]] for part in (attention.query, attention.key, attention.value)
    )
    size = sum((q.magnitude * k.magnitude for q, k in zip(query, key, strict=True)), arb(0))
    logits = arithmetic.inner(query, key, size)
    means = [arithmetic.softmax_mean(logits, one, 2 * one.magnitude, length) for one in value]
    answered = []
    for row, given in zip(to_exact(attention.output)[0], slots, strict=True):
        added = arithmetic.dot(list(row), means)
        answered.append(arithmetic.plus(given, added, given.magnitude + added.magnitude) if np.any(row) else given)
    ffn, moved = second.feedforward, arb(0)
    for weight, row in zip(to_exact(ffn.outer)[0], to_exact(ffn.inner), strict=True):
        moved += abs(arb(weight)) * sum((abs(arb(w)) * slot.error for w, slot in zip(row, answered, strict=True) if w != 0), arb(0))
    return (moved + readout_rounding(arithmetic, ffn, answered)).upper()
