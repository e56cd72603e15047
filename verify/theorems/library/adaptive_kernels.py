"""The certificate of adaptive kernels: every lag that occurs, from the stored weights.

Layer 1 is gone through letter by letter in rational arithmetic: what arrives at the lag slot must be rounded to g. The heads of layer 2
deliver a kernel for every lag (`constructions.run.lagged`), and Σ_s |κ(s; g) − ρ(s − g)| or Σ_s |κ(s; g) − ρ(s/g)| is enclosed with its
infinite tail; tokens are at most max|x|. What is promised, for all lags at once:

    tuned    (5.1) or (5.2) for R at the decays found in the weights and the best rate n
    fitted   Σ |κ − R| of the stored decays and weights in exact arithmetic: no theorem gives a rate, and a bundle with other weights than
             its card speaks of fails against its card

with the budget for storing and rounding in floats.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal, finer
from analyzer.kernels.l1_norms import Exponentials, Norm, Powers, l1_norm, norm_of
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.lemmas.lag_encoding import slot_ball
from analyzer.numbers.exact import UNIT, lower, maximum, rational, upper, working_precision
from analyzer.targets.tasks.adaptive_kernels import MovingKernel
from analyzer.theorems.library.adaptive_kernels import ID, KERNEL_LEMMA, LAG_LEMMA, proof_graph, reference, reference_lag, rpe_of
from analyzer.theorems.thm_5_1 import kernel_budget
from constructions.banks.kernel_banks import CERTIFY_BITS
from constructions.banks.lag_banks import head_mass
from constructions.network.transformer import Transformer, to_exact
from constructions.run.execute import run
from constructions.run.lagged import LaggedLayer, constant_coordinates, lagged_layers
from constructions.theorems.library.adaptive_kernels import CONSTANT, LAG, SUM, TOKEN, WIDTH, read_out
from verify.chain.certificate import Certificate, StrangeWeights, matched
from verify.chain.rounding import Rounded, extraction_error, feed_forward_error
from verify.theorems.library.nearby import ZERO, ExactArithmetic, arithmetic_of, slot_readout

HALF = fmpq(1, 2)
STORAGE = arb(2) ** -60
"""The share of an error that storing a bank's weights may add (`constructions.banks.lag_banks`)."""
WITNESS_LENGTH = 96
"""Tokens of a witness."""


@dataclass(frozen=True)
class MovingReading:
    """A stored network of the theorem's form."""

    network: Transformer
    target: MovingKernel

    @cached_property
    def layer(self) -> LaggedLayer:
        """The heads of layer 2."""
        try:
            return lagged_layers(self.network)[1]
        except InputError as error:
            raise StrangeWeights(f"not a network of {ID}: {error}") from None

    @cached_property
    def heads(self) -> list[int]:
        """The heads whose scores read the lag slot, by their decays (an interpolant may have zero weights)."""
        readers = [h for h in range(len(self.layer.rpe)) if self.layer.scores[h, LAG] != 0]
        return sorted(readers, key=lambda h: self.layer.decays[h])

    @cached_property
    def constant(self) -> arb:
        """What the constant slot holds."""
        known = constant_coordinates(self.network)[1]
        if CONSTANT not in known:
            raise StrangeWeights(f"not a network of {ID}: the constant slot differs between positions")
        return arb(known[CONSTANT])

    def bits(self, lag: int) -> int:
        """Working precision for the kernel of a lag."""
        return max(self.layer.bits(slot_ball(self.layer.form, lag)), CERTIFY_BITS + 64 * len(self.heads))

    def norm(self, lag: int, kernel: MemoryKernel, layer: LaggedLayer) -> Norm:
        """Σ_s |κ(s; g) − ρ(s)|; terms of ρ that are heads of an exact network are subtracted head by head."""
        with working_precision(self.bits(lag)):
            delivered = layer.kernel(SUM, TOKEN, slot_ball(layer.form, lag))
            decays = sorted(layer.decays[h] for h in layer.writers(SUM) if layer.gains[h, SUM, TOKEN] != 0)
            own = own_heads(rpe_of(self.target), kernel)
            if layer.constants is None and len(delivered.groups) == 1 and own is not None and set(own) <= set(decays):
                (group,) = delivered.groups
                assert isinstance(group, Exponentials | Powers)
                left = tuple(a - own.pop(p, ZERO) for a, p in zip(group.amplitudes, decays, strict=True))
                rest = replace(delivered, groups=(replace(group, amplitudes=left),))
                crude = rest.tail(0)
                if crude < STORAGE:  # nothing but the storage of weights, whose signs are not worth a search
                    return Norm(ZERO, crude.upper(), tuple(rest.values(0, WITNESS_LENGTH)))
                return l1_norm(rest)
            return l1_norm(replace(delivered, subtracted=((fmpq(1), kernel),)))

    def _written(self, slot: int) -> arb:
        """Rounding of what layer 1 writes into a slot of a float network."""
        stream = [arb(rational(self.target.size)), ZERO, ZERO, ZERO]
        return feed_forward_error(self.network.dtype, self.network.layers[0].feedforward, slot, stream)

    def distance(self) -> fmpq:
        """How far what arrives at the lag slot can be from g, at most, before it is rounded."""
        ffn = self.network.layers[0].feedforward
        inner, bias, outer = to_exact(ffn.inner)[:, TOKEN], to_exact(ffn.bias), to_exact(ffn.outer)[LAG]
        worst, rounding = fmpq(0), fmpq(0)
        if self.network.dtype != "exact":
            rounding = rational(upper(self._written(LAG)))
        for letter, lag in zip(self.target.alphabet, self.target.lags, strict=True):
            hidden = (max(w * rational(letter) + c, fmpq(0)) for w, c in zip(inner, bias, strict=True))
            worst = max(worst, abs(sum((a * v for a, v in zip(outer, hidden, strict=True)), fmpq(0)) - lag) + rounding)
        return worst

    def check_reach(self) -> None:
        """Refuse heads of a float network that have no factor for the longest lag."""
        constants = self.layer.constants
        if constants is not None and any(self.target.longest > constants["reach"][h] for h in self.heads):
            raise Refusal(f"{self.network.dtype} overflows for lag {self.target.longest} in these heads", *finer(self.network.dtype))

    def rounding(self) -> arb:
        """Rounding of the sum, at the worst lag."""
        if self.network.dtype == "exact":
            return ZERO
        attention = self.network.layers[1].attention
        return maximum([extraction_error(self.network.dtype, attention, self.layer, SUM, lag) for lag in self.target.lags])

    def promised(self, bank: str) -> arb:
        """What is promised for Σ |κ − R|, with the budget for storing."""
        target, exact = self.target, replace(self.layer, constants=None)
        if bank == "tuned":
            try:
                found = kernel_budget(rpe_of(target), reference(target), [self.layer.decays[h] for h in self.heads]) * (1 + STORAGE)
            except InputError as error:
                raise StrangeWeights(str(error)) from None
        else:  # R is the kernel of the longest lag on s ≥ 0, or that of the common multiple
            lag = target.longest if target.motion == "shift" else reference_lag(target)
            found = self.norm(lag, target.moved(lag), exact).most
        return found if self.network.dtype == "exact" else found + self._storage()

    def _storage(self) -> arb:
        """Rounding factor and ratio of lin heads, u (1 + z/(1−z)) of their mass, or factor and taps of log heads, with what is left out 3u;
        and one u more for second-order terms."""
        total = ZERO
        for h in self.heads:
            decay, z = self.layer.decays[h], (-arb(self.layer.decays[h])).exp()
            share = 2 + z / (1 - z) if self.layer.rpe[h] == "lin" else arb(4)
            gain = abs(arb(self.layer.gains[h, SUM, TOKEN]))
            total += gain * head_mass(rpe_of(self.target), decay, self.target.longest) * share
        return arb(UNIT[self.network.dtype]) * total * arb(fmpq(101, 100))

    def stream(self, error: arb) -> list[Rounded]:
        """The stream that is read out, with an error of the sum."""
        size = arb(rational(self.target.size))
        off = ZERO if self.network.dtype == "exact" else self._written(CONSTANT)
        constant = Rounded(abs(self.constant), off)
        largest = size * maximum([norm_of(self.target.moved(lag)).most for lag in set(self.target.lags)])
        return [Rounded(size, ZERO), Rounded(largest, error), Rounded(arb(self.target.longest), ZERO), constant]


def own_heads(rpe: str, kernel: MemoryKernel) -> dict[fmpq, arb] | None:
    """Decays and amplitudes of a kernel that is a sum of exponentials (lin) or powers of s (log); None of others."""
    found: dict[fmpq, arb] = {}
    for c, factors in kernel.terms:
        c0, c1, c2 = factors.exponent
        power = factors.powers[0] if len(factors.powers) == 1 else None
        if factors.waves or c2 != 0 or (factors.powers if rpe == "lin" else power is None or power[1] != 0 or c1 != 0):
            return None
        alpha, _, q = power or (fmpq(1), fmpq(0), fmpq(0))
        decay = -c1 if rpe == "lin" else -q
        found[decay] = found.get(decay, ZERO) + arb(c) * arb(c0).exp() * arb(alpha) ** arb(q)
    return found


def check_form(network: Transformer, target: MovingKernel) -> None:
    """What the certificate takes for granted: shapes, kinds, and which weights are zero."""
    wanted = "nf" if target.motion == "shift" else "tmx"
    attentions = [layer.attention for layer in network.layers]
    if len(attentions) != 2 or any(one.kind != wanted or set(one.rpe) != {rpe_of(target)} for one in attentions):
        raise StrangeWeights(f"not a network of {ID}: two layers of {wanted} attention with {rpe_of(target)} heads")
    embedding, bias = to_exact(network.embedding), to_exact(network.bias)
    if embedding.shape != (WIDTH, 1) or embedding[TOKEN, 0] != 1 or np.any(embedding[1:]) or np.any(bias):
        raise StrangeWeights(f"not a network of {ID}: the embedding does not write the token, and nothing else")
    if np.any(to_exact(attentions[0].value)) or np.any(to_exact(attentions[0].output)):
        raise StrangeWeights(f"not a network of {ID}: the attention of layer 1 is not off")
    if np.any(to_exact(attentions[1].value)[..., 1:]):
        raise StrangeWeights(f"not a network of {ID}: values of layer 2 read more than the token")
    writer, reader = (layer.feedforward for layer in network.layers)
    if np.any(to_exact(writer.inner)[:, 1:]) or np.any(to_exact(writer.outer)[: SUM + 1]) or reader.precision:
        raise StrangeWeights(f"not a network of {ID}: neurons of layer 1 read more than the token, or write more than lag and constant")
    if writer.precision != tuple("integer" if j == LAG else "none" for j in range(WIDTH)):
        raise StrangeWeights(f"not a network of {ID}: the lag, and nothing else, is rounded to a whole number")
    if np.shape(reader.inner) != (2, WIDTH):
        raise StrangeWeights(f"not a network of {ID}: the read-out has two neurons")


def verify(network: Transformer, target: MovingKernel, bank: str, ffn: str) -> Certificate:
    """Certify a stored network for a kernel that moves; `bank` says which promise it claims to keep."""
    start = time.perf_counter()
    if bank not in ("fitted", "tuned"):
        raise InputError(f"{ID} has the banks fitted and tuned, not {str(bank)[:40]!r}")
    check_form(network, target)
    reading, faults = MovingReading(network, target), []
    if np.count_nonzero(reading.layer.gains) != sum(reading.layer.gains[h, SUM, TOKEN] != 0 for h in reading.heads):
        faults.append("layer 2: a head reads more than the token, or writes more than the sum")
    if np.any(np.delete(reading.layer.scores, LAG, axis=1)) or set(reading.layer.writers(SUM)) - set(reading.heads):
        raise StrangeWeights(f"not a network of {ID}: scores of its heads do not read the lag slot, or more than it")
    distance = reading.distance()
    if not distance < HALF:
        faults.append(f"lag: what arrives is {float(arb(distance)):.3g} away from g before rounding: the margin 1/2 is missed")
    reading.check_reach()
    norms = {lag: reading.norm(lag, target.moved(lag), reading.layer) for lag in sorted(set(target.lags))}
    worst = max(norms, key=lambda lag: upper(norms[lag].most))
    with working_precision(reading.bits(target.longest)):
        size, rounding = arb(rational(target.size)), reading.rounding()
        error, budget = size * norms[worst].most + rounding, size * reading.promised(bank) + rounding
        stored, own, arithmetic = network.layers[1].feedforward, read_out(), arithmetic_of(network.dtype)
        certified = slot_readout(arithmetic, stored, own, reading.stream(error), SUM)
        exact = slot_readout(ExactArithmetic(), stored, own, reading.stream(error - rounding), SUM)
        bound = slot_readout(arithmetic, own, own, reading.stream(budget), SUM)
        witness, shown = _witness(reading, worst, norms[worst])
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=shown,
        certified=float("inf") if faults else upper(certified),
        bound=upper(bound),
        rounding=0.0 if network.dtype == "exact" else upper(certified - exact),
        trivial=target.constant_error(),
        least_heads=None,
        parts=matched(proof_graph(rpe_of(target), bank, ffn, ()), {LAG_LEMMA: (arb(distance), arb(HALF)), KERNEL_LEMMA: (error, budget)}),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(faults),
        details={"motion": target.motion, "worst_lag": worst, "reference": reference(target).text},
    )


def _witness(reading: MovingReading, lag: int, norm: Norm) -> tuple[float, str]:
    """The error at the sequences of letters that make the most of κ − ρ at a lag: in balls, or of a run in floats."""
    target, letter = reading.target, reading.target.alphabet[reading.target.lags.index(lag)]
    window, best = norm.window[:WITNESS_LENGTH], 0.0
    for sign in (1, -1):
        recent = [letter, *(target.best_letter(sign * float(v)) for v in window[1:])]
        tokens = np.array(recent[::-1])[:, None]
        value = target.exact_value(tokens)
        if reading.network.dtype == "exact":
            total = value + sum((v * arb(x) for v, x in zip(window, recent, strict=True)), ZERO)
            output = _read(reading, [arb(letter), total, arb(lag), reading.constant])
        else:
            output = arb(float(run(reading.network, tokens)[-1]))
            if not output.is_finite():
                raise Refusal(f"{reading.network.dtype} overflows in this network: its outputs are not finite numbers", {"dtype": "exact"})
        best = max(best, lower(abs(output - value)))
    return best, f"the letters that weigh most where the kernel is wrong, before x_t = {letter:g} with g = {lag}"


def _read(reading: MovingReading, state: Sequence[arb]) -> arb:
    """The read-out of a state, in balls."""
    ffn = reading.network.layers[1].feedforward
    rows = zip(to_exact(ffn.outer)[0], to_exact(ffn.inner), to_exact(ffn.bias), strict=True)
    hidden = ((a, sum((arb(w) * v for w, v in zip(row, state, strict=True)), arb(c))) for a, row, c in rows)
    return sum((arb(a) * value.max(ZERO) for a, value in hidden), ZERO)
