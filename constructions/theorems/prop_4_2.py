"""Part (A) of Proposition 4.2: one normalisation-free dot-product layer with three heads (statement: `analyzer.theorems.prop_4_2`).

Residual stream: the token, the memory, the lag slot, the constant slot. The lag g(x) = x + 1 is affine, so the embedding writes it:

    W_E x + b_E = (x, 0, x + 1, 1),     W_V reads the token, W_O writes a_h into the memory,     W_Q = p_h · lag slot, W_K = constant slot
"""

from flint import fmpq

from analyzer.theorems.prop_4_2 import LAGS
from constructions.banks.lag_banks import exact_minimal
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros

TOKEN, MEMORY, LAG, CONSTANT = range(4)


def build(error: float) -> Transformer:
    """The exact network with extraction error at most `error`."""
    bank = exact_minimal("lin", LAGS, error)
    heads, one = bank.heads, fmpq(1)
    value, output, query, key = zeros(heads, 1, 4), zeros(heads, 4, 1), zeros(heads, 1, 4), zeros(heads, 1, 4)
    value[:, 0, TOKEN] = one
    key[:, 0, CONSTANT] = one
    output[:, MEMORY, 0] = bank.weights
    query[:, 0, LAG] = bank.decays
    attention = Attention(exact_array(list(bank.decays)), value, output, query, key, zeros(0, 4), ("lin",) * heads, "nf")
    identity = FeedForward(exact_array([[0, 1, 0, 0], [0, -1, 0, 0]]), zeros(2), exact_array([[1, -1]]))
    return Transformer(exact_array([[1], [0], [1], [0]]), exact_array([0, 0, 1, 1]), (Layer(attention, identity),))
