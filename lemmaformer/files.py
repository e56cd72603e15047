"""Answers that begin or end with files: bundles, arrays of tokens, foreign weights."""

import io
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

import numpy as np

from analyzer.errors import InputError, OptionValue
from analyzer.families import FormName
from lemmaformer.options import MAX_TOKENS, RANDOM_TOKENS, SpectrumHeads
from lemmaformer.results.base import Imported, Plain, Shown
from lemmaformer.results.experiments import SpectrumOfLogits
from verify.report.pages import evaluated

if TYPE_CHECKING:
    from lemmaformer.network import Network
    from verify.compare.spectrum import HeadSpectrum


def numbers(source: Path) -> np.ndarray:
    """One array of finite real numbers from an .npy file."""
    try:
        array = np.load(source, allow_pickle=False)
    except (OSError, MemoryError) as error:
        raise InputError(f"cannot read {str(source)[:80]}: {getattr(error, 'strerror', None) or str(error)[:80]}") from None
    except (ValueError, EOFError, RecursionError, SyntaxError, TokenError):
        raise InputError(f"{str(source)[:80]} is not an .npy file of numbers, or a damaged one; numpy.save writes such files") from None
    if not isinstance(array, np.ndarray) or not 0 < array.size <= MAX_TOKENS:
        raise InputError(f"{source} must hold one array of 1 to {MAX_TOKENS} numbers")
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise InputError(f"{source} holds values that are not finite real numbers")
    return array


def load(path: str | Path) -> "Network":
    """A network from a bundle; files are checked before anything is made of them.

    >>> import lemmaformer as lf
    >>> _ = lf.build(lf.fixed(lags=(2,))).save("net")
    >>> lf.load("net")
    <thm-3.1 fixed(2): 1 layer, 2 heads, exact, certified 0.01>
    """
    from constructions.files.card import read_files

    files = read_files(Path(path))
    from constructions.files.bundle import load as load_bundle
    from lemmaformer.network import network_of

    return network_of(load_bundle(files))


def run_file(
    folder: Path,
    source: Path,
    destination: Path,
    *,
    overwrite: bool = False,
    figure: Path | None = None,
    devices: int = 1,
    form: FormName | None = None,
) -> Shown:
    """Evaluate a bundle on an array of tokens and write the outputs; with `figure` draw the stream on the first sequence."""
    from analyzer.targets.files import target_from_dict
    from constructions.files.card import read_files
    from constructions.files.places import check_place, write_file

    files = read_files(folder)
    tokens = numbers(source)
    check_place(destination, overwrite=overwrite)
    if files.card.get("target") is not None:  # refused before JAX is loaded
        target_from_dict(files.card["target"], "card.json").check_domain(tokens, str(source))
    elif tokens.max() > 1 or tokens.min() < -1:
        raise InputError(f"{source} holds tokens outside [-1, 1], where no certificate holds")
    from constructions.files.bundle import load
    from lemmaformer.network import network_of

    net = network_of(load(files))
    found = net.evaluate(tokens, devices=devices, form=form)
    if figure is not None:
        net.draw(figure, tokens[0] if tokens.ndim == 3 else tokens)
    content = io.BytesIO()
    np.save(content, found.outputs)
    write_file(destination, content.getvalue(), overwrite)
    data: Plain = {"output": str(destination), **found.as_dict()}
    said = [evaluated(found.outputs.shape, found.seconds, destination), *found.remarks()]
    if figure is not None:
        data["figure"] = str(figure)
        said.append(f"figure written to {figure}")
    return Shown(data, tuple(said))


def import_weights(weights: Path, config: Path, out: Path, *, overwrite: bool = False) -> Imported:
    """Make a bundle of weights that were trained elsewhere."""
    from constructions.files.card import check_output

    check_output(out, overwrite=overwrite)
    from constructions.files.foreign import read_foreign

    found = read_foreign(weights, config)
    from constructions.files.bundle import network_of, write

    network = network_of(found.arrays, found.structure)
    card = found.card(network.sizes())
    write(out, network, card, "", overwrite=overwrite)
    kept = {key: card[key] for key in ("origin", "source", "target", "sizes")}
    return Imported({"out": str(out), **kept, "dtype": found.dtype, "structure": found.structure})


def spectrum(
    weights: str | Path, source: str | Path | None = None, options: SpectrumHeads | None = None, **keywords: OptionValue
) -> SpectrumOfLogits:
    """Singular values of the logits of a bundle's heads, of query and key arrays in a file, or of a published model's folder, on data.

    `source` is an .npy file with what they read; a model may go without, on random numbers.

    >>> import lemmaformer as lf
    >>> import numpy as np
    >>> np.save("tokens.npy", np.linspace(0, 1, 24))
    >>> _ = lf.build(lf.coupling("u*v")).save("product")
    >>> lf.spectrum("product", "tokens.npy").data["heads"][0]["numerical_rank"]
    1
    """
    return _spectrum(Path(weights), None if source is None else Path(source), SpectrumHeads.of(options, keywords))


def _spectrum(weights: Path, source: Path | None, options: SpectrumHeads) -> SpectrumOfLogits:
    from constructions.files.models.folder import is_model

    if weights.is_dir() and is_model(weights):
        return _of_model(weights, source, options)
    if source is None:
        raise InputError("input is missing: an .npy file of tokens; only a published model's folder goes without")
    if options.tokens is not None or options.seed is not None:
        raise InputError("tokens and seed go with a published model's folder, where input is not given")
    if options.heads is not None and weights.is_dir():
        raise InputError("heads splits the arrays of a file; a bundle knows its heads")
    inputs = numbers(source)
    from verify.compare.spectrum import describe

    found, note = _of_bundle(weights, inputs, options.layer) if weights.is_dir() else _of_file(weights, inputs, options)
    count = inputs.size // inputs.shape[-1] if inputs.ndim > 1 else len(inputs)
    return SpectrumOfLogits(describe(str(weights), found, count, note))


def _of_model(folder: Path, source: Path | None, options: SpectrumHeads) -> SpectrumOfLogits:
    """Heads of a published model on what their layers read, or on Gaussian numbers in its place; one layer in memory at a time."""
    if options.heads is not None:
        raise InputError("heads splits the arrays of a file; a model knows its heads")
    if source is not None and (options.tokens is not None or options.seed is not None):
        raise InputError("tokens and seed are of random activations; they do not go with input")
    given = None if source is None else numbers(source)
    from constructions.files.models.families import read_model
    from verify.compare.spectrum import describe, model_spectra

    model = read_model(folder)
    if options.layer is not None and options.layer >= model.layers:
        raise InputError(f"layer is {options.layer}; the model has the layers 0 to {model.layers - 1}")
    count, seed = options.tokens or RANDOM_TOKENS, options.seed or 0
    if given is None and count * model.width > MAX_TOKENS:
        raise InputError(f"{count} tokens of {model.width} numbers are too many; {MAX_TOKENS // model.width} is the most here")
    inputs = np.random.default_rng(seed).standard_normal((count, model.width)) if given is None else given
    found = [head for logits in model.logits(options.layer) for head in model_spectra(logits, inputs)]
    what = f"random activations (Gaussian, seed {seed})" if given is None else "the given activations"
    note = "; ".join([f"{model.family}: every layer reads the same ones, as if its norm had returned them", *model.logit_remarks])
    result = describe(str(folder), found, inputs.size // model.width, note, what)
    return SpectrumOfLogits({**result, "family": model.family, "activations": "random" if given is None else "given"})


def _of_bundle(folder: Path, tokens: np.ndarray, layer: int | None) -> tuple[list["HeadSpectrum"], str]:
    """Heads of the dot-product layers of one of our networks, and a remark."""
    from constructions.files.card import read_files
    from constructions.files.scores import coupled_places

    files = read_files(folder)
    structure = files.card.get("structure")
    if isinstance(structure, list) and all(isinstance(part, dict) for part in structure):
        coupled_places([str(part.get("kind")) for part in structure], layer)  # refused without loading JAX
    from constructions.files.bundle import load
    from constructions.run.stream import coupled_layers
    from lemmaformer.network import network_of
    from verify.compare.spectrum import spectra

    net = network_of(load(files))
    tokens = net.tokens(tokens)
    if net.target is not None:
        net.target.check_tokens(tokens, "the input")
    network = net.transformer
    found = [head for index, scores, inputs in coupled_layers(network, tokens, layer) for head in spectra(scores, index, inputs)]
    unnormalised = sorted({head.layer for head in found if network.layers[head.layer].attention.kind == "nf"})
    seen = ", ".join(map(str, unnormalised))
    return found, f"layers without a normaliser, where the plain logits count: {seen}" if unnormalised else ""


def _of_file(path: Path, inputs: np.ndarray, options: SpectrumHeads) -> tuple[list["HeadSpectrum"], str]:
    """Heads of the query and key arrays of a file, and a remark."""
    from constructions.files.scores import read_scores
    from verify.compare.spectrum import spectra

    pairs = read_scores(path, options.heads, options.layer)
    found = [head for place, scores in pairs for head in spectra(scores, place, inputs)]
    return found, "" if len(pairs) == 1 else f"all {len(pairs)} pairs were given the same input; layer chooses one"
