"""`build`: the network of a theorem's proof, certified, as a bundle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from analyzer.errors import OptionValue
from analyzer.families import Adaptive, Coupling, Fixed, Kernel, Points, Representation
from analyzer.options import Options
from analyzer.statements.theorem import Theorem
from analyzer.targets.task import task_kinds, task_of
from lemmaformer.commands.flags import NEW, Answer, answers, flag, given, of_target, options_of, output, place, target_of

FAMILIES: dict[str, tuple[type[Options], str, str, str]] = {
    "fixed": (
        Fixed,
        "Given tokens back, by one layer or a chain of shifts.",
        "Fixed memories: y_t = f(x_t, x_{t-T1}, …), the tokens T1, T2, … steps back, by Theorem 3.1 of Wang & E in one layer that reads "
        "positions only (dp-free) or, with --depth, by a chain of shifts.",
        "lemmaformer build fixed --lags 2,5 --readout 'x0 + m1*m2' --error 1e-2 --out net  (3 seconds)",
    ),
    "adaptive": (
        Adaptive,
        "Lags that depend on the tokens.",
        "Adaptive memories: how far back to look is read off the tokens themselves, by Theorems 4.1 and 4.4 of Wang & E; one layer per "
        "level of dependency, with dot products (dp) or 't minus x' scores (tmx).",
        "lemmaformer build adaptive --target examples/nested.toml --out nested  (3 seconds)",
    ),
    "kernel": (
        Kernel,
        "Memories that fade with the distance.",
        "Essentially sparse memories: y_t = f(x_t, Σ ρ_k(s) x_{t-s}, …) with kernels that fade, by Theorem 5.1 of Wang & E.",
        "lemmaformer build kernel --kernel 'exp(-s/5)' --error 0.05 --out fading  (3 seconds)",
    ),
    "coupling": (
        Coupling,
        "One softmax head that compares tokens.",
        "Low-rank couplings: y_t = F(Σ softmax[rho(x_t, x_s)] f(x_s)) with one softmax head, by Theorem 4.2 of Jiang & Li.",
        "lemmaformer build coupling --rho 'exp(-4*(u-v)**2)' --error 0.05 --out near  (10 seconds)",
    ),
    "sequence": (
        Representation,
        "Any function of a sequence of letters, exactly.",
        "Functions of a whole sequence: y = F(x_1, …, x_N) on a finite alphabet, by one head that weighs all tokens alike and a table of "
        "neurons, by Theorem 4.1 of Jiang & Li, repaired.",
        "lemmaformer build sequence --formula 'x1*x2 - x3' --alphabet 0,1 --out word  (3 seconds)",
    ),
    "points": (
        Points,
        "One softmax head that compares points at positions.",
        "Couplings of points: y_t = F(Σ softmax[rho((t, x_t), (s, x_s))] f(s, x_s)) with points x_s of several coordinates and values of "
        "several components, after Jiang & Li, on finite sets of points or on boxes.",
        "lemmaformer build points --target examples/nearest_point.toml --out nearest  (5 seconds)",
    ),
}


class _Families(click.Group):
    """The families, the tasks, and under their own ids the library's other theorems and those of other distributions."""

    def list_commands(self, context: click.Context) -> list[str]:
        from analyzer.statements.registry import THEOREMS

        own = [*task_kinds(), *THEOREMS.library()]
        return [*FAMILIES, *dict.fromkeys(own), *(theorem.id for theorem in _foreign())]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in FAMILIES:
            family, brief, help, example = FAMILIES[name]
            return _command(name, name, None, family, brief, help, example)
        from analyzer.statements.registry import THEOREMS

        if name in task_kinds():
            task, (theorem, *_) = task_of(name), THEOREMS.of_kind(name)
            return _command(name, name, theorem.id, _options(theorem), task.brief, task.help, _spelt(name, task.example))
        for theorem in [THEOREMS[name]] if name in THEOREMS.library() else _foreign():
            if theorem.id == name and theorem.options is not None and theorem.target is not None:
                help = f"{theorem.title[0].upper()}{theorem.title[1:]}."
                return _command(name, theorem.target, name, theorem.options, theorem.title[:60], help, f"lemmaformer theorems {name}")
        return None


def _spelt(name: str, example: Mapping[str, OptionValue]) -> str:
    """The command that builds an example."""
    return " ".join(["lemmaformer build", name, *(flag(option, value) for option, value in example.items()), "--out net"])


def _needed(theorem: str) -> str | None:
    """The kind of target that a theorem needs, None if there are several."""
    from analyzer.statements.registry import THEOREMS

    return None if THEOREMS[theorem].others else THEOREMS[theorem].target


def _options(theorem: Theorem) -> type[Options]:
    assert theorem.options is not None  # theorems that build have options
    return theorem.options


def _foreign() -> list[Any]:
    from analyzer.statements.registry import THEOREMS

    return [theorem for theorem in THEOREMS.foreign() if theorem.build is not None]


def _command(name: str, kind: str, theorem: str | None, options: type[Options], brief: str, help: str, example: str) -> click.Command:
    @of_target(kind)
    @options_of(options)
    @click.option("--options", "file", type=NEW, help="A TOML file with options, such as error = 0.01; flags go before it.")
    @output
    @place("figure", "Each head's share of its kernels, or kernels by letter, .pdf, .svg or .png.")
    @answers
    def command(out: Path, force: bool, file: Path | None, figure: Path | None, **keywords: Any) -> Answer:
        import lemmaformer as lf
        from constructions.files.card import check_output
        from lemmaformer.pages import Written

        target = target_of(keywords, kind if theorem is None else _needed(theorem))
        read = options.of(None if file is None else options.read_file(file), given(keywords))
        check_output(out, overwrite=force)
        net = lf.build(target, read, theorem=theorem)
        place = None if figure is None else net.draw(figure)
        net.save(out, overwrite=force)
        return Written.built(net, out, place)

    return click.command(name, help=help, short_help=brief, epilog=f"Example: {example}")(command)


@click.group(cls=_Families)
def build() -> None:
    """Build the network of a theorem's proof and write it as a bundle: a folder with card, weights and citation.

    The network is certified before it is written: its worst-case error over all token sequences is at most what was asked for.
    """
