"""The quantities of a claim at one point of a grid, each as a ball that contains it.

T is the lag (or a target is given), H the number of heads, m the coordinates m_h of a coupling or else the neurons of the read-out, eps the
error that is asked for, n the rate of a bound, u the unit roundoff. What is not given has the default of the theorem.

    e         Σ_k ‖κ_k − 1_{T_k}‖₁ of the network that the options describe, from its stored weights with the infinite tail: the error of
              its attention on tokens in [−1, 1], attained at a sign sequence
    error     of the whole network, [witness, certified] of its certificate
    bound     what its theorem promises at H or m_h: for thm-3.1 the formula Σ_k e_k in balls, else the number that is promised, rounded up
    heads     without a bank, or with the minimal one: the least number of heads of any layer with an error below eps (the lag law, which
              minimal banks attain, and 0 for eps ≥ 1); with paper or tuned constants the fewest for which the bound is at most eps
    E_u       the least error plus price of rounding at unit roundoff u, over all decays and numbers of heads
    mse       E|error|² for independent tokens of mean 0 and variance 1 and an affine read-out: ‖w·(κ − 1)‖₂²
    sigma(k)  singular value of the coupling, certified
    width     neurons of the read-out that the theorem takes for the error eps of the read-out
    paper     (3.1) or (3.2) with α = γ = 1/100 at the rate n, or at the best one
    tuned     the same with the best α and γ

The mean square is a closed form. With ε = κ − Σ_L d_L 1_L, κ a sum of heads,

    ‖ε‖₂² = ‖κ‖₂² + Σ_L d_L (d_L − 2 κ(L)),    Σ_s z_i^s z_j^s = 1/(1 − z_i z_j),    Σ_{s≥1} s^{−p_i−p_j} = ζ(p_i + p_j),

and beside it stands what the window of the ℓ¹ norm gives: Σ_{s<S} ε(s)² ≤ ‖ε‖₂² ≤ Σ_{s<S} ε(s)² + (Σ_{s≥S} |ε(s)|)². Both hold, so
their intersection does: large weights cancel in the first, long tails blur the second.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import Norm, l1_norm
from analyzer.kernels.l2_norms import l2_square
from analyzer.language.grids import TAKES
from analyzer.lemmas import extraction as ex
from analyzer.lemmas.bump import RATES
from analyzer.lemmas.low_rank import spectrum
from analyzer.limits.lag_law import lag_law
from analyzer.numbers.exact import lower, nearest, upper, working_precision
from analyzer.options import Options
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Theorem
from analyzer.targets.coupling import CouplingTarget
from analyzer.targets.files import target_of_kind
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import thm_3_1
from constructions.network.recurrences import using
from constructions.run.fused import FusedLayer, fuse
from constructions.theorems.construction import Construction
from verify.chain.certificate import Certificate
from verify.limits.pairs import LEAST_BITS, MAX_BITS, lag_limit

BITS = 256
OPTIONS: Mapping[str, tuple[str, ...]] = {"H": ("heads",), "m": ("rank", "width"), "eps": ("error",)}
"""The options of networks that sizes stand for; the first that a theorem has."""
DECIDES: Mapping[str, str] = {
    "e": "more terms of its ℓ¹ norm",
    "error": "a sharper certificate, or a longer search for a witness",
    "E_u": "a sharper pair, a better bank above or a better dual sequence below",
    "mse": "more bits in its closed form, or more terms of its sum",
    "sigma": "a finer quadrature of the coupling",
}
"""What would make the enclosure of a quantity smaller; the others are numbers."""


@dataclass(frozen=True)
class Subject:
    """What a claim is about besides the sizes of a point: options of networks and bounds, an arithmetic, a target instead of a lag."""

    target: Any = None
    options: tuple[tuple[str, Any], ...] = ()
    """Options that were chosen: rpe, bank, dtype, ffn, pod."""
    readout: str | None = None
    unit: fmpq | None = None

    @property
    def rpe(self) -> Any:
        return dict(self.options).get("rpe", "lin")

    @property
    def bank(self) -> str | None:
        return dict(self.options).get("bank")


@dataclass
class Quantities:
    """The quantities at one point; each is computed once."""

    sizes: Mapping[str, fmpq]
    subject: Subject
    given: Mapping[str, fmpq] = field(default_factory=dict)
    """Values of the user's own."""
    known: dict[str, arb] = field(default_factory=dict)

    def __call__(self, name: str, index: arb | None) -> arb:
        """The enclosure of a quantity, named as in the claim; made at its own precision, whatever the caller's is."""
        key = name if index is None else f"{name}({_index(name, index)})"
        if key not in self.known:
            with working_precision(BITS):
                self.known[key] = arb(self.given[name]) if name in self.given else ENCLOSED[name](self, index)
        return self.known[key]

    def whole(self, name: str) -> int:
        """A size that is a whole number."""
        if name not in self.sizes:
            raise InputError(f"size {name} is needed here, such as {name}=4")
        value = self.sizes[name]
        if value.q != 1:
            raise InputError(f"{name} is {nearest(value):g}; networks and bounds have whole numbers there")
        return int(value.p)

    @property
    def target(self) -> Any:
        """The target that was given, or the lag T."""
        if self.subject.target is not None:
            return self.subject.target
        return _lag_target(self.whole("T"), self.subject.readout)

    def network(self, quantity: str) -> tuple[str, Any, Options]:
        """Theorem, target and options of the network at this point that a quantity is one of."""
        target = self.target
        family = THEOREMS.of_kind(target.kind)[0].options
        assert family is not None
        known = {entry.name for entry in fields(family)}
        chosen = dict(self.subject.options)
        for size in (size for size in OPTIONS if size in TAKES[quantity] and size in self.sizes):
            option = next((name for name in OPTIONS[size] if name in known), None)
            if option is None:
                raise InputError(f"{size} is given, but networks for {target.kind} targets have no such size")
            chosen[option] = lower(arb(self.sizes[size])) if option == "error" else self.whole(size)
        theorem, read = THEOREMS.choose(target, chosen)
        return theorem.id, target, read

    def promise(self, chosen: dict[str, Any]) -> tuple[Any, Theorem, Any]:
        """Target, theorem and options of the bound, `chosen` beside those of the subject that bounds have."""
        target = self.target
        theorem = next(theorem for theorem in THEOREMS.of_kind(target.kind) if theorem.bound_options is not None)
        assert theorem.bound_options is not None
        known = {entry.name for entry in fields(theorem.bound_options)}
        said = {name: value for name, value in self.subject.options if name in known}
        return target, theorem, theorem.bound_options.read(said | chosen, f" of {theorem.id}")


def _index(name: str, index: arb) -> int:
    whole = index.unique_fmpz() if index.is_exact() else None
    if whole is None or not 1 <= whole <= 1 << 20:
        raise InputError(f"{name} has an index that is no whole number from 1 on")
    return int(whole)


@lru_cache(maxsize=256)
def _lag_target(lag: int, readout: str | None) -> FixedMemory:
    return FixedMemory((lag,), 1, readout)


@lru_cache(maxsize=32)
def built(name: str, target: Any, options: Options) -> Construction:
    """The network of the proof of the theorem of this name."""
    theorem = THEOREMS[name]
    if theorem.check is not None:
        theorem.check(target, options)
    found: Construction = theorem.built_by()(target, options)
    return found


@lru_cache(maxsize=32)
def certified(name: str, target: Any, options: Options) -> Certificate:
    """Its certificate; a violated one is no certificate."""
    network = built(name, target, options)
    with using("scan"):
        found: Certificate = THEOREMS[name].verified_by()(network.network, target, network.bank, network.ffn)
    if not found.holds:
        raise Refusal(f"the certificate of this network is violated: {found.advice}")
    return found


def _layer(name: str, target: Any, options: Options) -> FusedLayer:
    if target.as_layer_target is None:
        raise InputError(f"e and mse speak of memories that one dp-free layer delivers; {name} is about others")
    return fuse(built(name, target, options).network)


def _unit(k: int, width: int) -> tuple[fmpq, ...]:
    return tuple(fmpq(int(j == k)) for j in range(width))


@lru_cache(maxsize=64)
def extraction_norms(name: str, target: Any, options: Options) -> tuple[Norm, ...]:
    """‖κ_k − 1_{T_k}‖₁ of every memory, from the stored weights."""
    layer, readout = _layer(name, target, options), target.readout
    rows = [_unit(readout.slot(k)[0], readout.coordinates) for k in range(1, len(readout.slots))]
    with working_precision(layer.bits):
        return tuple(l1_norm(layer.kernel(row, 0, *target.wanted(row, 0))) for row in rows)


def _e(at: Quantities, _: arb | None) -> arb:
    norms = extraction_norms(*at.network("e"))
    return sum((norm.enclosure for norm in norms[1:]), norms[0].enclosure)


def _error(at: Quantities, _: arb | None) -> arb:
    found = certified(*at.network("error"))
    return arb(found.witness).union(arb(found.certified))


def _mse(at: Quantities, _: arb | None) -> arb:
    name, target, options = at.network("mse")
    layer = _layer(name, target, options)
    if target.readout.ridges:
        raise InputError("mse has a closed form for affine read-outs; this one is curved")
    if options.__dict__.get("dtype") != "exact":
        raise InputError("mse is that of exact weights here; leave dtype out")
    row, total = target.readout.affine, arb(0)
    for column in range(target.dim):
        with working_precision(2 * layer.bits):
            kernel = layer.kernel(row, column, *target.wanted(row, column))
            found = l2_square(kernel)
            total += found.least.union(found.most)
    return total


def _rate(at: Quantities) -> dict[str, Any]:
    return {"rate": at.whole("n")} if "n" in at.sizes else {}


def _bound(at: Quantities, _: arb | None) -> arb:
    size = {"rank": at.whole("m")} if "m" in at.sizes and "H" not in at.sizes else {"heads": at.whole("H")}
    target, theorem, options = at.promise(size | _rate(at))
    if theorem.id == thm_3_1.ID:
        rate = None if options.rate == "best" else options.rate
        return ex.attention_bound(options.rpe, target.lags, options.heads, options.bank, rate, options.share).total
    assert theorem.bound is not None
    return arb(theorem.bound(target, options).total)


def _heads(at: Quantities, _: arb | None) -> arb:
    error = at.sizes["eps"]
    if at.subject.bank in (None, "minimal"):
        if at.subject.target is not None:
            raise InputError("the least heads of any layer are known for one lag T; leave the target out, or choose bank paper or tuned")
        return arb(0 if error >= 1 else lag_law(at.subject.rpe, (at.whole("T"),)).heads)
    target, theorem, options = at.promise({"error": lower(arb(error))} | _rate(at))
    assert theorem.bound is not None
    found = theorem.bound(target, options).heads
    if found is None:
        raise InputError(f"{theorem.id} is not solved for heads")
    return arb(found)


def _least_error(at: Quantities, _: arb | None) -> arb:
    unit = at.sizes.get("u", at.subject.unit)
    if unit is None:
        raise InputError("E_u needs an arithmetic: a dtype, bits, or the size u")
    if not fmpq(1, 2**MAX_BITS) <= unit <= fmpq(1, 2**LEAST_BITS):
        raise InputError(f"u is {nearest(unit):g}; give a unit roundoff from 2^-{MAX_BITS} to 2^-{LEAST_BITS}")
    pair = lag_limit(at.subject.rpe, at.whole("T"), unit, math.ceil(-math.log2(nearest(unit))))
    return arb(pair.lower).union(arb(pair.upper))


def _sigma(at: Quantities, index: arb | None) -> arb:
    assert index is not None
    if at.subject.target is None:
        raise InputError("sigma is a singular value of a coupling: give a target, such as rho = exp(-(u-v)**2)")
    target = target_of_kind(at.subject.target.describe(), "the target", CouplingTarget)
    k, found = _index("sigma", index), spectrum(target.coupling, dict(at.subject.options).get("pod", "pod"))
    if k <= len(found.values):
        return found.values[k - 1].nonnegative_part()
    return arb(0) if found.rank is not None and k > found.rank else arb(0).union(found.tail.upper())


def _width(at: Quantities, _: arb | None) -> arb:
    target, theorem, options = at.promise({"solve": "width", "error": lower(arb(at.sizes["eps"]))})
    assert theorem.bound is not None
    return arb(int(theorem.bound(target, options).data["width"]))


def _formula(constants: str) -> Callable[[Quantities, arb | None], arb]:
    def enclosed(at: Quantities, _: arb | None) -> arb:
        lag, heads, rate = at.whole("T"), at.whole("H"), _rate(at).get("rate")
        if at.subject.rpe not in ("lin", "log"):
            raise InputError(f"rpe is {at.subject.rpe}; {constants} is a formula for lin or log heads")
        if rate is not None and rate not in RATES:
            raise InputError(f"n is {rate}; rates are {RATES[0]} to {RATES[-1]}")
        return ex.attention_bound(at.subject.rpe, (lag,), heads, constants, rate).total

    return enclosed


ENCLOSED: Mapping[str, Callable[[Quantities, arb | None], arb]] = {
    "e": _e,
    "error": _error,
    "bound": _bound,
    "heads": _heads,
    "E_u": _least_error,
    "mse": _mse,
    "sigma": _sigma,
    "width": _width,
    "paper": _formula("paper"),
    "tuned": _formula("tuned"),
}
"""How each quantity is enclosed."""


def ends(ball: arb) -> list[float | None]:
    """Both ends as floats, rounded outwards; None where there is none."""
    return [value if math.isfinite(value) else None for value in (lower(ball), upper(ball))]
