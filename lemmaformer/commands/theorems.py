"""`theorems` and `bound`: what is stated, and what it promises. Neither loads JAX."""

from pathlib import Path
from typing import Any

import click

from analyzer.errors import InputError
from analyzer.families import (
    AdaptiveBound,
    CouplingBound,
    FixedBound,
    KernelBound,
    KerpleBound,
    LeastSquaresBound,
    PointsBound,
    RepresentationBound,
    StrideBound,
    TableBound,
)
from analyzer.targets.task import task_kinds, task_of
from lemmaformer.commands.flags import NEW, Answer, answers, flags_of, given, of_target, options_of, place, target_of

RPE = click.Choice(["lin", "log"])
BOUNDS = (
    FixedBound, AdaptiveBound, KernelBound, LeastSquaresBound, TableBound, KerpleBound, StrideBound, CouplingBound, PointsBound,
    RepresentationBound,
)  # fmt: skip
BANK = click.Choice(["paper", "tuned", "minimal"])


@click.command(epilog="Example: lemmaformer theorems lag-law  (half a second)")
@click.argument("theorem_id", required=False, metavar="[ID]")
@click.option("--latex", is_flag=True, help="The bound in LaTeX.")
@click.option("--graph", is_flag=True, help="The proof as a tree of lemmas with their budgets.")
@click.option("--dot", is_flag=True, help="The proof graph in Graphviz's language.")
@click.option("--target", "target_file", type=NEW, help="An adaptive target: who depends on whom, or with an id its proof.")
@click.option("--rpe", type=RPE, default="lin", show_default=True, help="Relative positions: e^{-ps} (lin) or s^{-p} (log).")
@click.option("--bank", type=BANK, default="tuned", show_default=True, help="Whose choice of heads stands in the formulas.")
@answers
def theorems(theorem_id: str | None, latex: bool, graph: bool, dot: bool, target_file: Path | None, rpe: Any, bank: str) -> Answer:
    """What is implemented: every theorem and limit with its statement, constants and proof.

    Without an ID they are listed. A page reads as in a paper: setting, statement, construction, what is repaired, references.
    """
    from lemmaformer import pages

    if theorem_id is None and target_file is not None:
        return pages.memories(target_file, dot)
    if theorem_id is None:
        if latex or graph or dot:
            raise InputError("--latex, --graph and --dot need the id of a theorem, or --target")
        return pages.listing()
    form: pages.Form = "latex" if latex else "dot" if dot else "graph" if graph else "page"
    return pages.page(theorem_id, form, target_file, rpe, bank)


class _Bound(click.Command):
    """Theorems of the library, with their tasks, and of other distributions bring flags of their own."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.usual = list(self.params)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        from analyzer.statements.registry import THEOREMS

        self.params = list(self.usual)
        named = [THEOREMS[word] for word in args if word in THEOREMS.library()]
        if named or not any(THEOREMS.is_own(word) for word in args):
            theorems = named or THEOREMS.foreign()
            brought = [theorem.bound_options for theorem in theorems if theorem.bound_options]
            brought += [task_of(theorem.target).options for theorem in named if theorem.target in task_kinds()]
            known = {} if named else {param.name: param for param in self.params}
            fresh = {flag.name: flag for flag in flags_of(*brought) if flag.name not in known}
            spelt = {word for flag in fresh.values() for word in flag.opts}
            self.params = [*(param for param in self.params if param.name not in fresh and spelt.isdisjoint(param.opts)), *fresh.values()]
        return super().parse_args(context, args)


@click.command(cls=_Bound, epilog="Example: lemmaformer bound thm-3.1 --lags 4 --heads 256  (one second)")
@click.argument("theorem_id", metavar="ID")
@of_target("fixed", "kernel", "coupling", "sequence")
@options_of(*BOUNDS, leave_out=("lags",))
@click.option("--all", "every", is_flag=True, help="thm-3.1: paper, tuned, minimal and the lag law in one table.")
@place("figure", "The bound against heads, or with --all its choices: .pdf, .svg, .png.")
@answers
def bound(theorem_id: str, every: bool, figure: Path | None, **keywords: Any) -> Answer:
    """What a theorem promises: its error at given sizes, or with --error the fewest heads that reach it.

    A bound holds for the network that the proof writes down; `build` makes that network and certifies what it really does.
    """
    import lemmaformer as lf

    theorem = lf.theorems[theorem_id]
    if not theorem.needs_target and keywords.get("lags") is not None:
        lags = keywords.pop("lags")
        return lf.bound(theorem_id, target_of(keywords, optional=True), figure=figure, **given(keywords), lags=lags)
    if theorem.bound is None:
        return lf.bound(theorem_id)
    target = target_of(keywords, None if theorem.others else theorem.target)
    if every:
        strange = [name for name in given(keywords) if name not in ("rpe", "heads", "error")]
        if strange:
            raise InputError(f"--{strange[0]} does not go with --all, which takes --rpe, --heads or --error")
        found = lf.bounds(theorem_id, target, **given(keywords))
        return found if figure is None else found.draw(figure)
    return lf.bound(theorem_id, target, figure=figure, **given(keywords))
