"""`report` and `explore`: pages for a browser."""

from pathlib import Path

import click

from lemmaformer.commands.flags import NEW, Answer, Command, answers


def _page(command: Command) -> Command:
    """--out for an HTML file, and --force."""
    command = click.option("--force", is_flag=True, help="Replace the file, if it exists.")(command)
    return click.option("--out", type=NEW, required=True, help="The HTML file to write.")(command)


@click.command(epilog="Example: lemmaformer report net --out page.html  (5 seconds)")
@click.argument("what", type=NEW, metavar="BUNDLE|CERTIFICATE|COMPARISON")
@_page
@answers
def report(what: Path, out: Path, force: bool) -> Answer:
    """One self-contained HTML file: no request leaves it, and it works from a disk.

    Of a BUNDLE: the statement with its mathematics, the chain, the proof with numbers on its lemmas, the heads' shares of every kernel,
    the residual stream and the attention on tokens that can be edited, and the witness. Of a CERTIFICATE file of a limit: the law and
    both sides. Of a COMPARISON, the output of `compare --json` in a file: columns, errors and kernels.
    """
    import lemmaformer as lf

    return lf.report(what, out, overwrite=force)


@click.command(epilog="Example: lemmaformer explore --out explorer.html  (10 seconds)")
@_page
@answers
def explore(out: Path, force: bool) -> Answer:
    """One self-contained HTML file with sliders for lag, heads, bits, relative positions and bank.

    Shows kernel, weights, error and horizon: certified where the sliders rest on a row of the page's table, computed (and labelled so)
    between.
    """
    import lemmaformer as lf

    return lf.explore(out, overwrite=force)
