"""`check`: a formula of the user's own against what the toolkit encloses."""

from pathlib import Path
from typing import Any

import click

from analyzer.errors import InputError
from lemmaformer.commands.flags import NEW, Answer, answers, given, of_target, options_of, place, target_of
from lemmaformer.options import Check
from lemmaformer.results.claims import BoxCheck

OF_A_TARGET = ("target_file", "kernels", "rho", "values", "outer", "tokens_in_all", "dim")
"""Flags that describe a target of its own, instead of the lag T."""


@click.command(
    epilog="Example: lemmaformer check 'e <= 3*T**2/H' --bank tuned --over T=1:4 --over H=8,16  (5 seconds)",
)
@click.argument("claim")
@click.option("--over", multiple=True, help="A size and its values, T=1:12 or H=8,16,32; once per size.")
@click.option("--box", multiple=True, help="A real size and its ends, T=1:100 or H=8:oo: formulas compared for all sizes.")
@click.option("--data", type=NEW, help="A CSV file with quantities of your own, matched by the sizes.")
@of_target("kernel", "coupling")
@options_of(Check, leave_out=("readout",))
@click.option("--out", type=NEW, help="Folder for the network that refutes the claim, and its tokens.")
@click.option("--csv", type=NEW, help="The rows as a CSV file.")
@click.option("--force", is_flag=True, help="Replace a bundle or a CSV file that is there.")
@place("figure", "Both sides against the first size, .pdf, .svg or .png.")
@answers
def check(
    claim: str,
    over: tuple[str, ...],
    box: tuple[str, ...],
    data: Path | None,
    out: Path | None,
    csv: Path | None,
    force: bool,
    figure: Path | None,
    **keywords: Any,
) -> Answer:
    """A claim at every point of a grid, or for all real sizes of a box: holds (exit 0), refuted (1), undecided (3).

    CLAIM is an inequality, or a chain of them, between formulas in sizes and quantities: e (error of a construction's attention at lag T
    with H heads), error (of the whole network), bound, heads (least, for eps), E_u, mse, sigma(k), width, paper, tuned. docs/claims.md says
    what they mean.
    """
    import lemmaformer as lf
    from constructions.files.places import check_place

    if csv is not None:
        check_place(csv, overwrite=force)
    said = {name: value for name, value in given(keywords).items() if value != ()}
    target = target_of(said) if any(name in said for name in OF_A_TARGET) else None
    if box and (csv is not None or figure is not None):
        raise InputError("--csv and --figure go with a grid of points, not with --box")
    found = lf.check(claim, over, target, box=box, data=data, out=out, overwrite=force, **said)
    if isinstance(found, BoxCheck):
        return found
    found = found if csv is None else found.write_csv(csv, overwrite=force)
    return found if figure is None else found.draw(figure)
