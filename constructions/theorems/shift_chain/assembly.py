"""The network of a planned chain of shifts, in rationals.

Let v be the carrier after layer l − 1 (x_t at the start), σ the shift so far. Then layer l finds v in the source, c v in the carrier and
c_k v in every memory with σ < T_k ≤ σ + τ_l, c and c_k the residual weights of its bank; its heads read the source and write with weights
of their own into the carrier (shift τ_l) and into those memories (shift T_k − σ). All blocks but these stay as they are.

    linear     source += carrier − source,  carrier += (c − 1) carrier,  m_k += c_k carrier;  a linear map w·u is relu(w·u) − relu(−w·u)
    restored   the same with plateau(carrier) in the place of carrier, and digits w_j = relu(k(θ_j − m)) for the memories just delivered
"""

import numpy as np
from flint import fmpq

from analyzer.lemmas.relu_error import Neuron
from analyzer.targets.fixed import FixedMemory
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.neurons import feedforward
from constructions.theorems.shift_chain.layout import Layout
from constructions.theorems.shift_chain.neuron_rows import NeuronRows
from constructions.theorems.shift_chain.planner import Chain
from constructions.theorems.shift_chain.plateaus import Plateaus
from constructions.theorems.shift_chain.shift_banks import bank_attention
from constructions.theorems.shift_chain.tables import table_network


def assemble(target: FixedMemory, chain: Chain, readout: list[Neuron] | None) -> Transformer:
    """The network of a chain: with these read-out neurons, or restored."""
    layout = Layout(target)
    plateaus = None if target.alphabet is None else Plateaus(target.alphabet)
    width, last = layout.width, len(chain) - 1
    layers, before = [], 0
    for index, (shift, bank) in enumerate(chain):
        delivered = layout.extracted(before, shift)
        blocks = [(target.lags[k - 1] - before, layout.memory(k)) for k in delivered]
        attention = bank_attention(bank, width, layout.source, blocks if index == last else [*blocks, (shift, layout.carrier)])
        before += shift
        if index == last and readout is not None:
            layers.append(Layer(attention, _padded(readout, width)))
            break
        rows = NeuronRows(width)
        if index < last:
            _move(rows, layout, _residuals(layout, chain, index + 1, before), plateaus)
        if plateaus is not None:
            for slot in [*delivered, *([0] if index == 0 else [])]:
                for coordinate in layout.memory(slot):
                    rows.digits(layout.digits(coordinate), coordinate, plateaus)
        layers.append(Layer(attention, rows.network(width)))
    if plateaus is not None:
        layers.append(Layer(_silent(width), table_network(target)))
    return Transformer(_embedding(layout, chain), zeros(width), tuple(layers))


def _embedding(layout: Layout, chain: Chain) -> np.ndarray:
    """The token in x0 and source, and its multiples where the first layer wants them."""
    embedding = zeros(layout.width, layout.dim)
    for i in range(layout.dim):
        embedding[i, i] = embedding[layout.source[i], i] = fmpq(1)
        for start, weight in _residuals(layout, chain, 0, 0).items():
            embedding[start + i, i] = weight
    return embedding


def _residuals(layout: Layout, chain: Chain, index: int, before: int) -> dict[int, fmpq]:
    """Residual weights that layer `index` wants, by the first coordinate of the block: carrier (none in the last layer) and memories."""
    shift, bank = chain[index]
    weights = dict(zip(bank.lags, bank.residuals, strict=True))
    wanted = {layout.carrier[0]: weights[shift] if index < len(chain) - 1 else fmpq(0)}
    for k in layout.extracted(before, shift):
        wanted[layout.memory(k)[0]] = weights[layout.target.lags[k - 1] - before]
    return wanted


def _move(rows: NeuronRows, layout: Layout, residuals: dict[int, fmpq], plateaus: Plateaus | None) -> None:
    """Put the carrier, restored if there are plateaus, into the source, and its multiples where the next layer wants them."""
    for i, (source, carrier) in enumerate(zip(layout.source, layout.carrier, strict=True)):
        for start, weight in ((source - i, fmpq(1)), *residuals.items()):
            row = start + i
            kept = row == carrier and plateaus is None
            if plateaus is not None:
                rows.plateau(row, carrier, weight, plateaus)
            else:
                rows.linear(row, carrier, weight - kept)
            if row in (source, carrier) and not kept:
                rows.linear(row, row, fmpq(-1))


def _padded(neurons: list[Neuron], width: int) -> FeedForward:
    """Read-out neurons of x0 and the memories on the whole stream: source and carrier are not read."""
    ffn = feedforward.as_network(neurons)
    padding = zeros(len(neurons), width - ffn.inner.shape[1])
    return FeedForward(np.concatenate([ffn.inner, padding], axis=1), ffn.bias, ffn.outer)


def _silent(width: int) -> Attention:
    """Attention switched off: one head that reads and writes nothing."""
    empty = zeros(1, 0, width)
    return Attention(exact_array([1]), zeros(1, 1, width), zeros(1, width, 1), empty, empty, zeros(0, width), ("lin",))
