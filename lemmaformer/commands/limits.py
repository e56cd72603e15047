"""`limits`: what no network of a class can do, with certificates."""

from pathlib import Path
from typing import Any

import click

from analyzer.errors import InputError
from lemmaformer.commands.flags import NEW, Answer, answers, given, of_target, options_of, place, target_of
from lemmaformer.options import (
    ArchitecturesLimits,
    CouplingLimits,
    DpFreeLimits,
    HeadsLimits,
    InvarianceLimits,
    KernelLimits,
    LagLimits,
    PermutationLimits,
    PositionsLimits,
    RnnLimits,
    SlopesLimits,
)

CERTIFICATE = click.option("--certificate", type=NEW, help="Write what proves it to a file that `verify` re-checks.")
FORCE = click.option("--force", is_flag=True, help="Replace the certificate file, if it exists.")


@click.group()
def limits() -> None:
    """What no network of a class can do, whatever its weights: lower bounds with proofs, beside what is reached."""


@limits.command(
    "kernel",
    short_help="A fading memory with H heads.",
    epilog="Example: lemmaformer limits kernel --kernel '(s+1)**-2' --heads 2  (5 seconds)",
)
@click.option("--kernel", "text", required=True, help="A kernel in s, e.g. '(s+1)**-2'.")
@options_of(KernelLimits)
@CERTIFICATE
@FORCE
@place("figure", "The kernel and both sides, .pdf, .svg or .png.")
@answers
def kernel(text: str, certificate: Path | None, force: bool, figure: Path | None, **keywords: Any) -> Answer:
    """A memory kernel with H heads: what a fitted bank reaches, and what no decays and no read-out can beat."""
    import lemmaformer as lf

    if keywords["heads"] is None:
        raise InputError("give --heads")
    found = lf.limits.kernel(text, certificate=certificate, overwrite=force, **given(keywords))
    return found if figure is None else found.draw(figure)


@limits.command(
    "architectures",
    short_help="RNNs, SSMs, CNNs and heads for one kernel.",
    epilog="Example: lemmaformer limits architectures --kernel 's**-2' --sizes 1,2,4 --error 0.01  (15 seconds)",
)
@click.option("--kernel", "text", required=True, help="A kernel in s, e.g. 's**-2'.")
@options_of(ArchitecturesLimits)
@place("figure", "Both sides against size, .pdf, .svg or .png.")
@answers
def architectures(text: str, figure: Path | None, **keywords: Any) -> Answer:
    """The curse of memory: what states, windows and heads can do for one memory kernel, both sides certified.

    Linear RNNs without a skip and SSMs with one, any read-out of their states; CNNs, any function of their window; one dp-free layer of
    lin or log heads, any feed-forward network. Softmax and dot products are not compared.
    """
    import lemmaformer as lf

    found = lf.limits.architectures(text, **given(keywords))
    return found if figure is None else found.draw(figure)


@limits.command(
    "coupling",
    short_help="m_h coordinates and a coupling.",
    epilog="Example: lemmaformer limits coupling --rho 'exp(-(u-v)**2)'  (10 seconds)",
)
@of_target("coupling")
@options_of(CouplingLimits)
@place("figure", "The spectrum, .pdf, .svg or .png.")
@answers
def coupling(figure: Path | None, **keywords: Any) -> Answer:
    """A coupling: certified singular values, and what no m_h query and key coordinates can beat."""
    import lemmaformer as lf

    target = target_of(keywords, "coupling")
    found = lf.limits.coupling(target, **given(keywords))
    return found if figure is None else found.draw(figure)


@limits.command(
    "permutation",
    short_help="What order costs without positions.",
    epilog="Example: lemmaformer limits permutation --formula 'x1 - x2*x3' --alphabet 0,1  (3 seconds)",
)
@of_target("sequence")
@options_of(PermutationLimits)
@answers
def permutation(**keywords: Any) -> Answer:
    """A function of a sequence of letters: the least error of networks that do not see positions, from both sides.

    With --error: is that error possible without positions? The exit code is 1 if it is not, and 3 if that is undecided.
    """
    import lemmaformer as lf

    target = target_of(keywords, "sequence")
    return lf.limits.permutation(target, **given(keywords))


@limits.command(
    "heads",
    short_help="A lag by relative and by absolute positions.",
    epilog="Example: lemmaformer limits heads --lags 12,64  (2 seconds)",
)
@options_of(HeadsLimits)
@place("figure", "Heads and bits against the lag, .pdf, .svg or .png.")
@answers
def heads(figure: Path | None, **keywords: Any) -> Answer:
    """Heads, bits and depth that a lag costs: what relative positions need, and what absolute ones are certified with."""
    import lemmaformer as lf

    found = lf.limits.heads(**given(keywords))
    return found if figure is None else found.draw(figure)


@limits.command(
    "invariance",
    short_help="When two couplings are one target.",
    epilog="Example: lemmaformer limits invariance --rho '-(u-v)**2' --other-rho '2*u*v - v**2'  (5 seconds)",
)
@of_target("coupling")
@options_of(InvarianceLimits)
@answers
def invariance(**keywords: Any) -> Answer:
    """Two representations of a coupling: are they the same target? Ranks count modulo functions of the query.

    The exit code is 1 if a sequence shows a difference, and 3 if nothing is shown.
    """
    import lemmaformer as lf

    target = target_of(keywords, "coupling")
    return lf.limits.invariance(target, **given(keywords))


@limits.command(
    "rnn",
    short_help="Recurrent networks and the order of tokens.",
    epilog="Example: lemmaformer limits rnn --kernel 'exp(-s)'  (2 seconds)",
)
@click.option("--kernel", "text", required=True, help="A kernel in s, e.g. 'exp(-s)'.")
@options_of(RnnLimits)
@click.option("--filter", "weights", help="Weights such as 0.5,0.25,0.25 of a filter; their sizes add up to at most 1.")
@place("figure", "The kernel in both orders, .pdf, .svg or .png.")
@answers
def rnn(text: str, weights: str | None, figure: Path | None, **keywords: Any) -> Answer:
    """Recurrent networks: C_RNN of a kernel, what no causal model can do once tokens change places, and what filters do."""
    import lemmaformer as lf

    theta = None if weights is None else [part.strip() for part in weights.split(",")]
    found = lf.limits.rnn(text, filter=theta, **given(keywords))
    return found if figure is None else found.draw(figure)


@limits.command("dp-free", short_help="What positions alone cannot do.", epilog="Example: lemmaformer limits dp-free  (3 seconds)")
@options_of(DpFreeLimits)
@answers
def dp_free(**keywords: Any) -> Answer:
    """Proposition 4.2: attention that reads positions only (dp-free) errs by 1 where one dot-product layer reaches any error."""
    import lemmaformer as lf

    return lf.limits.dp_free(**given(keywords))


@limits.command(
    "lag", short_help="Heads and bits that a lag costs.", epilog="Example: lemmaformer limits lag --lag 4 --dtype float32  (2 seconds)"
)
@click.option("--lag", type=int, help="How many tokens back.")
@options_of(LagLimits, leave_out=("bits",))
@click.option("--bits", help="The arithmetic by unit roundoff 2^-B; with --horizon also a range such as 8-64.")
@click.option("--horizon", "wants_horizon", is_flag=True, help="The largest lag with an error below 1/2; all dtypes unless one is given.")
@CERTIFICATE
@FORCE
@place("figure", "Heads against lag, with --horizon error against lag; .pdf, .svg, .png.")
@answers
def lag(
    lag: int | None, bits: str | None, wants_horizon: bool, certificate: Path | None, force: bool, figure: Path | None, **keywords: Any
) -> Answer:
    """Lags: how many heads one needs, and the least error that an arithmetic allows, over all decays."""
    import lemmaformer as lf

    said, sizes = given(keywords), None if bits is None else lf.limits.bits_of(bits)
    if wants_horizon:
        if lag is not None or "heads" in said or "norm" in said or certificate is not None:
            raise InputError("--horizon looks for the lag itself; --lag, --heads, --norm and --certificate do not go with it")
        found = lf.limits.horizon(**said, bits=sizes, curves=figure is not None)
        return found if figure is None else found.draw(figure)
    if lag is None or (sizes is not None and len(sizes) > 1):
        raise InputError("give --lag, or --horizon; a range of bits goes with --horizon")
    if sizes is not None:
        said["bits"] = sizes[0]
    limit = lf.limits.lag(lag, certificate=certificate, overwrite=force, **said)
    return limit if figure is None else limit.draw(figure)


@limits.command(
    "slopes", short_help="Which lags given slopes resolve.", epilog="Example: lemmaformer limits slopes --slopes alibi:8  (20 seconds)"
)
@click.option("--slopes", help="Decays of a model's heads: alibi:8, or numbers such as 0.5,0.25.")
@click.option("--model", type=NEW, help="Folder of a published model in place of --slopes: config.json and safetensors.")
@options_of(SlopesLimits)
@CERTIFICATE
@FORCE
@place("figure", "Best error against lag, .pdf, .svg or .png.")
@answers
def slopes(slopes: str | None, model: Path | None, certificate: Path | None, force: bool, figure: Path | None, **keywords: Any) -> Answer:
    """Given slopes, or those of a published model: which lags can position-only heads with these decays resolve at all?

    A model is a folder as Hugging Face writes it (bloom, mpt, falcon, t5, mt5, umt5, rwkv, minimax, retnet); nothing in it is run.
    """
    import lemmaformer as lf

    found = lf.limits.slopes(slopes, model=model, certificate=certificate, overwrite=force, **given(keywords))
    return found if figure is None else found.draw(figure)


@limits.command(
    "positions",
    short_help="Which lags a scheme of positions resolves.",
    epilog="Example: lemmaformer limits positions --scheme t5 --scheme table  (1 second; all of them half a minute)",
)
@click.option(
    "--scheme", "schemes", multiple=True, help="alibi, t5, kerple, table, stride, lin, log, mixed; once per scheme.  [default: all]"
)
@options_of(PositionsLimits)
@place("figure", "Lags and schemes, .pdf, .svg or .png.")
@answers
def positions(schemes: tuple[str, ...], figure: Path | None, **keywords: Any) -> Answer:
    """Schemes of relative positions: which lags can heads resolve at all that read positions only?"""
    import lemmaformer as lf

    found = lf.limits.positions(schemes or "all", **given(keywords))
    return found if figure is None else found.draw(figure)
