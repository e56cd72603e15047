"""The certificate of `analyzer.theorems.positions.table_heads`: the chain of `verify.chain.layer`, (T.1) at the biases in the weights."""

from dataclasses import replace
from functools import partial

from flint import arb

from analyzer.lemmas.extraction import Rpe
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base
from analyzer.theorems.positions import table_heads as theorem
from constructions.network.transformer import Attention, Transformer, to_exact
from constructions.run.fused import FusedLayer
from verify.chain.certificate import Certificate, StrangeWeights
from verify.chain.layer import BALL_SHARE, LayerRules, certify, storage


def verify(network: Transformer, target: FixedMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network with one head per lag."""
    attention = network.layers[0].attention
    if attention.table is None:
        raise StrangeWeights(f"{theorem.ID} is about heads with a bias per distance; these are {', '.join(sorted(set(attention.rpe)))}")
    return certify(network, target, bank, ffn, replace(RULES, budgets=partial(extraction_budgets, attention)))


def extraction_budgets(
    attention: Attention, layer: FusedLayer, target: FixedMemory, bank: str, rpe: Rpe, dtype: str, faults: list[str]
) -> list[arb]:
    """(T.1) for every memory at the margin of its head's biases, plus the budget for storing its weights."""
    biases, budgets = to_exact(attention.table), []
    for k, lag in enumerate(target.lags, start=1):
        row = target.readout.slot(k)[0]
        serving = [h for h in range(len(layer.rpe)) if layer.gains[h, row, 0] != 0]
        if len(serving) != 1 or lag >= biases.shape[1]:
            faults.append(
                f"{base.extraction_lemma(lag)}: {len(serving)} heads of {biases.shape[1]} distances serve it; one that sees it does"
            )
            budgets.append(arb.pos_inf())
            continue
        own = biases[serving[0]]
        margin = own[lag] - max(bias for s, bias in enumerate(own) if s != lag)
        if margin <= 0:
            faults.append(f"{base.extraction_lemma(lag)}: the largest bias of its head is at another distance")
        promised = theorem.extraction_error(biases.shape[1], arb(margin)) * (1 + BALL_SHARE)
        budgets.append(promised + storage(layer, serving, [layer.gains[serving[0], row, 0], layer.embedding[row, 0]], dtype))
    return budgets


RULES = LayerRules(
    theorem.ID,
    parts=lambda target: [base.extraction_lemma(lag) for lag in target.lags],
    budgets=lambda *given: [],  # those of a network, which holds the biases
    least_heads=lambda kind, target, error: None,
    best_bank="minimal",
)
