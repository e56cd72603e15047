"""`lf.plan`: which theorems apply to a target, in which designs, and what each of them asks for and comes to.

Theorems and designs come from the registry (`Theorem.designs`, `Theorem.applies`), sizes from the theorem's bound (`Theorem.proven`),
networks from `lf.build` and their certificates from the stored weights. Work is bounded: a network is not built if the theorem counts more
than `MOST_WORK` operations, or more neurons than are certified in the same time, and its row says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from analyzer.errors import InputError, LemmaformerError, OptionValue, Refusal
from analyzer.families import MAX_HEADS, MAX_WIDTH
from analyzer.options import Options
from analyzer.statements.designs import MOST_WORK, Design, Proven
from analyzer.statements.registry import THEOREMS
from analyzer.statements.sizing import designs_of, proven_by
from analyzer.statements.theorem import Theorem
from lemmaformer.options import Planning
from lemmaformer.progress import counting

if TYPE_CHECKING:
    from analyzer.targets.protocol import Target
    from lemmaformer.planning.rows import Plan, PlanRow

NEURON_WORK = MOST_WORK / 2**15
"""Operations that one neuron's certificate is counted as: as many neurons as that take as long as the largest bank."""


def plan(target: "Target", options: Planning | None = None, **keywords: OptionValue) -> "Plan":
    """Every theorem that applies to a target, in every design: layers, heads and width that are proven for an error, and those of a network
    that was built and certified to it, with the Pareto front of both.

    With `build=False` nothing is built; `theorem` keeps the designs of one theorem. Rows without a network say why.

    >>> import lemmaformer as lf
    >>> found = lf.plan(lf.fixed(lags=(4, 20)), error=0.01, build=False)
    >>> [(row.theorem, row.proven.sizes) for row in found.rows if row.proven_front]
    [('shift-chain', (20, 1, 4)), ('table-heads', (1, 2, 3))]
    """
    chosen = Planning.of(options, keywords)
    asked = list(_designs(target, chosen))
    if not asked:
        raise InputError(f"no theorem{_named(chosen)} has a worst-case design for {target.description}, a target of kind {target.kind}")
    from lemmaformer.planning.rows import Plan, front, summary

    with counting("building and certifying" if chosen.build else "solving bounds", len(asked)) as count:
        rows = [_counted(count, _row(target, chosen, design)) for design in asked]
    built, proven = front([row.built for row in rows]), front([row.proven.sizes for row in rows])
    rows = [replace(row, front=a, proven_front=b) for row, a, b in zip(rows, built, proven, strict=True)]
    return Plan(summary(target.description, target.kind, dict(vars(chosen)), rows), tuple(rows))


def _named(chosen: Planning) -> str:
    return "" if chosen.theorem is None else f" called {chosen.theorem}"


def _counted(count: Callable[[], None], row: "PlanRow") -> "PlanRow":
    count()
    return row


@dataclass(frozen=True)
class Designed:
    """A design that was read as options of its theorem, or what is wrong with it."""

    theorem: Theorem
    design: Design
    options: Options | None
    why: str | None = None


def _designs(target: "Target", chosen: Planning) -> Iterator[Designed]:
    """The designs of all theorems about this kind of targets that belong to the theorem itself."""
    if chosen.theorem is not None and target.kind not in THEOREMS[chosen.theorem].kinds:
        raise InputError(f"{chosen.theorem} has no networks for {target.kind} targets")
    for theorem in THEOREMS.of_kind(target.kind):
        if chosen.theorem in (None, theorem.id):
            for design in designs_of(theorem, target, chosen.dtype):
                found = _read(theorem, target, design, chosen)
                if found.options is None or theorem.applies(target, found.options):
                    yield found


def _read(theorem: Theorem, target: "Target", design: Design, chosen: Planning) -> Designed:
    """A design with the error and the arithmetic asked for, as the theorem's options."""
    family = theorem.options_for(target.kind)
    assert family is not None  # theorems that build have options
    known = {entry.name for entry in fields(family)}
    if "error" not in known:
        return Designed(theorem, design, None, "its networks are not built for an error")
    if "dtype" not in known and chosen.dtype != "exact":
        return Designed(theorem, design, None, f"its networks do not come in {chosen.dtype}")
    shared = {"error": chosen.error, "dtype": chosen.dtype}
    try:
        return Designed(theorem, design, family.read({**design, **{name: value for name, value in shared.items() if name in known}}))
    except InputError as error:
        return Designed(theorem, design, None, str(error))


def _row(target: "Target", chosen: Planning, designed: Designed) -> "PlanRow":
    from lemmaformer.planning.rows import PlanRow

    theorem, options = designed.theorem, designed.options
    if options is None:
        return PlanRow(theorem.id, designed.design, Proven(reason=designed.why or ""), why=designed.why)
    proven = proven_by(theorem, target, options)
    row = PlanRow(theorem.id, designed.design, proven)
    if not chosen.build:
        return replace(row, why="nothing was to be built")
    try:
        return _built(row, target, theorem, options, chosen.error)
    except Refusal as refusal:
        return replace(row, why=refusal.reason, binds=_in_the_way(proven, refusal, chosen.dtype))
    except LemmaformerError as error:
        return replace(row, why=str(error))


def _built(row: "PlanRow", target: "Target", theorem: Theorem, options: Options, error: float) -> "PlanRow":
    """The row with its network, certified here and now to the error; refused if it is not, or if it is too much work."""
    from lemmaformer.api import build
    from lemmaformer.planning.rows import binding, check_certified

    if theorem.check is not None:
        theorem.check(target, options)
    check_work(row.proven)
    net = build(target, options, theorem=theorem.id)
    check_certified(net.certificate, error)
    return replace(row, network=net, binds=binding(net.certificate, row.proven))


def _neurons(proven: Proven) -> int:
    """Neurons that would have to be built."""
    return (proven.width if proven.drawn is None else proven.drawn) or 0


def check_work(proven: Proven) -> None:
    """Refuse what would be too large to build, or would take longer than a row of a table may, before anything is built."""
    heads, width = proven.heads or 0, _neurons(proven)
    if heads > MAX_HEADS:
        raise Refusal(f"more heads than the {MAX_HEADS} that we build")
    if width > MAX_WIDTH:
        raise Refusal(f"more neurons than the {MAX_WIDTH} that we build")
    work = proven.work + NEURON_WORK * width
    if work > MOST_WORK:
        raise Refusal(f"about {work:.1e} operations, a row is given {MOST_WORK:.1e}: build this one by itself")


def _in_the_way(proven: Proven, refusal: Refusal, dtype: str) -> str | None:
    """What keeps a network from being built: too many heads or neurons, or an arithmetic that the refusal says to change."""
    if (proven.heads or 0) > MAX_HEADS:
        return f"{proven.attention}: extraction"
    if _neurons(proven) > MAX_WIDTH:
        return f"width: {proven.width_for}"
    finer = any("dtype" in remedy for remedy in refusal.remedies)
    return f"precision: {dtype}" if finer and dtype != "exact" else None
