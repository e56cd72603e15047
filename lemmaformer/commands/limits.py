"""`limits`: what no network of a class can do, with certificates."""

from pathlib import Path
from typing import Any

import click

from analyzer.errors import InputError
from lemmaformer.commands.flags import NEW, Answer, answers, given, of_target, options_of, place, target_of
from lemmaformer.options import CouplingLimits, DpFreeLimits, KernelLimits, LagLimits, RnnLimits, SlopesLimits

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
@answers
def kernel(text: str, certificate: Path | None, force: bool, **keywords: Any) -> Answer:
    """A memory kernel with H heads: what a fitted bank reaches, and what no decays and no read-out can beat."""
    import lemmaformer as lf

    if keywords["heads"] is None:
        raise InputError("give --heads")
    return lf.limits.kernel(text, certificate=certificate, overwrite=force, **given(keywords))


@limits.command(
    "coupling",
    short_help="m_h coordinates and a coupling.",
    epilog="Example: lemmaformer limits coupling --rho 'exp(-(u-v)**2)'  (10 seconds)",
)
@of_target("coupling")
@options_of(CouplingLimits)
@place("figure", "The spectrum as a PNG file.")
@answers
def coupling(figure: Path | None, **keywords: Any) -> Answer:
    """A coupling: certified singular values, and what no m_h query and key coordinates can beat."""
    import lemmaformer as lf

    target = target_of(keywords, "coupling")
    found = lf.limits.coupling(target, **given(keywords))
    return found if figure is None else found.draw(figure)


@limits.command(
    "rnn",
    short_help="Recurrent networks and the order of tokens.",
    epilog="Example: lemmaformer limits rnn --kernel 'exp(-s)'  (2 seconds)",
)
@click.option("--kernel", "text", required=True, help="A kernel in s, e.g. 'exp(-s)'.")
@options_of(RnnLimits)
@click.option("--filter", "weights", help="Weights such as 0.5,0.25,0.25 of a filter; their sizes add up to at most 1.")
@answers
def rnn(text: str, weights: str | None, **keywords: Any) -> Answer:
    """Recurrent networks: C_RNN of a kernel, what no causal model can do once tokens change places, and what filters do."""
    import lemmaformer as lf

    theta = None if weights is None else [part.strip() for part in weights.split(",")]
    return lf.limits.rnn(text, filter=theta, **given(keywords))


@limits.command("dp-free", short_help="What positions alone cannot do.", epilog="Example: lemmaformer limits dp-free  (3 seconds)")
@options_of(DpFreeLimits)
@answers
def dp_free(**keywords: Any) -> Answer:
    """Proposition 4.2: attention that reads positions only (dp-free) errs by 1 where one dot-product layer reaches any error."""
    import lemmaformer as lf

    return lf.limits.dp_free(**given(keywords))


@limits.command(
    "lag", short_help="Heads and bits that a lag costs.", epilog="Example: lemmaformer limits lag --lag 4 --dtype float32  (10 seconds)"
)
@click.option("--lag", type=int, help="How many tokens back.")
@options_of(LagLimits, leave_out=("bits",))
@click.option("--bits", help="The arithmetic by unit roundoff 2^-B; with --horizon also a range such as 8-64.")
@click.option("--horizon", "wants_horizon", is_flag=True, help="The largest lag with an error below 1/2; all dtypes unless one is given.")
@CERTIFICATE
@FORCE
@place("figure", "With --horizon: error against lag as a PNG file.")
@answers
def lag(
    lag: int | None, bits: str | None, wants_horizon: bool, certificate: Path | None, force: bool, figure: Path | None, **keywords: Any
) -> Answer:
    """Lags: how many heads one needs, and the least error that an arithmetic allows, over all decays."""
    import lemmaformer as lf

    said, sizes = given(keywords), None if bits is None else lf.limits.bits_of(bits)
    if wants_horizon:
        if lag is not None or "heads" in said or certificate is not None:
            raise InputError("--horizon looks for the lag itself; --lag, --heads and --certificate do not go with it")
        found = lf.limits.horizon(said.get("rpe", "lin"), bits=sizes, dtype=said.get("dtype"), curves=figure is not None)
        return found if figure is None else found.draw(figure)
    if lag is None or figure is not None or (sizes is not None and len(sizes) > 1):
        raise InputError("give --lag, or --horizon; --figure and a range of bits go with --horizon")
    if sizes is not None:
        said["bits"] = sizes[0]
    return lf.limits.lag(lag, certificate=certificate, overwrite=force, **said)


@limits.command(
    "slopes", short_help="Which lags given slopes resolve.", epilog="Example: lemmaformer limits slopes --slopes alibi:8  (20 seconds)"
)
@click.option("--slopes", required=True, help="Decays of a model's heads: alibi:8, or numbers such as 0.5,0.25.")
@options_of(SlopesLimits)
@CERTIFICATE
@FORCE
@place("figure", "Best error against lag as a PNG file.")
@answers
def slopes(slopes: str, certificate: Path | None, force: bool, figure: Path | None, **keywords: Any) -> Answer:
    """Given slopes: which lags can position-only heads with these decays resolve at all?"""
    import lemmaformer as lf

    found = lf.limits.slopes(slopes, certificate=certificate, overwrite=force, **given(keywords))
    return found if figure is None else found.draw(figure)
