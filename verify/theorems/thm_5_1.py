"""The certificate of Theorem 5.1: the chain of `verify.theorems.thm_3_1`, with kernels in place of lags.

The error of memory k is e_k = ‖κ_k − ρ_k‖₁ with the tails of both, its box has radius ‖ρ_k‖₁ + e_k, the witness is the sign sequence of κ
− ρ. What is promised for a memory:

    paper, tuned   (5.1) or (5.2) at the decays found in the weights and the best rate n, plus the budget for storing the weights
    fitted         no theorem gives a rate: ‖κ − ρ‖₁ of the stored decays and weights in exact arithmetic, plus the budget for storing them

For an exact network with a fitted bank that promise is the certified error itself; what was built is what the card claims, and a bundle
with other weights, another kernel or another chain than its card fails against it.
"""

from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.extraction import Rpe
from analyzer.targets.kernel import KernelMemory
from analyzer.theorems import thm_5_1 as theorem
from constructions.network.transformer import Transformer
from constructions.run.fused import FusedLayer
from verify.chain.certificate import Certificate
from verify.chain.layer import LayerRules, bank_of, certify, own_error, storage


def verify(network: Transformer, target: KernelMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network against Theorem 5.1 for a target; `bank` and `ffn` say which lemmas it claims to follow."""
    return certify(network, target, bank, ffn, RULES)


def _budgets(layer: FusedLayer, target: KernelMemory, bank: str, rpe: Rpe, dtype: str, faults: list[str]) -> list[arb]:
    budgets = []
    for k, kernel in enumerate(target.parsed, start=1):
        row = target.readout.slot(k)[0]
        gains = list(layer.gains[:, row, 0])
        heads = [h for h, g in enumerate(gains) if g != 0] if bank == "fitted" else bank_of(layer, k, row, len(target.kernels))
        weights, residual = [gains[h] for h in heads], layer.embedding[row, 0]
        try:
            if any(layer.rpe[h] != rpe for h in heads):
                raise InputError("a layer with both RPE types is not one of theorem 5.1's banks")
            if bank == "fitted":
                promised = own_error(layer, target, row)
            else:
                promised = theorem.kernel_budget(rpe, kernel, [layer.decays[h] for h in heads])
        except (InputError, Refusal) as error:
            faults.append(f"{theorem.kernel_lemma(k)}: {error}")
            promised = arb.pos_inf()
        budgets.append(promised + storage(layer, heads, [*weights, residual], dtype))
    return budgets


RULES = LayerRules(
    theorem.ID,
    parts=lambda target: [theorem.kernel_lemma(k) for k in target.bank_labels],
    budgets=_budgets,
    least_heads=lambda rpe, target, error: None,
    best_bank="fitted",
)
