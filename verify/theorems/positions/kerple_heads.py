"""The certificate of `analyzer.theorems.positions.kerple_heads`: the chain of `verify.chain.layer`, (K.1) at what is stored."""

from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.extraction import Rpe
from analyzer.lemmas.kerple import extraction_error
from analyzer.limits.lag_law import lag_law
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base
from analyzer.theorems.positions import kerple_heads as theorem
from constructions.network.transformer import Transformer
from constructions.run.fused import FusedLayer
from verify.chain.certificate import Certificate, StrangeWeights
from verify.chain.layer import BALL_SHARE, LayerRules, certify, storage


def verify(network: Transformer, target: FixedMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network of kerple heads of one rate."""
    attention = network.layers[0].attention
    if attention.rate is None or attention.stride > 1:
        raise StrangeWeights(f"{theorem.ID} is about kerple heads that see every token; these are {', '.join(sorted(set(attention.rpe)))}")
    return certify(network, target, bank, ffn, RULES)


def _extraction_budgets(layer: FusedLayer, target: FixedMemory, bank: str, rpe: Rpe, dtype: str, faults: list[str]) -> list[arb]:
    """(K.1) for every memory at the stored exponents, plus the budget for storing its weights."""
    heads, budgets = list(range(len(layer.rpe))), []
    for k, lag in enumerate(target.lags, start=1):
        row = target.readout.slot(k)[0]
        try:
            if len(set(layer.rates)) > 1:
                raise InputError("the heads have several rates")
            promised = extraction_error(lag, list(layer.decays), layer.rates[0]) * (1 + BALL_SHARE)
        except (InputError, Refusal) as error:
            faults.append(f"{base.extraction_lemma(lag)}: {error}")
            promised = arb.pos_inf()
        weights = [layer.gains[h, row, 0] for h in heads]
        budgets.append(promised + storage(layer, heads, [*weights, layer.embedding[row, 0]], dtype))
    return budgets


RULES = LayerRules(
    theorem.ID,
    parts=lambda target: [base.extraction_lemma(lag) for lag in target.lags],
    budgets=_extraction_budgets,
    least_heads=lambda kind, target, error: lag_law("log", target.lags, error).heads,
    best_bank="minimal",
)
