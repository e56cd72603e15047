"""The last token: one lin head delivers x_{t−1} with error z/(1−z), whatever came before.

Setting. Tokens in [−1, 1], target y_t = f(x_t, x_{t−1}); one dp-free layer with one lin head of decay p, z = e^{−p}.

Statement. With residual weight −1/z and value weight 1/(z(1−z)) the memory errs by e = z/(1−z), the network by at most E_FFN + Lip(f) e.

Proof. The head's kernel is 0 at s = 0, 1 at s = 1 and z^{s−1} after it, and e = Σ_{s≥2} z^{s−1}; the read-out adds up as in thm-3.1. ∎

Construction. p = ⌈log(1 + 2 Lip(f)/error)⌉ makes z/(1−z) ≤ error/(2 Lip f); the certificate is that of every dp-free layer.
References. The case T = 1 of the minimal banks of lemmaformer's thm-3.1.
"""

from dataclasses import dataclass, replace

import networkx as nx
import sympy
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import rational, upper
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.theorem import Case, Theorem
from analyzer.theorems import base, thm_3_1

ID, TITLE = "last-token", "one lin head holds the token before this one"
p = sympy.Symbol("p", positive=True)
ERROR = sympy.exp(-p) / (1 - sympy.exp(-p))


@dataclass(frozen=True)
class LastToken(Options):
    error: float = option(0.1, "total worst-case error, certified", above=0, below=1)
    bank: str = option("minimal", "the bank that the certificate reads")


@dataclass(frozen=True)
class LastTokenBound(Options):
    decay: int = option(5, "the head's decay p", least=1, most=60)


def bound(target, options):
    total = upper(1 / (arb(options.decay).exp() - 1))
    return Bound(ID, total, {"memory": total}, ERROR, {}, {"decay": options.decay, "heads": 1, "error": total})


def build(target, options):
    from constructions.banks.head_banks import HeadBank
    from constructions.neurons import feedforward
    from constructions.theorems.assembly import assemble, box_of
    from constructions.theorems.construction import Construction

    if target.lags != (1,):
        raise InputError(f"{ID} is about the lag 1 alone, this target has {target.lags}")
    slope = max(1.0, upper(target.readout.lipschitz([arb(2)] * target.readout.coordinates)[1]))
    decay = int(upper((1 + 2 * arb(slope) / arb(options.error)).log())) + 1
    z = (-arb(decay)).exp()
    weight, residual = (rational(float(v)) for v in (1 / (z * (1 - z)), -1 / z))
    bank = HeadBank("lin", (fmpq(decay),), (1,), ((weight,),), (residual,))
    neurons, _ = feedforward.read_out_neurons("spline", target.readout, box_of(target, [arb(1)]), None, options.error / 2, 0)
    return Construction(target, options, assemble(target, [bank], feedforward.as_network(neurons)))


def verify(network, target, bank, ffn):
    from verify.theorems.thm_3_1 import verify as certify

    return replace(certify(network, target, "minimal", ffn), theorem=ID)


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=LastToken,
    bound_options=LastTokenBound,
    bound=bound,
    formulas=dict.fromkeys(("lin", "log"), "|||H − TF||| ≤ E_FFN + Lip(f) z/(1−z)"),
    expression=lambda rpe, bank: ERROR,
    lemmas=lambda rpe, bank, ffn, lags: nx.relabel_nodes(thm_3_1.proof_graph("lin", "minimal", ffn, (1,)), {thm_3_1.ID: ID}),
    citation=lambda bank, ffn: base.citation("minimal", ffn),
    build=build,
    verify=verify,
    cases=(Case({"kind": "fixed", "lags": [1], "readout": "x0*m1"}, {"error": 0.1}, {"decay": 5}),),
)
