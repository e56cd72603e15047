"""Published experiments, repeated: trained networks beside constructed ones and certified floors. All means are sampled."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analyzer.errors import InputError, OptionValue
from lemmaformer.options import ArmsRuns, Digits, Fig5, FullSeeds, HorizonRuns, Language, PointsRuns, WeSeeds
from lemmaformer.progress import PROGRESS, stepping, working
from lemmaformer.results.experiments import (
    Arms,
    HorizonExperiment,
    JlFigure1,
    JlFigure5,
    JlPoints,
    JlTable,
    JlTable1,
    WeLanguage,
    WeRegression,
)

if TYPE_CHECKING:
    from lemmaformer.network import Network

__all__ = ["arms", "horizon", "jl_fig_1", "jl_fig_5", "jl_points", "jl_table", "jl_table_1", "we", "we_lm"]

WE: dict[str, tuple[str, int, int]] = {
    "we-1b": ("three ±1 tokens far back, through ridges", 2000, 2),
    "we-2a": ("one token through ridges: neurons help, heads do not", 3000, 3),
    "we-2b": ("the sum of three tokens: heads help, neurons do not", 2000, 3),
    "we-3a": ("1b with and without dot products", 1000, 2),
    "we-4a": ("a kernel t^(-1/2): one log head against 64 lin heads", 10000, 3),
    "we-4b": ("a kernel e^(-5t): one lin head against 64 log heads", 10000, 3),
}
"""What it is, and the steps and seeds that are the default; the full version has 10000 and 5."""


def jl_table(table: Literal[2, 3], options: FullSeeds | None = None, **keywords: OptionValue) -> JlTable:
    """Jiang & Li, Table 2 (order and filters) or 3 (a memory without structure)."""
    from verify.experiments import jl_tables
    from verify.report.progress import training

    if table not in (2, 3):
        raise InputError(f"table is {table!r}; choose from 2, 3")
    chosen = FullSeeds.of(options, keywords)
    protocol = jl_tables.FULL if chosen.full else jl_tables.DEFAULT
    protocol = replace(protocol, seeds=chosen.seeds or protocol.seeds, steps=chosen.steps or protocol.steps)
    with training(not PROGRESS.get()) as report:
        return JlTable((jl_tables.table_2 if table == 2 else jl_tables.table_3)(protocol, report).as_dict())


def jl_fig_5(options: Fig5 | None = None, **keywords: OptionValue) -> JlFigure5:
    """Jiang & Li, Figure 5: error against m_h for given singular values, and which exponent it follows."""
    from verify.experiments.jl_fig_5 import fig_5

    chosen = Fig5.of(options, keywords)
    with stepping("running networks") as step:
        return JlFigure5(fig_5(chosen.sequences, chosen.seed, step))


def jl_points(figure: Literal[2, 3, 4], options: PointsRuns | None = None, **keywords: OptionValue) -> JlPoints:
    """Jiang & Li, the examples of Figures 2 to 4: nearest point, centre of mass, selection; certified networks beside trained ones."""
    if figure not in (2, 3, 4):
        raise InputError(f"figure is {figure!r}; choose from 2, 3, 4")
    from verify.experiments.jl_points import run
    from verify.report.progress import training

    chosen = PointsRuns.of(options, keywords)
    with training(not PROGRESS.get()) as report:
        return JlPoints(run(figure, chosen.steps, chosen.seeds, chosen.seed, report))


def jl_fig_1(options: Digits | None = None, **keywords: OptionValue) -> JlFigure1:
    """Jiang & Li, Figure 1, on scikit-learn's digits: training error of a vision Transformer against its head dimension m_h."""
    from constructions.training.digits import digits

    chosen = Digits.of(options, keywords)
    images, labels = digits()
    from verify.experiments.jl_digits import run
    from verify.report.progress import training

    start = time.perf_counter()
    with training(not PROGRESS.get()) as report:
        result = run(images, labels, chosen.seeds, chosen.steps, report)
    return JlFigure1({**result, "seconds": time.perf_counter() - start})


def jl_table_1(options: Digits | None = None, **keywords: OptionValue) -> JlTable1:
    """Jiang & Li, Table 1, on scikit-learn's digits: patches in another order, for a Transformer and for recurrent networks."""
    from constructions.training.digits import digits

    chosen = Digits.of(options, keywords)
    images, labels = digits()
    from verify.experiments.jl_table_1 import run
    from verify.report.progress import training

    with training(not PROGRESS.get()) as report:
        return JlTable1(run(images, labels, chosen.seeds, chosen.steps, report))


def horizon(options: HorizonRuns | None = None, **keywords: OptionValue) -> HorizonExperiment:
    """Do trained float32 networks ever beat the certified optimum for a lag, and where do they stop learning it?"""
    from verify.experiments.horizon import HorizonProtocol, run
    from verify.report.progress import training

    chosen = HorizonRuns.of(options, keywords)
    with training(not PROGRESS.get()) as report:
        return HorizonExperiment(run(HorizonProtocol(chosen.longest, chosen.seeds, chosen.steps), report))


def we(name: str, options: WeSeeds | None = None, **keywords: OptionValue) -> WeRegression:
    """Wang & E, experiments 1b to 4b: regression on fixed memories and kernels."""
    if name not in WE:
        raise InputError(f"experiment is {name[:40]!r}; choose from {', '.join(WE)}")
    chosen = WeSeeds.of(options, keywords)
    from verify.experiments import we as experiments
    from verify.report.progress import training

    protocol = (experiments.FULL if chosen.full else experiments.DEFAULT)[name]
    protocol = replace(protocol, seeds=chosen.seeds or protocol.seeds, steps=chosen.steps or protocol.steps, seed=chosen.seed)
    with training(not PROGRESS.get()) as report:
        return WeRegression(experiments.run(name, protocol, report).as_dict())


def we_lm(text: str | Path, options: Language | None = None, **keywords: OptionValue) -> WeLanguage:
    """Wang & E, 1a and 3b, on the characters of a text: depth against heads at equal parameters, with and without dot products."""
    from verify.experiments.corpus import read_corpus

    chosen = Language.of(options, keywords)
    corpus = read_corpus(Path(text), chosen.length)
    from verify.experiments.we_lm import run
    from verify.report.progress import training

    with training(not PROGRESS.get()) as report:
        return WeLanguage(run(corpus, chosen.length, chosen.steps, chosen.seeds, report))


def arms(network: "Network", out: str | Path, options: ArmsRuns | None = None, **keywords: OptionValue) -> Arms:
    """A constructed network, one of its structure trained from random weights, and one trained from its own; bundles go to `out`."""
    from constructions.files.card import check_new_folder, new_folder
    from lemmaformer.training import recipe_of

    chosen = ArmsRuns.of(options, keywords)
    if network.origin != "constructed":
        raise InputError(f"this network was {network.origin}, not constructed; build makes constructed ones")
    target = network.target
    if target is None:
        raise InputError("the network has no target")
    recipe = recipe_of(target, chosen)
    check_new_folder(Path(out))
    if chosen.supervise and target.as_memory_target is None:
        raise InputError("supervise is for memories; a coupling has none")
    from constructions.files.bundle import write
    from verify.bundles.claims import citation_of
    from verify.experiments.arms import compared, train_arms
    from verify.report.progress import training

    rates: dict[str, Any] = {"continued_rate": chosen.continued_rate, "supervise": chosen.supervise}
    with training(not PROGRESS.get()) as report:
        found = train_arms(network.bundle, target, recipe, chosen.dtype, report=report, **rates)
    with working("comparing"):
        result = compared(found, target, recipe.seed, recipe.signs)
    with new_folder(Path(out)) as place:
        for name, (bundle, run) in found.items():
            write(place / name, bundle.network, bundle.card, citation_of(bundle.card) if run is None else "")
    return Arms({**result, "out": str(out)})
