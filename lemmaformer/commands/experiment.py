"""`experiment`: published experiments, repeated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from lemmaformer.commands.flags import NEW, Answer, answers, given, options_of, place
from lemmaformer.options import ArmsRuns, Digits, Fig5, FullSeeds, HorizonRuns, Language, PointsRuns, WeSeeds


@click.group()
def experiment() -> None:
    """Published experiments, repeated: trained networks beside constructed ones and certified floors."""


@experiment.command(
    "jl-table-2", short_help="Order and filters: RNN and Transformer.", epilog="Example: lemmaformer experiment jl-table-2  (4 minutes)"
)
@options_of(FullSeeds)
@place("figure", "Errors beside the certified floor, .pdf, .svg or .png.")
@answers
def jl_table_2(figure: Path | None, **keywords: Any) -> Answer:
    """Jiang & Li, Table 2: an RNN minds the order of tokens, a Transformer minds filters.

    [default: 3 seeds, 6000 steps; full: 5 and 30000]
    """
    import lemmaformer as lf

    found = lf.experiments.jl_table(2, **given(keywords))
    return found if figure is None else found.draw(figure)


@experiment.command(
    "jl-table-3", short_help="A memory without structure.", epilog="Example: lemmaformer experiment jl-table-3  (2 minutes)"
)
@options_of(FullSeeds)
@place("figure", "Errors beside the certified floor, .pdf, .svg or .png.")
@answers
def jl_table_3(figure: Path | None, **keywords: Any) -> Answer:
    """Jiang & Li, Table 3: a memory without structure, in order and permuted.  [default: 3 seeds, 6000 steps; full: 5 and 30000]"""
    import lemmaformer as lf

    found = lf.experiments.jl_table(3, **given(keywords))
    return found if figure is None else found.draw(figure)


@experiment.command(
    "jl-fig-5", short_help="Error against m_h, and its exponent.", epilog="Example: lemmaformer experiment jl-fig-5  (one minute)"
)
@options_of(Fig5)
@place("figure", "Error against m_h, .pdf, .svg or .png.")
@answers
def jl_fig_5(figure: Path | None, **keywords: Any) -> Answer:
    """Jiang & Li, Figure 5: error against m_h for given singular values, and which exponent it follows."""
    import lemmaformer as lf

    found = lf.experiments.jl_fig_5(**given(keywords))
    return found if figure is None else found.draw(figure)


@experiment.command("jl-table-1", short_help="Images in another order.", epilog="Example: lemmaformer experiment jl-table-1  (3 minutes)")
@options_of(Digits)
@place("figure", "Held-out errors in both orders, .pdf, .svg or .png.")
@answers
def jl_table_1(figure: Path | None, **keywords: Any) -> Answer:
    """Jiang & Li, Table 1, on scikit-learn's digits: patches in another order, for a Transformer and for recurrent networks."""
    import lemmaformer as lf

    found = lf.experiments.jl_table_1(**given(keywords))
    return found if figure is None else found.draw(figure)


@experiment.command(
    "jl-fig-1", short_help="Images of digits: error against m_h.", epilog="Example: lemmaformer experiment jl-fig-1  (2 minutes)"
)
@options_of(Digits)
@place("figure", "Error against head dimension and spectra, .pdf, .svg or .png.")
@answers
def jl_fig_1(figure: Path | None, **keywords: Any) -> Answer:
    """Jiang & Li, Figure 1, on scikit-learn's digits: training error of a vision Transformer against its head dimension m_h."""
    import lemmaformer as lf

    found = lf.experiments.jl_fig_1(**given(keywords))
    return found if figure is None else found.draw(figure)


@experiment.command(
    "horizon", short_help="Do trained layers beat certified limits?", epilog="Example: lemmaformer experiment horizon  (5 minutes)"
)
@options_of(HorizonRuns)
@place("figure", "Error against lag, .pdf, .svg or .png.")
@answers
def horizon(figure: Path | None, **keywords: Any) -> Answer:
    """Do trained float32 networks ever beat the certified optimum for a lag, and where do they stop learning it?"""
    import lemmaformer as lf

    found = lf.experiments.horizon(**given(keywords))
    return found if figure is None else found.draw(figure)


@experiment.command(
    "we-lm",
    short_help="Language models of a text's characters.",
    epilog="Example: lemmaformer experiment we-lm --text book.txt  (8 minutes)",
)
@click.option("--text", type=NEW, required=True, metavar="FILE", help="A UTF-8 text; its last tenth is held out.")
@options_of(Language)
@place("figure", "Held-out losses against weights, .pdf, .svg or .png.")
@answers
def we_lm(text: Path, figure: Path | None, **keywords: Any) -> Answer:
    """Wang & E, 1a and 3b, on the characters of a text: depth against heads at equal parameters, with and without dot products."""
    import lemmaformer as lf

    found = lf.experiments.we_lm(text, **given(keywords))
    return found if figure is None else found.draw(figure)


@experiment.command(
    "arms", short_help="Does training find the mechanism?", epilog="Example: lemmaformer experiment arms net --out arms  (one minute)"
)
@click.argument("folder", type=NEW, metavar="BUNDLE")
@options_of(ArmsRuns)
@click.option("--out", type=NEW, required=True, help="A new folder for the bundles of all arms.")
@place("figure", "The comparison, .pdf, .svg or .png.")
@answers
def arms(folder: Path, out: Path, figure: Path | None, **keywords: Any) -> Answer:
    """A constructed network (BUNDLE), one of its structure trained from random weights, and one trained from its own weights.

    Does training find, keep or leave the mechanism? The arms are written as bundles into --out and compared.
    """
    import lemmaformer as lf

    found = lf.experiments.arms(lf.load(folder), out, **given(keywords))
    return found if figure is None else found.draw(figure)


def _points(figure: Literal[2, 3, 4], subject: str) -> None:
    """`experiment jl-fig-2`, `jl-fig-3` and `jl-fig-4`."""
    name = f"jl-fig-{figure}"

    @experiment.command(name, short_help=f"{subject}: error against m_h.", epilog=f"Example: lemmaformer experiment {name}  (2 minutes)")
    @options_of(PointsRuns)
    @place("figure", "Errors against m_h beside singular values, .pdf, .svg or .png.")
    @answers
    def command(figure: Path | None, **keywords: Any) -> Answer:
        import lemmaformer as lf

        found = lf.experiments.jl_points(number, **given(keywords))
        return found if figure is None else found.draw(figure)

    number = figure
    command.help = f"Jiang & Li, the example of Figure {figure}, {subject.lower()}: certified networks of every m_h beside trained ones."


_points(2, "Nearest point")
_points(3, "Centre of mass")
_points(4, "Selection of inputs")


def _regression(name: str, subject: str, steps: int, seeds: int) -> None:
    """`experiment we-…`."""

    @experiment.command(name, short_help=subject[:50].split(":")[0], epilog=f"Example: lemmaformer experiment {name}  (1 to 2 minutes)")
    @options_of(WeSeeds)
    @place("figure", "Errors beside published ones and floors, .pdf, .svg or .png.")
    @answers
    def command(figure: Path | None, **keywords: Any) -> Answer:
        import lemmaformer as lf

        found = lf.experiments.we(name, **given(keywords))
        return found if figure is None else found.draw(figure)

    command.help = f"Wang & E, experiment {name[3:]}: {subject}.  [default: {seeds} seeds, {steps} steps; full: 5 and 10000]"


def _all(add: Callable[[str, str, int, int], None]) -> None:
    from lemmaformer.experiments import WE

    for name, about in WE.items():
        add(name, *about)


_all(_regression)
