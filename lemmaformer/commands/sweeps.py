"""`sweep`: a command over a grid or a random design."""

from pathlib import Path
from typing import Any

import click

from lemmaformer.commands.flags import NEW, Answer, answers, given, options_of, place
from lemmaformer.options import Workers


@click.command(epilog="Example: lemmaformer sweep examples/sweeps/heads_and_lags.toml --out results.csv  (10 seconds)")
@click.argument("spec", type=NEW, metavar="SPEC.toml")
@click.option("--out", type=NEW, required=True, help="The table: a .csv file, or with pyarrow a .parquet file.")
@options_of(Workers)
@click.option("--force", is_flag=True, help="Replace the table, if it exists.")
@place("figure", "Results against the first number that varies, .pdf, .svg or .png.")
@answers
def sweep(spec: Path, out: Path, force: bool, figure: Path | None, **keywords: Any) -> Answer:
    """Run a command over a grid or a random design: one row per job, failures and refusals too; docs/sweeps.md explains SPEC.

    Rows are kept in a journal beside the table, OUT.jobs, as they come. After any interruption the same command goes on from there; a job
    is known by its parameters and the version of lemmaformer, so a grid can also be enlarged. Exit code 1 if a job found a claim violated.
    """
    import lemmaformer as lf

    found = lf.sweep(spec, out=out, overwrite=force, **given(keywords))
    return found if figure is None else found.draw(figure)
