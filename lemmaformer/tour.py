"""The tour: every act is computed (`verify.experiments.demo`), shown if somebody looks on (`verify.report.demo`), and written."""

from pathlib import Path

from lemmaformer.checking import check
from lemmaformer.progress import PROGRESS, working
from lemmaformer.results.base import Demo
from verify.experiments import demo
from verify.report import demo as report
from verify.report import figures


def toured(out: Path, overwrite: bool) -> Demo:
    """Run the tour, write figure, CSV files and bundles into `out`, and return the numbers; what is there stays unless `overwrite`."""
    demo.prepare(out, overwrite)
    shown, error = PROGRESS.get(), demo.ERROR
    network, adaptive, long_lag, coupling, counterexample = (out / name for name in demo.BUNDLES)

    with working("counting heads"):
        heads = demo.heads_table()
    if shown:
        report.show_heads(heads, error)

    with working("building and certifying"):
        fixed, chain = demo.fixed_memory()
    if shown:
        report.show_network(demo.TARGET, error, chain)
    demo.write_bundle(network, fixed, chain, overwrite)

    with working("building and certifying"):
        nested, nested_chain, slots = demo.mechanism()
    if shown:
        report.show_mechanism(demo.NESTED, error, demo.SEQUENCE, slots, nested_chain)
    demo.write_bundle(adaptive, nested, nested_chain, overwrite)

    with working("looking for horizons, building beyond them"):
        horizons, (deep, deep_chain) = demo.horizons(), demo.long_lag()
    if shown:
        report.show_depth(horizons, demo.LONG_LAG, error, deep_chain)
    demo.write_bundle(long_lag, deep, deep_chain, overwrite)

    with working("decomposing a coupling"):
        (coupled, coupled_chain, ranks), recurrent = demo.low_rank(), demo.recurrent()
    if shown:
        report.show_coupling(demo.COUPLING.coupling.name, ranks, coupled_chain, recurrent)
    demo.write_bundle(coupling, coupled, coupled_chain, overwrite)

    with working("checking claims"):
        claims = [check(claim, demo.CLAIM_SIZES, bank="tuned", out=counterexample, overwrite=overwrite).as_dict() for claim in demo.CLAIMS]
    if shown:
        report.show_claims(claims)

    with working("drawing"):
        figure = _drawn(out)
    if shown:
        report.show_written(out, demo.BUNDLES, figure)
    return Demo(
        {
            "heads": heads,
            "chain": chain.as_dict(),
            "adaptive": {"sequence": list(demo.SEQUENCE), "slots": slots, "chain": nested_chain.as_dict()},
            "depth": {"horizons": horizons, "chain": deep_chain.as_dict()},
            "coupling": {"ranks": ranks, "chain": coupled_chain.as_dict(), "rnn": recurrent},
            "claims": claims,
            "figure": figure,
        }
    )


def _drawn(out: Path) -> str | None:
    """The figure and its numbers; None if matplotlib is not installed."""
    kernel, curves, growth = demo.kernel_values(), demo.error_curves(), demo.growth_curves()
    values, errors, heads = (out / name for name in demo.NUMBERS)
    report.write_csv(values, ["s", "kappa"], list(enumerate(kernel)))
    report.write_csv(errors, ["curve", "heads", "error"], [(n, h, e) for n, c in curves.items() for h, e in c])
    report.write_csv(heads, ["curve", "lag", "heads"], [(n, t, h) for n, c in growth.items() for t, h in c])
    path = out / demo.FIGURE
    return str(path) if figures.tour(path, kernel, demo.LAG, curves, growth) else None
