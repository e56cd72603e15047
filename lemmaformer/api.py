"""The functions of the library: targets, bounds, networks, certificates, training, comparison."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from analyzer.errors import InputError, OptionValue, Refusal
from analyzer.options import Options
from analyzer.statements.bounds import Bound, Choices
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Theorem
from lemmaformer.progress import certifying, working

if TYPE_CHECKING:
    from flint import fmpq

    from analyzer.families import FormName
    from analyzer.targets.protocol import Target
    from lemmaformer.network import Network
    from lemmaformer.options import Compare, Export, Measure, Train, Workers
    from lemmaformer.outlets.exporting import Exported
    from lemmaformer.results.claims import Sweep
    from lemmaformer.results.experiments import Comparison
    from lemmaformer.results.limits import Checked
    from verify.chain.certificate import Certificate


def fixed(
    lags: Sequence[int] | int, *, readout: str | None = None, dim: int = 1, alphabet: "Sequence[int | float | str | fmpq] | None" = None
) -> "Target":
    """A target of fixed memories, y_t = f(x_t, x_{t−T_1}, …): `readout` in x0, m1, m2, …; by default the sum of the memories.

    >>> import lemmaformer as lf
    >>> lf.fixed(lags=(2, 5), readout="x0 + m1*m2").description
    'fixed(2, 5)'
    """
    from analyzer.numbers.exact import number_of
    from analyzer.targets.fixed import FixedMemory

    letters = None if alphabet is None else tuple(number_of(letter, "alphabet") for letter in alphabet)
    return FixedMemory((lags,) if isinstance(lags, int) else tuple(lags), dim, readout, letters)


def adaptive(
    alphabet: Sequence[object], memories: "dict[str, str | int | Sequence[int] | tuple[Sequence[int], str]]", *, readout: str | None = None
) -> "Target":
    """A target whose lags depend on the tokens: every memory has an expression in x0 and other memories, a table over the alphabet,
    or (table, parent).

    >>> import lemmaformer as lf
    >>> lf.adaptive([-1, 1], {"m1": [1, 2], "m2": ([2, 1], "m1")}, readout="m1*m2").description
    'adaptive(m1, m2)'
    """
    from analyzer.targets.files import target_from_dict

    tokens = [list(token) if isinstance(token, list | tuple) else [token] for token in alphabet]
    entries: list[dict[str, object]] = []
    for name, lag in memories.items():
        if isinstance(lag, tuple) and len(lag) == 2 and isinstance(lag[1], str):
            entries.append({"name": name, "lag": list(lag[0]), "parent": lag[1]})
        else:
            entries.append({"name": name, "lag": lag if isinstance(lag, str | int) else list(lag)})
    return target_from_dict({"kind": "adaptive", "alphabet": tokens, "readout": readout, "memory": entries}, "adaptive")


def kernel(kernels: str | Sequence[str], *, readout: str | None = None, dim: int = 1) -> "Target":
    """A target of memories that fade, y_t = f(x_t, Σ_s ρ_1(s) x_{t−s}, …): expressions in s; `readout` in x0, k1, k2, ….

    >>> import lemmaformer as lf
    >>> lf.kernel("exp(-s/5)").description
    'kernel(exp(-s/5))'
    """
    from analyzer.targets.kernel import KernelMemory

    return KernelMemory((kernels,) if isinstance(kernels, str) else tuple(kernels), dim, readout)


def coupling(rho: str, *, f: str = "x", F: str = "y", length: int = 16) -> "Target":
    """A target in which tokens are compared, y_t = F(Σ_s softmax[rho(x_t, x_s)] f(x_s)), tokens in [0, 1].

    >>> import lemmaformer as lf
    >>> lf.coupling("-4*(u-v)**2").length
    16
    """
    from analyzer.targets.files import target_from_dict

    return target_from_dict({"kind": "coupling", "rho": rho, "f": f, "F": F, "length": length}, "coupling")


def sequence(formula: str, *, alphabet: "Sequence[object]", length: int | None = None) -> "Target":
    """A function of a whole sequence of letters, y = F(x_1, …, x_N) at every position: a formula in x1, x2, ….

    N is `length`, or the largest number that occurs. Tokens are pairs of a position and a letter (`target.tokens` makes them).

    >>> import lemmaformer as lf
    >>> lf.sequence("x1*x2 - x3", alphabet=(0, 1)).length
    3
    """
    import re

    from analyzer.targets.files import target_from_dict

    named = [int(number) for number in re.findall(r"\bx([1-9]\d{0,3})\b", str(formula))]
    chosen = max(named, default=1) if length is None else length
    return target_from_dict({"kind": "sequence", "formula": formula, "alphabet": alphabet, "length": chosen}, "sequence")


def points(
    rho: str | Sequence[str],
    *,
    f: "str | Sequence[str | Sequence[str]] | None" = None,
    F: str = "y1",
    length: int = 16,
    space: int = 1,
    points: "Sequence[Sequence[object]] | None" = None,
) -> "Target":
    """A target in which points at positions are compared, y_t = F(Σ_s softmax[rho((t, x_t), (s, x_s))] f(s, x_s)).

    Points x_s have `space` coordinates. `rho` is in t, s, u1, … and v1, …, `f` in s and x1, … (by default all coordinates), `F` in y1, y2,
    …; lists of formulas are added up, for `f` a list has one entry for each component. `points` are those that tokens are made of, for all
    positions or for each; without them tokens are in the box [0, 1]^space.

    >>> import lemmaformer as lf
    >>> lf.points("4*u1*v1", length=3).dim
    2
    """
    from analyzer.targets.files import target_from_dict

    data: dict[str, object] = {"kind": "points", "length": length, "space": space, "rho": _plain(rho), "F": F}
    data |= {name: _plain(value) for name, value in (("f", f), ("points", points)) if value is not None}
    return target_from_dict(data, "points")


def _plain(value: object) -> object:
    """Tuples and lists as lists."""
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def task(kind: str, **parameters: OptionValue) -> "Target":
    """A target that a few parameters describe: one of the tasks of the library of constructions (docs/library.md).

    >>> import lemmaformer as lf
    >>> lf.task("addition", digits=10).description
    'addition(10 digits)'
    """
    from analyzer.targets.task import task_of

    return task_of(kind).target(parameters)


def load_target(path: str | Path) -> "Target":
    """A target from a TOML file (docs/targets.md has every key).

    >>> import lemmaformer as lf
    >>> from pathlib import Path
    >>> _ = Path("t.toml").write_text('kind = "fixed"\\nlags = [2, 5]\\n')
    >>> lf.load_target("t.toml").description
    'fixed(2, 5)'
    """
    from analyzer.targets.files import target_from_dict
    from analyzer.toml import read_toml

    return target_from_dict(read_toml(Path(path)), str(path))


def bound(
    theorem: str,
    target: "Target | None" = None,
    options: Options | None = None,
    *,
    figure: str | Path | None = None,
    **keywords: OptionValue,
) -> Bound:
    """What a theorem promises for a target at given sizes; with `error` it is solved for the fewest heads.

    `figure` is a .pdf, .svg or .png file for the promise against the number of heads, around those that are given or found.

    >>> import lemmaformer as lf
    >>> found = lf.bound("thm-3.1", lf.fixed(lags=(4,)), heads=256, bank="tuned")
    >>> found
    <Bound thm-3.1, 256 heads: attention error ≤ 0.215326>
    >>> lf.bound("thm-3.1", lf.fixed(lags=(4,)), error=1e-2).heads
    527
    """
    chosen = THEOREMS[theorem]
    if chosen.bound is None or chosen.bound_options is None:
        where = f": {chosen.instead}" if chosen.instead else "; it is a limit, stated on its page and evaluated by `limits`"
        raise InputError(f"{theorem} has no bound to evaluate{where}")
    if target is not None and target.kind not in chosen.kinds:
        raise InputError(f"{theorem} is about {' and '.join(chosen.kinds)} targets, this one is {target.kind}")
    if target is None and chosen.needs_target:
        raise InputError(f"{theorem} needs a target of kind {chosen.target}")
    other = "norm" in keywords and "norm" not in chosen.bound_options.__dataclass_fields__
    if other and keywords.pop("norm") != "sup":
        raise InputError(f"{theorem} has no bound in mean square; thm-3.1, thm-5.1 and least-squares have")
    read = chosen.bound_options.read(keywords, f" of {theorem}") if options is None else chosen.bound_options.of(options, keywords)
    found = chosen.bound(target, read)
    return found if figure is None else _with_rate(chosen, found, target, read, Path(figure))


def _with_rate(chosen: Theorem, found: Bound, target: "Target | None", read: Options, path: Path) -> Bound:
    """The same bound with its rate drawn."""
    from dataclasses import replace

    from lemmaformer.drawing import draw_rate

    if target is None or not {"heads"} <= set(read.__dataclass_fields__):
        raise InputError(f"{chosen.id} does not speak of heads: there is no rate to draw")
    solved: dict[str, Any] = {"error": None} if "error" in read.__dataclass_fields__ else {}
    promised = cast("Callable[[Any, Any], Bound]", chosen.bound)
    drawn = draw_rate(path, found, target, lambda heads: promised(target, replace(read, **{"heads": heads, **solved})))
    return replace(found, data={**found.data, "figure": str(path) if drawn else None})


def bounds(theorem: str, target: "Target", *, rpe: str = "lin", heads: int | None = None, error: float | None = None) -> Choices:
    """The bound of thm-3.1 under every choice of constants in one table, beside the lag law.

    >>> import lemmaformer as lf
    >>> [row["heads"] for row in lf.bounds("thm-3.1", lf.fixed(lags=(4,)), error=1e-2).rows]
    [6653, 527, 4, 4]
    """
    from analyzer.families import FixedBound
    from analyzer.theorems import thm_3_1

    if theorem != thm_3_1.ID:
        raise InputError(f"theorem is {theorem[:40]!r}; every choice in one table is for {thm_3_1.ID}")
    checked = FixedBound.read({"rpe": rpe, "heads": heads, "error": error})
    return thm_3_1.choices(cast(Any, target), checked.rpe, heads, error)


def build(target: "Target", options: Options | None = None, *, theorem: str | None = None, **keywords: OptionValue) -> "Network":
    """Build the network of a theorem's proof for a target, and certify it; the theorem is picked from target and options.

    Options are keywords, or an object such as `lf.Fixed(...)`. A network that misses the error asked for is refused.

    >>> import lemmaformer as lf
    >>> net = lf.build(lf.fixed(lags=(2, 5), readout="x0 + m1*m2"), error=1e-2)
    >>> net.theorem, net.sizes["heads"]
    ('thm-3.1', 5)
    """
    chosen, read = THEOREMS.choose(target, keywords, options) if theorem is None else _named(theorem, target, options, keywords)
    if chosen.check is not None:
        chosen.check(target, read)
    from constructions.run.execute import form_of
    from lemmaformer.network import Network
    from verify.bundles.claims import card_of, certified
    from verify.bundles.ways_out import check, explained

    with working("building and certifying"):
        try:
            built = chosen.built_by()(target, read)
            certificate = certified(chosen, built)
            check(certificate, vars(read))
        except Refusal as refusal:
            alone = theorem is not None or getattr(read, "norm", "sup") != "sup"  # ways out are those of the worst case
            raise refusal if alone else explained(refusal, target, read.chosen()) from None
    card, scanned = card_of(built, certificate), form_of(built.network, None) == "scan"
    return Network(built.network, card, target, certificate if scanned else None)


def _named(theorem: str, target: "Target", options: Options | None, keywords: "dict[str, OptionValue]") -> tuple[Theorem, Options]:
    """A theorem that was asked for by its id, and its options."""
    chosen = THEOREMS[theorem]
    if chosen.build is None:
        chosen.built_by()
    family = chosen.options_for(target.kind)
    if target.kind not in chosen.kinds or family is None:
        raise InputError(f"{theorem} is about {' and '.join(chosen.kinds)} targets, this one is {target.kind}")
    return chosen, family.of(options, keywords)


def verify(
    what: "str | Path | Network",
    target: "Target | None" = None,
    *,
    margin: bool = False,
    seconds: float | None = None,
    norm: str | None = None,
    tokens: str | None = None,
    section: int | None = None,
    form: "FormName | None" = None,
) -> "Certificate | Checked":
    """Certify a bundle or a network from its weights, on its own target or on another one; or re-check a certificate file.

    Of an ONNX file graph and initialisers are first held against the network in it (docs/onnx.md): a difference is a fault. Lin heads are
    scanned there, whatever suits the device.

    With `margin` its decisions between the values of a target on a finite alphabet are certified too, refuted by a sequence, or undecided.
    `seconds` of one core are granted to searches for sharper certificates (trained softmax layers); work is counted, not time.
    With `norm="mean-square"` it is E|error|² over independent `tokens` ("uniform", "signs" or "gaussian") that is certified. With `section`
    the certificate is that of arrays which devices share, cut into sections of so many tokens or more (`net.evaluate`), and with
    `form` that of lin heads which run so: "scan", "blocked" or "associative".

    >>> import lemmaformer as lf
    >>> net = lf.build(lf.fixed(lags=(2,)))
    >>> lf.verify(net).verdict.value
    'holds'
    """
    from lemmaformer.options import Measure

    measure = Measure.read({"norm": norm, "tokens": tokens, "section": section, "form": form})
    if margin:
        measure.refuse("margin")
    path = Path(what) if isinstance(what, str | Path) else None
    if path is not None and path.suffix == ".onnx" and not path.is_dir():
        if form not in (None, "scan"):
            raise InputError(f"lin heads are scanned in {str(path)[:80]}: form is scan there")
        return _verify_onnx(path, target, margin=margin, seconds=seconds, norm=norm, tokens=tokens, section=section)
    if path is not None and path.is_file():
        if margin or seconds is not None or form is not None:
            named = "margin" if margin else "seconds" if seconds is not None else "form"
            raise InputError(f"{str(path)[:80]} is a certificate file; {named} is for networks")
        measure.refuse("a certificate file")
        return _recheck(path)
    from lemmaformer.files import load

    net = load(path) if path is not None else cast("Network", what)
    if target is None or (net.target is not None and net.target.describe() == target.describe()):
        return net.verify(margin=margin, seconds=seconds, norm=norm, tokens=tokens, section=section, form=form)
    if section is not None:
        raise InputError("section goes with the network's own target only")
    return _verify_on(net, target, measure, margin, seconds)


def _verify_on(net: "Network", target: "Target", measure: "Measure", margin: bool, seconds: float | None) -> "Certificate":
    """The certificate of a network on a target that is not its own, as it runs here or in the form that is asked for."""
    from dataclasses import replace

    from constructions.network.recurrences import chosen, using
    from constructions.run.execute import form_of
    from verify.bundles.claims import with_margin
    from verify.theorems.mean_square import verify_mean_square
    from verify.theorems.no_theorem import verify_learnt

    with certifying(seconds) as effort, using(form_of(net.transformer, measure.form)):
        if measure.norm == "mean-square" or measure.tokens is not None:
            found: Certificate = verify_mean_square(net.transformer, target, measure.tokens or "uniform")
        else:
            found = verify_learnt(net.transformer, target, effort=effort)
        if chosen() != "scan":
            found = replace(found, details={**found.details, "form": chosen()})
        return with_margin(net.transformer, target, found) if margin else found


def _verify_onnx(path: Path, target: "Target | None", **options: Any) -> "Certificate | Checked":
    """The certificate of the network in an ONNX file; where the file is not what that network makes is one of its faults."""
    from dataclasses import replace

    from constructions.network.recurrences import using
    from lemmaformer.network import network_of
    from verify.bundles.onnx_files import changed_network, onnx_bundle

    bundle, slots, faults = onnx_bundle(path, needs_card=target is None)
    net = network_of(bundle)
    if bundle.card.get("theorem") is not None and net.slots != slots:
        faults = (*faults, "the ONNX file: its slots are not those of the network")
    try:
        with using("scan"):
            found = cast("Certificate", verify(net, target, **options))
    except InputError:
        if not faults:
            raise
        return changed_network(bundle, faults)
    return replace(found, faults=found.faults + faults) if faults else found


def _recheck(path: Path) -> "Checked":
    from lemmaformer.results.limits import Checked
    from verify.limits.certificate_files import check, read_json
    from verify.limits.hankel import FORMAT, check_kernel_certificate

    start = time.perf_counter()
    data = read_json(path)
    of_kernel = isinstance(data, dict) and data.get("format") == FORMAT
    found = check_kernel_certificate(data) if of_kernel else check(data)
    return Checked({**found, "verdict": "violated" if found["faults"] else "holds", "seconds": time.perf_counter() - start})


def train(
    target: "Target | None" = None,
    options: "Train | None" = None,
    *,
    start: "Network | None" = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    **keywords: OptionValue,
) -> "Network":
    """Train a network on a target, from random weights or from those of `start`; the result is certified where that is possible.

    >>> import lemmaformer as lf
    >>> lf.train(lf.fixed(lags=(1,)), rpe="table", heads=1, linear=True, steps=40, length=8, batch=4).origin
    'trained'
    """
    from lemmaformer.options import Train
    from lemmaformer.training import trained

    return trained(target, Train.of(options, keywords), start, None if checkpoint is None else Path(checkpoint), resume, set(keywords))


def compare(
    *networks: "Network | str | Path", target: "Target | None" = None, options: "Compare | None" = None, **keywords: OptionValue
) -> "Comparison":
    """Networks of one target side by side: certified errors, and sampled ones, kernels and probes on the same random sequences.

    >>> import lemmaformer as lf
    >>> one, two = (lf.build(lf.fixed(lags=(1,)), error=error) for error in (0.1, 0.01))
    >>> [column["name"] for column in lf.compare(one, two, sequences=4).networks]
    ['1', '2']
    """
    from lemmaformer.comparing import compared
    from lemmaformer.options import Compare

    return compared(networks, target, Compare.of(options, keywords))


def sweep(
    spec: "str | Path | Mapping[str, Any]",
    options: "Workers | None" = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    **keywords: OptionValue,
) -> "Sweep":
    """Run a command of the library over a grid or a random design (docs/sweeps.md): one row per job, failures and refusals too.

    `spec` is a TOML file or the same as a mapping. With `out`, a .csv or .parquet file, rows are kept in a journal beside it as they come,
    and the same call goes on from there after any interruption. `workers` and `scheduler` say who runs the jobs, `again` which of those in
    the journal are run again.

    >>> import lemmaformer as lf
    >>> lf.sweep({"call": "build", "target": {"kind": "fixed", "lags": ["{T}"]}, "grid": {"T": [2, 3], "heads": [2]}})
    <Sweep of build: 1 done, 1 refused, 0 failed>
    """
    from lemmaformer.options import Workers
    from lemmaformer.results.claims import Sweep
    from lemmaformer.sweeps.design import read_design
    from lemmaformer.sweeps.running import sweep_in_memory, sweep_to_file

    chosen = Workers.of(options, keywords)
    design = read_design(spec)
    if out is None:
        if chosen.again is not None:
            raise InputError("again needs a place for the table: its journal has the jobs that were done")
        return Sweep(*sweep_in_memory(design, chosen.workers, chosen.scheduler))
    return Sweep(*sweep_to_file(design, Path(out), overwrite, chosen.workers, chosen.scheduler, chosen.again))


def export(
    net: "Network | str | Path", options: "Export | None" = None, *, out: str | Path, overwrite: bool = False, **keywords: OptionValue
) -> "Exported":
    """Write a network for another program: PyTorch, ONNX, JAX or plain numpy (docs/exports.md).

    Its outputs are compared with the network's own on random sequences, and refused if they differ by more than rounding can explain.

    >>> import lemmaformer as lf
    >>> lf.export(lf.build(lf.fixed(lags=(2,))), to="numpy", out="lag_2.py").place.name
    'lag_2.py'
    """
    from lemmaformer.files import load
    from lemmaformer.options import Export
    from lemmaformer.outlets.exporting import check_place, exported

    chosen = Export.of(options, keywords)
    check_place(Path(out), overwrite)
    found = load(net) if isinstance(net, str | Path) else net
    return exported(found.bundle, found.slots, found.target, chosen, Path(out), overwrite)
