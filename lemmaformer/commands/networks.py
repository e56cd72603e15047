"""`verify`, `run`, `break`, `train`, `import`, `compare`, `spectrum`: what is done with networks."""

from pathlib import Path
from typing import Any

import click

from analyzer.errors import InputError
from lemmaformer.commands.flags import NEW, Answer, answers, given, of_target, options_of, output, place, target_of
from lemmaformer.options import Break, Compare, Measure, RunningForm, SpectrumHeads, Train


@click.command(epilog="Example: lemmaformer verify net  (2 seconds)")
@click.argument("what", type=NEW, metavar="BUNDLE|FILE")
@click.option("--margin", is_flag=True, help="Are all decisions right, by sign, nearest value or largest output?")
@click.option("--seconds", type=float, metavar="S", help="Work granted to a search for a sharper certificate, in seconds of one core.")
@options_of(Measure)
@place("figure", "The chain, part by part, .pdf, .svg or .png.")
@answers
def verify(what: Path, margin: bool, seconds: float | None, figure: Path | None, **keywords: Any) -> Answer:
    """Certify a bundle from its stored weights alone, or re-check a certificate file of a limit.

    An ONNX file that `export` wrote is certified too: its graph and initialisers must be those of the network in it, bit for bit.

    Prints the chain witness ≤ certified ≤ bound, part by part; exit code 1 if it breaks or the card claims more than the weights give.

    With --margin the outputs are read as decisions between the values that a target takes on its alphabet: certified right at all
    sequences, refuted with the sequence (exit code 1), or undecided (exit code 3).

    With --norm mean-square the numbers are E|error|² over independent random tokens: in closed form, from both sides, where read-out and
    target are affine; else certified from above and sampled from below, or sampled only (verdict measured).
    """
    import lemmaformer as lf

    if figure is not None and what.is_file():
        raise InputError(f"{str(what)[:80]} is a certificate file; --figure draws the chain of a network")
    found = lf.verify(what, margin=margin, seconds=seconds, **given(keywords))
    return found if figure is None else found.draw(figure)


@click.command(epilog="Example: lemmaformer run net --input x.npy --output y.npy  (2 seconds)")
@click.argument("folder", type=NEW, metavar="BUNDLE")
@click.option("--input", "source", type=NEW, required=True, help="Tokens, .npy: (N,), (N, d) or (batch, N, d).")
@click.option("--output", "destination", type=NEW, required=True, help="Outputs, .npy: (N,) or (batch, N); (…, c) if several.")
@click.option("--force", is_flag=True, help="Replace the output file, if it exists.")
@click.option(
    "--devices", type=int, default=1, metavar="N", show_default=True, help="Devices of JAX that share the sequences, or a long one."
)
@options_of(RunningForm)
@place("figure", "The residual stream on the first sequence, .pdf, .svg or .png.")
@answers
def run(folder: Path, source: Path, destination: Path, force: bool, devices: int, figure: Path | None, **keywords: Any) -> Answer:
    """Evaluate a bundle's network on an array of tokens, with the pass that its certificate covers.

    Fewer sequences than devices are cut along their length; what that adds is certified by `verify --section`. Lin heads may run in other
    forms than scans, which `verify --form` certifies.
    """
    from lemmaformer import files

    return files.run_file(folder, source, destination, overwrite=force, figure=figure, devices=devices, **given(keywords))


@click.command("break", epilog="Example: lemmaformer break net --weight output --head 2 --by 1e-3 --out net2  (4 seconds)")
@click.argument("folder", type=NEW, metavar="BUNDLE")
@options_of(Break)
@output
@answers
def break_command(folder: Path, out: Path, force: bool, **keywords: Any) -> Answer:
    """Change one weight and see what the certificate says, for teaching: both chains side by side.

    The changed network is written as a bundle whose hash is right and whose card still makes the old claims: `verify` finds it out.
    """
    import lemmaformer as lf
    from constructions.files.card import check_output
    from lemmaformer.pages import Written

    chosen = Break.read(given(keywords))
    check_output(out, overwrite=force)
    net = lf.load(folder)
    changed, change, after = net.broken(chosen.weight, by=chosen.by, head=chosen.head, layer=chosen.layer)
    changed.save(out, overwrite=force)
    return Written.broken(net, change, after, out)


@click.command(epilog="Example: lemmaformer train --lags 2 --rpe table --linear --out learnt  (half a minute)")
@of_target("fixed", "kernel")
@click.option("--start", type=NEW, help="A bundle whose weights to start from.  [default: random weights]")
@options_of(Train)
@click.option("--checkpoint", type=NEW, help="A file that holds the run after every fortieth of it.")
@click.option("--resume", is_flag=True, help="Go on from --checkpoint, if the file is there.")
@output
@answers
def train(start: Path | None, checkpoint: Path | None, resume: bool, out: Path, force: bool, **keywords: Any) -> Answer:
    """Train a network of the papers' kind on a target; the result is a bundle like any other, with origin "trained".

    It is certified where a certificate is known (one softmax layer, or letters), else its error is measured on random sequences.
    """
    import lemmaformer as lf
    from constructions.files.card import check_output
    from lemmaformer.pages import Written
    from lemmaformer.training import check_checkpoint

    target = target_of(keywords, optional=start is not None)
    Train.read(given(keywords))
    check_output(out, overwrite=force)
    check_checkpoint(checkpoint, resume, out)
    begun = None if start is None else lf.load(start)
    net = lf.train(target, start=begun, checkpoint=checkpoint, resume=resume, **given(keywords))
    net.save(out, overwrite=force)
    return Written.trained(net, out)


@click.command("import", epilog="Example: lemmaformer import model.safetensors config.toml --out theirs  (2 seconds)")
@click.argument("weights", type=NEW, metavar="WEIGHTS.safetensors")
@click.argument("config", type=NEW, metavar="CONFIG.toml")
@output
@answers
def import_command(weights: Path, config: Path, out: Path, force: bool) -> Answer:
    """Make a bundle of weights that were trained elsewhere; docs/import.md explains CONFIG."""
    from lemmaformer import files

    return files.import_weights(weights, config, out, overwrite=force)


@click.command(epilog="Example: lemmaformer compare net learnt --figure both.png  (10 seconds)")
@click.argument("folders", type=NEW, nargs=-1, metavar="A B [C …]")
@click.option("--target", "target_file", type=NEW, help="The target.  [default: that of the first card with one]")
@options_of(Compare)
@place("figure", "Kernels, decays, errors and probes, .pdf, .svg or .png.")
@answers
def compare(folders: tuple[Path, ...], target_file: Path | None, figure: Path | None, **keywords: Any) -> Answer:
    """Constructed, trained and imported networks of one target side by side; exit code 1 if a certificate is contradicted.

    Sampled: errors, effective kernels (the mean of ∂ŷ_t/∂x_{t-s}) and linear probes, on the same random sequences. Certified:
    worst-case errors, by the same verifier wherever there is one softmax layer, or an alphabet.
    """
    import lemmaformer as lf

    target = None if target_file is None else lf.load_target(target_file)
    found = lf.compare(*folders, target=target, **given(keywords))
    return found if figure is None else found.draw(figure)


@click.command(epilog="Example: lemmaformer spectrum net --input x.npy  (3 seconds)")
@click.argument("weights", type=NEW, metavar="BUNDLE|FILE.safetensors|MODEL")
@click.option("--input", "source", type=NEW, help="Tokens, or what the layers of a FILE or MODEL read, .npy.")
@options_of(SpectrumHeads)
@place("figure", "Singular values, .pdf, .svg or .png.")
@answers
def spectrum(weights: Path, source: Path | None, figure: Path | None, **keywords: Any) -> Answer:
    """Singular values of a trained attention's logits on data, with effective rank and decay exponent (sampled, not certified).

    A BUNDLE is run on --input, tokens of shape (N,), (N, d) or (batch, N, d), and every head of every dot-product layer is analysed.

    A FILE holds weights from anywhere: pairs of arrays <prefix>query<suffix> and <prefix>key<suffix> (or q_proj and k_proj; the suffix
    is empty or such as .weight) of shape (H, dk, D), (dk, D), or (H·dk, D) with --heads H, and matching arrays with .bias if there are
    any; --input is then what that layer reads, (N, D) or (batch, N, D). The logits are ⟨W_Q x + b_Q, W_K x' + b_K⟩, without 1/√dk,
    rotation or norm.

    A MODEL is a folder as Hugging Face writes it (bloom, mpt, falcon, t5, mt5, umt5, minimax, retnet), with the model's own factors;
    every layer reads --input, or random numbers. Nothing in the folder is run.
    """
    from lemmaformer import files

    found = files.spectrum(weights, source, SpectrumHeads.read(given(keywords)))
    return found if figure is None else found.draw(figure)
