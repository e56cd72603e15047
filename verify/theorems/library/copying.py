"""The certificate of `analyzer.theorems.library.copying`: that of induction, where every question has one match in the array.

All states of the n last tokens are gone through, among them many that no admissible string has; which place matches, and that there is one
only, is the theorem's combinatorial half, which the target's own definition does not use: y_t is the token L + n − 2 places before.
"""

from analyzer.targets.tasks.copying import CopyingTarget
from analyzer.theorems.library import copying as theorem
from constructions.network.transformer import Transformer
from verify.chain.certificate import Certificate
from verify.theorems.library.induction import CopyRules, certify

RULES = CopyRules(theorem.ID, theorem.proof_graph, lambda target, decay, match, delta: theorem.copied_bound(target, match))


def verify(network: Transformer, target: CopyingTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network that copies strings."""
    return certify(network, target, bank, ffn, RULES)
