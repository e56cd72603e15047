"""Theorems about Transformers as running, certified code.

    import lemmaformer as lf

    target = lf.fixed(lags=(2, 5), readout="x0 + m1*m2")
    net = lf.build(target, error=1e-2)          # the network of the theorem's proof
    net.verify()                                # witness ≤ certified ≤ bound

Names are loaded when they are used: importing the package loads neither JAX nor sympy, rich nor matplotlib. May import from
`verify.experiments`, `verify.report` and what lies below them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from analyzer.notebooks import show_with

if TYPE_CHECKING:
    from analyzer.errors import InputError, LemmaformerError, Refusal
    from analyzer.families import Adaptive, AdaptiveBound, Coupling, CouplingBound, Fixed, FixedBound, Kernel, KernelBound
    from analyzer.options import Options, option
    from analyzer.statements.bounds import Bound, Choices
    from analyzer.statements.registry import THEOREMS as theorems
    from analyzer.statements.theorem import Case, Theorem
    from analyzer.targets.protocol import Target
    from constructions.theorems.construction import Construction
    from lemmaformer import experiments, limits
    from lemmaformer.api import adaptive, bound, bounds, build, compare, coupling, fixed, kernel, load_target, train, verify
    from lemmaformer.files import load
    from lemmaformer.network import Network
    from lemmaformer.options import Break, Compare, Train
    from lemmaformer.results import Comparison, Evaluation, Result
    from verify.chain.certificate import Certificate, Part, Verdict

_HOMES = {
    "analyzer.statements.bounds": ("Bound", "Choices"),
    "analyzer.errors": ("InputError", "LemmaformerError", "Refusal"),
    "analyzer.families": ("Adaptive", "AdaptiveBound", "Coupling", "CouplingBound", "Fixed", "FixedBound", "Kernel", "KernelBound"),
    "analyzer.options": ("Options", "option"),
    "analyzer.targets.protocol": ("Target",),
    "analyzer.statements.theorem": ("Case", "Theorem"),
    "constructions.theorems.construction": ("Construction",),
    "lemmaformer.api": (
        "adaptive", "bound", "bounds", "build", "compare", "coupling", "fixed", "kernel", "load_target", "train", "verify",
    ),
    "lemmaformer.files": ("load",),
    "lemmaformer.network": ("Network",),
    "lemmaformer.options": ("Break", "Compare", "Train"),
    "lemmaformer.results": ("Comparison", "Evaluation", "Result"),
    "verify.chain.certificate": ("Certificate", "Part", "Verdict"),
}  # fmt: skip
"""Where every public name lives."""
_PLACES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Adaptive", "AdaptiveBound", "Bound", "Break", "Case", "Certificate", "Choices", "Compare", "Comparison", "Construction", "Coupling",
    "CouplingBound", "Evaluation", "Fixed", "FixedBound", "InputError", "Kernel", "KernelBound", "LemmaformerError", "Network", "Options",
    "Part", "Refusal", "Result", "Target", "Theorem", "Train", "Verdict", "adaptive", "bound", "bounds", "build", "compare", "coupling",
    "experiments", "fixed", "kernel", "limits", "load", "load_target", "option", "theorems", "train", "verify",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "theorems":
        return import_module("analyzer.statements.registry").THEOREMS
    if name in ("experiments", "limits"):
        return import_module(f"lemmaformer.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'lemmaformer' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__


def _html(result: object) -> str:
    """Pages of notebooks come from the report, which is loaded when the first one is made."""
    from verify.report.showing import html

    return html(result)


show_with(_html)
