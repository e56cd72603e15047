"""The certificate of Theorem 3.1: the chain of `verify.chain.layer`, with lags as memories.

The bound is the theorem's formula at the decays found in the weights: the lemma of the bank for every lag, plus the budget for storing its
weights. A layer with both RPE types follows `analyzer.lemmas.quadrature`; a balanced bank, for which no theorem gives a rate, promises the
norm of its own weights on ideal heads.
"""

from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.extraction import Rpe
from analyzer.lemmas.quadrature import mixed_bound
from analyzer.limits.lag_law import lag_law
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base
from analyzer.theorems import thm_3_1 as theorem
from constructions.network.transformer import Transformer
from constructions.run.fused import FusedLayer
from verify.chain.certificate import Certificate, StrangeWeights
from verify.chain.layer import LayerRules, bank_of, certify, own_error, storage


def verify(network: Transformer, target: FixedMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network against Theorem 3.1 for a target; `bank` and `ffn` say which lemmas it claims to follow."""
    attention = network.layers[0].attention
    if attention.stride > 1 or attention.rate is not None:
        raise StrangeWeights(f"{theorem.ID} is about lin and log heads that see every token; these have a stride, or are kerple heads")
    return certify(network, target, bank, ffn, RULES)


def _extraction_budgets(layer: FusedLayer, target: FixedMemory, bank: str, rpe: Rpe, dtype: str, faults: list[str]) -> list[arb]:
    """What the lemma promises for every memory at the stored decays, plus the budget for storing its weights."""
    budgets = []
    for k, lag in enumerate(target.lags, start=1):
        row = target.readout.slot(k)[0]
        whole = bank in ("minimal", "balanced")
        heads = list(range(len(layer.rpe))) if whole else bank_of(layer, k, row, len(target.lags))
        try:
            promised = _promise(layer, target, bank, rpe, row, lag, heads)
        except (InputError, Refusal) as error:
            faults.append(f"{base.extraction_lemma(lag)}: {error}")
            promised = arb.pos_inf()
        weights = [layer.gains[h, row, 0] for h in heads]
        budgets.append(promised + storage(layer, heads, [*weights, layer.embedding[row, 0]], dtype))
    return budgets


def _promise(layer: FusedLayer, target: FixedMemory, bank: str, rpe: Rpe, row: int, lag: int, heads: list[int]) -> arb:
    """The lemma at the stored decays; a balanced bank promises its own norm with ideal heads, since no theorem gives a rate."""
    kinds = [layer.rpe[h] for h in heads]
    if bank == "balanced" and len(set(kinds)) == 1:
        return own_error(layer, target, row)
    if len(set(kinds)) > 1:
        if bank != "minimal" or kinds.count("log") != 1 or lag // 2 != kinds.count("lin"):
            raise InputError("a layer with both RPE types is a bank of theorem 3.1 only as one log and n lin heads for lag 2n or 2n + 1")
        fastest = max(layer.decays[h] for h in heads if layer.rpe[h] == "lin")
        return mixed_bound(lag, layer.decays[heads[kinds.index("log")]], fastest)
    return base.extraction_budget(bank, rpe, lag, [layer.decays[h] for h in heads])


RULES = LayerRules(
    theorem.ID,
    parts=lambda target: [base.extraction_lemma(lag) for lag in target.lags],
    budgets=_extraction_budgets,
    least_heads=lambda kind, target, error: lag_law(kind, target.lags, error).heads,
    best_bank="minimal",
)
