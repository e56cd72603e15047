"""`plan`: depth against width, every theorem that applies to a target in one table."""

from pathlib import Path
from typing import Any

import click

from analyzer.errors import InputError
from lemmaformer.commands.flags import NEW, Answer, answers, given, of_target, options_of, place, target_of
from lemmaformer.options import Planning


@click.command(epilog="Example: lemmaformer plan examples/nested.toml --error 0.01  (10 seconds)")
@click.argument("target", required=False, type=NEW, metavar="[TARGET]")
@of_target("fixed", "kernel", "coupling", "sequence")
@options_of(Planning, leave_out=("build",))
@click.option("--build/--no-build", default=None, help="Build and certify every network, or solve bounds only.  [default: build]")
@place("figure", "Heads against width, a colour per number of layers: .pdf, .svg, .png.")
@answers
def plan(target: Path | None, figure: Path | None, **keywords: Any) -> Answer:
    """Depth against width: every theorem that applies to a target, with the sizes that it asks for and those that were built.

    TARGET is a TOML file; a target can be given by flags, too. Each row is a design: a theorem with a choice of heads, bank, read-out,
    attention and depth. Its proven sizes are what the bound, solved for the error, asks for; its built ones those of a network that was
    certified to the error. Rows of the Pareto front are marked. The exit code is 3 if no design reaches the error.
    """
    import lemmaformer as lf

    if target is not None and keywords["target_file"] is not None:
        raise InputError("give the file of a target once: TARGET is the same as --target")
    keywords["target_file"] = target or keywords["target_file"]
    found = lf.plan(target_of(keywords), **given(keywords))
    return found if figure is None else found.draw(figure)
