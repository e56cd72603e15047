"""`export` and `gallery`: networks for other programs, and for people who look into them."""

from pathlib import Path
from typing import Any

import click

from lemmaformer.commands.flags import NEW, Answer, answers, given, options_of
from lemmaformer.options import Export


@click.command("export", epilog="Example: lemmaformer export net --to torch --out net_torch  (10 seconds)")
@click.argument("folder", type=NEW, metavar="BUNDLE")
@options_of(Export)
@click.option("--out", type=NEW, required=True, help="The file to write; a folder for torch.")
@click.option("--force", is_flag=True, help="Replace an export that is there, in one step.")
@answers
def export_command(folder: Path, out: Path, force: bool, **keywords: Any) -> Answer:
    """Write a network for other programs: PyTorch, ONNX, JAX or plain numpy.

    torch is a folder with a module that has a hook point at every activation; jax a serialized program for sequences of one length; numpy a
    file with the weights as literals, to be read. Each is another evaluation order than the certified one: the difference is measured on
    random sequences, and refused if it exceeds what rounding can explain.
    """
    import lemmaformer as lf

    return lf.export(folder, out=out, overwrite=force, **given(keywords))


@click.command(epilog="Example: lemmaformer gallery --out gallery --only thm-3.1 --only thm-4.4  (10 seconds)")
@click.option("--out", type=NEW, required=True, help="The new folder to write.")
@click.option("--only", multiple=True, metavar="ID", help="A theorem; once per theorem.  [default: all that build networks, a minute]")
@answers
def gallery(out: Path, only: tuple[str, ...]) -> Answer:
    """One certified network per theorem, with its mechanism as data: what every slot holds and what every head and neuron does.

    Writes for each theorem a bundle, ID/network, and ID/mechanism.json beside it, and gallery.json, which lists them.
    """
    import lemmaformer as lf

    return lf.gallery(out, only=only or None)
