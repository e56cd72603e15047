"""`demo`: the tour."""

from pathlib import Path

import click

from lemmaformer.commands.flags import NEW, Answer, answers


@click.command(epilog="Example: lemmaformer demo  (half a minute)")
@click.option("--out", type=NEW, default=Path("demo"), show_default=True, help="Folder for figure, CSV and bundle.")
@click.option("--force", is_flag=True, help="Replace what an earlier tour left there.")
@answers
def demo(out: Path, force: bool) -> Answer:
    """The tour: how many heads a memory costs, a network with its chain, what floats do to it, one figure."""
    from lemmaformer.tour import toured

    return toured(out, force)
