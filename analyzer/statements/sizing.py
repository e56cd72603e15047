"""What a theorem asks for: its designs for a target and the sizes of each, by its own account or by its options and its bound."""

from typing import Any

from analyzer.errors import Refusal
from analyzer.options import Options
from analyzer.statements.designs import Design, Proven, combined, named_choices
from analyzer.statements.theorem import Theorem


def designs_of(theorem: Theorem, target: Any, dtype: str) -> list[Design]:
    """The designs that a theorem names for a target, or the combinations of all named choices among its options."""
    if theorem.designs is not None:
        return list(theorem.designs(target, dtype))
    family = theorem.options_for(target.kind)
    return [] if family is None else combined(named_choices(family))


def proven_by(theorem: Theorem, target: Any, options: Options) -> Proven:
    """What a theorem asks for, by its own account or by its bound, solved for the error."""
    try:
        return theorem.proven(target, options) if theorem.proven is not None else _solved(theorem, target, options)
    except Refusal as refusal:
        return Proven(reason=refusal.reason)


def _solved(theorem: Theorem, target: Any, options: Options) -> Proven:
    """The sizes that a bound carries once it is solved for an error; options that bound and network have in common are the network's."""
    family = theorem.bound_options
    names = set() if family is None else set(family.__dataclass_fields__)
    if theorem.bound is None or family is None or "error" not in names:
        return Proven(reason="its bound is not solved for an error")
    shared = {name: value for name, value in vars(options).items() if name in names and value is not None}
    data = theorem.bound(target, family.read(shared)).data
    sizes: dict[str, int | None] = {name: data.get(name) for name in ("layers", "heads", "width")}
    missing = [name for name, value in sizes.items() if value is None]
    reason = f"its bound does not speak of {' and '.join(missing)}" if missing else ""
    return Proven(sizes["layers"], sizes["heads"], sizes["width"], reason)
