"""The result of a verification: witness ≤ certified ≤ bound, part by part, with a verdict that says what to do next."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from flint import arb

from analyzer.errors import InputError, OptionValue, Remedy
from analyzer.notebooks import html_of
from analyzer.numbers.exact import decimal_above, decimal_below, upper

if TYPE_CHECKING:
    import networkx as nx

MAX_FAULTS = 20
"""Faults that are listed."""


def finite(value: float) -> float | None:
    """JSON has no infinity: an unbounded number is null."""
    return value if math.isfinite(value) else None


class StrangeWeights(InputError):
    """Weights of the right shapes and kinds, of which one is not what the theorem's construction writes there."""


class Verdict(Enum):
    """What the chain says; the value is the JSON name.

    holds: witness ≤ certified ≤ bound, and certified is better than a constant output. vacuous: the chain is in order, but certified is no
    better than a constant. measured: nothing is certified, the error is that of random sequences. violated: the chain breaks, or a claim
    is false.
    """

    HOLDS = "holds"
    VACUOUS = "vacuous"
    MEASURED = "measured"
    VIOLATED = "violated"


@dataclass(frozen=True)
class Part:
    """A lemma of the proof graph: the number certified from the weights beside what the lemma promises (both rounded up)."""

    name: str
    certified: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.certified <= self.bound


class Unmatched(AssertionError):
    """A certificate and its proof speak of different lemmas: a mistake in our code, never in the input."""


def gathered(proof: "nx.DiGraph", parts: Mapping[str, Sequence[Part]]) -> tuple[Part, ...]:
    """The parts of every measured lemma, in the proof's order; a lemma without a part, or parts without their lemma, are an error."""
    from analyzer.statements.proof import measured_lemmas  # here, so that a report does not wait for networkx

    lemmas = measured_lemmas(proof)
    silent = [name for name in lemmas if not parts.get(name)]
    strange = [name for name in parts if name not in lemmas]
    if silent or strange:
        raise Unmatched(f"measured lemmas without a number: {silent}; numbers without a measured lemma: {strange}")
    return tuple(part for name in lemmas for part in parts[name])


def matched(proof: "nx.DiGraph", measured: Mapping[str, tuple[arb, arb]]) -> tuple[Part, ...]:
    """One part per measured lemma: (certified, promised) beside it, both rounded up."""
    return gathered(proof, {name: (Part(name, upper(found), upper(promised)),) for name, (found, promised) in measured.items()})


def plain(option: str, value: OptionValue) -> str:
    """An option in words."""
    return f"no {option}" if value is None else f"{option} {value}"


def better_than_constant(bound: float, trivial: float, **options: OptionValue) -> tuple[Remedy, ...]:
    """Where a bound is no better than a constant: ask for half the constant's error, with these options."""
    if not bound >= trivial > 0:
        return ()
    return ({"error": float(f"{trivial / 2:.1g}"), **options},)


@dataclass(frozen=True, repr=False)
class Certificate:
    """witness is rounded down, certified and bound are rounded up; rounding is the floating-point share of certified.

    `trivial` is the error of the best constant output (from below), `least_heads` what the lag law asks for (None where it does not
    apply). `conditions` are needed by the proof but unstated in the paper; they are shown, and a fault says if one is indispensable.
    `remedies` are options of a build whose bound is better than a constant, where this one is not.
    """

    theorem: str
    witness: float
    witness_input: str
    certified: float
    bound: float
    rounding: float
    trivial: float
    least_heads: int | None
    parts: tuple[Part, ...]
    sizes: dict[str, int]
    dtype: str
    seconds: float
    faults: tuple[str, ...] = ()
    conditions: tuple[Part, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    """What a theorem has to say beyond the chain, as plain data."""
    remedies: tuple[Remedy, ...] = ()

    def __repr__(self) -> str:
        witness = f"witness {decimal_below(self.witness, 3)}"
        if self.verdict is Verdict.MEASURED:
            return f"<Certificate: measured, {witness}, nothing certified>"
        certified, bound = (decimal_above(value, 3) if math.isfinite(value) else "∞" for value in (self.certified, self.bound))
        sign = "≤" if self.witness <= self.certified <= self.bound else ","
        chain = f"{witness} {sign} certified {certified} {sign} bound {bound}".replace(" ,", ",")
        return f"<Certificate {self.theorem}: {self.verdict.value}, {chain}>"

    @property
    def verdict(self) -> Verdict:
        chain = self.witness <= self.certified <= self.bound and all(part.holds for part in self.parts)
        if not chain or self.faults:
            return Verdict.VIOLATED
        if "uncertified" in self.details:
            return Verdict.MEASURED
        return Verdict.VACUOUS if self.certified >= self.trivial else Verdict.HOLDS

    @property
    def bound_vacuous(self) -> bool:
        """Whether the bound, true or not, is no better than a constant; False where there is no bound, because nothing is certified."""
        return "uncertified" not in self.details and self.bound >= self.trivial

    @property
    def holds(self) -> bool:
        """Whether nothing is violated."""
        return self.verdict is not Verdict.VIOLATED

    def _repr_html_(self) -> str | None:
        return html_of(self)

    @property
    def advice(self) -> str:
        """What to do next, options in words."""
        return self.text(plain)

    def text(self, write: Callable[[str, OptionValue], str]) -> str:
        """What to do next, `write` spelling every option."""
        if self.verdict is Verdict.VIOLATED or not self.remedies:
            return self._reason()
        ways = [", ".join(write(option, value) for option, value in remedy.items()) for remedy in self.remedies]
        return f"{self._reason()}; try {', or '.join(ways)}"

    def _reason(self) -> str:
        if self.faults:
            return self.faults[0]
        broken = next((part for part in self.parts if not part.holds), None)
        match self.verdict:
            case Verdict.MEASURED:
                return f"{self.details['uncertified']}; the error is measured on random sequences only, {self.witness:.3g} at least"
            case Verdict.VACUOUS:
                return f"certified to {self.certified:.3g}: in the worst case no better than a constant output ({self.trivial:.3g})"
            case Verdict.HOLDS if "arithmetic" in self.details:
                return f"the worst case of these weights is certified ({self.details['arithmetic']}); no theorem promises it"
            case Verdict.HOLDS if self.bound_vacuous:
                return (
                    f"the bound {self.bound:.3g} is no better than a constant output ({self.trivial:.3g}), though the network is certified "
                    f"to {self.certified:.3g}"
                )
            case Verdict.HOLDS:
                return "the network obeys the theorem's bound"
            case Verdict.VIOLATED if broken is not None:
                return f"{broken.name}: certified {broken.certified:.6g} exceeds its bound {broken.bound:.6g}: not this theorem's weights"
        return f"witness {self.witness:.6g}, certified {self.certified:.6g}, bound {self.bound:.6g} are out of order"

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `lemmaformer verify`."""
        return {
            "theorem": self.theorem,
            "verdict": self.verdict.value,
            "bound_vacuous": self.bound_vacuous,
            "advice": self.advice,
            "faults": list(self.faults[:MAX_FAULTS]),
            "witness": self.witness,
            "witness_input": self.witness_input,
            "certified": finite(self.certified),
            "bound": finite(self.bound),
            "trivial": self.trivial,
            "lower_bound_heads": self.least_heads,
            "parts": [{"name": p.name, "certified": finite(p.certified), "bound": finite(p.bound)} for p in self.parts],
            "sizes": self.sizes,
            "dtype": self.dtype,
            "rounding": self.rounding,
            "seconds": self.seconds,
            **self._extras(),
        }

    def _extras(self) -> dict[str, Any]:
        conditions = [{"name": c.name, "value": finite(c.certified), "limit": finite(c.bound), "holds": c.holds} for c in self.conditions]
        return ({"conditions": conditions} if conditions else {}) | self.details

    def chain(self) -> dict[str, Any]:
        """The claims that a bundle's card carries."""
        return {
            "witness": self.witness,
            "certified": finite(self.certified),
            "bound": finite(self.bound),
            "rounding": self.rounding,
            "verdict": self.verdict.value,
        }
