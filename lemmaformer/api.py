"""The functions of the library: targets, bounds, networks, certificates, training, comparison."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from analyzer.errors import InputError, OptionValue, Refusal
from analyzer.options import Options
from analyzer.statements.bounds import Bound, Choices
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Theorem

if TYPE_CHECKING:
    from flint import fmpq

    from analyzer.targets.protocol import Target
    from lemmaformer.network import Network
    from lemmaformer.options import Compare, Train
    from lemmaformer.results import Checked, Comparison
    from verify.chain.certificate import Certificate

PROGRESS: ContextVar[bool] = ContextVar("progress", default=False)
"""Whether long work shows what it does on a terminal: the command line wants it, a library is silent."""


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
    from analyzer.targets.fixed import target_from_dict

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
    from analyzer.targets.fixed import KernelMemory

    return KernelMemory((kernels,) if isinstance(kernels, str) else tuple(kernels), dim, readout)


def coupling(rho: str, *, f: str = "x", F: str = "y", length: int = 16) -> "Target":
    """A target in which tokens are compared, y_t = F(Σ_s softmax[rho(x_t, x_s)] f(x_s)), tokens in [0, 1].

    >>> import lemmaformer as lf
    >>> lf.coupling("-4*(u-v)**2").length
    16
    """
    from analyzer.targets.fixed import target_from_dict

    return target_from_dict({"kind": "coupling", "rho": rho, "f": f, "F": F, "length": length}, "coupling")


def load_target(path: str | Path) -> "Target":
    """A target from a TOML file (docs/targets.md has every key).

    >>> import lemmaformer as lf
    >>> from pathlib import Path
    >>> _ = Path("t.toml").write_text('kind = "fixed"\\nlags = [2, 5]\\n')
    >>> lf.load_target("t.toml").description
    'fixed(2, 5)'
    """
    from analyzer.targets.fixed import read_toml, target_from_dict

    return target_from_dict(read_toml(Path(path)), str(path))


def bound(theorem: str, target: "Target | None" = None, options: Options | None = None, **keywords: OptionValue) -> Bound:
    """What a theorem promises for a target at given sizes; with `error` it is solved for the fewest heads.

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
    if target is not None and target.kind != chosen.target:
        raise InputError(f"{theorem} is about {chosen.target} targets, this one is {target.kind}")
    if target is None and chosen.needs_target:
        raise InputError(f"{theorem} needs a target of kind {chosen.target}")
    read = chosen.bound_options.read(keywords, f" of {theorem}") if options is None else chosen.bound_options.of(options, keywords)
    return chosen.bound(target, read)


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
    from lemmaformer.network import Network
    from verify.bundles.claims import card_of
    from verify.bundles.ways_out import check, explained

    with working("building and certifying"):
        try:
            built = chosen.built_by()(target, read)
            certificate = chosen.verified_by()(built.network, target, built.bank, built.ffn)
            check(certificate, vars(read))
        except Refusal as refusal:
            raise refusal if theorem is not None else explained(refusal, target, read.chosen()) from None
    return Network(built.network, card_of(built, certificate), target, certificate)


def _named(theorem: str, target: "Target", options: Options | None, keywords: "dict[str, OptionValue]") -> tuple[Theorem, Options]:
    """A theorem that was asked for by its id, and its options."""
    chosen = THEOREMS[theorem]
    if chosen.build is None:
        chosen.built_by()
    if chosen.target != target.kind:
        raise InputError(f"{theorem} is about {chosen.target} targets, this one is {target.kind}")
    assert chosen.options is not None  # theorems that build have options
    return chosen, chosen.options.of(options, keywords)


def verify(what: "str | Path | Network", target: "Target | None" = None) -> "Certificate | Checked":
    """Certify a bundle or a network from its weights, on its own target or on another one; or re-check a certificate file.

    >>> import lemmaformer as lf
    >>> net = lf.build(lf.fixed(lags=(2,)))
    >>> lf.verify(net).verdict.value
    'holds'
    """
    path = Path(what) if isinstance(what, str | Path) else None
    if path is not None and path.is_file():
        return _recheck(path)
    net = load(path) if path is not None else cast("Network", what)
    with working("certifying"):
        if target is None or (net.target is not None and net.target.describe() == target.describe()):
            return net.verify()
        from verify.theorems.no_theorem import verify_learnt

        return verify_learnt(net.transformer, target)


def _recheck(path: Path) -> "Checked":
    from lemmaformer.results import Checked
    from verify.limits.certificate_files import check, read_json
    from verify.limits.hankel import FORMAT, check_kernel_certificate

    start = time.perf_counter()
    data = read_json(path)
    of_kernel = isinstance(data, dict) and data.get("format") == FORMAT
    found = check_kernel_certificate(data) if of_kernel else check(data)
    return Checked({**found, "verdict": "violated" if found["faults"] else "holds", "seconds": time.perf_counter() - start})


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


@contextmanager
def working(message: str) -> Iterator[None]:
    """A spinner, if somebody wants to see one."""
    from verify.report.progress import progress

    with progress(message, not PROGRESS.get()):
        yield


@contextmanager
def stepping(message: str) -> Iterator[Callable[[str], None]]:
    """A spinner that says what is being worked on, if somebody wants to see one."""
    from verify.report.progress import steps

    with steps(message, not PROGRESS.get()) as step:
        yield step
