"""Without positions the order of tokens is invisible: half the spread over rearrangements is the error that remains, and it is reached.

Setting. Attention over all tokens of a sequence whose scores do not see positions, and feed-forward networks that act token by token,
any number of layers, heads and neurons, any weights: [JL]'s networks on tokens that do not carry their positions. A target H(x) =
F(x_1, …, x_N) on letters of a finite alphabet, the same at every position.

Statement. Such a network is equivariant [JL, A.1]: Ĥ_{π(t)}(πx) = Ĥ_t(x) for every permutation π of the positions, (πx)_{π(t)} = x_t.
So its worst error on H is at least

    floor(F) = max over multisets of letters of ½ (max F − min F),  the extrema over all orders of the multiset,                    (P.1)

and one head with m_h = 0 and at most C(N+A−1, N) neurons in its read-out attains it: (P.1) is the least error without positions.

Proof. *Equivariance.* A permutation of the tokens permutes embeddings; scores ⟨W_Q X_t, W_K X_s⟩ are permuted on both sides, softmax
over all s permutes with them, and the sum over s of weights times values does not depend on the order of its terms. Layers compose.
*Floor.* Let x and y = πx be two orders of one multiset. Ĥ_t(x) = Ĥ_{π(t)}(y), while the targets are F(x) and F(y): one of the errors is
at least ½|F(x) − F(y)|. *Attained.* The middle ½(max F + min F) over the orders of a multiset is a function of the multiset, and errs
by half the spread. It is represented exactly by `analyzer.theorems.jl_4_1` with the code of counts (or the code of sums, where that is
one), whose network does not read positions. ∎

Remarks. The floor is 0 exactly where F does not depend on the order. With positions in the tokens there is no floor: jl-4.1.

References. Jiang & Li, arXiv 2305.18475, Appendix A.1.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flint import arb, fmpq

from analyzer.numbers.exact import working_precision
from analyzer.statements.theorem import Theorem

if TYPE_CHECKING:
    from analyzer.targets.sequence import SequenceTarget

ID = "permutation-law"
TITLE = "without positions: half the spread over rearrangements"


@dataclass(frozen=True)
class PermutationFloor:
    """(P.1), as a ball and where F is rational exactly, with two orders of one multiset between which F differs by twice as much, and the
    middle of F over the orders of every sequence."""

    floor: arb
    exact: fmpq | None
    orders: tuple[tuple[int, ...], tuple[int, ...]]
    middle: tuple[fmpq, ...]


def permutation_floor(target: "SequenceTarget") -> PermutationFloor:
    """The floor of a target, over all its sequences."""
    from analyzer.targets.sequence import BITS

    words, values, balls = target.words(), target.table, target.values_in_balls
    orders: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for k, word in enumerate(words):
        orders[tuple(sorted(word))].append(k)
    middle, spread, worst = dict[tuple[int, ...], fmpq](), fmpq(-1), (0, 0)
    for multiset, places in orders.items():
        least, most = (pick(places, key=lambda k: values[k]) for pick in (min, max))
        middle[multiset] = (values[least] + values[most]) / 2
        if values[most] - values[least] > spread:
            spread, worst = values[most] - values[least], (most, least)
    with working_precision(BITS):
        floor = abs(balls[worst[0]] - balls[worst[1]]) / 2
    rational = target.table_error == 0
    exact = spread / 2 if rational else None
    return PermutationFloor(
        arb(exact) if exact is not None else floor,
        exact,
        (words[worst[0]], words[worst[1]]),
        tuple(middle[tuple(sorted(word))] for word in words),
    )


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=25.5)
