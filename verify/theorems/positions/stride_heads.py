"""The certificate of `analyzer.theorems.positions.stride_heads`: the chain of `verify.chain.layer` over the distances that heads
see, with what Theorem 3.1 promises for the lags in steps of the stride."""

from dataclasses import replace
from functools import partial

from flint import arb

from analyzer.errors import Refusal
from analyzer.lemmas.extraction import LayerRpe, Rpe
from analyzer.limits.lag_law import lag_law
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base
from analyzer.theorems.positions import stride_heads as theorem
from constructions.network.transformer import Transformer
from constructions.run.fused import FusedLayer
from verify.chain.certificate import Certificate, StrangeWeights
from verify.chain.layer import LayerRules, certify
from verify.theorems import thm_3_1


def verify(network: Transformer, target: FixedMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network whose heads have a stride."""
    stride = network.layers[0].attention.stride
    if stride == 1 or not set(network.layers[0].attention.rpe) <= {"lin", "log"}:
        raise StrangeWeights(f"{theorem.ID} is about lin and log heads with a stride; these see every token, or are of another type")
    return certify(network, target, bank, ffn, replace(RULES, least_heads=partial(_least_heads, stride)))


def _least_heads(stride: int, kind: LayerRpe, target: FixedMemory, error: float) -> int:
    """The lag law for lags in steps."""
    return lag_law(kind, [lag // stride for lag in target.lags], error).heads


def _extraction_budgets(layer: FusedLayer, target: FixedMemory, bank: str, rpe: Rpe, dtype: str, faults: list[str]) -> list[arb]:
    """The budgets of Theorem 3.1 without the stride."""
    try:
        steps = theorem.in_steps(target, layer.stride)
    except Refusal as refusal:
        faults.append(f"{base.extraction_lemma(target.lags[-1])}: {refusal.reason}")
        return [arb.pos_inf()] * len(target.lags)
    return thm_3_1.RULES.budgets(replace(layer, stride=1), steps, bank, rpe, dtype, faults)


RULES = LayerRules(
    theorem.ID,
    parts=lambda target: [base.extraction_lemma(lag) for lag in target.lags],
    budgets=_extraction_budgets,
    least_heads=lambda kind, target, error: None,  # those of a network, which holds the stride
    best_bank="minimal",
)
