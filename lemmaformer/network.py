"""A network with the target it is for, the card that says where it comes from, and its certificate."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from analyzer.errors import InputError
from analyzer.families import FormName
from analyzer.notebooks import html_of
from analyzer.numbers.exact import decimal_above
from analyzer.statements.registry import THEOREMS
from analyzer.targets.protocol import Target
from constructions.files.bundle import Bundle, write
from constructions.network.transformer import Transformer
from constructions.run import stream
from constructions.run.apply import Parameters, apply, parameters
from constructions.run.execute import form_of, run
from constructions.run.sharded import section_of
from lemmaformer.options import Export, Measure, RunningForm
from lemmaformer.progress import certifying
from lemmaformer.results.base import Evaluation, Plain
from verify.bundles.claims import citation_of, verify_in_form, verify_in_sections
from verify.chain.certificate import Certificate
from verify.theorems.no_theorem import ORIGINS

if TYPE_CHECKING:
    import jax
    from torch import nn

    from constructions.files.broken import Change
    from constructions.run.token_by_token import Memory, TokenByToken
    from lemmaformer.outlets.exporting import Exported


class Network:
    """A network that runs, is certified, traced, saved and broken.

    >>> import lemmaformer as lf
    >>> net = lf.build(lf.fixed(lags=(2, 5), readout="x0 + m1*m2"), error=1e-2)
    >>> net
    <thm-3.1 fixed(2, 5): 1 layer, 5 heads, exact, certified 0.00951>
    >>> net([0, 0.5, 0, 0, 0, 0, 0.25]).shape
    (7,)
    """

    def __init__(self, transformer: Transformer, card: Plain, target: Target | None, certificate: Certificate | None = None) -> None:
        self.transformer = transformer
        self.card = card
        self.target = target
        self._certificate = certificate

    def __repr__(self) -> str:
        sizes = self.sizes
        layers = "1 layer" if sizes["layers"] == 1 else f"{sizes['layers']} layers"
        heads = "1 head" if sizes["heads"] == 1 else f"{sizes['heads']} heads"
        what = "no target" if self.target is None else self.target.description
        chain = self.card.get("chain")
        certified = chain.get("certified") if isinstance(chain, Mapping) else None
        known = f"certified {decimal_above(certified, 3)}" if isinstance(certified, float) else "not certified"
        known += " in mean square" if self.card.get("norm") == "mean-square" else ""
        return f"<{self.theorem or self.origin} {what}: {layers}, {heads}, {self.dtype}, {known}>"

    def summary(self) -> Plain:
        """What it is, as plain data: theorem or origin, target, dtype, sizes, slots, and the chain that its card claims."""
        what = None if self.target is None else self.target.description
        data: Plain = {"theorem": self.theorem, "origin": self.origin, "target": what, "dtype": self.dtype, "sizes": self.sizes}
        return data | {"slots": self.slots, "chain": self.card.get("chain"), "norm": self.card.get("norm", "sup")}

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __treescope_repr__(self, path: str | None, subtree_renderer: object) -> object:
        """A tree for treescope, which alone calls this: what `summary` says, and the weights."""
        from treescope import repr_lib

        attributes = {**self.summary(), "transformer": self.transformer}
        return repr_lib.render_object_constructor(
            object_type=type(self), attributes=attributes, path=path, subtree_renderer=subtree_renderer, roundtrippable=False
        )

    @property
    def origin(self) -> str:
        """constructed, trained or imported."""
        found = self.card.get("origin")
        return str(found) if found in ORIGINS else "constructed"

    @property
    def theorem(self) -> str | None:
        """The theorem that it was built for."""
        found = self.card.get("theorem")
        return None if found is None else str(found)

    @property
    def dtype(self) -> str:
        """exact, float64 or float32."""
        return self.transformer.dtype

    @property
    def sizes(self) -> dict[str, int]:
        """layers, heads (the most in a layer), width, model_dim and parameters."""
        return self.transformer.sizes()

    @property
    def bundle(self) -> Bundle:
        """Network and card, as they are stored."""
        return Bundle(self.transformer, self.card)

    @property
    def slots(self) -> dict[str, list[int]]:
        """Named slots of the residual stream and their coordinates.

        >>> import lemmaformer as lf
        >>> lf.build(lf.fixed(lags=(2, 5))).slots
        {'x0': [0], 'm1': [1], 'm2': [2]}
        """
        found = self._told("slots", stream.plain_slots(self.transformer))
        return {name: list(places) for name, places in found.items()}

    @property
    def mechanism(self) -> Plain:
        """What every slot holds, and what every head and neuron does: its role, the slots that it reads and those that it writes.

        Meanings are the construction's own; roles are read off the weights. Heads, neurons and layers count from 1.

        >>> import lemmaformer as lf
        >>> found = lf.build(lf.fixed(lags=(2,))).mechanism
        >>> found["slots"]["m1"]["meaning"], found["layers"][0]["heads"][0]["role"]
        ('the token 2 steps back', 'extract')
        """
        from constructions.run.mechanism import mechanism

        meanings = self._told("meanings", {})
        slots = {name: {"coordinates": places, "meaning": meanings.get(name)} for name, places in self.slots.items()}
        return {"slots": slots, "layers": mechanism(self.transformer, self.slots)}

    def _told(self, what: str, otherwise: dict[str, Any]) -> dict[str, Any]:
        """What the module that built the network says of it by a function of that name, if there is one."""
        if self.theorem is None or self.target is None:
            return otherwise
        room = sys.modules[THEOREMS[self.theorem].built_by().__module__]
        told: Callable[..., dict[str, Any]] | None = getattr(room, what, None)
        return otherwise if told is None else told(self.target, self.transformer)

    @property
    def certificate(self) -> Certificate:
        """The chain witness ≤ certified ≤ bound; computed once."""
        if self._certificate is None:
            self._certificate = self.verify()
        return self._certificate

    def verify(
        self,
        *,
        margin: bool = False,
        seconds: float | None = None,
        norm: str | None = None,
        tokens: str | None = None,
        section: int | None = None,
        form: FormName | None = None,
    ) -> Certificate:
        """Certify it from its weights, and hold the card's claims against that; with `margin` certify its decisions too.

        `seconds` of one core are granted to searches for sharper certificates (trained softmax layers); work is counted, not time.
        With `norm="mean-square"` it is E|error|² over independent `tokens` ("uniform", "signs" or "gaussian") that is certified. With
        `section` the certificate is that of arrays which devices share, cut into sections of so many tokens or more (`evaluate`), and with
        `form` that of lin heads which run so, "scan", "blocked" or "associative"; otherwise in the form of this device, as a call does.

        >>> import lemmaformer as lf
        >>> net = lf.build(lf.fixed(lags=(2,)))
        >>> net.verify().verdict.value
        'holds'
        >>> found = net.verify(norm="mean-square", tokens="gaussian")
        >>> found.witness <= found.certified < net.verify().certified ** 2
        True
        """
        measure = Measure.read({"norm": norm, "tokens": tokens, "section": section, "form": form})
        if margin:
            measure.refuse("margin")
        with certifying(seconds) as effort:
            if measure.section is not None:
                return verify_in_sections(self.bundle, measure.section, effort)
            running = form_of(self.transformer, measure.form)
            return verify_in_form(self.bundle, running, margin, effort, measure.norm, measure.tokens)

    def __call__(self, tokens: ArrayLike, *, letters: bool = False, devices: int = 1, form: FormName | None = None) -> np.ndarray:
        """Outputs (N,) or (batch, N), (N, c) or (batch, N, c) of classifiers: the evaluation that the certificate covers.

        Tokens are arrays or lists of shape (N,) for dimension 1, (N, d) or (batch, N, d); with `letters` they are indices into the
        target's alphabet.
        """
        return self.evaluate(tokens, letters=letters, devices=devices, form=form).outputs

    def evaluate(self, tokens: ArrayLike, *, letters: bool = False, devices: int = 1, form: FormName | None = None) -> Evaluation:
        """The same, with the time it took and what the certificate does not cover.

        Float networks run on several `devices` of JAX: a batch is spread over them, which changes nothing for the certificate; fewer
        sequences than devices are cut into sections, whose length it says. That needs heads with a memory of fixed size, as `step` does,
        and is certified by `verify(section=...)`.

        Lin heads run in a `form`, that of this device if none is asked for: "scan" goes token by token, "blocked" and "associative" take
        fewer steps one after the other (`constructions.network.recurrences`). `verify(form=...)` certifies it.
        """
        given = self.tokens(tokens, letters=letters)
        if self.target is not None:
            self.target.check_domain(given, "the input")
        start = time.perf_counter()
        asked = RunningForm(form).form
        chosen = form_of(self.transformer, asked)
        outputs = run(self.transformer, given, devices, asked)
        seconds = time.perf_counter() - start
        length = None if self.target is None else self.target.length
        longer = length is not None and given.shape[-2] > length and self.dtype != "exact"
        strange = None if self.target is None else self.target.outside_alphabet(given)
        lost = int((~np.isfinite(outputs)).sum())
        section = None if devices == 1 else section_of(self.transformer, given, devices)
        scanned = section is not None or chosen == "scan"
        beyond = given.shape[-2] if longer else None
        return Evaluation(outputs, self.dtype, seconds, lost, strange, beyond, section, None if scanned else chosen)

    @cached_property
    def _by_token(self) -> "TokenByToken":
        from constructions.run.token_by_token import TokenByToken

        return TokenByToken(self.transformer)

    def start(self, batch: int | None = None) -> "Memory":
        """The memory before the first token, for `step` and `feed`; of a batch of sequences, if `batch` says how many.

        Float networks of lin, table and fast log heads have a memory of fixed size; others are refused.
        """
        return self._by_token.start(batch)

    def step(self, memory: "Memory", token: ArrayLike) -> "tuple[Memory, np.ndarray]":
        """The next token, (d,) or (batch, d): the memory after it, and the output there. `verify(form="scan")`, on processors what is
        certified anyway, covers it at any length.

        >>> import lemmaformer as lf
        >>> net = lf.build(lf.fixed(lags=(2,)), dtype="float64")
        >>> memory, found = net.start(), []
        >>> for token in (1.0, 0.0, 0.0, 0.0):
        ...     memory, output = net.step(memory, token)
        ...     found.append(round(float(output), 1))
        >>> found
        [0.0, 0.0, 1.0, 0.0]
        """
        one = np.asarray(token)
        plain = self.transformer.dim == 1 and one.ndim == memory[0].states.ndim - 3
        return self._by_token.step(memory, one[..., None] if plain else one)

    def feed(self, memory: "Memory", tokens: ArrayLike) -> "tuple[Memory, np.ndarray]":
        """The next tokens, as many as there are: the memory after them, and the outputs there.

        >>> import lemmaformer as lf
        >>> net = lf.build(lf.fixed(lags=(2,)), dtype="float64")
        >>> memory, outputs = net.feed(net.start(), [1.0, 0.0, 0.0])
        >>> round(float(outputs[-1]), 1), round(float(net.step(memory, 0.0)[1]), 1)
        (1.0, 0.0)
        """
        many = np.asarray(tokens)
        plain = self.transformer.dim == 1 and many.ndim == memory[0].states.ndim - 2
        return self._by_token.feed(memory, many[..., None] if plain else many)

    def tokens(self, tokens: ArrayLike, *, letters: bool = False) -> np.ndarray:
        """Tokens as an array (N, d) or (batch, N, d)."""
        try:
            array = np.asarray(tokens)
        except ValueError:
            raise InputError("tokens are no array: its rows have different lengths") from None
        if array.dtype.kind not in "fiu" or array.size == 0:
            raise InputError("tokens are no numbers, or none at all")
        if letters:
            if self.target is None:
                raise InputError("letters need a target with an alphabet; this network has none")
            array = self.target.tokens_of(array)
        return array[:, None] if array.ndim == 1 and self.transformer.dim == 1 else array

    @cached_property
    def params(self) -> Parameters:
        """The weights as a JAX pytree of floats: its own; of an exact network its kernels in float64, or its rounded weights.

        Refused where rounding loses an exact network.
        """
        length = 2 if self.target is None else self.target.length or self.target.settled + 8
        probe = None if self.target is None else self.target.draw(np.random.default_rng(0), (4, length))
        return parameters(self.transformer, probe)

    def apply(self, params: Parameters, tokens: "jax.Array | np.ndarray") -> "jax.Array":
        """Outputs as a pure function of weights and tokens, for jit, grad and vmap; tokens as in a call.

        It runs the plain pass, which has derivatives in every weight; what is certified is `net(tokens)`. Weights of 64 bits are refused
        where JAX would cut them to 32: wrap the call in `jax.enable_x64(True)`.

        >>> import jax, lemmaformer as lf
        >>> net = lf.build(lf.fixed(lags=(2,)), dtype="float32", error=0.1)
        >>> jax.jit(net.apply)(net.params, jax.numpy.ones(5)).shape
        (5,)
        """
        if tokens.ndim == 1 and self.transformer.dim == 1:
            tokens = tokens[:, None]
        return apply(params, tokens, dtype=self.params.dtype)

    def trace(self, tokens: ArrayLike, *, letters: bool = False) -> dict[str, dict[str, np.ndarray]]:
        """The residual stream after every attention, slot by slot, and the output.

        >>> import lemmaformer as lf
        >>> net = lf.build(lf.fixed(lags=(2,)))
        >>> [round(float(value), 1) for value in net.trace([1, 0, 0, 0])["layer 1"]["m1"]]
        [0.0, 0.0, 1.0, 0.0]
        """
        return stream.trace(self.transformer, self.tokens(tokens, letters=letters), self.slots)

    def patterns(self, tokens: ArrayLike, *, letters: bool = False) -> dict[str, np.ndarray]:
        """Attention weights of every layer, (…, H, N, N): how much position t (row) attends to s (column).

        What a row lacks to 1 lies on the zeros before the array, where the softmax runs over the infinite past.

        >>> import lemmaformer as lf
        >>> lf.build(lf.fixed(lags=(2,))).patterns([1, 0, 0])["layer 1"].shape
        (2, 3, 3)
        """
        found = stream.patterns(self.transformer, self.tokens(tokens, letters=letters))
        return {f"layer {number}": pattern.weights for number, pattern in enumerate(found, start=1)}

    def draw(self, path: str | Path, tokens: ArrayLike | None = None, *, letters: bool = False) -> Path:
        """Its figure as a .pdf, .svg or .png file: how its heads share each kernel, or the kernels of adaptive memories by letter.

        With `tokens`, one sequence, the residual stream on them as a coloured table. A file that is there is replaced.

        >>> import lemmaformer as lf
        >>> lf.build(lf.fixed(lags=(4,))).draw("shares.svg").name
        'shares.svg'
        """
        from lemmaformer.drawing import draw_mechanism, draw_stream

        if tokens is None:
            written = draw_mechanism(Path(path), self.transformer, self.target, self.slots)
        else:
            written = draw_stream(Path(path), repr(self), self.tokens(tokens, letters=letters), self.trace)
        if not written:
            raise InputError("figures need matplotlib: pip install 'lemmaformer[figures]'")
        return Path(path)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write a bundle; an existing one is replaced, in one step, only with `overwrite`."""
        card = {**self.card, "slots": self.slots}
        write(Path(path), self.transformer, card, citation_of(card), overwrite=overwrite)
        return Path(path)

    def to_torch(self) -> "nn.Module":
        """The network as a PyTorch module with a hook point at every activation and every named slot (docs/exports.md).

        Its `form` is "heads" wherever float64 holds the heads. Exact networks whose weights cancel to more digits have the forms "kernels"
        or "lags": the same slots, but no attention patterns; a larger `error` or `dtype="float64"` builds networks with patterns.
        """
        from constructions.exports.torch_modules import to_torch
        from lemmaformer.outlets.exporting import drawn

        return to_torch(self.transformer, self.slots, drawn(self.target, self.transformer))

    def to_numpy(self, path: str | Path, *, overwrite: bool = False) -> "Exported":
        """One file of plain numpy with the weights as literals, to be read.

        >>> import lemmaformer as lf
        >>> lf.build(lf.fixed(lags=(2,))).to_numpy("net.py").certified
        False
        """
        return self._export(Export(to="numpy"), path, overwrite)

    def to_jax(self, path: str | Path, *, length: int | None = None, overwrite: bool = False) -> "Exported":
        """A serialized program of `jax.export` for any batch of sequences of one length.

        >>> import lemmaformer as lf
        >>> lf.build(lf.fixed(lags=(2,))).to_jax("net.jax", length=32).as_dict()["shape"]
        ['batch', 32, 1]
        """
        return self._export(Export(to="jax", length=length), path, overwrite)

    def to_onnx(self, path: str | Path, *, overwrite: bool = False) -> "Exported":
        """An ONNX graph."""
        return self._export(Export(to="onnx"), path, overwrite)

    def _export(self, options: Export, path: str | Path, overwrite: bool) -> "Exported":
        from lemmaformer.outlets.exporting import exported

        return exported(self.bundle, self.slots, self.target, options, Path(path), overwrite)

    def broken(
        self,
        weight: str,
        *,
        by: float,
        head: int | None = None,
        layer: int | None = None,
        index: Sequence[int] | None = None,
    ) -> "tuple[Network, Change, Certificate]":
        """The network with one weight changed but the same card, what was changed, and what the certificate says now.

        Heads and layers count from 1; without an index the largest entry is changed.

        >>> import lemmaformer as lf
        >>> net = lf.build(lf.fixed(lags=(2, 5), readout="x0 + m1*m2"), error=1e-2)
        >>> changed, change, after = net.broken("output", head=2, by=1e-3)
        >>> after.verdict.value
        'violated'
        """
        from constructions.files.broken import broken
        from verify.bundles.broken import compare_chains

        place = None if index is None else tuple(index)
        changed, change = broken(self.transformer, weight, by=by, layer=layer, head=head, index=place)
        _, after = compare_chains(self.bundle, changed)
        return Network(changed, self.card, self.target), change, after


def network_of(bundle: Bundle) -> Network:
    """A network that was stored."""
    from analyzer.targets.files import target_from_dict

    data = bundle.card.get("target")
    target = None if data is None else target_from_dict(data, "card.json")
    return Network(bundle.network, cast(Plain, bundle.card), target)
