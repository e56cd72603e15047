"""The result of a verification: witness ≤ certified ≤ bound, part by part, with a verdict that says what to do next."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from flint import arb

from analyzer.errors import InputError, OptionValue, Remedy
from analyzer.notebooks import drawn, html_of
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

    def _repr_html_(self) -> str | None:
        return html_of(self)


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


@dataclass(frozen=True)
class Margin:
    """How far decisions between the `values` of a target are from changing, over all sequences of letters.

    `certified` is a lower bound, −∞ where nothing is known, and `witness` the margin at the last letter of `worst`, a sequence that was
    run, rounded up. `sequences` words were gone through, which stand for what `over` says; None if none were, for a `reason`.
    """

    rule: str
    values: tuple[float, ...]
    certified: float
    witness: float
    worst: tuple[Any, ...]
    sequences: int | None
    over: str
    reason: str

    @property
    def verdict(self) -> str:
        """right: all decisions are; refuted: that at `worst` is wrong; undecided."""
        if not self.witness > 0:
            return "refuted"
        return "right" if self.certified > 0 else "undecided"

    def as_dict(self) -> dict[str, Any]:
        """The key `margin` in the JSON of `lemmaformer verify`."""
        return {
            "verdict": self.verdict,
            "certified": finite(self.certified),
            "witness": finite(self.witness),
            "counterexample": list(self.worst) if self.verdict == "refuted" else None,
            "sequences": self.sequences,
            "over": self.over or None,
            "rule": self.rule,
            "values": list(self.values),
            "advice": self.advice,
        }

    @property
    def advice(self) -> str:
        """What is known, and from what."""
        match self.verdict:
            case "refuted":
                return f"wrong at the last letter of {', '.join(map(str, self.worst))}"
            case "right":
                return self.reason or f"at all sequences of {self.over}"
        return self.reason or f"no decision was found wrong, but enclosures are too wide to exclude one at sequences of {self.over}"

    def _repr_html_(self) -> str | None:
        return html_of(self)


@dataclass(frozen=True, repr=False)
class Certificate:
    """witness is rounded down, certified and bound are rounded up; rounding is the floating-point share of certified, None where a float
    network is certified as the exact function of its weights and roundings are not counted.

    `trivial` is the error of the best constant output (from below), `least_heads` what the lag law asks for (None where it does not
    apply). `conditions` are needed by the proof but unstated in the paper; they are shown, and a fault says if one is indispensable.
    `remedies` are options of a build whose bound is better than a constant, where this one is not.
    """

    theorem: str
    witness: float
    witness_input: str
    certified: float
    bound: float
    rounding: float | None
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
    margin: Margin | None = None
    """Of decisions, where it was asked for."""

    def __repr__(self) -> str:
        witness = f"witness {decimal_below(self.witness, 3)}"
        if self.verdict is Verdict.MEASURED:
            return f"<Certificate: measured, {witness}, nothing certified>"
        certified, bound = (decimal_above(value, 3) if math.isfinite(value) else "∞" for value in (self.certified, self.bound))
        sign = "≤" if self.witness <= self.certified <= self.bound else ","
        chain = f"{witness} {sign} certified {certified} {sign} bound {bound}".replace(" ,", ",")
        return f"<Certificate {self.theorem}: {self.verdict.value}, {chain}{'' if self.norm == 'sup' else ' in mean square'}>"

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
    def norm(self) -> str:
        """sup: errors are worst cases; mean-square: they are E|error|² over random tokens."""
        return str(self.details.get("norm", "sup"))

    @property
    def holds(self) -> bool:
        """Whether nothing is violated, nor a decision refuted."""
        return self.verdict is not Verdict.VIOLATED and (self.margin is None or self.margin.verdict != "refuted")

    @property
    def undecided(self) -> bool:
        """Whether nothing is violated, but decisions were asked for and are neither certified nor refuted."""
        return self.holds and self.margin is not None and self.margin.verdict == "undecided"

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def draw(self, path: str | Path) -> Self:
        """The same with its figure written as a .pdf, .svg or .png file: witness ≤ certified ≤ bound, part by part."""
        return replace(self, details={**self.details, "figure": drawn(self, path)})

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
                how = "in the worst case" if self.norm == "sup" else "in mean square"
                return f"certified to {self.certified:.3g}: {how} no better than a constant output ({self.trivial:.3g})"
            case Verdict.HOLDS if "arithmetic" in self.details:
                what = "worst case" if self.norm == "sup" else "mean square"
                return f"the {what} of these weights is certified ({self.details['arithmetic']}); no theorem promises it"
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
        decided = {} if self.margin is None else {"margin": self.margin.as_dict()}
        return ({"conditions": conditions} if conditions else {}) | self.details | decided

    def chain(self) -> dict[str, Any]:
        """The claims that a bundle's card carries."""
        return {
            "witness": self.witness,
            "certified": finite(self.certified),
            "bound": finite(self.bound),
            "rounding": self.rounding or 0.0,
            "verdict": self.verdict.value,
        }
