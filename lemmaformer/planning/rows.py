"""Rows of a plan: a design with its proven and its built sizes, what binds it, and the Pareto front of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, cast

from analyzer.errors import InputError, OptionValue
from analyzer.notebooks import html_of
from analyzer.statements.designs import Proven
from lemmaformer.results.base import Plain, Pointer, Result, reporter
from verify.chain.certificate import Certificate, Verdict

if TYPE_CHECKING:
    from lemmaformer.network import Network

Sizes = tuple[int, int, int]
"""(layers, heads of the largest layer, neurons of the widest feed-forward network)."""
BY_WIDTH = ("read-out", "values", "table", "plateaus")
"""Parts of a certificate that neurons pay for; rounding is paid for in bits, the others in heads or coordinates."""


@dataclass(frozen=True, repr=False)
class PlanRow:
    """One design of one theorem: what it asks for, and the network that was built and certified, or why there is none.

    >>> import lemmaformer as lf
    >>> row = lf.plan(lf.fixed(lags=(2,)), error=0.1, theorem="shift-chain").rows[0]
    >>> row.options["depth"], row.built, row.front
    (2, (2, 1, 4), True)
    """

    theorem: str
    options: Mapping[str, OptionValue]
    """The options that make the design, for `build`."""
    proven: Proven
    """Sizes for which the theorem promises the error."""
    network: "Network | None" = None
    """The network, certified to the error that was asked for."""
    why: str | None = None
    """Why no network was built."""
    binds: str | None = None
    """The size that pays for the largest share of the certified error, and which part that is; without network what stands in the way."""
    front: bool = False
    """Whether no built network is as small in layers, heads and width and smaller in one of them."""
    proven_front: bool = False
    """The same of proven sizes."""

    @property
    def built(self) -> Sizes | None:
        """(layers, heads, width) of the network; None if there is none."""
        if self.network is None:
            return None
        sizes = self.network.sizes
        return sizes["layers"], sizes["heads"], sizes["width"]

    def as_dict(self) -> Plain:
        """Plain data, for JSON."""
        built: Plain | None = None
        if self.network is not None:
            found = self.network.certificate
            chain = {"witness": found.witness, "certified": found.certified, "rounding": found.rounding, "verdict": found.verdict.value}
            built = {**self.network.sizes, **chain}
        return {
            "theorem": self.theorem,
            "options": dict(self.options),
            "proven": self.proven.as_dict(),
            "built": built,
            "why": self.why,
            "binds": self.binds,
            "front": self.front,
            "proven_front": self.proven_front,
        }

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __repr__(self) -> str:
        design = " ".join(f"{name}={value}" for name, value in self.options.items())
        return f"<PlanRow {self.theorem} {design}: proven {self.proven.sizes}, built {self.built}>"


@dataclass(frozen=True, repr=False)
class Plan(Result):
    """Depth against width for one target and one error, one row per design.

    >>> import lemmaformer as lf
    >>> found = lf.plan(lf.fixed(lags=(3,)), error=0.1)
    >>> sorted(row.built for row in found.rows if row.front)
    [(1, 1, 2), (1, 1, 2), (1, 1, 2)]
    """

    rows: tuple[PlanRow, ...] = field(default=())
    """Theorems in the order of the registry, each with its designs."""
    shown_by: ClassVar[Pointer] = "bounds:show_plan"
    drawn_by: ClassVar[Pointer | None] = "figures:front"

    @property
    def undecided(self) -> bool:
        """Whether no design was certified to the error (or, where nothing was to be built, no theorem asks for definite sizes): this does
        not mean that no network could be."""
        return not self.data["reached"]

    def draw(self, path: str | Path) -> Self:
        """The same with its figure written: heads against width, one colour per number of layers, the front marked."""
        drawn = reporter("figures:front")(Path(path), self.data)
        return type(self)({**self.data, "figure": str(path) if drawn else None}, self.rows)

    def with_place(self, key: str, path: str | Path) -> Self:
        return type(self)({**self.data, key: str(path)}, self.rows)

    def _brief(self) -> str:
        return f" {self.data['target']}, error {self.data['error']:g}: {self.data['designs']} designs, {self.data['built']} built"


def front(sizes: Sequence[Sizes | None]) -> list[bool]:
    """Which sizes no other ones dominate: at most as large in all three, and smaller in one. Equal ones are all on the front."""
    known = [one for one in sizes if one is not None]
    return [one is not None and not any(_dominates(other, one) for other in known) for one in sizes]


def _dominates(one: Sizes, other: Sizes) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def check_certified(certificate: Certificate, error: float) -> None:
    """Refuse a network that is not certified to the error, whoever built it; written so that NaN is refused."""
    if certificate.verdict not in (Verdict.HOLDS, Verdict.VACUOUS) or not certificate.certified <= error:
        raise InputError(
            f"the network is {certificate.verdict.value}: certified to {certificate.certified:.3g} where {error:g} was asked for"
        )


def binding(certificate: Certificate, proven: Proven) -> str:
    """The largest share of the certified error: rounding, the read-out, or what is left of it, the attention's."""
    readout = sum(part.certified for part in certificate.parts if part.name == "read-out")
    rounding = certificate.rounding or 0.0
    rest = certificate.certified - rounding - readout
    if rounding >= max(rest, readout) and rounding > 0:
        return "precision: rounding"
    if readout >= rest:
        return "width: read-out"
    parts = [part for part in certificate.parts if part.name != "read-out" and not part.name.startswith("lag ")]
    largest = max(parts, key=lambda part: part.certified, default=None)
    if largest is None:
        return proven.attention
    return f"{'width' if largest.name in BY_WIDTH else proven.attention}: {largest.name}"


def summary(target: str, kind: str, options: Plain, rows: Sequence[PlanRow]) -> Plain:
    """A plan as plain data."""
    built = sum(row.network is not None for row in rows)
    reached = built if options["build"] else sum(row.proven.sizes is not None for row in rows)
    plain = cast("list[object]", [row.as_dict() for row in rows])
    counts = {"designs": len(rows), "built": built, "reached": bool(reached)}
    return {"target": target, "kind": kind, **options, **counts, "rows": plain}
