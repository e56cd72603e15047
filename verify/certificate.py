"""The result of a verification: witness ≤ certified ≤ bound, part by part, with a verdict that says what to do next."""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MAX_FAULTS = 20
"""Faults that are listed."""


def finite(value: float) -> float | None:
    """JSON has no infinity: an unbounded number is null."""
    return value if math.isfinite(value) else None


class Verdict(Enum):
    """What the chain says; the value is the JSON name."""

    HOLDS = "holds"
    VACUOUS = "vacuous"
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


@dataclass(frozen=True)
class Certificate:
    """witness is rounded down, certified and bound are rounded up; rounding is the floating-point share of certified.

    `trivial` is the error of the best constant output (from below), `least_heads` what the lag law asks for (None where it does not
    apply). `conditions` are needed by the proof but unstated in the paper; they are shown, and a fault says if one is indispensable.
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

    @property
    def verdict(self) -> Verdict:
        chain = self.witness <= self.certified <= self.bound and all(part.holds for part in self.parts)
        if not chain or self.faults:
            return Verdict.VIOLATED
        return Verdict.VACUOUS if self.bound >= self.trivial else Verdict.HOLDS

    @property
    def advice(self) -> str:
        """What to do next."""
        if self.faults:
            return self.faults[0]
        broken = next((part for part in self.parts if not part.holds), None)
        match self.verdict:
            case Verdict.VACUOUS if "uncertified" in self.details:
                return f"{self.details['uncertified']}; the error is measured on random sequences only, {self.witness:.3g} at least"
            case Verdict.VACUOUS if "arithmetic" in self.details:
                return f"certified to {self.certified:.3g}: in the worst case no better than a constant output ({self.trivial:.3g})"
            case Verdict.HOLDS if "arithmetic" in self.details:
                return f"the worst case of these weights is certified ({self.details['arithmetic']}); no theorem promises it"
            case Verdict.HOLDS:
                return "the network obeys the theorem's bound"
            case Verdict.VACUOUS:
                banks = "more heads, bank tuned or bank"
                better = {"thm-5.1": f"{banks} fitted", "jl-4.2": "a larger rank or more knots"}.get(self.theorem, f"{banks} minimal")
                return (
                    f"the bound {self.bound:.3g} is no better than a constant output ({self.trivial:.3g}), though the network is certified "
                    f"to {self.certified:.3g}; use {better}"
                )
            case Verdict.VIOLATED if broken is not None:
                return f"{broken.name}: certified {broken.certified:.6g} exceeds its bound {broken.bound:.6g}: not this theorem's weights"
        return f"witness {self.witness:.6g}, certified {self.certified:.6g}, bound {self.bound:.6g} are out of order"

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `lemmaformer verify`."""
        return {
            "theorem": self.theorem,
            "verdict": self.verdict.value,
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
